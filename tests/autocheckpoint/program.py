# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A training program as a user has it: connect(), then Orbax as anywhere.

    python tests/autocheckpoint/program.py DIRECTORY [--policy] [--chain] …

Each line it prints is an event, flushed. What it computes shows which step a checkpoint is of.
"""

import argparse
import itertools
import logging
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import pathways_elastic

STEP_S = 0.05
# Steps between the saves of the program's own schedule.
NEVER = 10**6


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--first-until", type=Path, help="the first step ends with this file")
    parser.add_argument("--block-commit", type=Path, help="commits wait until this file is there")
    parser.add_argument("--chain", action="store_true", help="has a SIGTERM handler of its own")
    parser.add_argument("--policy", action="store_true", help="has a save policy of its own")
    parser.add_argument("--on", type=float, help="turns it on, with so many seconds, and ends")
    parser.add_argument("--verbose", action="store_true", help="logs what the library says")
    return parser.parse_args()


def say(words: str) -> None:
    print(words, flush=True)


def own_handler(_number: int, _frame: FrameType | None) -> None:
    # Not say(): the signal may have interrupted just that.
    os.write(sys.stdout.fileno(), b"own handler\n")


def block_commits(until: Path) -> None:
    """As a storage that hangs: checkpoints are written, and not committed."""
    from orbax.checkpoint._src.path import atomicity

    finalize = atomicity.AtomicRenameTemporaryPath.finalize

    async def blocked(self: object, *args: object, **kwargs: object) -> None:
        say("committing")
        while not until.exists():
            time.sleep(0.02)
        await finalize(self, *args, **kwargs)

    atomicity.AtomicRenameTemporaryPath.finalize = blocked


def main() -> None:
    options = parse()
    if options.verbose:
        logging.basicConfig()
        logging.getLogger("pathways_elastic").setLevel(logging.INFO)
    if options.chain:
        signal.signal(signal.SIGTERM, own_handler)
    if options.on is None:
        devices = pathways_elastic.connect()
    else:
        devices = pathways_elastic.connect(
            autocheckpoint=True,
            exit_after_autocheckpoint=True,
            autocheckpoint_timeout_s=options.on,
        )

    import jax
    import jax.numpy as jnp
    import numpy as np
    import orbax.checkpoint as ocp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if options.block_commit:
        block_commits(options.block_commit)
    sharding = NamedSharding(Mesh(np.array(devices), ("all",)), PartitionSpec("all"))
    state = {"x": jax.device_put(jnp.zeros((len(devices), 2**15), jnp.float32), sharding)}
    update = jax.jit(lambda s: {"x": s["x"] + 1}, donate_argnums=0)
    policy = None
    if options.policy:
        policy = ocp.checkpoint_managers.FixedIntervalPolicy(NEVER)
    manager_options = ocp.CheckpointManagerOptions(
        save_interval_steps=NEVER, save_decision_policy=policy
    )
    with ocp.CheckpointManager(options.directory, options=manager_options) as manager:
        first = 1
        if (latest := manager.latest_step()) is not None:
            target = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state
            )
            state = manager.restore(latest, args=ocp.args.StandardRestore(target))
            first = latest + 1
            say(f"restored {latest} {float(state['x'][0, 0]):.0f}")
        say("ready")
        while options.first_until and not options.first_until.exists():
            time.sleep(0.02)
        for step in itertools.count(first):
            state = update(state)
            jax.block_until_ready(state)
            say(f"step {step}")
            if manager.save(step, args=ocp.args.StandardSave(state)):
                say(f"saved {step}")
            time.sleep(STEP_S)


if __name__ == "__main__":
    main()
