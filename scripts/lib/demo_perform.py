# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Performs the demo's story on a stage, and shows it."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from rich.console import Console

from demo_stage import DemoError, Stage, Step, Tail
from demo_story import SNAPSHOT_PERIOD, Phase, Story, Victim, parse_record

# How long each part may take, in seconds. Far above what it takes, below anyone's patience.
ALL_SLICES_S = 120.0
SILENCE_S = 120.0
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


def wait_until(step: Step, screen: Screen, signals: Signals) -> None:
    """Waits until a step has come about.

    Raises:
        DemoError: It took too long, or what must bring it about ended first.
    """
    began = time.monotonic()
    with screen.waiting_for(step.what):
        while not step.done():
            if (how := step.process.ended()) is not None:
                raise DemoError(f"{step.what}: {how} instead", step.process.log)
            if time.monotonic() - began > step.within_s:
                raise DemoError(f"{step.what}: not within {step.within_s:.0f} s", step.process.log)
            signals.pause(LOOK_AGAIN_S)
    screen.say(f"{step.came} after {time.monotonic() - began:.1f} s")


def kill(victim: Victim) -> None:
    """Raises DemoError if there is no such process any more."""
    try:
        os.kill(victim.pid, signal.SIGKILL)
    except ProcessLookupError:
        raise DemoError(f"the worker on {victim.node}, pid {victim.pid}, ended by itself") from None


def show(screen: Screen, lines: Sequence[str]) -> None:
    for line in lines:
        screen.say(line)


def watch_training(stage: Stage, story: Story, screen: Screen, signals: Signals) -> Victim | None:
    """Follows the training program to its end, and kills the victim on the way.

    Returns:
        The victim; None if training ended before there was one.

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
            return victim
        if victim is None and story.wants_victim:
            victim = stage.find_victim(story.plan.victim)
            continue  # that took a while
        if victim is not None and story.wants_kill:
            kill(victim)
            show(screen, story.on_kill(time.time(), victim))
        if story.wants_status and now - looked >= STATUS_AGAIN_S:
            looked = now
            if seen := stage.slice(story.plan.victim):
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
    for step in stage.bring_up():
        wait_until(step, screen, signals)
    plan = story.plan
    training = {
        "steps": plan.steps,
        "snapshot-period": SNAPSHOT_PERIOD,
        "checkpoint-period": SNAPSHOT_PERIOD,
        "poll-interval": 1,
        "min-step-time": plan.step_time(stage.back_within_s),
    }
    stage.start_training([word for k, v in training.items() for word in (f"--{k}", str(v))])
    with screen.waiting_for("training"):
        victim = watch_training(stage, story, screen, signals)
    if victim is not None:
        stage.look_back(victim)
