#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# planner.sh - predictions: the keys that programs read, exit codes, and one
# sentence for each mistake.
. "${0%/*}/common.sh"

cat >gpt.yaml <<'END'
model: {family: gpt2, vocab: 51200, layers: 96, width: 12288, heads: 96}
data: {sequence: 2048}
train: {batch: 64, steps: 10, dtype: bfloat16, micro_batch: 1, recompute: [attention]}
mesh: {tensor: 8, pipe: 8, data: 1}
schedule: {name: interleaved, chunks: 3}
END
cat >small.yaml <<'END'
model: {family: llama, vocab: 256, layers: 4, width: 64, heads: 4}
data: {sequence: 64}
train: {batch: 16, steps: 10}
END
asked="plan gpt.yaml --ranks 64 --time --machine a100-80 --as megatron"

# keys FILE: of the outermost object, in order.
keys() { sed -n 's/^  "\([a-z_]*\)":.*/\1/p' "$1" | tr '\n' ' '; }

# --- the contract ---
expected="version step_s tokens_per_s mfu mfu_noncausal hfu bubble_rate "
expected+="idle_share exposed_comm_s memory_bytes memory_limit_bytes fits "
expected+="guessed_share days energy_kwh cost plan_only step_by advice copies explain "
lockstep $asked --json >plan.json 2>err
if [ "$(keys plan.json)" = "$expected" ]; then ok "the keys of plan --time"
else bad "the keys of plan --time" "$(keys plan.json)" err; fi
if [ "$(grep -c '"\(days\|cost\|advice\|copies\|explain\)": null' plan.json)" = 5 ]; then
    ok "null where nothing was asked"
else bad "null where nothing was asked" "a number" plan.json; fi
lockstep $asked --json --tokens 1e12 --watts 500 --price 2 --explain time \
    >plan.json 2>err
if grep null plan.json | grep -qv 'advice\|"copies"\|"stage"\|"profile_quiet"\|"shared_ports"'
then bad "days, energy, cost" "null" plan.json
else ok "days, energy, cost"; fi
expect "it does not fit" 79 "the cheapest change that fits" $asked \
    --max-memory 40e9
expect "bytes with a unit" 79 "the machine has 37.2 GiB" $asked --max-memory 37.25GiB
expect "bytes with an unknown unit" 2 'not bytes, such as 40e9, 80GiB' $asked \
    --max-memory 40Gib
if grep -q '"fits": false' <(lockstep $asked --json --max-memory 40e9 \
                                      2>/dev/null); then
    ok "what does not fit is printed, too"
else bad "what does not fit is printed, too" "not"; fi
if [ "$(lockstep $asked --json --max-memory 40e9 2>/dev/null |
    grep -c '"change": ')" -ge 2 ]; then
    ok "and what makes it fit"
else bad "and what makes it fit" "no advice"; fi
if [ "$(lockstep machines --explain h100,gemm=0.5 --json |
    grep -A 1 '"name"\|"gemm"' | tr -d ' \n')" = \
    '"name":"h100","title":null,--"gemm":{"value":0.5,' ]; then
    ok "one machine with its corrections, for programs"
else bad "one machine with its corrections, for programs" \
    "$(lockstep machines --explain h100,gemm=0.5 --json | head)"; fi
lockstep plan small.yaml --time --machine h100 --json >plan.json 2>err
if grep -q '"bubble_rate": 0,' plan.json; then ok "one rank has no bubble"
else bad "one rank has no bubble" "a rounding" plan.json; fi
for name in a100-40 a100-80 h100 h200 b200 gb200 mi300x tpu-v4 cpu; do
    if lockstep machines --json | grep -q "\"name\": \"$name\""; then
        ok "machine $name"
    else bad "machine $name" "not listed"; fi
done
expect "another view beside --time" 2 "leave --time out" $asked --explain memory
expect "the critical path by name" 0 "critical path by cause" $asked \
    --explain time
must plan small.yaml --ranks 2 --set mesh.pipe=2 --time --machine cpu \
    --draw step.svg
if grep -q '</svg>' step.svg; then ok "a picture"
else bad "a picture" "it is not whole"; fi

# --- offload ---
step_of() { sed -n 's/^  "step_s": \(.*\),/\1/p' "$1"; }
memory_of() { sed -n 's/^  "memory_bytes": \(.*\),/\1/p' "$1"; }
lockstep $asked --json >here.json 2>err
for what in states weights activations; do
    lockstep $asked --json --offload $what >away.json 2>err
    if awk -v a="$(step_of here.json)" -v b="$(step_of away.json)" \
        -v m="$(memory_of here.json)" -v n="$(memory_of away.json)" \
        'BEGIN { exit !(b > a && n < m) }'; then
        ok "$what elsewhere: slower, less memory"
    else bad "$what elsewhere" "$(step_of away.json) s" err; fi
done
cat >away.yaml <<'END'
model: {family: llama, vocab: 32000, layers: 8, width: 1024, heads: 8}
data: {sequence: 1024}
train: {batch: 16, micro_batch: 1, dtype: bfloat16, steps: 1}
mesh: {pipe: 2}
END
if lockstep plan away.yaml --ranks 2 --machine h100 --explain time --offload \
    activations,states --draw away.svg >away.txt 2>err &&
    grep -q "the executor's own" away.txt && grep -q '^  offload ' away.txt &&
    grep -q offload away.svg; then
    ok "a resource to the host in the executor's own lists"
