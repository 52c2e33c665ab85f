/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_journal.h - a journal without a file, for one test. A second
 * supervisor is refused as the file's lock refuses it. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_JOURNAL_H
#define LOCKSTEP_TESTS_VIRTUAL_JOURNAL_H

#include <string.h>
#include "control/call_record.h"
#include "tests/unit/control/virtual_cluster.h"

void journal_begin(struct journal *journal, const char *run)
{
    *journal = (struct journal){.run = run};
}

void journal_forget(struct journal *journal) { (void)journal; }
void journal_poll(struct journal *journal) { (void)journal; }

status journal_claim(struct journal *journal)
{
    if (cluster.leaders > 0)
        FAIL(ERR_CONFIG, "%s: has another supervisor", journal->run);
    return OK;
}

void journal_line(struct json_writer *w, const char *event)
{
    json_write_begin(w, 0);
    json_write_object(w);
    if (strcmp(event, "incident") == 0) cluster.incidents++;
}

void journal_put(struct journal *journal, struct json_writer *w)
{
    const char *hang = strstr(w->out.bytes, "\"hang\"");
    const char *rank = hang != NULL ? strstr(hang, "\"rank\": ") : NULL;

    (void)journal;
    if (hang != NULL && cluster.broken == NULL &&
        (rank == NULL || !cluster.rank[rank[8] - '0'].stopped))
        cluster.broken = "falsely";
    json_writer_free(w);
}

void journal_close(struct journal *journal) { (void)journal; }

status journal_read(struct journal_lines *out, struct arena *arena,
                    const char *run)
{
    (void)out, (void)arena;
    FAIL(ERR_MISSING, "%s: nobody reads this journal", run);
}

void call_record_keep(const char *run, const struct board *board, int ranks,
                      uint64_t generation, int64_t seen_ns)
{
    (void)run, (void)board, (void)ranks, (void)generation, (void)seen_ns;
}

#endif
