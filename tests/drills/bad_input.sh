#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bad_input.sh - each mistake gets one clear sentence and a documented code.
. "${0%/*}/common.sh"
prepare

# refused NAME CODE WORDS ARGUMENT...: of a training run; nothing is left that
# would stop the next attempt in the same directory.
refused() {
    local name=$1
    rm -rf run
    expect "$1" "$2" "$3" train config.yaml --run run --set train.steps=3 \
        "${@:4}"
    [ ! -e run/ckpt/latest ] || bad "$name" "there is a checkpoint" out
}

# --- data ---
refused "no such data" 66 "nowhere.txt: no such" --set data.train=[nowhere.txt]
: >empty.txt
mkfifo pipe.jsonl
refused "a pipe" 78 "pipe.jsonl: a pipe or device" --set data.train=[pipe.jsonl]
refused "JSON of any shape" 78 "tokenizer.json: JSON is read with one object per" \
    --set data.train=[tokenizer.json]
refused "empty data" 65 "empty.txt" --set data.train=[empty.txt]
mkdir nothing
refused "a directory without text" 78 "nothing: the directory has no" --set data.train=[nothing]
echo 'ba be bi.' >short.txt
refused "too little data" 78 "data.sequence" --set data.train=[short.txt]
printf 'ba be \377\376 bo\n' >broken.txt
refused "too little data, by the option's name" 78 \
    "data.train: 7 tokens in 1 document to train on" --set data.train=[short.txt] \
    --set data.sequence=4096
refused "invalid UTF-8" 65 "UTF-8" --set data.train=[broken.txt]
printf '{"text": "ba"}\n{"text": ba}\n' >broken.jsonl
refused "broken JSON lines" 65 "broken.jsonl" --set data.train=[broken.jsonl]
printf '{"body": "ba"}\n' >field.jsonl
refused "JSON lines without the field" 65 "field.jsonl" \
    --set data.train=[field.jsonl]
refused "no data named" 78 "data.train" --set data.train=[]
lockstep tokenize tokenizer.json text.jsonl --out few.tokens >log 2>&1
refused "ids beyond the vocabulary" 78 "vocab" --set model.vocab=200 \
    --set data.train=[few.tokens]
refused "ids beyond the vocabulary, no tokenizer" 78 "vocab" \
    --set model.vocab=200 --set tokenizer.from= --set data.train=[few.tokens]
printf '{"ids": [1, 2]}\n{"ids": [3, 304]}\n' >ids.jsonl
refused "ids beyond the vocabulary" 65 \
    'ids.jsonl, line 2: item 1 of "ids" is 304, outside the vocabulary of 300' \
    --set data.train=[ids.jsonl] --set data.field=ids
head -c 3000 few.tokens >cut.tokens
refused "a token file cut short" 65 "cut.tokens" --set data.train=[cut.tokens]
cp few.tokens flipped.tokens
printf '\377\377' | dd of=flipped.tokens bs=1 seek=1000 conv=notrunc 2>/dev/null
refused "a token file with other ids" 65 "flipped.tokens" \
    --set data.train=[flipped.tokens]
cp few.tokens absurd.tokens
printf '\377\377\377\377\377\377\377\177' |
    dd of=absurd.tokens bs=1 seek=24 conv=notrunc 2>/dev/null
refused "absurd sizes in a token file" 65 "absurd.tokens" \
    --set data.train=[absurd.tokens]
cp text.jsonl text.tokens
refused "text that is called a token file" 65 "text.tokens" \
    --set data.train=[text.tokens]
sed 's/ ko/ qo/' text.jsonl >other.jsonl
lockstep tokenizer train other.jsonl --vocab 300 --out other.json >log 2>&1
refused "a token file of another tokenizer" 78 "tokenizer" \
    --set tokenizer.from=other.json --set data.train=[few.tokens]
refused "no such tokenizer" 66 "nowhere.json" --set tokenizer.from=nowhere.json
echo '{"model": {"type": "Unigram"}}' >unigram.json
refused "another kind of tokenizer" 65 "unigram.json" \
    --set tokenizer.from=unigram.json

