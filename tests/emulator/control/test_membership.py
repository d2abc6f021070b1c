# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Membership with real processes: what ends a slice, and what does not."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from tests.emulator.control.processes import NETWORK, PATIENCE_S, RM, WORKER_PORT, Cluster

from pathways_emulator import membership_client
from pathways_emulator.exit_codes import ExitCode

# Far below the heartbeat timeout of 10 s: the broken stream must have told.
AT_ONCE_S = 5.0


def test_a_slice_is_alive_when_all_its_hosts_are_joined_and_only_then(cluster: Cluster) -> None:
    cluster.manager(instance_type="tpuv6e:2x4")
    observer = cluster.observer()
    first = cluster.worker(0, 0, shape="2x4")
    observer.wait_until(lambda m: "1 of 2 hosts" in m.slices[0].reason)
    cluster.worker(0, 1, shape="2x4")
    observer.wait_alive(0, incarnation=1)
    first.wait_for("is ready on")


def test_a_worker_listens_only_once_it_is_joined(cluster: Cluster) -> None:
    worker = cluster.worker(0)
    worker.wait_for("no contact with the resource manager")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((f"{NETWORK}.1.1", WORKER_PORT), timeout=5)
    cluster.manager()
    worker.wait_for("is ready on")
    with socket.create_connection((f"{NETWORK}.1.1", WORKER_PORT), timeout=5) as connection:
        greeting = connection.makefile().readline()
    assert greeting == f"slice 0 host 0 incarnation 1 pid {worker.pid}\n"


def test_kill_9_of_one_host_ends_its_slice_at_once_and_no_other(cluster: Cluster) -> None:
    cluster.manager(slices=2, instance_type="tpuv6e:2x4")
    observer = cluster.observer()
    hosts = {(s, h): cluster.worker(s, h, shape="2x4") for s in range(2) for h in range(2)}
    observer.wait_alive(0, 1)
    observer.wait_alive(1, 1)
    hosts[0, 1].kill()
    lost = observer.wait_lost(0, AT_ONCE_S)
    assert lost.reason == "host 1 ended: connection closed"
    assert lost.incarnation == 1
    assert hosts[0, 0].exit_code() == ExitCode.STOPPED
    assert "host 1 ended: connection closed" in hosts[0, 0].text()
    assert observer.history[-1].slices[1].alive
    assert hosts[1, 0].running
    assert hosts[1, 1].running


def test_sigint_leaves_at_once_with_exit_code_0(cluster: Cluster) -> None:
    cluster.manager()
    observer = cluster.observer()
    worker = cluster.worker(0)
    observer.wait_alive(0, 1)
    worker.send(signal.SIGINT)
    assert worker.exit_code(AT_ONCE_S) == ExitCode.ENDED
    assert observer.wait_lost(0, AT_ONCE_S).reason == "host 0 left: SIGINT"


def test_sigterm_ends_a_worker_that_never_joined(cluster: Cluster) -> None:
    worker = cluster.worker(0)
    worker.wait_for("no contact with the resource manager")
    worker.send(signal.SIGTERM)
    assert worker.exit_code(AT_ONCE_S) == ExitCode.ENDED


def test_an_ended_incarnation_never_comes_back_and_a_greater_one_does(cluster: Cluster) -> None:
    cluster.manager(instance_type="tpuv6e:2x4")
    observer = cluster.observer()
    first = [cluster.worker(0, host, shape="2x4") for host in range(2)]
    observer.wait_alive(0, 1)
    first[0].kill()
    observer.wait_lost(0)
    assert first[1].exit_code() == ExitCode.STOPPED
    again = cluster.worker(0, 0, shape="2x4")
    assert again.exit_code() == ExitCode.STOPPED
    assert "a new run needs a greater PATHWAYS_INCARNATION" in again.text()
    for host in range(2):
        cluster.worker(0, host, shape="2x4", incarnation=2)
    observer.wait_alive(0, 2)


