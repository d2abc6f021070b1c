# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The supervisor's parent: starts it again when it dies, cleans up when it can't.

``pathways-slurm up`` is a root; on Slurm the batch script is one. A run belongs to its root: RM and
proxy end when it ends.
"""

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from types import FrameType

from pathways_slurm.budget import Budget

# What ``supervise`` returns when it is done; anything else is a death that a restart may mend.
FINAL_EXIT_CODES = frozenset({0, 1, 2, 3})
_LOOK_AGAIN_S = 0.2


class Root:
    """Keeps one supervisor running.

    Args:
        argv: The supervisor's command line.
        budget: Restarts within a window.
        clean_up: Ends what a dead supervisor left, given the reason; returns an exit code.
        report: Told each thing that a user should know, as a sentence.
        meanwhile: Called a few times a second.
    """

    def __init__(
        self,
        argv: Sequence[str],
        budget: Budget,
        clean_up: Callable[[str], int],
        report: Callable[[str], None],
        meanwhile: Callable[[], None],
    ) -> None:
        self._argv = argv
        self._budget = budget
        self._clean_up = clean_up
        self._report = report
        self._meanwhile = meanwhile
        self._stop_signal: signal.Signals | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Returns the service's exit code once nothing of it is left."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._pass_on)
        deaths: tuple[float, ...] = ()
        while True:
            if self._stop_signal is not None:
                return self._clean_up("asked to while no supervisor ran")
            code = self._supervise_once()
            if code == 1:
                # It may have failed before it could end what it had started; mostly a no-op.
                return self._clean_up("the supervisor has failed") or code
            if code in FINAL_EXIT_CODES:
                return code
            how = f"the supervisor {_ending(code)}"
            if self._stop_signal is not None:
                return self._clean_up(f"{how} while the service was being ended")
            now = time.time()
            if not self._budget.left(deaths, now):
                spent = self._budget.describe(deaths, now)
                words = f"{how}, and its restart budget has run out ({spent})"
                self._report(f"{words}; cleaning up")
                return self._clean_up(words) or 1
            wait = self._budget.backoff_left(deaths, now)
            deaths = (*self._budget.recent(deaths, now), now)
            when = f"starting it again in {wait:.0f} s" if wait else "starting it again"
            self._report(f"{how}; {when} ({self._budget.describe(deaths, now)})")
            self._pause(wait)

    def _supervise_once(self) -> int:
        self._child = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL)
        if self._stop_signal is not None:  # it arrived before there was anyone to pass it to
            self._child.send_signal(self._stop_signal)
        while True:
            try:
                return self._child.wait(_LOOK_AGAIN_S)
            except subprocess.TimeoutExpired:
                self._meanwhile()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while self._stop_signal is None and (left := end - time.monotonic()) > 0:
            self._meanwhile()
            time.sleep(min(left, _LOOK_AGAIN_S))

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._stop_signal is None:
            self._report(f"{signal.Signals(number).name}: ending the service ...")
        self._stop_signal = signal.Signals(number)
        if self._child is not None:
            self._child.send_signal(signal.SIGTERM)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    return f"was ended by signal {-code} ({signal.Signals(-code).name})"
