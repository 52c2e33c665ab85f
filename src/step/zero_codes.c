/* SPDX-License-Identifier: Apache-2.0 */
/* zero_codes.c - divided weights that are gathered as codes. */
#include "step/zero_codes.h"

#include "nn/quantized.h"

static char *arena(const struct zero *z)
{
    return z->stage->memory[MEMORY_CODES].data;
}

static char *scales_at(const struct zero *z, int param, int set)
{
    return arena(z) + coded_parts(&z->stage->coded).scales +
           z->stage->coded.params[param].scales[set];
}

/* The unit's largest magnitudes; those of the next one come in their place. */
static struct tensor peaks_of(const struct zero *z, int unit)
{
    char *all = arena(z);

    if (all != NULL) all += coded_parts(&z->stage->coded).peaks;
    return tensor_1d(all, DTYPE_F32, coded_peaks(&z->stage->coded, unit));
}

/* The set that an instruction about a unit means. */
static int set_of(const struct zero *z, const struct instruction *i)
{
    const struct stage *stage = z->stage;

    if (stage->coded.sets == 1) return 0;
    CHECK(i->item >= 0);
    return stage->gathered.items[i->item].first >= stage->frame.forward_end;
}

/* ---- own shards ---- */

/* A parameter's elements of this rank's shard. */
struct part {
    int param, unit;
    struct shard_range range;
    const char *from;        /* of element 0 of the parameter, if it were there
                              * as a whole */
    int64_t to;              /* likewise: byte of the shard's codes */
};

/* False: this rank has none of it. */
static bool part_of(const struct zero *z, int unit, int param,
                    struct part *out)
{
    const struct stage *stage = z->stage;
    const struct shards *s = &stage->shards;
    const int64_t number =
        dtype_bytes(stage->program.params.items[param].dtype);
    const int64_t *sizes = stage->coded.sizes + (int64_t)unit * s->most;

    *out = (struct part){.param = param, .unit = unit, .from = arena(z),
                         .to = stage->coded.params[param].place};
    shard_whole(s, &stage->program.params, param, &out->range);
    /* One that no element of is here has its scales here. */
    if (out->range.last <= out->range.first) {
        out->range.first = out->range.last = 1;
        return false;
    }
    for (int i = 0; i < shard_index(s, unit); i++) out->to -= sizes[i];
    out->from = (const char *)stage->memory[MEMORY_COMPUTE].data +
                (out->range.shard_at - out->range.first) * number;
    return true;
}

static uint8_t *codes_of(const struct zero *z, const struct part *part,
                         int set)
{
    return (uint8_t *)arena(z) +
           coded_own(&z->stage->coded, &z->stage->shards, part->unit, set) +
           part->to;
}

static status encode(struct zero *z, const struct part *part, int set,
                     enum encode_what what)
{
    const struct stage *stage = z->stage;
    const struct program *p = &stage->program;
    const struct param *param = &p->params.items[part->param];
    struct quantize_span rows[QUANTIZED_SPANS_MAX], cols[QUANTIZED_SPANS_MAX];
    const struct block_coding coding = quantized_weight_coding(
        p, param, set == 0 ? USE_FORWARD : USE_DGRAD, rows, cols);
    const struct block_encode call = {
        .what = what,
        .in = tensor_2d((void *)(uintptr_t)part->from, param->dtype,
                        param->rows, param->cols),
        .coding = coding, .first = part->range.first,
        .last = part->range.last,
        .peaks = (float *)peaks_of(z, part->unit).data +
                 stage->coded.params[part->param].peaks[set],
        .scales = scales_at(z, part->param, set),
        .codes = codes_of(z, part, set),
        .row_bytes = code_row_bytes(coding.format, param->cols)};

    return stage->kernels.block_encode(&z->stage->stream, &call);
}

static status copy(struct zero *z, const struct part *part, int set)
{
    const int64_t number =
        dtype_bytes(z->stage->program.params.items[part->param].dtype);
    const int64_t first = part->range.first * number;

    return device_copy(&z->stage->stream, codes_of(z, part, set) + first,
                       part->from + first,
                       (size_t)(part->range.last * number - first));
}

static status raise_peaks(struct zero *z, int unit)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];
    const struct tensor all = peaks_of(z, unit);
    struct group *group = z->classes[u->class].shard;

    TRY(device_fill(&z->stage->stream, all.data, 0,
                    (size_t)all.shape[0] * sizeof(float)));
    for (int i = u->first_param; i < u->first_param + u->params; i++) {
        struct part part;

        if (!z->stage->coded.params[i].is || !part_of(z, unit, i, &part))
            continue;
        for (int set = 0; set < z->stage->coded.sets; set++)
            TRY(encode(z, &part, set, ENCODE_PEAKS));
    }
    return comm_all_reduce(group, all, all, REDUCE_MAX);
}

status zero_codes_make(struct zero *z, int unit)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];
    const struct coded *coded = &z->stage->coded;

    if (coded_peaks(coded, unit) == 0) return OK;
    TRY(raise_peaks(z, unit));
    for (int i = u->first_param; i < u->first_param + u->params; i++) {
        struct part part;
        const bool here = part_of(z, unit, i, &part);

        if (!here && !coded->params[i].is) continue;
        for (int set = 0; set < coded->sets; set++)
            TRY(coded->params[i].is ? encode(z, &part, set, ENCODE_CODES)
                                    : copy(z, &part, set));
    }
    return OK;
}

size_t zero_codes_scratch(const struct zero *z, int class)
{
    const struct shards *s = &z->stage->shards;
    size_t most = 0;

    for (int i = 0; i < s->count; i++) {
        const struct tensor all = peaks_of(z, i);
        const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                       .reduction = REDUCE_MAX, .out = all,
                                       .in = all};

        if (s->units[i].class != class || all.shape[0] == 0) continue;
        const size_t bytes = comm_scratch_bytes(z->classes[class].shard, &call);

        if (bytes > most) most = bytes;
    }
    return most;
}

/* ---- units ---- */

struct comm_call zero_codes_gather(const struct zero *z,
                                   const struct instruction *i, void *room)
{
    const struct stage *stage = z->stage;
    const struct shards *s = &stage->shards;
    const int64_t at = coded_own(&stage->coded, s, i->unit, set_of(z, i));

    return (struct comm_call){
        .kind = COMM_ALL_GATHER,
        .in = tensor_1d(arena(z) + at, DTYPE_U8,
                        coded_own_bytes(&stage->coded, s, i->unit)),
        .out = tensor_1d(room, DTYPE_U8,
                         s->units[i->unit].room *
                             dtype_bytes(stage->program.dtype)),
        .out_counts = stage->coded.sizes + (int64_t)i->unit * s->most};
}

void zero_codes_place(struct zero *z, const struct instruction *at, void *data)
{
    const struct shard_unit *u = &z->stage->shards.units[at->unit];
    const int set = data == NULL ? 0 : set_of(z, at);

    for (int i = u->first_param; i < u->first_param + u->params; i++) {
        const struct coded_param *param = &z->stage->coded.params[i];

        z->placed[i] = data == NULL ? NULL : (char *)data + param->place;
        z->scales[i] =
            data != NULL && param->is ? scales_at(z, i, set) : NULL;
    }
}
