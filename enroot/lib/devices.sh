# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# What a TPU runtime needs of the machine. To be sourced.
#
# Enroot shows all of the host's /dev, unless an administrator restricted it (ENROOT_RESTRICT_DEV):
# naming the TPU's devices makes no difference in the first case and gives them back in the second.
# /dev/shm is the host's. /tmp is new and private at each start, so the lock file that libtpu keeps
# there (/tmp/libtpu_lockfile) is never one that a dead process left behind.

# devices::list DEV   Prints the TPU's devices below DEV, the host's /dev, one a line.
devices::list() {
	local path
	for path in "$1"/vfio "$1"/accel*; do
		[[ ! -e ${path} ]] || printf '%s\n' "${path}"
	done
}
