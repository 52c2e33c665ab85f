/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_footer.c - the description of one column in a Parquet file. */
#include "corpus/parquet_footer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL_BYTES = 8, NAME_BYTES = 512, NESTED_MAX = 32, LISTED_MAX = 12,
       LISTED_BYTES = 1024, ELEMENTS_MAX = 1 << 20 };
enum { REQUIRED, OPTIONAL, REPEATED };

struct element {
    int type, repetition, children;
    const unsigned char *name;
    size_t name_length;
};

struct reading {
    const char *path, *column;
    const unsigned char *bytes;
    size_t length;
    struct thrift in;
    struct parquet_footer *footer;
    struct element *elements; /* in the footer's arena */
    int64_t element_count;
    int64_t leaf;             /* number of the column among the leaves */
    int64_t chunk_room;       /* of the footer's chunks */
};

static status damaged(const struct reading *r, const char *what)
{
    FAIL(ERR_FORMAT, "%s: the footer is damaged near byte %zu: %s", r->path,
         (size_t)(r->in.at - r->bytes), what);
}

/* An i32; more is damage. */
static int read_int(struct thrift *in, enum thrift_kind kind)
{
    const int64_t value = thrift_integer(in, kind);

    if (value < INT32_MIN || value > INT32_MAX) in->failed = true;
    return (int)value;
}

static struct element read_element(struct thrift *in)
{
    struct element e = {.type = -1};
    enum thrift_kind kind;
    int number = 0;

    while (thrift_field(in, &number, &kind)) {
        if (number == 1) e.type = read_int(in, kind);
        else if (number == 3) e.repetition = read_int(in, kind);
        else if (number == 4) e.name = thrift_binary(in, kind, &e.name_length);
        else if (number == 5) e.children = read_int(in, kind);
        else thrift_skip(in, kind);
    }
    return e;
}

static status read_schema(struct reading *r, enum thrift_kind kind)
{
    enum thrift_kind item;
    const int64_t count = thrift_list(&r->in, kind, &item);
    void *memory;

    if (r->in.failed || item != THRIFT_STRUCT || count < 2)
        return damaged(r, "the schema has no columns");
    if (count > ELEMENTS_MAX) return damaged(r, "too many columns");
    TRY(arena_take_array(&r->footer->arena, (size_t)count,
                         sizeof *r->elements, &memory));
    r->elements = memory;
    r->element_count = count;
    for (int64_t i = 0; i < count; i++)
        r->elements[i] = read_element(&r->in);
    return r->in.failed ? damaged(r, "a column of the schema") : OK;
}

/* ---- which column ---- */

/* A walk over the flattened tree: path, levels and children to come of each
 * level; items: the definition level of what is repeated. */
struct branch { int left, depth, repeats, items; size_t name_end; };

static bool is_wanted(const struct reading *r, const char *name)
{
    const size_t length = strlen(r->column);

    return strncmp(name, r->column, length) == 0 &&
           (name[length] == '\0' || name[length] == '.');
}

/* As parquet.thrift has them. */
static const char *type_name(int64_t type)
{
    static const char *const names[] = {
        "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY",
        "FIXED_LEN_BYTE_ARRAY"};
    const int64_t count = (int64_t)(sizeof names / sizeof *names);

    return type >= 0 && type < count ? names[type] : "an unknown type";
}

static status choose(struct reading *r, const struct element *e,
                     const struct branch *b, const char *name)
{
    struct parquet_footer *f = r->footer;

    f->type = (enum parquet_type)e->type;
    f->depth = b->depth;
    f->items = b->items;
    f->list = b->repeats == 1;
    if (b->repeats == 0 && e->type == PARQUET_BYTES) return OK;
    if (b->repeats == 1 &&
        (e->type == PARQUET_INT32 || e->type == PARQUET_INT64))
        return OK;
    FAIL(ERR_CONFIG, "%s: the column %s has %s%s; text (BYTE_ARRAY) or lists "
         "of INT32 or INT64 are read; name another with data.field", r->path,
         name, b->repeats == 0 ? "" : b->repeats == 1 ? "lists of "
                                                      : "lists in lists of ",
         type_name(e->type));
}

