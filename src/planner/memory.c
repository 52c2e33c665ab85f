/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - closed forms of memory. Of Lockstep: its frames (frame_bytes.h),
 * and the trees over leaves of the batch (mesh/grid.h). */
#include "planner/memory.h"

#include "mesh/addends.h"
#include "plan/reduce_price.h"
#include "planner/memory_parts.h"
#include "schedule/build.h"

double memory_sum(const struct memory *m)
{
    return m->weights + m->gradients + m->states + m->activations +
           m->logits + m->gathered + m->foreign;
}

void memory_count_ends(struct layout *l, const struct shape *s)
{
    const int ends[] = {0, l->pipe - 1};

    l->ends.known = false;
    for (int i = 0; i < 2; i++) {
        const struct rank_blocks n = layout_rank_blocks(l, s, ends[i]);

        l->ends.all[i] = n.all;
        l->ends.mixed[i] = n.mixed;
    }
    l->ends.known = true;
}

/* Parameters of one pipe position: in its experts, the others, and of those the
 * ones that tensor ranks do not divide. */
struct divided { double dense, experts, whole; };

/* Elements of a tensor rank's part of the table of tokens. */
static double table_of(const struct layout *l, const struct shape *s)
{
    return (s->outside.embedding - s->outside.vectors) / l->tensor;
}

static struct divided parameters_at(const struct layout *l,
                                    const struct shape *s, int position)
{
    const double t = l->tensor, share = s->expert_blocks;
    const struct rank_blocks n = layout_rank_blocks(l, s, position);
    const double mean = layout_block_dense(l, s);
    const double block = layout_block_experts(l, s);
    const bool both = share > 0 && share < 1;
    const double plain = both ? s->block.plain / t : mean;
    const double mixed = both ? (mean - (1 - share) * plain) / share : mean;
    struct divided sum = {plain * (n.all - n.mixed) + mixed * n.mixed,
                          share > 0 ? block / share * n.mixed : 0,
                          s->block.vectors * n.all};
    const bool last = position == l->pipe - 1;

    if (position == 0) sum.dense += table_of(l, s) + s->outside.vectors;
    if (last && l->pipe > 1 && (s->tied || s->mtp.depth > 0))
        sum.dense += table_of(l, s);
    if (!last) return sum;
    if (!s->tied) sum.dense += s->outside.head / t;
    sum.dense += (s->mtp.parameters - s->mtp.experts - s->mtp.vectors) /
                     t + s->mtp.vectors;
    sum.whole += s->mtp.vectors;
    if (s->mtp.experts > 0)
        sum.experts += s->mtp.experts * block / s->in_experts.parameters;
    return sum;
}

double memory_experts(const struct layout *l, const struct shape *s,
                      int position)
{
    return parameters_at(l, s, position).experts;
}

/* Micro-batches in flight of interleaved stages: p and what the rank warms up
 * with; chunks of the first half once more as many. */
static double held_interleaved(const struct layout *l, int chunk,
                               int position)
{
    const double p = l->pipe, late = 2 * (p - position) - 1;
    const bool early = 2 * (chunk + 1) <= l->chunks;
    const bool ends = chunk == l->chunks - 1 || 2 * (chunk + 1) == l->chunks;
    const double left = ends && late < p ? late : p;

    return early ? p + left : left;
}

/* Micro-batches that wait for their backward pass in a stage of a rank. */
static double held(const struct layout *l, int chunk, int position)
{
    const double m = l->microbatches, p = l->pipe;
    double each;

    if (l->pipe == 1) return 1;
    switch (schedule_holds(l->schedule)) {
    case HOLDS_ALL: return m;
    case HOLDS_CHUNKS: each = held_interleaved(l, chunk, position); break;
    case HOLDS_LEFT: each = p - position; break;
    case HOLDS_TWICE: each = 2 * p - 1; break;
    case HOLDS_MORE: each = p + 1; break;
    case HOLDS_HALF: each = p / 2 + 1; break;
    case HOLDS_THIRD: each = p / 3 + 2; break;
    case HOLDS_V:
        each = chunk == 0 ? 2 * p - 0.5 * position : p / 2 + position;
        break;
    default: each = p; break;
    }
    return each < m ? each : m;
}

