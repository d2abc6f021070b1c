#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The Pathways service as a Slurm job: sbatch scripts/start_pathways.sh. With --help, or when it is
# not run by Slurm, it tells how to use it.
#
# Slurm runs a copy of this file from its spool directory, so nothing here may depend on where it
# lies: the installation is found from the job's own Command.
#
#SBATCH --job-name=pathways
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --open-mode=append
set -euo pipefail

readonly SCRIPT_NAME="start_pathways.sh"
readonly EXIT_FAILED=1
readonly EXIT_USAGE=2
readonly LOOK_TIMES=10
readonly LOOK_AGAIN_S=10
# What "pathways-slurm supervise" returns when it is done; anything else is a death that a new start
# may mend.
readonly FINAL_CODES=" 0 1 2 3 "

supervisor_pid=""
stop_signal=""

service::usage() {
	cat <<'USAGE'
Usage: sbatch [SBATCH OPTION]... PATH/scripts/start_pathways.sh

Starts a Pathways service on one CPU node: resource manager, IFRT proxy, and one array task per TPU
slice. Once MIN_SLICES slices answer, its address is in ~/pathways/cluster.env. End it with scancel.

Settings are environment variables at the time of sbatch:
  SLICE_SHAPE   shape of a slice, such as 2x4 (must be set)
  MIN_SLICES    slices that must answer before the service is announced (must be set)
  MAX_SLICES    slices that the service asks for (must be set)
  GCS_BUCKET    bucket or absolute directory for temporary files (must be set)
  TPU_TYPE      v4, v5e, v5p, v6e or tpu7x (default: v6e)
  PATHWAYS_*    everything else; "pathways-slurm up --help" lists all with their defaults

Exit codes: 0 ended by order, 1 the service failed, 2 settings are wrong, 3 it runs already.
USAGE
}

service::log() {
	printf '%s: %s\n' "${SCRIPT_NAME}" "$*" >&2
}

service::fail() {
	local -r code="$1"
	shift
	service::log "$@"
	exit "${code}"
}

# Prints what Slurm knows of this job. Its slurmctld may be started anew in just this moment.
service::details() {
	local attempt
	for ((attempt = 1; attempt <= LOOK_TIMES; attempt++)); do
		scontrol show job "${SLURM_JOB_ID}" && return
		((attempt == LOOK_TIMES)) || sleep "${LOOK_AGAIN_S}"
	done
	service::fail "${EXIT_FAILED}" "scontrol show job ${SLURM_JOB_ID} failed ${LOOK_TIMES} times;" \
		"slurmctld does not answer"
}

# service::number VALUE DEFAULT   A whole number as it is, without what follows a point; else the
# default, since no other form can be counted with here. The supervisor tells what is wrong.
service::number() {
	local -r whole="${1%%.*}"
	if [[ ${whole} =~ ^[0-9]{1,9}$ && $1 != *[!0-9.]* ]]; then
		printf '%d\n' "$((10#${whole}))"
	else
		printf '%d\n' "$2"
	fi
}

# Prints the absolute path of the script that was submitted. Command= holds it together with its
# arguments, so with spaces in either the longest part that is this script is the path.
service::submitted_script() {
	local details command candidate
	details="$(service::details)" || exit
	command="$(sed -n 's/^ *Command=//p' <<<"${details}")"
	if [[ ${command} == "(null)" || -z ${command} ]]; then
		service::fail "${EXIT_USAGE}" \
			"submitted by --wrap or through standard input, so the installation can't be found;" \
			"submit the file itself: sbatch PATH/scripts/${SCRIPT_NAME}"
	fi
	candidate="${command}"
	while :; do
		# Relative to where sbatch was called, also with --chdir.
		[[ ${candidate} == /* ]] || candidate="${SLURM_SUBMIT_DIR}/${candidate}"
		if [[ -f ${candidate} && ${candidate##*/} == *.sh ]]; then
			printf '%s\n' "${candidate}"
			return
		fi
		[[ ${candidate} == *" "* ]] || break
		candidate="${candidate% *}"
	done
	service::fail "${EXIT_USAGE}" "the submitted script (${command}) is not there any more"
}

