#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# data.sh - sources, mixtures and masks in whole runs: the same bits after a
# restart and on two ranks; changed and cut sources are noticed.
#
#     BUILD=build tests/cases/data.sh
. "${0%/*}/common.sh"
awk -v RS= '{ gsub(/[\\"]/, "\\\\&"); gsub(/\n/, "\\n"); gsub(/\t/, " ")
              print "{\"text\": \"" $0 "\"}" }' "$tree/LICENSE" >a.jsonl
gzip -c a.jsonl >b.jsonl.gz
awk 'NR % 3 == 0' a.jsonl >c.jsonl
ends 0 "300 tokens" "$program" tokenizer train a.jsonl --vocab 300 \
    --out tokenizer.json
ends 0 "tokens in" "$program" tokenize tokenizer.json c.jsonl --out c.tokens
cat >config.yaml <<'END'
seed: 5
model: {layers: 1, width: 16, heads: 2}
tokenizer: {from: tokenizer.json}
data:
  mixture:
    - web   0.7 a.jsonl
    - code  0.2 b.jsonl.gz
    - pages 0.1 c.tokens
  phases:
    - 3 web=0.1 pages=0.5
  packing: best_fit
  sequence: 32
train: {steps: 8, batch: 8}
optimizer: {schedule: constant}
END

# --- the same samples, whoever asks ---
ends 0 "finished 8 steps" "$program" train config.yaml --run whole
ends 0 "finished 4 steps" "$program" train config.yaml --run parts \
    --set train.steps=4
ends 0 "finished 8 steps" "$program" resume parts --set train.steps=8
ends 0 "every bit" "$program" compare whole parts
ends 0 "finished 8 steps" "$program" train config.yaml --run two --ranks 2
ends 0 "every bit" "$program" compare whole two
ends 0 "pages" "$program" data show whole --step 8 --samples 8 --json
cp out first
ends 0 "pages" "$program" data show config.yaml --step 8 --samples 8 --json
if cmp -s first out; then ok; else bad "a run and its configuration differ"; fi

# --- a run that left samples out shows what its steps consumed ---
shows() { # RUN STEP
    "$program" data show "$1" --step "$2" --samples 8 --json >out 2>log ||
        bad "data show $1 --step $2" "it failed" log
}
LOCKSTEP_FAULT=train.nan:3 ends 0 "without 8 samples from 16 on" \
    "$program" train config.yaml --run skipping --set train.on_nan=skip \
    --set train.steps=5
ends 0 "finished 8 steps" "$program" resume skipping --set train.steps=8 \
    --set 'data.skip=[50 9]'
if grep -q "were read" "$work/out"; then bad "nothing was read before"; else ok; fi
ends 0 "finished 9 steps" "$program" resume skipping --set train.steps=9 \
    --set 'data.skip=[]'
ends 0 "finished 9 steps" "$program" train config.yaml --run leaving \
    --set train.steps=9 --set 'data.skip=[16 8, 50 9]'
ends 0 "every bit" "$program" compare skipping leaving
ends 0 " 0 lost, 0 repeated" "$program" data audit skipping
for step in 2 3 6 9 11; do
    shows leaving "$step"
    cp out first
    shows skipping "$step"
    if cmp -s first out; then ok; else
        bad "step $step of a run that left samples out" "other samples" out
    fi
done

# Its samples are numbered as data.skip counts them.
shows leaving 3
if [ "$(sed -n 's/.*"place": \([0-9]*\).*/\1/p' out | sort -n -u | tr '\n' ' ')" \
    = "$(echo {24..31}) " ]; then ok; else
    bad "places of step 3 of a run that left out 16 to 23" "others" out; fi

ends 0 "data.skip: 3 of its samples were read by step 9" "$program" resume \
    leaving --set train.steps=10 --set 'data.skip=[16 11, 50 9]'

# --- phases that are still to come may change ---
ends 0 "finished 10 steps" "$program" resume two --set train.steps=10 \
    --set 'data.phases=[3 web=0.1 pages=0.5, 9 code=5]'
ends 78 "phases of its past changed" "$program" resume two \
    --set train.steps=12 --set 'data.phases=[3 web=0.1 pages=0.5, 9 code=1]'
ends 0 "finished 10 steps" "$program" train config.yaml --run fresh \
    --set train.steps=10 --set 'data.phases=[3 web=0.1 pages=0.5, 9 code=5]'
ends 0 "every bit" "$program" compare two fresh

# --- tokens of nobody: nothing is known of their text ---
head -c 40000 c.tokens >raw.u16
ends 0 "validation loss [0-9.]* (" "$program" train config.yaml --run raw \
    --set data.mixture= --set data.phases= --set data.train=[raw.u16] \
    --set data.valid=[raw.u16] --set tokenizer.from= --set model.vocab=65536 \
    --set data.packing=concat --set train.steps=1

# --- ids that the model has not: noticed before the first checkpoint ---
beyond() { # COMMAND OPERANDS...
    "$program" "$@" --set data.mixture= --set data.phases= \
        --set data.train=[big.ds] --set tokenizer.from= \
        --set model.vocab=300 --set data.packing=concat
}
sentence="big.ds: token 30000000 is 30000, outside the model's"
truncate -s 80000000 big.ds
printf '\0\132\142\2\0\0\0\0' >big.ds.index
printf '\060\165' | dd of=big.ds bs=1 seek=60000000 conv=notrunc status=none
ends 78 "$sentence" beyond train config.yaml --run beyond --set train.steps=1
if [ -z "$(find beyond -name 'manifest*')" ]; then ok; else bad "sealed"; fi
ends 78 "$sentence" beyond train config.yaml --run again \
    --set train.steps=100000 # long before it could end
