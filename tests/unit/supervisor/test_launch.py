# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""launch.py: the documented command lines, word by word, and environments without leaks."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from pathways_slurm import containers, emulator_image, launch
from pathways_slurm.config import Settings, load_settings

BIN = str(Path(sys.executable).parent)
ENROOT = str(Path(__file__).parents[3] / "enroot")


def load(**changes: str) -> Settings:
    return load_settings(
        {
            "SLICE_SHAPE": "2x4",
            "MIN_SLICES": "2",
            "MAX_SLICES": "3",
            "GCS_BUCKET": "my-bucket",
            "PATHWAYS_HOME": "/srv/p",
            **changes,
        }
    )


def with_images(**changes: str) -> Settings:
    return load(
        PATHWAYS_RUNTIME="pathways",
        PATHWAYS_SERVER_IMAGE="/images/server.sqsh",
        PATHWAYS_PROXY_IMAGE="registry.example/p/proxy:1",
        PATHWAYS_HOME="/srv/p",
        **changes,
    )


def in_container(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What runs inside."""
    return argv[argv.index("--") + 1 :]


def test_the_documented_command_lines() -> None:
    settings = with_images()
    assert in_container(launch.rm_argv(settings)) == (
        "/pathways/server",
        "--server_port=29001",
        "--node_type=resource_manager",
        "--instance_type=tpuv6e:2x4",
        "--instance_count=3",
        "--gcs_scratch_location=gs://my-bucket/pathways-scratch/shared",
        "--enable_gcs_olm=false",
    )
    assert in_container(launch.proxy_argv(settings, "10.0.0.5")) == (
        "/pathways/proxy_server",
        "--server_port=29000",
        "--resource_manager_address=10.0.0.5:29001",
        "--gcs_scratch_location=gs://my-bucket/pathways-scratch/shared",
        "--num_elastic_instances=3",
    )
    assert in_container(launch.worker_argv(settings, "10.0.0.5")) == (
        "/pathways/server",
        "--server_port=29001",
        "--resource_manager_address=10.0.0.5:29001",
        "--gcs_scratch_location=gs://my-bucket/pathways-scratch/shared",
        "--enable_gcs_olm=false",
    )


def test_the_emulator_gets_the_same_flags_from_this_installation() -> None:
    settings = load()
    rm, proxy, worker = command_lines(settings)
    rm_inside, proxy_inside, worker_inside = map(in_container, command_lines(with_images()))
    assert rm == (f"{BIN}/pathways-emulator-server", *rm_inside[1:])
    assert proxy == (f"{BIN}/pathways-emulator-proxy-server", *proxy_inside[1:])
    assert worker == (f"{BIN}/pathways-emulator-server", *worker_inside[1:])


def command_lines(settings: Settings) -> list[tuple[str, ...]]:
    return [
        launch.rm_argv(settings),
        launch.proxy_argv(settings, "a"),
        launch.worker_argv(settings, "a"),
    ]


def test_containers_show_the_service_and_a_scratch_directory_and_nothing_else() -> None:
    rm, proxy, worker = command_lines(with_images())
    home = ("--mount", "/srv/p:/srv/p")
    run, run_worker = f"{ENROOT}/run_in_container.sh", f"{ENROOT}/run_worker.sh"
    assert before_program(rm) == (run, "/images/server.sqsh", "rm", *home)
    assert before_program(proxy) == (run, "registry.example/p/proxy:1", "proxy", *home)
    # The host itself adds its name.
    assert before_program(worker) == (run_worker, "/images/server.sqsh", *home)

    named = with_images(PATHWAYS_NAME="blue", GCS_BUCKET="/scratch")
    assert before_program(launch.rm_argv(named))[3:] == (
        *("--mount", "/scratch/pathways-scratch/shared:/scratch/pathways-scratch/shared"),
        *("--mount", "/srv/p/services/blue:/srv/p/services/blue"),
    )
    inside = with_images(GCS_BUCKET="/srv/p/bucket")
    assert before_program(launch.rm_argv(inside))[3:] == (
        *home,
        *("--mount", "/srv/p/bucket/pathways-scratch/shared:/srv/p/bucket/pathways-scratch/shared"),
    )


def before_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    return argv[: argv.index("--")]


def test_the_emulator_in_containers_runs_from_its_own_image(tmp_path: Path) -> None:
    settings = load(PATHWAYS_CONTAINER="enroot", PATHWAYS_IMAGE_DIR=str(tmp_path))
    image = str(emulator_image.image_file(tmp_path, version("jaxlib")))
    for argv in command_lines(settings):
        assert argv[1] == image
    assert in_container(launch.rm_argv(settings)) == in_container(launch.rm_argv(with_images()))


def test_the_layer_gets_its_settings_and_components_the_same_as_without() -> None:
    environ = INHERITED | LEAKS | {"XDG_CONFIG_HOME": "/h/conf", "PATHWAYS_CONTAINER_DIR": "/no"}
    settings = with_images(PATHWAYS_CONTAINER_DIR="/disk/c", PATHWAYS_IMAGE_DIR="/shared/images")
    own = {
        "PATHWAYS_CONTAINER_DIR": "/disk/c",
        "PATHWAYS_IMAGE_DIR": "/shared/images",
        "ENROOT_CONFIG_PATH": "/h/conf/enroot",
    }
    bare = load()
    rm, proxy = (launch.rm_env, launch.proxy_env)
    assert rm(settings, "a", environ) == rm(bare, "a", environ) | own
    assert proxy(settings, "a", environ) == proxy(bare, "a", environ) | own
    epilog = {"PATHWAYS_CONTAINER_EPILOG": f"{ENROOT}/remove_stale.sh"}
    assert launch.worker_env(settings, "a", environ) == (
        launch.worker_env(bare, "a", environ) | own | epilog
    )
    named = containers.layer_environment(settings, environ | {"ENROOT_CONFIG_PATH": "/etc/e"})
    assert named["ENROOT_CONFIG_PATH"] == "/etc/e"


def test_the_layers_settings_do_not_reach_a_component() -> None:
    settings = with_images(PATHWAYS_CONTAINER_DIR="/disk/c")
    environment = launch.worker_env(settings, "a", {"ENROOT_CONFIG_PATH": "/e"})
    script = 'source "$1"; variables::names'
    file = f"{ENROOT}/lib/variables.sh"
    done = subprocess.run(
        ["/bin/bash", "-c", script, "bash", file],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == sorted(launch.worker_env(load(), "a", {}))


def test_extra_flags_replace_their_namesakes_and_follow_otherwise() -> None:
    settings = load(
        PATHWAYS_RM_EXTRA_ARGS="--enable_gcs_olm '--note=a b' --instance_count=4 --note=c",
        PATHWAYS_PROXY_EXTRA_ARGS="--num_elastic_slices=3",
        PATHWAYS_WORKER_EXTRA_ARGS="--server_port=29005",
    )
    assert launch.rm_argv(settings)[1:] == (
        "--server_port=29001",
        "--node_type=resource_manager",
        "--instance_type=tpuv6e:2x4",
        "--instance_count=4",
        "--gcs_scratch_location=gs://my-bucket/pathways-scratch/shared",
        "--enable_gcs_olm",
        "--note=c",
    )
    assert launch.proxy_argv(settings, "a")[-2:] == (
        "--num_elastic_instances=3",
        "--num_elastic_slices=3",
    )
    assert launch.worker_argv(settings, "a")[1] == "--server_port=29005"


INHERITED = {"HOME": "/h", "PATH": "/bin", "LANG": "C", "LC_ALL": "C", "TZ": "UTC", "USER": "ann"}
LEAKS = {"JAX_PLATFORMS": "proxy", "MEGASCALE_NUM_SLICES": "9", "SLURM_JOB_ID": "1", "LCX": ""}


def test_components_inherit_only_what_is_listed() -> None:
    settings = load()
    environ = INHERITED | LEAKS
    assert launch.rm_env(settings, "127.0.0.1", environ) == INHERITED | {
        "PATHWAYS_BIND_ADDRESS": "127.0.0.1",
        "PATHWAYS_HEARTBEAT_TIMEOUT_S": "10",
        "PATHWAYS_ORDERS_FILE": "/srv/p/state/orders.json",
        "PATHWAYS_REPORT_FILE": "/srv/p/state/report.json",
        "TPU_SKIP_MDS_QUERY": "true",
    }
    assert launch.proxy_env(settings, "127.0.0.1", environ) == INHERITED | {
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        "PATHWAYS_BIND_ADDRESS": "127.0.0.1",
        "PATHWAYS_ON_NOTICE": "suspend",
    }


def test_by_default_it_is_this_process_that_is_inherited_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Zurich")
    monkeypatch.setenv("MEGASCALE_NUM_SLICES", "9")
    env = launch.rm_env(load(), "127.0.0.1")
    assert env["TZ"] == "Europe/Zurich"
    assert env["PATH"] == os.environ["PATH"]
    assert "MEGASCALE_NUM_SLICES" not in env


def test_the_array() -> None:
    settings = load(PATHWAYS_LEASE_S="7.5", PATHWAYS_NOTICE_S="55")
    spec = launch.array_spec(settings, "tag1", "10.0.0.5", [0, 2], 7)
    assert (spec.tag, spec.indices, spec.hosts_per_task) == ("tag1", (0, 2), 2)
    assert spec.first_incarnation == 7
    assert spec.log_dir == Path("/srv/p/logs")
    assert spec.argv == (
        "/bin/bash",
        str(Path(__file__).parents[3] / "scripts/lib/worker_host.sh"),
        *launch.worker_argv(settings, "10.0.0.5"),
    )
    # Nothing of this process: what a task inherits is the scheduler's affair.
    assert spec.env == {
        "CHIPS_PER_HOST_BOUNDS": "2,2,1",
        "HOST_BOUNDS": "1,2,1",
        "MEGASCALE_COORDINATOR_ADDRESS": "10.0.0.5",
        "MEGASCALE_NUM_SLICES": "3",
        "PATHWAYS_LEASE_S": "7.5",
        "PATHWAYS_NOTICE_S": "55",
        "TPU_ACCELERATOR_TYPE": "v6e-8",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
        "TPU_HOST_BOUNDS": "1,2,1",
        "TPU_RUNTIME_METRICS_PORTS": "8431,8432,8433,8434",
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_TOPOLOGY": "2x4",
        "TPU_TOPOLOGY_ALT": "false",
        "TPU_TOPOLOGY_WRAP": "false,false,false",
    }


def test_the_version_of_jax_is_the_environments_unless_another_image_is_named() -> None:
    assert launch.jax_version(load()) == version("jaxlib")
    assert launch.jax_version(load(PATHWAYS_CONTAINER="enroot")) == version("jaxlib")
    assert launch.jax_version(with_images()) is None
    tagged = {"PATHWAYS_PROXY_IMAGE": f"registry.example/p/proxy:jax-{version('jaxlib')}"}
    assert launch.jax_version(load(PATHWAYS_CONTAINER="enroot", **tagged)) == version("jaxlib")


@pytest.mark.parametrize("module", ["topology", "cluster_env", "events", "launch", "files"])
def test_what_every_command_imports_is_light(module: str) -> None:
    script = f"import sys, pathways_slurm.{module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout.split()
    assert {"pydantic", "jax", "grpc", "orbax", "psutil"}.isdisjoint(loaded)
