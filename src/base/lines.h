/* SPDX-License-Identifier: Apache-2.0 */
/* lines.h - files that a run appends to, and cuts when it goes on from an
 * earlier step: metrics.jsonl and its like.
 *
 * A disk that fails for a while loses nothing: what cannot be written waits in
 * memory, in order, and follows with the next record. What is cut is not
 * deleted: it is appended to FILE.cut first. */
#ifndef LOCKSTEP_BASE_LINES_H
#define LOCKSTEP_BASE_LINES_H

#include "base/arena.h"
#include "base/text.h"

struct lines {
    int descriptor;      /* owned; 0 in a zeroed one: none */
    char *path;          /* owned */
    const char *fault;   /* borrowed: passed before each write */
    struct text waiting; /* not yet written; from the first byte on */
    int64_t lost;        /* records for which there was no room */
    bool failing;        /* the last write failed, and that was said */
    struct text *also;   /* borrowed, set after lines_open: records are appended
                          * to it, too; NULL: none */
};

enum { LINES_WAITING_MOST = 16 << 20 }; /* bytes */

/* For appending, a regular file inside a run (file_open_own). flags: O_EXCL for
 * a file that must be new, or 0. */
status lines_open(struct lines *lines, const char *path, const char *fault,
                  int flags);
/* Appends a record. A failure of the disk is said once and is no error. */
status lines_put(struct lines *lines, const char *bytes, size_t length);
/* Everything that waits, now; tries for three seconds. ERR_IO: it is not
 * written, or records were lost. */
status lines_finish(struct lines *lines);
/* Everything that was put is on the disk, as far as the disk takes it now. */
void lines_sync(struct lines *lines);
/* Like lines_sync, but what cannot be written at once is lost. */
void lines_close(struct lines *lines);

/* The step that a line is of; ERR_FORMAT: it is damaged. Borrows scratch for
 * the call. */
typedef status lines_step(struct arena *scratch, const char *line,
                          size_t length, const char *source, int64_t *step);
/* Moves to `path`.cut, in order: lines of steps beyond `step_kept` (-1: all), a
 * torn last line, and damaged lines, which are said. All others stay. of_line
 * NULL: lines are JSON objects with a "step". A missing file is none. */
status lines_cut(const char *path, int64_t step_kept, lines_step *of_line);

#endif
