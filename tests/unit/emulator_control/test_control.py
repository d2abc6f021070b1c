# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""The socket on which `serve` takes orders."""

import asyncio
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pathways_emulator import control
from pathways_emulator.control import ControlError

PATIENCE_S = 10.0


async def revive(index: int) -> str:
    if index == 7:
        raise ControlError("there is no slice 7;\nvalid is 0 to 1")
    return f"slice {index} is back"


def served[T](path: Path, ask: Callable[[], T]) -> T:
    """What `ask` gets of a server on that socket."""

    async def run() -> T:
        server = await control.listen(path, revive)
        try:
            return await asyncio.to_thread(ask)
        finally:
            server.close()

    return asyncio.run(run())


def test_an_order_is_followed_or_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    assert served(path, lambda: control.ask_revive(path, 1, PATIENCE_S)) == "slice 1 is back"
    path.unlink()
    with pytest.raises(ControlError, match="there is no slice 7;\nvalid is 0 to 1"):
        served(path, lambda: control.ask_revive(path, 7, PATIENCE_S))


def test_the_socket_is_private_and_its_path_may_be_long(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 40)
    directory.mkdir()
    path = directory / "control.sock"

    def ask() -> str:
        status = path.stat()
        assert stat.S_ISSOCK(status.st_mode)
        assert stat.S_IMODE(status.st_mode) == 0o600
        return control.ask_revive(path, 0, PATIENCE_S)

    assert served(path, ask) == "slice 0 is back"


@pytest.mark.parametrize(
    "request_line", [b"\n", b"revive 1\n", b"[1]\n", b'{"revive": "1"}\n', b'{"revive": true}\n']
)
def test_what_is_no_request_is_refused(tmp_path: Path, request_line: bytes) -> None:
    path = tmp_path / "control.sock"

    def ask() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            connection.sendall(request_line)
            return connection.makefile("rb").readline()

    assert b'{"refused": "not a request: ' in served(path, ask)


def test_a_client_that_says_too_much_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"

    def ask() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            connection.sendall(b"x" * 100_000)
            return connection.makefile("rb").readline()

    assert b'{"refused": ' in served(path, ask)


@pytest.mark.parametrize("left", [True, False])
def test_a_serve_that_is_gone_is_told(tmp_path: Path, left: bool) -> None:
    path = tmp_path / "control.sock"
    if left:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    with pytest.raises(ControlError, match=r"can't be reached at .* it has ended"):
        control.ask_revive(path, 0, PATIENCE_S)


def test_a_serve_that_hangs_is_told(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        with pytest.raises(ControlError, match=r"did not answer in 0\.1 s"):
            control.ask_revive(path, 0, 0.1)
