# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo acts on: a private service, a training program, and their end.

Only public commands are used, as a user would. Everything of one demo is in a directory of its own
and on a loopback network of its own, so that several can run at once. What runs the slices is up to
demo_local.py and demo_slurm.py.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from demo_story import Check, Host, SliceView, Victim, slice_in

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = CHECKOUT / "docs" / "examples" / "train_transformer.py"
COMMAND = Path(sys.executable).with_name("pathways-slurm")
TRAINING_LOG = "training.log"

_LEAVING_S = 10.0
_LOOK_AGAIN_S = 0.2
# Of the caller's environment, what would make the demo another one than asked for.
_DROPPED = ("IFRT_", "JAX_", "MEGASCALE_", "PATHWAYS_", "PYTHONPATH", "TPU_", "XLA_")
_PR_SET_PDEATHSIG = 1


class DemoError(Exception):
    """The demo can't go on. ``log`` is the file whose last lines may tell why."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


def clean_environment(caller: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """The caller's environment without what steers JAX or a service, plus ``settings``."""
    kept = {k: v for k, v in caller.items() if not k.startswith(_DROPPED)}
    return kept | dict(settings)


def _end_with(parent: int) -> Callable[[], None]:
    """For the child, before it executes: SIGTERM when the driver ends, however that ends."""
    libc = ctypes.CDLL(None, use_errno=True)

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it has ended already
            os.kill(os.getpid(), signal.SIGTERM)

    return arrange


class Child:
    """A command in a session of its own: Ctrl-C reaches only the driver, which ends it in order."""

    def __init__(self, argv: Sequence[str | Path], env: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                env=dict(env),
                cwd=CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with(os.getpid()),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def ended(self) -> str | None:
        """How it ended; None while it runs."""
        return None if (code := self.exit_code) is None else f"ended with exit code {code}"

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL to all of its session after ``grace_s``. Fine if it has ended."""
        if self.exit_code is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Process(Protocol):
    """What a step waits for."""

    @property
    def log(self) -> Path:
        """What it has written."""

    def ended(self) -> str | None:
        """How it ended by itself, such as "ended with exit code 1"; None while it runs."""


@dataclass(frozen=True)
class Step:
    """Something that was started and is to be waited for.

    Attributes:
        what: Is waited for, such as "starting the service".
        came: What to say when it has come about, such as "service up".
        within_s: How long it may take.
        done: Whether it has come about.
        process: Must bring it about.
    """

    what: str
    came: str
    within_s: float
    done: Callable[[], bool]
    process: Process


class Stage(ABC):
    """One service in ``home`` and its training program. :meth:`clear` ends whatever there is.

    Subclasses differ in what runs the slices.
    """

    all_down = "everything was brought down"
    back_within_s = 0.0
    """A slice may be away for so long; training must not be over by then. 0: it is fast enough."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self.metrics = home / "metrics.jsonl"
        self.cluster_env = home / "cluster.env"
        self.service_log = home / "service.log"
        bucket = home / "bucket"
        bucket.mkdir(mode=0o700)
        self._env = clean_environment(
            os.environ, {**settings, "PATHWAYS_HOME": str(home), "GCS_BUCKET": str(bucket)}
        )
        self.training: Child | None = None

    @abstractmethod
    def bring_up(self) -> Iterator[Step]:
        """Brings the service up. Each step has to come about before the next is asked for.

        Raises:
            DemoError: Something can't be started.
        """

    def start_training(self, options: Sequence[str]) -> None:
        argv: list[str | Path] = [COMMAND, "run", "--timeout", "60", "--", sys.executable, PROGRAM]
        argv += ["--checkpoint-dir", self.home / "checkpoints", "--metrics", self.metrics, *options]
        self.training = Child(argv, self._env, self.home / TRAINING_LOG)

    def slice(self, index: int) -> SliceView | None:
        """What ``pathways-slurm status --json`` says of a slice; None if it tells of none.

        Raises:
            DemoError: It says nothing that can be read.
        """
        try:
            done = self._run(COMMAND, "status", "--json", timeout_s=30)
            status: dict[str, Any] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            raise DemoError("'pathways-slurm status --json' did not end within 30 s") from None
        except ValueError:
            raise DemoError(f"'pathways-slurm status --json' printed no JSON: {done!r}") from None
        return slice_in(status, index)

    def find_victim(self, index: int) -> Victim:
        """The last worker of a slice that is ready.

        Raises:
            DemoError: The slice is not ready, or its process can't be found.
        """
        seen = self.slice(index)
        if seen is None or seen.state != "READY" or not seen.hosts:
            raise DemoError(f"slice {index} trains, but its status is not READY with hosts: {seen}")
        number = len(seen.hosts) - 1
        pid = self._worker_pid(index, number, seen.hosts[number])
        return Victim(seen.hosts[number].node, pid, seen.incarnation, seen.task)

    @abstractmethod
    def _worker_pid(self, index: int, number: int, host: Host) -> int:
        """The process of host ``number`` of slice ``index``. Raises DemoError."""

    def look_back(self, victim: Victim) -> None:
        """Looks at what shows only while the service runs, after training has ended.

        Raises:
            DemoError: It can't be seen.
        """
        del victim

    def checks(self) -> list[Check]:
        """Beyond those of the story: what this stage has to show by itself."""
        return []

    def summary(self) -> dict[str, Any]:
        """Beyond that of the story."""
        return {}

    def clear(self) -> list[str]:
        """Ends the program, then the service; returns what is wrong with that end."""
        if self.training is not None:
            self.training.end(grace_s=20)
        faults = self._end_service()
        if self.cluster_env.exists():
            faults.append(f"{self.cluster_env} is still there")
        if left := await_no_process(self.home):
            faults.append("processes are left: " + "; ".join(left))
        return faults

    @abstractmethod
    def _end_service(self) -> list[str]:
        """Ends whatever was brought up; returns what is wrong with that end."""

    def _run(self, *argv: str | Path, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            argv, env=self._env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout_s, check=False, start_new_session=True,
        )  # fmt: skip


def await_no_process(home: Path, but: Callable[[], Set[int]] = frozenset) -> list[str]:
    """What is left of :func:`processes_of` after a while, without the pids that ``but`` gives."""
    deadline = time.monotonic() + _LEAVING_S
    while (left := processes_of(home, but())) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_S)
    return left


def processes_of(home: Path, but: Set[int] = frozenset()) -> list[str]:
    """Living processes that know of ``home``, by arguments or environment.

    This process and the pids ``but`` are left out.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid in {os.getpid(), *but} or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [*process.cmdline(), *process.environ().values()]
            if any(str(home) in word for word in words):
                found.append(f"pid {process.pid} ({' '.join(process.cmdline())[:120]})")
    return found


class Tail:
    """Whole lines as they are appended to a file that may not exist yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def lines(self) -> list[str]:
        """Those since the last call. A line that is not finished waits for the next call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


def last_lines(path: Path, count: int) -> list[str]:
    """The last ``count`` lines of a log; none if it can't be read."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:]
    except OSError:
        return []
