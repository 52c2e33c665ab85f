/* SPDX-License-Identifier: Apache-2.0 */
/* matmul_plan.c - how a product is cut. None of it shows in a bit: an element
 * is computed by one tile, in the order of the slabs. */
#include "kernels/cpu/matmul/matmul_plan.h"
#include "kernels/cpu/scratch.h"

enum {
    COLUMNS_MAX = 4096, /* of a block of columns */
    STRIPS_OF_BLOCK = COLUMNS_MAX / TILE_COLUMNS + 1, /* at most */
    FEW_ROWS = 16,
    /* Limits of a group of panels of a for tiles: the bytes that a second-level
     * cache of 2 MB holds beside strips, and the number that is worth reading
     * all strips for. */
    GROUP_BYTES = 768 * 1024,
    GROUP_LEAST = 6
};

/* Whether sharing columns leaves less idle than sharing rows. Columns need no
 * barrier; rows pack a only once, which pays when c is tall. Where neither is
 * packed, rows need no barrier either, and each thread reads half of a only. */
static bool columns_are_shared(int64_t panels, int64_t strips, int threads)
{
    double idle_rows = (double)(ceil_div(panels, threads) * threads) /
                       (double)panels;
    double idle_columns = (double)(ceil_div(strips, threads) * threads) /
                          (double)strips;

    if (panels > 2 * strips) idle_rows *= 0.98;
    return idle_columns <= idle_rows * 1.005;
}

/* Words of a packed row or column of the whole product. */
static int64_t words_of(const struct plan *plan)
{
    struct matmul_cursor cursor;
    struct matmul_slab slab;
    int64_t words = 0;

    plan_cursor(plan, &cursor);
    while (CPU(matmul_slab_next)(&cursor, &slab)) words += slab.words;
    return words;
}

/* Few rows: slabs are as short as they can be, so that a strip stays in the
 * first cache until its tiles have read it. */
static void plan_few(struct plan *plan)
{
    const struct matmul_format *format = plan->format;
    int64_t m = plan->p.c.shape[0];
    int64_t rows = ceil_div(m, format->rows) * format->rows;

    plan->slab_words = format->slab_words;
    plan->whole = plan->p.strips && !format->widened;
    if (m > FEW_ROWS || rows * words_of(plan) > MATMUL_A_FLOATS - 64) return;
    plan->few = true;
    plan->direct = m <= FEW_DIRECT && format->few && !plan->whole &&
                   !plan->b_apart &&
                   plan->p.b.stride[0] == 1 && plan->p.b.shape[0] > 1;
    plan->slab_words = GRANULE / format->per_word;
}

/* Rows so far apart fall on few lines of a cache, so that what is read again
 * would have gone. */
static bool rows_collide(int64_t apart)
{
    enum { APART = 2048 }; /* bytes */

    return apart * (int64_t)sizeof(float) % APART == 0;
}

/* Which operands are read where they lie: a where too few columns pay for a
 * copy, or where its words are far apart and b needs no copy either, since c is
 * not tall, or so narrow that a copy of a would be read for few strips. */
static void plan_in_place(struct plan *plan, int threads)
{
    enum { PANELS_MOST = 16, STRIPS_MOST = 9, FEW_STRIPS = 4 }; /* measured */
    const struct tensor *a = &plan->p.a, *b = &plan->p.b, *c = &plan->p.c;
    const int64_t panels = ceil_div(c->shape[0], plan->format->rows * threads);
    const int64_t strips = ceil_div(c->shape[1], TILE_COLUMNS);
    const bool far = a->stride[1] != 1;

    if (!plan->format->in_place || plan->few || plan->a_apart ||
        plan->b_apart ||
        rows_collide(a->stride[far ? 1 : 0]))
        return;
    plan->in_place = far ? panels <= PANELS_MOST || strips <= FEW_STRIPS
                         : strips <= STRIPS_MOST;
    plan->b_in_place = plan->in_place && far && b->stride[1] == 1 &&
                       !rows_collide(b->stride[0]) &&
                       c->shape[1] % TILE_COLUMNS == 0;
}

static bool is_power(int n)
{
    return (n & (n - 1)) == 0;
}

/* Whether threads can share the sum, a subtree each: c is set, and not much;
 * what is to the left of it is added when the roots have met, all of which then
 * wait. */
static bool leaves_fit(const struct plan *plan, int threads)
{
    enum { BESIDE_LEFT = 128 * 1024 }; /* elements of c; more is slower */
    const struct matmul *p = &plan->p;
    const int leaves = p->order->leaves;
    const int64_t m = p->c.shape[0], n = p->c.shape[1];
    const int64_t slots = smaller(n, COLUMNS_MAX) * SLOTS * plan->format->rows;

    if (p->left && (p->left->dtype != DTYPE_F32 || m * n > BESIDE_LEFT))
        return false;
    return !p->continues && !p->bias && p->c.dtype == DTYPE_F32 &&
           leaves % threads == 0 && is_power(threads) &&
           is_power(leaves / threads) &&
           (threads - (p->left ? 0 : 1)) * m * n <= MATMUL_SLOT_FLOATS / 2 &&
           slots <= MATMUL_SLOT_FLOATS / (2 * threads);
}

/* Sums over tokens, both operands read in place: threads share the leaves, so
 * that each reads the tokens that it has itself worked on before, and only
 * once, a short slab at a time: its second cache holds the next one, too. */
