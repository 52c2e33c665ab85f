/* SPDX-License-Identifier: Apache-2.0 */
/* flash_forward.cu - attention on tensor cores, forward: a block has queries of
 * a head and goes over tiles of keys from the first that one of them sees, with
 * the largest score so far (online softmax). Of a wide head it makes a half of
 * the elements; another block makes the same weights for the other half. */
#include "kernels/cuda/flash_tile.h"

enum { TILE_MOST = 64, STEPS_MOST = TILE_MOST / FLASH_STEP };

/* Keys of a tile; elements of out that a block makes, and all that are not
 * zeros. */
struct flash_form { int span, tile, columns, value; };

DEVICE struct flash_form form_of(int span, int value)
{
    const struct flash_form form = {
        span, span <= FLASH_NARROW ? TILE_MOST : TILE_MOST / 2,
        value / FLASH_PARTS(value), value};

    return form;
}

/* A warp's 16 queries: those of a thread are LANE / 4 and 8 further. */
struct running {
    struct flash_sums sums;
    float most[2], sum[2]; /* sum: of the thread's own columns */
};

struct flash_scores { struct flash_pairs step[STEPS_MOST]; };

#define EACH_STEP(form)                                                    \
    UNROLLED for (int k = 0; k < (form).tile / FLASH_STEP; k++)

/* A block's queries. */
struct flash_queries {
    int64_t sequence;
    int64_t row;     /* of the warp's first */
    int head;
    struct flash_part part; /* of out */
};

/* Products become scores; what is not seen is -infinity. */
DEVICE void scores_mask(const struct flash_call *call,
                        const struct flash_queries *of,
                        const struct flash_warp *w, int first,
                        struct flash_form form, struct flash_scores *s)
{
    const bool all = warp_sees_all(w, first, form.tile);

    EACH_STEP(form) EACH_PAIR {
        const int key =
            first + k * FLASH_STEP + j * 8 + LANE % 4 * 2 + i % 2;
        float *const at = &s->step[k].at[j][i], bend;

        *at = all || is_seen(w, i / 2, key)
                  ? flash_score(call, of->head, of->sequence, key, *at, &bend)
                  : -__builtin_inff();
    }
}

/* The largest score so far; what was added up before is scaled to it. */
DEVICE void running_raise(struct running *r, struct flash_form form,
                          const struct flash_scores *s, float base[2])
{
    UNROLLED for (int row = 0; row < 2; row++) {
        float most = r->most[row], factor;

        EACH_STEP(form) UNROLLED for (int j = 0; j < 2; j++)
            UNROLLED for (int i = 0; i < 2; i++) {
                const float score = s->step[k].at[j][2 * row + i];

                most = score > most ? score : most;
            }
        UNROLLED for (int mask = 1; mask < 4; mask *= 2) {
            const float other = WARP_XOR(most, mask);

            most = other > most ? other : most;
        }
        base[row] = most == -__builtin_inff() ? 0.0f : most;
        factor = exp2z_f32(r->most[row] - base[row]);
        r->most[row] = most;
        r->sum[row] = r->sum[row] * factor;
        UNROLLED for (int n = 0; n < form.columns / 8; n++)
            UNROLLED for (int i = 0; i < 2; i++)
                r->sums.at[n][2 * row + i] = r->sums.at[n][2 * row + i] *
                                             factor;
    }
}

/* Scores become weights. */
DEVICE void scores_weights(struct running *r, const float base[2],
                           struct flash_form form, struct flash_scores *s)
{
    EACH_STEP(form) EACH_PAIR {
        const float weight = exp2z_f32(s->step[k].at[j][i] - base[i / 2]);

        s->step[k].at[j][i] = weight;
        r->sum[i / 2] = r->sum[i / 2] + weight;
    }
}

/* Weights times values. */
DEVICE void values_add(struct running *r, const struct flash_scores *s,
                       const uint16_t *values, struct flash_form form)
{
    EACH_STEP(form) {
        uint32_t weights[4];

        pairs_weights(&s->step[k], 4, weights);
        sums_add(&r->sums, weights,
                 values + k * FLASH_STEP * (form.columns + FLASH_PAD),
                 form.columns, form.columns);
    }
}

/* Statistics of a query whose scores were seen; of a node its largest score
 * and its sum. */
DEVICE void statistics_store(const struct attention *p, int64_t row, int head,
                             float most, float sum)
{
    float *const out = flash_number(&p->lse, row, head);

    if (p->denominator.data) {
        *out = most * FLASH_LN2;
        *flash_number(&p->denominator, row, head) = sum;
    } else {
        *out = sum == 0 ? -__builtin_inff()
                        : __builtin_fmaf(most, FLASH_LN2, log_f32(sum));
    }
    if (p->peaks && sum != 0)
        number_raise((float *)p->peaks + head, most * FLASH_LN2);
}

DEVICE void running_store(const struct flash_call *call,
                          const struct flash_queries *of,
                          const struct flash_warp *w, struct flash_form form,
                          struct running *r)
{
    const struct attention *p = &call->of.of;
    const bool is_node = p->denominator.data != NULL;

