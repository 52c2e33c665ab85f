/* SPDX-License-Identifier: Apache-2.0 */
/* matrices.c - the tensors of a stage as they are outside, which rank computes
 * with each as a whole, and where its parts lie. */
#include "mesh/matrices.h"

#include <stdlib.h>
#include <string.h>

/* ---- ranks of a stage ---- */

/* Slowest first, whatever the order of the mesh. */
static const enum axis stage_axes[] = {AXIS_DATA, AXIS_SHARD, AXIS_CONTEXT,
                                       AXIS_EXPERT, AXIS_TENSOR};
enum { STAGE_AXES = sizeof stage_axes / sizeof *stage_axes };

int stage_ranks(const struct mesh *mesh)
{
    int ranks = 1;

    for (int i = 0; i < STAGE_AXES; i++) ranks *= mesh->size[stage_axes[i]];
    return ranks;
}

static int stage_rank(const struct mesh *mesh, const struct place *place)
{
    int rank = 0;

    for (int i = 0; i < STAGE_AXES; i++)
        rank = rank * mesh->size[stage_axes[i]] + place->at[stage_axes[i]];
    return rank;
}

void stage_rank_place(const struct mesh *mesh, int pipe, int rank,
                      struct place *out)
{
    *out = (struct place){0};
    out->at[AXIS_PIPE] = pipe;
    for (int i = STAGE_AXES - 1; i >= 0; i--) {
        const int size = mesh->size[stage_axes[i]];

        out->at[stage_axes[i]] = rank % size;
        rank /= size;
    }
}

/* ---- the tables of all tensor ranks ---- */

static status side_table(struct matrix_side *side,
                         const struct param_table *table)
{
    void *memory = NULL;

    TRY(memory_take((size_t)table->count + 1, sizeof *table->items, &memory));
    side->table = (struct param_table){.items = memory,
                                       .capacity = table->count + 1,
                                       .count = table->count,
                                       .orders = table->orders};
    for (int i = 0; i < table->count; i++) {
        struct param *param = &side->table.items[i];

        *param = table->items[i];
        layout_local_shape(&param->spec, &side->holding.mesh,
                           &side->holding.place, &param->rows, &param->cols);
        param->elements = param->rows * param->cols;
        param->offset = side->table.elements;
        side->table.parameters += param->elements;
        side->table.elements += param_room(param->elements);
    }
    param_place_gradients(&side->table);
    return OK;
}

static struct matrix_side *side_at(const struct matrices *m,
                                   const struct place *place)
{
    return &m->sides[place->at[AXIS_EXPERT] * m->mesh.size[AXIS_TENSOR] +
                     place->at[AXIS_TENSOR]];
}

static status build_sides(struct matrices *m, const struct matrices_of *of)
{
    const int sides = m->mesh.size[AXIS_TENSOR] * m->mesh.size[AXIS_EXPERT];
    void *memory = NULL;

    TRY(memory_take((size_t)sides, sizeof *m->sides, &memory));
    m->sides = memory;
    for (int i = 0; i < sides; i++) m->sides[i] = (struct matrix_side){0};
    for (int i = 0; i < sides; i++) {
        struct matrix_side *side = &m->sides[i];
        struct place *place = &side->holding.place;

        side->holding = *of->holding;
        place->at[AXIS_TENSOR] = i % m->mesh.size[AXIS_TENSOR];
        place->at[AXIS_EXPERT] = i / m->mesh.size[AXIS_TENSOR];
        TRY(side_table(side, of->table));
        TRY(shards_build(&side->shards, &side->table, &side->holding,
                         &of->division));
    }
    const struct matrix_side *own = side_at(m, &of->holding->place);

    CHECK(own->table.elements == of->table->elements);
    return OK;
}

/* ---- the list ---- */

/* A parameter whose pieces have names outside is several tensors there. */
static bool falls_apart(const struct param_spec *spec)
{
    return spec->piece_count > 0 && spec->pieces[0].outside_name != NULL;
}

static struct matrix matrix_at(const struct param_table *table, int index,
                               int tensor)
{
    const struct param_spec *spec = &table->items[index].spec;
    const bool apart = falls_apart(spec);
    struct matrix m = {.param = index, .tensor = tensor,
                       .first_piece = apart ? tensor : 0,
                       .pieces = apart || spec->piece_count == 0
                                     ? 1 : spec->piece_count,
                       .transposed = spec->outside_transposed,
                       .rows = spec->vector ? spec->cols : spec->rows,
                       .cols = spec->vector ? 1 : spec->cols};

    for (int i = 0; apart && i < tensor; i++)
        m.first += spec->pieces[i].rows * m.cols;
    if (apart) m.rows = spec->pieces[tensor].rows;
    if (spec->outside_each > 0) {
        m.rows = spec->outside_each;
        m.first = tensor * m.rows;
    }
    if (!spec->vector) return m;
    m.cols = m.rows;
    m.rows = 1;
    return m;
}

/* Tensors of parameter `index`, as the ranks have it whose place among those
 * that divide the experts is `expert` (-1: all). */
