# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Training state on a mesh of slices: its layout, the compiled step, its checkpoints.

The batch is divided over all devices; parameters and optimizer state are sharded over the devices
of a slice and replicated over slices. A step's result does not depend on how many slices take part.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax
import orbax.checkpoint as ocp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import char_transformer as model

LEARNING_RATE = 3e-3

type State = dict[str, Any]
type Shield = Callable[[], AbstractContextManager[None]]
type Slices = Mapping[int, Sequence[jax.Device]]


def group_by_slice(devices: Sequence[jax.Device]) -> dict[int, list[jax.Device]]:
    """Devices by slice index, both in ascending order; devices without an index are slice 0."""
    slices: dict[int, list[jax.Device]] = {}
    for device in sorted(devices, key=lambda d: d.id):
        slices.setdefault(getattr(device, "slice_index", None) or 0, []).append(device)
    return dict(sorted(slices.items()))


def build_mesh(slices: Slices) -> Mesh:
    """A mesh of shape [slices, devices of a slice] with axes "slice" and "fsdp".

    Raises:
        ValueError: There is no slice, or slices differ in size.
    """
    sizes = {index: len(devices) for index, devices in slices.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"slices must exist and have the same number of devices, got {sizes}")
    return Mesh(np.array([slices[index] for index in sorted(slices)]), ("slice", "fsdp"))


def shard_within_slice(shape: Sequence[int], mesh: Mesh) -> NamedSharding:
    """Splits the largest axis that the slice's devices divide; replicates over slices."""
    size = mesh.shape["fsdp"]
    axes: list[str | None] = [None] * len(shape)
    divisible = [i for i, n in enumerate(shape) if n >= size and n % size == 0]
    if divisible:
        axes[max(divisible, key=lambda i: shape[i])] = "fsdp"
    return NamedSharding(mesh, PartitionSpec(*axes))


