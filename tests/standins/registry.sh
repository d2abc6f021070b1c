# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The import of the stand-in for Enroot. ENROOT_STANDIN_REGISTRY names a directory that plays the
# registries: HOST/PATH/TAG.sqsh, found by tag or by the file's SHA-256. Where HOST/.credentials
# exists ("LOGIN PASSWORD" a line), a request without one of these is answered with 401.

standin::import() {
	local output="" uri
	while (($# > 0)); do
		case "$1" in
		-o | --output) standin::need "$#" && output="$2" && shift 2 ;;
		-a | --arch) standin::need "$#" && shift 2 ;;
		--) shift && break ;;
		-*) standin::usage ;;
		*) break ;;
		esac
	done
	(($# == 1)) || standin::usage
	uri="$1"
	[[ ${uri} == docker://* ]] || standin::fail "Invalid argument: ${uri}"
	local -r form='^docker://(([^@#/]+)@)?([^#/@]+)#([a-z0-9/._-]+)((:([A-Za-z0-9._-]+))|(@(sha256:[A-Za-z0-9]+)))?$'
	[[ ${uri} =~ ${form} ]] || standin::fail "Invalid image reference: ${uri}"
	local -r user="${BASH_REMATCH[2]}" registry="${BASH_REMATCH[3]}" image="${BASH_REMATCH[4]}"
	local -r tag="${BASH_REMATCH[7]:-${BASH_REMATCH[9]:-latest}}"
	output="$(realpath "${output:-${image//\//+}+${tag}.sqsh}")"
	[[ ! -e ${output} ]] || standin::fail "File already exists: ${output}"
	[[ -n ${ENROOT_STANDIN_REGISTRY-} ]] ||
		standin::fail "a stand-in has no network; ENROOT_STANDIN_REGISTRY names no directory"
	local -r url="https://${registry}/v2/${image}/manifests/${tag}"
	standin::log "Querying registry for permission grant"
	standin::authenticate "${user}" "${registry}" ||
		standin::fail "URL ${url} returned error code: 401 Unauthorized"
	local found
	found="$(standin::find "${ENROOT_STANDIN_REGISTRY}/${registry}/${image}" "${tag}")" ||
		standin::fail "URL ${url} returned error code: 404 Not Found"
	standin::log "Fetching image manifest"
	# Straight to its name, as Enroot: what is interrupted stays there.
	cat "${found}" >"${output}" || exit 1
}

# standin::authenticate USER REGISTRY
standin::authenticate() {
	local -r user="$1" registry="$2" accepted="${ENROOT_STANDIN_REGISTRY}/$2/.credentials"
	local -a words
	[[ -f ${accepted} ]] || return 0
	[[ -f ${ENROOT_CONFIG_PATH}/.credentials ]] || return 1
	# machine HOST login USER password PASSWORD
	while read -r -a words; do
		[[ ${words[0]-} == machine && ${words[1]-} == "${registry}" ]] || continue
		[[ -z ${user} || ${words[3]-} == "${user}" ]] || continue
		standin::log "Authenticating with user: ${words[3]-}"
		grep -qxF -- "${words[3]-} ${words[5]-}" "${accepted}"
		return
	done <"${ENROOT_CONFIG_PATH}/.credentials"
	return 1
}

# standin::find DIRECTORY TAG|DIGEST
standin::find() {
	local file
	if [[ $2 != sha256:* ]]; then
		[[ -e $1/$2.sqsh ]] || return 1
		printf '%s\n' "$1/$2.sqsh"
		return
	fi
	for file in "$1"/*.sqsh; do
		if [[ -f ${file} && "$(sha256sum <"${file}")" == "${2#sha256:} "* ]]; then
			printf '%s\n' "${file}"
			return
		fi
	done
	return 1
}
