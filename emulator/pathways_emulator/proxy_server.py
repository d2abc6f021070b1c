# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The command in the place of ``/pathways/proxy_server``: follows membership and serves JAX."""

import logging
import os
import signal
import socket
import sys
from functools import partial

from pathways_emulator import address as addresses
from pathways_emulator import flags, log, reading, settings
from pathways_emulator.address import Address

_log = logging.getLogger(__name__)

# For requests that are being answered when the proxy is told to end.
_GRACE_S = 1.0

# For one attempt to tell the resource manager that a slice may end.
_RELEASE_TIMEOUT_S = 3.0


def main() -> None:
    """Runs the command; ends the process."""
    faults: list[str] = []
    try:
        given = flags.read_proxy(sys.argv[1:], faults)
    except flags.HelpRequest as request:
        print(request)
        sys.exit(0)
    configured = settings.read(os.environ, faults)
    if faults:
        print(reading.report(flags.PROXY_SERVER, faults), file=sys.stderr)
        sys.exit(2)
    log.configure()
    sys.exit(run(given, configured))


def run(given: flags.ProxyFlags, configured: settings.Settings) -> int:
    """Serves until SIGTERM or SIGINT.

    The port is opened at the first membership: before it, the devices are not known.

    Returns:
        The exit code: 0, or 1 if it cannot serve; the log says why.
    """
    from pathways_emulator import membership_client
    from pathways_emulator.membership import Membership
    from pathways_emulator.membership_client import Watcher

    where = Address(configured.bind_address, given.server_port)
    watcher = Watcher(given.resource_manager_address)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: watcher.stop())
    try:
        addresses.require_free(where)
    except OSError as error:
        _log.error("proxy: %s", error)
        return 1
    _log.info("proxy follows the resource manager at %s", given.resource_manager_address)
    # XLA lists every virtual device at its level of information.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    # Takes a second or two, because of JAX; the command line has been checked by now.
    from pathways_emulator.proxy.scratch import scratch_of
    from pathways_emulator.proxy.server import ProxyServer
    from pathways_emulator.proxy.slices import Policy

    policy = Policy(
        suspends=configured.on_notice == "suspend", lost_at_most=given.num_elastic_instances
    )
    owner = f"{socket.gethostname()}-{given.resource_manager_address}"
    scratch = scratch_of(given.gcs_scratch_location, owner)
    release = partial(
        membership_client.release, given.resource_manager_address, timeout_s=_RELEASE_TIMEOUT_S
    )
    server: ProxyServer | None = None

    def on_membership(membership: Membership) -> None:
        nonlocal server
        if server is not None:
            server.on_membership(membership)
            return
        new = ProxyServer(str(where), membership, policy, scratch, release)
        new.start()
        server = new
        _log.info(
            "proxy listens on %s for %d slices of %s",
            where,
            len(membership.slices),
            membership.instance_type,
        )

    try:
        watcher.run(on_membership)
    except (OSError, RuntimeError, ValueError) as error:
        # The port is taken after all, jaxlib is not one we know, or the instance has changed.
        _log.error("proxy: cannot serve on %s: %s", where, error)
        return 1
    finally:
        if server is not None:
            server.stop(_GRACE_S)
    _log.info("proxy ends")
    return 0


if __name__ == "__main__":
    main()
