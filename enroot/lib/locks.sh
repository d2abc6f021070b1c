# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Locks that processes of one node, or of several, wait for. To be sourced.

readonly LOCKS_SAY_S=10

# locks::wait DESCRIPTOR WHAT   Locks the open file, and says every now and then what it waits for.
locks::wait() {
	local -r started=${SECONDS}
	until flock -n "$1"; do
		common::log "Waiting for $2 ($((SECONDS - started)) s)"
		! flock -w "${LOCKS_SAY_S}" "$1" || break
	done
}