# --- sizes ---
refused "heads that do not divide" 78 "heads" --set model.width=25 \
    --set model.head_width=0
refused "key-value heads that do not divide" 78 "3 key-value heads" \
    --set model.kv_heads=3
refused "batch and micro-batch" 78 "micro_batch" --set train.micro_batch=3
refused "batch and leaves" 78 "grid_data" --set numerics.grid_data=5
refused "no such recipe" 78 " or bitnet; nearest: mxfp" \
    --set numerics.recipe=mxfp9 --set train.dtype=bfloat16
refused "an empty recipe" 78 "numerics.recipe is empty; set none, hfp8, " \
    --set numerics.recipe=
for text in MXFP8=mxfp8 quartet=mxfp4-quartet fp4=mxfp4 NvFP4=nvfp4; do
    refused "a recipe like ${text%=*}" 78 " or bitnet; nearest: ${text#*=}" \
        --set "numerics.recipe=${text%=*}" --set train.dtype=bfloat16
done
refused "a recipe in float32" 78 "train.dtype is float32; set train.dtype=bfloat16" \
    --set numerics.recipe=mxfp8
refused "a recipe for no block" 78 "none is left for nvfp4" \
    --set numerics.recipe=nvfp4 --set train.dtype=bfloat16 \
    --set numerics.high_first=100
few="--set train.dtype=bfloat16 --set numerics.recipe=nvfp4"
# shellcheck disable=SC2086
for row in "weights:has too few words" "weihts e4m3 1x32 up:nearest: weights" \
    "weights e4m4 1x32 up:nearest: e4m3" "gradients e2m1:go on with a block" \
    "gradients e2m1 0x16 two:is not region, token" \
    "weights e2m1 1x999 two:of sides up to 256" \
    "weights e2m1 16x16 tow:nearest: two" \
    "weights e2m1 16x16 two stochastic:weights are rounded to nearest" \
    "weights e4m3 1x32 late:so the block is region" \
    "gradients bf16 1x16 up:end after bf16" \
    "kept e5m6 region late:what is kept is rounded" \
    "kept e5m6 1x32 up stochastic:what is kept is rounded" \
    "glu e4m3 1x32 up stochastic:such as \"glu e4m3 1x128 up\"" \
    "glu ternary region mean:have blocks of one token" \
    "glue e4m3 1x32 up:nearest: glu" \
    "gradients bf16:the Hadamard transform mixes 16" \
    "activations e2m1 1x32 two:the Hadamard transform mixes 16" \
    "rotate on:goes with" "gradients e2m1 1x16 fit:goes with" \
    "weights e2m1 16x16 gauss:goes with" "trust maybe:none of off and on" \
    "straight on:weights have blocks 1x32" \
    "weights bf16, hadamard off, weights e2m1 16x16 two:row 3, \"weights e2m1 16x16 two\", sets weights again after row 1" \
    "hadamard off, hadamard off:sets hadamard again after row 1"; do
    refused "a recipe's row: ${row%%:*}" 78 "${row#*:}" $few \
        --set "numerics.recipe_rows=[${row%%:*}]"
done
{
    printf 'numerics:\n  recipe: mxfp8\n  recipe_rows:\n'
    for ((i = 0; i < 300; i++)); do echo "    - weights e4m3 1x32 up"; done
} >own.yaml
refused "a recipe file with a row 300 times" 78 "own.yaml: numerics.recipe_rows: row 2, " \
    --set train.dtype=bfloat16 --set numerics.recipe=own.yaml
few="--set train.dtype=bfloat16 --set numerics.recipe=mxfp4-quartet"
# shellcheck disable=SC2086
for row in "weights e2m1 1x32 fit:a scale none, down, up or gauss" \
    "activations e2m1 1x16 gauss:activations have blocks 1x32" \
    "activations e2m1 1x32 gauss stochastic:are rounded to nearest" \
    "gradients e2m1 1x32 gauss:gradients have blocks 1x32" \
    "kept e5m6 1x128 up:nothing else is kept" \
    "glu e4m3 1x128 up:use \"glu bf16\"" "straight off:goes with"; do
    refused "a straight recipe's row: ${row%%:*}" 78 "${row#*:}" $few \
        --set "numerics.recipe_rows=[${row%%:*}]"