static status find_column(struct reading *r)
{
    struct branch stack[NESTED_MAX] = {{.left = r->elements[0].children}};
    char name[NAME_BYTES] = "", listed[LISTED_BYTES] = "";
    int top = 0, leaves = 0;

    for (int64_t i = 1; i < r->element_count; i++) {
        const struct element *e = &r->elements[i];
        struct branch b;

        while (top > 0 && stack[top].left == 0) top--;
        if (stack[top].left <= 0) return damaged(r, "the schema's tree");
        stack[top].left--;
        b = (struct branch){.left = e->children,
                            .depth = stack[top].depth +
                                     (e->repetition != REQUIRED),
                            .repeats = stack[top].repeats +
                                       (e->repetition == REPEATED),
                            .items = stack[top].items,
                            .name_end = stack[top].name_end};
        if (e->repetition == REPEATED) b.items = b.depth;
        b.name_end += (size_t)snprintf(
            name + b.name_end, NAME_BYTES - b.name_end, "%s%.*s",
            b.name_end > 0 ? "." : "",
            (int)(e->name_length < NAME_BYTES ? e->name_length : NAME_BYTES),
            e->name_length > 0 ? (const char *)e->name : "");
        if (b.name_end >= NAME_BYTES) return damaged(r, "a column's name");
        if (e->children == 0) {
            if (is_wanted(r, name)) {
                r->leaf = leaves;
                return choose(r, e, &b, name);
            }
            if (leaves++ < LISTED_MAX)
                snprintf(listed + strlen(listed),
                         sizeof listed - strlen(listed),
                         "%s%.60s", listed[0] != '\0' ? ", " : "", name);
            continue;
        }
        if (++top == NESTED_MAX) return damaged(r, "the schema is too deep");
        stack[top] = b;
    }
    FAIL(ERR_CONFIG, "%s: there is no column \"%s\"; there are %s; name one "
         "with data.field", r->path, r->column, listed);
}

/* ---- row groups ---- */

static struct parquet_chunk read_column_meta(struct thrift *in)
{
    struct parquet_chunk chunk = {0};
    int64_t pages = 0, dictionary = 0;
    enum thrift_kind kind;
    int number = 0;

    while (thrift_field(in, &number, &kind)) {
        if (number == 4) chunk.codec = read_int(in, kind);
        else if (number == 5) chunk.values = thrift_integer(in, kind);
        else if (number == 7) chunk.bytes = thrift_integer(in, kind);
        else if (number == 9) pages = thrift_integer(in, kind);
        else if (number == 11) dictionary = thrift_integer(in, kind);
        else thrift_skip(in, kind);
    }
    chunk.at = dictionary > 0 && dictionary < pages ? dictionary : pages;
    return chunk;
}

static struct parquet_chunk read_chunk(struct thrift *in)
{
    struct parquet_chunk chunk = {0};
    enum thrift_kind kind;
    int number = 0;

    while (thrift_field(in, &number, &kind)) {
        if (number == 3 && kind == THRIFT_STRUCT)
            chunk = read_column_meta(in);
        else
            thrift_skip(in, kind);
    }
    return chunk;
}

/* Every row of a flat column is a value, of a list at least one. */
static status check_counts(const struct reading *r,
                           const struct parquet_chunk *chunk)
{
    const int64_t values = chunk->values, rows = chunk->rows;

    if (values >= 0 && values <= INT32_MAX && rows >= 0 && rows <= values &&
        (r->footer->list || rows == values))
        return OK;
    FAIL(ERR_FORMAT, "%s: row group %lld says %lld rows and %lld values of the "
         "column; %s, at most %d", r->path, (long long)r->footer->chunk_count,
         (long long)rows, (long long)values,
         r->footer->list ? "a list's row has a value or more"
                         : "each row must have one", INT32_MAX);
}

static status add_chunk(struct reading *r, const struct parquet_chunk *chunk)
{
    const int64_t length = (int64_t)r->length;

    TRY(check_counts(r, chunk));
    r->footer->rows += chunk->rows;
    /* A row group without rows may say that it lies nowhere. */
    if (chunk->values == 0) return OK;
    if (chunk->at < 4 || chunk->bytes < 0 ||
        chunk->at > length - TAIL_BYTES ||
        chunk->bytes > length - TAIL_BYTES - chunk->at)
        FAIL(ERR_FORMAT, "%s: row group %lld puts the column at byte %lld, "
             "%lld bytes long; the file has %lld (truncated?)", r->path,
             (long long)r->footer->chunk_count, (long long)chunk->at,
             (long long)chunk->bytes, (long long)length);
    CHECK(r->footer->chunk_count < r->chunk_room);
    r->footer->chunks[r->footer->chunk_count++] = *chunk;
    return OK;
}

/* The column's chunk of a list of columns. */
static status read_columns(struct reading *r, enum thrift_kind kind,
                           struct parquet_chunk *chunk)
{
    enum thrift_kind item;
    const int64_t count = thrift_list(&r->in, kind, &item);

    if (r->in.failed || count <= r->leaf || item != THRIFT_STRUCT)
        return damaged(r, "a row group lacks the column");
    for (int64_t i = 0; i < count; i++) {
        const struct parquet_chunk one = read_chunk(&r->in);

        if (i == r->leaf) *chunk = one;
    }
    return OK;
}

static status read_group(struct reading *r)
{
    struct parquet_chunk chunk = {0};
    bool columns = false;
    int64_t rows = -1;
    enum thrift_kind kind;
    int number = 0;

    while (thrift_field(&r->in, &number, &kind)) {
        if (number == 1) {
            if (columns)
                return damaged(r, "a row group has two lists of columns");
            columns = true;
            TRY(read_columns(r, kind, &chunk));
        } else if (number == 3) {
            rows = thrift_integer(&r->in, kind);
        } else {
            thrift_skip(&r->in, kind);
        }
    }
    if (r->in.failed || !columns) return damaged(r, "a row group");
    chunk.rows = rows;
    return add_chunk(r, &chunk);
}

