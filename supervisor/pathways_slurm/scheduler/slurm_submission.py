# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Submits an array at most once, whatever becomes of sbatch and of whoever runs it.

A submission whose outcome is not known is only looked for: Slurm may take it long after sbatch
gave up. It is made again once Slurm has answered every look for a while and shown no such array.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pathways_slurm.files import make_private_dir
from pathways_slurm.scheduler.base import ArraySpec, SchedulerError, SchedulerUnavailable
from pathways_slurm.scheduler.slurm_command import (
    SlurmClient,
    is_unavailable,
    is_undelivered,
    refusal,
)
from pathways_slurm.scheduler.slurm_intents import Intent, IntentStore, array_id_in, settled
from pathways_slurm.scheduler.slurm_options import SlurmOptions, job_name, sbatch_argv
from pathways_slurm.scheduler.slurm_parse import Row
from pathways_slurm.scheduler.spec_checks import (
    kept_environment,
    number_faults,
    program_faults,
    text_faults,
)

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Between an sbatch that was killed before it said anything and the next.
_SILENT_SETTLE_S = 1.0
_POLL_S = 0.1
# Slurm's and sbatch's own: the job's environment must not decide about them.
_RESERVED = ("SLURM", "SBATCH_", "SRUN_")


class Submissions:
    """The submissions of one service."""

    def __init__(
        self,
        client: SlurmClient,
        intents: IntentStore,
        options: SlurmOptions,
        script: Path,
        settle_s: float,
    ) -> None:
        self._client = client
        self._intents = intents
        self._options = options
        self._script = script
        self._settle_s = settle_s

    def find(self, tag: str, look: Callable[[], tuple[Row, ...]]) -> str | None:
        """The id of the array with this tag, None if there is none.

        Raises:
            SchedulerUnavailable: Not known: no answer, or Slurm may yet take a submission.
        """
        if not _TAG.fullmatch(tag):
            return None
        with _files():
            intent = self._intents.read(tag)
            if intent is not None and intent.array_id:
                return intent.array_id
            if intent is None:
                return _listed(tag, look())
            with self._intents.locked(0.0):
                return self._known(tag, look)

    def submit(
        self,
        spec: ArraySpec,
        look: Callable[[], tuple[Row, ...]],
        constraint: Callable[[], str],
        environment: Mapping[str, str],
    ) -> str:
        """The id of the array with this tag, which is submitted if there is none.

        Args:
            spec: What to submit.
            look: All jobs of the user.
            constraint: What keeps a task inside one slice; called before the submission only.
            environment: Of the submitter.

        Raises:
            SchedulerError: It can't be met, or Slurm refuses it.
            SchedulerUnavailable: Not known to be submitted; the next call looks for it first.
        """
        if faults := _faults(spec):
            raise SchedulerError(f"array {spec.tag!r} can't be submitted: {'; '.join(faults)}")
        with _files(), self._intents.locked(self._client.timeout_s) as lock:
            known = self._known(spec.tag, look, patience_s=2 * _SILENT_SETTLE_S)
            if known is not None:
                return known
            argv = sbatch_argv(spec, self._options, constraint(), self._script)
            return self._sbatch(spec, argv, environment, lock)

    def by_array(self) -> dict[str, Intent]:
        """All submissions whose array is known, by its id. Raises SchedulerUnavailable."""
        with _files():
            return self._intents.by_array()

    def withdraw(
        self, array_id: str, indices: Collection[int], now: float, timeout_s: float
    ) -> None:
        """Notes that tasks which never ran were cancelled, of which Slurm keeps no record.

        Raises:
            SchedulerUnavailable: It could not be noted.
        """
        with _files(), self._intents.locked(timeout_s):
            intent = self._intents.by_array().get(array_id)
            if intent is not None:
                self._intents.write(intent.with_withdrawn(indices, now))

    def _known(
        self, tag: str, look: Callable[[], tuple[Row, ...]], patience_s: float = 0.0
    ) -> str | None:
        """As ``find``, but with the lock held: no sbatch of this service runs."""
        deadline = time.monotonic() + patience_s
        while True:
            intent = self._intents.read(tag)
            if intent is None:
                return _listed(tag, look())
            if intent.array_id:
                return intent.array_id
            answer = self._intents.answer(tag)
            if (array_id := array_id_in(answer)) is not None:
                return self._learned(intent, array_id)
            rows = self._look_in_doubt(intent, look)
            if (array_id := _listed(tag, rows)) is not None:
                return self._learned(intent, array_id)
            settle_s = self._settle_s if answer.strip() else _SILENT_SETTLE_S
            intent = self._intents.read(tag) or intent
            if settled(intent, time.time(), settle_s):
                return None
            if settle_s > patience_s or time.monotonic() >= deadline:
                raise SchedulerUnavailable(
                    f"sbatch for {tag} ended without a clear answer "
                    f"({answer.strip() or 'killed before it said anything'}), so Slurm may yet "
                    f"take the array; it is submitted again if Slurm shows none for {settle_s:g} s"
                )
            time.sleep(_POLL_S)

    def _look_in_doubt(
        self, intent: Intent, look: Callable[[], tuple[Row, ...]]
    ) -> tuple[Row, ...]:
        now = time.time()
        try:
            rows = look()
        except SchedulerUnavailable:
            if intent.answering_since:
                self._intents.write(replace(intent, answering_since=0.0))
            raise
        # A time of the future is that of a clock that has been set back.
        if not 0 < intent.answering_since <= now:
            self._intents.write(replace(intent, answering_since=now))
        return rows

    def _learned(self, intent: Intent, array_id: str) -> str:
        self._intents.write(replace(intent, array_id=array_id, answering_since=0.0))
        return array_id

    def _sbatch(
        self,
        spec: ArraySpec,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        lock: int,
    ) -> str:
        for index in spec.indices:
            make_private_dir(spec.log_dir.absolute() / f"slice-{index}")
        # The old answer first: it must not be taken for that of the new intent.
        answer_file = self._intents.answer_file(spec.tag)
        descriptor = os.open(
            answer_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "wb") as output:
            intent = Intent(
                tag=spec.tag,
                first_incarnation=spec.first_incarnation,
                indices=tuple(sorted(spec.indices)),
                log_dir=str(spec.log_dir.absolute()),
                written=time.time(),
            )
            self._intents.write(intent)
            done = self._client.run(
                argv, job_environment(spec, environment), output=output, keep=[lock]
            )
        answer = self._intents.answer(spec.tag)
        if (array_id := array_id_in(answer)) is not None:
            return self._learned(intent, array_id)
        done = replace(done, err=answer)
        if done.code is None:
            # In the file, because the next supervisor must see that Slurm was asked.
            answer_file.write_text(f"{answer}\nno answer in {self._client.timeout_s:g} s\n")
            raise SchedulerUnavailable(
                f"sbatch gave no answer within {self._client.timeout_s:g} s; Slurm may yet take "
                f"the array {spec.tag}, so it is looked for before anything is submitted again"
            )
        if is_unavailable(done.words):
            if is_undelivered(done.words):
                self._intents.remove(spec.tag)
            raise SchedulerUnavailable(f"sbatch failed: {done.words}")
        self._intents.remove(spec.tag)
        raise refusal(done, f"array {spec.tag} was not taken")


