#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chaos.sh - a run on four agents with features of training drawn together, while
# agents, two agents at once, ranks, carriers of copies and the supervisor are
# killed in drawn order, or stopped for up to six seconds, and agents come back,
# data, saves or copies late in some runs: it ends in the bytes, metrics and
# samples of a run that was left alone on one rank, its best checkpoint, too, and
# what an object storage was sent. What fails is printed with its seed:
#
#     BUILD=build SEED=7 ROUNDS=1 [KILLS=6] [HARMS="stop rank"] \
#         [STORAGE_PYTHON=venv/bin/python] tests/drills/chaos.sh
#
# STORAGE_PYTHON: as in storage.sh; without it no run has checkpoint.mirror.
. "${0%/*}/common.sh"
prepare
[ -z "${STORAGE_PYTHON:-}" ] || serve_storage
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
letters="a b c d"
# For two ranks and the four micro-batches of the whole pipe.
cat >late.txt <<'END'
F0.0 F0.1 B0.0 F0.2 B0.1 W0.0 F0.3 B0.2 W0.1 B0.3 W0.2 W0.3
F1.0 B1.0 F1.1 B1.1 W1.0 F1.2 B1.2 W1.1 F1.3 B1.3 W1.2 W1.3
END

# The generator is Park and Miller's. `of` leaves one of its words in $drawn,
# `random` a number below its argument in $number.
random() {
    x=$((x * 16807 % 2147483647))
    number=$((x % $1))
}
of() {
    random $#
    shift "$number"
    drawn=$1
}

# Where the generator begins: neighbouring seeds far apart, by two squares.
mix() { # SEED
    x=$(($1 % 67108859))
    x=$(((x * x + 24683 * x + 29) % 67108859))
    x=$(((x * x + $1 + 1) % 2147483646 + 1))
    random 1
}

# Settings of every run into $base, those of the ranks into $more; $faults of
# each process of the agents.
draw() { # SEED
    local word words
    mix "$1"
    words="checkpoint.every=20 checkpoint.keep_last=3 validate.every=0
        numerics.high_last=0"
    of llama gpt2 deepseek mixtral qwen3_moe gpt_oss
    words="$words model.family=$drawn"
    case $drawn in
    gpt2) words="$words model.kv_heads=4" ;;
    mixtral | qwen3_moe | gpt_oss)
        words="$words moe.experts=4 moe.top_k=2" ;;
    esac
    of adamw adamw adafactor soap muon lion
    words="$words optimizer.name=$drawn"
    of "" train.dtype=bfloat16 \
        "train.dtype=bfloat16 numerics.recipe=fp8-tiles fsdp.gather_format=auto" \
        "train.dtype=bfloat16 numerics.recipe=fp8-delayed"
    words="$words $drawn"
    of "" "" lora.rank=2
    words="$words $drawn"
    base=
    for word in $words; do base="$base --set $word"; done
    of "mesh.data=4 zero=ddp" "mesh.data=4 zero=zero1" "mesh.shard=4 zero=fsdp" \
        "mesh.data=2 mesh.shard=2 zero=hsdp" \
        "mesh.pipe=2 mesh.shard=2 zero=zero2 train.micro_batch=1" \
        "mesh.tensor=2 mesh.shard=2 zero=fsdp"
    words="$drawn train.threads=1 comm.limit=60"
    of "" checkpoint.async=true local "local checkpoint.async=true"
    where=$drawn
    words="$words ${drawn/local/checkpoint.local=$PWD/shards}"
    of "" "" device=far
    words="$words $drawn"
    local layout=$words
    of 1 2 3
    replicas=$drawn
    # Added later, so drawn last: old seeds keep the rest.
    of "" optimizer.masters=split
    case "$base$drawn" in
    *adafactor*) ;;
    *bfloat16*split) layout="$layout $drawn" ;;
    esac
    of "" "mesh.layers=[2,0]" "mesh.layers=[0,2] schedule.name=late.txt" \
        "schedule.name=late.txt"
    case $layout in
    *mesh.pipe=2*) layout="$layout $drawn" ;;
    esac
    # As many places as ranks: a node that is lost leaves a smaller layout.
    of 2 2 1
    slots=$drawn
    more="--ranks 4"
    for word in $layout; do more="$more --set $word"; done
    of 1 1 3
    every=$drawn
    of "" "" optimizer.ema=0.9
    base="$base${drawn:+ --set $drawn}"
    of "" keep_best
    best=$drawn
    of "" "" mirror
    storage=
    case $where in
    local*) best= ;; # no mirror of shards, and no draw of their best
    *) [ -z "${drawn:+${STORAGE_PYTHON:-}}" ] || storage=s3://models/chaos/$1
    esac
    if [ -n "$best" ]; then
        base=${base/validate.every=0/validate.every=6}
        base+=" --set checkpoint.keep_best=true"
    fi
    [ -z "$storage" ] ||
        more+=" --set checkpoint.async=true --set checkpoint.mirror=$storage"
    of "" "" "" data.ahead:60:slow data.ahead:90:late,checkpoint.read:1 \
        checkpoint.sync:2:slow checkpoint.rename:1 courier.carry:40:slow
    faults=$drawn
    [ -z "$storage" ] || faults+=${faults:+,}mirror.request:9
}

