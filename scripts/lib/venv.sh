# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Python environments that are whole or known not to be. To be sourced after common.sh and python.sh.
#
# DIRECTORY/stamp says what an environment was made for, one "WORD VALUE" a line. It is removed before
# anything is changed and written after everything is done, so an environment with a fitting stamp
# is whole, and whatever was interrupted is made anew. Its last line is that of the project itself,
# which can be installed anew alone; without it, the stamp is of the packages only.
#
# What an environment holds besides the project is told by a recipe, the prefix of two functions:
#
#   RECIPE::packages ROOT ARGUMENT...            prints the stamp's lines for the packages
#   RECIPE::install DIRECTORY ROOT ARGUMENT...   installs them into an empty environment

# venv::ensure DIRECTORY ROOT RECIPE [ARGUMENT...]   Afterwards the environment is complete and has
# the project of the checkout ROOT. Says nothing if it was.
venv::ensure() {
	local -r directory="$1"
	local lock
	venv::shield
	if [[ -z "$(venv::stale "$@")" ]]; then
		return
	fi
	if [[ ! -w ${directory%/*} ]]; then
		common::fail 1 "Could not set up ${directory##*/}: ${directory%/*} is not writable." \
			"Use a checkout that belongs to you."
	fi
	# The processes below inherit the lock: if this script is killed, the next one waits for the pip
	# that it left running instead of sharing the directory with it.
	exec {lock}>>"${directory}.lock"
	if ! flock -n "${lock}"; then
		common::log "Another set-up of ${directory} is running; waiting for it"
		flock "${lock}"
	fi
	trap 'common::log "Interrupted; the same command starts over."; exit 130' INT
	venv::_update "$@" || exit 1
	trap - INT
	exec {lock}>&-
}

# Takes away the settings that would lead Python, or pip, out of an environment.
venv::shield() {
	unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV
	export PYTHONNOUSERSITE=1
}

# venv::stale DIRECTORY ROOT RECIPE [ARGUMENT...]   Says what must be made anew: "WORD REASON", or
# nothing. The word "project" stands for the project's own entry alone; every other word, for the
# whole environment.
venv::stale() {
	local -r directory="$1"
	local version wanted found
	shift
	if [[ ! -d ${directory} ]]; then
		printf 'venv there is none yet'
	elif ! version="$(venv::_version "${directory}")"; then
		printf 'venv its interpreter does not run'
	elif [[ ! -f ${directory}/stamp ]]; then
		printf 'venv it is not complete'
	else
		while IFS= read -r wanted <&3; do
			IFS= read -r found <&4 || found=""
			[[ ${wanted} != "${found}" ]] || continue
			case "${wanted%% *}" in
			checkout) printf 'checkout it was made in another place (%s)' "${found#* }" ;;
			python) printf 'python its interpreter has changed from %s to %s' "${found#* }" "${wanted#* }" ;;
			lock) printf 'lock requirements.lock has changed' ;;
			packages) printf 'packages the list of its packages has changed' ;;
			project) printf 'project pyproject.toml has changed' ;;
			*) printf '%s its %s has changed from %s to %s' "${wanted%% *}" "${wanted%% *}" "${found#* }" "${wanted#* }" ;;
			esac
			return
		done 3< <(venv::_wanted "${version}" "$@") 4<"${directory}/stamp"
	fi
}

# venv::hash FILE...   Prints the hash of what is in them.
venv::hash() {
	local sum
	sum="$(cat -- "$@" | sha256sum)"
	printf '%s' "${sum%% *}"
}

# What an environment should have been made for, given the version of its interpreter.
venv::_wanted() {
	local -r version="$1" root="$2" recipe="$3"
	shift 3
	printf 'checkout %s\n' "$(cd "${root}" && pwd -P)"
	printf 'python %s\n' "${version}"
	"${recipe}::packages" "${root}" "$@"
	printf 'project %s\n' "$(venv::hash "${root}/pyproject.toml")"
}

venv::_version() {
	"$1/bin/python" -I -S -c \
		'import sys; print("%d.%d.%d" % sys.version_info[:3])' </dev/null 2>/dev/null
}

venv::_update() {
	local stale
	stale="$(venv::stale "$@")"
	case "${stale%% *}" in
	"") return ;;
	project) ;;
	*) venv::_build "${stale#* }" "$@" || return 1 ;;
	esac
	venv::_install_project "$@" || return 1
}

venv::_build() {
	local -r reason="$1" directory="$2" root="$3" recipe="$4"
	local python
	local -ri started=${SECONDS}
	shift
	python="$(python::find)" || return 1
	common::log "Setting up ${directory} with ${python} (${reason})"
	rm -f "${directory}/stamp"
	if ! "${python}" -m venv --clear "${directory}" >&2; then
		common::err "Could not make ${directory} with ${python}."
		return 1
	fi
	"${recipe}::install" "${directory}" "${root}" "${@:4}" || return 1
	venv::_write_stamp without-project "$@" || return 1
	common::log "Installed $(venv::_count "${directory}") packages in $(common::elapsed $((SECONDS - started)))"
}

# Prints how many packages there are, but for pip, which comes with the environment.
venv::_count() {
	local -a found=("$1"/lib/python*/site-packages/*.dist-info)
	printf '%d' "$((${#found[@]} - 1))"
}

venv::_install_project() {
	local -r directory="$1" root="$2"
	# From here until the end the stamp says that the project is missing, whatever pyproject.toml
	# says by then.
	venv::_write_stamp without-project "$@" || return 1
	# The build back end is among the packages; nothing is fetched.
	venv::pip "${directory}" setup-project.log "Installing the project itself" \
		--no-index --no-deps --no-build-isolation --editable "${root}" || return 1
	venv::_write_stamp with-project "$@"
}

venv::_write_stamp() {
	local -r project="$1" directory="$2"
	local -r stamp="${directory}/stamp"
	local version
	shift 2
	version="$(venv::_version "${directory}")" || return 1
	if [[ ${project} == with-project ]]; then
		venv::_wanted "${version}" "$@"
	else
		venv::_wanted "${version}" "$@" | grep -v '^project '
	fi >"${stamp}.new" || return 1
	mv -f "${stamp}.new" "${stamp}"
}

# venv::pip DIRECTORY LOG WHAT ARGUMENT...   Runs pip install with progress. What pip says goes to the
# file LOG in DIRECTORY and is shown only if it fails: on success it is noise (a cache it cannot
# write, newer versions of itself).
venv::pip() {
	local -r directory="$1" log="$1/$2" what="$3"
	shift 3
	if PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore \
		"${directory}/bin/python" -m pip install --progress-bar off "$@" </dev/null 2>&1 |
		venv::_progress "${what}" "${log}"; then
		return
	fi
	common::err "${what} failed. pip said:"
	grep -v -E '^ *(Collecting|Downloading|Using cached|Obtaining|Looking in|Ignoring) ' "${log}" >&2 || true
	common::log "(all of it: ${log})"
	if grep -qiE 'no space left|disk quota exceeded' "${log}"; then
		common::log "What to do: free some space on the file system of ${directory} (or of TMPDIR, where" \
			"pip unpacks), then run the same command again; it starts over."
	else
		common::log "What to do: see to what pip says, then run the same command again; it starts over."
	fi
	return 1
}

# Copies pip's lines from standard input to LOG and shows how long it has taken: on a terminal in one
# line that changes each second, elsewhere a line each half minute.
venv::_progress() {
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
