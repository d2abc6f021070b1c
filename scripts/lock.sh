#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/python.sh
source "${checkout}/scripts/lib/python.sh"
# shellcheck source=lib/images.sh
source "${checkout}/scripts/lib/images.sh"

lock::usage() {
	cat <<-'USAGE'
		Usage: scripts/lock.sh [--upgrade | --upgrade-package NAME]...

		Writes the lock files anew: every package with hashes, for Linux and any Python from 3.12 on.
		Versions that a file holds are kept as far as what it is made from lets them.

		  requirements.lock                    of the checkout's .venv: the project, its extras and its
		                                       development tools, from pyproject.toml
		  scripts/locks/jax-X.Y.Z.lock         of the environments that scripts/setup_env.sh makes: for
		                                       each JAX of enroot/images.toml, and for the one of
		                                       requirements.lock, which the emulator runs on
		  scripts/locks/maxtext-jax-X.Y.Z.lock of those with MaxText; also from scripts/locks/*.in

		Whatever else is in requirements.lock has the same version in the others.

		  --upgrade               take the newest version of every package
		  --upgrade-package NAME  take the newest version of this one; may be given again
		  --help                  show this text

		Uses uv if it is on PATH, else installs it for this one run.
	USAGE
}

# Prints the path of uv; installs it into SCRATCH if need be.
lock::find_uv() {
	local -r scratch="$1"
	local python
	if command -v uv; then
		return
	fi
	python="$(python::find)" || return 1
	common::log "uv is not on PATH: installing it for this run"
	"${python}" -m venv "${scratch}/venv" >&2
	"${scratch}/venv/bin/python" -m pip install --quiet --disable-pip-version-check uv >&2
	printf '%s\n' "${scratch}/venv/bin/uv"
}

lock::main() {
	local -a options=()
	local uv
	while (($# > 0)); do
		case "$1" in
		--upgrade)
			options+=("$1")
			shift
			;;
		--upgrade-package)
			if (($# < 2)); then
				common::fail 2 "--upgrade-package needs the name of a package."
			fi
			options+=("$1" "$2")
			shift 2
			;;
		-h | --help)
			lock::usage
			return
			;;
		*) common::fail 2 "Unknown argument: $1" "See scripts/lock.sh --help." ;;
		esac
	done
	# Not local: the trap runs after this function has gone.
	scratch="$(mktemp -d)"
	trap 'rm -rf "${scratch}"' EXIT
	uv="$(lock::find_uv "${scratch}")"
	cd "${checkout}"
	lock::compile "${uv}" requirements.lock --extra emulator --extra examples --group dev \
		pyproject.toml ${options[@]+"${options[@]}"}
	lock::environments "${uv}" ${options[@]+"${options[@]}"}
}

# lock::environments UV [OPTION...]   Writes the files of scripts/locks.
lock::environments() {
	local -r uv="$1"
	local -r locks="scripts/locks" pins="${scratch}/pins.in" alone="${scratch}/alone.lock"
	local emulator_jax version file
	local -a plain names=()
	shift
	emulator_jax="$(lock::pins requirements.lock | sed -n 's/^jax==//p')"
	lock::pins requirements.lock | grep -vE '^jax(lib)?==' >"${pins}"
	lock::compile "${uv}" "${alone}" --no-deps --constraint "${pins}" \
		"${locks}/maxtext-alone.in" "$@"
	while IFS= read -r version; do
		printf 'jax==%s\n' "${version}" >"${scratch}/jax.in"
		plain=(--extra examples --constraint "${pins}"
			pyproject.toml "${locks}/build.in" "${scratch}/jax.in")
		[[ ${version} != "${emulator_jax}" ]] || plain+=(--extra emulator)
		lock::compile "${uv}" "${locks}/jax-${version}.lock" "${plain[@]}" "$@"
		file="${locks}/maxtext-jax-${version}.lock"
		lock::compile "${uv}" "${file}" "${plain[@]}" "${locks}/maxtext.in" "$@"
		lock::add "${alone}" "${file}"
		names+=("jax-${version}.lock" "maxtext-jax-${version}.lock")
	done < <({
		images::versions "${checkout}"
		printf '%s\n' "${emulator_jax}"
	} | sort -u)
	for file in "${locks}"/*.lock; do
		# Of a JAX that nothing names any more.
		[[ " ${names[*]} " == *" ${file##*/} "* ]] || rm -- "${file}"
	done
}

# lock::compile UV FILE ARGUMENT...
lock::compile() {
	local -r uv="$1" file="$2"
	shift 2
	# No index and no links: the file must not name where packages were found, which differs from
	# place to place; the hashes say what they are.
	"${uv}" pip compile --universal --python-version 3.12 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet \
		"$@" --output-file "${file}"
	common::log "${file}: $(lock::pins "${file}" | wc -l) packages"
}

# lock::pins FILE   Prints what it pins, NAME==VERSION and perhaps a marker on each line.
lock::pins() {
	sed -n 's/^\([A-Za-z0-9].*==.*[^ \\]\) *\\*$/\1/p' "$1"
}

# lock::add FROM TO   Adds the packages of one file that are not in the other.
lock::add() {
	local -r from="$1" to="$2"
	awk '
		/^[A-Za-z0-9]/ { name = $1; sub(/==.*/, "", name); skip = FNR != NR && name in seen }
		FNR == NR { seen[name] = 1; next }
		!skip
	' "${to}" "${from}" >"${scratch}/added"
	cat "${scratch}/added" >>"${to}"
}

lock::main "$@"
