#!/usr/bin/env bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
readonly checkout
# shellcheck source=lib/common.sh
source "${checkout}/scripts/lib/common.sh"
# shellcheck source=lib/python.sh
source "${checkout}/scripts/lib/python.sh"
# shellcheck source=lib/environment.sh
source "${checkout}/scripts/lib/environment.sh"

generate::usage() {
	cat <<-'USAGE'
		Usage: scripts/generate.sh [--help]

		Generates Python from the .proto files of emulator/, beside them.
	USAGE
}

generate::main() {
	local -r folder="${checkout}/emulator"
	local -a protos
	if (($# > 0)); then
		if [[ $1 == -h || $1 == --help ]]; then
			generate::usage
			return
		fi
		common::fail 2 "Unknown argument: $1" "See scripts/generate.sh --help."
	fi
	environment::ensure "${checkout}"
	mapfile -t protos < <(cd "${folder}" && find . -name '*.proto' -printf '%P\n' | sort)
	"$(environment::python "${checkout}")" -P -m grpc_tools.protoc \
		--proto_path="${folder}" --python_out="${folder}" --pyi_out="${folder}" "${protos[@]}"
	common::log "Generated Python for ${protos[*]}"
}

generate::main "$@"
