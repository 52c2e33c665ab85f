#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mutations.sh - would the equivalence table notice? Builds variants of the
# program with one deliberate fault each (a sum removed, a wrong scale, a
# shard swapped, a relayout skipped) in a copy of the tree, and demands that a
# row turns red; the same rows are green without the fault.
#
# ONLY=PATTERN: only mutations whose names contain a match (grep -E).
# SHARE=2/3: only a third of them is built; the places of all are looked for.
. "${0%/*}/../drills/common.sh"
. "$tree/tests/equivalence/rows.sh"
LIMIT=240
prepare
copy=$room/tree

# Objects are copied with their times: only what changes is compiled again.
mkdir "$copy"
cp -a "$tree/src" "$tree/include" "$tree/tools" "$tree/Makefile" "$copy/"
mkdir "$copy/build"
cp -a "$BUILD/src" "$BUILD/lockstep" "$copy/build"

build() {
    make -s -C "$copy" BUILD=build MPIS= build/lockstep >build.log 2>&1
}

# The plug-in of CUDA, with the kernels that are there.
build_plugin() {
    local old=()
    mapfile -t old < <(cd "$copy" && printf -- '-o%s\n' \
        build/src/kernels/cuda/*.fatbin)
    make -s -C "$copy" BUILD=build MPIS= NVCC="$nvcc" "${old[@]}" \
        build/device_cuda.so >build.log 2>&1
}

more=() # settings of the rows
launch= # words that make the ranks of the rows processes
steps=3

# Trains layouts.txt with the variant; the rows are in passed and failed, which
# are put back: a red row is no failure here.
run_rows() {
    local p=$passed f=$failed
    red=
    # shellcheck disable=SC2086
    program=$copy/build/lockstep lockstep $launch verify config.yaml \
        --layouts layouts.txt --json --steps $steps \
        --set train.steps=$steps --set train.threads=1 \
        --set data.sequence=24 \
        --set model.layers=4 --set model.tied=true \
        --set numerics.grid_tensor=4 --set comm.limit=5 "${more[@]}" \
        >table.json 2>log
    count_legal mutation >said
    red=$((failed - f))
    green=$((passed - p))
    passed=$p
    failed=$f
}

says= # words that the program must end with
number=0
share=${SHARE:-1/1}

# mutation NAME FILE SED LAYOUT...: the fault must compile and be seen.
mutation() {
    local name=$1 file=$2 change=$3
    shift 3
    grep -qE "${ONLY:-.}" <<<"$name" || return 0
    number=$((number + 1))
    printf '%s\n' "$@" >layouts.txt
    cp -p "$copy/$file" kept
    sed -i -E "$change" "$copy/$file"
    if cmp -s "$copy/$file" kept; then
        bad "$name" "$file no longer has the place to change"
    elif [ $((number % ${share#*/} + 1)) -ne "${share%/*}" ]; then
        cp -p kept "$copy/$file" # its place is there; it was not drawn
        return
    elif ! case $file in
        src/kernels/cuda/plugin/*) build_plugin ;;
        *) build ;;
        esac
    then
        bad "$name" "does not compile" build.log
    else
        run_rows
        if [ -n "$says" ] && ! grep -q "$says" log; then
            bad "$name" "it does not say $says" log
        elif [ "$red" -gt 0 ]; then ok "$name: $red of $# rows are red"
        elif [ "$green" -lt $# ]; then ok "$name: did not end"
        else bad "$name" "all rows are green" said
        fi
    fi
    cp -p kept "$copy/$file"
    touch "$copy/$file"
}

data="ranks=2 mesh.data=2"
zero="ranks=2 mesh.data=2 zero=zero1"
four="ranks=4 mesh.data=4"
fsdp="ranks=2 mesh.shard=2 zero=fsdp"
hsdp="ranks=4 mesh.data=2 mesh.shard=2 zero=hsdp"
parts="ranks=4 mesh.data=2 mesh.shard=2 zero={gradients:[shard],states:[data,shard]}"
tensor="ranks=2 mesh.tensor=2"
heads="ranks=4 mesh.tensor=4"
pipe="ranks=2 mesh.pipe=2 train.micro_batch=1"

# Without a fault every row is green.
printf '%s\n' "$data" "$zero" "$four" "$fsdp" "$hsdp" "$tensor" "$heads" \
    "$pipe" >layouts.txt
if ! grep -qE "${ONLY:-.}" <<<"no fault, no red row"; then :
elif build; then
    run_rows
    if [ "$green" -eq 8 ] && [ "$red" -eq 0 ]; then ok "no fault, no red row"
    else bad "no fault, no red row" "$green green, $red red" said
    fi
else
    bad "the copy builds" "it does not" build.log
fi

mutation "a sum over ranks is left out" src/step/zero.c \
    's/return comm_start\(class->copies, &call, handle\);/(void)call; (void)class; return OK;/' \
    "$data" "$hsdp"
mutation "a scatter of sums is left out" src/step/zero.c \
    's/return comm_start\(group, &call, handle\);/(void)call; (void)group; return OK;/' \
    "$zero" "$fsdp"
mutation "the mean is over too few targets" src/step/step.c \
    's/update_blocks\(&update, targets > 0 \? targets : 1\)/update_blocks(\&update, targets \/ team_batch_size(step->team))/' \
    "$data"
mutation "a clipped norm of this rank's shards" src/step/zero_norm.c \
    's/return comm_all_reduce\(group, all, all, REDUCE_SUM\);/(void)all; (void)group; return OK;/' \
    "$zero"
mutation "new weights are not gathered" src/step/zero.c \
    's/return comm_start\(parts \?/if (class != NULL) return OK; return comm_start(parts ?/' "$zero"
mutation "new parts of shards are not gathered" src/step/zero.c \
    's/(return comm_start\(parts \?)/if (parts) return OK; \1/' "$parts"
mutation "shards are swapped" src/step/zero.c \
    's/shard_cuts\(s, unit\)\[shard_rank\(s, unit\)\]/shard_cuts(s, unit)[s->classes[s->units[unit].class].ranks - 1 - shard_rank(s, unit)]/' \
    "$zero"
mutation "ranks take each other's sequences" src/step/micro_batches.c \
    's/(first_sequence\(e->pipeline, )(team_batch_rank\(e->team\)),/\1(\2 + 1) % team_batch_size(e->team),/' \
    "$four"
mutation "a chain of roots, not a tree" src/comm/sums.c \
    's/s->node\[s->count - 2\]\.span == s->node\[s->count - 1\]\.span/true/' \
    "$four"
more=(--set numerics.sums=integer)
mutation "an integer takes the place of those before it" src/nn/gradient.c \
    's/g->states\[use\]\.begun = true;/(void)0;/' "$data"
mutation "a round of integers is forgotten" src/nn/gradient.c \
    's/return (g->kernels->fixed_add\(g->stream, left, right,)/return left.data ? OK : \1/' \
    "ranks=2 mesh.data=2 zero=zero2 train.micro_batch=1 zero_reduce=each"
more=()
mutation "a relayout is skipped" src/nn/relayout.c \
    's/return comm_run\(run->groups\[AXIS_TENSOR\], &call\);/(void)call; return OK;/' \
    "$tensor"
mutation "shared key-value heads are not summed" src/nn/attention.c \
    's/return sum_replicas\(step, run, own, shared_columns\(step, dqkv\)\);/return OK;/' "$heads"
mutation "the tied table's other use is forgotten" src/step/tied_matrix.c \
    's/TRY\(stage->kernels\.add\(&stage->stream, mine, mine, other\)\);/(void)stage;/' \
    "$pipe"
mutation "a loss that counts twice" src/step/step.c \
    's/: loss_total\(loss\)/: (team_batch_size(step->team) > 1 ? 2 : 1) * loss_total(loss)/' \
    "$data"
# Lists and calls are compared before each call (step/message_check.c).
mutation "a list states more bytes than a gather sends" src/list/pass_gathers.c \
    's/\(list_group\(p, gather\)\.size - 1\)/list_group(p, gather).size/' "$fsdp"
# Sums over the step stay what they are here.
mutation "the list's loss and norm swap their bytes" src/list/pass_tail.c \
    's/(DO_LOSS, )pipeline_loss(_values)/\1pipeline_norm\2/; s/(DO_NORM, )pipeline_norm(_values)/\1pipeline_loss\2/' \
    "$data"
mutation "the list's shared matrix goes in two parts" src/list/pass_tail.c \
    's/\(int32_t\)\(\(share\.elements \+ TIED_AT_ONCE - 1\) . TIED_AT_ONCE\)/2/' \
    "$pipe"
# Calls inside F, B and W (step/pass_calls.h).
says=states_group_and_operation
mutation "relayouts state each other's operation" src/nn/relayout.c \
    's/(const bool gathers = .*RELAYOUT_GATHER\)) ==/\1 !=/' "$tensor"
mutation "a head states its losses for W only" src/nn/head.c \
    's/exchange_backward\(at\) \|\| again;/again;/' "$tensor"
says=states_bytes
mutation "a head states two numbers less for each token" src/nn/head.c \
    's/exchange_all_reduce\(2 \* n, ranks, rank\)/exchange_all_reduce(n, ranks, rank)/' \
    "$tensor" "ranks=4 mesh.tensor=2 mesh.pipe=2 schedule.name=dualpipe"
more=(--set numerics.grid_context=2)
says=states_group_and_operation
mutation "leaves of a head are stated as a bias" src/list/traffic.c \
    's/which == 1 && (!layer->two_matrices) && !head/\1/' \
    "ranks=2 mesh.context=2"
says=states_calls
mutation "keys are gathered twice" src/nn/context_gather.c \
    's/return (comm_run\(s->group, &call\));/TRY(\1); return \1;/' \
    "ranks=2 mesh.context=2"
more=()
says=
# The messages of each batch of a ramp have a plan of their own.
more=(--set train.batch=8 --set "train.batch_ramp=[0=4,1=8]")
mutation "the plan of one batch stands for all of a ramp" src/proof/trial.c \
    's/^( *)exchanges_of\(&t->plan, &t->pipeline\);/\1if (t->plan.count == 0) exchanges_of(\&t->plan, \&t->pipeline);/' \
    "$pipe"
# Mixtures of experts.
more=(--set model.family=mixtral --set moe.experts=4 --set numerics.grid_tensor=2)
mutation "an expert's gradient forgets its sibling" src/nn/expert_sums.c \
    's/\.adds = r->target\.left/.adds = false/' "$pipe"
mutation "counts of sequences are not joined" src/nn/choice.c \
    's/TRY\(comm_run\(run->groups\[axes\[i\]\], &call\)\);/TRY(i < 2 ? OK : comm_run(run->groups[axes[i]], \&call));/' \
    "$tensor"
more+=(--set moe.balance_scope=batch)
mutation "counts of the step before are those of this rank" src/step/routing.c \
    's/TRY\(team_join\(team, routing->table, count_of\(routing\) \+ 1\)\);/(void)team;/' \
    "$data"
more=(--set model.family=mixtral --set moe.experts=4 --set numerics.grid_tensor=2)
mutation "rows come back to other tokens" src/nn/experts.c \
    's/-1 : \(int32_t\)i;/-1 : (int32_t)(choice->tokens * choice->choices - 1 - i);/' \
    "$tensor"
mutation "gates are not applied to gradients of tensor ranks" \
    src/nn/expert_products.c \
    's/of\.a\.scales = choice\.gates\.data;/of.a.scales = is_shared(run) ? NULL : choice.gates.data;/' \
    "$tensor"
# Ranks that divide the experts.
more+=(--set train.micro_batch=2)
expert="ranks=4 mesh.expert=2 mesh.data=2 zero=zero1"
mutation "gradients of experts are scaled by their sources" src/nn/gradient.c \
    's/TRY\(g->kernels->add\(g->stream, a, a, b\)\);/TRY(g->kernels->add(g->stream, a, a, b)); TRY(g->kernels->scale(g->stream, a, a, 0.5));/' \
    "$expert"
mutation "the tokens of one source are forgotten" src/nn/gradient.c \
    's/TRY\(g->kernels->add\(g->stream, a, a, b\)\);/(void)b;/' "$expert"
mutation "an expert's rows of two sources are swapped" src/nn/sending.c \
    's/l->arrival\[i\] = \(int32_t\)at;/l->arrival[i] = (int32_t)(i + 1 < turn->rows ? i + 1 : 0);/' \
    "$expert"
mutation "a token is lost on the way" src/nn/sending.c \
    's/l->order\[at\] = \(int32_t\)i;/l->order[at] = (int32_t)(i > 0 ? i : turn->rows - 1);/' \
    "$expert"
mutation "two experts are swapped" src/nn/expert_ranks.c \
    's/(mesh_expert_place\(&p->layout\.mesh, &p->layout\.place\)) \* count, count/(experts \/ count - 1 - \1) * count, count/' \
    "$expert"
mutation "gates are not applied to what is sent back" src/nn/expert_parallel_rows.c \
    's/(w->turn\.sent, &call\.gates\)\);)/\1 call.gates = NULL;/' "$expert"
nodes="ranks=4 mesh.expert=4 mesh.node=2"
says=choices_state_bytes
mutation "rows of experts are counted with their own rank's" \
    src/nn/sending_rows.c 's/if \(i == rank\) continue;/(void)rank;/' "$expert"
says=made_all_calls
mutation "one piece of rows stays at home" src/nn/expert_parallel.c \
    '/^static status go_forward/,/^}/s/(TRY\(spread_go_x\(&w, step->input\)\);)/if (k == 0) \1/' \
    "$expert"
says=states_group_and_operation
mutation "choices go round another axis" src/nn/expert_parallel.c \
    '/^static void go_exchanges/,/^}/s/AXIS_EXPERT/AXIS_TENSOR/' \
    "ranks=4 mesh.expert=2 mesh.tensor=2"
says=
# Rows as codes.
more+=(--set train.dtype=bfloat16 --set moe.dispatch_format=auto)
mixture=("${more[@]}")
more+=(--set numerics.recipe=bitnet)
mutation "codes of rows have the scale of the first one" src/nn/row_codes.c \
    's/\{last, bytes\}/{last, 0}/' "$expert"
more=("${mixture[@]}" --set numerics.recipe=mxfp8)
mutation "codes of rows whose blocks in dW are of other tokens" \
    src/nn/row_codes.c \
    's/(role->scale) == SCALE_NONE(\) return true)/\1 >= SCALE_NONE\2/' \
    "$expert"
more=("${mixture[@]}" --set numerics.recipe=hfp8)
mutation "dy is coded before its gates" src/nn/expert_parallel.c \
    's/!\(gradient && sending_relays\(p\)\) &&//' "$nodes"
more+=(--set lora.rank=2 --set "lora.targets=[experts.gate_up_proj]")
mutation "adapters read rows that were rounded" src/nn/expert_parallel.c \
    's/spec->up_adapter\.pieces \+ spec->down_adapter\.pieces == 0 &&//' "$expert"
more=(--set model.family=mixtral --set moe.experts=4 --set numerics.grid_tensor=2)
mutation "a node passes on the row of the next token" \
    src/nn/sending_relay.c \
    's/picks\[count\+\+\] = \(int32_t\)row;/picks[count++] = (int32_t)(row > 0 ? row - 1 : 0);/' \
    "$nodes"
mutation "a row that was relayed is taken for its neighbour" \
    src/nn/sending_relay.c \
    's/arrival\[i\] = s->relay.where\[entries\[i\] \/ s->form.choices\];/arrival[i] = s->relay.where[entries[i > 0 ? i - 1 : 0] \/ s->form.choices];/' \
    "$nodes"
mutation "bytes inside a node count as bytes between nodes" src/comm/call.c \
    's/operation->between \+= bytes;/operation->between += 2 * bytes;/' "$nodes"
mutation "gradients of a further turn are the first one's" src/nn/expert_parallel.c \
    's/if \(w\.number > 0\) \{/if (w.number > 9) {/' \
    "$expert moe.rows_bound=0.5"
mutation "a slot has room for one row of each token" src/nn/program.c \
    's/= info->bound > 0 \? info->bound : 1;/= 1;/' "$expert"
# Experts over tensor ranks.
folded="ranks=4 mesh.tensor=2 mesh.expert_tensor=1 mesh.data=2 zero=zero1"
mutation "gradients of folded experts are not summed over data" \
    src/mesh/shard.c \
    's/(const axis_set copied = param_copied\(&param->spec\)) & AXES_BATCH;/\1 \& (param->spec.folded ? 1u << AXIS_SHARD : AXES_BATCH);/' \
    "$folded"
mutation "parts of a cut expert's sums are forgotten" src/nn/expert_sums.c \
    's/apart < parts; apart/apart < 1; apart/' \
    "ranks=2 mesh.expert=2 mesh.expert_tensor=2"
mutation "ranks that cut an expert have the same part" src/mesh/layout.c \
    's/return mesh_expert_rank\(mesh, place\) % spec->within;/return 0;/' \
    "ranks=2 mesh.expert=2 mesh.expert_tensor=2"
more+=(--set lora.rank=2 --set "lora.targets=[w1,w2]" --set optimizer.clip=0.5)
cut="ranks=2 mesh.expert=2 mesh.expert_tensor=2"
mutation "tensor ranks do not add up what an adapter makes" \
    src/nn/expert_adapter.c \
    's/TRY\(add_over_tensor\(of, run, part\)\);/(void)add_over_tensor;/' \
    "$tensor" "ranks=4 mesh.expert=2 mesh.tensor=2"
mutation "neighbours do not add up what an adapter makes" \
    src/nn/expert_adapter.c \
    's/return expert_parts_add\(run, out, cut, \*sum\);/return OK;/' "$cut"
mutation "an adapter adds to the first leaf of every rank" \
    src/nn/expert_adapter.c \
    's/(&run->program->layout\.place, AXIS_TENSOR\)) == 0\)/\1 >= 0)/' \
    "$tensor" "$cut"
mutation "an adapter adds to the sum, not to its first leaf" \
    src/nn/expert_adapter.c \
    's/first = 0, count = 1; first < leaves/first = 0, count = leaves; first < leaves/' \
    "$tensor"
mutation "copies of neighbours count twice in the norm" src/mesh/layout.c \
    's/return spec->within <= 1 \|\| cut \|\|/return true ||/' "$cut"
more=("${more[@]:0:$((${#more[@]} - 6))}")
mutation "an expert's sums of other context ranks are forgotten" \
    src/nn/gradient.c \
    's/const struct tensor b = leaf_of\(g, use, i \+ apart\);/const struct tensor b = leaf_of(g, use, i);/' \
    "ranks=2 mesh.context=2 mesh.expert_context=true"
mutation "half of a folded expert counts in the norm" src/mesh/shard.c \
    's/layout_ranks_of\(&param->spec, &holding->mesh, axis\)/holding->mesh.size[axis]/' \
    "$folded"
mutation "rows of a source lie part after part" src/nn/sending.c \
    's/^            part\.first \+ token % part\.count/            (part.first > 0 ? 0 : p->size.length \/ p->size.context_chunks - part.count) + token % part.count/' \
    "$folded"

# Products in few bits.
more=(--set train.dtype=bfloat16 --set numerics.recipe=bitnet)
mutation "a leaf of integers has the scales of the first one" \
    src/kernels/cpu/integers.c \
    's/const int64_t at = \(x->row \+ i\) \* leaves \+ leaf;/const int64_t at = (x->row + i) * leaves;/' \
    "$tensor"
more=(--set train.dtype=bfloat16 --set numerics.recipe=mxfp8
    --set numerics.accumulator=8:8:16)
mutation "the first micro-batch alone has the accumulator" src/nn/layer.c \
    's/(\.accumulator = )(quantized_accumulator)/\1run->batch.index > 0 ? NULL : \2/' \
    "$data train.micro_batch=1"
more=(--set train.dtype=bfloat16 --set numerics.recipe=fp8-tiles
    --set fsdp.gather_format=recipe --set train.saved_activations=recipe
    --set train.batch=12 --set train.micro_batch=6 --set numerics.grid_data=4)
mutation "codes of a later chunk have the scales of the one before" \
    src/nn/saved_codes.c \
    's/(code_bytes\(p, param, p->size\.tokens\) \+ )(first)( \* scales)/\1(first - (first > 0))\3/' \
    "ranks=1 train.micro_batch=4"
dense=("${more[@]}")
more+=(--set 'numerics.recipe_rows=["glu e4m3 1x8 up"]')
mutation "inputs of SwiGLU of all pieces have the scales of the first" \
    src/nn/glu_codes.c 's/scale_bytes\(p, at->matrix, at->first\)/0/' \
    "ranks=2 mesh.tensor=2 tensor.overlap=2 tensor.domino=true"
mutation "the result of SwiGLU is not made again of codes" \
    src/nn/glu_codes.c 's/\.again = p->slots.*dropped = true/.again = false/' \
    "ranks=1 train.recompute=block"
more=("${dense[@]}" --set model.family=mixtral --set moe.experts=4 --set moe.top_k=2)
mutation "rows of an expert have the scales of the first one" src/nn/saved_codes.c \
    's/at->blocks \* feature_blocks/0 * feature_blocks/' \
    "ranks=2 mesh.expert=2" "ranks=2 mesh.tensor=2"
more=("${dense[@]}")
mutation "codes have the largest magnitudes of a shard" src/step/zero_codes.c \
    's/return comm_all_reduce\(group, all, all, reduction_of\(z\)\)/return group == NULL ? ERR_MEMORY : OK/' \
    "$fsdp"
mutation "codes are read with the scales of the first matrix" \
    src/step/zero_codes.c 's/(param->is \? )scales_at\(z, i, set\)/\1scales_at(z, 0, set)/' \
    "$fsdp"
kept_parts="ranks=4 mesh.data=2 mesh.shard=2 zero={weights:[],gradients:[shard],states:[data,shard]} train.kept_weights=recipe"
mutation "parts of a shard keep their largest magnitudes" \
    src/step/zero_codes.c 's/return join_peaks\(z, i->unit, class->copies\);/return OK;/' \
    "$kept_parts"
mutation "new codes of a part do not reach the others" src/step/zero_codes.c \
    's/(call\.in = tensor_1d\(\(char \*\)call\.out\.data) \+ before,/\1,/' \
    "$kept_parts"
# Weights that grow fast: a scale of other steps cuts them off.
more+=(--set numerics.recipe=fp8-delayed --set numerics.recipe_history=2
    --set optimizer.lr=0.3 --set optimizer.warmup=0 --set optimizer.clip=0)
mutation "products of codes see no weights" src/nn/quantized_operands.c \
    's/(decode\.seen = ).*;/\1NULL;/' "$fsdp"
mutation "codes are made before the history is newer" src/step/step.c \
    's/if \(!out->skipped\) (routing_keep)/if (!out->skipped) delayed_keep(\&step->delayed);\n    if (!out->skipped) \1/; s/    delayed_keep\(&step->delayed\); .*//' \
    "$fsdp"
