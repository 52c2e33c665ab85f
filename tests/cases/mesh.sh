#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mesh.sh - layouts at the command line: what is refused and how, what plan
# shows, a log for each rank, ranks that do not agree, one that stands still.
#
#     BUILD=build tests/cases/mesh.sh
. "${0%/*}/common.sh"
export LOCKSTEP_PLUGINS=$(dirname "$program")

says() { # WORDS FILE
    cp "$2" "$work/out" 2>/dev/null
    if grep -q -- "$1" "$2"; then ok; else bad "$2 does not say \"$1\""; fi
}

mkdir text
awk -v RS= '{ printf "%s\n", $0 > sprintf("text/%03d.txt", NR) }' \
    "$tree/LICENSE"
"$program" tokenizer train text --vocab 300 --out tokenizer.json >out 2>&1 ||
    bad "tokenizer train"
cat > config.yaml <<'END'
version: 1
seed: 3
model: {family: llama, vocab: 300, layers: 2, width: 24, heads: 4, kv_heads: 2}
tokenizer: {from: tokenizer.json}
data: {train: [text], sequence: 24}
train: {steps: 3, batch: 24}
END

# --- refused: one sentence before anything is made, and what would do ---
refused() { # WORDS ARGUMENTS...
    local words=$1
    shift
    ends 78 "$words" "$program" train config.yaml --run none "$@"
    if [ "$(grep -c '^error' "$work/out")" -eq 1 ] && [ ! -e none ]; then ok
    else bad "more than one sentence, or a directory: $*"; fi
}
refused "but there are 4" --ranks 4 --set mesh.data=3
refused "but there are 2" --ranks 2 --set mesh.data=4
refused "both data and tensor are auto" --ranks 2 --set mesh.data=-1 \
    --set mesh.tensor=auto
refused "share a batch of 24 sequences equally; 4 can" --ranks 5
refused "8 data leaves; 2 or 4 can" --ranks 3
says "hint: a new run can have numerics.grid_data=3" "$work/out"
refused "mesh.tensor: 3 ranks do not divide 4 heads" --ranks 3 \
    --set mesh.tensor=3
refused "mesh.context: 2 ranks do not divide the grid's 1 context leaf" \
    --ranks 2 --set mesh.context=2
refused "more stages than the model's 2 blocks; 2 can be" --ranks 4 \
    --set mesh.pipe=4
# No schedule of 8,192 ranks is made to find that out.
ends 78 "at most 4,096 can" "$program" plan config.yaml --ranks 8192 \
    --set train.batch=8192 --set train.micro_batch=1 --set mesh.data=8192 \
    --set numerics.grid_data=4096
says "hint: --ranks 4096 --set mesh.data=4096 fits" "$work/out"
refused "mesh.layers: 3 blocks in all" --ranks 2 --set mesh.pipe=2 \
    --set 'mesh.layers=[1,2]'
refused "mesh.layers: 1 number for a pipeline of 2 stages" --ranks 2 \
    --set mesh.pipe=2 --set 'mesh.layers=[2]'
says "hint: --set mesh.layers=\[\] divides the blocks evenly" "$work/out"
refused "3 does not divide" --ranks 3 --set numerics.mode=fast \
    --set train.micro_batch=3
refused "tensr is not an axis" --ranks 2 --set mesh.order=tensr

# --- fast: the grid gives way, the run says and keeps it ---
ends 0 "the grid gave way to the layout" "$program" train config.yaml --run fast --ranks 3 \
    --set numerics.mode=fast
says "mode: fast" fast/config.yaml
ends 78 "do not divide the grid" "$program" resume fast --ranks 3 \
    --set train.steps=4 --set numerics.mode=exact
ends 0 "finished 4 steps" "$program" resume fast --ranks 3 \
    --set train.steps=4

# --- the mesh, printed and drawn before anything runs ---
for layout in "1" "4 mesh.shard=2 zero=fsdp" "8 mesh.pipe=2 mesh.tensor=2" \
    "8 mesh.pipe=2 mesh.context=2 numerics.grid_context=2 zero=zero1" \
    "2 mesh.pipe=2 schedule.name=dualpipe train.micro_batch=3"; do
    read -r ranks keys <<<"$layout"
    ends 0 '"messages"' "$program" plan config.yaml --explain mesh --json \
        --ranks "$ranks" ${keys:+$(printf -- '--set %s ' $keys)}
    count=$(grep -c '"rank": ' out)
    [ "$count" -eq "$ranks" ] && ok || bad "$count ranks shown of $layout"
