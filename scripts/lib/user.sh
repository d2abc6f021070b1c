# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command as an ordinary user where the scripts were started as root: jobs never run as root.
# To be sourced after common.sh, python.sh and environment.sh.
#
# The user is a system account with a copy of the checkout, an environment of its own in it and, if
# no Python within its reach will do, a copy of root's:
#
#   /var/lib/pathways-dev/home            its home
#   /var/lib/pathways-dev/checkouts/KEY   copy of the checkout, brought up to date by each call
#   /var/lib/pathways-dev/python/VERSION  copy of root's Python, which belongs to root
#
# To be rid of it: userdel pathways-dev; rm -r /var/lib/pathways-dev

readonly USER_NAME="pathways-dev"
readonly USER_DIR="/var/lib/pathways-dev"

# user::run_as_ordinary CHECKOUT COMMAND [ARGUMENT...]
#
# Becomes COMMAND, run by an ordinary user: exit code and signals are its own. Its working directory
# is the checkout, for root's callers the copy; let paths among the arguments be relative to it, or
# such as the user can reach.
user::run_as_ordinary() {
	local -r root="$1"
	local copy
	shift
	if ((EUID != 0)); then
		cd "${root}" || exit
		exec "$@"
	fi
	copy="${root}"
	if [[ ${root} != "${USER_DIR}"/checkouts/* ]]; then
		user::_prepare "${root}"
		copy="$(user::_copy_of "${root}")"
	fi
	cd "${copy}" || exit
	user::_become exec "$@"
}

# Afterwards the account is there, with a current copy of the checkout and its environment. One call
# at a time; a file of the copy changes in one step, so whoever runs there is not disturbed.
user::_prepare() {
	local -r root="$1"
	local copy lock python
	command -v setpriv >/dev/null ||
		common::fail 1 "Command not found: setpriv (Debian's util-linux)."
	install -d -m 755 "${USER_DIR}" "${USER_DIR}/checkouts" "${USER_DIR}/python"
	exec {lock}>>"${USER_DIR}/lock"
	if ! flock -n "${lock}"; then
		common::log "Another set-up of the user ${USER_NAME} is running; waiting for it"
		flock "${lock}"
	fi
	user::_ensure_account
	user::_forget_removed
	copy="$(user::_copy_of "${root}")"
	printf '%s\n' "${root}" >"${copy}.of"
	user::_install_dir "${copy}" 755
	python="${copy}/.venv/bin/python"
	if ! user::_runs "${python}"; then
		python="$(user::_ensure_python "${root}")" || exit 1
	fi
	user::_refresh "${root}" "${copy}" "${python}"
	# shellcheck disable=SC2016 # the inner shell expands them
	(cd "${copy}" && user::_become run bash -c 'set -euo pipefail
		for name in common python environment; do source "scripts/lib/${name}.sh"; done
		environment::ensure "${PWD}"' </dev/null) || exit
	exec {lock}>&-
}

user::_copy_of() {
	local key
	key="$(printf '%s' "$1" | sha256sum)"
	printf '%s/checkouts/%s\n' "${USER_DIR}" "${key::12}"
}

# Removes copies of checkouts that are not there any more, a gigabyte each; not one that is in use.
user::_forget_removed() {
	local note root copy
	for note in "${USER_DIR}"/checkouts/*.of; do
		[[ -f ${note} ]] || continue
		root="$(<"${note}")"
		copy="${note%.of}"
		[[ ! -d ${root} ]] || continue
		if readlink /proc/[0-9]*/cwd 2>/dev/null | grep -qF -- "${copy}"; then
			continue
		fi
		rm -rf -- "${copy}" "${note}"
	done
}

user::_install_dir() {
	# Not install -d alone: that would give away whatever a link there leads to.
	[[ ! -L $1 ]] || common::fail 1 "$1 is a symbolic link; remove it."
	install -d -m "$2" -o "${USER_NAME}" -g "${USER_NAME}" "$1"
}

user::_ensure_account() {
	local entry home
	if ! entry="$(getent passwd "${USER_NAME}")"; then
		common::log "Adding the system user ${USER_NAME}, who runs Slurm and its jobs in root's place"
		useradd --system --user-group --no-create-home --home-dir "${USER_DIR}/home" \
			--shell /bin/bash "${USER_NAME}" >&2 ||
			common::fail 1 "Could not add the user ${USER_NAME}."
		entry="$(getent passwd "${USER_NAME}")"
	fi
	IFS=: read -r _ _ _ _ _ home _ <<<"${entry}"
	[[ ${home} == "${USER_DIR}/home" ]] ||
		common::fail 1 "The user ${USER_NAME} is someone else's: home ${home}, not ${USER_DIR}/home." \
			"Run this as an ordinary user instead."
	user::_install_dir "${home}" 700
}

# user::_become run|exec COMMAND...   setpriv does not fork: what it becomes has the same process id.
user::_become() {
	local -r how="$1"
	local bin path="${PATH}"
	local -a command
	shift
	for bin in "${USER_DIR}"/python/*/bin; do
		[[ ! -d ${bin} ]] || path="${bin}:${path}"
	done
	# What is root's own: directories out of the user's reach, and root's choice of a Python.
	command=(setpriv "--reuid=${USER_NAME}" "--regid=${USER_NAME}" --init-groups --
		env -u PYENV_ROOT -u PYENV_VERSION -u VIRTUAL_ENV -u PYTHONHOME -u PYTHONPATH -u PYTHONUSERBASE
		-u XDG_RUNTIME_DIR -u XDG_CONFIG_HOME -u XDG_CACHE_HOME -u XDG_DATA_HOME -u XDG_STATE_HOME
		-u PIP_CACHE_DIR -u TMPDIR -u MAIL -u BASH_ENV
		"HOME=${USER_DIR}/home" "USER=${USER_NAME}" "LOGNAME=${USER_NAME}" SHELL=/bin/bash
		"PATH=${path}" "$@")
	if [[ ${how} == exec ]]; then
		exec "${command[@]}"
	fi
	"${command[@]}"
}

# Whether a Python runs as the user.
user::_runs() {
	user::_become run "$1" -I -c 'import ctypes, ensurepip, ssl, venv' </dev/null >/dev/null 2>&1
}

# Prints a Python that will do and that the user can run. Makes one if there is none.
user::_ensure_python() {
	local -r root="$1"
	local python functions copy
	functions="$(cat "${root}/scripts/lib/common.sh" "${root}/scripts/lib/python.sh")"
	cd /
	if python="$(user::_become run bash -c "${functions}"$'\npython::find' </dev/null 2>/dev/null)"; then
		printf '%s\n' "${python}"
		return
	fi
	# As root we may find more, and may install what is lacking.
	python="$(python::find)" || return 1
	if ! user::_runs "${python}"; then
		copy="${USER_DIR}/python/$("${python}" -I -c 'import platform; print(platform.python_version())')"
		common::log "Copying ${python}, which ${USER_NAME} can't reach, to ${copy}"
		"${python}" -I "${root}/scripts/lib/python_copy.py" "${copy}" || return 1
		python="${copy}/bin/${python##*/}"
	fi
	if ! user::_runs "${python}"; then
		common::err "${python} does not run as ${USER_NAME}:"
		user::_become run "${python}" -I -c 'import ctypes, ensurepip, ssl, venv' </dev/null >&2 || true
		common::log "What to do: install Debian's python3 and python3-venv, 3.12 or newer, or run this as an ordinary user."
		return 1
	fi
	printf '%s\n' "${python}"
}

# The copy is made by the user from a stream: root writes nothing where the user can place links.
user::_refresh() {
	local -r root="$1" copy="$2" python="$3"
	local program
	program="$(<"${root}/scripts/lib/mirror.py")"
	git -c safe.directory="${root}" -C "${root}" rev-parse --git-dir >/dev/null ||
		common::fail 1 "${root} is no git checkout, so what belongs to it is not known." \
			"Run this as an ordinary user, or clone the repository."
	git -c safe.directory="${root}" -C "${root}" \
		ls-files -z --cached --others --exclude-standard --deduplicate |
		user::_existing "${root}" |
		tar --create --null --no-recursion --directory="${root}" --files-from=- |
		(cd / && user::_become run "${python}" -I -S -c "${program}" "${copy}") ||
		common::fail 1 "Could not copy ${root} to ${copy}."
}

# Passes on the names of files that are there: the index also names those just removed.
user::_existing() {
	local name
	while IFS= read -r -d '' name; do
		if [[ -f "$1/${name}" || -L "$1/${name}" ]]; then
			printf '%s\0' "${name}"
		fi
	done
}
