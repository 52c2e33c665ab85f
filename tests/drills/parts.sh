#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# parts.sh - runs that train a part of the parameters, or each in its own way:
# groups, frozen ones, a moving average, muP, low-rank adapters. Killed and
# resumed, under another layout too, they end in the same bytes; what is not to
# move does not; what is exported computes the same; muP is flat over widths.
. "${0%/*}/common.sh"
prepare

# resumed NAME SETTING...: 12 steps, against 12 with a kill -9 after step 8 and
# two ranks from there on
resumed() {
    local name=$1 sets=() set
    shift
    for set; do sets+=(--set "$set"); done
    must train config.yaml --run "$name" --set train.steps=12 "${sets[@]}"
    LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml \
        --run "$name-cut" --set train.steps=12 "${sets[@]}" >log 2>&1
    must resume "$name-cut" --ranks 2 --set mesh.tensor=2
    if same_run "$name" "$name-cut"; then
        ok "$name: killed, resumed on two ranks"
    else
        bad "$name: killed, resumed" "$why" log
    fi
}

# differing A B: how many tensors differ, of those that both have
differing() {
    lockstep compare "$1" "$2" --json >out 2>log
    sed -n 's/^  "differing": \([0-9]*\).*/\1/p' out
}

# --- groups and frozen parameters ---
resumed groups 'optimizer.groups=["layers.0.* frozen", "embedding frozen",
    "*.wo lr_factor=0.1 weight_decay=0", "*norm* beta2=0.5"]'
must train config.yaml --run start --set train.steps=12 \
    --set 'optimizer.groups=["* lr_factor=0 weight_decay=0"]'
# 11 of 21 weights have moved: not the embedding, nor the 9 of block 0; their
# two moments differ too
if [ "$(differing groups start)" = 33 ]; then
    ok "frozen parameters stay as they were"
else
    bad "frozen parameters" "$(differing groups start) tensors differ of 33"
fi
expect "other groups on resume" 78 "cannot change" resume groups \
    --set 'optimizer.groups=["* frozen"]'
lockstep plan config.yaml --explain memory --json >all
lockstep plan config.yaml --explain memory --json \
    --set 'optimizer.groups=["* frozen"]' >none
if grep -q '"first moments"' all && ! grep -q 'moments"' none; then
    ok "frozen parameters have no states"
else
    bad "states of frozen parameters" "still planned" none
fi

expect "QK-clip of a frozen matrix" 78 "optimizer.qk_clip" \
    train config.yaml --run nothing --set optimizer.qk_clip=10 \
    --set 'optimizer.groups=["layers.1.* frozen"]'

# --- a moving average ---
resumed ema optimizer.ema=0.9 validate.weights=ema validate.every=4
must train config.yaml --run plain --set train.steps=12 --set validate.every=4
if [ "$(differing ema plain)" = 0 ] && ! cmp -s <(exact_rows ema) \
    <(exact_rows plain); then
    ok "an average is validated and changes no weight"
else
    bad "moving average" "$(differing ema plain) weights differ"
fi
must export ema ema-average --weights ema
must export ema ema-weights
lockstep compare ema-weights plain >log 2>&1 ||
    bad "export of the weights beside an average" "they differ" log
if lockstep compare ema-average plain >log 2>&1; then
    bad "export of the average" "it is the weights" log
else
    ok "the average can be exported"
fi
echo '[[3,5,7,9,11,13,2,8,4,6]]' >ids.json
must score ema --tokens ids.json --weights ema --json
cp log average
must score ema-average --tokens ids.json --json
if cmp -s average log; then ok "the average can be scored"
else bad "score --weights ema" "another loss" log; fi
expect "export of an average that is not kept" 78 "optimizer.ema" \
    export plain nothing --weights ema
expect "validation of an average that is not kept" 78 "optimizer.ema" \
    train config.yaml --run nothing --set validate.weights=ema

# --- low-rank adapters ---
resumed lora lora.rank=2 lora.alpha=8 'lora.targets=[q_proj,v_proj,down_proj]' \
    init.from=plain
must export lora merged
must generate lora --prompt "ba" --tokens 12 --temperature 0
cp log adapted
must generate merged --prompt "ba" --tokens 12 --temperature 0
if cmp -s adapted log; then ok "adapters merge into the weights"
else bad "merged adapters" "another text" log; fi
loss_of() { # MODEL
    must score "$1" --tokens ids.json --json --dtype float64
    sed 's/.*"loss": *\([0-9.]*\).*/\1/' log
}
if awk -v a="$(loss_of lora)" -v b="$(loss_of merged)" -v c="$(
    loss_of plain)" 'function abs(x) { return x < 0 ? -x : x }
    BEGIN { exit !(abs(a - b) < 1e-6 && abs(a - c) > 1e-4) }'; then
    ok "merged weights have the loss of the adapters"
else
    bad "loss of merged weights" "$(loss_of lora) $(loss_of merged) $(
        loss_of plain)"
fi
# q, v and down of two blocks
if [ "$(differing merged plain)" = 6 ]; then
    ok "nothing but the targets moves"
else
    bad "targets" "$(differing merged plain) tensors differ of 6"
fi
must export lora alone --adapter
if [ -s alone/adapter_model.safetensors ] &&
    grep -q '"r": 2' alone/adapter_config.json; then
    ok "adapters alone can be exported"
