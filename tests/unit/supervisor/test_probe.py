# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses answer."""

import contextlib
import socket
import threading
import time

import pytest

from pathways_slurm.probe import Endpoint, Prober, Proof, answering, parse_endpoint

OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"


def _listen(stack: contextlib.ExitStack, backlog: int = 8) -> tuple[socket.socket, Endpoint]:
    """A socket to whose address connections can be made, like one of a process that is stopped."""
    server = stack.enter_context(socket.socket())
    server.bind(("127.0.0.1", 0))
    server.listen(backlog)
    server.settimeout(10.0)
    return server, ("127.0.0.1", server.getsockname()[1])


def _speak(stack: contextlib.ExitStack) -> Endpoint:
    """A server that greets one client, and closes once that has gone."""
    server, where = _listen(stack)

    def greet() -> None:
        with contextlib.suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"hello\n")
                connection.recv(4096)

    thread = threading.Thread(target=greet)
    thread.start()
    stack.callback(thread.join)
    return where


def test_only_who_speaks_answers() -> None:
    with contextlib.ExitStack() as stack:
        _, stopped = _listen(stack)
        speaking = [_speak(stack) for _ in range(3)]
        bound_only = stack.enter_context(socket.socket())
        bound_only.bind(("127.0.0.1", 0))
        closed = ("127.0.0.1", bound_only.getsockname()[1])
        assert answering([*speaking, stopped, closed], timeout_s=0.5) == set(speaking)


def test_where_nobody_knows_what_is_spoken_a_connection_is_enough() -> None:
    with contextlib.ExitStack() as stack:
        _, listening = _listen(stack)
        bound_only = stack.enter_context(socket.socket())
        bound_only.bind(("127.0.0.1", 0))
        closed = ("127.0.0.1", bound_only.getsockname()[1])
        assert answering([listening, closed], proof=Proof.CONNECTS) == {listening}


def test_what_is_sent_is_the_opening_of_an_http2_client() -> None:
    with contextlib.ExitStack() as stack:
        server, where = _listen(stack)
        assert answering([where], timeout_s=0.2) == frozenset()
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4096) == OPENING


def test_a_silent_host_costs_one_timeout_however_many_there_are() -> None:
    with contextlib.ExitStack() as stack:
        # A listener whose queue is full drops what comes, like a host that is gone.
        _, full = _listen(stack, backlog=0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full)
        silent = [_listen(stack)[1] for _ in range(20)]
        alive = _speak(stack)
        began = time.monotonic()
        assert answering([full, alive, *silent], timeout_s=0.3) == {alive}
        assert 0.25 < time.monotonic() - began < 5


def test_a_process_that_stays_stopped_gets_one_connection_and_costs_one_timeout() -> None:
    with contextlib.ExitStack() as stack:
        server, stopped = _listen(stack, backlog=128)
        prober = stack.enter_context(Prober(timeout_s=0.3))
        began = time.monotonic()
        for _ in range(200):
            assert prober.ask({stopped: Proof.SPEAKS}) == frozenset()
        assert time.monotonic() - began < 200 * 0.3 / 2
        server.accept()[0].close()
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_process_that_goes_on_answers_on_the_connection_that_it_has() -> None:
    with contextlib.ExitStack() as stack:
        server, where = _listen(stack)
        prober = stack.enter_context(Prober(timeout_s=0.1))
        assert prober.ask({where: Proof.SPEAKS}) == frozenset()
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"\0")
            assert prober.ask({where: Proof.SPEAKS}) == {where}
            connection.recv(4096)
            assert connection.recv(4096) == b"", "the answered question was closed"


def test_a_successor_of_a_silent_process_is_asked_anew() -> None:
    with contextlib.ExitStack() as stack:
        server, where = _listen(stack)
        prober = stack.enter_context(Prober(timeout_s=0.1))
        assert prober.ask({where: Proof.SPEAKS}) == frozenset()
        server.close()
        successor = stack.enter_context(socket.socket())
        successor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        successor.bind(where)
        successor.listen()
        successor.settimeout(10.0)
        assert prober.ask({where: Proof.SPEAKS}) == frozenset()
        with successor.accept()[0] as connection:
            connection.sendall(b"\0")
            assert prober.ask({where: Proof.SPEAKS}) == {where}


def test_who_is_no_longer_asked_for_is_hung_up_on() -> None:
    with contextlib.ExitStack() as stack:
        server, where = _listen(stack)
        prober = stack.enter_context(Prober(timeout_s=0.1))
        prober.ask({where: Proof.SPEAKS})
        prober.ask({})
        with server.accept()[0] as connection:
            assert connection.recv(4096) == OPENING
            assert connection.recv(4096) == b""


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
