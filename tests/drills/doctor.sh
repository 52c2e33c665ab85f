#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# doctor.sh - `doctor --nodes` under threads, processes and MPI: all well; one
# rank computes another bit; one is slow; places that cannot be written. A rank
# is slow here if it is 100 times slower than the others, so that a busy machine
# makes no difference; the slow one waits for 2 s.
#
#     BUILD=build tests/drills/doctor.sh
. "${0%/*}/common.sh"
quick="doctor --nodes --seconds 0.1 --tolerance 0.99"
flip=nodes.flip-2:1
slow=nodes.cores-1:1:slow,nodes.cores-1:2:slow,nodes.cores-1:3:slow

# said NAME CODE WORDS COMMAND...: exit code and a piece of what it says
said() {
    local name=$1 code=$2 words=$3 found
    shift 3
    timeout 400 "$@" >out 2>&1
    found=$?
    if [ $found -ne "$code" ]; then
        bad "$name" "exit $found where $code is expected" out
    elif ! grep -q -- "$words" out; then bad "$name" "not said: $words" out
    else ok "$name"
    fi
}

# shellcheck disable=SC2086
{
said "four threads are well" 0 'burn-in .* ok' "$program" $quick --ranks 4
[ "$(grep -c ' ok$' out)" -eq 9 ] && ok "all nine stages" ||
    bad "all nine stages" "$(grep -c ' ok$' out) are ok" out
said "a rank alone" 0 'burn-in .* ok' "$program" $quick
said "another bit" 69 'burn-in .*rank 2 on .*WRONG' \
    env LOCKSTEP_FAULT=$flip "$program" $quick --ranks 3
said "the last line but one names the rank" 69 \
    'the first: burn-in, rank 2 on .*: wrong results' \
    env LOCKSTEP_FAULT=$flip "$program" $quick --ranks 4
said "a slow rank, as processes" 69 'cores .*rank 1 on .*slow' \
    env LOCKSTEP_FAULT=$slow "$program" launch --ranks 3 -- "$program" \
    ${quick% *} 0.9
find_mpi
for mpi in $mpis; do
    flags=
    [ $mpi != openmpi ] || flags="--allow-run-as-root --oversubscribe"
    said "another bit, under $mpi" 69 'burn-in .*rank 2 on .*WRONG' \
        env LOCKSTEP_FAULT=$flip mpirun.$mpi $flags -n 3 "$program" $quick
done
expect "no such place" 66 'there is no directory "nowhere"' $quick \
    --place nowhere
expect "a place that cannot be written" 66 "/proc" $quick --place /proc
expect "flags of --nodes" 2 "--seconds needs --nodes" doctor --seconds 1
expect "too many threads" 2 "outside" $quick --ranks 17
}
if lockstep $quick --ranks 2 --json >verdicts.json 2>&1 &&
    [ "$(grep -c '"verdict": "ok"' verdicts.json)" -eq 9 ]; then ok "as JSON"
else bad "as JSON" "not nine verdicts" verdicts.json; fi
left=$(find . -name 'lockstep-doctor*')
[ -z "$left" ] && ok "nothing is left" || bad "nothing is left" "$left"
report
