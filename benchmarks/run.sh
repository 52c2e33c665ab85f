#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh - measures this machine and stores the result with its date and
# command: whole steps of four models beside the bound of their products, every
# kernel beside its limit, schedules, messages beside MPI's own. Run it on an
# otherwise idle machine.
#
#     benchmarks/run.sh [OUT_DIR]      default: benchmarks/results
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

for model in gpt2-124m llama-58m llama-10m llama-1m; do
    "$program" bench step --model $model
    store "step-$model" "$program" bench step --model $model --json
done
"$program" bench kernels
store kernels "$program" bench kernels --json
"$program" bench schedules
store schedules "$program" bench schedules --json
"$program" bench comm --ranks 2
store comm-threads "$program" bench comm --ranks 2 --json
for mpi in openmpi mpich; do
    command -v mpirun.$mpi >/dev/null || continue
    allow=
    [ $mpi = mpich ] || allow="--allow-run-as-root --oversubscribe"
    store comm-$mpi mpirun.$mpi $allow -n 2 "$program" bench comm --json
done
