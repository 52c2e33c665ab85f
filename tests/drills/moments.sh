#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# moments.sh - one rank of a supervised run is killed at a named moment: at
# instructions all over a step, in the midst of its messages and of its copy in
# memory; two ranks at once; one computes without end, or divides by zero; the
# supervisor is killed at each line that it writes. Then the same run in a system
# that is not kind (system.c): reads and writes are short and interrupted, the
# clock jumps, memory has no room for copies.
#
#     BUILD=build [STRIDE=5] tests/drills/moments.sh
. "${0%/*}/common.sh"
prepare
sed -i 's/steps: 30/steps: 16/; s/every: 7/every: 0/' config.yaml
four="--ranks 4 --set mesh.data=4 --set zero=zero1 --set train.threads=1
    --supervised --copies 1 --set comm.limit=60"
must train config.yaml --run whole

# moment NAME FAULT WORDS: one incident that says so, at most $most steps redone,
# the bytes of a run that was left alone.
most=1 like=whole
moment() {
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=$2 lockstep train config.yaml --run at $four >log 2>&1 ||
        { bad "$1" "exit $?" log; rm -rf at; return; }
    lockstep incidents at >said
    if ! grep -q "^1 incidents, 1 recovered" said || ! grep -q "$3" said; then
        bad "$1" "not one incident that says \"$3\"" said
    elif ! grep -q 'noticed at most [0-9]* ms later' said; then
        bad "$1" "not said when it was noticed" said
    elif ! grep -Eq "\((memory|checkpoint)\), [0-$most] redone" said; then
        bad "$1" "more than $most steps redone" said
    elif same_run $like at; then ok "$1"
    else bad "$1" "$why" log
    fi
    rm -rf at
}

# --- within a step, which has some 34 instructions here ---
for ((at = 200; at < 240; at += ${STRIDE:-5})); do
    moment "killed at instruction $at" "step.instruction@1:$at:kill" 'signal 9'
done
for at in 400 401 403; do
    moment "killed among messages, $at" "message.frame@2:$at:kill" 'signal 9'
done
# A step updates 12 parameters and more.
for at in 61 66 70 75; do
    moment "killed within an update, $at" "update.item@1:$at:kill" 'signal 9'
done
for at in turn settle; do
    moment "killed where slots $at" "slots.$at@2:9:kill" 'signal 9'
done
# Averages take the place of weights while a validation measures them.
plain=$four
words="--set validate.every=4"
for like in valid averages; do
    # shellcheck disable=SC2086
    must train config.yaml --run $like $words
    four="$plain $words"
    for at in 2 3; do
        moment "killed within a validation, $at, $like" \
            "validate.measure@1:$at:kill" 'signal 9'
    done
    words="$words --set optimizer.ema=0.9 --set validate.weights=ema"
done
like=whole four=$plain
# Pages that the system does not move are mapped anew.
moment "killed where slots turn, pages do not move" \
    "slots.move@1:3,slots.move@2:5,slots.move@2:6,slots.turn@2:9:kill" 'signal 9'
LOCKSTEP_FAULT=slots.map@0:1 must train config.yaml --run at $four
if ! grep -q 'no copies in memory: .*(ulimit -v)' log; then
    bad "no addresses for copies" "not said" log
elif same_run whole at; then ok "no addresses for copies: the same bytes"
else bad "no addresses for copies: the same bytes" "$why" log
fi
rm -rf at
# Weights that change once more after they were updated and added up.
alone=$four like=clipped
four="$four --set optimizer.qk_clip=0.05"
must train config.yaml --run clipped --set optimizer.qk_clip=0.05
for at in turn settle; do
    moment "killed where slots $at, with QK-clip" "slots.$at@2:9:kill" 'signal 9'
done
four=${alone/--copies 1/--copies 3} like=whole most=3
for at in step.instruction@1:240 update.item@1:75 slots.turn@1:2 \
    slots.settle@2:3; do
    moment "a copy after every third step, killed at $at" $at:kill 'signal 9'
done
four=$alone most=1
moment "killed before data are read" data.ahead@1:9:kill 'signal 9'
moment "two ranks at once" \
    "step.instruction@1:210:kill,step.instruction@2:210:kill" 'signal 9'
moment "a kernel without end" step.instruction@3:222:spin \
    'hang of rank 3 .*its instruction takes.*, instruction [0-9]* ([a-z ]*)'
# With a plan its times count, not those of a step that was slow; and the first
# step, whose instruction takes 5 s here, has no such deadline. 34 instructions.
alone=$four
four="$four --set machine=cpu,devices=4"
moment "a plan is the deadline, but not of the first step" \
    step.instruction@1:5:late,step.instruction@1:209:spin \
    'hang of rank 1 .*, at most 2\.[0-9] s are usual or planned; .*group'