more=("${dense[@]}" --set numerics.recipe=mxfp8)
mutation "dx reads the codes of y" src/step/zero_codes.c \
    's/return stage->gathered.items\[i->item\].first >= .*;/return 0;/' "$fsdp"
more=(--set numerics.mode=fast --set numerics.grid_tensor=1)
mutation "copies on tensor ranks have scales of their neighbours" \
    src/plan/stage.c 's/(reduction\.bits > )0 &&/\19 \&\&/' \
    "ranks=4 mesh.data=2 mesh.tensor=2 zero=zero2 zero_format=int8"
more=()

# Lives: found whenever the messages move, without luck.
more=(--set lora.rank=2 --set model.family=falcon --set model.kv_heads=1
    --set numerics.grid_tensor=2)
export LOCKSTEP_CHECK=lives
mutation "a frozen matrix does not wait for its input" src/nn/frame.c \
    's/if \(!has_weight_pass\(planner->program, step\)\) return OK;/if (step->layer->backward_weight == NULL) return OK;/' \
    "ranks=2 mesh.tensor=2 tensor.overlap=2"
more=(--set model.family=gpt2 --set model.kv_heads=0)
mutation "a gathered unit ends before the last piece" src/plan/residency.c \
    's/^( *)TRY\(widen_residences/\1if (ahead.units < 0) TRY(widen_residences/' \
    "ranks=4 mesh.tensor=2 mesh.shard=2 zero=fsdp tensor.overlap=2 tensor.domino=true"
