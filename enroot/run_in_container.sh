#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a component in a container. --help tells more.
set -euo pipefail

# shellcheck source=lib/layer.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/layer.sh"

run::usage() {
	cat <<'USAGE'
Usage: run_in_container.sh IMAGE NAME [--mount SRC:DST]... -- PROGRAM [ARGUMENT...]

Runs PROGRAM, an absolute path in IMAGE, in a container, through the enroot on PATH. The process
becomes PROGRAM: signals and exit code are its own.

  IMAGE   /FILE.sqsh, HOST/PATH:TAG or HOST/PATH@sha256:DIGEST; imported at its first use
  NAME    of the component, such as worker-0-1: lower case letters, digits, hyphens
  --mount SRC:DST   shows the host's SRC, which is made if it is not there, as DST

PROGRAM gets these variables if they are set: TPU_*, MEGASCALE_*, PATHWAYS_*, IFRT_PROXY_*, LC_*,
LANG, TZ, CHIPS_PER_HOST_BOUNDS, HOST_BOUNDS, ENABLE_ICI_RESILIENCY.

Settings: PATHWAYS_CONTAINER_DIR, a directory on this node's own disk (default: /tmp/pathways-UID);
PATHWAYS_IMAGE_DIR, for imported images, may be shared (default: images in it).

Exit codes of its own, before PROGRAM runs: 64 wrong usage, 65 no such image, 66 credentials missing
or refused, 67 no space left, 68 user namespaces not allowed, 69 a directory can't be used, 70 Enroot
is missing or failed. A fault of Enroot's at the very start of PROGRAM is 1, as is any of PROGRAM's.
USAGE
}

run::fail_usage() {
	common::fail "${EXIT_USAGE}" "$1" "run_in_container.sh --help tells how to use it."
}

# run::mount SRC:DST   Checks it, and makes SRC if it is not there.
run::mount() {
	[[ $1 =~ ^/[^[:space:]:]+:/[^[:space:]:]+$ ]] ||
		run::fail_usage "--mount '$1': expected SRC:DST, absolute paths without spaces."
	local -r source="${1%%:*}"
	if [[ ! -e ${source} ]] && ! (umask 077 && mkdir -p -- "${source}") 2>/dev/null; then
		common::fail "${EXIT_DIRECTORY}" "${source} is not there to be mounted and can't be made."
	fi
}

run::main() {
	local mounts="" base file key attempt
	if [[ ${1-} == --help ]]; then
		run::usage
		return
	fi
	(($# >= 2)) || run::fail_usage "IMAGE and NAME are missing."
	local -r image="$1" name="$2"
	shift 2
	[[ ${name} =~ ^[a-z0-9][a-z0-9-]{0,62}$ ]] ||
		run::fail_usage "NAME is '${name}': expected lower case letters, digits and hyphens."
	while [[ ${1-} == --mount ]]; do
		(($# >= 2)) || run::fail_usage "--mount needs SRC:DST."
		run::mount "$2"
		mounts+="$2"$'\n'
		shift 2
	done
	[[ ${1-} == -- ]] || run::fail_usage "expected --mount or --, got '${1-}'."
	shift
	[[ ${1-} =~ ^/[^[:space:]]+$ ]] ||
		run::fail_usage "PROGRAM is '${1-}': expected an absolute path without spaces."
	type -P enroot >/dev/null ||
		common::fail "${EXIT_ENROOT}" "There is no enroot on PATH (${PATH})." \
			"Install NVIDIA Enroot 3.5 or newer on this node."
	# Checked here, while it can be said.
	variables::names >/dev/null
	base="$(paths::base)"
	file="$(image::ensure "${base}" "${image}")"
	key="$(container::key "${file}")"
	container::note_use "${base}" "${key}"
	container::remove_stale "${base}"
	attempt="$(container::prepare "${base}" "${name}" "${file}" "${key}")"
	container::become "${attempt}" "${mounts}" "$@"
}

run::main "$@"
