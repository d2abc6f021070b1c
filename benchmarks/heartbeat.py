# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Counts slices that the emulator's resource manager loses on a machine that is far too busy.

Starts a resource manager and workers with the default heartbeat timeout, and processes that only
burn CPU. No worker ends or is stopped, so every loss is a false one. Prints the losses, and how
long a worker was silent at most, as the resource manager counts it.

Usage: python benchmarks/heartbeat.py [--minutes M] [--burners N] [--slices S]
"""

import argparse
import contextlib
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

import grpc

from pathways_emulator import membership_client, pdeathsig, serve_plan
from pathways_emulator.membership import Membership
from pathways_emulator.membership_client import Watcher
from pathways_emulator.serve_plan import Plan
from pathways_emulator.settings import DEFAULT_HEARTBEAT_TIMEOUT_S

SHAPE = "2x4"
READY_TIMEOUT_S = 120.0
LOOK_INTERVAL_S = 1.0
# A resource manager that can't answer for so long can't count anybody as lost either.
LOOK_TIMEOUT_S = 30.0
BURN = (sys.executable, "-c", "while True: pass")


def main(arguments: list[str]) -> int:
    """Returns 1 if a slice was lost, 2 if it could not be measured."""
    options = read(arguments)
    faults: list[str] = []
    plan = serve_plan.make(
        {
            "slices": str(options.slices),
            "slice-shape": SHAPE,
            "tpu-type": "v6e",
            "port": "29000",
            "network": options.network,
        },
        {name: text for name, text in os.environ.items() if not name.startswith("PATHWAYS_")},
        faults,
    )
    if plan is None:
        print("could not measure:", *faults, sep="\n  ", file=sys.stderr)
        return 2
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as stack:
        # The plan's own directory is for the proxy and for `serve`, which do not run here.
        environment = {**plan.manager.environment, "PATHWAYS_REPORT_FILE": ""}
        stack.enter_context(running(plan.manager.argv, environment, log.fileno()))
        for worker in plan.workers:
            stack.enter_context(running(worker.argv, worker.environment, log.fileno()))
        snapshots = stack.enter_context(watched(plan))
        if not wait_until_alive(snapshots):
            log.seek(0)
            print(f"not ready after {READY_TIMEOUT_S:g} s:", log.read().decode(), file=sys.stderr)
            return 2
        for _ in range(options.burners):
            stack.enter_context(running(BURN, os.environ, log.fileno()))
        lost, silent_s, unanswered = observe(plan, snapshots, 60 * options.minutes)
    for sentence in lost:
        print(f"LOST: {sentence}")
    print(
        f"{len(lost)} losses of {options.slices} slices ({len(plan.workers)} workers) in "
        f"{options.minutes:g} min with {options.burners} burners on {os.cpu_count()} CPUs; "
        f"silent for at most {silent_s:.1f} s of {DEFAULT_HEARTBEAT_TIMEOUT_S:g} s; "
        f"{unanswered} looks unanswered; load {os.getloadavg()[0]:.0f}"
    )
    return 1 if lost else 0


def read(arguments: list[str]) -> argparse.Namespace:
    """The options; exits with 2 if they are wrong."""
    parser = argparse.ArgumentParser(description="Counts false losses under full CPU load.")
    parser.add_argument("--minutes", type=float, default=30.0, help="default: 30")
    burners = 4 * (os.cpu_count() or 1)
    parser.add_argument("--burners", type=int, default=burners, help="default: 4 per CPU")
    parser.add_argument("--slices", type=int, default=4, help="of 2 hosts each; default: 4")
    parser.add_argument("--network", default="127.102.0.0/16", help="of loopback addresses to use")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def running(argv: Sequence[str], environment: Mapping[str, str], log: int) -> Iterator[None]:
    """A process that ends with the block, and with this process however that ends."""
    shim = (sys.executable, "-I", "-S", pdeathsig.__file__, str(os.getpid()))
    process = subprocess.Popen(
        [*shim, *argv], env=dict(environment), stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def watched(plan: Plan) -> Iterator[queue.SimpleQueue[Membership]]:
    """The snapshots that the proxy would see."""
    snapshots: queue.SimpleQueue[Membership] = queue.SimpleQueue()
    watcher = Watcher(plan.manager.address)
    thread = threading.Thread(target=watcher.run, args=(snapshots.put,))
    thread.start()
    try:
        yield snapshots
    finally:
        watcher.stop()
        thread.join()


def wait_until_alive(snapshots: queue.SimpleQueue[Membership]) -> bool:
    """Whether all slices are alive in time."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    with contextlib.suppress(queue.Empty):
        while True:
            membership = snapshots.get(timeout=max(0.0, deadline_s - time.monotonic()))
            if all(member.alive for member in membership.slices):
                return True
    return False


def observe(
    plan: Plan, snapshots: queue.SimpleQueue[Membership], duration_s: float
) -> tuple[list[str], float, int]:
    """What was lost in that time, the longest silence in seconds, and looks without an answer."""
    lost: dict[int, str] = {}
    silent_s, unanswered = 0.0, 0
    deadline_s = time.monotonic() + duration_s
    while time.monotonic() < deadline_s:
        try:
            status = membership_client.status(plan.manager.address, LOOK_TIMEOUT_S)
            silent_s = max([silent_s, *(host.silent_s for host in status.hosts)])
        except grpc.RpcError:
            unanswered += 1
        with contextlib.suppress(queue.Empty):
            while True:
                for member in snapshots.get(timeout=LOOK_INTERVAL_S).slices:
                    if not member.alive:
                        lost[member.index] = f"slice {member.index}: {member.reason}"
    return list(lost.values()), silent_s, unanswered


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
