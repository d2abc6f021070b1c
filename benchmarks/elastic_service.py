# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A runtime of real processes whose slices are killed and come back, for tests and benchmarks."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

NETWORK = "127.106.0.0/16"
START_TIMEOUT_S = 90.0
# Of a worker that was started until its slice can be used.
JOIN_TIMEOUT_S = 30.0

_INCARNATION = "PATHWAYS_INCARNATION"


@dataclass
class _Slice:
    """The worker of a slice of one host: how it was started, and as which process it lives."""

    argv: list[str]
    environment: dict[str, str]
    process: psutil.Process
    started: subprocess.Popen[bytes] | None = None


class Service:
    """``pathways-emulator serve``, already running as process ``pid``, with slices of one host."""

    def __init__(self, pid: int, variables: Mapping[str, str]) -> None:
        self.pid = pid
        self.variables = dict(variables)
        self._slices: dict[int, _Slice] = {}
        for process in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                environment, argv = process.environ(), process.cmdline()
                index = environment.get("PATHWAYS_SLICE_INDEX", "")
                if index and "pathways_emulator.server" in argv:
                    self._slices[int(index)] = _Slice(argv, environment, process)

    @property
    def slices(self) -> list[int]:
        """All slice indices."""
        return sorted(self._slices)

    def proxy(self) -> psutil.Process:
        """The process that computes."""
        children = psutil.Process(self.pid).children(recursive=True)
        return next(p for p in children if "pathways_emulator.proxy_server" in p.cmdline())

    def alive(self, index: int) -> bool:
        """Whether the slice's worker process lives."""
        process = self._slices[index].process
        with contextlib.suppress(psutil.NoSuchProcess):
            return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return False

    def kill(self, index: int) -> None:
        """Ends the slice's worker as kill -9 does; one that is dead stays so."""
        found = self._slices[index]
        with contextlib.suppress(psutil.NoSuchProcess):
            found.process.send_signal(signal.SIGKILL)
        if found.started is not None:
            found.started.wait()

    def revive(self, index: int) -> None:
        """Starts a worker of a greater incarnation for a slice that was killed."""
        found = self._slices[index]
        if self.alive(index):
            return
        if found.started is not None:
            found.started.wait()
        incarnation = int(found.environment[_INCARNATION]) + 1
        found.environment = {**found.environment, _INCARNATION: str(incarnation)}
        found.started = subprocess.Popen(
            found.argv,
            env=found.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        found.process = psutil.Process(found.started.pid)

    def end_revived(self) -> None:
        """Ends the workers that were started here."""
        for found in self._slices.values():
            if found.started is not None:
                found.started.kill()
                found.started.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_revived()


def variables_of(env_file: Path) -> dict[str, str]:
    """What ``serve`` has written for a JAX program."""
    lines = env_file.read_text().splitlines()
    exports = (line.removeprefix("export ") for line in lines if line.startswith("export "))
    return dict(line.split("=", 1) for line in exports)


@contextlib.contextmanager
def serve(
    directory: Path, slices: int = 3, shape: str = "2x2", network: str = NETWORK
) -> Iterator[Service]:
    """Starts a service and ends it; what it says is in ``directory/serve.log``."""
    env_file, log = directory / "runtime.env", directory / "serve.log"
    command = [
        *(sys.executable, "-m", "pathways_emulator.cli", "serve", "--network", network),
        *("--slices", str(slices), "--slice-shape", shape, "--env-file", str(env_file)),
    ]
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while "ready; Ctrl-C ends it" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service did not come up:\n{log.read_text()}")
            time.sleep(0.05)
        with Service(process.pid, variables_of(env_file)) as service:
            yield service
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def prepare_jax(service: Service) -> None:
    """Makes JAX, imported after this, a client of the service."""
    os.environ.update(service.variables)
    os.environ["PATHWAYS_MIN_SLICES"] = "1"
    # XLA's client warns of each array of a lost slice otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def release_jax() -> None:
    """Takes leave of the service, which would be missed noisily at the end of this process."""
    from jax.extend.backend import clear_backends

    clear_backends()