/* The parameters that learn: all, or adapters of low rank. */
static struct divided learns_at(const struct layout *l, const struct shape *s,
                                int position)
{
    const struct rank_blocks n = layout_rank_blocks(l, s, position);
    const struct expert_ranks e = layout_experts(l);
    const double dense = s->lora.all - s->lora.experts - s->lora.vectors;
    const double cut = s->lora.experts - s->lora.expert_vectors;

    if (s->lora.all <= 0) return parameters_at(l, s, position);
    return (struct divided){
        (dense / l->tensor + s->lora.vectors) * n.all,
        s->lora.experts > 0 ? (cut / e.cut + s->lora.expert_vectors) /
                                     s->expert_blocks / e.places * n.mixed : 0,
        s->lora.vectors * n.all};
}

/* Whether gradients of micro-batches are added up whole. */
static bool added_up(const struct layout *l)
{
    return layout_sums_once(l) && l->microbatches > 1 &&
           layout_division(l, 2) > 1;
}

static void add_states(const struct layout *l, double parameters,
                       double learn, struct memory *out)
{
    const struct held_bytes held = layout_held_bytes(l);
    const double copied = l->as == AS_LOCKSTEP ? parameters : learn;

    out->weights += held.weight * parameters / layout_division(l, 3);
    out->states += (held.master * copied + held.states * learn) /
                   layout_division(l, 1);
    if (l->as == AS_LOCKSTEP) return;
    out->gradients += added_up(l)
                          ? habits_sent(l->as) * learn
                          : habits_of[l->as].gradient_bytes * learn /
                                (memory_pipe_whole(l) ? 1
                                                      : layout_division(l, 2));
    if (memory_pipe_whole(l))
        out->gathered += memory_gathered_bytes(l) * parameters;
}

/* ---- Lockstep ---- */

/* The batch of a rank as its gradients meet it: leaves of a round, and how many
 * rounds a step has. 0: gradients are whole until its end. */
struct leaves {
    struct cut cut;
    int rounds, parts;
    double sums;
    bool apart;          /* cut_leaves_lie_apart; of integers alone */
};

/* Whether each micro-batch of all ranks is a subtree of the leaves, or sums
 * have no order. */
static bool is_subtree(const struct layout *l, const struct shape *s,
                       const struct cut *cut)
{
    const int64_t ranks = layout_sharing(l);
    const int64_t each = cut->data_leaves / cut->micro_batches;

    if (cut->data_leaves % cut->micro_batches != 0) return false;
    if (s->integer_sums) return true;
    return cut->micro_batches == 1
               ? grid_is_cut(each * ranks, ranks)
               : grid_is_power(cut->micro_batches) &&
                     grid_is_power(each * ranks);
}

/* As zero_reduce decides (setup/rounds.h). */
static bool reduces_each(const struct layout *l, const struct shape *s,
                         const struct cut *cut)
{
    const bool in_order = l->pipe == 1 ||
                          schedule_is(l->schedule, SCHEDULE_IN_ORDER);
    const struct reduce_facts facts = {
        .ranks = layout_division(l, 2), .cut = *cut,
        .units = (double)s->layers / (l->pipe * l->chunks),
        .tokens = l->micro_batch * s->sequence / l->context,
        .idle = s->choices > 0};

    if (l->sums == SUMS_ONCE || !in_order || !is_subtree(l, s, cut))
        return false;
    return l->sums == SUMS_EACH || (l->pipe == 1 && l->context == 1) ||
           reduce_each_pays(&facts);
}

static void cut_leaves(const struct layout *l, const struct shape *s,
                       struct leaves *out)
{
    const struct layout_leaves leaves = layout_leaves(l, s);
    const int64_t share = l->batch / layout_sharing(l);

    /* Where a leaf is changed when it is whole, addends are of one at most. */
    const bool whole = s->integer_sums ||
                       (s->precision.on && s->precision.recipe.straight);

    *out = (struct leaves){
        .cut = {.data_leaves = leaves.data,
                .sequences_per_leaf = share / leaves.data,
                .length = s->sequence / l->context,
                .context_chunks = l->context > 1 ? 2 : 1,
                .shared = l->context > 1,
                .micro_batch = l->micro_batch,
                .micro_batches = share / l->micro_batch},
        .parts = leaves.tensor};
    if (!grid_is_cut(leaves.data * layout_sharing(l), layout_sharing(l)))
        out->cut.all_leaves = leaves.data * layout_sharing(l);
    if (layout_division(l, 2) > 1 && reduces_each(l, s, &out->cut)) {
        out->rounds = (int)out->cut.micro_batches;
        out->cut.data_leaves /= out->rounds;
        out->cut.micro_batches = 1;
    }
    out->cut.shared = out->cut.shared || whole;
}

