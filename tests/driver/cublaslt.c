/* SPDX-License-Identifier: Apache-2.0 */
/* cublaslt.c - a libcublasLt.so.13 for GPUs of the driver for tests. Products
 * happen in a stream of that driver, later. Each algorithm has its own order of
 * sums; some orders depend on how many rows and columns there are, one splits
 * the sum. It refuses what the library refuses: descriptors that were not made,
 * rows that are shorter than the matrix, operands that are not as aligned as
 * the algorithm wants, an algorithm of another form, too little room or room
 * that does not begin at a multiple of 256 bytes, memory that is not the GPU's,
 * streams of another one.
 *
 *   LT_VERSION       what it says of itself (130100)
 *   LT_CREATES=0     it does not work
 *   LT_NONE=K        it has no algorithm for sums of K elements
 *   LT_COUNTS=FILE   products, and algorithms that were asked for, are added to
 *                    the file
 *   LT_FAILS=N       product N, from 1, fails */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/cuda/plugin/cublaslt.h"
#include "kernels/element.h"

#define EXPORTED __attribute__((visibility("default")))
enum { MAGIC = 0x4c54, BLOCK_K = 32, ROOM = 1 << 16, VERSION = 130100,
       ALGORITHMS = 4 };
enum kind { SHAPED, SPLIT, BLOCKS, BACKWARDS };

struct desc { uint64_t magic; int compute, scale, turn[2]; };
struct layout { uint64_t magic; int type; uint64_t rows, columns;
                int64_t stride; };
struct preference { uint64_t magic, room; uint32_t reductions, aligned[4]; };
/* It has what it was offered for. */
struct algorithm {
    uint32_t magic;
    uint16_t kind, aligned;
    int type, compute;
    int64_t k;
    uint32_t turns, version;
};
_Static_assert(sizeof(struct desc) <= sizeof(struct lt_desc), "a desc");
_Static_assert(sizeof(struct layout) <= sizeof(struct lt_layout), "a layout");
_Static_assert(sizeof(struct preference) <= sizeof(struct lt_preference),
               "a preference");
_Static_assert(sizeof(struct algorithm) <= sizeof(struct lt_algorithm),
               "an algorithm");

struct product {
    struct desc desc;
    struct layout a, b, d;
    struct algorithm algorithm;
    const void *at[2];
    float *out;
    float alpha, beta;
};

static atomic_long products, asked;

static struct {
    int (*give)(void *, void (*)(void *), const void *, size_t);
    void *(*place)(int, const void *, size_t);
    int (*now)(void);
    int (*of_stream)(void *);
} gpu;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) return;
    *(void **)&gpu.give = dlsym(library, "lockstep_driver_do");
    *(void **)&gpu.place = dlsym(library, "lockstep_driver_place");
    *(void **)&gpu.now = dlsym(library, "lockstep_driver_now");
    *(void **)&gpu.of_stream = dlsym(library, "lockstep_driver_of_stream");
}

static long number(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtol(text, NULL, 10) : otherwise;
}

EXPORTED size_t cublasLtGetVersion(void)
{
    return (size_t)number("LT_VERSION", VERSION);
}

EXPORTED const char *cublasLtGetStatusName(int answer)
{
    switch (answer) {
    case LT_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case LT_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case LT_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case LT_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_EXECUTION_FAILED";
    }
}

EXPORTED int cublasLtCreate(void **handle)
{
    int *device;

    pthread_once(&once, find);
    if (gpu.now == NULL || gpu.now() < 0 || number("LT_CREATES", 1) == 0)
        return LT_NOT_INITIALIZED;
    device = malloc(sizeof *device);
    *device = gpu.now();
    *handle = device;
    return LT_SUCCESS;
}

EXPORTED int cublasLtDestroy(void *handle)
{
    free(handle);
    return LT_SUCCESS;
}

EXPORTED int cublasLtMatrixLayoutInit_internal(struct lt_layout *out,
                                               size_t bytes, int type,
                                               uint64_t rows, uint64_t columns,
                                               int64_t stride)
{
    const struct layout layout = {MAGIC, type, rows, columns, stride};

    if (bytes < sizeof *out) return LT_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &layout, sizeof layout);
    return LT_SUCCESS;
}

