# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Images: from a reference to a file that containers can be made of. To be sourced after paths.sh,
# credentials.sh and locks.sh.
#
# A reference is an absolute path of a squashfs image, or HOST/PATH:TAG or HOST/PATH@sha256:DIGEST in
# a registry, perhaps with docker:// in front, or with Enroot's # between host and path. An image is
# imported once for each reference and stays: name a digest, or remove the file, for another one
# behind the same tag.

# An image of a gigabyte: as layers and unpacked, on the node; packed again, where all nodes see it.
readonly IMAGE_IMPORT_BYTES=$((2 << 30))
readonly IMAGE_FILE_BYTES=$((1 << 30))

# image::ensure BASE REFERENCE   Prints the image's file, which is there afterwards.
image::ensure() {
	local -r base="$1" reference="$2"
	local uri images file
	if [[ ${reference} == /* ]]; then
		[[ -f ${reference} && -r ${reference} ]] ||
			common::fail "${EXIT_IMAGE}" "There is no image ${reference} that can be read on this node."
		printf '%s\n' "${reference}"
		return
	fi
	uri="$(image::uri "${reference}")" || exit
	images="$(paths::images "${base}")" || exit
	file="${images}/$(image::file_name "${uri}")"
	if [[ ! -f ${file} ]]; then
		image::_import_once "${base}" "${uri}" "${file}"
	fi
	printf '%s\n' "${file}"
}

# image::uri REFERENCE   Prints it as docker://HOST#PATH:TAG, the one form that all versions take.
image::uri() {
	local -r form='^([^@#/]+@)?([^@#/]+)[#/]([a-z0-9._/-]+)(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})$'
	local -r rest="${1#docker://}"
	if [[ ! ${rest} =~ ${form} || ${BASH_REMATCH[2]} != *[.:]* ]]; then
		common::fail "${EXIT_USAGE}" "'$1' is no reference of an image." \
			"Valid are HOST/PATH:TAG and HOST/PATH@sha256:DIGEST in lower case, and /FILE.sqsh."
	fi
	printf 'docker://%s%s#%s%s\n' "${BASH_REMATCH[@]:1:4}"
}

# image::file_name URI   One file for each reference, that a reader recognises.
image::file_name() {
	local sum name="${1#docker://}"
	sum="$(printf '%s' "$1" | sha256sum)"
	name="${name##*/}"
	printf '%s.%s.sqsh' "${name//[@:#]/+}" "${sum::12}"
}

# One import at a time for each file; whoever waited finds it done. The lock is held by whatever the
# import started as well, so one that was left behind by a killed job is waited for, not disturbed.
image::_import_once() {
	local -r base="$1" uri="$2" file="$3"
	local lock
	exec {lock}>>"${file}.lock"
	locks::wait "${lock}" "another import of ${uri}"
	if [[ ! -f ${file} ]]; then
		image::_import "${base}" "${uri}" "${file}"
	fi
	exec {lock}>&-
}

image::_import() {
	local -r base="$1" uri="$2" file="$3"
	local -r registry="$(image::_registry "${uri}")" started=${SECONDS}
	local -r work="${base}/imports/${file##*/}" new="${file}.importing"
	local code=0
	# What imports that were interrupted have left; none runs now.
	rm -f -- "${new}"
	(umask 077 && mkdir -p -- "${work}"/{cache,tmp,data,runtime})
	paths::require_space "${work}" "${IMAGE_IMPORT_BYTES}" "import ${uri}"
	paths::require_space "${file%/*}" "${IMAGE_FILE_BYTES}" "keep the image of ${uri}"
	if ! credentials::login "${registry}" >/dev/null; then
		common::log "No credentials for ${registry} in $(credentials::file): trying without"
	fi
	common::log "Importing ${uri}"
	ENROOT_RUNTIME_PATH="${work}/runtime" ENROOT_DATA_PATH="${work}/data" \
		ENROOT_CACHE_PATH="${work}/cache" ENROOT_TEMP_PATH="${work}/tmp" \
		enroot import --output "${new}" "${uri}" 2>&1 </dev/null | tee -- "${work}/said" >&2 ||
		code="$(faults::of_enroot "${work}/said")"
	case "${code}" in
	0) ;;
	"${EXIT_CREDENTIALS}") credentials::refused "${registry}" "${uri}" ;;
	"${EXIT_IMAGE}") common::fail "${code}" "${registry} has no image ${uri}." ;;
	*) common::fail "${code}" "Could not import ${uri}." "$(faults::advice "${code}")" ;;
	esac
	chmod 600 -- "${new}"
	mv -- "${new}" "${file}"
	# The layers are of no more use; after a failure they stay, so that the next try gets further.
	rm -rf -- "${work}"
	common::log "Imported ${uri} in $(common::elapsed $((SECONDS - started))) to ${file}"
}

image::_registry() {
	local host="${1#docker://}"
	host="${host%%#*}"
	printf '%s' "${host##*@}"
}
