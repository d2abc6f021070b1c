# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What ends elastic training, or a call of it.

None of them is a ``JaxRuntimeError``: a training loop catches those to have them handled here.
"""


class ElasticError(RuntimeError):
    """Training cannot go on by itself. The snapshots that are whole are still there."""


class DownEventLimitError(ElasticError):
    """More slices were lost, one time after the other, than the limit allows."""


class RetryLimitError(ElasticError):
    """The handler was called as often as one event allows, and slices were lost each time."""


class SliceShortageError(ElasticError):
    """There were too few slices for too long."""


class NoSnapshotError(ElasticError):
    """No snapshot is left, or none was taken yet."""


class SnapshotError(ElasticError):
    """What was given can't be kept as a snapshot, or a snapshot does not fit where it shall go."""


class HandlerError(ElasticError):
    """The elastic handler did not do what it must."""


class HandlerTimeoutError(HandlerError):
    """The elastic handler took too long."""
