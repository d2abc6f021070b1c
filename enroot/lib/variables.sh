# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The variables that a component gets: those that pathways_slurm.launch and worker_host.sh set, by
# name, and no others. A container has its own HOME, PATH and USER, and none of the host's TMPDIR.
# To be sourced after faults.sh.

# variables::is_passed NAME
variables::is_passed() {
	case "$1" in
	# Settings of this layer.
	PATHWAYS_CONTAINER_DIR | PATHWAYS_CONTAINER_EPILOG | PATHWAYS_IMAGE_DIR) return 1 ;;
	TPU_* | MEGASCALE_* | PATHWAYS_* | IFRT_PROXY_* | LC_*) return 0 ;;
	CHIPS_PER_HOST_BOUNDS | HOST_BOUNDS | ENABLE_ICI_RESILIENCY | LANG | TZ) return 0 ;;
	*) return 1 ;;
	esac
}

# Prints the names of those that are set, one a line. Enroot gets names only, so that no value stands
# on a command line.
variables::names() {
	local name
	while read -r name; do
		variables::is_passed "${name}" || continue
		# Enroot would make two variables of a value with a line break, and strip quotes around one.
		if [[ ${!name} == *$'\n'* || ${!name} =~ ^\".*\"$ || ${!name} =~ ^\'.*\'$ ]]; then
			common::fail "${EXIT_USAGE}" "${name} can't be passed into a container:" \
				"its value has a line break, or quotes around it."
		fi
		printf '%s\n' "${name}"
	done < <(compgen -e)
}
