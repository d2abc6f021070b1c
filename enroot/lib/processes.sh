# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Who a process is, beyond its number, which another one gets later. To be sourced.

# processes::start_time PID   Prints when it started, in ticks since boot; fails if it has ended.
processes::start_time() {
	local line
	local -a fields
	{ read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
	# After the name, which may have spaces and parentheses of its own: state is field 3, start 22.
	read -r -a fields <<<"${line##*) }"
	[[ ${fields[0]} != [ZX] ]] || return 1
	printf '%s' "${fields[19]}"
}

# Prints a word for what process numbers are relative to: this boot, and this PID namespace.
processes::realm() {
	local boot
	read -r boot </proc/sys/kernel/random/boot_id
	printf '%s-%s' "${boot%%-*}" "$(stat -L -c %i /proc/self/ns/pid)"
}
