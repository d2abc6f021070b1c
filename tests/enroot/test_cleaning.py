# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What ended components leave, and who removes it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.enroot.layer import TIMEOUT_S, Layer, kill_all, wait_until

WAITS = ("/bin/sh", "-c", "echo ready; exec sleep 300")


def start(layer: Layer, image: Path, log: Path, name: str = "rm") -> subprocess.Popen[bytes]:
    """A component that waits, once it runs."""
    process = layer.spawn(log, "run_in_container.sh", image, name, "--", *WAITS)
    wait_until(lambda: "ready\n" in log.read_text(), process, log)
    return process


def start_unpacking(layer: Layer, image: Path, log: Path) -> subprocess.Popen[bytes]:
    """A start that unpacks for good: in the place of unsquashfs is one that stops midway."""
    layer.put(
        "unsquashfs",
        'if [[ " $* " == *" -d "* ]]; then\n'
        '  while [[ $1 != -d ]]; do shift; done; mkdir -p "$2/bin"; exec sleep 300\n'
        'fi\nexec "$(type -aP unsquashfs | sed -n 2p)" "$@"',
    )
    process = layer.spawn(log, "run_in_container.sh", image, "rm", "--", "/bin/echo", "started")
    wait_until(lambda: any((layer.base / "containers").glob("*/bin")), process, log)
    return process


def realm() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().split("-")[0]
    return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"


def start_time(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]


def let_a_day_pass(layer: Layer) -> None:
    """Since the last use of every container."""
    for lock in (layer.base / "locks").iterdir():
        os.utime(lock, (0, lock.stat().st_mtime - 24 * 3600))


def test_the_unpacked_image_is_what_is_left_after_the_last_component(
    layer: Layer, image: Path
) -> None:
    layer.run(image, "/bin/true")
    assert layer.attempts()
    unpacked = layer.containers()
    assert layer.script("remove_stale.sh").returncode == 0
    assert layer.attempts() == []
    assert layer.containers() == unpacked
    assert "Unpacked" not in layer.run(image, "/bin/true").stderr
    assert layer.script("remove_stale.sh", "--all").returncode == 0
    assert layer.attempts() == []
    assert layer.containers() == []


def test_an_unpacked_image_goes_when_it_has_not_been_used_for_a_day(
    layer: Layer, image: Path
) -> None:
    layer.run(image, "/bin/true")
    let_a_day_pass(layer)
    # This start is a use.
    assert "Unpacked" not in layer.run(image, "/bin/true").stderr
    layer.script("remove_stale.sh")
    assert len(layer.containers()) == 1
    let_a_day_pass(layer)
    layer.script("remove_stale.sh")
    assert layer.containers() == []


def test_wrong_words_are_told(layer: Layer) -> None:
    done = layer.script("remove_stale.sh", "all")
    assert (done.returncode, done.stderr) == (64, "error: usage: remove_stale.sh [--all]\n")


def test_there_may_be_nothing_to_remove(layer: Layer) -> None:
    done = layer.script("remove_stale.sh")
    assert (done.returncode, done.stderr) == (0, "")
    assert not layer.base.exists()


