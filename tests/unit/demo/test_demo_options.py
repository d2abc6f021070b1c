# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's command line."""

import pytest

import demo


def test_defaults() -> None:
    options = demo.parse_options([])
    assert (options.slices, options.slice_shape, options.min_slices) == (3, "2x2", 2)
    assert not options.keep
    assert options.json is None


def test_two_slices_go_on_with_one() -> None:
    assert demo.parse_options(["--slices", "2"]).min_slices == 1


def test_every_bad_option_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "--slices 1 --min-slices 3 --steps 9 --slice-shape 3x4 --json /nowhere/at/all"
    with pytest.raises(SystemExit) as ended:
        demo.parse_options(bad.split())
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
        demo.parse_options(["--min-slices", min_slices])
    told = capsys.readouterr().err
    assert "< --slices (3), so that training can go on without" in told
    assert f"got {min_slices}" in told
