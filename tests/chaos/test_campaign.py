# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Random faults on a devcluster. Longer, and with networks to cut: benchmarks/chaos.py."""

import tempfile
from pathlib import Path

import pytest
from slurm.devcluster.cluster import DevCluster
from slurm.devcluster.options import Options
from tests.chaos.campaign import Campaign, Report
from tests.chaos.checker import Checker
from tests.chaos.faults import process_faults
from tests.chaos.faults_service import service_faults
from tests.chaos.faults_slurm import slurm_faults
from tests.chaos.stage import SlurmStage, subject_of

# CI has to be able to say which schedule it was; other seeds are for the benchmark. This one asks
# for 17 kinds, and once for the end of the whole service, which takes as long as ten others.
SEED = 969
FAULTS = 20


@pytest.mark.timeout(600)
def test_no_invariant_breaks_while_faults_come_at_random(tmp_path: Path) -> None:
    report = _campaign(tmp_path)
    print("\n".join(report.lines()))
    assert report.violations == [], "\n".join(report.lines())
    assert report.faults.total() == FAULTS, "\n".join(report.lines())
    assert report.steps > 0


def _campaign(directory: Path) -> Report:
    # pytest's directories have names too long for the daemons' sockets.
    with tempfile.TemporaryDirectory(prefix="devcluster-") as path:
        options = Options(
            Path(path) / "c", slices=4, cred_expire_s=5, kill_wait_s=5, grace_time_s=2
        )
        with DevCluster(options) as cluster:
            stage = SlurmStage(directory / "home", cluster)
            checker = Checker(subject_of(stage))
            faults = [*process_faults(), *service_faults(cleaned_up=True), *slurm_faults(stage)]
            (directory / "training").mkdir()
            campaign = Campaign(stage, faults, checker, directory / "training", print)
            try:
                return campaign.run(SEED, FAULTS)
            finally:
                stage.close()
                checker.close()
