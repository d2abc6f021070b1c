# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What MaxText is told."""

from pathlib import Path

import pytest

from pathways_slurm import maxtext

SERVICE = {"PATHWAYS_MIN_SLICES": "2", "PATHWAYS_MAX_SLICES": "3"}


def words(*given: str) -> maxtext.Words:
    read, faults = maxtext.parse(given)
    assert faults == []
    return read


def test_words_are_handed_on_as_they_were_given() -> None:
    given = ("my.yml", "steps=5", "rules=[['a', 'b=c']]", "empty=", "a.b=1")
    assert words(*given).argv() == given


def test_every_word_that_is_wrong_is_named() -> None:
    _, faults = maxtext.parse(["steps=5", "other.yml", "--steps", "=5", "5=a"])
    assert [fault.partition(" ")[0] for fault in faults] == [
        "'other.yml':",
        "'--steps'",
        "'=5'",
        "'5=a'",
    ]


def test_elastic_settings_follow_from_the_service() -> None:
    assert maxtext.of_service(words("steps=5"), SERVICE) == {
        "hardware": "tpu",
        "enable_single_controller": "true",
        "skip_jax_distributed_system": "true",
        "elastic_enabled": "true",
        "elastic_min_slice_count": "2",
        "elastic_timeout_seconds": "3600",
        "elastic_max_retries": "300",
    }


def test_a_key_of_the_users_is_not_changed() -> None:
    given = words("elastic_max_retries=7", "hardware=cpu")
    whole = given.with_defaults(maxtext.of_service(given, SERVICE), {})
    assert whole.keys["elastic_max_retries"] == "7"
    assert whole.keys["hardware"] == "cpu"
    assert whole.keys["elastic_min_slice_count"] == "2"
    assert [word.partition("=")[0] for word in whole.argv()].count("hardware") == 1


def test_a_key_that_the_environment_gives_is_not_given_twice() -> None:
    environ = {**SERVICE, "M_ELASTIC_TIMEOUT_SECONDS": "60"}
    whole = words("steps=5").with_defaults(maxtext.of_service(words("steps=5"), environ), environ)
    assert "elastic_timeout_seconds" not in whole.keys


@pytest.mark.parametrize(
    ("given", "environ"),
    [("elastic_enabled=false", {}), ("steps=5", {"M_ELASTIC_ENABLED": "False"})],
)
def test_without_elasticity_nothing_is_said_of_it(given: str, environ: dict[str, str]) -> None:
    keys = words(given).with_defaults(
        maxtext.of_service(words(given), {**SERVICE, **environ}), environ
    )
    assert [key for key in keys.keys if key.startswith("elastic_")] in ([], ["elastic_enabled"])
    assert keys.value("elastic_enabled", environ) in ("false", "False")


def test_a_job_has_the_same_place_whenever_it_runs() -> None:
    home = Path("/shared/home")
    first = maxtext.place("44_3", home, "now")
    assert first == maxtext.place("44_3", home, "later")
    assert first == {
        "run_name": "maxtext-44_3",
        "base_output_directory": "/shared/home/maxtext",
    }
    assert maxtext.place(None, home, "now")["run_name"] == "maxtext-now"


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("run_name: mine\n", {"run_name"}),
        ("run_name: 'mine'  # a name\nbase_output_directory: gs://b\n", set(maxtext.PLACE)),
        ("run_name: \nbase_output_directory: ''\n", set()),
        ('run_name: ""  # none\nbase_output_directory:   # none\n', set()),
        ("# run_name: mine\nother:\n  run_name: mine\nwandb_run_name: mine\n", set()),
    ],
)
def test_a_place_that_a_configuration_names_is_known(text: str, own: set[str]) -> None:
    assert maxtext.own_place(text) == own


@pytest.mark.parametrize(
    ("output", "environ", "added", "cloud"),
    [
        ("/shared/out", {}, {"DECOUPLE_GCLOUD": "TRUE"}, False),
        ("gs://bucket/out", {}, {}, True),
        ("gs://bucket/out", {"DECOUPLE_GCLOUD": "TRUE"}, {}, False),
        ("/shared/out", {"DECOUPLE_GCLOUD": "FALSE"}, {}, False),
    ],
)
def test_googles_libraries_are_for_buckets(
    output: str, environ: dict[str, str], added: dict[str, str], cloud: bool
) -> None:
    given = words(f"base_output_directory={output}")
    assert maxtext.variables(given, environ) == added
    assert maxtext.needs_cloud_storage(given, environ) is cloud


def test_autocheckpoints_are_made_if_they_are_asked_for() -> None:
    asked = {**SERVICE, "ENABLE_AUTOCHECKPOINT": "True"}
    assert maxtext.module(asked) == "pathways_elastic.maxtext"
    assert maxtext.of_service(words(), asked)["enable_autocheckpoint"] == "true"
    assert maxtext.module({"ENABLE_AUTOCHECKPOINT": "0"}) == maxtext.MODULE
    assert "enable_autocheckpoint" not in maxtext.of_service(words(), SERVICE)
    with pytest.raises(ValueError, match="ENABLE_AUTOCHECKPOINT is 'yes'; valid: true or false"):
        maxtext.module({"ENABLE_AUTOCHECKPOINT": "yes"})


def test_training_without_checkpoints_is_warned_of() -> None:
    assert list(maxtext.warnings(words("steps=5"), {})) == []
    (warning,) = maxtext.warnings(words("enable_checkpointing=False"), {})
    assert "begins at step 0" in warning
