# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy without a resource manager: its membership comes as lines of JSON on stdin.

Usage: python -m tests.emulator.proxy.served ADDRESS MODE LOST_AT_MOST SCRATCH

The first line starts it; each is answered by ``applied`` when it has been applied. It says
``released SLICE INCARNATION REASON`` where it would tell the resource manager. It ends with stdin,
or by SIGTERM as the real one does.
"""

import json
import logging
import signal
import sys
import threading

from pathways_emulator.membership import Membership, Notice, SliceMember
from pathways_emulator.proxy.scratch import scratch_of
from pathways_emulator.proxy.server import ProxyServer
from pathways_emulator.proxy.slices import Policy

_say_lock = threading.Lock()


def parse(line: str) -> Membership:
    """The inverse of ``harness.dump``."""
    raw = json.loads(line)
    for member in raw["slices"]:
        if member["notice"] is not None:
            member["notice"] = Notice(**member["notice"])
    return Membership(
        instance_type=raw["instance_type"],
        settled=raw["settled"],
        slices=tuple(SliceMember(**member) for member in raw["slices"]),
    )


def say(line: str) -> None:
    """One line, whole, from whatever thread."""
    with _say_lock:
        print(line, flush=True)


def main() -> None:
    """Runs until stdin ends."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    address, mode, lost_at_most, scratch = sys.argv[1:]
    server = ProxyServer(
        address,
        parse(sys.stdin.readline()),
        Policy(suspends=mode == "suspend", lost_at_most=int(lost_at_most)),
        scratch_of(scratch, f"test-{address}"),
        lambda index, incarnation, reason: say(f"released {index} {incarnation} {reason}"),
    )

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    server.start()
    say("started")
    try:
        for line in sys.stdin:
            server.on_membership(parse(line))
            say("applied")
    except KeyboardInterrupt:
        pass
    finally:
        server.stop(1)


if __name__ == "__main__":
    main()