int memory_rounds(const struct layout *l, const struct shape *s)
{
    struct leaves leaves;

    cut_leaves(l, s, &leaves);
    return leaves.rounds;
}

void memory_cut(const struct layout *l, const struct shape *s, struct cut *out)
{
    struct leaves leaves;

    cut_leaves(l, s, &leaves);
    *out = leaves.cut;
}

int memory_reductions(const struct layout *l, const struct shape *s)
{
    const bool each = l->as == AS_LOCKSTEP
                          ? memory_rounds(l, s) > 0
                          : layout_division(l, 3) > 1 && !layout_sums_once(l);

    return each ? l->microbatches : 1;
}

/* node_limit, in closed form where leaves are a power of two and micro-batches
 * whole subtrees of them or parts of one. */
static double sums_of(const struct cut *cut)
{
    const int64_t each = cut->sequences_per_leaf;
    const int64_t whole = cut->micro_batch % each == 0 ? cut->micro_batch / each
                                                       : 1;
    const bool fits = cut->micro_batch % each == 0 ||
                      each % cut->micro_batch == 0;
    int64_t addends = cut->data_leaves;
    double sums = 1;

    if (!fits || !grid_is_power(cut->data_leaves) || !grid_is_power(whole) ||
        whole > cut->data_leaves)
        return node_limit(cut, !cut->shared);
    if (!cut->shared) addends /= whole;
    for (int64_t left = addends; left > 1; left /= 2) sums += 1;
    /* A product adds its sibling itself. */
    if (addends > 1 && !cut->shared && cut->micro_batch >= each) sums -= 1;
    return sums;
}

/* sums_of, once for cuts that follow each other. */
static double sums_again(const struct cut *cut, struct known_sums *known)
{
    struct known_sums *const at = &known[cut->micro_batches > 1];

    if (at->sums > 0 && memcmp(&at->cut, cut, sizeof *cut) == 0)
        return at->sums;
    at->cut = *cut;
    at->sums = sums_of(cut);
    return at->sums;
}

/* The leaves for all positions of a pipe. */
static void own_leaves(const struct layout *l, const struct shape *s,
                       struct known_sums *known, struct leaves *out)
{
    cut_leaves(l, s, out);
    if (s->integer_sums) out->apart = cut_leaves_lie_apart(&out->cut);
    else if (known != NULL) out->sums = sums_again(&out->cut, known);
    else out->sums = sums_of(&out->cut);
}

/* Elements of tables that are used again: by a tied head, by modules for later
 * tokens. The sums of each further use lie beside those of the first. */
static double used_again(const struct layout *l, const struct shape *s,
                         int position)
{
    const double table = table_of(l, s);
    const double head = s->outside.head / l->tensor;
    const int first = l->pipe == 1; /* lookups before the blocks */

    if (position < l->pipe - 1) return 0;
    if (s->tied) return table * (first + 2 * s->mtp.depth);
    return table * (s->mtp.depth > 0 ? first + s->mtp.depth - 1 : 0) +
           head * s->mtp.depth;
}

/* Sums that wait for each other in the tree over the leaves of the batch: of a
 * rank's own tokens, of each of the ranks whose rows its experts get, and,
 * where micro-batches are reduced one by one, of what is left of those
 * (docs/zero.md). */
