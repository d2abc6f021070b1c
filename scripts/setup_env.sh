#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# From nothing to ready on a login node: an environment with one version of JAX, and the images that
# match it. scripts/setup_env.sh --help tells more.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/python.sh
source "${checkout}/scripts/lib/python.sh"
# shellcheck source=lib/venv.sh
source "${checkout}/scripts/lib/venv.sh"
# shellcheck source=lib/images.sh
source "${checkout}/scripts/lib/images.sh"
# shellcheck source=lib/installation.sh
source "${checkout}/scripts/lib/installation.sh"
# shellcheck source=lib/setup.sh
source "${checkout}/scripts/lib/setup.sh"

readonly EXIT_CODE_USAGE=2
readonly EXIT_CODE_PYTHON=3
readonly EXIT_CODE_PLACE=4
readonly EXIT_CODE_TOOLS=5

# Prints the variable by which a service runs what was set up; nothing where that is the default.
setup_env::runtime() {
	if [[ -z ${use_emulator} ]]; then
		printf 'PATHWAYS_RUNTIME=pathways '
	elif [[ -n ${with_images} ]]; then
		printf 'PATHWAYS_CONTAINER=enroot '
	fi
}

# What environments, and the emulator's image, take on disk while they are made.
readonly ENVIRONMENT_MIB=1500
readonly MAXTEXT_MIB=2500
readonly EMULATOR_IMAGE_MIB=1000
readonly IMPORTED_IMAGE_MIB=1000

# Of the run, as its options say.
jax=""
base=""
wheels=""
use_emulator=""
with_maxtext=""
with_images=1
dry_run=""

