/* SPDX-License-Identifier: Apache-2.0 */
/* plan_mesh.c - `plan --explain mesh`: who stands where, with whom, and what
 * they send. Every number is of a rank that was really planned. */
#include "cli/plan_mesh.h"

#include <string.h>

#include "base/file.h"
#include "cli/table.h"
#include "mesh/draw.h"

enum { ALL_MOST = 64 /* ranks that are all shown */, ENDS = 4 };

struct rank_row {
    int rank;
    struct place place;
    size_t bytes;
    char blocks[40];             /* "0-3", "0, 7"; "0, 8, ..." */
    int64_t parameters;
    int first_leaf, last_leaf;   /* data leaves of the run */
    struct exchanges exchanges;
};

struct view {
    struct setup *setup;
    struct rank_row *rows; /* owned, [count] */
    int count, ranks;
    struct table_column columns[13]; /* of the table of ranks */
};

/* ---- the ranks ---- */

static const char *range(char out[32], int first, int last)
{
    if (last - first < 1) snprintf(out, 32, "-");
    else if (last - first == 1) snprintf(out, 32, "%d", first);
    else snprintf(out, 32, "%d-%d", first, last - 1);
    return out;
}

/* Blocks of one stage, after those of the stages before. */
static void note_blocks(const struct stage *stage, struct rank_row *row)
{
    const struct param_table *params = &stage->program.params;
    const size_t used = strlen(row->blocks);
    int first = 0, last = 0;
    char text[32];

    for (int i = 0; i < params->count; i++) {
        const int block = params->items[i].layer;

        if (block < 0) continue;
        if (last == 0) first = block;
        last = block + 1;
    }
    range(text, first, last);
    if (used + strlen(text) + sizeof ", , ..." < sizeof row->blocks)
        snprintf(row->blocks + used, sizeof row->blocks - used, "%s%s",
                 used > 0 ? ", " : "", text);
    else if (strstr(row->blocks, "...") == NULL)
        snprintf(row->blocks + used, sizeof row->blocks - used, ", ...");
}

static void note_leaves(const struct setup *setup, struct rank_row *row)
{
    const int at = mesh_batch_rank(&setup->mesh, &row->place);
    const int each = setup->grid.data / setup->ranks;

    row->first_leaf = at * each;
    row->last_leaf = row->first_leaf + each;
}

static status fill_row(struct view *view, int rank, struct rank_row *row)
{
    struct draft draft;

    TRY(draft_build(&draft, view->setup, rank));
    *row = (struct rank_row){.rank = rank, .place = view->setup->place,
                             .bytes = draft.pipeline.bytes,
                             .exchanges = draft.exchanges};
    for (int i = 0; i < draft.pipeline.count; i++) {
        const struct stage *stage = &draft.pipeline.stages[i];

        row->parameters += stage->program.params.parameters;
        note_blocks(stage, row);
    }
    note_leaves(view->setup, row);
    draft_free(&draft);
    return OK;
}

/* All ranks, or of very many the first and the last ones. */
static status fill(struct view *view, struct setup *setup)
{
    void *rows = NULL;

    view->setup = setup;
    view->ranks = mesh_ranks(&setup->mesh);
    const bool all = view->ranks <= ALL_MOST;
    const int count = all ? view->ranks : 2 * ENDS;

    TRY(memory_take((size_t)count, sizeof *view->rows, &rows));
    view->rows = rows;
    for (; view->count < count; view->count++) {
        const int i = view->count;

        TRY(fill_row(view, i < ENDS || all ? i : view->ranks - count + i,
                     &view->rows[i]));
    }
    return OK;
}

static int64_t sent(const struct rank_row *row)
{
    int64_t bytes = 0;

    for (int i = 0; i < row->exchanges.count; i++)
        bytes += row->exchanges.items[i].bytes;
    return bytes;
}

