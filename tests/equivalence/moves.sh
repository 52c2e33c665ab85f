#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# moves.sh - checkpoints cross layouts: what any layout writes equals what one
# rank writes, byte by byte, and any other layout goes on from it; weights come
# in under any layout; saves that are broken off and ranks that fail leave the
# checkpoints before.
. "${0%/*}/../drills/common.sh"
prepare
sed -i 's/layers: 2/layers: 4, tied: true/; s/steps: 30/steps: 12/
        s/every: 5/every: 3, keep_last: 9/' config.yaml

same_as() { # NAME RUN RUN
    if same_run "$2" "$3"; then ok "$1"; else bad "$1" "$why" log; fi
}

sets() { # SETTING...: as --set, one a line
    local s
    for s; do printf '%s\n' --set "$s"; done
}

alone="mesh.data=1 mesh.shard=1 mesh.tensor=1 mesh.pipe=1 zero=ddp train.micro_batch=1"
zero3="mesh.data=2 mesh.shard=2 mesh.tensor=1 mesh.pipe=1 zero=zero3"
hsdp="mesh.data=2 mesh.shard=2 mesh.tensor=1 mesh.pipe=1 zero=hsdp"
tensor="mesh.data=1 mesh.shard=1 mesh.tensor=4 mesh.pipe=1 zero=ddp"
pipe="mesh.data=1 mesh.shard=1 mesh.tensor=2 mesh.pipe=2 zero=ddp"
vee="mesh.data=1 mesh.shard=1 mesh.tensor=1 mesh.pipe=2 zero=ddp schedule.name=dualpipev"
mixed="mesh.data=2 mesh.shard=1 mesh.tensor=2 mesh.pipe=2 zero=zero1 schedule.name=1f1b"