else bad "a resource to the host in the executor's own lists" "none" \
    away.txt; fi
expect "an offload of nothing known" 2 "separated by commas" $asked \
    --offload all
expect "an offload of nothing" 2 "names nothing" $asked --offload ""

# --- advice ---
# As Lockstep: what is advised was planned to the byte, so it fits when asked for.
cat >big.yaml <<'END'
model: {family: llama, vocab: 32000, layers: 32, width: 4096, heads: 32, feed_forward: 11008}
data: {sequence: 4096}
train: {batch: 64, steps: 10, dtype: bfloat16, micro_batch: 2, recompute: [none]}
mesh: {data: 8}
END
advised() { # NAME SETTING...: the settings of each line of advice fit
    local name=$1 line words count=0 wrong=0
    shift
    lockstep plan big.yaml --ranks 8 --machine a100-40 --time "$@" >out 2>err
    while read -r line; do
        case $line in *mesh* | *only* | *half*) continue ;; esac
        words=${line%%: *}
        # shellcheck disable=SC2086 # words
        lockstep plan big.yaml --ranks 8 --machine a100-40 --time "$@" \
            --set ${words// and / --set } >one 2>err || wrong=1
        count=$((count + 1))
    done < <(sed -n '/^Changes that/,$s/^  //p' out)
    if [ $count -gt 0 ] && [ $wrong = 0 ]; then ok "$name"
    else bad "$name" "$count lines of advice" out err; fi
}
advised "each advised change fits"
advised "each advised pair of changes fits, beside recomputation" \
    --set 'train.recompute=[block]'

advised "each advised change fits, on a grid that the configuration names" \
    --set train.batch=256 --set numerics.grid_data=128 --set zero=fsdp

lockstep plan big.yaml --ranks 8 --machine a100-40 --time \
    --set 'train.recompute=[block]' >out 2>err
if [ "$(sed -n '/^Changes that/,$p' out | grep -c '^  ')" = 3 ] ||
    grep -q '^Only these two\|^No ' out; then ok "three pieces of advice, or why not"
else bad "three pieces of advice, or why not" "fewer without a word" out; fi
# Pipe rank 1 of 16 is the largest. The executor's own lists of the layout that does not fit
# and of the advised one are longer than whole stages.
llama="plan $tree/examples/presets/llama3_405b.yaml --ranks 16384 --machine h100 --time"
lockstep $llama --json 2>err | grep -A 2 'recompute=.block' >one.json
lockstep $llama --set 'train.recompute=[block]' --json >plan.json 2>err
if awk -F'[:,]' '/"memory_bytes":/ { a = b; b = $2 } /"step_s":/ { c = d; d = $2 }
    END { exit !(b == a && c / d > 0.97 && c / d < 1.03) }' one.json \
    <(grep '^  "step_s\|^  "memory_bytes' plan.json); then ok "advice has the price that it takes"
else bad "advice has the price that it takes" "another" one.json plan.json; fi
expect "a pipe of 32 ranks by the executor's lists" 0 "executor's own" \
    plan "$tree/examples/presets/llama3_405b.yaml" --ranks 1024 --machine h100 --time \
    --set mesh.layers= --set mesh.pipe=32 --set mesh.data=4 --set zero=zero1 \
    --set schedule.name=1f1b --set schedule.chunks=0 --set 'train.recompute=[block]'
expect "advice names the grid that more tensor ranks need" 79 \
    "(plan only) with numerics.grid_tensor=8: " plan big.yaml --ranks 8 --machine a100-40 --time \
    --set mesh.tensor=4 --set mesh.data=2 --set train.micro_batch=1 --max-memory 2.5e10
# Whole blocks are what setup chooses here.
for recompute in '[block]' '[auto]' '[]'; do
    lockstep plan big.yaml --ranks 8 --machine a100-40 --time \
        --set zero=fsdp --max-memory 2.5e10 \
        --set "train.recompute=$recompute" 2>&1 | sed -n '/^Changes/,$p' >out
    [ "$recompute" = '[block]' ] && mv out known
done
if grep -q plan.only known && cmp -s known out; then
    ok "advice for the recomputation that setup chose"
else bad "advice for the recomputation that setup chose" "another" known out; fi
lockstep plan big.yaml --ranks 1 --machine a100-40 --time --max-memory 1e8 \
    --set mesh.data=1 >out 2>err
if grep -q '^No change makes it fit' out; then ok "no advice says so"
else bad "no advice says so" "nothing" out; fi

# --- experts ---
cat >experts.yaml <<'END'
model: {family: mixtral, vocab: 32000, layers: 32, width: 4096, heads: 32, kv_heads: 8,
        feed_forward: 14336}
data: {sequence: 4096}
train: {batch: 256, steps: 1, dtype: bfloat16, micro_batch: 1, recompute: [none]}
zero: fsdp
END
lockstep plan experts.yaml --ranks 64 --machine h100 --as megatron --time \
    --json >plan.json 2>err
if awk -F'[:,]' '/"mfu":/ { good = $2 > 0.1 && $2 < 0.6 } END { exit !good }' \
    plan.json; then ok "experts that a token did not choose do no work"
else bad "experts that a token did not choose do no work" "MFU" plan.json; fi
expect "expert-parallel ranks exchange tokens" 0 "exposed: expert" plan \
    experts.yaml --ranks 64 --set mesh.expert=8 --machine h100 --as megatron \
    --time
