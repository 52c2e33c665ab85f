#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# batch.sh - the scripts of examples/slurm where there is no Slurm: srun,
# scontrol and the machines are stand-ins. A supervisor that is killed is started
# again and takes its ranks over; a job that is cancelled saves and stays away;
# one whose agents all end does not wait for them until its time limit; a node's
# name that is the loopback address is not listened at. And whoever asks on
# another machine is not told that the run is dead.
#
#     BUILD=build tests/drills/batch.sh
. "${0%/*}/common.sh"

# A script that fails leaves its supervisor and its ranks behind.
leave_all() {
    local process
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/cwd")" = "$room" ] || continue
        process=${process#/proc/}
        [ "$process" = $$ ] || kill -9 "$process" 2>/dev/null
    done
    leave
}
trap leave_all EXIT
prepare
sed -i 's/schedule: cosine, warmup: 3, min_lr: 3.0e-4/schedule: constant/' \
    config.yaml
scripts=$tree/examples/slurm
unset "${!SLURM_@}"
mkdir bin
cat >bin/lockstep <<END
#!/bin/bash
exec "$program" "\$@"
END
# The second word is the name of a node, the last an address where it listens.
cat >bin/scontrol <<'END'
#!/bin/bash
case $* in
"show hostnames"*) printf 'n1\nn2\n' ;;
*"show node"*) echo "NodeName=n1 NodeAddr=$ADDRESS NodeHostName=n1" ;;
requeue*) echo "$*" >>requeued ;;
esac
END
cat >bin/srun <<'END'
#!/bin/bash
while [ "${1#-}" != "$1" ]; do shift; done
[ "$2" = agent ] || exec "$@"
for node in n1 n2; do
    SLURMD_NODENAME=$node "$@" &
    agents="$agents $!"
done
echo $agents >agents
trap 'kill $agents' TERM
while [ -n "$(jobs -rp)" ]; do wait; done
END
printf '#!/bin/bash\nexec /bin/sleep 5\n' >bin/sleep
printf '#!/bin/bash\necho "127.0.1.1 $2"\n' >bin/getent
printf '#!/bin/bash\necho "127.0.0.1 10.0.0.1 "\n' >bin/hostname
chmod +x bin/*

# job NAME SCRIPT ARGUMENT...: starts it; the process of the script is in $child.
job() {
    local name=$1 port
    shift
    rm -f requeued agents
    until port=$(free_port) && [ "$port" -lt 30000 ]; do :; done
    env PATH="$room/bin:$PATH" SLURM_JOB_ID=$((port - 20000)) \
        SLURM_JOB_NUM_NODES=2 SLURM_JOB_NODELIST='n[1-2]' \
        ADDRESS="${ADDRESS:-127.0.0.1}" "$scripts/$1.sbatch" "${@:2}" \
        >"$name.log" 2>&1 &
    child=$!
    children="$children $child"
}

# The supervisor that listens for the job: what RUN's lock says.
supervisor() { # RUN
    cat "$1/control/lock"
}

# until_holds CHECK: it holds, or six minutes of waiting are over.
until_holds() {
    local tries
    for ((tries = 0; tries < 3600; tries++)); do
        "$1" 2>/dev/null && return
        sleep 0.1
    done
    return 1
}

like() { # NAME RUN: the bytes of a run that nobody touched
    must train config.yaml --run "$2.whole" --set validate.every=0 \
        --set train.steps="$(step_now "$2")"
    sed -i '${/"kind": "validation"/d}' "$2.whole/metrics.jsonl"
    if same_run "$2.whole" "$2"; then ok "$1"; else bad "$1" "$why" "$2.log"; fi
}
endless="--set train.steps=1000000 --set mesh.data=2 --set zero=zero1
    --set checkpoint.every=1000000 --set validate.every=0"

# --- the supervisor dies, and later the job comes to its time limit ---
# A name of the first node that is its loopback address: another one is taken.
# shellcheck disable=SC2086
ADDRESS=first job kept supervised config.yaml kept $endless
await kept/metrics.jsonl '"step": 5,' 3600
first=$(supervisor kept)
kill -9 "$first"
await kept.log 'exit 137: the supervisor is started again' 3600
# Agents of a machine that is busy come too late: then the ranks begin again.
has_ranks() {
    grep -q '^took over 2 ranks' kept.log ||
        grep -q '"event": "recovered"' kept/control/journal.jsonl
}
steps_on() { [ "$(step_now kept)" -gt $((before + 3)) ]; }
until_holds has_ranks
held=$?
before=$(step_now kept)
if [ $held -ne 0 ]; then
    bad "a supervisor that is killed is started again" "no ranks" kept.log
elif ! until_holds steps_on || [ "$(supervisor kept)" = "$first" ]; then
    bad "a supervisor that is killed is started again" "no steps" kept.log
else ok "a supervisor that is killed is started again"; fi
if grep -q 'listens *for agents at 127.0.0.1:' kept.log
then ok "not at the loopback address of a name"
else bad "not at the loopback address of a name" "elsewhere" kept.log; fi

# --- on another machine, as where people log in ---
sed 's/"host": "[^"]*"/"host": "n1.cluster"/' kept/control/journal.jsonl >moved
mkdir -p seen/control
cp kept/config.yaml kept/metrics.jsonl seen
# Its supervisor and its ranks live, under these numbers, on that machine.
sed 's/"began": [0-9]*/"began": 1/g' moved >seen/control/journal.jsonl
lockstep status seen >out 2>&1
if grep -q '^state *is not known here' out && grep -q '^machine *n1.cluster: ' out &&
    ! grep -q 'dead\|gone\|continue' out
then ok "status on another machine"
else bad "status on another machine" "says what it cannot know" out; fi
lockstep status seen --json >out 2>&1
if grep -q '"state": "elsewhere"' out && grep -q '"lives": null' out
then ok "status --json on another machine"
else bad "status --json on another machine" "not so" out; fi

kill -USR1 "$child"
ended "$child"
code=$?
if [ $code -eq 75 ] && [ -s requeued ]; then ok "asked to save: requeued"
else bad "asked to save: requeued" "exit $code" kept.log; fi
like "the same bytes" kept

# --- all agents end ---
# shellcheck disable=SC2086
job left supervised config.yaml left $endless
await left/metrics.jsonl '"step": 5,' 3600
# shellcheck disable=SC2046
kill -9 $(cat agents)
ended "$child" 300
code=$?
if [ $code -eq 68 ] && [ ! -e requeued ] && grep -q 'no agent is left' left.log
then ok "all agents end: so does the job"
else bad "all agents end: so does the job" "exit $code" left.log; fi

# --- cancelled ---
for script in array mpi; do
    run=$script
    [ $script = mpi ] || run=array/0
    export SLURM_ARRAY_TASK_ID=0
    if [ $script = array ]; then
        job $script array config.yaml array train.steps=1000000
    else
        job $script mpi config.yaml mpi --set train.steps=1000000
    fi
    await $run/metrics.jsonl '"step": 5,' 3600
    kill -TERM "$child"
    ended "$child"
    code=$?
    if [ $code -ne 75 ] || [ -e requeued ]; then
        bad "$script: cancelled" "exit $code" $script.log
    elif [ "$(cat $run/ckpt/latest)" != \
        "$(printf 'step-%08d' "$(step_now $run)")" ]; then
        bad "$script: cancelled" "the last step was not saved" $script.log
    else ok "$script: a job that is cancelled saves and stays away"
    fi
done
report