mutation "a product does not wait for its operand" src/nn/linear.c \
    's/TRY\(overlap_wait\(run, call\.a\.data\)\);//' "$tensor tensor.overlap=2"
export LOCKSTEP_CHECK=lives:early
mutation "gradients are given back under their sum" src/step/execute.c \
    's/^( *)TRY\(wait_for\(e, /\1if (i->kind != DO_GIVE) TRY(wait_for(e, /' \
    "$fsdp train.micro_batch=1"
unset LOCKSTEP_CHECK

# The device far: events and copies that are left out, and the host where it has
# no access.
export LOCKSTEP_FAR=late
mutation "a copy to the host does not wait for kernels" src/device/far.c \
    's/^    queue_after\(device->copies, queue_now\(device->kernels\)\);$//' \
    "ranks=1 device=far"
mutation "kernels do not wait for what the host writes" src/device/far.c \
    's/^    if \(bytes > 0\) queue_after\(device->kernels, end\);$/    (void)end;/' \
    "ranks=1 device=far"
mutation "losses are read before they are there" src/step/micro_batches.c \
    's/TRY\(device_finish\(run->stream\)\);//' "ranks=1 device=far"
mutation "a message leaves before kernels are done" src/comm/device_memory.c \
    's/TRY\(device_settle\(call->in\.data\)\);//; s/TRY\(device_settle\(call->out\.data\)\);//' \
    "$data device=far" "$tensor device=far"
