#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# train.sh - runs as a whole: the same bits after kill -9, signals, other
# micro-batches and threads; locks; what is broken is said in one sentence.
#
#     BUILD=build tests/cases/train.sh
. "${0%/*}/common.sh"
mkdir text
awk -v RS= '{ printf "%s\n", $0 > sprintf("text/%03d.txt", NR) }' "$tree/LICENSE"
check "tokenizer train" "$program" tokenizer train text --vocab 300 \
    --out tokenizer.json
cat > config.yaml <<'END'
version: 1
seed: 3
model: {family: llama, vocab: 300, layers: 2, width: 24, heads: 4, kv_heads: 2}
tokenizer: {from: tokenizer.json}
data: {train: [text], sequence: 24}
train: {steps: 30, batch: 8}
optimizer: {lr: 3.0e-3, warmup: 4, min_lr: 3.0e-4}
validate: {every: 10}
checkpoint: {every: 5, keep_last: 2}
END

# Rows of metrics without what a clock says: the table knows.
clock=$(sed -n 's/^METRIC([A-Z]*, *[A-Z_]*, *\([a-z_]*\), .* CLOCK,.*/\1/p' \
    "$tree/src/observe/metrics.def" | paste -sd '|')
steady() {
    sed -E "s/\"($clock)\": ?[^,}]*,?//g; s/,}/}/" "$1/metrics.jsonl"
}
same_run() { # A B
    check "$1 and $2: weights" "$program" compare "$1" "$2"
    check "$1 and $2: metrics" diff <(steady "$1") <(steady "$2")
}

train() { "$program" train config.yaml "$@"; }

# --- one run, whatever happens to it ---
check "30 steps" train --run whole
check "30 steps with other micro-batches and threads" \
    train --run other --set train.micro_batch=2 --threads 3
same_run whole other
check "30 steps with recomputation" \
    train --run again --set 'train.recompute=[block]' --set train.micro_batch=4
same_run whole again

# hold RUN STEP ARGUMENT...: a run that stops itself before that step
# (docs/faults.md), in the background: $held. So nothing here is a race.
hold() {
    LOCKSTEP_FAULT=train.step:$2:stop "$program" train config.yaml \
        --run "$1" "${@:3}" >"$1.log" 2>&1 &
    held=$!
    until grep -q '^State:.T' /proc/$held/status 2>/dev/null; do
        kill -0 $held 2>/dev/null || { bad "$1 ended before step $2"; return; }
        sleep 0.02
    done
}

hold killed 14 --set checkpoint.every=2 --set train.micro_batch=1
kill -9 $held
wait $held 2>/dev/null
check "resume after kill -9" "$program" resume killed
same_run whole killed

hold asked 8 --set train.micro_batch=1
kill -TERM $held
kill -CONT $held
wait $held
code=$?
if [ $code -eq 75 ] && grep -q "resume" asked.log; then ok
else bad "SIGTERM: exit $code, expected 75"; tail -n 3 asked.log; fi
check "resume after SIGTERM" "$program" resume asked
same_run whole asked

# --- one run at a time, one run in a directory ---
hold busy 13
ends 78 "busy" "$program" resume busy
kill -9 $held
wait $held 2>/dev/null
check "the lock went with its holder" "$program" resume busy \
    --set train.steps=40
ends 78 "whole" train --run whole

# --- what is broken ---
cp -r whole flipped
newest=$(ls -d flipped/ckpt/step-* | sort | tail -n 1)
tensor=$(ls "$newest"/model*.safetensors | head -n 1)
printf '\377' | dd of="$tensor" bs=1 seek=$(($(wc -c < "$tensor") - 9)) \
    conv=notrunc 2>/dev/null
"$program" generate flipped --prompt The --tokens 2 >out 2>&1
case $? in
0|65) grep -q "step-" out && ok || { bad "a flipped bit is not mentioned"; cat out; } ;;
*) bad "a flipped bit: exit $?"; cat out ;;
esac
ends 78 "kv_heads\|heads" train --run x1 --set model.kv_heads=3
ends 78 "nearest\|layers" train --run x2 --set model.layer=3
ends 66 "nowhere" train --run x3 --set 'data.train=[nowhere]'
: > empty.txt
ends 65 "empty" train --run x4 --set 'data.train=[empty.txt]'
ends 78 "context" train --run x5 --set model.context=8
ends 78 "vocab" train --run x6 --set model.vocab=200
ends 76 "step" train --run x7 --set optimizer.lr=50 --set optimizer.clip=0 \
    --set optimizer.warmup=0 --set optimizer.schedule=constant \
    --set model.init_std=9 --set train.steps=200
