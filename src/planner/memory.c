/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c - closed forms of memory.
 *
 * Activations of a GPT block by Korthikanti et al. 2022, arXiv:2205.05198,
 * section 4 (dropout masks of a byte); of a block with gates by the same
 * counting, attention fused, no masks. */
#include "planner/memory.h"

#include "schedule/build.h"

static double memory_sum(const struct memory *m)
{
    return m->weights + m->gradients + m->states + m->activations +
           m->logits + m->gathered + m->foreign;
}

static double tokens_of(const struct layout *l, const struct shape *s)
{
    return (double)l->micro_batch * (double)s->sequence / l->context;
}

/* Bytes for a token: what tensor ranks always divide, and the rest. */
struct kept { double split, whole; };

static struct kept kept_by_gpt(const struct layout *l, const struct shape *s)
{
    const double h = (double)s->width, f = (double)s->feed_forward;
    const double scores = 5.0 * s->heads * (double)s->sequence;
    struct kept kept = {8 * h + 4 * f, 10 * h};

    if (l->recompute == RECOMPUTE_NONE && habits_of[l->as].scores)
        kept.split += scores;
    return kept;
}

static struct kept kept_by_llama(const struct layout *l,
                                 const struct shape *s)
{
    const double h = (double)s->width, f = (double)s->feed_forward;
    const double q = (double)s->heads * s->head_width;
    const double kv = (double)s->kv_heads * s->head_width;
    const double up = s->gated ? 6 : 4;
    struct kept kept = {4 * q + 4 * kv + up * f + 4.0 * s->heads, 8 * h};

    kept.split += 2 * h * s->choices; /* the rows that experts read */
    if (l->recompute == RECOMPUTE_SELECTIVE && !habits_of[l->as].masks) {
        /* Norms and the product of the gate are made again. */
        kept.whole -= 4 * h;
        kept.split -= s->gated ? 2 * f : 0;
    }
    return kept;
}

double memory_block_activations(const struct layout *l,
                                const struct shape *s)
{
    const double tokens = tokens_of(l, s), t = l->tensor;
    const double wide = l->bits == 32 ? 2 : 1;
    struct kept kept = s->biased ? kept_by_gpt(l, s) : kept_by_llama(l, s);

    if (l->recompute == RECOMPUTE_BLOCK) {
        kept = (struct kept){0, 2 * (double)s->width};
        return tokens * wide * kept.whole / (l->sequence_parallel ? t : 1);
    }
    return tokens * wide *
           (kept.split / t + kept.whole / (l->sequence_parallel ? t : 1));
}

static int blocks_at(const struct layout *l, const struct shape *s,
                     int position)
{
    int blocks = 0;

    for (int chunk = 0; chunk < l->chunks; chunk++)
        blocks += layout_blocks(l, s, chunk * l->pipe + position);
    return blocks;
}

/* Parameters of one pipe position, without those of experts. */
static double parameters_at(const struct layout *l, const struct shape *s,
                            int position)
{
    const double t = l->tensor;
    double sum = layout_block_dense(l, s) * blocks_at(l, s, position);

    if (position == 0) sum += s->embedding_parameters / t;
    if (position == l->pipe - 1 && (l->pipe > 1 || !s->tied))
        sum += (s->tied ? s->embedding_parameters : s->head_parameters) / t;
    return sum;
}

/* Blocks times micro-batches that wait for their backward pass. */
static double in_flight(const struct layout *l, const struct shape *s,
                        int position)
{
    const double m = l->microbatches, p = l->pipe;
    const double blocks = blocks_at(l, s, position);
    double each;

    if (l->pipe == 1) return blocks;
    switch (schedule_holds(l->schedule)) {
    case HOLDS_ALL: return blocks * m;
    case HOLDS_CHUNKS:
        each = p * l->chunks + p - 1 - 2 * position;
        return blocks / l->chunks * (each < m * l->chunks ? each
                                                          : m * l->chunks);
    case HOLDS_LEFT: each = p - position; break;
    case HOLDS_TWICE: each = 2 * p - 1; break;
    case HOLDS_MORE: each = p + 1; break;
    case HOLDS_HALF: each = p / 2 + 1; break;
    case HOLDS_THIRD: each = p / 3 + 2; break;
    default: each = p; break;
    }
    return blocks * (each < m ? each : m);
}

/* Lockstep adds gradients by a tree over leaves of the batch: beside pipe and
 * context ranks it keeps whole ones, and those that wait for their sibling
 * (docs/zero.md). */
