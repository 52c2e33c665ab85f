/* SPDX-License-Identifier: Apache-2.0 */
/* options_write.c - configurations as YAML and JSON, and the table of options
 * for readers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/options_table.h"

static const char *const origin_names[] = {
    [ORIGIN_DEFAULT] = "default",
    [ORIGIN_FILE] = "file",
    [ORIGIN_COMMAND_LINE] = "command line",
    [ORIGIN_ENVIRONMENT] = "environment",
    [ORIGIN_SEARCH] = "search",
    [ORIGIN_RUN] = "run",
};

/* May the text stand in YAML without quotes, alone and in a flow list? */
static bool is_plain(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_./+-";

    return text[0] != '\0' && text[0] != '-' && text[0] != '.' &&
           text[strspn(text, allowed)] == '\0';
}

/* Code points that YAML wants escaped: controls, line separators, the byte
 * order mark, non-characters. */
static bool needs_escape(uint32_t code)
{
    return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 ||
           code == 0x2029 || code == 0xFEFF || code == 0xFFFE ||
           code == 0xFFFF;
}

static status print_text(struct text *out, const char *text)
{
    const size_t length = strlen(text);

    if (is_plain(text)) {
        TRY(text_append(out, text, length));
        return OK;
    }
    TRY(text_append(out, "\"", 1));
    for (size_t at = 0; at < length;) {
        uint32_t code;
        const int step = text_utf8_decode(text + at, length - at, &code);

        if (code == '"' || code == '\\')
            TRY(text_printf(out, "\\%c", (int)code));
        else if (needs_escape(code))
            TRY(text_printf(out, "\\u%04" PRIx32, code));
        else
            TRY(text_append(out, text + at, (size_t)step));
        at += (size_t)step;
    }
    TRY(text_append(out, "\"", 1));
    return OK;
}

static status print_real(struct text *out, double value)
{
    char digits[40];

    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    TRY(text_append_string(out, digits));
    return OK;
}

status option_print(const struct options_set *set,
                    const struct option_row *row, struct text *out)
{
    const void *field = option_field(set, row);
    const struct option_list *list = field;

    switch (row->type) {
    case TYPE_INT:
        TRY(text_printf(out, "%" PRId64, *(const int64_t *)field));
        return OK;
    case TYPE_REAL: TRY(print_real(out, *(const double *)field)); return OK;
    case TYPE_BOOL:
        TRY(text_append_string(out, *(const bool *)field ? "true" : "false"));
        return OK;
    case TYPE_TEXT:
    case TYPE_SETS:
        TRY(print_text(out, *(const char *const *)field));
        return OK;
    case TYPE_LIST:
        TRY(text_append(out, "[", 1));
        for (int i = 0; i < list->count; i++) {
            if (i > 0) TRY(text_append(out, ", ", 2));
            TRY(print_text(out, list->items[i]));
        }
        TRY(text_append(out, "]", 1));
        return OK;
    }
    return OK;
}

/* Does a section begin with row i, and which? */
static const struct option_section *section_at(int i)
{
    const char *section = option_rows[i].section;

    if (section == NULL) return NULL;
    if (i > 0 && option_rows[i - 1].section != NULL &&
        strcmp(section, option_rows[i - 1].section) == 0)
        return NULL;
    return option_section_find(section);
}

status options_write_yaml(const struct options_set *set, struct text *out)
{
    for (int i = 0; i < option_count; i++) {
        const struct option_row *row = &option_rows[i];
        const struct option_section *section = section_at(i);

        if (section != NULL)
            TRY(text_printf(out, "\n%s: # %s\n", section->name,
                            section->help));
        TRY(text_printf(out, "%s%s: ", row->section != NULL ? "  " : "",
                        row->field));
        TRY(option_print(set, row, out));
        TRY(text_printf(out, " # %s\n", origin_names[set->origin[i]]));
    }
    return OK;
}

