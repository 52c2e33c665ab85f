#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lists.sh - `plan --explain step`: the list of a rank after each pass, in a
# picture, with what cannot be asked for.
. "${0%/*}/common.sh"
cat >config.yaml <<'END'
version: 1
model: {family: llama, vocab: 256, layers: 4, width: 32, heads: 4}
data: {train: [text.txt], sequence: 32}
train: {steps: 5, batch: 8, micro_batch: 1}
mesh: {pipe: 2, data: 2}
zero: fsdp
END
echo 'ba be bi.' >text.txt
plan=(plan config.yaml --ranks 4 --explain step)

# Kinds of instructions, sorted: lines begin with a number, then resource and kind.
kinds() { # [PASS]
    lockstep "${plan[@]}" ${1:+--after $1} 2>/dev/null |
        awk '$1 ~ /^[0-9,]+$/ { print $3 }' | sort | uniq -c >kinds
}
count() { # KIND
    awk -v kind="$1" '$2 == kind { print $1 }' kinds
}

# Each pass adds what it is named for, and takes nothing away.
before=0
while read -r pass first; do
    kinds "$pass"
    all=$(awk '{ n += $1 } END { print n + 0 }' kinds)
    if [ "$all" -lt "$before" ]; then
        bad "after $pass" "$all instructions, $before before" kinds
    elif [ -z "$(count "$first")" ]; then
        bad "after $pass" "no $first" kinds
    else ok "after $pass: $all instructions, $first among them"; fi
    before=$all
done <<'END'
compute F
transfers send
samples sample
beside F
gathers gather
reductions reduce
tail norm
needs end
END
# Before a pass its instructions are not there.
while read -r pass kind; do
    kinds "$pass"
    if [ -z "$(count "$kind")" ] && [ -s kinds ]; then ok "no $kind after $pass"
    else bad "no $kind after $pass" "$(count "$kind")" kinds; fi
done <<'END'
compute send
transfers gather
gathers reduce
reductions norm
END
# The last pass changes needs alone, and so makes the list of the run.
kinds tail
cp kinds last
kinds
if cmp -s kinds last; then ok "the whole list is that of its last pass"
else bad "the whole list is that of its last pass" "other kinds" kinds; fi
expect "needs stand after their pass" 0 "end" "${plan[@]}" --after needs
needs() { # PASS
    lockstep "${plan[@]}" --after "$1" --json 2>/dev/null |
        grep -c '"needs": "[0-9]'
}
if [ "$(needs tail)" = 0 ] && [ "$(needs needs)" -gt 10 ]; then
    ok "no needs before their pass"
else bad "no needs before their pass" "$(needs tail), $(needs needs)"; fi

# A bar and a title for each instruction, a row for each resource.
expect "a picture" 0 "end" "${plan[@]}" --draw step.svg
if [ "$(grep -c '<title>' step.svg)" = "$(($(awk \
        '{ n += $1 } END { print n }' kinds)))" ] &&
    [ "$(grep -c 'text-anchor="end"' step.svg)" = "$(lockstep "${plan[@]}" \
        2>/dev/null | awk '$1 ~ /^[0-9,]+$/ { print $2 }' | sort -u |
        wc -l)" ] && grep -q '^</svg>$' step.svg; then
    ok "it shows every instruction and every resource"
else bad "it shows every instruction and every resource" "it does not" step.svg; fi
# A send lasts until who waits for it: its bar is longer than the unit's.
wide=$(sed -n 's/.*width="\([0-9]*\)".*<title>[0-9]*: send .*/\1/p' step.svg |
    sort -n | tail -n 1)
if [ "${wide:-0}" -gt 14 ]; then ok "a message lasts until it is needed"
else bad "a message lasts until it is needed" "${wide:-none}" step.svg; fi
lockstep "${plan[@]}" --after compute --draw compute.svg >out 2>&1
if [ "$(grep -c '<title>' compute.svg)" -lt \
        "$(grep -c '<title>' step.svg)" ]; then
    ok "a picture after a pass"
else bad "a picture after a pass" "as many bars" out; fi

expect "a pass that is not" 2 "nearest: gathers" "${plan[@]}" --after gather
expect "a pass of no list" 2 "--after is for plan --explain step" \
    plan config.yaml --ranks 4 --after gathers
expect "a picture nowhere" 66 "no/x.svg" "${plan[@]}" --draw no/x.svg
expect "a picture too large" 78 "instructions; at most" "${plan[@]}" \
    --draw large.svg --set model.layers=64 --set train.batch=512
report
