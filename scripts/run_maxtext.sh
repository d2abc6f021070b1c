#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# MaxText on a service's slices, as a Slurm job or without one; docs/maxtext.md tells more.
#
#   sbatch [SBATCH OPTION]... scripts/run_maxtext.sh [OPTION]... [CONFIG.yml] [KEY=VALUE]...
#   scripts/run_maxtext.sh --help
#
#SBATCH --job-name=maxtext
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

readonly LOOK_TIMES=10
readonly LOOK_AGAIN_S=10

maxtext::fail() {
	local -r code="$1"
	shift
	printf "error: %s\n" "$*" >&2
	exit "${code}"
}

# Prints what Slurm knows of this job. Its slurmctld may be started anew in just this moment.
maxtext::details() {
	local attempt
	for ((attempt = 1; attempt <= LOOK_TIMES; attempt++)); do
		scontrol show job "${SLURM_JOB_ID}" && return
		((attempt == LOOK_TIMES)) || sleep "${LOOK_AGAIN_S}"
	done
	maxtext::fail 1 "scontrol show job ${SLURM_JOB_ID} failed ${LOOK_TIMES} times; is slurmctld up?"
}

# Prints the checkout. Slurm runs a copy of this file, so there it is found from the job itself:
# Command= holds the path that was submitted together with its arguments, so with spaces in either
# the longest part that is a script is the path.
maxtext::checkout() {
	local directory details candidate
	local -r missing="the checkout of this script was not found; submit the file itself:"
	directory="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)"
	if [[ ! -f ${directory}/scripts/lib/workload.sh ]]; then
		[[ -n ${SLURM_JOB_ID-} ]] || maxtext::fail 2 "${missing} sbatch PATH/scripts/run_maxtext.sh"
		details="$(maxtext::details)" || exit
		candidate="$(sed -n "s/^ *Command=//p" <<<"${details}")"
		# Relative to where sbatch was called, also with --chdir.
		[[ ${candidate} == /* ]] || candidate="${SLURM_SUBMIT_DIR-}/${candidate}"
		until [[ -f ${candidate} && ${candidate} == *.sh ]]; do
			[[ ${candidate} == *" "* ]] ||
				maxtext::fail 2 "${missing} sbatch PATH/scripts/run_maxtext.sh"
			candidate="${candidate% *}"
		done
		directory="$(cd "$(dirname "$(readlink -f "${candidate}")")/.." && pwd -P)"
	fi
	printf "%s\n" "${directory}"
}

checkout="$(maxtext::checkout)" || exit
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/installation.sh
source "${checkout}/scripts/lib/installation.sh"
# shellcheck source=lib/workload.sh
source "${checkout}/scripts/lib/workload.sh"

environment="$(installation::maxtext_environment "${checkout}")" || exit
workload::become "${environment}" maxtext "$@"
