#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# experts.sh - mixtures of experts end to end: trained, killed and resumed under
# another layout, exported, generated with; settings and files that cannot be
# are refused with one sentence. How they come in: experts_in.sh.
. "${0%/*}/common.sh"
prepare
golden=$tree/tests/golden/models

# --- gpt-oss: codes of 4 bits, text, and what is refused ---
must import "$golden/gpt_oss_mxfp4" codes
must export codes widened
must score widened --tokens "$golden/gpt_oss_mxfp4/tokens.json" \
    --dtype float64 --json
if grep -q '"loss": 4.354344001014' log; then ok "MXFP4: transformers' loss"
else bad "MXFP4" "another loss than 4.354344001014" log; fi
cp -r "$golden/gpt_oss_mxfp4" odd && chmod -R u+w odd
sed -i 's/"mxfp4"/"gptq"/' odd/config.json
expect "other codes" 78 "quantization_config: the weights are quantized" \
    import odd none
cp "$golden/gpt_oss_mxfp4/config.json" odd
sed -i 's/gate_up_proj_scales/gate_up_proj_scaled/' odd/model.safetensors
expect "codes without scales" 65 "gate_up_proj_scales" import odd none
must train config.yaml --run sinks --set model.family=gpt_oss \
    --set moe.experts=4 --set moe.top_k=2 --set train.steps=3 \
    --set model.window=8
must generate sinks --prompt "the " --tokens 12 --temperature 0
first=$(tail -n 1 log)
must export sinks sinks-out
must generate sinks-out --prompt "the " --tokens 12 --temperature 0
if [ "$(tail -n 1 log)" = "$first" ]; then ok "gpt_oss: the same text"
else bad "gpt_oss" "another text" log; fi
expect "sinks and heads for tokens" 78 "with attention sinks heads are not" \
    train config.yaml --run none --ranks 2 --set mesh.context=2 \
    --set context.kind=ulysses --set model.family=gpt_oss \
    --set moe.experts=4 --set numerics.grid_context=2

# --- all tokens to one expert; all experts tied ---
must train config.yaml --run skewed --set model.family=glm4_moe \
    --set moe.experts=2 --set moe.top_k=1 --set moe.bias_rate=1 \
    --set train.steps=3
must train config.yaml --run tied --set model.family=mixtral \
    --set moe.experts=4 --set moe.top_k=1 --set model.init_std=0 \
    --set train.steps=1
for run in skewed:2 tied:4; do
    if grep -q "\"expert_busiest\": *${run#*:}," \
            "${run%:*}/metrics.jsonl"; then
        ok "${run%:*}: all tokens to one expert"
    else bad "${run%:*}" "expert_busiest is not ${run#*:}" \
            "${run%:*}/metrics.jsonl"; fi
done

