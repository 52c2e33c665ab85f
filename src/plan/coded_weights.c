/* SPDX-License-Identifier: Apache-2.0 */
/* coded_weights.c - weights that ranks keep, or divide and gather, as codes of
 * the recipe. */
#include "plan/coded_weights.h"

#include "base/check.h"
#include "nn/quantized_operands.h"

static bool is_region(const struct precision_role *w)
{
    int64_t side[2];

    precision_block(w, false, side);
    return side[0] == 0 && side[1] == 0;
}

const char *coded_refusal(const struct precision_use *use)
{
    const struct precision_role *w = &use->recipe.weights;

    if (!use->on) return "numerics.recipe is none";
    if (use->steps > 0)
        return "numerics.recipe_steps ends the recipe, and later steps read "
               "weights as they are";
    if (use->recipe.straight) return "the recipe rounds them anew in each use";
    if (w->format == FORMAT_BF16) return "the recipe leaves them in bfloat16";
    if (w->scale > SCALE_MEAN)
        return "the recipe's scales are not of their largest numbers";
    if (w->scale == SCALE_MEAN && !is_region(w))
        return "its scales are means of regions, and its blocks are smaller";
    return NULL;
}

int coded_sets(const struct precision_use *use)
{
    int64_t forward[2], backward[2];

    precision_block(&use->recipe.weights, false, forward);
    precision_block(&use->recipe.weights, true, backward);
    return forward[0] == backward[0] && forward[1] == backward[1] ? 1 : 2;
}

/* ---- which ---- */

/* Whether products of the recipe are all that the step does with its use-th
 * parameter: with matrices, which come before biases. Where y is made again in
 * W, it is so among the codes of dx. */
static bool is_read_rounded(const struct coded *coded, const struct step *step,
                            int use, const struct param *param)
{
    const enum layer_kind kind = step->layer->kind;

    return step->few && use % STEP_PARAMS_MAX == 0 && !param->spec.vector &&
           !param->spec.adapter &&
           (kind == LAYER_LINEAR || kind == LAYER_EXPERTS) &&
           (coded->sets == 1 || !step->layer->reads_in_w);
}

/* Bytes of a parameter in a room: whole runs of PARAM_ALIGN numbers. */
static int64_t room_bytes(const struct param *param, int64_t bits)
{
    const int64_t align = PARAM_ALIGN * dtype_bytes(param->dtype);

    return (param->elements * bits / 8 + align - 1) / align * align;
}

static int64_t bits_of(const struct program *p)
{
    return number_formats[p->precision.recipe.weights.format].bits;
}

/* Whether shards of it are cut between bytes, and there are any. */
static bool can_be(const struct coded *coded, const struct program *p,
                   const struct shards *shards, int param)
{
    const struct param *of = &p->params.items[param];

    return of->uses == 1 && !of->shared &&
           of->cols * bits_of(p) % 8 == 0 &&
           (coded->whole ||
            !shard_stays(shards, shard_unit_of(shards, param)));
}

static void find(struct coded *coded, const struct program *p,
                 const struct shards *shards)
{
    for (int i = 0; i < p->step_count; i++) {
        const struct step *step = &p->steps[i];

        for (int j = 0; j < step_uses(step); j++) {
            const int param = step_use(step, j).param;

            if (param >= 0 &&
                is_read_rounded(coded, step, j, &p->params.items[param]))
                coded->params[param].is = can_be(coded, p, shards, param);
        }
    }
}

/* ---- where ---- */

/* Bytes of a unit's room before an element of the unit. */
static int64_t bytes_before(const struct coded *coded,
                            const struct program *p,
                            const struct shard_unit *unit, int64_t at)
{
    int64_t bytes = 0;

    for (int i = unit->first_param; i < unit->first_param + unit->params;
         i++) {
        const struct param *param = &p->params.items[i];
        const int64_t before = at - (param->offset - unit->first);
        const int64_t room = param_room(param->elements);
        const int64_t number = dtype_bytes(param->dtype);
        const int64_t inside =
            before < param->elements ? before : param->elements;

        if (before <= 0) break;
        if (!coded->params[i].is)
            bytes += (before < room ? before : room) * number;
        else if (before < room)
            bytes += inside * bits_of(p) / 8;
        else
            bytes += room_bytes(param, bits_of(p));
    }
    return bytes;
}

static bool has_codes(const struct coded *coded, const struct shard_unit *unit)
{
    for (int i = unit->first_param; i < unit->first_param + unit->params; i++)
        if (coded->params[i].is) return true;
    return false;
}

static void place_unit(struct coded *coded, const struct program *p,
                       struct shards *shards, int index)
{
    struct shard_unit *unit = &shards->units[index];
    const struct shard_class *class = shard_class(shards, index);
    const int64_t *cuts = shard_cuts(shards, index);
    int64_t *sizes = coded->sizes + (int64_t)index * shards->most;
    int64_t *parts = coded->parts + (int64_t)index * shards->most;
    const int64_t all = bytes_before(coded, p, unit, unit->elements);

    for (int i = unit->first_param; i < unit->first_param + unit->params; i++)
        coded->params[i].place = bytes_before(
            coded, p, unit, p->params.items[i].offset - unit->first);
    for (int s = 0; s < class->ranks; s++) {
        parts[s] = bytes_before(coded, p, unit, cuts[s + 1]) -
                   bytes_before(coded, p, unit, cuts[s]);
        sizes[s / class->parts] += parts[s];
    }
    unit->room_at = index == 0 ? 0 : unit[-1].room_at + unit[-1].room;
    unit->room = all / dtype_bytes(p->dtype);
    coded->own[index] = -1;
    if (!has_codes(coded, unit)) return;
    coded->own[index] = coded->bytes;
    coded->bytes +=
        coded->sets *
        (int64_t)arena_aligned((size_t)(
            coded->whole ? all : sizes[shard_index(shards, index)]));
}

