/* SPDX-License-Identifier: Apache-2.0 */
/* test_kernels.c - every row but products and attention: fast ones equal the
 * reference in every bit, for all instruction sets here, 1 to 4 threads, dense
 * and strided, edge values; narrow tables equal widened float32, rounded. */
#include "mesh/grid.h"
#include "tests/test.h"
#include "tests/unit/kernels/tape.h"

enum { THREADS_MAX = 4 };

/* Sizes of a case: tokens = leaves * sequences * length. */
struct size {
    int64_t width, length;
    int sequences, leaves, parts;
};

static const struct size sizes[] = {
    {1, 1, 1, 1, 1}, {2, 3, 1, 1, 1}, {15, 5, 2, 2, 1}, {16, 7, 1, 3, 2},
    {17, 300, 1, 2, 1},  {33, 32, 2, 7, 3},   {100, 130, 1, 1, 4},
    {128, 520, 1, 1, 2}, {129, 16, 3, 6, 2},  {640, 24, 2, 2, 4},
};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

struct job {
    struct tape *tape;
    const struct kernels *kernels;
    struct stream *stream;
    struct size size;
    int64_t tokens;
    struct token_order order;
};

static struct tensor job_matrix(struct job *job)
{
    return tape_matrix(job->tape, job->tokens, job->size.width);
}

static struct tensor job_logits(struct job *job)
{
    return tape_real(job->tape, job->tokens, job->size.width);
}

static struct tensor job_sums(struct job *job)
{
    const int contexts = token_order_contexts(&job->order);

    return tape_real(job->tape,
                     job->order.leaves * contexts * job->order.parts,
                     job->size.width);
}

/* A row of the job's kernels, then what rounding a float32 one owes. */
#define RUN(row, ...)                                              \
    do {                                                           \
        IS_OK(job->kernels->row(job->stream, __VA_ARGS__));        \
        tape_round(job->tape);                                     \
    } while (0)

/* `continues` needs one leaf here only because callers never do otherwise. */
static void job_orders(struct job *job, void (*run)(struct job *))
{
    run(job);
    job->order.continues = true;
    run(job);
    job->order.continues = false;
}

static void run_add(struct job *job)
{
    struct tensor a = job_matrix(job), b = job_matrix(job);
    struct tensor y = job_matrix(job);

    RUN(add, y, a, b);
    RUN(add, a, a, b);
}

static void run_scale(struct job *job)
{
    struct tensor x = job_matrix(job), y = job_matrix(job);

    RUN(scale, y, x, 0.3);
    RUN(scale, x, x, 1 / 3.0);
}

/* Operands of both kinds. */
static void run_mixed(struct job *job)
{
    struct tensor x = job_matrix(job), y = job_matrix(job);
    struct tensor a = job_logits(job), b = job_logits(job);

    RUN(scale, x, a, 1);
    RUN(scale, b, y, 1);
    RUN(add, y, a, x);
    RUN(add, x, a, b);
    RUN(add, a, x, y);
    RUN(add, b, b, x);
}

static void run_fold(struct job *job)
{
    struct tensor in = job_sums(job);
    struct tensor out = tape_real_vector(job->tape, job->size.width);

    RUN(fold, out, in, job->size.leaves, job->size.parts);
}

static void sum_rows_once(struct job *job)
{
    struct tensor sums = job_sums(job), dy = job_matrix(job);

    RUN(sum_rows, sums, dy, &job->order);
}

static void run_sum_rows(struct job *job)
{
    job_orders(job, sum_rows_once);
}

static void rmsnorm_once(struct job *job)
{
    struct tensor x = job_matrix(job), y = job_matrix(job);
    struct tensor dx = job_matrix(job), dy = job_matrix(job);
    struct tensor sums = job_sums(job);
    struct tensor r = tape_real_vector(job->tape, job->tokens);
    struct tensor w = tape_vector(job->tape, job->size.width);

    RUN(rmsnorm_forward, y, r, x, w, 1e-5);
    RUN(rmsnorm_backward, dx, job->order.continues, sums, dy, x, r, w,
        &job->order);
}

