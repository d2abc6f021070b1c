# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the test suites of tests/suites.toml. Entry point: scripts/test.sh."""