def padded_rows(batch: int, mesh: Mesh) -> int:
    """The smallest number of rows >= ``batch`` that all devices of the mesh can divide."""
    return -(-batch // mesh.size) * mesh.size


@dataclass(frozen=True)
class Run:
    """What decides the result: two runs that agree in these have the same losses."""

    config: model.ModelConfig
    global_batch: int
    seed: int


@dataclass(frozen=True)
class Compiled:
    """What a mesh needs; JAX compiles each at its first call."""

    init: Callable[[int], State]
    step: Callable[[State, jax.Array], tuple[State, jax.Array]]


class Trainer:
    """Initial state and training step of a run, compiled once for each mesh it meets.

    It holds no arrays: what an attempt made must go with the attempt.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._optimizer = optax.adam(LEARNING_RATE)
        self._compiled: dict[Mesh, Compiled] = {}

    def _init(self, seed: int) -> State:
        params = model.init_params(jax.random.key(seed), self.run.config)
        return {"params": params, "optimizer": self._optimizer.init(params), "step": jnp.int32(0)}

    def _step(self, state: State, tokens: jax.Array, mesh: Mesh) -> tuple[State, jax.Array]:
        run = self.run
        dropout_key = jax.random.fold_in(jax.random.key(run.seed + 1), state["step"])

        def loss_of(params: model.Params) -> jax.Array:
            # Gathered within the slice for the step. Left to itself, the partitioner would rather
            # move activations about.
            whole = jax.lax.with_sharding_constraint(params, NamedSharding(mesh, PartitionSpec()))
            return model.loss(whole, tokens, dropout_key, run.config, run.global_batch)

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        updates, optimizer = self._optimizer.update(grads, state["optimizer"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "optimizer": optimizer, "step": state["step"] + 1}, loss

    def abstract_state(self, mesh: Mesh) -> State:
        """Shapes, types and shardings of the state on ``mesh``: what a restore aims at."""
        abstract: State = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(
                x.shape, x.dtype, sharding=shard_within_slice(x.shape, mesh)
            ),
            jax.eval_shape(self._init, 0),
        )
        return abstract

    def _compile(self, mesh: Mesh) -> Compiled:
        if mesh not in self._compiled:
            shardings = jax.tree.map(lambda x: x.sharding, self.abstract_state(mesh))
            scalar = NamedSharding(mesh, PartitionSpec())
            self._compiled[mesh] = Compiled(
                jax.jit(self._init, out_shardings=shardings),
                jax.jit(
                    functools.partial(self._step, mesh=mesh),
                    donate_argnums=0,
                    out_shardings=(shardings, scalar),
                ),
            )
        return self._compiled[mesh]

    def init(self, mesh: Mesh) -> State:
        """The state before the first step, on ``mesh``."""
        return self._compile(mesh).init(self.run.seed)

    def step(
        self, state: State, text: npt.NDArray[np.uint8], step: int, mesh: Mesh
    ) -> tuple[State, jax.Array]:
        """Takes step ``step``, from 0: returns the new state and the loss. Donates ``state``."""
        run = self.run
        tokens = model.batch_at(
            text,
            seed=run.seed,
            step=step,
            batch=run.global_batch,
            rows=padded_rows(run.global_batch, mesh),
            seq_len=run.config.seq_len,
        )
        rows = NamedSharding(mesh, PartitionSpec(("slice", "fsdp")))
        return self._compile(mesh).step(state, jax.device_put(tokens, rows))


class Checkpoints:
    """The checkpoints of a run; a context manager. Lists committed steps only.

    Args:
        directory: Where they are; an absolute path.
        shield: Makes a context in which no signal raises. Orbax does not survive an exception in
            the midst of its work: the next save, or the end of the process, would hang.
    """

    def __init__(self, directory: Path, shield: Shield = contextlib.nullcontext) -> None:
        self._directory = directory
        self._shield = shield
        with shield():
            self._manager = self._open()

    def _open(self) -> ocp.CheckpointManager:
        return ocp.CheckpointManager(
            self._directory, options=ocp.CheckpointManagerOptions(max_to_keep=2)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._shield():
            try:
                self._manager.close()
            except Exception:
                # A save in flight may have lost its arrays with the slice; then it is never
                # committed. The error that ended the run is the one to report.
                if error is None:
                    raise

    def restore_or_init(self, trainer: Trainer, mesh: Mesh) -> tuple[State, int, bool]:
        """The newest committed state, or the initial one; its step; whether it was restored."""
        step = self._manager.latest_step()
        if step is None:
            return trainer.init(mesh), 0, False
        target = ocp.args.StandardRestore(trainer.abstract_state(mesh))
        with self._shield():
            return self._manager.restore(step, args=target), step, True

    def save(self, step: int, state: State) -> None:
        """Starts to save ``state`` unless it, or a later one, is saved already."""
        latest = self._manager.latest_step()
        if latest is None or step > latest:
            with self._shield():
                self._manager.save(step, args=ocp.args.StandardSave(state), force=True)

    def wait(self) -> None:
        """Returns once everything is committed.

        Raises:
            jax.errors.JaxRuntimeError: A slice was lost before its arrays were read.
        """
        with self._shield():
            self._manager.wait_until_finished()

    def settle(self) -> None:
        """Returns once nothing is being saved: what could not be, for a slice was lost, is not."""
        with self._shield():
            try:
                self._manager.wait_until_finished()
            except jax.errors.JaxRuntimeError:
                # A manager whose save has failed is of no further use.
                with contextlib.suppress(jax.errors.JaxRuntimeError):
                    self._manager.close()
                self._manager = self._open()


def check_same_run(directory: Path, run: Run) -> str | None:
    """Notes ``run`` in a new checkpoint directory; says how it differs from one noted earlier."""
    note, mine = (
        directory / "run.json",
        asdict(run.config)
        | {
            "global_batch": run.global_batch,
            "seed": run.seed,
        },
    )
    directory.mkdir(parents=True, exist_ok=True)
    if not note.exists():
        note.write_text(json.dumps(mine))
        return None
    theirs = json.loads(note.read_text())
    differ = [
        f"{k} {theirs.get(k)} there, {mine[k]} here" for k in mine if theirs.get(k) != mine[k]
    ]
    return "; ".join(differ) or None
