#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# One slice: the batch script of one task of a service's job array. The service submits it:
#   sbatch ... run_worker_slice.sh LOG_DIR FIRST_INCARNATION PROGRAM [ARGUMENT...]
#
# Runs PROGRAM once on every node of the task, as the service's scheduler promises. The end of one
# host, whatever its exit code, ends the slice. Slurm runs a copy of this file from its own spool
# directory on the slice's first node, so nothing here depends on where the file is; it needs bash
# and Slurm's commands.
#
# Sets, whatever was inherited: PATHWAYS_SLICE_INDEX, PATHWAYS_INCARNATION, PATHWAYS_NODE_NAMES,
# PATHWAYS_NODE_ADDRESSES (comma lists, in node order) and, per host, PATHWAYS_HOST_INDEX.
# With PATHWAYS_CONTAINER_EPILOG, a script, every node runs that when its host has ended.
# Writes LOG_DIR/slice-I/host-H.log, appended.

set -euo pipefail

readonly EXIT_USAGE=2
# slurmctld may be away for a moment, just as it has started this task.
readonly LOOK_TIMES=5
readonly LOOK_AGAIN_S=3

slice::fail() {
	printf 'run_worker_slice.sh: %s\n' "$1" >&2
	exit "${EXIT_USAGE}"
}

# slice::number NAME VALUE
slice::number() {
	[[ $2 =~ ^(0|[1-9][0-9]{0,8})$ ]] || slice::fail "$1 is '$2', which is no whole number from 0"
}

# The node addresses of the names given, as a comma list in their order. Names need not resolve.
slice::addresses() {
	local -a words=()
	local -A address=()
	local attempt line word name list=
	for ((attempt = 1; ; attempt++)); do
		while read -r line; do
			read -r -a words <<<"${line}"
			name=
			for word in "${words[@]}"; do
				case "${word}" in
				NodeName=*) name="${word#*=}" ;;
				# The first: an administrator's free text comes later.
				NodeAddr=*) [[ -v 'address[${name}]' ]] || address["${name}"]="${word#*=}" ;;
				esac
			done
		done < <(scontrol --oneliner show node "${SLURM_JOB_NODELIST}")
		((${#address[@]} < $#)) || break
		((attempt < LOOK_TIMES)) || slice::fail "Slurm does not tell the addresses of $*"
		sleep "${LOOK_AGAIN_S}"
	done
	for name in "$@"; do
		[[ -n ${address["${name}"]-} ]] || slice::fail "Slurm tells no address of node ${name}"
		list+="${list:+,}${address["${name}"]}"
	done
	printf '%s\n' "${list}"
}

# Becomes one host's program: slice::host LOG_DIR PROGRAM [ARGUMENT...]. Runs on every node, in a
# bash that has nothing of this file but this function.
slice::host() {
	set -euo pipefail
	local -r logs="$1/slice-${PATHWAYS_SLICE_INDEX}"
	shift
	umask 077
	mkdir -p -- "${logs}"
	export PATHWAYS_HOST_INDEX="${SLURM_NODEID}"
	exec </dev/null >>"${logs}/host-${SLURM_NODEID}.log" 2>&1
	printf '=== slice %s host %s incarnation %s on %s %(%Y-%m-%dT%H:%M:%S%z)T ===\n' \
		"${PATHWAYS_SLICE_INDEX}" "${SLURM_NODEID}" "${PATHWAYS_INCARNATION}" \
		"${SLURMD_NODENAME-}" -1
	exec "$@"
}

slice::main() {
	(($# >= 3)) ||
		slice::fail "usage: run_worker_slice.sh LOG_DIR FIRST_INCARNATION PROGRAM [ARGUMENT...]"
	local -r log_dir="$1" first="$2"
	shift 2
	slice::number FIRST_INCARNATION "${first}"
	slice::number SLURM_ARRAY_TASK_ID "${SLURM_ARRAY_TASK_ID-}"
	# Unset in a task's first run.
	slice::number SLURM_RESTART_COUNT "${SLURM_RESTART_COUNT:-0}"

	local names
	names="$(scontrol show hostnames "${SLURM_JOB_NODELIST}")"
	local -a nodes
	mapfile -t nodes <<<"${names}"
	local -x PATHWAYS_SLICE_INDEX="${SLURM_ARRAY_TASK_ID}"
	local -x PATHWAYS_INCARNATION="$((first + ${SLURM_RESTART_COUNT:-0}))"
	local -x PATHWAYS_NODE_NAMES="${names//$'\n'/,}"
	local PATHWAYS_NODE_ADDRESSES
	PATHWAYS_NODE_ADDRESSES="$(slice::addresses "${nodes[@]}")"
	export PATHWAYS_NODE_ADDRESSES
	unset PATHWAYS_HOST_INDEX

	printf '=== slice %s incarnation %s: Slurm job %s on %s %(%Y-%m-%dT%H:%M:%S%z)T ===\n' \
		"${PATHWAYS_SLICE_INDEX}" "${PATHWAYS_INCARNATION}" "${SLURM_JOB_ID}" \
		"${PATHWAYS_NODE_NAMES}" -1
	local -a epilog=()
	[[ -z ${PATHWAYS_CONTAINER_EPILOG-} ]] || epilog=("--task-epilog=${PATHWAYS_CONTAINER_EPILOG}")

	# In place of this shell, so that whatever Slurm signals reaches srun. --kill-on-bad-exit ends
	# the step when a host fails, --wait when one ends with 0.
	exec srun --nodes="${#nodes[@]}" --ntasks="${#nodes[@]}" --ntasks-per-node=1 \
		--kill-on-bad-exit=1 --wait=5 --export=ALL --cpu-bind=none --mpi=none --input=none \
		${epilog[@]+"${epilog[@]}"} \
		/bin/bash -c "$(declare -f slice::host); slice::host \"\$@\"" slice "${log_dir}" "$@"
}

slice::main "$@"
