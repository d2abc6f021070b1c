# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from pathlib import Path

import pytest

from pathways_emulator import settings
from pathways_emulator.settings import Settings

DEFAULTS = Settings(
    bind_address="127.0.0.1",
    heartbeat_timeout_s=10.0,
    lease_s=30.0,
    on_notice="suspend",
    notice_s=25.0,
    report_file=None,
    orders_file=None,
)


def test_defaults() -> None:
    faults: list[str] = []
    assert settings.read({}, faults) == DEFAULTS
    assert settings.read({"PATHWAYS_LEASE_S": ""}, faults) == DEFAULTS
    assert not faults


def test_a_notice_may_leave_no_time_and_be_forwarded() -> None:
    faults: list[str] = []
    environment = {"PATHWAYS_NOTICE_S": "0", "PATHWAYS_ON_NOTICE": "forward"}
    expected = replace(DEFAULTS, notice_s=0.0, on_notice="forward")
    assert settings.read(environment, faults) == expected
    assert not faults


def test_the_files_of_the_resource_manager_need_not_exist(tmp_path: Path) -> None:
    faults: list[str] = []
    report, orders = tmp_path / "report.json", tmp_path / "orders.json"
    environment = {"PATHWAYS_REPORT_FILE": str(report), "PATHWAYS_ORDERS_FILE": str(orders)}
    expected = replace(DEFAULTS, report_file=report, orders_file=orders)
    assert settings.read(environment, faults) == expected
    assert not faults


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    faults: list[str] = []
    environment = {
        "PATHWAYS_ON_NOTICE": "ignore",
        "PATHWAYS_NOTICE_S": "-1",
        "PATHWAYS_REPORT_FILE": str(tmp_path / "missing" / "report.json"),
        "PATHWAYS_ORDERS_FILE": str(tmp_path),
    }
    settings.read(environment, faults)
    assert faults == [
        "PATHWAYS_ON_NOTICE: 'ignore' is not valid: expected suspend or forward",
        "PATHWAYS_NOTICE_S: '-1' is not valid: expected a number of seconds from 0, such as 25",
        f"PATHWAYS_REPORT_FILE: '{tmp_path}/missing/report.json' is not valid: expected a file in "
        f"a directory that exists; {tmp_path}/missing does not",
        f"PATHWAYS_ORDERS_FILE: '{tmp_path}' is not valid: expected a file, but it is a directory",
    ]


def test_fractions_of_a_second() -> None:
    faults: list[str] = []
    environment = {
        "PATHWAYS_BIND_ADDRESS": "10.1.2.3",
        "PATHWAYS_HEARTBEAT_TIMEOUT_S": "0.5",
        "PATHWAYS_LEASE_S": "1.25",
    }
    assert settings.read(environment, faults) == replace(
        DEFAULTS, bind_address="10.1.2.3", heartbeat_timeout_s=0.5, lease_s=1.25
    )
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
        ("PATHWAYS_NOTICE_S", "inf"),
        ("PATHWAYS_REPORT_FILE", "report.json"),
    ],
)
def test_a_faulty_value_is_told_with_what_is_valid(name: str, value: str) -> None:
    faults: list[str] = []
    settings.read({name: value}, faults)
    assert len(faults) == 1
    assert faults[0].startswith(f"{name}: '{value}' is not valid: expected ")
