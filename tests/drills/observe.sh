#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# observe.sh - looking at a run: event files, layers, the endpoint. Nothing of
# it changes a bit; layers look the same under every layout; a kill and a
# resume leave no step twice; clients that are slow, wrong or many get no more
# than they should.
. "${0%/*}/common.sh"
prepare
sed -i 's/layers: 2/layers: 4/' config.yaml
watch="--set observe.tensorboard=true --set observe.layers=5
    --set observe.histograms=10"

# --- no bit changes ---
# shellcheck disable=SC2086
{
must train config.yaml --run plain
must train config.yaml --run watched $watch --set observe.prometheus=0
if same_run plain watched; then ok "a watched run has the same bits"
else bad "a watched run has the same bits" "$why"; fi
[ "$(wc -l <watched/layers.jsonl)" -eq 6 ] && ok "a line every 5 steps" ||
    bad "a line every 5 steps" "$(wc -l <watched/layers.jsonl) lines"

# --- what TensorBoard itself reads ---
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.step:18:kill lockstep train config.yaml --run told \
    $watch --set 'validate.sets=[code text.jsonl]' --set validate.every=4 \
    --set 'validate.prompts=[ba, be]' --set validate.prompt_tokens=5 \
    >log 2>&1
must resume told
steps=$(sed -n 's/^{"step": \([0-9]*\), "prompt": "ba".*/\1/p' told/samples.jsonl |
    tr '\n' ' ')
if [ "$steps" = "$(echo "$steps" | tr ' ' '\n' | sort -nu | tr '\n' ' ' |
    sed 's/^ //')" ] && [[ $steps == *"16 20 "* ]]; then
    ok "killed and resumed, each sample is there once"
else
    bad "samples of a run that was killed" "steps $steps"
fi
# shellcheck disable=SC2086
must train config.yaml --run hurt $watch --set train.steps=12 \
    --set checkpoint.every=4
events=$(ls hurt/tensorboard/events*)
size=$(stat -c %s "$events")
printf 'x' | dd of="$events" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
must resume hurt --set train.steps=16
if grep -q "tfevents.*: byte [0-9]*: .*checksum.* is in .*damaged" log &&
    [ "$(stat -c %s hurt/tensorboard/damaged.*)" = "$size" ]; then
    ok "a damaged event file is named and kept"
else
    bad "a damaged event file" "is not named" log
fi
if python3 -c 'import tensorboard' 2>/dev/null; then
    if python3 "$tree/tests/golden/make_events.py" --check told >out 2>&1; then
        ok "the tensorboard package: $(tail -n 1 out)"
    else
        bad "the tensorboard package" "reads something else" out
    fi
else
    echo "left out: python3 has no package tensorboard"
fi

expect "histograms without event files" 78 "set observe.tensorboard" train \
    config.yaml --run none --set observe.histograms=5

# --- one layout like another ---
layout() { # NAME REFERENCE RANKS SETTING...
    local name=$1 reference=$2 ranks=$3 sets=() set
    shift 3
    for set; do sets+=(--set "$set"); done
    must train config.yaml --run "$name" --ranks "$ranks" $watch \
        --set train.steps=10 --set numerics.grid_tensor=2 "${sets[@]}"
    [ "$name" != "$reference" ] || return
    if cmp -s "$reference/layers.jsonl" "$name/layers.jsonl"; then
        ok "layers under $*"
    else
        bad "layers under $*" "layers.jsonl differs"
    fi
}
layout one one 1 train.threads=1
layout one2 one 1 train.threads=3 train.micro_batch=2
layout data one 2 mesh.data=2
layout tensor one 2 mesh.tensor=2
layout domino one 2 mesh.tensor=2 tensor.overlap=2 tensor.domino=true
layout pipe one 2 mesh.pipe=2 train.micro_batch=1
layout dual one 2 mesh.pipe=2 train.micro_batch=1 schedule.name=dualpipe
layout fsdp one 4 mesh.shard=4 zero=fsdp train.micro_batch=1
layout zero2 one 4 mesh.data=2 mesh.tensor=2 zero=zero2
layout half one 1 train.threads=2 train.recompute=block
layout span span 1 numerics.grid_context=2
layout context span 2 numerics.grid_context=2 mesh.context=2
layout muon muon 1 optimizer.name=muon
layout muon2 muon 4 optimizer.name=muon mesh.data=2 mesh.tensor=2 zero=zero1
layout codes codes 1 optimizer.state_dtype=int8 optimizer.ema=0.9
layout codes2 codes 2 optimizer.state_dtype=int8 optimizer.ema=0.9 \
    mesh.pipe=2 train.micro_batch=1
few="train.dtype=bfloat16 numerics.recipe=mxfp4 numerics.grid_context=2"
# shellcheck disable=SC2086
{
layout few few 1 $few
layout few2 few 1 $few train.threads=3 train.micro_batch=1 train.recompute=block
layout few4 few 4 $few optimizer.masters=split mesh.shard=2 mesh.tensor=2 zero=fsdp
layout few8 few 8 $few mesh.data=2 mesh.context=2 mesh.pipe=2 train.micro_batch=1
}
# Ranks that cut experts make other products beside an adapter of down.
mixed="train.dtype=bfloat16 numerics.recipe=nvfp4 numerics.high_last=0 model.family=mixtral moe.experts=2
    moe.top_k=1 model.layers=1 lora.rank=2 lora.targets=[w2] numerics.grid_tensor=4
    train.steps=5"
# shellcheck disable=SC2086
{
layout frozen frozen 1 $mixed
layout frozen2 frozen 2 $mixed mesh.tensor=2
mixed+=" lora.targets=[q_proj] numerics.recipe=fp8-delayed train.saved_activations=auto"
layout still still 1 $mixed
layout still2 still 2 $mixed mesh.tensor=2 mesh.expert_tensor=1
if grep -q '^step .* bfloat16, products in fp8-delayed$' log; then
    ok "the log names the recipe"
else bad "the log names the recipe" "it does not" log; fi
}
# Another batch of a ramp has its counts and scores in another place.
# shellcheck disable=SC2086
{
layout ramp ramp 1 $few 'train.batch_ramp=[0=4,7=8]'
layout ramp2 ramp 2 $few 'train.batch_ramp=[0=4,7=8]' mesh.data=2
}
# Every recipe's shares, magnitudes and scales, in both files.
every() { # RECIPE GROUP NAME RANKS SETTING...
    local recipe=$1 first=$1_$2_one name=$1_$2_$3 ranks=$4
    shift 4
    layout "$name" "$first" "$ranks" train.dtype=bfloat16 \
        "numerics.recipe=$recipe" numerics.high_last=0 observe.layers=1 \
        train.steps=3 numerics.grid_context=2 "$@"
    grep -o '"recipe_cut": [^,]*, "recipe_zeroed": [^,]*' "$name/metrics.jsonl" \
        >"$name.shares"
    if [ -s "$name.shares" ] && cmp -s "$first.shares" "$name.shares"
    then ok "shares of $recipe, $name"
    else bad "shares of $recipe, $name" "other shares"; fi
}
for recipe in hfp8 fp8-tensor fp8-delayed fp8-tiles mxfp8 mxfp8-floor \
    mxfp4-quartet nvfp4 nvfp4-delayed bitnet; do
    every $recipe dense one 1
    every $recipe dense cut 8 mesh.tensor=2 mesh.context=2 mesh.pipe=2 \
        train.micro_batch=1
done
mixture="model.family=mixtral moe.experts=4 model.layers=2"
for recipe in mxfp4-quartet nvfp4 bitnet; do
    # shellcheck disable=SC2086
    every $recipe experts one 1 $mixture
    # shellcheck disable=SC2086
    every $recipe experts cut 4 $mixture mesh.expert=2 mesh.context=2
done
# --- what a recipe's roundings do ---
if grep -q '"rounded": {"y.x": \[[0-9.e-]*, 0\.[0-9]*, [0-9.]*, [0-9.e-]*, [0-9.e-]*\], "y.w"' \
        few/layers.jsonl &&
    grep -q '"recipe_cut": 0\.[0-9]*, "recipe_zeroed": 0\.[0-9]*' few/metrics.jsonl &&
    grep -q 'share of an operand that is cut off' few/report.html &&
    grep -aq 'recipe_scale_most_dw.dy/layers.0' few/tensorboard/events*; then
    ok "roundings in layers, metrics, report and events"
else
    bad "roundings of a recipe" "$(head -c 900 few/layers.jsonl)"
fi
must train config.yaml --run few_alone --set train.steps=10 \
    --set numerics.grid_tensor=2 $(printf -- '--set %s ' $few)
newest=few/ckpt/$(cat few/ckpt/latest)
if [ -s "$newest/model-00001-of-00001.safetensors" ] &&
    cmp "$newest/model-00001-of-00001.safetensors" \
        "few_alone/${newest#few/}/model-00001-of-00001.safetensors" >log 2>&1
then ok "looking at roundings changes no bit"
else bad "looking at roundings" "other weights" log; fi
warns() { # WHAT WORDS ROW
    lockstep train config.yaml --run warned \
        --set train.steps=1 --set observe.layers=1 --set train.dtype=bfloat16 \
        --set numerics.recipe=fp8-tensor --set "numerics.recipe_rows=[$3]" \
        >log 2>&1
    if [ "$(grep -c "$2" log)" = 1 ]; then ok "a warning: $1"
    else bad "a warning: $1" "none or several" log; fi
    rm -rf warned
}
warns "elements are cut off" "larger than the largest number of ternary" \
    "activations ternary region none"
warns "elements become 0" "become 0 in int8" "weights int8 region none"
# --- tokens of experts ---
mixed="model.family=mixtral moe.experts=4 moe.bias_rate=0.01"
# shellcheck disable=SC2086
{
layout mixed mixed 1 $mixed
layout mixed4 mixed 4 $mixed mesh.expert=2 mesh.pipe=2 train.micro_batch=1
}
# shellcheck disable=SC2046
if python3 - mixed/layers.jsonl mixed/metrics.jsonl $(lockstep plan config.yaml \
    --set model.family=mixtral --set moe.experts=4 --set moe.bias_rate=0.01 2>/dev/null |
    sed -n 's/^parameters\( that a token uses\)\? //p' | tr -d ' ,') <<'END' >log 2>&1
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
steps = {r["step"]: r for r in map(json.loads, open(sys.argv[2]))
         if "expert_busiest" in r}
assert rows
for row in rows:
    worst = 0
    for block in row["experts"]:
        tokens, bias = block["tokens"], block["bias"]
        assert sum(tokens) == 2 * steps[row["step"]]["targets"], row["step"]
        assert abs(block["busiest"] - 4 * max(tokens) / sum(tokens)) < 1e-12
        assert all(abs(b * 100 - round(b * 100)) < 1e-5 for b in bias)
        worst = max(worst, block["busiest"])
    assert abs(worst - steps[row["step"]]["expert_busiest"]) < 1e-6
assert any(b for row in rows for block in row["experts"] for b in block["bias"])
for step in steps.values():
    for name, parameters in zip(("flops_total", "flops_active"), sys.argv[3:]):
        size = 6 * int(parameters) * step["tokens_per_s"]
        assert abs(step[name] / size - 1) < 1e-6, (name, step[name], size)
END
then ok "tokens of each expert are all choices"
else bad "tokens of experts" "see below" log; fi
if grep -q 'Experts: tokens over the mean of the block' mixed/report.html &&
    grep -aq 'expert_tokens/block_1_expert_3' mixed/tensorboard/events* &&
    grep -aq 'expert_bias/block_0_expert_2' mixed/tensorboard/events* &&
    grep -q 'busiest expert over the mean' mixed/report.html &&
    lockstep metrics mixed | grep -q 'tokens/s *busiest expert'; then
    ok "experts in report and events"
else bad "experts in report and events" "missing"; fi
layout lora lora 1 lora.rank=2
layout lora2 lora 2 lora.rank=2 mesh.data=2 zero=zero2
layout lora4 lora 4 lora.rank=2 mesh.shard=2 mesh.tensor=2 zero=fsdp
tags=$(grep -aho 'gradients/[a-z0-9_.]*' lora/tensorboard/events* | sort -u)
if [ -n "$tags" ] && ! grep -qE 'wqkv$|w13$|w2$' <<<"$tags"; then
    ok "no histogram of a gradient that nobody makes"
else
    bad "histograms of frozen matrices" "$tags"
fi
layout bf16 bf16 1 train.dtype=bfloat16
layout bf16t bf16 2 train.dtype=bfloat16 mesh.tensor=2

# --- served while it trains ---
served() { # PATH: what curl hears
    curl -s --max-time 5 "http://$address$1"
}
if command -v curl >/dev/null; then
    if start_until served 3 train config.yaml --run served \
        --set train.steps=1000000 --set checkpoint.every=0 \
        --set observe.prometheus=0; then
        address=$(sed -n 's|^metrics   http://\(.*\)/metrics$|\1|p' log)
        before=$(served /metrics | sed -n 's/^lockstep_step_total //p')
        for _ in {1..100}; do
            sleep 0.3
            after=$(served /metrics | sed -n 's/^lockstep_step_total //p')
            [ "${after:-0}" -le "${before:-0}" ] || break
        done
        if [ "${before:-0}" -gt 0 ] && [ "${after:-0}" -gt "$before" ]; then
            ok "curl sees steps go by"
        else
            bad "curl sees steps go by" "$before, then $after" log
        fi
        served /metrics | awk '
            /^# HELP/ { help[$3] = 1; next }
            /^# TYPE/ { if (!help[$3] || $4 !~ /^(gauge|counter)$/) exit 1
                        type[$3] = 1; next }
            !/^[a-z_]+({[^}]*})? [-+0-9.eInfNaN]+$/ { exit 1 }
            { sub(/[{ ].*/, ""); if (!type[$0]) exit 1; n++ }
            END { if (n < 15) exit 1 }' && ok "every line of the page" ||
            bad "every line of the page" "is not of the text format"
        [ "$(curl -s -o /dev/null -w '%{http_code}' "http://$address/x")" = \
            404 ] && ok "another path" || bad "another path" "is no 404"
        [ "$(curl -s -o /dev/null -w '%{http_code}' -X POST -d a=b \
            "http://$address/metrics")" = 405 ] && ok "another method" ||
            bad "another method" "is no 405"
        # Twenty that say nothing, one that asks.
        for i in {1..20}; do
            exec {quiet[i]}<>"/dev/tcp/${address%:*}/${address##*:}"
        done
        served /metrics | grep -q '^lockstep_loss ' &&
            ok "silent clients keep nobody out" ||
            bad "silent clients keep nobody out" "no answer" log
        for i in {1..20}; do exec {quiet[i]}>&-; done
        lockstep train config.yaml --run other \
            --set observe.prometheus="$address" >out 2>&1
        check_said "a taken address" 78 "cannot listen" $? out
        [ ! -e other ] && ok "a taken address leaves no run" ||
            bad "a taken address" "a directory is left"
        kill -TERM "$child"
        wait "$child"
        [ $? -eq 75 ] && ok "a served run stops on SIGTERM" ||
            bad "a served run stops on SIGTERM" "another exit code" log
    else
        bad "a served run" "does not start" log
    fi
else
    echo "left out: curl is not installed"
fi

# The largest logit is the one that QK-clip sees.
must train config.yaml --run clipped --set observe.layers=5 \
    --set train.steps=5 --set optimizer.qk_clip=1000
seen=$(sed -n 's/.*"max_attention_logit": \([0-9.e-]*\).*/\1/p' \
    clipped/metrics.jsonl | tail -n 1)
logits=$(sed 's/.*"logit": \[\([^]]*\)\].*/\1/' clipped/layers.jsonl)
if [ -n "$seen" ] && [[ ", $logits," == *", $seen,"* ]] &&
    [ "$logits" = "$(sed -n '1s/.*"logit": \[\([^]]*\)\].*/\1/p' \
        watched/layers.jsonl)" ]; then
    ok "the largest logit, with and without QK-clip"
else
    bad "the largest logit" "$seen is none of $logits"
fi

# --- killed and resumed ---
if cmp -s told/layers.jsonl watched/layers.jsonl; then
    ok "layers of a killed and resumed run"
else
    bad "layers of a killed and resumed run" "layers.jsonl differs"
fi

# Killed where files are written, and where the disk is full.
for fault in events.append:40:kill layers.append:4:kill events.append:50:full \
    layers.append:3:full; do
    name=${fault//:/-}
    LOCKSTEP_FAULT=$fault lockstep train config.yaml --run "$name" $watch \
        >log 2>&1
    code=$?
    case $fault in
    *full) [ $code -eq 0 ] || bad "$fault" "exit $code" log ;; # it waits
    *) [ $code -eq 137 ] || bad "$fault" "exit $code" log ;;
    esac
    must resume "$name"
    if cmp -s "$name/layers.jsonl" watched/layers.jsonl; then
        ok "resumed after $fault"
    else
        bad "resumed after $fault" "layers.jsonl differs"
    fi
done

# --- a run that goes back by itself ---
LOCKSTEP_FAULT=train.nan:13 lockstep train config.yaml --run rewound \
    $watch --set train.on_nan=rewind >log 2>&1 || bad "rewound" "exit $?" log
steps=$(sed 's/^{"step": \([0-9]*\),.*/\1/' rewound/layers.jsonl | tr '\n' ' ')
if [ "$steps" = "5 10 15 20 25 30 " ] &&
    [ "$(ls rewound/tensorboard | wc -l)" -eq 2 ]; then
    ok "a run that goes back tells every step once"
else
    bad "a run that goes back tells every step once" "steps $steps" log
fi
}

