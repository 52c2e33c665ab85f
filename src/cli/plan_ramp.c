/* SPDX-License-Identifier: Apache-2.0 */
/* plan_ramp.c - the memory that each batch of a ramp needs. Every row is really
 * planned, alone, as if the run had no other batch. */
#include "cli/plan_ramp.h"

#include "plan/simulate.h"

/* One behind the last step of a row, counted from 0; 0: not known. */
static int64_t end_of(const struct setup *setup, int row)
{
    return row + 1 < setup->ramp.count ? setup->ramp.rows[row + 1].step
                                       : setup->rate.steps;
}

/* The share of a step that ranks of a pipeline wait, where F, B and W take
 * equally long and messages no time. */
static status idle_share(const struct schedule *schedule, double *out)
{
    static const struct simulate_costs costs = {
        .time_ns = {1000, 1000, 1000}, .weight_memory = 1};
    struct simulation simulation = {0};
    const status result = simulate(&simulation, schedule, &costs);

    *out = simulation.bubble_rate;
    simulation_free(&simulation);
    return result;
}

static int64_t sent(const struct exchanges *exchanges)
{
    int64_t bytes = 0;

    for (int i = 0; i < exchanges->count; i++)
        bytes += exchanges->items[i].bytes;
    return bytes;
}

static status add_row(struct setup *setup, int rank, int row,
                      struct table *table)
{
    const struct ramp_row *r = &setup->ramp.rows[row];
    const int64_t end = end_of(setup, row);
    struct draft draft;
    double idle = 0;

    TRY(setup_use_batch(setup, r->batch));
    if (setup->schedule.ranks > 1)
        TRY(idle_share(&setup->schedule, &idle));
    TRY(draft_build_alone(&draft, setup, rank));
    const struct stage_request *s = &setup->request;

    table_integer(table, r->step + 1);
    if (end > 0) table_integer(table, end);
    else table_text(table, NULL);
    table_integer(table, r->batch);
    table_integer(table, r->batch * s->size.length);
    table_integer(table, (int64_t)setup->schedule.microbatches *
                             stage_repeats(&draft.pipeline.stages[0]));
    table_bytes(table, (int64_t)draft.pipeline.bytes);
    table_bytes(table, sent(&draft.exchanges));
    table_real(table, idle, 3);
    draft_free(&draft);
    return OK;
}

status plan_ramp(struct setup *setup, int rank, struct table *table)
{
    static const struct table_column columns[] = {
        {"from step", "first_step", true}, {"to", "last_step", true},
        {"batch", "batch", true},
        {"tokens of a step", "tokens", true},
        {"micro-batches", "micro_batches", true},
        {"memory alone", "memory_bytes", true},
        {"sends a step", "sent_bytes", true},
        {"pipeline idle", "idle", true}};
    const int64_t batch = setup->batch;

    table_begin(table, columns, 8);
    for (int i = 0; i < setup->ramp.count; i++)
        TRY(add_row(setup, rank, i, table));
    return setup_use_batch(setup, batch);
}

status plan_ramp_choose(struct setup *setup, int64_t step)
{
    if (step == 0 || !ramp_changes(&setup->ramp)) return OK;
    return setup_use_batch(setup, ramp_batch(&setup->ramp, step - 1));
}

void plan_ramp_note(const struct setup *setup)
{
    const struct ramp *ramp = &setup->ramp;

    if (!ramp_changes(ramp)) return;
    for (int i = ramp->count - 1; i >= 0; i--) {
        if (ramp->rows[i].batch != setup->batch) continue;
        printf("with the batch of %lld sequences from step %lld on, one of %d "
               "of a ramp (--step N: another, --explain ramp: all)\n\n",
               (long long)setup->batch, (long long)ramp->rows[i].step + 1,
               ramp->count);
        return;
    }
}