EXPORTED int cublasLtMatmulDescInit_internal(struct lt_desc *out, size_t bytes,
                                             int compute, int scale)
{
    const struct desc desc = {MAGIC, compute, scale, {0, 0}};

    if (bytes < sizeof *out) return LT_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &desc, sizeof desc);
    return LT_SUCCESS;
}

EXPORTED int cublasLtMatmulDescSetAttribute(struct lt_desc *out, int attribute,
                                            const void *value, size_t bytes)
{
    struct desc desc;

    memcpy(&desc, out, sizeof desc);
    if (desc.magic != MAGIC || bytes != sizeof(int32_t) ||
        (attribute != LT_TURN_A && attribute != LT_TURN_B))
        return LT_INVALID_VALUE;
    memcpy(&desc.turn[attribute - LT_TURN_A], value, bytes);
    memcpy(out, &desc, sizeof desc);
    return LT_SUCCESS;
}

EXPORTED int cublasLtMatmulPreferenceInit_internal(struct lt_preference *out,
                                                   size_t bytes)
{
    const struct preference preference = {MAGIC, 0, 7, {256, 256, 256, 256}};

    if (bytes < sizeof *out) return LT_INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out, &preference, sizeof preference);
    return LT_SUCCESS;
}

EXPORTED int cublasLtMatmulPreferenceSetAttribute(struct lt_preference *out,
                                                  int attribute,
                                                  const void *value,
                                                  size_t bytes)
{
    struct preference preference;
    const bool is_room = attribute == LT_ROOM_MOST;

    memcpy(&preference, out, sizeof preference);
    if (preference.magic != MAGIC ||
        bytes != (is_room ? sizeof(uint64_t) : sizeof(uint32_t)))
        return LT_INVALID_VALUE;
    if (is_room) memcpy(&preference.room, value, bytes);
    else if (attribute == LT_REDUCTIONS)
        memcpy(&preference.reductions, value, bytes);
    else if (attribute >= LT_ALIGNED_A && attribute <= LT_ALIGNED_D)
        memcpy(&preference.aligned[attribute - LT_ALIGNED_A], value, bytes);
    else return LT_INVALID_VALUE;
    memcpy(out, &preference, sizeof preference);
    return LT_SUCCESS;
}

/* ---- what fits together ---- */

static int64_t bytes_of(int type)
{
    return type == LT_FLOAT32 ? 4 : 2;
}

static bool is_layout(const struct layout *l)
{
    return l->magic == MAGIC && l->rows > 0 && l->columns > 0 &&
           l->stride >= (int64_t)l->rows &&
           (l->type == LT_FLOAT32 || l->type == LT_FLOAT16 ||
            l->type == LT_BFLOAT16);
}

static uint64_t inner(const struct layout *l, int turn)
{
    return turn == LT_TURNED ? l->rows : l->columns;
}

static uint64_t outer(const struct layout *l, int turn)
{
    return turn == LT_TURNED ? l->columns : l->rows;
}

/* op(a) [m, k] op(b) [k, n] = d [m, n]. */
static int fits(const struct product *p)
{
    const struct desc *d = &p->desc;
    const uint64_t k = inner(&p->a, d->turn[0]);

    if (d->magic != MAGIC || !is_layout(&p->a) || !is_layout(&p->b) ||
        !is_layout(&p->d) || p->a.type != p->b.type ||
        outer(&p->b, d->turn[1] == LT_TURNED ? LT_AS_IT_IS : LT_TURNED) !=
            p->d.columns)
        return LT_INVALID_VALUE;
    if (k != inner(&p->b, d->turn[1] == LT_TURNED ? LT_AS_IT_IS : LT_TURNED) ||
        outer(&p->a, d->turn[0]) != p->d.rows)
        return LT_INVALID_VALUE;
    if (d->scale != LT_FLOAT32 || p->d.type != LT_FLOAT32 ||
        d->compute != (p->a.type == LT_FLOAT32 ? LT_IN_TF32 : LT_IN_FLOAT32))
        return LT_NOT_SUPPORTED;
    return LT_SUCCESS;
}

static bool rows_begin_on(const struct layout *l, uint32_t bytes)
{
    return l->stride * bytes_of(l->type) % bytes == 0;
}

