#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# around.sh - the ends of runs: resumed when finished, made longer, counted in
# epochs; imports and exports that are interrupted.
. "${0%/*}/common.sh"
prepare
must train config.yaml --run whole

# --- a finished run ---
cp -r whole finished
if lockstep resume finished >log 2>&1 && same_run whole finished; then
    ok "resume of a finished run changes nothing"
else
    bad "resume of a finished run" "${why:-it failed}" log
fi
# (A run validates at its end, so this one must anyway at that step.)
must train config.yaml --run shorter --set train.steps=20 \
    --set optimizer.schedule=constant --set validate.every=10
must train config.yaml --run longer --set optimizer.schedule=constant \
    --set validate.every=10
must resume shorter --set train.steps=30
if same_run shorter longer; then ok "made longer: as if planned so"
else bad "made longer" "$why"; fi
cp -r whole back
expect "made shorter than it is" 78 "train.steps" resume back \
    --set train.steps=10

# --- other lengths ---
for length in "train.epochs=0.5" "train.tokens=10000"; do
    name=${length%=*}
    must train config.yaml --run "$name" --set train.steps=0 --set "$length"
    LOCKSTEP_FAULT=train.step:14:kill lockstep train config.yaml \
        --run "$name-killed" --set train.steps=0 --set "$length" >log 2>&1
    must resume "$name-killed"
    if same_run "$name" "$name-killed"; then ok "$length, killed and resumed"
    else bad "$length, killed and resumed" "$why" log; fi
done

# Over the end of an epoch, with the last sample dropped.
make_text few.jsonl 12
must train config.yaml --run epochs --set data.train=[few.jsonl]
LOCKSTEP_FAULT=train.step:23:kill lockstep train config.yaml --run epochs-cut \
    --set data.train=[few.jsonl] >log 2>&1
must resume epochs-cut
if same_run epochs epochs-cut; then ok "over several epochs"
else bad "over several epochs" "$why" log; fi
grep -q '"epoch": [1-9]' epochs/metrics.jsonl ||
    bad "over several epochs" "there was one only"

# --- imports and exports ---
must export whole exported
LOCKSTEP_FAULT=checkpoint.rename:1:kill lockstep import exported run >log 2>&1
if lockstep import exported run >log 2>&1; then ok "import again after a kill"
else bad "import again after a kill" "exit $?" log; fi
expect "compare of imported and exported" 0 "" compare run exported
rm -rf run
LOCKSTEP_FAULT=checkpoint.tensor:5:full lockstep import exported run >log 2>&1
check_said "import on a full disk" 74 "full" $? log
[ ! -e run/ckpt/latest ] || bad "import on a full disk" "left a checkpoint"
if lockstep import exported run >log 2>&1; then ok "import with room again"
else bad "import with room again" "exit $?" log; fi
for fault in checkpoint.tensor:3:kill file.write:2:kill; do
    rm -rf out.d
    LOCKSTEP_FAULT=$fault lockstep export whole out.d >log 2>&1
    code=$?
    if [ -e out.d ]; then
        bad "export, $fault" "exit $code left $(ls out.d | tr '\n' ' ')" log
    elif lockstep export whole out.d >log 2>&1 &&
        cmp -s out.d/model.safetensors exported/model.safetensors; then
        ok "export again after $fault"
    else
        bad "export again after $fault" "it failed" log
    fi
done
expect "export over something" 78 "exported" export whole exported

# A signal takes with it what would have been renamed, and temporary places.
left() { ls -A . temporary; }
interrupted() { # NAME FAULT ARGUMENT...
    local code
    mkdir -p temporary
    touch log before there after
    left >before
    if ! TMPDIR=$PWD/temporary freeze "$2" "${@:3}"; then
        bad "$1: interrupted" "it never came to $2" log
        return
    fi
    left >there
    kill -TERM $child
    kill -CONT $child
    ended $child 2>/dev/null
    code=$?
    left >after
    if [ $code -ne 143 ]; then bad "$1: interrupted" "exit $code" log
    elif cmp -s before there; then bad "$1: interrupted" "nothing was there"
    elif ! cmp -s before after; then
        bad "$1: interrupted" "left $(comm -13 before after | tr '\n' ' ')"
    else ok "$1: interrupted, and nothing is left"; fi
}
echo '[[1, 2, 3, 4]]' >ids.json
interrupted export checkpoint.tensor:3 export whole out.e
interrupted score checkpoint.tensor:1 score whole --tokens ids.json --logits l
interrupted gradients checkpoint.tensor:2 score whole --tokens ids.json \
    --gradients l
