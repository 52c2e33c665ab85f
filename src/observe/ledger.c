/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c - RUN/ledger.jsonl: what a run did about steps that went wrong. */
#include "observe/ledger.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"

static const size_t ledger_bytes_max = (size_t)64 << 20;

static status ledger_path(const char *run, char path[PATH_BYTES])
{
    return path_join(path, PATH_BYTES, run, "ledger.jsonl");
}

void ledger_close(struct ledger *ledger)
{
    lines_close(&ledger->file);
    memory_free(ledger->events);
    *ledger = (struct ledger){0};
}

static status keep(struct ledger *ledger, const struct ledger_event *event)
{
    void *events = ledger->events;

    if (ledger->count == ledger->capacity) {
        const int64_t capacity = 2 * ledger->capacity + 16;

        TRY(memory_grow(&events, (size_t)capacity, sizeof *ledger->events));
        ledger->events = events;
        ledger->capacity = capacity;
    }
    ledger->events[ledger->count++] = *event;
    ledger->undone += event->verdict.action != POLICY_WARN;
    return OK;
}

/* ---- lines ---- */

static status format(struct text *out, int64_t number,
                     const struct ledger_event *event)
{
    const struct policy_verdict *v = &event->verdict;
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 0);
    json_write_object(&w);
    json_write_key_integer(&w, "event", number);
    json_write_key_integer(&w, "step", event->step);
    json_write_key(&w, "cause");
    json_write_string(&w, policy_causes[v->cause]);
    json_write_key(&w, "what");
    json_write_string(&w, policy_subjects[v->what]);
    json_write_key_real(&w, "value", v->value);
    json_write_key_real(&w, "threshold", v->threshold);
    json_write_key(&w, "action");
    json_write_string(&w, policy_action_name(v->action));
    json_write_key_integer(&w, "back_to", event->back_to);
    json_write_key_integer(&w, "first", event->first);
    json_write_key_integer(&w, "samples", event->samples);
    json_write_object_end(&w);
    result = json_write_line(&w, out);
    json_writer_free(&w);
    return result;
}

/* The number of the word among `words` that object[key] is. */
static status read_word(const struct json *object, const char *source,
                        const char *key, const char *const *words, int *out)
{
    const char *found;

    TRY(json_get_string(object, source, key, &found));
    for (int i = 0; words[i] != NULL; i++) {
        *out = i;
        if (strcmp(found, words[i]) == 0) return OK;
    }
    FAIL(ERR_FORMAT, "%s: %s is \"%s\", which this program does not know",
         source, key, found);
}

static status read_action(const struct json *object, const char *source,
                          enum policy_action *out)
{
    static const enum policy_action known[] = {POLICY_WARN, POLICY_SKIP,
                                               POLICY_REWIND, POLICY_REPLAY};
    const char *const words[] = {
        policy_action_name(known[0]), policy_action_name(known[1]),
        policy_action_name(known[2]), policy_action_name(known[3]), NULL};
    int found;

    TRY(read_word(object, source, "action", words, &found));
    *out = known[found];
    return OK;
}

static status read_event(struct ledger_event *event, struct arena *scratch,
                         const char *line, size_t length, const char *source)
{
    struct policy_verdict *v = &event->verdict;
    const double none = (double)NAN;
    const struct json *object;
    int found;

    TRY(json_read(&object, scratch, line, length, source));
    TRY(json_get_integer(object, source, "step", &event->step));
    TRY(read_word(object, source, "cause", policy_causes + 1, &found));
    v->cause = (enum policy_cause)(found + 1);
    TRY(read_word(object, source, "what", policy_subjects, &found));
    v->what = (enum policy_subject)found;
    TRY(json_get_real_or(object, source, "value", none, &v->value));
    TRY(json_get_real_or(object, source, "threshold", none, &v->threshold));
    TRY(read_action(object, source, &v->action));
    TRY(json_get_integer(object, source, "back_to", &event->back_to));
    TRY(json_get_integer(object, source, "first", &event->first));
    TRY(json_get_integer(object, source, "samples", &event->samples));
    if (event->first >= 0 && event->samples > 0 &&
        event->first <= INT64_MAX / 2 && event->samples <= INT64_MAX / 2)
        return OK;
    FAIL(ERR_FORMAT, "%s: %lld samples from %lld are not a range", source,
         (long long)event->samples, (long long)event->first);
}

