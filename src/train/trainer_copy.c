/* SPDX-License-Identifier: Apache-2.0 */
/* trainer_copy.c - copies of a supervised run's state in memory: made after
 * steps, gone back to by the next generation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/history.h"
#include "control/board.h"
#include "train/trainer_state.h"

/* Steps that had been made were undone. */
static bool undoes(const struct ledger_event *event)
{
    return event->verdict.action == POLICY_REWIND ||
           (event->verdict.action == POLICY_REPLAY &&
            strcmp(event->verdict.cause, "replica") == 0);
}

void trainer_copy_layout(struct trainer *t)
{
    int64_t rewinds = 0;

    for (int64_t i = 0; i < t->ledger.count; i++)
        rewinds += undoes(&t->ledger.events[i]);
    t->copy.layout = crc32c(
        crc32c(0, t->setup.mesh.size, sizeof t->setup.mesh.size), &rewinds,
        sizeof rewinds);
}

status trainer_copy_open(struct trainer *t)
{
    trainer_copy_layout(t);
    return memory_copy_open(&t->copy, &t->pipeline, &t->team,
                            t->request->copies);
}

/* The newest checkpoint by its name; what is in it is not asked. */
static int64_t newest_checkpoint(const struct trainer *t)
{
    char directory[PATH_BYTES];
    int64_t step = -1;

    if (!trainer_leads(t)) return -1;
    if (checkpoint_find_newest(t->local.used ? t->local.store : t->run.path,
                               directory, &step) == OK)
        return step;
    status_clear();
    return -1;
}

static status restore(struct trainer *t, int64_t step)
{
    const char *state;
    size_t length;

    TRY(memory_copy_restore(&t->copy, step, &state, &length));
    TRY(stages_store(t->pipeline.stages, t->pipeline.count));
    return keeper_read_state(&t->keeper, state, length, step, &t->counters);
}

status trainer_copy_return(struct trainer *t, int64_t step)
{
    return team_agree(&t->team, restore(t, step));
}

static status has_whole(const struct trainer *t, bool *whole)
{
    struct local_source source = {.list.count = 0};
    struct text notice = {0};
    int64_t step = -1;
    status result = local_source_list(&source, &t->local, NULL, &notice);

    if (result == OK)
        result = local_source_newest(&source, INT64_MAX, &step, &notice);
    *whole = step >= 0;
    local_source_close(&source);
    text_free(&notice);
    return result;
}

/* Whether the machine with the lines of metrics and records since the newest
 * checkpoint is lost: then what they say is made again. */
static status check_records(struct trainer *t, const char *state,
                            size_t length, bool *lost)
{
    int64_t records = 0;
    bool whole = false;
    int newer;
    status result = OK;

    *lost = false;
    if (!t->local.used) return OK;
    if (trainer_leads(t))
        result = keeper_state_records(state, length, &records, &t->unsaved);
    newer = result == OK && trainer_leads(t) &&
            (records > t->local.records ||
             (records == t->local.records && t->local.behind));
    if (newer) result = has_whole(t, &whole);
    TRY(team_agree(&t->team, result));
    if (newer)
        fprintf(stderr, "notice    metrics of the steps since the newest "
                "checkpoint were lost with their machine: %s\n",
                whole ? "the run goes back to it, not to the copies in memory"
                      : "no checkpoint is whole, so the run goes on from the "
                        "copies in memory, and those lines are missing");
    newer = newer && whole;
    TRY(team_most(&t->team, &newer));
    *lost = newer != 0;
    return OK;
}

/* ---- lines since the newest checkpoint, with checkpoint.local ---- */

enum { UNSAVED_MOST = 1 << 20 }; /* bytes: some 9,000 lines */

/* Lines begin with {"step": N; INT64_MAX: this one does not. */
static int64_t line_step(const char *line)
{
    static const char head[] = "{\"step\": ";

    if (strncmp(line, head, sizeof head - 1) != 0) return INT64_MAX;
    return strtoll(line + sizeof head - 1, NULL, 10);
}

