# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Errors, versions, devices, shardings and host buffers as values."""

import numpy as np
import pytest
from jaxlib import xla_client

from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.proxy.devices import DeviceTable
from pathways_emulator.proxy.dtypes import dtype_named, dtype_of_kind
from pathways_emulator.proxy.handlers.host import to_bytes, view
from pathways_emulator.proxy.shardings import (
    even_sharding,
    hlo_sharding,
    single_device_sharding,
    with_devices,
)
from pathways_emulator.proxy.status import Code, ProxyError, invalid_argument, status_of
from pathways_emulator.proxy.versions import Range, choose
from pathways_emulator.proxy.xla import hlo

F32 = dtype_named("f32")


@pytest.mark.parametrize("word", ["INTERNAL", "NOT_FOUND", "DEADLINE_EXCEEDED", "DATA_LOSS"])
def test_nothing_but_a_lost_slice_reads_like_one(word: str) -> None:
    for error in (
        xla_client.XlaRuntimeError(f"{word}: what XLA found, {word} again"),
        ValueError(f"our bug: {word}"),
    ):
        status = status_of(error)
        assert status.code is Code.UNKNOWN
        assert word not in status.message
        assert word.lower() in status.message


def test_errors_keep_a_code_that_says_something() -> None:
    error = xla_client.XlaRuntimeError("RESOURCE_EXHAUSTED: out of memory")
    assert status_of(error).code is Code.RESOURCE_EXHAUSTED
    assert status_of(error).message == "out of memory"
    assert status_of(invalid_argument("why")).code is Code.INVALID_ARGUMENT
    assert status_of(KeyError()).message.startswith("KeyError")


def test_versions() -> None:
    assert choose("protocol", Range(16, 25), Range(20, 30)) == 25
    assert choose("protocol", Range(16, 25), Range(10, 16)) == 16
    with pytest.raises(ValueError, match="the client has 26 to 30, this server 16 to 25"):
        choose("protocol", Range(16, 25), Range(26, 30))


def test_devices_come_slice_by_slice() -> None:
    members = tuple(SliceMember(index, 0, False) for index in range(3))
    table = DeviceTable.of(Membership("tpuv5:2x2x2", True, members))
    assert len(table) == 24
    assert [device.slice_index for device in table.devices[6:10]] == [0, 0, 1, 1]
    assert [device.coords for device in table.devices[:5]] == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
        (0, 0, 1),
    ]
    assert table.slices_of([23, 0, 1]) == (0, 2)
    with pytest.raises(ProxyError, match="device 24 does not exist; devices are 0 to 23"):
        table.slices_of([24])


def test_tiles_of_an_array() -> None:
    tiling = hlo.HloSharding.iota_tile(
        [2, 1, 2], subgroup_types=[hlo.OpSharding.Type.REPLICATED]
    ).to_proto()
    sharding = hlo_sharding([4, 5, 6, 7], None, tiling.SerializeToString())
    top, bottom = (slice(0, 2), slice(0, 3)), (slice(2, 4), slice(0, 3))
    assert sharding.indices((4, 3)) == (top, top, bottom, bottom)
    assert sharding.shard_shapes_of((4, 3)) == ((2, 3),) * 4
    moved = with_devices(sharding, [0, 1, 2, 3], "pinned_host")
    assert moved.devices == (0, 1, 2, 3)
    assert moved.memory_kind == "pinned_host"
    assert moved.indices((4, 3)) == sharding.indices((4, 3))


def test_shardings_that_say_less() -> None:
    one = single_device_sharding(3, None)
    assert one.indices((2, 2)) == ((slice(0, 2), slice(0, 2)),)
    assert one is single_device_sharding(3, None)
    copies = even_sharding([0, 1], None, (4,), (4,))
    assert copies.indices((4,)) == ((slice(0, 4),),) * 2
    halves = even_sharding([0, 1], None, (4,), (2,))
    assert halves.indices((4,)) == ((slice(0, 2),), (slice(2, 4),))
    unclear = even_sharding([0, 1, 2], None, (4,), (3,))
    assert unclear.shard_shapes_of((4,)) == ((3,),) * 3
    with pytest.raises(ProxyError, match="UNIMPLEMENTED"):
        unclear.indices((4,))


@pytest.mark.parametrize(
    "host",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(24, dtype=np.float32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.zeros((0, 3), np.float32),
        np.float32(5).reshape(()),
    ],
    ids=["rows", "columns", "turned", "empty", "scalar"],
)
def test_host_buffers_keep_their_strides(host: np.ndarray) -> None:
    data = to_bytes(host, F32, host.strides)
    assert bytes(data) == host.ravel(order="K").tobytes()
    np.testing.assert_array_equal(view(data, F32, host.shape, host.strides), host)
    np.testing.assert_array_equal(view(host.tobytes(), F32, host.shape, None), host)


def test_host_buffers_of_a_wrong_size_are_refused() -> None:
    with pytest.raises(ProxyError, match=r"20 bytes.*must have 24"):
        view(bytes(20), F32, (2, 3), None)
    gaps = view(bytes(range(40)), F32, (2, 3), (28, 4))
    assert gaps.shape == (2, 3)
    with pytest.raises(ProxyError, match="UNIMPLEMENTED"):
        to_bytes(gaps, F32, (28, 4))


def test_types_without_a_host_form_are_refused() -> None:
    with pytest.raises(ProxyError, match="UNIMPLEMENTED: element type 99"):
        dtype_of_kind(99)
    with pytest.raises(ProxyError, match="UNIMPLEMENTED: element type f7"):
        dtype_named("f7")