def job_environment(spec: ArraySpec, environment: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of sbatch, and so of the job. Pure.

    Its own part is where Slurm is; nothing else of the submitter's SLURM_* may reach an inner job.
    """
    where = {name: environment[name] for name in ("SLURM_CONF",) if name in environment}
    return kept_environment(environment) | where | dict(spec.env)


def _faults(spec: ArraySpec) -> list[str]:
    faults = [*number_faults(spec), *program_faults(spec), *text_faults(spec)]
    if spec.tag and not _TAG.fullmatch(spec.tag):
        faults.append(f"tag {spec.tag!r} must be 1 to 128 letters, digits, '.', '_' and '-'")
    for name in spec.env:
        if name.startswith(_RESERVED):
            faults.append(f"variable {name} is read by Slurm itself and can't be passed on")
    return faults


def _listed(tag: str, rows: tuple[Row, ...]) -> str | None:
    """The oldest array with this tag: a later one can only be a second one."""
    arrays = {row.array for row in rows if row.name == job_name(tag) and row.index is not None}
    return min(arrays, key=int, default=None)


@contextlib.contextmanager
def _files() -> Iterator[None]:
    """What keeps us from our own notes says nothing about any array."""
    try:
        yield
    except TimeoutError as fault:
        raise SchedulerUnavailable(str(fault)) from fault
    except (OSError, ValueError) as fault:
        raise SchedulerUnavailable(f"could not use the notes of submissions: {fault}") from fault
