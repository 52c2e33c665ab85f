#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# slurm.sh - the scripts of examples/slurm under a real Slurm: two nodes on this
# machine, loopback only. A job at its time limit, jobs that are asked to save,
# arrays: they go back into the queue and end in the bytes of a run that was left
# alone. A cancelled job stays away, as one that cannot work does. The time limit
# takes up to 90 s, in which nothing runs: Slurm looks that often.
#
#     BUILD=build tests/drills/slurm.sh
PATH=$PATH:/usr/sbin:/sbin
. "${0%/*}/common.sh"
for name in munged slurmctld slurmd sbatch srun scontrol; do
    command -v $name >/dev/null && continue
    echo "not run: no Slurm on this machine ($name is missing)"
    exit 77
done

# --- a cluster: one controller, nodes n1 and n2, everything in $room ---
port=$((12000 + RANDOM % 7000)) # none that systems give to clients
host=$(hostname -s)
me=$(id -un)
unset "${!SLURM_@}"
export SLURM_CONF=$room/slurm.conf PATH=$BUILD:$PATH
mkdir state n1 n2
head -c 64 /dev/urandom >munge.key
chmod 600 munge.key
# Slurm keeps a job that was requeued for cred_expire seconds.
cat >slurm.conf <<END_OF_FILE
ClusterName=drill
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
AuthType=auth/munge
AuthInfo=socket=$room/munge.socket,cred_expire=5
SlurmUser=$me
SlurmdUser=$me
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=10
MinJobAge=3000
StateSaveLocation=$room/state
SlurmdSpoolDir=$room/%n
SlurmctldPidFile=$room/slurmctld.pid
SlurmdPidFile=$room/slurmd.%n.pid
SlurmctldLogFile=$room/slurmctld.log
SlurmdLogFile=$room/slurmd.%n.log
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=16
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=16
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END_OF_FILE

daemon() { # COMMAND...
    "$@" >>daemons.log 2>&1 &
    children="$children $!"
    disown
}

until_true() { # SECONDS COMMAND...
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        sleep 0.1
        [ $SECONDS -lt $until ] || return 1
    done
}

no_jobs() { [ -z "$(squeue -h)" ]; }

end_all() {
    scancel --full --signal=KILL $(squeue -h -o %A) 2>/dev/null
    until_true 15 no_jobs
    leave
}
trap end_all EXIT

both_idle() { [ "$(sinfo -h -N -t idle -o %N | sort -u | wc -l)" -eq 2 ]; }

daemon munged --force --foreground --num-threads=2 --key-file="$room/munge.key" \
    --socket="$room/munge.socket" --pid-file="$room/munged.pid" \
    --log-file="$room/munged.log" --seed-file="$room/munge.seed"
until_true 10 test -S munge.socket
daemon slurmctld -D
daemon slurmd -D -N n1
daemon slurmd -D -N n2
until_true 30 both_idle || {
    tail -n 3 slurmctld.log daemons.log >&2
    echo "not run: Slurm does not start on this machine"
    exit 77
}

# --- jobs ---
prepare
long="--set train.steps=600 --set checkpoint.every=50 --set validate.every=50"
must train config.yaml --run whole
# shellcheck disable=SC2086
must train config.yaml --run whole.long $long

# The first start of a job with SLOW waits 2 s before some steps.
mkdir bin
for i in $(seq 8 15); do slow=${slow:+$slow,}train.step:$i:slow; done
cat >bin/lockstep <<END_OF_FILE
#!/bin/bash
[ -z "\$SLOW" ] || [ -n "\$SLURM_RESTART_COUNT" ] ||
    export LOCKSTEP_FAULT=$slow
exec "$program" "\$@"
END_OF_FILE
chmod +x bin/lockstep
export PATH=$room/bin:$PATH

state_is() { # JOB STATE
    scontrol -o show job "$1" | grep -q "JobState=$2 "
}

over() { # JOB: it neither runs nor waits
    ! scontrol -o show job "$1" |
        grep -qE 'JobState=(PENDING|RUNNING|COMPLETING|CONFIGURING|REQUEUED|SIGNALING) '
}

restarts() { # JOB
    scontrol -o show job "$1" | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p'
}

reached() { # RUN STEP
    grep -q "\"step\": $2," "$1/metrics.jsonl"
}

submit() { # SCRIPT... -> $job; its output is in JOB.log
    job=$(sbatch --parsable --output=%j.log --chdir="$room" "$@" 2>sbatch.log) ||
        bad "sbatch $*" "refused" sbatch.log
}

process_of() { # RUN RANK
    local log=$1/logs/rank-0000$2.log
    [ "$2" -ne 0 ] || log=$1/log.txt
    sed -n 's/.*process \([0-9]*\)$/\1/p' "$log" | head -n 1
}

# SIGUSR1 waits for this process: bit 9 of the signals that are pending.
is_asked() { # PROCESS
    local bits
    bits=$(sed -n 's/^ShdPnd:.*\(...\)$/\1/p' "/proc/$1/status") || return
    [ $((0x$bits & 0x200)) -ne 0 ]
}

# Or it had come before the rank was stopped, which then has ended.
was_asked() { # PROCESS
    is_asked "$1" || ! kill -0 "$1" 2>/dev/null ||
        grep -q 'stopped on SIGUSR1' "$limit.log"
}

