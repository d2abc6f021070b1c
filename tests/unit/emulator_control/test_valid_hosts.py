# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pathways_emulator.resource_manager import valid_hosts


@pytest.mark.parametrize(
    ("instance_type", "hosts"),
    [
        # Two machines of 4 chips or one of 8.
        ("tpuv6e:2x4", {1, 2}),
        ("tpuv5e:2x4", {1, 2}),
        ("tpuv6e1t:2x4", {1}),
        ("tpuv6e:1x1", {1}),
        ("tpuv6e:2x2", {1}),
        ("tpuv6e:4x4", {4}),
        ("tpuv5:2x2x2", {2}),
    ],
)
def test_hosts_that_a_slice_of_the_instance_type_can_have(
    instance_type: str, hosts: set[int]
) -> None:
    assert valid_hosts(instance_type) == hosts
