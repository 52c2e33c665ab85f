#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mesh_auto.sh - `mesh: auto`: search's best layout is chosen once, by rank 0,
# recorded, kept by a resumed run, and leaves every bit as it was.
. "${0%/*}/common.sh"
export LOCKSTEP_PLUGINS=$BUILD

prepare
sed -i 's/steps: 30/steps: 10/; s/, micro_batch: 4//; s/, threads: 1//' \
    config.yaml
{ cat config.yaml; echo 'mesh: auto'; } >auto.yaml

# chosen RUN: lines of the recorded configuration that search wrote.
chosen() { grep -c '# search' "$1/config.yaml"; }
mesh_of() { sed -n '/^mesh:/,/^[a-z]*:/p' "$1/config.yaml" | grep -v order; }
# took NAME RUN: the run recorded a layout and trained the bits of `given`.
took() {
    if [ "$(chosen "$2")" -ge 6 ] && grep -q 'layout: chosen' \
        "$2/config.yaml"; then
        ok "$1: recorded"
    else bad "$1: recorded" "$(chosen "$2") lines of search" log; fi
    if same_run given "$2"; then ok "$1: the same bits"
    else bad "$1: the same bits" "$why"; fi
}
must train config.yaml --ranks 1 --run given
must train auto.yaml --ranks 2 --run threads
if grep -q '^mesh  *auto: 2 ranks as .* by cpu' log &&
    grep -q 'no profile of this machine' log; then
    ok "what was chosen, and for which machine"
else bad "what was chosen, and for which machine" "it is not said" log; fi
took threads threads
must launch --ranks 2 -- "$program" train auto.yaml --run launched
took "launched ranks" launched
if [ "$(grep -c 'mesh  *auto' log)" -eq 1 ]; then ok "rank 0 alone chooses"
else bad "rank 0 alone chooses" "$(grep -c 'mesh  *auto' log) times" log; fi
find_mpi
for mpi in $mpis; do
    with_mpi $mpi 2 "$program" train auto.yaml \
        --run "of_$mpi" >log 2>&1 || bad "$mpi" "it failed" log
    took "$mpi" "of_$mpi"
done
must train auto.yaml --ranks 2 --supervised --run watched
took supervised watched

# A run that goes on keeps what was chosen, whatever search would say now.
must train auto.yaml --ranks 2 --run again --set mesh.pipe=2 \
    --set train.steps=5 --set optimizer.schedule=constant
mesh_of again >before
must resume again --set train.steps=10
if ! grep -q '^mesh  *auto' log; then ok "resume does not choose again"
else bad "resume does not choose again" "it does" log; fi
mesh_of again >after
if cmp -s before after && grep -q 'pipe: 2' after; then
    ok "resume keeps the layout"
else bad "resume keeps the layout" "$(diff before after)"; fi
must resume again --set train.steps=11 --set mesh=auto --ranks 4
if grep -q '^mesh  *auto: 4 ranks' log; then ok "resume chooses when asked"
else bad "resume chooses when asked" "not" log; fi

# The stage with the head gets fewer of 5 blocks: the same bits. A resumed run that chooses again
# divides them anew.
five="--set model.layers=5 --set numerics.grid_data=1 --set numerics.grid_tensor=1"
must train config.yaml --ranks 1 --run five $five
must train auto.yaml --ranks 2 --run fewer $five --set schedule.name=1f1b
if grep -q 'layers: \[3, 2\] *# search' fewer/config.yaml; then ok "fewer blocks beside the head"
else bad "fewer blocks beside the head" "others" fewer/config.yaml; fi
if same_run five fewer; then ok "fewer blocks beside the head: the same bits"
else bad "fewer blocks beside the head: the same bits" "$why"; fi
must resume fewer --set train.steps=11 --set mesh=auto --ranks 1
if grep -q 'layers: \[\]' fewer/config.yaml; then ok "blocks are divided anew"
else bad "blocks are divided anew" "as before" fewer/config.yaml; fi