/* Axes that most runs leave at 1 have a column where they are more. */
static int columns_of(struct view *view, enum axis *axes, int *axis_count)
{
    static const enum axis shown[] = {AXIS_PIPE, AXIS_DATA, AXIS_SHARD,
                                      AXIS_EXPERT, AXIS_CONTEXT, AXIS_TENSOR};
    static const struct table_column others[] = {
        {"blocks", "blocks", true}, {"data leaves", "data_leaves", true},
        {"tensor leaves", "tensor_leaves", true},
        {"parameters", "parameters", true}, {"memory", "memory_bytes", true},
        {"sends a step", "sent_bytes", true}};
    struct table_column *columns = view->columns;
    int count = 0;

    columns[count++] = (struct table_column){"rank", "rank", true};
    *axis_count = 0;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const char *name = axis_name(shown[i]);

        if (shown[i] == AXIS_EXPERT &&
            view->setup->mesh.size[AXIS_EXPERT] == 1)
            continue;
        axes[(*axis_count)++] = shown[i];
        columns[count++] = (struct table_column){name, name, true};
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        columns[count++] = others[i];
    return count;
}

static void ranks_table(struct view *view, struct table *table)
{
    enum axis axes[6];
    const struct setup *s = view->setup;
    const int leaves = s->grid.tensor / s->mesh.size[AXIS_TENSOR];
    int axis_count;
    const int count = columns_of(view, axes, &axis_count);
    char text[32];

    table_begin(table, view->columns, count);
    for (int i = 0; i < view->count; i++) {
        const struct rank_row *row = &view->rows[i];
        const int tensor = row->place.at[AXIS_TENSOR] * leaves;

        table_integer(table, row->rank);
        for (int a = 0; a < axis_count; a++)
            table_integer(table, row->place.at[axes[a]]);
        table_text(table, row->blocks);
        table_text(table, range(text, row->first_leaf, row->last_leaf));
        table_text(table, range(text, tensor, tensor + leaves));
        table_integer(table, row->parameters);
        table_bytes(table, (int64_t)row->bytes);
        table_bytes(table, sent(row));
    }
}

/* ---- the groups ---- */

struct group_row {
    enum axis axis;  /* AXIS_NONE: all that share the batch */
    const char *shares;
};

static const struct group_row group_rows[] = {
    {AXIS_PIPE, "one model: blocks are cut"},
    {AXIS_NONE, "one batch"},
    {AXIS_DATA, "the batch; hsdp: copies of a shard"},
    {AXIS_SHARD, "the batch; hsdp: one divided copy"},
    {AXIS_EXPERT, "the batch, divided by experts"},
    {AXIS_CONTEXT, "the same sequences, divided by tokens"},
    {AXIS_TENSOR, "the same sequences, divided by weights"}};
enum { GROUP_ROWS = (int)(sizeof group_rows / sizeof *group_rows) };

static axis_set axes_of(const struct group_row *row)
{
    return row->axis == AXIS_NONE ? AXES_BATCH : 1u << row->axis;
}

/* "0 1 2 3 ... 62 63" */
static void members_text(const int *members, int size, char *out,
                         size_t bytes)
{
    size_t used = 0;

    for (int i = 0; i < size && used < bytes; i++) {
        const bool gap = size > 10 && i == 4;

        if (gap) i = size - 2;
        used += (size_t)snprintf(out + used, bytes - used, "%s%s%d",
                                 i > 0 ? " " : "", gap ? "... " : "",
                                 members[i]);
    }
}

/* The distance from each member to the next; 0 if distances differ. */
static int stride_of(const int *members, int size)
{
    for (int i = 2; i < size; i++)
        if (members[i] - members[i - 1] != members[1] - members[0]) return 0;
    return members[1] - members[0];
}

static status group_cells(const struct view *view, const struct group_row *row,
                          struct table *table)
{
    const struct mesh *mesh = &view->setup->mesh;
    const int size = mesh_group_size(mesh, axes_of(row));
    char members[96];
    void *memory = NULL;

