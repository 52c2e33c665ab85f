#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# storage.sh - checkpoints in object storage: what cannot be is refused at the
# start; a real server on the loopback address gets the steps of a run, which is
# then gone, and comes back with the bytes of one that went on.
#
#     BUILD=build STORAGE_PYTHON=venv/bin/python tests/drills/storage.sh
#
# STORAGE_PYTHON: one that has moto (storage_server.py). Without it only what
# needs no server is judged, and the drill says so.
. "${0%/*}/common.sh"
no_storage
LIMIT=120
prepare
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
mirrored="--set checkpoint.async=true --set checkpoint.mirror=s3:/"

# refused NAME CODE WORDS MIRROR ARGUMENT...: before anything is made
refused() {
    local name=$1 code=$2 words=$3 mirror=$4
    shift 4
    expect "$name" "$code" "$words" train config.yaml --run none \
        --set checkpoint.async=true --set "checkpoint.mirror=$mirror" "$@"
    [ ! -e none ] || bad "$name" "there is a run"
    rm -rf none
}

# --- without a server ---
refused "no address" 78 'checkpoint.mirror: "models/first" is no place' \
    models/first
refused "no bucket" 78 'the bucket "A_b" is not' s3://A_b/c
refused "another prefix" 78 'the prefix has "%"' s3://models/a%20b
refused "a prefix that goes up" 78 'have ".."' s3://models/../b
refused "training would wait" 78 "set checkpoint.async=true" s3://models/a \
    --set checkpoint.async=false
refused "no credentials" 78 "set AWS_ACCESS_KEY_ID" s3://models/a
export AWS_ACCESS_KEY_ID=nobody AWS_SECRET_ACCESS_KEY=knows
AWS_ENDPOINT_URL=file:///etc refused "no endpoint" 78 "is no address" \
    s3://models/a
AWS_REGION='a b' refused "no region" 78 "is no region" s3://models/a
AWS_ENDPOINT_URL=http://user:hidden@127.0.0.1:1 refused "a password in the \
address" 78 "holds a user or password" s3://models/a
if grep -q hidden out; then bad "the password" "is printed" out
else ok "the password is not printed"; fi
AWS_ENDPOINT_URL=http://127.0.0.1:1 refused "nobody listens" 74 "127.0.0.1" \
    s3://models/a
expect "fetch: no address" 78 "expected s3://BUCKET/PREFIX" fetch models none
mkdir there
expect "fetch: a directory that is there" 78 "is there already" fetch \
    s3://models/a there

if [ -z "${STORAGE_PYTHON:-}" ]; then
    echo "not judged: sending and fetching; STORAGE_PYTHON names no Python" \
        "with moto"
    report
fi

# --- with one ---
serve_storage

AWS_SECRET_ACCESS_KEY=wrong refused "another secret" 78 SignatureDoesNotMatch \
    s3://models/a
refused "a bucket of others" 78 AccessDenied s3://denied/a
refused "no such bucket" 66 NoSuchBucket s3://nowhere/a
expect "fetch: nothing is there" 66 "holds no checkpoint" fetch s3://models/a \
    none
rm -rf none

# gone NAME RUN ARGUMENT...: 14 steps, of which the storage alone remembers; it
# goes on to the bytes of the run `whole`
must train config.yaml --run whole
gone() {
    local name=$1 run=$2
    shift 2
    # shellcheck disable=SC2086
    lockstep train config.yaml --run "$run" $mirrored/models/of/$run \
        --set train.steps=14 "$@" >log 2>&1 || bad "$name" "exit $?" log
    rm -rf "$run"
    lockstep fetch s3://models/of/$run "$run" >out 2>&1 ||
        bad "$name" "fetch: exit $?" out
    grep -q "has the checkpoint of step 14" out || bad "$name" "which" out
    lockstep resume "$run" --ranks 1 --set train.steps=30 \
        --set checkpoint.async=false --set checkpoint.mirror= >log 2>&1 ||
        bad "$name" "resume: exit $?" log
    if same_run whole "$run" && lockstep data audit "$run" >out 2>&1
    then ok "$name"; else bad "$name" "$why" out; fi
}
gone "sent, gone, fetched, resumed" one
gone "from ranks under a supervisor" ranks --ranks 2 --threads 1 --supervised
LOCKSTEP_FAULT=mirror.request:2,mirror.request:5,mirror.request:6 \
    gone "requests that fail for a moment" moment

