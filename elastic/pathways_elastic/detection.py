# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Which slices answer, which have kept their data, and whether an error is the loss of one.

Recognising errors and asking slices is pathwaysutils'; this adds what it is asked with: probes that
compile once and do not wait for ever, and data whose loss is remembered.
"""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pathwaysutils.elastic import elastic

type Slices = Mapping[int, Sequence[jax.Device]]

_VALUE = 100.0


def _add_one(x: jax.Array) -> jax.Array:
    return x + 1


_compiled_add_one = jax.jit(_add_one)


def slices_of(devices: Sequence[jax.Device]) -> dict[int, list[jax.Device]]:
    """Devices by slice; both in ascending order.

    Raises:
        ValueError: There are no devices, or they belong to no slices.
    """
    if not devices:
        raise ValueError("devices is empty: give jax.devices()")
    if any(getattr(device, "slice_index", None) is None for device in devices):
        raise ValueError(
            f"{devices[0]} has no slice_index: elastic training needs the devices of a Pathways "
            "service, whose variables are in cluster.env (JAX_PLATFORMS=proxy, …)"
        )
    found = elastic.get_slice_to_devices(tuple(sorted(devices, key=lambda d: d.id)))
    return {index: list(found[index]) for index in sorted(found)}


def place(devices: Sequence[jax.Device]) -> jax.Array:
    """A small array with a part on each of the devices."""
    sharding = NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec("device"))
    placed: jax.Array = jax.device_put(np.full(len(devices), _VALUE, np.float32), sharding)
    return placed


# pathwaysutils comes without types, so its class is Any to mypy, and no base for another.
class _Checker(elastic.SliceHealthChecker):  # type: ignore[misc]
    """Asks all slices at the same time, and takes silence for an answer after some time.

    A slice that still owes an earlier answer is not asked again: no threads pile up.

    Args:
        slices: Whom to ask.
        timeout_s: For all answers together; also what is queued on a slice goes before.
    """

    def __init__(self, slices: Slices, timeout_s: float) -> None:
        super().__init__(slices)
        self._timeout_s = timeout_s
        self._asked: dict[int, threading.Thread] = {}
        self._answers: dict[int, bool | Exception] = {}

    @abstractmethod
    def _ask(self, index: int) -> bool:
        """Whether the slice computes the right thing; may raise or hang."""

    def dispatch(self) -> None:
        for index in self.slice_to_devices:
            if (before := self._asked.get(index)) is not None and before.is_alive():
                continue
            self._answers.pop(index, None)
            thread = threading.Thread(
                target=self._keep_answer, args=(index,), name=f"elastic-probe-{index}", daemon=True
            )
            self._asked[index] = thread
            thread.start()

    def _keep_answer(self, index: int) -> None:
        try:
            self._answers[index] = self._ask(index)
        except Exception as error:
            self._answers[index] = error.with_traceback(None)

    def validate(self) -> Set[int]:
        deadline = time.monotonic() + self._timeout_s
        good = set()
        for index, thread in self._asked.items():
            thread.join(max(0.0, deadline - time.monotonic()))
            answer = self._answers.get(index, False)
            if isinstance(answer, Exception):
                if not elastic.is_error_due_to_slice_down(answer, log_traceback=False):
                    raise answer
            elif answer and not thread.is_alive():
                good.add(index)
        return frozenset(good)


def _nobody() -> Set[int]:
    return frozenset()


class Liveness(_Checker):
    """Finds the slices that can compute now, whatever was before.

    Args:
        slices: Whom to ask.
        timeout_s: For all answers together.
        going: Slices that count for nothing, whatever they answer, as they are about to go.
        looked: Told what each look has found. What it raises ends the look, and any waiting.
    """

    def __init__(
        self,
        slices: Slices,
        timeout_s: float,
        going: Callable[[], Set[int]] = _nobody,
        looked: Callable[[Set[int]], None] | None = None,
    ) -> None:
        super().__init__(slices, timeout_s)
        self._going = going
        self._looked = looked

    def validate(self) -> Set[int]:
        found = super().validate() - self._going()
        if self._looked is not None:
            self._looked(found)
        return found

    def _ask(self, index: int) -> bool:
        return _computes(place(self.slice_to_devices[index]))


class Witnesses(_Checker):
    """Finds the slices that have kept their data since this was made.

    Of a slice that was lost and is back already, only the data tells.
    """

    def __init__(self, slices: Slices, timeout_s: float) -> None:
        super().__init__(slices, timeout_s)
        self._data = {index: place(devices) for index, devices in slices.items()}

    def _ask(self, index: int) -> bool:
        return _computes(self._data[index])


def _computes(x: jax.Array) -> bool:
    return bool(np.all(np.asarray(_compiled_add_one(x)) == _VALUE + 1))


def active(slices: Slices, checker: Liveness | Witnesses) -> frozenset[int]:
    """The slices of which the checker finds nothing wrong."""
    return frozenset(elastic.get_active_slice_indices(slices, checker))


def is_loss(error: BaseException, slices: Slices, witnesses: Witnesses) -> bool:
    """Whether an error is the loss of a slice.

    DATA_LOSS is. What pathwaysutils takes for a loss in case of doubt, such as INTERNAL, is one if
    one of ``slices`` has lost its data; otherwise it is a fault of the program or the runtime.
    """
    if not elastic.is_error_due_to_slice_down(error, log_traceback=False):
        return False
    return "DATA_LOSS" in str(error) or active(slices, witnesses) < set(slices)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that devices have no room, which is no loss of what they hold."""
    return "RESOURCE_EXHAUSTED" in str(error)


def jax_error_behind(error: BaseException) -> jax.errors.JaxRuntimeError | None:
    """The error of the runtime that this one is, or was raised from."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, jax.errors.JaxRuntimeError):
        seen = seen.__cause__
    return seen


class BackgroundProbe:
    """Looks for slices that are back, without holding up the training loop."""

    def __init__(self, slices: Slices, timeout_s: float) -> None:
        self._checkers = {i: Liveness({i: slices[i]}, timeout_s) for i in slices}
        self._thread: threading.Thread | None = None
        self._found: frozenset[int] = frozenset()
        self._error: Exception | None = None

    @property
    def running(self) -> bool:
        """Whether a look is not over yet."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, indices: Set[int]) -> None:
        """Begins a look at some slices; one must not be running."""
        self._found, self._error = frozenset(), None
        self._thread = threading.Thread(
            target=self._look, args=(sorted(indices),), name="elastic-reshard-check", daemon=True
        )
        self._thread.start()

    def _look(self, indices: Sequence[int]) -> None:
        try:
            for index in indices:
                checker = self._checkers[index]
                self._found |= active(checker.slice_to_devices, checker)
        except Exception as error:
            self._error = error.with_traceback(None)

    def take(self, patience_s: float = 0.0) -> frozenset[int]:
        """What the last look found, once; nothing if it is not over within ``patience_s``.

        Raises:
            Exception: What pathwaysutils' probe raised that is not the loss of a slice.
        """
        if patience_s and self._thread is not None:
            self._thread.join(patience_s)
        if self.running:
            return frozenset()
        found, error = self._found, self._error
        self._found, self._error = frozenset(), None
        if error is not None:
            raise error
        return found
