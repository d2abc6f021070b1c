# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Images from registries: imported once, whatever interrupts it, and what a registry refuses."""

import hashlib
import os
import stat
from pathlib import Path

import pytest
from tests.enroot.layer import TIMEOUT_S, Layer, kill_all, wait_until

HOST = "us-docker.pkg.dev"
PATH = "project/pathways/server"
REFERENCE = f"{HOST}/{PATH}:jax-1.2.3"


@pytest.fixture
def published(registry: Path, image: Path) -> Path:
    """The image as the registry has it."""
    file = registry / HOST / PATH / "jax-1.2.3.sqsh"
    file.parent.mkdir(parents=True)
    file.write_bytes(image.read_bytes())
    return file


def imported(layer: Layer) -> list[Path]:
    return sorted((layer.base / "images").glob("*.sqsh"))


@pytest.mark.parametrize(
    "reference",
    [REFERENCE, f"docker://{REFERENCE}", f"docker://{HOST}#{PATH}:jax-1.2.3"],
    ids=["plain", "with its scheme", "in Enroot's form"],
)
@pytest.mark.usefixtures("published")
def test_every_form_of_a_reference_is_one_image(layer: Layer, reference: str) -> None:
    done = layer.script("import_image.sh", reference)
    assert done.returncode == 0, done.stderr
    (file,) = imported(layer)
    assert done.stdout == f"{file}\n"
    assert file.name.startswith("server+jax-1.2.3.")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = layer.script("import_image.sh", REFERENCE)
    assert (again.stdout, again.stderr) == (f"{file}\n", "")


def test_it_runs_and_is_imported_once(layer: Layer, published: Path) -> None:
    first = layer.run(REFERENCE, "/bin/echo", "ran")
    assert (first.returncode, first.stdout) == (0, "ran\n"), first.stderr
    published.unlink()
    again = layer.run(REFERENCE, "/bin/echo", "again")
    assert (again.returncode, again.stdout) == (0, "again\n"), again.stderr
    assert not list((layer.base / "imports").iterdir())


def test_a_digest_names_an_image(layer: Layer, published: Path) -> None:
    digest = hashlib.sha256(published.read_bytes()).hexdigest()
    done = layer.run(f"{HOST}/{PATH}@sha256:{digest}", "/bin/echo", "ran")
    assert done.stdout == "ran\n", done.stderr
    missing = layer.run(f"{HOST}/{PATH}@sha256:{'0' * 64}", "/bin/true")
    assert missing.returncode == 65


def test_a_directory_for_images_may_be_set(layer: Layer, published: Path, tmp_path: Path) -> None:
    del published
    layer.environment["PATHWAYS_IMAGE_DIR"] = str(tmp_path / "images")
    assert layer.run(REFERENCE, "/bin/true").returncode == 0
    assert len(list((tmp_path / "images").glob("*.sqsh"))) == 1
    assert imported(layer) == []


@pytest.mark.usefixtures("registry")
def test_an_image_that_the_registry_does_not_have(layer: Layer) -> None:
    done = layer.run(f"{HOST}/{PATH}:no-such-tag", "/bin/true")
    assert done.returncode == 65
    assert "no-such-tag" in done.stderr
    assert imported(layer) == []


class TestCredentials:
    @pytest.fixture(autouse=True)
    def wanted(self, published: Path, registry: Path) -> None:
        del published
        (registry / HOST / ".credentials").write_text("oauth2accesstoken token-of-today\n")

    def give(self, layer: Layer, line: str) -> Path:
        file = Path(layer.environment["ENROOT_CONFIG_PATH"]) / ".credentials"
        file.parent.mkdir(mode=0o700)
        file.write_text(line + "\n")
        file.chmod(0o600)
        return file

    def test_the_right_ones_let_it_in(self, layer: Layer) -> None:
        self.give(layer, f"machine {HOST} login oauth2accesstoken password token-of-today")
        assert layer.run(REFERENCE, "/bin/true").returncode == 0

    def test_that_there_are_none_is_said_with_the_line_to_add(self, layer: Layer) -> None:
        self.give(layer, "machine other.example login me password x")
        done = layer.run(REFERENCE, "/bin/true")
        assert done.returncode == 66
        assert f"There are none for {HOST} in {layer.environment['ENROOT_CONFIG_PATH']}" in (
            done.stderr
        )
        assert f"machine {HOST} login oauth2accesstoken password $(gcloud" in done.stderr

    def test_that_they_have_expired_is_said_without_telling_them(self, layer: Layer) -> None:
        file = self.give(layer, f"machine {HOST} login oauth2accesstoken password old-token")
        done = layer.run(REFERENCE, "/bin/true")
        assert done.returncode == 66
        assert f"It refused those of oauth2accesstoken in {file}: expired" in done.stderr
        assert "old-token" not in done.stderr


class TestInterruption:
    """A FIFO in the registry is an image that takes as long to load as a test wants."""

    def slow(self, published: Path) -> bytes:
        content = published.read_bytes()
        published.unlink()
        os.mkfifo(published)
        return content

    def test_a_kill_while_importing_does_not_hinder_the_next(
        self, layer: Layer, published: Path, tmp_path: Path
    ) -> None:
        content = self.slow(published)
        log = tmp_path / "log"
        process = layer.spawn(log, "run_in_container.sh", REFERENCE, "rm", "--", "/bin/true")
        # Opened only once the import reads.
        with published.open("wb") as slow:
            slow.write(content[:1000])
            slow.flush()
            wait_until(lambda: any((layer.base / "images").glob("*.importing")), process, log)
            kill_all(process)
        published.unlink()
        published.write_bytes(content)
        done = layer.run(REFERENCE, "/bin/echo", "ran")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        assert not list((layer.base / "images").glob("*.importing"))

    def test_of_two_at_once_one_imports_and_the_other_waits(
        self, layer: Layer, published: Path, tmp_path: Path
    ) -> None:
        content = self.slow(published)
        logs = [tmp_path / "log-0", tmp_path / "log-1"]
        first = layer.spawn(logs[0], "import_image.sh", REFERENCE)
        with published.open("wb") as slow:
            second = layer.spawn(logs[1], "import_image.sh", REFERENCE)
            wait_until(lambda: "Waiting for another import" in logs[1].read_text(), second, logs[1])
            slow.write(content)
        codes = [first.wait(TIMEOUT_S), second.wait(TIMEOUT_S)]
        said = [log.read_text() for log in logs]
        assert codes == [0, 0], said
        assert ("Imported" in said[0], "Imported" in said[1]) == (True, False)
        assert len(imported(layer)) == 1

    def test_one_that_was_left_behind_goes_on(
        self, layer: Layer, published: Path, tmp_path: Path
    ) -> None:
        content = self.slow(published)
        log = tmp_path / "log"
        process = layer.spawn(log, "run_in_container.sh", REFERENCE, "rm", "--", "/bin/true")
        with published.open("wb") as slow:
            # The script alone, not what it has started.
            process.kill()
            process.wait()
            slow.write(content)
        done = layer.run(REFERENCE, "/bin/echo", "ran")
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        assert "Importing" not in done.stderr