# Rows that go once to each node leave it less often.
cat >fine.yaml <<'END'
model: {family: mixtral, layers: 8, width: 1024, heads: 16, kv_heads: 8, feed_forward: 2048,
        vocab: 32000}
moe: {experts: 32, top_k: 8}
data: {sequence: 2048}
train: {steps: 10, batch: 32, micro_batch: 1, dtype: bfloat16}
mesh: {expert: 32}
numerics: {grid_data: 32}
END
expert_seconds() { # EXCHANGE
    lockstep plan fine.yaml --ranks 32 --machine h100 --time --set moe.exchange="$1" --json 2>/dev/null |
        sed -n 's/^ *"expert": \([0-9.e-]*\).*/\1/p'
}
if awk -v once="$(expert_seconds auto)" -v each="$(expert_seconds flat)" \
    'BEGIN { exit !(once > 0 && once < 0.95 * each) }'
then ok "rows that go once to each node take less time"
else bad "rows that go once to each node take less time" \
    "$(expert_seconds auto) and $(expert_seconds flat) s"; fi
expect "expert ranks that do not divide" 78 "do not divide 8 experts" plan \
    experts.yaml --ranks 48 --set mesh.expert=3 --set train.batch=48 \
    --machine h100 --as megatron --time
expect "expert ranks of a dense model" 78 "has none" plan gpt.yaml --ranks 128 \
    --set mesh.expert=2 --machine h100 --as megatron --time
expect "search of a preset with its own chunks, layers and shards" 0 \
    "The first one" search "$tree/examples/presets/llama3_405b.yaml" \
    --ranks 1024 --machine h100 --top 2
expect "search over expert ranks" 0 "expert 8 " search experts.yaml --ranks 64 \
    --machine h100 --as megatron --top 3
expect "search over folds" 0 "fold of tensor " search experts.yaml --ranks 64 \
    --machine h100 --top 3
expect "a fold in another program's step" 0 "expert_tensor 1" plan experts.yaml \
    --ranks 64 --set mesh.tensor=2 --set mesh.expert=4 --set mesh.expert_tensor=1 \
    --machine h100 --as megatron --time
expect "a fold that does not divide" 78 "do not divide 8 experts" plan \
    experts.yaml --ranks 64 --set mesh.tensor=4 --set mesh.expert=8 \
    --set mesh.expert_tensor=1 --machine h100 --as megatron --time
# plan repeats what search says, to the last digit: of the best layout, and, where rank 1 of 16
# is the largest, of the first with 16 pipe ranks.
for words in "llama3_405b 1024" "qwen3_235b_a22b 256" "deepseek_v3_671b 2048" "llama3_8b 8" \
    "mixtral_8x22b 128 mesh.pipe=16"; do
    read -r name ranks only <<<"$words"
    lockstep search "$tree/examples/presets/$name.yaml" --ranks "$ranks" --machine h100 --top 10 \
        --json 2>err | awk -v only="$only" '/"step_s"/ { step = $0 } /"memory_bytes"/ { bytes = $0 }
        /"step_exact"/ { exact = /true/ }
        /"set"/ { n = 0; found = only == "" } /^        "/ { set[n++] = $0; if (index($0, only)) found = 1 }
        /"config"/ && found { if (exact) print step bytes >"best"; for (i = 0; i < n; i++) print set[i]; exit }' |
        sed 's/^ *"//; s/",*$//' >sets
    mapfile -t sets <sets
    lockstep plan "$tree/examples/presets/$name.yaml" --ranks "$ranks" --machine h100 --time --json \
        "${sets[@]/#/--set=}" >plan.json 2>err
    if [ -s best ] && awk -F'[:,]' '{ gsub(/ /, "") } FNR == NR { step = $2; bytes = $4; next }
        $1 == "\"step_s\"" && !here { here = $2 } $1 == "\"memory_bytes\"" && !there { there = $2 }
        END { exit !(there > 0 && bytes == there && step "" == here "") }' \
        best plan.json; then ok "search and plan say the same of $name"
    else bad "search and plan say the same of $name" "not" best plan.json err; fi
    rm -f best
done
# Layouts whose lists are long: two shorter steps tell what plan says.
lockstep search "$tree/examples/presets/llama3_70b.yaml" --ranks 64 --machine h100 --top 32 --json \
    >many.json 2>err
if [ "$(grep -c '"memory_exact": true' many.json)" = 32 ]; then ok "all layouts that are shown were planned"
else bad "all layouts that are shown were planned" "not all 32" many.json; fi
awk '/"step_s"/ { step = $2 } /"step_by"/ { by = /shorter/ } /"set"/ { n = 0 }
    /^        "/ { set[n++] = $0 }
    /"config"/ && by { print step + 0 >"short"; for (i = 0; i < n; i++) print set[i]; exit }' many.json |
    sed 's/^ *"//; s/",*$//' >sets
mapfile -t sets <sets
lockstep plan "$tree/examples/presets/llama3_70b.yaml" --ranks 64 --machine h100 --time --json \
    "${sets[@]/#/--set=}" >plan.json 2>err
if [ -s short ] && awk 'FNR == NR { short = $1; next } /^  "step_s"/ { step = $2 + 0 }
    END { exit !(step > 0 && short / step > 0.998 && short / step < 1.002) }' short plan.json