mutation "a message in the background takes no event" src/comm/progress.c \
    's/^    TRY\(device_await\(&handle->ready\)\);$//' \
    "$tensor tensor.overlap=2 device=far" "$fsdp device=far"
mutation "a launch does not copy the order of a sum" src/kernels/device_rows.c \
    's/copy = queue_more\(l->queue, bytes\);/return at;/' "$tensor device=far"
mutation "the host copies memory of the device" src/step/micro_batches.c \
    's/return device_copy\(&stage->stream, /return !__builtin_memcpy(/' \
    "$pipe schedule.name=zb-v device=far"
says="Bad address"
mutation "a system call is given memory of the device" src/step/micro_batches.c \
    's/^#include "base\/meter.h"$/&\n#include <unistd.h>/; s/^    return device_copy\(&stage->stream, /    int p[2];\n    if (pipe(p) != 0 || write(p[1], from.data, 1) != 1) FAIL(ERR_IO, "a copy: %m");\n&/' \
    "$pipe schedule.name=zb-v device=far"
says=
mutation "a layer makes a list in memory of the device" src/nn/embedding.c \
    's/int32_t \*index = run->lists;/int32_t *index = run->scratch;/' "$tensor device=far"
more=(--set model.family=mixtral --set moe.experts=4)
mutation "lists of experts' rows lie in memory of the device" \
    src/nn/sending.c 's/^    char \*at = run->lists;$/    char *at = run->scratch;/' \
    "ranks=2 mesh.expert=2 device=far"
