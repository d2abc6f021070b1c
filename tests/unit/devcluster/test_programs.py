# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The programs of Slurm on this machine."""

from pathlib import Path

import pytest
from slurm.devcluster import programs
from slurm.devcluster.programs import ProgramError, find_programs, parse_version


@pytest.mark.parametrize(
    ("said", "version"),
    [("slurm-wlm 22.05.8\n", (22, 5)), ("slurm-wlm 24.11.5", (24, 11)), ("slurm 26.05.5", (26, 5))],
)
def test_version(said: str, version: tuple[int, int]) -> None:
    assert parse_version(said) == version


def test_no_version() -> None:
    with pytest.raises(ProgramError, match="'slurmctld: error', which has no version"):
        parse_version("slurmctld: error")


def test_what_is_missing_is_named_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scontrol").write_text("")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "_SEARCH", ())
    with pytest.raises(ProgramError) as caught:
        find_programs()
    assert str(caught.value) == (
        "not installed: slurmctld, slurmd, sinfo, munged "
        "(Debian's slurmctld, slurmd, slurm-client, munge). What to do, as root: "
        "apt-get install --no-install-recommends slurmctld slurmd slurm-client munge"
    )
