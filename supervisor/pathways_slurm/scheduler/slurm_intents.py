# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What a supervisor notes of its submissions, so that none is ever made twice.

One file per tag, written before sbatch runs. sbatch writes its answer into a file beside it and
inherits the lock of the directory: whoever holds that lock later knows that no sbatch of an earlier
supervisor runs any more, and can read what it was told.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pathways_slurm.files import make_private_dir, write_atomic
from pathways_slurm.locks import try_lock

_ANSWER = re.compile(r"^([1-9][0-9]*)(?:;\S*)?$", re.MULTILINE)
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Intent:
    """A submission that was, or may have been, made.

    Attributes:
        tag: Its name.
        first_incarnation: Of its tasks.
        indices: Of its tasks.
        log_dir: Of its tasks.
        written: Unix time before sbatch was started.
        array_id: Of the array, once it is known to exist.
        answering_since: While it is not known whether Slurm took the array: Unix time since when
            Slurm has answered every look, and shown none; 0 if the last look failed.
        withdrawn: Index and Unix time of each task that was cancelled before it first started:
            Slurm keeps no record of such a task.
    """

    tag: str
    first_incarnation: int
    indices: tuple[int, ...]
    log_dir: str
    written: float
    array_id: str = ""
    answering_since: float = 0.0
    withdrawn: tuple[tuple[int, float], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Intent":
        """Reads what ``format`` wrote. Raises ValueError."""
        try:
            fields = json.loads(text)
            fields["indices"] = tuple(fields["indices"])
            fields["withdrawn"] = tuple((index, since) for index, since in fields["withdrawn"])
            return cls(**fields)
        except (KeyError, TypeError) as fault:
            raise ValueError(f"no record of a submission: {text[:80]!r}") from fault

    def format(self) -> str:
        """For the file."""
        return json.dumps(asdict(self)) + "\n"

    def with_withdrawn(self, indices: Iterable[int], now: float) -> "Intent":
        """The same, knowing that these tasks will never run."""
        added = tuple((i, now) for i in sorted(set(indices) - dict(self.withdrawn).keys()))
        return replace(self, withdrawn=(*self.withdrawn, *added))


class IntentStore:
    """The files of one service below ``directory``, which the first submission creates."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, tag: str) -> Intent | None:
        """The intent with this tag.

        Raises:
            OSError: It can't be read.
            ValueError: It is not one.
        """
        try:
            text = self._path(tag, "json").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return Intent.parse(text)

    def write(self, intent: Intent) -> None:
        """Replaces the intent of its tag. Raises OSError."""
        make_private_dir(self._directory)
        write_atomic(self._path(intent.tag, "json"), intent.format())

    def remove(self, tag: str) -> None:
        """Of a submission that Slurm turned down. Raises OSError."""
        self._path(tag, "json").unlink(missing_ok=True)

    def by_array(self) -> dict[str, Intent]:
        """All submissions whose array is known, by its id. Raises OSError and ValueError."""
        found = {}
        if self._directory.is_dir():
            for path in self._directory.glob("*.json"):
                intent = self.read(path.stem)
                if intent is not None and intent.array_id:
                    found[intent.array_id] = intent
        return found

    def answer_file(self, tag: str) -> Path:
        """Where sbatch writes."""
        return self._path(tag, "sbatch")

    def answer(self, tag: str) -> str:
        """What sbatch has written so far, "" if nothing. Raises OSError."""
        try:
            return self.answer_file(tag).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    @contextlib.contextmanager
    def locked(self, timeout_s: float) -> Iterator[int]:
        """Holds the lock of all submissions; yields its descriptor, for sbatch to inherit.

        Raises:
            TimeoutError: It was not free within ``timeout_s`` seconds.
            OSError: The directory can't be made.
        """
        make_private_dir(self._directory)
        deadline = time.monotonic() + timeout_s
        while (descriptor := try_lock(self._directory / "lock")) is None:
            if time.monotonic() >= deadline:
                raise TimeoutError("another submission of this service is under way")
            time.sleep(_POLL_S)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _path(self, tag: str, kind: str) -> Path:
        return self._directory / f"{tag}.{kind}"


def array_id_in(answer: str) -> str | None:
    """The array's id in what ``sbatch --parsable`` printed, warnings around it or not. Pure."""
    match = _ANSWER.search(answer)
    return None if match is None else match[1]


def settled(intent: Intent, now: float, settle_s: float) -> bool:
    """Whether Slurm has had its time to show an array that it took late. Pure."""
    return 0 < intent.answering_since <= now - settle_s
