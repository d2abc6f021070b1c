# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Where a checkout's environments are: what services and workloads run with. scripts/setup_env.sh
# makes them. To be sourced after common.sh.
#
#   ROOT/environments/jax-X.Y.Z           an environment
#   ROOT/environments/maxtext-jax-X.Y.Z   one that has MaxText too
#   ROOT/environments/current, maxtext    links to the newest of each kind
#   ROOT/environments/images              images that were made here
#
# PATHWAYS_ENVIRONMENTS is another place for all of them. The file "stamp" of an environment has a line
# for the project when it is complete, and only then (venv.sh).

# installation::environments ROOT   Prints the directory that has the environments.
installation::environments() {
	local -r root="$1"
	local -r base="${PATHWAYS_ENVIRONMENTS:-${root}/environments}"
	[[ ${base} == /* ]] || common::fail 2 "PATHWAYS_ENVIRONMENTS is ${base}: it must be an absolute path."
	printf '%s\n' "${base}"
}

# installation::environment ROOT   Prints the directory of the environment for services and
# workloads: PATHWAYS_ENVIRONMENT, else what setup_env.sh made last, else the developers' .venv.
installation::environment() {
	local -r root="$1"
	local base
	base="$(installation::environments "${root}")" || exit
	installation::_choose "${root}/scripts/setup_env.sh" PATHWAYS_ENVIRONMENT \
		"${base}/current" "${root}/.venv"
}

# installation::maxtext_environment ROOT   As above for MaxText: PATHWAYS_MAXTEXT_ENVIRONMENT, else
# what setup_env.sh made last.
installation::maxtext_environment() {
	local -r root="$1"
	local base
	base="$(installation::environments "${root}")" || exit
	installation::_choose "${root}/scripts/setup_env.sh --maxtext" PATHWAYS_MAXTEXT_ENVIRONMENT \
		"${base}/maxtext"
}

# installation::is_complete ENVIRONMENT
installation::is_complete() {
	[[ -x $1/bin/python && -x $1/bin/pathways-slurm && -f $1/stamp ]] &&
		grep -q '^project ' "$1/stamp"
}

# installation::_choose COMMAND VARIABLE PLACE...   Prints the directory that VARIABLE names, else
# the first PLACE that is there. One that is there but not complete is a fault, not a reason to go on
# to the next: that may be of another JAX.
installation::_choose() {
	local -r command="$1" variable="$2"
	local place
	shift 2
	if [[ -n ${!variable-} ]]; then
		installation::is_complete "${!variable}" || common::fail 2 \
			"${variable} is ${!variable}, which is no complete environment." \
			"Unset it, or name the directory of one; this makes one: ${command}"
		installation::_print "${!variable}"
		return
	fi
	for place in "$@"; do
		# A link that leads nowhere counts as there.
		[[ -e ${place} || -L ${place} ]] || continue
		installation::is_complete "${place}" || common::fail 2 \
			"The environment ${place} is not complete." \
			"Finish it, on a machine that sees it, with: ${command}"
		installation::_print "${place}"
		return
	done
	common::fail 2 "There is no environment yet: neither ${variable} is set, nor is there ${*}." \
		"Make it, on a machine that sees ${place%/*}, with: ${command}"
}

# Without the links on the way, so that what runs keeps what it was started with.
installation::_print() {
	(cd "$1" && pwd -P)
}
