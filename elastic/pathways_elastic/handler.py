# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the program's elastic handler is given, and how it is called."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import jax

from pathways_elastic import deadline, policy, restoring
from pathways_elastic.errors import HandlerError, NoSnapshotError
from pathways_elastic.recorder import Recorder

type Handler = Callable[..., Any]

_MAX_REMEMBERED = 16


class PerMesh:
    """What programs have built for a mesh, so that a mesh seen before costs no compilation.

    The meshes used last are remembered; what was built for others is let go.
    """

    def __init__(self, limit: int = _MAX_REMEMBERED) -> None:
        self._limit = limit
        self._built: OrderedDict[Hashable, Any] = OrderedDict()

    def get[T](self, mesh: Hashable, build: Callable[[], T]) -> T:
        """What ``build`` returned when it was first called for ``mesh``."""
        if mesh not in self._built:
            self._built[mesh] = build()
        self._built.move_to_end(mesh)
        while len(self._built) > self._limit:
            self._built.popitem(last=False)
        built: T = self._built[mesh]
        return built

    def clear(self) -> None:
        """Lets go of everything."""
        self._built.clear()


class ElasticUtils:
    """The first argument of an elastic handler. Of use during that call only.

    Attributes:
        good_slice_to_devices: The slices to go on with; devices in ascending order.
        attempt: 0 at the first call of the handler for an event, then 1, …
    """

    def __init__(
        self,
        recorder: Recorder,
        slices: Mapping[int, Sequence[jax.Device]],
        handed: list[int],
        per_mesh: PerMesh,
        attempt: int,
    ) -> None:
        self.good_slice_to_devices = slices
        self.attempt = attempt
        self._recorder = recorder
        self._handed = handed
        self._per_mesh = per_mesh
        self.latest: int | None = None

    @property
    def good_slice_indices(self) -> frozenset[int]:
        """The slices to go on with."""
        return frozenset(self.good_slice_to_devices)

    @property
    def good_devices(self) -> list[jax.Device]:
        """Their devices, slice by slice, in ascending order."""
        return [device for devices in self.good_slice_to_devices.values() for device in devices]

    def get_next_snapshot(self, like: Any | None = None) -> tuple[int, Any]:
        """The newest snapshot, or, if it was handed out during this event, the next older one.

        When all were handed out it is the newest again. Arrays are on the good slices, laid out as
        they were, with the slices' axis of the mesh made as long as there are good slices.

        Args:
            like: A pytree as the snapshot's, of arrays or ``jax.ShapeDtypeStruct`` with shardings,
                to have arrays laid out as these are.

        Returns:
            The step that was given to ``maybe_snapshot``, and the state.

        Raises:
            NoSnapshotError: There is none: start from the beginning, or from a checkpoint.
            SnapshotError: It does not fit ``like`` or the good slices.
            jax.errors.JaxRuntimeError: One more slice was lost; not to be caught by the handler.
        """
        found = {snapshot.step: snapshot for snapshot in self._recorder.whole}
        step = policy.next_to_hand_out(list(found), self._handed)
        if step is None:
            raise NoSnapshotError(
                "there is no snapshot: none was whole before the loss, or its only copies were on "
                "the slices that were lost"
            )
        self._handed.append(step)
        state = restoring.restore(found[step], self.good_slice_to_devices, like)
        self.latest = step
        return step, state

    def once_per_mesh[T](self, mesh: Hashable, build: Callable[[], T]) -> T:
        """What ``build`` returned when it was first called for this mesh.

        Jitted functions that are kept so need no compilation when the mesh comes back. What is
        built must hold no arrays.
        """
        return self._per_mesh.get(mesh, build)


def call(
    handler: Handler,
    utils: ElasticUtils,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    timeout_s: float,
) -> Any:
    """Calls a handler and returns what it returns.

    Raises:
        HandlerError: It returned nothing, or did not return in time.
        BaseException: What it raised.
    """
    with deadline.limited(timeout_s, f"the elastic handler {name_of(handler)}"):
        returned = handler(utils, *args, **(kwargs or {}))
    if returned is None or (isinstance(returned, tuple | list | dict) and not returned):
        raise HandlerError(
            f"the elastic handler {name_of(handler)} returned {returned!r}: it must return what "
            "the loop goes on with, such as (state, step, mesh, train_step)"
        )
    return returned


def name_of(handler: Handler) -> str:
    """For messages."""
    return str(getattr(handler, "__qualname__", handler))