/* The first line of a later step than that. */
static const char *lines_after(const char *line, int64_t step)
{
    while (*line != '\0' && line_step(line) <= step) {
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return line;
}

status trainer_copy_line(struct trainer *t, const struct text *line)
{
    struct text kept = {0};
    status result = OK;

    if (t->unsaved.length > 0) {
        const char *from = lines_after(t->unsaved.bytes, t->saved_step);
        const char *to = lines_after(from, t->counters.step); /* undone ones */

        if (to - from < UNSAVED_MOST)
            result = text_append(&kept, from, (size_t)(to - from));
    }
    if (result == OK) result = text_append(&kept, line->bytes, line->length);
    text_free(&t->unsaved);
    t->unsaved = kept;
    return result;
}

/* The last line's step; 0: there is none. */
static int64_t last_step(const struct text *file)
{
    size_t at = file->length;

    if (at == 0) return 0;
    for (at--; at > 0 && file->bytes[at - 1] != '\n'; at--) continue;
    return line_step(file->bytes + at);
}

/* Rank 0's machine may be another one, whose file ends at the newest checkpoint
 * of which something is left. */
static status add_unsaved(struct trainer *t, int64_t step)
{
    const char *const path = t->run.consumed;
    struct text file = {0};
    struct lines lines = {0};
    status result;

    if (!trainer_leads(t) || t->unsaved.length == 0) return OK;
    TRY(lines_cut(path, step, NULL)); /* a torn one, too */
    if (file_exists(path))
        TRY_GOTO(done, result, file_read_own(path, (size_t)1 << 40, &file));
    TRY_GOTO(done, result, lines_open(&lines, path, "consumed.append", 0));
    const char *from = lines_after(t->unsaved.bytes, last_step(&file));
    const char *to = lines_after(from, step);

    TRY_GOTO(done, result, lines_put(&lines, from, (size_t)(to - from)));
    result = lines_finish(&lines);
done:
    lines_close(&lines);
    text_free(&file);
    return result;
}

/* State and lines of the copy in memory. */
static status read_copied(struct trainer *t, const char *state, size_t length,
                          int64_t step)
{
    TRY(keeper_read_state(&t->keeper, state, length, step, &t->counters));
    return add_unsaved(t, step);
}

static status restore_newest(struct trainer *t, int64_t *step)
{
    const char *state = NULL;
    size_t length = 0;
    bool lost;

    TRY(team_agree(&t->team, memory_copy_restore(&t->copy, *step, &state,
                                                 &length)));
    TRY(stages_store(t->pipeline.stages, t->pipeline.count));
    TRY(check_records(t, state, length, &lost));
    if (!lost)
        return team_agree(&t->team, read_copied(t, state, length, *step));
    t->unsaved.length = 0;
    t->copy.newest = *step = -1;
    return OK;
}

status trainer_copy_restore(struct trainer *t, int64_t *step)
{
    double saved = (double)newest_checkpoint(t);

    TRY(memory_copy_newest(&t->copy, step));
    if (*step < 0) return OK;
    TRY(team_largest(&t->team, &saved, 1));
    if (saved > (double)*step) *step = -1;
    if (*step < 0) return OK;
    TRY(restore_newest(t, step));
    if (*step < 0) return OK;
    /* A save that the last generation had begun. */
    if (local_leads(&t->local, team_rank(&t->team)) &&
        checkpoint_clean(t->local.used ? t->local.store : t->run.path) != OK)
        status_clear();
    LOG(DEBUG, "train", "goes on after step %lld, from the copy in memory",
        (long long)*step);
    t->saved_step = (int64_t)saved;
    t->copy.resumed = true;
    board_resume(*step, t->copy.carried ? BOARD_PEER : BOARD_MEMORY);
    return OK;
}

status trainer_copy(struct trainer *t)
{
    struct text state = {0};
    status result;
    bool due;

    TRY(memory_copy_due(&t->copy, t->counters.step, &due));
    if (!due) return OK;
    TRY(stages_fetch(t->pipeline.stages, t->pipeline.count));
    result = keeper_state(&t->keeper, &t->counters, &state);
    if (result == OK)
        memory_copy_make(&t->copy, t->counters.step, state.bytes,
                         state.length);
    text_free(&state);
    return result;
}
