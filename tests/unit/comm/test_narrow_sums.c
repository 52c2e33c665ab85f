/* SPDX-License-Identifier: Apache-2.0 */
/* test_narrow_sums.c - mirrors src/comm/narrow_sums.c: how far sums of rounded
 * numbers are from the exact ones, what they send, and what is not finite. */
#include "comm/traffic.h"
#include "tests/test.h"

enum { RANKS_MOST = 8, EACH = 700 };

struct narrow_case {
    int ranks, bits, node;
    int leaves;  /* of the grid, in several subtrees of a rank; 0: one each */
    bool broken; /* an infinity in element 5 of rank 1's block for rank 0 */
    bool in_place;
    bool apart;  /* blocks begin at `starts` anew */
};

/* Odd and even ones, some of them behind all numbers. */
static const int64_t starts[] = {0, 1, 129, 300, 333, 1000, 1001, 1290, 9000};

static int roots_of(const struct narrow_case *c, int rank)
{
    struct comm_root roots[COMM_ROOTS_MAX];

    return c->leaves == 0 ? 1
                          : comm_roots(c->leaves, c->ranks, rank, roots);
}

/* In [-1, 1]; blocks of 128 have different sizes. */
static double value(int rank, int root, int64_t at)
{
    const uint32_t mixed =
        (uint32_t)(rank * 7919 + root * 613 + at * 104729 + 17) * 2654435761u;
    const double size = at / 128 % 3 == 0 ? 1 : at / 128 % 3 == 1 ? 0.25 : 1e-3;

    return ((double)mixed / 2147483648.0 - 1) * size;
}

/* Lengths differ, and the last rank but one has nothing. */
static int64_t count_of(const struct narrow_case *c, int rank)
{
    return rank == c->ranks - 2 && c->ranks > 2 ? 0 : EACH - 37 * rank;
}

/* Every message rounds to half a code of the largest number in it. */
static double bound(const struct narrow_case *c)
{
    const int node = c->node > 0 ? c->node : c->ranks, nodes = c->ranks / node;
    const double half = 0.5 / ((1 << (c->bits - 1)) - 1);

    if (c->apart)
        return 1.02 * half * c->ranks * (nodes > 1 ? 2 + half : 1);
    return (c->leaves > 0 ? 3 : 1) * 1.02 * half *
           (nodes * (node - 1) + (nodes - 1) * node * (1 + half));
}

static status check_sums(const struct narrow_case *c, const struct group *g,
                         const struct tensor *out, int64_t first)
{
    double worst = 0;

    for (int64_t i = 0; i < tensor_count(out); i++) {
        double right = 0, off;

        for (int rank = 0; rank < c->ranks; rank++)
            for (int root = 0; root < roots_of(c, rank); root++)
                right += (double)(float)value(rank, root, first + i);
        off = tensor_get(out, i) - right;
        if (off < 0) off = -off;
        if (c->broken && g->rank == 0 && i < 128) {
            if (off - off == 0)
                FAIL(ERR_VERIFY, "element %lld is finite", (long long)i);
            continue;
        }
        if (off > worst) worst = off;
        if (!(off <= bound(c)))
            FAIL(ERR_VERIFY, "element %lld of rank %d is off by %g, more than "
                             "%g", (long long)i, g->rank, off, bound(c));
    }
    if (tensor_count(out) > 0 && worst == 0)
        FAIL(ERR_VERIFY, "nothing was rounded on rank %d", g->rank);
    return OK;
}

static status body(void *argument, struct group *g)
{
    const struct narrow_case *c = argument;
    const int roots = roots_of(c, g->rank);
    int64_t counts[RANKS_MOST], all = 0, first = 0;
    struct arena arena;
    void *in, *out;
    status result;

    arena_init(&arena, "test", 0);
    group_limit_ms(g, 20000);
    for (int i = 0; i < c->ranks; i++) {
        counts[i] = count_of(c, i);
        if (i < g->rank) first += counts[i];
        all += counts[i];
    }
    TRY(arena_take_array(&arena, (size_t)(all * roots), 4, &in));
    TRY(arena_take_array(&arena, EACH, 4, &out));
    struct comm_call call = {
        .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
        .in = tensor_1d(in, DTYPE_F32, all * roots),
        .out = tensor_1d(c->in_place ? (float *)in + first : out, DTYPE_F32,
                         counts[g->rank]),
        .in_counts = counts, .leaves = c->leaves,
        .narrow = {.bits = c->bits, .node = c->node}};

    if (c->apart) call.narrow.starts = starts;
    call.narrow.start_count = (int64_t)(sizeof starts / sizeof *starts);

    for (int root = 0; root < roots; root++)
        for (int64_t i = 0; i < all; i++)
            ((float *)in)[root * all + i] =
                (float)value(g->rank, root, i);
    if (c->broken && g->rank == 1)
        ((float *)in)[5] = ((float *)in)[0] / 0.0f;
    result = comm_run_alone(g, call);
    if (result == OK) result = check_sums(c, g, &call.out, first);
    const int64_t sent = comm_traffic_bytes(g, COMM_REDUCE_SCATTER);

    if (result == OK && sent != comm_narrow_sent(&call.narrow, counts, c->ranks,
                                               g->rank))
        FAIL(ERR_VERIFY, "rank %d sent %lld bytes", g->rank,
             (long long)sent);
    arena_free(&arena);
    return result;
}