static void add_tensors(struct matrices *m, const struct matrices_of *of,
                        int index, int expert)
{
    const int gathers =
        of->gathers[(expert < 0 ? 0 : expert) * of->table->count + index];
    const int tensors = param_tensors(&of->table->items[index].spec);

    for (int j = 0; gathers > 0 && j < tensors; j++) {
        struct matrix *item = &m->items[m->count++];

        *item = matrix_at(of->table, index, j);
        item->expert = expert;
        item->gathers = gathers;
    }
}

static status list(struct matrices *m, const struct matrices_of *of)
{
    const struct param_table *table = of->table;
    const int experts = mesh_expert_places(&m->mesh);
    void *memory = NULL;
    size_t most = 1;

    for (int i = 0; i < table->count; i++)
        most += (size_t)param_tensors(&table->items[i].spec) *
                (size_t)(table->items[i].spec.spread > 0 ? experts : 1);
    TRY(memory_take(most, sizeof *m->items, &memory));
    m->items = memory;
    for (int i = 0; of->gathers != NULL && i < table->count; i++) {
        if (table->items[i].spec.spread == 0) add_tensors(m, of, i, -1);
        for (int e = 0; table->items[i].spec.spread > 0 && e < experts; e++)
            add_tensors(m, of, i, e);
    }
    return OK;
}

/* ---- owners ---- */

struct ranked { double cost; int index; };

/* Products of a matrix with its own transpose; larger ones first. */
static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->cost != y->cost) return x->cost > y->cost ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Whether `rank` can own a tensor of the ranks with this place. */
static bool may_own(const struct matrices *m, int rank, int expert)
{
    struct place place;

    if (expert < 0) return true;
    stage_rank_place(&m->mesh, 0, rank, &place);
    return mesh_expert_place(&m->mesh, &place) == expert;
}

/* Each tensor goes to the rank that has fewest so far; next [ranks]. */
static void give(struct matrices *m, const struct ranked *order, int *next)
{
    for (int i = 0; i < m->count; i++) {
        struct matrix *item = &m->items[order[i].index];
        int owner = -1;

        for (int r = 0; r < m->ranks; r++)
            if ((owner < 0 || next[r] < next[owner]) &&
                may_own(m, r, item->expert))
                owner = r;
        item->owner = owner;
        item->turn = next[owner]++;
        if (item->turn >= m->turns) m->turns = item->turn + 1;
    }
}

static status note_turns(struct matrices *m)
{
    void *memory = NULL;

    TRY(memory_take((size_t)m->turns * (size_t)m->ranks + 1,
                    sizeof *m->by_turn, &memory));
    m->by_turn = memory;
    for (int i = 0; i < m->turns * m->ranks; i++) m->by_turn[i] = -1;
    for (int i = 0; i < m->count; i++)
        m->by_turn[m->items[i].turn * m->ranks + m->items[i].owner] = i;
    return OK;
}

static status choose_owners(struct matrices *m)
{
    struct ranked *order;
    void *memory = NULL, *next = NULL;
    status result;

    TRY(memory_take((size_t)m->count + 1, sizeof *order, &memory));
    order = memory;
    for (int i = 0; i < m->count; i++) {
        const struct matrix *item = &m->items[i];
        const int64_t least =
            item->rows < item->cols ? item->rows : item->cols;

        order[i] = (struct ranked){
            (double)item->rows * (double)item->cols * (double)least, i};
    }
    qsort(order, (size_t)m->count, sizeof *order, compare);
    result = memory_take((size_t)m->ranks, sizeof(int), &next);
    if (result == OK) {
        memset(next, 0, (size_t)m->ranks * sizeof(int));
        give(m, order, next);
        result = note_turns(m);
    }
    memory_free(next);
    memory_free(memory);
    return result;
}

status matrices_build(struct matrices *matrices, const struct matrices_of *of)
{
    *matrices = (struct matrices){.mesh = of->holding->mesh,
                                  .divided = division_axes(&of->division)};
    matrices->ranks = stage_ranks(&matrices->mesh);
    matrices->rank = stage_rank(&matrices->mesh, &of->holding->place);
    TRY(list(matrices, of));
    if (matrices->count > 0) TRY(build_sides(matrices, of));
    return choose_owners(matrices);
}

int matrices_first(const struct matrices *matrices, int param)
{
    int first = 0, end = matrices->count; /* it is in [first, end] */

    while (first < end) {
        const int middle = first + (end - first) / 2;

        if (matrices->items[middle].param < param) first = middle + 1;
        else end = middle;
    }
    return first;
}

void matrices_free(struct matrices *matrices)
{
    const int sides = matrices->mesh.size[AXIS_TENSOR] *
                      matrices->mesh.size[AXIS_EXPERT];

    for (int i = 0; matrices->sides != NULL && i < sides; i++) {
        param_table_free(&matrices->sides[i].table);
        shards_free(&matrices->sides[i].shards);
    }
    memory_free(matrices->sides);
    memory_free(matrices->items);
    memory_free(matrices->by_turn);
    *matrices = (struct matrices){0};
}