mutation "choices of all sources are read too early" src/nn/choice.c \
    's/^    return device_read\(run->stream, choice->chosen, there,$/    return 0 \&\& device_read(run->stream, choice->chosen, there,/' \
    "ranks=2 mesh.expert=2 device=far"
more=(--set model.family=deepseek_v2 --set model.kv_heads=0
    --set model.head_width=0 --set mla.rank=16 --set mla.nope=8
    --set mla.rope=4 --set mla.value=6 --set moe.experts=4 --set moe.top_k=2
    --set moe.groups=1 --set moe.groups_chosen=1)
mutation "parts of heads are not copied in the order of the queue" \
    src/device/far.c 's/^(    if \(copy->from.at != NULL\) told->from.at = .*)$/\1 parts_copy(told); told->rows = 0;/' \
    "ranks=1 device=far"
more=(--set train.dtype=bfloat16 --set numerics.recipe=mxfp8)
mutation "spans of a recipe lie in memory of the device" src/nn/quantized_operands.c \
    's/run->scratch, run->lists\)/run->scratch, run->scratch)/' \
    "ranks=1 device=far"
more=(--set optimizer.name=soap --set optimizer.frequency=1)
mutation "states that the host computed do not go back" \
    src/optimizer/whole_tensors.c 's/^    return copy_back\(u, copies, count\);$/    return OK;/' \
    "ranks=1 device=far"