static void plan_leaves(struct plan *plan, int threads)
{
    enum { SLAB_WORDS = 512 }; /* 256 and 1,024 are slower */

    plan->parts = 1;
    if (threads == 1 || !plan->b_in_place || !leaves_fit(plan, threads))
        return;
    plan->parts = threads;
    plan->slot_floats = MATMUL_SLOT_FLOATS / (2 * threads);
    plan->partials = plan->slots + MATMUL_SLOT_FLOATS / 2;
    plan->slab_words = SLAB_WORDS;
}

/* A result that is written at once and too large to be found in a cache again
 * does not have to pass through one. */
static bool goes_past_caches(const struct tensor *c, int64_t count)
{
    enum { PAST_CACHES_BYTES = 4 << 20 };
    const int64_t row = c->stride[0] * (int64_t)sizeof(float);

    return c->dtype == DTYPE_F32 && row % LINE == 0 &&
           (uintptr_t)c->data % LINE == 0 &&
           count * (int64_t)sizeof(float) >= PAST_CACHES_BYTES;
}

/* Formats with tiles of their own: as one slab, if that is not much longer. */
static void plan_one_slab(struct plan *plan)
{
    enum { TIMES = 3 };

    if (plan->dense && words_of(plan) <= TIMES * plan->slab_words)
        plan->slab_words *= TIMES;
}

/* How many slots wait between slabs, and the largest slab. */
static void plan_slabs(struct plan *plan)
{
    struct matmul_cursor cursor;
    struct matmul_slab slab;

    plan->words = 1;
    plan->waiting = 0;
    for (plan->part = 0; plan->part < plan->parts; plan->part++) {
        plan_cursor(plan, &cursor);
        while (CPU(matmul_slab_next)(&cursor, &slab)) {
            if (slab.words > plan->words) plan->words = slab.words;
            if (!slab.last && slab.slots_after > plan->waiting)
                plan->waiting = slab.slots_after;
        }
    }
    if (plan->waiting == 1 && !plan->keep_first && !plan->dense)
        plan->waiting = 0; /* it waits in c */
}

/* Columns of a block, whose strips of one slab fit, and its rows, whose slots
 * do. */
static void plan_blocks(struct plan *plan)
{
    const int64_t m = plan->p.c.shape[0], n = plan->p.c.shape[1];
    const int rows = plan->format->rows;
    int64_t blocks;

    plan->columns = smaller(plan->b_floats / plan->words, COLUMNS_MAX);
    if (plan->waiting)
        plan->columns = smaller(plan->columns,
                                plan->slot_floats / (plan->waiting * rows));
    plan->columns = plan->columns / TILE_COLUMNS * TILE_COLUMNS;
    blocks = ceil_div(n, plan->columns);
    plan->columns = ceil_div(ceil_div(n, blocks), TILE_COLUMNS) * TILE_COLUMNS;
    plan->rows = ceil_div(m, rows) * rows;
    if (plan->waiting) {
        int64_t fit = plan->slot_floats / (plan->waiting * plan->columns);

        fit = fit / rows * rows;
        CHECK(fit > 0);
        blocks = ceil_div(m, fit);
        plan->rows = ceil_div(ceil_div(m, blocks), rows) * rows;
    }
}

/* Panels that fit a second-level cache; about equally many at a time. */
static void plan_panels(struct plan *plan, int threads)
{
    const int rows = plan->format->rows, together = plan->format->together;
    const int size = rows * plan->words * 4;
    int64_t own = plan->rows / rows;
    int least;

    plan->panels = (MATMUL_A_FLOATS - 64) / (rows * plan->words);
    plan->panels -= plan->panels % together;
    if (plan->panels > plan->format->panels)
        plan->panels = plan->format->panels;
    if (!plan->dense) return;
    least = plan->panels < GROUP_LEAST ? plan->panels : GROUP_LEAST;
    if (plan->panels * size > GROUP_BYTES) plan->panels = GROUP_BYTES / size;
    if (plan->panels < least) plan->panels = least;
    if (!plan->by_columns) own = ceil_div(own, threads);
    own = ceil_div(own, ceil_div(own, plan->panels));
    own = ceil_div(own, together) * together;
    if (own < plan->panels) plan->panels = (int)own;
}

/* Panels of formats that flush leave room behind them. */
_Static_assert(MATMUL_PANELS * TILE_ROWS * MATMUL_SLAB + WIDTH +
                   STRIPS_OF_BLOCK <= MATMUL_A_FLOATS, "");

void CPU(matmul_plan_build)(struct plan *plan, int threads)
{
    const struct matmul *p = &plan->p;

    plan_few(plan);
    plan_in_place(plan, threads);
    plan_leaves(plan, threads);
    plan->past_caches = plan->parts == 1 && !p->left &&
                    goes_past_caches(&p->c, plan->c_count);
    plan->keep_first = p->c.dtype != DTYPE_F32 ||
                       (plan->parts == 1 && p->left &&
                        p->left->data == p->c.data);
    plan->dense = plan->format->tile && !plan->few;
    plan_one_slab(plan);
    plan_slabs(plan);
    plan_blocks(plan);
    plan->by_columns =
        plan->few || plan->parts > 1 ||
        (!(plan->b_in_place && plan->p.c.shape[0] > plan->p.c.shape[1]) &&
         columns_are_shared(plan->rows / plan->format->rows,
                            plan->columns / TILE_COLUMNS, threads));
    plan_panels(plan, threads);
    plan->b_least = plan->format->flushes && !plan->few
                        ? plan->a_packed + MATMUL_A_FLOATS - STRIPS_OF_BLOCK
                        : NULL;
}
