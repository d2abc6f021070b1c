# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo acts on: a private service, a training program, and their end.

Only public commands are used, as a user would. Everything of one demo is in a directory of its own
and on a loopback network of its own, so that several can run at once.
"""

import contextlib
import ctypes
import errno
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = CHECKOUT / "docs" / "examples" / "train_transformer.py"
COMMAND = Path(sys.executable).with_name("pathways-slurm")
SERVICE_LOG = "up.log"
TRAINING_LOG = "training.log"

_RESERVATION_PORT = 28999
_SERVICE_PORTS = (29000, 29001)
_NETWORKS = range(64, 250)
# Of the caller's environment, what would make the demo another one than asked for.
_DROPPED = ("IFRT_", "JAX_", "MEGASCALE_", "PATHWAYS_", "TPU_", "XLA_")
_PR_SET_PDEATHSIG = 1


class DemoError(Exception):
    """The demo can't go on. ``log`` is the file whose last lines may tell why."""

    def __init__(self, message: str, log: Path | None = None) -> None:
        super().__init__(message)
        self.log = log


@contextlib.contextmanager
def reserved_network() -> Iterator[str]:
    """A loopback network 127.X.0.0/16 that nothing uses, kept from other demos meanwhile.

    Yields:
        The network, as PATHWAYS_LOCAL_NETWORK takes it.

    Raises:
        DemoError: Every network is in use.
    """
    for x in random.sample(_NETWORKS, len(_NETWORKS)):
        with contextlib.ExitStack() as stack:
            address = f"127.{x}.0.1"
            try:
                # This one stays bound: another demo that tries it goes on to the next network.
                kept = stack.enter_context(socket.socket())
                kept.bind((address, _RESERVATION_PORT))
                for port in _SERVICE_PORTS:
                    with socket.socket() as probe:
                        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        probe.bind((address, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise DemoError(f"can't bind {address}: {error.strerror}") from error
                continue
            yield f"127.{x}.0.0/16"
            return
    raise DemoError(
        f"no free network among 127.{_NETWORKS[0]}.0.0/16 .. 127.{_NETWORKS[-1]}.0.0/16"
    )


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
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL to all of its session after ``grace_s``. Fine if it has ended."""
        if self.exit_code is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Stage:
    """One service in ``home`` and its training program. :meth:`clear` ends whatever there is."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self.metrics = home / "metrics.jsonl"
        self.cluster_env = home / "cluster.env"
        self._bucket = home / "bucket"
        self._bucket.mkdir(mode=0o700)
        self._env = clean_environment(
            os.environ,
            {**settings, "PATHWAYS_HOME": str(home), "GCS_BUCKET": str(self._bucket)},
        )
        self.service: Child | None = None
        self.training: Child | None = None

    def start_service(self) -> None:
        self.service = Child([COMMAND, "up"], self._env, self.home / SERVICE_LOG)

    def start_training(self, options: Sequence[str]) -> None:
        argv: list[str | Path] = [COMMAND, "run", "--timeout", "60", "--", sys.executable, PROGRAM]
        argv += ["--checkpoint-dir", self.home / "checkpoints", "--metrics", self.metrics, *options]
        self.training = Child(argv, self._env, self.home / TRAINING_LOG)

    def status(self) -> dict[str, Any]:
        """What ``pathways-slurm status --json`` says.

        Raises:
            DemoError: It says nothing that can be read.
        """
        try:
            done = self._run("status", "--json", timeout_s=30)
            status: dict[str, Any] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            raise DemoError("'pathways-slurm status --json' did not end within 30 s") from None
        except ValueError:
            raise DemoError(f"'pathways-slurm status --json' printed no JSON: {done!r}") from None
        return status

    def clear(self) -> list[str]:
        """Ends the program, then the service; returns what is wrong with that end."""
        faults = []
        if self.training is not None:
            self.training.end(grace_s=20)
        if self.service is not None:
            # In this order: "down" would not find a service that is only about to start.
            self.service.end(grace_s=60)
            try:
                down = self._run("down", "--timeout", "60", timeout_s=90)
                if down.returncode != 0:
                    faults.append(f"'pathways-slurm down' failed: {down.stderr.strip()}")
            except subprocess.TimeoutExpired:
                faults.append("'pathways-slurm down' did not end within 90 s")
        if self.cluster_env.exists():
            faults.append(f"{self.cluster_env} is still there")
        if left := self._await_no_process(within_s=10):
            faults.append("processes are left: " + "; ".join(left))
        return faults

    def _run(self, *words: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [COMMAND, *words], env=self._env, capture_output=True, text=True, timeout=timeout_s,
            check=False, start_new_session=True,
        )  # fmt: skip

    def _await_no_process(self, within_s: float) -> list[str]:
        deadline = time.monotonic() + within_s
        while (left := processes_of(self.home)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return left


def processes_of(home: Path) -> list[str]:
    """Living processes other than this one that know of ``home``: by arguments or environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
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
