/* SPDX-License-Identifier: Apache-2.0 */
/* zero_codes.c - weights that are kept or gathered as codes. */
#include "step/zero_codes.h"

#include "nn/quantized_operands.h"

static char *arena(const struct zero *z)
{
    return z->stage->memory[MEMORY_CODES].data;
}

static char *scales_at(const struct zero *z, int param, int set)
{
    return arena(z) + coded_parts(&z->stage->coded).scales +
           z->stage->coded.params[param].scales[set];
}

/* The largest magnitudes of all parameters; NULL: nobody asks. */
static float *mosts(const struct zero *z)
{
    return z->stage->coded.mosts == 0
               ? NULL : (float *)(void *)(arena(z) +
                                          coded_parts(&z->stage->coded).mosts);
}

void zero_codes_begin(struct zero *z)
{
    z->stage->run.params.scales = z->scales;
    z->stage->run.params.mosts = mosts(z);
}

/* The largest magnitudes, or sums, of a unit; those of the next one come in
 * their place. */
static struct tensor score_peaks_of(const struct zero *z, int unit)
{
    char *all = arena(z);

    if (all != NULL) all += coded_parts(&z->stage->coded).peaks;
    return tensor_1d(all, coded_peak_dtype(&z->stage->coded),
                     coded_peaks(&z->stage->coded, unit));
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

/* A parameter's elements of this rank's shard; of kept codes, those that it
 * updates. */
struct part {
    int param, unit;
    struct shard_range range;
    const char *from;        /* of element 0 of the parameter, if it were there
                              * as a whole: bfloat16; kept: float32 */
    int64_t to;              /* likewise: byte of the shard's codes */
};

/* False: this rank has none of it. */
static bool part_of(const struct zero *z, int unit, int param,
                    struct part *out)
{
    const struct stage *stage = z->stage;
    const struct shards *s = &stage->shards;
    const struct coded *coded = &stage->coded;
    const struct param_table *params = &stage->program.params;
    const struct param *of = &params->items[param];

    *out = (struct part){.param = param, .unit = unit, .from = arena(z),
                         .to = coded->params[param].place};
    if (coded->kept) shard_own(s, params, param, &out->range);
    else shard_whole(s, params, param, &out->range);
    /* One that no element of is here has its scales here. */
    if (out->range.last <= out->range.first) {
        out->range.first = out->range.last = 1;
        return false;
    }
    if (!coded->whole) out->to -= coded_before(coded, s, unit);
    out->from =
        coded->kept
            ? (const char *)stage->memory[MEMORY_WEIGHTS].data +
                  (shard_place(&out->range,
                               stage_level(stage, MEMORY_WEIGHTS), of) -
                   out->range.first) *
                      dtype_bytes(program_real(&stage->program))
            : (const char *)stage->memory[MEMORY_COMPUTE].data +
                  (out->range.shard_at - out->range.first) *
                      dtype_bytes(of->dtype);
    return true;
}

static uint8_t *codes_of(const struct zero *z, const struct part *part,
                         int set)
{
    return (uint8_t *)arena(z) +
           coded_own(&z->stage->coded, &z->stage->shards, part->unit, set) +
           part->to;
}

/* Elements [first, last) of masters, rounded. */
static status narrow(struct zero *z, const struct part *part, int64_t first,
                     int64_t last, void *to)
{
    const struct stage *stage = z->stage;
    const enum dtype real = program_real(&stage->program);
    const struct tensor in =
        tensor_1d((void *)(uintptr_t)(part->from + first * dtype_bytes(real)),
                  real, last - first);

    return stage->kernels.scale(
        &z->stage->stream,
        tensor_1d(to, stage->program.params.items[part->param].dtype,
                  last - first),
        in, 1.0);
}

/* Elements of masters that the layers' scratch, which nobody uses now, has room
 * for: products that read codes have room for decoded matrices there. */
static int64_t most_of(const struct zero *z)
{
    const int64_t most =
        (int64_t)program_scratch_bytes(&z->stage->program) /
        (PARAM_ALIGN * dtype_bytes(z->stage->program.dtype)) * PARAM_ALIGN;

    CHECK(most > 0);
    return most;
}

/* Through the scratch, part by part. */
static status encode_masters(struct zero *z, const struct part *part,
                             const struct block_encode *whole)
{
    char *const scratch = z->stage->memory[MEMORY_LAYER_SCRATCH].data;
    const int64_t most = most_of(z);
    struct block_encode call = *whole;

    for (call.first = whole->first; call.first < whole->last;
         call.first = call.last) {
        call.last = whole->last - call.first > most ? call.first + most
                                                     : whole->last;
        call.in.data = scratch - call.first * dtype_bytes(call.in.dtype);
        TRY(narrow(z, part, call.first, call.last, scratch));
        TRY(z->stage->kernels.block_encode(&z->stage->stream, &call));
    }
    return OK;
}

static status encode(struct zero *z, const struct part *part, int set,
                     enum encode_what what)
{
    const struct stage *stage = z->stage;
    const struct program *p = &stage->program;
    const struct param *param = &p->params.items[part->param];
    struct quantize_span rows[QUANTIZED_SPANS_MAX], cols[QUANTIZED_SPANS_MAX];
    const struct block_coding coding = quantized_weight_now(
        &stage->run, param, set == 0 ? USE_FORWARD : USE_DGRAD, rows, cols);
    float *const most = mosts(z);
    const bool sums = stage->coded.sums;
    const struct tensor all = score_peaks_of(z, part->unit);
    char *const peaks =
        (char *)all.data + stage->coded.params[part->param].peaks[set] *
                               dtype_bytes(all.dtype);
    const struct block_encode call = {
        .what = what,
        .in = tensor_2d((void *)(uintptr_t)part->from, param->dtype,
                        param->rows, param->cols),
        .coding = coding, .first = part->range.first,
        .last = part->range.last,
        .peaks = sums ? NULL : (float *)(void *)peaks,
        .sums = sums ? (int64_t *)(void *)peaks : NULL,
        .scales = scales_at(z, part->param, set),
        .codes = codes_of(z, part, set),
        .row_bytes = code_row_bytes(coding.format, param->cols),
        .most = most == NULL ? NULL : most + part->param};

