# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a program that knows nothing of this package: connected, with autocheckpoint if that is on.

python -m pathways_elastic train.py ARGUMENT...
python -m pathways_elastic -m maxtext.trainers.pre_train.train ARGUMENT...
"""

import runpy
import sys
from pathlib import Path

from pathways_elastic.connection import connect
from pathways_elastic.errors import ElasticError

_USAGE = """\
usage: python -m pathways_elastic PROGRAM.py [ARGUMENT]...
       python -m pathways_elastic -m MODULE [ARGUMENT]..."""


def main() -> None:
    """Becomes the program; exits 2 without one, 1 without a service."""
    words = sys.argv[1:]
    as_module = words[:1] == ["-m"]
    argv = words[1:] if as_module else words
    if not argv or argv[0].startswith("-"):
        print(_USAGE, file=sys.stderr)
        sys.exit(2)
    if not as_module and not Path(argv[0]).is_file():
        print(f"{argv[0]}: there is no such program\n{_USAGE}", file=sys.stderr)
        sys.exit(2)
    try:
        connect()
    except (ElasticError, ValueError) as error:
        sys.exit(f"pathways_elastic: {error}")
    sys.argv = argv
    if as_module:
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        return
    if not sys.flags.safe_path:
        # As if Python had been given the program.
        sys.path[0] = str(Path(argv[0]).resolve().parent)
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
