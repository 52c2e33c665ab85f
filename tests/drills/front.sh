#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# front.sh - the picture of `search`: its red points are those that no other beats, counted by
# comparing each with each, and what programs send is in the types that they send; its
# best does not depend on how many are shown.
. "${0%/*}/common.sh"

cat >model.yaml <<'END'
model: {family: llama, vocab: 32000, layers: 32, width: 4096, heads: 32}
data: {sequence: 2048}
train: {batch: 64, dtype: bfloat16}
END
experts="model: {family: mixtral, vocab: 32000, layers: 16, width: 1024, heads: 16, kv_heads: 8}"
sed "1s/.*/$experts/" model.yaml >experts.yaml

# points FILE: seconds, bytes, bytes between nodes and colour of each point.
points() {
    sed -n 's/^<circle .*fill="\([^"]*\)".* data-seconds="\([^"]*\)" data-bytes="\([^"]*\)" data-network="\([^"]*\)">.*/\2 \3 \4 \1/p' "$1"
}

front() { # NAME FLAGS...
    local name=$1
    shift
    if lockstep search "$@" --nodes 2 --draw front.svg >out 2>err && points front.svg |
        awk '{ s[NR] = $1; b[NR] = $2; n[NR] = $3; red[NR] = $4 == "#c4643c"; reds += red[NR] }
            END {
                for (i = 1; i <= NR; i++) {
                    beaten = 0
                    for (j = 1; j <= NR; j++)
                        if (s[j] <= s[i] && b[j] <= b[i] && n[j] <= n[i] &&
                            (s[j] < s[i] || b[j] < b[i] || n[j] < n[i])) beaten = 1
                    if (beaten == red[i]) { print "point", i, "of", NR; exit 1 }
                }
                exit !(NR >= 10 && reds >= 2 && reds < NR)
            }' >wrong; then ok "$name"
    else bad "$name" "$(cat wrong)" err; fi
}
front "red points are the front" model.yaml --machine h100 --as megatron-core
front "red points are the front of what Lockstep accepts" model.yaml --machine a100-40
front "red points are the front of experts" experts.yaml --machine h100 --as megatron-core

# sent AS SETTING...: bytes between nodes of that layout.
sent() {
    lockstep search model.yaml --machine h100 --nodes 2 --as "$1" --top 64 --json 2>err |
        awk '/"network_bytes"/ { bytes = $2 + 0 } /"zero=zero1"/ { zero = 1 }
            /"mesh.data=16"/ { data = 1 }
            /"config"/ { if (zero && data) { print bytes; exit } zero = data = 0 }'
}
whole=$(sent torchtitan) half=$(sent torchtitan-bf16)
if awk -v a="$whole" -v b="$half" 'BEGIN { exit !(b > 0 && a / b > 1.49 && a / b < 1.51) }'; then
    ok "sums in bfloat16 are half of what is sent"
else bad "sums in bfloat16 are half of what is sent" "$whole and $half bytes" err; fi

# The best of few is the best of many: schedules that whole stages rank wrongly have
# lists of their own, however few are shown.
cat >deep.yaml <<'END'
model: {family: gpt2, vocab: 32000, layers: 16, width: 1024, heads: 8}
data: {sequence: 512}
train: {batch: 64, dtype: bfloat16}
END
best() { # TOP
    lockstep search deep.yaml --ranks 16 --json --top "$1" \
        --machine a100-80,nics=1,nic_rate=3e9,link_rate=20e9 2>err |
        sed -n 's/^ *"step_s": \([^,]*\),\{0,1\}$/\1/p' | head -n 1
}
few=$(best 1) many=$(best 64)
if awk -v a="$few" -v b="$many" 'BEGIN { exit !(b > 0 && a <= 1.01 * b) }'
then ok "the best of one is the best of 64"
else bad "the best of one is the best of 64" "$few and $many s" err; fi
report