# An axis that is set stays; plan chooses what train would; search is not hindered.
expect "an axis that is set" 0 "pipe 2" plan auto.yaml --ranks 4 \
    --set mesh.pipe=2 --set zero=ddp
expect "plan chooses" 0 "auto: 2 ranks" plan auto.yaml --ranks 2
expect "plan --time chooses" 0 "auto: 2 ranks" plan auto.yaml --ranks 2 \
    --time --machine cpu
# Planned for less memory: another layout. simulate takes that of plan.
cat >large.yaml <<'END'
model: {family: llama, vocab: 32000, layers: 32, width: 4096, heads: 32, feed_forward: 11008}
data: {sequence: 4096}
train: {batch: 64, steps: 10, dtype: bfloat16}
mesh: auto
END
expect "mesh: auto fits --max-memory" 0 "fits" plan large.yaml --ranks 8 --machine h100 --time \
    --max-memory 3e10
echo '{"slow": [{"rank": 0, "factor": 1.5}]}' >slow.json
planned=$(lockstep plan auto.yaml --ranks 8 --machine h100 --time --json 2>err |
    sed -n 's/^  "step_s": //p')
healthy=$(lockstep simulate auto.yaml --ranks 8 --machine h100 --perturb slow.json --json \
    2>err | sed -n 's/^  "healthy_step_s": //p')
if [ -n "$planned" ] && [ "$planned" = "$healthy" ]; then ok "simulate and mesh: auto"
else bad "simulate and mesh: auto" "$healthy, not $planned s" err; fi
expect "search of mesh: auto" 0 "candidates" search auto.yaml --ranks 2 \
    --machine cpu
expect "a preset that is named" 0 "by h100" train auto.yaml --ranks 2 \
    --dry-run --run none --set machine=h100
expect "mesh=auto on the command line" 0 "auto: 2 ranks" plan config.yaml \
    --ranks 2 --set mesh=auto
# Halves of a sequence are for context ranks alone.
expect "an odd sequence" 0 "auto: 2 ranks" plan auto.yaml --ranks 2 --set data.sequence=47
expect "an odd sequence, one rank" 0 "auto: 1 rank " plan auto.yaml --ranks 1 --set data.sequence=47
expect "nothing to divide among one rank" 0 "auto: 1 rank " plan auto.yaml --ranks 1 --set zero=fsdp
# The grid is not touched: leaves that no rank divides leave one layout.
expect "the grid decides" 0 "as pipe 2" plan auto.yaml --ranks 2 \
    --set numerics.grid_data=1 --set numerics.grid_tensor=1

# --- mistakes ---
expect "nothing fits" 79 "none of" train auto.yaml --ranks 2 --run none \
    --set train.memory=0.000001
expect "nothing divides" 79 "agrees with what is set" plan auto.yaml \
    --ranks 2 --set mesh.tensor=3
expect "a shard axis" 78 "mesh.shard: 2" plan auto.yaml --ranks 2 \
    --set mesh.shard=2
experts="--set model.family=mixtral --set moe.experts=4 --set mesh.tensor=2"
expect "a fold that is set stays" 0 "expert_tensor 1" plan auto.yaml --ranks 4 \
    $experts --set mesh.expert_tensor=1
expect "ranks that cut an expert" 78 "chooses between 0 and 1" plan auto.yaml \
    --ranks 4 $experts --set mesh.expert_tensor=2
expect "an unknown machine" 78 "machine: h10 is neither" train auto.yaml \
    --ranks 2 --run none --set machine=h10
expect "another word" 78 "mesh.layout: best is not given or auto" plan \
    config.yaml --set mesh=best
expect "another section" 78 "is a section" plan config.yaml --set train=auto
echo '{"version": 1, "key": "Abacus, 1 core", "constants": {}}' >foreign.json
expect "a profile of another machine" 78 "Abacus" train auto.yaml --ranks 2 \
    --run none --set machine=foreign.json
if [ ! -e none ]; then ok "nothing was made"
else bad "nothing was made" "a directory"; fi
report
