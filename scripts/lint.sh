#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the static checks. scripts/lint.sh --help tells more.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/python.sh
source "${checkout}/scripts/lib/python.sh"
# shellcheck source=lib/environment.sh
source "${checkout}/scripts/lib/environment.sh"

environment::ensure "${checkout}"
exec "$(environment::python "${checkout}")" "${checkout}/scripts/lib/checks.py" "$@"
