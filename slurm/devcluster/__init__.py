# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on one machine: without systemd, without root, under a directory of its own.

``up.sh`` and ``down.sh`` are for people, :class:`slurm.devcluster.cluster.DevCluster` is for tests.
"""
