/* SPDX-License-Identifier: Apache-2.0 */
/* test_matmul_narrow.c - products of 16-bit operands: the reference equals its
 * definition and, where the processor has them, the instructions that the
 * definition came from. */
#include "kernels/element.h"
#include "kernels/narrow_product.h"
#include "tests/unit/kernels/product.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { ROUNDS = 40000, TILE_ROUNDS = 600 };

/* Bit patterns that go wrong when they can: what the seed says. */
static uint64_t next_bits(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(2685821657736338717);
}

/* Kinds: any bits; products near 2^-126; tiny and denormal; near 1; a mix with
 * infinities; edges of the exponents. */
enum { KINDS = 7 };

static uint16_t hard_operand(uint64_t *state, int kind)
{
    uint64_t r = next_bits(state);
    uint32_t fraction = (uint32_t)(r >> 8) & 0x7F, exponent = 0;

    switch (kind) {
    case 0: return (uint16_t)(r >> 16);
    case 1: exponent = 61 + (uint32_t)(r >> 20) % 5; break;
    case 2: exponent = (uint32_t)(r >> 20) % 4; break;
    case 3: exponent = 127 + (uint32_t)(r >> 20) % 3; break;
    case 4:
        exponent = 64;
        if (r >> 20 & 4) exponent = 0;
        if ((r >> 24) % 29 == 0) exponent = 255;
        if (exponent == 255 && (r >> 30 & 1)) fraction = 0;
        break;
    case 5: /* what is denormal times what is large */
        exponent = r >> 20 & 1 ? 0 : 140 + (uint32_t)(r >> 21) % 31;
        break;
    default:
        exponent = 62 + (uint32_t)(r >> 20) % 4;
        if (r >> 40 & 1) fraction = r >> 41 & 1 ? 0 : 0x7F;
    }
    return (uint16_t)((r & 1) << 15 | exponent << 7 | fraction);
}