    TRY(memory_take((size_t)size, sizeof(int), &memory));
    mesh_members(mesh, &view->setup->order, 0, axes_of(row), memory);
    members_text(memory, size, members, sizeof members);
    table_text(table, row->axis == AXIS_NONE ? "batch" : axis_name(row->axis));
    table_integer(table, size);
    table_integer(table, view->ranks / size);
    table_integer(table, stride_of(memory, size));
    table_text(table, members);
    table_text(table, row->shares);
    memory_free(memory);
    return OK;
}

static status groups_table(const struct view *view, struct table *table)
{
    static const struct table_column columns[] = {
        {"group", "group", false},  {"size", "size", true},
        {"groups", "groups", true}, {"stride", "stride", true},
        {"that of rank 0", "members", false},
        {"its ranks share", "shares", false}};

    table_begin(table, columns, 6);
    for (int i = 0; i < GROUP_ROWS; i++)
        if (mesh_group_size(&view->setup->mesh, axes_of(&group_rows[i])) > 1)
            TRY(group_cells(view, &group_rows[i], table));
    return OK;
}

/* ---- the messages ---- */

static const struct exchange *find(const struct exchanges *list,
                                   const struct exchange *like)
{
    for (int i = 0; i < list->count; i++) {
        if (exchange_is_like(&list->items[i], like)) return &list->items[i];
    }
    return NULL;
}

static void message_cells(const struct view *view, const struct exchange *e,
                          struct table *table)
{
    int64_t calls = 0, most = 0, all = 0;

    for (int i = 0; i < view->count; i++) {
        const struct exchange *row = find(&view->rows[i].exchanges, e);

        if (row == NULL) continue;
        if (row->calls > calls) calls = row->calls;
        if (row->bytes > most) most = row->bytes;
        all += row->bytes;
    }
    table_text(table, e->label);
    table_text(table, comm_kind_name(e->kind));
    table_text(table, sent_name(e->what));
    table_integer(table, e->size);
    table_integer(table, calls);
    table_bytes(table, most);
    if (view->count == view->ranks) table_bytes(table, all);
    else table_text(table, NULL);
}

/* Each row once, whichever ranks have it. */
static void messages_table(const struct view *view, struct table *table)
{
    static const struct table_column columns[] = {
        {"group", "group", false},     {"collective", "kind", false},
        {"of", "what", false},         {"ranks", "ranks", true},
        {"calls a step", "calls", true},
        {"a rank sends at most", "most_bytes", true},
        {"all ranks send", "all_bytes", true}};

    table_begin(table, columns, 7);
    for (int i = 0; i < view->count; i++) {
        const struct exchanges *list = &view->rows[i].exchanges;

        for (int j = 0; j < list->count; j++) {
            bool shown = false;

            for (int k = 0; k < i && !shown; k++)
                shown = find(&view->rows[k].exchanges, &list->items[j]);
            if (!shown) message_cells(view, &list->items[j], table);
        }
    }
}

/* ---- together ---- */

enum { TABLES = 3 };

static void print_head(const struct view *view)
{
    const struct setup *s = view->setup;
    char mesh[MESH_TEXT_BYTES];

    mesh_text(&s->mesh, mesh, sizeof mesh);
    printf("%d rank%s: %s; order", view->ranks, view->ranks > 1 ? "s" : "",
           mesh);
    for (int i = 0; i < s->order.count; i++)
        if (s->mesh.size[s->order.axis[i]] > 1)
            printf(" %s", axis_name(s->order.axis[i]));
    printf(" (slowest first); zero: %s\n", s->set->values.zero);
    if (s->schedule.ranks > 1)
        printf("schedule %s: %d stages, %d micro-batches of %lld sequences\n",
               s->set->values.schedule.name, s->schedule.stages,
               s->schedule.microbatches,
               (long long)s->request.size.micro_batch);
    printf("grid %d data x %d tensor x %d context leaves: %s\n\n",
           s->grid.data, s->grid.tensor, s->grid.context,
           s->exact ? "the layout does not show in a bit"
                    : "fast: adapted to the layout, so the bits depend on the "
                      "layout");
}