    /* One that no element of is here gets its scales. */
    if (stage->coded.kept && part->from != arena(z))
        return encode_masters(z, part, &call);
    return stage->kernels.block_encode(&z->stage->stream, &call);
}

static status copy(struct zero *z, const struct part *part, int set)
{
    const int64_t number =
        dtype_bytes(z->stage->program.params.items[part->param].dtype);
    const int64_t first = part->range.first * number;

    if (z->stage->coded.kept)
        return narrow(z, part, part->range.first, part->range.last,
                      codes_of(z, part, set) + first);
    return device_copy(&z->stage->stream, codes_of(z, part, set) + first,
                       part->from + first,
                       (size_t)(part->range.last * number - first));
}

static status raise_peaks(struct zero *z, int unit)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];
    const struct tensor all = score_peaks_of(z, unit);

    TRY(device_fill(&z->stage->stream, all.data, 0,
                    (size_t)tensor_bytes(&all)));
    for (int i = u->first_param; i < u->first_param + u->params; i++) {
        struct part part;

        if (!z->stage->coded.params[i].is || !part_of(z, unit, i, &part))
            continue;
        for (int set = 0; set < z->stage->coded.sets; set++)
            TRY(encode(z, &part, set, ENCODE_PEAKS));
    }
    return OK;
}

static enum reduction reduction_of(const struct zero *z)
{
    return z->stage->coded.sums ? REDUCE_SUM : REDUCE_MAX;
}

static status join_peaks(const struct zero *z, int unit, struct group *group)
{
    const struct tensor all = score_peaks_of(z, unit);

    if (group == NULL) return OK;
    return comm_all_reduce(group, all, all, reduction_of(z));
}

static bool joins_parts(const struct zero *z, int unit)
{
    return z->stage->coded.kept &&
           shard_class(&z->stage->shards, unit)->parts > 1;
}

