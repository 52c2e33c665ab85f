/* SPDX-License-Identifier: Apache-2.0 */
/* session_parts.c - the parameters of a stage under the names and in the
 * shapes that they have outside. */
#include "inference/session_parts.h"

#include <string.h>

#include "checkpoint/identity.h"

enum {
    /* A run of a matrix that is stored transposed is up to three blocks. */
    RUNS_MAX = 3 * LAYOUT_RUNS_MAX
};

/* ---- runs of the whole parameter as runs of an outside tensor ---- */

/* Rows [row, row + rows) and as many columns of a piece, held from `local` on,
 * `stride` elements from row to row. */
struct block { int64_t row, col, rows, cols, local, stride; };

static struct saved_run turned(const struct block *block, int64_t piece_rows)
{
    return (struct saved_run){
        .whole_first = block->col * piece_rows + block->row,
        .length = block->rows, .repeats = block->cols,
        .whole_stride = piece_rows, .local_first = block->local,
        .local_stride = 1, .local_step = block->stride};
}

/* run: with whole_first counted from the piece. */
static int turn_run(const struct param_outside *piece,
                    const struct layout_run *run, struct saved_run *out)
{
    int64_t at = run->whole_first, left = run->length;
    int64_t local = run->local_first;
    int count = 0;

    if (run->repeats > 1) { /* rows that do not touch */
        const struct block block = {at / piece->cols, at % piece->cols,
                                    run->repeats, run->length, local,
                                    run->length};

        out[0] = turned(&block, piece->rows);
        return 1;
    }
    while (left > 0) {
        struct block block = {at / piece->cols, at % piece->cols, 1,
                              piece->cols - at % piece->cols, local,
                              piece->cols};

        if (block.col == 0 && left >= piece->cols)
            block.rows = left / piece->cols;
        else if (block.cols > left)
            block.cols = left;
        out[count++] = turned(&block, piece->rows);
        at += block.rows * block.cols;
        local += block.rows * block.cols;
        left -= block.rows * block.cols;
    }
    return count;
}

static int convert_run(const struct param_outside *piece,
                       const struct layout_run *run, struct saved_run *out)
{
    struct layout_run inside = *run;

    inside.whole_first -=
        piece->first_row * (piece->vector ? 1 : piece->cols);
    if (piece->transposed && !piece->vector)
        return turn_run(piece, &inside, out);
    *out = (struct saved_run){
        .whole_first = inside.whole_first, .length = run->length,
        .repeats = run->repeats, .whole_stride = run->whole_stride,
        .local_first = run->local_first};
    return 1;
}

/* A run whose rows are in another order outside, from *at on; false at its
 * end. */
static bool next_permuted(const struct param_spec *spec,
                          const struct param_outside *piece,
                          const struct layout_run *run, int64_t *at,
                          struct saved_run *out)
{
    const int64_t cols = piece->vector ? 1 : piece->cols;
    const int64_t element = run->whole_first + *at, left = run->length - *at;
    const int64_t col = element % cols;

    CHECK(run->repeats == 1 && !piece->transposed);
    if (left == 0) return false;
    const struct param_rows rows = param_rows_outside(spec, element / cols);

    *out = (struct saved_run){
        .whole_first = (rows.first - piece->first_row) * cols + col,
        .length = cols - col < left ? cols - col : left, .repeats = 1,
        .local_first = run->local_first + *at};
    if (col == 0 && left >= cols)
        out->repeats = rows.count < left / cols ? rows.count : left / cols;
    out->whole_stride = rows.step * cols;
    *at += out->length * out->repeats;
    if (rows.step > 1) return true;
    out->length *= out->repeats; /* rows that touch: one long row */
    out->repeats = 1;
    out->whole_stride = out->length;
    return true;
}

/* ---- the tables ---- */

static void describe_piece(struct saved_part *part,
                           const struct param_outside *piece)
{
    part->dimensions = piece->vector ? 1 : 2;
    part->shape[0] = piece->transposed ? piece->cols : piece->rows;
    part->shape[1] = piece->transposed ? piece->rows : piece->cols;
    if (piece->vector) part->shape[0] = piece->rows * piece->cols;
}

