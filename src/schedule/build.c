/* SPDX-License-Identifier: Apache-2.0 */
/* build.c - the table of schedules. To add one, write its order into the lists
 * (a fill_ function) and add a row: docs/schedules.md. */
#include "schedule/build.h"

#include <stdio.h>
#include <string.h>

#include "schedule/generate.h"

enum { IN_ORDER = SCHEDULE_AT_ONCE | SCHEDULE_IN_ORDER };

const struct schedule_row schedule_rows[] = {
    {"gpipe", "every F, then every B with its W", 1,
     HOLDS_ALL, IN_ORDER, fill_gpipe},
    {"gpipe-early-send", "gpipe, gradients sent before W", 1,
     HOLDS_ALL, SCHEDULE_IN_ORDER, fill_gpipe_early},
    {"1f1b", "one F, one B with its W", 1,
     HOLDS_LEFT, IN_ORDER, fill_1f1b},
    {"1f1b-early-send", "1f1b, gradients sent before W", 1,
     HOLDS_LEFT, SCHEDULE_IN_ORDER, fill_1f1b_early},
    {"interleaved", "1f1b over several chunks a rank", 0,
     HOLDS_CHUNKS, IN_ORDER, fill_interleaved},
    {"breadth-first", "every F of a chunk, then the next chunk", 0,
     HOLDS_ALL, IN_ORDER | SCHEDULE_WHOLE, fill_breadth_first},
    {"zb-h1", "1f1b, late W fill the gaps", 1,
     HOLDS_RANKS, SCHEDULE_POSTED, fill_zb_h1},
    {"zb-h2", "zb-h1 with twice the memory", 1,
     HOLDS_TWICE, SCHEDULE_POSTED, fill_zb_h2},
    {"zb-1p", "found by costs in the memory of 1f1b", 1,
     HOLDS_RANKS, SCHEDULE_POSTED, fill_zb_1p},
    {"zb-2p", "found by costs in twice that memory", 1,
     HOLDS_TWICE, SCHEDULE_POSTED, fill_zb_2p},
    {"zb-v", "two chunks a rank in a V, memory of 1f1b", 2,
     HOLDS_V, SCHEDULE_V | SCHEDULE_POSTED, fill_zb_v},
    {"v-half", "a V in half the memory", 2,
     HOLDS_HALF, SCHEDULE_V, fill_v_half},
    {"v-min", "a V in a third of the memory", 2,
     HOLDS_THIRD, SCHEDULE_V, fill_v_min},
    {"dualpipe", "micro-batches from both ends, F overlaps B", 1,
     HOLDS_MORE, SCHEDULE_JOINED, fill_dualpipe},
    {"dualpipev", "dualpipe cut in half, two chunks a rank", 2,
     HOLDS_MORE, SCHEDULE_V | SCHEDULE_JOINED, fill_dualpipev},
};
const int schedule_row_count = sizeof schedule_rows / sizeof *schedule_rows;

static const struct schedule_row *row_named(const char *name)
{
    static const struct schedule_row other = {.holds = HOLDS_RANKS};

    for (int i = 0; i < schedule_row_count; i++)
        if (schedule_rows[i].name[0] == name[0] &&
            strcmp(schedule_rows[i].name, name) == 0)
            return &schedule_rows[i];
    return &other;
}

enum schedule_holds schedule_holds(const char *name)
{
    return row_named(name)->holds;
}

bool schedule_is(const char *name, enum schedule_flags flag)
{
    return (row_named(name)->flags & flag) != 0;
}

bool schedule_takes_chunks(const char *name)
{
    const struct schedule_row *row = row_named(name);

    return row->fill != NULL && row->chunks == 0;
}

status schedule_row_find(const char *name, const struct schedule_row **out)
{
    const char *names[sizeof schedule_rows / sizeof *schedule_rows];
    const char *near;
    char all[256] = "";

    for (int i = 0; i < schedule_row_count; i++) {
        names[i] = schedule_rows[i].name;
        *out = &schedule_rows[i];
        if (strcmp(names[i], name) == 0) return OK;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
                 i > 0 ? ", " : "", names[i]);
    }
    near = text_nearest(name, names, schedule_row_count);
    FAIL(ERR_CONFIG, "schedule %.60s is not known; %s%s", name,
         near != NULL ? "nearest: " : "there are ", near != NULL ? near : all);
}

struct schedule_request schedule_request_default(const char *name, int ranks,
                                                 int microbatches)
{
    return (struct schedule_request){
        .name = name, .ranks = ranks, .microbatches = microbatches,
        .forward_ns = 1, .backward_input_ns = 1, .backward_weight_ns = 1,
        .weight_memory = 0.5};
}

static status check_request(const struct schedule_request *r,
                            const struct schedule_row *row)
{
    const struct { const char *what; double value, most; } rows[] = {
        {"forward time", (double)r->forward_ns, 1e15},
        {"backward-input time", (double)r->backward_input_ns, 1e15},
        {"backward-weight time", (double)r->backward_weight_ns, 1e15},
        {"transfer time", (double)r->transfer_ns, 1e15},
        {"memory limit", r->memory_limit, 1e6},
        {"weight memory", r->weight_memory, 1}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].value >= 0 && rows[i].value <= rows[i].most))
            FAIL(ERR_CONFIG, "schedule %s: %s %g is outside 0 to %g",
                 row->name, rows[i].what, rows[i].value, rows[i].most);
    if (row->chunks != 0 && r->chunks != row->chunks)
        FAIL(ERR_CONFIG, "schedule %s has %d chunk%s a rank, not %d; "
                         "interleaved and breadth-first take any number",
             row->name, row->chunks, row->chunks > 1 ? "s" : "", r->chunks);
    if (r->ranks < 1 || r->ranks > STAGES_MAX || r->chunks < 1 ||
        r->chunks > STAGES_MAX / r->ranks)
        FAIL(ERR_CONFIG, "schedule %s: %d ranks of %d chunks; together they "
                         "can be 1 to %d stages", row->name, r->ranks,
             r->chunks, STAGES_MAX);
    if (r->group != 0 && row->fill != fill_interleaved)
        FAIL(ERR_CONFIG, "schedule %s takes no group; interleaved does",
             row->name);
    return OK;
}

status schedule_make(struct schedule *out,
                     const struct schedule_request *request)
{
    struct schedule_request r = *request;
    const struct schedule_row *row;
    status result;

    *out = (struct schedule){0};
    TRY(schedule_row_find(r.name, &row));
    if (r.chunks == 0) r.chunks = row->chunks != 0 ? row->chunks : 2;
    TRY(check_request(&r, row));
    TRY_GOTO(failed, result, row->fill(out, &r));
    TRY_GOTO(failed, result, schedule_verify(out));
    out->verified = true;
    return OK;
failed:
    schedule_free(out);
    return result;
}

status schedule_build(struct schedule *out, const char *name, int ranks,
                      int microbatches)
{
    const struct schedule_request request =
        schedule_request_default(name, ranks, microbatches);

    return schedule_make(out, &request);
}
