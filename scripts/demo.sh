#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The whole system on this machine: a service comes up, a program trains on every slice, a slice is
# killed, training goes on, the slice comes back. With --slurm, a real Slurm runs it. scripts/demo.sh
# --help tells more.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/python.sh
source "${checkout}/scripts/lib/python.sh"
# shellcheck source=lib/environment.sh
source "${checkout}/scripts/lib/environment.sh"
# shellcheck source=lib/slurm.sh
source "${checkout}/scripts/lib/slurm.sh"
# shellcheck source=lib/demo_ordinary.sh
source "${checkout}/scripts/lib/demo_ordinary.sh"

if [[ " $* " == *" --slurm "* && " $* " != *" --help "* && " $* " != *" -h "* ]]; then
	slurm::require
	if ((EUID == 0)); then
		demo::as_ordinary "${checkout}" "$@"
	fi
fi
environment::ensure "${checkout}"
PYTHONPATH="${checkout}" exec "$(environment::python "${checkout}")" "${checkout}/scripts/lib/demo.py" "$@"
