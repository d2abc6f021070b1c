# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# All of the container layer. To be sourced by the scripts of enroot/.

# A failure in a command substitution is one, as it is elsewhere under set -e.
shopt -s inherit_errexit

_layer="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
# shellcheck source=../../scripts/lib/common.sh
source "${_layer}/../../scripts/lib/common.sh"
for _name in faults processes locks paths credentials image devices variables container; do
	# shellcheck source=/dev/null
	source "${_layer}/${_name}.sh"
done
unset _layer _name