def test_the_newest_incarnation_wins(cluster: Cluster) -> None:
    cluster.manager()
    observer = cluster.observer()
    old = cluster.worker(0, incarnation=1)
    observer.wait_alive(0, 1)
    new = cluster.worker(0, incarnation=2, bind=f"{NETWORK}.1.2")
    observer.wait_alive(0, 2)
    assert old.exit_code(AT_ONCE_S) == ExitCode.STOPPED
    assert "was replaced by incarnation 2" in old.text()
    late = cluster.worker(0, incarnation=1, bind=f"{NETWORK}.1.3")
    assert late.exit_code() == ExitCode.STOPPED
    assert "was replaced by incarnation 2" in late.text()
    assert new.running


def test_an_old_incarnation_that_wakes_up_stops(cluster: Cluster) -> None:
    cluster.manager()
    observer = cluster.observer()
    old = cluster.worker(0, incarnation=1)
    observer.wait_alive(0, 1)
    old.send(signal.SIGSTOP)
    new = cluster.worker(0, incarnation=2, bind=f"{NETWORK}.1.2")
    observer.wait_alive(0, 2)
    old.send(signal.SIGCONT)
    assert old.exit_code(AT_ONCE_S) == ExitCode.STOPPED
    assert new.running
    assert observer.history[-1].slices[0].alive


def test_a_stopped_worker_is_lost_after_the_heartbeat_timeout(cluster: Cluster) -> None:
    cluster.manager(instance_type="tpuv6e:2x4", heartbeat_timeout_s=1.0)
    observer = cluster.observer()
    hosts = [cluster.worker(0, host, shape="2x4") for host in range(2)]
    observer.wait_alive(0, 1)
    stopped_at_s = time.monotonic()
    hosts[1].send(signal.SIGSTOP)
    assert observer.wait_lost(0).reason == "host 1 lost: silent for more than 1 s"
    # Its last heartbeat may have been sent an interval, a fifth of the timeout, before.
    assert time.monotonic() - stopped_at_s > 0.75
    assert hosts[0].exit_code() == ExitCode.STOPPED
    hosts[1].send(signal.SIGCONT)
    assert hosts[1].exit_code(AT_ONCE_S) == ExitCode.STOPPED


def test_a_short_stop_is_no_loss(cluster: Cluster) -> None:
    manager = cluster.manager(heartbeat_timeout_s=2.0)
    observer = cluster.observer()
    worker = cluster.worker(0)
    observer.wait_alive(0, 1)
    worker.send(signal.SIGSTOP)
    time.sleep(0.8)  # The stop itself, not a wait for something.
    worker.send(signal.SIGCONT)
    with pytest.raises(AssertionError, match="not seen"):
        observer.wait_lost(0, timeout_s=2.0)
    assert worker.running
    assert "lost" not in manager.text()


def test_a_stopped_resource_manager_takes_nobody_for_lost(cluster: Cluster) -> None:
    manager = cluster.manager(heartbeat_timeout_s=1.0)
    observer = cluster.observer()
    worker = cluster.worker(0)
    observer.wait_alive(0, 1)
    manager.send(signal.SIGSTOP)
    time.sleep(1.6)  # The stop itself, not a wait for something.
    manager.send(signal.SIGCONT)
    with pytest.raises(AssertionError, match="not seen"):
        observer.wait_lost(0, timeout_s=1.2)
    assert worker.running
    assert "lost" not in manager.text()


def test_no_worker_is_lost_under_full_load(cluster: Cluster) -> None:
    manager = cluster.manager(slices=2, heartbeat_timeout_s=2.0)
    observer = cluster.observer()
    for index in range(2):
        cluster.worker(index)
        observer.wait_alive(index, 1)
    burn = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(burn) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        with pytest.raises(AssertionError, match="not seen"):
            observer.wait_until(lambda m: not all(s.alive for s in m.slices), timeout_s=3.0)
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert "lost" not in manager.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_join_a_restarted_resource_manager(
    cluster: Cluster, number: signal.Signals
) -> None:
    manager = cluster.manager(instance_type="tpuv6e:2x4", heartbeat_timeout_s=3.0)
    observer = cluster.observer()
    hosts = [cluster.worker(0, host, shape="2x4") for host in range(2)]
    observer.wait_alive(0, 1)
    seen = len(observer.history)
    manager.send(number)
    assert manager.exit_code() == (0 if number is signal.SIGTERM else -number)
    hosts[0].wait_for("no contact with the resource manager")
    successor = cluster.manager(instance_type="tpuv6e:2x4", heartbeat_timeout_s=3.0)
    successor.wait_for("slice 0 is alive")
    observer.wait_alive(0, 1)
    # Whatever was seen in between said nothing about this incarnation.
    for snapshot in observer.history[seen:]:
        member = snapshot.slices[0]
        assert member.alive or (not snapshot.settled and member.incarnation == 0)
    assert all(host.running for host in hosts)