ends 65 "$sentence" beyond data verify config.yaml
ends 65 "$sentence" "$program" data verify big.ds --vocab 300
ends 65 "big.ds: token" "$program" data verify big.ds --tokenizer tokenizer.json
ends 0 "whole" "$program" data verify big.ds --vocab 30001
ends 78 "$sentence" beyond train config.yaml --run sealed --set train.steps=1
rm -r beyond again big.ds*
echo '{"text": [1, 2, 400]}' >ids.jsonl
ends 0 "whole" "$program" data verify ids.jsonl
ends 65 "document 1: id 2 is 400, outside" "$program" data verify ids.jsonl \
    --vocab 400

# --- what was kept of data: damage is named, and made again with the same bits
many() { # DIRECTORY
    "$program" train config.yaml --run "$1" --set data.mixture= \
        --set data.phases= --set data.train=[many.tokens] \
        --set data.cache=kept --set train.steps=2
}
seq 70000 | sed 's/.*/{"text": "number &"}/' >many.jsonl
ends 0 "tokens in" "$program" tokenize tokenizer.json many.jsonl \
    --out many.tokens
ends 0 "finished 2 steps" many first_plan
plan=$(echo kept/*.pack)
ends 0 "$plan *packed samples.*whole" "$program" data verify kept
head -c 500000 /dev/urandom |
    dd of="$plan" bs=1000 seek=1 conv=notrunc status=none
ends 65 "damaged at sample .*: a checksum" "$program" data verify "$plan"
ends 65 "$plan" "$program" data verify config.yaml --set data.cache=kept
ends 0 "$plan: packed samples, damaged at sample .*made again" many second_plan
ends 0 "every bit" "$program" compare first_plan second_plan
ends 0 "$plan.*whole" "$program" data verify kept many.tokens
printf x | dd of="$plan" bs=1 seek=80 conv=notrunc status=none
ends 65 "damaged: the header" "$program" data verify "$plan"
ends 0 "$plan: packed samples, damaged: the header" many third_plan
ends 0 "every bit" "$program" compare first_plan third_plan
rm -r first_plan second_plan third_plan kept many.*

# --- a text above 16 MiB is known by its path, size and time of change ---
large() { # COMMAND OPERANDS...
    "$program" "$@" --set data.mixture= --set data.phases= \
        --set data.train=[large.jsonl] --set data.cache=large
}
# Most of it stands in a field that nobody reads.
beside=$(head -c 25000 /dev/zero | tr '\0' x)
seq 100000 100719 |
    sed 's/.*/{"text": "number &", "other": "'"$beside"'"}/' >large.jsonl
ends 0 "finished 2 steps" large train config.yaml --run edited \
    --set train.steps=2
cp -p large.jsonl stamp
sed -i '7s/number/numero/' large.jsonl
touch -r stamp large.jsonl
ends 0 "finished 3 steps" "$program" resume edited --set train.steps=3
ends 0 "whole" "$program" data verify large.jsonl
touch large.jsonl
ends 78 "not what edited was trained on" "$program" resume edited \
    --set train.steps=4
rm -r edited large* stamp

# --- sources that change ---
ends 0 "whole" "$program" data verify config.yaml
sed -i 's/the/tha/' a.jsonl
ends 78 "not what parts was trained on" "$program" resume parts \
    --set train.steps=9
truncate -s -20 b.jsonl.gz
ends 65 "b.jsonl.gz: the packed data ends too early" "$program" resume parts \
    --set train.steps=9
ends 65 "1 of 3 files" "$program" data verify config.yaml
head -c 3000 c.tokens >cut.tokens
ends 65 "truncated" "$program" data show config.yaml --set data.mixture= \
    --set data.phases= --set data.train=[cut.tokens]

# --- what cannot be ---
ends 78 "both given" "$program" train config.yaml --run bad \
    --set data.train=[c.jsonl]
ends 78 "not a weight" "$program" train config.yaml --run bad \
    --set 'data.mixture=[web x a.jsonl]'
ends 78 "no row of data.mixture is named" "$program" train config.yaml \
    --run bad --set 'data.phases=[2 other=1]'
ends 78 "not concat or best_fit" "$program" train config.yaml --run bad \
    --set data.packing=none
ends 78 "has no token <|im_start|>" "$program" train config.yaml --run bad \
    --set data.chat=chatml
ends 78 "no tokens for fill-in-the-middle" "$program" train config.yaml \
    --run bad --set data.fim_rate=0.5

# --- masks ---
i=0
while [ $i -lt 60 ]; do
    echo "{\"prompt\": \"What is $i? \", \"completion\": \"It is $i.\"}"
    i=$((i + 1))
done >pairs.jsonl
ends 0 "finished 3 steps" "$program" train config.yaml --run pairs \
    --set data.mixture= --set data.phases= --set data.train=[pairs.jsonl] \
    --set data.chat=plain --set train.steps=3
ends 0 "tokens in" "$program" tokenize tokenizer.json pairs.jsonl \
    --out pairs.tokens --chat plain
ends 0 "finished 3 steps" "$program" train config.yaml --run again \
    --set data.mixture= --set data.phases= --set data.train=[pairs.tokens] \
    --set train.steps=3
ends 0 "every bit" "$program" compare pairs again

report
