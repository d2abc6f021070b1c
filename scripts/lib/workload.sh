# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Becomes a workload: a program that drives a service's slices. To be sourced after common.sh.
#
# "pathways-slurm run" then is the batch script's process: it waits for the service, passes signals
# on, starts the program again, and has the job requeued. There is no shell around it that a signal
# could get lost in.

# workload::become ENVIRONMENT COMMAND [ARGUMENT]...   Becomes ENVIRONMENT's pathways-slurm COMMAND.
workload::become() {
	local -r environment="$1"
	shift
	# For the programs that the user names: python is this environment's.
	export PATH="${environment}/bin:${PATH}"
	exec "${environment}/bin/python" -P -m pathways_slurm "$@"
}
