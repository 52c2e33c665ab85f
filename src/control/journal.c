/* SPDX-License-Identifier: Apache-2.0 */
/* journal.c - RUN/control/journal.jsonl. */
#include "control/journal.h"

#include <string.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_kept.h"

enum { JOURNAL_BYTES_MOST = 256 << 20 };

void journal_begin(struct journal *journal, const char *run)
{
    *journal = (struct journal){.run = run};
}

/* The wall's when this process first asked, and as much later as has passed: a
 * clock that is set in the midst of a run changes no duration. */
static double time_s(void)
{
    static double began_s, ahead_s;

    if (began_s <= 0) {
        began_s = clock_s();
        ahead_s = clock_wall_s() - began_s;
    }
    return ahead_s + clock_s();
}

void journal_line(struct json_writer *w, const char *event)
{
    json_write_begin(w, 0);
    json_write_object(w);
    json_write_key(w, "event");
    json_write_string(w, event);
    json_write_key_real(w, "time", time_s());
}

static void say_once(struct journal *journal, status result)
{
    if (result != OK)
        LOG(WARNING, "supervise", "%s/control: %s", journal->run,
            status_message());
}

void journal_put(struct journal *journal, struct json_writer *w)
{
    struct text line = {0};
    struct status_trace kept; /* of a failure that is being recorded */
    status result;

    status_keep(&kept);
    json_write_object_end(w);
    result = json_write_line(w, &line);
    json_writer_free(w);
    if (result == OK && journal->open)
        result = lines_put(&journal->lines, line.bytes, line.length);
    else if (result == OK)
        result = text_append(&journal->early, line.bytes, line.length);
    text_free(&line);
    say_once(journal, result);
    (void)status_again(OK, &kept);
    journal_poll(journal);
}

static status lock_path(const char *run, char directory[PATH_BYTES],
                        char path[PATH_BYTES])
{
    TRY(path_join(directory, PATH_BYTES, run, "control"));
    return path_join(path, PATH_BYTES, directory, "lock");
}

status journal_claim(struct journal *journal)
{
    char directory[PATH_BYTES], path[PATH_BYTES];

    TRY(lock_path(journal->run, directory, path));
    TRY(directory_make_own(directory));
    TRY(file_lock_take(&journal->lock, path));
    return OK;
}

status journal_unclaimed(const char *run)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    status result;

    TRY(lock_path(run, directory, path));
    result = file_lock_look(path);
    if (result != ERR_CONFIG) return result;
    return status_hint(result, "a supervisor has the run, and starts its "
                       "ranks again by itself: lockstep status %s", run);
}

void journal_forget(struct journal *journal)
{
    file_lock_drop(&journal->lock);
}

static status journal_start(struct journal *journal)
{
    char config[PATH_BYTES], directory[PATH_BYTES], path[PATH_BYTES];

    TRY(path_join(config, sizeof config, journal->run, "config.yaml"));
    if (!journal->elsewhere && !file_exists(config)) return OK;
    if (journal->lock.descriptor <= 0) TRY(journal_claim(journal));
    TRY(path_join(directory, sizeof directory, journal->run, "control"));
    TRY(path_join(path, sizeof path, directory, "journal.jsonl"));
    TRY(lines_open(&journal->lines, path, "journal.append", 0));
    journal->open = true;
    if (journal->early.length > 0)
        TRY(lines_put(&journal->lines, journal->early.bytes,
                      journal->early.length));
    text_free(&journal->early);
    return OK;
}

void journal_poll(struct journal *journal)
{
    struct status_trace kept;

    if (journal->open) return;
    status_keep(&kept);
    (void)journal_start(journal); /* asked again at the next look */
    (void)status_again(OK, &kept);
}

void journal_close(struct journal *journal)
{
    if (journal->open) lines_close(&journal->lines);
    text_free(&journal->early);
    file_lock_drop(&journal->lock);
    *journal = (struct journal){0};
}

static status read_lines(struct journal_lines *out, struct arena *arena,
                         const struct text *text, const char *path)
{
    int count = 0;
    void *items;

    for (size_t i = 0; i < text->length; i++) count += text->bytes[i] == '\n';
    TRY(arena_take_array(arena, (size_t)count + 1, sizeof *out->items,
                         &items));
    out->items = items;
    for (size_t at = 0; at < text->length;) {
        const char *line = text->bytes + at;
        const char *end = memchr(line, '\n', text->length - at);

        if (end == NULL) break; /* torn */
        if (json_read(&out->items[out->count], arena, line,
                      (size_t)(end - line), path) == OK)
            out->count++;
        else
            status_clear(); /* torn by a crash, and another line behind it */
        at += (size_t)(end - line) + 1;
    }
    return OK;
}

status journal_read(struct journal_lines *out, struct arena *arena,
                    const char *run)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    struct text text = {0};
    status result;

    *out = (struct journal_lines){0};
    TRY(path_join(directory, sizeof directory, run, "control"));
    TRY(path_join(path, sizeof path, directory, "journal.jsonl"));
    if (!file_exists(path))
        FAIL(ERR_MISSING, "%s: there is no %s: the run was never supervised "
             "(lockstep train ... --supervised)", run, path);
    TRY(file_read_own(path, JOURNAL_BYTES_MOST, &text));
    result = read_lines(out, arena, &text, path);
    text_free(&text);
    return result;
}
