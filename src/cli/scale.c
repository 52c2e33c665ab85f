/* SPDX-License-Identifier: Apache-2.0 */
/* scale.c - --scale 1/K: the sizes of a small brother of a large model. */
#include "cli/scale.h"

#include <stdlib.h>
#include <string.h>

enum { DIVISOR_MOST = 65536, HEAD = 64, SHORTEST = 64 /* tokens */,
       EXPERTS_MOST = 16 };

static status read_divisor(const char *scale, int64_t *divisor)
{
    char *end = NULL;

    if (strncmp(scale, "1/", 2) == 0) *divisor = strtoll(scale + 2, &end, 10);
    if (end == NULL || end == scale + 2 || *end != 0 || *divisor < 1 ||
        *divisor > DIVISOR_MOST)
        FAIL(ERR_USAGE, "--scale: expected 1/K, K from 1 to %d, found \"%s\"",
             DIVISOR_MOST, scale);
    return OK;
}

static int64_t part(int64_t size, int64_t divisor, int64_t step)
{
    const int64_t found = size / divisor / step * step;

    return found < step ? step : found;
}

static status set_one(struct options_set *set, const char *name,
                      int64_t value)
{
    char text[96];

    snprintf(text, sizeof text, "%s=%lld", name, (long long)value);
    return options_assign(set, text, ORIGIN_COMMAND_LINE);
}

static status scale_model(struct options_set *set, int64_t k)
{
    const struct options o = set->values;
    const int64_t width = part(o.model.width, k, HEAD);
    const int64_t heads = width / HEAD;
    const bool alike = o.model.kv_heads == 0 ||
                       o.model.kv_heads == o.model.heads;
    const int64_t period = o.model.window > 0 ? 6 : 2;

    TRY(set_one(set, "model.width", width));
    TRY(set_one(set, "model.heads", heads));
    TRY(set_one(set, "model.kv_heads", alike ? o.model.kv_heads > 0 ? heads
                                                                    : 0 : 1));
    TRY(set_one(set, "model.head_width", o.model.head_width > 0 ? HEAD : 0));
    TRY(set_one(set, "model.layers",
                o.model.layers < period ? o.model.layers : period));
    if (o.model.feed_forward > 0)
        TRY(set_one(set, "model.feed_forward",
                    part(o.model.feed_forward, k, HEAD)));
    if (o.model.window > 0)
        TRY(set_one(set, "model.window", part(o.model.window, k, 8)));
    if (o.model.vocab > 0) /* the tokenizer's, where there is one */
        TRY(set_one(set, "model.vocab", o.tokenizer.from[0] != 0
                                            ? 0
                                            : part(o.model.vocab, k, HEAD)));
    return set_one(set, "model.context", 0);
}

/* Fewer experts, and narrower ones; as many are chosen. An expert of all tokens
 * counts as many others as before. */
static status scale_experts(struct options_set *set, int64_t k)
{
    const struct options o = set->values;
    const int64_t width = part(o.moe.intermediate_size, k, HEAD);
    const int64_t count =
        o.moe.shared_intermediate_size / (o.moe.intermediate_size > 0
                                              ? o.moe.intermediate_size : 1);

    if (o.moe.experts > EXPERTS_MOST)
        TRY(set_one(set, "moe.experts", EXPERTS_MOST));
    if (o.moe.first_dense > 0) TRY(set_one(set, "moe.first_dense", 1));
    if (o.moe.intermediate_size > 0)
        TRY(set_one(set, "moe.intermediate_size", width));
    if (o.moe.shared_intermediate_size > 0)
        TRY(set_one(set, "moe.shared_intermediate_size",
                    o.moe.intermediate_size > 0
                        ? count * width
                        : part(o.moe.shared_intermediate_size, k, HEAD)));
    return OK;
}

/* Heads as wide as others have them. */
static status scale_latent(struct options_set *set, int64_t k)
{
    const struct options o = set->values;

    if (o.mla.rank == 0) return OK;
    if (o.mla.query_rank > 0)
        TRY(set_one(set, "mla.query_rank",
                    part(o.mla.query_rank, k, HEAD / 2)));
    TRY(set_one(set, "mla.rank", part(o.mla.rank, k, HEAD / 2)));
    TRY(set_one(set, "mla.nope", HEAD / 2));
    TRY(set_one(set, "mla.rope", HEAD / 2));
    return set_one(set, "mla.value", HEAD / 2);
}

static status scale_run(struct options_set *set, int64_t k)
{
    static const char *const alone[] = {
        "mesh.layout=given", "mesh.layers=",
        "mesh.data=-1", "mesh.shard=1", "mesh.context=1", "mesh.tensor=1",
        "mesh.pipe=1", "mesh.expert=1", "mesh.expert_tensor=0",
        "mesh.expert_context=false", "train.micro_batch=0",
        "numerics.grid_data=0", "numerics.grid_tensor=0",
        "numerics.grid_context=0"};
    const struct options o = set->values;

    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
        TRY(options_assign(set, alone[i], ORIGIN_COMMAND_LINE));
    if (strcmp(o.zero, "hsdp") == 0 || strcmp(o.zero, "mics") == 0)
        TRY(options_assign(set, "zero=fsdp", ORIGIN_COMMAND_LINE));
    TRY(set_one(set, "data.sequence",
                part(o.data.sequence, k, 1) < SHORTEST
                    ? SHORTEST : part(o.data.sequence, k, 1)));
    return set_one(set, "train.batch", part(o.train.batch, k, 8));
}

status scale_options(struct options_set *set, const char *scale)
{
    int64_t divisor = 1;

    TRY(read_divisor(scale, &divisor));
    if (divisor == 1) return OK;
    TRY(scale_model(set, divisor));
    TRY(scale_experts(set, divisor));
    TRY(scale_latent(set, divisor));
    return scale_run(set, divisor);
}