setup_env::usage() {
	cat <<USAGE
Usage: scripts/setup_env.sh [OPTION]...

Makes all that a service and its programs need, in a place that the login node, the service's node
and the TPU nodes see: a Python environment with one version of JAX, the libraries that fit it and
this project, and the container images that match. What is there already is left alone. It may be
interrupted at any point and run again, and several at once wait for each other.

  --jax X.Y.Z    version of JAX (default: $(images::versions "${checkout}" | tail -n 1), the newest with images;
                 with --emulator $(setup::emulator_jax "${checkout}"), the newest that it runs on)
  --emulator     for services with PATHWAYS_RUNTIME=emulator: builds the emulator's own image instead
                 of importing Pathways' (default: import)
  --maxtext      also makes an environment with MaxText, with the same JAX (default: no)
  --no-images    environments only: no image is imported or built (default: images too)
  --wheels DIR   installs from the wheels in DIR, without a package index (default: pip's settings)
  --dir DIR      where everything is put (default: \$PATHWAYS_ENVIRONMENTS, else environments in the
                 checkout); services then need PATHWAYS_ENVIRONMENTS=DIR PATHWAYS_IMAGE_DIR=DIR/images
  --dry-run      prints what would be done, one step a line, and changes nothing
  --help         shows this text

Images are put in \$PATHWAYS_IMAGE_DIR, else in images in DIR. \$PATHWAYS_SERVER_IMAGE and
\$PATHWAYS_PROXY_IMAGE replace those of enroot/images.toml.

Exit codes: 0 ready, 1 a step failed, 2 wrong usage or a version without images, 3 no Python that will
do, 4 no space or not writable, 5 Enroot or mksquashfs is missing, 64 to 70 an import failed
(docs/enroot.md), 130 interrupted.
USAGE
}

setup_env::fail_usage() {
	common::fail "${EXIT_CODE_USAGE}" "$@" "See scripts/setup_env.sh --help."
}

setup_env::read_options() {
	while (($# > 0)); do
		case "$1" in
		--jax | --wheels | --dir)
			(($# >= 2)) && [[ -n $2 && $2 != --* ]] || setup_env::fail_usage "$1 needs a value."
			case "$1" in
			--jax) jax="$2" ;;
			--wheels) wheels="$2" ;;
			--dir) base="$2" ;;
			esac
			shift
			;;
		--emulator) use_emulator=1 ;;
		--maxtext) with_maxtext=1 ;;
		--no-images) with_images="" ;;
		--dry-run) dry_run=1 ;;
		-h | --help)
			setup_env::usage
			exit 0
			;;
		*) setup_env::fail_usage "Unknown argument: $1" ;;
		esac
		shift
	done
	setup_env::_check_jax
	if [[ -n ${wheels} ]]; then
		compgen -G "${wheels}/*.whl" >/dev/null ||
			setup_env::fail_usage "--wheels ${wheels}: there are no wheels (*.whl) in it."
		wheels="$(cd "${wheels}" && pwd -P)"
	fi
	if [[ -z ${base} ]]; then
		base="$(installation::environments "${checkout}")" || exit
	fi
	[[ ${base} == /* ]] || base="${PWD}/${base}"
	base="${base%/}"
	if [[ -n ${with_images} && ! "$(setup_env::images)" =~ ^/[^[:space:]:]+$ ]]; then
		setup_env::fail_usage "Images can't be kept in '$(setup_env::images)'." \
			"Enroot takes no path with spaces or colons: name another one with --dir, or" \
			"PATHWAYS_IMAGE_DIR; or leave images out with --no-images."
	fi
}

setup_env::_check_jax() {
	if [[ -z ${jax} ]]; then
		if [[ -n ${use_emulator} ]]; then
			jax="$(setup::emulator_jax "${checkout}")"
		else
			jax="$(images::versions "${checkout}" | tail -n 1)"
		fi
	fi
	[[ ${jax} =~ ^[0-9]+\.[0-9]+\.[0-9]+(\.[0-9]+)?$ ]] ||
		setup_env::fail_usage "--jax ${jax}: that is no version such as 0.11.1."
	if setup::is_older "${jax}" "${SETUP_OLDEST_JAX}"; then
		setup_env::fail_usage "--jax ${jax}: this project needs JAX ${SETUP_OLDEST_JAX} or newer."
	fi
	if [[ -n ${use_emulator} ]] && setup::is_older "${jax}" "${SETUP_EMULATOR_JAX}"; then
		setup_env::fail_usage "--jax ${jax}: the emulator runs on JAX ${SETUP_EMULATOR_JAX} or newer." \
			"It serves programs with JAX ${SETUP_OLDEST_JAX} or newer: make it an environment of its own," \
			"and then one for the programs: scripts/setup_env.sh --jax ${jax} --no-images"
	fi
}

# Prints the kinds of environments that are wanted, and the link of each.
setup_env::kinds() {
	printf 'jax current\n'
	[[ -z ${with_maxtext} ]] || printf 'maxtext-jax maxtext\n'
}

# Prints the directory of images.
setup_env::images() {
	printf '%s\n' "${PATHWAYS_IMAGE_DIR:-${base}/images}"
}

# setup_env::plan PYTHON REFERENCE...   Prints what is to be done, one step a line; nothing if all is
# there.
setup_env::plan() {
	local -r python="$1"
	local kind link
	shift
	while read -r kind link; do
		setup_env::_plan_environment "${kind}"
		[[ ${kind} != jax ]] || setup_env::_plan_images "${python}" "$@"
		setup::is_linked "${base}" "${link}" "${kind}-${jax}" ||
			printf 'point %s to %s\n' "${base}/${link}" "${kind}-${jax}"
	done < <(setup_env::kinds)
}

setup_env::_plan_environment() {
	local -r kind="$1"
	local -r directory="${base}/${kind}-${jax}"
	local -r lock="$(setup::lock "${checkout}" "${kind}" "${jax}")"
	local stale
	stale="$(venv::stale "${directory}" "${checkout}" setup "${kind}" "${jax}" "${wheels}")"
	case "${stale%% *}" in
	"") ;;
	project) printf 'install the project itself into %s (%s)\n' "${directory}" "${stale#* }" ;;
	*)
		printf 'make %s (%s), with ' "${directory}" "${stale#* }"
		if [[ -f ${lock} ]]; then
			printf 'the %s packages of %s\n' "$(setup::count "${lock}")" "${lock#"${checkout}/"}"
		else
			printf 'JAX %s and packages that pip chooses\n' "${jax}"
		fi
		;;
	esac
}

setup_env::_plan_images() {
	local -r python="$1"
	local -r directory="$(setup_env::images)"
	local reference file
	shift
	[[ -n ${with_images} ]] || return 0
	if [[ -n ${use_emulator} ]]; then
		setup::has_emulator_image "${checkout}" "${python}" "${base}/jax-${jax}" "${directory}" ||
			printf 'build the image of the emulator in %s\n' "${directory}"
		return
	fi
	for reference in "$@"; do
		[[ ${reference} != /* || -r ${reference} ]] || setup_env::fail_usage \
			"There is no image ${reference} that can be read here: see to PATHWAYS_SERVER_IMAGE and" \
			"PATHWAYS_PROXY_IMAGE."
		file="$(setup::image_file "${checkout}" "${directory}" "${reference}")" || exit
		[[ -f ${file} ]] || printf 'import %s to %s\n' "${reference}" "${file}"
	done
}

# setup_env::check PLAN   Ends the script if the steps can't succeed.
setup_env::check() {
	local -r plan="$1"
	local place
	local -i free needed=0
	place="$(setup::existing "${base}")"
	[[ -w ${place} && -x ${place} ]] ||
		common::fail "${EXIT_CODE_PLACE}" "Could not set up ${base}: ${place} is not writable." \
			"Name a place of yours that all nodes see: --dir DIR."
	[[ ${plan} != *"make ${base}/jax-"* ]] || needed+=${ENVIRONMENT_MIB}
	[[ ${plan} != *"make ${base}/maxtext-jax-"* ]] || needed+=${MAXTEXT_MIB}
	[[ ${plan} != *"build the image"* ]] || needed+=${EMULATOR_IMAGE_MIB}
	needed+=$(($(grep -c '^import ' <<<"${plan}" || true) * IMPORTED_IMAGE_MIB))
	free="$(df --output=avail -B1M -- "${place}" | tail -n 1)"
	((free >= needed)) ||
		common::fail "${EXIT_CODE_PLACE}" "No space: ${place} has ${free} MiB free, ${needed} MiB are needed." \
			"Free some, or name another place: --dir DIR."
	if [[ ${plan} == *"import "* ]] && ! command -v enroot >/dev/null; then
		common::fail "${EXIT_CODE_TOOLS}" "There is no enroot on PATH, which imports the images." \
			"Run this on a node that has Enroot, with --dir in a place that both see. Or leave the import" \
			"to the nodes, at the service's first start: --no-images"
	fi
	if [[ ${plan} == *"build the image"* ]] &&
		! PATH="${PATH}:/usr/sbin:/sbin" command -v mksquashfs >/dev/null; then
		common::fail "${EXIT_CODE_TOOLS}" "There is no mksquashfs, which builds the emulator's image." \
			"As root: apt-get install squashfs-tools. Or, for services without containers: --no-images"
	fi
}

# setup_env::perform REFERENCE...
setup_env::perform() {
	local kind link
	mkdir -p -- "${base}" || exit "${EXIT_CODE_PLACE}"
	while read -r kind link <&3; do
		venv::ensure "${base}/${kind}-${jax}" "${checkout}" setup "${kind}" "${jax}" "${wheels}"
		[[ ${kind} != jax || -z ${with_images} ]] || setup_env::_ensure_images "$@"
		setup_env::_say_moved "${link}" "${kind}-${jax}"
		setup::link "${base}" "${link}" "${kind}-${jax}"
	done 3< <(setup_env::kinds)
}

# setup_env::_say_moved LINK TARGET   What services and programs run with is not changed in silence.
setup_env::_say_moved() {
	local before
	before="$(readlink -- "${base}/$1")" || return 0
	[[ ${before} == "$2" ]] || common::log "$1 is $2 from now on; it was ${before}"
}

setup_env::_ensure_images() {
	local -r python="${base}/jax-${jax}/bin/python"
	local -r directory="$(setup_env::images)"
	local -ri started=${SECONDS}
	local image
	if [[ -z ${use_emulator} ]]; then
		PATHWAYS_IMAGE_DIR="${directory}" "${checkout}/enroot/import_image.sh" "$@" >/dev/null || exit
	elif ! setup::has_emulator_image "${checkout}" "${python}" "${base}/jax-${jax}" "${directory}"; then
		common::log "Building the image of the emulator"
		image="$("${python}" -P "${checkout}/enroot/emulator_image.py" "${directory}")" || exit 1
		common::log "Built ${image} in $(common::elapsed $((SECONDS - started)))"
	fi
}

setup_env::main() {
	local python plan=""
	local -a references=()
	setup_env::read_options "$@"
	venv::shield
	python="$(setup::python "${base}/jax-${jax}")" || exit "${EXIT_CODE_PYTHON}"
	if [[ -n ${with_images} && -z ${use_emulator} ]]; then
		mapfile -t references < <(setup::references "${checkout}" "${python}" "${jax}")
		((${#references[@]} > 0)) || common::fail "${EXIT_CODE_USAGE}" \
			"Without images there is no service of JAX ${jax} on TPUs." \
			"For an environment alone: --no-images. For the emulator: --emulator."
	fi
	plan="$(setup_env::plan "${python}" ${references[@]+"${references[@]}"})" || exit
	if [[ -z ${plan} ]]; then
		common::log "Nothing to do: ${base} has all for JAX ${jax}."
		return
	fi
	[[ -z ${dry_run} ]] || printf '%s\n' "${plan}"
	setup_env::check "${plan}"
	[[ -z ${dry_run} ]] || return 0
	setup_env::perform ${references[@]+"${references[@]}"}
	common::log "Ready: JAX ${jax} in ${base}. Start a service:" \
		"$(setup_env::runtime)sbatch ${checkout}/scripts/start_pathways.sh"
	if [[ ${base} != "${checkout}/environments" ]]; then
		common::log "First, for services and programs to find it:" \
			"export PATHWAYS_ENVIRONMENTS=${base@Q} PATHWAYS_IMAGE_DIR=$(setup_env::images)"
	fi
}

setup_env::main "$@"
