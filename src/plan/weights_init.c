/* SPDX-License-Identifier: Apache-2.0 */
/* weights_init.c - initial weights from counters: element i of a parameter is
 * a function of (seed, name, i), so every layout starts from the same bits.
 * Source: Radford et al. 2019, section 2.3 (0.02, residual projections divided
 * by the root of their number); Box and Muller 1958. */
#include <math.h>

#include "base/random.h"
#include "kernels/math.h"
#include "plan/stage.h"

struct filling {
    struct tensor out;       /* [elements] */
    struct random_key key;
    double deviation;
};

static const double two_pi = 0x1.921fb54442d18p+2;

/* [0, 1) with 53 bits. */
static double uniform(const uint32_t word[2])
{
    return ((double)word[0] * 0x1p21 + (double)(word[1] >> 11)) * 0x1p-53;
}

/* Elements 2i and 2i + 1 come from block i. */
static void fill_pair(const struct filling *f, int64_t pair)
{
    const int64_t count = f->out.shape[0];
    uint32_t word[4];

    random_block(f->key, (uint64_t)pair, 0, word);
    const double radius =
        f->deviation * sqrt(-2 * math_log(1 - uniform(word)));
    const double angle = two_pi * uniform(word + 2);

    tensor_set(&f->out, 2 * pair, radius * math_cos(angle));
    if (2 * pair + 1 < count)
        tensor_set(&f->out, 2 * pair + 1, radius * math_sin(angle));
}

static void fill_range(void *argument, int index, int count)
{
    const struct filling *f = argument;
    int64_t first, last;

    threads_split((f->out.shape[0] + 1) / 2, 16, index, count, &first, &last);
    for (int64_t i = first; i < last; i++) fill_pair(f, i);
}

status stage_init_weights(struct stage *stage, const struct model *model,
                          uint64_t seed)
{
    const struct param_table *table = &stage->program.params;

    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        struct tensor view =
            param_tensor(param, stage->run.weights, stage->program.dtype);
        struct filling filling = {.deviation = model->init_std};
        const bool one = param->spec.init == INIT_ONE;

        filling.out = tensor_1d(view.data, view.dtype, param->elements);
        if (one || param->spec.init == INIT_ZERO) {
            for (int64_t j = 0; j < param->elements; j++)
                tensor_set(&filling.out, j, one ? 1.0 : 0.0);
            continue;
        }
        if (param->spec.init == INIT_RESIDUAL)
            filling.deviation /= sqrt(2.0 * model->layers);
        filling.key = random_key_make(seed, param->name);
        threads_run(stage->threads, fill_range, &filling);
    }
    return OK;
}
