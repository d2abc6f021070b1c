# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Messages, for every script. To be sourced.

if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
	printf 'error: bash %s is too old: bash 4.4 or newer is needed\n' "${BASH_VERSION}" >&2
	exit 1
fi

# Standard output belongs to the program that a script runs; what the script itself has to say goes
# to standard error.
common::log() {
	printf '%s\n' "$*" >&2
}

# common::err MESSAGE [DETAIL]...   One line a detail.
common::err() {
	local detail
	printf 'error: %s\n' "$1" >&2
	for detail in "${@:2}"; do
		printf '       %s\n' "${detail}" >&2
	done
}

# common::fail EXIT_CODE MESSAGE [DETAIL]...
common::fail() {
	local -r code="$1"
	common::err "${@:2}"
	exit "${code}"
}

# "48 s" or "2 min 05 s".
common::elapsed() {
	local -r seconds="$1"
	if ((seconds < 60)); then
		printf '%d s' "${seconds}"
	else
		printf '%d min %02d s' "$((seconds / 60))" "$((seconds % 60))"
	fi
}