done
few="--set train.dtype=bfloat16 --set numerics.recipe=mxfp8"
# shellcheck disable=SC2086
for text in "14:32=is not off or PRECISION:GRANULE:PROMOTE" \
    "on=is not off or" "14:32:128:1=is not off or" "14:32:-1=is not off or" \
    "14:32:9999999999=is not off or" "1:32:128=keeps 1 bits; 2 to 24" \
    "25:32:128=keeps 25 bits" "14:0:128=sums 0 products at once; 1 to 256" \
    "14:257:0=sums 257 products" "14:32:100=a multiple of 32 up to" \
    "14:32:100=such as 96" "14:32:2097152=after 2097152 elements"; do
    refused "an accumulator: ${text%%=*}" 78 "${text#*=}" $few \
        --set "numerics.accumulator=${text%%=*}"
done
refused "an accumulator without a recipe" 78 "but numerics.recipe is none" \
    --set numerics.accumulator=14:32:128
refused "an accumulator of integers" 78 "bitnet has operands of ternary" \
    --set train.dtype=bfloat16 --set numerics.recipe=bitnet \
    --set numerics.accumulator=14:32:128
# shellcheck disable=SC2086
refused "an accumulator of an own integer row" 78 "operands of int8" $few \
    --set "numerics.recipe_rows=[activations int8 1x32 up]" \
    --set numerics.accumulator=14:32:128
glu=(--set train.dtype=bfloat16 --set numerics.recipe=mxfp8
    --set "numerics.recipe_rows=[glu e4m3 1x32 up]")
refused "inputs of SwiGLU for some steps" 78 "numerics.recipe_steps ends the" \
    "${glu[@]}" --set numerics.recipe_steps=3
refused "inputs of SwiGLU in a family without it" 78 "blocks of gpt2 have none; use" \
    "${glu[@]}" --set model.family=gpt2 --set model.kv_heads=0
# Activations that wait, weights and rows that travel, as codes.
for option in train.saved_activations train.kept_weights fsdp.gather_format \
    moe.dispatch_format; do
    refused "$option: another word" 78 "recpe is not auto, recipe or dtype; nearest: recipe" \
        --set $option=recpe
    refused "$option without a recipe" 78 "but numerics.recipe is none; set auto" \
        --set $option=recipe
    for text in "fp8-tiles numerics.recipe_steps=3:numerics.recipe_steps ends" \
        "mxfp4-quartet:the recipe rounds them anew in each use"; do
        read -ra words <<<"${text%%:*}"
        refused "$option with ${words[*]}" 78 "${text#*:}" \
            --set train.dtype=bfloat16 --set "numerics.recipe=${words[0]}" \
            ${words[1]:+--set "${words[1]}"} --set $option=recipe
    done
done
refused "inputs as codes of nvfp4" 78 "transforms them before it rounds them" \
    --set train.dtype=bfloat16 --set numerics.recipe=nvfp4 --set numerics.high_last=0 \
    --set train.saved_activations=recipe
for text in "mxfp8 fsdp.reshard=false:gathers once for both" \
    "mxfp4 fsdp.gather=once:are there for both" \
    "mxfp8-floor train.recompute=block:makes y again among the latter" \
    "mxfp4-quartet:rounds them anew in each use; set auto or dtype, or numerics.recipe=mxfp4" \
    "fp8-delayed observe.layers=2:counts what rounding" \
    "hfp8 observe.layers=2:counts what rounding"; do
    read -ra words <<<"${text%%:*}"
    refused "weights as codes of ${words[*]}" 78 "${text#*:}" \
        --set train.dtype=bfloat16 --set "numerics.recipe=${words[0]}" \
        ${words[1]:+--set "${words[1]}"} --set fsdp.gather_format=recipe
done
refused "two sets of kept codes" 78 "only ranks that divide weights (zero=fsdp) keep both" \
    --set train.dtype=bfloat16 --set numerics.recipe=mxfp8 --set train.kept_weights=recipe
