# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The Python environment of a checkout: .venv, installed from requirements.lock. To be sourced after
# common.sh and python.sh.
#
# .venv/stamp says what the environment was made for, one "WORD VALUE" a line. It is removed before
# anything is changed and written after everything is done, so an environment with a fitting stamp
# is whole, and whatever was interrupted is made anew.

readonly _ENVIRONMENT_STAMP=".venv/stamp"

# environment::ensure ROOT   Afterwards ROOT/.venv is complete. Says nothing if it was.
environment::ensure() {
	local -r root="$1"
	local lock
	# Settings that would lead Python, or pip, out of the environment.
	unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV
	export PYTHONNOUSERSITE=1

	if [[ -z "$(environment::_stale "${root}")" ]]; then
		return
	fi
	if [[ ! -w ${root} ]]; then
		common::fail 1 "Could not set up .venv: ${root} is not writable." \
			"Use a checkout that belongs to you."
	fi
	# The processes below inherit the lock: if this script is killed, the next one waits for the pip
	# that it left running instead of sharing the directory with it.
	exec {lock}>>"${root}/.venv.lock"
	if ! flock -n "${lock}"; then
		common::log "Another set-up of ${root}/.venv is running; waiting for it"
		flock "${lock}"
	fi
	trap 'common::log "Interrupted; the same command starts over."; exit 130' INT
	environment::_update "${root}" || exit 1
	trap - INT
	exec {lock}>&-
}

environment::python() {
	printf '%s\n' "$1/.venv/bin/python"
}

environment::_update() {
	local -r root="$1"
	local stale
	stale="$(environment::_stale "${root}")"
	case "${stale%% *}" in
	"") return ;;
	project) ;;
	*) environment::_build "${root}" "${stale#* }" || return 1 ;;
	esac
	environment::_install_project "${root}" || return 1
}

# What the environment of ROOT should have been made for, given the version of its interpreter.
environment::_wanted() {
	local -r root="$1" version="$2"
	printf 'checkout %s\n' "$(cd "${root}" && pwd -P)"
	printf 'python %s\n' "${version}"
	printf 'lock %s\n' "$(environment::_hash "${root}/requirements.lock")"
	printf 'project %s\n' "$(environment::_hash "${root}/pyproject.toml")"
}

environment::_hash() {
	local sum
	sum="$(sha256sum <"$1")"
	printf '%s' "${sum%% *}"
}

# Says what must be made anew: "WORD REASON", or nothing. The word "project" stands for the project's
# own entry alone; every other word, for the whole environment.
environment::_stale() {
	local -r root="$1"
	local version wanted found
	if [[ ! -d ${root}/.venv ]]; then
		printf 'venv there is none yet'
	elif ! version="$(environment::_version "${root}")"; then
		printf 'venv its interpreter does not run'
	elif [[ ! -f ${root}/${_ENVIRONMENT_STAMP} ]]; then
		printf 'venv it is not complete'
	else
		while IFS= read -r wanted <&3; do
			IFS= read -r found <&4 || found=""
			[[ ${wanted} != "${found}" ]] || continue
			case "${wanted%% *}" in
			checkout) printf 'checkout it was made in another place (%s)' "${found#* }" ;;
			python) printf 'python its interpreter has changed from %s to %s' "${found#* }" "${wanted#* }" ;;
			lock) printf 'lock requirements.lock has changed' ;;
			project) printf 'project pyproject.toml has changed' ;;
			esac
			return
		done 3< <(environment::_wanted "${root}" "${version}") 4<"${root}/${_ENVIRONMENT_STAMP}"
	fi
}

environment::_version() {
	"$1/.venv/bin/python" -I -S -c \
		'import sys; print("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null
}

