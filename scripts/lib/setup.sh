# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The parts of scripts/setup_env.sh: environments of a version of JAX, and images. To be sourced after
# common.sh, python.sh and venv.sh.
#
# An environment is named KIND-VERSION, where KIND is jax, or maxtext-jax for one with MaxText too. Its
# packages are those of scripts/locks/KIND-VERSION.lock; without that file, those that pip chooses.

# The emulator's proxy is written against jaxlib's own modules; with 0.11 a copy to the host fails.
# Clients may be older. The same as in pyproject.toml.
readonly SETUP_EMULATOR_JAX="0.12.0"
# shellcheck disable=SC2034 # for setup_env.sh
readonly SETUP_OLDEST_JAX="0.10.2"

# setup::is_older VERSION THAN
setup::is_older() {
	[[ $1 != "$2" && "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" == "$1" ]]
}

# The recipe, for venv.sh: setup::packages ROOT KIND VERSION WHEELS.
setup::packages() {
	local -r root="$1" kind="$2" version="$3"
	local -r lock="$(setup::lock "${root}" "${kind}" "${version}")"
	printf 'jax %s\n' "${version}"
	if [[ -f ${lock} ]]; then
		printf 'packages %s\n' "$(venv::hash "${lock}")"
	else
		printf 'packages %s\n' "$(venv::hash "${root}"/scripts/locks/*.in)"
	fi
}

# setup::install DIRECTORY ROOT KIND VERSION WHEELS
setup::install() {
	local -r directory="$1" root="$2" kind="$3" version="$4" wheels="$5"
	local -r lock="$(setup::lock "${root}" "${kind}" "${version}")"
	local -a options=(--only-binary :all:) chosen
	[[ -z ${wheels} ]] || options+=(--no-index --find-links "${wheels}")
	if [[ -f ${lock} ]]; then
		# All that is needed is in it, and MaxText's own wishes are not to be heard.
		venv::pip "${directory}" setup.log "Installing $(setup::count "${lock}") packages" "${options[@]}" \
			--no-deps --require-hashes --requirement "${lock}" && return
	else
		common::log "There is no list of exact packages for JAX ${version}:" \
			"pip chooses, within the ranges of pyproject.toml and scripts/locks"
		mapfile -t chosen < <(setup::choice "${root}" "${kind}" "${version}")
		venv::pip "${directory}" setup-build.log "Installing what installs the project" \
			"${options[@]}" --requirement "${root}/scripts/locks/build.in" &&
			venv::pip "${directory}" setup.log "Installing packages" "${options[@]}" \
				--no-build-isolation "${chosen[@]}" &&
			setup::_install_alone "${directory}" "${root}" "${kind}" "${options[@]}" && return
	fi
	setup::_advise "$@"
	return 1
}

# Prints pip's arguments for what is resolved with its dependencies, one a line.
setup::choice() {
	local -r root="$1" kind="$2" version="$3"
	local extras="elastic,examples"
	setup::is_older "${version}" "${SETUP_EMULATOR_JAX}" || extras+=",emulator"
	printf '%s\n' --editable "${root}[${extras}]" "jax==${version}"
	[[ ${kind} != maxtext-jax ]] || printf '%s\n' --requirement "${root}/scripts/locks/maxtext.in"
}

setup::_install_alone() {
	local -r directory="$1" root="$2" kind="$3"
	shift 3
	[[ ${kind} == maxtext-jax ]] || return 0
	venv::pip "${directory}" setup-maxtext.log "Installing MaxText" "$@" \
		--no-deps --requirement "${root}/scripts/locks/maxtext-alone.in"
}

