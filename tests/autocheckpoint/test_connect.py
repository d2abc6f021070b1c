# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""connect() and a real service."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.autocheckpoint.running import PYTHON, Program

from elastic_service import Service

CONNECTING = Path(__file__).with_name("connecting.py")


@pytest.mark.timeout(600)
def test_it_waits_for_service_and_slices_in_a_running_event_loop_and_may_be_called_again(
    start: Callable[..., Program], service: Service, cluster_env: Path, tmp_path: Path
) -> None:
    service.kill(1)
    program = start(PYTHON, CONNECTING, cluster_env, tmp_path)
    # The file came while it was waited for.
    program.wait_to_say(r"cell 1: waiting for the service: .*late\.env is not there.*")
    program.wait_to_say(r"SliceShortageError: 3 slices are wanted, .* has 2 at most.*MAX_SLICES.*")
    program.wait_to_say(
        r"SliceShortageError: too few slices in time: slices \[0\] answer, and 2 .*"
    )
    program.wait_to_say(r"cell 2: waiting for slices: slices \[0\] answer, and 2 are wanted .*")
    service.revive(1)
    program.wait_to_say("connected 8")
    program.wait_to_say(r"computed 6\.0")
    program.wait_to_say(r"OtherBackendError: .* connected to grpc://127\.47\..*restart the kernel")
    assert program.wait() == 0, program


@pytest.mark.timeout(600)
def test_a_program_that_has_computed_elsewhere_is_told_what_to_change(
    start: Callable[..., Program],
) -> None:
    program = start(
        *(PYTHON, "-c"),
        "import jax; jax.numpy.zeros(1); import pathways_elastic; pathways_elastic.connect()",
        JAX_PLATFORMS="cpu",
    )
    assert program.wait() == 1
    assert "OtherBackendError: JAX was initialized on cpu before connect()" in program.log
