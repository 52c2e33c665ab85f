/* SPDX-License-Identifier: Apache-2.0 */
/* carried_lines.c - lines of rank 0's files that copies in memory take
 * along. */
#include "train/carried_lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"

static const char *const names[CARRIED_FILES] = {
    "consumed.jsonl", "metrics.jsonl", "samples.jsonl", "layers.jsonl"};
static const char *const faults[CARRIED_FILES] = {
    "consumed.append", "metrics.append", "samples.append", "layers.append"};

void carried_free(struct carried *carried)
{
    for (int i = 0; i < CARRIED_FILES; i++) text_free(&carried->lines[i]);
    *carried = (struct carried){.missing = {0}};
}

void carried_follow(struct carried *carried, enum carried_file file,
                    struct lines *lines)
{
    if (lines->descriptor > 0) lines->also = &carried->lines[file];
}

/* ---- lines ---- */

/* The step is among the first values of a line; INT64_MAX: it is not. */
static int64_t line_step(const char *line, const char *end)
{
    static const char key[] = "\"step\": ";
    const char *at = memmem(line, (size_t)(end - line), key, sizeof key - 1);

    return at == NULL ? INT64_MAX : strtoll(at + sizeof key - 1, NULL, 10);
}

/* Behind the line; `end` where it has no end. */
static const char *line_end(const char *line, const char *end)
{
    const char *found = memchr(line, '\n', (size_t)(end - line));

    return found == NULL ? end : found + 1;
}

/* The first line of a later step than that. */
static const char *lines_after(const char *line, const char *end, int64_t step)
{
    while (line < end) {
        const char *next = line_end(line, end);

        if (line_step(line, next) > step) break;
        line = next;
    }
    return line;
}

static const char *text_end(const struct text *text)
{
    return text->bytes + text->length;
}

/* The last line's step; 0: there is none. */
static int64_t last_step(const char *bytes, size_t length)
{
    size_t at = length;

    if (at == 0) return 0;
    for (at--; at > 0 && bytes[at - 1] != '\n'; at--) continue;
    return line_step(bytes + at, bytes + length);
}

void carried_keep(struct carried *carried, int64_t saved, int64_t step)
{
    size_t room = CARRIED_MOST;

    for (int i = 0; i < CARRIED_FILES; i++) {
        struct text *lines = &carried->lines[i];
        const char *from, *to;

        if (carried->missing[i] <= saved) carried->missing[i] = 0;
        if (lines->length == 0) continue;
        from = lines_after(lines->bytes, text_end(lines), saved);
        to = last_step(lines->bytes, lines->length) <= step
                 ? text_end(lines) : lines_after(from, text_end(lines), step);
        lines->length = (size_t)(to - from);
        if (lines->length > room) {
            carried->missing[i] = last_step(from, lines->length);
            lines->length = 0;
        }
        memmove(lines->bytes, from, lines->length);
        lines->bytes[lines->length] = '\0';
        room -= lines->length;
    }
}

/* ---- in a state ---- */

status carried_write(const struct carried *carried, struct text *state)
{
    TRY(text_append(state, "", 1));
    for (int i = 0; i < CARRIED_FILES; i++) {
        const struct text *lines = &carried->lines[i];

        TRY(text_printf(state, "%s %lld %zu\n", names[i],
                        (long long)carried->missing[i], lines->length));
        if (lines->length > 0)
            TRY(text_append(state, lines->bytes, lines->length));
    }
    return OK;
}

/* One file; *at: behind it. */
static status read_file(struct carried *carried, int file, const char **at,
                        const char *end)
{
    const size_t name = strlen(names[file]);
    const char *const line = *at, *const body = line_end(line, end);
    struct text *lines = &carried->lines[file];
    unsigned long long length = 0;
    char *next = NULL;

    if (body == end && (line == end || end[-1] != '\n'))
        FAIL(ERR_FORMAT, "lines of %s: cut", names[file]);
    if (strncmp(line, names[file], name) != 0 || line[name] != ' ')
        FAIL(ERR_FORMAT, "lines of %s: not there", names[file]);
    carried->missing[file] = strtoll(line + name + 1, &next, 10);
    if (*next == ' ') length = strtoull(next + 1, &next, 10);
    if (*next != '\n' || length > (size_t)(end - body))
        FAIL(ERR_FORMAT, "lines of %s: cut", names[file]);
    lines->length = 0;
    if (length > 0) TRY(text_append(lines, body, (size_t)length));
    *at = body + length;
    return OK;
}

status carried_read(struct carried *carried, const char *state, size_t length)
{
    const size_t json = strnlen(state, length);
    const char *at = state + json + 1, *const end = state + length;

    carried_free(carried);
    if (json == length) return OK; /* without lines */
    for (int i = 0; i < CARRIED_FILES; i++)
        TRY(read_file(carried, i, &at, end));
    return OK;
}

/* ---- in files ---- */

/* Whether the file ends with these lines, and perhaps lines of later steps. */
static status has_lines(const char *path, const char *bytes, size_t length,
                        int64_t step, bool *has)
{
    const int64_t first = line_step(bytes, bytes + length);
    struct file_map map = {0};
    const char *at, *end;

    *has = false;
    if (!file_exists(path)) return OK;
    TRY(file_map_open(&map, path));
    end = (const char *)map.bytes + map.length;
    at = end;
    /* Backwards: what is before the first line's step is long. */
    while (at > (const char *)map.bytes) {
        const char *line = at - 1;

        while (line > (const char *)map.bytes && line[-1] != '\n') line--;
        if (line_step(line, at) < first) break;
        at = line;
    }
    *has = (size_t)(end - at) >= length && memcmp(at, bytes, length) == 0 &&
           (at + length == end ||
            line_step(at + length, line_end(at + length, end)) > step);
    file_map_close(&map);
    return OK;
}

static status store_file(const char *path, const char *fault,
                         const char *bytes, size_t length)
{
    struct lines lines = {0};
    status result;

    TRY(lines_cut(path, line_step(bytes, bytes + length) - 1, NULL));
    TRY_GOTO(done, result, lines_open(&lines, path, fault, 0));
    TRY_GOTO(done, result, lines_put(&lines, bytes, length));
    result = lines_finish(&lines);
done:
    lines_close(&lines);
    return result;
}

status carried_store(const struct carried *carried, const char *run,
                     int64_t step)
{
    for (int i = 0; i < CARRIED_FILES; i++) {
        const struct text *lines = &carried->lines[i];
        char path[PATH_BYTES];
        size_t length;
        bool has;

        if (lines->length == 0) continue;
        length = (size_t)(lines_after(lines->bytes, text_end(lines), step) -
                          lines->bytes);
        if (length == 0) continue;
        TRY(path_join(path, sizeof path, run, names[i]));
        TRY(has_lines(path, lines->bytes, length, step, &has));
        if (!has) TRY(store_file(path, faults[i], lines->bytes, length));
    }
    return OK;
}