then ok "two shorter steps tell the time of a long one"
else bad "two shorter steps tell the time of a long one" "not" short plan.json err; fi
# Ranks that are no power of two: the best three of 6 have lines that plan takes.
printf 'model: {family: llama, vocab: 512, layers: 4, width: 128, heads: 4}
data: {sequence: 64}\ntrain: {batch: 24, steps: 10}\n' >three.yaml
lockstep search three.yaml --ranks 6 --machine h100 --top 3 --json >six.json 2>err
sed -n '/"config"/s/.*: "\(.*\)".*/\1/p' six.json | while read -r lines; do
    { cat three.yaml; printf '%b' "$lines"; } | sed '/^train: {batch/d;s/^train: {/train: {batch: 24, steps: 10, /' >pasted.yaml
    lockstep plan pasted.yaml --ranks 6 --machine h100 --time >out 2>err || echo "$lines"
done >refused
if [ "$(grep -c '"config".*data: [36],\|"config".*data: [36]}' six.json)" -gt 0 ] && ! [ -s refused ]; then
    ok "search divides a batch among 6 ranks"
else bad "search divides a batch among 6 ranks" "refused" six.json refused err; fi
lockstep search three.yaml --ranks 6 --machine h100 --objective memory --json >out 2>err
if sed -n 's/.*"memory_bytes": \([0-9]*\),/\1/p' out | sort -cn 2>err && grep -q memory_bytes out; then
    ok "the smallest layout is first"
else bad "the smallest layout is first" "another" out err; fi
# The plan to the byte refuses few of the layouts that search takes to fit.
lockstep search experts.yaml --ranks 64 --machine h100 --top 5 --json >exact.json \
    2>err
if [ "$(grep -c '"memory_exact": true' exact.json)" -ge 5 ]; then
    ok "estimated layouts of a mixture fit"
else bad "estimated layouts of a mixture fit" "fewer than 5" exact.json err; fi
# Modules for later tokens, by closed forms and on the executor's lists.
cat >later.yaml <<'END'
model: {family: llama, vocab: 4096, layers: 8, width: 512, heads: 8}
data: {sequence: 512}
train: {batch: 16, steps: 10, micro_batch: 1, recompute: [none], dtype: bfloat16}
END
step_s() { sed -n 's/^  "step_s": \(.*\),/\1/p' "$1"; }
for as in lockstep torchtitan; do
    for depth in 0 2; do
        lockstep plan later.yaml --ranks 2 --set mesh.pipe=2 --machine h100 --time \
            --json --as $as --set mtp.depth=$depth >later$depth.json 2>err
    done
    # Two blocks, projections and heads more than 8 blocks and one head.
    if awk -v a="$(step_s later0.json)" -v b="$(step_s later2.json)" \
        'BEGIN { exit !(b > 1.1 * a && b < 2 * a) }'; then
        ok "modules for later tokens take time ($as)"
    else bad "modules for later tokens take time ($as)" \
             "$(step_s later0.json), $(step_s later2.json) s" err; fi
done
expect "tensor ranks: the size that is not divided" 78 \
    "do not divide 256 elements of the key-value heads" plan \
    "$tree/examples/presets/palm_540b.yaml" --ranks 6144

# --- search ---
for objective in time memory; do
    expect "a tokenizer that is missing, by $objective" 66 "nowhere.json: there is no such file" \
        search small.yaml --machine h100 --objective $objective \
        --set tokenizer.from=nowhere.json
done
expected="version candidates feasible timed seconds candidates_per_s "
expected+="objective memory_limit_bytes best why rejected not_tried "
lockstep search small.yaml --machine cpu --ranks 2 --json >search.json 2>err
if [ "$(keys search.json)" = "$expected" ]; then ok "the keys of search"
else bad "the keys of search" "$(keys search.json)" err; fi
lockstep search small.yaml --machine cpu --ranks 2 --draw front.svg >out 2>err
awk '/^zero:/ { on = 1 } /^$/ { on = 0 } on' out >lines
sed '/^train:/d' small.yaml >pasted.yaml
grep '^train:' lines | sed 's/{/{batch: 16, steps: 10, /' >>pasted.yaml
grep -v '^train:' lines >>pasted.yaml
expect "the lines of the best can be pasted" 0 "fits" plan pasted.yaml \
    --ranks 2 --time --machine cpu
if grep -q '</svg>' front.svg; then ok "a picture of the front"
else bad "a picture of the front" "it is not whole"; fi
expect "a search where nothing fits" 79 "none of" search gpt.yaml \
    --machine a100-40 --ranks 8
expect "a family that does not fit has its reason" 79 "over at pipe rank" \
    search gpt.yaml --machine a100-40 --ranks 8
expect "the cheapest number of ranks" 0 "candidates" search small.yaml \
    --machine cpu --ranks 4 --objective cost
expect "fewer nodes are cheaper" 0 "schedule  ranks" search small.yaml --machine h100 --nodes 2 \
    --objective cost --top 1
# Guards a limit of -9223372036854775808 bytes.
expect "more memory than numbers" 2 "outside 1 to 1.15" search small.yaml \
    --machine cpu --ranks 4 --max-memory 1e30
expect "the least memory" 0 "candidates" search small.yaml --machine cpu \
    --ranks 4 --objective memory --top 2
# Axes of each of ZeRO's parts, where shards of a node are some of the ranks that
# share the batch; the settings of each that is found can be planned.
lockstep search "$tree/examples/presets/llama3_8b.yaml" --ranks 16 \
    --machine h100 --top 20 --json >sets.json 2>err
