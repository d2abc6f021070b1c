# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service of three slices, of which the tests' own process is the client."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

# Before JAX is imported: XLA's client warns of each array of a lost slice otherwise.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import jax
import pathwaysutils
import pytest
from pathwaysutils.elastic import elastic

import elastic_service
from elastic_service import Service
from pathways_elastic.detection import Liveness, slices_of
from pathways_elastic.manager import Event, Manager

# How long anything that should happen may take on a busy machine.
PATIENCE_S = 60.0


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service, whatever state its slices are in."""
    directory = tmp_path_factory.mktemp("service")
    with elastic_service.serve(directory) as service, pytest.MonkeyPatch.context() as patch:
        for name, value in service.variables.items():
            patch.setenv(name, value)
        # serve says that it has as many as there are.
        patch.setenv("PATHWAYS_MIN_SLICES", "1")
        # JAX has read these two when it was imported.
        jax.config.update("jax_platforms", service.variables["JAX_PLATFORMS"])
        jax.config.update("jax_backend_target", service.variables["JAX_BACKEND_TARGET"])
        pathwaysutils.initialize()
        yield service
        elastic_service.release_jax()


@pytest.fixture
def service(running: Service) -> Iterator[Service]:
    """The service with all slices alive, before the test and after it."""
    heal(running)
    yield running
    heal(running)


def heal(service: Service) -> None:
    """Has all slices come back; returns when they can be used."""
    for index in service.slices:
        service.revive(index)
    slices = slices_of(jax.devices())
    checker = Liveness(slices, 10.0)
    elastic.wait_for_slices(
        poll_interval=0.05, timeout=PATIENCE_S, slice_to_devices=slices, checker=checker
    )


@pytest.fixture
def events() -> list[Event]:
    """What the manager of the test has told."""
    return []


@pytest.fixture
def make_manager(service: Service, events: list[Event]) -> Iterator[Callable[..., Manager]]:
    """Makes managers with short waits, and closes them."""
    made: list[Manager] = []

    def make(**options: Any) -> Manager:
        defaults: dict[str, Any] = {
            "snapshot_period": 2,
            "snapshot_buffer_size": 2,
            "reshard_check_period": 1,
            "max_elastic_down_event_count": 10,
            "max_reshard_retry_count": 3,
            "poll_interval_s": 0.1,
            "slices_timeout_s": PATIENCE_S,
            "probe_timeout_s": 20.0,
            "handler_timeout_s": PATIENCE_S,
            "on_event": events.append,
        }
        made.append(Manager(jax.devices(), **{**defaults, **options}))
        return made[-1]

    assert service.variables["JAX_BACKEND_TARGET"] == os.environ["JAX_BACKEND_TARGET"]
    yield make
    for manager in made:
        manager.close()


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Returns once the condition holds."""
    wait_for(lambda: condition() or None, what)


def wait_for(look: Callable[[], Any], what: str) -> Any:
    """The first answer that is not None."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.01)
    return found
