/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.c - the tables of all backends and the choice among them. */
#include <stdio.h>
#include <string.h>
#include "kernels/cpu/scratch.h"
#include "kernels/cuda/launch.h"
#include "kernels/narrow_product.h"
#include "kernels/isa.h"
#include "kernels/kernels.h"

#define DECLARE_REFERENCE(row)                    \
    extern KERNELS_TYPE(row) reference_##row##_f32; \
    extern KERNELS_TYPE(row) reference_##row##_f64;
KERNELS_ROWS(DECLARE_REFERENCE)

#define REFERENCE_F32(row) .row = reference_##row##_f32,
#define REFERENCE_F64(row) .row = reference_##row##_f64,
const struct kernels kernels_reference_f32 = {
    .backend = "reference", .dtype = DTYPE_F32, KERNELS_ROWS(REFERENCE_F32)};
const struct kernels kernels_reference_f64 = {
    .backend = "reference", .dtype = DTYPE_F64, KERNELS_ROWS(REFERENCE_F64)};

/* One incomplete table per instruction set of this build. */
#define DECLARE_CPU(row, isa) extern KERNELS_TYPE(row) cpu_##row##_##isa;
#define FILL_CPU(row, isa) .row = cpu_##row##_##isa,

/* The rows that replace rows of the same name for a narrow table. */
struct narrow_rows {
    KERNELS_TYPE(cross_entropy) *cross_entropy_bf16, *cross_entropy_f16;
    KERNELS_TYPE(matmul) *bf16_pairs, *bf16_tiles, *f16;
    struct expert_rows_of { /* products over all experts */
        KERNELS_TYPE(experts_product) *product;
        KERNELS_TYPE(experts_gradient) *gradient;
    } experts_pairs, experts_tiles, experts_f16;
    bool (*strips_turn)(struct stream *stream, struct tensor weight);
    const int *strip_rows;
};

/* Everything that is compiled for one instruction set. */
struct backend {
    const struct kernels *table; /* NULL: not in this build */
    struct narrow_rows narrow;
    double (*peak_flops)(struct stream *stream, double seconds);
    void (*normals)(const struct normals *normals, double *out);
    void (*exponentials)(const struct exponentials *of, double *out);
    double (*peak_product)(struct stream *stream, enum product product,
                           double seconds); /* NULL: FMAs are the fastest */
};
#define DECLARE_EXPERTS(name)                                              \
    extern KERNELS_TYPE(experts_product) cpu_experts_product_##name;       \
    extern KERNELS_TYPE(experts_gradient) cpu_experts_gradient_##name;