static status describe_range(const struct option_row *row, struct text *out)
{
    switch (row->type) {
    case TYPE_BOOL: TRY(text_append_string(out, "true or false")); break;
    case TYPE_TEXT: TRY(text_append_string(out, "text")); break;
    case TYPE_LIST: TRY(text_append_string(out, "list of texts")); break;
    case TYPE_SETS:
        TRY(text_append_string(out, "text, or lists with names"));
        break;
    case TYPE_INT:
    case TYPE_REAL:
        TRY(text_printf(out, "%.16g to %.16g", row->least, row->most));
        break;
    }
    return OK;
}

/* By enum option_free. */
static const char *const resume_words[] = {"stays", "may change",
                                           "may change, and differ by rank"};

static status describe_row(const struct options_set *defaults,
                           const struct option_row *row, bool markdown,
                           struct text *out)
{
    struct text value = {0}, range = {0};
    status result;

    TRY_GOTO(done, result, option_print(defaults, row, &value));
    if (row->unit[0] != '\0')
        TRY_GOTO(done, result, text_printf(&value, " %s", row->unit));
    TRY_GOTO(done, result, describe_range(row, &range));
    TRY_GOTO(done, result,
             markdown ? text_printf(out, "| `%s` | %s | %s | %s | %s |\n",
                                    row->name, value.bytes, range.bytes,
                                    resume_words[row->free], row->help)
                      : text_printf(out, "  %-23s %-16s %-26s %s\n",
                                    row->name, value.bytes, range.bytes,
                                    row->help));
done:
    text_free(&range);
    text_free(&value);
    return result;
}

status options_describe(struct text *out, bool markdown)
{
    struct options_set defaults;
    status result;

    TRY_GOTO(done, result, options_init(&defaults));
    for (int i = 0; i < option_count; i++) {
        const struct option_section *section = section_at(i);

        if (section != NULL)
            TRY_GOTO(done, result,
                     text_printf(out,
                                 markdown ? "\n## %s: %s\n\n" : "\n%s: %s\n",
                                 section->name, section->help));
        if (markdown && (section != NULL || i == 0))
            TRY_GOTO(done, result,
                     text_append_string(
                         out,
                         "| option | default | range | on resume | meaning |\n"
                         "|---|---|---|---|---|\n"));
        TRY_GOTO(done, result,
                 describe_row(&defaults, &option_rows[i], markdown, out));
    }
done:
    options_free(&defaults);
    return result;
}

/* ---- who set what, read back ---- */

enum { LINE_BYTES = 512 };

/* "  steps: 400 # file" in section train: the row and the origin. */
static void origin_of_line(struct options_set *set, const char *section,
                           char *line)
{
    char name[2 * LINE_BYTES];
    char *comment = NULL, *colon = strchr(line, ':');
    const struct option_row *row;

    for (char *at = line; (at = strstr(at, " # ")) != NULL; at += 3)
        comment = at; /* the last one: a value may hold others */
    if (colon == NULL || comment == NULL) return;
    *colon = '\0';
    snprintf(name, sizeof name, "%s%s%s", section, section[0] ? "." : "",
             line + strspn(line, " "));
    row = option_find(name);
    if (row == NULL || options_origin(set, name) != ORIGIN_RUN) return;
    for (int i = 0; i <= ORIGIN_RUN; i++)
        if (strcmp(comment + 3, origin_names[i]) == 0)
            set->origin[row - option_rows] = (unsigned char)i;
}

void options_read_origins(struct options_set *set, const char *text,
                          size_t length)
{
    char line[LINE_BYTES], section[LINE_BYTES] = "";
    const char *end = text + length;

    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const size_t bytes = (size_t)((stop != NULL ? stop : end) - text);

        if (bytes < LINE_BYTES) {
            memcpy(line, text, bytes);
            line[bytes] = '\0';
            if (line[0] != ' ') section[0] = '\0';
            origin_of_line(set, section, line);
            if (line[0] != ' ') /* a section begins, or a value of none */
                snprintf(section, sizeof section, "%s", line);
        }
        text += bytes + 1;
    }
}
