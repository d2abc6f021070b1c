# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""config.py: every fault, all in one go."""

from importlib.metadata import version

import pytest
from tests.unit.supervisor.settings import BOTH_IMAGES, GOOD, faults_of, load

from pathways_slurm import containers
from pathways_slurm.config import (
    load_settings,
    settings_table,
    settings_warnings,
)


def test_nothing_set_is_a_fault_for_each_required_setting() -> None:
    faults = faults_of({"HOME": "/home/ann"})
    assert list(faults) == ["SLICE_SHAPE", "MIN_SLICES", "MAX_SLICES", "GCS_BUCKET"]
    assert str(faults["GCS_BUCKET"]) == (
        "GCS_BUCKET is not set. Valid: a bucket name, gs://BUCKET, or an absolute directory. "
        "Default: none, it must be set."
    )


def test_everything_wrong_is_said_at_once() -> None:
    faults = faults_of(
        {
            "TPU_TYPE": "v7x",
            "SLICE_SHAPE": "2by4",
            "MIN_SLICES": "two",
            "GCS_BUCKET": "./scratch",
            "PATHWAYS_RUNTIME": "emu",
            "PATHWAYS_CONTAINER": "docker",
            "PATHWAYS_SCHEDULER": "pbs",
            "PATHWAYS_HOME": "pathways",
            "PATHWAYS_NAME": "-",
            "PATHWAYS_CHIPS_PER_HOST": "0",
            "PATHWAYS_PROXY_PORT": "65536",
            "PATHWAYS_RM_PORT": "0",
            "PATHWAYS_WORKER_PORT": "29001.5",
            "PATHWAYS_LOCAL_NETWORK": "10.1.0.0/16",
            "PATHWAYS_RM_EXTRA_ARGS": "--a='",
            "PATHWAYS_PROXY_EXTRA_ARGS": "--flag value",
            "PATHWAYS_WORKER_EXTRA_ARGS": "-x",
            "PATHWAYS_HEARTBEAT_TIMEOUT_S": "soon",
            "PATHWAYS_LEASE_S": "0",
            "PATHWAYS_ON_NOTICE": "resume",
            "PATHWAYS_NOTICE_S": "0.5",
            "PATHWAYS_TICK_S": "nan",
            "PATHWAYS_START_TIMEOUT_S": "-1",
            "PATHWAYS_RESTART_BUDGET": "-1",
            "PATHWAYS_RESTART_WINDOW_S": "0",
            "PATHWAYS_SLICE_RESTART_BUDGET": "1.5",
            "PATHWAYS_SLICE_RESTART_WINDOW_S": "inf",
            "PATHWAYS_BUDGET_CRASH": "10",
            "PATHWAYS_BUDGET_EXIT": "-1/60",
            "PATHWAYS_BUDGET_HANG": "3/0.5",
            "PATHWAYS_BUDGET_LAUNCH": "3/day",
            "PATHWAYS_BUDGET_NODE": "1.5/60",
            "PATHWAYS_BUDGET_TIME_LIMIT": "many",
            "PATHWAYS_BUDGET_MISSING": "1/60/2",
            "PATHWAYS_ON_BUDGET": "retry",
            "PATHWAYS_SERVER_IMAGE": "server",
            "PATHWAYS_PROXY_IMAGE": "registry.example/a/Proxy:1",
            "PATHWAYS_IMAGE_DIR": "images",
            "PATHWAYS_CONTAINER_DIR": "/disk of mine",
            "PATHWAYS_SLURM_PARTITION": "tpu low",
            "PATHWAYS_SLURM_ACCOUNT": "a\tb",
            "PATHWAYS_SLURM_QOS": "a b",
            "PATHWAYS_SLURM_RESERVATION": "a b",
            "PATHWAYS_SLURM_CONSTRAINT": "[a | b]",
            "PATHWAYS_SLURM_SLICE_FEATURES": "a b",
            "PATHWAYS_SLURM_GRES": "tpu: 4",
            "PATHWAYS_SLURM_TIME_LIMIT": "a day",
            "PATHWAYS_SLURM_EXTRA_ARGS": "-p other",
            "PATHWAYS_SLURM_TIMEOUT_S": "0",
            "PATHWAYS_SERVICE_ADDRESS": "grpc://10.0.0.1",
            "PATHWAYS_POWER_DOWN": "always",
            "PATHWAYS_NODE_BUDGET": "-1",
            "PATHWAYS_NODE_WINDOW_S": "0",
            "PATHWAYS_NODE_EXCLUSION_S": "an hour",
        }
    )
    # All settings there are, and in the order of the table.
    assert list(faults) == [row.variable for row in settings_table()]
    assert {variable: fault.problem for variable, fault in faults.items()} == {
        "TPU_TYPE": "is not a known TPU type",
        "SLICE_SHAPE": "is not a slice shape",
        "MIN_SLICES": "is not a whole number",
        "MAX_SLICES": "is not set",
        "GCS_BUCKET": "is neither a bucket name nor an absolute directory",
        "PATHWAYS_RUNTIME": "is not one of the valid values",
        "PATHWAYS_CONTAINER": "is not one of the valid values",
        "PATHWAYS_SCHEDULER": "is not one of the valid values",
        "PATHWAYS_HOME": "is not an absolute path",
        "PATHWAYS_NAME": "is not a valid name",
        "PATHWAYS_CHIPS_PER_HOST": "is too small",
        "PATHWAYS_PROXY_PORT": "is too large",
        "PATHWAYS_RM_PORT": "is too small",
        "PATHWAYS_WORKER_PORT": "is not a whole number",
        "PATHWAYS_LOCAL_NETWORK": "is not a /16 network of loopback addresses",
        "PATHWAYS_RM_EXTRA_ARGS": "can't be split into words: No closing quotation",
        "PATHWAYS_PROXY_EXTRA_ARGS": (
            "has the word 'value', which is not of the form --flag=value"
        ),
        "PATHWAYS_WORKER_EXTRA_ARGS": "has the word '-x', which is not of the form --flag=value",
        "PATHWAYS_HEARTBEAT_TIMEOUT_S": "is not a number of seconds",
        "PATHWAYS_LEASE_S": "is too small",
        "PATHWAYS_ON_NOTICE": "is not one of the valid values",
        "PATHWAYS_NOTICE_S": "is too small",
        "PATHWAYS_TICK_S": "is not a number of seconds",
        "PATHWAYS_START_TIMEOUT_S": "is too small",
        "PATHWAYS_RESTART_BUDGET": "is too small",
        "PATHWAYS_RESTART_WINDOW_S": "is too small",
        "PATHWAYS_SLICE_RESTART_BUDGET": "is not a whole number",
        "PATHWAYS_SLICE_RESTART_WINDOW_S": "is not a number of seconds",
        "PATHWAYS_BUDGET_CRASH": "is not of the form RESTARTS/SECONDS",
        "PATHWAYS_BUDGET_EXIT": "is not of the form RESTARTS/SECONDS",
        "PATHWAYS_BUDGET_HANG": "has a window of less than a second",
        "PATHWAYS_BUDGET_LAUNCH": "is not of the form RESTARTS/SECONDS",
        "PATHWAYS_BUDGET_NODE": "is not of the form RESTARTS/SECONDS",
        "PATHWAYS_BUDGET_TIME_LIMIT": "is not of the form RESTARTS/SECONDS",
        "PATHWAYS_BUDGET_MISSING": "is not of the form RESTARTS/SECONDS",
        "PATHWAYS_ON_BUDGET": "is not one of the valid values",
        "PATHWAYS_SERVER_IMAGE": "is no reference of an image",
        "PATHWAYS_PROXY_IMAGE": "is no reference of an image",
        "PATHWAYS_IMAGE_DIR": "is not an absolute path",
        "PATHWAYS_CONTAINER_DIR": "has a space or a colon",
        "PATHWAYS_SLURM_PARTITION": "has a space or a control character",
        "PATHWAYS_SLURM_ACCOUNT": "has a space or a control character",
        "PATHWAYS_SLURM_QOS": "has a space or a control character",
        "PATHWAYS_SLURM_RESERVATION": "has a space or a control character",
        "PATHWAYS_SLURM_CONSTRAINT": "has a space or a control character",
        "PATHWAYS_SLURM_SLICE_FEATURES": "has a space or a control character",
        "PATHWAYS_SLURM_GRES": "has a space or a control character",
        "PATHWAYS_SLURM_TIME_LIMIT": "is not a time limit",
        "PATHWAYS_SLURM_EXTRA_ARGS": ("has the word '-p', which is not of the form --option=value"),
        "PATHWAYS_SLURM_TIMEOUT_S": "is too small",
        "PATHWAYS_SERVICE_ADDRESS": "is neither an IPv4 address nor a host name",
        "PATHWAYS_POWER_DOWN": "is not one of the valid values",
        "PATHWAYS_NODE_BUDGET": "is too small",
        "PATHWAYS_NODE_WINDOW_S": "is too small",
        "PATHWAYS_NODE_EXCLUSION_S": "is not a number of seconds",
    }
    assert str(faults["TPU_TYPE"]) == (
        "TPU_TYPE='v7x' is not a known TPU type. Valid: v4, v5e, v5p, v6e, tpu7x. Default: v6e."
    )


