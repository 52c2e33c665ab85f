/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - times every case, compares its bits with the reference, and
 * prints or writes the rows. */
#include "bench/kernels.h"

#include <string.h>

#include "bench/difference.h"
#include "bench/probe.h"
#include "kernels/isa.h"

enum {
    SCRATCH_WIDEST = 65536, SCRATCH_TOKENS = 8192, ROUNDS_MAX = 10000,
    EVERY = 64 /* rows of a product: one of them is compared */
};

struct bench {
    struct bench_kernels_settings settings;
    struct kernels kernels;
    struct stream stream;
    struct arena arena;
    struct operands *ours, *theirs; /* in the arena */
    struct probe_peer peer;
    double peak_flops, memory_rate;
    double product_flops; /* of the type at hand */
    FILE *out;
    struct json_writer *json;
    int rows, differing;
};

struct row {
    const struct bench_case *of;
    const char *backend;
    double seconds;       /* of one call, the best, */
    double cpu_seconds;   /* and of the calling thread alone */
    double limit_seconds; /* what the machine allows */
    double peer_seconds;  /* 0: none */
    bool memory_bound;
    bool checked;
    struct difference first;
};

static void case_prepare(struct operands *o, const struct bench_case *c)
{
    o->work = CASE_OTHER;
    o->used = 0;
    o->count = 0;
    o->settle = NULL;
    memset(o->doubles, 0, sizeof o->doubles);
    c->prepare(o, c->size);
}

static int case_count(void)
{
    return bench_case_count + bench_expert_case_count;
}

static const struct bench_case *case_at(int i)
{
    return i < bench_case_count ? &bench_cases[i]
                                : &bench_expert_cases[i - bench_case_count];
}

static bool is_product(const struct operands *o)
{
    return o->work == CASE_PRODUCT || o->work == CASE_EXPERTS;
}

/* Runs the definition of the bits: the float32 reference on numbers that the
 * narrow type has too; products have definitions of their own. */
static status reference_run(struct bench *bench, const struct bench_case *c)
{
    struct kernels reference = kernels_reference_f32;
    struct operands *theirs = bench->theirs;
    const bool product = is_product(bench->ours);

    reference.product = bench->kernels.product;
    theirs->narrow = bench->kernels.dtype;
    theirs->dtype = DTYPE_F32;
    kernels_reference_products(&reference, bench->kernels.dtype,
                               bench->kernels.product);
    if (product) theirs->dtype = bench->kernels.dtype;
    theirs->every = product && bench->settings.check == CHECK_SOME ? EVERY : 0;
    case_prepare(theirs, c);
    TRY(c->run(&reference, &bench->stream, theirs));
    if (theirs->settle) theirs->settle(theirs);
    return OK;
}

static status case_check(struct bench *bench, const struct bench_case *c,
                         struct difference *first)
{
    case_prepare(bench->ours, c);
    TRY(reference_run(bench, c));
    TRY(c->run(&bench->kernels, &bench->stream, bench->ours));
    if (bench->ours->settle) bench->ours->settle(bench->ours);
    *first = difference_find(bench->ours, bench->theirs);
    return OK;
}

/* Best time of one call within about `seconds`, at least three calls. */
static status case_time(struct bench *bench, const struct bench_case *c,
                        struct row *row)
{
    double start = probe_now_s();

    row->seconds = row->cpu_seconds = 1e9;
    for (int i = 0; i < ROUNDS_MAX; i++) {
        double before = probe_now_s(), cpu = probe_thread_s(), took;

        TRY(c->run(&bench->kernels, &bench->stream, bench->ours));
        took = probe_now_s() - before;
        cpu = probe_thread_s() - cpu;
        if (took < row->seconds) row->seconds = took;
        if (cpu < row->cpu_seconds) row->cpu_seconds = cpu;
        if (i >= 2 && probe_now_s() - start > bench->settings.seconds) break;
    }
    return OK;
}

/* The same product by the peer. */
static double peer_time(struct bench *bench)
{
    struct operands *o = bench->ours; /* as case_time left them */
    const struct tensor *a = &o->t[1], *b = &o->t[2];
    bool a_turned = a->stride[1] != 1, b_turned = b->stride[1] != 1;
    double start = probe_now_s(), best = 1e9;

    for (int i = 0; i < ROUNDS_MAX; i++) {
        double before = probe_now_s(), took;

        bench->peer.sgemm(a_turned ? 'T' : 'N', b_turned ? 'T' : 'N',
                          o->t[0].shape[0], o->t[0].shape[1], a->shape[1], 1,
                          a->data, a_turned ? a->stride[1] : a->stride[0],
                          b->data, b_turned ? b->stride[1] : b->stride[0], 0,
                          o->t[0].data, o->t[0].stride[0]);
        took = probe_now_s() - before;
        if (took < best) best = took;
        if (i >= 2 && probe_now_s() - start > bench->settings.seconds) break;
    }
    return best;
}

