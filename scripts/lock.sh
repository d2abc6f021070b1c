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

lock::usage() {
	cat <<-'USAGE'
		Usage: scripts/lock.sh [--upgrade | --upgrade-package NAME]...

		Writes requirements.lock anew from pyproject.toml: every package that the project, its extras
		and its development tools need, on Linux and any Python from 3.12 on, with hashes. Versions
		that the lock file holds are kept as far as pyproject.toml lets them.

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
	# No index and no links: the file must not name where packages were found, which differs from
	# place to place; the hashes say what they are.
	"${uv}" pip compile --universal --python-version 3.12 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet \
		--extra emulator --extra examples --group dev \
		${options[@]+"${options[@]}"} pyproject.toml -o requirements.lock
	common::log "requirements.lock: $(grep -c '^[A-Za-z0-9].*==' requirements.lock) packages"
}

lock::main "$@"
