#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# A JAX program on a service's slices, as a Slurm job or without one.
#
#   sbatch [SBATCH OPTION]... scripts/run_jax.sh [OPTION]... -- python my_train.py [ARGUMENT]...
#   scripts/run_jax.sh --help
#
# It waits until the service can be used, starts the program with the variables of cluster.env,
# passes signals on to it, starts it again when it fails, and has the job requeued when it is
# preempted. For a job of your own, copy this file into your checkout's scripts/ and change
#
#   - the options of sbatch below: partition, time, and the signal that tells your program to save
#     before the time is up: --signal=B:USR1@120, or B:TERM@300 for one with autocheckpoints;
#   - the options of "pathways-slurm run" in the last line: how often a program is started again
#     (--restarts), how often the job is requeued (--requeues), and the signal that your program is
#     to get when a slice is about to go (--notice-signal);
#   - what is run: the program and its arguments in the place of "$@".
#
# The program resumes by itself: have it save checkpoints to a directory that stays the same, and
# load the last committed one when it starts. PATHWAYS_RESTART_COUNT and SLURM_RESTART_COUNT tell it
# that it is not the first. docs/examples/train_transformer.py does all of this.
#
#SBATCH --job-name=jax
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

readonly LOOK_TIMES=10
readonly LOOK_AGAIN_S=10

jax::fail() {
	local -r code="$1"
	shift
	printf "error: %s\n" "$*" >&2
	exit "${code}"
}

# Prints what Slurm knows of this job. Its slurmctld may be started anew in just this moment.
jax::details() {
	local attempt
	for ((attempt = 1; attempt <= LOOK_TIMES; attempt++)); do
		scontrol show job "${SLURM_JOB_ID}" && return
		((attempt == LOOK_TIMES)) || sleep "${LOOK_AGAIN_S}"
	done
	jax::fail 1 "scontrol show job ${SLURM_JOB_ID} failed ${LOOK_TIMES} times; is slurmctld up?"
}

# Prints the checkout. Slurm runs a copy of this file, so there it is found from the job itself:
# Command= holds the path that was submitted together with its arguments, so with spaces in either
# the longest part that is a script is the path.
jax::checkout() {
	local directory details candidate
	local -r missing="the checkout of this script was not found; submit the file itself:"
	directory="$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)"
	if [[ ! -f ${directory}/scripts/lib/workload.sh ]]; then
		[[ -n ${SLURM_JOB_ID-} ]] || jax::fail 2 "${missing} sbatch PATH/scripts/run_jax.sh"
		details="$(jax::details)" || exit
		candidate="$(sed -n "s/^ *Command=//p" <<<"${details}")"
		# Relative to where sbatch was called, also with --chdir.
		[[ ${candidate} == /* ]] || candidate="${SLURM_SUBMIT_DIR-}/${candidate}"
		until [[ -f ${candidate} && ${candidate} == *.sh ]]; do
			[[ ${candidate} == *" "* ]] ||
				jax::fail 2 "${missing} sbatch PATH/scripts/run_jax.sh"
			candidate="${candidate% *}"
		done
		directory="$(cd "$(dirname "$(readlink -f "${candidate}")")/.." && pwd -P)"
	fi
	printf "%s\n" "${directory}"
}

checkout="$(jax::checkout)" || exit
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/installation.sh
source "${checkout}/scripts/lib/installation.sh"
# shellcheck source=lib/workload.sh
source "${checkout}/scripts/lib/workload.sh"

environment="$(installation::environment "${checkout}")" || exit
workload::become "${environment}" run --check-jax --restarts 3 --requeues 100 "$@"