def test_a_killed_component_is_cleaned_up_after_by_the_next(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    process = start(layer, image, tmp_path / "log")
    left = layer.attempts()
    kill_all(process)
    assert layer.attempts() == left
    done = layer.run(image, "/bin/true")
    assert done.returncode == 0, done.stderr
    assert not set(left) & set(layer.attempts())
    # The image needs not be unpacked again.
    assert "Unpacked" not in done.stderr


def test_a_running_one_is_left_alone(layer: Layer, image: Path, tmp_path: Path) -> None:
    process = start(layer, image, tmp_path / "log")
    try:
        mine = layer.attempts()
        assert layer.run(image, "/bin/true", name="proxy").returncode == 0
        assert layer.script("remove_stale.sh", "--all").returncode == 0
        assert layer.attempts() == mine
        assert len(layer.containers()) == 1
        assert process.poll() is None
    finally:
        kill_all(process)
    layer.script("remove_stale.sh", "--all")
    assert layer.containers() == []


def test_a_start_removes_an_image_that_nobody_has_used_for_a_day(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    layer.run(image, "/bin/true")
    before = layer.containers()
    let_a_day_pass(layer)
    other = tmp_path / "other.sqsh"
    other.write_bytes(image.read_bytes())
    assert layer.run(other, "/bin/true").returncode == 0
    assert len(layer.containers()) == 1
    assert layer.containers() != before


def test_two_at_once_get_along_and_unpack_once(layer: Layer, image: Path, tmp_path: Path) -> None:
    logs = [tmp_path / "log-0", tmp_path / "log-1"]
    both = [
        layer.spawn(log, "run_in_container.sh", image, "worker", "--", "/bin/echo", "done")
        for log in logs
    ]
    codes = [process.wait(TIMEOUT_S) for process in both]
    said = [log.read_text() for log in logs]
    assert codes == [0, 0], said
    assert all(text.endswith("done\n") for text in said)
    assert sum(text.count("Unpacked") for text in said) == 1
    assert len(layer.attempts()) == 2


def test_a_kill_while_unpacking_does_not_hinder_the_next(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    process = start_unpacking(layer, image, tmp_path / "log")
    kill_all(process)
    (layer.programs / "unsquashfs").unlink()
    done = layer.run(image, "/bin/echo", "done")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert len(layer.containers()) == len(layer.attempts()) == 1


def test_a_signal_while_unpacking_ends_it_and_nothing_is_started(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    process = start_unpacking(layer, image, log)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == -signal.SIGTERM
    assert "started" not in log.read_text()


def test_a_container_that_is_not_whole_is_removed(layer: Layer) -> None:
    (layer.base / "containers" / "0123456789abcdef.new" / "bin").mkdir(parents=True, mode=0o700)
    (layer.base / "attempts").mkdir()
    (layer.base / "locks").mkdir()
    layer.base.chmod(0o700)
    assert layer.script("remove_stale.sh").returncode == 0
    assert layer.containers() == []


@pytest.mark.parametrize(
    ("started", "where", "kept"),
    [
        (start_time(os.getpid()), realm(), True),
        ("1", realm(), False),
        # Of another boot of this machine; and of another PID namespace, where it may live.
        (start_time(os.getpid()), f"00000000-{realm().split('-')[1]}", False),
        ("1", f"{realm().split('-')[0]}-1", True),
    ],
    ids=["this process", "one with its number", "another boot", "another namespace"],
)
def test_an_attempt_is_told_by_more_than_a_process_number(
    layer: Layer, started: str, where: str, kept: bool
) -> None:
    attempt = layer.base / "attempts" / f"rm.{os.getpid()}.{started}.{where}.0123456789abcdef"
    attempt.mkdir(parents=True)
    layer.base.chmod(0o700)
    assert layer.script("remove_stale.sh").returncode == 0
    assert attempt.exists() == kept


def test_what_is_not_ours_is_left_alone(layer: Layer) -> None:
    other = layer.base / "attempts" / "something else"
    other.mkdir(parents=True)
    layer.base.chmod(0o700)
    assert layer.script("remove_stale.sh").returncode == 0
    assert other.exists()


def test_a_tree_that_is_not_writable_is_removed(layer: Layer) -> None:
    attempt = layer.base / "attempts" / f"rm.{os.getpid()}.1.{realm()}.0123456789abcdef"
    (attempt / "tmp" / "locked").mkdir(parents=True)
    (attempt / "tmp" / "locked" / "file").touch()
    (attempt / "tmp" / "locked").chmod(0o500)
    layer.base.chmod(0o700)
    assert layer.script("remove_stale.sh").returncode == 0
    assert not attempt.exists()
