/* SPDX-License-Identifier: Apache-2.0 */
/* shard.c - how the ZeRO family cuts the flat arenas over ranks. */
#include "mesh/shard.h"

/* ---- leaves ---- */

/* The axis that cuts it into leaves of the norm; none: it is one. */
static enum axis leaf_axis(const struct param *param)
{
    const struct param_spec *spec = &param->spec;

    const enum axis axis =
        spec->split_rows != AXIS_NONE ? spec->split_rows : spec->split_cols;

    CHECK(spec->split_rows == AXIS_NONE || spec->split_cols == AXIS_NONE);
    return axis == AXIS_TENSOR || axis == AXIS_EXPERT ? axis : AXIS_NONE;
}

void param_leaves(const struct param *param, const struct holding *holding,
                  int *first, int *last)
{
    const enum axis axis = leaf_axis(param);
    const int leaves = param_leaf_count(param, holding);
    const int ranks = layout_ranks_of(&param->spec, &holding->mesh, axis);
    const int rank = layout_rank_of(&param->spec, &holding->mesh,
                                    &holding->place, axis);

    *first = leaves * rank / ranks;
    *last = leaves * (rank + 1) / ranks;
}

int param_pieces(const struct param *param)
{
    return param->spec.piece_count > 0 ? param->spec.piece_count : 1;
}

bool param_leaf(const struct param *param, const struct holding *holding,
                int leaf, int piece, struct leaf_block *out)
{
    const struct param_spec *spec = &param->spec;
    const struct layout_span held =
        layout_held(spec, &holding->mesh, &holding->place, piece);
    const struct layout_span own =
        layout_leaf(spec, param_leaf_count(param, holding), leaf, piece);

    *out = (struct leaf_block){
        .columns = spec->vector || spec->split_cols != AXIS_NONE,
        .first = own.first - held.first, .count = own.count};
    for (int i = 0; i < piece; i++)
        out->first +=
            layout_held(spec, &holding->mesh, &holding->place, i).count;
    return own.count > 0;
}

int param_leaf_count(const struct param *param, const struct holding *holding)
{
    switch (leaf_axis(param)) {
    case AXIS_TENSOR: return holding->leaves;
    case AXIS_EXPERT: return param->spec.leaves;
    default: return 1;
    }
}

int shard_leaves(const struct param_table *params,
                 const struct holding *holding)
{
    return params->experts > holding->leaves ? params->experts
                                             : holding->leaves;
}

bool param_counts(const struct param *param, const struct holding *holding)
{
    const axis_set cut = param_cut(&param->spec);

    if (!layout_first_neighbour(&param->spec, &holding->mesh, &holding->place))
        return false;
    for (int axis = AXIS_NONE + 1; axis < AXIS_COUNT; axis++)
        if (axis != AXIS_PIPE && !(cut >> axis & 1) &&
            holding->place.at[axis] != 0)
            return false;
    return true;
}

bool param_held_leaf(const struct param *param, const struct holding *holding,
                     int leaf, int piece, struct leaf_block *out)
{
    const struct layout_span held = layout_held(
        &param->spec, &holding->mesh, &holding->place, piece);
    const struct layout_span own = layout_leaf(
        &param->spec, param_leaf_count(param, holding), leaf, piece);

    if (own.first < held.first ||
        own.first + own.count > held.first + held.count)
        return false;
    return param_leaf(param, holding, leaf, piece, out);
}

int64_t leaf_blocks(const struct param *param, const struct leaf_block *leaf)
{
    int64_t elements = leaf->count;

    if (!param->spec.vector)
        elements *= leaf->columns ? param->rows : param->cols;
    return (elements + SHARD_BLOCK - 1) / SHARD_BLOCK;
}

