# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Whether Slurm is installed, for scripts that need it. To be sourced after common.sh.

# A program of each Debian package that a Slurm on one machine consists of.
readonly _SLURM_PACKAGES=(
	slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client srun:slurm-client munged:munge
)
# An ordinary user's PATH often lacks the directories of daemons.
readonly _SLURM_DAEMON_PATH="/usr/local/sbin:/usr/sbin:/sbin"

# Ends the script with code 2 if something of it is missing, and names what to install.
slurm::require() {
	local entry missing="" packages=""
	for entry in "${_SLURM_PACKAGES[@]}"; do
		if ! PATH="${PATH}:${_SLURM_DAEMON_PATH}" type -P "${entry%:*}" >/dev/null; then
			missing+="${missing:+, }${entry%:*}"
			[[ " ${packages} " == *" ${entry#*:} "* ]] || packages+="${packages:+ }${entry#*:}"
		fi
	done
	if [[ -n ${missing} ]]; then
		common::fail 2 "Slurm is not installed here: there is no ${missing}." \
			"What to do, as root: apt-get install --no-install-recommends ${packages}" \
			"(Debian's packages)"
	fi
}
