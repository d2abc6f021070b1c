# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A proxy without a resource manager: its membership comes as lines of JSON on stdin.

Usage: python -m tests.emulator.proxy.served ADDRESS

The first line starts it; each is answered by one line when it has been applied. It ends with stdin.
"""

import json
import logging
import sys

from pathways_emulator.membership import Membership, SliceMember
from pathways_emulator.proxy.server import ProxyServer


def parse(line: str) -> Membership:
    """The inverse of ``harness.dump``."""
    raw = json.loads(line)
    return Membership(
        instance_type=raw["instance_type"],
        settled=raw["settled"],
        slices=tuple(SliceMember(**member) for member in raw["slices"]),
    )


def main() -> None:
    """Runs until stdin ends."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    server = ProxyServer(sys.argv[1], parse(sys.stdin.readline()))
    server.start()
    print("started", flush=True)
    for line in sys.stdin:
        server.on_membership(parse(line))
        print("applied", flush=True)
    server.stop(0)


if __name__ == "__main__":
    main()
