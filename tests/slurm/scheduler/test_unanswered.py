# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a submission that has no answer, and of a Slurm that gives none."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
from slurm.devcluster.cluster import DevCluster
from tests.slurm.scheduler.harness import SlurmHarness

from pathways_slurm.scheduler.base import ArraySpec, SchedulerUnavailable
from pathways_slurm.scheduler.slurm import SlurmScheduler
from pathways_slurm.scheduler.slurm_command import Completed, run_command
from pathways_slurm.scheduler.slurm_options import SlurmOptions


class Meddler:
    """Runs commands as ever, but for the first sbatch: ``before`` it, ``after`` it, its answer."""

    def __init__(self, cluster: DevCluster) -> None:
        self.cluster = cluster
        self.submissions = 0
        self.hang = False
        self.lose_answer = False

    def __call__(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        timeout_s: float,
        *,
        output: IO[bytes] | None = None,
        keep: Collection[int] = (),
    ) -> Completed:
        if Path(argv[0]).name != "sbatch":
            return run_command(argv, environment, timeout_s, output=output, keep=keep)
        self.submissions += 1
        if self.submissions > 1:
            return run_command(argv, environment, timeout_s, output=output, keep=keep)
        if self.hang:
            self.cluster.hang_slurmctld()
        done = run_command(argv, environment, timeout_s, output=output, keep=keep)
        if self.lose_answer:
            assert output is not None
            output.truncate(0)
            return replace(done, code=None)
        return done


def meddled(harness: SlurmHarness, meddler: Meddler, timeout_s: float = 15.0) -> SlurmScheduler:
    """A scheduler whose commands ``meddler`` runs."""
    return SlurmScheduler(
        harness.notes,
        SlurmOptions(partition=harness.partition),
        timeout_s=timeout_s,
        settle_s=2.0,
        environment={**os.environ, "SLURM_CONF": str(harness.cluster.conf)},
        runner=meddler,
    )


def submitted(harness: SlurmHarness, scheduler: SlurmScheduler, spec: ArraySpec) -> str:
    """The array, once the scheduler knows that there is one."""

    def attempt() -> str:
        try:
            return scheduler.submit(spec)
        except SchedulerUnavailable:
            return ""

    return harness.until(attempt, f"{spec.tag} is submitted")


class TestASubmissionWithoutAnAnswer:
    def test_that_slurm_takes_later_is_adopted(
        self, harness: SlurmHarness, cluster: DevCluster
    ) -> None:
        spec = harness.spec(slices=2)
        meddler = Meddler(cluster)
        meddler.hang = True
        scheduler = meddled(harness, meddler, timeout_s=1.0)
        try:
            with pytest.raises(SchedulerUnavailable, match="sbatch gave no answer within 1 s"):
                scheduler.submit(spec)
            for verb in (scheduler.find, harness.slurm_factory(timeout_s=1.0)().find):
                with pytest.raises(SchedulerUnavailable):
                    verb(spec.tag)
        finally:
            cluster.resume_slurmctld()
        array = submitted(harness, harness.slurm_factory()(), spec)
        harness.running(array)
        assert meddler.submissions == 1
        assert harness.arrays(spec.tag) == {array}
        assert len(harness.reports()) == 2

    def test_that_was_taken_at_once_is_found_by_its_name(
        self, harness: SlurmHarness, cluster: DevCluster
    ) -> None:
        spec = harness.spec(slices=2)
        meddler = Meddler(cluster)
        meddler.lose_answer = True
        scheduler = meddled(harness, meddler)
        with pytest.raises(SchedulerUnavailable):
            scheduler.submit(spec)
        (array,) = harness.arrays(spec.tag)
        assert scheduler.find(spec.tag) == array
        assert scheduler.submit(spec) == array
        assert meddler.submissions == 1
        harness.running(array)

    def test_that_never_arrived_is_made_again(
        self, harness: SlurmHarness, cluster: DevCluster
    ) -> None:
        spec = harness.spec()
        cluster.stop_slurmctld()
        try:
            with pytest.raises(SchedulerUnavailable):
                harness.slurm_factory(timeout_s=3.0)().submit(spec)
        finally:
            cluster.start_slurmctld()
        array = submitted(harness, harness.slurm_factory()(), spec)
        harness.running(array)
        assert harness.arrays(spec.tag) == {array}

    def test_a_second_array_of_the_same_tag_is_cancelled(self, harness: SlurmHarness) -> None:
        spec = harness.spec()
        scheduler = harness.scheduler()
        first = scheduler.submit(spec)
        harness.running(first)
        second = harness.slurm(
            "sbatch",
            "--parsable",
            f"--job-name=pathways-{spec.tag}",
            "--partition=tpu",
            "--array=0",
            "--output=/dev/null",
            "--wrap=sleep 100",
        ).strip()
        before = scheduler.tasks([first])
        state = ["squeue", "-h", "-t", "all", "-j", second, "-O", "State:0"]
        harness.until(lambda: harness.slurm(*state).strip() == "CANCELLED", "it is cancelled")
        assert scheduler.tasks([first]) == before
        assert scheduler.find(spec.tag) == first


class TestSlurmctldAway:
    def test_is_no_loss(self, harness: SlurmHarness, cluster: DevCluster) -> None:
        array = harness.scheduler().submit(harness.spec(slices=2, hosts=2))
        scheduler = harness.slurm_factory(timeout_s=0.5)()
        before = harness.running(array)
        for away, back in (
            (cluster.hang_slurmctld, cluster.resume_slurmctld),
            (cluster.stop_slurmctld, cluster.start_slurmctld),
        ):
            away()
            try:
                for look in (
                    lambda: scheduler.tasks([array]),
                    lambda: scheduler.requeue(f"{array}_0"),
                    lambda: scheduler.release(f"{array}_0"),
                    lambda: scheduler.cancel([f"{array}_0"]),
                    lambda: scheduler.find("no-such-tag"),
                ):
                    with pytest.raises(SchedulerUnavailable):
                        look()
            finally:
                back()
            assert harness.running(array) == before
        assert len(harness.reports()) == 4
