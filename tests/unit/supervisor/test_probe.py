# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses answer."""

import contextlib
import socket
import time

import pytest

from pathways_slurm.probe import answering, parse_endpoint


def _listen(stack: contextlib.ExitStack, backlog: int = 8) -> tuple[str, int]:
    server = stack.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    server.listen(backlog)
    return ("127.0.0.1", server.getsockname()[1])


def test_only_those_that_listen_answer() -> None:
    with contextlib.ExitStack() as stack:
        listening = [_listen(stack) for _ in range(5)]
        bound_only = stack.enter_context(socket.socket())
        bound_only.bind(("127.0.0.1", 0))
        silent = ("127.0.0.1", bound_only.getsockname()[1])
        assert answering([*listening, silent]) == set(listening)


def test_a_silent_host_costs_one_timeout_however_many_there_are() -> None:
    with contextlib.ExitStack() as stack:
        # A listener whose queue is full drops what comes, like a host that is gone.
        full = _listen(stack, backlog=0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full)
        alive = _listen(stack)
        began = time.monotonic()
        assert answering([full, alive], timeout_s=0.3) == {alive}
        assert 0.25 < time.monotonic() - began < 5


def test_a_name_that_does_not_resolve_does_not_answer() -> None:
    assert answering([("no-such-host.invalid", 1)]) == frozenset()


def test_nobody_to_ask_is_no_wait() -> None:
    assert answering([]) == frozenset()


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:one", "host:-1"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_endpoint(text)


def test_an_endpoint_is_read() -> None:
    assert parse_endpoint("127.0.0.1:29000") == ("127.0.0.1", 29000)
