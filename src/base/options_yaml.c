/* SPDX-License-Identifier: Apache-2.0 */
/* options_yaml.c - reading a configuration from YAML.
 *
 * libyaml gives events; the table of options says what each scalar is. A file
 * is one mapping of options and sections, a section one mapping of fields.
 * "section.field: value" is accepted as well. What configurations do not need
 * (anchors, aliases, tags, several documents) is refused. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>
#include "base/file.h"
#include "base/options_table.h"

enum { YAML_BYTES_MAX = 1 << 20, PLACE_BYTES = 256 };

struct yaml_reader {
    struct options_set *set;
    const char *source;
    enum option_origin origin;
    yaml_parser_t parser;
    yaml_event_t event; /* the last one; deleted by the next */
    bool has_event;
    int depth;          /* mappings that are open, at most 2 */
    char prefix[OPTION_NAME_BYTES]; /* "model." inside that section */
    char name[OPTION_NAME_BYTES];   /* of the value being read */
    char place[PLACE_BYTES];        /* "file:3: ", of the key being read */
    int *lines;         /* owned; [options + sections] where set, 0: not yet */
    const char **items; /* owned; of the list being read */
    int item_count, item_capacity;
};

static void say_place(struct yaml_reader *r, size_t line)
{
    snprintf(r->place, sizeof r->place, "%.200s:%zu: ", r->source, line + 1);
}

static status hint_quotes(status result)
{
    return status_hint(result, "quote a text that begins with *: \"*norm* "
                               "frozen\"");
}

/* Whether the line, from 0, has a tab among what indents it. */
static bool is_tabbed(const struct yaml_reader *r, size_t line)
{
    const unsigned char *at = r->parser.input.string.start;
    const unsigned char *end = r->parser.input.string.end;

    for (; line > 0 && at < end; at++) line -= *at == '\n';
    while (at < end && *at == ' ') at++;
    return at < end && *at == '\t';
}

static status fail_syntax(struct yaml_reader *r)
{
    const size_t line = r->parser.problem_mark.line;
    const char *context = r->parser.context;
    status result;

    say_place(r, line);
    if (is_tabbed(r, line))
        FAIL(ERR_CONFIG, "%snot YAML: a tab at the beginning of the line; "
             "YAML is indented with spaces", r->place);
    result = status_fail(ERR_CONFIG, __FILE__, __LINE__, "%snot YAML: %s",
                         r->place, r->parser.problem != NULL
                                       ? r->parser.problem : "unreadable");
    if (context != NULL && strstr(context, "alias") != NULL)
        return hint_quotes(result);
    return result;
}

/* Reads the next event into r->event. */
static status next(struct yaml_reader *r)
{
    const char *refused = NULL;

    if (r->has_event) yaml_event_delete(&r->event);
    r->has_event = false;
    if (!yaml_parser_parse(&r->parser, &r->event)) return fail_syntax(r);
    r->has_event = true;
    switch (r->event.type) {
    case YAML_ALIAS_EVENT: refused = "an alias (*name)"; break;
    case YAML_SCALAR_EVENT:
        if (r->event.data.scalar.anchor != NULL) refused = "an anchor (&name)";
        if (r->event.data.scalar.tag != NULL) refused = "a tag (!name)";
        break;
    case YAML_SEQUENCE_START_EVENT:
        if (r->event.data.sequence_start.anchor != NULL)
            refused = "an anchor (&name)";
        if (r->event.data.sequence_start.tag != NULL)
            refused = "a tag (!name)";
        break;
    case YAML_MAPPING_START_EVENT:
        if (r->event.data.mapping_start.anchor != NULL)
            refused = "an anchor (&name)";
        if (r->event.data.mapping_start.tag != NULL)
            refused = "a tag (!name)";
        break;
    default: break;
    }
    if (refused != NULL) {
        status result;

        say_place(r, r->event.start_mark.line);
        result = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                             "%s%s has no meaning in a configuration",
                             r->place, refused);
        return r->event.type == YAML_ALIAS_EVENT ? hint_quotes(result)
                                                 : result;
    }
    return OK;
}

static const char *event_words(yaml_event_type_t type)
{
    switch (type) {
    case YAML_SCALAR_EVENT: return "a value";
    case YAML_SEQUENCE_START_EVENT: return "a list";
    case YAML_MAPPING_START_EVENT: return "a mapping";
    default: return "the end";
    }
}

