#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plans.sh - plans of very large models: what they cost, and that no number
# wraps around.
. "${0%/*}/common.sh"
cat >config.yaml <<'END'
version: 1
model: {family: llama, vocab: 256, layers: 2, width: 32, heads: 4}
data: {train: [text.txt], sequence: 32}
train: {steps: 5, batch: 8}
END
echo 'ba be bi.' >text.txt

# --- ten thousand layers: about a second of one core, minutes when a pass is
# quadratic. The bound is of processor time, so that other work is not counted.
moment() { # NAME ARGUMENT...
    local name=$1
    shift
    if (ulimit -t "${MOMENT:-20}" && lockstep plan config.yaml \
        --set model.layers=10000 "$@") >log 2>&1; then ok "10,000 layers: $name"
    else bad "10,000 layers: $name" "exit $?" log
    fi
}
moment "one rank"
moment "blocks again" --set 'train.recompute=[block]'
moment "divided weights" --ranks 8 --set zero=fsdp
moment "a pipeline" --ranks 4 --set mesh.pipe=4
moment "pieces" --ranks 2 --set mesh.tensor=2 --set tensor.overlap=2 \
    --set tensor.domino=true --set zero=fsdp
moment "adapters" --set lora.rank=2
moment "groups" --set 'optimizer.groups=["layers.1* frozen", "*norm* lr_factor=0.1"]'
moment "the mesh" --ranks 2 --set mesh.tensor=2 --explain mesh

report