masters="--set train.dtype=bfloat16 --set optimizer.masters=split"
# shellcheck disable=SC2086
{
refused "masters: another word" 78 "splt is not float32 or split; nearest: split" \
    $masters --set optimizer.masters=splt
refused "split masters of float16" 78 "what weights of bfloat16 lack, and train.dtype is float16" \
    $masters --set train.dtype=float16
refused "split masters beside states of 8 bits" 78 "bfloat16 states go with it" \
    $masters --set optimizer.state_dtype=int8
refused "split masters of adafactor" 78 "reads the masters of whole matrices" \
    $masters --set optimizer.name=adafactor
refused "split masters of weights as codes" 78 "need weights of bfloat16; set auto or dtype" \
    $masters --set numerics.recipe=fp8-tiles --set train.kept_weights=recipe
}
codes="--set train.dtype=bfloat16 --set moe.dispatch_format=recipe"
# shellcheck disable=SC2086
{
refused "rows of experts as codes of mxfp8" 78 "blocks of tokens that only their expert knows" \
    $codes --set numerics.recipe=mxfp8
refused "rows of experts as codes of late scales" 78 "blocks of tokens that only" \
    $codes --set numerics.recipe=fp8-delayed
refused "rows of experts as codes of nvfp4" 78 "transforms them before it rounds them" \
    $codes --set numerics.recipe=nvfp4 --set numerics.high_last=0
refused "rows of experts as codes, watched" 78 "counts what rounding does to rows" \
    $codes --set numerics.recipe=bitnet --set observe.layers=2
refused "rows of experts as codes, drawn" 78 "rounds them stochastically" $codes \
    --set numerics.recipe=bitnet \
    --set "numerics.recipe_rows=[activations int8 token exact stochastic]"
}
refused "gradients in an unknown format" 78 "int9 is not real, int8 or int4; nearest: int8" \
    --set zero_format=int9
refused "gradients in few bits, exactly" 78 "set numerics.mode=fast" --set zero_format=int8
few="--set numerics.mode=fast --set zero_format=int4"
# shellcheck disable=SC2086
{
refused "gradients in few bits, whole" 78 "zero=ddp divides nothing" $few
refused "gradients in few bits of float64" 78 "for gradients in float32" $few \
    --set train.dtype=float64 --set zero=zero1
}
# A recipe as a file of the same keys.
recipe_file() { # TEXT NAME WORDS
    printf '%b\n' "$1" >recipe.yaml
    refused "a recipe file: $2" 78 "$3" --set train.dtype=bfloat16 \
        --set numerics.recipe=recipe.yaml
}
recipe_file "train: {lr: 1}" "unknown key" "recipe.yaml:1"
recipe_file "train: {batch: 9}" "another section" \
    "train.batch is no key of a recipe"
recipe_file "numerics: {high_last: 1}" "no recipe" "numerics.recipe is missing"
recipe_file "numerics: {recipe: a/b.yaml}" "a file again" "is a file again"
recipe_file "numerics: {recipe: mxfp9}" "unknown recipe" \
    "recipe.yaml: numerics.recipe: mxfp9 is not"
recipe_file "numerics:\n  recipe: mxfp8\n  recipe_rows: [weights e4m9 1x32 up]" \
    "a wrong row" "recipe.yaml: numerics.recipe_rows: "
mkfifo pipe.yaml
mkdir directory.yaml
recipe_file "numerics: {recipe: mxfp8, accumulator: '14:32'}" "an accumulator" \
    "recipe.yaml: numerics.accumulator: 14:32 is not off"
refused "a recipe file: directory.yaml" 74 "directory.yaml is a directory" \
    --set train.dtype=bfloat16 --set numerics.recipe=directory.yaml
for text in pipe.yaml /dev/zero; do
    refused "a recipe file: $text" 65 "$text: expected a regular file" \
        --set train.dtype=bfloat16 --set "numerics.recipe=$text"
done
refused "no recipe file" 66 "gone.yaml" --set train.dtype=bfloat16 \
    --set numerics.recipe=gone.yaml