# goes_on NAME JOB RUN WHOLE: started twice, ended well, with the same bytes
goes_on() {
    until_true 180 over "$2"
    if ! state_is "$2" COMPLETED; then
        bad "$1" "$(scontrol -o show job "$2" | grep -o 'JobState=[A-Z]*')" \
            "$2.log"
    elif [ "$(restarts "$2")" != 1 ]; then
        bad "$1" "$(restarts "$2") restarts where 1 is expected" "$2.log"
    elif ! grep -q 'exit 75: the job goes back into the queue' "$2.log"; then
        bad "$1" "does not say that it goes back into the queue" "$2.log"
    elif ! same_run "$4" "$3"; then
        bad "$1" "$why" "$2.log"
    else
        ok "$1"
    fi
}

scripts=$tree/examples/slurm
find_mpi
limit=
case " $mpis " in
*" openmpi "*) mpi=pmix ;;
*" mpich "*) mpi=pmi2 ;;
*) mpi= ;;
esac
if [ -n "$mpi" ]; then # first: it takes longest
    SLOW=1 MPI=$mpi OMPI_MCA_rmaps_base_oversubscribe=1 submit --time=10 \
        --signal=B:USR1@540 --nodes=1 --ntasks-per-node=2 --cpus-per-task=1 \
        "$scripts/mpi.sbatch" config.yaml limit --set comm.limit=600
    limit=$job
    until_true 60 reached limit 7 || bad "MPI" "no steps" "$limit.log"
    ranks="$(process_of limit 0) $(process_of limit 1)"
    # shellcheck disable=SC2086
    kill -STOP $ranks 2>/dev/null
fi

# shellcheck disable=SC2086
RANKS=2 SLOTS=2 submit --cpus-per-task=1 "$scripts/supervised.sbatch" \
    config.yaml agents $long --set mesh.data=2 --set zero=zero1 \
    --set train.threads=1 --set comm.limit=60
agents=$job
until_true 60 reached agents 20 || bad "agents" "no steps" "$agents.log"
scancel --batch --signal=USR1 "$agents"
submit --array=0-1 --cpus-per-task=1 "$scripts/array.sbatch" config.yaml sweep \
    train.threads=1 mesh.data=1
sweep=$job
if until_true 20 grep -q 'node *n1 joined' "$agents.log" &&
    until_true 20 grep -q 'node *n2 joined' "$agents.log"
then ok "one agent on each node of the job, named as Slurm does"
else bad "one agent on each node of the job" "not said" "$agents.log"; fi

# A job that was cancelled saves and stays away.
submit --nodes=1 --ntasks-per-node=1 --array=0 --cpus-per-task=1 \
    "$scripts/array.sbatch" config.yaml gone train.steps=100000
gone=$job
until_true 60 reached gone/0 5 || bad "cancelled" "no steps" "$gone"_0.log
scancel --full --signal=TERM "$gone"
until_true 60 over "$gone"
[ "$(restarts "$gone")" = 0 ] && ok "a cancelled job stays away" ||
    bad "a cancelled job stays away" "$(restarts "$gone") restarts"

# One that cannot work ends, and does not come again.
submit --nodes=1 --ntasks-per-node=1 --cpus-per-task=1 --array=0 \
    "$scripts/array.sbatch" config.yaml wrong model.heads=5
wrong=$job
until_true 60 over "$wrong"
if state_is "$wrong" FAILED && [ "$(restarts "$wrong")" = 0 ] &&
    scontrol -o show job "$wrong" | grep -q 'ExitCode=78:0'
then ok "a job whose configuration is impossible ends with 78"
else bad "an impossible configuration" "not FAILED with 78" "$wrong".log; fi

goes_on "agents under srun: asked to save, requeued" "$agents" agents whole.long
until_true 120 over "$sweep"
for i in 0 1; do
    if same_run whole sweep/$i; then ok "task $i of an array"
    else bad "task $i of an array" "$why" "$sweep.log"; fi
done
if [ -n "$limit" ]; then
    until_true 90 grep -q '^SIGUSR1: ' "$limit.log" ||
        { echo "left out: this Slurm did not look at time limits"; limit=; }
    for rank in $ranks; do
        [ -n "$limit" ] || break
        if until_true 60 was_asked "$rank"
        then ok "the time limit: a rank was sent SIGUSR1"
        else bad "the time limit" "a rank was not sent SIGUSR1" "$limit.log"; fi
    done
    # shellcheck disable=SC2086
    kill -CONT $ranks 2>/dev/null
    [ -z "$limit" ] || goes_on "MPI: all ranks saved, requeued" "$limit" \
        limit whole
fi
# Remains of a start without a checkpoint are set aside: here without Slurm.
mkdir -p stub lost/ckpt
printf '#!/bin/bash\nshift\nexec "$@"\n' >stub/srun
chmod +x stub/srun
echo begun >lost/metrics.jsonl
if env PATH="$room/stub:$PATH" SLURM_RESTART_COUNT=1 SLURM_JOB_ID=1 \
    "$scripts/mpi.sbatch" config.yaml lost >lost.log 2>&1 &&
    same_run whole lost && grep -q begun lost.lost-1/metrics.jsonl
then ok "a start that was killed before its first checkpoint"
else bad "a start that was killed before its first checkpoint" "$why" lost.log
fi
if [ $failed -gt 0 ] && ! timeout 30 scontrol ping | grep -q UP; then
    echo "not run: slurmctld does not answer any more"
    exit 77
fi
report
