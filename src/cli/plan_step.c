/* SPDX-License-Identifier: Apache-2.0 */
/* plan_step.c - `plan --explain step`. */
#include "cli/plan_step.h"

#include "base/file.h"
#include "list/draw.h"
#include "list/instruction_facts.h"
#include "list/traffic.h"
#include "list/verify.h"

/* ---- all ranks of the pipe ---- */

struct pipe_lists {
    struct draft *drafts;        /* owned, [count] */
    struct pipeline *pipelines;  /* owned, [count]: of the drafts */
    struct step_list *lists;     /* owned, [count] */
    int count;
};

static status take(struct pipe_lists *all, int count)
{
    void *memory = NULL;

    TRY(memory_take((size_t)count, sizeof *all->drafts, &memory));
    all->drafts = memory;
    TRY(memory_take((size_t)count, sizeof *all->pipelines, &memory));
    all->pipelines = memory;
    TRY(memory_take((size_t)count, sizeof *all->lists, &memory));
    all->lists = memory;
    return OK;
}

static status verify(struct pipe_lists *all,
                     const struct plan_step_request *r)
{
    const int count = r->setup->mesh.size[AXIS_PIPE];
    struct place place;

    mesh_place(&r->setup->mesh, &r->setup->order, r->rank, &place);
    TRY(take(all, count));
    for (int i = 0; i < count; i++) {
        struct list_request request = {.pipeline = &all->pipelines[i]};

        place.at[AXIS_PIPE] = i;
        TRY(draft_build(&all->drafts[i], r->setup,
                        mesh_rank(&r->setup->mesh, &r->setup->order,
                                  &place)));
        all->count++;
        all->pipelines[i] = all->drafts[i].pipeline;
        TRY(list_make(&all->lists[i], &request));
    }
    return lists_verify(all->lists, all->pipelines, count);
}

static void free_all(struct pipe_lists *all)
{
    for (int i = 0; i < all->count; i++) {
        list_free(&all->lists[i]);
        draft_free(&all->drafts[i]);
    }
    memory_free(all->drafts);
    memory_free(all->pipelines);
    memory_free(all->lists);
}

static status verify_pipe(const struct plan_step_request *r)
{
    struct pipe_lists all = {0};
    const status result = verify(&all, r);

    free_all(&all);
    setup_place(r->setup, r->rank);
    return result;
}

/* ---- the rows ---- */

static status add_inside(void *argument, const struct exchange *row)
{
    *(int64_t *)argument += row->size > 1 ? row->bytes : 0;
    return OK;
}

static void number_cell(struct table *table, int number)
{
    if (number < 0) table_text(table, NULL);
    else table_integer(table, number);
}

static status needs_cell(const struct step_list *list, int number,
                         struct table *table)
{
    struct text text = {0};
    status result = OK;

    for (int i = 0; i < list->items[number].needs; i++)
        TRY_GOTO(done, result,
                 text_printf(&text, "%s%d", i > 0 ? " " : "",
                             list_needs(list, number)[i]));
    table_text(table, text.length > 0 ? text.bytes : NULL);
done:
    text_free(&text);
    return result;
}

static status frees_cell(const struct pipeline *p,
                         const struct step_list *list, int number,
                         struct table *table)
{
    struct text text = {0};
    const status result =
        list_frees(p, list->forward, &list->items[number], &text);

    table_text(table, text.length > 0 ? text.bytes : NULL);
    text_free(&text);
    return result;
}

static status add_row(const struct pipeline *p, const struct step_list *list,
                      int number, struct table *table)
{
    const struct instruction *i = &list->items[number];
    const struct list_group group = list_group(p, i);
    char events[32], cost[COST_KEY_BYTES];
    int64_t bytes = 0;

    TRY(list_traffic(p, i, add_inside, &bytes));
    snprintf(events, sizeof events, "%d-%d", i->first_event, i->last_event);
    table_integer(table, number);
    table_text(table, resource_name((enum resource)i->resource));
    table_text(table, instruction_rows[i->kind].name);
    number_cell(table, i->stage);
    number_cell(table, i->microbatch);
    number_cell(table, i->unit);
    number_cell(table, i->buffer);
    table_text(table, i->last_event > i->first_event ? events : NULL);
    table_text(table, group.size > 1 && i->calls > 0 ? group.name : NULL);
    table_integer(table, bytes);
    TRY(needs_cell(list, number, table));
    TRY(frees_cell(p, list, number, table));
    table_text(table, list_cost_key(cost, p, i));
    return OK;
}

static status add_rows(const struct plan_step_request *r,
                       const struct step_list *list, struct table *table)
{
    static const struct table_column columns[] = {
        {"number", "number", true},    {"resource", "resource", false},
        {"instruction", "instruction", false}, {"stage", "stage", true},
        {"micro-batch", "micro_batch", true}, {"unit", "unit", true},
        {"frame", "frame", true},      {"events", "events", false},
        {"group", "group", false},     {"sends", "bytes", true},
        {"needs", "needs", false},     {"frees", "frees", false},
        {"cost", "cost", false}};

    table_begin(table, columns, 13);
    for (int i = 0; i < list->count; i++)
        TRY(add_row(&r->draft->pipeline, list, i, table));
    return OK;
}

static status draw(const struct plan_step_request *r,
                   const struct step_list *list)
{
    struct text svg = {0};
    char title[96];
    status result;

    snprintf(title, sizeof title, "a step of rank %d: %d instructions",
             r->rank, list->count);
    TRY_GOTO(done, result, list_draw(list, title, &svg));
    result = file_write_named(r->picture, svg.bytes, svg.length);
done:
    text_free(&svg);
    return result;
}

status plan_step(const struct plan_step_request *r, struct table *table)
{
    const struct list_request request = {.pipeline = &r->draft->pipeline,
                                         .after = r->after};
    struct step_list list;
    status result;

    TRY(list_make(&list, &request));
    result = add_rows(r, &list, table);
    if (result == OK && r->after == NULL) result = verify_pipe(r);
    if (result == OK && r->picture != NULL) result = draw(r, &list);
    list_free(&list);
    return result;
}
