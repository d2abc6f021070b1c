# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's driver; scripts/demo.sh sets up the environment and runs it.

Exit status: 0 if every check passed, 1 if not, 2 for bad options, 128 + N ended by signal N.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from rich.console import Console

from demo_stage import (
    COMMAND,
    SERVICE_LOG,
    Child,
    DemoError,
    Stage,
    Tail,
    last_lines,
    reserved_network,
)
from demo_story import CHECKPOINT_PERIOD, Check, Phase, Plan, Story, Victim, parse_record, slice_in

# How long each part may take, in seconds. Far above what it takes, below anyone's patience.
SERVICE_S = 60.0
ALL_SLICES_S = 120.0
SILENCE_S = 60.0
LOOK_AGAIN_S = 0.1
STATUS_AGAIN_S = 0.5


class Interrupted(Exception):
    """A signal asked for the end."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Signals:
    """Remembers a signal that asks for the end, and raises only where nothing is half done."""

    def __init__(self) -> None:
        self._received: int | None = None
        for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(signum, self._receive)

    def _receive(self, signum: int, _frame: FrameType | None) -> None:
        self._received = self._received or signum

    def pause(self, seconds: float) -> None:
        """Raises Interrupted if a signal has come."""
        time.sleep(seconds)
        if self._received is not None:
            raise Interrupted(self._received)


class Screen:
    """The timeline. On a terminal, what is waited for is shown beneath it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._status = console.status("") if console.is_terminal else None

    def say(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(
            f"{elapsed:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True
        )

    def plain(self, text: str = "", style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    @contextlib.contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Shows that ``what`` is waited for."""
        if self._status is None:
            self.say(f"{what} ...")
            yield
            return
        self._status.update(f"{what} ...")
        with self._status:
            yield


def parse_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line; exits 2 with every fault of it."""
    parser = argparse.ArgumentParser(
        prog="demo.sh",
        description="Brings a Pathways service up on this machine, trains on all its slices, kills "
        "one of them mid-way, and shows that training goes on and the slice comes back.",
    )
    add = parser.add_argument
    add("--slices", type=int, default=3, metavar="N", help="slices, >= 2 (default 3)")
    add("--slice-shape", default="2x2", metavar="S", help="chips of a v6e slice (default 2x2)")
    add(
        "--min-slices", type=int, metavar="M", help="slices needed, < N (default 2, or 1 if N is 2)"
    )
    add("--steps", type=int, default=150, metavar="N", help="training steps, >= 30 (default 150)")
    add("--json", type=Path, metavar="FILE", help="write a summary there")
    add("--keep", action="store_true", help="keep the service's directory, with all logs")
    options = parser.parse_args(argv)
    if options.min_slices is None:
        options.min_slices = 1 if options.slices == 2 else 2

    faults = []
    if options.slices < 2:
        faults.append(f"--slices must be >= 2, as one is killed; got {options.slices}")
    if not 1 <= options.min_slices < max(options.slices, 2):
        faults.append(
            f"--min-slices must be >= 1 and < --slices ({options.slices}), so that training can go "
            f"on without the slice that is killed; got {options.min_slices}"
        )
    if options.steps < 30:
        faults.append(f"--steps must be >= 30, got {options.steps}")
    if options.json is not None and not options.json.absolute().parent.is_dir():
        faults.append(f"--json: there is no directory {options.json.absolute().parent}")
    shape = subprocess.run(
        [COMMAND, "topology", options.slice_shape], capture_output=True, text=True, check=False,
        env={**os.environ, "TPU_TYPE": "v6e"},
    )  # fmt: skip
    if shape.returncode != 0:
        faults.append(f"--slice-shape: {shape.stderr.strip().splitlines()[-1].strip(' -')}")
    if faults:
        parser.error("\n  ".join(["", *faults]))
    return options


def wait_until(
    what: str,
    within_s: float,
    ready: Callable[[], bool],
    screen: Screen,
    signals: Signals,
    child: Child,
) -> None:
    """Waits for ``ready``.

    Raises:
        DemoError: It took too long, or ``child``, which must bring it about, ended first.
    """
    deadline = time.monotonic() + within_s
    with screen.waiting_for(what):
        while not ready():
            if (code := child.exit_code) is not None:
                raise DemoError(f"{what}: ended with exit code {code} instead", child.log)
            if time.monotonic() > deadline:
                raise DemoError(f"{what}: not within {within_s:.0f} s", child.log)
            signals.pause(LOOK_AGAIN_S)


def find_victim(stage: Stage, index: int) -> Victim:
    """A worker of a slice that is ready.

    Raises:
        DemoError: The slice is not ready, or it is not said which processes it has.
    """
    seen = slice_in(stage.status(), index)
    if seen is None or seen.state != "READY" or not seen.hosts:
        raise DemoError(f"slice {index} trains, but its status is not READY with hosts: {seen}")
    host = seen.hosts[-1]
    if host.pid is None:
        raise DemoError(f"the status of slice {index} has no pid for {host.node}")
    return Victim(host.node, host.pid, seen.incarnation)


def kill(victim: Victim) -> None:
    """Raises DemoError if there is no such process any more."""
    try:
        os.kill(victim.pid, signal.SIGKILL)
    except ProcessLookupError:
        raise DemoError(f"the worker on {victim.node}, pid {victim.pid}, ended by itself") from None


def show(screen: Screen, lines: Sequence[str]) -> None:
    for line in lines:
        screen.say(line)


def watch_training(stage: Stage, story: Story, screen: Screen, signals: Signals) -> None:
    """Follows the training program to its end, and kills the victim on the way.

    Raises:
        DemoError: Nothing happened for too long, or the program failed.
    """
    training = stage.training
    assert training is not None, "training was started before"
    tail = Tail(stage.metrics)
    heard = began = time.monotonic()
    looked = 0.0
    victim: Victim | None = None

    def catch_up() -> None:
        nonlocal heard
        for line in tail.lines():
            heard = time.monotonic()
            show(screen, story.on_record(parse_record(line)))

    while True:
        ended = training.exit_code  # before the last look at the metrics, so that none is missed
        catch_up()
        now = time.monotonic()
        if ended is not None:
            if ended != 0:
                raise DemoError(f"the training program ended with exit code {ended}", training.log)
            return
        if victim is None and story.wants_victim:
            victim = find_victim(stage, story.plan.victim)
            continue  # that took a while
        if victim is not None and story.wants_kill:
            kill(victim)
            show(screen, story.on_kill(time.time(), victim))
        if story.wants_status and now - looked >= STATUS_AGAIN_S:
            looked = now
            if seen := slice_in(stage.status(), story.plan.victim):
                show(screen, story.on_slice(time.time(), seen))
        if story.phase is Phase.STARTING and now - began > ALL_SLICES_S:
            raise DemoError(f"no step on all slices within {ALL_SLICES_S:.0f} s", training.log)
        if now - heard > SILENCE_S:
            raise DemoError(f"training told nothing for {SILENCE_S:.0f} s", training.log)
        signals.pause(LOOK_AGAIN_S)


def perform(stage: Stage, story: Story, screen: Screen, signals: Signals) -> None:
    """The demo from an empty directory to the last training step.

    Raises:
        DemoError: Something did not come about.
    """
    plan, began = story.plan, time.monotonic()
    stage.start_service()
    assert stage.service is not None
    wait_until(
        "starting the service",
        SERVICE_S,
        stage.cluster_env.exists,
        screen,
        signals,
        stage.service,
    )
    screen.say(f"service up after {time.monotonic() - began:.1f} s")
    period = str(CHECKPOINT_PERIOD)
    stage.start_training(
        ["--steps", str(plan.steps), "--checkpoint-period", period, "--poll-interval", "1"]
    )
    with screen.waiting_for("training"):
        watch_training(stage, story, screen, signals)


def conclude(screen: Screen, checks: Sequence[Check], error: str | None) -> bool:
    """Shows the verdict; whether all is well."""
    screen.plain()
    for check in checks:
        style = "green" if check.passed else "bold red"
        screen.plain(f"  {'✓' if check.passed else '✗'} {check.text}", style)
    if error:
        screen.plain(f"  ✗ {error}", "bold red")
    return error is None and all(check.passed for check in checks)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; see the module for the exit status."""
    signals = Signals()
    options = parse_options(argv)
    story = Story(Plan(options.slices, options.min_slices, options.steps))
    screen = Screen(Console(safe_box=True))
    error: DemoError | None = None
    interrupted: Interrupted | None = None
    left: list[str] = []
    home = Path(tempfile.mkdtemp(prefix="pathways-demo-")).resolve()
    try:
        with reserved_network() as network:
            stage = Stage(home, settings(options, network))
            try:
                perform(stage, story, screen, signals)
            finally:
                with screen.waiting_for("bringing everything down"):
                    left = stage.clear()
    except DemoError as caught:
        error = caught
    except Interrupted as caught:
        interrupted = caught
    checks = [*story.checks(), Check(not left, "; ".join(left) or "everything was brought down")]
    if interrupted is not None:
        screen.say(f"interrupted by {interrupted}")
        checks = checks[-1:]
    ok = conclude(screen, checks, str(error) if error else None) and interrupted is None
    if options.json is not None:
        options.json.write_text(json.dumps(story.summary(ok), indent=1) + "\n")
    if not (ok or interrupted):
        log = error.log if error and error.log else home / SERVICE_LOG
        screen.plain(f"\nthe end of {log}:")
        for line in last_lines(log, 20):
            screen.plain(f"  {line}")
    if options.keep or left or not (ok or interrupted):
        screen.plain(f"\nlogs and everything else: {home}")
    else:
        shutil.rmtree(home)
    if interrupted is not None:
        return 128 + interrupted.signum
    return 0 if ok else 1


def settings(options: argparse.Namespace, network: str) -> dict[str, str]:
    """The service's settings, as a user would export them."""
    return {
        "TPU_TYPE": "v6e",
        "SLICE_SHAPE": options.slice_shape,
        "MIN_SLICES": str(options.min_slices),
        "MAX_SLICES": str(options.slices),
        "PATHWAYS_RUNTIME": "emulator",
        "PATHWAYS_SCHEDULER": "local",
        "PATHWAYS_CONTAINER": "none",
        "PATHWAYS_LOCAL_NETWORK": network,
    }


if __name__ == "__main__":
    sys.exit(main())
