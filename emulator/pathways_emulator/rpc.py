# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The membership service as typed Python: methods, channels, and messages to and from dataclasses.

Generic handlers and multi-callables instead of generated stubs: those have no types.
"""

# gRPC's classes are generic in their stubs only, not when the program runs.
from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Protocol

import grpc

from pathways_emulator import membership_pb2 as pb
from pathways_emulator.membership import Membership, Notice, SliceMember
from pathways_emulator.registration import Registration, StopKind
from pathways_emulator.registry import HostView

SERVICE = "pathways_emulator.membership.v1.MembershipService"

# HTTP/2's own pings stay off: a stopped process cannot answer them, so that they would close the
# connection on a schedule of theirs and turn "silent" into "dead". Silence is ours to judge.
_NO_PINGS = (("grpc.keepalive_time_ms", 2**31 - 1),)
SERVER_OPTIONS = (
    *_NO_PINGS,
    # A second server on the same port must fail, not share the port's connections.
    ("grpc.so_reuseport", 0),
)
CHANNEL_OPTIONS = (
    *_NO_PINGS,
    # Every attempt to reach the resource manager stands alone: no waiting left from earlier ones.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)

_STOP_KINDS: Mapping[StopKind, pb.Stop.Kind] = MappingProxyType(
    {
        StopKind.REFUSED: pb.Stop.REFUSED,
        StopKind.SUPERSEDED: pb.Stop.SUPERSEDED,
        StopKind.SLICE_ENDED: pb.Stop.SLICE_ENDED,
        StopKind.SHUTDOWN: pb.Stop.SHUTDOWN,
        StopKind.RELEASED: pb.Stop.RELEASED,
    }
)


class Servicer(Protocol):
    """What a server of the membership service implements; see membership.proto.

    gRPC passes all by position, so an implementation names what it does not need as it likes.
    """

    async def join(
        self,
        requests: AsyncIterator[pb.JoinRequest],
        context: grpc.aio.ServicerContext[pb.JoinRequest, pb.JoinResponse],
        /,
    ) -> None: ...

    async def watch(
        self,
        request: pb.WatchRequest,
        context: grpc.aio.ServicerContext[pb.WatchRequest, pb.Snapshot],
        /,
    ) -> None: ...

    async def announce_shutdown(
        self,
        request: pb.AnnounceShutdownRequest,
        context: grpc.aio.ServicerContext[pb.AnnounceShutdownRequest, pb.AnnounceShutdownResponse],
        /,
    ) -> pb.AnnounceShutdownResponse: ...

    async def release(
        self,
        request: pb.ReleaseRequest,
        context: grpc.aio.ServicerContext[pb.ReleaseRequest, pb.ReleaseResponse],
        /,
    ) -> pb.ReleaseResponse: ...

    async def status(
        self,
        request: pb.StatusRequest,
        context: grpc.aio.ServicerContext[pb.StatusRequest, pb.StatusResponse],
        /,
    ) -> pb.StatusResponse: ...


def handler(servicer: Servicer) -> grpc.GenericRpcHandler:
    """Routes the service's methods to `servicer`."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Join": grpc.stream_stream_rpc_method_handler(
                servicer.join, pb.JoinRequest.FromString, pb.JoinResponse.SerializeToString
            ),
            "Watch": grpc.unary_stream_rpc_method_handler(
                servicer.watch, pb.WatchRequest.FromString, pb.Snapshot.SerializeToString
            ),
            "AnnounceShutdown": grpc.unary_unary_rpc_method_handler(
                servicer.announce_shutdown,
                pb.AnnounceShutdownRequest.FromString,
                pb.AnnounceShutdownResponse.SerializeToString,
            ),
            "Release": grpc.unary_unary_rpc_method_handler(
                servicer.release,
                pb.ReleaseRequest.FromString,
                pb.ReleaseResponse.SerializeToString,
            ),
            "Status": grpc.unary_unary_rpc_method_handler(
                servicer.status, pb.StatusRequest.FromString, pb.StatusResponse.SerializeToString
            ),
        },
    )


def join(
    channel: grpc.aio.Channel,
) -> grpc.aio.StreamStreamMultiCallable[pb.JoinRequest, pb.JoinResponse]:
    """The Join method."""
    return channel.stream_stream(
        f"/{SERVICE}/Join", pb.JoinRequest.SerializeToString, pb.JoinResponse.FromString
    )


