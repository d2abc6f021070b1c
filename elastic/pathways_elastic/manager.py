# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The manager of an elastic training loop; docs/elastic.md shows the loop."""

import operator
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import jax

from pathways_elastic import detection, policy
from pathways_elastic.errors import ElasticError
from pathways_elastic.events import Event, EventKind, Journal, OnEvent
from pathways_elastic.fleet import Fleet
from pathways_elastic.handler import ElasticUtils, Handler
from pathways_elastic.notice_board import NoticeBoard, Source
from pathways_elastic.policy import Options
from pathways_elastic.recorder import Recorder
from pathways_elastic.resharding import Call, Resharder
from pathways_elastic.snapshots import SnapshotInfo

__all__ = ["ElasticUtils", "Event", "EventKind", "Manager", "SnapshotInfo"]


class Manager:
    """Keeps a training loop going on whatever slices there are.

    One to a process, until it is closed; a context manager. To be used from one thread.

    What the service announces of its slices is read from notices.json beside cluster.env, whose
    variables must be set: ``PATHWAYS_CLUSTER_ENV``, or ``PATHWAYS_HOME`` and ``PATHWAYS_NAME``.

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
        self._board = NoticeBoard(Source.of(os.environ))
        journal = Journal(on_event, lambda: (self._fleet.good, self._fleet.missing))
        self._fleet = Fleet(slices, self._options, self._board, journal.tell)
        self._recorder = Recorder(snapshot_buffer_size)
        self._resharder = Resharder(
            self._options, self._fleet, self._recorder, self._board, journal
        )
        # Of the last call.
        self._step: int | None = None
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
            self._resharder.close()
            self._fleet.close()
            self._board.close()
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
        return self._resharder.down_events.count

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
        if policy.snapshot_is_due(step, self._options.snapshot_period, self._recorder.latest):
            self._recorder.record(step, snapshot)

    def maybe_reshard_up(
        self,
        *,
        step: int,
        snapshot: Any,
        elastic_handler: Handler,
        handler_args: Sequence[Any] = (),
        handler_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Has the handler go on with slices that are back, and without those that are to go.

        Every ``reshard_check_period`` steps a look for missing slices begins, unless there are
        none; the first call after it has found one takes a snapshot, if this step has none, and
        calls the handler. Slices that the service announces as back need not wait for that. If it
        does not work out on all slices, or these have no room for a second state, training goes on
        as before.

        If the service forwards notices (``PATHWAYS_ON_NOTICE=forward``), the first call after one
        takes a snapshot in the same way, calls the handler with the slices that stay, and tells the
        service that the others can go. This is no down event, and costs no step.

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
            SliceShortageError: Fewer than ``min_slices`` slices stay, for too long.
            HandlerError: The handler returned nothing, or did not return.
            BaseException: What the handler raised.
        """
        self._at(step)
        if self._recorder.failed:
            self._recorder.raise_failure()
        call = Call(elastic_handler, handler_args, handler_kwargs)
        return self._went_on(self._resharder.at_boundary(step, snapshot, call))

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
        call = Call(elastic_handler, handler_args, handler_kwargs)
        return self._went_on(self._resharder.after_loss(error, call))

    def _went_on(self, returned: Any) -> Any:
        """What a handler returned, which is never None; steps count from there then."""
        if returned is not None:
            self._step = None
        return returned

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
