# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Drives a service through its command line only, and sees its processes through /proc only."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pathways_slurm.paths import ServicePaths
from pathways_slurm.status import read_status

CHECKOUT = Path(__file__).resolve().parents[2]
_RESERVATION_PORT = 28999
COMMAND = str(Path(sys.executable).with_name("pathways-slurm"))
# For whatever a loaded machine does in a few seconds when it is quiet.
_PATIENCE_S = 90.0


class ServiceUnderTest:
    """One service in a home of its own.

    Every process of it is found by the home's path in its command line or environment.
    """

    def __init__(self, home: Path, **settings: str) -> None:
        self.home = home
        self.network, self._reservation = reserve_network()
        self.settings = {
            "SLICE_SHAPE": "2x2",
            "MIN_SLICES": "2",
            "MAX_SLICES": "3",
            "GCS_BUCKET": str(home / "bucket"),
            "PATHWAYS_HOME": str(home),
            "PATHWAYS_LOCAL_NETWORK": f"{self.network}.0.0/16",
            "PATHWAYS_LEASE_S": "6",
            **settings,
        }
        self._started: list[subprocess.Popen[str]] = []

    @property
    def environ(self) -> dict[str, str]:
        """Of every command that is run against the service."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PATHWAYS_", "JAX_"))}
        return {**kept, **self.settings}

    @property
    def cluster_env(self) -> Path:
        return self.home / "cluster.env"

    def start(self, *argv: str, **popen: Any) -> subprocess.Popen[str]:
        """Starts ``pathways-slurm ARGV`` in a session of its own."""
        process = subprocess.Popen(
            [COMMAND, *argv],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **popen,
        )
        self._started.append(process)
        return process

    def run(self, *argv: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs ``pathways-slurm ARGV`` to its end."""
        return subprocess.run(
            [COMMAND, *argv],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def up(self) -> subprocess.Popen[str]:
        """Starts the service and waits until it is ready."""
        process = self.start("up")
        self.wait_for("READY", process=process)
        return process

    def status(self) -> dict[str, Any]:
        """``status --json``."""
        answer = self.run("status", "--json")
        assert answer.returncode in (0, 4), answer.stderr
        status: dict[str, Any] = json.loads(answer.stdout)
        return status

    def wait_for(
        self,
        phase: str,
        process: subprocess.Popen[str] | None = None,
        timeout_s: float = _PATIENCE_S,
    ) -> dict[str, Any]:
        """Waits until the service is in ``phase``."""

        def reached() -> dict[str, Any] | None:
            assert process is None or process.poll() is None, output_of(process)
            status = self._status_now()
            return status if status["service"] == phase else None

        return wait_until(reached, timeout_s, lambda: f"the service is {phase}: {self.logs()}")

    def wait_for_moment(
        self, process: subprocess.Popen[str], reached: Callable[[], object], what: str
    ) -> None:
        """Waits until ``reached``, looking as often as it can, while ``process`` lives."""

        def condition() -> object:
            assert process.poll() is None, output_of(process)
            return reached()

        wait_until(condition, _PATIENCE_S, what, every_s=0.01)

    def wait_for_slice(
        self, index: int, state: str, above: int = 0, timeout_s: float = _PATIENCE_S
    ) -> dict[str, Any]:
        """Waits until a slice of an incarnation greater than ``above`` is in ``state``."""

        def reached() -> dict[str, Any] | None:
            slices = self._status_now()["slices"]
            found: dict[str, Any] = slices[index] if slices else {"state": "", "incarnation": 0}
            return found if found["state"] == state and found["incarnation"] > above else None

        return wait_until(reached, timeout_s, lambda: f"slice {index} is {state}: {self.logs()}")

    def _status_now(self) -> dict[str, Any]:
        """What the command prints, without a process for each of many looks."""
        return read_status(ServicePaths.from_environ(self.settings))

    def events(self) -> list[dict[str, Any]]:
        """All lines of events.jsonl."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.home / "events.jsonl").read_text().splitlines()
            return [json.loads(line) for line in lines]
        return []

    def logs(self) -> str:
        """The ends of all logs, for a failure's message."""
        parts = [
            f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted((self.home / "logs").rglob("*.log"))
        ]
        return "\n".join(parts)

    def processes(self) -> dict[int, str]:
        """Pid → command line of every process that has this home in argv or environment."""
        marker = str(self.home).encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                argv = (entry / "cmdline").read_bytes()
                if marker in argv or marker in (entry / "environ").read_bytes():
                    found[int(entry.name)] = argv.replace(b"\0", b" ").decode(errors="replace")
        return found

    def pid_of(self, *words: str) -> int:
        """The one process of the service whose command line has all ``words``."""
        matching = [p for p, argv in self.processes().items() if all(w in argv for w in words)]
        assert len(matching) == 1, f"{words}: {matching} of {self.processes()}"
        return matching[0]

    def worker_on(self, address: str) -> int:
        """The worker that is bound to ``address``, by its environment."""
        variable = f"PATHWAYS_BIND_ADDRESS={address}".encode()
        # In all of /proc: with a bucket for scratch, nothing of the home is in a worker's argv.
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if variable in environ.read_bytes().split(b"\0"):
                    return int(environ.parent.name)
        raise AssertionError(f"no worker on {address}")

    def expect_nothing_left(self, within_s: float = 60.0) -> None:
        """Waits until no process of the service and no cluster.env is there."""

        def gone() -> bool:
            return not self.processes() and not self.cluster_env.exists()

        try:
            wait_until(gone, within_s, "nothing is left")
        except TimeoutError:
            left = f"left: {self.processes()}, cluster.env: {self.cluster_env.exists()}"
            raise AssertionError(f"{left}\n{self.logs()}") from None

    def close(self) -> None:
        """Kills whatever is left, so that a failed test disturbs no other."""
        for _ in range(20):
            left = self.processes()
            if not left:
                break
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for process in self._started:
            process.communicate()
        self._reservation.close()


def output_of(process: subprocess.Popen[str]) -> str:
    """All that an ended process printed."""
    return process.communicate(timeout=30)[0]


def wait_until[T](
    condition: Callable[[], T | None],
    timeout_s: float,
    what: str | Callable[[], str],
    every_s: float = 0.05,
) -> T:
    """Asks until ``condition`` gives something true, and returns that.

    ``what`` was waited for; a function is called when it did not come.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        if result := condition():
            return result
        if time.monotonic() > deadline:
            words = what if isinstance(what, str) else what()
            raise TimeoutError(f"not within {timeout_s:g} s: {words}")
        time.sleep(every_s)


def reserve_network() -> tuple[str, socket.socket]:
    """The first two octets of a loopback network that nobody uses, such as 127.71.

    It is ours as long as the socket is open: demos and other test runs on this machine keep the
    same port of their networks.
    """
    for octet in range(70, 250):
        reservation = socket.socket()
        with socket.socket() as rm, socket.socket() as proxy:
            try:
                reservation.bind((f"127.{octet}.0.1", _RESERVATION_PORT))
                reservation.listen()
                rm.bind((f"127.{octet}.0.1", 29001))
                proxy.bind((f"127.{octet}.0.1", 29000))
            except OSError:
                reservation.close()
                continue
            return f"127.{octet}", reservation
    raise AssertionError("no free loopback network")
