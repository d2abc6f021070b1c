# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from pathways_emulator import env_file, instance
from pathways_emulator.address import Address
from pathways_emulator.instance import Instance, InstanceError

RM = Address("127.0.0.1", 29001)


def test_the_environment_tells() -> None:
    variables = {"PATHWAYS_RM_ADDRESS": "127.0.0.1:29001"}
    assert instance.find(None, variables) == Instance(RM, None)
    variables["PATHWAYS_CONTROL_SOCKET"] = "/tmp/x/control.sock"
    assert instance.find(None, variables) == Instance(RM, Path("/tmp/x/control.sock"))


def test_a_file_takes_the_place_of_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "runtime.env"
    env_file.write(path, {"PATHWAYS_RM_ADDRESS": "127.0.0.1:29001"}, "process 1 abc")
    elsewhere = {"PATHWAYS_RM_ADDRESS": "10.0.0.1:1", "PATHWAYS_CONTROL_SOCKET": "/elsewhere"}
    assert instance.find(path, elsewhere) == Instance(RM, None)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "PATHWAYS_RM_ADDRESS is not set in the environment. Source the instance's env file"),
        ({"PATHWAYS_RM_ADDRESS": ""}, "PATHWAYS_RM_ADDRESS is not set"),
        ({"PATHWAYS_RM_ADDRESS": "here"}, "'here' is not valid: expected NAME:PORT"),
    ],
)
def test_what_is_missing_or_wrong_is_told(variables: dict[str, str], message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        instance.find(None, variables)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="the instance is not ready, or has ended"):
        instance.find(tmp_path / "cluster.env", {})