static const char *row_backend(const struct bench *bench, const char *kernel)
{
    struct kernels_row rows[64];
    int count = kernels_rows(&bench->kernels, rows, 64);

    for (int i = 0; i < count && i < 64; i++)
        if (strcmp(rows[i].name, kernel) == 0) return rows[i].backend;
    /* gelu is an activation; sums of rows and tables are named alike */
    return bench->kernels.backend;
}

static void row_print(struct bench *bench, const struct row *row)
{
    const struct operands *o = bench->ours;
    const struct difference *first = &row->first;
    char exact[128] = "not checked", peer[32] = "";
    double rate = (row->memory_bound ? o->bytes : o->flops) / row->seconds;

    if (row->checked) snprintf(exact, sizeof exact, "EXACT");
    if (first->is)
        snprintf(exact, sizeof exact,
                 "DIFFERS: operand %d, element %lld is %.9g, expected %.9g",
                 first->operand, (long long)first->element, first->found,
                 first->expected);
    if (row->peer_seconds > 0)
        snprintf(peer, sizeof peer, "  oneDNN %.0f GFLOP/s",
                 1e-9 * o->flops / row->peer_seconds);
    fprintf(bench->out, "%-19s %-20s %-8s %9.3f ms %8.1f %-7s %4.0f%%  "
            "%-11s%s%s\n", row->of->kernel, row->of->shape,
            dtype_name(bench->kernels.dtype), 1e3 * row->seconds, 1e-9 * rate,
            row->memory_bound ? "GB/s" : "GFLOP/s",
            100 * row->limit_seconds / row->seconds, exact, peer,
            strcmp(row->backend, "reference") == 0 ? "  (reference)" : "");
}

static void string(struct json_writer *json, const char *key, const char *value)
{
    json_write_key(json, key);
    json_write_string(json, value);
}

static void difference_write(struct json_writer *json,
                             const struct difference *first)
{
    json_write_key(json, "first_difference");
    json_write_object(json);
    json_write_key(json, "operand");
    json_write_integer(json, first->operand);
    json_write_key(json, "element");
    json_write_integer(json, first->element);
    json_write_key_real(json, "found", first->found);
    json_write_key_real(json, "expected", first->expected);
    json_write_object_end(json);
}

static void row_write(struct bench *bench, const struct row *row)
{
    struct json_writer *json = bench->json;

    json_write_object(json);
    string(json, "kernel", row->of->kernel);
    string(json, "shape", row->of->shape);
    string(json, "dtype", dtype_name(bench->kernels.dtype));
    string(json, "backend", row->backend);
    json_write_key_real(json, "seconds", row->seconds);
    json_write_key_real(json, "thread_cpu_seconds", row->cpu_seconds);
    json_write_key_real(json, "flops", bench->ours->flops);
    if (is_product(bench->ours))
        json_write_key_real(json, "peak_flops", bench->product_flops);
    json_write_key_real(json, "bytes", bench->ours->bytes);
    string(json, "limit", row->memory_bound ? "memory" : "compute");
    json_write_key_real(json, "limit_fraction",
                        row->limit_seconds / row->seconds);
    json_write_key(json, "exact");
    if (!row->checked) json_write_null(json);
    else json_write_bool(json, !row->first.is);
    if (row->first.is) difference_write(json, &row->first);
    if (row->peer_seconds > 0)
        json_write_key_real(json, "onednn_seconds", row->peer_seconds);
    json_write_object_end(json);
}

/* At the rates of products and of float32. */
static double compute_seconds(const struct bench *bench)
{
    const struct operands *o = bench->ours;
    const bool tiles = o->work == CASE_ATTENTION &&
                       bench->kernels.product == PRODUCT_TILES;

    if (tiles)
        return (o->flops - o->lane_flops) / bench->product_flops +
               o->lane_flops / bench->peak_flops;
    return o->flops /
           (is_product(o) ? bench->product_flops : bench->peak_flops);
}

static status case_bench(struct bench *bench, const struct bench_case *c)
{
    struct row row = {.of = c,
                      .checked = bench->settings.check != CHECK_NOTHING};
    double compute, memory;

    row.backend = row_backend(bench, c->kernel);
    if (row.checked) TRY(case_check(bench, c, &row.first));
    case_prepare(bench->ours, c);
    TRY(case_time(bench, c, &row));
    if (bench->ours->work == CASE_PRODUCT && bench->peer.library &&
        bench->kernels.dtype == DTYPE_F32)
        row.peer_seconds = peer_time(bench);
    compute = compute_seconds(bench);
    memory = bench->ours->bytes / bench->memory_rate;
    row.memory_bound = memory > compute;
    row.limit_seconds = row.memory_bound ? memory : compute;
    bench->rows++;
    if (row.first.is) bench->differing++;
    if (bench->json) row_write(bench, &row);
    else row_print(bench, &row);
    return OK;
}

static status operands_open(struct bench *bench, struct operands **out)
{
    TRY(arena_take(&bench->arena, sizeof **out, (void **)out));
    (*out)->capacity = CASE_FLOATS;
    return arena_take_array(&bench->arena, CASE_FLOATS, sizeof(float),
                            (void **)&(*out)->data);
}

