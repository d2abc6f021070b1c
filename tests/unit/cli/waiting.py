# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service as far as a command that waits for one can tell, and what such commands do."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from pathways_slurm import cluster_env, notices
from pathways_slurm.cluster_env import ClusterEnv
from pathways_slurm.notices import Going, Notices, Shutdown

COMMAND = str(Path(sys.executable).parent / "pathways-slurm")
HOST = "127.104.0.1"


class Case:
    """A service as far as ``run`` can tell, and processes to be ended with the test."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.environ: dict[str, str] = {}
        self._stack = stack
        self._proxy = stack.enter_context(socket.create_server((HOST, 0)))
        greeter = threading.Thread(target=self._greet)
        greeter.start()
        stack.callback(greeter.join)
        stack.callback(self._proxy.shutdown, socket.SHUT_RDWR)
        self.publish()

    def _greet(self) -> None:
        """Says a word to whoever connects, until the socket is shut down."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._proxy.accept()
                with connection, contextlib.suppress(OSError):
                    connection.send(b"a word")

    def publish(self, jax_version: str | None = None) -> None:
        port = self._proxy.getsockname()[1]
        env = ClusterEnv(
            run_id="run",
            name="pathways",
            home=str(self.directory),
            proxy_address=f"{HOST}:{port}",
            rm_address=f"{HOST}:1",
            tpu_type="v6e",
            slice_shape="2x4",
            min_slices=1,
            max_slices=2,
            jax_version=jax_version,
        )
        cluster_env.write(self.directory / "cluster.env", env)

    def withdraw(self) -> None:
        (self.directory / "cluster.env").unlink()

    def notice(self, *going: Going, shutdown: Shutdown | None = None) -> None:
        notices.write(self.directory / notices.FILE, Notices("run", 1, going, shutdown=shutdown))

    def start(self, *options: str, script: str) -> subprocess.Popen[str]:
        """``run`` with bash's script, in which $D is the test's directory."""
        return self.call("run", *options, "--", "bash", "-c", script)

    def call(self, *argv: str) -> subprocess.Popen[str]:
        """A command of pathways-slurm, with what ``environ`` adds."""
        process = subprocess.Popen(
            [COMMAND, *argv],
            env={
                **os.environ,
                "PATHWAYS_HOME": str(self.directory),
                "PATHWAYS_RESTART_COUNT": "an outer run's",
                "D": str(self.directory),
                **self.environ,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._stack.enter_context(process)
        self._stack.callback(_end_session, process.pid)
        return process

    def ended(self, *options: str, script: str) -> tuple[int, list[str], list[str]]:
        """Its exit code, and the lines of its output and error, once it has ended by itself."""
        process = self.start(*options, script=script)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.splitlines(), err.splitlines()

    def until(self, look: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 30
        while not look():
            assert time.monotonic() < deadline, what
            time.sleep(0.02)

    def lines(self, name: str) -> list[str]:
        path = self.directory / name
        return path.read_text().splitlines() if path.exists() else []


def _end_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