static void run(struct narrow_case c)
{
    IS_OK(ranks_run(c.ranks, body, &c));
}

TEST(sums_are_near_the_exact_ones)
{
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++)
        for (int bits = 4; bits <= 8; bits += 4) {
            struct narrow_case c = {.ranks = ranks, .bits = bits};

            run(c);
            c.in_place = true;
            run(c);
            c.apart = true;
            run(c);
            c.apart = false;
            c.leaves = 3 * ranks;
            run(c);
            if (ranks % 2 > 0) continue;
            c = (struct narrow_case){.ranks = ranks, .bits = bits, .node = 2};
            run(c);
            c.apart = true;
            run(c);
            c = (struct narrow_case){.ranks = ranks, .bits = bits,
                                     .node = ranks / 2, .in_place = true};
            run(c);
        }
}

TEST(what_is_not_finite_stays_so)
{
    run((struct narrow_case){2, 8, 0, 0, true, false, false});
    run((struct narrow_case){4, 4, 2, 0, true, false, false});
}

/* A fourth of the bytes, an eighth. */
TEST(few_bytes_are_sent)
{
    const int64_t counts[] = {1 << 20, 1 << 20, 1 << 20};

    struct comm_narrow how = {.bits = 8};

    EQUAL_INT(comm_narrow_sent(&how, counts, 3, 1),
              2 * ((1 << 20) + (1 << 15)));
    how.bits = 4;
    EQUAL_INT(comm_narrow_sent(&how, counts, 3, 1),
              2 * ((1 << 19) + (1 << 15)));
}

/* Copies of a vector on two sides, among other numbers and cut otherwise. */
enum { WHOLE = 1024, COPIED = 300, COPIES = 233, RANKS = 4 };

struct copies {
    struct comm_narrow how;
    float sums[2][WHOLE];
};

static float side_value(int side, int rank, int64_t at)
{
    const bool copied = at >= COPIED && at < COPIED + COPIES;

    return (float)value(rank, 0, copied || side == 0 ? at : at + 5000) *
           (copied || side == 0 ? 1 : 50);
}

static status copied_body(void *argument, struct group *g)
{
    static const int64_t counts[2][RANKS] = {{256, 172, 300, 296},
                                             {600, 100, 200, 124}};
    struct copies *c = argument;

    for (int side = 0; side < 2; side++) {
        float in[WHOLE];
        int64_t first = 0;

        for (int i = 0; i < g->rank; i++) first += counts[side][i];
        for (int64_t i = 0; i < WHOLE; i++)
            in[i] = side_value(side, g->rank, i);
        struct comm_call call = {
            .kind = COMM_REDUCE_SCATTER, .algorithm = ALGORITHM_ORDERED,
            .in = tensor_1d(in, DTYPE_F32, WHOLE),
            .out = tensor_1d(c->sums[side] + first, DTYPE_F32,
                             counts[side][g->rank]),
            .in_counts = counts[side], .narrow = c->how};

        TRY(comm_run_alone(g, call));
    }
    return OK;
}

/* One side cuts them after a block: ranks 1 and 2 have them there, rank 0 has
 * them here. */
TEST(copies_between_starts_have_the_same_sums)
{
    static const int64_t begin[] = {0, COPIED, COPIED + COPIES};

    for (int bits = 4; bits <= 8; bits += 4)
        for (int node = 0; node <= 2; node += 2) {
            static struct copies c;

            c.how = (struct comm_narrow){bits, node, begin, 3};
            IS_OK(ranks_run(RANKS, copied_body, &c));
            EQUAL_INT(memcmp(c.sums[0] + COPIED, c.sums[1] + COPIED,
                             COPIES * sizeof(float)), 0);
            EQUAL_INT(memcmp(c.sums[0], c.sums[1], COPIED) == 0, 0);
        }
}

static status refused(void *argument, struct group *g)
{
    float in[4] = {0}, out[2];
    const int64_t counts[] = {2, 2};
    struct comm_call call = {.kind = COMM_REDUCE_SCATTER,
                             .in = tensor_1d(in, DTYPE_F32, 4),
                             .out = tensor_1d(out, DTYPE_F32, 2),
                             .in_counts = counts, .narrow = {.bits = 5}};

    (void)argument;
    FAILS(comm_run(g, &call), ERR_CONFIG, "can be in 4 or 8 bits");
    call.narrow.bits = 8;
    call.in_counts = NULL;
    FAILS(comm_run(g, &call), ERR_CONFIG, "with counts");
    return OK;
}

TEST(only_reduce_scatters_are_narrow) { IS_OK(ranks_run(2, refused, NULL)); }

TEST_MAIN(sums_are_near_the_exact_ones, what_is_not_finite_stays_so,
          few_bytes_are_sent, copies_between_starts_have_the_same_sums,
          only_reduce_scatters_are_narrow)