/* Room for one more in a table of the arena. */
static status reserve(struct session_parts *parts, struct saved_part **items,
                      int count, int *capacity)
{
    const int more = *capacity ? 2 * *capacity : 64;
    void *memory;

    if (parts->arena.name == NULL) arena_init(&parts->arena, "parts", 0);
    if (count < *capacity) return OK;
    TRY(arena_take_array(&parts->arena, (size_t)more, sizeof **items,
                         &memory));
    if (count > 0) memcpy(memory, *items, (size_t)count * sizeof **items);
    *items = memory;
    *capacity = more;
    return OK;
}

/* One tensor of the model, of which nothing is held yet. */
static status add_tensor(struct session_parts *parts,
                         const struct param_outside *piece, const char *kind,
                         enum dtype dtype)
{
    char full[3 * PARAM_NAME_BYTES], *name;

    TRY(reserve(parts, &parts->items, parts->count, &parts->capacity));
    snprintf(full, sizeof full, "%s%s",
             parts->prefix != NULL ? parts->prefix : "", piece->name);
    TRY(arena_copy_text(&parts->arena, full, &name));
    struct saved_part *part = &parts->items[parts->count++];

    *part = (struct saved_part){.name = name, .kind = kind, .dtype = dtype};
    describe_piece(part, piece);
    return part_check(part);
}

/* The runs of a parameter as runs of an outside tensor; returns how many.
 * out NULL: only counts. */
static int convert_runs(const struct param_spec *spec,
                        const struct param_outside *piece,
                        const struct layout_run *runs, int count,
                        struct saved_run *out)
{
    struct saved_run found[RUNS_MAX];
    int used = 0;

    for (int i = 0; i < count; i++) {
        int64_t at = 0;
        int more = 1;

        if (!param_is_permuted(spec))
            more = convert_run(piece, &runs[i], found);
        else if (!next_permuted(spec, piece, &runs[i], &at, found))
            continue;
        do {
            if (out != NULL)
                memcpy(out + used, found, (size_t)more * sizeof *found);
            used += more;
        } while (at > 0 && next_permuted(spec, piece, &runs[i], &at, found));
    }
    return used;
}

/* The runs of an outside tensor among those of its parameter. */
static status set_runs(struct session_parts *parts, struct saved_part *part,
                       const struct param *param,
                       const struct param_outside *piece,
                       const struct layout_run *runs, int count)
{
    const int used = convert_runs(&param->spec, piece, runs, count, NULL);
    void *memory;

    if (used == 0) return OK;
    TRY(arena_take_array(&parts->arena, (size_t)used,
                         sizeof(struct saved_run), &memory));
    convert_runs(&param->spec, piece, runs, count, memory);
    part->runs = memory;
    part->run_count = used;
    return part_check(part);
}

static bool is_wanted(const struct session_parts *parts,
                      const struct param *param)
{
    return parts->only == PARTS_ALL ||
           param->spec.adapter == (parts->only == PARTS_ADAPTERS);
}

status session_parts_add(struct session_parts *parts,
                         const struct stage *stage, const char *kind,
                         void *flat, enum dtype dtype)
{
    const struct param_table *table = &stage->program.params;
    const char *prefix = stage->request.model->kind->layer_prefix;

    parts->kind = stage->request.model->kind;
    for (int i = 0; i < table->count; i++) {
        const struct param *param = &table->items[i];
        struct param_outside piece;

        if (!is_wanted(parts, param) ||
            (parts->gradients && !param_has_gradient(param)))
            continue;
        for (int j = 0; param_outside(param, prefix, j, &piece); j++) {
            struct layout_run run = {
                .whole_first =
                    piece.first_row * (piece.vector ? 1 : piece.cols),
                .length = piece.rows * piece.cols, .repeats = 1};
            struct saved_part *part;

            run.whole_stride = run.length;
            TRY(add_tensor(parts, &piece, kind, dtype));
            part = &parts->items[parts->count - 1];
            part->data = (char *)flat +
                         ((parts->gradients ? param->gradient
                                            : param->offset) +
                          run.whole_first) *
                             dtype_bytes(dtype);
            TRY(set_runs(parts, part, param, &piece, &run, 1));
        }
    }
    return OK;
}

/* ---- of a layout ---- */

/* Does the run belong to outside tensor j of its parameter? A matrix whose
 * pieces have no names outside is one tensor there. */
static bool is_of(const struct param_spec *spec, const struct layout_run *run,
                  int j)
{
    return spec->piece_count == 0 || spec->pieces[0].outside_name == NULL ||
           run->piece == j;
}

