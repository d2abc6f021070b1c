# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Containers: the unpacked images of a node, and the starts of components in them. To be sourced
# after image.sh, locks.sh, processes.sh, devices.sh and variables.sh.
#
# An image is unpacked once on each node, to BASE/containers/KEY, and every start uses that: its root
# is read-only. What Enroot needs besides is each start's own, in BASE/attempts.
#
# The process that asks for a container becomes the component, so that signals and exit code are the
# component's own. Nobody is left to clean up then; a waiting parent would have to pass signals on,
# and if it were killed, the component would be no one's. So whoever comes next cleans up: the name of
# an attempt's directory says which process it is for, and which container that uses,
#
#   NAME.PID.START_TIME.REALM.KEY
#
# An attempt whose process has ended is removed: at each start, and by remove_stale.sh at the end of a
# job. A container without attempts stays for a while, since unpacking takes longer than all else of a
# start: a slice that is requeued finds it there. Its lock file has the time of its last start as its
# own. A container is made and removed under its lock.

readonly CONTAINER_KEEP_S=$((24 * 3600))

# container::key IMAGE_FILE   Prints a name for this image on this boot: after a crash of the machine
# nobody knows which of a container's files had reached the disk.
container::key() {
	local sum
	sum="$(printf '%s %s' "$(stat -L -c '%d %i %s %Y' -- "$1")" "$(processes::realm)" | sha256sum)"
	printf '%s' "${sum::16}"
}

# container::remove_stale BASE [SECONDS]   Removes what ended attempts have left, and the containers
# that are not in use and that nobody has started for SECONDS.
container::remove_stale() {
	local -r base="$1" unused_s="${2-${CONTAINER_KEEP_S}}"
	local directory key lock
	for directory in "${base}"/attempts/*; do
		[[ ! -d ${directory} ]] || container::_is_live "${directory##*/}" ||
			container::_remove_tree "${directory}"
	done
	for directory in "${base}"/containers/*; do
		key="${directory##*/}"
		key="${key%.new}"
		[[ -d ${directory} ]] || continue
		exec {lock}>>"${base}/locks/${key}"
		# One that is not whole is of no use to anyone.
		if [[ ${directory} != *.new ]] && ! container::_is_older "${base}/locks/${key}" "${unused_s}"; then
			exec {lock}>&-
			continue
		fi
		# Whoever has it makes the container, or removes it.
		if flock -n "${lock}" && ! container::_is_used "${base}" "${key}"; then
			container::_remove_tree "${directory}"
		fi
		exec {lock}>&-
	done
}

# container::note_use BASE KEY   From now on it counts as used, so that nobody removes it for its age.
container::note_use() {
	(umask 077 && mkdir -p -- "$1/locks" && touch -- "$1/locks/$2") ||
		common::fail "${EXIT_DIRECTORY}" "Could not write to $1/locks."
}

# container::prepare BASE NAME IMAGE_FILE KEY   Makes an attempt of this process, and the container if
# it is not there. Prints the directory of the attempt.
container::prepare() {
	local -r base="$1" name="$2" image="$3" key="$4"
	local -r attempt="${base}/attempts/${name}.$$.$(processes::start_time "$$").$(processes::realm).${key}"
	local lock
	(umask 077 && mkdir -p -- "${attempt}"/{runtime,cache,tmp} "${base}/locks" "${base}/containers") ||
		common::fail "${EXIT_DIRECTORY}" "Could not make ${attempt}."
	exec {lock}>>"${base}/locks/${key}"
	locks::wait "${lock}" "the unpacking of ${image}"
	if [[ ! -d ${base}/containers/${key} ]]; then
		container::_create "${attempt}" "${image}" "${key}"
	fi
	exec {lock}>&-
	container::_require_namespaces "${attempt}" "${key}"
	# An image may have a command script that makes something else of the arguments.
	# shellcheck disable=SC2016 # it is for that script to expand
	printf 'exec "$@"\n' >"${attempt}/rc"
	printf '%s\n' "${attempt}"
}

# container::become ATTEMPT MOUNTS PROGRAM [ARGUMENT...]   MOUNTS: one SRC:DST a line.
container::become() {
	local -r attempt="$1" mounts="$2" key="${1##*.}"
	local -a options=()
	local word
	shift 2
	while read -r word; do
		[[ -z ${word} ]] || options+=(--env "${word}")
	done <<<"$(variables::names)"
	while read -r word; do
		[[ -z ${word} ]] || options+=(--mount "${word}:${word}")
	done <<<"$(devices::list /dev)"
	while read -r word; do
		[[ -z ${word} ]] || options+=(--mount "${word}")
	done <<<"${mounts}"
	container::_explicit_paths "${attempt}"
	exec enroot start --rc "${attempt}/rc" ${options[@]+"${options[@]}"} "${key}" "$@"
}