if [ "$(grep -c '"family": "hsdp\(, all states\|, all gradients\)\?"' \
    sets.json)" = 3 ]; then ok "search looks at axes of each part of ZeRO"
else bad "search looks at axes of each part of ZeRO" "families" sets.json; fi
awk '/"set": \[/ { on = 1; line = ""; next }
    on && /\]/ && !/:|=/ { on = 0; if (line ~ /shard=[2-9]/) print line; next }
    on { sub(/^ *"/, ""); sub(/",?$/, ""); line = line "|" $0 }' \
    sets.json | awk -F'zero=' '!seen[$2 ~ /^\{/]++' >kept
[ -s kept ] || bad "settings of shards of a node" "none was kept" sets.json
while IFS='|' read -r -a settings; do
    arguments=()
    for setting in "${settings[@]:1}"; do arguments+=(--set "$setting"); done
    expect "settings of shards of a node" 0 "shard" plan \
        "$tree/examples/presets/llama3_8b.yaml" --ranks 16 --explain mesh \
        "${arguments[@]}"
done <kept
near() { # FILE KEY: the number, to three digits
    sed -n "s/^ *\"$2\": \([0-9.]*\).*/\1/p" "$1" | head -n 1
}
# Whole weights, whose gradients do not fit undivided. A ring over all ranks
# leaves a node once, through the ports of all its ranks; copies of a shard go
# through their own, after the sum in the node. So zero2 is best, a set of axes
# close behind it, and exact plans of every other division are slower or too
# large.
cat >whole.yaml <<'END'
model: {family: llama, vocab: 128256, layers: 32, width: 4096, heads: 32,
        kv_heads: 8, feed_forward: 14336, tied: false}
data: {sequence: 8192}
train: {batch: 64, micro_batch: 1, steps: 10, dtype: bfloat16, recompute: [none]}
END
limit="--ranks 16 --machine h100,memory_bytes=400e9 --max-memory 76e9"
lockstep search whole.yaml $limit --top 3 >out 2>err
set=zero2
if grep -qxF "zero: $set" out &&
    grep -q "(gradients of shards, states of all)" out
then ok "search finds a set of whole weights"
else bad "search finds a set of whole weights" "others are best" out; fi
step_of() { # ZERO: nothing where it does not fit
    lockstep plan whole.yaml $limit --set mesh.data=2 --set mesh.shard=8 \
        --set "zero=$1" --time --json >whole.json 2>err
    grep -q '"fits": true' whole.json && near whole.json step_s
}
best=$(step_of "$set")
while read -r zero; do
    other=$(step_of "$zero")
    if awk -v a="$best" -v b="${other:-inf}" \
        'BEGIN { exit !(a > 0 && (b == "inf" || a < b + 0)) }'; then
        ok "it is the fastest: $zero, ${other:-too large}"
    else bad "it is the fastest" "$best s, $zero $other s" whole.json; fi
done <<'END'
zero1
fsdp
hsdp
{gradients: [shard], states: [data, shard]}
{states: [shard]}
{gradients: [shard], states: [shard]}
{weights: [shard], states: [data, shard]}
{weights: [shard], gradients: [shard], states: [data, shard]}
{weights: [shard], gradients: [data, shard], states: [data, shard]}
END
# The winner's own values never lose against it: its tables and its sentence are
# made after the exact plans have chosen it.
preset=$tree/examples/presets/llama3_8b.yaml
lockstep search $preset --machine h100 --nodes 1 --top 1 >out 2>err
tensor=$(sed -n 's/^mesh: {tensor: \([0-9]*\),.*/\1/p' out)
if grep -q "^  tensor $tensor .*: the best has it$" out; then
    ok "the best has its own values"
else bad "the best has its own values" "tensor '$tensor'" out; fi
# Two ways to the time of one layout: closed forms, and the executor's lists.
own="plan $preset --ranks 8 --set mesh.data=4 --set mesh.tensor=2 --machine h100"
lockstep $own --nodes 1 --time --json >own.json 2>err
lockstep $own --nodes 1 --time --as torchtitan --json >closed.json 2>err
if awk -v a="$(near own.json step_s)" -v b="$(near closed.json step_s)" \
       'BEGIN { exit !(a > 0.7 * b && b > 0.7 * a) }'; then
    ok "lists and closed forms agree about the step"
else bad "lists and closed forms agree about the step" \
         "$(near own.json step_s) and $(near closed.json step_s) s" err; fi
expect "a large search" 0 "Why: " search gpt.yaml --machine a100-80 \
    --nodes 8 --as megatron --top 3

# Processor time, which other work hardly changes. The goals are 2, 2, 0.2 and 2
# seconds. A sanitizer takes six times as long, a slow core twice more.
quickly() { # NAME GOAL ARGUMENT...
    local name=$1 goal=$2 spent TIMEFORMAT=%U
    shift 2
    spent=$( { time lockstep "$@" >out 2>err; } 2>&1)
    if [ -s out ] && awk -v s="$spent" -v g="$goal" \
        'BEGIN { exit !(s <= 30 * g) }'; then
        ok "$name: $spent s of the processor, goal $goal"
    else bad "$name" "$spent s of the processor, goal $goal" err; fi
}
presets=$tree/examples/presets
expect "ranks that nothing divides" 79 "the nearest is --ranks 9728" search \
    "$presets/llama3_8b.yaml" --machine h100 --ranks 10000 --top 1
quickly "a search of 405B on 1,024 GPUs" 2 search \
    "$presets/llama3_405b.yaml" --ranks 1024 --machine h100 --top 1
quickly "a search of DeepSeek-V3 on 2,048 GPUs" 2 search \
    "$presets/deepseek_v3_671b.yaml" --ranks 2048 --machine h100 --top 1
quickly "a search on 8 GPUs" 0.2 search "$preset" --ranks 8 --machine h100 \
    --top 1
echo '{"slow": [{"rank": 70000, "factor": 1.2}]}' >one.json
quickly "131,072 ranks, each played" 2 simulate "$preset" --ranks 131072 \
    --set train.batch=16384 --set mesh.data=1024 --set mesh.tensor=8 \
    --set mesh.pipe=16 --machine h100 --as megatron --perturb one.json \
    --unfold

# --- slow ranks and failures ---
echo '{"slow": [{"rank": 70, "factor": 2}], "failures": {"per_node_day":
    0.0065, "restart_s": 180, "stall_s": 5}}' >slow.json
