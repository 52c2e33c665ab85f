/* SPDX-License-Identifier: Apache-2.0 */
/* noise.c - the gradient-noise scale. */
#include "step/noise.h"

#include <math.h>

static const double keep = 0.9; /* of the averages, a measurement */

status noise_plan(struct noise *noise, const struct options *o,
                  int data_leaves)
{
    *noise = (struct noise){.every = o->train.noise_scale,
                            .leaves = (int)o->train.noise_leaves,
                            .data_leaves = data_leaves};
    if (noise->every == 0) return OK;
    if (data_leaves < 2)
        FAIL(ERR_CONFIG, "train.noise_scale: compares leaves of the batch with "
                         "all of it, but numerics.grid_data is 1; a batch that "
                         "2 divides has more");
    if (noise->leaves > data_leaves) noise->leaves = data_leaves;
    return OK;
}

/* One leaf of a batch: sequences of others have no targets. */
struct leaf_source {
    const struct sample_source *source;
    int64_t first, end, length;
};

static status fill_leaf(void *argument, int64_t index, int32_t *inputs,
                        int32_t *targets, int32_t *positions,
                        int32_t *documents)
{
    const struct leaf_source *leaf = argument;

    TRY(leaf->source->fill(leaf->source->argument, index, inputs, targets,
                           positions, documents));
    if (index >= leaf->first && index < leaf->end) return OK;
    for (int64_t i = 0; i < leaf->length; i++) targets[i] = -1;
    return OK;
}

status noise_begin(struct noise *noise, struct train_step *train,
                   const struct sample_source *source, int64_t step,
                   int64_t batch)
{
    const int64_t per_leaf = batch / noise->data_leaves;
    double small = 0, inverse = 0;
    int measured = 0;

    noise->measured = 0;
    if (noise->every == 0 || step % noise->every != 0) return OK;
    for (int i = 0; i < noise->leaves; i++) {
        const int64_t turn = step / noise->every * noise->leaves + i;
        const int64_t first = turn % noise->data_leaves * per_leaf;
        struct leaf_source leaf = {
            source, first, first + per_leaf,
            program_sequence(&train->pipeline->stages[0].program)};
        const struct sample_source masked = {
            .fill = fill_leaf, .argument = &leaf, .first = source->first};
        struct step_result result;

        TRY(train_step_probe(train, &masked, &result));
        if (!isfinite(result.norm)) return OK;
        if (result.targets == 0) continue;
        small += result.norm * result.norm;
        inverse += 1 / (double)result.targets;
        measured++;
    }
    if (measured == 0) return OK;
    noise->measured = measured;
    noise->small = small / measured;
    noise->inverse = inverse / measured;
    return OK;
}

void noise_solve(double small, double inverse_small, double big,
                 double inverse_big, double out[2])
{
    const double difference = inverse_small - inverse_big;

    out[0] = (small - big) / difference;
    out[1] = (big * inverse_small - small * inverse_big) / difference;
}

static double ratio(double trace, double gradient)
{
    return gradient > 0 && trace >= 0 ? trace / gradient : (double)NAN;
}

void noise_end(struct noise *noise, const struct step_result *result,
               double *now, double *average)
{
    const double big = result->norm * result->norm;
    double found[2];

    *now = *average = (double)NAN;
    if (noise->measured == 0 || !isfinite(big) || result->targets == 0 ||
        !(noise->inverse > 1 / (double)result->targets))
        return;
    noise_solve(noise->small, noise->inverse, big,
                1 / (double)result->targets, found);
    noise->measured = 0;
    noise->count++;
    noise->trace = keep * noise->trace + (1 - keep) * found[0];
    noise->gradient = keep * noise->gradient + (1 - keep) * found[1];
    *now = ratio(found[0], found[1]);
    *average = ratio(noise->trace, noise->gradient);
}

/* ---- keeping ---- */

void noise_write(const struct noise *noise, struct json_writer *writer)
{
    if (noise->every == 0) return;
    json_write_key(writer, "noise");
    json_write_object(writer);
    json_write_key_integer(writer, "count", noise->count);
    json_write_key_real(writer, "trace", noise->trace);
    json_write_key_real(writer, "gradient", noise->gradient);
    json_write_object_end(writer);
}

status noise_read(struct noise *noise, const struct json *state,
                  const char *source)
{
    const struct json *object = json_get(state, "noise");

    noise->count = 0;
    noise->trace = noise->gradient = 0;
    if (noise->every == 0 || object == NULL) return OK;
    TRY(json_get_integer_or(object, source, "count", 0, &noise->count));
    TRY(json_get_real_or(object, source, "trace", 0, &noise->trace));
    return json_get_real_or(object, source, "gradient", 0, &noise->gradient);
}