# --- two runs beside each other ---
must train config.yaml --run unlike --set optimizer.lr=0.0031 \
    --set train.steps=25 --ranks 2 --set mesh.data=2
expect "compare of equal runs" 0 "metrics: equal: 35 lines" \
    compare plain watched
grep -q "^options: 4 differ: observe.tensorboard false and true" out &&
    grep -q "^tensors of step 30: equal: .* every bit" out &&
    ok "what it says of them" || bad "what it says of them" "other words" out
lockstep compare plain unlike --draw both.html --tensors >out 2>&1
if [ $? -eq 1 ] && grep -q "of step 1, is the first that differs: lr " out &&
    grep -q "optimizer.lr 0.003 and 0.0031" out &&
    grep -q "^tensors of step 25: .* is the first that differs" out &&
    [ "$(grep -c '^model.*weight.v ' out)" -gt 20 ] && [ -s both.html ]; then
    ok "compare of other runs"
else
    bad "compare of other runs" "exit code or words" out
fi
lockstep compare plain unlike --json >out 2>&1
[ $? -eq 1 ] && grep -q '"metric": "lr"' out && grep -q '"step_b": 25' out &&
    ok "the same as JSON" || bad "the same as JSON" "other keys" out
must export plain exported
expect "a curve of a model" 2 "only runs have curves" \
    compare plain exported --draw x.svg
lockstep metrics plain --csv >out 2>&1
if [ "$(wc -l <out)" -eq 36 ] &&
    awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' out; then
    ok "metrics as CSV"
else
    bad "metrics as CSV" "lines or columns are missing" out
fi
report
