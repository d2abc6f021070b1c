# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a file to which others append: its last lines, and what comes after."""

import os
from pathlib import Path
from typing import BinaryIO

_BLOCK = 64 * 1024


class Tail:
    """The lines of one file that were not read yet.

    The file may come into being later, be cut, or be replaced by another: reading then begins at
    its start. A line that is being written now is read once it is whole.

    Args:
        path: Of the file.
        last: How many of the lines that are there already are read; None for all of them.
    """

    def __init__(self, path: Path, last: int | None) -> None:
        self.path = path
        self._offset = 0
        self._inode = 0
        self._rest = b""
        if last is not None:
            self._skip_all_but(last)

    def lines(self) -> list[bytes]:
        """The new whole lines, without their ends. Raises OSError if the file can't be read."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                self._inode, self._offset, self._rest = status.st_ino, 0, b""
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def _skip_all_but(self, last: int) -> None:
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            self._inode = os.fstat(file.fileno()).st_ino
            self._offset = _start_of_last(file, last)


def _start_of_last(file: BinaryIO, count: int) -> int:
    """Where the last ``count`` whole lines begin, and a line that is not whole after them."""
    position = file.seek(0, os.SEEK_END)
    # The end of the line before the first one that is wanted.
    wanted = count + 1
    while position > 0:
        start = max(0, position - _BLOCK)
        file.seek(start)
        block = file.read(position - start)
        found = len(block)
        while wanted and (found := block.rfind(b"\n", 0, found)) >= 0:
            wanted -= 1
        if not wanted:
            return start + found + 1
        position = start
    return 0