# Prints the checkout that the submitted script belongs to.
service::root() {
	local script root
	script="$(service::submitted_script)" || exit
	root="$(cd "$(dirname "$(readlink -f "${script}")")/.." && pwd -P)"
	if [[ ! -f ${root}/scripts/lib/installation.sh ]]; then
		service::fail "${EXIT_USAGE}" "${script} is no part of a checkout: there is no" \
			"${root}/scripts/lib/installation.sh; submit the checkout's own file, not a copy of it"
	fi
	printf '%s\n' "${root}"
}

# service::program ROOT   Prints the pathways-slurm of the environment for services.
service::program() {
	local -r root="$1"
	local environment
	# shellcheck source=lib/common.sh
	source "${root}/scripts/lib/common.sh"
	# shellcheck source=lib/installation.sh
	source "${root}/scripts/lib/installation.sh"
	environment="$(installation::environment "${root}")" || exit
	printf '%s\n' "${environment}/bin/pathways-slurm"
}

# shellcheck disable=SC2329 # the traps call it
service::stop() {
	stop_signal="$1"
	service::log "SIG${stop_signal}: ending the service"
	[[ -z ${supervisor_pid} ]] || kill -TERM "${supervisor_pid}" 2>/dev/null || true
}

# Runs one supervisor to its end and returns its exit code. It is a child of this shell, and the
# service belongs to this shell: it ends when this shell ends, however that happens.
service::supervise() {
	local -r program="$1"
	local code
	"${program}" supervise &
	supervisor_pid=$!
	# It may have come before there was anyone to pass it to.
	[[ -z ${stop_signal} ]] || kill -TERM "${supervisor_pid}" 2>/dev/null || true
	while :; do
		code=0
		wait "${supervisor_pid}" || code=$?
		# A trapped signal ends the wait but not the supervisor.
		kill -0 "${supervisor_pid}" 2>/dev/null || break
	done
	supervisor_pid=""
	return "${code}"
}

service::main() {
	local root program code budget window deaths=0 window_start=${SECONDS}
	budget="$(service::number "${PATHWAYS_RESTART_BUDGET-}" 5)"
	window="$(service::number "${PATHWAYS_RESTART_WINDOW_S-}" 600)"
	root="$(service::root)" || exit
	program="$(service::program "${root}")" || exit
	export PATHWAYS_SCHEDULER="${PATHWAYS_SCHEDULER:-slurm}"
	local name
	for name in TERM INT HUP; do
		# shellcheck disable=SC2064 # the name of this turn is meant
		trap "service::stop ${name}" "${name}"
	done
	while :; do
		code=0
		service::supervise "${program}" || code=$?
		[[ ${FINAL_CODES} != *" ${code} "* ]] || break
		if [[ -n ${stop_signal} ]]; then
			break
		fi
		((SECONDS - window_start < window)) || deaths=0 window_start=${SECONDS}
		if ((deaths >= budget)); then
			service::log "the supervisor has died (code ${code}) more than ${budget} times within" \
				"${window} s; cleaning up"
			code=${EXIT_FAILED}
			break
		fi
		deaths=$((deaths + 1))
		service::log "the supervisor has died (code ${code}); starting it again" \
			"(${deaths} of ${budget} within ${window} s)"
	done
	if ((code != 0 && code != 2 && code != 3)); then
		# Ends what it could not end any more, unless another service has begun to do so.
		"${program}" down --of-job="${SLURM_JOB_ID}" || true
	fi
	# What containers have left on this node, if there were any.
	"${root}/enroot/remove_stale.sh" || true
	exit "${code}"
}

if [[ ${1-} == --help || ${1-} == -h ]]; then
	service::usage
	exit 0
fi
if [[ -z ${SLURM_JOB_ID-} ]]; then
	service::usage >&2
	service::fail "${EXIT_USAGE}" "this is a batch script: submit it with sbatch"
fi
service::main