refused "another run is there" 78 "holds checkpoints of a run" \
    s3://models/of/one

# --- old steps go, on the storage, too ---
tell steps of/one
if [[ $answer =~ ^(step-000000(0[5-9]|1[0-3]) )?step-00000014$ ]]; then ok "steps that are there"
else bad "steps that are there" "$answer"; fi
# shellcheck disable=SC2086
must train config.yaml --run kept $mirrored/models/of/kept \
    --set checkpoint.every=1 --set checkpoint.keep_last=1
tell steps of/kept
if [ "$answer" = step-00000030 ]; then ok "old steps are removed"
else bad "old steps are removed" "$answer" log; fi

# --- the best stays there, and comes back ---
# shellcheck disable=SC2086
must train config.yaml --run best $mirrored/models/of/best \
    --set checkpoint.every=5 --set checkpoint.keep_last=1 \
    --set validate.every=3 --set checkpoint.keep_best=true \
    --set optimizer.lr=0.1
tell steps of/best
if [ "$answer" = "$(cd best/ckpt && echo step-*)" ] &&
    [[ $answer = *" "* ]]; then ok "the best is kept"
else bad "the best is kept" "$answer, and here $(ls best/ckpt)" log; fi
expect "fetch --best" 0 "fetched/best is the checkpoint of step" fetch \
    s3://models/of/best fetched --best
if diff -r best/ckpt fetched/ckpt >differ
then ok "the best comes back"; else bad "the best comes back" "differs" differ; fi
# One that only the storage has stays there.
rm -rf fetched
must fetch s3://models/of/best fetched
# shellcheck disable=SC2086
must resume fetched --set train.steps=35 $mirrored/models/of/best
tell steps of/best
if [ "${answer%% *}" = "$(ls best/ckpt | sed -n 2p)" ]
then ok "the best that is not here stays there"
else bad "the best that is not here stays there" "$answer" log; fi

# --- files of several parts ---
# shellcheck disable=SC2086
must train config.yaml --run large $mirrored/models/of/large \
    --set train.steps=2 --set model.feed_forward=20000 \
    --set validate.every=0 --set train.batch=1 --set train.micro_batch=1
tell parts of/large/step-00000002/model-00001-of-00001.safetensors
if [ "$answer" = 2 ]; then ok "sent in parts"
else bad "sent in parts" "parts: $answer"; fi
must fetch s3://models/of/large back
if lockstep compare large/ckpt/step-00000002 back/ckpt/step-00000002 >out 2>&1
then ok "parts come back"; else bad "parts come back" "compare" out; fi

# --- a sending that is killed goes on where it stopped ---
wide="--set train.steps=2 --set model.feed_forward=20000 --set
    validate.every=0 --set train.batch=1 --set train.micro_batch=1"
place=of/half/step-00000002
# shellcheck disable=SC2086
LOCKSTEP_FAULT=mirror.part:5:kill lockstep train config.yaml --run half \
    $mirrored/models/of/half $wide >log 2>&1
tell open of/half
if [ "$answer" = 1 ]; then ok "killed in the middle of a file"
else bad "killed in the middle of a file" "open uploads: $answer" log; fi
sent= # how often parts of files of the step, and all of them, were sent
count_sent() {
    local file
    sent=
    for file in model-00001-of-00001.safetensors \
        optim-00001-of-00001.safetensors config.json; do
        tell sent $place/$file
        sent="$sent${sent:+, }$answer"
    done
}
count_sent
before=$sent
must resume half --ranks 1
count_sent
if [ "$before; $sent" = "2 0, 2 0, 0 1; 0 0, 1 0, 0 0" ]
then ok "what is there is not sent again"
else bad "what is there is not sent again" "$before; then $sent" log; fi
tell open of/half
must fetch s3://models/of/half mended
if [ "$answer" = 0 ] &&
    lockstep compare half/ckpt/step-00000002 mended/ckpt/step-00000002 >out 2>&1
then ok "the rest makes it whole"
else bad "the rest makes it whole" "open uploads: $answer" out; fi

# --- answers that are wrong or lost at the end of an upload ---
for how in late lost; do
    tell fail $how
    # shellcheck disable=SC2086
    lockstep train config.yaml --run answer.$how \
        $mirrored/models/of/answer.$how $wide >log 2>&1
    check_said "the last answer: $how" 0 "the next attempt is in" $? log
    must fetch s3://models/of/answer.$how back.$how
    if lockstep compare answer.$how/ckpt/step-00000002 \
        back.$how/ckpt/step-00000002 >out 2>&1
    then ok "the last answer: $how, and whole"
    else bad "the last answer: $how, and whole" "compare" out; fi
