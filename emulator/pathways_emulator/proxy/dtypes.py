# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Element types: IFRT's numbers, numpy's and MLIR's names for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import ml_dtypes
import numpy as np

from pathways_emulator.proxy.status import unimplemented


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        kind: ``xla.ifrt.DTypeProto.Kind``.
        name: As MLIR spells it.
        numpy: On the host. Types of less than a byte take a whole byte there, on the wire too.
    """

    kind: int
    name: str
    numpy: np.dtype[np.generic]

    @property
    def is_token(self) -> bool:
        """A token orders effects and has no data."""
        return self.kind == _TOKEN_KIND


_TOKEN_KIND = 17


def _table() -> tuple[DType, ...]:
    rows: tuple[tuple[int, str, type], ...] = (
        (1, "i1", np.bool_),
        (26, "i2", ml_dtypes.int2),
        (21, "i4", ml_dtypes.int4),
        (2, "i8", np.int8),
        (3, "i16", np.int16),
        (4, "i32", np.int32),
        (5, "i64", np.int64),
        (27, "ui2", ml_dtypes.uint2),
        (22, "ui4", ml_dtypes.uint4),
        (6, "ui8", np.uint8),
        (7, "ui16", np.uint16),
        (8, "ui32", np.uint32),
        (9, "ui64", np.uint64),
        (10, "f16", np.float16),
        (11, "f32", np.float32),
        (12, "f64", np.float64),
        (16, "bf16", ml_dtypes.bfloat16),
        (15, "complex<f32>", np.complex64),
        (18, "complex<f64>", np.complex128),
        (29, "f8E3M4", ml_dtypes.float8_e3m4),
        (28, "f8E4M3", ml_dtypes.float8_e4m3),
        (20, "f8E4M3FN", ml_dtypes.float8_e4m3fn),
        (23, "f8E4M3B11FNUZ", ml_dtypes.float8_e4m3b11fnuz),
        (25, "f8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz),
        (19, "f8E5M2", ml_dtypes.float8_e5m2),
        (24, "f8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz),
        (31, "f8E8M0FNU", ml_dtypes.float8_e8m0fnu),
        (30, "f4E2M1FN", ml_dtypes.float4_e2m1fn),
        (_TOKEN_KIND, "!stablehlo.token", np.bool_),
    )
    return tuple(DType(kind, name, np.dtype(scalar)) for kind, name, scalar in rows)


_BY_KIND: Mapping[int, DType] = MappingProxyType({dtype.kind: dtype for dtype in _table()})
_BY_NAME: Mapping[str, DType] = MappingProxyType({dtype.name: dtype for dtype in _table()})


def dtype_of_kind(kind: int) -> DType:
    """The type with IFRT's number ``kind``.

    Raises:
        ProxyError: UNIMPLEMENTED, if the CPU runtime has no such type (strings, opaque values).
    """
    dtype = _BY_KIND.get(kind)
    if dtype is None:
        raise unimplemented(f"element type {kind} (xla.ifrt.DTypeProto.Kind) of an array")
    return dtype


def dtype_named(name: str) -> DType:
    """The type that MLIR calls ``name``, such as ``f32``.

    Raises:
        ProxyError: UNIMPLEMENTED, if the CPU runtime has no such type.
    """
    dtype = _BY_NAME.get(name)
    if dtype is None:
        raise unimplemented(f"element type {name} of a program's result")
    return dtype
