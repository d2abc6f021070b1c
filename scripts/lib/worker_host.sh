#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a program as one host of a slice: worker_host.sh PROGRAM [ARGUMENT...]
#
# Only where a task runs is it known which nodes the slice has. This derives the host's own part of
# the TPU environment from what the scheduler says, the same way under every scheduler, and becomes
# the program: same process id, so that signals and exit code are the program's own.
#
# Reads:  PATHWAYS_SLICE_INDEX, PATHWAYS_HOST_INDEX,
#         PATHWAYS_NODE_NAMES, PATHWAYS_NODE_ADDRESSES (comma lists, in node order)
# Sets:   TPU_WORKER_ID, TPU_WORKER_HOSTNAMES, MEGASCALE_SLICE_ID, PATHWAYS_BIND_ADDRESS
#         always, whatever was inherited: stale values make TPU start-up hang without a word.

set -euo pipefail

# Same number as for wrong settings elsewhere: running it again will not help.
readonly EXIT_USAGE=2

worker_host::fail() {
	printf 'worker_host.sh: %s\n' "$1" >&2
	exit "$EXIT_USAGE"
}

worker_host::index() {
	local -r name="$1"
	[[ "${!name-}" =~ ^(0|[1-9][0-9]{0,5})$ ]] ||
		worker_host::fail "${name}='${!name-}' is not a whole number from 0; the scheduler must set it"
}

worker_host::nodes() {
	local -r name="$1"
	[[ "${!name-}" =~ ^[^,[:space:]]+(,[^,[:space:]]+)*$ ]] ||
		worker_host::fail "${name}='${!name-}' is not a comma list of nodes; the scheduler must set it"
}

worker_host::main() {
	(($# > 0)) || worker_host::fail "no program to run; usage: worker_host.sh PROGRAM [ARGUMENT...]"
	worker_host::index PATHWAYS_SLICE_INDEX
	worker_host::index PATHWAYS_HOST_INDEX
	worker_host::nodes PATHWAYS_NODE_NAMES
	worker_host::nodes PATHWAYS_NODE_ADDRESSES
	local -a names addresses
	IFS=, read -r -a names <<<"$PATHWAYS_NODE_NAMES"
	IFS=, read -r -a addresses <<<"$PATHWAYS_NODE_ADDRESSES"
	((${#names[@]} == ${#addresses[@]})) ||
		worker_host::fail "PATHWAYS_NODE_NAMES has ${#names[@]} nodes and PATHWAYS_NODE_ADDRESSES ${#addresses[@]}"
	((PATHWAYS_HOST_INDEX < ${#addresses[@]})) ||
		worker_host::fail "PATHWAYS_HOST_INDEX=${PATHWAYS_HOST_INDEX} but the slice has ${#addresses[@]} nodes"

	export TPU_WORKER_ID="$PATHWAYS_HOST_INDEX"
	# Addresses, because the names of a cluster's nodes need not resolve.
	export TPU_WORKER_HOSTNAMES="$PATHWAYS_NODE_ADDRESSES"
	export MEGASCALE_SLICE_ID="$PATHWAYS_SLICE_INDEX"
	export PATHWAYS_BIND_ADDRESS="${addresses[PATHWAYS_HOST_INDEX]}"
	exec "$@"
}

worker_host::main "$@"