#define EXPERTS(name) {cpu_experts_product_##name, cpu_experts_gradient_##name}
#define DECLARE_BACKEND(isa)                                               \
    extern KERNELS_TYPE(cross_entropy) cpu_cross_entropy_bf16_##isa;       \
    extern KERNELS_TYPE(cross_entropy) cpu_cross_entropy_f16_##isa;        \
    extern KERNELS_TYPE(matmul) cpu_matmul_bf16_pairs_##isa;               \
    extern KERNELS_TYPE(matmul) cpu_matmul_bf16_tiles_##isa;               \
    extern KERNELS_TYPE(matmul) cpu_matmul_f16_##isa;                      \
    DECLARE_EXPERTS(bf16_pairs_##isa) DECLARE_EXPERTS(bf16_tiles_##isa)    \
    DECLARE_EXPERTS(f16_##isa)                                             \
    double cpu_peak_flops_##isa(struct stream *stream, double seconds);    \
    void cpu_normals_##isa(const struct normals *normals, double *out);    \
    void cpu_exponentials_##isa(const struct exponentials *of, double *out); \
    bool cpu_strips_turn_##isa(struct stream *, struct tensor);            \
    extern const int cpu_strip_rows_##isa;
#define BACKEND(isa) .table = &cpu_##isa, BACKEND_BESIDE(isa)
#define BACKEND_BESIDE(isa)                                                \
    .narrow = {cpu_cross_entropy_bf16_##isa, cpu_cross_entropy_f16_##isa,  \
               cpu_matmul_bf16_pairs_##isa, cpu_matmul_bf16_tiles_##isa,   \
               cpu_matmul_f16_##isa, EXPERTS(bf16_pairs_##isa),            \
               EXPERTS(bf16_tiles_##isa), EXPERTS(f16_##isa),              \
               cpu_strips_turn_##isa,                                      \
               &cpu_strip_rows_##isa},                                     \
    .peak_flops = cpu_peak_flops_##isa, .normals = cpu_normals_##isa,      \
    .exponentials = cpu_exponentials_##isa

#ifdef HAVE_ISA_plain
#define DECLARE_PLAIN(row) DECLARE_CPU(row, plain)
#define FILL_PLAIN(row) FILL_CPU(row, plain)
KERNELS_CPU_ROWS(DECLARE_PLAIN)
DECLARE_BACKEND(plain)
static const struct kernels cpu_plain = {
    .backend = "cpu plain", .dtype = DTYPE_F32, KERNELS_CPU_ROWS(FILL_PLAIN)};
#endif
#ifdef HAVE_ISA_avx2
#define DECLARE_AVX2(row) DECLARE_CPU(row, avx2)
#define FILL_AVX2(row) FILL_CPU(row, avx2)
KERNELS_CPU_ROWS(DECLARE_AVX2)
DECLARE_BACKEND(avx2)
static const struct kernels cpu_avx2 = {
    .backend = "cpu avx2", .dtype = DTYPE_F32, KERNELS_CPU_ROWS(FILL_AVX2)};
#endif
#ifdef HAVE_ISA_avx512
#define DECLARE_AVX512(row) DECLARE_CPU(row, avx512)
#define FILL_AVX512(row) FILL_CPU(row, avx512)
KERNELS_CPU_ROWS(DECLARE_AVX512)
DECLARE_BACKEND(avx512)
double cpu_peak_product_avx512(struct stream *stream, enum product product,
                               double seconds);
static const struct kernels cpu_avx512 = {
    .backend = "cpu avx512", .dtype = DTYPE_F32,
    KERNELS_CPU_ROWS(FILL_AVX512)};
#endif
#ifdef HAVE_ISA_neon
#define DECLARE_NEON(row) DECLARE_CPU(row, neon)
#define FILL_NEON(row) FILL_CPU(row, neon)
KERNELS_CPU_ROWS(DECLARE_NEON)
DECLARE_BACKEND(neon)
static const struct kernels cpu_neon = {
    .backend = "cpu neon", .dtype = DTYPE_F32, KERNELS_CPU_ROWS(FILL_NEON)};
#endif

static const struct backend backends[ISA_COUNT] = {
#ifdef HAVE_ISA_plain
    [ISA_PLAIN] = {BACKEND(plain)},
#endif
#ifdef HAVE_ISA_avx2
    [ISA_AVX2] = {BACKEND(avx2)},
#endif
#ifdef HAVE_ISA_avx512
    [ISA_AVX512] = {BACKEND(avx512), .peak_product = cpu_peak_product_avx512},
#endif
#ifdef HAVE_ISA_neon
    [ISA_NEON] = {BACKEND(neon)},
#endif
#ifdef HAVE_ISA_plain
    [ISA_EMULATED] = {BACKEND_BESIDE(plain)}, /* rows: kernels_cuda */
#endif
    [ISA_AUTO] = {.table = NULL},
};

const char *isa_name(enum isa isa)
{
    static const char *const names[ISA_COUNT] = {
        "auto", "plain", "avx2", "avx512", "neon", "emulated"};

    return isa >= 0 && isa < ISA_COUNT ? names[isa] : "unknown";
}

static bool isa_runs(enum isa isa)
{
    switch (isa) {
    case ISA_PLAIN: return true;
#if defined(__x86_64__)
    case ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case ISA_AVX512: /* x86-64-v4, named by its members for older compilers */
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl") && isa_runs(ISA_AVX2);
#elif defined(__aarch64__)
    case ISA_NEON: return true;
#endif
    default: return false;
    }
}

static bool isa_works(enum isa isa)
{
    if (isa == ISA_EMULATED) return cuda_emulator != NULL;
    return isa >= 0 && isa < ISA_COUNT && backends[isa].table != NULL &&
           isa_runs(isa);
}

enum isa isa_best(void)
{
    static const enum isa order[] = {ISA_AVX512, ISA_AVX2, ISA_NEON};

    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (isa_works(order[i])) return order[i];
    return ISA_PLAIN;
}

void kernels_reference_products(struct kernels *table, enum dtype dtype,
                                enum product product)
{
#define PRODUCTS_OF(name)                                          \
    {                                                              \
        table->matmul = reference_matmul_##name;                   \
        table->experts_product = reference_experts_product_##name; \
        table->experts_gradient = reference_experts_gradient_##name; \
    }
    if (dtype == DTYPE_F16) PRODUCTS_OF(f16)
    else if (dtype == DTYPE_BF16 && product == PRODUCT_TILES)
        PRODUCTS_OF(bf16_tiles)
    else if (dtype == DTYPE_BF16) PRODUCTS_OF(bf16_pairs)
#undef PRODUCTS_OF
}

/* Every NULL row of `table` from `fallback`. */
static void kernels_complete(struct kernels *table,
                             const struct kernels *fallback)
{
#define COMPLETE(row) if (!table->row) table->row = fallback->row;
    KERNELS_ROWS(COMPLETE)
}

/* Rows take operands of float32 and narrow ones alike, but for products and
 * for the loss, which has no operand that says what its gradient should be. */
static void kernels_narrow(struct kernels *table, enum dtype dtype,
                           enum isa isa, enum product product)
{
    const struct narrow_rows *rows = &backends[isa].narrow;
    const struct expert_rows_of *experts;

    table->dtype = dtype;
    table->product = product;
    table->cross_entropy = dtype == DTYPE_BF16 ? rows->cross_entropy_bf16
                                               : rows->cross_entropy_f16;
    if (dtype == DTYPE_F16) {
        table->matmul = rows->f16;
        experts = &rows->experts_f16;
    } else if (product == PRODUCT_TILES) {
        table->matmul = rows->bf16_tiles;
        experts = &rows->experts_tiles;
    } else {
        table->matmul = rows->bf16_pairs;
        experts = &rows->experts_pairs;
    }
    table->experts_product = experts->product;
    table->experts_gradient = experts->gradient;
}

/* Rows that the device cuda does not have are plain's. */
static void emulated_table(struct kernels *out, enum dtype dtype,
                           enum product product)
{
    struct kernels plain = *backends[ISA_PLAIN].table;

    *out = (struct kernels){.dtype = dtype, .product = product};
    (void)kernels_cuda(out);
    out->backend = "cuda emulated";
    if (dtype_is_narrow(dtype))
        kernels_narrow(&plain, dtype, ISA_PLAIN, product);
    kernels_complete(out, &plain);
    kernels_complete(out, &kernels_reference_f32);
}

static struct strips kernels_strips(const struct kernels *table, enum isa isa)
{
    const struct narrow_rows *of = &backends[isa].narrow;
    struct strips strips = {.rows = *of->strip_rows, .grain = 1,
                            .turn = of->strips_turn};

    if (table->dtype == DTYPE_BF16)
        strips.grain = table->product == PRODUCT_TILES ? PRODUCT_BLOCK : 2;
    return table->dtype == DTYPE_F16 ? (struct strips){0} : strips;
}

status kernels_get(struct kernels *out, enum dtype dtype, enum isa isa)
{
    return kernels_get_product(out, dtype, isa, PRODUCT_PAIRS);
}

status kernels_get_product(struct kernels *out, enum dtype dtype, enum isa isa,
                           enum product product)
{
    char have[64] = "";

    memset(out, 0, sizeof *out);
    if (dtype == DTYPE_F64) {
        *out = kernels_reference_f64;
        return OK;
    }
    if (dtype != DTYPE_F32 && !dtype_is_narrow(dtype))
        FAIL(ERR_CONFIG,
             "no kernels compute in %s: use float32, float64, bfloat16 or "
             "float16", dtype_name(dtype));
    if (isa == ISA_AUTO) isa = isa_best();
    if (!isa_works(isa)) {
        for (enum isa i = ISA_PLAIN; i < ISA_CHOICES; i++) {
            size_t used = strlen(have);

            if (isa_works(i))
                snprintf(have + used, sizeof have - used, " %s", isa_name(i));
        }
        FAIL(ERR_CONFIG,
             "this machine or build cannot run the instruction set %s; it "
             "has:%s", isa_name(isa), have);
    }
    if (isa == ISA_EMULATED) {
        emulated_table(out, dtype, product);
        return OK;
    }
    *out = *backends[isa].table;
    kernels_complete(out, &kernels_reference_f32);
    if (dtype_is_narrow(dtype)) kernels_narrow(out, dtype, isa, product);
    out->strips = kernels_strips(out, isa);
    return OK;
}

static const struct backend *backend_of(enum isa isa)
{
    if (isa == ISA_AUTO) isa = isa_best();
    CHECK(isa_works(isa));
    return &backends[isa];
}

double kernels_peak_flops(struct stream *stream, enum isa isa, double seconds)
{
    return backend_of(isa)->peak_flops(stream, seconds);
}

void kernels_normals(enum isa isa, const struct normals *normals, double *out)
{
    backend_of(isa)->normals(normals, out);
}

void kernels_exponentials(enum isa isa, const struct exponentials *of,
                          double *out)
{
    backend_of(isa)->exponentials(of, out);
}

double kernels_peak_product(struct stream *stream, const struct kernels *table,
                            enum isa isa, double seconds)
{
    const struct backend *backend = backend_of(isa);
    const double chains = backend->peak_flops(stream, seconds);
    double best;

    if (table->dtype != DTYPE_BF16 || backend->peak_product == NULL)
        return chains;
    best = backend->peak_product(stream, table->product, seconds);
    return best > chains ? best : chains;
}

int kernels_rows(const struct kernels *table, struct kernels_row *rows,
                 int capacity)
{
    const struct kernels *reference = table->dtype == DTYPE_F64
                                          ? &kernels_reference_f64
                                          : &kernels_reference_f32;
    int count = 0;

#define PRINT_ROW(row)                                                    \
    if (count < capacity)                                                 \
        rows[count] = (struct kernels_row){                               \
            #row, table->row == reference->row ? "reference"              \
                                               : table->backend};         \
    count++;
    KERNELS_ROWS(PRINT_ROW)
#define PRODUCT_IS_PLAIN(product) || table->matmul == reference_##product
    if (capacity > 0 && (false NARROW_PRODUCTS(PRODUCT_IS_PLAIN)))
        rows[0].backend = "reference"; /* it comes first */
    return count;
}

/* The rows that need scratch: scatter_rows sorts tokens, the fast product and
 * attention pack their operands. Rows run one after the other, so the largest
 * counts. */
size_t kernels_scratch_bytes(const struct kernels *table, int threads,
                             int64_t widest, int64_t tokens)
{
    size_t most = ((size_t)widest + 1 + (size_t)tokens) * sizeof(int32_t);

    if (table->dtype != DTYPE_F64 &&
        table->add != kernels_reference_f32.add) {
        size_t product = matmul_scratch_bytes(threads);
        size_t attention = attention_scratch_bytes(threads, tokens);

        if (product > most) most = product;
        if (attention > most) most = attention;
    }
    return most;
}

void integer_product_check(const struct integer_product *p)
{
    const int64_t m = p->c.shape[0], n = p->c.shape[1], k = p->a.shape[1];

    CHECK(p->a.dtype == DTYPE_U8 && p->b.dtype == DTYPE_U8);
    CHECK(p->a.shape[0] == m && p->b.shape[0] == n && p->b.shape[1] == k);
    CHECK(p->a.stride[1] == 1 && p->b.stride[1] == 1 && p->c.stride[1] == 1);
    CHECK(dtype_real(p->c.dtype) == DTYPE_F32);
    CHECK(!p->bias || p->bias->shape[0] == n);
    CHECK(!p->left || (p->left->shape[0] == m && p->left->shape[1] == n &&
                       p->left->stride[1] == 1));
    sum_order_check(p->order, k, false);
    CHECK(p->order->segment_count == p->order->leaves);
    for (int i = 0; i < p->order->leaves; i++)
        CHECK(p->order->segments[i].length <= INTEGER_LEAF_MOST);
}

void sum_order_check(const struct sum_order *order, int64_t k, bool continues)
{
    int leaves = order->leaves, leaf = 0;

    CHECK(leaves >= 1 && leaves <= LEAVES_MAX);
    CHECK(order->segment_count >= 1 && order->segments[0].leaf == 0);
    CHECK(!continues || leaves == 1);
    for (int64_t i = 0; i < order->segment_count; i++) {
        const struct sum_segment *segment = &order->segments[i];

        CHECK(segment->length >= 1 && segment->first >= 0);
        CHECK(segment->first + segment->length <= k);
        CHECK(segment->leaf == leaf || segment->leaf == leaf + 1);
        leaf = segment->leaf;
    }
    CHECK(leaf == leaves - 1);
}