@pytest.mark.parametrize(
    ("changes", "variable", "problem", "valid"),
    [
        (
            {"MIN_SLICES": "4"},
            "MIN_SLICES",
            "is more than MAX_SLICES=3",
            "a whole number from 1 to 3",
        ),
        (
            {"SLICE_SHAPE": "3x5"},
            "SLICE_SHAPE",
            "is no slice shape of TPU_TYPE=v6e",
            "1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16",
        ),
        (
            {"PATHWAYS_CHIPS_PER_HOST": "1"},
            "PATHWAYS_CHIPS_PER_HOST",
            "is no host machine of a v6e slice of 2x4",
            "4 or 8",
        ),
        (
            {"PATHWAYS_RM_PORT": "29000"},
            "PATHWAYS_RM_PORT",
            "is the port of the proxy on the same address",
            "a port from 1 to 65535 other than PATHWAYS_PROXY_PORT=29000",
        ),
        (
            {"PATHWAYS_LEASE_S": "29", "PATHWAYS_HEARTBEAT_TIMEOUT_S": "60"},
            "PATHWAYS_LEASE_S",
            "is less than half of PATHWAYS_HEARTBEAT_TIMEOUT_S=60: healthy workers would end "
            "themselves between two heartbeats",
            "seconds from 30 to 3600",
        ),
        (
            {"MAX_SLICES": "255"},
            "MAX_SLICES",
            "does not fit PATHWAYS_LOCAL_NETWORK",
            "a whole number from 1 to 254 with PATHWAYS_SCHEDULER=local",
        ),
        (
            {"TPU_TYPE": "v5p", "SLICE_SHAPE": "8x8x16"},
            "SLICE_SHAPE",
            "has 256 hosts, which do not fit PATHWAYS_LOCAL_NETWORK",
            "a shape of at most 254 hosts with PATHWAYS_SCHEDULER=local",
        ),
        (
            {"PATHWAYS_RUNTIME": "pathways", "PATHWAYS_CONTAINER": "none", **BOTH_IMAGES},
            "PATHWAYS_CONTAINER",
            "does not go with PATHWAYS_RUNTIME=pathways",
            "enroot",
        ),
        (
            {
                "PATHWAYS_RUNTIME": "pathways",
                **BOTH_IMAGES,
                "PATHWAYS_PROXY_IMAGE": "registry.example/p/proxy:jax-0.0.9",
            },
            "PATHWAYS_PROXY_IMAGE",
            f"is for JAX 0.0.9, and the environment has JAX {version('jaxlib')}",
            f"an image for JAX {version('jaxlib')}",
        ),
        (
            {"PATHWAYS_CONTAINER": "enroot", "PATHWAYS_HOME": "/home/ann b/p"},
            "PATHWAYS_HOME",
            "has a space or a colon, so it can't be shown in a container",
            "an absolute directory without spaces and colons",
        ),
        (
            {"PATHWAYS_CONTAINER": "enroot", "GCS_BUCKET": "/scratch/a:b"},
            "GCS_BUCKET",
            "has a space or a colon, so it can't be shown in a container",
            "an absolute directory without spaces and colons",
        ),
        (
            {"GCS_BUCKET": "gs://bucket/folder"},
            "GCS_BUCKET",
            "is neither a bucket name nor an absolute directory",
            "a bucket name, gs://BUCKET, or an absolute directory",
        ),
        (
            {"HOME": ""},
            "PATHWAYS_HOME",
            "starts with ~, but HOME is not set to an absolute directory",
            "an absolute directory",
        ),
        (
            {"PATHWAYS_HOME": "/a\nb"},
            "PATHWAYS_HOME",
            "has a quote, a backslash, a dollar sign or a control character",
            "an absolute directory",
        ),
        (
            {"PATHWAYS_HOME": "/home/$USER/x"},
            "PATHWAYS_HOME",
            "has a quote, a backslash, a dollar sign or a control character",
            "an absolute directory",
        ),
        (
            {"PATHWAYS_LOCAL_NETWORK": "127.0.0.0/8"},
            "PATHWAYS_LOCAL_NETWORK",
            "is not a /16 network of loopback addresses",
            "a /16 network within 127.0.0.0/8, such as 127.7.0.0/16",
        ),
        (
            {"PATHWAYS_LOCAL_NETWORK": "127.0.0.1/16"},
            "PATHWAYS_LOCAL_NETWORK",
            "is not a network address with its prefix length",
            "a /16 network within 127.0.0.0/8, such as 127.7.0.0/16",
        ),
    ],
)
def test_single_faults(changes: dict[str, str], variable: str, problem: str, valid: str) -> None:
    faults = faults_of(GOOD | changes)
    assert list(faults) == [variable]
    assert (faults[variable].problem, faults[variable].valid) == (problem, valid)


