# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Where a service keeps its files. Needs no other setting than the service's home and name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pathways_slurm import notices

DEFAULT_NAME = "pathways"

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
NAME_VALID = "1 to 32 characters of a-z, 0-9 and -, with - neither first nor last"


@dataclass(frozen=True, slots=True)
class ServicePaths:
    """All paths of one service below ``directory``."""

    directory: Path

    @classmethod
    def of(cls, home: Path, name: str = DEFAULT_NAME) -> "ServicePaths":
        """The default service lives in ``home`` itself, one of another name below ``services/``."""
        return cls(home if name == DEFAULT_NAME else home / "services" / name)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "ServicePaths":
        """From PATHWAYS_HOME (default ~/pathways) and PATHWAYS_NAME, for commands that look only.

        Raises:
            ValueError: The home is not absolute or the name is not a plain word.
        """
        home = environ.get("PATHWAYS_HOME", "").strip() or "~/pathways"
        name = environ.get("PATHWAYS_NAME", "").strip() or DEFAULT_NAME
        try:
            path = Path(home).expanduser()
        except RuntimeError as error:
            raise ValueError(f"PATHWAYS_HOME is {home!r}: {error}") from None
        if not path.is_absolute():
            raise ValueError(f"PATHWAYS_HOME is {home!r}; it must be an absolute path")
        if not NAME.fullmatch(name):
            raise ValueError(f"PATHWAYS_NAME is {name!r}; valid: {NAME_VALID}")
        return cls.of(path, name)

    @property
    def cluster_env(self) -> Path:
        """The discovery file."""
        return self.directory / "cluster.env"

    @property
    def notices(self) -> Path:
        """What programs must know of slices that go; beside the discovery file."""
        return self.directory / notices.FILE

    @property
    def acknowledgements(self) -> Path:
        """What programs answer to that."""
        return self.directory / notices.DIRECTORY

    @property
    def events(self) -> Path:
        """Every transition, one JSON object a line."""
        return self.directory / "events.jsonl"

    @property
    def logs(self) -> Path:
        """Output of every component and host."""
        return self.directory / "logs"

    @property
    def state(self) -> Path:
        """What the supervisor keeps for itself."""
        return self.directory / "state"

    @property
    def lock(self) -> Path:
        """Held by the one living supervisor."""
        return self.state / "lock"

    @property
    def root_lock(self) -> Path:
        """Held by ``up`` as long as it keeps a supervisor running."""
        return self.state / "root.lock"

    @property
    def record(self) -> Path:
        """The run's memory, written before each side effect."""
        return self.state / "run.json"

    @property
    def status(self) -> Path:
        """What ``status`` shows."""
        return self.state / "status.json"

    @property
    def report(self) -> Path:
        """The resource manager's, for the supervisor."""
        return self.state / "report.json"

    @property
    def orders(self) -> Path:
        """The supervisor's, for the resource manager."""
        return self.state / "orders.json"

    @property
    def maintenance(self) -> Path:
        """Requests for maintenance, one file a slice."""
        return self.state / "maintenance"

    @property
    def local_arrays(self) -> Path:
        """The local scheduler's directory."""
        return self.state / "local"

    @property
    def slurm_arrays(self) -> Path:
        """The Slurm scheduler's notes of its submissions."""
        return self.state / "slurm"

    def component_status(self, component: str) -> Path:
        """Written by the component's guard."""
        return self.state / f"{component}.json"

    def component_log(self, component: str) -> Path:
        """The component's output, appended."""
        return self.logs / f"{component}.log"
