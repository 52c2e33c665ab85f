/* SPDX-License-Identifier: Apache-2.0 */
/* weights_init.c - initial weights from counters: element i of a parameter is
 * a function of (seed, name, i), so every layout starts from the same bits.
 * Source: Radford et al. 2019, section 2.3 (0.02, residual projections divided
 * by the root of their number); Box and Muller 1958. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "kernels/isa.h"
#include "models/mup.h"
#include "plan/stage.h"

struct filling {
    const struct weights_init *init;
    const struct layout_run *run;
    struct random_key key;
    double deviation;
};

enum { CHUNK = 512 }; /* numbers at once */

static void store(struct tensor *out, int64_t first, const double *from,
                  int64_t count)
{
    float *plain = out->data;

    if (out->dtype == DTYPE_F32)
        for (int64_t i = 0; i < count; i++) plain[first + i] = (float)from[i];
    else
        for (int64_t i = 0; i < count; i++)
            tensor_set(out, first + i, from[i]);
}

/* out [count] = elements [whole, whole + count) of the parameter. Elements 2i
 * and 2i + 1 of the whole come from block i. */
static void fill_row(const struct filling *f, struct tensor *out,
                     int64_t whole)
{
    const int64_t last = whole + out->shape[0];
    double drawn[CHUNK];

    for (int64_t at = whole; at < last;) {
        const int64_t even = at / 2 * 2;
        const int64_t end = even + CHUNK < last ? even + CHUNK : last;
        const struct normals normals = {
            .key = f->key, .first = even / 2, .pairs = (end - even + 1) / 2,
            .deviation = f->deviation};

        kernels_normals(f->init->isa, &normals, drawn);
        store(out, at - whole, drawn + (at - even), end - at);
        at = end;
    }
}

/* One long row is divided among the threads, or the rows are. */
static void fill_part(void *argument, int index, int count)
{
    const struct filling *f = argument;
    const struct layout_run *run = f->run;
    const enum dtype dtype = f->init->dtype;
    int64_t first = 0, last = run->repeats, from = 0, to = run->length;

    if (run->repeats == 1)
        threads_split(run->length, 32, index, count, &from, &to);
    else
        threads_split(run->repeats, 1, index, count, &first, &last);
    for (int64_t i = first; i < last && from < to; i++) {
        const int64_t local = run->local_first + i * run->length + from;
        struct tensor row =
            tensor_1d((char *)f->init->data + local * dtype_bytes(dtype),
                      dtype, to - from);

        fill_row(f, &row, run->whole_first + i * run->whole_stride + from);
    }
}

static void set_all(const struct weights_init *init,
                    const struct layout_run *run, double value)
{
    const int64_t count = run->repeats * run->length;
    struct tensor all = tensor_1d(
        (char *)init->data + run->local_first * dtype_bytes(init->dtype),
        init->dtype, count);

    for (int64_t i = 0; i < count; i++) tensor_set(&all, i, value);
}

/* A gain of muP is a value of its own; one that is stored less 1 begins at 0
 * without. */
static double constant_of(const struct weights_init *init, double gain)
{
    const bool one = init->param->spec.init == INIT_ONE;

    if (gain == 1 || init->param->spec.role == ROLE_LAST_BIAS) return one;
    return one ? gain : gain - 1;
}

void weights_init(const struct weights_init *init)
{
    const enum param_init kind = init->param->spec.init;
    const struct mup mup = mup_of(init->model, init->param);
    struct filling filling = {
        .init = init, .deviation = init->model->init_std * mup.deviation,
        .key = random_key_make(init->seed, init->param->name)};

    /* the variance of a uniform distribution in 1 / root of the columns */
    if (kind == INIT_ADAPTER)
        filling.deviation =
            1 / sqrt(3.0 * (double)init->param->spec.cols);
    if (kind == INIT_RESIDUAL)
        filling.deviation /= sqrt(2.0 * init->model->layers);
    for (int i = 0; i < init->run_count; i++) {
        filling.run = &init->runs[i];
        if (kind == INIT_ONE || kind == INIT_ZERO)
            set_all(init, filling.run, constant_of(init, mup.gain));
        else
            threads_run(init->threads, fill_part, &filling);
    }
}

/* Drawn by the host, in memory of its own where that of the device is apart. */
static status draw_weights(struct stage *stage, struct weights_init *init,
                           void *to)
{
    const size_t bytes = (size_t)init->param->elements *
                         (size_t)dtype_bytes(init->dtype);
    void *room = NULL;
    status result;

    init->data = to;
    if (stage->device != NULL) {
        TRY(memory_take(bytes, 1, &room));
        init->data = room;
    }
    weights_init(init);
    if (stage->device == NULL) return OK;
    result = device_write(&stage->stream, to, room, bytes);
    memory_free(room);
    return result;
}

status stage_init_weights(struct stage *stage, const struct model *model,
                          uint64_t seed)
{
    const struct program *p = &stage->program;
    const enum dtype dtype = stage_keeps_dtype(stage);
    char *weights = stage->memory[stage_keeps(stage)].data;

    for (int i = 0; i < p->params.count; i++) {
        const struct param *param = &p->params.items[i];
        struct weights_init init = {
            .param = param, .model = model, .seed = seed, .dtype = dtype,
            .isa = stage->request.machine.isa, .threads = stage->threads};

        init.run_count =
            layout_runs(&param->spec, &p->layout.mesh, &p->layout.place, 0,
                        param->elements, init.runs);
        TRY(draw_weights(stage, &init,
                         weights + param->offset * dtype_bytes(dtype)));
    }
    return OK;
}
