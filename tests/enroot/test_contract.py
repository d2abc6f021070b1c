# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What the container layer takes for granted of Enroot, 3.5.0 and 4.1.2 alike.

These tests know nothing of the stand-in. Run them against an Enroot of your own:
``scripts/test.sh --enroot /usr/bin/enroot tests/enroot``.
"""

import os
import select
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.enroot import images
from tests.enroot.runner import TIMEOUT_S, Enroot, stream

# All that is in the environment of a command that was given none. "_" is the shell's.
OWN_VARIABLES = {"TERM", "HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "SHLVL", "_"}

# The suite runs as an ordinary user; this is for whoever calls pytest as root.
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def lines(text: str) -> dict[str, str]:
    """NAME=VALUE lines, as env prints them."""
    return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture
def shm() -> Iterator[Path]:
    path = Path(f"/dev/shm/pathways-slurm-test-{os.getpid()}")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


class TestExitCodes:
    @pytest.mark.parametrize("code", [0, 1, 7, 255])
    def test_that_of_the_command_passes_through(
        self, enroot: Enroot, container: str, code: int
    ) -> None:
        assert enroot.run("start", container, "sh", "-c", f"exit {code}").returncode == code

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_a_signal_that_ends_the_command_is_seen_as_one(
        self, enroot: Enroot, container: str, number: signal.Signals
    ) -> None:
        done = enroot.run("start", container, "sh", "-c", f"kill -{int(number)} $$")
        assert done.returncode == -number

    def test_a_command_that_is_not_there_is_127(self, enroot: Enroot, container: str) -> None:
        assert enroot.run("start", container, "/no/such/program").returncode == 127

    def test_every_fault_of_its_own_is_1(self, enroot: Enroot, container: str) -> None:
        no_image = enroot.home / "no-image"
        no_image.write_text("text")
        faults = [
            enroot.run("no-such-command"),
            enroot.run("start", "no-such-container", "true"),
            enroot.run("start", "a/b", "true"),
            enroot.run("start", "--no-such-option", container, "true"),
            enroot.run("start", "--env", "1A=b", container, "true"),
            enroot.run("start", "--mount", "/no/such/directory:/mnt", container, "true"),
            enroot.run("create", "--name", "other", enroot.home / "missing.sqsh"),
            enroot.run("create", "--name", "other", no_image),
            enroot.run("create", "--name", "a/b", no_image),
        ]
        assert [done.returncode for done in faults] == [1] * len(faults)


class TestProcess:
    def test_the_process_becomes_the_command(self, enroot: Enroot, container: str) -> None:
        process = enroot.spawn("start", container, "sh", "-c", "echo $$")
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert int(said) == process.pid

    def test_options_after_the_name_are_the_commands(self, enroot: Enroot, container: str) -> None:
        assert enroot.output("start", container, "echo", "--rw", "--env", "A=b") == (
            "--rw --env A=b\n"
        )

    def test_arguments_arrive_as_they_are(self, enroot: Enroot, container: str) -> None:
        said = enroot.output("start", container, "/bin/printf", "<%s>", "a b", "$HOME", "", '"')
        assert said == '<a b><$HOME><><">'

    def test_it_has_some_namespaces_of_its_own_and_shares_the_others(
        self, enroot: Enroot, container: str
    ) -> None:
        said = enroot.output(
            "start", container, "sh", "-c", "for i in /proc/self/ns/*; do readlink $i; done"
        )
        inside = dict(line.split(":") for line in said.split())
        host = dict(str(path.readlink()).split(":") for path in Path("/proc/self/ns").iterdir())
        for name in ("user", "mnt", "cgroup"):
            assert inside[name] != host[name], name
        for name in ("pid", "net", "ipc", "uts"):
            assert inside[name] == host[name], name

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signals_reach_the_command(
        self, enroot: Enroot, container: str, number: signal.Signals
    ) -> None:
        script = "trap 'echo caught; exit 9' TERM INT; echo ready; while :; do sleep 0.05; done"
        process = enroot.spawn("start", container, "sh", "-c", script)
        assert stream(process).readline() == "ready\n"
        process.send_signal(number)
        said, _ = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, said) == (9, "caught\n")

    def test_term_to_a_shell_that_did_not_exec_orphans_its_program(
        self, enroot: Enroot, container: str
    ) -> None:
        script = "sleep 300 >/dev/null 2>&1 & echo $!; wait; true"
        process = enroot.spawn("start", container, "sh", "-c", script)
        orphan = int(stream(process).readline())
        descriptor = os.pidfd_open(orphan)
        try:
            process.terminate()
            assert process.wait(TIMEOUT_S) == -signal.SIGTERM
            # It can still be signalled, so it has not ended.
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
            stream(process).close()

    def test_the_signal_at_the_parents_death_stays_set(
        self, enroot: Enroot, container: str
    ) -> None:
        process = subprocess.Popen(
            [
                *("bash", "-c", 'setpriv --pdeathsig KILL "$@" & wait', "bash"),
                *(enroot.program, "start", container, "sh", "-c", "echo $$; exec sleep 300"),
            ],
            env=enroot.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            command = os.pidfd_open(int(stream(process).readline()))
            process.kill()
            readable, _, _ = select.select([command], [], [], TIMEOUT_S)
            assert readable == [command]
            os.close(command)
        finally:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)

    def test_standard_input_and_both_outputs_pass(self, enroot: Enroot, container: str) -> None:
        done = enroot.run("start", container, "sh", "-c", "cat; echo no >&2; exit 3", given="yes\n")
        assert (done.stdout, done.returncode) == ("yes\n", 3)
        assert done.stderr.endswith("no\n")

    def test_other_descriptors_are_closed(self, enroot: Enroot, container: str) -> None:
        reading, writing = os.pipe()
        try:
            done = subprocess.run(
                [enroot.program, "start", container, "sh", "-c", f"echo x >&{writing}"],
                env=enroot.environment(),
                pass_fds=[writing],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=TIMEOUT_S,
                check=False,
            )
            os.close(writing)
            assert os.read(reading, 10) == b""
            assert done.returncode != 0
        finally:
            os.close(reading)


class TestEnvironment:
    def test_nothing_leaks_in(self, enroot: Enroot, container: str) -> None:
        host = {"SLURM_JOB_ID": "1", "JAX_PLATFORMS": "proxy", "PYTHONPATH": "/x", "LANG": "C"}
        inside = lines(enroot.output("start", container, "env", environment=host))
        assert set(inside) <= OWN_VARIABLES
        assert {"HOME", "PATH", "SHELL", "TERM", "USER", "LOGNAME"} <= set(inside)

    def test_values_given_keep_their_spaces(self, enroot: Enroot, container: str) -> None:
        said = enroot.output("start", "--env", "A= a  b ", "--env", "B=", container, "env")
        assert lines(said)["A"] == " a  b "
        assert lines(said)["B"] == ""

    def test_quotes_around_a_value_are_stripped(self, enroot: Enroot, container: str) -> None:
        said = enroot.output(
            "start", "--env", 'A="a b"', "--env", "B='b'", "--env", 'C=a"b', container, "env"
        )
        inside = lines(said)
        assert (inside["A"], inside["B"], inside["C"]) == ("a b", "b", 'a"b')

    def test_enroots_own_variables_are_dropped(self, enroot: Enroot, container: str) -> None:
        said = enroot.output("start", "--env", "ENROOT_A=1", "--env", "B=2", container, "env")
        assert "ENROOT_A" not in lines(said)
        assert lines(said)["B"] == "2"

    def test_a_newline_splits_a_value(self, enroot: Enroot, container: str) -> None:
        said = enroot.output("start", "--env", "A=1\nB=2", container, "env")
        assert (lines(said)["A"], lines(said)["B"]) == ("1", "2")

    def test_a_name_alone_copies_the_hosts_value(self, enroot: Enroot, container: str) -> None:
        said = enroot.output(
            *("start", "--env", "A", "--env", "NOT_SET", container, "env"),
            environment={"A": "from the host"},
        )
        assert lines(said)["A"] == "from the host"
        assert lines(said)["NOT_SET"] == ""

    def test_a_login_shell_sets_path(self, enroot: Enroot, container: str) -> None:
        said = enroot.output("start", "--env", "PATH=/elsewhere", container, "/bin/env")
        assert lines(said)["PATH"] == images.IMAGE_PATH

    def test_it_starts_in_home(self, enroot: Enroot, container: str) -> None:
        directory, home = enroot.output("start", container, "sh", "-c", "pwd; echo $HOME").split()
        assert directory == home


class TestCommandScript:
    def test_rc_gets_the_arguments(self, enroot: Enroot, image: Path) -> None:
        root = enroot.home / "root"
        images.unpack(image, root)
        (root / "etc/rc").write_text('echo "rc: $*"\n')
        images.squash(root, enroot.home / "with-rc.sqsh")
        enroot.output("create", "--name", "rc", enroot.home / "with-rc.sqsh")
        assert enroot.output("start", "rc", "echo", "x") == "rc: echo x\n"
        other = enroot.home / "other-rc"
        other.write_text('echo "other: $*"\n')
        assert enroot.output("start", "--rc", other, "rc", "echo", "x") == "other: echo x\n"


class TestFiles:
    def test_the_root_is_read_only(self, enroot: Enroot, container: str) -> None:
        done = enroot.run("start", container, "touch", "/new")
        assert done.returncode == 1
        assert "Read-only" in done.stderr

    def test_a_writable_root_keeps_what_is_written(self, enroot: Enroot, container: str) -> None:
        enroot.output("start", "--rw", container, "touch", "/new")
        assert enroot.output("start", container, "ls", "/new") == "/new\n"

    @pytest.mark.parametrize("directory", ["/tmp", "/run"])
    def test_some_directories_are_writable_and_private(
        self, enroot: Enroot, container: str, directory: str
    ) -> None:
        name = f"{directory}/pathways-slurm-test-{os.getpid()}"
        assert enroot.output("start", container, "sh", "-c", f"echo > {name}; ls {name}")
        assert enroot.run("start", container, "ls", name).returncode != 0
        assert not Path(name).exists()

    def test_shared_memory_is_the_hosts(self, enroot: Enroot, container: str, shm: Path) -> None:
        enroot.output("start", container, "sh", "-c", f"echo inside > {shm}")
        assert shm.read_text() == "inside\n"

    def test_the_hosts_directories_are_not_there(self, enroot: Enroot, container: str) -> None:
        # The test's own directory is below the host's /tmp, or a home.
        assert enroot.run("start", container, "ls", enroot.home).returncode != 0

    def test_a_mount_is_writable_and_is_the_hosts(self, enroot: Enroot, container: str) -> None:
        source = enroot.home / "logs"
        source.mkdir()
        enroot.output(
            *("start", "--mount", f"{source}:/new/place", container),
            *("sh", "-c", "echo inside > /new/place/log"),
        )
        assert (source / "log").read_text() == "inside\n"
        assert stat.S_IMODE((source / "log").stat().st_mode) & 0o600 == 0o600
        assert (source / "log").stat().st_uid == os.geteuid()

    def test_a_single_file_can_be_mounted(self, enroot: Enroot, container: str) -> None:
        source = enroot.home / "file"
        source.write_text("text\n")
        said = enroot.output(
            "start", "--mount", f"{source}:/etc/of-host", container, "cat", "/etc/of-host"
        )
        assert said == "text\n"

    def test_mounts_at_the_same_place_as_on_the_host_work(
        self, enroot: Enroot, container: str
    ) -> None:
        source = enroot.home / "logs"
        source.mkdir()
        enroot.output("start", "--mount", f"{source}:{source}", container, "touch", source / "a")
        assert (source / "a").exists()

    def test_a_missing_source_is_a_fault(self, enroot: Enroot, container: str) -> None:
        done = enroot.run("start", "--mount", "/no/such/directory:/mnt", container, "true")
        assert done.returncode == 1

    def test_the_user_is_the_hosts_or_root_when_asked_for(
        self, enroot: Enroot, container: str
    ) -> None:
        assert enroot.output("start", container, "id", "-u") == f"{os.geteuid()}\n"
        assert enroot.output("start", "--root", container, "id", "-u") == "0\n"

    def test_the_runtime_path_must_not_contain_the_data_path(
        self, enroot: Enroot, container: str
    ) -> None:
        done = enroot.run(
            "start", container, "true", environment={"ENROOT_RUNTIME_PATH": str(enroot.home)}
        )
        assert done.returncode == 1

    @not_root
    def test_without_a_runtime_directory_nothing_works(self, enroot: Enroot) -> None:
        environment = enroot.environment()
        del environment["ENROOT_RUNTIME_PATH"]
        for command in (["version"], ["list"]):
            done = subprocess.run(
                [enroot.program, *command],
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 1
            assert "cannot create directory" in done.stderr