simulate="simulate gpt.yaml --set mesh.data=2 --set train.batch=128 --ranks 128
    --machine a100-80 --as megatron"
lockstep $simulate --perturb slow.json --json >folded.json 2>err
lockstep $simulate --perturb slow.json --json --unfold >unfolded.json 2>err
if diff <(grep -v simulated folded.json) \
        <(grep -v simulated unfolded.json) >difference; then
    ok "unfolded as folded"
else bad "unfolded as folded" "they differ" difference; fi
if grep -q '"classes": 2' folded.json; then ok "a slow rank splits its class"
else bad "a slow rank splits its class" "not 2" folded.json; fi
# Tensor ranks wait for their messages inside a pass: 3 times as long, more.
echo '{"links": [{"rank": 3, "factor": 4}]}' >link.json
lockstep plan gpt.yaml --ranks 64 --machine a100-80 --as megatron --time --json >plan.json 2>err
lockstep $simulate --perturb link.json --json >link 2>err
if awk -F'[:,]' '/"tensor":/ { sent = $2 } /"healthy_step_s":/ { well = $2 }
    /^  "step_s":/ { step = $2 } END { exit !(sent > 0 && step - well > 2.5 * sent) }' \
    plan.json link; then ok "a slow link slows tensor ranks"
else bad "a slow link slows tensor ranks" "not enough" plan.json link; fi
# Four positions of the pipe lie on a node and share its port.
echo '{"slow": [{"rank": 1, "factor": 2}]}' >one.json
few="small.yaml --ranks 16 --set mesh.pipe=8 --set mesh.data=2
    --set schedule.name=interleaved --set schedule.chunks=2 --set model.layers=16
    --set train.micro_batch=1 --machine h100,nic_rate=1e8,nics"
lockstep simulate $few=1 --perturb one.json --json >folded.json 2>err
lockstep simulate $few=1 --perturb one.json --json --unfold >unfolded.json 2>err
if [ -s folded.json ] && diff <(grep -v simulated folded.json) \
        <(grep -v simulated unfolded.json) >difference; then
    ok "unfolded as folded, with one port"
else bad "unfolded as folded, with one port" "they differ" difference; fi
expect "a shared port is a cause" 0 "8 ranks of a node share 1 network port" \
    plan $few=1 --time --explain time
expect "ports of their own are none" 0 "critical path" plan $few=8 --time \
    --explain time
if grep -q "shared ports" out; then
    bad "ports of their own are none" "named" out
fi
expect "a part of a port" 78 "expected a whole number" plan $few=1.5 --time
# Both walk the same lists: nothing is modelled twice.
echo '{"slow": [{"rank": 1, "factor": 2}]}' >one.json
own="small.yaml --ranks 4 --set mesh.pipe=2 --machine h100"
lockstep plan $own --time --json >plan.json 2>err
lockstep simulate $own --perturb one.json --json >folded.json 2>err
lockstep simulate $own --perturb one.json --json --unfold >unfolded.json 2>err
if [ -s plan.json ] && [ "$(step_s plan.json)" = "$(sed -n \
    's/^  "healthy_step_s": \(.*\),/\1/p' folded.json)" ]; then
    ok "a step without the perturbation is the planned one"
else bad "a step without the perturbation is the planned one" \
    "$(step_s plan.json)" folded.json; fi
if diff <(grep -v simulated folded.json) \
        <(grep -v simulated unfolded.json) >difference; then
    ok "unfolded as folded, on the executor's lists"
else bad "unfolded as folded, on the executor's lists" "they differ" \
    difference; fi
while read -r code words text; do
    echo "$text" >bad.json
    expect "perturb: $text" "$code" "${words//_/ }" $simulate \
        --perturb bad.json
done <<'END'
65 unknown_key_"x" {"slow": [{"rank": 1, "factor": 2, "x": 1}]}
65 rank_1_twice {"slow": [{"rank": 1, "factor": 2}, {"rank": 1, "factor": 3}]}
65 unknown_key_"restart" {"failures": {"per_node_day": 1, "restart": 600}}
65 names_no_rank {}
65 names_no_rank {"slow": []}
65 names_no_rank {"slow": [{"factor": 2}]}
78 ranks_0_to_127 {"slow": [{"rank": 128, "factor": 2}]}
78 factor_is_0.5 {"slow": [{"rank": 1, "factor": 0.5}]}
65 unknown_key {"slwo": [{"rank": 1, "factor": 2}]}
78 makes_no_progress {"failures": {"per_node_day": 1e5, "restart_s": 600}}
78 expected_0_to_1e+06 {"failures": {"per_node_day": -1}}
END

