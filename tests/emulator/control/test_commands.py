# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The commands of `pathways-emulator` on a running instance."""

import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.emulator.control.processes import NETWORK, PATIENCE_S, RM, Cluster

from pathways_emulator import cli, membership_client


class Instance:
    """`serve`, and the commands as a user gives them."""

    def __init__(self, cluster: Cluster, directory: Path, *options: str) -> None:
        self.env_file = directory / "runtime.env"
        arguments = ["--slices", "2", "--slice-shape", "2x4", "--network", f"{NETWORK}.0.0/16"]
        self.served = cluster.run(
            "serve",
            [
                *("pathways_emulator.cli", "serve"),
                *arguments,
                *("--env-file", str(self.env_file)),
                *options,
            ],
            {},
        )
        self.served.wait_for("ready; Ctrl-C ends it")

    def does(self, *arguments: str) -> str:
        """What a command that succeeds says."""
        return self._run(0, *arguments)

    def refuses(self, *arguments: str) -> str:
        """What a command that can't be followed says."""
        return self._run(1, *arguments)

    def _run(self, exit_code: int, *arguments: str) -> str:
        # In this process: that of a command would do nothing else, but takes its time to start.
        result = CliRunner().invoke(cli.main, [*arguments, "--env-file", str(self.env_file)])
        assert result.exit_code == exit_code, result.output
        return result.output

    def line_of(self, slice_index: int) -> str:
        """Of the status, without the padding."""
        lines = self.does("status").splitlines()[2:]
        return re.sub(r" +", " ", lines[slice_index])

    def end(self) -> None:
        self.served.send(signal.SIGINT)
        assert self.served.exit_code() == 0
        assert "ended; nothing is left" in self.served.text()


def test_a_slice_is_killed_stopped_and_revived(cluster: Cluster, tmp_path: Path) -> None:
    instance = Instance(cluster, tmp_path)
    served = instance.served
    assert re.fullmatch(r"0 yes 1 - 0 \(\d+, .* s\), 1 \(\d+, .* s\) -", instance.line_of(0))
    assert "slice 1 runs (incarnation 1); end it first" in instance.refuses("revive", "1")

    killed = instance.does("kill", "1", "--host", "1")
    assert re.fullmatch(r"killed slice 1 host 1 \(pid \d+\)\n", killed)
    served.wait_for("slice 1 lost: host 1 ended: connection closed")
    assert instance.line_of(1).startswith("1 no 1 ")
    assert instance.does("revive", "1") == "slice 1 is back (incarnation 2)\n"
    served.wait_for(r"slice 1 is back \(incarnation 2\)")
    assert instance.line_of(1).startswith("1 yes 2 ")

    # Stopped workers hold on to their ports.
    assert "stopped slice 1 host 0 (pid " in instance.does("stop", "1")
    assert instance.does("revive", "1") == "slice 1 is back (incarnation 3)\n"
    served.wait_for("killing what is left of slice 1: worker of slice 1 host 0")
    assert instance.line_of(1).startswith("1 yes 3 ")
    assert instance.line_of(0).startswith("0 yes 1 ")

    assert "there is no slice 2; valid is 0 to 1" in instance.refuses("kill", "2")
    assert "slice 0 has no host 7; joined: 0, 1" in instance.refuses("stop", "0", "--host", "7")
    assert "there is no slice 2; valid is 0 to 1" in instance.refuses("revive", "2")
    instance.end()
    assert f"there is no {instance.env_file}" in instance.refuses("status")


def test_a_slice_under_notice_goes_and_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    # The test, and not the proxy, says when nothing on the slice is needed any more.
    instance = Instance(cluster, tmp_path, "--on-notice", "forward", "--notice-seconds", "100")
    served = instance.served
    assert "SIGTERM to slice 0 host 0 (pid " in instance.does("notice", "0")
    served.wait_for(r"slice 0 got notice \(host 0 got SIGTERM\): it can be used until it goes")
    assert re.match(r"0 yes 1 \d+ s left \(host 0 got SIGTERM\) ", instance.line_of(0))
    assert "slice 0 runs (incarnation 1)" in instance.refuses("revive", "0")
    membership_client.release(RM, 0, 1, "its data is saved", PATIENCE_S)
    served.wait_for("slice 0 ended: its data is saved")
    assert "slice 0 lost" not in served.text()
    assert "slice 0 has no worker: its data is saved" in instance.refuses("notice", "0")
    assert instance.does("revive", "0") == "slice 0 is back (incarnation 2)\n"
    # Workers under notice do not keep the instance from ending.
    instance.does("notice", "1")
    served.wait_for("slice 1 got notice")
    instance.end()
    assert "does not end" not in served.text()


def test_a_worker_that_nobody_serves_is_not_revived(cluster: Cluster) -> None:
    manager = cluster.manager()
    worker = cluster.worker(0)
    worker.wait_for("is ready on")
    variables = {"PATHWAYS_RM_ADDRESS": str(RM)}
    revive = cluster.run("revive", ["pathways_emulator.cli", "revive", "0"], variables)
    assert revive.exit_code() == 1
    assert "does not run under `pathways-emulator serve`" in revive.text()
    # All else works on the instance of a scheduler, too.
    kill = cluster.run("kill", ["pathways_emulator.cli", "kill", "0"], variables)
    assert kill.exit_code() == 0
    assert kill.text() == f"killed slice 0 host 0 (pid {worker.pid})\n"
    assert worker.exit_code() == -signal.SIGKILL
    manager.kill()
    status = cluster.run("status", ["pathways_emulator.cli", "status"], variables)
    assert status.exit_code() == 1
    assert f"the resource manager at {RM} does not answer" in status.text()


@pytest.mark.parametrize("arguments", [["kill"], ["kill", "-1"], ["kill", "one"], ["notice", "x"]])
def test_a_wrong_command_line_is_told(cluster: Cluster, arguments: list[str]) -> None:
    command = cluster.run("wrong", ["pathways_emulator.cli", *arguments], {})
    assert command.exit_code() == 2