/* ---- parts ---- */

/* Cuts a vector's run to one of its outside tensors; false: they share
 * nothing. */
static bool cut_run(struct layout_run *run, const struct matrix *matrix)
{
    const int64_t past = run->whole_first + run->length - matrix->first -
                         matrix->cols;
    const int64_t before = matrix->first - run->whole_first;

    if (before > 0) {
        run->whole_first += before;
        run->local_first += before;
        run->length -= before;
    }
    if (past > 0) run->length -= past;
    run->whole_stride = run->length;
    return run->length > 0;
}

bool matrix_is_here(const struct matrices *matrices,
                    const struct matrix *matrix)
{
    return may_own(matrices, matrices->rank, matrix->expert);
}

bool matrix_part(const struct matrices *matrices, const struct matrix *matrix,
                 int rank, int piece, struct layout_run *out)
{
    struct layout_run runs[LAYOUT_RUNS_MAX];
    struct shard_range range;
    struct place place;
    int found = 0;

    if (piece >= matrix->pieces) return false;
    stage_rank_place(&matrices->mesh, 0, rank, &place);
    if (matrix->expert >= 0 &&
        matrix->expert != mesh_expert_place(&matrices->mesh, &place))
        return false;
    const struct matrix_side *side = side_at(matrices, &place);
    const struct param *param = &side->table.items[matrix->param];
    const struct shard_class *class = shard_class(
        &side->shards, shard_unit_of(&side->shards, matrix->param));

    shard_range(&side->shards, &side->table, matrix->param,
                shard_rank_at(class, &matrices->mesh, &place),
                &range);
    if (range.first == range.last) return false;
    const int count = layout_runs(&param->spec, &matrices->mesh, &place,
                                  range.first, range.last, runs);

    for (int i = 0; i < count; i++) {
        if (runs[i].piece != matrix->first_piece + piece) continue;
        if (param->spec.outside_each > 0 && !cut_run(&runs[i], matrix))
            continue;
        *out = runs[i];
        out->whole_first -= matrix->first;
        found++;
    }
    CHECK(found <= 1); /* legal cuts of columns are between rows */
    return found == 1;
}

bool matrix_sends(const struct matrices *matrices, const struct matrix *matrix,
                  int rank)
{
    const struct param_spec *spec =
        &matrices->sides[0].table.items[matrix->param].spec;
    const axis_set cut = matrices->divided | param_cut(spec);
    struct place owner, place;

    stage_rank_place(&matrices->mesh, 0, matrix->owner, &owner);
    stage_rank_place(&matrices->mesh, 0, rank, &place);
    for (int axis = 1; axis < AXIS_COUNT; axis++)
        if (!(cut >> axis & 1) && place.at[axis] != owner.at[axis])
            return false;
    return true;
}

const struct matrix *matrix_of(const struct matrices *matrices, int turn,
                               int owner)
{
    const int index = matrices->by_turn[turn * matrices->ranks + owner];

    return index < 0 ? NULL : &matrices->items[index];
}

int matrices_pieces(const struct matrices *matrices, int turn)
{
    int most = 0;

    for (int i = 0; i < matrices->ranks; i++) {
        const struct matrix *matrix = matrix_of(matrices, turn, i);

        if (matrix != NULL && matrix->pieces > most) most = matrix->pieces;
    }
    return most;
}

int matrices_gathers(const struct matrices *matrices, int turn)
{
    int most = 0;

    for (int i = 0; i < matrices->ranks; i++) {
        const struct matrix *matrix = matrix_of(matrices, turn, i);

        if (matrix != NULL && matrix->gathers > most) most = matrix->gathers;
    }
    return most;
}

/* ---- traffic ---- */

static int64_t part_elements(const struct matrices *m,
                             const struct matrix *matrix, int rank)
{
    int64_t elements = 0;

    for (int i = 0; i < matrix->pieces; i++) {
        struct layout_run run;

        if (matrix_part(m, matrix, rank, i, &run))
            elements += run.length * run.repeats;
    }
    return elements;
}

/* Elements that this rank sends of one matrix. */
static int64_t sent(const struct matrices *m, const struct matrix *matrix)
{
    int64_t elements = 0;

    if (matrix->owner != m->rank)
        return matrix_sends(m, matrix, m->rank)
                   ? matrix->gathers * part_elements(m, matrix, m->rank) : 0;
    for (int r = 0; r < m->ranks; r++)
        if (r != m->rank) elements += part_elements(m, matrix, r);
    return elements;
}

void matrices_traffic(const struct matrices *matrices, int64_t element_bytes,
                      int64_t *calls, int64_t *bytes)
{
    *calls = *bytes = 0;
    if (matrices->ranks == 1) return;
    for (int i = 0; i < matrices->turns; i++)
        *calls += (matrices_gathers(matrices, i) + 1) *
                  matrices_pieces(matrices, i);
    for (int i = 0; i < matrices->count; i++)
        *bytes += sent(matrices, &matrices->items[i]) * element_bytes;
}
