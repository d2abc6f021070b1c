#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Brings a real Slurm up on this machine, without systemd: up.sh --help tells more.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly checkout
# shellcheck source=../../scripts/lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=../../scripts/lib/python.sh
source "${checkout}/scripts/lib/python.sh"
# shellcheck source=../../scripts/lib/environment.sh
source "${checkout}/scripts/lib/environment.sh"
# shellcheck source=../../scripts/lib/user.sh
source "${checkout}/scripts/lib/user.sh"

# Namespaces take root. All else is an ordinary user's.
if ((EUID == 0)) && [[ " $* " != *" --namespaces "* ]]; then
	user::run_as_ordinary "${checkout}" slurm/devcluster/up.sh "$@"
fi
environment::ensure "${checkout}"
PYTHONPATH="${checkout}" exec "$(environment::python "${checkout}")" -P -m slurm.devcluster up "$@"