more=()
LOCKSTEP_FAR=early
mutation "a message leaves no event" src/comm/progress.c \
    's/^    device_hold\(&handle->ready, &\(struct device_hold\)\{$/    (void)(\&(struct device_hold){/' \
    "$tensor tensor.overlap=2 device=far" "$fsdp device=far"
unset LOCKSTEP_FAR

# The device cuda on the emulated GPUs of tests/driver (make driver).
if [ -e "$BUILD/device_cuda.so" ] && [ -e "$BUILD/tests/driver/libcuda.so.1" ]
then
    cp "$BUILD/device_cuda.so" "$copy/build"
    export LD_LIBRARY_PATH=$BUILD/tests/driver LOCKSTEP_DRIVER=late GPUS=2
    echo "device: cpu" >>config.yaml # else auto: both sides would be wrong alike
    mutation "GPU: kernels do not wait for what the host writes" \
        src/device/cuda.c \
        's/^    return meet\(c, GPU_COPIES, GPU_KERNELS\);$/    return OK;/' \
        "ranks=1 device=cuda"
    mutation "GPU: a copy to the host does not wait for kernels" \
        src/device/cuda.c \
        's/^    TRY\(meet\(c, GPU_KERNELS, GPU_COPIES\)\);$//' \
        "ranks=1 device=cuda"
    mutation "GPU: losses are read before they are there" src/device/cuda.c \
        's/^    return cuda_said\(c, c->plugin->await\(.*$/    return OK;/' \
        "ranks=1 device=cuda"
    mutation "GPU: a kernel has a block too few" src/device/cuda.c \
        's/kernel, blocks, 256,/kernel, blocks - (blocks > 1), 256,/' \
        "ranks=1 device=cuda"
    mutation "GPU: what a message wrote does not go back" src/comm/device_memory.c \
        's/^    return bring_bytes\(call->out.data, .*false\);$/    return OK;/' \
        "$data device=cuda"
    if [ -e "$BUILD/comm_nccl.so" ]; then
        cp "$BUILD/comm_nccl.so" "$copy/build"
        mutation "GPU: what NCCL brought is written over" src/comm/device_memory.c \
            's/ \|\| library_takes\(group, call\);$/;/' \
            "$zero device=cuda comm.library=nccl"
    else
        echo "left out: a mistake beside NCCL, whose headers are not here"
    fi
    # Ranks that read each other's memory share a GPU here.
    export GPUS=1
    mutation "GPU: a rank reads before another one's kernels are done" \
        src/comm/peer_calls.c \
        's/^        TRY\(device_follow\(r->peers->device, met->events\[event\]\)\);$/        (void)met;/' \
        "$zero device=cuda comm.library=ipc" "$tensor device=cuda comm.library=ipc"
    mutation "GPU: a stage goes on before a message is read" \
        src/comm/peer_messages.c 's/^    return device_moved\(device\);$/    return OK;/' \
        "$pipe device=cuda comm.library=ipc"
    # The other half of a message: the receiver is slow, and what the sender
    # has must not be written over.
    slow='s/^#include "comm\/frame.h"$/&\n#include <unistd.h>/; s/^    TRY\(peers_place\(op, op->call->peer, .*$/    usleep(50000);\n&/;'
    messages=src/comm/peer_messages.c
    mutation "GPU: a message is read before it is made" $messages \
        's/^    if \(told->event >= 0\) TRY\(device_follow.*$/    (void)met;/' \
        "$pipe device=cuda comm.library=ipc"
    mutation "GPU: a message is given back before it is read" $messages \
        "$slow"' s/^    result = read_told\(op, &told\);$/    ops->give_back(op, \&parcel);\n    result = read_told(op, \&told);/; s/^    ops->give_back\(op, &parcel\);$//' \
        "$pipe device=cuda comm.library=ipc"
    mutation "GPU: between threads an answer waits for the sender" $messages \
        's/^    return !op->group->ops->borrows;$/    return op != NULL;/' \
        "$pipe device=cuda comm.library=ipc"
    launch="launch --ranks 2 -- $copy/build/lockstep"
    mutation "GPU: a sender does not take the answer" $messages \
        "$slow"' s/ && answers\(op\)\) result = take_answer\(op\);/ \&\& op == NULL) result = take_answer(op);/' \
        "$pipe device=cuda comm.library=ipc"
    mutation "GPU: a receiver answers before it has read" $messages \
        "$slow"' s/^    result = read_told\(op, &told\);$/    if (answers(op)) TRY(answer(op, told.bytes));\n    result = read_told(op, \&told);/; s/ && answers\(op\)\) result = answer\(/ \&\& op == NULL) result = answer(/' \
        "$pipe device=cuda comm.library=ipc"
    # Kernels of another process last 1 ms at least.
    launch="launch --ranks 4 -- $copy/build/lockstep"
    export LAUNCH_US=1000
    mutation "GPU: sums of others are read before they are made" \
        src/comm/peer_calls.c 's/^    TRY\(await_readers\(r\)\);$//' \
        "$four device=cuda comm.library=ipc"
    launch=
    unset LAUNCH_US
    export GPUS=2
    far="ranks=4 mesh.shard=4 zero=fsdp device=cuda comm.library=ipc"
    mutation "GPU: what another island sent does not go to the GPU" \
        src/comm/peer_calls.c \
        's/^        TRY\(block_bring\(&block, false\)\);$//' "$far"
    mutation "GPU: what another island needs stays on the GPU" \
        src/comm/peer_calls.c \
        's/^            TRY\(block_bring\(&block, true\)\);$/            (void)block;/' "$far"
    more=(--set optimizer.name=soap --set optimizer.frequency=3)
    mutation "GPU: the host makes no bases of its copies" \
        src/optimizer/whole_tensors.c 's/^    host.apart = false;$//' \
        "ranks=1 device=cuda"
    more=()
    export GPUS=1
    mutation "GPU: roots of ranks are added as a chain" src/comm/sums.c \
        's/depth >= 2 && node\[depth - 2\]\.span == node\[depth - 1\]\.span;/depth >= 2;/' \
        "$four device=cuda comm.library=ipc"
    export GPUS=2
    # Work that comes again: after 8 steps graphs have been told what differs.
    nvcc=$(cd "$tree" && make -s --eval='which:; @echo $(NVCC)' BUILD="$BUILD" \
        which)
    case $nvcc in /* | "") ;; *) nvcc=$tree/$nvcc ;; esac
    segment=src/kernels/cuda/plugin/segment.c
    graphs="ranks=1 device=cuda device_graphs=true"
    steps=8
    mutation "GPU: a graph is not told what differs" $segment \
        's/^            memcmp\(g->read \+ n->at, s->read \+ n->at, bytes\) == 0\)$/            bytes > 0)/' \
        "$graphs"
    mutation "GPU: what kernels read is not compared" $segment \
        's/if \(memcmp\(g->read, s->read, s->bytes\) == 0\) return g;/return g;/' \
        "$graphs"
    mutation "GPU: any graph stands for any work" $segment \
        's/^    return key;$/    return 1;/; s/^    return g->key == key \&\& .*$/    return g->key == key || (g->count == s->count \&\&/; s/^           libraries_are_same\(s, g\);$/           libraries_are_same(s, g));/' \
        "$graphs"
    mutation "GPU: nodes of a graph wait for none" $segment \
        's/= i > 0 \? &g->handles\[i - 1\] : NULL;/= NULL;/' "$graphs"
    mutation "GPU: kernels of a graph are told nothing" $segment \
        's/^    for \(int i = 0; i < s->told_count \&\& /    for (int i = s->told_count; i < s->told_count \&\& /' \
        "$graphs"
    cp "$BUILD/device_cuda.so" "$copy/build"
    steps=3
    more=(--set device=cuda --set numerics.gpu=fast --set train.dtype=bfloat16)
    mutation "GPU: an algorithm is taken whose bits show the matrix" \
        src/device/products.c \
        's/memcmp\(sums\[0\], sums\[1\], sizeof sums\[0\]\) == 0/sums != NULL/' \
        "$tensor" "ranks=1 train.micro_batch=1"
    mutation "GPU: forms are the same however long their sums" \
        src/device/products.c 's/^           a->k == b->k;/           a->k > 0;/' \
        "$tensor"
    more+=(--set model.head_width=8 --set numerics.grid_tensor=2)
    mutation "GPU: a call of attention has heads of several leaves" \
        src/kernels/cuda/attended.c \
        's/p->heads \/ p->leaves, p->heads/p->heads, p->heads/' "$tensor"
    more=()
elif [ -z "${ONLY:-}" ] || grep -qE "$ONLY" <<<"GPU: "; then
    echo "left out: mutations of the device cuda: no kernels for GPUs or no driver for tests in this build"
fi
report