done

# --- objects that arrive cut, a list that somebody else answers ---
for how in short page; do
    tell fail $how
    # shellcheck disable=SC2086
    lockstep train config.yaml --run wrong.$how \
        $mirrored/models/of/wrong.$how --set train.steps=14 >log 2>&1
    words="it is sent again"
    [ $how = short ] || words="without </ListBucketResult> at its end"
    check_said "wrong on the way: $how" 0 "$words" $? log
    must fetch s3://models/of/wrong.$how back.wrong.$how
    if lockstep compare wrong.$how/ckpt/step-00000014 \
        back.wrong.$how/ckpt/step-00000014 >out 2>&1
    then ok "wrong on the way: $how, and whole"
    else bad "wrong on the way: $how, and whole" "compare" out; fi
done

# --- a second run in the same place: the one that began before stops sending ---
# shellcheck disable=SC2086
start_until former 20 train config.yaml --run former $mirrored/models/of/two \
    --set train.steps=1000000
tries=0
until lockstep fetch s3://models/of/two latter >out 2>&1; do
    sleep 0.1
    tries=$((tries + 1))
    [ $tries -lt 300 ] || break
done
lockstep resume latter --ranks 1 --set checkpoint.mirror=s3://models/of/two \
    --set checkpoint.keep_last=9 \
    --set train.steps=$(($(sed 's/step-0*//' latter/ckpt/latest) + 20)) \
    >log.latter 2>&1
check_said "two runs in one place: the latter sends" 0 finished $? log.latter
if until_line log "sends its checkpoints to s3://models/of/two since" 600
then ok "two runs in one place: the former says so"
else bad "two runs in one place: the former says so" "not said" log; fi
kill -TERM "$child"
ended "$child"
code=$?
must fetch s3://models/of/two back.two
if [ $code -eq 75 ] && lockstep compare "$(newest latter)" "$(newest back.two)" \
    >out 2>&1
then ok "two runs in one place: that of the latter is there"
else bad "two runs in one place: that of the latter is there" "exit $code" out
fi

# --- two programs begin in one place at once: one of them is refused ---
# begin_both ARGUMENT...: each has looked at the place before the other takes it;
# their exit codes, sorted, are then in $codes.
begin_both() {
    local which first second
    for which in first second; do
        LOCKSTEP_FAULT=mirror.claim:1:stop "$program" "${@//WHICH/$which}" \
            >"log.$which" 2>&1 &
        stopped $! || bad "${*:1:2}: $which" "did not get there" "log.$which"
        children="$children $!"
        declare "$which=$!"
    done
    kill -CONT "$first" "$second"
    ended "$first"
    codes=$?
    ended "$second"
    codes=$(printf '%s\n' $codes $? | sort -n | paste -sd ' ')
}

# shellcheck disable=SC2086
both="config.yaml --run WHICH.new $mirrored/models/of/both --set train.steps=4"
# shellcheck disable=SC2086
begin_both train $both
if [ "$codes" = "0 78" ] && ! { [ -e first.new ] && [ -e second.new ]; } &&
    cat log.first log.second | grep -q "sends its checkpoints to .* since"
then ok "two new runs in one place: one is refused, and nothing is made"
else bad "two new runs in one place: one is refused" "$codes" log.first; fi
for which in first second; do
    [ ! -e $which.new ] || mv $which.new it
done
for which in first second; do cp -r it $which.on; done
begin_both resume WHICH.on --ranks 1 --set train.steps=9 \
    --set checkpoint.mirror=s3://models/of/both
must fetch s3://models/of/both back.both
if [ "$codes" = "0 78" ] &&
    lockstep compare "$(newest first.on)" "$(newest back.both)" >out 2>&1
then ok "two resumed runs in one place: one sends"
else bad "two resumed runs in one place: one sends" "$codes" log.first; fi
# A start that is refused, as the run is there, takes the place from nobody.
# shellcheck disable=SC2086
held="config.yaml --run held $mirrored/models/of/held --set train.steps=4"
# shellcheck disable=SC2086
LOCKSTEP_FAULT=train.step:2:stop "$program" train $held >log.held 2>&1 &
first=$!
children="$children $first"
stopped $first || bad "a start beside a run" "it did not get there" log.held
# shellcheck disable=SC2086
lockstep train $held >log 2>&1
second=$?
kill -CONT $first
ended $first
codes="$? $second"
if [ "$codes" = "0 78" ] &&
    lockstep fetch s3://models/of/held back.held >out 2>&1 &&
    lockstep compare "$(newest held)" "$(newest back.held)" >out 2>&1
