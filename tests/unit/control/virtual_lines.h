/* SPDX-License-Identifier: Apache-2.0 */
/* virtual_lines.h - a journal in memory, for one test, that the next supervisor
 * reads. */
#ifndef LOCKSTEP_TESTS_VIRTUAL_LINES_H
#define LOCKSTEP_TESTS_VIRTUAL_LINES_H

#include <string.h>
#include "control/call_record.h"
#include "control/watch.h"
#include "tests/unit/control/virtual_net.h"

static struct written {
    struct text text;
    struct supervisor *leader; /* who writes */
    struct arena *reads;       /* of a supervisor that reads */
    int incidents, generations;
} written;

static void written_clear(void)
{
    text_free(&written.text);
    written = (struct written){0};
}

void journal_begin(struct journal *journal, const char *where)
{
    *journal = (struct journal){.run = where};
    written.leader = (struct supervisor *)((char *)(uintptr_t)journal -
                                       offsetof(struct supervisor, journal));
}

void journal_forget(struct journal *journal) { (void)journal; }
void journal_poll(struct journal *journal) { (void)journal; }
status journal_claim(struct journal *journal) { (void)journal; return OK; }
void journal_close(struct journal *journal) { (void)journal; }

void journal_line(struct json_writer *w, const char *event)
{
    json_write_begin(w, 0);
    json_write_object(w);
    json_write_key_text(w, "event", event);
    json_write_key_real(w, "time", 1e-9 * (double)net.now_ns);
    written.incidents += strcmp(event, "incident") == 0;
    written.generations += strcmp(event, "start") == 0;
}

void journal_put(struct journal *journal, struct json_writer *w)
{
    (void)journal;
    json_write_object_end(w);
    CHECK(json_write_line(w, &written.text) == OK);
    json_writer_free(w);
}

status journal_read(struct journal_lines *out, struct arena *arena,
                    const char *where)
{
    const char *at = written.text.length > 0 ? written.text.bytes : "";
    const char *end = at + written.text.length;
    void *items;

    (void)where;
    written.reads = arena;
    *out = (struct journal_lines){0};
    TRY(arena_take_array(arena, written.text.length / 8 + 1,
                         sizeof *out->items, &items));
    out->items = items;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));

        TRY(json_read(&out->items[out->count++], arena, at,
                      (size_t)(stop - at), "journal"));
        at = stop + 1;
    }
    return OK;
}

void call_record_keep(const char *run, const struct board *board, int ranks,
                      uint64_t generation, int64_t seen_ns)
{
    (void)run, (void)board, (void)ranks, (void)generation, (void)seen_ns;
}

#endif
