/* SPDX-License-Identifier: Apache-2.0 */
/* param.h - the parameter table, a by-product of building the program.
 *
 * All weights lie in one flat arena, in model order, and so do gradients;
 * frozen matrices have none, and no room there. Every use of a parameter (a
 * tied matrix has two) has a gradient of its own, with its own trees;
 * the roots of the uses are added at the end of the step. */
#ifndef LOCKSTEP_MESH_PARAM_H
#define LOCKSTEP_MESH_PARAM_H

#include "base/arena.h"
#include "mesh/layout.h"
#include "tensor/tensor.h"

enum { PARAM_ALIGN = 16 /* elements */ };

struct param {
    char name[PARAM_NAME_BYTES]; /* "layers.3.attention.wqkv" */
    struct param_spec spec;      /* of the whole */
    int layer;                   /* -1: outside the blocks */
    int order;                   /* among the whole model's parameters */
    int number_at;               /* of an expert: where its number is in name */
    enum dtype dtype;            /* of its weights, as kernels read them */
    int64_t rows, cols;          /* that this rank holds */
    int64_t elements;            /* rows * cols */
    int64_t offset;              /* elements, in every flat arena but that of */
    int64_t gradient;            /* gradients: there, or where it would be */
    int uses;                    /* by steps */
    bool shared;                 /* used by other pipeline stages too */
    bool copy;                   /* shared, and another stage counts it */
    bool frozen;                 /* nobody asks for its gradient */
};

struct param_table {
    struct param *items; /* owned (memory_grow) */
    int count, capacity;
    int64_t elements;    /* of a flat arena, gaps included */
    int64_t gradients;   /* of that of gradients */
    int64_t parameters;  /* without the gaps */
    int64_t whole;       /* parameters of the whole model, all ranks' */
    int orders;          /* their number of matrices and vectors */
    int experts;         /* most leaves of one that the expert axis cuts; 0:
                          * none is cut so */
};

/* Adds a parameter; held: rows and columns of this rank's part, NULL: all.
 * ERR_CONFIG: the sizes overflow. */
status param_add(struct param_table *table, const char *name, int layer,
                 const struct param_spec *spec, const int64_t held[2],
                 int *index);
/* One of the whole model's that this rank does not hold (param_spec.spread).
 * ERR_CONFIG: the sizes overflow. */
status param_skip(struct param_table *table, const struct param_spec *spec);
/* Elements that a parameter takes in a flat arena, its gap included. */
static inline int64_t param_room(int64_t elements)
{
    return (elements + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}
/* Vectors cost nothing and have one in any case. */
static inline bool param_has_gradient(const struct param *param)
{
    return param->spec.vector || !param->frozen;
}
/* The number of elements that it takes in the flat arena of gradients. */
static inline int64_t param_gradient_room(const struct param *param)
{
    return param_has_gradient(param) ? param_room(param->elements) : 0;
}
/* Once it is known who is frozen: places of all gradients. */
void param_place_gradients(struct param_table *table);
void param_table_free(struct param_table *table);
/* The table as the rank `away` further among those that divide the experts has
 * it, with the names of that rank's experts; owned by the caller. */
status param_table_beside(const struct param_table *table, int away,
                          struct param_table *out);

/* The parameter as a [rows, cols] matrix (a vector: [cols]) at `data`. */
struct tensor param_shaped(const struct param *param, void *data,
                           enum dtype dtype);
/* Like param_shaped, in an arena: of that type, or of weights. */
struct tensor param_tensor(const struct param *param, void *arena,
                           enum dtype dtype);
struct tensor param_weight(const struct param *param, void *arena);

/* Outside (Hugging Face) names: piece i of the parameter, with the layer
 * prefix of the family ("model.layers.%d."), and its rows (elements of a
 * vector). Returns false when there is no such piece. A parameter without
 * pieces has one. */
struct param_outside {
    char name[2 * PARAM_NAME_BYTES];
    int64_t first_row, rows, cols;
    bool vector;      /* shape [rows * cols] outside */
    bool transposed;  /* shape [cols, rows] outside */
};
/* How many there are. */
int param_tensors(const struct param_spec *spec);
bool param_outside(const struct param *param, const char *layer_prefix,
                   int piece, struct param_outside *out);
/* Rows (elements of a vector) from `row` on that lie outside in equal steps:
 * `count` of them, at first, first + step, ..., counted as rows here are. */
struct param_rows { int64_t first, step, count; };
struct param_rows param_rows_outside(const struct param_spec *spec,
                                     int64_t row);
/* Does any row lie elsewhere outside? */
bool param_is_permuted(const struct param_spec *spec);

#endif
