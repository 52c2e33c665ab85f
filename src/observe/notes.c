/* SPDX-License-Identifier: Apache-2.0 */
/* notes.c - RUN/notes.jsonl. */
#include "observe/notes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/json.h"
#include "observe/metrics.h"

enum { NOTES_BYTES_MOST = 64 << 20 };

static status path_of(const char *run, char path[PATH_BYTES])
{
    return path_join(path, PATH_BYTES, run, "notes.jsonl");
}

/* The newest step of the metrics. */
static status newest_step(const char *run, int64_t *step)
{
    struct metrics_table table;
    struct arena arena;
    char path[PATH_BYTES];
    status result;

    *step = 0;
    arena_init(&arena, "metrics", 0);
    TRY_GOTO(done, result, path_join(path, sizeof path, run,
                                     "metrics.jsonl"));
    TRY_GOTO(done, result, metrics_read(&table, &arena, path));
    for (int64_t i = 0; i < table.count; i++)
        if (table.rows[i].step > *step) *step = table.rows[i].step;
done:
    arena_free(&arena);
    return result;
}

/* One write, so that lines of two people do not mix; a torn line of before gets
 * an end. */
static status append(const char *path, const struct text *line)
{
    struct text whole = {0};
    char last = '\n';
    int descriptor;
    off_t end;
    status result;

    TRY(file_open_own(path, O_RDWR | O_CREAT | O_APPEND, &descriptor));
    end = lseek(descriptor, 0, SEEK_END);
    if (end > 0 && pread(descriptor, &last, 1, end - 1) != 1) last = '\n';
    if (last != '\n') TRY_GOTO(done, result, text_append(&whole, "\n", 1));
    TRY_GOTO(done, result, text_append(&whole, line->bytes, line->length));
    TRY_GOTO(done, result, file_put(descriptor, path, whole.bytes,
                                    whole.length));
    if (fsync(descriptor) != 0) result = file_fail("writing", path, errno);
done:
    close(descriptor);
    text_free(&whole);
    return result;
}

static status check_words(const char *words)
{
    size_t bad;

    if (words[strspn(words, " \t\r\n")] == '\0')
        FAIL(ERR_CONFIG, "a note has no text");
    if (strlen(words) > NOTE_BYTES_MOST)
        FAIL(ERR_CONFIG, "a note of %zu bytes; at most %d fit", strlen(words),
             NOTE_BYTES_MOST);
    if (text_utf8_invalid(words, strlen(words), &bad))
        FAIL(ERR_CONFIG, "a note is no UTF-8: byte %zu", bad);
    return OK;
}

status note_add(const char *run, const char *words)
{
    struct json_writer w = {0};
    struct text line = {0};
    char path[PATH_BYTES];
    int64_t step;
    status result;

    TRY(check_words(words));
    TRY(path_of(run, path));
    TRY(newest_step(run, &step));
    json_write_begin(&w, 0);
    json_write_object(&w);
    json_write_key_integer(&w, "time", (int64_t)time(NULL));
    json_write_key_integer(&w, "step", step);
    json_write_key_text(&w, "text", words);
    json_write_object_end(&w);
    TRY_GOTO(done, result, json_write_line(&w, &line));
    result = append(path, &line);
done:
    json_writer_free(&w);
    text_free(&line);
    return result;
}

static status read_line(struct notes *notes, struct arena *arena,
                        const char *line, size_t length, const char *path)
{
    struct note *note = &notes->items[notes->count];
    const struct json *object;

    TRY(json_read(&object, arena, line, length, path));
    TRY(json_get_integer(object, path, "time", &note->time));
    TRY(json_get_integer(object, path, "step", &note->step));
    TRY(json_get_string(object, path, "text", &note->text));
    notes->count++;
    return OK;
}

static status read_notes(struct notes *notes, struct arena *arena,
                         const struct text *text, const char *path)
{
    size_t lines = 0;
    void *items;

    for (size_t i = 0; i < text->length; i++) lines += text->bytes[i] == '\n';
    TRY(arena_take_array(arena, lines + 1, sizeof *notes->items, &items));
    notes->items = items;
    for (size_t at = 0; at < text->length;) {
        const char *line = text->bytes + at;
        const char *end = memchr(line, '\n', text->length - at);

        if (end == NULL) break; /* torn */
        if (read_line(notes, arena, line, (size_t)(end - line), path) != OK)
            status_clear(); /* torn, and another line behind it */
        at += (size_t)(end - line) + 1;
    }
    return OK;
}

status notes_read(struct notes *notes, struct arena *arena, const char *run)
{
    struct text text = {0};
    char path[PATH_BYTES];
    status result;

    *notes = (struct notes){0};
    TRY(path_of(run, path));
    if (!file_exists(path)) return OK;
    TRY(file_read_own(path, NOTES_BYTES_MOST, &text));
    result = read_notes(notes, arena, &text, path);
    text_free(&text);
    return result;
}
