#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# links.sh - runs and models with links, pipes and devices where files should
# be: nothing outside a run is written, removed or copied, nothing waits for
# ever, and what users link for good reasons works.
. "${0%/*}/common.sh"
prepare
LIMIT=60
mkdir theirs
echo precious >theirs/file
must train config.yaml --run whole --set train.steps=10 \
    --set observe.layers=5 --set observe.tensorboard=true \
    --set 'validate.prompts=["ba be"]'
newest=$(newest whole)

untouched() { # NAME
    if [ "$(cat theirs/file)" = precious ] && [ "$(ls -A theirs)" = file ]
    then ok "$1: theirs is untouched"
    else bad "$1" "theirs was changed: $(ls -A theirs)"; fi
}

fresh() { # a copy of the run that may go on
    rm -rf run
    cp -r whole run
}

more="resume run --set train.steps=12"

# --- files of a run that are links or pipes ---
for name in lock log.txt metrics.jsonl layers.jsonl samples.jsonl consumed.jsonl; do
    fresh
    rm -f "run/$name"
    ln -s ../theirs/file "run/$name"
    # shellcheck disable=SC2086
    expect "$name is a link" 65 "$name: is a link" $more
    rm "run/$name"
    ! grep -rqs precious run || bad "$name is a link" "the run has a copy"
    mkfifo "run/$name"
    # shellcheck disable=SC2086
    expect "$name is a pipe" 65 "$name" $more
done
untouched "files that are links"
fresh
rm run/config.yaml
mkfifo run/config.yaml
# shellcheck disable=SC2086
expect "config.yaml is a pipe" 65 "config.yaml: expected a regular" $more

expect "config.yaml is a pipe, for plan" 65 "config.yaml: expected a regular" \
    plan run
fresh
for events in run/tensorboard/*; do
    ln -sf "$room/theirs/file" "$events"
done
# shellcheck disable=SC2086
expect "event files are links" 65 "is a link" $more
[ ! -e run/tensorboard/damaged.* ] 2>/dev/null ||
    bad "event files are links" "a copy of theirs is in the run"
mkfifo pipe.txt
expect "a corpus that is a pipe" 78 "pipe.txt: a pipe or device" train config.yaml --run piped \
    --set data.train=[pipe.txt]
cp -r whole run2
rm -rf run2/tokens
lockstep resume run2 --set train.steps=12 --set data.cache= >log 2>&1
for seal in run2/tokens/*.seal; do rm "$seal"; mkfifo "$seal"; done
expect "a seal that is a pipe" 0 "" resume run2 --set train.steps=14 \
    --set data.cache=

# A file that is written whole takes the place of a link.
fresh
rm run/report.html run/profile.json run/ckpt/latest
ln -s ../theirs/file run/report.html
mkfifo run/profile.json
ln -s ../../theirs/file run/ckpt/latest
# shellcheck disable=SC2086
expect "files that are replaced" 0 "" $more
untouched "files that are replaced"

# --- directories of a run that are links ---
for name in ckpt tensorboard; do
    fresh
    mv "run/$name" "elsewhere-$name"
    ln -s "../elsewhere-$name" "run/$name"
    find "elsewhere-$name" | sort >before
    # shellcheck disable=SC2086
    expect "$name is a link" 65 "$name: is a link" $more
    find "elsewhere-$name" | sort | cmp -s before - ||
        bad "$name is a link" "files there changed"
done
expect "reading through a linked ckpt" 0 "" generate run --prompt ba \
    --tokens 2

# A step that was moved to an archive and linked back is not emptied.
fresh
mv run/ckpt/step-00000005 archive
ln -s ../../archive run/ckpt/step-00000005
ls archive >before
# shellcheck disable=SC2086
expect "an archived step" 0 "" $more --set checkpoint.keep_last=1
ls archive | cmp -s before - && [ -L run/ckpt/step-00000005 ] ||
    bad "an archived step" "it was pruned"
# The same step is saved again: the link goes, the archive stays.
fresh
mv "run/ckpt/${newest##*/}" archive2
ln -s ../../archive2 "run/ckpt/${newest##*/}"
back run 5
rm -f run/ckpt/latest
printf 'step-00000005\n' >run/ckpt/latest
cp -r whole/ckpt/step-00000010 kept
ln -sfn ../../archive2 run/ckpt/step-00000010
ls archive2 >before
expect "a linked step is saved again" 0 "" resume run --set train.steps=12
ls archive2 | cmp -s before - ||
    bad "a linked step is saved again" "the archive was changed"

# --- what users link for good reasons ---
mkdir volume
ln -s volume runs
mv text.jsonl corpus.jsonl
ln -s corpus.jsonl text.jsonl
must train config.yaml --run runs/first --set train.steps=4
ln -s first runs/last
must resume runs/last --set train.steps=6
ok "a linked parent, run and corpus"

# --- models to import ---
must export whole hub/snapshots/1
mkdir -p hub/blobs
for file in hub/snapshots/1/*; do
    mv "$file" "hub/blobs/${file##*/}"
    ln -s "../../blobs/${file##*/}" "$file"
done
must import hub/snapshots/1 from-hub
cmp -s from-hub/tokenizer.json whole/tokenizer.json &&
    ok "a snapshot of links is imported" ||
    bad "a snapshot of links" "another tokenizer"
rm hub/snapshots/1/tokenizer.json
ln -s "$room/theirs/file" hub/snapshots/1/tokenizer.model
expect "tokenizer.model is a link to a secret" 65 "tokenizer.model" \
    import hub/snapshots/1 stolen
[ ! -e stolen ] || bad "a secret" "something of it is there"
for name in tokenizer.model config.json model.safetensors; do
    rm -f "hub/snapshots/1/$name"
    mkfifo "hub/snapshots/1/$name"
    expect "$name is a pipe" 65 "$name" import hub/snapshots/1 stolen
    rm "hub/snapshots/1/$name"
    [ ! -e "hub/blobs/$name" ] ||
        ln -s "../../blobs/$name" "hub/snapshots/1/$name"
done
rm -f hub/snapshots/1/tokenizer*
must import hub/snapshots/1 bare
ln -s "$room/theirs/file" bare/tokenizer.model
expect "an export of a secret" 65 "tokenizer.model" export bare stolen
[ ! -e stolen ] || bad "an export of a secret" "something of it is there"

# --- permissions ---
umask 022
must train config.yaml --run private --set train.steps=5 --set data.cache= \
    --set observe.layers=5 --set observe.tensorboard=true
open=$(find private -perm /077 | head -n 3)
[ -z "$open" ] && [ -d private/tokens ] && ok "a run is its owner's" ||
    bad "a run is its owner's" "others may read $open"
mkdir -m 750 group
must train config.yaml --run group --set train.steps=5 --set data.cache=
closed=$(find group ! -perm -040 | head -n 3)
open=$(find group -perm /027 | head -n 3)
[ -z "$closed$open" ] && ok "a directory of mode 750 is kept" ||
    bad "a directory of mode 750" "not for the group: $closed; open: $open"
umask 077
must export private closed
[ -z "$(find closed -perm /077)" ] && ok "an export follows the umask" ||
    bad "an export follows the umask" "$(ls -l closed)"
report
