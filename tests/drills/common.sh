# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# common.sh - functions shared by the drills: a directory of their own, a
# small corpus, a small configuration, and comparisons. Source it; finish with
# `report`.
#
# A drill prints "ok NAME" or "FAILED NAME: why" for each check. Everything
# happens in a temporary directory that is the working directory; programs
# that are still running at the end are ended by their number.
set -u
: "${BUILD:=build}"
export LC_ALL=C
unset LOCKSTEP_FAULT LOCKSTEP_TRACE
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
tree=$PWD
program=$BUILD/lockstep
room=$(mktemp -d)
children=
child= # of start_until
why=   # of same_run
passed=0
failed=0

leave() {
    local child
    for child in $children; do kill -9 "$child" 2>/dev/null; done
    cd "$tree" && rm -rf "$room"
}
trap leave EXIT
cd "$room" || exit 1

ok() { # NAME
    passed=$((passed + 1))
    echo "ok $1"
}

bad() { # NAME WHY [FILE]: the last lines of FILE follow
    failed=$((failed + 1))
    echo "FAILED $1: $2"
    [ -z "${3:-}" ] || tail -n 8 "$3" | sed 's/^/    /'
}

report() {
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ] && [ $passed -gt 0 ]
    exit
}

# last_words: the last lines of all journals and logs of this drill, and what
# its processes do.
last_words() {
    local file process
    for file in */control/journal.jsonl log log.*; do
        [ -s "$file" ] || continue
        echo "    == $file"
        tail -n 12 "$file" | cut -c 1-700 | sed 's/^/    /'
    done
    for file in /proc/[0-9]*; do
        [ "$(readlink "$file/cwd")" = "$room" ] || continue
        process=${file#/proc/}
        [ "$process" = $$ ] || echo "    process $process:" \
            "$(cut -d ' ' -f 2-4 "$file/stat" 2>/dev/null)," \
            "$(cat "$file/wchan" 2>/dev/null)," \
            "$(tr '\0' ' ' <"$file/cmdline" 2>/dev/null | cut -c 1-120)"
    done
}

# ended PROCESS [SECONDS]: waits for its end; its exit code. One that does not
# end in time is killed after its last words: 124.
ended() {
    local end=$((SECONDS + ${2:-${LIMIT:-600}}))
    while kill -0 "$1" 2>/dev/null; do
        if [ $SECONDS -ge $end ]; then
            last_words
            kill -9 "$1"
            wait "$1" 2>/dev/null
            return 124
        fi
        sleep 0.05
    done
    wait "$1" 2>/dev/null
}

# ends NAME RUN CHILD [CODE [LIKE]]: the process ends with that code, 0 unless
# said; a run that ends well equals the run LIKE, `whole` unless said.
ends() {
    local code want=${4:-0} like=${5:-whole}
    ended "$3"
    code=$?
    if [ $code -ne "$want" ]; then bad "$1" "exit $code, not $want" log
    elif [ "$want" -ne 0 ]; then ok "$1"
    elif ! lockstep compare "$like" "$2" >out 2>&1; then
        bad "$1" "compare: other weights or states" out
    elif same_run "$like" "$2"; then ok "$1"
    else bad "$1" "$why" log
    fi
}

# The step of the newest line of metrics.
step_now() { # RUN
    tail -n 1 "$1/metrics.jsonl" | sed -n 's/.*"step": \([0-9]*\),.*/\1/p'
}

# stops NAME RUN CHILD ARGUMENT...: a run that would go on for as long as
# anybody likes, so that nothing must happen before its end, is told to stop. It
# equals one that was never disturbed and ends there, `train ARGUMENT...`, but for
# the validation at the end of that one.
stops() {
    local name=$1 run=$2 like=$2.whole
    kill -TERM "$3"
    ends "$name: stopped" "$run" "$3" 75
    shift 3
    must train "$@" --run "$like" --set train.steps="$(step_now "$run")"
    sed -i '${/"kind": "validation"/d}' "$like/metrics.jsonl"
    if ! lockstep compare "$(newest "$like")" "$(newest "$run")" >out 2>&1; then
        bad "$name" "compare: other weights or states" out
    elif same_run "$like" "$run"; then ok "$name"
    else bad "$name" "$why" log
    fi
}

# until_line FILE PATTERN [TENTHS]: false if it does not come, on a machine with
# other work either.
until_line() {
    local tries=0
    until grep -q "$2" "$1" 2>/dev/null; do
        sleep 0.1
        tries=$((tries + 1))
        [ $tries -lt "${3:-1800}" ] || return 1
    done
}

# await_incident JOURNAL PATTERN: until it has such a line. Then $waited says for
# how long, and $late by how much a sleep of 50 ms was late at most,
# milliseconds: what this machine keeps its processes from running.
await_incident() {
    local began before now tries
    began=$(date +%s%N)
    waited=0
    late=0
    for ((tries = 0; tries < 1200; tries++)); do
        before=$(date +%s%N)
        waited=$(((before - began) / 1000000))
        ! grep -q "$2" "$1" || return 0
        sleep 0.05
        now=$((($(date +%s%N) - before) / 1000000 - 50))
        [ $now -le $late ] || late=$now
    done
    return 1
}

# in_time JOURNAL: the newest incident, of a node that was lost, was noticed
# within 5 s, and ten times what a sleep was late.
in_time() {
    local most=$((5000 + 10 * late))
    echo "noticed after $waited ms, of $most; sleeps were up to $late ms late"
    [ "$waited" -le $most ] &&
        grep '"event": "incident"' "$1" | tail -n 1 |
        grep -o '"noticed_ms": [0-9.]*' |
            awk -v most=$most '{ ok = $2 <= most } END { exit !ok }'
}

# bridge_nodes COUNT NETWORK: in a network namespace of its own: namespaces n1 to
# nCOUNT with the addresses NETWORK.1 and so on, and a bridge that is NETWORK.254.
bridge_nodes() {
    local i
    for ((i = 1; i <= $1; i++)); do
        ip netns add "n$i"
        ip link add "v$i" type veth peer name eth netns "n$i"
    done
    tap_nodes "$@"
}

# tap_nodes COUNT NETWORK: the same, where namespaces with a device `eth` and
# devices v1 to vCOUNT are there.
tap_nodes() {
    local i
    ip address add "$2.254/24" dev bridge
    ip link set bridge up
    ip link set lo up
    for ((i = 1; i <= $1; i++)); do
        ip link set "v$i" master bridge up
        ip -n "n$i" address add "$2.$i/24" dev eth
        ip -n "n$i" link set eth up
        ip -n "n$i" link set lo up
    done
}

# begin_wires COUNT: the same with links that can delay and lose (wire.c), as
# descriptor 9 is told; ends the drill where that cannot be made.
begin_wires() {
    local i
    if ! mount -t tmpfs none /run 2>/dev/null || ! mkdir /run/netns ||
        ! ip link add bridge type bridge 2>/dev/null ||
        ! ip tuntap add dev probe mode tap 2>/dev/null; then
        echo "not run: no bridge or no tap devices here"
        exit 77
    fi
    ip link del probe
    cc -O2 -D_GNU_SOURCE -o wire "$tree/tests/drills/wire.c" || exit 1
    for ((i = 1; i <= $1; i++)); do ip netns add "n$i"; done
    mkfifo orders
    exec 9<>orders
    ./wire "$1" <orders >wire.log 2>&1 9>&- &
    wire=$!
    children="$children $wire"
    await wire.log ready
    tap_nodes "$1" 10.77.0
}

# end_wires: what they carried is in wire.log.
end_wires() {
    exec 9>&-
    wait "$wire"
    cat wire.log
}

# no_storage: forgets the object storage that the environment names.
no_storage() {
    unset AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_ENDPOINT_URL
}

# serve_storage: an S3 server on the loopback address, by storage_server.py and
# the Python STORAGE_PYTHON; AWS_... variables name it. Process $server,
# descriptor 7 takes its commands.
serve_storage() {
    no_storage
    mkfifo commands
    "$STORAGE_PYTHON" "$tree/tests/drills/storage_server.py" <commands \
        >server.out 2>server.log &
    server=$!
    children="$children $server"
    exec 7>commands
    await server.out '^http' 1800
    read -r AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY \
        < <(grep '^http' server.out)
    export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    answers=$(wc -l <server.out)
}

tell() { # COMMAND ARGUMENT: the server's answer in $answer
    local tries=0
    echo "$*" >&7
    answers=$((answers + 1))
    until [ "$(wc -l <server.out)" -ge "$answers" ] || [ $tries -ge 900 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    answer=$(sed -n "${answers}p" server.out)
}

# A port of this machine at which nobody listens now.
free_port() {
    local port _
    for _ in 1 2 3 4 5 6 7 8 9; do
        port=$((20000 + RANDOM % 12000))
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# await FILE PATTERN [TENTHS]: ends the drill if the line does not come: what
# follows builds on it.
await() {
    until_line "$@" && return
    bad "await $1: $2" "it did not come in time"
    last_words
    report
}

# control_group WHAT KIND FILE...: makes a control group of its own, in $group, in
# which one of the files can be written: $limit. Ends the drill where none can be
# made; otherwise the end of the drill ends what is in the group.
control_group() {
    local what=$1 kind=$2 place
    shift 2
    for place in "/sys/fs/cgroup/$kind" /sys/fs/cgroup; do
        group=$place/lockstep-drill-$$
        mkdir "$group" 2>/dev/null || continue
        for limit in "$@"; do
            [ -w "$group/$limit" ] || continue
            trap leave_group EXIT
            return
        done
        rmdir "$group"
    done
    echo "not run: no control group with a limit of $what can be made here"
    exit 77
}

leave_group() {
    local i process
    while read -r process; do
        kill -9 "$process" 2>/dev/null
    done <"$group/cgroup.procs"
    for ((i = 0; i < 200; i++)); do
        rmdir "$group" 2>/dev/null && break
        sleep 0.05
    done
    leave
}

# The MPIs of this machine in $mpis.
find_mpi() {
    local name
    mpis=
    for name in openmpi mpich; do
        if [ -e "$BUILD/comm_$name.so" ] && command -v mpirun.$name >/dev/null
        then mpis="$mpis $name"
        else echo "left out: no $name on this machine"
        fi
    done
}

# A script that is about nothing else is not run where there is none.
need_mpi() {
    find_mpi
    [ -n "$mpis" ] && return
    echo "not run: neither Open MPI nor MPICH is on this machine"
    exit 77
}

# with_mpi NAME RANKS COMMAND...: under one of them. It ends within 400 seconds, or
# those of LIMIT.
with_mpi() {
    local name=$1 ranks=$2 flags=
    shift 2
    [ "$name" = openmpi ] && flags="--allow-run-as-root --oversubscribe"
    # shellcheck disable=SC2086
    timeout --kill-after=5 "${LIMIT:-400}" "mpirun.$name" $flags -n "$ranks" "$@"
}

# No run of a drill takes longer than this many seconds.
lockstep() {
    timeout --kill-after=5 "${LIMIT:-600}" "$program" "$@"
}

# Words that resemble a language: 240 documents, always the same.
make_text() { # FILE.jsonl [DOCUMENTS]
    awk -v documents="${2:-240}" '
        function draw(n) { x = (x * 16807) % 2147483647; return x % n }
        BEGIN {
            x = 20261
            n = split("ba be bo da de do ga ka ke ki ko la le li lo ma me mo " \
                      "na ne no pa po ra re ri ro sa se si so ta te ti to",
                      part, " ")
            for (d = 0; d < documents; d++) {
                line = ""
                for (w = 5 + draw(90); w > 0; w--) {
                    for (s = 1 + draw(3); s > 0; s--)
                        line = line part[1 + draw(1 + draw(n))]
                    line = line (w > 1 ? " " : ".")
                }
                printf "{\"text\": \"%s\"}\n", line
            }
        }' >"$1"
}

# text.jsonl, tokenizer.json, config.yaml and the token files: 30 steps of a
# model with odd sizes, one every 20 ms or so, checkpoints after 5 each. A rank has
# one thread: several wait for each other at every kernel, which costs a busy
# machine more than the kernels.
prepare() { # [THREADS]
    make_text text.jsonl
    lockstep tokenizer train text.jsonl --vocab 300 --out tokenizer.json \
        >log 2>&1 || { bad prepare "no tokenizer" log; report; }
    cat >config.yaml <<END
version: 1
seed: 3
model: {family: llama, vocab: 304, layers: 2, width: 24, heads: 4, kv_heads: 2, head_width: 6, feed_forward: 40}
tokenizer: {from: tokenizer.json}
data: {train: [text.jsonl], sequence: 48, cache: cache, valid_share: 0.1}
train: {steps: 30, batch: 8, micro_batch: 4, dtype: float32, threads: ${1:-1}}
optimizer: {lr: 3.0e-3, schedule: cosine, warmup: 3, min_lr: 3.0e-4, clip: 0.5}
validate: {every: 7, sequences: 6}
checkpoint: {every: 5}
END
}

# emulate SEED: the device cuda on the emulated GPUs of tests/driver, where they
# are built (make driver): CUDA is then 1. Else it says once that they are not.
emulate() {
    export CUDA=
    if [ ! -e "$BUILD/device_cuda.so" ] ||
        [ ! -e "$BUILD/tests/driver/libcuda.so.1" ]; then
        [ -n "${emulated:-}" ] ||
            echo "left out: layouts on emulated GPUs: no kernels for GPUs or no driver for tests in this build"
        emulated=no
        return
    fi
    export CUDA=1 LD_LIBRARY_PATH=$BUILD/tests/driver GPUS=2
    export LOCKSTEP_DRIVER=late
    [ $(($1 % 2)) -eq 0 ] || LOCKSTEP_DRIVER=early
    grep -q '^device:' config.yaml || echo "device: cpu" >>config.yaml
}

# Ends the drill when a run that must go well does not.
must() { # ARGUMENT...
    local code
    lockstep "$@" >log 2>&1
    code=$?
    if [ $code -ne 0 ]; then
        bad "lockstep $*" "exit $code where 0 is expected" log
        report
    fi
}

# expect NAME CODE WORDS ARGUMENT...: exit code and a piece of what it says.
# Fixed text in WORDS; nothing else may have been printed after the exit line.
expect() {
    local name=$1 code=$2 words=$3 found
    shift 3
    lockstep "$@" >out 2>&1
    found=$?
    check_said "$name" "$code" "$words" "$found" out
}

check_said() { # NAME CODE WORDS FOUND FILE
    if [ "$4" -ne "$2" ]; then
        bad "$1" "exit $4 where $2 is expected" "$5"
    elif ! grep -qF -- "$3" "$5"; then
        bad "$1" "does not say \"$3\"" "$5"
    elif [ "$2" -ne 0 ] && ! tail -n 1 "$5" | grep -q "^exit $2 ("; then
        bad "$1" "the last line is not \"exit $2 (...)\"" "$5"
    else
        ok "$1"
    fi
}

# Starts a run in the background and waits until its metrics have a line of
# step N; its number is then in $child.
start_until() { # RUN STEP ARGUMENT...
    local run=$1 step=$2 tries=0
    shift 2
    "$program" "$@" >log 2>&1 &
    child=$!
    children="$children $child"
    until grep -q "\"step\": $step," "$run/metrics.jsonl" 2>/dev/null; do
        sleep 0.01
        tries=$((tries + 1))
        if [ $tries -gt 18000 ] || ! kill -0 "$child" 2>/dev/null; then
            return 1
        fi
    done
}

# stopped PROCESS: waits until it has stopped itself (action `stop` of
# docs/faults.md); false: it ended before.
stopped() {
    until grep -q '^State:.T' "/proc/$1/status" 2>/dev/null; do
        kill -0 "$1" 2>/dev/null || return 1
        sleep 0.02
    done
}

# rank_process RUN RANK: of the newest generation; nothing: status knows none.
rank_process() {
    lockstep status "$1" --json 2>/dev/null | grep -A 1 "\"rank\": $2," |
        sed -n 's/.*"process": \([0-9]*\).*/\1/p'
}

# told PROCESS: waits until a signal has reached it while it is stopped.
told() {
    until grep -q '^ShdPnd:.*[1-9a-f]' "/proc/$1/status" 2>/dev/null; do
        kill -0 "$1" 2>/dev/null || return 1
        sleep 0.02
    done
}

# freeze POINT ARGUMENT...: starts a program that stops itself at that point, and
# waits for it. Its number is then in $child. False: it ended before.
freeze() {
    LOCKSTEP_FAULT=$1:stop "$program" "${@:2}" >log 2>&1 &
    child=$!
    children="$children $child"
    stopped $child
}

# hold RUN POINT ARGUMENT...: freezes a run.
hold() {
    freeze "$2" "${@:3}" --run "$1"
}

# Lines of metrics without what depends on the clock: the table knows.
clock=$(sed -n 's/^METRIC([A-Z]*, *[A-Z_]*, *\([a-z_]*\), .* CLOCK,.*/\1/p' \
    "$tree/src/observe/metrics.def" | tr '\n' '|')
exact_rows() { # RUN
    sed -E "s/, \"(${clock%|})\": [^,}]*//g" "$1/metrics.jsonl"
}

newest() { # RUN
    echo "$1/ckpt/$(cat "$1/ckpt/latest")"
}

# As if the run had been killed after its checkpoint of that step.
back() { # RUN STEP
    local step
    [ -d "$1/ckpt/$(printf 'step-%08d' "$2")" ] ||
        bad "back $1 $2" "there is no such checkpoint"
    for step in "$1"/ckpt/step-*; do
        [ "${step##*/}" \> "$(printf 'step-%08d' "$2")" ] && rm -rf "$step"
    done
    printf 'step-%08d' "$2" >"$1/ckpt/latest"
}

# Every byte of the newest checkpoints and every exact metric; says in $why
# what differs.
same_run() { # RUN RUN
    local a b file
    a=$(newest "$1")
    b=$(newest "$2")
    why=
    for file in "$a"/*; do
        cmp -s "$file" "$b/${file##*/}" || {
            why="$file differs from $b/${file##*/}"
            return 1
        }
    done
    [ "$(ls "$a")" = "$(ls "$b")" ] || { why="other files"; return 1; }
    exact_rows "$1" >rows.a
    exact_rows "$2" >rows.b
    cmp -s rows.a rows.b || { why="metrics differ: $(diff rows.a rows.b | head -n 2 | tr '\n' ' ')"; return 1; }
    [ -s rows.a ] || { why="no metrics"; return 1; }
}

# No temporary file is left anywhere in a run.
no_remains() { # NAME RUN
    local left
    left=$(find "$2" \( -name '*.tmp*' -o -name '.tmp*' \) | head -n 3)
    if [ -n "$left" ]; then bad "$1" "left behind: $left"; else ok "$1"; fi
}
