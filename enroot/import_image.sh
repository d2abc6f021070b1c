#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# import_image.sh IMAGE...: imports images ahead of their first use, and prints their files. Takes
# the references, settings and exit codes of run_in_container.sh.
set -euo pipefail

# shellcheck source=lib/layer.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib/layer.sh"

import::main() {
	local base image
	(($# > 0)) || common::fail "${EXIT_USAGE}" "usage: import_image.sh IMAGE..."
	base="$(paths::base)"
	for image in "$@"; do
		image::ensure "${base}" "${image}"
	done
}

import::main "$@"
