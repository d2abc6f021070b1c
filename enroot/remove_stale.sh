#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Removes what containers of ended components have left on this node. For the end of a job: as srun's
# --task-epilog, or after the last component. Takes no arguments; does nothing if there is nothing.
set -euo pipefail

# shellcheck source=lib/layer.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/layer.sh"

remove::main() {
	local base="${PATHWAYS_CONTAINER_DIR:-/tmp/pathways-${EUID}}"
	if [[ -d ${base}/attempts ]]; then
		base="$(paths::base)"
		container::remove_stale "${base}"
	fi
}

remove::main
