# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Questions that are answered when something is done."""

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.executor import Value
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.session import Handler, Session
from pathways_emulator.proxy.status import invalid_argument


def serve_check_future(session: Session, request: Proto, reply: Reply) -> None:
    """Whether a compilation or a deletion is done; both are when their reply is sent."""
    batched = session.futures.pop(request.future_handle, None)
    if batched is None:
        raise invalid_argument(f"unknown future handle {request.future_handle}")
    reply.unnumbered = batched


def serve_check_value_ready(session: Session, request: Proto, reply: Reply) -> None:
    """Whether arrays are computed; the error of the first that can't be."""
    session.when_ready(session.arrays.get_all(request.value_handles), reply, _nothing)


def _nothing(_values: list[Value]) -> None:
    """The client only wants to know that the data is there."""


HANDLERS = {
    "check_future_request": Handler(serve_check_future),
    "check_value_ready_request": Handler(serve_check_value_ready),
}