# What to do when pip could not install an environment's packages, as far as it is not pip's to say.
setup::_advise() {
	local -r directory="$1" root="$2" kind="$3" version="$4" wheels="$5"
	local -r lock="$(setup::lock "${root}" "${kind}" "${version}")"
	if ! grep -qE 'No matching distribution|Could not find a version' "${directory}"/setup*.log; then
		return
	fi
	if [[ -z ${wheels} ]]; then
		common::log "A package index has no wheel of it for $("${directory}/bin/python" --version) on" \
			"$(uname -m), or was not reached: check that JAX ${version} is there, or choose another with" \
			"--jax. On a machine without an index: --wheels DIR."
	else
		common::log "${wheels} lacks packages. To fill it, on a machine of the same kind that reaches a" \
			"package index, with the same Python:"
		if [[ -f ${lock} ]]; then
			common::log "  python -m pip download --only-binary :all: --no-deps --require-hashes" \
				"--dest DIR --requirement ${lock}"
		else
			common::log "  scripts/setup_env.sh --jax ${version} --no-images, then" \
				"$(basename "${directory}")/bin/python -m pip freeze --exclude-editable >LIST," \
				"then python -m pip download --no-deps --dest DIR --requirement LIST"
		fi
	fi
}

# setup::lock ROOT KIND VERSION   Prints where the list of exact packages is, if there is one.
setup::lock() {
	printf '%s/scripts/locks/%s-%s.lock\n' "$@"
}

setup::count() {
	grep -c '^[A-Za-z0-9].*==' "$1"
}

# setup::emulator_jax ROOT   Prints the version of JAX that the emulator is developed on.
setup::emulator_jax() {
	sed -n 's/^jax==\([0-9.]*\).*/\1/p' "$1/requirements.lock"
}

# setup::python DIRECTORY   Prints a Python that runs this project's programs of the standard library:
# the environment's, else any that will do.
setup::python() {
	if "$1/bin/python" -I -S -c '' </dev/null 2>/dev/null; then
		printf '%s\n' "$1/bin/python"
	else
		python::find
	fi
}

# setup::references ROOT PYTHON VERSION   Prints the images of a version of JAX, each once.
setup::references() {
	local -r root="$1" python="$2" version="$3"
	PYTHONPATH="${root}/supervisor" "${python}" -P -m pathways_slurm.images "${version}" |
		sed 's/^[a-z_]* //' | sort -u
}

# setup::image_file ROOT DIRECTORY REFERENCE   Prints the file of an image, which need not be there.
setup::image_file() (
	# shellcheck source=../../enroot/lib/layer.sh
	source "$1/enroot/lib/layer.sh"
	if [[ $3 == /* ]]; then
		printf '%s\n' "$3"
	else
		printf '%s/%s\n' "$2" "$(image::file_name "$(image::uri "$3")")"
	fi
)

# setup::has_emulator_image ROOT PYTHON ENVIRONMENT DIRECTORY   Whether the directory has the emulator's
# image with the jaxlib of an environment. The image is named after that, not after JAX.
setup::has_emulator_image() {
	local -r root="$1" python="$2" environment="$3" directory="$4"
	local -a found=("${environment}"/lib/python*/site-packages/jaxlib-*.dist-info)
	local version="${found[0]##*/jaxlib-}"
	[[ -d ${found[0]} ]] || return
	version="${version%.dist-info}"
	env -u PATHWAYS_SERVER_IMAGE -u PATHWAYS_PROXY_IMAGE PYTHONPATH="${root}/supervisor" "${python}" \
		-P -m pathways_slurm.images --emulator "${directory}" "${version}" >/dev/null 2>&1
}

# setup::link DIRECTORY NAME TARGET   Makes DIRECTORY/NAME a link to TARGET in one step.
setup::link() {
	local -r directory="$1" name="$2" target="$3"
	local lock
	! setup::is_linked "$@" || return 0
	if [[ -e ${directory}/${name} && ! -L ${directory}/${name} ]]; then
		common::fail 1 "${directory}/${name} is no symbolic link." "Remove it, then run this again."
	fi
	exec {lock}>>"${directory}/.links.lock"
	flock "${lock}"
	ln -sfn -- "${target}" "${directory}/.${name}.new"
	mv -fT -- "${directory}/.${name}.new" "${directory}/${name}"
	exec {lock}>&-
}

# setup::is_linked DIRECTORY NAME TARGET
setup::is_linked() {
	[[ -L $1/$2 && "$(readlink -- "$1/$2")" == "$3" ]]
}

# setup::existing DIRECTORY   Prints the directory itself, or the nearest one above that is there.
setup::existing() {
	local place="$1"
	until [[ -d ${place} ]]; do
		place="${place%/*}"
		place="${place:-/}"
	done
	printf '%s\n' "${place}"
}