static float hard_sum(uint64_t *state, int kind)
{
    uint64_t r = next_bits(state);
    uint32_t fraction = (uint32_t)(r >> 8) & 0x7FFFFF, bits;
    uint32_t exponent = (uint32_t)(r >> 33) % 6;
    float value;

    if (kind == 3) exponent += 127;
    if (r >> 40 & 1)
        fraction = (uint32_t)(r >> 41 & 1 ? r >> 42 & 3
                                          : 0x7FFFFF - (r >> 42 & 3));
    bits = kind == 0 ? (uint32_t)(r >> 16)
                     : (uint32_t)(r & 1) << 31 | exponent << 23 | fraction;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

static uint32_t word(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* ---- the definition once more, with no shared code ---- */

static float zeroed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float fma_zeroed(uint16_t a, uint16_t b, float c)
{
    float x = zeroed(bf16_to_f32(a)), y = zeroed(bf16_to_f32(b));
    float z = zeroed(c), r = fmaf(x, y, z);

    return fabs((double)x * y + (double)z) < 0x1.ffffffp-127 ? copysignf(0, r)
                                                             : r;
}

static float add_zeroed(float a, float b)
{
    return zeroed(zeroed(a) + zeroed(b));
}

static float pair(const uint16_t *a, const uint16_t *b, float c)
{
    return fma_zeroed(a[0], b[0], fma_zeroed(a[1], b[1], c));
}

static float block(const uint16_t *a, const uint16_t *b, float c)
{
    float even = 0, odd = 0;

    for (int k = 0; k < PRODUCT_BLOCK; k += 2) {
        even = fma_zeroed(a[k], b[k], even);
        odd = fma_zeroed(a[k + 1], b[k + 1], odd);
    }
    return add_zeroed(c, add_zeroed(even, odd));
}

static float granule(const uint16_t *a, const uint16_t *b, int length,
                     bool tiles)
{
    uint16_t x[GRANULE] = {0}, y[GRANULE] = {0};
    float sum = 0;

    memcpy(x, a, sizeof *a * (size_t)length);
    memcpy(y, b, sizeof *b * (size_t)length);
    for (int k = 0; k < length; k += tiles ? PRODUCT_BLOCK : 2)
        sum = tiles ? block(x + k, y + k, sum) : pair(x + k, y + k, sum);
    return sum;
}

/* One row times one column of every length. */
static void test_reference_is_its_definition(void **state)
{
    uint16_t a[GRANULE], b[GRANULE];
    uint64_t seed = 5;

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    for (int i = 0; i < KINDS * GRANULE; i++) {
        int length = 1 + i % GRANULE, kind = i / GRANULE;
        struct sum_segment segment = {0, length, 0};
        struct sum_order order = {&segment, 1, 1};
        struct stream stream = {0};
        float c[2];
        struct matmul p = {.order = &order};

        for (int k = 0; k < GRANULE; k++) {
            a[k] = hard_operand(&seed, kind);
            b[k] = hard_operand(&seed, kind);
        }
        p.a = tensor_2d(a, DTYPE_BF16, 1, length);
        p.b = tensor_2d(b, DTYPE_BF16, length, 1);
        p.c = tensor_2d(&c[0], DTYPE_F32, 1, 1);
        reference_matmul_bf16_pairs(&stream, &p);
        p.c = tensor_2d(&c[1], DTYPE_F32, 1, 1);
        reference_matmul_bf16_tiles(&stream, &p);
        for (int tiles = 0; tiles < 2; tiles++) {
            float want = granule(a, b, length, tiles);

            if (!same(want, c[tiles]))
                fail_msg("length %d kind %d tiles %d: %08x, not %08x", length,
                         kind, tiles, word(c[tiles]), word(want));
        }
    }
}

#if defined(__x86_64__)
/* ---- the instructions ---- */

static bool bit_of_cpuid(unsigned leaf, unsigned sub, int reg, int bit)
{
    unsigned r[4] = {0};

    return __get_cpuid_count(leaf, sub, &r[0], &r[1], &r[2], &r[3]) &&
           (r[reg] >> bit & 1);
}

__attribute__((target("avx512f,avx512bf16"), noinline)) static void
pairs_by_instruction(const uint16_t *a, const uint16_t *b, float *c)
{
    __m512i x = _mm512_loadu_si512(a), y = _mm512_loadu_si512(b);

    _mm512_storeu_ps(c, _mm512_dpbf16_ps(_mm512_loadu_ps(c), (__m512bh)x,
                                         (__m512bh)y));
}

static void test_pairs_are_the_instruction(void **state)
{
    uint64_t seed = 77;

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    if (!__builtin_cpu_supports("avx512f") || !bit_of_cpuid(7, 1, 0, 5)) skip();
    for (int i = 0; i < ROUNDS; i++) {
        uint16_t a[32], b[32];
        float before[16], after[16];
        int kind = i % KINDS;

        for (int k = 0; k < 32; k++) {
            a[k] = hard_operand(&seed, kind);
            b[k] = hard_operand(&seed, kind);
            if (k % 5 == 4) { /* the first product cancels something */
                a[k] = a[k - 1] ^ 0x8000;
                b[k] = b[k - 1];
            }
        }
        for (int j = 0; j < 16; j++) before[j] = hard_sum(&seed, kind);
        for (int j = 0; j < 16; j += 3)
            before[j] = -(bf16_to_f32(a[2 * j + 1]) *
                          bf16_to_f32(b[2 * j + 1]));
        memcpy(after, before, sizeof after);
        pairs_by_instruction(a, b, after);
        for (int j = 0; j < 16; j++) {
            float want = pair(a + 2 * j, b + 2 * j, before[j]);

            if (!same(want, after[j]))
                fail_msg("%04x %04x times %04x %04x to %08x: %08x, not %08x",
                         a[2 * j], a[2 * j + 1], b[2 * j], b[2 * j + 1],
                         word(before[j]), word(after[j]), word(want));
        }
    }
}

struct tiles {
    uint16_t a[16][32], b[16][32]; /* b in pairs: [k / 2][column, k % 2] */
    float c[16][16];
};

__attribute__((target("amx-tile,amx-bf16"), noinline)) static void
tiles_by_instruction(struct tiles *t)
{
    /* Bytes of a row and rows of three registers. */
    static const uint8_t shapes[64] = {1, [16] = 64, [18] = 64, [20] = 64,
                                       [48] = 16, 16, 16};

    _tile_loadconfig(shapes);
    _tile_loadd(0, t->c, 64);
    _tile_loadd(1, t->a, 64);
    _tile_loadd(2, t->b, 64);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, t->c, 64);
    _tile_release();
}

static bool tiles_run(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };

    return bit_of_cpuid(7, 0, 3, 22) && bit_of_cpuid(7, 0, 3, 24) &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static void test_tiles_are_the_instruction(void **state)
{
    static struct tiles before, after;
    uint64_t seed = 99;

    (void)state;
    if (SANITIZED_THREADS) skip(); /* has none */
    if (!tiles_run()) skip();
    for (int i = 0; i < TILE_ROUNDS; i++) {
        int kind = i % KINDS;

        for (int j = 0; j < 512; j++) {
            int row = j / 32, k = j % 32;

            before.a[row][k] = hard_operand(&seed, kind);
            before.b[row][k] = hard_operand(&seed, kind);
            if (next_bits(&seed) % 7 < (uint64_t)(i % 5)) before.a[row][k] = 0;
            /* the two chains of many elements cancel each other */
            if (k % 2 && row < 8) before.a[row][k] = before.a[row][k - 1] ^
                                                     0x8000;
            if (k % 2 && row % 4) before.b[row][k] = before.b[row][k - 1];
        }
        for (int j = 0; j < 256; j++)
            before.c[j / 16][j % 16] = hard_sum(&seed, kind);
        after = before;
        tiles_by_instruction(&after);
        for (int j = 0; j < 256; j++) {
            int row = j / 16, column = j % 16;
            uint16_t b[32];
            float want;

            for (int k = 0; k < 32; k++)
                b[k] = before.b[k / 2][2 * column + k % 2];
            want = block(before.a[row], b, before.c[row][column]);
            if (!same(want, after.c[row][column]))
                fail_msg("kind %d element %d: %08x, not %08x", kind, j,
                         word(after.c[row][column]), word(want));
        }
    }
}
#endif

/* ---- fast products ---- */

enum { LARGE = 1030 }; /* rows: takes long */

static const struct matmul_case cases[] = {
    {1, 1, 1, 1, 1, false, false, false, false},
    {1, 33, 300, 1, 1, false, true, false, false},
    {2, 100, 768, 1, 1, false, true, true, false},
    {3, 7, 5, 1, 1, false, false, false, false},
    {13, 31, 255, 1, 1, false, false, true, false},
    {14, 32, 256, 1, 1, false, true, true, false},
    {15, 64, 257, 1, 1, false, false, true, true},
    {29, 65, 640, 1, 3, true, false, false, false},
    {37, 40, 513, 1, 1, true, true, true, false},
    {33, 70, 200, 2, 1, false, false, false, false},
    {17, 33, 768, 4, 1, false, true, true, true},
    {3, 48, 1921, 3, 1, false, false, true, true},
    {34, 67, 390, 3, 2, false, true, false, false},
    {7, 50, 5120, 4, 2, false, false, true, true},
    {3, 45, 3841, 8, 3, false, true, true, false},
    {16, 20, 64, 64, 1, false, false, false, false},
    {2, 30, 6400, 2, 30, false, false, true, true},
    {45, 40, 2600, 1, 1, false, false, true, true},
    {18, 33, 4200, 1, 1, true, false, false, false},
    /* Rows of c that fill lines of the cache. */
    {70, 61, 770, 1, 1, false, true, true, false},
    {100, 61, 600, 4, 1, false, false, false, false},
    {45, 93, 7000, 4, 1, false, false, true, true},
    {33, 61, 600, 1, 1, true, false, false, false},
    /* Slots that wait between chunks of tiles, and a leaf that goes on. */
    {70, 64, 4000, 8, 1, false, true, true, true},
    {97, 40, 3400, 1, 1, true, true, false, false},
    {40, 96, 6500, 3, 2, false, false, true, false},
    {LARGE, 2045, 2, 1, 1, false, true, true, false}, /* past the caches, */
    {LARGE, 2048, 2, 1, 1, false, true, true, false}, /* in whole lines */
};

enum { FORMS = 4 }; /* which of a and b lie transposed */

/* A narrow product and who should compute it. */
struct wanted {
    enum dtype dtype;
    enum product product;
    KERNELS_TYPE(matmul) *reference;
    double a, b; /* scales: sums near 2^-126 flush, and so do denormals */
};

struct product_run {
    const struct wanted *wanted;
    enum isa isa;
    size_t index; /* of the case */
    int form, threads;
};

static const struct wanted products[] = {
    {DTYPE_BF16, PRODUCT_PAIRS, reference_matmul_bf16_pairs, 1, 1},
    {DTYPE_BF16, PRODUCT_PAIRS, reference_matmul_bf16_pairs, 0x1p-65,
     0x1p-65},
    {DTYPE_BF16, PRODUCT_PAIRS, reference_matmul_bf16_pairs, 0x1p-127,
     0x1p30},
    {DTYPE_BF16, PRODUCT_TILES, reference_matmul_bf16_tiles, 1, 1},
    {DTYPE_BF16, PRODUCT_TILES, reference_matmul_bf16_tiles, 0x1p-65,
     0x1p-65},
    {DTYPE_BF16, PRODUCT_TILES, reference_matmul_bf16_tiles, 0x1p-127,
     0x1p30},
    {DTYPE_F16, PRODUCT_PAIRS, reference_matmul_f16, 1, 1},
};

static void matrix_scale(struct tensor *t, double scale)
{
    int64_t rows = t->shape[0], columns = t->shape[1];
    uint16_t *x = t->data;

    if (scale == 1) return;
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t at = i / columns * t->stride[0] + i % columns * t->stride[1];

        x[at] = bf16_from_f32((float)(bf16_to_f32(x[at]) * scale));
    }
}

