/* SPDX-License-Identifier: Apache-2.0 */
/* named_rows.c - rows of an option that begin with a name. */
#include "data/named_rows.h"

#include <string.h>

enum { ROWS_MAX = 1000, NAME_MOST = 48 };

char *named_word(char **row)
{
    char *at = *row + strspn(*row, " \t");
    const char *ends = " \t";

    if (*at == '\0') return NULL;
    if (*at == '"') {
        at++;
        ends = "\"";
    }
    *row = at + strcspn(at, ends);
    if (**row != '\0') *(*row)++ = '\0';
    return at;
}

static status check_name(const struct named_rows *rows, int index,
                         const struct named_form *form)
{
    static const char *const letters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    const char *name = rows->items[index].name;
    const size_t length = strlen(name);

    if (length == 0 || length > NAME_MOST || strspn(name, letters) != length)
        FAIL(ERR_CONFIG, "%s, row %d: '%.60s' is not a name; expected up to %d "
             "letters, digits, - or _", form->option, index + 1, name,
             NAME_MOST);
    for (int i = 0; i < index; i++)
        if (strcmp(rows->items[i].name, name) == 0)
            FAIL(ERR_CONFIG, "%s: two rows are named '%s'", form->option,
                 name);
    return OK;
}

static status read_row(struct named_rows *rows, int index,
                       const struct named_form *form, const char *text)
{
    struct named_row *row = &rows->items[index];
    char *rest, *word;
    void *memory;

    TRY(arena_copy_text(&rows->arena, text, &rest));
    row->name = named_word(&rest);
    if (row->name == NULL)
        FAIL(ERR_CONFIG, "%s, row %d is empty; expected %s", form->option,
             index + 1, form->form);
    TRY(check_name(rows, index, form));
    TRY(arena_take_array(&rows->arena, strlen(text) / 2 + 1,
                         sizeof *row->words, &memory));
    row->words = memory;
    while ((word = named_word(&rest)) != NULL) row->words[row->count++] = word;
    if (row->count < form->least || row->count > form->most)
        FAIL(ERR_CONFIG, "%s, row %d: '%s' has %d words; expected %s",
             form->option, index + 1, text, row->count + 1, form->form);
    return OK;
}

status named_read(struct named_rows *rows, const struct named_form *form,
                  const char *const *texts, int count)
{
    void *memory;

    *rows = (struct named_rows){0};
    arena_init(&rows->arena, form->option, 0);
    if (count > ROWS_MAX)
        FAIL(ERR_CONFIG, "%s: %d rows, at most %d are possible", form->option,
             count, ROWS_MAX);
    if (count == 0) return OK;
    TRY(arena_take_array(&rows->arena, (size_t)count, sizeof *rows->items,
                         &memory));
    rows->items = memory;
    rows->count = count;
    for (int i = 0; i < count; i++) TRY(read_row(rows, i, form, texts[i]));
    return OK;
}

void named_free(struct named_rows *rows)
{
    arena_free(&rows->arena);
    *rows = (struct named_rows){0};
}