refused "rows beside no recipe" 78 "recipe_rows changes a recipe" \
    --set "numerics.recipe_rows=[hadamard off]"
refused "blocks beside no recipe" 78 "numerics.recipe is none" \
    --set numerics.high_last=1
refused "heads and leaves" 78 "grid_tensor" --set numerics.grid_tensor=3
refused "context and tensor leaves beyond one sum" 78 \
    "numerics.grid_context: 32 leaves times 4 tensor leaves are 128" \
    --set numerics.grid_context=32 --set data.sequence=512
leaves="--set numerics.grid_context=7 --set numerics.grid_tensor=4
    --set model.kv_heads=4"
# shellcheck disable=SC2086
{
expect "chunks of a sequence" 78 "; 56 are" plan config.yaml $leaves \
    --set data.sequence=35
expect "tokens of the leaves" 78 "; 56 tokens would do" plan config.yaml \
    $leaves --set data.sequence=3
expect "the length that was named" 0 "parameters" plan config.yaml $leaves \
    --set data.sequence=56
}
expect "ranks beyond one sum" 78 "32 leaves times 4 tensor leaves are 128" \
    plan config.yaml --ranks 128 --set mesh.context=32 --set mesh.tensor=4 \
    --set model.kv_heads=4 --set numerics.grid_context=32 \
    --set numerics.grid_tensor=4 --set data.sequence=512
expect "fast mode has no such cap" 0 "context 128" plan config.yaml \
    --ranks 512 --set mesh.context=128 --set mesh.tensor=4 \
    --set model.kv_heads=4 --set numerics.mode=fast --set data.sequence=1024
many="--set model.heads=48 --set model.kv_heads=48 --set model.feed_forward=96"
# shellcheck disable=SC2086
{
expect "a vocabulary and leaves" 78 "with numerics.grid_tensor=24 can" \
    plan config.yaml --ranks 3 --set mesh.tensor=3 $many \
    --set numerics.grid_tensor=48
expect "a vocabulary and leaves, fast" 78 "with numerics.grid_tensor=24 can" \
    plan config.yaml --ranks 3 --set mesh.tensor=3 $many \
    --set numerics.grid_tensor=48 --set numerics.mode=fast
expect "a vocabulary and ranks, fast" 78 "at most 44 ranks" \
    plan config.yaml --ranks 48 --set mesh.tensor=48 $many \
    --set numerics.mode=fast
}
refused "longer than the context" 78 "context" --set model.context=40
refused "vocabulary below the tokenizer's" 78 "model.vocab" \
    --set model.vocab=290
refused "more memory than there is" 71 "memory" --set model.width=1000000 \
    --set model.layers=1000 --set model.head_width=6
refused "two lengths of the run" 78 "train.tokens" --set train.tokens=100

# --- options ---
refused "an option that is not known" 78 "train.batch" --set train.bach=4
refused "a word for a number" 78 "train.batch" --set train.batch=many
refused "a fraction for a whole number" 78 "train.batch" --set train.batch=1.5
refused "out of range" 78 "optimizer.beta1" --set optimizer.beta1=1.5
refused "an unknown family" 78 "gpt2" --set model.family=gpt3
refused "an unknown type" 78 "float32" --set train.dtype=float33
refused "an unknown device" 78 "expected auto, cpu, cuda or far" --set device=cup
refused "an unknown schedule" 78 "cosine" --set optimizer.schedule=cosin
refused "latents of a model without" 78 "llama has no latent attention" \
    --set train.recompute=latent
refused "an unknown kind to recompute" 78 "recompute" \
    --set train.recompute=[nrom]
expect "no such configuration" 66 "nowhere.yaml" train nowhere.yaml
printf 'version: 1\nmodel: {layers: 2\n' >broken.yaml
expect "broken YAML" 78 "broken.yaml" train broken.yaml
printf 'version: 1\nmodel: {layres: 2}\n' >typo.yaml
expect "a key that is not known, with its line" 78 "model.layers" \
    train typo.yaml