/* Numbers that `narrow` has, by row and column: the same wherever they lie. */
static void matrix_fill(struct tensor *t, enum dtype narrow, uint64_t seed)
{
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++) {
            const int64_t at = i * t->stride[0] + j * t->stride[1];
            float x = 0;

            element_set(&x, narrow, 0, (float)room_number(&seed));
            element_set(t->data, t->dtype, at, element_get(&x, narrow, 0));
        }
}

/* Forms differ in where operands lie, and in the types of c and left. */
static void build(struct a_product *x, struct arena *arena, size_t i, int form,
                  const struct wanted *wanted, struct product_types types)
{
    if (cases[i].in_place) types.left = types.c;
    product_build_of(x, arena, &cases[i], form, types);
    matrix_fill(&x->p.a, wanted->dtype, 1);
    matrix_fill(&x->p.b, wanted->dtype, 2);
    if (!cases[i].in_place) matrix_fill(&x->left, wanted->dtype, 5);
    matrix_fill(&x->p.c, wanted->dtype, 3);
    matrix_scale(&x->p.a, wanted->a);
    matrix_scale(&x->p.b, wanted->b);
}

static void form_build(struct a_product *x, struct arena *arena, size_t i,
                       int form, const struct wanted *wanted)
{
    struct product_types types = {wanted->dtype, wanted->dtype, DTYPE_F32};

    if (cases[i].continues || (form & 1)) types.c = DTYPE_F32;
    if (form & 2) types.left = types.c;
    build(x, arena, i, form, wanted, types);
}

