# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""What every scheduler promises, shown on Slurm: the same tests, with this directory's harness."""

from tests.contract.test_scheduler import (
    TestCancel,
    TestNodes,
    TestNotify,
    TestObservation,
    TestRefusals,
    TestRequeue,
    TestSubmit,
    TestTheEndOfAHost,
)

__all__ = [
    "TestCancel",
    "TestNodes",
    "TestNotify",
    "TestObservation",
    "TestRefusals",
    "TestRequeue",
    "TestSubmit",
    "TestTheEndOfAHost",
]
