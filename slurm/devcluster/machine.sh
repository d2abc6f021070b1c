#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The machines of a cluster whose nodes are namespaces. HOSTS is what they have as /etc/hosts.
#
# machine.sh node NAME ADDRESS/LENGTH LINK PID HOSTS: boots a node.
#   Makes its namespaces and leaves its init running in them. Its eth0 has the address; the other
#   end, LINK, is in the network of the process PID. Prints "ready" when all is in place. SIGKILL to
#   the init switches the node off: the kernel ends everything in its PID namespace with it, and
#   removes namespaces, mounts and link with the last.
#
# machine.sh controller NAME HOSTS COMMAND...: becomes a command of slurmctld's machine.
#   It is on this machine's network, under a name by which slurmctld finds its address.
set -euo pipefail

machine::node() {
	exec unshare --net --uts --mount -- "${BASH}" "${BASH_SOURCE[0]}" _wire "$@"
}

# In a network, host name and mounts of its own; still among this machine's processes, because the
# first process of a PID namespace is its init.
machine::_wire() {
	local -r name="$1" address="$2" link="$3" pid="$4" hosts="$5"
	machine::_name "${name}" "${hosts}"
	ip -batch - <<-LINES
		link set dev lo up
		link add name eth0 type veth peer name ${link} netns ${pid}
		address add ${address} dev eth0
		link set dev eth0 up
	LINES
	exec unshare --pid -- "${BASH}" "${BASH_SOURCE[0]}" _init
}

# The first process that this shell forks is the init. It ignores SIGCHLD, for which the kernel
# takes away what orphans leave.
machine::_init() {
	{
		mount -t proc proc /proc
		printf 'ready\n'
		cd /
		exec env --ignore-signal=CHLD sleep infinity </dev/null >/dev/null 2>&1
	} &
}

machine::controller() {
	exec unshare --uts --mount -- "${BASH}" "${BASH_SOURCE[0]}" _become "$@"
}

machine::_become() {
	machine::_name "$1" "$2"
	exec "${@:3}"
}

machine::_name() {
	hostname "$1"
	mount --bind "$2" /etc/hosts
}

"machine::$1" "${@:2}"