static status print_tables(const struct view *view, struct table *tables)
{
    static const char *const titles[TABLES] = {
        "", "\ngroups\n",
        "\nmessages of a training step (no validation, no checkpoint)\n"};

    bool none = false;

    print_head(view);
    for (int i = 0; i < view->count; i++)
        none = none || strcmp(view->rows[i].blocks, "-") == 0;
    for (int i = 0; i < TABLES; i++) {
        if (tables[i].cell_count == 0) continue;
        fputs(titles[i], stdout);
        TRY(table_print(&tables[i], stdout));
    }
    if (none) printf("\nblocks -: the rank has no block of the model\n");
    if (view->count < view->ranks)
        printf("\nranks %d to %d are not shown; -: not added up, because they "
               "are not\n", ENDS, view->ranks - ENDS - 1);
    return OK;
}

/* {"view": "mesh", "ranks": [...], "groups": [...], "messages": [...]} */
static status print_json(const struct view *view, struct table *tables)
{
    static const char *const keys[TABLES] = {"ranks", "groups", "messages"};
    struct json_writer writer = {0};
    status result;

    json_write_begin(&writer, 2);
    json_write_object(&writer);
    json_write_key(&writer, "view");
    json_write_string(&writer, "mesh");
    json_write_key_integer(&writer, "batch", view->setup->batch);
    json_write_key(&writer, "exact");
    json_write_bool(&writer, view->setup->exact);
    for (int i = 0; i < TABLES; i++) {
        json_write_key(&writer, keys[i]);
        TRY_GOTO(done, result, table_json(&tables[i], &writer));
    }
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

static status draw(const struct view *view, const char *path)
{
    char title[MESH_TEXT_BYTES + 32], mesh[MESH_TEXT_BYTES], leaves[32];
    void *notes = NULL;
    struct text text = {0};
    status result;

    if (view->count < view->ranks)
        FAIL(ERR_CONFIG, "a picture of %d ranks; at most %d are drawn",
             view->ranks, (int)ALL_MOST);
    TRY_GOTO(done, result, memory_take((size_t)view->count,
                                       sizeof(struct mesh_note), &notes));
    for (int i = 0; i < view->count; i++) {
        struct mesh_note *note = (struct mesh_note *)notes + i;
        const struct rank_row *row = &view->rows[i];

        snprintf(note->line[0], MESH_NOTE_BYTES, "blocks %.24s", row->blocks);
        snprintf(note->line[1], MESH_NOTE_BYTES, "data leaves %s",
                 range(leaves, row->first_leaf, row->last_leaf));
    }
    mesh_text(&view->setup->mesh, mesh, sizeof mesh);
    snprintf(title, sizeof title, "%d ranks: %s", view->ranks, mesh);
    TRY_GOTO(done, result, mesh_draw_svg(&view->setup->mesh,
                                         &view->setup->order, title, notes,
                                         &text));
    TRY_GOTO(done, result, file_write_named(path, text.bytes, text.length));
done:
    text_free(&text);
    memory_free(notes);
    return result;
}

static status print(struct view *view, bool json)
{
    struct table tables[TABLES] = {{0}};
    status result;

    ranks_table(view, &tables[0]);
    TRY_GOTO(done, result, groups_table(view, &tables[1]));
    messages_table(view, &tables[2]);
    result = json ? print_json(view, tables) : print_tables(view, tables);
done:
    for (int i = 0; i < TABLES; i++) table_free(&tables[i]);
    return result;
}

status plan_mesh(struct setup *setup, bool json, const char *picture)
{
    struct view view = {0};
    status result;

    TRY_GOTO(done, result, fill(&view, setup));
    TRY_GOTO(done, result, print(&view, json));
    if (picture != NULL) TRY_GOTO(done, result, draw(&view, picture));
done:
    memory_free(view.rows);
    return result;
}