static status read_groups(struct reading *r, enum thrift_kind kind)
{
    enum thrift_kind item;
    const int64_t count = thrift_list(&r->in, kind, &item);
    void *memory;

    if (r->elements == NULL) return damaged(r, "row groups before the schema");
    TRY(arena_take_array(&r->footer->arena, (size_t)count + 1,
                         sizeof *r->footer->chunks, &memory));
    r->footer->chunks = memory;
    r->chunk_room = count;
    for (int64_t i = 0; i < count; i++) TRY(read_group(r));
    return OK;
}

static int by_place(const void *a, const void *b)
{
    const struct parquet_chunk *const *x = a, *const *y = b;

    return ((*x)->at > (*y)->at) - ((*x)->at < (*y)->at);
}

/* The same bytes in two row groups would be a small file that never ends. */
static status check_places(struct reading *r)
{
    const struct parquet_footer *f = r->footer;
    const struct parquet_chunk **sorted;
    void *memory;

    TRY(arena_take_array(&r->footer->arena, (size_t)f->chunk_count + 1,
                         sizeof *sorted, &memory));
    sorted = memory;
    for (int64_t i = 0; i < f->chunk_count; i++) sorted[i] = &f->chunks[i];
    qsort(sorted, (size_t)f->chunk_count, sizeof *sorted, by_place);
    for (int64_t i = 1; i < f->chunk_count; i++)
        if (sorted[i]->at < sorted[i - 1]->at + sorted[i - 1]->bytes)
            FAIL(ERR_FORMAT, "%s: row groups %lld and %lld share the bytes "
                 "from %lld on", r->path,
                 (long long)(sorted[i - 1] - f->chunks),
                 (long long)(sorted[i] - f->chunks), (long long)sorted[i]->at);
    return OK;
}

static status check_rows(const struct reading *r, int64_t said)
{
    const int64_t rows = r->footer->rows;

    if (rows == said && rows <= INT32_MAX) return OK;
    FAIL(ERR_FORMAT, "%s: the footer says %lld rows, its row groups have %lld "
         "together; at most %d are read", r->path, (long long)said,
         (long long)rows, INT32_MAX);
}

/* The footer's fields; r->in stands at the first. */
static status read_fields(struct reading *r)
{
    enum thrift_kind kind;
    int64_t rows = 0;
    int number = 0;

    while (thrift_field(&r->in, &number, &kind)) {
        if (number == 2 && r->elements == NULL) {
            TRY(read_schema(r, kind));
            TRY(find_column(r));
        } else if (number == 3) {
            rows = thrift_integer(&r->in, kind);
        } else if (number == 4 && r->footer->chunks == NULL) {
            TRY(read_groups(r, kind));
        } else {
            thrift_skip(&r->in, kind);
        }
    }
    if (r->in.failed || r->footer->chunks == NULL)
        return damaged(r, "it ends too early");
    TRY(check_rows(r, rows));
    return check_places(r);
}

static status read_footer(struct reading *r)
{
    const unsigned char *tail;
    size_t size = 0;

    if (r->length < 4 + TAIL_BYTES || memcmp(r->bytes, "PAR1", 4) != 0)
        FAIL(ERR_FORMAT, "%s: does not begin with PAR1 (%zu bytes)", r->path,
             r->length);
    tail = r->bytes + r->length - TAIL_BYTES;
    if (memcmp(tail + 4, "PARE", 4) == 0)
        FAIL(ERR_FORMAT, "%s: the footer is encrypted", r->path);
    if (memcmp(tail + 4, "PAR1", 4) != 0)
        FAIL(ERR_FORMAT, "%s: does not end with PAR1 (truncated)", r->path);
    for (int i = 3; i >= 0; i--) size = size << 8 | tail[i];
    if (size > r->length - 4 - TAIL_BYTES)
        FAIL(ERR_FORMAT, "%s: says a footer of %zu bytes; the file has %zu",
             r->path, size, r->length);
    r->in = (struct thrift){.at = tail - size, .end = tail};
    return read_fields(r);
}

status parquet_footer_read(struct parquet_footer *footer, const char *path,
                           const unsigned char *bytes, size_t length,
                           const char *column)
{
    struct reading r = {.path = path, .column = column, .bytes = bytes,
                        .length = length, .footer = footer};

    *footer = (struct parquet_footer){0};
    arena_init(&footer->arena, "the footer of a Parquet file", 0);
    return read_footer(&r);
}

void parquet_footer_free(struct parquet_footer *footer)
{
    arena_free(&footer->arena);
    *footer = (struct parquet_footer){0};
}