/* Cuts a vector's run to one of its outside tensors; false: they share
 * nothing. */
static bool cut_run(struct layout_run *run, const struct param_outside *piece)
{
    const int64_t end = run->whole_first + run->length;
    const int64_t first = run->whole_first > piece->first_row
                              ? run->whole_first : piece->first_row;
    const int64_t last = end < piece->first_row + piece->cols
                             ? end : piece->first_row + piece->cols;

    if (first >= last) return false;
    CHECK(run->repeats == 1);
    run->local_first += first - run->whole_first;
    run->whole_first = first;
    run->length = run->whole_stride = last - first;
    return true;
}

static int runs_of(const struct inventory_span *span, bool owned,
                   const struct param_outside *piece, int j,
                   struct layout_run *runs)
{
    const struct param_spec *spec = &span->param->spec;
    const int count = inventory_runs(span, owned, runs);
    int kept = 0;

    for (int i = 0; i < count; i++) {
        struct layout_run run = runs[i];

        if (spec->outside_each > 0 ? cut_run(&run, piece)
                                   : is_of(spec, &run, j))
            runs[kept++] = run;
    }
    return kept;
}

static void decode(const void *data, int64_t local, int64_t step,
                   int64_t count, void *out)
{
    state_decode(data, local, step, count, out);
}

static void point_at(struct saved_part *part,
                     const struct inventory_span *span)
{
    part->data = span->data;
    if (!span->coded) return;
    part->data = (void *)(uintptr_t)&span->codes;
    part->decode = decode;
}

/* Adds the part of outside tensor j that lies in the span: to be loaded, and to
 * be saved if this rank answers for it. */
static status add_span(struct session_parts *parts,
                       const struct inventory *inventory,
                       const struct inventory_span *span,
                       const struct param_outside *piece, int j)
{
    const char *kind =
        inventory_name(inventory, span->param->order, span->kind);
    struct saved_part *saved = parts->items;
    struct layout_run runs[LAYOUT_RUNS_MAX];
    int count = runs_of(span, false, piece, j, runs);

    if (count == 0) return OK;
    while (strcmp(saved->name, piece->name) != 0 ||
           strcmp(saved->kind, kind) != 0)
        CHECK(++saved < parts->items + parts->count);
    TRY(reserve(parts, &parts->held, parts->held_count,
                &parts->held_capacity));
    struct saved_part *held = &parts->held[parts->held_count++];

    *held = *saved;
    held->run_count = 0;
    point_at(held, span);
    TRY(set_runs(parts, held, span->param, piece, runs, count));
    count = runs_of(span, true, piece, j, runs);
    if (count == 0) return OK;
    CHECK(saved->data == NULL); /* one of a rank's stages has a tensor */
    point_at(saved, span);
    return set_runs(parts, saved, span->param, piece, runs, count);
}

/* Every outside tensor of one kind of the model. */
static status add_tensors(struct session_parts *parts,
                          const struct inventory *inventory,
                          enum inventory_kind kind)
{
    const struct param_table *whole = &inventory->whole.params;
    struct param_outside piece;

    for (int i = 0; i < whole->count; i++) {
        const struct param *param = &whole->items[i];
        const char *name = inventory_name(inventory, param->order, kind);

        for (int j = 0; name != NULL && is_wanted(parts, param) &&
                        param_outside(param, inventory->prefix, j, &piece);
             j++)
            TRY(add_tensor(parts, &piece, name,
                           inventory_dtype(inventory, param->order, kind)));
    }
    return OK;
}

/* ---- states of whole tensors ---- */

/* One of the model, and, if this rank has it, where. */
static status add_whole(struct session_parts *parts,
                        const struct inventory *inventory,
                        const struct inventory_whole *sought,
                        const struct param_outside *piece)
{
    const int64_t rows = piece->rows, cols = piece->cols;
    struct saved_part *part;

    TRY(add_tensor(parts, piece, sought->state->name, inventory->dtype));
    part = &parts->items[parts->count - 1];
    part->dimensions = 1;
    part->shape[0] = sought->state->elements(rows, cols);
    for (int i = 0; i < inventory->whole_count; i++) {
        const struct inventory_whole *whole = &inventory->wholes[i];

        if (whole->order != sought->order || whole->state != sought->state ||
            whole->tensor != sought->tensor)
            continue;
        TRY(reserve(parts, &parts->held, parts->held_count,
                    &parts->held_capacity));
        parts->held[parts->held_count] = *part;
        parts->held[parts->held_count++].data = whole->data;
        if (whole->owned) part->data = whole->data;
    }
    return OK;
}

