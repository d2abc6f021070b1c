#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# ordinary.sh COMMAND [ARGUMENT...]: runs it in the checkout as an ordinary user, for root in that
# user's copy of the checkout; see user.sh.
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)"
readonly checkout
# shellcheck source=common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=python.sh
source "${checkout}/scripts/lib/python.sh"
# shellcheck source=environment.sh
source "${checkout}/scripts/lib/environment.sh"
# shellcheck source=user.sh
source "${checkout}/scripts/lib/user.sh"

user::run_as_ordinary "${checkout}" "$@"
