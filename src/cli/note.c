/* SPDX-License-Identifier: Apache-2.0 */
/* note.c - `lockstep note`: the log book of a run. */
#include <stdio.h>
#include <time.h>
#include "checkpoint/run_dir.h"
#include "cli/run.h"
#include "observe/notes.h"

static status print_notes(const char *run)
{
    struct notes notes;
    struct arena arena;
    status result;

    arena_init(&arena, "notes", 0);
    TRY_GOTO(done, result, notes_read(&notes, &arena, run));
    for (int64_t i = 0; i < notes.count; i++) {
        const time_t when = (time_t)notes.items[i].time;
        char date[32] = "?";
        struct tm parts;

        if (gmtime_r(&when, &parts) != NULL)
            strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S UTC", &parts);
        printf("%s  step %lld  %s\n", date, (long long)notes.items[i].step,
               notes.items[i].text);
    }
    if (notes.count == 0) printf("no notes\n");
done:
    arena_free(&arena);
    return result;
}

status command_note(struct arguments *arguments)
{
    const char *run = arguments->operands[0];
    struct run_dir place = {0};

    TRY(run_dir_read(&place, run));
    run_dir_close(&place);
    if (arguments->operand_count == 1) return print_notes(run);
    return note_add(run, arguments->operands[1]);
}
