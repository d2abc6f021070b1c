# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""run_maxtext.sh and run_jax.sh: how they find checkout and environment, and become Python."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"
VARIABLES = {"run_maxtext.sh": "PATHWAYS_MAXTEXT_ENVIRONMENT", "run_jax.sh": "PATHWAYS_ENVIRONMENT"}
BECOMES = {
    "run_maxtext.sh": "-P -m pathways_slurm maxtext",
    "run_jax.sh": "-P -m pathways_slurm run --check-jax --restarts 3 --requeues 100",
}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """One whose Python says how it was called, and ends with 7."""
    directory = tmp_path / "an environment"
    (directory / "bin").mkdir(parents=True)
    for name in ("python", "pathways-slurm"):
        program = directory / "bin" / name
        program.write_text('#!/bin/sh\necho "$@"; echo "PATH $PATH"; exit 7\n')
        program.chmod(0o755)
    (directory / "stamp").write_text("project 1f\n")
    return directory


def call(script: Path, *argv: str, **environ: str) -> tuple[int, list[str], str]:
    done = subprocess.run(
        [script, *argv],
        env={**os.environ, **environ},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


def spooled(name: str, directory: Path, command: str) -> tuple[Path, dict[str, str]]:
    """The script as Slurm runs it, and an environment with a scontrol that knows the job."""
    spool = directory / "spool"
    (directory / "bin").mkdir()
    spool.mkdir()
    shutil.copy(SCRIPTS / name, spool / "slurm_script")
    scontrol = directory / "bin" / "scontrol"
    scontrol.write_text(f"#!/bin/sh\n[ \"$*\" = 'show job 44' ] || exit 1\necho '   {command}'\n")
    scontrol.chmod(0o755)
    path = f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return spool / "slurm_script", {
        "PATH": path,
        "SLURM_JOB_ID": "44",
        "SLURM_SUBMIT_DIR": str(ROOT),
    }


@pytest.mark.parametrize("name", sorted(BECOMES))
def test_it_becomes_the_environments_python_with_the_users_words(
    name: str, environment: Path
) -> None:
    code, out, _ = call(SCRIPTS / name, "a=b c", "--", "x", **{VARIABLES[name]: str(environment)})
    assert code == 7
    assert out[0] == f"{BECOMES[name]} a=b c -- x"
    assert out[1].startswith(f"PATH {environment}/bin:")


@pytest.mark.parametrize("name", sorted(BECOMES))
@pytest.mark.parametrize(
    "command",
    [
        f"Command={SCRIPTS}/NAME",
        f"Command={SCRIPTS}/NAME steps=5 data=/no/such.sh",
        "Command=scripts/NAME steps=5",
    ],
)
def test_slurms_copy_finds_the_checkout_it_was_submitted_from(
    name: str, command: str, environment: Path, tmp_path: Path
) -> None:
    script, environ = spooled(name, tmp_path, command.replace("NAME", name))
    code, out, err = call(script, "steps=5", **environ, **{VARIABLES[name]: str(environment)})
    assert (code, err) == (7, "")
    assert out[0] == f"{BECOMES[name]} steps=5"


@pytest.mark.parametrize("name", sorted(BECOMES))
@pytest.mark.parametrize("command", ["Command=(null)", "Command=/gone/run.sh steps=5", "Nothing=0"])
def test_a_copy_whose_checkout_is_not_known_says_what_to_do(
    name: str, command: str, environment: Path, tmp_path: Path
) -> None:
    script, environ = spooled(name, tmp_path, command)
    environ["SLURM_SUBMIT_DIR"] = "/"
    code, _, err = call(script, **environ, **{VARIABLES[name]: str(environment)})
    assert code == 2
    assert f"sbatch PATH/scripts/{name}" in err


@pytest.mark.parametrize("name", sorted(BECOMES))
def test_without_an_environment_it_says_what_makes_one(name: str, tmp_path: Path) -> None:
    code, out, err = call(SCRIPTS / name, **{VARIABLES[name]: str(tmp_path)})
    assert (code, out) == (2, [])
    more = " --maxtext" if name == "run_maxtext.sh" else ""
    assert f"{ROOT}/scripts/setup_env.sh{more}" in err


@pytest.mark.parametrize("name", sorted(BECOMES))
@pytest.mark.parametrize(("failures", "code"), [(2, 7), (10, 1)])
def test_a_slurmctld_that_is_away_for_a_moment_is_waited_for(
    name: str, failures: int, code: int, environment: Path, tmp_path: Path
) -> None:
    script, environ = spooled(name, tmp_path, f"Command={SCRIPTS / name}")
    answering = tmp_path / "bin" / "scontrol"
    answering.rename(tmp_path / "answer")
    looks = tmp_path / "looks"
    for program, text in {
        "scontrol": f"echo look >>'{looks}'; [ $(wc -l <'{looks}') -gt {failures} ] || exit 1\n"
        f"exec '{tmp_path}/answer' \"$@\"",
        "sleep": f"echo $1 >>'{tmp_path}/waits'",
    }.items():
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    found, _, said = call(script, **environ, **{VARIABLES[name]: str(environment)})
    assert found == code
    assert (tmp_path / "waits").read_text().split() == ["10"] * min(failures, 9)
    assert ("is slurmctld up?" in said) is (code == 1)
    assert "submit the file itself" not in said
