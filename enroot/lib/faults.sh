# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# How the container layer ends when it is the layer that failed. Enroot itself says 1 to everything,
# so whatever can be told apart is told apart before Enroot takes this process over. To be sourced
# after scripts/lib/common.sh.

# shellcheck disable=SC2034 # for the files that source this one
{
	readonly EXIT_USAGE=64       # the command line, or a variable, is wrong
	readonly EXIT_IMAGE=65       # there is no such image
	readonly EXIT_CREDENTIALS=66 # the registry wants other credentials
	readonly EXIT_SPACE=67       # no space left
	readonly EXIT_NAMESPACES=68  # this machine does not allow user namespaces
	readonly EXIT_DIRECTORY=69   # a directory can't be used: shared, someone else's, not there
	readonly EXIT_ENROOT=70      # Enroot is not there, or failed for another reason
}

# faults::of_enroot FILE   Prints the exit code that fits what Enroot wrote to FILE.
faults::of_enroot() {
	if grep -qiE 'no space left|disk quota exceeded' "$1"; then
		printf '%s' "${EXIT_SPACE}"
	elif grep -qE 'error code: 40[13]|40[13] (Unauthorized|Forbidden)' "$1"; then
		printf '%s' "${EXIT_CREDENTIALS}"
	elif grep -qE 'error code: 404|404 Not Found|Invalid image format' "$1"; then
		printf '%s' "${EXIT_IMAGE}"
	elif grep -qiE 'user namespace|unshare|nsenter|uid_map' "$1"; then
		printf '%s' "${EXIT_NAMESPACES}"
	else
		printf '%s' "${EXIT_ENROOT}"
	fi
}

# faults::advice CODE   Prints what to do about it, where that does not depend on anything else.
faults::advice() {
	case "$1" in
	"${EXIT_SPACE}")
		printf '%s' "Free some, or name a directory with more: PATHWAYS_CONTAINER_DIR a local one," \
			" PATHWAYS_IMAGE_DIR one that all nodes see."
		;;
	"${EXIT_NAMESPACES}")
		printf '%s' "An administrator allows them: sysctl user.max_user_namespaces, and where they" \
			" are there kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns."
		;;
	*) printf 'Enroot has said why, above.' ;;
	esac
}
