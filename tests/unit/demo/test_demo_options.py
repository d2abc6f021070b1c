# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's command line."""

from pathlib import Path

import pytest

from demo_options import parse_options


def test_defaults() -> None:
    options = parse_options([])
    assert (options.slices, options.slice_shape, options.min_slices) == (3, "2x2", 2)
    assert (options.hosts, options.chips_per_host) == (1, 4)
    assert not options.slurm
    assert not options.keep
    assert options.json is None


def test_two_slices_go_on_with_one() -> None:
    assert parse_options(["--slices", "2"]).min_slices == 1


def test_every_bad_option_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "--slices 1 --min-slices 3 --steps 9 --slice-shape 3x4 --json /nowhere/at/all"
    with pytest.raises(SystemExit) as ended:
        parse_options(bad.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "--slices must be >= 2, as one is killed; got 1" in told
    assert "--min-slices must be >= 1 and < --slices (1)" in told
    assert "--steps must be >= 30, got 9" in told
    assert "--json: there is no directory /nowhere/at" in told
    assert "--slice-shape: v6e has no slice shape 3x4. Valid shapes" in told


@pytest.mark.parametrize("min_slices", ["0", "3"])
def test_training_must_be_able_to_go_on(
    min_slices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--min-slices", min_slices])
    told = capsys.readouterr().err
    assert "< --slices (3), so that training can go on without" in told
    assert f"got {min_slices}" in told


def test_with_slurm_a_slice_has_two_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo_options.find_programs", lambda: None)
    options = parse_options(["--slurm"])
    assert options.slurm
    assert (options.slice_shape, options.hosts, options.chips_per_host) == ("2x4", 2, 4)
    assert parse_options(["--slurm", "--slice-shape", "4x4"]).hosts == 4


def test_what_slurm_lacks_is_told_with_the_rest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    far = tmp_path / ("x" * 60)
    far.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(far))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("slurm.devcluster.programs._SEARCH", ())
    with pytest.raises(SystemExit) as ended:
        parse_options(["--slurm", "--slices", "40", "--steps", "9"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "--steps must be >= 30, got 9" in told
    assert "--slurm: not installed: slurmctld, slurmd, sinfo, scontrol, munged" in told
    assert "--slurm: 1 CPU nodes and 40 slices of 2 hosts are 81 nodes" in told
    assert f"--slurm: --dir {far}/pathways-demo-" in told


def test_options_are_not_abbreviated() -> None:
    # demo.sh looks for them as they are.
    with pytest.raises(SystemExit):
        parse_options(["--slur"])