static void run_rmsnorm(struct job *job)
{
    job_orders(job, rmsnorm_once);
}

static void layernorm_once(struct job *job)
{
    struct tensor x = job_matrix(job), y = job_matrix(job);
    struct tensor dx = job_matrix(job), dy = job_matrix(job);
    struct tensor sums_w = job_sums(job), sums_b = job_sums(job);
    struct tensor stats = tape_real_vector(job->tape, 2 * job->tokens);
    struct tensor w = tape_vector(job->tape, job->size.width);
    struct tensor b = tape_vector(job->tape, job->size.width);

    RUN(layernorm_forward, y, stats, x, w, b, 1e-5);
    RUN(layernorm_backward, dx, job->order.continues, sums_w, sums_b, dy, x,
        stats, w, &job->order);
}

static void run_layernorm(struct job *job)
{
    job_orders(job, layernorm_once);
}

/* Sequences cut into chunks, of which two form a context leaf. */
static void run_chunks(struct job *job)
{
    job->order.context_chunks = 4;
    if (job->order.length % 4 != 0) return;
    sum_rows_once(job);
    rmsnorm_once(job);
    layernorm_once(job);
}

static void run_rope(struct job *job)
{
    static int32_t positions[4096];
    int64_t heads = 3, width = job->size.width + job->size.width % 2;
    struct tensor table = tensor_3d(
        tape_real_vector(job->tape, 40 * width).data, job->tape->dtype, 40,
        width / 2, 2);
    struct tensor x = tape_matrix(job->tape, job->tokens, heads * width);

    for (int64_t i = 0; i < job->tokens; i++)
        positions[i] = (int32_t)(tape_bits(job->tape) % 40);
    x.dimensions = 3;
    x.shape[1] = heads;
    x.shape[2] = width;
    x.stride[1] = width;
    x.stride[2] = 1;
    RUN(rope, x, positions, table, (int)width, false);
    table.shape[1] = width / 4; /* only half of each head */
    RUN(rope, x, positions, table, 2 * (int)(width / 4), true);
}

static void run_swiglu(struct job *job)
{
    struct tensor gate_up = tape_matrix(job->tape, job->tokens,
                                        2 * job->size.width);
    struct tensor d = tape_matrix(job->tape, job->tokens, 2 * job->size.width);
    struct tensor out = job_matrix(job), dout = job_matrix(job);

    RUN(swiglu_forward, out, gate_up);
    RUN(swiglu_backward, d, dout, gate_up);
    RUN(swiglu_backward, gate_up, dout, gate_up);
}

static void run_geglu(struct job *job)
{
    struct tensor gate_up = tape_matrix(job->tape, job->tokens,
                                        2 * job->size.width);
    struct tensor d = tape_matrix(job->tape, job->tokens, 2 * job->size.width);
    struct tensor out = job_matrix(job), dout = job_matrix(job);

    RUN(geglu_forward, out, gate_up);
    RUN(geglu_backward, d, dout, gate_up);
    RUN(geglu_backward, gate_up, dout, gate_up);
}

static void run_softcap(struct job *job)
{
    struct tensor x = job_matrix(job), y = job_matrix(job);
    struct tensor d = job_matrix(job);

    RUN(softcap_forward, y, x, 30.0);
    RUN(softcap_backward, d, y, 30.0);
    RUN(softcap_forward, x, x, 0.7);
}

static void run_activation(struct job *job)
{
    struct tensor x = job_matrix(job), dy = job_matrix(job);
    struct tensor y = job_matrix(job), dx = job_matrix(job);

    for (int a = ACTIVATION_GELU_TANH; a <= ACTIVATION_RELU; a++) {
        RUN(activation_forward, y, x, (enum activation)a);
        RUN(activation_backward, dx, dy, x, (enum activation)a);
        RUN(add, dy, dx, y);
    }
}

