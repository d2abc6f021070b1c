# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``pathways-slurm maxtext`` with a MaxText that says with what it was started."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.waiting import Case

STANDIN = """
import json, os, sys, time
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
said = {"argv": sys.argv[1:], "words": words, "environ": dict(os.environ)}
with open(os.environ["D"] + "/runs", "a") as file:
    file.write(json.dumps(said) + "\\n")
while words.get("model_name") == "forever":
    time.sleep(0.05)
sys.exit(int(words.get("steps", 0)))
"""


@pytest.fixture
def standin(case: Case) -> Case:
    """The case, with a MaxText in its environment."""
    package = case.directory / "packages" / "maxtext" / "trainers" / "pre_train"
    package.mkdir(parents=True)
    (package / "train.py").write_text(STANDIN)
    for directory in (package, package.parent, package.parent.parent):
        (directory / "__init__.py").touch()
    case.environ = {"PYTHONPATH": str(case.directory / "packages")}
    return case


def runs(case: Case) -> list[dict[str, Any]]:
    return [json.loads(line) for line in case.lines("runs")]


def ended(case: Case, *argv: str) -> tuple[int, str]:
    """Exit code and errors of the command."""
    process = case.call("maxtext", *argv)
    _, err = process.communicate(timeout=60)
    return process.returncode, err


def test_maxtext_gets_what_follows_from_the_service_and_its_exit_code_is_passed_on(
    standin: Case,
) -> None:
    code, err = ended(standin, "--restarts", "0", "model_name=m", "steps=7", "hardware=cpu")
    assert code == 7
    (run,) = runs(standin)
    assert run["words"] | {"run_name": ""} == {
        "enable_single_controller": "true",
        "skip_jax_distributed_system": "true",
        "elastic_enabled": "true",
        "elastic_min_slice_count": "1",
        "elastic_timeout_seconds": "3600",
        "elastic_max_retries": "200",
        "run_name": "",
        "base_output_directory": str(standin.directory / "maxtext"),
        "model_name": "m",
        "steps": "7",
        "hardware": "cpu",
    }
    assert run["environ"]["JAX_PLATFORMS"] == "proxy"
    assert run["environ"]["DECOUPLE_GCLOUD"] == "TRUE"
    assert "-m maxtext.trainers.pre_train.train" in err
    assert "elastic_min_slice_count=1" in err


def test_a_configuration_stays_first_and_its_place_is_kept(standin: Case) -> None:
    config = standin.directory / "my.yml"
    config.write_text("run_name: mine\n")
    assert ended(standin, str(config), "model_name=m")[0] == 0
    (run,) = runs(standin)
    assert run["argv"][0] == str(config)
    assert "run_name" not in run["words"]
    assert run["words"]["base_output_directory"] == str(standin.directory / "maxtext")


def test_a_restart_is_of_the_same_run(standin: Case) -> None:
    code, _ = ended(standin, "--restarts", "1", "model_name=m", "steps=7")
    assert code == 7
    first, second = (run["words"]["run_name"] for run in runs(standin))
    assert first == second
    assert first.startswith("maxtext-2")


def test_a_requeued_job_is_of_the_same_run_and_a_new_one_resumes_no_others(standin: Case) -> None:
    standin.environ |= {"SLURM_JOB_ID": "44"}
    (standin.directory / "maxtext" / "maxtext-44").mkdir(parents=True)
    code, err = ended(standin, "model_name=m")
    assert code == 2
    assert "run_name=maxtext-44" in err
    assert runs(standin) == []

    assert ended(standin, "model_name=m", "run_name=maxtext-44")[0] == 0
    standin.environ |= {"SLURM_RESTART_COUNT": "1"}
    assert ended(standin, "model_name=m")[0] == 0
    assert [run["words"]["run_name"] for run in runs(standin)] == ["maxtext-44"] * 2


def test_signals_reach_maxtext(standin: Case) -> None:
    process = standin.call("maxtext", "model_name=forever")
    standin.until(lambda: runs(standin), "MaxText runs")
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert len(runs(standin)) == 1


def test_all_faults_are_told_at_once(case: Case) -> None:
    case.environ = {"ENABLE_AUTOCHECKPOINT": "yes"}
    code, err = ended(case, "steps", "base_output_directory=gs://bucket/out")
    assert code == 2
    assert "ENABLE_AUTOCHECKPOINT is 'yes'" in err
    assert "4 setting(s) are wrong" in err
    assert "'steps' is neither KEY=VALUE" in err
    assert "scripts/setup_env.sh --maxtext" in err
    assert "pip install google-cloud-storage" in err


def test_without_a_word_it_tells_how_it_is_used(case: Case) -> None:
    code, err = ended(case)
    assert code == 2
    assert "[CONFIG.yml] [KEY=VALUE]..." in err
    assert "elastic_min_slice_count" in err


def test_a_place_in_a_file_that_maxtext_alone_finds_is_not_looked_for(standin: Case) -> None:
    assert not Path("base.yml").exists()
    assert ended(standin, "base.yml", "model_name=m")[0] == 0
    (run,) = runs(standin)
    assert run["argv"][0] == "base.yml"
    assert {"run_name", "base_output_directory"} <= run["words"].keys()
