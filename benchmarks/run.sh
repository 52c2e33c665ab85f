#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh - measures this machine and stores the result with its date and
# command: whole steps of four models beside the bound of their products, every
# kernel beside its limit, schedules, messages beside MPI's own. Run it on an
# otherwise idle machine.
#
#     benchmarks/run.sh [OUT_DIR]      default: benchmarks/results
#
# QUICK=1 measures a little of each in seconds: to see that it works.
# shellcheck disable=SC2086
set -eu
cd "$(dirname "$0")/.."
program=${LOCKSTEP:-build/lockstep}
out=${1:-benchmarks/results}
day=$(date -u +%Y-%m-%d)
cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
name=$(printf '%s' "$cpu" | tr -cs 'A-Za-z0-9' '-' | sed 's/^-//; s/-$//')
mkdir -p "$out"

# store FILE COMMAND...: the command's JSON wrapped with where it comes from
store() {
    file=$out/$day-$name-$1.json
    shift
    printf '{"date":"%s","cpu":"%s","cores":%s,"command":"%s","result":' \
        "$day" "$cpu" "$(nproc)" "$*" >"$file.part"
    "$@" >>"$file.part"
    printf '}\n' >>"$file.part"
    mv "$file.part" "$file"
    echo "$file"
}

models="gpt2-124m llama-58m llama-10m llama-1m"
steps= kernels= schedules= messages=
if [ -n "${QUICK:-}" ]; then
    models=llama-1m steps="--steps 1" kernels="--ms 5 --only rmsnorm"
    schedules="--ranks 16 --repeats 1" messages="--bytes 65536 --ms 20"
fi
for model in $models; do
    "$program" bench step --model $model $steps
    store "step-$model" "$program" bench step --model $model $steps --json
done
"$program" bench kernels $kernels
store kernels "$program" bench kernels $kernels --json
"$program" bench schedules $schedules
store schedules "$program" bench schedules $schedules --json
"$program" bench comm --ranks 2 $messages
store comm-threads "$program" bench comm --ranks 2 $messages --json
for mpi in openmpi mpich; do
    command -v mpirun.$mpi >/dev/null || continue
    allow=
    [ $mpi = mpich ] || allow="--allow-run-as-root --oversubscribe"
    store comm-$mpi mpirun.$mpi $allow -n 2 "$program" bench comm $messages --json
done
