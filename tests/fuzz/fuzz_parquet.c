/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_parquet.c - can a Parquet file hurt us? The input is the file; its
 * columns of text and of ids are read.
 *
 * The mutator knows the format (parquet_shape.h): it changes fields, lists,
 * counts, runs of levels and of places, encodings and the order of pages, and
 * writes a file whose sizes and places are right but for what it changed. */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "corpus/parquet.h"
#include "tests/fuzz/parquet_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- the reader ---- */

enum { WORK_MAX = 1 << 16 };

struct reading { int64_t work, rows; };

/* Reads every byte and id. A row that the footer does not count is a bug. */
static status take(void *context, const struct parquet_row *row)
{
    struct reading *reading = context;
    uint32_t sum = 0;

    for (size_t i = 0; i < row->length; i++)
        sum += (unsigned char)row->text[i];
    for (int64_t i = 0; i < row->count; i++) sum += (uint32_t)row->ids[i];
    CHECK(row->number >= 0 && row->number < reading->rows);
    reading->work += (int64_t)row->length + row->count + 1 + (sum == 0);
    return reading->work > WORK_MAX ? ERR_STOPPED : OK;
}

/* The number of rows by the footer's tree: a second opinion. */
static int64_t rows_said(const uint8_t *data, size_t size)
{
    struct shape shape;

    if (!shape_footer(&shape, data, size)) return INT64_MAX;
    return node_value(shape.footer, 3, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const columns[] = {"text", "ids", "few"};
    unsigned char *bytes = malloc(size + 1); /* alone: overruns show */
    struct reading reading = {.rows = rows_said(data, size)};
    int64_t at;

    if (bytes == NULL) abort();
    if (size > 0) memcpy(bytes, data, size);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        reading.work = 0;
        (void)parquet_read(&(struct parquet_file){"fuzz", bytes, size},
                           columns[i], take, &reading, &at);
        status_clear();
    }
    free(bytes);
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

/* A node of the tree drawn evenly among `left`, by counting down. */
static struct node **node_pick(struct node **at, int64_t *left)
{
    for (; *at != NULL; at = &(*at)->next) {
        struct node **found;

        if ((*left)-- == 0) return at;
        found = node_pick(&(*at)->first, left);
        if (found != NULL) return found;
    }
    return NULL;
}

static int64_t tree_size(const struct node *node)
{
    int64_t count = 0;

    for (; node != NULL; node = node->next) count += 1 + tree_size(node->first);
    return count;
}

static void node_repeat(struct node *n)
{
    static const int often[] = {1, 1, 2, 5, 1000, 2500};

    for (uint64_t i = (uint64_t)often[draw(6)]; i > 0; i--) {
        struct node *copy = node_copy(n);

        if (copy == NULL) return;
        copy->next = n->next;
        n->next = copy;
    }
}

static void mutate_tree(struct node *tree)
{
    int64_t left = (int64_t)draw((uint64_t)tree_size(tree->first));
    struct node **at = node_pick(&tree->first, &left), *n, *other;

    if (at == NULL) return;
    n = *at;
    switch (draw(6)) {
    case 0: node_repeat(n); return;
    case 1: *at = n->next; return;
    case 2: /* moved behind the next one */
        if ((other = n->next) == NULL) return;
        n->next = other->next;
        other->next = n;
        *at = other;
        return;
    default:
        if (n->kind == THRIFT_BINARY) n->length = draw(n->length + 1);
        else if (n->kind == THRIFT_TRUE) n->kind = THRIFT_FALSE;
        else if (n->kind == THRIFT_FALSE) n->kind = THRIFT_TRUE;
        else n->value = draw_number(n->value);
    }
}

/* ---- runs ---- */

enum { RUNS = 256 };
struct run { uint64_t head; const uint8_t *bytes; size_t length; };

static int runs_read(struct run runs[RUNS], const uint8_t *at,
                     const uint8_t *end, unsigned width)
{
    int count = 0;
    uint64_t head;

    while (count < RUNS / 2 && at < end && take_varint(&at, end, &head)) {
        const uint64_t needed = head & 1 ? (head >> 1) * width
                                         : (width + 7) / 8;
        const size_t left = (size_t)(end - at);
        const size_t length = needed < left ? (size_t)needed : left;

        runs[count++] = (struct run){head, at, length};
        at += length;
    }
    return count;
}

static void runs_change(struct run runs[RUNS], int *count)
{
    const int i = *count == 0 ? 0 : (int)draw((uint64_t)*count);
    int more;

    if (*count == 0) {
        runs[(*count)++] = (struct run){16, (const uint8_t *)"\0\0\0\0", 1};
        return;
    }
    switch (draw(5)) {
    case 0: /* once more, or often */
        more = draw(2) == 0 ? 1 : RUNS - 1 - *count;
        for (int k = *count + more - 1; k >= i + more; k--)
            runs[k] = runs[k - more];
        for (int k = i + 1; k < i + more; k++) runs[k] = runs[i];
        *count += more;
        return;
    case 1:
        memmove(runs + i, runs + i + 1,
                (size_t)(*count - i - 1) * sizeof *runs);
        --*count;
        return;
    case 2: /* another value */
        runs[i].bytes = (const uint8_t *)(draw(2) ? "\1\0\0\0" : "\0\0\0\0");
        runs[i].length = runs[i].length < 4 ? runs[i].length : 4;
        return;
    default:
        runs[i].head = (uint64_t)draw_number((int64_t)(runs[i].head >> 1)) << 1
                       | (draw(8) == 0);
    }
}

static size_t runs_mutate(const uint8_t *from, size_t length, unsigned width,
                          uint8_t *to, size_t room)
{
    struct out out = {.bytes = to, .room = room};
    struct run runs[RUNS];
    int count = runs_read(runs, from, from + length, width);

    for (uint64_t i = 1 + draw(2); i > 0; i--) runs_change(runs, &count);
    for (int i = 0; i < count && !out.full; i++) {
        put_varint(&out, runs[i].head);
        put(&out, runs[i].bytes, runs[i].length);
    }
    return out.at;
}

/* ---- pages ---- */

/* A data page: its two kinds of levels, then its values. */
struct body { const uint8_t *bytes[3]; size_t length[3]; };

static bool body_read(const struct chunk *c, const struct page *p,
                      struct body *b)
{
    const struct node *second = node_get(p->header, 8);
    const bool there[] = {c->repeats > 0, c->depth > 0};
    const uint8_t *at = p->body, *end = p->body + p->length;

    *b = (struct body){{at, at, at}, {0, 0, 0}};
    for (int i = 0; i < 2; i++) {
        size_t length = 0;

        if (second != NULL) {
            length = (size_t)node_value(second, i == 0 ? 6 : 5, 0);
        } else if (there[i]) {
            if (end - at < 4) return false;
            for (int k = 3; k >= 0; k--) length = length << 8 | at[k];
            at += 4;
        }
        if (length > (size_t)(end - at)) return false;
        b->bytes[i] = at;
        b->length[i] = length;
        at += length;
    }
    b->bytes[2] = at;
    b->length[2] = (size_t)(end - at);
    return true;
}

static void body_write(const struct chunk *c, struct page *p,
                       const struct body *b)
{
    struct node *second = node_get(p->header, 8);
    const bool there[] = {c->repeats > 0, c->depth > 0};
    struct out out = {.room = SHAPE_BODY};

    out.bytes = mutate_take(SHAPE_BODY);
    if (out.bytes == NULL) return;
    for (int i = 0; i < 3; i++) {
        if (second != NULL && i < 2)
            node_set(second, i == 0 ? 6 : 5, (int64_t)b->length[i]);
        else if (i < 2 && there[i])
            for (unsigned k = 0; k < 4; k++)
                put_byte(&out, (unsigned)(b->length[i] >> 8 * k) & 255);
        put(&out, b->bytes[i], b->length[i]);
    }
    if (out.full) return;
    p->body = out.bytes;
    p->length = out.at;
}

/* Levels and places change run by run, other values number by number. */
static void mutate_part(struct body *b, int part, unsigned width, bool places)
{
    uint8_t *to = mutate_take(SHAPE_BODY);
    const uint8_t *from = b->bytes[part];
    size_t length = b->length[part];

    if (to == NULL || length > SHAPE_BODY / 2) return;
    b->bytes[part] = to;
    if (places && length > 0 && from[0] <= 32) {
        to[0] = draw(16) == 0 ? (uint8_t)draw(40) : from[0];
        b->length[part] = 1 + runs_mutate(from + 1, length - 1, from[0],
                                          to + 1, SHAPE_BODY - 1);
    } else if (part < 2) {
        b->length[part] = runs_mutate(from, length, width, to, SHAPE_BODY);
    } else {
        struct out out = {.bytes = to, .room = SHAPE_BODY};
        const uint8_t *at = from, *end = from + length;
        uint64_t value, skip = draw(4);

        while (skip-- > 0 && take_varint(&at, end, &value)) {}
        put(&out, from, (size_t)(at - from));
        if (take_varint(&at, end, &value))
            put_varint(&out, (uint64_t)draw_number((int64_t)value));
        put(&out, at, (size_t)(end - at));
        b->length[part] = out.at;
    }
}

static void mutate_body(const struct chunk *c, struct page *p)
{
    struct node *header = node_get(p->header, 5);
    const int64_t kind = node_value(p->header, 1, 0);
    int64_t encoding;
    unsigned width = 0;
    struct body b;

    if (kind == 2) {
        b = (struct body){{p->body, p->body, p->body}, {0, 0, p->length}};
        mutate_part(&b, 2, 0, false);
        p->body = b.bytes[2];
        p->length = b.length[2];
        return;
    }
    encoding = header != NULL ? node_value(header, 2, 0)
                              : node_value(node_get(p->header, 8), 4, 0);
    if (!body_read(c, p, &b)) return;
    while (c->depth >> width != 0) width++;
    switch (draw(5)) {
    case 0: b.length[2] = 0; break; /* a page without values */
    case 1: mutate_part(&b, 0, 1, false); break;
    case 2: mutate_part(&b, 1, width, false); break;
    default: mutate_part(&b, 2, 0, encoding == 2 || encoding == 8);
    }
    body_write(c, p, &b);
}

static struct page *page_pick(struct chunk *c)
{
    struct page *p = c->pages;
    uint64_t count = 0;

    for (struct page *q = p; q != NULL; q = q->next) count++;
    for (count = draw(count); count > 0 && p != NULL; count--) p = p->next;
    return p;
}

static void page_repeat(struct page *p, const struct page *from)
{
    struct page *copy = mutate_take(sizeof *copy);

    if (copy == NULL) return;
    *copy = *from;
    copy->header = node_copy(from->header);
    if (copy->header == NULL) return;
    copy->next = p->next;
    p->next = copy;
}

static void mutate_page(struct shape *shape, struct chunk *c)
{
    static const int64_t encodings[] = {0, 2, 3, 5, 6, 7, 8, 9};
    struct chunk *other = &shape->chunks[draw((uint64_t)shape->chunk_count)];
    struct page *p = page_pick(c), *from = page_pick(other);
    struct node *part;

    if (p == NULL) return;
    part = node_get(p->header, 5) ? node_get(p->header, 5)
                                  : node_get(p->header, 8);
    switch (draw(10)) {
    case 0: page_repeat(p, p); return;
    case 1:
        if (from != NULL) page_repeat(p, from);
        return;
    case 2:
        if (p->next != NULL) p->next = p->next->next;
        return;
    case 3: mutate_tree(p->header); return;
    case 4:
        if (part != NULL)
            node_set(part, node_get(p->header, 8) ? 4 : 2,
                     encodings[draw(sizeof encodings / sizeof *encodings)]);
        return;
    case 5:
        if (part != NULL)
            node_set(part, 1, draw_number(node_value(part, 1, 0)));
        return;
    default: mutate_body(c, p);
    }
}

/* The input, taken apart; or the last that could be. */
static bool shape_begin(struct shape *shape, const uint8_t *data, size_t size)
{
    enum { KEPT = 1 << 14 };
    static uint8_t kept[KEPT], now[1 << 16]; /* nodes point into it */
    static size_t kept_size;

    if (size > sizeof now) return false;
    memcpy(now, data, size);
    if (shape_read(shape, now, size) && shape->chunk_count > 0) {
        if (size > KEPT || (kept_size > 0 && draw(8) != 0)) return true;
        memcpy(kept, now, size);
        kept_size = size;
        return true;
    }
    memcpy(now, kept, kept_size);
    return shape_read(shape, now, kept_size) && shape->chunk_count > 0;
}

/* One change in 16 is of bytes, so that what is broken is met as well. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    static uint8_t written[1 << 17];
    struct shape shape;
    size_t length;

    mutate_seed(seed);
    if (draw(16) == 0 || !shape_begin(&shape, data, size))
        return LLVMFuzzerMutate(data, size, room);
    for (uint64_t i = 1 + draw(8); i > 0; i--) {
        if (draw(4) == 0) mutate_tree(shape.footer);
        else mutate_page(&shape,
                         &shape.chunks[draw((uint64_t)shape.chunk_count)]);
    }
    length = shape_write(&shape, written,
                         room < sizeof written ? room : sizeof written,
                         draw(4) != 0);
    if (length == 0) return LLVMFuzzerMutate(data, size, room);
    memcpy(data, written, length);
    return length;
}
