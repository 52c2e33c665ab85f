#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# evaluate_ranks.sh - the results of a run's validation (named sets, tasks of
# every kind and continued prompts) are the same under every layout, after a
# kill, and from `lockstep eval` and `generate` on its checkpoint.
#
#     BUILD=build tests/equivalence/evaluate_ranks.sh
. "${0%/*}/../drills/common.sh"
prepare
golden=$tree/tests/golden/evaluation
mkdir facts
for kind in hellaswag arc lambada multiple_choice perplexity; do
    head -n 6 "$golden/$kind.jsonl" >"facts/$kind.jsonl"
done
cat >evaluate.yaml <<END
version: 1
seed: 4
model: {family: llama, layers: 4, width: 24, heads: 4, kv_heads: 2, context: 192}
tokenizer: {from: $golden/model/tokenizer.json}
data: {train: [$tree/LICENSE, facts/perplexity.jsonl], sequence: 192, valid_share: 0.4}
train: {steps: 4, batch: 8, threads: 1}
optimizer: {lr: 3.0e-3}
comm: {limit: 30}
numerics: {grid_data: 2, grid_tensor: 2, grid_context: 2}
checkpoint: {every: 2}
validate:
  every: 2
  sequences: 5
  sets: [law $tree/LICENSE, "mixed facts/perplexity.jsonl $tree/LICENSE"]
  tasks: [h hellaswag facts/hellaswag.jsonl, a arc facts/arc.jsonl,
          l lambada facts/lambada.jsonl,
          m multiple_choice facts/multiple_choice.jsonl,
          p perplexity facts/perplexity.jsonl]
  shots: 1
  prompts: ["The fox", "", "License means what the"]
  prompt_tokens: 6
END