# Under a temporary name first: what has the right name is whole.
container::_create() (
	local -r attempt="$1" image="$2" key="$3"
	local -r containers="${attempt%/attempts/*}/containers" started=${SECONDS}
	local code
	container::_explicit_paths "${attempt}"
	container::_remove_tree "${containers}/${key}.new"
	# Unpacked it is no smaller.
	paths::has_space "${containers}" "$(stat -L -c %s -- "${image}")" ||
		container::remove_stale "${containers%/*}" 0
	paths::require_space "${containers}" "$(stat -L -c %s -- "${image}")" "unpack ${image}"
	if ! enroot create --name "${key}.new" "${image}" >"${attempt}/said" 2>&1 </dev/null; then
		cat -- "${attempt}/said" >&2
		code="$(faults::of_enroot "${attempt}/said")"
		container::_remove_tree "${containers}/${key}.new"
		common::fail "${code}" "Could not unpack ${image}." "$(faults::advice "${code}")"
	fi
	mv -- "${containers}/${key}.new" "${containers}/${key}"
	common::log "Unpacked ${image} in $(common::elapsed $((SECONDS - started)))"
)

# Once Enroot is this process, its faults can't be told from the component's. Asked of Enroot itself
# only where it looks doubtful: it may have permissions that unshare lacks.
container::_require_namespaces() (
	local -r attempt="$1" key="$2"
	if unshare --user --mount --map-current-user true 2>/dev/null; then
		return
	fi
	container::_explicit_paths "${attempt}"
	printf 'exit 0\n' >"${attempt}/probe"
	if ! enroot start --rc "${attempt}/probe" "${key}" >"${attempt}/said" 2>&1 </dev/null; then
		cat -- "${attempt}/said" >&2
		common::fail "${EXIT_NAMESPACES}" "This machine does not allow user namespaces." \
			"$(faults::advice "${EXIT_NAMESPACES}")"
	fi
)

# All of Enroot's directories, and none of the settings that would change what a start means.
container::_explicit_paths() {
	export ENROOT_RUNTIME_PATH="$1/runtime" ENROOT_CACHE_PATH="$1/cache" ENROOT_TEMP_PATH="$1/tmp"
	export ENROOT_DATA_PATH="${1%/attempts/*}/containers"
	unset ENROOT_ROOTFS_WRITABLE ENROOT_REMAP_ROOT ENROOT_MOUNT_HOME ENROOT_LOGIN_SHELL
	unset ENROOT_FORCE_OVERRIDE ENROOT_UNSHARE_PID ENROOT_UNSHARE_NET ENROOT_UNSHARE_IPC
}

# container::_is_live ATTEMPT_NAME   Whether its process runs, or it can't be told.
container::_is_live() {
	local -r form='^[a-z0-9-]+\.([0-9]+)\.([0-9]+)\.([0-9a-f]+)-([0-9]+)\.[0-9a-f]+$'
	local realm
	[[ $1 =~ ${form} ]] || return 0
	realm="$(processes::realm)"
	[[ ${BASH_REMATCH[3]} == "${realm%-*}" ]] || return 1
	# Processes of another PID namespace can't be seen from here.
	[[ ${BASH_REMATCH[4]} == "${realm#*-}" ]] || return 0
	[[ "$(processes::start_time "${BASH_REMATCH[1]}" || true)" == "${BASH_REMATCH[2]}" ]]
}

# container::_is_older FILE SECONDS   Whether it was touched that long ago.
container::_is_older() {
	local now
	printf -v now '%(%s)T' -1
	((now - $(stat -c %Y -- "$1") >= $2))
}

# container::_is_used BASE KEY
container::_is_used() {
	local attempt
	for attempt in "$1"/attempts/*."$2"; do
		[[ ! -d ${attempt} ]] || ! container::_is_live "${attempt##*/}" || return 0
	done
	return 1
}

container::_remove_tree() {
	rm --one-file-system -rf -- "$1" 2>/dev/null && return
	# A directory of the image may not be writable.
	chmod -R u+rwX -- "$1" 2>/dev/null || true
	# What a killed job's unpacking still writes goes at the next time.
	rm --one-file-system -rf -- "$1" 2>/dev/null || true
}