/* Leaves of one parameter, from piece -1 of the first on. */
static bool leaf_of_param(struct leaf_cursor *c, const struct param *param)
{
    int first, last;

    param_leaves(param, c->holding, &first, &last);
    if (!c->begun) {
        c->leaf = first;
        c->piece = -1;
        c->begun = true;
    }
    for (;;) {
        if (++c->piece == param_pieces(param)) {
            c->piece = 0;
            c->leaf++;
        }
        if (c->leaf >= last) return false;
        if (param_leaf(param, c->holding, c->leaf, c->piece, &c->block))
            return true;
    }
}

bool leaf_next(struct leaf_cursor *c)
{
    if (c->begun)
        c->at += leaf_blocks(&c->params->items[c->param], &c->block);
    for (; c->param < c->params->count; c->param++, c->begun = false)
        if (leaf_of_param(c, &c->params->items[c->param])) return true;
    return false;
}

int64_t shard_blocks(const struct param_table *params,
                     const struct holding *holding)
{
    struct leaf_cursor c = {.params = params, .holding = holding};
    int64_t count = 0;

    while (leaf_next(&c))
        count = c.at + leaf_blocks(&params->items[c.param], &c.block);
    return count;
}

int64_t shard_class_blocks(const struct param_table *params,
                           const struct holding *holding,
                           const struct shards *shards, int class)
{
    struct leaf_cursor c = {.params = params, .holding = holding};
    int64_t blocks = 0;

    while (leaf_next(&c))
        if (shards->units[shard_unit_of(shards, c.param)].class == class)
            blocks += leaf_blocks(&params->items[c.param], &c.block);
    return blocks;
}

/* ---- legal cuts ---- */

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* Legal places in a parameter, elements, around a wanted one. */
struct places {
    int64_t wanted, before, after;
};

static void offer(struct places *p, int64_t at)
{
    if (at <= p->wanted && at > p->before) p->before = at;
    if (at >= p->wanted && at < p->after) p->after = at;
}

/* A matrix whose leaves are columns is cut between rows, where each leaf has
 * had whole blocks. */
static void places_columns(struct places *p, const struct param *param,
                           const struct holding *holding)
{
    int64_t rows = 1, step;
    int first, last;

    param_leaves(param, holding, &first, &last);
    for (int leaf = first; leaf < last; leaf++) {
        struct leaf_block block;
        int64_t need; /* a power of two */

        if (!param_leaf(param, holding, leaf, 0, &block)) continue;
        need = SHARD_BLOCK / common_divisor(block.count, SHARD_BLOCK);
        if (need > rows) rows = need;
    }
    step = rows * param->cols;
    offer(p, p->wanted / step * step);
    offer(p, p->wanted / step * step + step);
}

/* Otherwise a leaf is a run of elements; its blocks count from its start. */
static void places_run(struct places *p, int64_t first, int64_t last)
{
    offer(p, first);
    offer(p, last);
    if (p->wanted <= first || p->wanted >= last) return;
    const int64_t at = first + (p->wanted - first) / SHARD_BLOCK * SHARD_BLOCK;

    offer(p, at);
    if (at + SHARD_BLOCK < last) offer(p, at + SHARD_BLOCK);
}

static void places_rows(struct places *p, const struct param *param,
                        const struct holding *holding)
{
    const int64_t width = param->spec.vector ? 1 : param->cols;
    int first, last;

    param_leaves(param, holding, &first, &last);
    for (int piece = 0; piece < param_pieces(param); piece++)
        for (int leaf = first; leaf < last; leaf++) {
            struct leaf_block block;

            if (param_leaf(param, holding, leaf, piece, &block))
                places_run(p, block.first * width,
                           (block.first + block.count) * width);
        }
}

