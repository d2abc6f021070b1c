# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A program with an unmodified Orbax CheckpointManager is told to go."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.autocheckpoint.running import PYTHON, TRAINING, Program, committed

from pathways_elastic.autocheckpoint import EXIT_NOT_SAVED, EXIT_SAVED
from pathways_slurm import notices
from pathways_slurm.notices import Going, Notices

ON = {"ENABLE_AUTOCHECKPOINT": "true"}
ENDS = {**ON, "EXIT_AFTER_AUTOCHECKPOINT": "true"}

type Start = Callable[..., Program]


@pytest.fixture
def run_command() -> str:
    return str(Path(PYTHON).with_name("pathways-slurm"))


@pytest.fixture
def announce(cluster_env: Path) -> Callable[..., None]:
    """Writes notices.json as the service whose cluster.env this is."""
    (run_id,) = (
        line.partition("=")[2]
        for line in cluster_env.read_text().splitlines()
        if line.startswith("export PATHWAYS_RUN_ID=")
    )

    def write(sequence: int, *going: Going, **more: Any) -> None:
        path = cluster_env.with_name(notices.FILE)
        notices.write(path, Notices(run_id, sequence, going, **more))

    return write


@pytest.mark.timeout(600)
def test_bash_and_run_pass_the_signal_on_and_the_next_run_goes_on_from_the_step(
    start: Start, run_command: str, tmp_path: Path
) -> None:
    steps = tmp_path / "steps"
    script = tmp_path / "job.sh"
    script.write_text(
        f"set -euo pipefail\nexec {run_command} run -- {PYTHON} {TRAINING} {steps} --policy\n"
    )
    program = start("bash", script, **ENDS)
    program.wait_to_say("step 5")
    program.terminate()
    assert program.wait() == EXIT_SAVED, program
    # Off its schedule, and the step that was the next one then.
    (saved,) = committed(steps)
    assert saved == program.steps[-1] >= 5

    # A storage that hangs: the attempt has its time, and leaves nothing that would be restored.
    options = ["--policy", "--verbose", "--on", "4", "--block-commit", tmp_path / "never"]
    program = start(PYTHON, TRAINING, steps, *options)
    program.wait_to_say(f"step {saved + 2}")
    program.terminate()
    assert program.wait() == EXIT_NOT_SAVED, program
    assert program.said[-1] == "committing"
    assert f"step {program.steps[-1]} was not committed within 4 s" in program.log
    of_the_last = rf"step {saved}, committed \d+ s ago"
    assert re.search(f"restoring the checkpoint of {of_the_last}", program.log)
    assert re.search(f"the last committed checkpoint is of {of_the_last}", program.log)
    assert committed(steps) == [saved]

    # Off by default: SIGTERM ends it as it ends any program.
    program = start(PYTHON, TRAINING, steps, "--policy")
    program.wait_to_say(f"step {saved + 1}")
    program.terminate()
    assert program.wait() == -15, program
    assert program.said[0] == f"restored {saved} {saved}"
    assert committed(steps) == [saved]


@pytest.mark.timeout(600)
def test_who_asks_again_or_in_the_middle_of_a_save_changes_nothing(
    start: Start, tmp_path: Path
) -> None:
    go_on, steps = tmp_path / "go-on", tmp_path / "steps"
    # Orbax saves the first step of its own, in the background. That takes until go_on is there.
    program = start(PYTHON, TRAINING, steps, "--chain", "--block-commit", go_on, **ENDS)
    # Another one, beside it, is told before its first step; as a program that is connected for it.
    first, early_steps = tmp_path / "first", tmp_path / "early"
    words = [TRAINING, early_steps, "--first-until", first, "--policy"]
    early = start(PYTHON, "-m", "pathways_elastic", *words, **ENDS)
    program.wait_to_say("committing")
    program.terminate()
    program.wait_to_say("own handler")
    program.wait_to_log("autocheckpoint: saving step")
    program.terminate()
    program.wait_to_say("own handler", times=2)
    assert committed(steps) == []
    go_on.touch()
    assert program.wait() == EXIT_SAVED, program
    assert committed(steps) == sorted({1, program.steps[-1]})
    assert program.said.count("own handler") == 2

    early.wait_to_say("ready")
    early.terminate()
    early.wait_to_log("autocheckpoint: SIGTERM")
    assert early.said[-1] == "ready"
    first.touch()
    assert early.wait() == EXIT_SAVED, early
    assert early.steps == committed(early_steps) == [1]


@pytest.mark.timeout(600)
def test_a_notice_of_a_slice_is_heard_answered_and_gone_on_after(
    start: Start, run_command: str, announce: Callable[..., None], cluster_env: Path, tmp_path: Path
) -> None:
    steps, answers = tmp_path / "steps", cluster_env.with_name(notices.DIRECTORY)
    going = Going(1, 1, time.time() + 300, "maintenance (new kernel)")
    training = [PYTHON, TRAINING, steps, "--policy"]
    environ = {**ENDS, "PATHWAYS_ON_NOTICE": "forward"}
    program = start(run_command, "run", "--restarts", "1", "--", *training, **environ)
    stays = start(PYTHON, TRAINING, tmp_path / "stays", "--policy", **ON)
    program.wait_to_say("step 3")
    stays.wait_to_say("step 3")
    announce(1, going)
    program.wait_to_say(r"restored \d+ \d+")
    (saved,) = committed(steps)
    assert f"restored {saved} {saved}" in program.said
    assert re.search(r"slice 1 goes within \d+ s: maintenance \(new kernel\)", program.log)
    assert notices.acknowledged(answers) == {(1, 1)}
    # The slice is still announced as going, and the program that has left it is not told again.
    program.wait_to_say(f"step {saved + 20}")
    assert committed(steps) == [saved]
    program.terminate()
    assert program.wait() == EXIT_SAVED, program
    assert program.steps == list(range(1, program.steps[-1] + 1))
    assert committed(steps) == [saved, program.steps[-1]]

    # Where the service saves a slice's data itself, notices are not the program's business.
    assert "autocheckpoint" not in stays.log
    assert committed(tmp_path / "stays") == []
    # Without the wish to end, a signal saves and training goes on.
    stays.terminate()
    stays.wait_to_say(r"saved \d+")
    (saved,) = committed(tmp_path / "stays")
    stays.wait_to_say(f"step {saved + 3}")