four=$alone

# --- signals of the processor ---
for signal in FPE BUS ILL; do
    # shellcheck disable=SC2086
    start_until "by$signal" 3 train config.yaml --run "by$signal" $four \
        --set train.steps=1000000
    victim=$(rank_process "by$signal" 2)
    kill -$signal "$victim"
    until_line "by$signal/control/journal.jsonl" '"event": "recovered"'
    kill -TERM "$child"
    ends "SIG$signal: stopped later" "by$signal" "$child" 75
    if lockstep incidents "by$signal" | grep -q "killed by signal $(kill -l $signal)"
    then ok "SIG$signal is named"
    else bad "SIG$signal is named" "it is not" log; fi
done

# --- the supervisor, at each line that it writes ---
for line in 1 2 3 4 5; do
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=step.instruction@1:210:kill,journal.append:$line:kill \
        "$program" train config.yaml --run "line$line" $four >log 2>&1
    code=$?
    [ $code -eq 137 ] || bad "killed at line $line" "exit $code" log
    # Before the first line nobody can say who its ranks are: they finish alone,
    # and until then the run is theirs.
    for ((tries = 0; tries < 300; tries++)); do
        lockstep resume "line$line" --ranks 4 --supervised >log 2>&1
        code=$?
        [ $code -eq 78 ] && grep -q 'in use by process' log || break
        sleep 0.1
    done
    if [ $code -ne 0 ]; then bad "line $line: goes on" "exit $code" log
    elif same_run whole "line$line"; then ok "line $line: the same bytes"
    else bad "line $line: the same bytes" "$why" log
    fi
done

# --- a system that is not kind ---
if cc -O1 -shared -fPIC -o system.so "$tree/tests/drills/system.c" -ldl; then
    for what in short clock; do
        for how in "--ranks 1" "$four"; do
            rm -rf hard
            # shellcheck disable=SC2086
            SYSTEM=$what LD_PRELOAD=./system.so "$program" train config.yaml \
                --run hard $how >log 2>&1
            code=$?
            if [ $code -ne 0 ]; then bad "$what, ${how:0:9}" "exit $code" log
            elif ! same_run whole hard; then bad "$what, ${how:0:9}" "$why" log
            elif [ -e hard/control ] &&
                ! { lockstep incidents hard >said && grep -q '^0 incidents' said &&
                    awk '/^[0-9.]+ s: steps/ { said = $1 > 0 && $1 < 3600 }
                        END { exit !said }' said; }; then
                bad "$what, ${how:0:9}" "incidents" said
            else ok "$what, ${how:0:9}"
            fi
        done
    done
    SYSTEM=short,clock LD_PRELOAD=./system.so "$program" resume hard \
        --set train.steps=18 >log 2>&1
    code=$?
    if [ $code -eq 0 ]; then ok "resumed in such a system"
    else bad "resumed in such a system" "exit $code" log; fi
    SYSTEM=locks LD_PRELOAD=./system.so "$program" train config.yaml \
        --run unlocked >log 2>&1
    check_said "a file system without locks" 74 "has no locks" $? log
else
    echo "left out: no compiler for system.c"
fi

# --- no room for copies; none for the journal ---
if unshare -rm true 2>/dev/null; then
    mkdir -p small/control
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=step.instruction@1:210:kill unshare -rm sh -c \
        'mount -t tmpfs -o size=16k none small/control &&
        dd if=/dev/zero of=small/control/fill bs=4096 count=3 2>dd.log &&
        exec "$@"' sh "$program" train config.yaml --run small $four >log 2>&1
    code=$?
    if [ $code -eq 0 ] && same_run whole small && grep -q '^recovered' log &&
        grep -q 'waits in memory: small/control/journal.jsonl: .*disk full' log
    then ok "a full disk below the journal"
    else bad "a full disk below the journal" "exit $code $why" log; fi
    sed 's/^MemAvailable:.*/MemAvailable: 100 kB/' /proc/meminfo >meminfo
    # shellcheck disable=SC2086
    LOCKSTEP_FAULT=step.instruction@1:300:kill unshare -rm sh -c \
        'mount --bind meminfo /proc/meminfo && exec "$@"' sh "$program" train \
        config.yaml --run at $four >log 2>&1
    code=$?
    if [ $code -eq 0 ] && grep -q 'no copies in memory: they take' log &&
        lockstep incidents at | grep -q '(checkpoint)' && same_run whole at
    then ok "no room for copies: from the checkpoint"
    else bad "no room for copies: from the checkpoint" "exit $code $why" log; fi
else
    echo "left out: no mount namespaces"
fi
report