/* Few rows are named often, many never; with `elsewhere`, a quarter of the
 * tokens name none. */
static void choose_rows(struct job *job, int32_t *index, int64_t rows,
                        bool elsewhere)
{
    for (int64_t i = 0; i < job->tokens; i++) {
        uint64_t bits = tape_bits(job->tape);

        index[i] = (int32_t)(bits >> 32) % 3 == 0
                       ? (int32_t)(bits % 2) % (int32_t)rows
                       : (int32_t)(bits % (uint64_t)rows);
        if (elsewhere && bits >> 62 == 0) index[i] = -1;
    }
}

static void lookup(struct job *job, bool elsewhere)
{
    static int32_t index[4096];
    int64_t rows = 77;
    struct tensor table = tape_matrix(job->tape, rows, job->size.width);
    struct tensor dtable = tape_real(job->tape, rows, job->size.width);
    struct tensor unfinished = tape_real(job->tape, rows, job->size.width);
    struct tensor out = job_matrix(job), dout = job_matrix(job);

    choose_rows(job, index, rows, elsewhere);
    for (int adds = 0; adds < 2; adds++)
        RUN(gather_rows, out, adds == 1, table, index);
    RUN(scatter_rows, dtable, dout, index, &job->order);
    job->order.continues = true;
    job->order.sequences_per_leaf *= job->order.leaves;
    job->order.leaves = 1;
    RUN(scatter_rows, unfinished, dout, index, &job->order);
}

static void run_lookup(struct job *job)
{
    const struct token_order order = job->order;

    lookup(job, false);
    job->order = order;
    lookup(job, true);
}

/* A narrow gradient, in the first halves of rows, back to float32; one of
 * float32 is rounded where it should have been narrow. */
static void gradient_widen(const struct job *job, struct tensor logits)
{
    const enum dtype narrow = job->tape->narrow;

    for (int64_t row = 0; row < logits.shape[0]; row++) {
        float *x = (float *)logits.data + row * logits.stride[0];
        const struct tensor half = tensor_1d(x, narrow, logits.shape[1]);

        if (!dtype_is_narrow(narrow)) return;
        for (int64_t i = logits.shape[1] - 1; i >= 0; i--)
            x[i] = job->tape->widened ? tape_rounded(narrow, x[i])
                                      : (float)tensor_get(&half, i);
    }
}

static void run_cross_entropy(struct job *job)
{
    static int32_t targets[4096];
    struct cross_entropy c = {.logits = job_logits(job), .targets = targets,
                              .losses = job->tape->doubles,
                              .leaves = job->size.leaves};

    for (int64_t i = 0; i < job->tokens; i++)
        targets[i] = (int32_t)((int64_t)(tape_bits(job->tape) >> 1) %
                               (job->size.width + 1)) - 1;
    RUN(cross_entropy, &c);
    c.gradient = true;
    c.losses += TAPE_DOUBLES / 2;
    c.z_loss = 0.01;
    c.z_losses = job->tape->doubles + TAPE_DOUBLES / 4;
    RUN(cross_entropy, &c);
    gradient_widen(job, c.logits);
    for (int64_t i = 0; i < job->tokens; i++) {
        double before = job->tape->doubles[i];

        assert_true(before == c.losses[i] || (before != before &&
                                              c.losses[i] != c.losses[i]));
    }
}

/* Bits, any NaN equal to any. */
static void check_same(double a, double b)
{
    assert_true(memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b));
}

/* Columns [rank, rank + 1) of `ranks` equal sets of vocabulary leaves. */
static struct cross_entropy rank_loss(const struct cross_entropy *all,
                                      struct tensor logits, int rank, int ranks)
{
    const int64_t vocab = logits.shape[1];
    const int64_t block = (vocab + all->leaves - 1) / all->leaves;
    const int64_t share = block * (all->leaves / ranks);
    int64_t first = share * rank, last = first + share;
    struct cross_entropy part = *all;