supervise() {
    # shellcheck disable=SC2086
    "$program" supervise config.yaml --run nodes $base $more --copies "$every" \
        --set train.steps=1000000 --replicas "$replicas" --token token \
        --listen "127.0.0.1:$port" >>log 2>&1 &
    child=$!
    children="$children $child"
    disown
}

declare -A agents
# One that comes back is another node: those that failed twice are not used.
join() { # NAME
    joined=$((joined + 1))
    LOCKSTEP_FAULT=$faults "$program" agent --join "127.0.0.1:$port" \
        --token token --slots "$slots" --name "$1$joined" >>"log.$1" 2>&1 &
    agents[$1]=$!
    children="$children $!"
    disown
}

pause() {
    random 90
    sleep "$((number / 50)).$((number % 50 + 20))"
}

# A rank that lives, of whatever agent, in $victim; else 0.
find_rank() {
    random 4
    victim=$(rank_process nodes $number)
    [ "${victim:-0}" -gt 1 ] || victim=0
}

# The process that sends or keeps copies for the agent, in $victim; else 0.
find_courier() { # AGENT sends|keeps
    local process
    victim=0
    for process in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        ! grep -q "^lockstep:$2" "/proc/$process/comm" 2>/dev/null ||
            victim=$process
    done
}

# hold_up PROCESS: it stands still for a while. Whoever gives it up may kill it.
hold_up() {
    kill -STOP "$1" 2>/dev/null || return
    random 60
    sleep "$((number / 10)).$((number % 10))"
    kill -CONT "$1" 2>/dev/null
}

harm() {
    local one other victim
    # shellcheck disable=SC2086
    of $letters
    one=$drawn
    # shellcheck disable=SC2086
    of ${letters/$one/}
    other=$drawn
    # shellcheck disable=SC2086
    of ${HARMS:-agent agent agents rank supervisor sends keeps stop stop}
    harms="$harms $drawn"
    case $drawn in
    agent)
        kill -9 "${agents[$one]}"
        join "$one" ;;
    agents)
        kill -9 "${agents[$one]}" "${agents[$other]}"
        pause
        join "$one"
        join "$other" ;;
    rank)
        find_rank
        [ "$victim" = 0 ] || kill -9 "$victim" 2>/dev/null ;;
    sends | keeps)
        find_courier "${agents[$one]}" "$drawn"
        [ "$victim" = 0 ] || kill -9 "$victim" 2>/dev/null ;;
    stop)
        of agent rank sends keeps supervisor
        harms="$harms-$drawn"
        case $drawn in
        agent) victim=${agents[$one]} ;;
        rank) find_rank ;;
        sends | keeps) find_courier "${agents[$one]}" "$drawn" ;;
        supervisor) victim=$child ;;
        esac
        [ "$victim" = 0 ] || hold_up "$victim" ;;
    supervisor)
        kill -9 "$child"
        gone "$child" # a busy machine: it has the port
        pause
        supervise ;;
    esac
}

