# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""jaxlib's compiled modules, for the rest of the proxy.

They come without type stubs, so this is where the emulator gives up static types for them.

JAX itself, whose import would take most of the proxy's start, is not needed: programs come lowered.
What importing it does to jaxlib and programs rely on, the targets of custom calls, is done here.
"""

from importlib import import_module
from typing import Any

# Objects of jaxlib's own classes.
type XlaArray = Any
type XlaClient = Any
type XlaDevice = Any
type XlaExecutable = Any
type XlaSharding = Any
type HloSharding = Any

hlo: Any = import_module("jaxlib._hlo")
jax: Any = import_module("jaxlib._jax")

ir: Any = import_module("jaxlib.mlir.ir")

_client: Any = import_module("jaxlib.xla_client")
_custom_calls: tuple[Any, ...] = (
    import_module("jaxlib.lapack"),
    import_module("jaxlib.cpu_sparse"),
)
_lapack: Any = import_module("jaxlib.cpu._lapack")

_upstream: Any = import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")
_chlo: Any = import_module("jaxlib.mlir.dialects.chlo")
_mhlo: Any = import_module("jaxlib.mlir.dialects.mhlo")
_sdy: Any = import_module("jaxlib.mlir.dialects.sdy")
_stablehlo: Any = import_module("jaxlib.mlir.dialects.stablehlo")


def make_cpu_client(device_count: int) -> XlaClient:
    """A CPU client with that many virtual devices.

    The client of a session lowers its programs itself, so nothing but this loads LAPACK in our
    process; without it the first decomposition would end the process.
    """
    for module in _custom_calls:
        for platform, targets in module.registrations().items():
            for name, function, version in targets:
                _client.register_custom_call_target(
                    name, function, platform=platform, api_version=version
                )
    for name in _custom_calls[0].batch_partitionable_targets():
        _client.register_custom_call_as_batch_partitionable(name)
    _lapack.initialize()
    return _client.make_cpu_client(num_devices=device_count)


# jaxlib's bindings come without types, so the class is Any to mypy, and no base for another.
class ProgramContext(ir.Context):  # type: ignore[misc]
    """An MLIR context that can hold a program as JAX lowers it. A context of Python's ``with``.

    For one program and one thread: what a context has interned stays as long as it does.
    """

    def __init__(self) -> None:
        # Not the constructor of ir.Context itself, which loads every dialect that there is and
        # takes longer than reading most programs.
        super(ir.Context, self).__init__()
        registry = ir.DialectRegistry()
        _upstream.register_dialects(registry)
        self.append_dialect_registry(registry)
        for register in (
            _sdy.register_dialect,
            _mhlo.register_mhlo_dialect,
            _chlo.register_dialect,
            _stablehlo.register_dialect,
        ):
            register(self)
