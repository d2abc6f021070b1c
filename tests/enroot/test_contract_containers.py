# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What is taken for granted of Enroot: how containers come and go. See test_contract.py."""

from pathlib import Path

import pytest
from tests.enroot.runner import TIMEOUT_S, Enroot, stream


class TestContainers:
    def test_a_name_that_is_taken_is_refused(
        self, enroot: Enroot, container: str, image: Path
    ) -> None:
        done = enroot.run("create", "--name", container, image)
        assert done.returncode == 1
        assert "File already exists" in done.stderr

    def test_what_a_killed_create_leaves_takes_the_name(self, enroot: Enroot, image: Path) -> None:
        (enroot.data / "half" / "bin").mkdir(parents=True)
        assert enroot.run("create", "--name", "half", image).returncode == 1

    def test_of_two_creates_at_once_at_most_one_succeeds(self, enroot: Enroot, image: Path) -> None:
        both = [enroot.spawn("create", "--name", "one", image) for _ in range(2)]
        for process in both:
            process.communicate(timeout=TIMEOUT_S)
        assert 1 in [process.returncode for process in both]

    def test_a_container_can_be_renamed_in_the_data_path(
        self, enroot: Enroot, container: str
    ) -> None:
        (enroot.data / container).rename(enroot.data / "renamed")
        assert enroot.output("start", "renamed", "echo", "works") == "works\n"

    def test_they_are_listed(self, enroot: Enroot, container: str) -> None:
        assert enroot.output("list").split() == [container]

    def test_removal_says_when_there_is_nothing(self, enroot: Enroot, container: str) -> None:
        assert enroot.run("remove", "-f", container).returncode == 0
        assert enroot.output("list") == ""
        assert enroot.run("remove", "-f", container).returncode == 1

    def test_a_running_one_is_listed_entered_and_removed_without_a_word(
        self, enroot: Enroot, container: str
    ) -> None:
        process = enroot.spawn(
            *("start", "--env", "A=of start", container),
            *("sh", "-c", "touch /tmp/mark; echo ready; exec sleep 300"),
        )
        try:
            assert stream(process).readline() == "ready\n"
            rows = [row.split() for row in enroot.output("list", "-f").splitlines()]
            assert rows[0][:2] == ["NAME", "PID"]
            assert [container, str(process.pid)] in [row[:2] for row in rows]
            said = enroot.output(
                "exec", "--env", "B=of exec", str(process.pid), "sh", "-c", 'ls /tmp; echo "$A, $B"'
            )
            assert said == "mark\nof start, of exec\n"
            assert enroot.run("exec", str(process.pid), "sh", "-c", "exit 6").returncode == 6
            done = enroot.run("remove", "-f", container)
            assert (done.returncode, done.stdout) == (0, "")
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)


class TestImport:
    """As far as it can be seen without a registry."""

    @pytest.mark.parametrize(
        "reference", ["file:///image.sqsh", "/image.sqsh", "docker-archive:///image.tar"]
    )
    def test_no_other_scheme_is_known(self, enroot: Enroot, reference: str) -> None:
        assert enroot.run("import", "--output", "x.sqsh", reference).returncode == 1

    @pytest.mark.parametrize("reference", ["docker://registry.invalid#Upper/Case:1", "docker://#a"])
    def test_a_malformed_reference_is_refused(self, enroot: Enroot, reference: str) -> None:
        done = enroot.run("import", "--output", "x.sqsh", reference)
        assert done.returncode == 1
        assert "Invalid image reference" in done.stderr

    def test_an_existing_file_is_not_overwritten(self, enroot: Enroot) -> None:
        file = enroot.home / "x.sqsh"
        file.write_text("mine")
        done = enroot.run("import", "--output", file, "docker://registry.invalid#a/b:1")
        assert done.returncode == 1
        assert file.read_text() == "mine"