/* All whole lines; *kept: their bytes. */
static status read_lines(struct ledger *ledger, const char *path,
                         const struct text *text, size_t *kept)
{
    struct arena scratch = {0};
    status result = OK;

    *kept = 0;
    arena_init(&scratch, "ledger line", 0);
    while (*kept < text->length) {
        const char *line = text->bytes + *kept;
        const char *end = memchr(line, '\n', text->length - *kept);
        struct ledger_event event = {0};
        char source[PATH_BYTES + 32];

        if (end == NULL) break; /* torn by a kill: it was not acted on */
        snprintf(source, sizeof source, "%s: line %lld", path,
                 (long long)ledger->count + 1);
        TRY_GOTO(done, result, read_event(&event, &scratch, line,
                                          (size_t)(end - line), source));
        TRY_GOTO(done, result, keep(ledger, &event));
        arena_reset(&scratch);
        *kept += (size_t)(end - line) + 1;
    }
done:
    arena_free(&scratch);
    return result;
}

status ledger_open(struct ledger *ledger, const char *run, bool repair)
{
    struct text text = {0};
    char path[PATH_BYTES];
    size_t kept;
    status result;

    *ledger = (struct ledger){0};
    TRY(ledger_path(run, path));
    if (!file_exists(path)) return OK;
    TRY_GOTO(done, result, file_read_regular(path, ledger_bytes_max, &text));
    TRY_GOTO(done, result, read_lines(ledger, path, &text, &kept));
    if (repair && kept < text.length) /* a torn line */
        TRY_GOTO(done, result, file_cut(path, (int64_t)kept));
done:
    text_free(&text);
    return result;
}

/* ---- appending ---- */

static bool is_same(const struct ledger_event *a, const struct ledger_event *b)
{
    return a->verdict.action != POLICY_REPLAY && /* each is one of its own */
           a->step == b->step && a->verdict.action == b->verdict.action &&
           a->verdict.cause == b->verdict.cause &&
           a->verdict.what == b->verdict.what &&
           a->first == b->first && a->samples == b->samples;
}

status ledger_append(struct ledger *ledger, const char *run, bool writes,
                     const struct ledger_event *event, bool *known)
{
    struct text line = {0};
    char path[PATH_BYTES];
    status result;

    *known = true;
    for (int64_t i = 0; i < ledger->count; i++)
        if (is_same(&ledger->events[i], event)) return OK;
    *known = false;
    TRY(keep(ledger, event));
    if (!writes) return OK;
    TRY_GOTO(done, result, format(&line, ledger->count, event));
    if (ledger->file.descriptor <= 0) {
        TRY_GOTO(done, result, ledger_path(run, path));
        TRY_GOTO(done, result, lines_open(&ledger->file, path,
                                          "ledger.append", 0));
    }
    TRY_GOTO(done, result, lines_put(&ledger->file, line.bytes, line.length));
    (void)fsync(ledger->file.descriptor); /* as far as it goes */
done:
    text_free(&line);
    return result;
}

status ledger_ranges(const struct ledger *ledger, struct ranges *ranges)
{
    for (int64_t i = 0; i < ledger->count; i++) {
        const struct ledger_event *event = &ledger->events[i];

        if (event->verdict.action != POLICY_WARN &&
            event->verdict.action != POLICY_REPLAY)
            TRY(ranges_add(ranges, event->first,
                           event->first + event->samples));
    }
    return OK;
}