/* The text of the scalar event, which lives until the next event. */
static status scalar_text(struct yaml_reader *r, const char **out)
{
    const char *text = (const char *)r->event.data.scalar.value;

    if (strlen(text) != r->event.data.scalar.length)
        FAIL(ERR_CONFIG, "%s%s holds a character U+0000", r->place, r->name);
    *out = text;
    return OK;
}

/* A key may stand once: `lines` remembers where it stood. */
static status mark(struct yaml_reader *r, int index, size_t line)
{
    if (r->lines[index] != 0)
        FAIL(ERR_CONFIG, "%s%s was already set in line %d", r->place, r->name,
             r->lines[index]);
    r->lines[index] = (int)line + 1;
    return OK;
}

static status add_item(struct yaml_reader *r)
{
    const char *text;
    char *copy;

    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL(ERR_CONFIG, "%s%s: a list holds values, found %s in it", r->place,
             r->name, event_words(r->event.type));
    TRY(scalar_text(r, &text));
    TRY(arena_copy_text(&r->set->arena, text, &copy));
    if (r->item_count == r->item_capacity) {
        void *grown = r->items;

        r->item_capacity = r->item_capacity == 0 ? 16 : 2 * r->item_capacity;
        TRY(memory_grow(&grown, (size_t)r->item_capacity, sizeof *r->items));
        r->items = grown;
    }
    r->items[r->item_count++] = copy;
    return OK;
}

/* The list whose start is the current event, into r->items. */
static status read_list(struct yaml_reader *r)
{
    r->item_count = 0;
    for (;;) {
        TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT) return OK;
        TRY(add_item(r));
    }
}

/* A value of a mapping: a text, or a list. */
static status put_value(struct yaml_reader *r, struct text *out)
{
    const char *text;

    if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        TRY(read_list(r));
        TRY(text_append_string(out, "["));
        for (int i = 0; i < r->item_count; i++)
            TRY(text_printf(out, "%s%s", i > 0 ? ", " : "", r->items[i]));
        return text_append_string(out, "]");
    }
    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL(ERR_CONFIG, "%s%s: names have values or lists, found %s",
             r->place, r->name, event_words(r->event.type));
    TRY(scalar_text(r, &text));
    return text_append_string(out, text);
}

/* The mapping whose start is the current event, as the text of one line. */
static status put_sets(struct yaml_reader *r, struct text *out)
{
    const char *key, *comma = "";

    TRY(text_append_string(out, "{"));
    for (;; comma = ", ") {
        TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return text_append_string(out, "}");
        if (r->event.type != YAML_SCALAR_EVENT)
            FAIL(ERR_CONFIG, "%s%s: expected a name, found %s", r->place,
                 r->name, event_words(r->event.type));
        TRY(scalar_text(r, &key));
        TRY(text_printf(out, "%s%s: ", comma, key));
        TRY(next(r));
        TRY(put_value(r, out));
    }
}

static status read_sets(struct yaml_reader *r, const struct option_row *row)
{
    struct text text = {0};
    const char *item;
    status result = put_sets(r, &text);

    if (result == OK) {
        item = text.bytes;
        result = option_store(r->set, row,
                              (struct option_value){&item, 1, false},
                              r->origin, r->place);
    }
    text_free(&text);
    return result;
}

static status read_option(struct yaml_reader *r, const struct option_row *row)
{
    struct option_value value = {0};
    const char *text;

    if (r->event.type == YAML_MAPPING_START_EVENT && row->type == TYPE_SETS)
        return read_sets(r, row);
    if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        TRY(read_list(r));
        value = (struct option_value){r->items, r->item_count, true};
    } else if (r->event.type == YAML_SCALAR_EVENT) {
        TRY(scalar_text(r, &text));
        value = (struct option_value){&text, 1, false};
    } else {
        FAIL(ERR_CONFIG, "%s%s needs a value, found %s", r->place, row->name,
             event_words(r->event.type));
    }
    TRY(option_store(r->set, row, value, r->origin, r->place));
    return OK;
}

