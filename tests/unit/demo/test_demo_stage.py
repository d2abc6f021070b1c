# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo acts on: networks, children, their end, logs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from demo_local import reserved_network
from demo_stage import Child, Tail, clean_environment, last_lines, processes_of

SLEEPER = "import time; print('ready', flush=True); time.sleep(600)"


def wait_for(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_two_demos_get_two_networks() -> None:
    with reserved_network() as one, reserved_network() as other:
        assert one != other
        assert one.startswith("127.")
        assert one.endswith(".0.0/16")


def test_environment_of_the_caller_does_not_steer_the_demo() -> None:
    caller = {"PATH": "/bin", "JAX_PLATFORMS": "tpu", "PATHWAYS_HOME": "/h", "TPU_TYPE": "v4"}
    assert clean_environment(caller, {"TPU_TYPE": "v6e"}) == {"PATH": "/bin", "TPU_TYPE": "v6e"}


def wait_until_ready(log: Path) -> None:
    wait_for(lambda: last_lines(log, 1) == ["ready"])


def start(code: str, log: Path, *arguments: str) -> Child:
    return Child([sys.executable, "-c", code, *arguments], os.environ, log)


def test_child_ends_on_request(tmp_path: Path) -> None:
    child = start(SLEEPER, tmp_path / "log")
    assert child.exit_code is None
    assert child.ended() is None
    child.end(grace_s=20)
    assert child.exit_code == -signal.SIGTERM
    assert child.ended() == "ended with exit code -15"


def test_child_that_ignores_the_request_is_killed_with_its_children(tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.fork(), flush=True)\n"
        "time.sleep(600)\n"
    )
    log = tmp_path / "log"
    child = start(code, log)
    wait_for(lambda: len(last_lines(log, 9)) == 2)
    grandchild = max(int(line) for line in last_lines(log, 9))
    child.end(grace_s=0.1)
    assert child.exit_code == -signal.SIGKILL
    wait_for(lambda: not is_alive(grandchild))


def test_child_ends_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    driver_code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        f"sys.path.insert(0, {str(Path(sys.modules[Child.__module__].__file__ or '').parent)!r})\n"
        "from demo_stage import Child\n"
        f"child = Child([sys.executable, '-c', {SLEEPER!r}], {{}}, Path(sys.argv[1]))\n"
        "print(child._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", driver_code, tmp_path / "log"], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    with driver.stdout:
        pid = int(driver.stdout.readline())
        wait_until_ready(tmp_path / "log")
        driver.kill()
        driver.wait()
    wait_for(lambda: not is_alive(pid))


def test_processes_are_found_by_argument_and_by_environment(tmp_path: Path) -> None:
    by_argument = start(SLEEPER, tmp_path / "a", f"--dir={tmp_path}/home/x")
    environment = {**os.environ, "PATHWAYS_HOME": str(tmp_path / "home")}
    by_environment = Child([sys.executable, "-c", SLEEPER], environment, tmp_path / "b")
    unrelated = start(SLEEPER, tmp_path / "c")
    try:
        for child in (by_argument, by_environment, unrelated):
            wait_until_ready(child.log)
        assert len(processes_of(tmp_path / "home")) == 2
        (left,) = processes_of(tmp_path / "home", {by_argument.pid})
        assert left.startswith(f"pid {by_environment.pid} ")
    finally:
        for child in (by_argument, by_environment, unrelated):
            child.end(grace_s=20)
    assert processes_of(tmp_path / "home") == []


def test_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    with path.open("w") as file:
        for text, lines in [("a\nb", ["a"]), ("", []), ("c\n", ["bc"]), ("d\ne\n", ["d", "e"])]:
            file.write(text)
            file.flush()
            assert tail.lines() == lines


def test_last_lines_of_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "none", 3) == []
    (tmp_path / "log").write_text("1\n2\n3\n4\n")
    assert last_lines(tmp_path / "log", 3) == ["2", "3", "4"]