    if (first > vocab) first = vocab;
    if (last > vocab) last = vocab;
    part.logits = tensor_cols(logits, first, last - first);
    part.first = first;
    part.block = block;
    part.leaves = all->leaves / ranks;
    return part;
}

/* The largest of (or the tree over) what the ranks have found of one token,
 * into the first one. */
static void join_token(struct tensor found, int64_t token, int ranks, bool tree)
{
    const int64_t count = found.shape[1];

    for (int apart = 1; apart < ranks; apart *= 2)
        for (int i = 0; i + apart < ranks; i += 2 * apart) {
            const int64_t left = i * count + token;
            const int64_t right = left + apart * count;
            const double a = cell(found, left), b = cell(found, right);

            if (tree && found.dtype == DTYPE_F32)
                cell_set(found, left, (double)((float)a + (float)b));
            else if (tree) cell_set(found, left, a + b);
            else cell_set(found, left, a > b ? a : b);
        }
}

static void join_ranks(struct job *job, struct tensor found, int ranks,
                       bool tree)
{
    for (int64_t i = 0; i < job->tokens; i++) join_token(found, i, ranks, tree);
}

static void phase_run(struct job *job, struct cross_entropy *p,
                      enum loss_phase phase)
{
    p->phase = phase;
    RUN(cross_entropy, p);
    if (phase == LOSS_END) gradient_widen(job, p->logits);
}

/* `ranks` share the vocabulary: losses and gradients as of one. */
static void loss_shared(struct job *job, const struct cross_entropy *whole,
                        struct tensor logits, int ranks)
{
    struct cross_entropy part[LEAVES_MAX];
    struct tensor found[3];

    for (int i = 0; i < 3; i++)
        found[i] = tape_real(job->tape, ranks + 1, job->tokens);
    for (int r = 0; r < ranks; r++) {
        const int64_t bytes = dtype_bytes(job->tape->dtype);
        const int64_t row = r * found[0].stride[0] * bytes;

        part[r] = rank_loss(whole, logits, r, ranks);
        part[r].losses = job->tape->doubles + TAPE_DOUBLES / 2;
        part[r].z_losses = part[r].losses + TAPE_DOUBLES / 4;
        part[r].maximum = (char *)found[0].data + row;
        part[r].target = (char *)found[1].data + row;
        part[r].sum = (char *)found[2].data + row;
        phase_run(job, &part[r], LOSS_MAXIMUM);
    }
    join_ranks(job, found[0], ranks, false);
    join_ranks(job, found[1], ranks, false);
    for (int r = 0; r < ranks; r++) {
        part[r].maximum = found[0].data;
        part[r].target = found[1].data;
        phase_run(job, &part[r], LOSS_SUM);
    }
    join_ranks(job, found[2], ranks, true);
    for (int r = 0; r < ranks; r++) {
        part[r].sum = found[2].data;
        phase_run(job, &part[r], LOSS_END);
        for (int64_t i = 0; i < job->tokens; i++)
            check_same(whole->losses[i], part[r].losses[i]);
        for (int64_t i = 0; i < job->tokens && whole->z_loss > 0; i++)
            check_same(whole->z_losses[i], part[r].z_losses[i]);
    }
    for (int64_t i = 0; i < tensor_count(&logits); i++)
        check_same(cell(whole->logits, i), cell(logits, i));
    for (int i = 0; i < 3; i++) /* the sign of a maximum of 0 is free */
        for (int64_t j = 0; j < tensor_count(&found[i]); j++)
            cell_set(found[i], j, 0);
}