environment::_build() {
	local -r root="$1" reason="$2"
	local -r log="${root}/.venv/setup.log"
	local python packages
	local -ri started=${SECONDS}
	python="$(python::find)" || return 1
	packages="$(grep -c '^[A-Za-z0-9].*==' "${root}/requirements.lock")"
	common::log "Setting up ${root}/.venv with ${python} (${reason})"
	rm -f "${root}/${_ENVIRONMENT_STAMP}"
	if ! "${python}" -m venv --clear "${root}/.venv" >&2; then
		common::err "Could not make ${root}/.venv with ${python}."
		return 1
	fi
	# Wheels only: a source package would bring build requirements that no hash covers.
	environment::_pip "${root}" "${log}" "Installing ${packages} packages" \
		--require-hashes --only-binary :all: --requirement "${root}/requirements.lock" || return 1
	environment::_write_stamp "${root}" without-project || return 1
	common::log "Installed ${packages} packages in $(common::elapsed $((SECONDS - started)))"
}

environment::_install_project() {
	local -r root="$1"
	# From here until the end the stamp says that the project is missing, whatever pyproject.toml
	# says by then.
	environment::_write_stamp "${root}" without-project || return 1
	# The build back end is among the packages; nothing is fetched.
	environment::_pip "${root}" "${root}/.venv/setup-project.log" "Installing the project itself" \
		--no-index --no-deps --no-build-isolation --editable "${root}" || return 1
	environment::_write_stamp "${root}" with-project
}

environment::_write_stamp() {
	local -r root="$1" project="$2"
	local -r stamp="${root}/${_ENVIRONMENT_STAMP}"
	local version
	version="$(environment::_version "${root}")" || return 1
	if [[ ${project} == with-project ]]; then
		environment::_wanted "${root}" "${version}"
	else
		environment::_wanted "${root}" "${version}" | grep -v '^project '
	fi >"${stamp}.new" || return 1
	mv -f "${stamp}.new" "${stamp}"
}

# environment::_pip ROOT LOG WHAT ARGUMENT...   Runs pip install with progress. What pip says is
# shown only if it fails: on success it is noise (a cache it cannot write, newer versions of itself).
environment::_pip() {
	local -r root="$1" log="$2" what="$3"
	shift 3
	if PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore \
		"$(environment::python "${root}")" -m pip install --progress-bar off "$@" </dev/null 2>&1 |
		environment::_progress "${what}" "${log}"; then
		return
	fi
	common::err "${what} failed. pip said:"
	grep -v -E '^ *(Collecting|Downloading|Using cached|Obtaining|Looking in|Ignoring) ' "${log}" >&2 || true
	common::log "(all of it: ${log})"
	common::log "What to do: see to what pip says, then run the same command again; it starts over."
	return 1
}

# Copies pip's lines from standard input to LOG and shows how long it has taken: on a terminal in one
# line that changes each second, elsewhere a line each half minute.
environment::_progress() {
	local -r what="$1" log="$2"
	local line="" part="" step=""
	local -i status elapsed next=30
	local -ri started=${SECONDS}
	: >"${log}"
	[[ -t 2 ]] || common::log "${what}"
	while true; do
		status=0
		IFS= read -r -t 1 part || status=$?
		line+="${part}"
		if ((status == 0)); then
			printf '%s\n' "${line}" >>"${log}"
			if [[ ${line} =~ ^(Collecting|Installing)\ ([^ ]+) ]]; then
				step="${BASH_REMATCH[1],,} ${BASH_REMATCH[2]%%[=<>~!]*}"
				[[ ${BASH_REMATCH[1]} != Installing ]] || step="unpacking"
			fi
			line=""
		elif ((status <= 128)); then
			[[ -z ${line} ]] || printf '%s\n' "${line}" >>"${log}"
			break
		fi
		elapsed=$((SECONDS - started))
		if [[ -t 2 ]]; then
			printf '\r\033[K%s … %s %s' "${what}" "$(common::elapsed "${elapsed}")" "${step}" >&2
		elif ((elapsed >= next)); then
			common::log "${what}: $(common::elapsed "${elapsed}"), ${step}"
			next=$((elapsed + 30))
		fi
	done
	[[ ! -t 2 ]] || printf '\r\033[K' >&2
}
