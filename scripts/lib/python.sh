# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Finds a Python that can carry the project. To be sourced after common.sh.

readonly PYTHON_MINIMUM="3.12"

# What a candidate says of itself, in words that Python 2 understands as well. The base executable is
# what counts: a virtual environment that happens to be first on PATH may be the very one that is
# about to be rebuilt.
readonly _PYTHON_QUESTION='
import platform, sys
try:
    import venv, ensurepip
    pip = "pip"
except ImportError:
    pip = "no-pip"
print("%d.%d.%d" % tuple(sys.version_info[:3]))
print(sys.version_info[3])
print(platform.python_implementation())
print(pip)
print(getattr(sys, "_base_executable", None) or sys.executable)
'

# Every candidate, the preferred first. A name may be on PATH more than once, and the first may be a
# pyenv shim that only prints an error, so all of them count.
python::_candidates() {
	local name root
	for name in python3.14 python3.13 python3.12 python3 python; do
		type -aP "${name}" || true
	done
	for root in "${PYENV_ROOT-}" "${HOME:+${HOME}/.pyenv}"; do
		[[ -n ${root} && -d ${root}/versions ]] || continue
		python::_pyenv_versions "${root}/versions"
	done
}

# The stable CPython versions of one pyenv, newest first.
python::_pyenv_versions() {
	local -r versions="$1"
	local path name
	for path in "${versions}"/*/bin/python; do
		name="${path#"${versions}/"}"
		name="${name%/bin/python}"
		if [[ ${name} =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
			printf '%s\n' "${name}"
		fi
	done | sort -V -r | while IFS= read -r name; do
		printf '%s/%s/bin/python\n' "${versions}" "${name}"
	done
}

# python::_fault VERSION LEVEL IMPLEMENTATION   Says why a Python of this kind won't do; silent if it
# will.
python::_fault() {
	local -r version="$1" level="$2" implementation="$3"
	local -i major minor
	IFS=. read -r major minor _ <<<"${version}"
	if ((major * 100 + minor < ${PYTHON_MINIMUM%%.*} * 100 + ${PYTHON_MINIMUM#*.})); then
		printf '%s is older than %s' "${version}" "${PYTHON_MINIMUM}"
	elif [[ ${implementation} != CPython ]]; then
		printf '%s is %s, not CPython' "${version}" "${implementation}"
	elif [[ ${level} != final ]]; then
		printf '%s is a pre-release (%s)' "${version}" "${level}"
	fi
}

# Prints the executable of the first Python that will do. Otherwise says on standard error what was
# tried and what to install, and returns 1.
python::find() {
	local candidate answer fault version level implementation pip executable
	local lacking="" lacking_version=""
	local -a tried=()
	local -A seen=()
	while IFS= read -r candidate; do
		[[ -z ${seen["${candidate}"]-} ]] || continue
		seen["${candidate}"]=1
		if ! answer="$(python::_ask "${candidate}")"; then
			tried+=("${candidate}: does not run${answer:+ (${answer})}")
			continue
		fi
		{
			IFS= read -r version
			IFS= read -r level
			IFS= read -r implementation
			IFS= read -r pip
			IFS= read -r executable
		} <<<"${answer}"
		fault="$(python::_fault "${version}" "${level}" "${implementation}")"
		if [[ -n ${fault} ]]; then
			tried+=("${candidate}: ${fault}")
		elif [[ ${pip} != pip ]]; then
			tried+=("${candidate}: ${version} lacks the modules venv and ensurepip")
			lacking="${lacking:-${executable}}"
			lacking_version="${lacking_version:-${version%.*}}"
		else
			printf '%s\n' "${executable}"
			return
		fi
	done < <(python::_candidates)

	if [[ -n ${lacking} ]] && python::_install_venv "${lacking}" "${lacking_version}"; then
		printf '%s\n' "${lacking}"
		return
	fi
	python::_not_found "${lacking_version}" ${tried[@]+"${tried[@]}"}
	return 1
}

# Prints what a candidate says of itself. If it does not run, prints the last line of what it said
# instead and returns 1. One that hangs (it asks something, a network drive is dead) must not hang us.
python::_ask() {
	local said
	if said="$(timeout 30 "$1" -c "${_PYTHON_QUESTION}" </dev/null 2>&1)" &&
		[[ ${said} =~ ^[0-9]+\.[0-9]+\.[0-9]+$'\n' ]]; then
		printf '%s' "${said}"
		return
	fi
	printf '%s' "${said##*$'\n'}"
	return 1
}

# Debian ships ensurepip in a package of its own, which only root can install.
python::_install_venv() {
	local -r python="$1" version="$2"
	local -r package="python${version}-venv"
	local log
	[[ ${EUID} -eq 0 && ${python} == /usr/bin/* ]] || return 1
	command -v apt-get >/dev/null || return 1
	common::log "Installing Debian's ${package}, which ${python} needs to make an environment"
	log="$(mktemp)"
	if { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y \
		--no-install-recommends "${package}"; } </dev/null >"${log}" 2>&1 &&
		python::_ask "${python}" | grep -qx pip; then
		rm -f "${log}"
		return
	fi
	common::err "Could not install ${package}:"
	cat "${log}" >&2
	rm -f "${log}"
	return 1
}

python::_not_found() {
	local -r lacking_version="$1"
	shift
	common::err "No Python that will do: CPython ${PYTHON_MINIMUM} or newer is needed, with venv and ensurepip."
	common::log "Tried (python3.14, python3.13, python3.12, python3, python on PATH, then pyenv's versions):"
	if (($# == 0)); then
		common::log "  none was there"
	else
		printf '  %s\n' "$@" >&2
	fi
	if [[ -n ${lacking_version} ]]; then
		common::log "What to do: as root, apt-get install python${lacking_version}-venv"
	else
		common::log "What to do, one of:"
		common::log "  Debian 13, Ubuntu 24.04 or newer, as root: apt-get install python3 python3-venv"
		common::log "  any system, with pyenv: pyenv install 3.13"
	fi
}