static void run_shared_loss(struct job *job)
{
    static int32_t targets[4096];

    for (int64_t i = 0; i < job->tokens; i++)
        targets[i] = (int32_t)((int64_t)(tape_bits(job->tape) >> 1) %
                               (job->size.width + 1)) - 1;
    for (int ranks = 1; ranks <= job->size.leaves; ranks++) {
        struct cross_entropy whole = {
            .logits = job_logits(job), .targets = targets,
            .losses = job->tape->doubles, .leaves = job->size.leaves,
            .gradient = true, .z_loss = ranks % 2 == 0 ? 0.01 : 0,
            .z_losses = job->tape->doubles + TAPE_DOUBLES / 4};
        const struct tensor copy = job_logits(job);

        if (!grid_is_cut(job->size.leaves, ranks)) continue;
        for (int64_t i = 0; i < tensor_count(&copy); i++)
            cell_set(copy, i, cell(whole.logits, i));
        RUN(cross_entropy, &whole);
        gradient_widen(job, whole.logits);
        loss_shared(job, &whole, copy, ranks);
    }
}

/* Sums of the parts that one of several ranks has, from its tokens alone. */
static void run_shared_sums(struct job *job)
{
    const struct token_order *all = &job->order;
    const int64_t width = job->size.width, length = job->size.length;
    const struct tensor dy = job_matrix(job), whole = job_sums(job);

    RUN(sum_rows, whole, dy, all);
    for (int part = 0; part < all->parts; part++) {
        const int64_t first = token_order_part(all, part);
        const int64_t count = token_order_part(all, part + 1) - first;
        const int64_t sequences = all->leaves * all->sequences_per_leaf;
        const struct tensor mine = tape_matrix(
            job->tape, sequences * count, width);
        const struct tensor sums = tape_real(job->tape, all->leaves, width);
        struct token_order order = *all;

        order.parts = 1;
        order.first_part = part;
        order.all_parts = all->parts;
        order.whole_length = length;
        order.length = count;
        for (int64_t s = 0; s < sequences; s++)
            for (int64_t i = 0; i < count * width; i++)
                cell_set(mine, s * count * width + i,
                         cell(dy, (s * length + first) * width + i));
        RUN(sum_rows, sums, mine, &order);
        for (int64_t leaf = 0; leaf < all->leaves; leaf++)
            for (int64_t i = 0; i < width; i++)
                check_same(cell(sums, leaf * width + i),
                           cell(whole, (leaf * all->parts + part) * width + i));
    }
}

static void run_sum_squares(struct job *job)
{
    struct tensor x = job_logits(job);
    double *sums = job->tape->doubles;

    for (int i = 0; i < 5; i++) {
        struct tensor part =
            tensor_rows(x, 0, job->tokens - i * job->tokens / 5);

        RUN(sum_squares, sums, part, i == 1 ? 0.3 : 1.0);
        sums += (tensor_count(&part) + SQUARES_BLOCK - 1) / SQUARES_BLOCK;
    }
}

static void run_adamw(struct job *job)
{
    int64_t count = job->size.width * job->tokens;
    struct adamw p = {.weight = tape_real_vector(job->tape, count),
                      .m = tape_real_vector(job->tape, count),
                      .v = tape_real_vector(job->tape, count),
                      .gradient = tape_real_vector(job->tape, count),
                      .scale = 0.7, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95,
                      .epsilon = 1e-8, .decay = 0.1, .correction1 = 0.271,
                      .correction2 = 0.1426};
    struct tensor v = p.v, copy = {.data = NULL};

    /* A second moment is not negative. */
    for (int64_t i = 0; i < count; i++)
        tensor_set(&v, i, fabs(tensor_get(&v, i)));
    if (dtype_is_narrow(job->tape->narrow))
        copy = tape_vector(job->tape, count);
    if (!job->tape->widened) p.copy = copy;
    RUN(adamw, &p);
    for (int64_t i = 0; job->tape->widened && i < count; i++)
        tensor_set(&copy, i, tensor_get(&p.weight, i));
    tape_round(job->tape);
}