printf 'version: 2\n' >newer.yaml
expect "a newer version of the form" 78 "version" train newer.yaml
expect "no directory for the run" 78 "run.dir" train config.yaml
expect "an unknown flag" 2 "--threads" train config.yaml --thread 2

# `plan` refuses what `train` refuses, in the same words.
alike() { # WORDS SETTING...
    local words=$1 sets=() set
    shift
    for set; do sets+=(--set "$set"); done
    expect "plan: $words" 78 "$words" plan config.yaml "${sets[@]}"
    refused "train: $words" 78 "$words" "${sets[@]}"
}
alike "data.packing: foo" data.packing=foo
alike "both given" 'data.mixture=[a 1 text.jsonl]'
alike "'x' is not a weight" 'data.mixture=[a x text.jsonl]' data.train=[]
alike "data.skip, row 1" data.skip=[5-2]
alike "fim_tokens: 2 names" data.fim_rate=0.5 data.fim_tokens=[a,b]
alike "no template 'foo'" data.chat=foo
alike "train.on_nan: foo" train.on_nan=foo
alike "train.noise_scale: compares" train.noise_scale=2 numerics.grid_data=1
alike "validate.tasks, row 1" 'validate.tasks=[a b]'
alike "validate.sets, row 1" validate.sets=[a]
alike "observe.prometheus: foo" observe.prometheus=foo
alike "2 are set" train.epochs=1 train.steps=0 train.tokens=5
alike "optimizer.beta1: 1 is outside" optimizer.beta1=1
alike "optimizer.beta2: 1 is outside" optimizer.beta2=1
alike "optimizer.momentum: 1 is outside" optimizer.momentum=1
alike "optimizer.epsilon: 0 is outside" optimizer.epsilon=0
alike "beta2=1 is not a number" 'optimizer.groups=["* beta2=1"]'
lockstep plan config.yaml --set data.train=[nowhere.txt] >log 2>&1 &&
    grep -q "note: data.train: nowhere.txt is not there" log &&
    ok "plan says what is not there yet" ||
    bad "plan says what is not there yet" "exit $?" log

# `verify` names what does not fit, with the reason.
printf '%s\n' 'ranks=2 mesh.data=2' '?ranks=5 mesh.data=5' >layouts.txt
expect "verify names what it left out" 0 \
    "ranks=5 mesh.data=5: mesh.data: 5 ranks cannot share" verify config.yaml \
    --layouts layouts.txt --steps 1 --draw curves.svg
grep -q "2 of 2 curves are the first one" curves.svg &&
    ok "the picture says that curves are equal" ||
    bad "the picture says that curves are equal" "it does not"

# A row that nobody can follow leaves the others their turn.
printf '%s\n' '?ranks=2 mesh.dta=2' 'ranks=2 mesh.data=2' \
    'ranks=2 train.batch=many' 'ranks=1 train.micro_batch=1' >layouts.txt
expect "verify of rows with no option" 78 "2 of 5 layouts do not fit" \
    verify config.yaml --layouts layouts.txt --steps 1
if [ "$(grep -c EXACT out)" -ge 3 ] &&
    grep -q 'ranks=2 mesh.dta=2: .*mesh.data' out &&
    grep -q 'ranks=2 train.batch=many: .*many' out
then ok "the others were compared"
else bad "the others were compared" "not" out; fi

echo 'ranks=4294967298 mesh.data=2' >layouts.txt
expect "verify of too many ranks" 78 \
    "ranks=4294967298 mesh.data=2: a layout of verify has 1 to 64" \
    verify config.yaml --layouts layouts.txt --steps 1

for dur in 0 -3 1e308 5; do
    words="a span of"
    [ $dur != 5 ] || words="no step has a span of an instruction"
    echo '{"traceEvents": [{"name": "step", "cat": "outline", "tid": 0, "ts": 0,' \
        "\"dur\": $dur}]}" >damaged.json
    expect "a trace of a step that took $dur us" 65 "damaged.json: $words" \
        simulate config.yaml --machine cpu --replay damaged.json
done

# --- mistakes of the first hour ---
mkdir -p folder
expect "status of no run" 66 "folder: is not the directory of a run" status folder
expect "incidents of no run" 66 "folder: is not the directory of a run" \
    incidents folder