static double own_gradients(const struct layout *l,
                            const struct leaves *leaves,
                            const struct divided *sum, double again)
{
    const struct expert_ranks e = layout_experts(l);
    const int contexts = l->expert_context ? l->context : 1;
    const int sources = e.ranks > 1 ? e.sources / contexts : 1;
    struct layout copies = *l;
    const double sums = leaves->sums;
    double levels = 1, apart = 0, unfinished = 0;

    copies.expert = 1;
    if (l->tensor > 1) apart = sum->whole;
    const double dense = sum->dense + again - apart;

    /* The leaves that a micro-batch does not end keep each part of a sum. */
    if (l->micro_batch % leaves->cut.sequences_per_leaf != 0)
        unfinished = leaves->parts * apart;
    apart *= leaves->cut.data_leaves;
    if (leaves->rounds == 0)
        return 4 * (dense * sums + apart + sum->whole * (l->tensor > 1) +
                    unfinished +
                    sum->experts * sources * (sums + contexts - 1));
    for (int rounds = leaves->rounds; rounds > 1; rounds /= 2) levels += 1;
    return 4 * (dense * (sums - 1 + levels / layout_division(l, 2)) + apart +
                unfinished +
                sum->experts * (sources * (sums + contexts - 1) - 1 +
                                levels / layout_division(&copies, 2)));
}

/* Sums of integers, which have no order: one of each gradient, in 8
 * bytes, or two where rounds follow each other, and one leaf in float32, for
 * all products in turn or, where it comes in pieces or from several ranks, of
 * each. */
static double own_integers(const struct layout *l, const struct leaves *leaves,
                           const struct divided *sum, double again,
                           double in_turn)
{
    const struct expert_ranks e = layout_experts(l);
    const int contexts = l->expert_context ? l->context : 1;
    const int sources = e.ranks > 1 ? e.sources / contexts : 1;
    struct layout copies = *l;
    const double levels = leaves->rounds > 1 ? 2 : 1;
    const double vectors = l->tensor > 1 ? sum->whole : 0;
    double leaf = leaves->apart ? sum->dense + again - vectors : in_turn / 4;

    copies.expert = 1;
    if (leaves->apart || sources * contexts > 1)
        leaf += sum->experts * sources * contexts;
    leaf += vectors * leaves->cut.data_leaves;
    if (leaves->apart) leaf += leaves->parts * vectors;
    if (leaves->rounds == 0)
        return 8 * (sum->dense + again + sum->experts) + 4 * leaf;
    return 8 * levels * ((sum->dense + again) / layout_division(l, 2) +
                         sum->experts / layout_division(&copies, 2)) + 4 * leaf;
}

/* Bytes of an element of a sum of leaves. */
static double sum_bytes(const struct shape *s)
{
    return s->integer_sums ? 8 : 4;
}

/* The largest sum of neighbours among the units of a pass: a block, or the part
 * of its own that experts are where they have other copies than the rest. */
static struct unit_sizes sizes_of_units(const struct layout *l,
                                        const struct shape *s, double each)
{
    return (struct unit_sizes){
        each * layout_block_dense(l, s),
        s->expert_blocks > 0
            ? each * layout_block_experts(l, s) / s->expert_blocks : 0,
        each * (double)s->width * (double)s->vocab / l->tensor};
}

static double own_units(const struct layout *l, struct unit_sizes of,
                        int units)
{
    const struct expert_ranks e = layout_experts(l);
    const double dense = of.dense, experts = of.experts;
    double head = of.head, most;

    if (experts > 0 && e.ranks > 1) {
        const double whole = l->data * l->shard > 1 ? experts : 0;

        most = units / 2 * (dense + whole) +
               units % 2 * (dense > whole ? dense : whole);
        units = units / 2; /* the head takes the place of two */
    } else {
        most = units * (dense + experts);
        units--;
    }
    head += units * (dense + experts);
    return most > head ? most : head;
}

/* Scratch of layers for a micro-batch of `b` sequences. Matrices that each
 * tensor rank has whole take a sum of each part of each leaf at once; what was
 * planned for one sequence may be that. Modules for later tokens make the
 * logits of a micro-batch at once. */
static double own_scratch(const struct layout *l, const struct shape *s,
                          const struct leaves *leaves, bool ends)
{
    const struct frames *f = &l->frames;
    const double b = (double)l->micro_batch;
    const double matrix = ends && s->mtp.local > s->block.local ? s->mtp.local
                                                            : s->block.local;
    const double sums = 4 * leaves->parts * matrix;
    const double slack = 1.001 * sums;
    double most = sums * leaves->cut.data_leaves;
    const double block = f->scratch > slack ? b * f->scratch : 0;
    const double head =
        f->head > slack ? f->head * (s->mtp.depth > 0 ? b : 1) : 0;

    if (block > most) most = block;
    return ends && head > most ? head : most;
}

