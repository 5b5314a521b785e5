#!/usr/bin/env bash
# Runs the gate again and again, and appends a line for each run to bin/gate.log: the commit, minutes, how many loops kept
# processors busy beside it, and whether it passed. It ends at the first failure, whose output stays in bin/gate.out.
#
#   hack/gate.sh 4      four times
#   hack/gate.sh 2 2    twice, beside two busy loops
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin
for ((i = 0; i < ${1:-1}; i++)); do
	loops=()
	for ((j = 0; j < ${2:-0}; j++)); do
		(while :; do :; done) &
		loops+=($!)
	done
	began=$SECONDS result=passed
	.ci/run >bin/gate.out 2>&1 || result=failed
	((${#loops[@]} == 0)) || kill "${loops[@]}"
	line="$(git rev-parse --short=12 HEAD) $(((SECONDS - began) / 60))m$(((SECONDS - began) % 60))s loops=${2:-0} $result"
	echo "$line" | tee -a bin/gate.log
	[[ $result == passed ]] || exit 1
done