must train config.yaml --run one --set train.micro_batch=1
# shellcheck disable=SC2046,SC2086
{
i=0
for layout in "4 $zero3" "4 $hsdp" "4 $tensor" "4 $pipe" "2 $vee" "8 $mixed"
do
    i=$((i + 1))
    must train config.yaml --run whole$i --ranks ${layout%% *} \
        $(sets ${layout#* } train.micro_batch=1)
    same_as "bytes of ${layout#* }" one whole$i
done

# One run through four layouts.
must train config.yaml --run moved --ranks 4 $(sets $zero3 train.micro_batch=1)
back moved 3
must resume moved --ranks 4 $(sets $pipe)
back moved 6
must resume moved --ranks 8 $(sets $mixed)
back moved 9
must resume moved --ranks 4 $(sets $tensor schedule.name=1f1b)
same_as "moved through four layouts" one moved

# The same in 16 bits, with float32 masters that ranks divide, and split, which
# no checkpoint knows.
narrow="train.dtype=bfloat16 train.micro_batch=1"
split=optimizer.masters=split
must train config.yaml --run narrow $(sets $narrow)
must train config.yaml --run narrow2 --ranks 4 $(sets $zero3 $narrow $split)
same_as "bytes of split masters under zero3" narrow narrow2
back narrow2 3
must resume narrow2 --ranks 4 $(sets $pipe optimizer.masters=float32)
back narrow2 6
must resume narrow2 --ranks 2 $(sets mesh.data=2 mesh.tensor=1 mesh.pipe=1 zero=zero1 $split)
same_as "bfloat16 moved through three layouts" narrow narrow2

# In 4 bits; the recipe belongs to the run.
recipe="$narrow numerics.recipe=nvfp4 numerics.recipe_steps=5"
must train config.yaml --run recipe $(sets $recipe)
must train config.yaml --run always $(sets $narrow numerics.recipe=nvfp4)
losses() { sed -n 's/.*"step": \([0-9]*\),.*"loss": \([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
losses recipe >some
losses always >all
if [ "$(diff some all | sed -n 's/^< \([0-9]*\) .*/\1/p' | head -n 1)" = 6 ]; then
    ok "products are bfloat16 from step 6 on"
else
    bad "numerics.recipe_steps=5" "$(diff some all)"
fi
must train config.yaml --run recipe2 --ranks 4 $(sets $zero3 $recipe)
same_as "bytes of nvfp4 under zero3" recipe recipe2
back recipe2 3
for other in recipe high_first; do
    expect "resume with another $other" 78 "numerics.$other cannot change" \
        resume recipe2 $(sets numerics.$other=1)
done
must resume recipe2 --ranks 4 $(sets $pipe)
back recipe2 6
must resume recipe2 --ranks 2 $(sets mesh.data=1 mesh.tensor=2 mesh.pipe=1 zero=ddp)
same_as "nvfp4 moved through three layouts" recipe recipe2

# Gathered as codes, which no checkpoint knows: from two classes of shards to
# others, and without.
coded="$narrow numerics.recipe=fp8-tiles numerics.high_last=0"
must train config.yaml --run coded $(sets $coded)
must train config.yaml --run coded2 --ranks 4 \
    $(sets $zero3 $coded fsdp.gather_format=recipe)
same_as "bytes of fp8-tiles gathered as codes" coded coded2
back coded2 3
must resume coded2 --ranks 4 $(sets $hsdp fsdp.reshard=false)
back coded2 6
must resume coded2 --ranks 2 $(sets mesh.data=2 mesh.shard=1 zero=fsdp fsdp.gather_format=dtype)
back coded2 9
must resume coded2 --ranks 2 $(sets train.kept_weights=auto fsdp.prefetch=3)
same_as "codes moved through four layouts" coded coded2

# A recipe as a file is the same recipe as its rows; the run keeps what it said.
printf 'numerics:\n  recipe: mxfp8\n  recipe_rows:\n    - %s\n  high_last: 1\n' \
    "gradients e5m2 1x32 up" >own.yaml
must train config.yaml --run own --ranks 2 $(sets $narrow) --set train.steps=6 \
    --set mesh.data=2 --set numerics.recipe=own.yaml
rm own.yaml
back own 3
must resume own
must train config.yaml --run own2 $(sets $narrow) --set train.steps=6 \
    --set numerics.recipe=mxfp8 --set numerics.high_last=1 \
    --set "numerics.recipe_rows=[gradients e5m2 1x32 up]"
same_as "a recipe as a file" own own2

# Scales from the steps before: a checkpoint hands the history on, and a step
# without an update leaves it alone.
late="$narrow numerics.recipe=fp8-delayed numerics.recipe_history=5 train.on_nan=skip"
rows_of() { # STEP: rows of the history
    grep -c '"[0-9a-f]\{99,\}"' "late/ckpt/step-0000000$1/state.json"
}
LOCKSTEP_FAULT=train.nan:2 lockstep train config.yaml --run late $(sets $late) \
    >log 2>&1 || bad "scales from the steps before" "exit $?" log
if [ "$(rows_of 3) $(rows_of 6)" = "3 5" ]; then
    ok "a step without an update leaves no largest magnitudes"
else
    bad "rows of the history" "$(rows_of 3) $(rows_of 6)" log
fi
LOCKSTEP_FAULT=train.nan:2 lockstep train config.yaml --run late2 --ranks 4 \
    $(sets $zero3 $late) >log 2>&1 || bad "late scales under zero3" "exit $?" log
back late2 3
must resume late2 --ranks 4 $(sets $pipe)
back late2 6
must resume late2 --ranks 2 $(sets mesh.data=1 mesh.tensor=2 mesh.pipe=1 zero=ddp)
same_as "fp8-delayed moved through three layouts" late late2
# Once more with weights as codes; gradients of one rank of eight are infinite.
# (pipe goes before tensor: ranks 4 to 7 have the loss of their sequences.)
rm -rf late2
LOCKSTEP_FAULT=gradient.infinite-5:2 lockstep train config.yaml --run late2 --ranks 8 \
    $(sets $late mesh.data=2 mesh.shard=1 mesh.tensor=2 mesh.pipe=2 zero=fsdp fsdp.gather_format=recipe) \
    >log 2>&1 || bad "late scales as codes" "exit $?" log
back late2 3
must resume late2 --ranks 4 $(sets mesh.data=2 mesh.pipe=1 zero=zero1 train.kept_weights=recipe)
back late2 6
must resume late2 --ranks 2 $(sets mesh.data=2 mesh.tensor=1 zero=fsdp)
same_as "fp8-delayed as codes, skipping on eight ranks, moved through three layouts" late late2

# Norms of heads are a tensor each outside, and so are their second moments.
heads="model.family=stablelm model.qk_norm=true optimizer.name=adafactor train.micro_batch=1"
must train config.yaml --run heads $(sets $heads)
must train config.yaml --run heads2 --ranks 4 $(sets $zero3 $heads)
same_as "bytes of norms of heads under zero3" heads heads2
back heads2 3
must resume heads2 --ranks 4 $(sets $pipe)
back heads2 6
must resume heads2 --ranks 4 $(sets $tensor schedule.name=1f1b)
same_as "norms of heads moved through three layouts" heads heads2

# Gradients that leave float16's range at first: steps without an update, and a
# loss scale that a checkpoint hands on.
half="train.dtype=float16 train.micro_batch=1 model.init_std=1.5"
must train config.yaml --run half $(sets $half)
if grep -q '"skipped": [1-9]' half/metrics.jsonl; then ok "steps were skipped"
else bad "steps were skipped" "none was" half/metrics.jsonl
fi
must train config.yaml --run half2 --ranks 2 $(sets mesh.tensor=2 $half)
back half2 3
must resume half2 --ranks 4 $(sets $zero3)
same_as "float16 moved between layouts" half half2

# Weights of a Hugging Face directory, and of a run, into every layout.
must export one hub
must train config.yaml --run from --set init.from=hub $(sets $alone) \
    --set train.steps=3
for layout in "4 $zero3" "4 $tensor" "4 $pipe" "2 $vee"; do
    for source in hub one; do
        rm -rf other
        must train config.yaml --run other --ranks ${layout%% *} \
            --set init.from=$source $(sets ${layout#* } train.micro_batch=1) \
            --set train.steps=3
        same_as "init.from=$source: ${layout#* }" from other
    done
done

# A save that is broken off at any point by a kill.
for fault in checkpoint.tensor:30:kill checkpoint.sync:5:kill \
    checkpoint.rename:2:kill checkpoint.latest:2:kill; do
    rm -rf killed
    LOCKSTEP_FAULT=$fault lockstep train config.yaml --run killed --ranks 4 \
        $(sets $pipe train.micro_batch=1) >log 2>&1
    must resume killed --ranks 4 $(sets $zero3)
    same_as "killed at $fault" one killed
    no_remains "killed at $fault" killed
done

# A save in which one rank fails: nobody hangs, the run says why and goes on.
rm -rf failed_save
LOCKSTEP_FAULT=checkpoint.tensor:40 LIMIT=400 lockstep train config.yaml \
    --run failed_save --ranks 4 $(sets $pipe train.micro_batch=1) >log 2>&1
code=$?
if [ $code -eq 0 ] && grep -q 'training goes on.*checkpoint.tensor' log
then ok "one rank cannot write"
else bad "one rank cannot write" "exit $code" log
fi
must resume failed_save $(sets $alone)
same_as "after a rank could not write" one failed_save

# A rank that fails between steps ends the others.
rm -rf failed_step
LOCKSTEP_FAULT=train.step:22 LIMIT=400 lockstep train config.yaml \
    --run failed_step --ranks 4 $(sets $pipe train.micro_batch=1) >log 2>&1
code=$?
if [ $code -ne 0 ] && [ $code -ne 124 ] && grep -q 'rank [0-3]' log
then ok "a rank that fails ends the others, by name"
else bad "a rank that fails ends the others, by name" "exit $code" log
fi
must resume failed_step --ranks 2 $(sets $vee)
same_as "after a rank failed" one failed_step

# A file of weights is gone: the checkpoint before, with a sentence; without
# one before, one sentence.
rm "$(newest moved)"/model-*.safetensors
must resume moved --ranks 4 $(sets $tensor)
if grep -q 'step 12 is damaged and was passed over' log
then ok "a missing file is told"
else bad "a missing file is told" "it is not" log
fi
same_as "after a missing file" one moved
only=$(newest moved)
for step in moved/ckpt/step-*; do
    [ "$step" = "$only" ] || rm -rf "$step"
done
rm "$only"/optim-*.safetensors
expect "no whole checkpoint" 65 "none of its 1 checkpoints is whole" \
    resume moved --ranks 4
}
report