said() { # RUN
    grep '"validation"' "$1/metrics.jsonl" |
        sed -E 's/"(val_ms|time_s)": ?[^,}]*,?//g'
    cat "$1/samples.jsonl"
}
always=() # settings of every run
runs() { # NAME SETTING...
    local name=$1 set sets=() ranks=1
    shift
    for set in "${always[@]}" "$@"; do
        if [[ $set == ranks=* ]]; then ranks=${set#ranks=}
        else sets+=(--set "$set"); fi
    done
    rm -rf "$name"
    lockstep train evaluate.yaml --run "$name" --ranks "$ranks" \
        "${sets[@]}" >log 2>&1
}
same() { # WHAT SETTING...
    local what=$1
    shift
    if ! runs other "$@"; then bad "$what" "exit" log
    elif [ "$(said other)" = "$(said one)" ]; then ok "$what"
    else
        said one >a
        said other >b
        diff a b | cut -c 1-400 >log
        bad "$what" "says something else" log
    fi
}

runs one || bad "one rank" "exit" log
[ "$(said one | grep -c '"task.p.bits_per_byte"')" -eq 2 ] && ok tasks ||
    bad "one rank" "no task in its metrics" one/metrics.jsonl
[ "$(said one | grep -c '"prompt"')" -eq 6 ] && ok samples ||
    bad "one rank" "not six samples" one/samples.jsonl
same "micro-batches" train.micro_batch=1 train.threads=3
same "data" ranks=2 mesh.data=2
same "fsdp" ranks=2 mesh.shard=2 zero=fsdp train.micro_batch=1
same "tensor" ranks=2 mesh.tensor=2
same "context" ranks=2 mesh.context=2
same "pipe" ranks=2 mesh.pipe=2 train.micro_batch=1
same "both ends" ranks=2 mesh.pipe=2 train.micro_batch=1 \
    schedule.name=dualpipe
same "interleaved" ranks=2 mesh.pipe=2 train.micro_batch=1 \
    schedule.name=interleaved
same "three axes" ranks=8 mesh.data=2 mesh.tensor=2 mesh.pipe=2 \
    train.micro_batch=1
same "tensor and context" ranks=4 mesh.tensor=2 mesh.context=2 \
    train.recompute=block

# Killed after step 3, behind the validation of step 2.
rm -rf other
LOCKSTEP_FAULT=train.step:4:kill lockstep train evaluate.yaml --run other \
    >log 2>&1
if [ -e other/samples.jsonl ] && lockstep resume other >log 2>&1 &&
    [ "$(said other)" = "$(said one)" ]; then ok resumed
else bad "resumed" "says something else" log; fi

# The same numbers from the checkpoint.
lockstep eval one --json --shots 1 \
    --task facts/hellaswag.jsonl,facts/arc.jsonl \
    --task facts/multiple_choice.jsonl,facts/lambada.jsonl \
    --kind hellaswag,arc,multiple_choice,lambada >eval.json 2>log
number() { # FILE NAME
    grep -o "\"$2\": [^,}]*" "$1" | tail -n 1 | sed 's/.*: //'
}
lockstep eval one --json --shots 1 --task facts/lambada.jsonl \
    --kind lambada >lambada.json 2>>log
lockstep eval one --json --task facts/perplexity.jsonl >text.json \
    --kind perplexity 2>>log
for row in "lambada.json perplexity task.l.perplexity" \
    "lambada.json acc task.l.acc" \
    "eval.json perplexity task.l.perplexity" \
    "text.json bits_per_byte task.p.bits_per_byte" \
    "text.json word_perplexity_stderr task.p.word_perplexity_stderr"; do
    # shellcheck disable=SC2086
    set -- $row
    found=$(number "$1" "$2")
    if [ -n "$found" ] && [ "$found" = "$(number one/metrics.jsonl "$3")" ]
    then ok "eval $2"
    else bad "eval" "$3 is $(number one/metrics.jsonl "$3"), eval: $found" log
    fi
done
# Ranks share the items: more than there are in a task, uneven shares.
asked() { # ARGUMENT...: everything that eval says, but the clock
    rm -f items.jsonl
    lockstep eval one --json --shots 1 --task facts/hellaswag.jsonl,facts/arc.jsonl \
        --task facts/multiple_choice.jsonl,facts/lambada.jsonl \
        --kind hellaswag,arc,multiple_choice,lambada --out items.jsonl "$@" \
        2>log | sed 's/"seconds": *[0-9.e+-]*//'
    cat items.jsonl
}
asked >alone.txt
[ "$(grep -c loglikelihoods alone.txt)" -eq 24 ] && ok "items" ||
    bad "items" "not 24" alone.txt
for ranks in 2 3 5 40; do
    asked --ranks "$ranks" --threads 1 >shared.txt
    if cmp -s alone.txt shared.txt; then ok "eval on $ranks ranks"
    else bad "eval on $ranks ranks" "says something else" log; fi
done
asked --ranks 2 --limit 2 --batch 1 >shared.txt
asked --limit 2 >alone.txt
if cmp -s alone.txt shared.txt && grep -q loglikelihoods alone.txt; then ok "eval of few items on ranks"
else bad "eval of few items on ranks" "says something else" log; fi
# Windows of long documents are shared too.
for ranks in 1 2 5; do
    lockstep eval one --json --task facts/perplexity.jsonl --kind perplexity \
        --ranks "$ranks" 2>log | sed 's/"seconds": *[0-9.e+-]*//' >said
    [ "$ranks" -gt 1 ] || mv said alone.txt
    [ "$ranks" -eq 1 ] || {
        if [ -s said ] && cmp -s alone.txt said; then ok "texts on $ranks ranks"
        else bad "texts on $ranks ranks" "say something else" log; fi
    }
done
# Other kinds of models: 16 bits, learned positions, windows and soft caps, a
# vocabulary that four tensor ranks cut unevenly.
mv one first
for kind in "train.dtype=bfloat16 model.tied=true" \
    "model.family=gpt2 model.kv_heads=0 data.documents=joined" \
    "model.family=gemma2 model.window=37"; do
    read -ra always <<<"$kind model.vocab=323 numerics.grid_tensor=4"
    runs one || bad "$kind" "exit" log
    same "$kind: tensor" ranks=4 mesh.tensor=4
    same "$kind: context" ranks=2 mesh.context=2 train.micro_batch=1
    same "$kind: pipe" ranks=4 mesh.pipe=2 mesh.data=2 train.micro_batch=1
done
# Sequences of several granules, whose keys travel between ranks.
always=(data.sequence=512 model.context=512 train.batch=4
    numerics.grid_context=4)
runs one || bad "long" "exit" log
same "long: ring" ranks=2 mesh.context=2 context.kind=ring
same "long: ulysses" ranks=2 mesh.context=2 context.kind=ulysses \
    train.micro_batch=1
same "long: gathered" ranks=4 mesh.context=4 train.micro_batch=2
always=()
rm -rf one
mv first one

text=$(LOCKSTEP_CHECK=lives lockstep generate one --prompt "The fox" \
    --tokens 6 --temperature 0 --json 2>log | grep -o '"text": "[^"]*"')
if [ -n "$text" ] && tail -n 3 one/samples.jsonl | grep -qF -- "$text"; then ok generate
else bad "generate" "$text is not among the samples" one/samples.jsonl; fi
# A recipe's scales cover a whole sequence, also in the texts of prompts.
always+=(train.dtype=bfloat16 numerics.recipe=fp8-tensor optimizer.lr=0.03
    validate.temperature=1)
runs one || bad "a recipe" "exit" log
same "a recipe, data" ranks=2 mesh.data=2
same "a recipe, pipe" ranks=2 mesh.pipe=2 train.micro_batch=1

report