expect "a hint names the command itself" 2 \
    "hint: for example: lockstep gather runs/gathered" gather a b
expect "an example of two lines is one" 2 "runs/many --ranks" supervise
expect "a text as tokenizer" 65 "a tokenizer is a tokenizer.json, a .model" \
    tokenize short.txt text.jsonl
printf 'model:\n\tlayers: 1\n' >tab.yaml
expect "a tab in YAML" 78 "tab.yaml:2: not YAML: a tab" plan tab.yaml

# --- numbers that explode ---
refused "a gradient that overflows" 76 "is not finite" --set train.steps=100 \
    --set optimizer.warmup=0 --set optimizer.schedule=constant \
    --set optimizer.lr=100 --set optimizer.weight_decay=10 \
    --set optimizer.clip=0
grep -q "^error (numeric): step [0-9]*: the gradient of [a-z]" out ||
    bad "a gradient that overflows" "names no step and parameter" out

# little FILE OFFSET BYTES: that many bytes, least first, as a number
little() { od -An -tu"$3" -j "$2" -N"$3" "$1" | tr -d ' '; }
# A NaN in the middle of one matrix of an exported model.
must train config.yaml --run whole --set train.steps=3
must export whole exported
weights=exported/model.safetensors
length=$(little $weights 0 8)
at=$(head -c $((8 + length)) $weights | tail -c "$length" | tr '}' '\n' |
    sed -n 's/.*layers\.1\.mlp\.up_proj.*data_offsets":\[\([0-9]*\),.*/\1/p')
poison() { # DIRECTORY BYTES
    cp -r exported "$1"
    # shellcheck disable=SC2059
    printf "$2" | dd of="$1/model.safetensors" bs=1 \
        seek=$((8 + length + at + 40)) conv=notrunc 2>/dev/null
}
printf '\357\273\277[[5, 6, 7, 8]]\r\n' >marked.json
expect "ids behind a byte order mark" 0 "of 3 targets" score whole \
    --tokens marked.json
printf '\357\273\277{"context": "ba", "choices": ["be", "bo"], "answer": 0}\n' \
    >marked.jsonl
expect "a task behind a byte order mark" 0 "acc_norm" eval whole \
    --task marked.jsonl
cp short.txt short.md
expect "a page as task" 0 "bits_per_byte" eval whole --task short.md
expect "a directory as task" 78 "folder: is a directory; a task is a file" \
    eval whole --task folder
printf '\n{"context":\n' >broken_task.jsonl
expect "the line of a broken record" 65 "broken_task.jsonl: line 2, column" \
    eval whole --task broken_task.jsonl
echo '[[5, 6, 7, 8]]' >ids.json
poison poisoned '\000\000\300\177'
refused "NaN in the weights" 65 "up_proj.weight: the value at [0, 10] is NaN" \
    --set init.from=poisoned
expect "score of NaN" 65 "must be finite" score poisoned --tokens ids.json
# Sixteen of the largest float32 numbers in a row: finite, and no sum is.
poison enormous "$(printf '\\377\\377\\177\\177%.0s' {1..16})"
refused "weights too large to add" 76 "step 1: the output of layer" \
    --set init.from=enormous
grep -q "of block 1 (step" out ||
    bad "weights too large to add" "names another layer" out
expect "score of infinity" 76 "finite" score enormous --tokens ids.json

lockstep import exported imported >log 2>&1
expect "an import over a run" 78 \
    "imported: holds a run already; import into another" import exported imported
lockstep tokenizer train text.jsonl --vocab 320 --out wide.json >log 2>&1
grep -v '^model:' config.yaml >bare.yaml
expect "more tokens than the weights have rows" 78 \
    "wide.json has 320 tokens, but exported has rows for 304" train bare.yaml \
    --run none --set init.from=exported --set tokenizer.from=wide.json