def test_a_version_of_jax_without_images_is_told_before_anything_is_submitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containers, "installed_jax", lambda: "0.0.9")
    faults = faults_of(GOOD | {"PATHWAYS_RUNTIME": "pathways", "MIN_SLICES": "9"})
    assert list(faults) == ["MIN_SLICES", "PATHWAYS_RUNTIME"]
    assert faults["PATHWAYS_RUNTIME"].problem.startswith(
        "can't be served: no images are known for JAX 0.0.9; known are those for 0.11.1"
    )
    load(PATHWAYS_RUNTIME="pathways", **BOTH_IMAGES)


def test_checks_between_settings_run_although_other_settings_are_at_fault() -> None:
    faults = faults_of({"MIN_SLICES": "5", "MAX_SLICES": "2", "SLICE_SHAPE": "2x2x1"})
    assert list(faults) == ["SLICE_SHAPE", "MIN_SLICES", "GCS_BUCKET", "PATHWAYS_HOME"]
    assert faults["MIN_SLICES"].problem == "is more than MAX_SLICES=2"
    assert faults["SLICE_SHAPE"].problem == "is no slice shape of TPU_TYPE=v6e"


def test_a_setting_at_fault_is_not_blamed_on_another() -> None:
    # 2x2x1 is right for v5p, which may be what was meant.
    faults = faults_of(GOOD | {"TPU_TYPE": "v5", "SLICE_SHAPE": "2x2x1", "MAX_SLICES": "many"})
    assert list(faults) == ["TPU_TYPE", "MAX_SLICES"]


def test_a_misspelled_required_setting_is_pointed_out() -> None:
    environ = {**GOOD, "MAX_SLICE": "3"}
    del environ["MAX_SLICES"]
    assert faults_of(environ)["MAX_SLICES"].problem == (
        "is not set (but MAX_SLICE is: a misspelling?)"
    )


def test_misspelled_optional_settings_are_warnings() -> None:
    environ = GOOD | {
        "PATHWAYS_LEAS_S": "3",
        "PATHWAYS_RUN_ID": "of a job",
        "PATHWAYS_MIN_SLICES": "of a job",
        "PATHWAYS_WHATEVER_ELSE": "",
        "PATH": "",
    }
    load_settings(environ)
    assert settings_warnings(environ) == (
        "PATHWAYS_LEAS_S is no setting and has no effect; did you mean PATHWAYS_LEASE_S?",
    )
