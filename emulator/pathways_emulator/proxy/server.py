# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The proxy as a whole: what ``proxy_server`` starts, feeds with membership and stops."""

from concurrent.futures import ThreadPoolExecutor

import grpc

from pathways_emulator.membership import Membership
from pathways_emulator.proxy.cpu_executor import CpuExecutor
from pathways_emulator.proxy.devices import DeviceTable
from pathways_emulator.proxy.registry import SessionRegistry
from pathways_emulator.proxy.scratch import Scratch
from pathways_emulator.proxy.service import IfrtService
from pathways_emulator.proxy.slices import Policy, Release
from pathways_emulator.proxy.status import Code, Status


class ProxyServer:
    """Serves JAX clients on the virtual devices of one instance.

    Args:
        address: To listen on, such as ``127.0.0.1:29000``.
        membership: The first snapshot; it fixes the number of slices and their shape. Every slice's
            devices are listed from the start, those of dead slices too.
        policy: What becomes of slices that go.
        scratch: Where the data of suspended slices is kept; nothing else may use it.
        release: Tells the resource manager that nothing keeps a slice. Called on a thread of its
            own; it may take long, and is tried again as long as it raises.

    Raises:
        TopologyError: The instance type is not one.
        DescriptorError: The installed jaxlib is not one the emulator can work with.
    """

    def __init__(
        self,
        address: str,
        membership: Membership,
        policy: Policy,
        scratch: Scratch,
        release: Release,
    ) -> None:
        self._address = address
        devices = DeviceTable.of(membership)
        self._executor = CpuExecutor(len(devices))
        self._sessions = SessionRegistry(
            self._executor, devices, membership, policy, scratch, release
        )
        self._server = grpc.server(
            ThreadPoolExecutor(64, thread_name_prefix="proxy-rpc"),
            options=[
                ("grpc.max_send_message_length", -1),
                ("grpc.max_receive_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
        )
        self._server.add_generic_rpc_handlers((IfrtService(self._sessions).handler(),))

    def start(self) -> None:
        """Listens; returns at once.

        Raises:
            OSError: The address can't be bound.
        """
        try:
            bound = self._server.add_insecure_port(self._address)
        except RuntimeError as error:
            raise OSError(f"can't listen on {self._address}: {error}") from error
        if bound == 0:
            raise OSError(f"can't listen on {self._address}")
        self._server.start()

    def on_membership(self, membership: Membership) -> None:
        """Applies a snapshot at once: data of slices that are gone is lost, waiters fail; the data
        of slices that are about to go, or are back, begins to move.

        Thread-safe, and quick even while computations run. Snapshots must come in their order.

        Raises:
            ValueError: The snapshot is of an instance with other slices.
        """
        self._sessions.on_membership(membership)

    def stop(self, grace: float) -> None:
        """Ends sessions, gives other calls ``grace`` seconds, and frees everything.

        Clients get UNAVAILABLE for what is under way, as when the proxy is gone.
        """
        stopped = self._server.stop(grace)  # from here on there are no new sessions
        self._sessions.hang_up_all(Status(Code.UNAVAILABLE, "the IFRT proxy ends"), grace / 2)
        stopped.wait()
        self._sessions.close_all()
        self._executor.close()
