# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The run's record on disk: what a restarted supervisor, or a clean-up, goes on from."""

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pathways_slurm.causes import Cause
from pathways_slurm.files import write_atomic
from pathways_slurm.model import Memory
from pathways_slurm.processes import ProcessIdentity


class RecordError(Exception):
    """The record on disk can't be read."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a service.

    Attributes:
        memory: As of the last plan.
        root: Process the run belongs to; a supervisor adopts the run of its own root only.
        scheduler: Which scheduler holds the run's arrays.
        network: Of the local scheduler, such as ``127.0.0.0/16``; "" for others.
        service_job: The Slurm job that the service is, or "".
    """

    memory: Memory
    root: ProcessIdentity
    scheduler: str
    network: str
    service_job: str = ""


_RECORD = TypeAdapter(RunRecord)


def load_record(path: Path) -> RunRecord | None:
    """The record at ``path``, or None if there is none.

    Raises:
        RecordError: The file is there but is not a record.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return _RECORD.validate_json(_in_todays_form(data))
    except ValidationError as error:
        raise RecordError(
            f"{path} is not a run record of this version ({error.error_count()} faults; first: "
            f"{error.errors()[0]['msg']}). Make sure that nothing of the service runs, "
            "then remove the file"
        ) from error


def _in_todays_form(data: bytes) -> bytes:
    """The record with what earlier versions wrote otherwise; anything else as it is."""
    try:
        record = json.loads(data)
    except ValueError:
        return data
    match record:
        case {"memory": {"slices": dict() as slices}}:
            for kept in slices.values():
                # Restarts were not told apart by cause.
                if isinstance(kept, dict) and kept.get("failures"):
                    kept.setdefault("spent", {Cause.CRASH.value: kept["failures"]})
    return json.dumps(record).encode()


def save_record(path: Path, record: RunRecord) -> None:
    """Writes the record atomically. Raises OSError when the disk does not take it."""
    write_atomic(path, _RECORD.dump_json(record, indent=1))
