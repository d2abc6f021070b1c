# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The developers' environment of a checkout: .venv, installed from requirements.lock. To be sourced
# after common.sh and python.sh.

# shellcheck source=venv.sh
source "$(dirname "${BASH_SOURCE[0]}")/venv.sh"

# environment::ensure ROOT   Afterwards ROOT/.venv is complete. Says nothing if it was.
environment::ensure() {
	venv::ensure "$1/.venv" "$1" environment
}

environment::python() {
	printf '%s\n' "$1/.venv/bin/python"
}

# The recipe.
environment::packages() {
	printf 'lock %s\n' "$(venv::hash "$1/requirements.lock")"
}

environment::install() {
	local -r directory="$1" root="$2"
	local packages
	packages="$(grep -c '^[A-Za-z0-9].*==' "${root}/requirements.lock")"
	# Wheels only: a source package would bring build requirements that no hash covers.
	venv::pip "${directory}" setup.log "Installing ${packages} packages" \
		--require-hashes --only-binary :all: --requirement "${root}/requirements.lock"
}