# --- sizes in the headers of others ---
bend() { # NAME OFFSET BYTES
    rm -rf bent
    cp -r exported bent
    # shellcheck disable=SC2059
    printf "$3" | dd of=bent/model.safetensors bs=1 seek="$2" conv=notrunc \
        2>/dev/null
    rm -rf run
    expect "$1" 65 "model.safetensors" import bent run
    [ ! -e run/ckpt/latest ] || bad "$1" "left a checkpoint"
}
bend "a header of 2^63 bytes" 0 '\377\377\377\377\377\377\377\177'
bend "a header of 100 MB" 0 '\000\341\365\005\000\000\000\000'
bend "a header of 0 bytes" 0 '\000\000\000\000\000\000\000\000'
bend "a header that is no JSON" 8 'x'
sed -i 's/"data_offsets":\[0,/"data_offsets":[8,/' exported/model.safetensors
rm -rf run
expect "tensors that overlap" 65 "model.safetensors" import exported run
rm -rf run
must export whole again
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 2000000000/' \
    again/config.json
expect "two thousand million layers" 78 "layers" import again run
rm -rf run
expect "import of nothing" 66 "nowhere" import nowhere run
echo '[[1, 2, 99999]]' >ids.json
expect "score with an id beyond the vocabulary" 78 "99999" \
    score whole --tokens ids.json
echo '[[1, 2], [3]]' >ids.json
expect "score of rows of other lengths" 65 "ids.json" \
    score whole --tokens ids.json
expect "generate without tokens" 2 "--tokens" \
    generate whole --prompt ba --tokens 0
# No layer has experts yet, so nothing can be divided along their axis.
expect "leaves of experts without experts" 78 "but the model has no experts" \
    plan config.yaml --set numerics.grid_expert=4
expect "an expert axis without experts" 78 "mesh.expert: 2 ranks" train \
    config.yaml --run none --ranks 2 --set mesh.expert=2
expect "the expert axis of one rank" 0 "" plan config.yaml --set mesh.expert=1
mixture="plan config.yaml --ranks 4 --set model.family=mixtral
    --set moe.experts=4 --set mesh.expert=4 --set train.batch=8
    --set numerics.grid_data=4"
# shellcheck disable=SC2086
{
expect "an exchange of another name" 78 \
    "moe.exchange: twice is not auto, flat or two_level" $mixture \
    --set moe.exchange=twice
expect "two levels on one node" 78 \
    "needs nodes, and all ranks are on one; mesh.node=2" $mixture \
    --set moe.exchange=two_level
expect "two levels for experts that are on one node" 78 \
    "2 ranks that divide experts are on one node (mesh.node=2)" $mixture \
    --set moe.exchange=two_level --set mesh.expert=2 --set mesh.node=2
expect "nodes that do not divide the ranks" 78 \
    "mesh.node: nodes of 3 ranks do not divide the 4 ranks; 2 does" $mixture \
    --set mesh.node=3
}
# A mistake that every rank was given is said once, without a number.
expect "ranks agree on a refusal" 78 "error (config): data.packing: foo" train \
    config.yaml --run none --ranks 2 --set data.packing=foo
for i in 1 2 3 4 5 6; do
    expect "ranks agree on mistakes in the data, $i" 78 \
        "error (config): data.train and data.mixture are both given" train \
        config.yaml --run none --ranks 4 --set "data.mixture=[a 1 text.jsonl]"
    expect "ranks agree on no length, $i" 78 "error (config): the length" \
        train config.yaml --run none --ranks 4 --set train.tokens=5
    expect "ranks agree on no directory, $i" 78 "error (config): run.dir: say" \
        train config.yaml --ranks 4
    expect "ranks agree on a refused plan, $i" 78 \
        "error (config): data.sequence: 35 tokens are not 14" train \
        config.yaml --run none --ranks 3 --set train.batch=3 \
        --set numerics.grid_data=3 --set numerics.grid_context=7 \
        --set data.sequence=35
done
expect "ranks agree on a missing file" 66 "error (missing): gone.txt" train \
    config.yaml --run none --ranks 2 --set "data.train=[gone.txt]"
# Whatever thread read it first.
LOCKSTEP_FAULT=train.step:1:5 expect "a fault of no action" 78 \
    "expected the action fail, full" train config.yaml --run none --ranks 2
report
