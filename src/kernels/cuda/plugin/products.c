/* SPDX-License-Identifier: Apache-2.0 */
/* products.c - products of matrices by cuBLASLt, which is opened when a run
 * asks for it.
 *
 * It stores matrices by columns. What we have by rows is the turned matrix to
 * it, so c [m, n] = a b is made as c' [n, m] = b' a': its first operand is our
 * b, its second one our a. */
#include "kernels/cuda/plugin/segment.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include "kernels/cuda/plugin/cublaslt.h"

enum { VERSION_LEAST = 120000, ALIGNED = 16 };

static struct lt lt;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *find(void)
{
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return driver_sentence("there is no cuBLASLt: neither "
                               "libcublasLt.so.13 nor libcublasLt.so.12 can "
                               "be opened");
#define LT_FIND(result, name, ...)                                         \
    *(void **)&lt.name##_ = dlsym(library, #name);                         \
    if (lt.name##_ == NULL)                                                \
        return driver_sentence("cuBLASLt is too old: it has no " #name);
    LT_FUNCTIONS(LT_FIND)
    lt.library = library;
    return NULL;
}

const char *products_open(int64_t *version)
{
    const char *result = NULL;

    pthread_mutex_lock(&lock);
    if (lt.library == NULL) result = find();
    pthread_mutex_unlock(&lock);
    *version = 0;
    if (result != NULL) return result;
    *version = (int64_t)lt.cublasLtGetVersion_();
    if (*version < VERSION_LEAST)
        return driver_sentence("cuBLASLt %d.%d is too old: 12.0 is needed",
                               (int)(*version / 10000),
                               (int)(*version / 100 % 100));
    return NULL;
}

static const char *says(int answer, const char *asked)
{
    if (answer == LT_SUCCESS) return NULL;
    return library_says("cuBLASLt", lt.cublasLtGetStatusName_(answer), asked);
}

/* The GPU's context is the thread's; a library for it is made once. */
static const char *enter(struct gpu *gpu)
{
    int64_t version;
    const char *sentence = gpu_enter(gpu);

    if (sentence == NULL && gpu->products == NULL) {
        sentence = products_open(&version);
        if (sentence == NULL)
            sentence = says(lt.cublasLtCreate_(&gpu->products),
                            "its first call");
    }
    return sentence;
}

void products_close(struct gpu *gpu)
{
    if (gpu->products != NULL) lt.cublasLtDestroy_(gpu->products);
    gpu->products = NULL;
}

/* ---- what is said about a product ---- */

struct described {
    struct lt_desc desc;
    struct lt_layout first, second, c;
};

static int type_of(enum gpu_number number)
{
    static const int types[] = {[GPU_FLOAT32] = LT_FLOAT32,
                                [GPU_BFLOAT16] = LT_BFLOAT16,
                                [GPU_FLOAT16] = LT_FLOAT16};

    return types[number];
}

/* A matrix of ours, [rows, columns], or [columns, rows] where it lies
 * turned. */
static int layout(struct lt_layout *out, int type, int64_t rows,
                  int64_t columns, bool turned, int64_t stride)
{
    return lt.cublasLtMatrixLayoutInit_internal_(
        out, sizeof *out, type, (uint64_t)(turned ? rows : columns),
        (uint64_t)(turned ? columns : rows), stride);
}

static int turn(struct lt_desc *desc, int attribute, bool turned)
{
    const int32_t value = turned ? LT_TURNED : LT_AS_IT_IS;

    return lt.cublasLtMatmulDescSetAttribute_(desc, attribute, &value,
                                              sizeof value);
}

static int describe(const struct gpu_product *p, struct described *d)
{
    const struct gpu_form *form = &p->form;
    const int type = type_of(form->number);
    const int compute = form->number == GPU_FLOAT32 ? LT_IN_TF32
                                                    : LT_IN_FLOAT32;
    int answer = lt.cublasLtMatmulDescInit_internal_(&d->desc, sizeof d->desc,
                                                     compute, LT_FLOAT32);

    if (answer == LT_SUCCESS)
        answer = turn(&d->desc, LT_TURN_A, form->b_turned);
    if (answer == LT_SUCCESS)
        answer = turn(&d->desc, LT_TURN_B, form->a_turned);
    if (answer == LT_SUCCESS)
        answer = layout(&d->first, type, form->k, p->n, form->b_turned,
                        p->b_stride);
    if (answer == LT_SUCCESS)
        answer = layout(&d->second, type, p->m, form->k, form->a_turned,
                        p->a_stride);
    if (answer == LT_SUCCESS)
        answer = layout(&d->c, LT_FLOAT32, p->m, p->n, false, p->c_stride);
    return answer;
}

/* ---- algorithms ---- */

static int prefer(struct lt_preference *out, const struct gpu_form *form,
                  uint64_t bytes)
{
    static const int aligned[] = {LT_ALIGNED_A, LT_ALIGNED_B, LT_ALIGNED_C,
                                  LT_ALIGNED_D};
    const uint32_t none = 0, element = form->number == GPU_FLOAT32 ? 4 : 2;
    int answer = lt.cublasLtMatmulPreferenceInit_internal_(out, sizeof *out);

    if (answer == LT_SUCCESS)
        answer = lt.cublasLtMatmulPreferenceSetAttribute_(
            out, LT_ROOM_MOST, &bytes, sizeof bytes);
    if (answer == LT_SUCCESS)
        answer = lt.cublasLtMatmulPreferenceSetAttribute_(
            out, LT_REDUCTIONS, &none, sizeof none);
    for (int i = 0; i < 4 && answer == LT_SUCCESS; i++) {
        const bool is_operand = i < 2;
        const uint32_t least =
            form->aligned || !is_operand ? ALIGNED : element;

        answer = lt.cublasLtMatmulPreferenceSetAttribute_(
            out, aligned[i], &least, sizeof least);
    }
    return answer;
}

/* Whether it adds up an element without splitting the sum. */
static bool is_whole(const struct lt_algorithm *algorithm)
{
    int32_t splits = 1;
    uint32_t reduction = 0;
    size_t written;

    return lt.cublasLtMatmulAlgoConfigGetAttribute_(
               algorithm, LT_SPLITS, &splits, sizeof splits, &written) ==
               LT_SUCCESS &&
           lt.cublasLtMatmulAlgoConfigGetAttribute_(
               algorithm, LT_REDUCTION, &reduction, sizeof reduction,
               &written) == LT_SUCCESS &&
           splits <= 1 && reduction == 0;
}

const char *products_offer(struct gpu *gpu, const struct gpu_product *like,
                           size_t bytes,
                           struct gpu_algorithm offers[GPU_OFFERS], int *count)
{
    struct lt_offer found[GPU_OFFERS];
    struct lt_preference preference;
    struct described d;
    int answer, have = 0;
    const char *sentence = enter(gpu);

    *count = 0;
    if (sentence != NULL) return sentence;
    answer = describe(like, &d);
    if (answer == LT_SUCCESS)
        answer = prefer(&preference, &like->form, bytes);
    if (answer != LT_SUCCESS) return says(answer, "what a product is");
    answer = lt.cublasLtMatmulAlgoGetHeuristic_(
        gpu->products, &d.desc, &d.first, &d.second, &d.c, &d.c, &preference,
        GPU_OFFERS, found, &have);
    if (answer == LT_NOT_SUPPORTED) return NULL; /* it has none */
    for (int i = 0; i < have && answer == LT_SUCCESS; i++) {
        if (found[i].state != LT_SUCCESS || found[i].room > bytes ||
            !is_whole(&found[i].algorithm))
            continue;
        memcpy(offers[*count].words, found[i].algorithm.data,
               sizeof offers->words);
        offers[(*count)++].bytes = found[i].room;
    }
    return says(answer, "which algorithms a product has");
}

/* stream: where the product is performed, or one that is being captured. */
const char *products_give(struct gpu *gpu, const struct product_told *told,
                          CUstream stream)
{
    const struct gpu_product *p = &told->product;
    const float one = 1, rest = p->adds ? 1 : 0;
    struct lt_algorithm own;
    struct described d;
    int answer = describe(p, &d);

    memcpy(own.data, told->algorithm.words, sizeof own.data);
    if (answer == LT_SUCCESS)
        answer = lt.cublasLtMatmul_(
            gpu->products, &d.desc, &one, p->b, &d.first, p->a, &d.second,
            &rest, p->c, &d.c, p->c, &d.c, &own, told->room.data,
            told->room.bytes, stream);
    return says(answer, "a product");
}

/* Sets each member by itself: bytes between members stay zero, as products are
 * compared byte by byte. */
static void tell(struct product_told *to, const struct gpu_product *p,
                 const struct gpu_algorithm *algorithm,
                 const struct gpu_room *room)
{
    struct gpu_product *own = &to->product;

    memset(to, 0, sizeof *to);
    own->form.number = p->form.number;
    own->form.a_turned = p->form.a_turned;
    own->form.b_turned = p->form.b_turned;
    own->form.aligned = p->form.aligned;
    own->form.k = p->form.k;
    own->a = p->a;
    own->b = p->b;
    own->c = p->c;
    own->m = p->m;
    own->n = p->n;
    own->a_stride = p->a_stride;
    own->b_stride = p->b_stride;
    own->c_stride = p->c_stride;
    own->adds = p->adds;
    to->algorithm = *algorithm;
    to->room = *room;
}

const char *products_run(struct gpu *gpu, const struct gpu_product *p,
                         const struct gpu_algorithm *algorithm,
                         const struct gpu_room *room)
{
    struct product_told told;
    const char *sentence = enter(gpu);

    if (sentence != NULL) return sentence;
    tell(&told, p, algorithm, room);
    if (gpu->open != NULL)
        return driver_says(segment_product(gpu->open, &told), "a product");
    return products_give(gpu, &told, gpu->streams[GPU_KERNELS]);
}