def test_absence_is_settled_after_the_heartbeat_timeout(cluster: Cluster) -> None:
    cluster.manager(slices=2, heartbeat_timeout_s=1.0)
    observer = cluster.observer()
    cluster.worker(0)
    before = observer.wait_until(lambda m: m.slices[0].alive)
    assert not before.settled
    after = observer.wait_until(lambda m: m.settled)
    assert [member.alive for member in after.slices] == [True, False]
    assert after.slices[1].reason == "no worker has registered"


def test_a_worker_stopped_over_a_restart_of_the_resource_manager_ends(cluster: Cluster) -> None:
    # The successor cannot know that its predecessor took the worker for lost.
    manager = cluster.manager(heartbeat_timeout_s=1.0)
    observer = cluster.observer()
    worker = cluster.worker(0)
    observer.wait_alive(0, 1)
    worker.send(signal.SIGSTOP)
    observer.wait_lost(0)
    # The order to stop is lost with the connection's data.
    manager.kill()
    cluster.manager(heartbeat_timeout_s=1.0)
    worker.send(signal.SIGCONT)
    assert worker.exit_code() == ExitCode.STOPPED
    assert not observer.history[-1].slices[0].alive


def test_a_worker_without_contact_ends_by_its_lease(cluster: Cluster) -> None:
    manager = cluster.manager()
    worker = cluster.worker(0, lease_s=1.5)
    worker.wait_for("is ready on")
    manager.kill()
    ended_at_s = time.monotonic()
    assert worker.exit_code() == ExitCode.LEASE_EXPIRED
    assert time.monotonic() - ended_at_s < 1.5 + AT_ONCE_S
    assert f"no contact with the resource manager at {RM} for 1.5 s" in worker.text()


def test_a_stopped_resource_manager_is_no_contact(cluster: Cluster) -> None:
    manager = cluster.manager(heartbeat_timeout_s=2.0)
    worker = cluster.worker(0, lease_s=1.5)
    worker.wait_for("is ready on")
    manager.send(signal.SIGSTOP)
    assert worker.exit_code() == ExitCode.LEASE_EXPIRED


def test_time_while_stopped_counts_for_the_lease(cluster: Cluster) -> None:
    manager = cluster.manager()
    worker = cluster.worker(0, lease_s=2.0)
    worker.wait_for("is ready on")
    worker.send(signal.SIGSTOP)
    manager.kill()
    time.sleep(2.2)  # The stop itself, not a wait for something.
    woken_at_s = time.monotonic()
    worker.send(signal.SIGCONT)
    assert worker.exit_code() == ExitCode.LEASE_EXPIRED
    assert time.monotonic() - woken_at_s < 1.8


def test_a_second_process_for_the_same_host_is_refused(cluster: Cluster) -> None:
    cluster.manager()
    observer = cluster.observer()
    first = cluster.worker(0)
    observer.wait_alive(0, 1)
    second = cluster.worker(0, bind=f"{NETWORK}.1.2")
    assert second.exit_code() == ExitCode.REFUSED
    assert f"is another process already, pid {first.pid} at {NETWORK}.1.1" in second.text()
    assert membership_client.status(RM, PATIENCE_S).snapshot.slices[0].alive
    assert observer.history[-1].slices[0].alive


