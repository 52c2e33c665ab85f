#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# pipe_ranks.sh - ranks that cut the model's blocks change no bit, whatever the
# schedule: every row of the table, schedules from text files, stages of
# different lengths, a matrix that two stages share, all with other axes. What
# each rank sends and holds is the plan's, to the byte (verify checks both).
. "${0%/*}/../drills/common.sh"
prepare
LIMIT=600

# exact NAME CONFIG LAYOUT...: every layout has the bits of one rank.
exact() {
    local name=$1 config=$2
    shift 2
    printf '%s\n' "$@" >layouts.txt
    if lockstep verify "$config" --layouts layouts.txt --steps 2 >log 2>&1
    then
        ok "$name ($# layouts)"
    else
        bad "$name" "exit $?" log
    fi
}

sed 's/steps: 30/steps: 2/; s/layers: 2/layers: 8/; s/micro_batch: 4/micro_batch: 1/; s/warmup: 3/warmup: 1/' \
    config.yaml >llama.yaml
sed 's/feed_forward: 40/feed_forward: 40, tied: true/' llama.yaml >tied.yaml
sed 's/family: llama/family: gpt2/; s/ kv_heads: 2, head_width: 6,//' \
    llama.yaml >gpt2.yaml
schedules="gpipe gpipe-early-send 1f1b 1f1b-early-send interleaved
    breadth-first zb-h1 zb-h2 zb-1p zb-2p zb-v v-half v-min dualpipe dualpipev"

for ranks in 2 4; do
    rows=()
    for name in $schedules; do
        rows+=("ranks=$ranks mesh.pipe=$ranks schedule.name=$name")
    done
    exact "all schedules, $ranks ranks" tied.yaml "${rows[@]}"
done
exact "gpt2" gpt2.yaml \
    "ranks=2 mesh.pipe=2 schedule.name=zb-v train.recompute=block" \
    "ranks=4 mesh.pipe=4 schedule.name=dualpipe train.recompute=norm" \
    "ranks=8 mesh.pipe=8"
sed 's/float32/float64/' llama.yaml >float64.yaml
exact "float64" float64.yaml \
    "ranks=4 mesh.pipe=2 mesh.data=2 schedule.name=zb-h2" \
    "ranks=2 mesh.pipe=2 schedule.name=v-min"
exact "uneven" tied.yaml \
    "ranks=2 mesh.pipe=2 mesh.layers=[1,7]" \
    "ranks=2 mesh.pipe=2 mesh.layers=[7,1] schedule.name=zb-h1" \
    "ranks=4 mesh.pipe=4 mesh.layers=[1,3,3,1] schedule.name=gpipe" \
    "ranks=3 mesh.pipe=3" \
    "ranks=2 mesh.pipe=2 schedule.name=interleaved schedule.chunks=3 mesh.layers=[2,1,1,1,1,2]"
# The first stage has the embedding alone, the last the head (Llama 3 405B).
exact "outer stages without blocks" tied.yaml \
    "ranks=2 mesh.pipe=2 mesh.layers=[0,8] train.recompute=block" \
    "ranks=2 mesh.pipe=2 mesh.layers=[8,0] schedule.name=zb-h1" \
    "ranks=4 mesh.pipe=2 mesh.shard=2 zero=fsdp mesh.layers=[0,8]" \
    "ranks=2 mesh.pipe=2 schedule.name=interleaved schedule.chunks=3 mesh.layers=[0,2,2,2,2,0]"
exact "groups and limits" llama.yaml \
    "ranks=2 mesh.pipe=2 schedule.name=interleaved schedule.group=4" \
    "ranks=2 mesh.pipe=2 schedule.name=interleaved schedule.chunks=4" \
    "ranks=4 mesh.pipe=4 schedule.name=zb-2p schedule.memory_limit=6" \
    "ranks=2 mesh.pipe=2 train.micro_batch=8 schedule.name=gpipe"
exact "with other axes" tied.yaml \
    "ranks=4 mesh.pipe=2 mesh.data=2 schedule.name=dualpipe zero=zero1" \
    "ranks=4 mesh.pipe=2 mesh.data=2 schedule.name=dualpipe zero=fsdp" \
    "ranks=4 mesh.pipe=2 mesh.data=2 schedule.name=interleaved zero=zero2" \
    "ranks=4 mesh.pipe=2 mesh.data=2 schedule.name=zb-h1 zero=fsdp" \
    "ranks=4 mesh.pipe=2 mesh.shard=2 schedule.name=breadth-first zero=hsdp" \
    "ranks=4 mesh.pipe=2 mesh.data=2 mesh.order=data,pipe schedule.name=zb-v" \
    "ranks=8 mesh.pipe=2 mesh.data=2 mesh.tensor=2 schedule.name=zb-h1" \
    "ranks=4 mesh.pipe=2 mesh.tensor=2 tensor.overlap=2 schedule.name=dualpipe" \
    "ranks=4 mesh.pipe=2 mesh.tensor=2 schedule.name=dualpipev"