# Tokens that leave ranks without work, or with all of it, under every axis.
cat >adversarial.txt <<'END'
ranks=1
ranks=4 mesh.expert=4
ranks=4 mesh.expert=2 mesh.tensor=2 moe.rows_bound=0.3
ranks=4 mesh.expert=2 mesh.pipe=2 train.micro_batch=1
ranks=2 mesh.data=2 zero=zero3
END
for case in "all to one, none to the others:model.family=glm4_moe moe.bias_rate=1 moe.top_k=1" \
    "all experts tied:model.family=mixtral model.init_std=0 moe.top_k=1" \
    "two of four experts tied:model.family=mixtral model.init_std=0 moe.top_k=2 moe.capacity_factor=0.5"; do
    sets=()
    for word in ${case#*:}; do sets+=(--set "$word"); done
    if lockstep verify config.yaml --layouts adversarial.txt --steps 3 \
        --set train.steps=3 --set moe.experts=4 --set train.threads=1 \
        --set numerics.grid_tensor=2 "${sets[@]}" >log 2>&1 &&
        [ "$(grep -c EXACT log)" -ge 6 ]; then ok "${case%:*}: under 4 layouts"
    else bad "${case%:*}" "not exact under every layout" log; fi
done

# --- choices without a place ---
must train config.yaml --run places --set model.family=mixtral \
    --set moe.experts=4 --set moe.capacity_factor=0.5 --set moe.jitter=0.1 \
    --set train.steps=3
if awk -F'"expert_dropped":' 'NR > 0 && $2 + 0 > 0 { found = 1 }
                              END { exit !found }' places/metrics.jsonl; then
    ok "half of the places: choices are dropped"
else bad "half of the places" "nothing is dropped" places/metrics.jsonl; fi
must train config.yaml --run enough --set model.family=mixtral \
    --set moe.experts=4 --set moe.capacity_factor=4 --set train.steps=3
must train config.yaml --run dropless --set model.family=mixtral \
    --set moe.experts=4 --set train.steps=3
if same_run enough dropless; then ok "a place for all: as without capacity"
else bad "a place for all" "$why" log; fi
# Ranks that have parts of sequences, or of experts, drop the same choices.
for axis in none tensor context expert; do
    ranks=1 sets=()
    [ $axis = none ] || { ranks=2; sets=(--set "mesh.$axis=2"); }
    must train config.yaml --run "places-$axis" --ranks $ranks "${sets[@]}" \
        --set numerics.grid_context=2 --set model.family=mixtral \
        --set moe.experts=4 --set moe.capacity_factor=0.6 --set train.steps=3
    grep -o '"expert_dropped": *[0-9.]*' "places-$axis/metrics.jsonl" \
        >"dropped-$axis"
    if [ -s dropped-none ] && cmp -s dropped-none "dropped-$axis" &&
        same_run places-none "places-$axis"; then ok "places and mesh.$axis"
    else bad "places and mesh.$axis" "other choices are dropped" log; fi
done

# --- leaves of experts that the exported files do not name ---
must train config.yaml --run leaves --set model.family=mixtral \
    --set moe.experts=4 --set numerics.grid_expert=2 --set train.steps=2
must export leaves leaves-out
ok "exported in the leaves of the run"

# --- trained, killed, resumed on other ranks ---
mixture=(--set model.family=mixtral --set moe.experts=4 --set train.steps=12)
must train config.yaml --run whole "${mixture[@]}"
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run cut \
    "${mixture[@]}" >log 2>&1
must resume cut --ranks 4 --set mesh.tensor=2 --set mesh.shard=2 \
    --set zero=fsdp
if same_run whole cut; then ok "killed, resumed on four ranks"
else bad "killed, resumed on four ranks" "$why" log; fi
must export whole exported
must generate exported --prompt "the " --tokens 5 --temperature 0
first=$(tail -n 1 log)
must generate whole --prompt "the " --tokens 5 --temperature 0
if [ "$(tail -n 1 log)" = "$first" ]; then ok "exported: the same text"
else bad "exported" "another text" log; fi

# --- adapters beside every expert: killed, merged, read by PEFT, taken back ---
beside=(--set init.from=whole --set model.from=whole --set train.steps=12
    --set lora.rank=2 --set 'lora.targets=[q_proj,router,w1,w2,w3]')
must train config.yaml --run adapted "${beside[@]}"
rm -rf cut
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run cut \
    --ranks 2 --set mesh.expert=2 "${beside[@]}" >log 2>&1
must resume cut --ranks 4 --set mesh.expert=1 --set mesh.tensor=2 \
    --set mesh.expert_tensor=1 --set mesh.shard=2 --set zero=fsdp
if same_run adapted cut; then ok "adapters of experts, killed, resumed"
else bad "adapters of experts, killed, resumed" "$why" log; fi
# Begun where tensor ranks cut experts, gone on with where neighbours among
# ranks that divide them do, and ended by one rank.
cut_adapters() { # NAME SETTING...
    local name=$1
    shift
    rm -rf one moved one_out moved_out
    must train config.yaml --run one "${beside[@]}" "$@" --set device=cpu
    must train config.yaml --run moved --ranks 4 --set mesh.tensor=2 \
        --set mesh.expert=2 --set checkpoint.keep_last=9 "${beside[@]}" "$@"
    must export one one_out --adapter
    must export moved moved_out --adapter
    if same_run one moved && cmp -s one_out/adapter_model.safetensors \
        moved_out/adapter_model.safetensors; then
        ok "adapters of cut experts, exported: $name"
    else bad "adapters of cut experts, exported: $name" "${why:-other bytes}" log
    fi
    back moved 5
    must resume moved --ranks 4 --set mesh.tensor=1 --set mesh.expert=4 \
        --set mesh.expert_tensor=2
    back moved 10
    must resume moved --ranks 1 --set mesh.expert=1 \
        --set mesh.expert_tensor=0 --set device=cpu
    if same_run one moved; then ok "adapters of cut experts, moved: $name"
    else bad "adapters of cut experts, moved: $name" "$why" log; fi
}
cut_adapters float32
cut_adapters "bfloat16, far" --set train.dtype=bfloat16 --set device=far
must export adapted merged
must generate merged --prompt "the " --tokens 12 --temperature 0
first=$(tail -n 1 log)
must generate adapted --prompt "the " --tokens 12 --temperature 0
if [ "$(tail -n 1 log)" = "$first" ]; then ok "merged into experts: the same text"
else bad "merged into experts" "another text" log; fi
must export adapted alone --adapter
echo '[[3,5,7,9,11,13,2,8,4,6],[23,25,27,29,211,213,22,28,24,26]]' >ids.json
must score adapted --tokens ids.json --logits logits.safetensors
python=${PYTHON:-python3}
if "$python" "$tree/tests/golden/check_export.py" exported ids.json \
    logits.safetensors --adapter alone >log 2>&1; then
    grep check_export log
    ok "peft reads adapters of experts, where it is installed"
else
    bad "adapters of experts in peft" "other logits" log
fi
must import exported taken --adapter alone
must export taken again --adapter
if cmp -s alone/adapter_model.safetensors again/adapter_model.safetensors; then
    ok "adapters of experts come in and go out"
else
    bad "adapters of experts, imported" "other bytes"
fi
must train config.yaml --run dense_too --set model.family=glm4_moe \
    --set moe.experts=4 --set moe.top_k=2 --set train.steps=1 \
    --set lora.rank=2 --set 'lora.targets=[all]'
expect "what PEFT takes for experts is told" 0 "PEFT 0.21 takes the targets" \
    export dense_too dense_alone --adapter
# Experts that PEFT finds in one tensor of all only: merged, and joined.
for of in "granitemoe [q_proj,up,router]" "gpt_oss [gate,up,down]" \
    "qwen2_moe [all-linear,router]" "phimoe [w1,w2,w3,router]" \
    "llama4 [gate,up,down,router]" \
    "ernie4_5_moe [experts.gate_proj,experts.up_proj,experts.down_proj,router]"; do
    family=${of% *} targets=${of#* }
    rm -rf base base_out stacked stacked_out joined back
    must train config.yaml --run base --set "model.family=$family" \
        --set moe.experts=4 --set train.steps=2 \
        --set "moe.top_k=$([ "$family" = llama4 ] && echo 1 || echo 2)"
    must export base base_out
    must train config.yaml --run stacked --set init.from=base \
        --set model.from=base --set train.steps=3 --set lora.rank=2 \
        --set lora.alpha=3 --set "lora.targets=$targets"
    must export stacked stacked_out
    must export stacked joined --adapter
    # Guards a proof of logits that adapters alone do not have.
    grep -q '^proof\|^tokenizer' log &&
        bad "adapters alone: $of" "a proof that was not made is told" log
    grep -q "PEFT 0.21 takes the targets" log &&
        bad "adapters alone: $of" "a warning of what PEFT reads rightly" log
    must score stacked --tokens ids.json --logits logits.safetensors
    if "$python" "$tree/tests/golden/check_export.py" base_out ids.json \
        logits.safetensors --adapter joined >log 2>&1; then
        grep check_export log
        ok "peft reads joined adapters: $of"
    else
        bad "joined adapters in peft: $of" "other logits" log
    fi
    must import base_out back --adapter joined
    must export back back_out
    must score back_out --tokens ids.json --json
    grep -o '"loss": [0-9.]\{7\}' log >losses
    must score stacked --tokens ids.json --json
    grep -o '"loss": [0-9.]\{7\}' log >>losses
    if [ "$(sort -u losses | wc -l)" = 1 ]; then ok "joined adapters come back: $of"
    else bad "joined adapters come back: $of" "another loss" losses; fi
    rm -rf back_out
done
# Modules for later tokens stay as they are, beside latent attention.
must train config.yaml --run later_on --set train.steps=3 --set lora.rank=2 \
    --set 'lora.targets=[all-linear]' --set model.family=deepseek_v3 \
    --set model.kv_heads=0 --set model.head_width=0 --set moe.experts=4 \
    --set moe.top_k=2 --set moe.groups=1 --set moe.groups_chosen=1 \
    --set mla.query_rank=10 --set mla.rank=16 --set mla.nope=6 --set mla.rope=4 \
    --set mla.value=5 --set mtp.depth=1
must generate later_on --prompt "the " --tokens 8 --temperature 0
cp log first.log
must generate later_on --prompt "the " --tokens 8 --temperature 0 --speculative
if [ "$(sed 's/guessed .*//' log)" = "$(cat first.log)" ]; then
    ok "adapters and guessed tokens"
else bad "adapters and guessed tokens" "another text" log; fi
expect "a cache that multiplies by an adapted matrix" 78 "use --cache keys" \
    generate later_on --prompt "the " --tokens 2 --cache latent

# --- ranks divide the experts: checkpoints go from degree to degree ---
for layout in "mesh.expert=2" "mesh.expert=2 mesh.shard=2 zero=fsdp"; do
    sets=()
    for set in $layout; do sets+=(--set "$set"); done
    ranks=$((2 + 2 * (${#sets[@]} > 2)))
    rm -rf cut
    LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run cut \
        --ranks $ranks "${mixture[@]}" "${sets[@]}" >log 2>&1
    must resume cut --ranks 4 --set mesh.expert=4 --set mesh.shard=1 \
        --set zero=ddp
    if same_run whole cut; then ok "$layout, killed, resumed on four"
    else bad "$layout, killed, resumed on four" "$why" log; fi
done
# Experts over tensor ranks, over both axes at once, cut over tensor ranks.
rm -rf cut
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run cut \
    --ranks 4 "${mixture[@]}" --set mesh.tensor=2 --set mesh.expert_tensor=1 \
    --set mesh.shard=2 --set zero=fsdp >log 2>&1
LOCKSTEP_FAULT=train.step:11:kill lockstep resume cut --ranks 4 \
    --set mesh.expert=2 --set mesh.shard=1 --set zero=zero1 >log 2>&1
must resume cut --ranks 4 --set mesh.expert=4 --set mesh.tensor=1 \
    --set mesh.expert_tensor=2 --set zero=ddp --set mesh.expert_context=true
if same_run whole cut; then ok "folded experts, killed twice, resumed"
else bad "folded experts, killed twice, resumed" "$why" log; fi
must export cut exported-expert
if cmp -s exported/model.safetensors exported-expert/model.safetensors; then
    ok "exported from four ranks with an expert each: the same file"
else bad "exported from ranks with experts" "another file"; fi
must launch --ranks 2 -- "$program" train config.yaml --run processes "${mixture[@]}" \
    --set mesh.expert=2
if same_run whole processes; then ok "process ranks divide the experts"
else bad "process ranks divide the experts" "$why" log; fi
expect "experts that ranks do not divide" 78 "do not divide the 4 experts" \
    train config.yaml --run none --ranks 3 "${mixture[@]}" \
    --set mesh.expert=3 --set train.batch=6 --set train.micro_batch=2 \
    --set numerics.grid_data=6
expect "a device loss without devices" 78 "no groups of experts" \
    train config.yaml --run none "${mixture[@]}" --set moe.device_loss=0.1
expect "devices that do not divide" 78 "do not divide the 4 experts" \
    train config.yaml --run none "${mixture[@]}" --set moe.device_loss=0.1 \
    --set moe.devices=3
expect "capacity with striped tokens" 78 "deals out tokens one by one" \
    train config.yaml --run none --ranks 2 "${mixture[@]}" \
    --set mesh.context=2 --set context.kind=striped \
    --set moe.capacity_factor=1 --set numerics.mode=fast

# --- selection biases: balance without a loss, whole in checkpoints ---
biased=(--set model.family=mixtral --set moe.experts=8 --set moe.top_k=2
    --set moe.balance_loss=0)
head -n 60 text.jsonl >few.jsonl
# One batch is all of the text, and the router stays as it was drawn: only
# biases can balance it.
for rate in 0 0.003; do
    must train config.yaml --run "rate-$rate" "${biased[@]}" \
        --set model.layers=1 --set model.init_std=0.2 --set moe.bias_rate=$rate \
        --set 'data.train=[few.jsonl]' --set data.valid_share=0 \
        --set train.batch=120 --set train.micro_batch=20 --set train.steps=60 \
        --set optimizer.lr=1e-9 --set optimizer.min_lr=0 --set validate.every=0
    grep -o '"expert_busiest": [0-9.]*' "rate-$rate/metrics.jsonl" |
        tail -n 20 | awk '{ s += $2 } END { print s / NR }'
done >busiest
if awk '{ b[NR] = $1 } END { exit !(NR == 2 && b[1] > 1.4 && b[2] < 1.1) }' \
    busiest; then ok "biases balance a skewed router within 40 steps"
else bad "biases balance a skewed router" "busiest over mean" busiest; fi
biased+=(--set moe.bias_rate=0.01 --set train.steps=12)
expect "biases that no file has a place for are told when they begin" 0 \
    "files of mixtral have no place for selection biases" \
    train config.yaml --run even "${biased[@]}"
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run cut-even \
    "${biased[@]}" >log 2>&1
must resume cut-even --ranks 4 --set mesh.tensor=2 --set mesh.shard=2 \
    --set zero=fsdp --set train.recompute=block --set train.micro_batch=1
if same_run even cut-even; then ok "biases: killed, resumed on four ranks"
else bad "biases: killed, resumed on four ranks" "$why" log; fi
# A frozen group keeps its biases, on every rank.
for rate in 0.01 0.02; do
    must train config.yaml --run "frozen-$rate" "${biased[@]}" \
        --set moe.bias_rate=$rate --set 'optimizer.groups=["*router* frozen"]' \
        --ranks 2 --set mesh.data=2 --set zero=zero1
done
if cmp -s "$(newest frozen-0.01)/model-00001-of-00001.safetensors" \
    "$(newest frozen-0.02)/model-00001-of-00001.safetensors"; then
    ok "biases of a frozen group stay"
else bad "biases of a frozen group stay" "the rate shows in the weights"; fi
# A step that overflows moves nothing, whatever the rate; the next one does.
for steps in 1 20; do
    for rate in 0.01 0.02; do
        must train config.yaml --run "rate-$rate-$steps" "${biased[@]}" \
            --set moe.bias_rate=$rate --set train.steps=$steps \
            --set train.dtype=float16 --set model.init_std=2 \
            --set optimizer.lr=1e-9 --set optimizer.min_lr=0
    done
    cmp -s "$(newest rate-0.01-$steps)/model-00001-of-00001.safetensors" \
        "$(newest rate-0.02-$steps)/model-00001-of-00001.safetensors"
    echo $?
done >differs
if [ "$(paste -s -d ' ' differs)" = "0 1" ]; then
    ok "biases: a skipped step moves none"
else bad "biases: a skipped step moves none" "0, then 1 expected" differs; fi
must generate even --prompt "the " --tokens 3 --temperature 0
expect "biases: no place in files of the family" 78 "no place; train" \
    export even none
expect "biases of a dense family" 78 "is a family without experts" \
    train config.yaml --run none --set moe.bias_rate=0.1

# --- balance losses of other tokens than those of the sequence ---
scope=(--set model.family=mixtral --set moe.experts=4 --set moe.top_k=2
    --set moe.balance_loss=0.5 --set train.steps=12 --set train.micro_batch=2
    --set moe.balance_scope=batch --set train.on_nan=skip)
must train config.yaml --run scope-sequence "${scope[@]}" \
    --set moe.balance_scope=sequence
LOCKSTEP_FAULT=train.nan:6 must train config.yaml --run scope "${scope[@]}"
LOCKSTEP_FAULT=train.nan:6,train.step:8:kill lockstep train config.yaml \
    --run cut-scope "${scope[@]}" >log 2>&1
must resume cut-scope --ranks 4 --set mesh.expert=2 --set mesh.pipe=2 \
    --set zero=zero1 --set train.micro_batch=1
if same_run scope cut-scope; then
    ok "balance of the step before: killed, resumed on four ranks"
else bad "balance of the step before: killed, resumed" "$why" log; fi
if ! same_run scope scope-sequence && ! cmp -s \
    "$(newest scope)/model-00001-of-00001.safetensors" \
    "$(newest scope-sequence)/model-00001-of-00001.safetensors"; then
    ok "balance of the step before: another run than that of sequences"
else bad "balance of the step before" "the scope changes nothing"; fi
scope+=(--set moe.balance_scope=micro_batch)
must train config.yaml --run micro "${scope[@]}"
if grep -q 'micro_batch=2 is a part of the result' log; then
    ok "balance of the micro-batch: said"
else bad "balance of the micro-batch: said" "no notice" log; fi
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml \
    --run cut-micro "${scope[@]}" >log 2>&1
expect "balance of the micro-batch: another one" 78 \
    "trained with train.micro_batch=2, not 1" \
    resume cut-micro --set train.micro_batch=1
must resume cut-micro --ranks 4 --set mesh.data=2 --set mesh.tensor=2
if same_run micro cut-micro; then
    ok "balance of the micro-batch: killed, resumed on four ranks"
else bad "balance of the micro-batch: killed, resumed" "$why" log; fi
expect "balance of a micro-batch that is open" 78 "set it, such as" \
    train config.yaml --run none "${scope[@]}" --set train.micro_batch=0
expect "balance of a micro-batch that a rank has not" 78 \
    "fewer than train.micro_batch=2" train config.yaml --run none \
    "${scope[@]}" --ranks 8 --set mesh.data=8 --set train.batch=8 \
    --set numerics.grid_data=8
expect "an unknown balance scope" 78 "nearest: batch" \
    train config.yaml --run none "${scope[@]}" --set moe.balance_scope=bach
expect "a balance scope without experts" 78 "is a family without experts" \
    train config.yaml --run none --set moe.balance_scope=batch

# --- latent attention ---
latent=(--set model.family=deepseek_v3 --set model.kv_heads=0
    --set model.head_width=0 --set mla.query_rank=10 --set mla.rank=16
    --set mla.nope=6 --set mla.rope=4 --set mla.value=5 --set moe.experts=8
    --set moe.top_k=2 --set moe.groups=4 --set moe.groups_chosen=2
    --set moe.intermediate_size=12 --set moe.first_dense=1)
must train config.yaml --run latent "${latent[@]}" --set train.steps=12
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run cut-latent \
    "${latent[@]}" --set train.steps=12 >log 2>&1
must resume cut-latent --ranks 4 --set mesh.tensor=2 --set mesh.pipe=2 \
    --set train.recompute=block --set train.micro_batch=2
if same_run latent cut-latent; then ok "latent: killed, resumed on four ranks"
else bad "latent: killed, resumed on four ranks" "$why" log; fi
# Leaves of experts are the router's groups; a run goes on with those that it began with.
must plan config.yaml "${latent[@]}" --explain experts
if grep -q "leaves of experts *4 " log; then ok "leaves of experts: the router's groups"
else bad "leaves of experts" "not 4" log; fi
must train config.yaml --run eight "${latent[@]}" --set train.steps=8 \
    --set numerics.grid_expert=8
LOCKSTEP_FAULT=train.step:7:kill lockstep train config.yaml --run began \
    "${latent[@]}" --set train.steps=8 --set numerics.grid_expert=8 >log 2>&1
sed -i '/grid_expert/d' began/config.yaml
must resume began
if same_run eight began; then ok "leaves of experts: a run keeps its own"
else bad "leaves of experts: a run keeps its own" "$why" log; fi
must export latent latent-out
must generate latent-out --prompt "the " --tokens 5 --temperature 0
first=$(tail -n 1 log)
must generate latent --prompt "the " --tokens 5 --temperature 0
if [ "$(tail -n 1 log)" = "$first" ]; then ok "latent: exported, the same text"
else bad "latent: exported" "another text" log; fi
must generate latent --prompt "the " --tokens 5 --temperature 0 --cache latent \
    --stats
if grep -qF -- "$first" log; then ok "latent cache: the same text"
else bad "latent cache" "another text" log; fi
expect "latent cache: how large" 0 "bytes for" \
    generate latent --prompt "the " --tokens 5 --cache latent --stats
expect "latent cache of usual attention" 78 "has no latent attention" \
    generate sinks --prompt "the " --tokens 5 --cache latent
expect "a cache of another kind" 2 "--cache" \
    generate latent --prompt "the " --tokens 5 --cache none

# --- later tokens: killed, resumed on other ranks, exported, imported, left out ---
later=("${latent[@]}" --set mtp.depth=1 --set train.steps=12)
must train config.yaml --run later "${later[@]}"
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run cut-later \
    "${later[@]}" >log 2>&1
must resume cut-later --ranks 4 --set mesh.tensor=2 --set mesh.expert=2 \
    --set train.micro_batch=4
if same_run later cut-later; then ok "later tokens: resumed on four ranks"
else bad "later tokens: resumed on four ranks" "$why" log; fi
must export later later-out
must import later-out later-in
must compare later-out later-in
if grep -q "eh_proj" later-out/*.json* later-out/*.safetensors &&
        grep -q '"num_nextn_predict_layers": 1' later-out/config.json; then
    ok "later tokens: exported and imported"
else bad "later tokens: exported" "no module in the files" log; fi
must generate later-out --prompt "the " --tokens 5 --temperature 0
first=$(tail -n 1 log)
must generate later --prompt "the " --tokens 5 --temperature 0
if [ "$(tail -n 1 log)" = "$first" ]; then ok "later tokens: the same text"
else bad "later tokens: exported" "another text" log; fi
# Modules guess tokens and the model checks them: the same ids, drawn or not,
# under both caches, up to the end of the context.
must train config.yaml --run later-2 "${later[@]}" --set mtp.depth=2
# Sinks of attention: a call that has few tokens left their gates out.
must train config.yaml --run sinks-later --set model.family=gpt_oss \
    --set moe.experts=4 --set moe.top_k=2 --set moe.intermediate_size=24 \
    --set mtp.depth=1 --set optimizer.lr=0.03 --set data.sequence=48 \
    --set train.steps=12
guessed=0
for how in "later --temperature 0" "later --seed 2 --tokens 30" \
    "later --temperature 0 --cache latent" "later-2 --temperature 0" \
    "later-2 --seed 3 --dtype bfloat16 --tokens 30" \
    "sinks-later --seed 1 --tokens 30" "sinks-later --seed 2 --tokens 30" \
    "later-2 --seed 4 --top-k 9 --cache latent --tokens 500"; do
    # shellcheck disable=SC2086
    {
    must generate $how --prompt "the " --json
    sed 's/"tokens_per_s.*//' log >alone.json
    must generate $how --prompt "the " --json --speculative
    }
    sed 's/"tokens_per_s.*//' log >guessed.json
    if cmp -s alone.json guessed.json && grep -q '"ids"' alone.json; then
        ok "guesses: $how"
    else bad "guesses: $how" "another text" guessed.json; fi
    guessed=$((guessed + $(grep -o '"guessed_right": [0-9]*' log |
        grep -o '[0-9]*$')))
done
if [ "$guessed" -gt 20 ]; then ok "guesses: some are right"
else bad "guesses: some are right" "only $guessed"; fi
expect "guesses without modules" 78 "train it with mtp.depth" \
    generate sinks --prompt "the " --speculative
must train config.yaml --run from-later "${latent[@]}" --set train.steps=1 \
    --set init.from=later-in
must train config.yaml --run from-later-1 "${later[@]}" --set train.steps=1 \
    --set init.from=later-in
loss() { grep -o '"loss": [0-9.]*' "$1/metrics.jsonl" | head -n 1; }
if [ "$(loss from-later)" = "$(loss from-later-1)" ] &&
        grep -q '"mtp_loss_1": [0-9]' from-later-1/metrics.jsonl; then
    ok "later tokens: started from with and without its module"
else bad "later tokens: started from" "another loss of the next token" log; fi
# Texts of prompts leave the modules out, on one rank and on two.
for ranks in 1 2; do
    must train config.yaml --run "prompts-$ranks" "${later[@]}" --ranks $ranks \
        --set mesh.data=$ranks --set 'validate.prompts=["the "]' \
        --set validate.prompt_tokens=4 --set validate.every=6
done
if cmp prompts-1/samples.jsonl prompts-2/samples.jsonl >log 2>&1; then
    ok "later tokens: prompts"
else bad "later tokens: prompts" "other texts" log; fi
# Groups that no loss balances need not divide the experts.
must train config.yaml --run groups --set model.family=mixtral \
    --set moe.experts=8 --set moe.devices=5 --set train.steps=1
expect "later tokens: more modules than there are" 78 "it has 1, the model here 2" \
    train config.yaml --run none "${later[@]}" --set mtp.depth=2 \
    --set init.from=later-in
must train config.yaml --run pipe-later "${later[@]}" --ranks 2 \
    --set mesh.pipe=2 --set train.micro_batch=2
if same_run later pipe-later; then ok "later tokens: a pipeline"
else bad "later tokens: a pipeline" "$why" log; fi
expect "later tokens: another family" 78 "can have no modules" \
    train config.yaml --run none --set model.family=gpt2 \
    --set model.kv_heads=0 --set mtp.depth=1
# A family whose published files have none keeps them to itself.
must train config.yaml --run dense-later --set mtp.depth=1 --set train.steps=12
LOCKSTEP_FAULT=train.step:8:kill lockstep train config.yaml --run dense-cut \
    --set mtp.depth=1 --set train.steps=12 >log 2>&1
must resume dense-cut --ranks 2 --set mesh.pipe=2 --set train.micro_batch=2
if same_run dense-later dense-cut; then ok "later tokens: a dense family"
else bad "later tokens: a dense family" "$why" log; fi
must generate dense-later --prompt "the " --temperature 0
tail -n 1 log >alone.txt
must generate dense-later --prompt "the " --temperature 0 --speculative
if grep -qxFf alone.txt log; then ok "guesses: a dense family"
else bad "guesses: a dense family" "another text" log; fi
expect "later tokens: files without a place" 0 "stay in the checkpoint" \
    export dense-later without-out
if grep -q eh_proj without-out/*.safetensors; then
    bad "later tokens: files without a place" "they are there"
fi
must generate without-out --prompt "the " --temperature 0
if grep -qxFf alone.txt log; then ok "later tokens: exported without"
else bad "later tokens: exported without" "another text" log; fi
cp -r "$golden/deepseek_v3" v3 && chmod -R u+w v3
sed -i 's/"num_nextn_predict_layers": 0/"num_nextn_predict_layers": 1/' \
    v3/config.json
must import v3 in-later
sed -i 's/"num_nextn_predict_layers": 1/"quantization_config": {}/' \
    v3/config.json
expect "latent: weights in FP8" 78 "quantization_config" import v3 none
sed -i 's/"quantization_config": {}/"rope_interleave": false/' v3/config.json
expect "latent: halves turn" 78 "rope_interleave" import v3 none
refuse_latent() { # NAME WORDS SETTING...
    local name=$1 words=$2 sets=() set
    shift 2
    for set; do sets+=(--set "$set"); done
    expect "$name" 78 "$words" train config.yaml --run none "${latent[@]}" \
        "${sets[@]}"
}
refuse_latent "latent: an odd turning part" "an even number is needed" mla.rope=3
refuse_latent "latent: long values" "values no more than keys" mla.value=11
refuse_latent "latent: few key heads" "only as many as heads" model.kv_heads=2
refuse_latent "latent: QK-clip" "share a key's rotary part" optimizer.qk_clip=1
refuse_latent "latent: adapters of what is not there" "q_proj is not" lora.rank=2 \
    'lora.targets=[q_proj]'
refuse_latent "latent: groups that do not divide" "groups" moe.groups=3
refuse_latent "latent: dense blocks later" "dense blocks of deepseek_v3 are" \
    moe.first_dense=0 moe.dense=1
refuse_latent "latent: another family" "has no latent attention" \
    model.family=mixtral moe.groups=0 moe.groups_chosen=0 moe.first_dense=0

# --- a dense model becomes a mixture: its first loss is the dense one's ---
for name in llama_untied mistral qwen3 olmo2; do
    must import "$golden/$name" "up-$name" --set moe.experts=4
    for model in "$golden/$name" "up-$name"; do
        must score "$model" --tokens "$golden/$name/tokens.json" \
            --dtype float64 --json
        grep -o '"loss": [0-9.]*' log
    done >losses
    if awk '{ l[NR] = $2 } END { d = l[1] - l[2]
            exit !(NR == 2 && d < 1e-12 && d > -1e-12) }' losses; then
        ok "$name as a mixture: the same loss"
    else bad "$name as a mixture" "another loss" losses; fi
done
must train config.yaml --run dense --set train.steps=2
must export dense dense-out
must import dense-out sparse --set moe.experts=4 --set moe.top_k=2
for model in dense sparse; do
    must train config.yaml --run "from-$model" --ranks 2 --set mesh.shard=2 \
        --set zero=fsdp --set init.from=$model --set model.from=$model \
        --set train.steps=3
    grep -m 1 -o '"loss": *[0-9.]*' "from-$model/metrics.jsonl" | cut -c 1-15
done >losses
if [ "$(sort -u losses | wc -l)" = 1 ] && [ "$(wc -l <losses)" = 2 ]; then
    ok "a mixture trains from the dense model's loss"
else bad "a mixture trains from the dense model's loss" "another" losses; fi
expect "upcycled: a family without mixture" 78 "a qwen2 cannot become" \
    import "$golden/qwen2" none --set moe.experts=4
expect "upcycled: biases" 78 "has attention biases, and no mixtral" \
    import "$golden/llama_tied_bias" none --set moe.experts=4
expect "upcycled: no experts" 78 "makes a mixture only with" \
    import "$golden/mistral" none --set moe.top_k=2
expect "upcycled: too many choices" 78 "moe.top_k: 5 of 4 experts" \
    import "$golden/mistral" none --set moe.experts=4 --set moe.top_k=5
expect "upcycled: other options" 2 "import takes moe.experts, moe.top_k" \
    import "$golden/mistral" none --set moe.experts=4 --set train.steps=3

# --- what cannot be ---
refuse() { # NAME WORDS SETTING...
    local name=$1 words=$2 sets=() set
    shift 2
    for set; do sets+=(--set "$set"); done
    expect "$name" 78 "$words" train config.yaml --run none "${sets[@]}"
}
refuse "experts in a dense family" "is a family without experts" moe.experts=4
refuse "more choices than experts" "moe.top_k: 5 of 4 experts" \
    model.family=mixtral moe.experts=4 moe.top_k=5
refuse "no block with experts" "none of 2 blocks has experts" \
    model.family=qwen3_moe moe.every=3
refuse "two rules for dense blocks" "remove one of them" \
    model.family=qwen3_moe moe.every=2 moe.dense=1
refuse "dense blocks of a mixtral" "moe.every: mixtral takes none" \
    model.family=mixtral moe.every=2
refuse "leaves that do not divide experts" "numerics.grid_expert: 3 leaves" \
    model.family=mixtral numerics.grid_expert=3
expect "sub-batches of a micro-batch" 78 "with experts use tensor.overlap" \
    train config.yaml --run none --ranks 2 --set model.family=mixtral \
    --set mesh.tensor=2 --set tensor.overlap=2 --set tensor.domino=true
expect "stochastic activations of divided experts" 78 "use mesh.expert=1" \
    train config.yaml --run none --ranks 2 --set model.family=mixtral \
    --set mesh.expert=2 --set train.dtype=bfloat16 \
    --set numerics.recipe=mxfp8 --set \
    "numerics.recipe_rows=[activations e4m3 1x32 up stochastic]"
expect "ranks that do not divide into groups" 78 "a divisor of 4 can" \
    train config.yaml --run none --ranks 4 --set model.family=mixtral \
    --set mesh.tensor=4 --set mesh.expert_tensor=3
expect "more ranks than leaves cut an expert" 78 "numerics.grid_tensor=8 can" \
    train config.yaml --run none --ranks 8 --set model.family=mixtral \
    --set moe.experts=8 --set mesh.expert=8 --set mesh.expert_tensor=8 \
    --set numerics.grid_tensor=2
expect "no grid for both ways to cut" 78 "those of a grid of 2; 1 can" \
    train config.yaml --run none --ranks 6 --set model.family=mixtral \
    --set moe.experts=6 --set mesh.tensor=3 --set mesh.expert=2 \
    --set mesh.expert_tensor=2 --set numerics.grid_tensor=3 --set model.heads=6 \
    --set model.kv_heads=3 --set model.width=48 --set model.feed_forward=48
expect "more ranks than experts divide" 78 "mesh.tensor: 3 ranks do not" \
    train config.yaml --run none --ranks 3 --set model.family=mixtral \
    --set moe.experts=4 --set mesh.tensor=3 --set mesh.expert_tensor=1 \
    --set numerics.grid_tensor=3 --set model.heads=6 --set model.kv_heads=3 \
    --set model.width=48 --set model.feed_forward=48
expect "no experts to divide over tensor ranks" 78 "leave them out" \
    train config.yaml --run none --ranks 2 --set mesh.tensor=2 \
    --set mesh.expert_tensor=1

# Experts by the names of PEFT's parameters: the same adapters.
for of in mixtral:w1,w3,w2 gpt_oss:gate,up,down qwen3_moe:gate_proj,up_proj,down_proj; do
    for targets in "${of#*:},router" experts.gate_up_proj,experts.down_proj,router.weight; do
        must plan config.yaml --set "model.family=${of%%:*}" --set moe.experts=4 \
            --set moe.top_k=2 --set lora.rank=2 --set "lora.targets=[$targets]"
        grep "that learn" log
    done >learn
    if [ "$(sort -u learn | wc -l)" = 1 ] && [ "$(wc -l <learn)" = 2 ]; then
        ok "adapters of experts by their parameters: ${of%%:*}"
    else bad "adapters of experts by their parameters: ${of%%:*}" "others" learn; fi
done
expect "adapters of experts of one block" 78 "is not q_proj" \
    train config.yaml --run none --set model.family=mixtral --set lora.rank=2 \
    --set 'lora.targets=[1.mlp.experts.down_proj]'
refuse "adapters of a dense block that is not there" "gate_proj is not q_proj" \
    model.family=mixtral lora.rank=2 'lora.targets=[gate_proj]'
refuse "adapters of experts that a recipe rotates" "leave their matrices out" \
    model.family=mixtral lora.rank=2 'lora.targets=[w2]' train.dtype=bfloat16 \
    numerics.recipe=mxfp4-quartet
refuse "a rate of biases below 0" "expected 0 to 1, or -1" \
    model.family=mixtral moe.bias_rate=-0.5
refuse "more groups than there are" "moe.groups_chosen: 5 of 4 groups" \
    model.family=deepseek_v3 model.kv_heads=4 moe.experts=8 moe.groups=4 \
    moe.groups_chosen=5
refuse "moving biases beside adapters" "adapters learn beside a model" \
    model.family=mixtral moe.bias_rate=0.01 lora.rank=2
cp -r "$golden/mixtral" damaged && chmod -R u+w damaged
sed -i 's/experts.3.w1.weight/experts.9.w1.weight/' damaged/model.safetensors
expect "a missing expert" 65 "block_sparse_moe.experts.3.w1.weight" \
    import damaged missing
sed -i 's/"num_local_experts": 5/"num_local_experts": 0/' damaged/config.json
expect "no experts at all" 78 "num_local_experts: 0 is outside" \
    import damaged missing
report
