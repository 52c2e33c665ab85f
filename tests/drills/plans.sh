#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plans.sh - plans of very large models: what they cost, and that no number
# wraps around.
. "${0%/*}/common.sh"
cat >config.yaml <<'END'
version: 1
model: {family: llama, vocab: 256, layers: 2, width: 32, heads: 4}
data: {train: [text.txt], sequence: 32}
train: {steps: 5, batch: 8}
END
echo 'ba be bi.' >text.txt

# --- ten thousand layers: about a second of one core, minutes when a pass is
# quadratic. The bound is of processor time, so that other work is not counted.
moment() { # NAME ARGUMENT...
    local name=$1
    shift
    if (ulimit -t "${MOMENT:-20}" && lockstep plan config.yaml \
        --set model.layers=10000 "$@") >log 2>&1; then ok "10,000 layers: $name"
    else bad "10,000 layers: $name" "exit $?" log
    fi
}
moment "one rank"
moment "blocks again" --set 'train.recompute=[block]'
moment "divided weights" --ranks 8 --set zero=fsdp
moment "a pipeline" --ranks 4 --set mesh.pipe=4
moment "pieces" --ranks 2 --set mesh.tensor=2 --set tensor.overlap=2 \
    --set tensor.domino=true --set zero=fsdp
moment "adapters" --set lora.rank=2
moment "groups" --set 'optimizer.groups=["layers.1* frozen", "*norm* lr_factor=0.1"]'
moment "the mesh" --ranks 2 --set mesh.tensor=2 --explain mesh

# --- sizes at the options' limits, drawn together: a sentence or a sane plan,
# never a number that wrapped around ---
draws=${DRAWS:-60}
while IFS=' ' read -r -a set; do
    arguments=()
    for one in "${set[@]}"; do arguments+=(--set "$one"); done
    (ulimit -t 60 && lockstep plan config.yaml "${arguments[@]}" \
        --json) >out 2>log
    code=$?
    case $code in 0 | 69 | 78) ;; *)
        bad "large sizes: ${set[*]}" "exit $code" log ;;
    esac
    if grep -q ': *-[0-9]' out; then
        bad "large sizes: ${set[*]}" "a negative number" out
    fi
done < <(awk -v draws="$draws" '
    function draw(n) { x = (x * 16807) % 2147483647; return x % n }
    function power(most) { return 2 ^ draw(most + 1) }
    BEGIN {
        x = 17
        split("llama gpt2 falcon gemma2 palm", family, " ")
        split("adamw soap adafactor muon", optimizer, " ")
        split("float32 float64 bfloat16", type, " ")
        for (i = 0; i < draws; i++) {
            heads = power(14)
            printf "model.family=%s model.layers=%d model.heads=%d ",
                family[1 + draw(5)], i % 6 ? 1 + draw(30) : 10000, heads
            n = heads * 2 ^ draw(3) * 2
            printf "model.width=%d ", n < 1048576 ? n : 1048576
            printf "model.vocab=%d model.feed_forward=%d ",
                2 + draw(4194302), draw(2) * power(22)
            length_ = power(24)
            printf "data.sequence=%d model.context=%d ", length_, length_
            printf "train.batch=%d train.micro_batch=%d ", power(20),
                draw(2) * power(20)
            printf "train.steps=%d train.dtype=%s ", 1 + draw(1000000000),
                type[1 + draw(3)]
            printf "optimizer.name=%s lora.rank=%d ", optimizer[1 + draw(4)],
                draw(4) ? 0 : power(12)
            printf "train.threads=%d\n", 1 + draw(1024)
        }
    }')
ok "large sizes"

# --- any options of the table, at and near their limits, on any ranks. The
# list of options comes from the program, so that new options are drawn, too.
while IFS=' ' read -r ranks rest; do
    read -r -a set <<<"$rest"
    arguments=(--ranks "$ranks")
    for one in "${set[@]}"; do arguments+=(--set "$one"); done
    (ulimit -t 60 && lockstep plan config.yaml "${arguments[@]}" \
        --json) >out 2>log
    code=$?
    case $code in 0 | 69 | 78) ;; *)
        bad "drawn options: ${arguments[*]}" "exit $code" log ;;
    esac
    if grep -Eq ': *(-[0-9]|-?nan|-?inf)' out; then
        bad "drawn options: ${arguments[*]}" "a negative number" out
    fi
    [ $code -ne 0 ] || legal=$((${legal:-0} + 1))