sed 's/^optimizer/numerics: {grid_context: 2}\n&/' \
    tied.yaml >context.yaml
exact "with cut sequences" context.yaml \
    "ranks=4 mesh.pipe=2 mesh.context=2 schedule.name=zb-v" \
    "ranks=8 mesh.pipe=2 mesh.context=2 mesh.data=2 schedule.name=dualpipe"
cp "$tree"/examples/04_schedules/*.txt .
exact "schedules from text files" tied.yaml \
    "ranks=2 mesh.pipe=2 train.micro_batch=2 schedule.name=both_ends.txt"
sed 's/batch: 8/batch: 12/' tied.yaml >twelve.yaml
exact "weights that wait" twelve.yaml \
    "ranks=2 mesh.pipe=2 train.micro_batch=4 schedule.name=late_weights.txt"

# Whole runs: validation, metrics, checkpoints; begun on one layout, gone on
# with others.
same_as_one() { # RUN
    if same_run one "$1"; then ok "$1 equals one rank"
    else bad "$1 equals one rank" "$why" log
    fi
}
must train config.yaml --run one
must train config.yaml --run two --ranks 2 --set mesh.pipe=2 \
    --set train.micro_batch=1
same_as_one two
must train config.yaml --run both --ranks 4 --set mesh.pipe=2 \
    --set schedule.name=dualpipe --set train.micro_batch=1 --threads 1
same_as_one both
must train config.yaml --run moved --ranks 2 --set mesh.pipe=2 \
    --set train.micro_batch=2 --set schedule.name=zb-h1 \
    --set checkpoint.keep_last=9
rm -rf moved/ckpt/step-000000[23]?
printf 'step-00000015' >moved/ckpt/latest
must resume moved --ranks 1 --set mesh.pipe=1
rm -rf moved/ckpt/step-000000[23]?
printf 'step-00000015' >moved/ckpt/latest
must resume moved --ranks 4 --set mesh.pipe=2 --set schedule.name=1f1b
same_as_one moved
find_mpi
for mpi in $mpis; do
    if LIMIT=400 with_mpi $mpi 2 "$program" train config.yaml \
        --run $mpi --set mesh.pipe=2 --set schedule.name=1f1b-early-send \
        --set train.micro_batch=1 --threads 1 >log 2>&1
    then same_as_one $mpi
    else bad "$mpi" "exit $?" log
    fi
done

# --- what cannot be ---
refused() { # NAME WORDS SETTING...
    local name=$1 words=$2 sets=()
    shift 2
    for s in "$@"; do sets+=(--set "$s"); done
    expect "$name" 78 "$words" train llama.yaml --run no --ranks 2 \
        --set mesh.pipe=2 "${sets[@]}"
}
refused "more stages than blocks" "8 blocks" schedule.name=interleaved \
    schedule.chunks=5
refused "blocks that are left out" "7 blocks in all" 'mesh.layers=[3,4]'
refused "a stage between others without blocks" "1 to 8 can be" \
    schedule.name=interleaved schedule.chunks=2 'mesh.layers=[4,0,2,2]'
refused "a schedule that is not known" "nearest: zb-h1" schedule.name=zb-h3
refused "a file for other numbers" "is for 2 ranks and 4 micro-batches" \
    schedule.name=both_ends.txt
printf 'F0.0 B0.0 W0.0\nB1.0 F1.0 W1.0\n' >wrong.txt
refused "a file that waits for itself" "waits forever" \
    schedule.name=wrong.txt train.micro_batch=8
refused "half a leaf for each direction" "data leaf" schedule.name=dualpipe \
    numerics.grid_data=1

# Sums that are not finite, in the last stage's block, are named as one rank
# names them: sixteen of the largest float32 numbers lie in one row.
must export one exported
weights=exported/model.safetensors
little() { od -An -tu"$3" -j "$2" -N"$3" "$1" | tr -d ' '; }
length=$(little $weights 0 8)
at=$(head -c $((8 + length)) $weights | tail -c "$length" | tr '}' '\n' |
    sed -n 's/.*layers\.1\.mlp\.up_proj.*data_offsets":\[\([0-9]*\),.*/\1/p')
printf "$(printf '\\377\\377\\177\\177%.0s' {1..16})" | dd of=$weights bs=1 \
    seek=$((8 + length + at + 40)) conv=notrunc 2>/dev/null
expect "infinity, one rank" 76 "step 1: the output of layer" train config.yaml \
    --run nan1 --set init.from=exported
sentence=$(grep -o 'the output of layer.*' out)
expect "infinity in a stage" 76 "$sentence" train config.yaml \
    --run nan2 --set init.from=exported --ranks 2 --set mesh.pipe=2
report