else
    bad "adapters alone" "no files" log
fi
echo '[[3,5,7,9,11,13,2,8,4,6],[23,25,27,29,211,213,22,28,24,26]]' >ids.json
must export plain hf-base
must score lora --tokens ids.json --logits logits.safetensors
python=${PYTHON:-python3}
if ! command -v "$python" >log; then
    echo "left out: peft, which reads adapters; no python3"
else
    if "$python" "$tree/tests/golden/check_export.py" hf-base ids.json \
        logits.safetensors --adapter alone >log 2>&1; then
        grep check_export log
        ok "peft reads the adapters, where it is installed"
    else
        bad "adapters in peft" "other logits" log
    fi
fi
# An adapter that went out alone comes in beside the same base, and goes on as it
# would have here.
must import hf-base taken --adapter alone
must generate taken --prompt "ba" --tokens 12 --temperature 0
if cmp -s adapted log; then ok "adapters of PEFT can be imported"
else bad "imported adapters" "another text" log; fi
must train config.yaml --run on --set init.from=lora --set lora.rank=2 \
    --set lora.alpha=8 --set 'lora.targets=[q_proj,v_proj,down_proj]'
must train config.yaml --run on-taken --ranks 2 --set init.from=taken \
    --set lora.from=taken
if [ "$(differing on on-taken)" = 0 ]; then
    ok "imported adapters train on, in the same bits"
else
    bad "training on" "$(differing on on-taken) tensors differ" log
fi
must train config.yaml --run on-run --set init.from=lora --set lora.from=lora
if [ "$(differing on on-run)" = 0 ]; then ok "adapters of a run train on"
else bad "adapters of a run" "$(differing on on-run) tensors differ" log; fi
# The best step is not the newest: rates at which the loss rises again.
must train config.yaml --run scored --set lora.rank=2 --set validate.every=2 \
    --set checkpoint.keep_best=true --set checkpoint.keep_last=1 \
    --set optimizer.lr=3 --set optimizer.schedule=constant
must train config.yaml --run on-best --set init.from=scored/best \
    --set lora.from=scored/best
best=scored/ckpt/$(ls scored/ckpt | grep step- | head -n 1)
must train config.yaml --run on-named --set "init.from=$best" \
    --set "lora.from=$best"
if [ "$(differing on-best on-named)" != 0 ] || [ "$best" = "$(newest scored)" ]
then bad "adapters of the best step" "$best, $(ls scored/ckpt)" log
else ok "adapters of the best step train on"; fi
expect "values that nobody would read" 78 "lockstep import BASE RUN" \
    train config.yaml --run nothing --set lora.from=alone
expect "adapters beside adapters" 78 "is a run already" \
    import lora nothing --adapter alone
expect "adapters that are not there" 78 "has no adapters" \
    export plain nothing --adapter
expect "a target that is no matrix" 78 "nearest: q_proj" \
    train config.yaml --run nothing --set lora.rank=2 \
    --set lora.targets=q_prj
expect "a target of another family" 78 \
    "q_proj is not c_attn, c_proj, c_fc, or all" train config.yaml --run none \
    --set lora.rank=2 --set lora.targets=q_proj --set model.family=gpt2 \
    --set model.kv_heads=0
expect "adapters as the beginning of a run without" 78 "export" \
    train config.yaml --run nothing --set init.from=lora

# --- muP ---
resumed mup model.mup_base_width=12
value() { sed -n "s/.*\"$1\": \\([-0-9.e]*\\).*/\\1/p" log; }
slopes() { # NAME BELOW ABOVE: of muP below, of the standard above
    local mup standard
    mup=$(value mup_steepest)
    standard=$(value standard_steepest)
    if awk -v m="$mup" -v s="$standard" -v below="$2" -v above="$3" \
        'BEGIN { exit !(m < below && s > above) }'; then
        ok "$1"
    else
        bad "$1" "muP $mup, standard $standard"
    fi
}
must mup config.yaml --widths 24,48,96,192 --steps 4 --json --draw mup.svg
slopes "changes are flat over widths with muP, and grow without" 0.25 0.7
grep -q '</svg>' mup.svg || bad "picture of the check" "it does not end"
must mup config.yaml --widths 24,48 --steps 2 --json
cp log mup.json
must mup config.yaml --widths 24,48 --steps 2 --json --set zero=fsdp \
    --set mesh.data=2 --set mesh.pipe=2 --set schedule.name=zb-h1
if cmp -s log mup.json; then ok "one rank checks the widths of any layout"
else bad "one rank checks the widths of any layout" "other numbers"; fi
must mup config.yaml --widths 24,48,96,192 --steps 4 --json \
    --set optimizer.name=sgd --set optimizer.lr=0.3 --set optimizer.clip=0
slopes "of sgd too" 0.4 1
for name in muon soap adafactor; do
    expect "muP has no rates of $name" 78 "muP has no learning-rate rule for" \
        train config.yaml --run nothing --set model.mup_base_width=12 \
        --set optimizer.name=$name --set optimizer.schedule=constant
done
expect "widths that do not fit" 78 "choose widths" \
    mup config.yaml --widths 24,25
expect "a width beyond all" 2 "growing widths up to 1048576" \
    mup config.yaml --widths 24,9223372036854775800
report