# more_steps NUMBER: false once nothing was done for 180 s: no step, no line of
# the journal. A busy machine may take longer for all of them.
more_steps() {
    local goal=$(($(step_now nodes) + $1)) now done= end=$((SECONDS + 180))
    while [ $SECONDS -lt $end ]; do
        now=$(step_now nodes) # a line that is being written has none yet
        [ "${now:-0}" -lt $goal ] || return 0
        now="$now $(grep -c . nodes/control/journal.jsonl)"
        [ "$now" = "$done" ] || end=$((SECONDS + 180))
        done=$now
        sleep 0.1
    done
    return 1
}

# gone PROCESS: waits for its end; the drill ends where it does not.
gone() {
    timeout 600 tail --pid="$1" -f /dev/null && return
    bad "${name:-the supervisor}" "it did not end within 600 s" log
    last_words
    report
}

# The best checkpoint is that of the run that was left alone. All may have been
# killed before it was saved: then the step is named.
same_best() {
    [ -n "$best" ] || return 0
    lockstep compare nodes.whole/best nodes/best >out 2>&1
    case $? in
    0) ;;
    66) grep -q "lowest at step .*, whose checkpoint is not here" out ;;
    *) false ;;
    esac
}

same_stored() {
    [ -n "$storage" ] || return 0
    lockstep fetch "$storage" stored >out 2>&1 &&
        lockstep compare "$(newest nodes)" "$(newest stored)" >out 2>&1
}

round() { # SEED
    local name=$1 i steps
    joined=0
    harms=
    rm -rf nodes nodes.whole stored shards token try log log.*
    draw "$1"
    # shellcheck disable=SC2086
    if ! lockstep train config.yaml --run try $base $more --dry-run >log 2>&1
    then
        echo "seed $1: $(grep '^error' log)"
        return
    fi
    port=$(free_port)
    : >log
    supervise
    await log listens
    for i in $letters; do join "$i"; done
    await nodes/metrics.jsonl '"step": 1,' 3000
    more_steps 24
    for ((i = 0; i < ${KILLS:-6}; i++)); do
        pause
        harm
    done
    name="seed $1,$harms, $replicas copies, every $every, $slots slots,$base $more${faults:+, $faults}"
    if ! more_steps 15; then
        bad "$name" "no more steps" log
        last_words
        report
    fi
    kill -TERM "$child"
    gone "$child"
    for i in $letters; do kill -9 "${agents[$i]}" 2>/dev/null; done
    case $where in
    local*) must gather nodes ;;
    esac
    steps=$(step_now nodes)
    # A run that keeps its best remembers which that is: both validate at the end.
    # shellcheck disable=SC2086
    if [ -n "$best" ]; then
        steps=$((steps + 3))
        must resume nodes $more --set train.steps=$steps
    fi
    # shellcheck disable=SC2086
    must train config.yaml --run nodes.whole $base --set train.steps="$steps"
    [ -n "$best" ] ||
        sed -i '${/"kind": "validation"/d}' nodes.whole/metrics.jsonl
    if ! lockstep compare "$(newest nodes.whole)" "$(newest nodes)" >out 2>&1
    then bad "$name" "compare: other weights or states" out
    elif ! same_run nodes.whole nodes; then bad "$name" "$why" log
    elif ! lockstep data audit nodes >out 2>&1; then bad "$name" "audit" out
    elif ! same_best; then bad "$name" "another best checkpoint" out
    elif ! same_stored; then bad "$name" "another checkpoint is stored" out
    else ok "$name: $(step_now nodes) steps, $(grep -c '"recovered"' \
        nodes/control/journal.jsonl) recoveries"
    fi
}

seed=${SEED:-1}
for ((n = 0; n < ${ROUNDS:-1}; n++)); do
    round $((seed + n))
done
report
