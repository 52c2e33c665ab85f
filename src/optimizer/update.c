/* SPDX-License-Identifier: Apache-2.0 */
/* update.c - from summed gradients to new weights. */
#include "optimizer/update.h"

#include <math.h>

#include "kernels/math.h"
#include "mesh/grid.h"

status update_average(const struct update *update, int64_t targets)
{
    const struct tensor all =
        tensor_1d(update->gradients, update->kernels->dtype,
                  update->params->elements);

    return update->kernels->scale(update->stream, all, all,
                                  1.0 / (double)targets);
}

/* Leaf `leaf` of piece `piece` as a matrix; false when it is empty. */
static bool leaf_view(const struct param *param, struct tensor whole,
                      int leaves, int leaf, int piece, struct tensor *out)
{
    const struct param_spec *spec = &param->spec;
    int64_t base = 0, extent = spec->split_cols == AXIS_TENSOR
                                   ? spec->cols
                                   : (spec->vector ? spec->cols : spec->rows);

    if (spec->piece_count > 0) {
        for (int i = 0; i < piece; i++) base += spec->pieces[i].rows;
        extent = spec->pieces[piece].rows;
    }
    const int64_t block = (extent + leaves - 1) / leaves;
    const int64_t first = block * leaf;
    const int64_t count = first + block < extent ? block : extent - first;

    if (count <= 0) return false;
    if (spec->split_cols == AXIS_TENSOR || spec->vector)
        *out = tensor_cols(whole, base + first, count);
    else
        *out = tensor_rows(whole, base + first, count);
    return true;
}

/* Sum of squares of one parameter: leaves of its cut dimension by the tree,
 * pieces of a leaf in order. */
static status param_squares(const struct update *u, const struct param *param,
                            double *sum)
{
    const bool cut = param->spec.split_rows == AXIS_TENSOR ||
                     param->spec.split_cols == AXIS_TENSOR;
    const int leaves = cut ? u->tensor_leaves : 1;
    const int pieces = param->spec.piece_count ? param->spec.piece_count : 1;
    struct tensor whole =
        param_tensor(param, u->gradients, u->kernels->dtype);
    double leaf_sum[LEAVES_MAX];

    if (param->spec.vector)
        whole = tensor_2d(whole.data, whole.dtype, 1, param->elements);
    for (int leaf = 0; leaf < leaves; leaf++) {
        leaf_sum[leaf] = 0;
        for (int piece = 0; piece < pieces; piece++) {
            struct tensor view;
            double squares;

            if (!leaf_view(param, whole, leaves, leaf, piece, &view)) continue;
            TRY(u->kernels->sum_squares(u->stream, &squares, view));
            leaf_sum[leaf] += squares;
        }
    }
    *sum = grid_tree(leaf_sum, leaves);
    return OK;
}

status update_norm(const struct update *update, struct update_result *out)
{
    double total = 0;

    for (int i = 0; i < update->params->count; i++) {
        const struct param *param = &update->params->items[i];
        double sum;

        TRY(param_squares(update, param, &sum));
        if (!isfinite(sum))
            FAIL(ERR_NUMERIC, "the gradient of %s is not finite",
                 param->name);
        total += sum;
    }
    out->norm = sqrt(total);
    out->factor = 1;
    if (update->clip > 0 && update->clip / (out->norm + 1e-6) < 1)
        out->factor = update->clip / (out->norm + 1e-6);
    return OK;
}

status update_apply(const struct update *update, double factor, double lr,
                    int64_t t)
{
    const enum dtype dtype = update->kernels->dtype;
    const double correction1 = 1 - math_pow_int(update->beta1, t);
    const double correction2 = 1 - math_pow_int(update->beta2, t);

    for (int i = 0; i < update->params->count; i++) {
        const struct param *param = &update->params->items[i];
        struct tensor view[4];
        void *const arenas[4] = {update->weights, update->gradients,
                                 update->first, update->second};

        for (int j = 0; j < 4; j++) {
            view[j] = param_tensor(param, arenas[j], dtype);
            view[j] = tensor_1d(view[j].data, dtype, param->elements);
        }
        const struct adamw call = {
            .weight = view[0], .gradient = view[1], .m = view[2], .v = view[3],
            .scale = factor, .lr = lr, .beta1 = update->beta1,
            .beta2 = update->beta2, .epsilon = update->epsilon,
            .decay = param->spec.decay ? update->weight_decay : 0,
            .correction1 = correction1, .correction2 = correction2};

        TRY(update->kernels->adamw(update->stream, &call));
    }
    return OK;
}
