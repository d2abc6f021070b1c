# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The answer to one request."""

from typing import TYPE_CHECKING, Final

from pathways_emulator.descriptors import Proto
from pathways_emulator.proxy.status import Status

if TYPE_CHECKING:
    from pathways_emulator.proxy.session import Session

_REQUEST_SUFFIX = "_request"


class Reply:
    """The one answer to one request; the first to send it wins.

    Attributes:
        body: The response message of the request's type, to be filled.
        deferred: Set by a handler that will send the reply itself.
        unnumbered: The client does not count this one (see :meth:`Session.send`).
    """

    __slots__ = ("_session", "body", "deferred", "op_id", "response", "sent", "unnumbered", "user")

    def __init__(self, session: "Session", name: str, metadata: Proto) -> None:
        self._session = session
        self.op_id: Final[int] = metadata.op_id
        self.user: Final[int] = metadata.user_context_id
        self.response = session.new_response()
        self.body = getattr(self.response, name.removesuffix(_REQUEST_SUFFIX) + "_response")
        self.deferred = False
        self.unnumbered = False
        self.sent = False

    def send(self) -> None:
        """Answers OK with ``body``."""
        # An empty body must be there too, or the client takes the answer for a broken one.
        self.body.SetInParent()
        self._session.send(self, None)

    def fail(self, status: Status) -> None:
        """Answers with an error instead of the body."""
        self._session.send(self, status)
