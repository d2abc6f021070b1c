# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What `pathways-emulator` does to a running instance: look at it, and harm it on purpose.

Signals go to workers of this machine only, and only to processes that are found to be workers of
that instance. What follows from a signal is the same as if a scheduler or a failure had sent it.
"""

import contextlib
import signal

import grpc

from pathways_emulator import control, membership_client, status_view, worker_process
from pathways_emulator import membership_pb2 as pb
from pathways_emulator.instance import Instance
from pathways_emulator.worker_process import WorkerProcessError

_RM_TIMEOUT_S = 5.0
# The kernel needs next to no time for it, but for a process that hangs in a disk.
_STILL_TIMEOUT_S = 5.0
# Longer than `serve` itself waits for workers.
_REVIVE_TIMEOUT_S = 150.0


class CommandError(Exception):
    """The command could not be followed; the message says why and what to do."""


def status(instance: Instance) -> str:
    """All slices with their hosts, for people.

    Raises:
        CommandError: The resource manager does not answer.
    """
    return status_view.render(_status(instance))


def kill(instance: Instance, slice_index: int, host_index: int | None) -> str:
    """Ends the workers of a slice as ``kill -9`` does, or one of them.

    Returns:
        What was done, for people.

    Raises:
        CommandError: The resource manager does not answer, there is no such slice or host, or its
            process can't be signalled. Nothing was signalled then.
    """
    killed = _signal(instance, slice_index, host_index, signal.SIGKILL)
    return f"killed {killed}"


def stop(instance: Instance, slice_index: int, host_index: int | None) -> str:
    """Stops the workers of a slice with SIGSTOP, or one of them; else as `kill`."""
    stopped = _signal(instance, slice_index, host_index, signal.SIGSTOP)
    return f"stopped {stopped}; lost once silent for longer than the heartbeat timeout"


def notice(instance: Instance, slice_index: int) -> str:
    """Sends SIGTERM to one worker of a slice, which is a notice for all of it; else as `kill`."""
    first = _hosts(instance, slice_index, None)[0].host_index
    noticed = _signal(instance, slice_index, first, signal.SIGTERM)
    return f"SIGTERM to {noticed}: the slice goes once its data is saved or its time has passed"


def revive(instance: Instance, slice_index: int) -> str:
    """Has `serve` start the workers of a slice again, as a new incarnation.

    Returns:
        What was done, for people; the slice is alive then.

    Raises:
        CommandError: The instance does not run under `serve`, or the slice did not come up.
    """
    if instance.control is None:
        raise CommandError(
            f"this instance does not run under `pathways-emulator serve` ({control.VARIABLE} is "
            "not set), so its workers are not ours to start: its scheduler brings a slice back by "
            "itself. See `pathways-slurm status`"
        )
    try:
        return control.ask_revive(instance.control, slice_index, _REVIVE_TIMEOUT_S)
    except control.ControlError as error:
        raise CommandError(str(error)) from None


def _signal(
    instance: Instance, slice_index: int, host_index: int | None, number: signal.Signals
) -> str:
    """Signals all these workers, or none if there is one that can't be; names them."""
    hosts = _hosts(instance, slice_index, host_index)
    with contextlib.ExitStack() as stack:
        try:
            processes = [
                stack.enter_context(worker_process.find(host, instance.resource_manager))
                for host in hosts
            ]
        except WorkerProcessError as error:
            raise CommandError(str(error)) from None
        for process in processes:
            process.send(number)
        if number in (signal.SIGKILL, signal.SIGSTOP):
            # So that whoever acts on it next finds it done.
            for process in processes:
                process.wait_until_still(_STILL_TIMEOUT_S)
    names = (f"host {host.host_index} (pid {host.pid})" for host in hosts)
    return f"slice {slice_index} {', '.join(names)}"


def _hosts(instance: Instance, slice_index: int, host_index: int | None) -> list[pb.HostStatus]:
    """The joined hosts that are meant; at least one."""
    found = _status(instance)
    members = {member.index: member for member in found.snapshot.slices}
    member = members.get(slice_index)
    if member is None:
        raise CommandError(f"there is no slice {slice_index}; valid is 0 to {len(members) - 1}")
    joined = [host for host in found.hosts if host.slice_index == slice_index]
    if not joined:
        raise CommandError(f"slice {slice_index} has no worker: {member.reason}")
    if host_index is None:
        return joined
    chosen = [host for host in joined if host.host_index == host_index]
    if not chosen:
        valid = ", ".join(str(host.host_index) for host in joined)
        raise CommandError(f"slice {slice_index} has no host {host_index}; joined: {valid}")
    return chosen


def _status(instance: Instance) -> pb.StatusResponse:
    try:
        return membership_client.status(instance.resource_manager, _RM_TIMEOUT_S)
    except grpc.RpcError as error:
        details = error.details() if isinstance(error, grpc.Call) else error
        raise CommandError(
            f"the resource manager at {instance.resource_manager} does not answer: the instance "
            f"has ended, or is not ready ({details})"
        ) from None
