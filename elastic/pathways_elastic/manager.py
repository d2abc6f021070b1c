# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The manager of an elastic training loop; docs/elastic.md shows the loop."""

import gc
import operator
import os
import time
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import jax

from pathways_elastic import detection, handler, policy
from pathways_elastic.errors import ElasticError, RetryLimitError
from pathways_elastic.events import Event, EventKind, OnEvent, first_line, tell
from pathways_elastic.fleet import Fleet
from pathways_elastic.handler import ElasticUtils, Handler, PerMesh
from pathways_elastic.policy import DownEvents, Options
from pathways_elastic.recorder import Recorder
from pathways_elastic.snapshots import SnapshotInfo

__all__ = ["ElasticUtils", "Event", "EventKind", "Manager", "SnapshotInfo"]


class Manager:
    """Keeps a training loop going on whatever slices there are.

    One to a process, until it is closed; a context manager. To be used from one thread.

    Args:
        devices: All devices of the service, such as ``jax.devices()``.
        snapshot_period: Steps between snapshots, and so what a loss costs at most.
        snapshot_buffer_size: How many snapshots are kept.
        reshard_check_period: Steps between looks for slices that are missing.
        max_elastic_down_event_count: How many losses are survived.
        max_reshard_retry_count: How often the handler is called again during one event.
        min_slices: Fewer slices are not trained on but waited for; ``PATHWAYS_MIN_SLICES``, which
            is in cluster.env, if None, and 1 if that is not set.
        grace_period_s: How long slices that were lost may take to return before training goes on
            without them.
        slices_timeout_s: How long to wait for ``min_slices``.
        poll_interval_s: Seconds between looks while waiting.
        probe_timeout_s: What a slice may take to answer, with everything that is queued on it;
            after it, the slice counts as lost.
        handler_timeout_s: What one call of the handler may take.
        on_event: Called at each event, in the thread of the loop.

    Raises:
        ValueError: An argument is out of its range; the message has all of them.
        ElasticError: There is an open manager already.
        SliceShortageError: There were fewer than ``min_slices`` slices for too long.
    """

    _open: ClassVar["Manager | None"] = None

    def __init__(
        self,
        devices: Sequence[jax.Device],
        snapshot_period: int,
        snapshot_buffer_size: int,
        reshard_check_period: int,
        max_elastic_down_event_count: int,
        max_reshard_retry_count: int,
        *,
        min_slices: int | None = None,
        grace_period_s: float = 0.0,
        slices_timeout_s: float = 1800.0,
        poll_interval_s: float = 1.0,
        probe_timeout_s: float = 60.0,
        handler_timeout_s: float = 1800.0,
        on_event: OnEvent | None = None,
    ) -> None:
        if min_slices is None:
            min_slices = policy.min_slices_of(os.environ)
        self._options = Options(
            snapshot_period=snapshot_period,
            snapshot_buffer_size=snapshot_buffer_size,
            reshard_check_period=reshard_check_period,
            max_elastic_down_event_count=max_elastic_down_event_count,
            max_reshard_retry_count=max_reshard_retry_count,
            min_slices=min_slices,
            grace_period_s=grace_period_s,
            slices_timeout_s=slices_timeout_s,
            poll_interval_s=poll_interval_s,
            probe_timeout_s=probe_timeout_s,
            handler_timeout_s=handler_timeout_s,
        )
        slices = detection.slices_of(devices)
        if min_slices > len(slices):
            raise ValueError(
                f"min_slices is {min_slices}, but devices has slices {sorted(slices)} only"
            )
        if Manager._open is not None:
            raise ElasticError(
                "there is a Manager already: use that one, or close it before making another"
            )
        self._on_event = on_event
        self._began = time.monotonic()
        self._fleet = Fleet(slices, self._options, self._tell)
        self._returned = detection.BackgroundProbe(slices, probe_timeout_s)
        self._down_events = DownEvents(max_elastic_down_event_count)
        self._recorder = Recorder(snapshot_buffer_size)
        self._per_mesh = PerMesh()
        # The steps of the last call, and of the snapshot taken or handed out last.
        self._step: int | None = None
        self._latest: int | None = None
        Manager._open = self
        try:
            self._fleet.use(self._fleet.enough(self._fleet.active()))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of all snapshots, and makes room for another manager. Does nothing twice."""
        if Manager._open is self:
            self._recorder.close()
            self._per_mesh.clear()
            self._fleet.close()
            Manager._open = None

    @property
    def good_slice_indices(self) -> frozenset[int]:
        """The slices in use."""
        return self._fleet.good

    @property
    def missing_slice_indices(self) -> frozenset[int]:
        """The slices that are not in use: lost, or not there yet."""
        return self._fleet.missing

    @property
    def good_slice_to_devices(self) -> dict[int, Sequence[jax.Device]]:
        """The slices in use and their devices; both in ascending order."""
        return self._fleet.good_slices

    @property
    def good_devices(self) -> list[jax.Device]:
        """The devices in use, slice by slice, in ascending order."""
        return [device for devices in self.good_slice_to_devices.values() for device in devices]

    @property
    def down_event_count(self) -> int:
        """How many losses were counted so far."""
        return self._down_events.count

    @property
    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """The snapshots that are whole, newest first, and where each of them is."""
        return tuple(snapshot.info for snapshot in self._recorder.whole)

    def maybe_snapshot(self, *, step: int, snapshot: Any) -> None:
        """Starts to keep the state if it is this step's turn, and returns.

        It is at the first step, and at every one that ``snapshot_period`` divides. The state may be
        donated afterwards. If the snapshot before is not whole yet it is waited for.

        Args:
            step: The step that made the state. It must not go back, but after an event.
            snapshot: Any pytree of arrays and numbers.

        Raises:
            ValueError: ``step`` goes back, or is no integer.
            SnapshotError: ``snapshot`` holds something else; nothing is kept of it.
            jax.errors.JaxRuntimeError: The snapshot before failed, which means that a slice was
                lost: to be given to :meth:`maybe_reshard_down`.
        """
        self._at(step)
        if self._recorder.failed:
            self._recorder.raise_failure()
        if policy.snapshot_is_due(step, self._options.snapshot_period, self._latest):
            self._take(step, snapshot)

    def maybe_reshard_up(
        self,
        *,
        step: int,
        snapshot: Any,
        elastic_handler: Handler,
        handler_args: Sequence[Any] = (),
        handler_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Has the handler go on with slices that are back.

        Every ``reshard_check_period`` steps a look for missing slices begins, unless there are
        none; the first call after it has found one takes a snapshot, if this step has none, and
        calls the handler. If that does not work out on all slices, training goes on as before.

        Args:
            step: As in :meth:`maybe_snapshot`.
            snapshot: The state, as in :meth:`maybe_snapshot`.
            elastic_handler: Called with an :class:`ElasticUtils` and the arguments below.
            handler_args: For the handler.
            handler_kwargs: For the handler.

        Returns:
            What the handler returned; None if it was not called, or not with success.

        Raises:
            jax.errors.JaxRuntimeError: A slice in use was lost: to be given to
                :meth:`maybe_reshard_down`.
            HandlerError: The handler returned nothing, or did not return.
            BaseException: What the handler raised.
        """
        self._at(step)
        if self._recorder.failed:
            self._recorder.raise_failure()
        if not self._fleet.missing:
            return None
        back = self._returned.take()
        if back:
            return self._reshard_up(step, snapshot, elastic_handler, handler_args, handler_kwargs)
        if step % self._options.reshard_check_period == 0 and not self._returned.running:
            self._returned.start(self._fleet.missing)
        return None

    def maybe_reshard_down(
        self,
        *,
        error: Exception,
        elastic_handler: Handler,
        handler_args: Sequence[Any] = (),
        handler_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Has the handler go on with the slices that are left, if the error is the loss of one.

        Args:
            error: What the loop has caught.
            elastic_handler: Called with an :class:`ElasticUtils` and the arguments below.
            handler_args: For the handler.
            handler_kwargs: For the handler.

        Returns:
            What the handler returned.

        Raises:
            Exception: ``error`` as it was, if it is not the loss of a slice.
            DownEventLimitError: It is, and ``max_elastic_down_event_count`` were survived before.
            SliceShortageError: There were fewer than ``min_slices`` slices for too long.
            RetryLimitError: Slices were lost at each call of the handler.
            HandlerError: The handler returned nothing, or did not return.
            BaseException: What the handler raised.
        """
        if not self._fleet.is_loss(error):
            raise error
        self._began = time.monotonic()
        try:
            self._down_events = self._down_events.one_more()
        except ElasticError as limit:
            raise limit from error
        self._tell(EventKind.SLICES_LOST, first_line(error))
        # The frames of what failed hold arrays that are of no use any more. They are young: looking
        # through all objects would take longer than the rest.
        traceback.clear_frames(error.__traceback__)
        self._recorder.settle(self._options.probe_timeout_s)
        gc.collect(1)
        before, handed = self._fleet.good, list[int]()
        failure: BaseException = error
        for attempt in range(1 + self._options.max_reshard_retry_count):
            active = self._fleet.active()
            if attempt == 0:
                active = self._fleet.after_grace(active)
            self._fleet.use(self._fleet.enough(active))
            try:
                returned, latest = self._call(
                    elastic_handler, handler_args, handler_kwargs, handed, attempt
                )
            except Exception as raised:
                failure = self._loss_behind(raised)
                self._tell(EventKind.ATTEMPT_FAILED, first_line(failure))
                continue
            self._resume(latest)
            lost = sorted(before - self._fleet.good)
            without = f", without {lost}" if lost else ""
            where = f"training goes on, on slices {sorted(self._fleet.good)}{without}"
            self._tell(EventKind.RESHARDED_DOWN, where, latest)
            return returned
        raise RetryLimitError(
            f"the elastic handler was called {1 + self._options.max_reshard_retry_count} times "
            f"(max_reshard_retry_count is {self._options.max_reshard_retry_count}), and slices "
            f"were lost each time, at last: {first_line(failure)}"
        ) from failure

    def _reshard_up(
        self,
        step: int,
        snapshot: Any,
        elastic_handler: Handler,
        handler_args: Sequence[Any],
        handler_kwargs: Mapping[str, Any] | None,
    ) -> Any:
        self._began = time.monotonic()
        if self._latest != step:
            self._take(step, snapshot)
        self._recorder.wait()
        self._recorder.raise_failure()
        fleet, handed = self._fleet, list[int]()
        before = fleet.mark()
        failure: BaseException | None = None
        for attempt in range(1 + self._options.max_reshard_retry_count):
            if failure is not None and not fleet.intact():
                # The loop gives it to maybe_reshard_down.
                raise failure
            active = fleet.active()
            if not fleet.good < active:
                break
            self._tell(EventKind.SLICES_BACK, f"slices {sorted(active - fleet.good)} answer", step)
            fleet.use(active)
            try:
                returned, latest = self._call(
                    elastic_handler, handler_args, handler_kwargs, handed, attempt
                )
            except Exception as raised:
                try:
                    failure = self._loss_behind(raised)
                finally:
                    # The state is still on these slices, unless one of them was lost too.
                    fleet.back_to(before)
                self._tell(EventKind.ATTEMPT_FAILED, first_line(failure), step)
                continue
            self._resume(latest)
            where = f"training goes on, on slices {sorted(fleet.good)}"
            self._tell(EventKind.RESHARDED_UP, where, latest)
            return returned
        reason = "no more slices answer" if failure is None else first_line(failure)
        self._tell(EventKind.RESHARD_UP_GIVEN_UP, reason, step)
        return None

    def _at(self, step: int) -> None:
        if Manager._open is not self:
            raise ElasticError("this Manager is closed: make another")
        if type(step) is not int:
            if isinstance(step, bool | jax.Array) or not hasattr(step, "__index__"):
                raise ValueError(f"step must be an integer, such as int(state.step), got {step!r}")
            step = operator.index(step)
        if self._step is not None and step < self._step:
            raise ValueError(
                f"step must not go back: it is {step} after {self._step}. Steps are counted up "
                "from where an elastic handler has set them"
            )
        self._step = step

    def _take(self, step: int, state: Any) -> None:
        self._recorder.record(step, state)
        self._latest = step

    def _call(
        self,
        elastic_handler: Handler,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None,
        handed: list[int],
        attempt: int,
    ) -> tuple[Any, int | None]:
        for step in self._recorder.keep(self._fleet.good):
            reason = f"that of step {step} was on slices that are lost"
            self._tell(EventKind.SNAPSHOT_LOST, reason, step)
        self._recorder.secure()
        utils = ElasticUtils(
            self._recorder, self._fleet.good_slices, handed, self._per_mesh, attempt
        )
        timeout_s = self._options.handler_timeout_s
        returned = handler.call(elastic_handler, utils, args, kwargs, timeout_s)
        return returned, utils.latest

    def _resume(self, latest: int | None) -> None:
        self._step, self._latest = None, latest

    def _loss_behind(self, raised: Exception) -> BaseException:
        """The loss of a slice that a handler failed of; anything else is raised as it was."""
        error = detection.jax_error_behind(raised)
        if error is not None and self._fleet.is_loss(error):
            traceback.clear_frames(raised.__traceback__)
            failure: BaseException = error.with_traceback(None)
            return failure
        steps = [snapshot.step for snapshot in self._recorder.whole]
        raised.add_note(f"raised by the elastic handler; there are snapshots of steps {steps}")
        raise raised

    def _tell(self, kind: EventKind, reason: str, step: int | None = None) -> None:
        seconds = time.monotonic() - self._began
        event = Event(kind, reason, self._fleet.good, self._fleet.missing, step, seconds)
        tell(event, self._on_event)