/* The legal place of the unit nearest to `wanted`, elements of the unit. */
static int64_t nearest_cut(const struct shard_unit *unit,
                           const struct param_table *table,
                           const struct holding *holding, int64_t wanted)
{
    int index = unit->first_param;

    while (index + 1 < unit->first_param + unit->params &&
           table->items[index + 1].offset - unit->first <= wanted)
        index++;
    const struct param *param = &table->items[index];
    const int64_t base = param->offset - unit->first;
    const int64_t end = index + 1 < unit->first_param + unit->params
                            ? table->items[index + 1].offset - unit->first
                            : unit->elements;
    struct places p = {wanted - base, 0, end - base};

    if (p.wanted < param->elements) {
        if (!param->spec.vector && param->spec.split_cols != AXIS_NONE)
            places_columns(&p, param, holding);
        else
            places_rows(&p, param, holding);
    }
    if (p.after > param->elements) p.after = end - base; /* the gap too */
    if (p.before >= param->elements) p.before = end - base;
    if (p.after >= param->elements) p.after = end - base;
    return base + (p.wanted - p.before <= p.after - p.wanted ? p.before
                                                             : p.after);
}

/* ---- units ---- */

/* Whether `param` begins a unit: another block than the one before it, or
 * copies on other ranks, or, outside the blocks, a matrix or the first vector
 * after one. So a table that several pipeline stages hold is cut alike by all.
 */
static bool begins(const struct param_table *table, int param)
{
    const struct param *p = &table->items[param];

    if (param == 0) return true;
    if ((param_copied(&p->spec) & AXES_BATCH) !=
        (param_copied(&table->items[param - 1].spec) & AXES_BATCH))
        return true;
    return p->layer != table->items[param - 1].layer ||
           (p->layer < 0 &&
            !(p->spec.vector && table->items[param - 1].spec.vector));
}

/* Elements of gradients before an element of the unit. */
static int64_t gradients_before(const struct shard_unit *unit,
                                const struct param_table *table, int64_t at)
{
    int64_t sum = 0;

    for (int i = unit->first_param; i < unit->first_param + unit->params;
         i++) {
        const struct param *param = &table->items[i];
        const int64_t room = param_gradient_room(param);
        const int64_t before = at - (param->offset - unit->first);

        if (before > 0) sum += before < room ? before : room;
    }
    return sum;
}

/* The class of a parameter, which is added where it is the first of it. */
static int class_of(struct shards *shards, const struct param *param,
                    const struct holding *holding,
                    const struct division *division)
{
    const axis_set all = division_axes(division);
    const axis_set first = division_first(division);

    const axis_set copied = param_copied(&param->spec) & AXES_BATCH;
    int i = 0;

    while (i < shards->class_count && shards->classes[i].copied != copied) i++;
    if (i < shards->class_count) return i;
    CHECK(i < SHARD_CLASSES_MAX);
    struct shard_class *c = &shards->classes[shards->class_count++];

    *c = (struct shard_class){.copied = copied, .divided = first & copied};
    c->parts = mesh_group_size(&holding->mesh, all & ~first & copied);
    c->ranks = mesh_group_size(&holding->mesh, c->divided) * c->parts;
    c->rank = shard_rank_at(c, &holding->mesh, &holding->place);
    if (c->ranks > shards->most) shards->most = c->ranks;
    return i;
}

static status find_units(struct shards *shards,
                         const struct param_table *table,
                         const struct holding *holding,
                         const struct division *division)
{
    void *units = NULL;

    TRY(memory_take((size_t)table->count + 1, sizeof *shards->units, &units));
    shards->units = units;
    for (int i = 0; i < table->count; i++) {
        if (begins(table, i))
            shards->units[shards->count++] = (struct shard_unit){
                .first_param = i, .first = table->items[i].offset,
                .class = class_of(shards, &table->items[i], holding,
                                  division)};
        shards->units[shards->count - 1].params++;
    }
    return OK;
}

static int64_t unit_end(const struct shards *shards,
                        const struct param_table *table, int unit)
{
    return unit + 1 < shards->count ? shards->units[unit + 1].first
                                    : table->elements;
}