# A run goes on whose choices beside model.from had no effect once.
sed 's/^model: .*/model: {from: whole}/' config.yaml >from.yaml
check "model.from" "$program" train from.yaml --run idle --set train.steps=6
cp -r idle choosy
sed -i 's/^  rope_base: .*/  rope_base: 5000/; s/^  tied: .*/  tied: true/
        s/^  query_scale: .*/  query_scale: 3/' choosy/config.yaml
for run in idle choosy; do
    check "$run goes on" "$program" resume $run --set train.steps=12
done
check "as if nothing was there" diff -r idle/ckpt choosy/ckpt
# Each text of a file is that of its prompt alone, with the next seed.
printf 'The\n\nA word\n' >prompts.txt
flags="--tokens 6 --min-p 0.02 --repetition-penalty 1.1"
# shellcheck disable=SC2086
{
"$program" generate whole --prompts prompts.txt $flags --seed 5 --json >all
"$program" generate whole --prompt The $flags --seed 5 --json >alone
"$program" generate whole --prompt "A word" $flags --seed 6 --json >>alone
}
# However many are made at once.
for i in 1 2 3 4 5 6 7; do
    printf 'The\nA word\nLicense means the terms and conditions %s\n\n' $i
done >many.txt
for n in 1 2 5 64; do
    # shellcheck disable=SC2086
    "$program" generate whole --prompts many.txt $flags --stop e --batch $n \
        >many.$n 2>/dev/null
done
"$program" generate whole --prompts many.txt $flags --stop e >many.0 \
    2>/dev/null
for n in 2 5 64 0; do check "$n at once" cmp many.1 many.$n; done
check "all of them" test "$(grep -c "^License means the" many.5)" -eq 7
for n in 0 -1 1e3 x 1025; do
    ends 2 "batch" "$program" generate whole --prompt x --batch $n
done
ends 2 "choose one" \
    "$program" generate whole --prompt x --batch 2 --speculative
ids() { sed 's/.*\("prompt": "[^"]*"\).*\("ids": [^]]*\).*/\1 \2/' "$1"; }
if [ "$(wc -l <all)" -eq 2 ] && [ "$(ids all)" = "$(ids alone)" ]; then ok
else bad "prompts of a file"; cat all alone; fi
printf '\xef\xbb\xbfThe\r\n' >prompts.txt
printf '\xef\xbb\xbf{"prompt": "The"}\n' >prompts.jsonl
for file in prompts.txt prompts.jsonl; do
    # shellcheck disable=SC2086
    "$program" generate whole --prompts $file $flags --seed 5 --json >all
    if [ "$(ids all)" = "$(ids alone | head -n 1)" ]; then ok
    else bad "$file: a byte order mark"; cat all; fi
done
prompted() { "$program" generate whole --prompts prompts.txt --tokens 2; }
printf 'The\n\nA w\xffrd\n' >prompts.txt
ends 65 "prompts.txt, line 3: this is not UTF-8 at byte 4" prompted
{ printf 'The\n\n'; head -c 400 "$tree/LICENSE" | tr '\n' ' '; } >prompts.txt
ends 78 "prompts.txt, line 3: the prompt has" prompted
full() { "$program" generate whole --prompt The --tokens 4 >/dev/full; }
ends 74 "disk full" full
touch file
ends 74 "is not a directory" train --run file/inside

# --- the model leaves and comes back ---
check "export" "$program" export whole out.hf
check "import" "$program" import out.hf back
check "the same weights" "$program" compare out.hf back
check "the same weights from the directory" "$program" compare whole out.hf
echo '[[1,2,3,4,5],[5,4,3,2,1]]' > ids.json
"$program" score whole --tokens ids.json --json > one.json 2>&1
"$program" score out.hf --tokens ids.json --json > two.json 2>&1
check "the same loss" cmp one.json two.json
"$program" score whole --tokens ids.json --dtype float64 \
    --logits logits.safetensors >/dev/null
if command -v "${PYTHON:-python3}" >/dev/null; then
    check "transformers opens it" "${PYTHON:-python3}" \
        "$tree/tests/golden/check_export.py" out.hf ids.json logits.safetensors
    grep "check_export" out
else
    echo "left out: transformers, which reads what was exported; no python3"
fi

report