/* Elements of a unit in the arena of weights as kernels read them. */
static int64_t arena_elements(const struct coded *coded,
                              const struct param_table *params,
                              const struct shards *shards, int unit)
{
    const struct shard_unit *u = &shards->units[unit];
    const bool last = unit + 1 == shards->count;

    if (coded->whole)
        return (last ? params->elements : u[1].first) - u->first;
    return (last ? shards->shard_elements : u[1].shard_at) - u->shard_at;
}

/* Units that are kept as codes leave no gap. */
static void close_gaps(struct coded *coded, const struct program *p,
                       const struct shards *shards)
{
    for (int u = 0; u < shards->count; u++) {
        const struct shard_unit *unit = &shards->units[u];
        const bool gone = coded_keeps(coded, u);

        for (int i = 0; i < unit->params; i++)
            coded->gone[unit->first_param + i] = gone ? -1 : coded->lacks;
        if (gone)
            coded->lacks += arena_elements(coded, &p->params, shards, u);
    }
}

/* Scales of a parameter in a set, and the peaks that they are made of. */
static void place_scales(struct coded *coded, const struct program *p,
                         int unit, int param, int set)
{
    struct quantize_span rows[QUANTIZED_SPANS_MAX], cols[QUANTIZED_SPANS_MAX];
    const struct block_coding coding = quantized_weight_coding(
        p, &p->params.items[param], set == 0 ? USE_FORWARD : USE_DGRAD, rows,
        cols);
    const int64_t blocks = coding_blocks(&coding);

    coded->params[param].peaks[set] = coded->peaks[unit];
    coded->params[param].scales[set] = coded->scale_bytes;
    coded->peaks[unit] += coded->sums ? blocks * CODE_SUMS : blocks;
    coded->scale_bytes += (int64_t)arena_aligned(
        (size_t)(blocks * code_scale_bytes(coding.scale)));
}

static void place_all_scales(struct coded *coded, const struct program *p,
                             const struct shards *shards)
{
    for (int i = 0; i < p->params.count; i++)
        for (int set = 0; set < coded->sets && coded->params[i].is; set++)
            place_scales(coded, p, shard_unit_of(shards, i), i, set);
    for (int i = 0; i < shards->count; i++)
        if (coded->peaks[i] > coded->most_peaks)
            coded->most_peaks = coded->peaks[i];
}

static status take(int64_t count, size_t size, void **out)
{
    return memory_take((size_t)count + 1, size, out);
}

status coded_plan(struct coded *coded, const struct program *program,
                  struct shards *shards)
{
    void *memory = NULL;

    *coded = (struct coded){.kept = coded->kept, .whole = coded->whole,
                            .sets = coded_sets(&program->precision),
                            .sums = program->precision.recipe.weights.scale ==
                                    SCALE_MEAN};
    TRY(take(program->params.count, sizeof *coded->params, &memory));
    coded->params = memory;
    TRY(take((int64_t)shards->count * shards->most, sizeof *coded->sizes,
             &memory));
    coded->sizes = memory;
    TRY(take((int64_t)shards->count * shards->most, sizeof *coded->parts,
             &memory));
    coded->parts = memory;
    TRY(take(program->params.count, sizeof *coded->gone, &memory));
    coded->gone = memory;
    TRY(take(shards->count, sizeof *coded->own, &memory));
    coded->own = memory;
    TRY(take(shards->count, sizeof *coded->peaks, &memory));
    coded->peaks = memory;
    find(coded, program, shards);
    for (int i = 0; i < shards->count; i++)
        place_unit(coded, program, shards, i);
    place_all_scales(coded, program, shards);
    if (coded->most_peaks > 0 &&
        scale_is_late(program->precision.recipe.weights.scale))
        coded->mosts = program->params.count;
    close_gaps(coded, program, shards);
    return OK;
}

void coded_free(struct coded *coded)
{
    memory_free(coded->params);
    memory_free(coded->sizes);
    memory_free(coded->parts);
    memory_free(coded->gone);
    memory_free(coded->own);
    memory_free(coded->peaks);
    *coded = (struct coded){0};
}

struct coded_parts coded_parts(const struct coded *coded)
{
    struct coded_parts parts = {.scales = (size_t)coded->bytes};

    parts.peaks = parts.scales + (size_t)coded->scale_bytes;
    parts.mosts = parts.peaks +
                  (size_t)(coded->most_peaks *
                           dtype_bytes(coded_peak_dtype(coded)));
    parts.bytes = parts.mosts + (size_t)coded->mosts * sizeof(float);
    return parts;
}

int64_t coded_own_bytes(const struct coded *coded, const struct shards *shards,
                        int unit)
{
    return coded->sizes[(int64_t)unit * shards->most +
                        shard_index(shards, unit)];
}

int64_t coded_part_bytes(const struct coded *coded, const struct shards *shards,
                         int unit)
{
    return coded->parts[(int64_t)unit * shards->most +
                        shard_rank(shards, unit)];
}

int64_t coded_before(const struct coded *coded, const struct shards *shards,
                     int unit)
{
    const int64_t *sizes = coded->sizes + (int64_t)unit * shards->most;
    int64_t bytes = 0;

    for (int i = 0; i < shard_index(shards, unit); i++) bytes += sizes[i];
    return bytes;
}

int64_t coded_own(const struct coded *coded, const struct shards *shards,
                  int unit, int set)
{
    CHECK(set == 0 || !coded->whole);
    return coded->own[unit] +
           set * (int64_t)arena_aligned(
                     (size_t)coded_own_bytes(coded, shards, unit));
}
