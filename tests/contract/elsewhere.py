# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""One call of a scheduler in a process of its own: ``python -m tests.contract.elsewhere [die]``.

Standard input has the pickled call, standard output gets the pickled result or exception. With
"die" the process kills itself with SIGKILL after the call.
"""

import os
import pickle
import signal
import sys


def main() -> None:
    """Makes the call."""
    factory, verb, arguments = pickle.load(sys.stdin.buffer)
    try:
        result = getattr(factory(), verb)(*arguments)
    except Exception as fault:
        result = fault
    sys.stdout.buffer.write(pickle.dumps(result))
    sys.stdout.buffer.flush()
    if "die" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