/* Bytes that wait in a stage, and *room: that live inside one pass. */
static double own_stage(const struct layout *l, const struct shape *s,
                        int chunk, int position, double *room)
{
    const struct frames *f = &l->frames;
    const struct frame_parts *const parts[] = {&f->joint, &f->kept,
                                               &f->within};
    const int stage = layout_stage(l, chunk, position);
    const struct stage_blocks blocks = layout_stage_blocks(l, s, stage);
    const int mixed = blocks.mixed, plain = blocks.all - mixed;
    const bool last = stage == l->pipe * l->chunks - 1;
    const double waits = held(l, chunk, position);
    double bytes[3];

    for (int i = 0; i < 3; i++)
        bytes[i] = (double)l->micro_batch *
                   ((last ? parts[i]->ends : parts[i]->middle) +
                    plain * parts[i]->plain + mixed * parts[i]->mixed);
    *room = bytes[2];
    if ((l->chunks > 1 && !layout_joins_passes(l)) ||
        (waits > 1 && waits * bytes[1] + bytes[2] < waits * bytes[0]))
        return waits * bytes[1];
    *room = 0;
    return waits * bytes[0];
}

static void own_activations(const struct layout *l, const struct shape *s,
                            const struct leaves *leaves, int position,
                            struct memory *out)
{
    const struct frames *f = &l->frames;
    double rooms = 0;
    bool ends = false;

    for (int chunk = 0; chunk < l->chunks; chunk++) {
        double room;

        ends = ends || layout_stage(l, chunk, position) ==
                           l->pipe * l->chunks - 1;
        out->activations += own_stage(l, s, chunk, position, &room);
        if (layout_joins_passes(l)) rooms += room;
        else if (room > rooms) rooms = room;
    }
    out->activations += rooms;
    const double each = (double)l->micro_batch * f->each;

    out->logits = own_scratch(l, s, leaves, ends) +
                  (each > f->fixed ? each : f->fixed);
    /* The batch of the next step. */
    out->activations += 16.0 * (double)(l->batch / layout_sharing(l)) *
                        (double)s->sequence;
    if (layout_division(l, 3) > 1 || (l->offload & OFFLOAD_WEIGHTS)) {
        struct unit_sizes units = sizes_of_units(l, s, l->bits == 32 ? 4 : 2);

        if (memory_gathers_codes(l, s))
            memory_codes_units(l, s, position, &units);
        out->gathered = l->chunks * own_units(l, units, 2); /* of each stage */
    }
    if (leaves->rounds > 0)
        out->gathered +=
            s->lora.all > 0
                ? 3 * sum_bytes(s) * s->lora.all / l->tensor
                : own_units(l, sizes_of_units(l, s, sum_bytes(s)), 3);
}

static void fill_states(const struct layout *l, const struct shape *s,
                        const struct leaves *leaves, int position,
                        struct memory *out)
{
    const struct divided sum = parameters_at(l, s, position);
    const struct divided learn = learns_at(l, s, position);
    struct layout copies = *l; /* of an expert: expert ranks hold others */

    copies.expert = 1;
    if (l->expert_context) copies.context = 1;
    add_states(l, sum.dense, learn.dense, out);
    if (sum.experts > 0) add_states(&copies, sum.experts, learn.experts, out);
    if (l->as == AS_LOCKSTEP) {
        const bool last = position == l->pipe - 1;
        const double again = s->lora.all > 0 ? 0 : used_again(l, s, position);

        out->gradients =
            s->integer_sums
                ? own_integers(l, leaves, &learn, again,
                               last ? l->frames.head_leaf : l->frames.leaf)
                : own_gradients(l, leaves, &learn, again);
        out->weights += memory_codes(l, s, position);
    }
    if (l->offload & OFFLOAD_STATES) {
        out->offloaded += out->states;
        out->states = 0;
    }
    if (l->offload & OFFLOAD_WEIGHTS) {
        out->offloaded += out->weights;
        out->weights = 0;
    }
}

/* Micro-batches in flight of other programs, whose interleaved stages share one
 * memory: what all of them hold at once, for each. */
static double in_flight(const struct layout *l, int position)
{
    const double p = l->pipe;
    const double each = p + (p - 1 - 2 * position) / l->chunks;

    if (l->pipe == 1 || schedule_holds(l->schedule) != HOLDS_CHUNKS)
        return held(l, 0, position);
    return each < l->microbatches ? each : l->microbatches;
}