static const struct kernel_case {
    const char *name;
    void (*run)(struct job *job);
} cases[] = {
    {"add", run_add}, {"scale", run_scale}, {"mixed", run_mixed},
    {"fold", run_fold},
    {"sum_rows", run_sum_rows}, {"rmsnorm", run_rmsnorm},
    {"layernorm", run_layernorm}, {"chunks", run_chunks},
    {"rope", run_rope}, {"swiglu", run_swiglu},
    {"geglu", run_geglu}, {"softcap", run_softcap},
    {"activation", run_activation}, {"lookup", run_lookup},
    {"cross_entropy", run_cross_entropy},
    {"shared cross_entropy", run_shared_loss},
    {"shared sum_rows", run_shared_sums},
    {"sum_squares", run_sum_squares},
    {"adamw", run_adamw},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

static struct tape wanted, found;
static struct stream stream;

static void room_open(void)
{
    IS_OK(memory_take(1, TAPE_SCRATCH, &stream.scratch));
    stream.scratch_bytes = TAPE_SCRATCH;
    IS_OK(memory_take(TAPE_ELEMENTS, sizeof(double), &wanted.data));
    IS_OK(memory_take(TAPE_ELEMENTS, sizeof(double), &found.data));
}

static void room_close(void)
{
    memory_free(stream.scratch);
    memory_free(wanted.data);
    memory_free(found.data);
}

static void case_run(const struct kernel_case *c, const struct kernels *kernels,
                     struct tape *tape, const struct size *size)
{
    int64_t tokens = size->length * size->sequences * size->leaves;
    struct job job = {
        tape, kernels, &stream, *size, tokens,
        {.length = size->length, .sequences_per_leaf = size->sequences,
         .leaves = size->leaves, .parts = size->parts}};

    c->run(&job);
}

/* All tables of a type on this machine; pools of one thread and more. */
static struct kernels tables[ISA_COUNT];
static int table_count;
static struct threads *pools[THREADS_MAX];

/* Every number of threads, not every one with every size. */
static void tables_compare(const struct kernel_case *c, int index)
{
    for (int t = 0; t < table_count; t++) {
        /* A loss has a block for a token: 2,000 are slow to emulate. */
        if (index > 7 && strstr(c->name, "cross_entropy") != NULL &&
            strcmp(tables[t].backend, "emulated") == 0) continue;
        stream.threads = pools[(index + t) % THREADS_MAX];
        tape_start(&found, DTYPE_F32, wanted.narrow, wanted.values, wanted.gap);
        case_run(c, &tables[t], &found, &sizes[index]);
        const int64_t at = tape_differs(&wanted, &found);
        if (at >= 0)
            fail_msg("%s, %s, %s, %d threads, size %d, values %d, gap %d: "
                     "element %d", tables[t].backend, c->name,
                     dtype_name(tables[t].dtype),
                     threads_count(stream.threads), index, (int)wanted.values,
                     (int)wanted.gap, (int)at);
    }
    stream.threads = NULL;
}

static void case_compare(const struct kernel_case *c, int index,
                         enum dtype dtype, enum values values)
{
    wanted.widened = dtype_is_narrow(dtype);
    /* Narrow: edge values where rows are apart, the others dense. */
    for (int64_t gap = 0; gap < 6; gap += 5) {
        if (wanted.widened && (gap == 0) != (values == VALUES_NORMAL)) continue;
        tape_start(&wanted, DTYPE_F32, dtype, values, gap);
        case_run(c, &kernels_reference_f32, &wanted, &sizes[index]);
        tables_compare(c, index);
    }
}

/* All rows in one type; of edges all, half (address) or none (threads). */
static void type_compare(enum dtype dtype)
{
    room_open();
    table_count = 0;
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++, status_clear())
        table_count += kernels_get(&tables[table_count], dtype, isa) == OK;
    for (int n = 0; n < THREADS_MAX; n++)
        IS_OK(threads_build(&pools[n], 1 + SANITIZED_THREADS + n));
    for (int i = 0; i < SIZE_COUNT; i++)
        for (int c = 0; c < CASE_COUNT; c++) {
            case_compare(&cases[c], i, dtype, VALUES_NORMAL);
            if (dtype_is_narrow(dtype) ||
                (i + c) % 2 < 2 - SANITIZED - SANITIZED_THREADS)
                case_compare(&cases[c], i, dtype, VALUES_EDGE);
        }
    for (int n = 0; n < THREADS_MAX; n++) threads_free(pools[n]);
    room_close();
}

