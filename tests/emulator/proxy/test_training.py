# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A whole training program that survives the loss of a slice."""

from collections.abc import Callable
from pathlib import Path

from tests.emulator.proxy.harness import Client, Proxy


def test_training_survives_a_loss_and_grows_again(
    proxy: Proxy, start_client: Callable[..., Client], tmp_path: Path
) -> None:
    client = start_client("training", str(tmp_path / "checkpoints"))
    client.expect("trained")
    proxy.lose(1)
    client.say("lost")
    client.expect("trained")
    proxy.revive(1)
    client.say("revived")
    client.expect("done")
    client.finish()
