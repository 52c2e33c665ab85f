/* SPDX-License-Identifier: Apache-2.0 */
/* changes.c - options whose values differ from those before a run was
 * resumed. */
#include "train/changes.h"

#include <inttypes.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "observe/notes.h"

enum { CONFIG_BYTES_MOST = 1 << 20 };

/* Names of places, which differ with the directory in which one stands. */
static bool is_place(const char *name)
{
    return strcmp(name, "run.dir") == 0 || text_ends_with(name, ".from");
}

static status add_change(struct text *words, const char *name,
                         const struct options_set *before,
                         const struct options_set *now)
{
    struct text was = {0}, is = {0};
    status result;

    TRY_GOTO(done, result, options_get_text(before, name, &was));
    TRY_GOTO(done, result, options_get_text(now, name, &is));
    if (strcmp(was.bytes, is.bytes) != 0)
        TRY_GOTO(done, result, text_printf(words, "%s %s: %s, was %s",
                                           words->length > 0 ? ";" : "", name,
                                           is.bytes, was.bytes));
done:
    text_free(&was);
    text_free(&is);
    return result;
}

static status compare(struct text *words, const char *config,
                      const struct options_set *now)
{
    struct options_set before = {0};
    struct text text = {0};
    status result;

    TRY_GOTO(done, result, options_init(&before));
    TRY_GOTO(done, result,
             file_read_regular(config, CONFIG_BYTES_MOST, &text));
    TRY_GOTO(done, result, options_read_text(&before, text.bytes, text.length,
                                             config, ORIGIN_RUN));
    for (int i = 0; i < options_count(); i++) {
        const char *name = option_name(i);

        if (!is_place(name))
            TRY_GOTO(done, result, add_change(words, name, &before, now));
    }
done:
    options_free(&before);
    text_free(&text);
    return result;
}

void changes_note(const char *run, const char *config,
                  const struct options_set *now, int64_t step)
{
    struct text words = {0}, note = {0};
    status result = compare(&words, config, now);

    if (result == OK && words.length > 0)
        result = text_printf(&note, "resumed after step %" PRId64 " with%.*s",
                             step, NOTE_BYTES_MOST - 64, words.bytes);
    if (result == OK && note.length > 0) result = note_add(run, note.bytes);
    if (result != OK) {
        LOG(WARNING, "notes", "changed options are not noted: %s",
            status_message());
        status_clear();
    }
    text_free(&words);
    text_free(&note);
}
