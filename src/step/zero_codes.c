/* SPDX-License-Identifier: Apache-2.0 */
/* zero_codes.c - divided weights that are gathered as codes. */
#include "step/zero_codes.h"

#include "nn/quantized.h"

static char *arena(const struct zero *z)
{
    return z->stage->memory[MEMORY_CODES].data;
}

static char *scales_at(const struct zero *z, int param)
{
    return arena(z) + coded_parts(&z->stage->coded).scales +
           z->stage->coded.params[param].scales;
}

static float *peaks(const struct zero *z)
{
    return (float *)(void *)(arena(z) + coded_parts(&z->stage->coded).peaks);
}

static struct tensor peaks_of(const struct zero *z, int class)
{
    const int64_t *before = z->stage->coded.peaks;
    float *all = arena(z) == NULL ? NULL : peaks(z) + before[class];

    return tensor_1d(all, DTYPE_F32, before[class + 1] - before[class]);
}

/* A parameter's elements of this rank's shard. */
struct part {
    int param;
    struct shard_range range;
    const char *from;        /* of element 0 of the parameter, if it were there
                              * as a whole */
    uint8_t *to;             /* likewise, as codes or numbers */
};

/* False: this rank has none of it, or it is gathered as it is. */
static bool part_of(const struct zero *z, int param, struct part *out)
{
    const struct stage *stage = z->stage;
    const struct shards *s = &stage->shards;
    const struct coded *coded = &stage->coded;
    const int unit = shard_unit_of(s, param);
    const struct param *p = &stage->program.params.items[param];
    const int64_t number = dtype_bytes(p->dtype);
    const int64_t *sizes = coded->sizes + (int64_t)unit * s->most;
    int64_t before = 0;

    *out = (struct part){.param = param};
    if (coded->own[unit] < 0) return false;
    shard_whole(s, &stage->program.params, param, &out->range);
    if (out->range.last <= out->range.first) return false;
    for (int i = 0; i < shard_index(s, unit); i++) before += sizes[i];
    out->from = (const char *)stage->memory[MEMORY_COMPUTE].data +
                (out->range.shard_at - out->range.first) * number;
    out->to = (uint8_t *)arena(z) + coded->own[unit] +
              coded->params[param].place - before;
    return true;
}

static status encode(struct zero *z, const struct part *part,
                     enum encode_what what)
{
    const struct stage *stage = z->stage;
    const struct program *p = &stage->program;
    const struct param *param = &p->params.items[part->param];
    struct quantize_span rows[QUANTIZED_SPANS_MAX], cols[QUANTIZED_SPANS_MAX];
    const struct block_coding coding =
        quantized_weight_coding(p, param, rows, cols);
    const struct block_encode call = {
        .what = what,
        .in = tensor_2d((void *)(uintptr_t)part->from, param->dtype,
                        param->rows, param->cols),
        .coding = coding, .first = part->range.first,
        .last = part->range.last,
        .peaks = peaks(z) + stage->coded.params[part->param].peaks,
        .scales = scales_at(z, part->param), .codes = part->to,
        .row_bytes = code_row_bytes(coding.format, param->cols)};

    return stage->kernels.block_encode(&z->stage->stream, &call);
}

static status copy(struct zero *z, const struct part *part)
{
    const int64_t number =
        dtype_bytes(z->stage->program.params.items[part->param].dtype);
    const int64_t first = part->range.first * number;

    return device_copy(&z->stage->stream, part->to + first, part->from + first,
                       (size_t)(part->range.last * number - first));
}

static bool is_of(const struct zero *z, int param, int class)
{
    const struct shards *s = &z->stage->shards;

    return s->units[shard_unit_of(s, param)].class == class;
}

/* One that no element of is here, whose scales are. */
static void take_none(struct part *part)
{
    part->range.first = part->range.last = 1;
}

static status raise_peaks(struct zero *z, int class)
{
    const struct tensor all = peaks_of(z, class);
    struct group *group = z->classes[class].shard;

    TRY(device_fill(&z->stage->stream, all.data, 0,
                    (size_t)all.shape[0] * sizeof(float)));
    for (int i = 0; i < z->stage->program.params.count; i++) {
        struct part part;

        if (!z->stage->coded.params[i].is || !is_of(z, i, class) ||
            !part_of(z, i, &part))
            continue;
        TRY(encode(z, &part, ENCODE_PEAKS));
    }
    return comm_all_reduce(group, all, all, REDUCE_MAX);
}

status zero_codes_make(struct zero *z, int class)
{
    const struct coded *coded = &z->stage->coded;

    if (coded->peaks[class] == coded->peaks[class + 1]) return OK;
    TRY(raise_peaks(z, class));
    for (int i = 0; i < z->stage->program.params.count; i++) {
        struct part part;
        const bool here = part_of(z, i, &part);

        if (!is_of(z, i, class) || (!here && !coded->params[i].is)) continue;
        if (!here) take_none(&part);
        TRY(coded->params[i].is ? encode(z, &part, ENCODE_CODES)
                                : copy(z, &part));
    }
    return OK;
}

size_t zero_codes_scratch(const struct zero *z, int class)
{
    const struct tensor all = peaks_of(z, class);
    const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                   .reduction = REDUCE_MAX, .out = all,
                                   .in = all};

    return all.shape[0] == 0
               ? 0 : comm_scratch_bytes(z->classes[class].shard, &call);
}

struct comm_call zero_codes_gather(const struct zero *z, int unit, void *room)
{
    const struct stage *stage = z->stage;
    const struct shard_unit *u = &stage->shards.units[unit];
    const int64_t own = coded_own_bytes(&stage->coded, &stage->shards, unit);

    return (struct comm_call){
        .kind = COMM_ALL_GATHER,
        .in = tensor_1d(arena(z) + stage->coded.own[unit], DTYPE_U8, own),
        .out = tensor_1d(room, DTYPE_U8,
                         u->room * dtype_bytes(stage->program.dtype)),
        .out_counts = stage->coded.sizes +
                      (int64_t)unit * stage->shards.most};
}

void zero_codes_place(struct zero *z, int unit, void *data)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];

    for (int i = u->first_param; i < u->first_param + u->params; i++) {
        const struct coded_param *param = &z->stage->coded.params[i];

        z->placed[i] = data == NULL ? NULL : (char *)data + param->place;
        z->scales[i] = data != NULL && param->is ? scales_at(z, i) : NULL;
    }
}
