# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Has the program's handler go on with other slices: after a loss, a notice, or a return."""

import contextlib
import gc
import logging
import time
import traceback
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from pathways_elastic import detection, handler
from pathways_elastic.errors import ElasticError, RetryLimitError
from pathways_elastic.events import EventKind, Journal, first_line
from pathways_elastic.fleet import Fleet
from pathways_elastic.handler import ElasticUtils, Handler, PerMesh
from pathways_elastic.notice_board import NoticeBoard
from pathways_elastic.policy import DownEvents, Options
from pathways_elastic.recorder import Recorder
from pathways_slurm.notices import Back

_log = logging.getLogger("pathways_elastic")

# A slice of which the service says that it can be used answers at once, or something is wrong.
_ANSWER_S = 1.0


@dataclass(frozen=True, slots=True)
class Call:
    """A handler and what the program wants it to be given."""

    handler: Handler
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None


class Resharder:
    """Calls handlers until one has gone on with the right slices.

    Args:
        options: The manager's.
        fleet: The slices.
        recorder: The snapshots.
        board: What the service announces.
        journal: Told of everything.
    """

    def __init__(
        self,
        options: Options,
        fleet: Fleet,
        recorder: Recorder,
        board: NoticeBoard,
        journal: Journal,
    ) -> None:
        self._options = options
        self._fleet = fleet
        self._recorder = recorder
        self._board = board
        self._journal = journal
        self._returned = detection.BackgroundProbe(fleet.all, options.probe_timeout_s)
        # Of each slice, the last announcement of which something was made.
        self._heard: dict[int, Back] = {}
        self._per_mesh = PerMesh()
        self.down_events = DownEvents(options.max_elastic_down_event_count)

    def close(self) -> None:
        """Lets go of what programs have built."""
        self._per_mesh.clear()

    def at_boundary(self, step: int, state: Any, call: Call) -> Any:
        """Leaves slices that are about to go, and takes in those that are back, if there are any.

        Args:
            step: The step that was completed.
            state: What it has made.
            call: Of the handler.

        Returns:
            What the handler returned; None if it was not called, or not with success.
        """
        if self._fleet.leaving:
            return self._reshard(step, state, call)
        if not self._fleet.missing:
            return None
        self._acknowledge(self._fleet.missing)
        return self._reshard(step, state, call) if self._found_returned(step) else None

    def _found_returned(self, step: int) -> Set[int]:
        """Of the slices that are missing, those that the last look has found; begins looks."""
        going, back = self._board.going.keys(), self._board.back
        if not (found := self._returned.take()):
            awaited = self._fleet.missing - going
            if self._returned.running or not awaited:
                return frozenset()
            if announced := {index for index in awaited if self._is_news(back.get(index))}:
                self._returned.start(announced)
                found = self._returned.take(_ANSWER_S)
            elif step % self._options.reshard_check_period == 0:
                self._returned.start(awaited)
        # One attempt is made of it. If that fails, the slice is found again when a look is due.
        self._heard.update({index: back[index] for index in found & back.keys()})
        return found - going

    def _is_news(self, back: Back | None) -> bool:
        """Whether it is announced that a slice is back, and nothing was made of that yet."""
        return back is not None and back != self._heard.get(back.slice)

    def _reshard(self, step: int, state: Any, call: Call) -> Any:
        """Goes on with other slices though none is lost: if it does not, all is as before.

        Whatever keeps it from that, and be it Ctrl-C.
        """
        fleet, recorder, tell = self._fleet, self._recorder, self._journal.tell
        self._journal.begin()
        for going in self._board.going.values():
            if going.slice in fleet.good:
                why = f"slice {going.slice} is about to go: {going.reason}"
                tell(EventKind.SLICES_GOING, why, step)
        if recorder.latest != step:
            recorder.record(step, state)
        recorder.wait()
        recorder.raise_failure()
        used, handed = fleet.good, list[int]()
        failure: BaseException | None = None
        for attempt in range(1 + self._options.max_reshard_retry_count):
            if failure is not None and not fleet.intact():
                # The loop gives it to maybe_reshard_down.
                raise failure
            active = fleet.active()
            if not fleet.leaving and not used < active:
                break
            if new := active - used:
                tell(EventKind.SLICES_BACK, f"slices {sorted(new)} answer", step)
            kind = EventKind.RESHARDED_DOWN if used - active else EventKind.RESHARDED_UP
            with contextlib.ExitStack() as unless_done:
                # The state is still on these slices, unless one of them was lost too.
                unless_done.callback(fleet.back_to, fleet.mark())
                self._use(active)
                try:
                    returned = self._call(call, kind, used, handed, attempt)
                except Exception as raised:
                    failure = self._loss_behind(raised, or_shortage=used < active)
                else:
                    unless_done.pop_all()
                    return returned
            if detection.is_out_of_memory(failure):
                # There would be no more room at the next call.
                break
            tell(EventKind.ATTEMPT_FAILED, first_line(failure), step)
        reason = "no more slices answer" if failure is None else first_line(failure)
        tell(EventKind.RESHARD_UP_GIVEN_UP, reason, step)
        return None

    def after_loss(self, error: Exception, call: Call) -> Any:
        """Goes on with the slices that are left.

        Args:
            error: That a slice was lost.
            call: Of the handler.

        Returns:
            What the handler returned.
        """
        self._journal.begin()
        try:
            self.down_events = self.down_events.one_more()
        except ElasticError as limit:
            raise limit from error
        self._journal.tell(EventKind.SLICES_LOST, first_line(error))
        # The frames of what failed hold arrays that are of no use any more. They are young: looking
        # through all objects would take longer than the rest.
        traceback.clear_frames(error.__traceback__)
        self._recorder.settle(self._options.probe_timeout_s)
        gc.collect(1)
        used, handed = self._fleet.good, list[int]()
        failure: BaseException = error
        for attempt in range(1 + self._options.max_reshard_retry_count):
            active = self._fleet.active()
            if attempt == 0:
                active = self._fleet.after_grace(active)
            self._use(active)
            try:
                return self._call(call, EventKind.RESHARDED_DOWN, used, handed, attempt)
            except Exception as raised:
                failure = self._loss_behind(raised)
                self._journal.tell(EventKind.ATTEMPT_FAILED, first_line(failure))
        raise RetryLimitError(
            f"the elastic handler was called {1 + self._options.max_reshard_retry_count} times "
            f"(max_reshard_retry_count is {self._options.max_reshard_retry_count}), and slices "
            f"were lost each time, at last: {first_line(failure)}"
        ) from failure

    def _use(self, active: frozenset[int]) -> None:
        """Uses these slices, or those that there are once there are enough."""
        if going := frozenset(self._board.going):
            self._keep(active | going)
            self._recorder.leave(going)
            if len(active) < self._options.min_slices:
                # Nothing goes on before others are there, which may be these in their next run.
                self._acknowledge(going)
        self._fleet.use(self._fleet.enough(active))

    def _call(
        self, call: Call, kind: EventKind, used: frozenset[int], handed: list[int], attempt: int
    ) -> Any:
        """Has the handler go on, and tells of it; ``used`` were the slices in use before."""
        fleet, recorder = self._fleet, self._recorder
        self._keep(fleet.good)
        recorder.secure()
        utils = ElasticUtils(recorder, fleet.good_slices, handed, self._per_mesh, attempt)
        timeout_s = self._options.handler_timeout_s
        returned = handler.call(call.handler, utils, call.args, call.kwargs, timeout_s)
        recorder.latest = utils.latest
        without = f", without {sorted(used - fleet.good)}" if used - fleet.good else ""
        where = f"training goes on, on slices {sorted(fleet.good)}{without}"
        self._journal.tell(kind, where, utils.latest)
        self._acknowledge(fleet.missing)
        return returned

    def _keep(self, slices: Set[int]) -> None:
        """Lets go of copies elsewhere, and of snapshots that are not whole without them."""
        for step in self._recorder.keep(slices):
            reason = f"that of step {step} was on slices that are lost"
            self._journal.tell(EventKind.SNAPSHOT_LOST, reason, step)

    def _acknowledge(self, unused: Set[int]) -> None:
        for going in self._board.acknowledge(unused):
            left_s = going.deadline - time.time()
            _log.info("slice %d is let go, %.1f s before it must", going.slice, left_s)

    def _loss_behind(self, raised: Exception, *, or_shortage: bool = False) -> BaseException:
        """The loss of a slice that a handler failed of; anything else is raised as it was.

        Args:
            raised: What the handler raised.
            or_shortage: Whether to return a shortage of device memory as well.
        """
        error = detection.jax_error_behind(raised)
        if error is not None and (
            (or_shortage and detection.is_out_of_memory(error)) or self._fleet.is_loss(error)
        ):
            # They hold what was restored so far.
            traceback.clear_frames(raised.__traceback__)
            failure: BaseException = error.with_traceback(None)
            return failure
        steps = [snapshot.step for snapshot in self._recorder.whole]
        raised.add_note(f"raised by the elastic handler; there are snapshots of steps {steps}")
        raise raised
