# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A service of two slices, and programs that use it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.autocheckpoint.running import Program

import elastic_service
from elastic_service import Service

NETWORK = "127.47.0.0/16"


@pytest.fixture(scope="session")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the service has its files."""
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="session")
def service(directory: Path) -> Iterator[Service]:
    """The service, whose discovery file is ``cluster_env``."""
    with elastic_service.serve(directory, slices=2, network=NETWORK) as running:
        yield running


@pytest.fixture
def cluster_env(service: Service, tmp_path: Path) -> Path:
    """A discovery file in a directory that is the test's own."""
    path = tmp_path / "cluster.env"
    lines = [f"export {name}={value}\n" for name, value in service.variables.items()]
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


@pytest.fixture
def start(cluster_env: Path, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs on the service; what is left of them at the end is killed."""
    started: list[Program] = []

    def one(*argv: str | Path, **environ: str) -> Program:
        environ = {"PATHWAYS_CLUSTER_ENV": str(cluster_env), **environ}
        started.append(Program(tmp_path / f"program-{len(started)}", argv, environ))
        return started[-1]

    yield one
    for program in started:
        program.kill()
