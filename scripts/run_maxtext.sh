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

# Prints the checkout. Slurm runs a copy of this file, so there it is found from the job itself:
# Command= holds the path that was submitted together with its arguments, so with spaces in either
# the longest part that is a script is the path.
maxtext::checkout() {
	local directory details candidate
	directory="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)"
	if [[ ! -f ${directory}/scripts/lib/workload.sh ]]; then
		details="$(scontrol show job "${SLURM_JOB_ID-}")" || return 1
		candidate="$(sed -n "s/^ *Command=//p" <<<"${details}")"
		# Relative to where sbatch was called, also with --chdir.
		[[ ${candidate} == /* ]] || candidate="${SLURM_SUBMIT_DIR-}/${candidate}"
		until [[ -f ${candidate} && ${candidate} == *.sh ]]; do
			[[ ${candidate} == *" "* ]] || return 1
			candidate="${candidate% *}"
		done
		directory="$(cd "$(dirname "$(readlink -f "${candidate}")")/.." && pwd -P)"
	fi
	printf "%s\n" "${directory}"
}

checkout="$(maxtext::checkout)" || {
	printf "error: the checkout of this script was not found; submit the file itself: %s\n" \
		"sbatch PATH/scripts/run_maxtext.sh" >&2
	exit 2
}
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/installation.sh
source "${checkout}/scripts/lib/installation.sh"
# shellcheck source=lib/workload.sh
source "${checkout}/scripts/lib/workload.sh"

environment="$(installation::maxtext_environment "${checkout}")" || exit
workload::become "${environment}" maxtext "$@"
