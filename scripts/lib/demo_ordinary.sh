# shellcheck shell=bash
# SPDX-FileCopyrightText: The pathways-slurm authors
# SPDX-License-Identifier: Apache-2.0
#
# The demo for root, whose jobs never run as root. To be sourced after common.sh.

demo_child=""

# demo::as_ordinary CHECKOUT [OPTION]...
#
# Runs the demo as an ordinary user and exits with its code. The user may not write where root has
# asked for the summary: it goes to a directory of the user's, and from there, by root, to its place.
demo::as_ordinary() {
	local -r ordinary="$1/scripts/lib/ordinary.sh"
	local json="" dir="" summary code=0 name
	local -a options=()
	shift
	while (($#)); do
		case "$1" in
		--json=*) json="${1#*=}" ;;
		--json)
			[[ -n ${2-} ]] || common::fail 2 "--json needs a file"
			json="$2"
			shift
			;;
		*) options+=("$1") ;;
		esac
		shift
	done
	if [[ -n ${json} ]]; then
		[[ -d "$(dirname -- "${json}")" ]] ||
			common::fail 2 "--json: there is no directory $(dirname -- "${json}")"
		dir="$("${ordinary}" mktemp -d)" || exit
		options+=(--json "${dir}/summary.json")
	fi
	# In the background, as a shell sees to signals only while nothing runs in the foreground. A
	# terminal's Ctrl-C reaches the demo by itself and then from here, which does no harm.
	for name in HUP INT TERM; do
		# shellcheck disable=SC2064 # the name of this turn is meant
		trap "demo::pass_on ${name}" "${name}"
	done
	"${ordinary}" scripts/demo.sh "${options[@]}" &
	demo_child=$!
	while :; do
		code=0
		wait "${demo_child}" || code=$?
		# A trapped signal ends the wait but not the demo.
		kill -0 "${demo_child}" 2>/dev/null || break
	done
	if [[ -n ${dir} ]]; then
		# shellcheck disable=SC2016 # the inner shell expands it
		summary="$("${ordinary}" bash -c \
			'[[ ! -f $1/summary.json ]] || cat -- "$1/summary.json"; rm -rf -- "$1"' _ "${dir}")" || exit
		[[ -z ${summary} ]] || printf '%s\n' "${summary}" >"${json}" || exit
	fi
	exit "${code}"
}

demo::pass_on() {
	[[ -z ${demo_child} ]] || kill "-$1" "${demo_child}" 2>/dev/null || true
}
