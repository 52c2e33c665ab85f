/* SPDX-License-Identifier: Apache-2.0 */
/* matrices.c - the tensors of a stage as they are outside, which rank computes
 * with each as a whole, and where its parts lie. */
#include "mesh/matrices.h"

#include <stdlib.h>

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
                         m->divided, of->division.bucket));
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

static status list(struct matrices *m, const struct matrices_of *of)
{
    const struct param_table *table = of->table;
    void *memory = NULL;
    size_t most = 1;

    for (int i = 0; i < table->count; i++)
        most += (size_t)param_tensors(&table->items[i].spec);
    TRY(memory_take(most, sizeof *m->items, &memory));
    m->items = memory;
    for (int i = 0; of->gathers != NULL && i < table->count; i++) {
        const int tensors = param_tensors(&table->items[i].spec);

        for (int j = 0; of->gathers[i] > 0 && j < tensors; j++) {
            m->items[m->count] = matrix_at(table, i, j);
            m->items[m->count++].gathers = of->gathers[i];
        }
    }
    return OK;
}

/* The owners of a stage's tensors know those of their own place only. */
static status check_spread(const struct matrices *m,
                           const struct matrices_of *of)
{
    for (int i = 0; i < m->count; i++) {
        const struct param *param = &of->table->items[m->items[i].param];

        if (param->spec.spread)
            FAIL(ERR_CONFIG, "mesh.expert: %d ranks divide the experts, and "
                             "the optimizer of %s takes it as a whole matrix; "
                             "give experts adamw, lion or sgd, or divide "
                             "them by mesh.shard and zero instead",
                 m->mesh.size[AXIS_EXPERT], param->name);
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

static status choose_owners(struct matrices *m)
{
    struct ranked *order;
    void *memory = NULL;

    m->turns = (m->count + m->ranks - 1) / m->ranks;
    TRY(memory_take((size_t)m->turns * (size_t)m->ranks + 1,
                    sizeof *m->by_turn, &memory));
    m->by_turn = memory;
    for (int i = 0; i < m->turns * m->ranks; i++) m->by_turn[i] = -1;
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
    for (int i = 0; i < m->count; i++) {
        m->items[order[i].index].turn = i / m->ranks;
        m->items[order[i].index].owner = i % m->ranks;
        m->by_turn[i] = order[i].index;
    }
    memory_free(memory);
    return OK;
}

status matrices_build(struct matrices *matrices, const struct matrices_of *of)
{
    *matrices = (struct matrices){.mesh = of->holding->mesh,
                                  .divided = division_axes(&of->division)};
    matrices->ranks = stage_ranks(&matrices->mesh);
    matrices->rank = stage_rank(&matrices->mesh, &of->holding->place);
    TRY(list(matrices, of));
    TRY(check_spread(matrices, of));
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

bool matrix_part(const struct matrices *matrices, const struct matrix *matrix,
                 int rank, int piece, struct layout_run *out)
{
    struct layout_run runs[LAYOUT_RUNS_MAX];
    struct shard_range range;
    struct place place;
    int found = 0;

    if (piece >= matrix->pieces) return false;
    stage_rank_place(&matrices->mesh, 0, rank, &place);
    const struct matrix_side *side = side_at(matrices, &place);
    const struct param *param = &side->table.items[matrix->param];
    const struct shard_class *class = shard_class(
        &side->shards, shard_unit_of(&side->shards, matrix->param));

    shard_range(&side->shards, &side->table, matrix->param,
                mesh_batch_index(&matrices->mesh, &place, class->divided),
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