def test_a_wrong_registration_is_refused_with_the_reason(cluster: Cluster) -> None:
    cluster.manager(instance_type="tpuv6e:2x4")
    wrong_index, wrong_shape = cluster.worker(3, shape="2x4"), cluster.worker(0, shape="4x4")
    assert wrong_index.exit_code() == ExitCode.REFUSED
    assert "PATHWAYS_SLICE_INDEX is 3, but valid is 0 to 0" in wrong_index.text()
    assert wrong_shape.exit_code() == ExitCode.REFUSED
    assert "4 hosts (PATHWAYS_NODE_ADDRESSES), but valid" in wrong_shape.text()
    assert "--instance_type=tpuv6e:2x4 is 1 or 2" in wrong_shape.text()


def test_a_wrong_environment_is_refused_before_anything_else(cluster: Cluster) -> None:
    worker = cluster.worker(0, overrides={"TPU_WORKER_ID": "7", "MEGASCALE_SLICE_ID": "5"})
    assert worker.exit_code() == 2
    assert "2 faults" in worker.text()
    assert "TPU_WORKER_ID: is '7', but expected is 0 (from PATHWAYS_HOST_INDEX)" in worker.text()


def test_an_announced_shutdown_ends_workers_and_is_no_loss(cluster: Cluster) -> None:
    manager = cluster.manager(slices=2)
    observer = cluster.observer()
    workers = [cluster.worker(index) for index in range(2)]
    for index in range(2):
        observer.wait_alive(index, 1)
    membership_client.announce_shutdown(RM, "end of the test", PATIENCE_S)
    assert [worker.exit_code() for worker in workers] == [ExitCode.ENDED] * 2
    assert "end of the test" in workers[0].text()
    late = cluster.worker(0, incarnation=2)
    assert late.exit_code() == ExitCode.ENDED
    status = membership_client.status(RM, PATIENCE_S)
    assert status.shutting_down
    assert all(member.alive for member in status.snapshot.slices)
    assert all(member.alive for member in observer.history[-1].slices)
    assert "lost" not in manager.text()


def test_status_lists_the_joined_hosts(cluster: Cluster) -> None:
    cluster.manager(slices=2)
    observer = cluster.observer()
    worker = cluster.worker(1)
    observer.wait_alive(1, 1)
    status = membership_client.status(RM, PATIENCE_S)
    assert [(h.slice_index, h.host_index, h.pid) for h in status.hosts] == [(1, 0, worker.pid)]
    assert status.hosts[0].address == f"{NETWORK}.2.1:{WORKER_PORT}"
    assert not status.shutting_down


def test_a_taken_port_is_told(cluster: Cluster) -> None:
    cluster.manager()
    second = cluster.manager(wait=False)
    assert second.exit_code() == 1
    assert f"cannot listen on {RM}: another process listens there" in second.text()
    first = cluster.worker(0)
    first.wait_for("is ready on")
    same = cluster.worker(0)
    assert same.exit_code() == ExitCode.CANNOT_LISTEN
    assert "another process listens there" in same.text()
    assert first.running


def test_a_worker_that_an_earlier_run_has_left_makes_way(cluster: Cluster) -> None:
    """As it does when Slurm's own process on the node was killed, which would have ended it."""
    cluster.manager()
    observer = cluster.observer()
    first = cluster.worker(0)
    first.wait_for("is ready on")
    second = cluster.worker(0, incarnation=2)
    second.wait_for("is ready on")
    assert first.exit_code() == ExitCode.STOPPED
    assert "was replaced by incarnation 2" in first.text()
    observer.wait_alive(0, 2)


def test_a_port_that_stays_taken_is_told_by_a_later_run_too(cluster: Cluster) -> None:
    cluster.manager()
    with socket.create_server((f"{NETWORK}.1.1", WORKER_PORT)):
        worker = cluster.worker(0, incarnation=2)
        assert worker.exit_code() == ExitCode.CANNOT_LISTEN
    assert "another process listens there" in worker.text()


def test_an_address_of_another_machine_is_told(cluster: Cluster) -> None:
    worker = cluster.worker(0, bind="192.0.2.1")
    assert worker.exit_code() == ExitCode.CANNOT_LISTEN
    assert "cannot listen on 192.0.2.1:29001: Cannot assign requested address" in worker.text()