    UNROLLED for (int half = 0; half < 2; half++) {
        float sum = r->sum[half], factor;

        sum = sum + WARP_XOR(sum, 1);
        sum = sum + WARP_XOR(sum, 2);
        factor = is_node ? 1.0f : sum == 0 ? 0.0f : 1 / sum;
        UNROLLED for (int n = 0; n < of->part.columns / 8; n++)
            UNROLLED for (int i = 0; i < 2; i++)
                r->sums.at[n][2 * half + i] =
                    r->sums.at[n][2 * half + i] * factor;
        if (!w->there[half] || LANE % 4 != 0 || of->part.from != 0) continue;
        statistics_store(p, of->row + LANE / 4 + 8 * half, of->head,
                         r->most[half], sum);
    }
    sums_store(&p->out, of->part, of->row, w->there, of->head, &r->sums);
    if (form.value < form.span)
        rest_clear(&p->out, form.value, of->row, w->there, of->head);
}

/* Their elements from `from` on. */
DEVICE struct flash_rows rows_from(struct flash_rows x, int from)
{
    x.data += from;
    x.width -= from;
    return x;
}

/* The last queries see most keys: their blocks begin first. */
DEVICE void flash_forward(uint16_t *room, const struct flash_call *call,
                          struct flash_form form)
{
    const struct attention *p = &call->of.of;
    const int span = form.span, parts = FLASH_PARTS(form.value);
    const int part = (int)(BLOCK % parts);
    const int64_t tiles = call->of.tiles, unit = BLOCK / parts / tiles;
    const int64_t sequence = unit / p->heads;
    const struct flash_window own = window_of(p, false, sequence);
    const struct flash_window others = window_of(p, true, sequence);
    const int first =
        block_first(&own, tiles - 1 - BLOCK / parts % tiles, FLASH_ROWS);
    const int last =
        seen_of(p, false, block_end(&own, first, FLASH_ROWS) - 1).past;
    const int head = (int)(unit % p->heads);
    const int kv = head / (p->heads / p->kv_heads);
    const struct flash_part whole = {FLASH_ROWS, WARP * 16, 0, span};
    const struct flash_queries of = {
        sequence, own.row + first + WARP * 16 - own.begin, head,
        {FLASH_ROWS, WARP * 16, part * form.columns, form.columns}};
    const struct flash_rows q = flash_rows_of(&p->q, &own, head);
    const struct flash_rows key_rows = flash_rows_of(&p->k, &others, kv);
    const struct flash_rows value_rows =
        rows_from(flash_rows_of(&p->v, &others, kv), of.part.from);
    const struct flash_warp w =
        warp_of(p, false, sequence, first + WARP * 16);
    uint16_t *const keys = room;
    uint16_t *const values = room + form.tile * (span + FLASH_PAD);
    struct flash_operand a;
    struct running r = {.most = {-__builtin_inff(), -__builtin_inff()}};
    float base[2];

    sums_clear(&r.sums, form.columns);
    operand_take(room, span, &q, first, whole, &a);
    int at = seen_of(p, false, block_begin(&own, first)).from / form.tile *
             form.tile;

    if (at < last) rows_copy(keys, span, form.tile, &key_rows, at);
    COPIES_CLOSE;
    LOOPED for (; at < last; at += form.tile) {
        const bool sees = warp_sees(&w, at, form.tile);
        struct flash_scores s;

        COPIES_WAIT(0);
        BARRIER; /* keys are there, and values before them are read */
        rows_copy(values, form.columns, form.tile, &value_rows, at);
        COPIES_CLOSE;
        if (sees) {
            EACH_STEP(form) pairs_dots(
                &a, keys + k * FLASH_STEP * (span + FLASH_PAD), span, span,
                &s.step[k]);
            scores_mask(call, &of, &w, at, form, &s);
            running_raise(&r, form, &s, base);
            scores_weights(&r, base, form, &s);
        }
        COPIES_WAIT(0);
        BARRIER; /* values are there, and keys are read */
        if (at + form.tile < last)
            rows_copy(keys, span, form.tile, &key_rows, at + form.tile);
        COPIES_CLOSE;
        if (sees) values_add(&r, &s, values, form);
    }
    running_store(call, &of, &w, form, &r);
}

#define FORWARD_KERNEL(name, span, value)                                  \
    CUDA_WIDE_KERNEL(flash_forward_##name)                                 \
    {                                                                      \
        SHARED(struct flash_shared_##span, s);                             \
                                                                           \
        flash_forward(s->rows, &p->call, form_of(span, value));            \
    }
FORWARD_KERNEL(64, 64, 64)
FORWARD_KERNEL(96, 96, 96)
FORWARD_KERNEL(128, 128, 128)
FORWARD_KERNEL(192_128, 192, 128)
FORWARD_KERNEL(192, 192, 192)
FORWARD_KERNEL(256, 256, 256)