static void add_activations(const struct layout *l, const struct shape *s,
                            int position, struct memory *out)
{
    const double tokens = memory_tokens(l, s), t = l->tensor;
    const double each = memory_block_activations(l, s);
    const bool last = position == l->pipe - 1;

    for (int chunk = 0; chunk < l->chunks; chunk++)
        out->activations += each * in_flight(l, position) *
                            layout_blocks(l, s,
                                          layout_stage(l, chunk, position));
    if (last)
        out->activations += each * s->mtp.blocks * in_flight(l, position);
    if (position == 0 && s->biased) /* the mask of the embedding's dropout */
        out->activations += tokens * (double)s->width / t *
                            (l->microbatches < l->pipe ? l->microbatches
                                                       : l->pipe);
    if (l->recompute == RECOMPUTE_BLOCK) { /* the block that is made again */
        struct layout kept = *l;

        kept.recompute = RECOMPUTE_NONE;
        out->activations += memory_block_activations(&kept, s);
    }
    if (last)
        out->logits = habits_logit_bytes(l->as) * tokens * (double)s->vocab /
                          (habits_of[l->as].logits_whole ? 1 : t) +
                      4 * tokens * (double)s->width / t;
    memory_gather(l, s, position, out);
    out->foreign = 1.5e9; /* libraries */
}

static void memory_at(const struct layout *l, const struct shape *s,
                      const struct leaves *leaves, int position,
                      struct memory *out)
{
    *out = (struct memory){0};
    fill_states(l, s, leaves, position, out);
    if (l->as == AS_LOCKSTEP) own_activations(l, s, leaves, position, out);
    else add_activations(l, s, position, out);
    if (l->offload & OFFLOAD_ACTIVATIONS) {
        const double kept = 2 * memory_block_activations(l, s);

        if (out->activations > kept) {
            out->offloaded += out->activations - kept;
            out->activations = kept;
        }
    }
}

void memory_of(const struct layout *l, const struct shape *s, int position,
               struct memory *out)
{
    struct leaves leaves = {.rounds = 0};

    if (l->as == AS_LOCKSTEP) own_leaves(l, s, NULL, &leaves);
    memory_at(l, s, &leaves, position, out);
}

double memory_largest(const struct layout *l, const struct shape *s, int *at)
{
    struct leaves leaves = {.rounds = 0};
    double most = 0;
    /* Waiting activations fall along the pipe: of equal ranks the first, an
     * end, or one near it has the most. */
    const int near = l->blocks == NULL && l->pipe > 8 ? 3 : l->pipe;
    struct rank_blocks seen = {0, 0};

    *at = 0;
    if (l->as == AS_LOCKSTEP) own_leaves(l, s, NULL, &leaves);
    for (int position = 0; position < l->pipe; position++) {
        struct memory here;
        double bytes;

        if (!rank_blocks_grow(&seen, layout_rank_blocks(l, s, position)) &&
            position >= near && position < l->pipe - 2)
            continue;
        memory_at(l, s, &leaves, position, &here);
        bytes = memory_sum(&here);
        if (bytes > most) {
            most = bytes;
            *at = position;
        }
    }
    return most;
}

double memory_left(const struct layout *l, const struct shape *s, double whole)
{
    struct layout here = *l;
    double stays;
    int at;

    if (l->offload == OFFLOAD_NONE) return whole;
    stays = memory_largest(l, s, &at);
    here.offload = OFFLOAD_NONE;
    whole += stays - memory_largest(&here, s, &at);
    return whole > 0 ? whole : stays;
}

double memory_least(const struct layout *l, const struct shape *s,
                    struct known_sums known[2])
{
    const int ends[] = {0, l->pipe - 1};
    struct leaves leaves = {.rounds = 0};
    struct layout bare = *l;
    double most = 0;

    bare.frames = (struct frames){0};
    if (l->as == AS_LOCKSTEP) own_leaves(l, s, known, &leaves);
    for (int i = 0; i < (l->pipe > 1 ? 2 : 1); i++) {
        struct memory here;

        memory_at(&bare, s, &leaves, ends[i], &here);
        if (memory_sum(&here) > most) most = memory_sum(&here);
    }
    return most;
}
