# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Enroot's credentials for registries: lines "machine HOST login USER password PASSWORD". Passwords
# are neither printed nor passed on here. To be sourced after faults.sh.

credentials::file() {
	printf '%s/.credentials' "${ENROOT_CONFIG_PATH:-${XDG_CONFIG_HOME:-${HOME-}/.config}/enroot}"
}

# credentials::login REGISTRY   Prints the login of its entry; fails if there is none.
credentials::login() {
	local -r registry="${1%:*}"
	local file
	local -a words
	file="$(credentials::file)"
	[[ -r ${file} ]] || return 1
	while read -r -a words; do
		if [[ ${words[0]-} == machine && ${words[1]-} == "${registry}" && ${words[2]-} == login ]]; then
			printf '%s' "${words[3]-}"
			return
		fi
	done <"${file}"
	return 1
}

# credentials::refused REGISTRY REFERENCE   Ends: the registry did not let us in.
credentials::refused() {
	local -r registry="$1" reference="$2"
	local file login why
	file="$(credentials::file)"
	if login="$(credentials::login "${registry}")"; then
		why="It refused those of ${login} in ${file}: expired, or without access to this image."
	else
		why="There are none for ${registry} in ${file}, and it wants some."
	fi
	common::fail "${EXIT_CREDENTIALS}" "The registry did not give ${reference}." "${why}" \
		"$(credentials::advice "${registry}")" "Keep that file for yourself: chmod 600 ${file}"
}

credentials::advice() {
	case "$1" in
	*.pkg.dev | gcr.io | *.gcr.io)
		# shellcheck disable=SC2016 # Enroot expands it, at each import: such a token lasts an hour
		printf 'Its line there: machine %s login oauth2accesstoken password $(gcloud auth print-access-token)' "$1"
		;;
	*) printf 'Its line there: machine %s login USER password PASSWORD' "$1" ;;
	esac
}
