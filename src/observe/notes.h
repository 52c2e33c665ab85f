/* SPDX-License-Identifier: Apache-2.0 */
/* notes.h - RUN/notes.jsonl: what people wrote down about a run, one JSON
 * object a line.
 *
 *     {"time": 1795447526, "step": 1200, "text": "new power supply in rack 4"}
 *
 * The step is the newest that the metrics know. Lines are appended whole, by
 * any number of people at once; nothing is ever dropped, also when the run goes
 * back to an earlier step. */
#ifndef LOCKSTEP_OBSERVE_NOTES_H
#define LOCKSTEP_OBSERVE_NOTES_H

#include <stdint.h>
#include "base/arena.h"

enum { NOTE_BYTES_MOST = 4096 };

struct note {
    int64_t time, step;   /* seconds since 1970; steps done */
    const char *text;
};

struct notes {
    struct note *items;   /* [count], in the arena */
    int64_t count;
};

/* ERR_CONFIG: no text, one that is too long, or no UTF-8. */
status note_add(const char *run, const char *words);
/* A missing file is none. A torn last line is left out. */
status notes_read(struct notes *notes, struct arena *arena, const char *run);

#endif