done
# Expert ranks have a column and a group; many stages end in "...".
cat >experts.yaml <<'END'
model: {family: mixtral, vocab: 300, layers: 32, width: 32, heads: 2, kv_heads: 2}
moe: {experts: 4, top_k: 2, intermediate_size: 32}
data: {sequence: 32}
train: {batch: 8, micro_batch: 1, steps: 1}
END
ends 0 '"expert": 3' "$program" plan experts.yaml --ranks 4 --set mesh.expert=4 \
    --explain mesh --json
ends 0 "^expert  *4  .*divided by experts" "$program" plan experts.yaml \
    --ranks 4 --set mesh.expert=4 --explain mesh
ends 0 "18, \.\.\." "$program" plan experts.yaml --ranks 2 \
    --set mesh.pipe=2 --set schedule.name=interleaved \
    --set schedule.chunks=16 --explain mesh
ends 0 "ranks 4 to 123 are not shown" "$program" plan config.yaml \
    --explain mesh --ranks 128 --set mesh.tensor=4 --set mesh.context=16 \
    --set mesh.data=2 --set numerics.mode=fast --set data.sequence=256
ends 0 "blocks" "$program" plan config.yaml --explain mesh --ranks 4 \
    --set mesh.pipe=2 --draw mesh.svg
says "pipe 1" mesh.svg
ends 0 "the grid costs 0.* of the step's operations" "$program" plan \
    config.yaml --explain numerics
ends 2 "rank: 4" "$program" plan config.yaml --ranks 4 --rank 4

# --- a log for each rank ---
ends 0 "finished" "$program" train config.yaml --run logs --ranks 4
says "rank 0 debug mesh: rank 0 of data 4" logs/log.txt
for rank in 1 2 3; do
    says "rank $rank debug mesh: .* data $rank," logs/logs/rank-0000$rank.log
    says "rank $rank debug train: ended after step 3: finished" \
        logs/logs/rank-0000$rank.log
done
[ "$(wc -l < logs/metrics.jsonl)" -ge 3 ] && ok || bad "no metrics"

# --- ranks that are processes ---
launch() { # MPI COMMAND...
    local mpi=$1
    shift
    case $mpi in
    openmpi) mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 "$@" ;;
    mpich) mpirun.mpich -n 2 "$@" ;;
    esac
}
# Rank 1 gets an argument more, or stands still once $run has begun, until the other one
# says so.
cat > odd.sh <<'END'
#!/bin/bash
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
odd=$1
shift
[ "$rank" = 1 ] || exec "$@"
[ "$odd" = stand ] || exec "$@" --set "$odd"
(
    while [ ! -s "$run/metrics.jsonl" ] && kill -0 $$; do sleep 0.2; done
    kill -STOP $$
    until grep -q 'has not come' "$run.log" || ! kill -0 $$; do sleep 0.1; done
    kill -KILL $$
) >/dev/null 2>&1 &
exec "$@"
END
chmod +x odd.sh
# Both MPIs beside each other: most of it is waiting.
begun=
for mpi in openmpi mpich; do
    if ! [ -e "$LOCKSTEP_PLUGINS/comm_$mpi.so" ] ||
        ! command -v mpirun.$mpi >/dev/null; then
        echo "left out: no $mpi"
        continue
    fi
    begun="$begun $mpi"
    (
        timeout 400 bash -c "$(declare -f launch); launch $mpi ./odd.sh \
            train.batch=12 $program train config.yaml --run odd-$mpi" \
            >odd-$mpi.log 2>&1
        export run=still-$mpi
        timeout 400 bash -c "$(declare -f launch); launch $mpi ./odd.sh stand \
            $program train config.yaml --run $run --set comm.limit=10 \
            --set train.steps=1000000" >still-$mpi.log 2>&1
    ) &
done
wait
for mpi in $begun; do
    says '"train.batch=12" here, "train.batch=24" there' odd-$mpi.log
    says 'rank 1 has not come within 10' still-$mpi.log
done

report
