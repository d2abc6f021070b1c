# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m pathways_slurm.maxtext_process [CONFIG.yml] [KEY=VALUE]...`` becomes MaxText.

``pathways-slurm run`` starts it with the variables of cluster.env, and again after a failure: by
then the service may be another, so what follows from a service is derived here, each time.
"""

import os
import shlex
import sys

from pathways_slurm import maxtext


def main() -> None:
    """Says with what MaxText is started, and becomes it."""
    words, _ = maxtext.parse(sys.argv[1:])
    whole = words.with_defaults(maxtext.of_service(words, os.environ), os.environ)
    # -P: the MaxText that is installed, and not a directory of that name where the user is.
    argv = [sys.executable, "-P", "-m", maxtext.module(os.environ), *whole.argv()]
    more = maxtext.variables(whole, os.environ)
    said = shlex.join([*(f"{name}={value}" for name, value in more.items()), *argv])
    print(f"pathways-slurm: {said}", file=sys.stderr, flush=True)
    os.execve(sys.executable, argv, {**os.environ, **more})


if __name__ == "__main__":
    main()
