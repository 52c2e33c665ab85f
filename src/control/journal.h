/* SPDX-License-Identifier: Apache-2.0 */
/* journal.h - RUN/control/journal.jsonl: what a supervisor saw and did, one
 * JSON object a line. It survives whatever happens to the supervisor; a last
 * line that is torn is left out when it is read.
 *
 *   {"event": "start", "time": ..., "host": "n1", "generation": 1,
 *    "supervisor": 4711, "began": ..., "board": 5, "state": 6,
 *    "ranks": [{"process": 4712, "began": ...}, ...]}
 *   {"event": "incident", "incident": 1, "generation": 1, "kind": "death",
 *    "rank": 2, "process": 4714, "cause": "was killed by signal 9 (Killed)",
 *    "step": 14, "explain": "...", "positions": ["rank 0: ...", ...]}
 *   {"event": "recovered", "incident": 1, "generation": 2, "from": "memory",
 *    "step": 14, "redone": 1, "fenced_ms": 4.1, "lost_ms": 240.5}
 *   {"event": "end", "result": "ok", "step": 200} */
#ifndef LOCKSTEP_CONTROL_JOURNAL_H
#define LOCKSTEP_CONTROL_JOURNAL_H

#include "base/file.h"
#include "base/json.h"
#include "base/lines.h"

struct journal {
    const char *run;      /* borrowed */
    struct lines lines;   /* open once the run has a directory */
    struct text early;    /* lines of before */
    bool open;
    bool elsewhere;       /* the run has begun, with its files on another
                           * machine */
    struct file_lock lock; /* one supervisor writes */
};

void journal_begin(struct journal *journal, const char *run);
/* For a run that has begun already. ERR_CONFIG: it has another supervisor. */
status journal_claim(struct journal *journal);
/* For who trains without a supervisor. ERR_CONFIG: the run has one, which
 * starts its ranks again when none is there. */
status journal_unclaimed(const char *run);
/* In a child: the lock stays with the parent. */
void journal_forget(struct journal *journal);
/* A line without its first two fields; journal_put ends it. */
void journal_line(struct json_writer *w, const char *event);
/* A disk that fails is no reason to end a run: the line waits. */
void journal_put(struct journal *journal, struct json_writer *w);
/* Lines wait until the run has begun; then they are written. */
void journal_poll(struct journal *journal);
void journal_close(struct journal *journal); /* zeroed: allowed */

/* All sound lines. ERR_MISSING: the run was never supervised. */
struct journal_lines {
    const struct json **items; /* [count], in the arena */
    int count;
};
status journal_read(struct journal_lines *out, struct arena *arena,
                    const char *run);

#endif