/* Multiplications, of sums that have whole blocks. */
static int64_t size_of(const struct matmul_case *c)
{
    return c->m * c->n * (c->k + PRODUCT_BLOCK - 1) / PRODUCT_BLOCK *
           PRODUCT_BLOCK;
}

enum { SMALL = 300000, BIG = 2000000 };

/* The reference computes rows that are so far apart, the first and the last
 * among them; in the others instruction sets are compared with each other. */
static int64_t rows_apart(size_t i)
{
    return cases[i].m == LARGE ? 7 : 1;
}

static struct tensor rows_of(struct tensor t, int64_t apart)
{
    t.shape[0] = (t.shape[0] + apart - 1) / apart;
    t.stride[0] *= apart;
    return t;
}

/* The reference's result in float32, before it is rounded into c: once for all
 * forms. */
static struct tensor sums_of(struct arena *arena, size_t i,
                             const struct wanted *wanted)
{
    const struct product_types types = {wanted->dtype, DTYPE_F32, DTYPE_F32};
    struct stream plain = {0};
    struct a_product x;
    struct matmul p;

    build(&x, arena, i, (int)i % FORMS, wanted, types);
    x.left = rows_of(cases[i].in_place ? x.p.c : x.left, rows_apart(i));
    p = x.p;
    p.a = rows_of(p.a, rows_apart(i));
    p.c = rows_of(p.c, rows_apart(i));
    wanted->reference(&plain, &p);
    return p.c;
}

/* The expected results of a form. */
struct expected {
    struct a_product x;
    int64_t known; /* rows apart that are */
};

static void expected_build(struct expected *want, struct arena *arena,
                           const struct a_product *fresh,
                           const struct tensor *sums, int64_t apart)
{
    product_twin(&want->x, arena, fresh);
    want->known = apart;
    for (int64_t row = 0; row < sums->shape[0]; row++)
        for (int64_t j = 0; j < sums->shape[1]; j++)
            element_set(want->x.p.c.data, fresh->p.c.dtype,
                        row * apart * fresh->p.c.stride[0] + j,
                        ((float *)sums->data)[row * sums->stride[0] + j]);
}