static status bench_open(struct bench *bench)
{
    TRY(kernels_get(&bench->kernels, DTYPE_F32, bench->settings.isa));
    TRY(threads_build(&bench->stream.threads, bench->settings.threads));
    bench->stream.scratch_bytes = kernels_scratch_bytes(
        &bench->kernels, threads_count(bench->stream.threads), SCRATCH_WIDEST,
        SCRATCH_TOKENS);
    TRY(arena_take(&bench->arena, bench->stream.scratch_bytes,
                   &bench->stream.scratch));
    TRY(operands_open(bench, &bench->ours));
    TRY(operands_open(bench, &bench->theirs));
    TRY(probe_peer_open(&bench->peer));
    TRY(probe_memory_rate(&bench->kernels, &bench->stream, PROBE_AREA_BYTES,
                          &bench->memory_rate));
    bench->peak_flops = kernels_peak_flops(&bench->stream, bench->settings.isa,
                                           0.1);
    return OK;
}

static void bench_head(struct bench *bench)
{
    int threads = threads_count(bench->stream.threads);

    if (!bench->json) {
        fprintf(bench->out, "%s, %d thread%s: %.0f GFLOP/s of FMAs, %.1f GB/s "
                "of memory, measured now\n(above 100%%: operands that stay in "
                "caches)\n",
                bench->kernels.backend, threads,
                threads == 1 ? "" : "s", 1e-9 * bench->peak_flops,
                1e-9 * bench->memory_rate);
        if (bench->settings.check == CHECK_SOME)
            fprintf(bench->out, "EXACT: the reference has the same bits; of a "
                    "product, one row in %d was compared\n", EVERY);
        return;
    }
    json_write_object(bench->json);
    string(bench->json, "backend", bench->kernels.backend);
    json_write_key(bench->json, "threads");
    json_write_integer(bench->json, threads);
    json_write_key_real(bench->json, "peak_flops", bench->peak_flops);
    json_write_key(bench->json, "product_rows_compared_every");
    if (bench->settings.check == CHECK_NOTHING) json_write_null(bench->json);
    else json_write_integer(bench->json,
                            bench->settings.check == CHECK_SOME ? EVERY : 1);
    json_write_key_real(bench->json, "memory_bytes_per_s", bench->memory_rate);
    json_write_key(bench->json, "kernels");
    json_write_array(bench->json);
}

/* Measures the peak of the type's products: only bfloat16 has instructions of
 * its own. */
static void product_measure(struct bench *bench)
{
    bench->product_flops =
        bench->kernels.dtype == DTYPE_BF16
            ? kernels_peak_product(&bench->stream, &bench->kernels,
                                   bench->settings.isa, 0.1)
            : bench->peak_flops;
    if (!bench->json)
        fprintf(bench->out, "%s: %.0f GFLOP/s of products\n",
                dtype_name(bench->kernels.dtype), 1e-9 * bench->product_flops);
}

/* All cases in one type. */
static status type_run(struct bench *bench, enum dtype dtype)
{
    const char *only = bench->settings.only;

    if (bench->settings.every ? dtype == DTYPE_F64 || dtype == DTYPE_F16
                              : dtype != bench->settings.dtype)
        return OK;
    TRY(kernels_get_product(&bench->kernels, dtype, bench->settings.isa,
                            bench->settings.product));
    bench->ours->dtype = bench->ours->narrow = dtype;
    product_measure(bench);
    for (int i = 0; i < case_count(); i++) {
        if (only && !strstr(case_at(i)->kernel, only)) continue;
        TRY(case_bench(bench, case_at(i)));
    }
    return OK;
}

/* Whether any case has what is asked for in its name. */
static status only_check(const char *only)
{
    for (int i = 0; i < case_count(); i++)
        if (only == NULL || strstr(case_at(i)->kernel, only)) return OK;
    FAIL(ERR_CONFIG, "bench kernels: no kernel has %s in its name; rows are "
                     "called matmul, attention_forward, adamw, ...", only);
}

static status bench_run(struct bench *bench)
{
    TRY(only_check(bench->settings.only));
    TRY(bench_open(bench));
    bench_head(bench);
    for (enum dtype dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
        TRY(type_run(bench, dtype));
    if (bench->json) {
        json_write_array_end(bench->json);
        json_write_object_end(bench->json);
    }
    if (bench->differing > 0)
        FAIL(ERR_VERIFY, "%d of %d kernels differ from the reference, expected "
                         "equal bits", bench->differing, bench->rows);
    return OK;
}

status bench_kernels(const struct bench_kernels_settings *settings, FILE *out,
                     struct json_writer *json)
{
    struct bench bench = {.settings = *settings, .out = out, .json = json};
    status result;

    arena_init(&bench.arena, "bench", 0);
    if (bench.settings.seconds <= 0) bench.settings.seconds = 0.1;
    result = bench_run(&bench);
    probe_peer_close(&bench.peer);
    threads_free(bench.stream.threads);
    arena_free(&bench.arena);
    return result;
}