static struct product product_of(const struct lt_desc *desc,
                                 const struct lt_layout *a,
                                 const struct lt_layout *b,
                                 const struct lt_layout *d)
{
    struct product p = {0};

    memcpy(&p.desc, desc, sizeof p.desc);
    memcpy(&p.a, a, sizeof p.a);
    memcpy(&p.b, b, sizeof p.b);
    memcpy(&p.d, d, sizeof p.d);
    return p;
}

EXPORTED int cublasLtMatmulAlgoGetHeuristic(
    void *handle, struct lt_desc *desc, struct lt_layout *a,
    struct lt_layout *b, struct lt_layout *c, struct lt_layout *d,
    struct lt_preference *wishes, int most, struct lt_offer *offers,
    int *count)
{
    const struct product p = product_of(desc, a, b, d);
    struct preference preference;
    uint32_t least = 16;
    const int fit = fits(&p);

    *count = 0;
    memcpy(&preference, wishes, sizeof preference);
    if (handle == NULL || c != d || preference.magic != MAGIC || most < 1)
        return LT_INVALID_VALUE;
    if (fit != LT_SUCCESS) return fit;
    atomic_fetch_add(&asked, 1);
    if ((long)inner(&p.a, p.desc.turn[0]) == number("LT_NONE", -1))
        return LT_NOT_SUPPORTED;
    for (int i = 0; i < 2; i++)
        if (preference.aligned[i] < least) least = preference.aligned[i];
    for (int i = 0; i < ALGORITHMS && *count < most; i++) {
        const struct algorithm algorithm = {
            .magic = MAGIC, .kind = (uint16_t)i, .aligned = (uint16_t)least,
            .type = p.a.type, .compute = p.desc.compute,
            .k = (int64_t)inner(&p.a, p.desc.turn[0]),
            .turns = (uint32_t)(p.desc.turn[0] + 2 * p.desc.turn[1]),
            .version = (uint32_t)cublasLtGetVersion()};
        struct lt_offer *offer = &offers[*count];

        if (i == SPLIT && preference.room < ROOM) continue;
        *offer = (struct lt_offer){.room = i == SPLIT ? ROOM : 0, .waves = 1};
        memcpy(&offer->algorithm, &algorithm, sizeof algorithm);
        (*count)++;
    }
    return LT_SUCCESS;
}

/* The one that splits is offered even where reductions are not wanted: who asks
 * must look. */
EXPORTED int cublasLtMatmulAlgoConfigGetAttribute(
    const struct lt_algorithm *of, int attribute, void *out, size_t bytes,
    size_t *written)
{
    struct algorithm algorithm;
    uint32_t value;

    memcpy(&algorithm, of, sizeof algorithm);
    if (algorithm.magic != MAGIC || bytes != sizeof value)
        return LT_INVALID_VALUE;
    value = attribute == LT_SPLITS
                ? (algorithm.kind == SPLIT ? 4 : 1)
                : (algorithm.kind == SPLIT ? 2 : 0);
    memcpy(out, &value, sizeof value);
    *written = sizeof value;
    return LT_SUCCESS;
}

/* ---- a product ---- */