# --- budgets ---
expect "a budget" 0 "Chinchilla" budget --days 30 --machine h100 --nodes 16
for asked_for in tokens=1200 tokens=1e12 flops=1.1e21 flops=7e9 days=11 days=0.7; do
    lockstep budget --${asked_for%=*} ${asked_for#*=} --machine h100 --json >out 2>err
    if awk -F'[:,]' -v key="\"${asked_for%=*}\"" -v value="${asked_for#*=}" \
        '$1 ~ "^  " key { same = $2 - value == 0 } END { exit !same }' out
    then ok "a budget of $asked_for is exactly that"
    else bad "a budget of $asked_for is exactly that" "another" out err; fi
done
expect "a budget of two kinds" 2 "found 2" budget --days 30 --flops 1e20 \
    --machine h100
expect "a budget of nothing" 2 "found 0" budget --machine h100
expect "devices that do not fill the nodes" 2 "multiple of --nodes 16" budget \
    --days 30 --machine h100 --nodes 16 --ranks 100
expect "a search takes a node" 0 "tensor 8 " search small.yaml --machine h100 \
    --set model.heads=8 --top 1
printf 'from: h100\ngemm: 0.7\ngemm: 0.8\n' >ours.txt
expect "a constant twice" 65 "line 3: gemm is set twice" plan small.yaml --time \
    --machine ours.txt
while read -r words text; do
    echo "{\"version\": 1, \"constants\": {}, $text}" >ours.txt
    expect "profile: $text" 65 "${words//_/ }" plan small.yaml --time \
        --machine ours.txt
done <<'END'
unknown_key_"product" "product": []
op_is_all "collectives": [{"op": "all", "path": "node", "ranks": 2, "bytes": [1], "seconds": [1]}]
path_is_nodes "collectives": [{"op": "send", "path": "nodes", "ranks": 2, "bytes": [1], "seconds": [1]}]
expected_0_or_more "sentinel": {"before_s": -1}
expected_0_or_more "sentinel": {"products_follow": -1}
expected_0_or_more "sentinel": {"memory_after_s": -1}
expected_0_to "left_out": {"works": -1}
END

# --- this machine ---
# Shapes that came before take no place: 1,800 of them would leave none.
# shellcheck disable=SC2046 # words
must calibrate $(yes small.yaml | head -100) --seconds 0.5 --out machine.json
if grep -q "are measured" log; then
    bad "a shape is measured once" "left out" log
else ok "a shape is measured once"; fi
if grep -q '"threads": 1' machine.json && grep -q '"all-reduce"\|"ranks": 1' \
    machine.json || [ "$(nproc)" = 1 ]; then ok "a profile has products"
else bad "a profile has products" "none" machine.json; fi
expect "the profile serves, with the executor's lists" 0 "executor's own" plan small.yaml --time --machine machine.json
sed '/^ "left_out"/,/}/ s/: [0-9][0-9]*/: 0/' machine.json >whole.json
sed '/^ "left_out"/,/}/ s/"works": 0/"works": 7/' whole.json >less.json
lockstep plan small.yaml --time --machine whole.json --json >plan.json
if grep -q '"guessed_share": 0,' plan.json; then
    ok "the plan's products were measured"
else bad "the plan's products were measured" "guessed" plan.json; fi
expect "a busy machine left sizes out" 0 " 7 other works and " plan small.yaml --time --machine less.json
sed 's/"key": "/"key": "Abacus, /' machine.json >other.json
expect "it is of this machine alone" 78 "was measured on" plan small.yaml --time --machine other.json
expect "a pipeline by the executor's lists" 0 "executor's own" plan small.yaml --ranks 2 \
    --set mesh.pipe=2 --set train.micro_batch=2 --set schedule.name=zb-h1 --time --machine machine.json
[ -e machine.json.disk ] && bad "calibrate leaves nothing" "machine.json.disk"
# Other work that only streams memory leaves products as they are.
sed 's/"memory_before_s": /&9/' machine.json >noisy.json
expect "a profile of a noisy minute" 0 \
    "measured in a noisy minute: at its end" plan small.yaml --time --machine noisy.json
for profile in machine noisy; do
    must calibrate --against $profile.json
    if grep -q "^\(quiet\|noisy\): products .*, memory .* than when $profile" log &&
        grep -q '"memory": [0-9.]*' log; then ok "this minute beside $profile.json"
    else bad "this minute beside $profile.json" "not said" log; fi
done
if grep -q '"quiet": false' log; then ok "memory alone makes a minute noisy"
else bad "memory alone makes a minute noisy" "quiet" log; fi
printf 'from: cpu\n' >bare.txt
expect "no sentinels to compare with" 78 "has no sentinels" calibrate \
    --against bare.txt

# --- published models ---
printf 'the cat sat on the mat and saw a rat. %.0s' {1..3000} >cats.txt
lockstep tokenizer train cats.txt --vocab 300 --out tokenizer.json >out 2>&1
for preset in "$tree"/examples/presets/*.yaml; do
    name=$(basename "$preset" .yaml)
    # shellcheck disable=SC2046 # words
    expect "$name: it is planned at full size" 0 "fits" plan "$preset" \
        --time $(sed -n 's/^# plan: //p' "$preset")
    expect "$name: a small brother trains" 0 "" train "$preset" \
        --scale 1/64 --run "runs/$name" --set train.steps=1 \
        --set train.batch=8 --set 'data.train=[cats.txt]' \
        --set tokenizer.from=tokenizer.json --set data.sequence=64 \
        --set validate.sequences=8 --set optimizer.warmup=0
done
# The clock with the measured times of a trace gives the measured step.
replays() { # RANKS SETTING...
    local ranks=$1 trace=trace.json traced
    shift
    traced="small.yaml --ranks $ranks --set model.vocab=300 $*"
    [ "$ranks" = 1 ] || trace=trace.rank-0.json
    rm -rf "runs/traced$ranks"
    # shellcheck disable=SC2086 # words
    must train $traced --run "runs/traced$ranks" --trace trace.json \
        --set 'data.train=[cats.txt]' --set tokenizer.from=tokenizer.json \
        --set validate.sequences=8 --set optimizer.warmup=0
    # shellcheck disable=SC2086 # words
    lockstep simulate $traced --machine machine.json --replay $trace --json \
        >replay.json 2>err
}
replayed_within() { # SHARE
    awk -F'[:,]' -v most="$1" '
        /"replay_error"/ { found = 1; bad = $2 > most || $2 < -most }
        END { exit !found || bad }' replay.json
}
# Other work may take a core where no instruction is noted: twice.
replays_pipe() { # NAME RANKS PIPE
    local tries=0
    until [ $tries = 2 ] ||
        { replays "$2" --set mesh.pipe="$3" --set train.micro_batch=4 &&
            replayed_within 0.01; }; do
        tries=$((tries + 1))
    done
    if replayed_within 0.01; then ok "replay of $1 within 1%"
    else bad "replay of $1 within 1%" "$(cat err)" replay.json; fi
}
replays_pipe "4 ranks, 2 of a pipe" 4 2
replays_pipe "4 pipe ranks" 4 4
replays_pipe "2 pipe ranks" 2 2
for ranks in 4 1 2; do
    replays $ranks
    if replayed_within 0.01; then
        ok "replay of $ranks rank(s) within 1%"
    else bad "replay of $ranks rank(s) within 1%" "$(cat err)" replay.json; fi
done
expect "a trace of another configuration" 65 "another configuration" simulate \
    small.yaml --set model.vocab=300 --set train.micro_batch=16 --machine \
    machine.json --replay trace.rank-0.json
expect "no trace" 65 "no traceEvents" simulate small.yaml --machine \
    machine.json --replay machine.json
expect "a scale that is none" 2 "expected 1/K" plan "$preset" --scale 64
if [ -x "$(command -v python3)" ]; then
    if (cd "$tree" && python3 tests/golden/published_time/fit.py \
        --program "$program" --gate 5 15 9 15 \
        --page docs/planner_accuracy.md) >table 2>&1; then
        ok "published steps: mean 5%, largest 15%; mixtures: 9%, 15%; the page"
    else bad "published steps" "worse than they were" table; fi
    sed 's/^\(blind 2: .*mean\) [0-9.]*%/\1 0.1%/' \
        "$tree/docs/planner_accuracy.md" >page.md
    if (cd "$tree" && ! python3 tests/golden/published_time/fit.py \
        --program "$program" --page "$room/page.md") >table 2>&1 &&
        grep -q '^blind 2: mean .*the page has 0.1%' table; then
        ok "a page that says less than is true is found"
    else bad "a page that says less than is true" "was not found" table; fi
    # No constant of a machine was fitted on it.
    if (cd "$tree" && python3 tests/golden/published_time/fit.py \
        --program "$program" --corpus --worst 3 --gate 11 0) >table 2>&1; then
        ok "published steps of another corpus: mean 11%"
    else bad "published steps of another corpus" "worse than they were" \
             table; fi
else echo "left out: published steps; no python3"; fi

# --- mistakes ---
expect "no machine" 2 "needs --machine" plan gpt.yaml --time
expect "an unknown machine" 78 "nearest preset is h100" plan gpt.yaml --time \
    --machine h10
expect "a constant out of range" 78 "gemm is 2" plan gpt.yaml --time \
    --machine h100,gemm=2
expect "an unknown constant" 78 "nearest is gemm" plan gpt.yaml --time \
    --machine h100,gem=0.5
expect "ranks that the mesh has not" 78 "64 ranks fit" plan gpt.yaml \
    --ranks 96 --time --machine h100 --as megatron
expect "ranks that nodes do not divide" 2 "not a multiple" plan gpt.yaml \
    --ranks 64 --nodes 7 --time --machine h100 --as megatron
expect "more ranks than a node has" 2 "devices; --nodes 8 is enough" plan gpt.yaml \
    --ranks 64 --nodes 4 --time --machine h100 --as megatron
expect "a recipe that is none, of another program" 78 "fp8-tensor" plan \
    gpt.yaml --ranks 64 --time --machine h100 --as megatron \
    --set numerics.recipe=fp8-tenser
expect "a flag without --time" 2 "goes with --time" plan small.yaml \
    --machine h100
expect "a price without a length" 2 "needs --tokens" plan small.yaml --time \
    --machine cpu --price 2 --set train.steps=0
echo '{"version": 1, "key": "Abacus, 1 core", "constants": {}}' >foreign.json
expect "a profile of another machine" 78 "Abacus" plan small.yaml --time \
    --machine foreign.json
expect "the same with --foreign" 0 "step" plan small.yaml --time \
    --machine foreign.json --foreign
report