TEST(fast_rows_equal_the_reference)
{
    type_compare(DTYPE_F32);
}

TEST(rows_of_bfloat16_are_rounded_float32)
{
    type_compare(DTYPE_BF16);
}

TEST(rows_of_float16_are_rounded_float32)
{
    type_compare(DTYPE_F16);
}

static void regions_near(const struct kernel_case *c, const struct tensor *x,
                         const struct tensor *y)
{
    for (int64_t i = 0; i < x->shape[0]; i++) {
        const double a = tensor_get(x, i), b = tensor_get(y, i);

        if (!(fabs(a - b) < 2e-4 * (1 + fabs(b))))
            fail_msg("%s: element %ld is %g in float32, %g in float64",
                     c->name, (long)i, a, b);
    }
}

/* Float32 and float64 differ by rounding only. */
TEST(float32_is_near_float64)
{
    if (SANITIZED_THREADS) skip(); /* has none */
    room_open();
    wanted.widened = found.widened = false;
    for (int i = 1; i < SIZE_COUNT; i++)
        for (int c = 0; c < CASE_COUNT; c++) {
            tape_start(&found, DTYPE_F32, DTYPE_F32, VALUES_NORMAL, 0);
            tape_start(&wanted, DTYPE_F64, DTYPE_F64, VALUES_NORMAL, 0);
            case_run(&cases[c], &kernels_reference_f32, &found, &sizes[i]);
            case_run(&cases[c], &kernels_reference_f64, &wanted, &sizes[i]);
            for (int r = 0; r < found.region_count; r++)
                regions_near(&cases[c], &found.regions[r].all,
                             &wanted.regions[r].all);
            for (int j = 0; j < TAPE_DOUBLES; j++)
                if (!(fabs(found.doubles[j] - wanted.doubles[j]) <
                      1e-5 * (1 + fabs(wanted.doubles[j]))))
                    fail_msg("%s: double %d is %g, expected %g", cases[c].name,
                             j, found.doubles[j], wanted.doubles[j]);
        }
    room_close();
}

TEST(tables_are_chosen_and_completed)
{
    struct kernels_row rows[64];
    struct kernels kernels;
    int count;

    FAILS(kernels_get(&kernels, DTYPE_I32, ISA_AUTO), ERR_CONFIG, "int32");
    IS_OK(kernels_get(&kernels, DTYPE_F64, ISA_AUTO));
    assert_ptr_equal(kernels.add, kernels_reference_f64.add);
    IS_OK(kernels_get(&kernels, DTYPE_F32, ISA_AUTO));
    count = kernels_rows(&kernels, rows, 64);
    assert_in_range(count, 20, 64);
    assert_string_equal(rows[1].name, "add");
    assert_string_equal(rows[1].backend, kernels.backend);
    for (enum isa isa = ISA_PLAIN; isa < ISA_COUNT; isa++)
        if (kernels_get(&kernels, DTYPE_F32, isa) != OK) {
            assert_non_null(strstr(status_message(), isa_name(isa)));
            assert_non_null(strstr(status_message(), "plain"));
            status_clear();
        }
}

TEST_MAIN(fast_rows_equal_the_reference, rows_of_bfloat16_are_rounded_float32,
          rows_of_float16_are_rounded_float32, float32_is_near_float64,
          tables_are_chosen_and_completed)
