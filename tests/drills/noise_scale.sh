#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# noise_scale.sh - the gradient-noise scale changes nothing, survives a kill,
# and is the same on any ranks.
. "${0%/*}/common.sh"
prepare

noise="--set train.noise_scale=3 --set train.noise_leaves=3
    --set numerics.grid_context=2"
# shellcheck disable=SC2086
{
must train config.yaml --run plain --set numerics.grid_context=2
must train config.yaml --run noise $noise
weights=model-00001-of-00001.safetensors
if [ "$(grep -c '"noise_scale": [0-9]' noise/metrics.jsonl)" -ge 8 ] &&
    cmp -s "$(newest plain)/$weights" "$(newest noise)/$weights"; then
    ok "the noise scale is measured and changes nothing"
else bad "the noise scale is measured and changes nothing" "other weights"
fi
LOCKSTEP_FAULT=train.step:14:kill lockstep train config.yaml --run part $noise \
    >log 2>&1
must resume part
if same_run noise part; then ok "its averages survive"
else bad "its averages survive" "$why"; fi
for mesh in mesh.data=2 mesh.tensor=2 mesh.pipe=2 mesh.shard=2,zero=fsdp \
    mesh.context=2; do
    rm -rf part
    must train config.yaml --run part --ranks 2 $noise \
        $(printf -- '--set %s ' ${mesh//,/ })
    if same_run noise part; then ok "noise scale on ranks: $mesh"
    else bad "noise scale on ranks: $mesh" "$why"; fi
done
}
# A pipeline draws its second step, which is measured here as well.
must train config.yaml --run each --set train.noise_scale=1 --set train.steps=3
must train config.yaml --run drawn --set train.noise_scale=1 \
    --set train.steps=3 --ranks 2 --set mesh.pipe=2 --set train.micro_batch=1
if [ -s drawn/timeline.svg ] && same_run each drawn; then
    ok "a step that is drawn is measured"
else bad "a step that is drawn is measured" "$why"; fi
for command in plan verify "train --run none"; do
    # shellcheck disable=SC2086
    expect "$command: one leaf has no noise" 78 "numerics.grid_data is 1" \
        $command config.yaml --set numerics.grid_data=1 \
        --set train.noise_scale=2
done

report