interrupted tokenize tokens.write:1 tokenize tokenizer.json text.jsonl \
    --out one.tokens
interrupted "tokenizer train" file.rename:1 tokenizer train text.jsonl \
    --vocab 300 --out other.json
interrupted "a picture" file.rename:1 plan config.yaml --explain memory \
    --draw memory.svg
interrupted "data show" tokens.write:1 data show config.yaml --set data.cache=
interrupted verify tokens.write:1 verify config.yaml --steps 1 --set data.cache=
interrupted mup tokens.write:1 mup config.yaml --widths 24,48 --steps 1 \
    --set data.cache=
# The user's own file of nearly that name.
echo mine >l.tmp
must score whole --tokens ids.json --logits l
[ "$(cat l.tmp)" = mine ] && ok "score leaves another file alone" ||
    bad "score leaves another file alone" "$(ls l*)"
expect "logits and gradients in one file" 2 "name the same file, new; expected" \
    score whole --tokens ids.json --logits new --gradients new
cp text.jsonl kept.jsonl
expect "a tokenizer in the place of its text" 2 "the command reads that file" \
    tokenizer train text.jsonl --vocab 300 --out text.jsonl
cmp -s text.jsonl kept.jsonl || bad "the text is there" "it is not"

# --- weights of another run ---
must train config.yaml --run from --set init.from=whole --set train.steps=3
must train config.yaml --run from-exported --set init.from=exported \
    --set train.steps=3
if same_run from from-exported; then ok "init.from a run and its export"
else bad "init.from a run and its export" "$why" log; fi
rm -r exported
LOCKSTEP_FAULT=train.step:14:kill lockstep train config.yaml --run gone \
    --set init.from=whole >log 2>&1
mv whole elsewhere
if lockstep resume gone >log 2>&1; then ok "resumed without what it began from"
else bad "resumed without what it began from" "exit $?" log; fi

# --- a model that comes with its weights ---
mv elsewhere whole
grep -v '^model:' config.yaml >bare.yaml
must train bare.yaml --run brought --set init.from=whole --set train.steps=10
must train config.yaml --run named --set init.from=whole --set train.steps=10
if same_run named brought; then ok "init.from brings the architecture"
else bad "init.from brings the architecture" "$why"; fi
LOCKSTEP_FAULT=train.step:8:kill lockstep train bare.yaml --run moved \
    --set init.from=whole --set train.steps=10 >log 2>&1
mv whole elsewhere
if lockstep resume moved >log 2>&1 && same_run named moved; then
    ok "... which a run keeps"
else bad "... which a run keeps" "$why" log; fi
mv elsewhere whole
expect "another architecture" 78 "has model.layers 2, the model here 3" train \
    bare.yaml --run none --set init.from=whole --set model.layers=3 \
    --set model.vocab=304 --set model.width=24 --set model.heads=4
must export whole outside
must import outside imported
expect "an imported run names the way" 78 \
    "lockstep train imported/config.yaml --set init.from=imported" resume imported
must train imported/config.yaml --run begun --set init.from=imported \
    --set data.train=[text.jsonl] --set train.steps=2 --set data.sequence=48
ok "which works"

# --- commands beside a run that goes on and removes the checkpoint they read ---
must train config.yaml --run pruned --set checkpoint.keep_last=1 --set train.steps=5 \
    --set optimizer.schedule=constant
steps=5
# beside POINT ARGUMENT...: stopped there until the run has a newer checkpoint alone.
beside() {
    local code reader
    LOCKSTEP_FAULT=$1:stop "$program" "${@:2}" >beside.out 2>&1 &
    reader=$!
    children="$children $reader"
    if ! stopped $reader; then
        bad "$2 beside a run, $1" "it ended before" beside.out
        return
    fi
    steps=$((steps + 5))
    must resume pruned --set train.steps=$steps
    kill -CONT $reader
    wait $reader
    code=$?
    if [ $code -eq 0 ] && ! grep -q damaged beside.out; then ok "$2 beside a run, $1"
    else bad "$2 beside a run, $1" "exit $code" beside.out; fi
}
for n in 1 2 4; do
    beside "checkpoint.read:$n" generate pruned --prompt The --tokens 2
done
beside checkpoint.read:1 eval pruned --task text.jsonl --kind perplexity
for n in 1 3; do beside "checkpoint.read:$n" compare pruned pruned; done
beside checkpoint.read:1 score pruned --tokens ids.json
beside file.write:1 export pruned "pruned.hf"
if cmp -s pruned.hf/tokenizer.json pruned/tokenizer.json; then ok "with the tokenizer"
else bad "with the tokenizer" "not there"; fi
report