/* Rows that the reference did not compute are those of who computes first. */
static void expected_complete(struct expected *want,
                              const struct a_product *have)
{
    const size_t rows = (size_t)have->p.c.shape[0];
    const size_t bytes = c_bytes(have) / rows;

    for (size_t row = 0; row < rows; row++)
        if (row % (size_t)want->known)
            memcpy((char *)want->x.p.c.data + row * bytes,
                   (char *)have->p.c.data + row * bytes, bytes);
    want->known = 1;
}

/* Instructions that kernels may use: all, then none, as on a processor without
 * them. Only tables of AVX-512 ask. */
static const int features[] = {FEATURES_ALL | FEATURE_EVEN_SLOW, 0};
enum { FEATURES = sizeof features / sizeof *features };

/* One instruction set, with all features. */
static void isa_check(struct room *rooms, struct expected *want,
                      const struct a_product *fresh, struct a_product *have,
                      const struct product_run *run)
{
    struct kernels table;

    for (int f = 0; f < (run->isa == ISA_AVX512 ? FEATURES : 1); f++) {
        features_limit(features[f]);
        if (kernels_get_product(&table, run->wanted->dtype, run->isa,
                                run->wanted->product) != OK) {
            status_clear();
            return;
        }
        product_again(have, fresh);
        assert_int_equal(table.matmul(&rooms[f].streams[run->threads],
                                      &have->p), OK);
        expected_complete(want, have);
        if (memcmp(have->p.c.data, want->x.p.c.data, c_bytes(have)))
            fail_msg("case %zu form %d isa %s features %d product %d scale %g",
                     run->index, run->form, isa_name(run->isa), features[f],
                     run->wanted->product, run->wanted->a);
    }
}

/* The packing of operands does not depend on their size, and the sum of small
 * ones does not depend on the packing: plain kernels, whose
 * emulation is slow, and checked ones take operands that flush in one form,
 * and not in big cases. Plain kernels take these in one form: what has to do
 * with their size is the code that others run, too. Of the two kinds that
 * flush, all take one in a big case. The emulator takes what is not big, in one
 * form. */
static bool repeats(const struct wanted *wanted, size_t i, int form,
                    enum isa isa)
{
    const bool big = size_of(&cases[i]) > BIG;

    if (isa == ISA_EMULATED) return big || form != (int)i % FORMS;
    if (big && wanted->a != 1 && (wanted->b < 1) != (i % 2)) return true;
    if (isa != ISA_PLAIN && !SANITIZED) return false;
    if (wanted->a != 1) return big || form != (int)i % FORMS;
    return big && isa == ISA_PLAIN && form != (int)i % FORMS;
}

static void form_check(struct room *rooms, size_t i, int form,
                       const struct wanted *wanted, const struct tensor *sums)
{
    const int threads = 1 + ((int)i / FORMS + form) % 2;
    struct product_run run = {wanted, ISA_PLAIN, i, form,
                              SANITIZED_THREADS ? 2 : threads};
    struct arena *arena = &rooms->arena;
    struct a_product have, fresh;
    struct expected want;
    struct stream plain = {0};

    form_build(&fresh, arena, i, form, wanted);
    product_twin(&have, arena, &fresh);
    expected_build(&want, arena, &fresh, sums, rows_apart(i));
    if (size_of(&cases[i]) < SMALL) { /* types and places of the reference */
        wanted->reference(&plain, &have.p);
        assert_memory_equal(have.p.c.data, want.x.p.c.data, c_bytes(&have));
    }
    for (; run.isa < ISA_COUNT; run.isa++)
        if (!repeats(wanted, i, form, run.isa))
            isa_check(rooms, &want, &fresh, &have, &run);
}

static void fast_check(struct room *rooms, size_t i,
                       const struct wanted *wanted)
{
    struct tensor sums;
    bool any = false;

    for (int form = 0; form < FORMS; form++)
        any = any || !repeats(wanted, i, form, ISA_COUNT);
    if (!any) return;
    arena_reset(&rooms->arena);
    sums = sums_of(&rooms->arena, i, wanted);
    for (int form = 0; form < FORMS; form++)
        if (!repeats(wanted, i, form, ISA_COUNT))
            form_check(rooms, i, form, wanted, &sums);
}

