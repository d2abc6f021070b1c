# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The proxy command: follows the resource manager, and does not need it to stay."""

import signal
import socket

from tests.emulator.control.processes import PROXY, RM, Cluster


def test_it_outlives_its_resource_manager_but_not_a_change_of_the_instance(
    cluster: Cluster,
) -> None:
    proxy = cluster.proxy()
    proxy.wait_for(f"waiting for the resource manager at {RM}")
    assert "proxy listens" not in proxy.text()
    manager = cluster.manager()
    proxy.wait_for(f"proxy listens on {PROXY} for 1 slices of tpuv6e:2x2")
    manager.kill()
    proxy.wait_for("waiting for the resource manager.*(?s:.*)waiting for the resource manager")
    socket.create_connection((PROXY.host, PROXY.port), timeout=5).close()
    successor = cluster.manager()
    proxy.wait_for("is there(?s:.*)is there")
    assert proxy.running

    successor.kill()
    cluster.manager(slices=2)
    assert proxy.exit_code() == 1
    assert f"proxy: cannot serve on {PROXY}: " in proxy.text()


def test_it_ends_on_sigterm_while_it_waits(cluster: Cluster) -> None:
    proxy = cluster.proxy()
    proxy.wait_for("waiting for the resource manager")
    proxy.send(signal.SIGTERM)
    assert proxy.exit_code() == 0


def test_a_taken_port_is_told(cluster: Cluster) -> None:
    with socket.create_server((PROXY.host, PROXY.port)):
        proxy = cluster.proxy()
        assert proxy.exit_code() == 1
    assert f"cannot listen on {PROXY}: another process listens there" in proxy.text()
