# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
import pytest

from pathways_emulator import settings
from pathways_emulator.settings import Settings


def test_defaults() -> None:
    faults: list[str] = []
    assert settings.read({}, faults) == Settings("127.0.0.1", 10.0, 30.0)
    assert settings.read({"PATHWAYS_LEASE_S": ""}, faults) == Settings("127.0.0.1", 10.0, 30.0)
    assert not faults


def test_fractions_of_a_second() -> None:
    faults: list[str] = []
    environment = {
        "PATHWAYS_BIND_ADDRESS": "10.1.2.3",
        "PATHWAYS_HEARTBEAT_TIMEOUT_S": "0.5",
        "PATHWAYS_LEASE_S": "1.25",
    }
    assert settings.read(environment, faults) == Settings("10.1.2.3", 0.5, 1.25)
    assert not faults


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATHWAYS_LEASE_S", "0"),
        ("PATHWAYS_LEASE_S", "-3"),
        ("PATHWAYS_LEASE_S", "nan"),
        ("PATHWAYS_LEASE_S", "inf"),
        ("PATHWAYS_HEARTBEAT_TIMEOUT_S", "soon"),
        ("PATHWAYS_BIND_ADDRESS", "10.0.0.1:80"),
        ("PATHWAYS_BIND_ADDRESS", "two words"),
    ],
)
def test_a_faulty_value_is_told_with_what_is_valid(name: str, value: str) -> None:
    faults: list[str] = []
    settings.read({name: value}, faults)
    assert len(faults) == 1
    assert faults[0].startswith(f"{name}: '{value}' is not valid: expected ")
