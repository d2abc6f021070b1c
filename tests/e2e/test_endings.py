# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""However a service ends, no process of it and no cluster.env stays."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.e2e.service import ServiceUnderTest, output_of, wait_until

MOMENTS: dict[str, Callable[[ServiceUnderTest], object]] = {
    "at its very start": lambda s: s.processes(),
    "before the array runs": lambda s: (s.home / "state" / "run.json").exists(),
    "before the proxy answers": lambda s: any("proxy" in argv for argv in s.processes().values()),
    "when it is ready": lambda s: s.cluster_env.exists(),
}


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceUnderTest]:
    """A service that is up, and stays so whatever these tests do; Ctrl-C ends it at last."""
    under_test = ServiceUnderTest(tmp_path_factory.mktemp("lasting") / "home")
    try:
        root = under_test.up()
        for index in range(3):
            under_test.wait_for_slice(index, "READY")
        yield under_test
        root.send_signal(signal.SIGINT)
        assert root.wait(60) == 0
        under_test.expect_nothing_left(within_s=1.0)
    finally:
        under_test.close()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_ends_everything(
    service: ServiceUnderTest, moment: str, number: signal.Signals
) -> None:
    root = service.start("up")
    service.wait_for_moment(root, lambda: MOMENTS[moment](service), moment)
    # As a terminal's Ctrl-C does, to the whole foreground process group.
    os.killpg(root.pid, number)
    code = root.wait(60)
    said = output_of(root)
    # Ctrl-C may meet the interpreter before it has loaded anything of ours; it exits with 1 then.
    unborn = code == 1 and "Fatal Python error: init_import_site" in said
    assert code in (0, -number) or unborn, said
    service.expect_nothing_left(within_s=1.0)


@pytest.mark.parametrize("moment", list(MOMENTS)[1:])
def test_killing_the_root_ends_everything(service: ServiceUnderTest, moment: str) -> None:
    root = service.start("up")
    service.wait_for_moment(root, lambda: MOMENTS[moment](service), moment)
    root.kill()
    service.expect_nothing_left()


def test_killing_root_and_supervisor_at_once_ends_everything(service: ServiceUnderTest) -> None:
    root = service.up()
    supervisor = service.pid_of("supervise")
    root.kill()
    os.kill(supervisor, signal.SIGKILL)
    service.expect_nothing_left()


def _adopted_after_a_kill(service: ServiceUnderTest) -> dict[str, Any]:
    """The status under the supervisor that follows the one that is killed here."""

    def adoptions() -> int:
        return [e["reason"] for e in service.events()].count("SupervisorAdopted")

    before = adoptions()
    os.kill(service.pid_of("supervise"), signal.SIGKILL)
    wait_until(lambda: adoptions() > before, 20.0, "adopted")
    return service.wait_for("READY")


def test_a_killed_supervisor_is_started_again_and_adopts_everything(
    lasting: ServiceUnderTest,
) -> None:
    before = lasting.status()
    after = _adopted_after_a_kill(lasting)
    for component in ("rm", "proxy"):
        assert after[component]["pid"] == before[component]["pid"]
    assert [s["incarnation"] for s in after["slices"]] == [1, 1, 1]
    assert after["run_id"] == before["run_id"]


def test_a_supervisor_that_keeps_dying_is_given_up_and_cleaned_up(
    service: ServiceUnderTest,
) -> None:
    service.settings["PATHWAYS_RESTART_BUDGET"] = "1"
    root = service.up()
    first = service.pid_of("supervise")
    os.kill(first, signal.SIGKILL)
    second = wait_until(lambda: _other_supervisor(service, first), 20.0, "a second supervisor")
    os.kill(second, signal.SIGKILL)
    assert root.wait(60) == 1
    assert "restart budget has run out (1 of 1 used" in output_of(root)
    service.expect_nothing_left(within_s=1.0)


def _other_supervisor(service: ServiceUnderTest, not_this: int) -> int | None:
    found = [p for p, argv in service.processes().items() if "supervise" in argv and p != not_this]
    return found[0] if found else None


@pytest.mark.parametrize("component", ["rm", "proxy"])
def test_a_killed_component_is_started_again(lasting: ServiceUnderTest, component: str) -> None:
    before = lasting.status()
    os.kill(before[component]["pid"], signal.SIGKILL)

    def renewed() -> bool:
        status = lasting.status()
        up = status["service"] == "READY" and status[component]["state"] == "UP"
        return up and status[component]["pid"] not in (None, before[component]["pid"])

    wait_until(renewed, 40.0, f"{component} is back: {lasting.logs()}")
    after = lasting.status()
    other = "proxy" if component == "rm" else "rm"
    assert after[other]["pid"] == before[other]["pid"]
    assert [s["incarnation"] for s in after["slices"]] == [1, 1, 1], "no slice was restarted"
    assert lasting.cluster_env.exists()