/* Whether a unit may join the one before it: a block after a block, or the last
 * norm after one. Matrices outside the blocks stay alone, because a second use
 * or another stage may need them. */
static bool joins(const struct shards *shards, const struct param_table *table,
                  int unit)
{
    const struct shard_unit *u = &shards->units[unit];
    const struct param *p = &table->items[u->first_param];

    return u->class == u[-1].class &&
           table->items[u[-1].first_param].layer >= 0 &&
           (p->layer >= 0 || p->spec.vector);
}

/* Neighbours become one unit as long as it is not larger than a bucket. */
static void merge_units(struct shards *shards, const struct param_table *table,
                        int64_t bucket)
{
    int last = 0; /* that is kept */

    for (int i = 1; i < shards->count; i++) {
        const int64_t end = unit_end(shards, table, i);

        shards->units[last + 1] = shards->units[i];
        if (end - shards->units[last].first <= bucket &&
            joins(shards, table, last + 1))
            shards->units[last].params += shards->units[i].params;
        else
            last++;
    }
    if (shards->count > 0) shards->count = last + 1;
}

static void measure_units(struct shards *shards,
                          const struct param_table *table)
{
    for (int i = 0; i < shards->count; i++) {
        struct shard_unit *unit = &shards->units[i];

        unit->elements = unit_end(shards, table, i) - unit->first;
        unit->room = unit->elements;
        unit->room_at = unit->first;
        unit->gradient = table->items[unit->first_param].gradient;
        unit->gradients = gradients_before(unit, table, unit->elements);
        if (unit->elements > shards->largest_unit)
            shards->largest_unit = unit->elements;
    }
}

/* Shards are runs of parts. */
static void sum_parts(struct shards *shards, int index)
{
    const struct shard_class *class = shard_class(shards, index);
    const int64_t row = (int64_t)index * shards->most;

    for (int r = 0; r < class->ranks; r++) {
        int64_t *all = &shards->shard_sizes[row + r / class->parts];
        int64_t *gradients =
            &shards->shard_gradient_sizes[row + r / class->parts];

        if (r % class->parts == 0) *all = *gradients = 0;
        *all += shards->sizes[row + r];
        *gradients += shards->gradient_sizes[row + r];
    }
}

static void cut_unit(struct shards *shards, int index,
                     const struct param_table *table,
                     const struct holding *holding)
{
    const int ranks = shard_class(shards, index)->ranks;
    const int rank = shard_rank(shards, index), most = shards->most;
    struct shard_unit *unit = &shards->units[index];
    int64_t *cuts = shards->cuts + (int64_t)index * (most + 1);
    int64_t *sizes = shards->sizes + (int64_t)index * most;
    int64_t *gradient_cuts =
        shards->gradient_cuts + (int64_t)index * (most + 1);
    int64_t *gradient_sizes = shards->gradient_sizes + (int64_t)index * most;

    cuts[0] = 0;
    cuts[ranks] = unit->elements;
    for (int r = 1; r < ranks; r++) {
        cuts[r] = nearest_cut(unit, table, holding,
                              unit->elements * r / ranks);
        CHECK(cuts[r] >= cuts[r - 1] && cuts[r] <= unit->elements);
    }
    for (int r = 0; r < ranks; r++) {
        sizes[r] = cuts[r + 1] - cuts[r];
        if (sizes[r] > shards->largest_shard)
            shards->largest_shard = sizes[r];
    }
    for (int r = 0; r <= ranks; r++)
        gradient_cuts[r] = gradients_before(unit, table, cuts[r]);
    for (int r = 0; r < ranks; r++)
        gradient_sizes[r] = gradient_cuts[r + 1] - gradient_cuts[r];
    sum_parts(shards, index);
    unit->gradient_at = shards->gradients;
    shards->gradients += param_room(shard_kept_gradients(shards, index));
    unit->at = shards->elements;
    shards->elements += param_room(sizes[rank]);
    unit->shard_at = shards->shard_elements;
    shards->shard_elements += param_room(shard_all_weights(shards, index));
}

