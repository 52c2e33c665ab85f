#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# advice.sh - what `plan --time` advises where a layout does not fit: random layouts, each
# line of advice is done and planned again. It fits, in the memory and the time that were said.
# Copies of their state (`--copies auto`) cost no more than 1% of the time.
#
# DRAWS=N layouts from SEED on.
. "${0%/*}/common.sh"
: "${DRAWS:=16}" "${SEED:=191000}"

# pick NAME VALUE...: sets the variable to one of the values.
pick() { eval "$1=\${$((2 + RANDOM % ($# - 1)))}"; }

# field NAME FILE: the first number of that name.
field() { sed -n "s/^ *\"$1\": \([^,]*\),*$/\1/p" "$2" | head -1; }

# Writes c.yaml; sets flags, tensor, pipe, data, micro.
draw() {
    local family layers width sequence times dtype again context shard zero schedule chunks machine as
    RANDOM=$1
    pick family llama gpt2
    pick layers 8 16 24
    pick width 1024 2048 4096
    pick sequence 1024 2048
    pick micro 1 2 4
    pick times 2 4 8
    pick dtype bfloat16 bfloat16 float32
    pick again none attention block auto
    pick tensor 1 2 4
    pick pipe 1 2 4
    pick data 2 4 8
    pick context 1 1 2
    pick shard 1 1 2
    pick zero ddp zero1 zero2 fsdp
    [ "$shard" = 1 ] || zero=hsdp
    pick schedule 1f1b gpipe zb-h1 interleaved
    chunks=0
    [ "$pipe" -gt 1 ] || pick chunks 0 2 # read by a pipeline alone
    pick machine a100-80 h100
    pick as lockstep lockstep megatron megatron-core torchtitan pytorch
    cat >c.yaml <<END
model: {family: $family, vocab: 32000, layers: $layers, width: $width, heads: $((width / 128))}
data: {sequence: $sequence}
train: {batch: $((data * shard * micro * times)), micro_batch: $micro, steps: 10, dtype: $dtype,
        recompute: [$again]}
mesh: {tensor: $tensor, pipe: $pipe, data: $data, context: $context, shard: $shard}
zero: $zero
schedule: {name: $schedule, chunks: $chunks}
numerics: {grid_context: $context}
END
    flags="--ranks $((tensor * pipe * data * context * shard)) --machine $machine --as $as"
    flags+=" --time --json"
}

# Sets `flags` to those of the change $1.
change() {
    local rest=$1 word away='' t=$tensor p=$pipe d=$data
    rest=${rest/ with / and } # settings beside the change
    while [ -n "$rest" ]; do
        word=${rest%% and *}
        [ "$word" = "$rest" ] && rest= || rest=${rest#* and }
        case $word in
        *"half of train.micro_batch") flags+=" --set train.micro_batch=$((micro / 2))" ;;
        "twice mesh.tensor"*) t=$((2 * t)) d=$((d / 2)) ;;
        "twice mesh.pipe"*) p=$((2 * p)) d=$((d / 2)) ;;
        "optimizer states on disk"*) away+=states,disk, ;;
        "optimizer states"*) away+=states, ;;
        activations*) away+=activations, ;;
        weights*) away+=weights, ;;
        *) flags+=" --set $word" ;;
        esac
    done
    flags+=" --set mesh.tensor=$t --set mesh.pipe=$p --set mesh.data=$d"
    [ -z "$away" ] || flags+=" --offload ${away%,}"
}

lines=0
wrong=0
copied=0
dear=0
for seed in $(seq "$SEED" $((SEED + DRAWS - 1))); do
    draw "$seed"
    # shellcheck disable=SC2086 # words
    lockstep plan c.yaml $flags >whole.json 2>err
    need=$(field memory_bytes whole.json)
    [ -n "$need" ] || { cat err; continue; }
    if [[ $flags = *"--as lockstep "* ]]; then
        copied=$((copied + 1))
        # shellcheck disable=SC2086 # words
        lockstep plan c.yaml $flags --copies auto >copies.json 2>err
        share=$(field cost_share copies.json)
        if ! awk -v s="$share" 'BEGIN { exit !(s ~ /^[0-9]/ && s + 0 <= 0.0100001) }'; then
            dear=$((dear + 1))
            echo "seed $seed: copies cost ${share:-no share} of the time $(cat err)"
        fi
    fi
    pick tenths 9 7 5 3
    flags+=" --max-memory $((need * tenths / 10))"
    # shellcheck disable=SC2086 # words
    lockstep plan c.yaml $flags >plan.json 2>err
    base=$flags
    while IFS='|' read -r what bytes seconds; do
        flags=$base
        change "$what"
        # shellcheck disable=SC2086 # words
        lockstep plan c.yaml $flags >done.json 2>err
        lines=$((lines + 1))
        awk -v a="$bytes" -v b="$(field memory_bytes done.json)" -v s="$seconds" \
            -v t="$(field step_s done.json)" 'BEGIN { exit !(b > 0 && a / b > 0.99 &&
            a / b < 1.01 && s / t > 0.97 && s / t < 1.03) }' &&
            grep -q '"fits": true' done.json && continue
        wrong=$((wrong + 1))
                echo "seed $seed: $what: said $bytes bytes, $seconds s; planned" \
            "$(field memory_bytes done.json), $(field step_s done.json) $(cat err)"
    done < <(awk -F'": ' '/"change"/ { what = $2; sub(/^"/, "", what); sub(/",$/, "", what) }
        what && /"memory_bytes"/ { bytes = $2 + 0 }
        what && /"step_s"/ { print what "|" bytes "|" $2 + 0; what = "" }' OFMT=%.12g CONVFMT=%.12g plan.json)
done
if [ $dear = 0 ] && [ "$copied" -ge $((DRAWS / 16)) ]; then
    ok "copies of $copied layouts cost no more than 1%"
else bad "copies cost no more than 1%" "$dear of $copied cost more"; fi
# The first pipeline does not take chunks that the same schedule has no use for.
cat >c.yaml <<END
model: {family: llama, vocab: 32000, layers: 16, width: 1920, heads: 15}
data: {sequence: 2048}
train: {batch: 64, micro_batch: 1, steps: 10, dtype: bfloat16, recompute: [block]}
mesh: {data: 8}
optimizer: {masters: split}
schedule: {chunks: 2}
END
lockstep plan c.yaml --ranks 8 --machine h100 --time --max-memory 12e9 --json >plan.json 2>err
if grep -q 'twice mesh.pipe.*schedule.chunks=0' plan.json
then ok "a first pipeline without chunks"
else bad "a first pipeline without chunks" "$(grep '"change"' plan.json)"; fi
if [ $lines -ge $((DRAWS / 2)) ] && [ $wrong = 0 ]; then
    ok "$lines lines of advice are true"
else bad "lines of advice are true" "$wrong of $lines are not"; fi
report
