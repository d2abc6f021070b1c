# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A training program whose state shows how many updates went into it, and which."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pathways_elastic.manager import ElasticUtils

WIDTH = 8


@jax.tree_util.register_pytree_node_class
class State(dict[str, Any]):
    """A mapping with ``replace``, as the documented handler wants it."""

    def replace(self, **values: Any) -> Self:
        return type(self)({**self, **values})

    def tree_flatten(self) -> tuple[list[Any], tuple[str, ...]]:
        names = tuple(sorted(self))
        return [self[name] for name in names], names

    @classmethod
    def tree_unflatten(cls, names: tuple[str, ...], leaves: Sequence[Any]) -> Self:
        return cls(zip(names, leaves, strict=True))


def mesh_of(slices: Mapping[int, Sequence[jax.Device]]) -> Mesh:
    return Mesh(np.array([slices[index] for index in sorted(slices)]), ("slice", "fsdp"))


def new_state(mesh: Mesh) -> State:
    def put(value: Any, *axes: str) -> Any:
        return jax.device_put(value, NamedSharding(mesh, PartitionSpec(*axes)))

    return State(count=put(np.int32(0)), sums=put(np.zeros(WIDTH, np.float32), "fsdp"))


def _update(state: State) -> State:
    return State(count=state["count"] + 1, sums=state["sums"] + state["count"].astype(jnp.float32))


# Donates, as training steps do.
update: Callable[[State], State] = jax.jit(_update, donate_argnums=0)


def handler(utils: ElasticUtils, *_: Any, **__: Any) -> tuple[State, int]:
    """The documented one, for this program."""
    initial = new_state(mesh_of(utils.good_slice_to_devices))
    step, snapshot = utils.get_next_snapshot()
    return initial.replace(**snapshot), step


def count_of(state: State) -> int:
    """How many updates went into the state; raises if it is lost."""
    return int(state["count"])


def data_loss(slice_index: int = 1) -> jax.errors.JaxRuntimeError:
    """An error as the runtime raises it."""
    return jax.errors.JaxRuntimeError(f"DATA_LOSS: slice {slice_index}: host 0 ended")
