/* SPDX-License-Identifier: Apache-2.0 */
/* peer_product.c - a matrix product of any type by oneDNN's primitives.
 *
 * Only functions and numbers of its C interface are used, which are stable
 * inside a version; the one structure that callers of version 2 bring, the
 * description of a memory, is larger room than it needs. */
#include "bench/peer_product.h"

#include <dlfcn.h>

enum { ENGINE_CPU = 1, IN_ORDER = 1, ARG_A = 1, ARG_B = 33, ARG_C = 17,
       MATMUL_BYTES = 8192 };

/* Looks a function up; ISO C has no cast from an object pointer to it. */
#define FIND(function, library, name) \
    (*(void **)&(function) = dlsym((library), (name)))

static int type_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F16: return 1;
    case DTYPE_BF16: return 2;
    case DTYPE_F32: return 3;
    default: return 0;
    }
}

static bool open_engine(struct peer_product *p)
{
    int (*engine)(void **, int, size_t);
    int (*stream)(void **, void *, unsigned);

    FIND(engine, p->library, "dnnl_engine_create");
    FIND(stream, p->library, "dnnl_stream_create");
    return engine != NULL && stream != NULL &&
           engine(&p->engine, ENGINE_CPU, 0) == 0 &&
           stream(&p->stream, p->engine, IN_ORDER) == 0;
}

/* Describes operand i; NULL: it cannot. */
static void *describe(struct peer_product *p, int i, const struct tensor *t)
{
    int (*fill)(void *, int, const int64_t *, int, const int64_t *);
    int (*make)(void **, int, const int64_t *, int, const int64_t *);
    int64_t shape[12] = {t->shape[0], t->shape[1]};
    int64_t stride[12] = {t->stride[0], t->stride[1]};

    FIND(fill, p->library, "dnnl_memory_desc_init_by_strides");
    if (fill != NULL)
        return fill(p->layout[i].bytes, 2, shape, type_of(t->dtype),
                    stride) == 0
                   ? p->layout[i].bytes : NULL;
    FIND(make, p->library, "dnnl_memory_desc_create_with_strides");
    if (make == NULL || make(&p->made[i], 2, shape, type_of(t->dtype),
                             stride) != 0)
        return NULL;
    return p->made[i];
}

static bool open_primitive(struct peer_product *p, void *const layout[3])
{
    static union { double align; char bytes[MATMUL_BYTES]; } operation;
    int (*init)(void *, const void *, const void *, const void *,
                const void *);
    int (*two)(void **, const void *, const void *, void *, const void *);
    int (*three)(void **, void *, const void *, const void *, const void *,
                 const void *, const void *);
    int (*create)(void **, void *);

    FIND(init, p->library, "dnnl_matmul_desc_init");
    FIND(two, p->library, "dnnl_primitive_desc_create");
    FIND(three, p->library, "dnnl_matmul_primitive_desc_create");
    FIND(create, p->library, "dnnl_primitive_create");
    if (create == NULL) return false;
    if (init != NULL && two != NULL) {
        if (init(operation.bytes, layout[0], layout[1], NULL, layout[2]) != 0 ||
            two(&p->description, operation.bytes, NULL, p->engine, NULL) != 0)
            return false;
    } else if (three == NULL || three(&p->description, p->engine, layout[0],
                                      layout[1], NULL, layout[2], NULL) != 0) {
        return false;
    }
    return create(&p->primitive, p->description) == 0;
}

bool peer_product_open(struct peer_product *product, void *library,
                       const struct matmul *call)
{
    const struct tensor *operands[] = {&call->a, &call->b, &call->c};
    int (*memory)(void **, const void *, void *, void *);
    void *layout[3];

    *product = (struct peer_product){.library = library};
    FIND(memory, library, "dnnl_memory_create");
    if (memory == NULL || !open_engine(product)) return false;
    for (int i = 0; i < 3; i++) {
        layout[i] = describe(product, i, operands[i]);
        if (layout[i] == NULL ||
            memory(&product->memory[i], layout[i], product->engine,
                   operands[i]->data) != 0)
            return false;
    }
    return open_primitive(product, layout);
}

bool peer_product_run(struct peer_product *product)
{
    const struct { int which; void *memory; } arguments[] = {
        {ARG_A, product->memory[0]}, {ARG_B, product->memory[1]},
        {ARG_C, product->memory[2]}};
    int (*execute)(void *, void *, int, const void *);
    int (*wait)(void *);

    FIND(execute, product->library, "dnnl_primitive_execute");
    FIND(wait, product->library, "dnnl_stream_wait");
    return execute != NULL && wait != NULL &&
           execute(product->primitive, product->stream, 3, arguments) == 0 &&
           wait(product->stream) == 0;
}

static void destroy(struct peer_product *p, const char *name, void **what)
{
    int (*function)(void *);

    FIND(function, p->library, name);
    if (*what != NULL && function != NULL) function(*what);
    *what = NULL;
}

void peer_product_close(struct peer_product *product)
{
    if (product->library == NULL) return;
    destroy(product, "dnnl_primitive_destroy", &product->primitive);
    destroy(product, "dnnl_primitive_desc_destroy", &product->description);
    for (int i = 0; i < 3; i++) {
        destroy(product, "dnnl_memory_destroy", &product->memory[i]);
        destroy(product, "dnnl_memory_desc_destroy", &product->made[i]);
    }
    destroy(product, "dnnl_stream_destroy", &product->stream);
    destroy(product, "dnnl_engine_destroy", &product->engine);
}

void peer_threads(void *library, int count)
{
    void (*set)(int);

    FIND(set, library, "omp_set_num_threads");
    if (set != NULL) set(count);
}
