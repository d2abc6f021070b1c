#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# run_worker.sh IMAGE [--mount SRC:DST]... -- PROGRAM [ARGUMENT...]: run_in_container.sh for one host
# of a slice, whose NAME is known only where it runs: worker-SLICE-HOST, by PATHWAYS_SLICE_INDEX and
# PATHWAYS_HOST_INDEX.
set -euo pipefail

exec "${BASH_SOURCE[0]%/*}/run_in_container.sh" "${1-}" \
	"worker-${PATHWAYS_SLICE_INDEX}-${PATHWAYS_HOST_INDEX}" "${@:2}"