def test_a_damaged_status_file_of_a_component_ends_nothing(service: ServiceUnderTest) -> None:
    root = service.up()
    before = service.status()
    # First the one, then both.
    for name in ("proxy.json", "rm.json"):
        (service.home / "state" / name).write_text("garbage")
        after = _adopted_after_a_kill(service)
        assert [s["incarnation"] for s in after["slices"]] == [1, 1, 1]
        assert after["run_id"] == before["run_id"]
    root.kill()
    service.expect_nothing_left()


def test_down_ends_a_service_and_what_a_killed_one_left(service: ServiceUnderTest) -> None:
    root = service.up()
    answer = service.run("down")
    assert (answer.returncode, root.wait(10)) == (0, 0), answer.stderr
    service.expect_nothing_left(within_s=1.0)
    assert service.status()["service"] == "STOPPED"

    root = service.up()
    supervisor = service.pid_of("supervise")
    root.kill()
    os.kill(supervisor, signal.SIGKILL)
    answer = service.run("down")
    assert answer.returncode == 0, answer.stderr
    service.expect_nothing_left(within_s=10.0)


@pytest.mark.parametrize("wait_s", [0.0, 0.1, 0.2, 0.3, 0.5])
def test_down_ends_a_service_that_is_only_starting(
    service: ServiceUnderTest, wait_s: float
) -> None:
    root = service.start("up")
    wait_until(lambda: (service.home / "state" / "root.lock").exists(), 20.0, "begun", 0.001)
    time.sleep(wait_s)  # whatever the service does at that moment
    answer = service.run("down")
    assert answer.returncode == 0, answer.stderr
    assert root.wait(10) in (0, -signal.SIGTERM), output_of(root)
    service.expect_nothing_left(within_s=1.0)


def test_down_without_a_service_is_fine(service: ServiceUnderTest) -> None:
    answer = service.run("down")
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_second_service_in_the_same_home_is_refused(lasting: ServiceUnderTest) -> None:
    second = lasting.run("up")
    assert second.returncode == 3
    assert "this service runs already" in second.stderr
    assert lasting.status()["service"] == "READY"


def test_up_after_a_crash_ends_the_earlier_run_first(service: ServiceUnderTest) -> None:
    root = service.up()
    run_id = service.status()["run_id"]
    supervisor = service.pid_of("supervise")
    root.kill()
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: service.status()["supervisor_pid"] is None, 10.0, "the supervisor is gone")
    service.up()
    assert service.status()["run_id"] != run_id
    workers = [a for a in service.processes().values() if "--node_type" not in a and "29001" in a]
    assert sum("pathways-emulator-server" in argv for argv in workers) >= 3
    incarnations = [s["incarnation"] for s in service.status()["slices"]]
    assert incarnations == [1, 1, 1]


def test_a_detached_service_outlives_its_command(service: ServiceUnderTest) -> None:
    answer = service.run("up", "--detach")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert service.status()["service"] == "READY"
    assert service.run("down").returncode == 0
    service.expect_nothing_left(within_s=1.0)


def test_run_passes_signals_and_exit_codes_on(lasting: ServiceUnderTest) -> None:
    assert lasting.run("run", "--", "sh", "-c", "exit 7").returncode == 7
    assert lasting.run("run", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert lasting.run("run", "--", "/nowhere/to/be/found").returncode == 127
    told = lasting.run("run", "--", "sh", "-c", 'echo "$JAX_PLATFORMS $JAX_BACKEND_TARGET"')
    assert told.stdout.split() == ["proxy", f"grpc://{lasting.network}.0.1:29000"]
    script = "trap 'echo got TERM; exit 5' TERM; echo ready; while :; do sleep 0.1; done"
    process = lasting.start("run", "--", "bash", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 5
    assert "got TERM" in output_of(process)


def test_run_gives_up_when_no_service_comes(service: ServiceUnderTest) -> None:
    began = time.monotonic()
    answer = service.run("run", "--timeout", "1", "--", "true")
    assert answer.returncode == 1
    assert "no service after 1 s" in answer.stderr
    assert time.monotonic() - began < 10
