# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Identity, liveness and signals of processes."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.guard.support import PATIENCE_S, known, sleeper, until

from pathways_slurm.locks import locked, try_lock
from pathways_slurm.processes import (
    descendants,
    identify,
    is_alive,
    open_pidfd,
    send_signal,
    start_detached,
)


class TestIdentity:
    def test_is_of_one_process(self) -> None:
        with sleeper() as process:
            identity = known(process.pid)
            assert identity == known(process.pid)
            assert identity != known(os.getpid())
            assert is_alive(identity)
            process.kill()
            process.wait()
            assert not is_alive(identity)
            assert identify(process.pid) is None

    def test_does_not_fit_a_later_process_or_boot(self) -> None:
        with sleeper() as process:
            identity = known(process.pid)
            later = identity._replace(start_time=identity.start_time + 1)
            rebooted = identity._replace(boot_id="another")
            for other in (later, rebooted):
                assert not is_alive(other)
                assert open_pidfd(other) is None
                assert not send_signal(other, signal.SIGKILL)
            assert process.poll() is None

    def test_survives_any_name(self, tmp_path: Path) -> None:
        program = tmp_path / "a ) R 1 (b"
        program.symlink_to("/bin/sleep")
        process = subprocess.Popen([str(program), "1000"])
        try:
            name = Path(f"/proc/{process.pid}/comm")
            until(lambda: name.read_text() == "a ) R 1 (b\n", "the program is executed")
            assert is_alive(known(process.pid))
            assert [p.pid for p in descendants(os.getpid()) if p.pid == process.pid]
        finally:
            process.kill()
            process.wait()

    def test_a_zombie_has_ended(self) -> None:
        with sleeper() as process:
            identity = known(process.pid)
            process.kill()
            # Not reaped yet: wait without taking its status.
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert not is_alive(identity)
            assert open_pidfd(identity) is None
            assert not send_signal(identity, signal.SIGTERM)
            assert process.pid not in [p.pid for p in descendants(os.getpid())]

    def test_pidfd_is_readable_at_the_end(self) -> None:
        with sleeper() as process:
            descriptor = open_pidfd(known(process.pid))
            assert descriptor is not None
            try:
                assert select.select([descriptor], [], [], 0)[0] == []
                assert send_signal(known(process.pid), signal.SIGTERM)
                assert select.select([descriptor], [], [], PATIENCE_S)[0] == [descriptor]
            finally:
                os.close(descriptor)


class TestDetached:
    def test_is_nobodys_child_and_keeps_its_descriptors(self, tmp_path: Path) -> None:
        output = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT, 0o600)
        lock = try_lock(tmp_path / "lock")
        assert lock is not None
        script = 'echo "$$ $PPID $A $1"; readlink /proc/self/fd/0; exec sleep 1000'
        try:
            start_detached(
                ["/bin/sh", "-c", script, "sh", '$(x) "y" '],
                env={"A": "b c", "PATH": os.defpath},
                output=output,
                pass_fds=[lock],
            )
        finally:
            os.close(output)
            os.close(lock)
        text = until(
            lambda: t if (t := (tmp_path / "output").read_text()).count("\n") == 2 else "",
            "the program reports",
        )
        first, stdin = text.splitlines()
        pid = int(first.split()[0])
        identity = known(pid)
        try:
            assert first.split(maxsplit=2)[2] == 'b c $(x) "y" '
            assert stdin == "/dev/null"
            assert os.getsid(pid) != os.getsid(0)
            assert pid not in [p.pid for p in descendants(os.getpid())]
            assert try_lock(tmp_path / "lock") is None
        finally:
            send_signal(identity, signal.SIGKILL)
        until(lambda: not is_alive(identity), "the program ends")
        free = until(lambda: try_lock(tmp_path / "lock"), "its lock is free")
        assert free is not None
        os.close(free)


class TestLocks:
    def test_wait_only_so_long(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        with locked(path, 0.0):
            assert try_lock(path) is None
            with pytest.raises(TimeoutError, match="lock"), locked(path, 0.05):
                pass
        with locked(path, 0.0):
            pass

    def test_are_private(self, tmp_path: Path) -> None:
        with locked(tmp_path / "lock", 0.0):
            assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("module", ["guard", "scheduler.local_task"])
def test_what_runs_beside_every_task_needs_only_the_standard_library(module: str) -> None:
    script = f"""
import sys
before = set(sys.modules)
import pathways_slurm.{module}
tops = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(tops - set(sys.stdlib_module_names)))
"""
    package = str(Path(sys.modules["pathways_slurm"].__path__[0]).parent)
    result = subprocess.run(
        [sys.executable, "-S", "-P", "-c", script],
        env={"PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.split() == ["pathways_slurm"]
