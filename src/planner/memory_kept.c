/* SPDX-License-Identifier: Apache-2.0 */
/* memory_kept.c - activations and gathered weights that other programs hold.
 *
 * Activations of a GPT block by Korthikanti et al. 2022, arXiv:2205.05198,
 * section 4 (dropout masks of a byte); of a block with gates by the same
 * counting, attention fused, no masks. */
#include "planner/memory_parts.h"

double memory_tokens(const struct layout *l, const struct shape *s)
{
    return (double)l->micro_batch * (double)s->sequence / l->context;
}

/* Bytes for a token: what tensor ranks always divide, and the rest. */
struct kept { double split, whole; };

/* Inputs of products are kept in 8 bits, for the products of W. Attention also
 * keeps what the product behind it reads. */
static bool keeps_codes(const struct layout *l)
{
    return l->bits == 8 && habits_of[l->as].codes_kept;
}

static struct kept kept_by_gpt(const struct layout *l, const struct shape *s)
{
    const double h = (double)s->width, f = (double)s->feed_forward;
    const double scores = 5.0 * s->heads * (double)s->sequence;
    struct kept kept = {8 * h + 4 * f, 10 * h};

    if (l->recompute == RECOMPUTE_NONE && habits_of[l->as].scores)
        kept.split += scores;
    if (!keeps_codes(l)) return kept;
    return (struct kept){kept.split + h - f, kept.whole - 2 * h};
}

/* Latents that products read and, before their norms, norms; the rotary key. */
static double kept_latents(const struct shape *s, double element)
{
    const struct mla *of = &s->model.mla;
    const double normed = (double)(of->query_rank + of->rank);

    return of->rank > 0 ? (2 + element) * normed + 2.0 * (double)of->rope : 0;
}

static struct kept kept_by_llama(const struct layout *l,
                                 const struct shape *s)
{
    const double h = (double)s->width, f = (double)s->feed_forward;
    const double value = s->model.mla.rank > 0 ? (double)s->model.mla.value
                                               : s->head_width;
    const double out = s->heads * value;
    const double qkv = (double)s->heads * s->head_width +
                       s->kv_heads * (s->head_width + value);
    const double up = s->gated ? 6 : 4;
    const double element = keeps_codes(l) ? 1 : 2;
    struct kept kept = {2 * (l->again_latent ? 0 : qkv) + 2 * out + up * f +
                            4.0 * s->heads,
                        8 * h + kept_latents(s, element)};

    if (keeps_codes(l))
        kept = (struct kept){kept.split + (1 - s->unread.attention) * out - f,
                             kept.whole - 2 * h};
    if (habits_of[l->as].gate_apart && s->gated) kept.split += 2 * f;
    kept.split += element * h * s->choices; /* the rows that experts read */
    if (l->recompute == RECOMPUTE_SELECTIVE &&
        (l->again_moved || !habits_of[l->as].masks)) {
        /* Norms and the product of the gate are made again. */
        kept.whole -= 2 * element * h;
        kept.split -= s->gated ? element * f : 0;
    } else {
        kept.whole -= s->unread.norms * element * h;
        kept.split -= s->unread.gates * element * f;
    }
    return kept;
}

/* torchtitan keeps what every second product of a block makes, in the order q,
 * k, v, output, gate, up, down, what attention makes, and the block's input
 * (torchtitan/parallelisms/parallelize_llama.py, 2024-12: `% 2`). */
static struct kept kept_by_turns(const struct shape *s)
{
    const double h = (double)s->width, f = (double)s->feed_forward;
    const double q = (double)s->heads * s->head_width;
    const double kv = (double)s->kv_heads * s->head_width;

    return (struct kept){4 * q + 2 * kv + 2 * f + 4.0 * s->heads, 4 * h};
}

/* Whether tensor ranks keep both inputs of a block's products that they gather,
 * not their parts. */
static bool keeps_gathered(const struct layout *l)
{
    return l->sequence_parallel && !l->overlap_tensor &&
           habits_of[l->as].inputs_whole;
}

double memory_block_activations(const struct layout *l,
                                const struct shape *s)
{
    const double tokens = memory_tokens(l, s), t = l->tensor;
    const double wide = l->bits == 32 ? 2 : 1;
    struct kept kept = s->biased ? kept_by_gpt(l, s) : kept_by_llama(l, s);

    if (l->as == AS_LOCKSTEP)
        return (double)l->micro_batch *
               ((1 - s->expert_blocks) * l->frames.joint.plain +
                s->expert_blocks * l->frames.joint.mixed);
    if (l->recompute == RECOMPUTE_BLOCK) {
        kept = (struct kept){0, 2 * (double)s->width};
        return tokens * wide * kept.whole / (l->sequence_parallel ? t : 1);
    }
    if (l->recompute == RECOMPUTE_SELECTIVE && s->gated && s->choices <= 0 &&
        habits_of[l->as].products_again)
        kept = kept_by_turns(s);
    else if (keeps_gathered(l) && !s->biased)
        kept.split += 4 * (double)s->width * (t - 1);
    return tokens * wide *
           (kept.split / t + kept.whole / (l->sequence_parallel ? t : 1));
}

/* In a pipeline FSDP of single parameters gathers weights once, and adds
 * gradients up whole, until the last micro-batch
 * (torch/distributed/pipelining/stage.py: set_requires_gradient_sync). */
bool memory_pipe_whole(const struct layout *l)
{
    return l->pipe > 1 && habits_of[l->as].pipe_whole &&
           layout_division(l, 3) > 1;
}

double memory_gathered_bytes(const struct layout *l)
{
    const bool codes = l->bits == 8 && habits_of[l->as].codes_gathered;

    return l->bits == 32 ? 4 : codes ? 1 : 2;
}

void memory_gather(const struct layout *l, const struct shape *s,
                   int position, struct memory *out)
{
    const double unit = layout_block_dense(l, s) + layout_block_experts(l, s);
    const double each = l->bits == 32 ? 4 : 2;

    if (layout_division(l, 3) <= 1 && !(l->offload & OFFLOAD_WEIGHTS)) return;
    out->gathered += (memory_pipe_whole(l) ? 0 : 2 * unit * each) + 4 * unit;
    /* FSDP's root, table and head, is not given back before its B. */
    if (!habits_of[l->as].root_kept || memory_pipe_whole(l)) return;
    if (position == 0) out->gathered += each * s->outside.embedding / l->tensor;
    if (position == l->pipe - 1)
        out->gathered += each * s->outside.head / l->tensor;
}
