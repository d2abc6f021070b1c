# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
"""Elastic training: a training loop that goes on when slices are lost, and when they come back.

A program imports :mod:`pathways_elastic.manager`; docs/elastic.md says how.
"""