static void test_fast_equals_reference(void **state)
{
    struct room rooms[FEATURES];

    (void)state;
    for (int f = 0; f < FEATURES; f++) room_begin(&rooms[f], features[f]);
    for (size_t w = 0; w < sizeof products / sizeof *products; w++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            fast_check(rooms, i, &products[w]);
    for (int f = 0; f < FEATURES; f++) room_end(&rooms[f]);
}

/* Sums of four products that leave one unit, the product of the units of both
 * operands: 2^-126, the smallest that is not flushed, and on both sides of
 * it. */
static void test_smallest_unit_is_kept(void **state)
{
    enum { M = 35, N = 70, K = 4 }; /* more rows than are few */
    static const int a_of[K] = {129, -128, -129, 128};
    static const int b_of[K] = {129, 129, 128, 128};
    static const struct sum_segment segment = {0, K, 0};
    static const struct sum_order order = {&segment, 1, 1};
    struct room room;

    (void)state;
    room_begin(&room, 0);
    for (int less = -1; less <= 2; less++)
        for (int i = 0; i < 2 * ISA_COUNT; i++) {
            uint16_t a[M * K], b[N * K];
            float c[M * N];
            struct kernels table;
            const float want = less > 0 ? 0 : ldexpf(1, -126 - less);
            struct matmul p = {.a = tensor_2d(a, DTYPE_BF16, M, K),
                               .b = tensor_transpose(
                                   tensor_2d(b, DTYPE_BF16, N, K)),
                               .c = tensor_2d(c, DTYPE_F32, M, N),
                               .order = &order};

            if (kernels_get_product(&table, DTYPE_BF16, (enum isa)(i / 2),
                                    i % 2 ? PRODUCT_TILES : PRODUCT_PAIRS) !=
                OK) {
                status_clear();
                continue;
            }
            for (int j = 0; j < M * K; j++)
                a[j] = bf16_from_f32(ldexpf((float)a_of[j % K], -63));
            for (int j = 0; j < N * K; j++)
                b[j] = bf16_from_f32(ldexpf((float)b_of[j % K], -63 - less));
            assert_int_equal(table.matmul(&room.streams[1], &p), OK);
            for (int j = 0; j < M * N; j++)
                if (!same(c[j], want))
                    fail_msg("%s, product %d, 2^%d: %a", table.backend, i % 2,
                             -126 - less, (double)c[j]);
        }
    room_end(&room);
}

/* The same product again and again on more threads than cores: nothing that a
 * slow one still reads may be written by one that is ahead. Slots wait between
 * chunks; the last block of rows is lower, the last of columns narrower. */
static void test_threads_that_run_ahead(void **state)
{
    static const struct matmul_case list[] = {
        {1500, 290, 4100, 8, 1, false, false, true, false},
        {90, 4200, 1700, 2, 1, false, true, false, false},
        {2100, 70, 300, 1, 1, false, false, false, true},
    };
    static const struct product_types types = {DTYPE_BF16, DTYPE_F32,
                                               DTYPE_F32};
    struct arena arena;
    struct threads *threads = NULL;
    struct kernels table;

    (void)state;
    arena_init(&arena, "test", 0);
    assert_int_equal(threads_build(&threads, 2 * threads_cores()), OK);
    assert_int_equal(kernels_get_product(&table, DTYPE_BF16, ISA_AUTO,
                                         PRODUCT_TILES), OK);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct a_product want, have, fresh;
        struct stream stream;

        arena_reset(&arena);
        product_build_of(&want, &arena, &list[i], (int)i, types);
        product_twin(&have, &arena, &want);
        product_twin(&fresh, &arena, &want);
        stream = room_stream(NULL, &table);
        assert_int_equal(table.matmul(&stream, &want.p), OK);
        stream = room_stream(threads, &table);
        for (int round = 0; round < 8; round++) {
            product_again(&have, &fresh);
            assert_int_equal(table.matmul(&stream, &have.p), OK);
            if (memcmp(have.p.c.data, want.p.c.data, c_bytes(&want)))
                fail_msg("case %zu, round %d", i, round);
        }
    }
    threads_free(threads);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_is_its_definition),
        cmocka_unit_test(test_fast_equals_reference),
        cmocka_unit_test(test_smallest_unit_is_kept),
        cmocka_unit_test(test_threads_that_run_ahead),
#if defined(__x86_64__)
        cmocka_unit_test(test_pairs_are_the_instruction),
        cmocka_unit_test(test_tiles_are_the_instruction),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
