# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One client: its requests in order, its replies, and what it owns."""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor as Pool
from dataclasses import dataclass
from functools import lru_cache

from google.protobuf.message import DecodeError

from pathways_emulator.descriptors import Proto, messages
from pathways_emulator.proxy.arrays import (
    Array,
    ArrayStore,
    Away,
    Parts,
    error_array,
    fail_if_failed,
    first_error,
    values_of,
)
from pathways_emulator.proxy.devices import DeviceTable
from pathways_emulator.proxy.executor import ArraySpec, Executor, Program, Value
from pathways_emulator.proxy.health import Health
from pathways_emulator.proxy.host_buffers import HostBufferStore
from pathways_emulator.proxy.reply import Reply
from pathways_emulator.proxy.status import (
    Code,
    NotYet,
    ProxyError,
    Status,
    status_of,
    unimplemented,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handler:
    """How one type of request is served.

    Attributes:
        serve: Fills ``reply.body``, or takes the reply to send it later. May raise
            :class:`ProxyError`, or :class:`NotYet` as long as it has changed nothing.
        results: Array handles that the client chose for the request's results. It does not wait
            for a reply before it uses them, so they become errors if the request fails.
        status_handles: The same for handles of an execution's status.
    """

    serve: Callable[["Session", Proto, "Reply"], None]
    results: Callable[[Proto], Iterable[int]] = lambda _: ()
    status_handles: Callable[[Proto], Iterable[int]] = lambda _: ()


@dataclass(slots=True, eq=False)
class _Wait:
    """A reply that is due when arrays are ready, and fails at once when one of them is lost."""

    reply: Reply
    arrays: Sequence[Array]


class Session:
    """Serves one client.

    Requests are served one after the other on whatever thread delivers them; what blocks moves to
    ``pool``. A change of health comes from another thread and never waits for a request.

    Args:
        session_id: Unique in the server.
        handlers: By name of the request, such as ``init_request``.
        executor: Computes.
        devices: All devices.
        health: Of the slices, now.
        pool: For what blocks.
        transmit: Hands a serialized ``IfrtResponse`` to the client, or ends the stream with an
            error; thread-safe, never blocks.

    Attributes:
        stateful: What the session runs that has state beside its arrays, by name. Such a session
            can't be suspended. Handlers of colocated Python and of calls in flight to a
            persistence service would add to it; the emulator serves neither, so it stays empty.
    """

    def __init__(
        self,
        session_id: int,
        handlers: Mapping[str, Handler],
        executor: Executor,
        devices: DeviceTable,
        health: Health,
        pool: Pool,
        transmit: Callable[[bytes | Status], None],
    ) -> None:
        self.id = session_id
        self.executor = executor
        self.devices = devices
        self.pool = pool
        self.arrays = ArrayStore(health, executor.is_ready)
        self.programs: dict[int, Program] = {}
        # Outcomes the client asks for once: of compilations and deletions, all settled here.
        self.futures: dict[int, bool] = {}
        # Executions whose status the client wants: the results to wait for.
        self.executions: dict[int, list[Array]] = {}
        self.host_buffers = HostBufferStore(self.resume)
        self.stateful: set[str] = set()
        self.slices_of = lru_cache(maxsize=4096)(devices.slices_of)
        self._handlers = handlers
        self._transmit = transmit
        self._request_class = messages()["xla.ifrt.proxy.IfrtRequest"]
        self.new_response = messages()["xla.ifrt.proxy.IfrtResponse"]
        self._lock = threading.Lock()
        self._queue: deque[Proto] = deque()
        self._waits_lock = threading.Lock()
        self._waits: set[_Wait] = set()
        self._send_lock = threading.Lock()
        self._next_seq_num = 0
        self._users_to_return: list[int] = []
        self._closed = False
        # Why the session is over; None as long as it is not.
        self._ending: Status | None = None

    def receive(self, data: bytes | memoryview) -> None:
        """Serves a serialized ``IfrtRequest``, unless an earlier one waits for something.

        Raises:
            DecodeError: It is not one.
        """
        request = self._request_class.FromString(data)
        with self._lock:
            if not self._closed:
                self._queue.append(request)
                self._serve_queue()

    def resume(self) -> None:
        """Goes on with a request that waited."""
        with self._lock:
            self._serve_queue()

    def on_health(self, *steps: Health) -> None:
        """Turns the data of lost slices into errors and fails whoever waits for it.

        Args:
            *steps: Applied one after the other, as one; the last one stays.
        """
        self.arrays.on_health(*steps)
        for wait in self._waiting():
            for array in wait.arrays:
                for health in steps:
                    # As all see it: what is waited for was computed before it was saved.
                    # The client may have forgotten it meanwhile, and the store with it.
                    array.apply(health, self.executor.is_ready)
            error = first_error(wait.arrays)
            if error is not None:
                wait.reply.fail(error)
        # Requests that waited may fail now too. Elsewhere: serving them must hold up nobody.
        with contextlib.suppress(RuntimeError):  # the pool has ended, and the process is about to
            self.pool.submit(self.resume)

    def quiesce(self, timeout_s: float) -> bool:
        """Waits until every request has been served that began before this call.

        Executions that have ended are kept as the error that they ended with, without their
        results.

        Returns:
            False if the time was not enough.
        """
        if not self._lock.acquire(timeout=max(0.0, timeout_s)):
            return False
        try:
            for handle, results in self.executions.items():
                values = [result.value for result in results]
                if all(value is None or self.executor.is_ready(value) for value in values):
                    for result in results:
                        fail_if_failed(result, self.executor)
                    self.executions[handle] = [r for r in results if r.error is not None]
        finally:
            self._lock.release()
        return True

    def restore(
        self,
        index: int,
        incarnation: int,
        shards: Mapping[Away, Value],
        join: Callable[[ArraySpec, Parts], Value | None],
        health: Health,
    ) -> None:
        """Puts the data of a slice back; see :meth:`ArrayStore.restore`."""
        self.arrays.restore(index, incarnation, shards, join, health)
        for wait in self._waiting():
            for array in wait.arrays:
                array.move(index, incarnation)

    def hang_up(self, error: Status, linger_s: float = 0.0) -> None:
        """Answers everything with an error from now on, and later ends the client's stream with it.

        JAX's client cancels a stream that ends before it looks at the reason, so what a program
        sees are the answers to its requests.

        Args:
            error: For the client.
            linger_s: For how long requests that have not come yet are answered.
        """
        self._ending = error
        for wait in self._waiting():
            wait.reply.fail(error)

        def answer() -> None:
            self.resume()
            if linger_s:
                timer = threading.Timer(linger_s, self._end, [error])
                timer.daemon = True
                timer.start()
            else:
                self._end(error)

        with contextlib.suppress(RuntimeError):  # the pool has ended, and with it every session
            self.pool.submit(answer)

    def _end(self, error: Status) -> None:
        with self._send_lock:
            if not self._closed:
                self._closed = True
                self._transmit(error)

    def close(self) -> None:
        """Frees everything; the client is gone."""
        with self._send_lock:
            self._closed = True
        self.host_buffers.close()
        # Under the lock, after the request that is being served: it could store something yet.
        with self._lock:
            self._queue.clear()
            self.arrays.clear()
            self.programs.clear()
            self.futures.clear()
            self.executions.clear()

    def send(self, reply: Reply, error: Status | None) -> None:
        """Sends a reply, unless it was sent before.

        The client keeps a counter of replies with a body and forgets the contexts of its calls in
        that order, so such replies are numbered without a gap. It does not count the ones to its
        batched deletions.
        """
        with self._send_lock:
            if reply.sent or self._closed:
                return
            reply.sent = True
            if reply.user:
                self._users_to_return.append(reply.user)
            if error is None:
                response = reply.response
                metadata = response.response_metadata
                metadata.op_id = reply.op_id
                if not reply.unnumbered:
                    metadata.seq_num = self._next_seq_num
                    self._next_seq_num += 1
                    if self._users_to_return:
                        metadata.destroyed_user_context_ids.extend(self._users_to_return)
                        self._users_to_return.clear()
            else:
                response = self.new_response()
                response.response_metadata.op_id = reply.op_id
                error.write_to(response.response_metadata.status)
            self._transmit(response.SerializeToString())

    def when_ready(
        self, arrays: Sequence[Array], reply: Reply, action: Callable[[list[Value]], None]
    ) -> None:
        """Sends ``reply`` once the arrays' data is there and ``action`` has seen it.

        If all is there already, everything happens at once on this thread. A failed computation, or
        the loss of a slice at any time, fails the reply instead.
        """
        values = values_of(arrays)
        if all(self.executor.is_ready(value) for value in values):
            for value in values:
                self.executor.wait(value)
            action(values)
            return
        reply.deferred = True
        wait = _Wait(reply, arrays)
        with self._waits_lock:
            self._waits.add(wait)
        # A loss in between found no wait to fail, but has failed the arrays.
        error = first_error(arrays)
        if error is not None:
            self._forget(wait)
            raise ProxyError(error)
        self.pool.submit(self._wait, wait, values, action)

    def run(self, reply: Reply, work: Callable[[], None]) -> None:
        """Does something long elsewhere, then sends ``reply``."""
        reply.deferred = True
        self.pool.submit(self._run, reply, work)

    def _wait(
        self, wait: _Wait, values: list[Value], action: Callable[[list[Value]], None]
    ) -> None:
        def work() -> None:
            for value in values:
                self.executor.wait(value)
            if not wait.reply.sent:
                action(values)

        try:
            self._run(wait.reply, work)
        finally:
            self._forget(wait)

    def _waiting(self) -> list[_Wait]:
        with self._waits_lock:
            return list(self._waits)

    def _forget(self, wait: _Wait) -> None:
        with self._waits_lock:
            self._waits.discard(wait)

    def _run(self, reply: Reply, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            reply.fail(self._status(error))
        else:
            reply.send()

    def _serve_queue(self) -> None:
        while self._queue and not self._closed:
            try:
                self._serve(self._queue[0])
            except NotYet:
                return
            self._queue.popleft()

    def _serve(self, request: Proto) -> None:
        name = request.WhichOneof("request") or "init_request"
        reply = Reply(self, name, request.request_metadata)
        if not request.HasField(name):
            reply.fail(Status(Code.INVALID_ARGUMENT, "a request without a known body"))
            return
        if self._ending is not None:
            reply.fail(self._ending)
            return
        handler = self._handlers.get(name, _UNKNOWN)
        body = getattr(request, name)
        try:
            handler.serve(self, body, reply)
            if not reply.deferred:
                reply.send()
        except NotYet:
            raise
        except Exception as error:
            status = self._status(error, name)
            results = list(handler.results(body))
            self.arrays.insert(results, [error_array(status) for _ in results])
            for handle in handler.status_handles(body):
                self.executions[handle] = [error_array(status)]
            reply.fail(status)

    def _status(self, error: Exception, name: str = "") -> Status:
        status = status_of(error)
        if isinstance(error, DecodeError):
            _log.warning("session %d: %s: %s", self.id, name or "a request", status.message)
        elif not isinstance(error, ProxyError):
            _log.warning("session %d: %s failed", self.id, name or "a request", exc_info=error)
        return status


def _serve_unknown(_session: Session, request: Proto, _reply: Reply) -> None:
    raise unimplemented(f"{request.DESCRIPTOR.name}: the emulator does not serve this request")


_UNKNOWN = Handler(_serve_unknown)