done < <(lockstep docs options | awk -v draws="${WIDE:-120}" \
    -v seed="${SEED:-23}" -F'|' '
    function draw(n) { x = (x * 16807) % 2147483647; return x % n }
    function of(list, parts) { return parts[1 + draw(split(list, parts, " "))] }
    function number(i, kind) {
        kind = draw(4)
        if (kind == 0) return least[i]
        if (kind == 1) return most[i]
        if (kind == 2) return least[i] + 2 ^ draw(1 + int(log(1 + most[i] - \
            least[i]) / log(2)))
        return least[i] + draw(4)
    }
    BEGIN { x = seed
        words["zero"] = "zero1 zero2 fsdp hsdp mics"
        words["model.family"] = "llama gpt2 qwen3 ministral smollm3 olmo2 phi3 \
            stablelm starcoder2 gpt_neox gptj falcon palm gemma gemma2 gemma3"
        words["train.dtype"] = "float32 float64 bfloat16 float16"
        words["optimizer.name"] = "adamw soap adafactor muon lion sgd \
            schedule_free"
        words["schedule.name"] = "gpipe 1f1b interleaved zb-h1 zb-2p zb-v \
            dualpipe dualpipev"
        words["train.recompute"] = "[block] [attention] [all]"
        words["numerics.mode"] = "fast exact"
        words["optimizer.states"] = "float32 bfloat16 int8" }
    $2 ~ /^ `[a-z.0-9_]+` $/ {
        name = $2
        gsub(/[ `]/, "", name)
        if (name ~ /^(version|seed)$/) next
        if ($4 ~ / to /) { split($4, range, " "); count++
            option[count] = name; least[count] = range[1] + 0
            most[count] = range[3] + 0 }
        else if ($4 ~ /true or false/) { count++; option[count] = name
            words[name] = "true false" }
        else if (name in words) { count++; option[count] = name } }
    END {
        for (i = 0; i < draws; i++) {
            ranks = of("1 1 1 2 2 3 4 4 6 8 12 16 64 1000 4096")
            line = ranks " model.heads=" 2 ^ draw(5)
            for (k = 1 + draw(5); k > 0; k--) {
                o = 1 + draw(count)
                value = option[o] in words ? of(words[option[o]]) : number(o)
                line = line " " option[o] "=" sprintf(value ~ /^[0-9.e+-]+$/ \
                    ? "%.15g" : "%s", value)
            }
            left = ranks
            for (k = draw(3); k > 0; k--) {
                degree = of("2 2 3 4 8")
                if (left % degree) continue
                left /= degree
                line = line " mesh." of("tensor context pipe shard data") "=" \
                    degree
            }
            print line
        }
    }')
[ "${legal:-0}" -ge 10 ] && ok "drawn options: $legal are legal" ||
    bad "drawn options" "only ${legal:-0} are legal"

# The step whose work was printed as -4.6e18 FLOP.
expect "a huge step" 0 "e+" plan config.yaml --set model.layers=10000 \
    --set model.width=16384 --set model.heads=128 --set train.batch=4096 \
    --set data.sequence=8192 --set train.micro_batch=1
expect "too many parameters" 78 "more than 2^50 parameters" plan config.yaml \
    --set model.layers=10000 --set model.width=1048576 \
    --set model.heads=4096 --set model.feed_forward=4194304
expect "too many tokens in a step" 78 "2^40 tokens" plan config.yaml \
    --set train.batch=1048576 --set data.sequence=16777216

# --- the largest rank that a plan names is the largest of all ---
bytes_of() { # WHAT < plan
    sed -n "s/^$1  .*: \([0-9,]*\) bytes.*/\1/p" | tr -d ,
}
planned() { # KEY < plan of --time --json
    sed -n "s/^  \"$1\": \(.*\),/\1/p"
}
largest() { # NAME RANKS ARGUMENT...
    local name="the largest rank, $1" ranks=$2 rank most=0 named own
    shift 2
    named=
    for ((rank = 0; rank < ranks; rank++)); do
        lockstep plan config.yaml --ranks "$ranks" "$@" --rank $rank >out \
            2>log || bad "$name" "exit $?" log
        own=$(bytes_of memory <out)
        [ "${own:-0}" -gt $most ] && most=$own
        named="$named $(bytes_of 'memory of the largest rank' <out)"
    done
    named="$named $(lockstep plan config.yaml --ranks "$ranks" "$@" --time \
        --machine "cpu,devices=$ranks" --json 2>log |
        planned memory_bytes)"
    if [ "$(tr ' ' '\n' <<<"$named" | sort -u | xargs)" = "$most" ]; then
        ok "$name"
    else
        bad "$name" "it is $most, the plans say $named"
    fi
}
for zero in zero1 fsdp; do
    largest $zero 24 --set mesh.pipe=2 --set mesh.tensor=2 --set mesh.shard=3 \
        --set mesh.data=2 --set train.batch=24 --set numerics.grid_data=24 \
        --set train.micro_batch=1 --set zero=$zero
done
few=(--set train.micro_batch=1 --set mesh.shard=4)
largest "frozen parameters" 4 "${few[@]}" --set zero=zero1 \
    --set model.layers=3 --set model.feed_forward=40 \
    --set 'optimizer.groups=["*wqkv frozen"]'
largest "states of tensors" 4 "${few[@]}" --set zero=fsdp --set optimizer.name=soap

# --- 16,384 ranks: the plan of any one of them within a second of one core.
# It takes a fifth of one with this file and half of one with the preset; the
# bound is of processor time, with room for a busy core. PLAN_SECONDS: that of
# builds with sanitizers.
at_most=${PLAN_SECONDS:-1}
small=(config.yaml --set model.vocab=128256 --set model.layers=126
    --set model.width=16384 --set model.heads=128 --set model.kv_heads=8
    --set model.feed_forward=53248 --set data.sequence=4096
    --set train.batch=2048 --set train.dtype=bfloat16
    --set numerics.grid_tensor=8 --set numerics.grid_data=1024)
many() { # NAME ARGUMENT...
    local name=$1 spent TIMEFORMAT=%U+%S
    shift
    spent=$( { time lockstep plan "$@" --ranks 16384 --set mesh.tensor=8 \
        --set mesh.pipe=16 --set mesh.data=128 >out 2>log; } 2>&1)
    if ! grep -q "memory of the largest rank" out; then
        bad "16,384 ranks: $name" "no plan" log
    elif ! awk -v s="${spent%+*}" -v t="${spent#*+}" -v m="$at_most" \
        'BEGIN { exit !(s + t <= m) }'; then
        bad "16,384 ranks: $name" "$spent s, at most $at_most"
    else ok "16,384 ranks: $name, $spent s"; fi
}
for rank in 0 8191 16383; do
    many "rank $rank" "${small[@]}" --rank $rank
    many "rank $rank of the preset" "$tree/examples/presets/llama3_405b.yaml" \
        --rank $rank
done

# --- what an optimizer keeps ---
# A search finds the layout in the bytes that `plan` says it needs.
cat >states.yaml <<'END'
model: {family: llama, vocab: 4096, layers: 4, width: 512, heads: 8}
data: {sequence: 512}
train: {batch: 1, micro_batch: 1, steps: 1, dtype: bfloat16, recompute: [none]}
END
for setting in optimizer.masters=split optimizer.state_dtype=int8 \
    optimizer.state_dtype=bfloat16 optimizer.name=lion; do
    lockstep plan states.yaml --time --machine h100 --set $setting --json \
        >plan.json 2>err
    expect "search knows $setting" 0 "3 fit" search states.yaml --machine h100 \
        --ranks 1 --set $setting --max-memory "$(planned memory_bytes <plan.json)"
done
lockstep plan states.yaml --time --machine h100 --json >whole.json 2>err
lockstep plan states.yaml --time --machine h100 --json \
    --set optimizer.masters=split >plan.json 2>err
if awk -v a="$(planned step_s <whole.json)" -v b="$(planned step_s <plan.json)" \
    'BEGIN { exit !(b > a) }'; then ok "split masters take time"
else bad "split masters take time" "$(planned step_s <plan.json) s" err; fi
expect "split masters are advised" 79 "optimizer.masters=split" plan \
    states.yaml --time --machine h100 --max-memory "$(planned memory_bytes <plan.json)"
# --- words that no option has, of whatever program the step is
while IFS='|' read -r setting words; do
    for as in lockstep megatron torchtitan; do
        expect "--as $as: $setting" 78 "$words" plan config.yaml --time --machine h100 --as $as --set "$setting"
    done
done <<'END'
zero_reduce=onse|nearest: once
train.recompute=[latnet]|nearest: latent
train.recompute=[auto, latent]|auto chooses all of the list, so it stands alone
train.dtype=flaot32|nearest: float32
schedule.name=1f1bb|nearest: 1f1b
moe.exchange=flt|not auto, flat or two_level
optimizer.name=adam|nearest: adamw
mesh.order=tensr|not an axis of the mesh
END
for setting in zero_reduce=onse 'train.recompute=[latnet]' train.dtype=flaot32; do
    expect "search: $setting" 78 "nearest: " search config.yaml --machine h100 --set "$setting"
done
expect "a plan names all that is made again" 0 "norm, attention" plan config.yaml \
    --set 'train.recompute=[norm, attention, norm]'
report
