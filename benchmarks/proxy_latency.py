# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the proxy costs: the same operations on JAX's own CPU devices and through the proxy.

Usage: python benchmarks/proxy_latency.py

Starts a proxy of two slices of four chips on a free port of 127.61.0.2, runs both sides one after
the other, and prints the time of each operation and their ratio. The median of some repetitions
counts; on a loaded machine even that says little.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

SLICES, CHIPS, INSTANCE_TYPE = 2, 4, "tpuv6e:2x2"
HOST = "127.61.0.2"
LARGE_BYTES = 64 << 20


def measure(operation: Callable[[], object], repetitions: int) -> float:
    """Median time of one call, in seconds; two calls go before."""
    operation()
    operation()
    times = []
    for _ in range(repetitions):
        start = time.perf_counter()
        operation()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def run_operations() -> dict[str, float]:
    """Every operation's time in seconds, on whatever devices JAX has."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pathwaysutils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    pathwaysutils.initialize()
    small = jnp.ones(8)
    add = jax.jit(lambda x: x + 1)
    chain_length = 100

    def chain() -> None:
        x = small
        for _ in range(chain_length):
            x = add(x)
        x.block_until_ready()

    large = np.ones(LARGE_BYTES // 4, np.float32)
    large_there = jax.device_put(large)
    mesh = Mesh(np.array(jax.devices()).reshape(SLICES, CHIPS), ("slice", "chip"))
    sharding = NamedSharding(mesh, PartitionSpec("slice", "chip"))
    state = [jax.device_put(np.ones((8, 8), np.float32), sharding) for _ in range(100)]
    step = jax.jit(lambda arrays: [array + 1 for array in arrays], donate_argnums=0)

    def train() -> None:
        nonlocal state
        state = step(state)
        state[0].block_until_ready()

    return {
        "tiny program, waiting": measure(lambda: add(small).block_until_ready(), 300),
        "tiny program, in a chain": measure(chain, 20) / chain_length,
        "tiny program, to numpy": measure(lambda: np.asarray(add(small)), 100),
        "100 arrays on 8 devices, donated": measure(train, 50),
        "64 MiB to a device": measure(lambda: jax.device_put(large).block_until_ready(), 5),
        "64 MiB from a device": measure(lambda: np.asarray(add(large_there)), 5),
    }


def serve(address: str) -> None:
    """Runs a proxy until stdin ends."""
    from pathways_emulator.membership import Membership, SliceMember
    from pathways_emulator.proxy.scratch import scratch_of
    from pathways_emulator.proxy.server import ProxyServer
    from pathways_emulator.proxy.slices import Policy

    members = tuple(SliceMember(index, 1, True) for index in range(SLICES))
    server = ProxyServer(
        address,
        Membership(INSTANCE_TYPE, True, members),
        Policy(suspends=False, lost_at_most=SLICES),
        scratch_of("/nowhere", "benchmark"),
        lambda *_: None,
    )
    server.start()
    print("started", flush=True)
    sys.stdin.read()
    server.stop(0)


def run_side(environment: dict[str, str]) -> dict[str, float]:
    """The operations in a process of their own."""
    done = subprocess.run(
        [sys.executable, __file__, "operations"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    times: dict[str, float] = json.loads(done.stdout)
    return times


def free_port() -> int:
    """A port that nothing uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def main() -> None:
    """Runs both sides and prints the table."""
    address = f"{HOST}:{free_port()}"
    plain = run_side(
        {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={SLICES * CHIPS}",
        }
    )
    with subprocess.Popen(
        [sys.executable, __file__, "serve", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as proxy:
        watchdog = threading.Timer(600, proxy.kill)
        watchdog.start()
        try:
            assert proxy.stdout is not None
            if proxy.stdout.readline() != b"started\n":
                sys.exit("the proxy did not start; run it by hand: serve ADDRESS")
            proxied = run_side(
                {
                    "JAX_PLATFORMS": "proxy",
                    "JAX_BACKEND_TARGET": f"grpc://{address}",
                    "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
                }
            )
        finally:
            watchdog.cancel()
            assert proxy.stdin is not None
            proxy.stdin.close()
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print(f"{'operation':34} {'in process':>12} {'proxy':>12} {'ratio':>7}")
    for name, seconds in plain.items():
        ratio = proxied[name] / seconds
        print(f"{name:34} {seconds * 1e6:9.0f} us {proxied[name] * 1e6:9.0f} us {ratio:7.1f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["operations"]:
            print(json.dumps(run_operations()))
        case ["serve", where]:
            serve(where)
        case _:
            sys.exit(__doc__)