/* TF32 has 10 bits behind the point. */
static float operand(const void *at, int type, int64_t index)
{
    float value = element_get(at, type == LT_FLOAT32   ? DTYPE_F32
                                  : type == LT_FLOAT16 ? DTYPE_F16
                                                       : DTYPE_BF16, index);
    uint32_t bits;

    if (type != LT_FLOAT32) return value;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static float term(const struct product *p, int64_t row, int64_t column,
                  int64_t k)
{
    const int64_t a = p->desc.turn[0] ? row * p->a.stride + k
                                      : k * p->a.stride + row;
    const int64_t b = p->desc.turn[1] ? k * p->b.stride + column
                                      : column * p->b.stride + k;

    return operand(p->at[0], p->a.type, a) * operand(p->at[1], p->b.type, b);
}

/* Blocks of 32, from the first on, or from the last one on; or smaller ones, of
 * which small matrices have others. */
static float element(const struct product *p, int64_t row, int64_t column)
{
    const int64_t k = p->algorithm.k;
    const int64_t block = p->algorithm.kind == SHAPED
                              ? (p->d.rows + p->d.columns > 64 ? 16 : 8)
                              : BLOCK_K;
    const int64_t blocks = (k + block - 1) / block;
    float sum = 0;

    for (int64_t i = 0; i < blocks; i++) {
        const int64_t first =
            (p->algorithm.kind == BACKWARDS ? blocks - 1 - i : i) * block;
        float part = 0;

        for (int64_t j = first; j < first + block && j < k; j++)
            part += term(p, row, column, j);
        sum += part;
    }
    return sum;
}

static void run(void *argument)
{
    const struct product *p = argument;

    for (int64_t j = 0; j < (int64_t)p->d.columns; j++)
        for (int64_t i = 0; i < (int64_t)p->d.rows; i++) {
            float *to = p->out + j * p->d.stride + i;
            const float sum = p->alpha * element(p, i, j);

            *to = p->beta == 0 ? sum : sum + p->beta * *to;
        }
}

static size_t span(const struct layout *l)
{
    return (size_t)((int64_t)(l->columns - 1) * l->stride + (int64_t)l->rows) *
           (size_t)bytes_of(l->type);
}

static bool is_on(const void *at, uint32_t bytes)
{
    return (uintptr_t)at % bytes == 0;
}

static int suits(const struct product *p, const void *a, const void *b,
                 const void *d)
{
    const struct algorithm *of = &p->algorithm;
    const uint32_t least = of->aligned;

    if (of->magic != MAGIC || of->version != cublasLtGetVersion())
        return LT_INVALID_VALUE;
    if (of->type != p->a.type || of->compute != p->desc.compute ||
        of->k != (int64_t)inner(&p->a, p->desc.turn[0]) ||
        of->turns != (uint32_t)(p->desc.turn[0] + 2 * p->desc.turn[1]))
        return LT_NOT_SUPPORTED;
    if (!is_on(a, least) || !is_on(b, least) || !is_on(d, 16) ||
        !rows_begin_on(&p->a, least) || !rows_begin_on(&p->b, least))
        return LT_NOT_SUPPORTED;
    return LT_SUCCESS;
}

static int give(struct product p, int device, const void *a, const void *b,
                void *d, void *stream)
{
    p.at[0] = gpu.place(device, a, span(&p.a));
    p.at[1] = gpu.place(device, b, span(&p.b));
    p.out = gpu.place(device, d, span(&p.d));
    if (p.at[0] == NULL || p.at[1] == NULL || p.out == NULL)
        return LT_INVALID_VALUE;
    return gpu.give(stream, run, &p, sizeof p) == 0 ? LT_SUCCESS : 14;
}

EXPORTED int cublasLtMatmul(void *handle, struct lt_desc *desc,
                            const void *alpha, const void *a,
                            struct lt_layout *a_layout, const void *b,
                            struct lt_layout *b_layout, const void *beta,
                            const void *c, struct lt_layout *c_layout, void *d,
                            struct lt_layout *d_layout,
                            const struct lt_algorithm *algorithm, void *room,
                            size_t bytes, void *stream)
{
    struct product p = product_of(desc, a_layout, b_layout, d_layout);
    const int fit = fits(&p);
    int suit;

    if (handle == NULL || algorithm == NULL || c != d || c_layout != d_layout)
        return LT_INVALID_VALUE;
    if (gpu.now() != *(int *)handle || gpu.of_stream(stream) != gpu.now())
        return LT_INVALID_VALUE;
    if (fit != LT_SUCCESS) return fit;
    memcpy(&p.algorithm, algorithm, sizeof p.algorithm);
    suit = suits(&p, a, b, d);
    if (suit != LT_SUCCESS) return suit;
    if (!is_on(room, 256) || (p.algorithm.kind == SPLIT && bytes < ROOM))
        return LT_INVALID_VALUE;
    if (atomic_fetch_add(&products, 1) + 1 == number("LT_FAILS", -1))
        return 13;
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    return give(p, gpu.now(), a, b, d, stream);
}

__attribute__((destructor)) static void say_counts(void)
{
    const char *path = getenv("LT_COUNTS");
    FILE *file = path != NULL ? fopen(path, "a") : NULL;

    if (file == NULL) return;
    fprintf(file, "products %ld asked %ld\n", atomic_load(&products),
            atomic_load(&asked));
    fclose(file);
}
