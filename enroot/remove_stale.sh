#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# remove_stale.sh [--all]: removes what components that have ended have left on this node. For the end
# of a job: as srun's --task-epilog, or after the last component. Unpacked images stay for the next
# start unless none has used them for a day; --all removes each that is not in use. Does nothing if
# there is nothing.
set -euo pipefail

# shellcheck source=lib/layer.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/layer.sh"

remove::main() {
	local base="${PATHWAYS_CONTAINER_DIR:-/tmp/pathways-${EUID}}"
	local unused_s="${CONTAINER_KEEP_S}"
	case "$*" in
	"") ;;
	--all) unused_s=0 ;;
	*) common::fail "${EXIT_USAGE}" "usage: remove_stale.sh [--all]" ;;
	esac
	if [[ -d ${base}/attempts ]]; then
		base="$(paths::base)"
		container::remove_stale "${base}" "${unused_s}"
	fi
}

remove::main "$@"
