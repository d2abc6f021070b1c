# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m pathways_elastic.maxtext …`` is MaxText's pre-training with autocheckpoints.

With ``enable_autocheckpoint=true`` MaxText asks JAX after each step whether the process has to end,
and the step is to be saved. A single controller takes no part in what JAX answers by, so it is
answered here: by SIGTERM, and by the notices of the service.
"""

import importlib
import os
import sys

from pathways_elastic import autocheckpoint


def main() -> None:
    """Runs MaxText in this process; its arguments are this program's.

    Raises:
        ValueError: A variable of autocheckpoint has a value that it can't have.
    """
    # Not before it is run: all of MaxText takes seconds to import.
    from absl import app
    from jax.experimental import multihost_utils

    train = importlib.import_module("maxtext.trainers.pre_train.train")
    on = autocheckpoint.enable(autocheckpoint.Options.of(os.environ, enabled=True))

    def is_requested(step_id: int) -> bool:
        # Not on.reached, which stays true of the step that was saved: MaxText would stop then,
        # whatever EXIT_AFTER_AUTOCHECKPOINT says.
        del step_id
        return on.requested

    multihost_utils.reached_preemption_sync_point = is_requested
    # By the file's name MaxText knows which configuration is the default.
    app.run(train.main, argv=[str(train.__file__), *sys.argv[1:]])


if __name__ == "__main__":
    main()
