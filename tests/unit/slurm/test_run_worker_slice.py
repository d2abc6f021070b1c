# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""scripts/run_worker_slice.sh, with srun and scontrol played by scripts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "run_worker_slice.sh"

# Runs the step's program once for each node, one after the other.
SRUN = """\
printf '%s\\n' "$$" "$@" >"$RECORD/srun"
nodes=2
while [[ $1 == --* ]]; do shift; done
for ((node = 0; node < nodes; node++)); do
	SLURM_NODEID=$node SLURMD_NODENAME=n$node "$@"
done
"""
SCONTROL = """\
printf '%s ' "$@" >>"$RECORD/scontrol"
case "$*" in
"show hostnames n[1,0]") printf 'n1\\nn0\\n' ;;
*"show node n[1,0]")
	if [[ -e $RECORD/away ]]; then rm "$RECORD/away"; echo "Socket timed out" >&2; exit 1; fi
	echo "NodeName=n0 NodeAddr=10.0.0.10 NodeHostName=n0 Reason=was NodeAddr=10.9.9.9"
	echo "NodeName=n1 NodeAddr=10.0.0.11 NodeHostName=n1"
	;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def spooled(tmp_path: Path) -> Path:
    """The script where Slurm would run it: a copy under another name."""
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("sleep", "")):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}")
        path.chmod(0o755)
    copy = tmp_path / "spool" / "slurm_script"
    copy.parent.mkdir()
    shutil.copy(SCRIPT, copy)
    return copy


def run(spooled: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    directory = spooled.parents[1]
    environment = {
        "PATH": f"{directory}/bin:{os.environ['PATH']}",
        "RECORD": str(directory),
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_JOB_ID": "50",
        "SLURM_JOB_NODELIST": "n[1,0]",
        # As an outer service would leave them.
        "PATHWAYS_SLICE_INDEX": "9",
        "PATHWAYS_HOST_INDEX": "9",
        "PATHWAYS_INCARNATION": "9",
        "PATHWAYS_NODE_NAMES": "x",
        "PATHWAYS_NODE_ADDRESSES": "y",
        **variables,
    }
    return subprocess.run(
        ["bash", str(spooled), *arguments],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


SHOW = (
    'echo "$PATHWAYS_SLICE_INDEX $PATHWAYS_HOST_INDEX $PATHWAYS_INCARNATION '
    '$PATHWAYS_NODE_NAMES $PATHWAYS_NODE_ADDRESSES"; printf "<%s>" "$@"; echo err >&2; '
    "readlink /proc/self/fd/0"
)


def test_every_host_gets_its_place_its_log_and_its_arguments(spooled: Path, tmp_path: Path) -> None:
    logs = tmp_path / "a log $dir"
    argv = [str(logs), "4", "/bin/bash", "-c", SHOW, "bash", "an argument", "", "$x;'"]
    for restarts in ("", "2"):
        done = run(spooled, *argv, SLURM_RESTART_COUNT=restarts)
        assert (done.returncode, done.stderr) == (0, "")
    for host in (0, 1):
        path = logs / "slice-3" / f"host-{host}.log"
        assert path.stat().st_mode & 0o777 == 0o600
        lines = path.read_text().splitlines()
        for start, incarnation in ((0, 4), (4, 6)):
            assert lines[start].startswith(
                f"=== slice 3 host {host} incarnation {incarnation} on n{host} 20"
            )
            assert lines[start + 1] == f"3 {host} {incarnation} n1,n0 10.0.0.11,10.0.0.10"
            assert lines[start + 2] == "<an argument><><$x;'>err"
            assert lines[start + 3] == "/dev/null"
        assert len(lines) == 8


def test_srun_is_in_the_scripts_place_and_ends_a_slice_with_any_host(spooled: Path) -> None:
    process = subprocess.Popen(
        ["bash", str(spooled), str(spooled.parent / "logs"), "1", "/bin/true"],
        env={
            "PATH": f"{spooled.parents[1]}/bin:{os.environ['PATH']}",
            "RECORD": str(spooled.parents[1]),
            "SLURM_ARRAY_TASK_ID": "0",
            "SLURM_JOB_ID": "50",
            "SLURM_JOB_NODELIST": "n[1,0]",
        },
        stdout=subprocess.DEVNULL,
    )
    assert process.wait(timeout=60) == 0
    pid, *argv = (spooled.parents[1] / "srun").read_text().splitlines()
    assert int(pid) == process.pid
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1"} <= set(argv)
    assert {"--kill-on-bad-exit=1", "--wait=5"} <= set(argv)


def test_the_programs_exit_code_is_the_tasks(spooled: Path, tmp_path: Path) -> None:
    assert run(spooled, str(tmp_path / "l"), "1", "/bin/sh", "-c", "exit 7").returncode == 7


def test_a_slurmctld_that_is_away_for_a_moment(spooled: Path, tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    assert run(spooled, str(tmp_path / "l"), "1", "/bin/true").returncode == 0
    assert (tmp_path / "scontrol").read_text().count("show node") == 2


def test_addresses_that_slurm_does_not_tell(spooled: Path, tmp_path: Path) -> None:
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.write_text(scontrol.read_text().replace("NodeName=n1 ", "NodeName=n7 "))
    done = run(spooled, str(tmp_path / "l"), "1", "/bin/true")
    assert done.returncode == 2
    assert "no address of node n1" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (["/logs", "1"], {}, "usage: run_worker_slice.sh LOG_DIR FIRST_INCARNATION PROGRAM"),
        (["/logs", "one", "/bin/true"], {}, "FIRST_INCARNATION is 'one'"),
        (["/logs", "1", "/bin/true"], {"SLURM_ARRAY_TASK_ID": ""}, "SLURM_ARRAY_TASK_ID is ''"),
        (["/logs", "1", "/bin/true"], {"SLURM_RESTART_COUNT": "x"}, "SLURM_RESTART_COUNT is 'x'"),
    ],
)
def test_wrong_usage(
    spooled: Path, arguments: list[str], variables: dict[str, str], words: str
) -> None:
    done = run(spooled, *arguments, **variables)
    assert done.returncode == 2
    assert words in done.stderr