static double gradients_of_lockstep(const struct layout *l, double parameters,
                                    double unit)
{
    const double whole = 4 * parameters;
    const int divided = l->pipe == 1 && l->context == 1
                            ? layout_division(l, 2) : 1;
    int64_t leaves = (l->batch < 64 ? l->batch : 64) / layout_sharing(l);
    double waiting = 0;

    if (divided > 1) leaves = l->microbatches;
    for (; leaves > 1; leaves /= 2) waiting += 1;
    if (divided == 1) return whole * (1 + waiting);
    return whole / divided * (waiting > 1 ? waiting : 1) + 8 * unit;
}

static void add_states(const struct layout *l, double parameters,
                       double blocks, struct memory *out)
{
    const double weight = l->bits == 32 ? 4 : 2;
    /* With float32 weights there is no other copy of them. */
    const double states = l->bits == 32 ? 8 : 12;

    /* Shards of float32 are 16 bits wide when they are gathered. */
    if (habits_of[l->as].narrow_shards) {
        out->weights += 4 * parameters / layout_division(l, 3);
        out->states += 8 * parameters / layout_division(l, 1);
    } else {
        out->weights += weight * parameters / layout_division(l, 3);
        out->states += states * parameters / layout_division(l, 1);
    }
    if (l->as == AS_LOCKSTEP)
        out->gradients += gradients_of_lockstep(
            l, parameters, parameters / (1 + blocks));
    else
        out->gradients += 4 * parameters / layout_division(l, 2);
}

static void fill_states(const struct layout *l, const struct shape *s,
                        int position, struct memory *out)
{
    const double blocks = (double)s->layers / l->pipe;
    const double experts = layout_block_experts(l, s) *
                           blocks_at(l, s, position);
    struct layout copies = *l; /* of an expert: expert ranks hold others */

    copies.expert = 1;
    add_states(l, parameters_at(l, s, position), blocks, out);
    if (experts > 0) add_states(&copies, experts, blocks, out);
    if (l->offload & OFFLOAD_STATES) {
        out->offloaded += out->states;
        out->states = 0;
    }
    if (l->offload & OFFLOAD_WEIGHTS) {
        out->offloaded += out->weights;
        out->weights = 0;
    }
}

void memory_of(const struct layout *l, const struct shape *s, int position,
               struct memory *out)
{
    const double tokens = tokens_of(l, s), t = l->tensor;
    const double each = memory_block_activations(l, s);
    const double unit = layout_block_dense(l, s) + layout_block_experts(l, s);

    *out = (struct memory){0};
    fill_states(l, s, position, out);
    out->activations = each * in_flight(l, s, position);
    if (position == 0 && s->biased) /* the mask of the embedding's dropout */
        out->activations += tokens * (double)s->width / t *
                            (l->microbatches < l->pipe ? l->microbatches
                                                       : l->pipe);
    if (l->recompute == RECOMPUTE_BLOCK) { /* the block that is made again */
        struct layout kept = *l;

        kept.recompute = RECOMPUTE_NONE;
        out->activations += memory_block_activations(&kept, s);
    }
    if (position == l->pipe - 1) {
        const double logits = 6.0 * tokens * (double)s->vocab / t;
        const double most = 1 << 28; /* Lockstep makes them in chunks */

        out->logits = l->as == AS_LOCKSTEP && logits > most ? most : logits;
        out->logits += 4 * tokens * (double)s->width / t;
    }
    if (layout_division(l, 3) > 1 || (l->offload & OFFLOAD_WEIGHTS))
        out->gathered = 2 * unit * (l->bits == 32 ? 4 : 2) + 4 * unit;
    if (l->offload & OFFLOAD_ACTIVATIONS) {
        const double kept = 2 * each;

        if (out->activations > kept) {
            out->offloaded += out->activations - kept;
            out->activations = kept;
        }
    }
    if (l->as != AS_LOCKSTEP) out->foreign = 1.5e9; /* libraries */
}

double memory_largest(const struct layout *l, const struct shape *s, int *at)
{
    double most = 0;
    /* Even stages differ by a block, and what waits falls along the pipe: the
     * most is near an end. */
    const int near = l->blocks == NULL && l->pipe > 8 ? 3 : l->pipe;

    *at = 0;
    for (int position = 0; position < l->pipe; position++) {
        if (position == near && position < l->pipe - 2)
            position = l->pipe - 2;
        struct memory here;
        double bytes;

        memory_of(l, s, position, &here);
        bytes = memory_sum(&here);
        if (bytes > most) {
            most = bytes;
            *at = position;
        }
    }
    return most;
}
