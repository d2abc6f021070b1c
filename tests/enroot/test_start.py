# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A component in a container: what it gets, and how it ends."""

import os
import resource
import signal
import stat
from pathlib import Path

import pytest
from tests.enroot import images
from tests.enroot.layer import TIMEOUT_S, Layer, kill_all, wait_until


def test_the_exit_code_is_the_components(layer: Layer, image: Path) -> None:
    assert layer.run(image, "/bin/sh", "-c", "exit 7").returncode == 7
    assert layer.run(image, "/no/such/program").returncode == 127


def test_arguments_arrive_as_they_are(layer: Layer, image: Path) -> None:
    done = layer.run(image, "/bin/printf", "<%s>", "--a=b c", "", "$X", "--mount")
    assert done.stdout == "<--a=b c><><$X><--mount>"


def test_the_process_becomes_the_component_and_gets_its_signals(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    script = "trap 'exit 9' TERM; echo pid $$; while :; do sleep 0.05; done"
    command = ("run_in_container.sh", image, "rm", "--", "/bin/sh", "-c", script)
    process = layer.spawn(log, *command)
    try:
        wait_until(lambda: f"pid {process.pid}\n" in log.read_text(), process, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 9
    finally:
        if process.poll() is None:
            kill_all(process)


def test_it_gets_the_variables_of_a_component_and_no_others(layer: Layer, image: Path) -> None:
    passed = {
        "TPU_WORKER_ID": "1",
        "MEGASCALE_SLICE_ID": "0",
        "PATHWAYS_BIND_ADDRESS": "127.0.0.1",
        "IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS": "true",
        "HOST_BOUNDS": "1,1,1",
        "LC_ALL": "C.UTF-8",
        "TZ": "a zone with spaces",
    }
    kept_out = {"SLURM_JOB_ID": "1", "JAX_PLATFORMS": "proxy", "TMPDIR": "/x", "SECRET": "s"}
    done = layer.run(image, "/bin/env", environment={**passed, **kept_out})
    inside = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert passed.items() <= inside.items()
    assert not kept_out.keys() & inside.keys()
    assert "PATHWAYS_CONTAINER_DIR" not in inside


def test_no_value_stands_on_a_command_line(layer: Layer, image: Path) -> None:
    layer.put(
        "enroot",
        '[[ $1 != create ]] || mkdir "${ENROOT_DATA_PATH}/$3"\nprintf "%s\\n" "$@"',
    )
    done = layer.run(image, "/bin/env", environment={"PATHWAYS_TOKEN": "hidden-value"})
    assert "PATHWAYS_TOKEN" in done.stdout
    assert "hidden-value" not in done.stdout


@pytest.mark.parametrize("value", ["two\nlines", '"quoted"', "'quoted'"])
def test_a_value_that_enroot_would_change_is_refused(layer: Layer, image: Path, value: str) -> None:
    done = layer.run(image, "/bin/true", environment={"PATHWAYS_X": value})
    assert done.returncode == 64
    assert "PATHWAYS_X" in done.stderr


def test_mounts_are_the_hosts_and_are_made_if_missing(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    logs = tmp_path / "new" / "logs"
    script = f"echo inside > {logs}/log; echo data > /data/file"
    done = layer.run(
        *(image, "/bin/sh", "-c", script),
        mounts=[f"{logs}:{logs}", f"{tmp_path}/data:/data"],
    )
    assert done.returncode == 0, done.stderr
    assert (logs / "log").read_text() == "inside\n"
    assert (tmp_path / "data" / "file").read_text() == "data\n"
    assert stat.S_IMODE(logs.stat().st_mode) == 0o700


def test_a_mount_that_can_not_be_made_is_said(layer: Layer, image: Path) -> None:
    done = layer.run(image, "/bin/true", mounts=["/proc/no/such:/mnt"])
    assert done.returncode == 69
    assert "/proc/no/such" in done.stderr


def test_a_command_script_of_the_image_does_not_come_between(
    layer: Layer, image: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    images.unpack(image, root)
    (root / "etc/rc").write_text("echo instead\n")
    images.squash(root, tmp_path / "with-rc.sqsh")
    assert layer.run(tmp_path / "with-rc.sqsh", "/bin/echo", "mine").stdout == "mine\n"


def test_everything_it_keeps_is_private(layer: Layer, image: Path) -> None:
    layer.run(image, "/bin/true")
    places = [layer.base, *layer.base.iterdir(), *(layer.base / "attempts").iterdir()]
    assert {stat.S_IMODE(place.stat().st_mode) for place in places if place.is_dir()} == {0o700}
    assert {place.stat().st_uid for place in places} == {os.geteuid()}


def test_settings_of_enroot_do_not_change_what_a_start_means(layer: Layer, image: Path) -> None:
    done = layer.run(
        *(image, "/bin/touch", "/new"),
        environment={"ENROOT_ROOTFS_WRITABLE": "y", "ENROOT_DATA_PATH": "/nonexistent"},
    )
    assert "Read-only" in done.stderr


def test_a_start_of_what_is_unpacked_costs_little(layer: Layer, image: Path) -> None:
    """Less than a second of processor time; how long it takes depends on what else runs."""
    layer.run(image, "/bin/true")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert layer.run(image, "/bin/true").returncode == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
