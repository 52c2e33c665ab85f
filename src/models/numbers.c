/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.c - the table of numbers that families have. */
#include "models/numbers.h"

#include <stddef.h>

static bool has_query_scale(const struct model_kind *kind)
{
    return kind->scaled.queries;
}

static bool has_multipliers(const struct model_kind *kind)
{
    return kind->scaled.multipliers;
}

static bool has_attention_softcap(const struct model_kind *kind)
{
    return kind->softcap.attention > 0;
}

static bool has_head_softcap(const struct model_kind *kind)
{
    return kind->softcap.head > 0;
}

static bool has_local_base(const struct model_kind *kind)
{
    return kind->rope.local_base > 0;
}

#define NUMBER(option, field) #option, offsetof(struct options, model.option), \
                              offsetof(struct model, field)

const struct model_number model_numbers[] = {
    {NUMBER(query_scale, scaled.queries), has_query_scale, false},
    {NUMBER(embedding_multiplier, scaled.embedding), has_multipliers, true},
    {NUMBER(residual_multiplier, scaled.residual), has_multipliers, true},
    {NUMBER(attention_multiplier, scaled.scores), has_multipliers, true},
    {NUMBER(logits_scaling, scaled.logits), has_multipliers, true},
    {NUMBER(attention_softcap, softcap.attention), has_attention_softcap,
     false},
    {NUMBER(head_softcap, softcap.head), has_head_softcap, false},
    {NUMBER(rope_local_base, rope.local_base), has_local_base, false},
};
const int model_number_count = sizeof model_numbers / sizeof *model_numbers;

bool model_number_is_of(const struct model_number *number,
                        const struct model_kind *kind)
{
    return number->has == NULL || number->has(kind);
}

double model_number_option(const struct model_number *number,
                           const struct options *options)
{
    return *(const double *)(const void *)((const char *)options +
                                           number->option);
}

double model_number_value(const struct model_number *number,
                          const struct model *model)
{
    return *(const double *)(const void *)((const char *)model + number->field);
}

void model_numbers_take(struct model *model, const struct options *options)
{
    for (int i = 0; i < model_number_count; i++)
        *(double *)(void *)((char *)model + model_numbers[i].field) =
            model_number_option(&model_numbers[i], options);
}

status model_numbers_check(const struct model_kind *kind,
                           const struct options *options)
{
    for (int i = 0; i < model_number_count; i++)
        if (model_number_option(&model_numbers[i], options) > 0 &&
            !model_number_is_of(&model_numbers[i], kind))
            FAIL(ERR_CONFIG, "model.%s: %s has no such choice; leave it out",
                 model_numbers[i].name, kind->name);
    return OK;
}
