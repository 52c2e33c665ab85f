#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# damage.sh - checkpoints that are damaged, missing or of something else.
. "${0%/*}/common.sh"
prepare
must train config.yaml --run whole
LOCKSTEP_FAULT=train.step:18:kill lockstep train config.yaml --run base \
    >log 2>&1
[ "$(ls base/ckpt)" = "$(printf 'latest\nstep-00000010\nstep-00000015')" ] || {
    bad "the run to damage" "other checkpoints: $(ls base/ckpt)" log
    report
}

flip() { # FILE OFFSET: one bit of one byte
    local byte
    byte=$(od -An -tu1 -j "$2" -N1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059
    printf "\\$(printf '%03o' $((byte ^ 16)))" |
        dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
size() { stat -c %s "$1"; }
cut() { truncate -s $(($(size "$1") - $2)) "$1"; }

# Does ACTION to the newest checkpoint of a copy, resumes, and wants to read
# of the older one and to end in the bytes of the uninterrupted run.
falls_back() { # NAME ACTION...
    local name=$1
    shift
    rm -rf run
    cp -r base run
    (cd run/ckpt/step-00000015 && "$@") >log 2>&1
    lockstep resume run >log 2>&1
    check_said "$name: said" 0 \
        "the checkpoint of step 15 is damaged and was passed over" $? log
    grep -q "^resumed   after step 10" log ||
        bad "$name" "did not go on from step 10" log
    if same_run whole run; then ok "$name: same bytes"
    else bad "$name: same bytes" "$why" log; fi
}

model=model-00001-of-00001.safetensors
optim=optim-00001-of-00001.safetensors
falls_back "a bit of a weight" flip $model 20000
falls_back "the last bit of a moment" flip $optim \
    $(($(size base/ckpt/step-00000015/$optim) - 1))
falls_back "a bit of a header" flip $model 40
falls_back "a bit of a header's length" flip $optim 6
falls_back "a bit of the manifest" flip manifest.json 80
falls_back "a bit of a checksum in the manifest" flip manifest.json \
    $(($(size base/ckpt/step-00000015/manifest.json) - 12))
falls_back "a bit of the state" flip state.json 14
falls_back "a bit of config.json" flip config.json 30
falls_back "weights cut short" cut $model 1
falls_back "moments cut to nothing" truncate -s 0 $optim
falls_back "weights with more at the end" truncate -s +64 $model
falls_back "manifest cut short" cut manifest.json 30
falls_back "no weights" rm $model
falls_back "no moments" rm $optim
falls_back "no manifest" rm manifest.json
falls_back "no state" rm state.json
falls_back "an empty directory" sh -c 'rm *'
falls_back "weights and moments swapped" sh -c \
    "mv $model a; mv $optim $model; mv a $optim"
falls_back "moments of another step" cp ../step-00000010/$optim .
must train config.yaml --run seed --set seed=4 --set train.steps=15
falls_back "weights of another run" cp \
    "$room/seed/ckpt/step-00000015/$model" .

# Nothing but the pointer is wrong: nothing is lost.
for pointer in "step-00000099" "nonsense" ""; do
    rm -rf run
    cp -r base run
    printf '%s\n' "$pointer" >run/ckpt/latest
    lockstep resume run >log 2>&1
    if same_run whole run; then ok "latest says \"$pointer\""
    else bad "latest says \"$pointer\"" "$why" log; fi
done

# Commands that only read a model fall back too, and say so.
rm -rf run
cp -r base run
flip run/ckpt/step-00000015/$model 20000
echo '[[1, 2, 3, 4]]' >ids.json
expect "score falls back" 0 \
    "the checkpoint of step 15 is damaged and was passed over" \
    score run --tokens ids.json
expect "generate falls back" 0 "was passed over" \
    generate run --prompt ba --tokens 2
expect "a named checkpoint does not" 65 "$model" \
    score run/ckpt/step-00000015 --tokens ids.json

# All damaged.
flip run/ckpt/step-00000010/$optim 30000
expect "all damaged" 65 "none of its 2 checkpoints is whole" resume run
expect "all damaged, score" 65 "none of its 2 checkpoints is whole" \
    score run --tokens ids.json

# Checkpoints of another model, tokenizer, numerics; and what resume may not change.
must train config.yaml --run wide --set model.width=32 --set train.steps=5
rm -rf run
cp -r base run
rm -r run/ckpt
cp -r wide/ckpt run/ckpt
expect "checkpoint of another model" 78 "is of another model" resume run
must train config.yaml --run six --set train.batch=6 --set train.micro_batch=2 \
    --set numerics.grid_data=3 --set train.steps=5
rm -r run/ckpt
cp -r six/ckpt run/ckpt
expect "checkpoint of a run with another batch" 78 \
    "the grid of its checkpoint is not one of this run: numerics.grid_data" \
    resume run
rm -rf run
cp -r base run
sed -i 's/"numerics": [0-9]*,/"numerics": 999,/' run/ckpt/*/manifest.json
expect "another numerics version" 65 "none of its 2 checkpoints" resume run
sed 's/ ko/ qo/' text.jsonl >other.jsonl
lockstep tokenizer train other.jsonl --vocab 300 --out other.json >log 2>&1
cp -r base renamed
cp other.json renamed/tokenizer.json
expect "another tokenizer" 78 "was trained with another tokenizer" \
    resume renamed
expect "resume with another width" 78 "model.width cannot change" \
    resume base --set model.width=32
expect "resume with another batch" 78 "train.batch cannot change" \
    resume base --set train.batch=16
cp -r base fed
cp text.jsonl kept.jsonl
sed -i 's/ ko/ la/' text.jsonl
expect "resume with other data" 78 "is not what fed was trained on so far" \
    resume fed
cp kept.jsonl text.jsonl # the same text at another time is no other data
if lockstep resume fed >log 2>&1 && same_run whole fed; then
    ok "resume with the data brought back"
else
    bad "resume with the data brought back" "${why:-it failed}" log
fi
expect "resume of nothing" 66 "there is no such directory" resume nowhere
mkdir empty
expect "resume of an empty directory" 66 "is not the directory of a run" \
    resume empty
expect "train into a run" 78 "holds a run already" \
    train config.yaml --run base
expect "init.from of another width" 78 "width" \
    train config.yaml --run started --set init.from=wide

# Guards mapped files: one that is cut under its reader was a bus error without
# a word. It is a failure of the run, on threads and on processes, that keeps
# nothing made of what was gone.
must train config.yaml --run fresh --set data.cache=fresh_cache
tokens=$(ls fresh_cache/*.tokens)
cp -p "$tokens" kept.tokens
cut_while_read() { # NAME ARGUMENT...
    local name=$1 code
    shift
    rm -rf run
    if ! hold run train.step:7 train config.yaml \
        --set data.cache="$PWD/fresh_cache" "$@"; then
        bad "$name" "did not begin" log
        return
    fi
    truncate -s 100 "$tokens"
    kill -CONT "$child"
    wait "$child"
    code=$?
    check_said "$name" 65 "was cut while it was read: it had" $code log
    cp -p kept.tokens "$tokens"
    if ! lockstep resume run "$@" >log 2>&1; then
        bad "$name: resume" "failed" log
    elif same_run whole run; then ok "$name: resume: same bytes"
    else bad "$name: resume: same bytes" "$why" log; fi
}
# Guards tokens whose bits flip under a seal that holds: size and time are what
# they were. A cache is made again; the run ends in the same bytes.
LOCKSTEP_FAULT=train.step:18:kill lockstep train config.yaml --run half \
    --set data.cache="$PWD/fresh_cache" >log 2>&1
flip "$tokens" 400
touch -r kept.tokens "$tokens"
if ! lockstep resume half >log 2>&1; then
    bad "a flipped token under a seal" "resume failed" log
elif ! same_run whole half; then bad "a flipped token under a seal" "$why" log
elif ! cmp -s "$tokens" kept.tokens; then
    bad "a flipped token under a seal" "the cache was not made again"
elif ! grep -q "damaged, and made again from the text: .*\.tokens" log; then
    bad "a flipped token under a seal" "the repair was not said" log
else ok "a flipped token under a seal"; fi

cut_while_read "tokens cut while they are read"
cut_while_read "tokens cut, ranks as threads" --ranks 2 --set mesh.data=2

find_mpi
for mpi in $mpis; do
    rm -rf run
    with_mpi $mpi 2 "$program" train config.yaml \
        --run run --set data.cache="$PWD/fresh_cache" --set mesh.data=2 \
        --set train.steps=3000 >log 2>&1 &
    child=$!
    children="$children $child"
    tries=0
    until grep -q '"step": 3,' run/metrics.jsonl 2>/dev/null; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 6000 ] || break
    done
    truncate -s 100 "$tokens"
    wait "$child"
    code=$?
    cp -p kept.tokens "$tokens"
    if [ $code -ne 0 ] && [ $code -ne 124 ] && [ $code -ne 137 ] &&
        grep -q "was cut while it was read: it had" log &&
        grep -q "^exit 65 (format)" log; then ok "tokens cut, $mpi"
    else bad "tokens cut, $mpi" "exit $code" log; fi
done
report