static status add_wholes(struct session_parts *parts,
                         const struct inventory *inventory)
{
    const struct param_table *params = &inventory->whole.params;
    struct param_outside piece;

    for (int i = 0; i < params->count * OPTIMIZER_STATES; i++) {
        const int index = i / OPTIMIZER_STATES;
        const struct param *param = &params->items[index];
        struct inventory_whole sought = {
            .order = param->order,
            .state = rule_state(&inventory->rules[index],
                                i % OPTIMIZER_STATES)};

        if (sought.state == NULL || sought.state->shape != STATE_WHOLE ||
            !is_wanted(parts, param))
            continue;
        for (int j = 0; param_outside(param, inventory->prefix, j, &piece);
             j++) {
            sought.tensor = j;
            if (sought.state->elements(piece.rows, piece.cols) > 0)
                TRY(add_whole(parts, inventory, &sought, &piece));
        }
    }
    return OK;
}

status session_parts_divide(struct session_parts *parts,
                            const struct inventory *inventory, unsigned kinds)
{
    struct param_outside piece;

    for (int k = 0; k < INVENTORY_KINDS; k++)
        if (kinds >> k & 1)
            TRY(add_tensors(parts, inventory, (enum inventory_kind)k));
    parts->divided = true;
    for (int i = 0; i < inventory->count; i++) {
        const struct inventory_span *span = &inventory->spans[i];

        if (!(kinds >> span->kind & 1) || !is_wanted(parts, span->param))
            continue;
        for (int j = 0; param_outside(span->param, inventory->prefix, j,
                                      &piece); j++)
            TRY(add_span(parts, inventory, span, &piece, j));
    }
    if (kinds & INVENTORY_STATES && inventory->rules != NULL)
        return add_wholes(parts, inventory);
    return OK;
}

const struct saved_part *session_parts_held(const struct session_parts *parts,
                                            int *count)
{
    *count = parts->divided ? parts->held_count : parts->count;
    return parts->divided ? parts->held : parts->items;
}

void session_parts_free(struct session_parts *parts)
{
    arena_free(&parts->arena);
    *parts = (struct session_parts){0};
}

/* ---- from a checkpoint ---- */

/* Codes need all elements of their blocks, which lie in several tensors. */
status parts_room_open(struct parts_room *room, const struct saved_part *held,
                       struct saved_part *part)
{
    const struct state_codes *codes = held->data;
    void *memory = NULL;

    *part = *held;
    if (held->decode == NULL) return OK;
    if (room->codes != codes) {
        const int64_t elements = codes->range.last - codes->range.first;

        parts_room_store(room);
        TRY(memory_take((size_t)elements, sizeof(float), &memory));
        room->codes = codes;
        room->values = memory;
        if (codes->codes != NULL)
            memset(memory, 0, (size_t)elements * sizeof(float));
        else state_decode(codes, 0, 1, elements, memory);
    }
    part->data = room->values;
    part->decode = NULL;
    return OK;
}

void parts_room_store(struct parts_room *room)
{
    if (room->codes != NULL) state_encode(room->codes, room->values);
    parts_room_free(room);
}

void parts_room_free(struct parts_room *room)
{
    memory_free(room->values);
    *room = (struct parts_room){.codes = NULL};
}

static status load_held(const struct session_parts *parts,
                        struct checkpoint *checkpoint,
                        struct parts_room *room)
{
    int count;
    const struct saved_part *held = session_parts_held(parts, &count);

    for (int i = 0; i < count; i++) {
        struct saved_part part;

        TRY(parts_room_open(room, &held[i], &part));
        TRY(checkpoint_read_tensor(checkpoint, &part));
    }
    parts_room_store(room);
    return OK;
}

status session_parts_load(const struct session_parts *parts,
                          struct checkpoint *checkpoint)
{
    struct parts_room room = {.codes = NULL};
    status result;

    if (parts->count > 0 && part_is_weight(&parts->items[0]))
        TRY(checkpoint_match_parts(checkpoint, parts->items, parts->count,
                                   &parts->left));
    result = load_held(parts, checkpoint, &room);
    parts_room_free(&room);
    return result;
}