static status make_codes(struct zero *z, int unit)
{
    const struct shard_unit *u = &z->stage->shards.units[unit];
    const struct coded *coded = &z->stage->coded;

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

status zero_codes_act(struct zero *z, const struct instruction *i)
{
    const struct zero_class *class =
        &z->classes[z->stage->shards.units[i->unit].class];

    if (i->resource == RESOURCE_COPIES || !joins_parts(z, i->unit))
        TRY(raise_peaks(z, i->unit));
    if (i->resource == RESOURCE_COPIES)
        return join_peaks(z, i->unit, class->copies);
    TRY(join_peaks(z, i->unit, class->shard));
    return make_codes(z, i->unit);
}

status zero_codes_make(struct zero *z, int unit)
{
    struct instruction i = {.unit = unit, .resource = RESOURCE_COPIES};

    if (coded_peaks(&z->stage->coded, unit) == 0) return OK;
    if (joins_parts(z, unit)) TRY(zero_codes_act(z, &i));
    i.resource = RESOURCE_SHARD;
    return zero_codes_act(z, &i);
}

static size_t peak_scratch(const struct group *group,
                           const struct comm_call *call)
{
    return group == NULL ? 0 : comm_scratch_bytes(group, call);
}

size_t zero_codes_scratch(const struct zero *z, int class)
{
    const struct shards *s = &z->stage->shards;
    size_t most = 0;

    for (int i = 0; i < s->count; i++) {
        const struct tensor all = score_peaks_of(z, i);
        const struct comm_call call = {.kind = COMM_ALL_REDUCE,
                                       .reduction = reduction_of(z),
                                       .out = all,
                                       .in = all};

        if (s->units[i].class != class || all.shape[0] == 0) continue;
        const size_t bytes = peak_scratch(z->classes[class].shard, &call);
        const size_t parts =
            joins_parts(z, i) ? peak_scratch(z->classes[class].copies, &call)
                              : 0;

        if (bytes > most) most = bytes;
        if (parts > most) most = parts;
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

/* This rank's shard of a unit, of which it keeps codes. */
static struct tensor own_shard(const struct zero *z, int unit)
{
    const struct coded *coded = &z->stage->coded;
    const struct shards *s = &z->stage->shards;
    const int64_t before = coded->whole ? coded_before(coded, s, unit) : 0;

    return tensor_1d(arena(z) + coded->own[unit] + before, DTYPE_U8,
                     coded_own_bytes(coded, s, unit));
}

struct comm_call zero_codes_parts(const struct zero *z, int unit)
{
    const struct coded *coded = &z->stage->coded;
    const struct shards *s = &z->stage->shards;
    const int parts = shard_class(s, unit)->parts;
    const int64_t *sizes = coded->parts + (int64_t)unit * s->most +
                           shard_index(s, unit) * parts;
    struct comm_call call = {.kind = COMM_ALL_GATHER,
                             .out = own_shard(z, unit), .out_counts = sizes};
    int64_t before = 0;

    for (int i = 0; i < shard_rank(s, unit) % parts; i++) before += sizes[i];
    call.in = tensor_1d((char *)call.out.data + before, DTYPE_U8,
                        coded_part_bytes(coded, s, unit));
    return call;
}

struct comm_call zero_codes_shards(const struct zero *z, int unit)
{
    const struct stage *stage = z->stage;
    const struct shards *s = &stage->shards;

    return (struct comm_call){
        .kind = COMM_ALL_GATHER, .in = own_shard(z, unit),
        .out = tensor_1d(arena(z) + stage->coded.own[unit], DTYPE_U8,
                         s->units[unit].room *
                             dtype_bytes(stage->program.dtype)),
        .out_counts = stage->coded.sizes + (int64_t)unit * s->most};
}

static void place_unit(struct zero *z, int unit, int set, void *data)
{
    const struct stage *stage = z->stage;
    const struct shard_unit *u = &stage->shards.units[unit];

    for (int i = u->first_param; i < u->first_param + u->params; i++) {
        const struct coded_param *param =
            z->scales == NULL ? NULL : &stage->coded.params[i];
        const int64_t place =
            param != NULL ? param->place
                          : (stage->program.params.items[i].offset -
                             u->first) * dtype_bytes(stage->program.dtype);

        z->placed[i] = data == NULL ? NULL : (char *)data + place;
        if (param == NULL) continue;
        z->scales[i] =
            data != NULL && param->is ? scales_at(z, i, set) : NULL;
    }
}

void zero_codes_place(struct zero *z, const struct instruction *at, void *data)
{
    place_unit(z, at->unit,
               data == NULL || z->scales == NULL ? 0 : set_of(z, at), data);
}

void zero_codes_place_whole(struct zero *z)
{
    const struct stage *stage = z->stage;
    const struct coded *coded = &stage->coded;

    for (int i = 0; i < stage->shards.count; i++) {
        const struct shard_unit *u = &stage->shards.units[i];
        char *weights = stage->memory[MEMORY_COMPUTE].data;

        if (coded_keeps(coded, i))
            weights = arena(z) + coded->own[i];
        else
            weights += (u->first - coded_gone(coded, u->first_param)) *
                       dtype_bytes(stage->program.dtype);
        place_unit(z, i, 0, weights);
    }
}