status shards_build(struct shards *shards, const struct param_table *table,
                    const struct holding *holding,
                    const struct division *division)
{
    *shards = (struct shards){
        .most = 1, .parted = division_level(division, division->gradients) ==
                             SHARD_PART};
    TRY(find_units(shards, table, holding, division));
    merge_units(shards, table, division->bucket);
    measure_units(shards, table);
    const size_t each = (size_t)shards->most + 1; /* of a unit */
    int64_t **const tables[] = {&shards->cuts, &shards->sizes,
                                &shards->gradient_cuts,
                                &shards->gradient_sizes,
                                &shards->shard_sizes,
                                &shards->shard_gradient_sizes};

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        void *memory = NULL;

        TRY(memory_take(((size_t)shards->count + 1) * each, sizeof(int64_t),
                        &memory));
        *tables[i] = memory;
    }
    for (int i = 0; i < shards->count; i++)
        cut_unit(shards, i, table, holding);
    return OK;
}

void shards_free(struct shards *shards)
{
    memory_free(shards->units);
    memory_free(shards->cuts);
    memory_free(shards->sizes);
    memory_free(shards->gradient_cuts);
    memory_free(shards->gradient_sizes);
    memory_free(shards->shard_sizes);
    memory_free(shards->shard_gradient_sizes);
    *shards = (struct shards){0};
}

/* ---- questions ---- */

int64_t shard_gradients(const struct shards *shards, int unit)
{
    return shard_gradient_sizes(shards, unit)[shard_rank(shards, unit)];
}

int64_t shard_weights(const struct shards *shards, int unit)
{
    return shard_sizes(shards, unit)[shard_rank(shards, unit)];
}

int shard_index(const struct shards *shards, int unit)
{
    const struct shard_class *class = shard_class(shards, unit);

    return class->rank / class->parts;
}

int64_t shard_all_gradients(const struct shards *shards, int unit)
{
    return shards->shard_gradient_sizes[(int64_t)unit * shards->most +
                                        shard_index(shards, unit)];
}

int64_t shard_all_weights(const struct shards *shards, int unit)
{
    return shards->shard_sizes[(int64_t)unit * shards->most +
                               shard_index(shards, unit)];
}

/* The first part of this rank's shard. */
static int first_part(const struct shards *shards, int unit)
{
    return shard_index(shards, unit) * shard_class(shards, unit)->parts;
}

int64_t shard_gradients_before(const struct shards *shards, int unit)
{
    const int64_t *cuts = shard_gradient_cuts(shards, unit);

    return cuts[shard_rank(shards, unit)] - cuts[first_part(shards, unit)];
}

int64_t shard_weights_before(const struct shards *shards, int unit)
{
    const int64_t *cuts = shard_cuts(shards, unit);

    return cuts[shard_rank(shards, unit)] - cuts[first_part(shards, unit)];
}

int64_t shard_kept_gradients(const struct shards *shards, int unit)
{
    return shards->parted ? shard_gradients(shards, unit)
                          : shard_all_gradients(shards, unit);
}

/* The number of shards of a unit. */
static int shards_of(const struct shards *shards, int unit)
{
    const struct shard_class *class = shard_class(shards, unit);

    return class->ranks / class->parts;
}

bool shard_stays(const struct shards *shards, int unit)
{
    return shards_divide(shards) && shards_of(shards, unit) == 1;
}

bool shard_gradient_stays(const struct shards *shards, int unit)
{
    return shard_stays(shards, unit) && !shard_sums_room(shards, unit);
}

bool shard_sums_room(const struct shards *shards, int unit)
{
    return shards->parted && shard_class(shards, unit)->parts > 1;
}

const struct shard_class *shard_class(const struct shards *shards, int unit)
{
    return &shards->classes[shards->units[unit].class];
}