static status enter_section(struct yaml_reader *r)
{
    if (r->event.type == YAML_SCALAR_EVENT &&
        r->event.data.scalar.length == 0)
        return OK; /* "section:" with nothing under it */
    if (r->event.type == YAML_SCALAR_EVENT && option_short(r->name) != NULL)
        return read_option(r, option_short(r->name));
    if (r->event.type != YAML_MAPPING_START_EVENT)
        TRY(option_unknown(r->place, r->name));
    /* Sections stand at the top, so that is as deep as it goes: a name with a
     * dot is no section's. */
    r->depth++;
    snprintf(r->prefix, sizeof r->prefix, "%.60s.", r->name);
    return OK;
}

/* One key, which is the current event, and its value. */
static status read_pair(struct yaml_reader *r)
{
    const size_t line = r->event.start_mark.line;
    const struct option_section *section;
    const struct option_row *row;
    const char *key;

    say_place(r, line);
    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL(ERR_CONFIG, "%sexpected the name of an option, found %s",
             r->place, event_words(r->event.type));
    snprintf(r->name, sizeof r->name, "a key");
    TRY(scalar_text(r, &key));
    snprintf(r->name, sizeof r->name, "%.60s%.60s", r->prefix, key);
    row = option_find(r->name);
    section = option_section_find(r->name);
    if (row == NULL && section == NULL)
        TRY(option_unknown(r->place, r->name));
    TRY(mark(r, row != NULL ? (int)(row - option_rows)
                            : option_count + (int)(section - option_sections),
             line));
    TRY(next(r));
    if (row != NULL)
        TRY(read_option(r, row));
    else
        TRY(enter_section(r));
    return OK;
}

static status read_mapping(struct yaml_reader *r)
{
    r->depth = 1;
    while (r->depth > 0) {
        TRY(next(r));
        if (r->event.type != YAML_MAPPING_END_EVENT) {
            TRY(read_pair(r));
            continue;
        }
        r->depth--;
        r->prefix[0] = '\0';
    }
    return OK;
}

static status read_all(struct yaml_reader *r)
{
    TRY(next(r)); /* the stream begins */
    TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT) return OK; /* nothing in it */
    TRY(next(r));
    if (r->event.type == YAML_SCALAR_EVENT &&
        r->event.data.scalar.length == 0) {
        TRY(next(r)); /* comments alone between two markers */
    } else if (r->event.type != YAML_MAPPING_START_EVENT) {
        say_place(r, r->event.start_mark.line);
        FAIL(ERR_CONFIG, "%sexpected options as \"name: value\", found %s",
             r->place, event_words(r->event.type));
    } else {
        TRY(read_mapping(r));
        TRY(next(r));
    }
    TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT) {
        say_place(r, r->event.start_mark.line);
        FAIL(ERR_CONFIG, "%sthe file has a second document; expected one",
             r->place);
    }
    return OK;
}

status options_read_text(struct options_set *set, const char *text,
                         size_t length, const char *source,
                         enum option_origin origin)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of the byte order */
    struct yaml_reader r = {.set = set, .source = source, .origin = origin};
    status result;
    void *lines;

    if (length > YAML_BYTES_MAX)
        FAIL(ERR_CONFIG, "%s: larger than %d bytes", source, YAML_BYTES_MAX);
    if (!yaml_parser_initialize(&r.parser))
        FAIL(ERR_MEMORY, "%s: no memory for the YAML reader", source);
    TRY_GOTO(done, result,
             memory_take((size_t)(option_count + option_section_count),
                         sizeof *r.lines, &lines));
    r.lines = lines;
    if (length >= sizeof mark - 1 && memcmp(text, mark, sizeof mark - 1) == 0) {
        text += sizeof mark - 1; /* editors of Windows begin a file with it */
        length -= sizeof mark - 1;
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text,
                                 length);
    TRY_GOTO(done, result, read_all(&r));
done:
    if (r.has_event) yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    memory_free(r.lines);
    memory_free(r.items);
    return result;
}

static status read_file(struct options_set *set, const char *path,
                        bool regular)
{
    struct text text = {0};
    status result;

    TRY_GOTO(done, result,
             regular ? file_read_regular(path, YAML_BYTES_MAX, &text)
                     : file_read(path, YAML_BYTES_MAX, &text));
    TRY_GOTO(done, result,
             options_read_text(set, text.bytes, text.length, path,
                               ORIGIN_FILE));
done:
    text_free(&text);
    return result;
}

status options_read_file(struct options_set *set, const char *path)
{
    return read_file(set, path, false);
}

status options_read_run(struct options_set *set, const char *path)
{
    return read_file(set, path, true);
}
