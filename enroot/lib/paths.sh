# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Where containers are kept on a node. To be sourced after faults.sh.
#
#   BASE                    $PATHWAYS_CONTAINER_DIR, or /tmp/pathways-UID
#   BASE/images             imported images ($PATHWAYS_IMAGE_DIR, if set)
#   BASE/imports/IMAGE      what an import needs while it runs
#   BASE/containers/KEY     unpacked images, and BASE/locks/KEY their locks
#   BASE/attempts/ATTEMPT   what Enroot needs besides for one start of one component
#
# Everything is 0700. Containers must be on the node's own disk: unpacking them onto a shared file
# system is slow, and Enroot's locks fail there beyond some dozens of nodes.

# Prints BASE, which is there afterwards and can hold containers.
paths::base() {
	local -r base="${PATHWAYS_CONTAINER_DIR:-/tmp/pathways-${EUID}}"
	local mode
	[[ ${base} =~ ^/[^[:space:]:]+$ ]] ||
		common::fail "${EXIT_USAGE}" "PATHWAYS_CONTAINER_DIR is '${base}'." \
			"It must be an absolute directory without spaces or colons, such as /scratch/${EUID}/containers."
	(umask 077 && mkdir -p -- "${base}") ||
		common::fail "${EXIT_DIRECTORY}" "Could not make ${base} for containers." \
			"Set PATHWAYS_CONTAINER_DIR to a directory on this node's own disk."
	# A link in /tmp may be someone else's, and lead anywhere.
	if [[ ! -O ${base} || -L ${base} ]]; then
		common::fail "${EXIT_DIRECTORY}" "${base} is not a directory of yours." \
			"Remove it, or set PATHWAYS_CONTAINER_DIR to another one on this node's own disk."
	fi
	mode="$(stat -c %a -- "${base}")"
	[[ ${mode} == 700 ]] ||
		common::fail "${EXIT_DIRECTORY}" "Others may use ${base}: its mode is ${mode}, not 700." \
			"Do: chmod 700 ${base}. Or set PATHWAYS_CONTAINER_DIR to a directory that is not there yet."
	paths::_check_file_system "${base}"
	printf '%s\n' "${base}"
}

# paths::images BASE   Prints the directory of imported images, which is there afterwards. It may be
# on a shared file system, so that all nodes import once.
paths::images() {
	local -r images="${PATHWAYS_IMAGE_DIR:-$1/images}"
	[[ ${images} =~ ^/[^[:space:]:]+$ ]] ||
		common::fail "${EXIT_USAGE}" "PATHWAYS_IMAGE_DIR is '${images}'." \
			"It must be an absolute directory without spaces or colons."
	(umask 077 && mkdir -p -- "${images}") ||
		common::fail "${EXIT_DIRECTORY}" "Could not make ${images} for images."
	printf '%s\n' "${images}"
}

# paths::free DIRECTORY   Prints the free space of its disk, in bytes.
paths::free() {
	df --output=avail -B1 -- "$1" | tail -n 1
}

# paths::has_space DIRECTORY BYTES
paths::has_space() {
	(($(paths::free "$1") >= $2))
}

# paths::require_space DIRECTORY BYTES WHAT
paths::require_space() {
	local -r directory="$1" wanted="$2" what="$3"
	local free
	free="$(paths::free "${directory}")"
	((free >= wanted)) ||
		common::fail "${EXIT_SPACE}" "No space to ${what}: ${directory} has $((free >> 20)) MiB free," \
			"and $((wanted >> 20)) MiB are needed." "$(faults::advice "${EXIT_SPACE}")"
}

# paths::is_shared TYPE   Whether a file system of this type may be another node's too.
paths::is_shared() {
	case "$1" in
	nfs | nfs4 | lustre | gpfs | cifs | smb3 | smbfs | beegfs | ceph | glusterfs | afs) return 0 ;;
	wekafs | panfs | orangefs | pvfs2 | ocfs2 | gfs2 | 9p | virtiofs) return 0 ;;
	fuseblk | fuse.fuse-overlayfs) return 1 ;;
	fuse | fuse.*) return 0 ;;
	*) return 1 ;;
	esac
}

paths::_check_file_system() {
	local -r directory="$1"
	local type options
	# The last one: mounts that lie over one another are listed from below.
	read -r type options < <(findmnt -nro FSTYPE,OPTIONS --target "${directory}" | tail -n 1) ||
		common::fail "${EXIT_DIRECTORY}" "Could not tell what file system ${directory} is on." \
			"This needs findmnt (Debian's util-linux)."
	if paths::is_shared "${type}"; then
		common::fail "${EXIT_DIRECTORY}" \
			"${directory} is on a shared file system (${type}); containers need the node's own disk." \
			"Set PATHWAYS_CONTAINER_DIR to a directory on one, such as /scratch/pathways-${EUID}."
	fi
	if [[ ,${options}, == *,noexec,* ]]; then
		common::fail "${EXIT_DIRECTORY}" "${directory} is on a file system that runs no programs (noexec)." \
			"Set PATHWAYS_CONTAINER_DIR to a directory on another one."
	fi
}