int shard_rank(const struct shards *shards, int unit)
{
    return shard_class(shards, unit)->rank;
}

int shard_rank_at(const struct shard_class *class, const struct mesh *mesh,
                  const struct place *place)
{
    const int shard = mesh_batch_index(mesh, place, class->divided);

    if (class->parts == 1) return shard;
    return shard * class->parts +
           mesh_batch_index(mesh, place, class->copied & ~class->divided);
}

const int64_t *shard_cuts(const struct shards *shards, int unit)
{
    return shards->cuts + (int64_t)unit * (shards->most + 1);
}

const int64_t *shard_sizes(const struct shards *shards, int unit)
{
    return shards->sizes + (int64_t)unit * shards->most;
}

const int64_t *shard_gradient_cuts(const struct shards *shards, int unit)
{
    return shards->gradient_cuts + (int64_t)unit * (shards->most + 1);
}

const int64_t *shard_gradient_sizes(const struct shards *shards, int unit)
{
    return shards->gradient_sizes + (int64_t)unit * shards->most;
}

int shard_unit_of(const struct shards *shards, int param)
{
    int unit = 0, end = shards->count; /* it is in [unit, end) */

    while (end - unit > 1) {
        const int middle = unit + (end - unit) / 2;

        if (shards->units[middle].first_param <= param) unit = middle;
        else end = middle;
    }
    return unit;
}

/* Elements [first, last) of a unit as those of a parameter in it. */
static struct shard_range clip(const struct shard_unit *unit,
                               const struct param *param, int64_t first,
                               int64_t last)
{
    const int64_t base = param->offset - unit->first;

    first -= base;
    last -= base;
    if (first < 0) first = 0;
    if (last > param->elements) last = param->elements;
    if (last < first) last = first = 0;
    return (struct shard_range){.first = first, .last = last};
}

void shard_range(const struct shards *shards, const struct param_table *table,
                 int param, int rank, struct shard_range *out)
{
    const int index = shard_unit_of(shards, param);
    const struct shard_unit *unit = &shards->units[index];
    const struct param *p = &table->items[param];
    const int64_t *cuts = shard_cuts(shards, index);
    const int64_t *gradient_cuts = shard_gradient_cuts(shards, index);
    const int start = first_part(shards, index); /* of this rank's shard */

    *out = clip(unit, p, cuts[rank], cuts[rank + 1]);
    if (out->last <= out->first || rank != shard_rank(shards, index)) return;
    const int64_t first = p->offset - unit->first + out->first;

    out->at = unit->at + first - cuts[rank];
    out->shard_at = unit->shard_at + first - cuts[start];
    if (param_has_gradient(p))
        out->gradient_at = unit->gradient_at +
                           gradients_before(unit, table, first) -
                           gradient_cuts[shards->parted ? rank : start];
}

void shard_whole(const struct shards *shards, const struct param_table *table,
                 int param, struct shard_range *out)
{
    const int index = shard_unit_of(shards, param);
    const struct shard_unit *unit = &shards->units[index];
    const struct param *p = &table->items[param];
    const int64_t *cuts = shard_cuts(shards, index);
    const int start = first_part(shards, index);

    *out = clip(unit, p, cuts[start],
                cuts[start + shard_class(shards, index)->parts]);
    out->shard_at = unit->shard_at + p->offset - unit->first + out->first -
                    cuts[start];
}

int64_t shard_place(const struct shard_range *range, enum shard_level level,
                    const struct param *param)
{
    switch (level) {
    case SHARD_PART: return range->at;
    case SHARD_SHARD: return range->shard_at;
    default: return param->offset + range->first;
    }
}

void shard_own(const struct shards *shards, const struct param_table *table,
               int param, struct shard_range *out)
{
    shard_range(shards, table, param,
                shard_rank(shards, shard_unit_of(shards, param)), out);
}