def watch(channel: grpc.Channel) -> grpc.UnaryStreamMultiCallable[pb.WatchRequest, pb.Snapshot]:
    """The Watch method."""
    return channel.unary_stream(
        f"/{SERVICE}/Watch", pb.WatchRequest.SerializeToString, pb.Snapshot.FromString
    )


def announce_shutdown(
    channel: grpc.Channel,
) -> grpc.UnaryUnaryMultiCallable[pb.AnnounceShutdownRequest, pb.AnnounceShutdownResponse]:
    """The AnnounceShutdown method."""
    return channel.unary_unary(
        f"/{SERVICE}/AnnounceShutdown",
        pb.AnnounceShutdownRequest.SerializeToString,
        pb.AnnounceShutdownResponse.FromString,
    )


def release(
    channel: grpc.Channel,
) -> grpc.UnaryUnaryMultiCallable[pb.ReleaseRequest, pb.ReleaseResponse]:
    """The Release method."""
    return channel.unary_unary(
        f"/{SERVICE}/Release", pb.ReleaseRequest.SerializeToString, pb.ReleaseResponse.FromString
    )


def status(
    channel: grpc.Channel,
) -> grpc.UnaryUnaryMultiCallable[pb.StatusRequest, pb.StatusResponse]:
    """The Status method."""
    return channel.unary_unary(
        f"/{SERVICE}/Status", pb.StatusRequest.SerializeToString, pb.StatusResponse.FromString
    )


def registration_to_pb(registration: Registration) -> pb.Registration:
    return pb.Registration(
        slice_index=registration.slice_index,
        host_index=registration.host_index,
        hosts=registration.hosts,
        incarnation=registration.incarnation,
        process_uuid=registration.process_uuid,
        address=registration.address,
        pid=registration.pid,
        pid_space=registration.pid_space,
        node=registration.node,
    )


def registration_from_pb(message: pb.Registration) -> Registration:
    return Registration(
        slice_index=message.slice_index,
        host_index=message.host_index,
        hosts=message.hosts,
        incarnation=message.incarnation,
        process_uuid=message.process_uuid,
        address=message.address,
        pid=message.pid,
        pid_space=message.pid_space,
        node=message.node,
    )


def host_to_pb(host: HostView) -> pb.HostStatus:
    registration = host.registration
    return pb.HostStatus(
        slice_index=registration.slice_index,
        host_index=registration.host_index,
        incarnation=registration.incarnation,
        address=registration.address,
        pid=registration.pid,
        silent_s=host.silent_s,
        pid_space=registration.pid_space,
        node=registration.node,
    )


def stop_to_pb(kind: StopKind, reason: str) -> pb.Stop:
    return pb.Stop(kind=_STOP_KINDS[kind], reason=reason)


def stop_kind_from_pb(message: pb.Stop) -> StopKind:
    """The kind; one that this version does not know counts as the end of the slice."""
    for kind, number in _STOP_KINDS.items():
        if number == message.kind:
            return kind
    return StopKind.SLICE_ENDED


def snapshot_to_pb(membership: Membership, keepalive_s: float) -> pb.Snapshot:
    return pb.Snapshot(
        instance_type=membership.instance_type,
        settled=membership.settled,
        slices=[_member_to_pb(member) for member in membership.slices],
        keepalive_s=keepalive_s,
    )


def snapshot_from_pb(message: pb.Snapshot) -> Membership:
    return Membership(
        instance_type=message.instance_type,
        settled=message.settled,
        slices=tuple(_member_from_pb(member) for member in message.slices),
    )


def _member_to_pb(member: SliceMember) -> pb.SliceMember:
    notice = member.notice
    return pb.SliceMember(
        index=member.index,
        incarnation=member.incarnation,
        alive=member.alive,
        reason=member.reason,
        notice=None if notice is None else pb.Notice(reason=notice.reason, left_s=notice.left_s),
        abandoned=member.abandoned,
    )


def _member_from_pb(message: pb.SliceMember) -> SliceMember:
    notice = None
    if message.HasField("notice"):
        notice = Notice(message.notice.reason, message.notice.left_s)
    return SliceMember(
        index=message.index,
        incarnation=message.incarnation,
        alive=message.alive,
        reason=message.reason,
        notice=notice,
        abandoned=message.abandoned,
    )