then ok "a start that is refused takes the place from nobody"
else bad "a start that is refused takes the place from nobody" "$codes" log.held
fi
# Where the storage does not know conditions: by what is read back, or when the
# next step is sent.
for how in ignored refused; do
    tell conditions $how
    rm -rf first.new second.new
    # shellcheck disable=SC2086
    begin_both train ${both//of\/both/of/$how}
    if [ "$codes" = "0 78" ] || [ "$codes" = "78 78" ]
    then ok "two new runs in one place, conditions are $how: not both send"
    else bad "two new runs in one place, conditions are $how" "$codes" log.first
    fi
done
tell conditions met

# --- a step that other training reached ---
# A run that goes back makes step 14 again; what a reader may read stays.
must fetch s3://models/of/one again
lockstep resume again --ranks 1 --set train.steps=16 --set checkpoint.every=1 \
    --set checkpoint.keep_last=3 >log 2>&1 ||
    bad "goes on in the same place" "exit $?" log
rm -rf again/ckpt/step-0000001[56]
echo step-00000014 >again/ckpt/latest
lockstep resume again --ranks 1 --set train.steps=16 --set checkpoint.every=1 \
    --set checkpoint.keep_last=3 --set optimizer.lr=1e-3 >log 2>&1 ||
    bad "other training" "exit $?" log
tell text of/one/latest
if [ "$answer" = step-00000016-2 ]; then ok "it has a name of its own"
else bad "it has a name of its own" "latest: $answer" log; fi
tell steps of/one
if [[ $answer == *"step-00000015-2 step-00000016-2" ]]; then
    ok "the version before is removed"
else bad "the version before is removed" "$answer"; fi
must fetch s3://models/of/one other
if lockstep compare again/ckpt/step-00000016 other/ckpt/step-00000016 \
    >out 2>&1
then ok "the newer version comes back"
else bad "the newer version comes back" "compare" out; fi

# --- resume fetches by itself ---
rm -rf other
lockstep resume other --ranks 1 --set checkpoint.mirror=s3://models/of/one \
    --set train.steps=18 >log 2>&1
check_said "resume: no run, and a place" 0 "is not there; fetching" $? log
rm -rf other/ckpt
lockstep resume other --ranks 2 --supervised --set train.steps=20 >log 2>&1
check_said "resume: no checkpoints" 0 "has no checkpoint; fetching step 18" \
    $? log
cp -r other hurt
for weights in hurt/ckpt/step-*/model-*; do
    printf 'damage' | dd of="$weights" bs=1 seek=4000 conv=notrunc 2>/dev/null
done
lockstep resume hurt --ranks 1 --set train.steps=22 >log 2>&1
check_said "resume: all checkpoints are damaged" 0 \
    "checkpoints is whole: " $? log
if [ -d "hurt/ckpt/step-00000020.damaged" ]; then ok "the damaged one is kept"
else bad "the damaged one is kept" "$(ls hurt/ckpt)" log; fi
cp -r hurt hurt.agents
for run in hurt hurt.agents; do # from step 22 of the storage
    for weights in $run/ckpt/step-????????/model-*; do
        printf 'damage' | dd of="$weights" bs=1 seek=4000 conv=notrunc \
            2>/dev/null
    done
done
lockstep resume hurt --ranks 2 --supervised --set train.steps=24 >log 2>&1
check_said "resume: the same under a supervisor" 0 "checkpoints is whole: " $? \
    log
lockstep resume hurt.agents --ranks 2 --supervised --spares 0 \
    --set train.steps=26 >log 2>&1
check_said "resume: the same under agents" 0 \
    "hurt.agents has the checkpoint of step 24" $? log
must resume hurt --ranks 1 --set train.steps=26 --set checkpoint.mirror=
if lockstep compare "$(newest hurt)" "$(newest hurt.agents)" >out 2>&1 &&
    lockstep incidents hurt.agents >out 2>&1 && grep -q "^0 incidents" out
then ok "resume: the bits of a run that was not damaged, no incident"
else bad "resume: the bits of a run that was not damaged, no incident" \
    "compare, or an incident" out; fi
cp -r other hurt.too
echo damage >>hurt.too/ckpt/$(cat hurt.too/ckpt/latest)/manifest.json
lockstep resume hurt.too --ranks 1 --set train.steps=21 >log 2>&1
check_said "resume: one is damaged, an older one is whole" 0 \
    "damaged and was passed over" $? log
must fetch s3://models/of/one older
lockstep resume other --ranks 1 --set train.steps=22 >log 2>&1 ||
    bad "goes on" "exit $?" log
lockstep resume older --ranks 1 --set train.steps=21 --set checkpoint.mirror= \
    >log 2>&1 || bad "goes on elsewhere" "exit $?" log
lockstep resume older --ranks 1 --set train.steps=21 \
    --set checkpoint.mirror=s3://models/of/one >log 2>&1
grep -q "older has step 21, s3://models/of/one has step 22" log &&
    ok "resume: the storage is ahead" ||
    bad "resume: the storage is ahead" "not said" log

# --- a fetch that is killed ---
LOCKSTEP_FAULT=mirror.request:6:kill lockstep fetch s3://models/of/one torn \
    >out 2>&1
if [ ! -e torn ] && [ -e torn.fetching ]; then ok "killed: no run has the name"
else bad "killed: no run has the name" "$(ls -d torn*)" out; fi
must fetch s3://models/of/one torn
[ ! -e torn.fetching ] || bad "killed: nothing is left" "torn.fetching"

# --- a run that is asked to stop does not wait for a slow storage ---
normal=$AWS_ENDPOINT_URL
tell slow 0
# shellcheck disable=SC2086
AWS_ENDPOINT_URL=$normal must train config.yaml --run stops \
    $mirrored/models/of/stops --set train.steps=4 --set checkpoint.every=2
export AWS_ENDPOINT_URL=$answer
"$program" resume stops --ranks 1 --set train.steps=400000 \
    --set checkpoint.every=2 --set validate.every=0 >log 2>&1 &
child=$!
children="$children $child"
await stops/ckpt/latest 'step-00000006' 600
kill -TERM $child
began=$(date +%s)
wait $child
check_said "stopped while it sends" 75 "not sent in the 15 s" $? log
took=$(($(date +%s) - began))
if [ $took -le 60 ]; then ok "it ends soon ($took s)"
else bad "it ends soon" "$took s" log; fi
export AWS_ENDPOINT_URL=$normal
step=$(sed 's/step-0*//' stops/ckpt/latest)
must resume stops --ranks 1 --set train.steps=$((step + 2)) \
    --set checkpoint.every=2 --set validate.every=0 --set checkpoint.keep_last=9
tell steps of/stops
if [[ $answer == *"$(cat stops/ckpt/latest)" &&
      $answer == *"$(printf step-%08d "$step") "* ]]; then
    ok "what was missing is sent"
else bad "what was missing is sent" "$answer, $step"; fi

# --- ranks wait for what a slow storage takes ---
tell slow 30000
for how in "" --supervised; do
    # shellcheck disable=SC2086
    AWS_ENDPOINT_URL=$answer lockstep train config.yaml --run slow$how \
        $mirrored/models/of/slow$how --ranks 2 --threads 1 $how \
        --set train.steps=14 --set comm.limit=4 >log 2>&1
    check_said "a slow storage${how:+, }$how" 0 "finished" $? log
done
lockstep incidents slow--supervised >out 2>&1
if grep -q "^0 incidents" out; then ok "a slow storage: no incident"
else bad "a slow storage: no incident" "there are" out; fi

# --- damage ---
tell damage of/kept/step-00000030/model-00001-of-00001.safetensors
expect "a bit that changed there" 65 "model.norm" fetch s3://models/of/kept bad
[ ! -e bad ] || bad "nothing is left half-fetched" "bad is there"
tell damage of/large/step-00000002/manifest.json
expect "a manifest that changed there" 65 "manifest.json" fetch \
    s3://models/of/large worse

# --- the storage goes between two parts of a run ---
# shellcheck disable=SC2086
must train config.yaml --run late $mirrored/models/of/late --set train.steps=14
exec 7>&-
kill -9 $server 2>/dev/null
wait $server 2>/dev/null
lockstep resume late --set train.steps=30 >log 2>&1
check_said "the storage is gone: said at the end" 74 "127.0.0.1" $? log
if same_run whole late; then ok "the storage is gone: the run is whole"
else bad "the storage is gone: the run is whole" "$why" log; fi
report
