/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_shape.h - a Parquet file taken apart and put together again, so that
 * a fuzzer can change one thing and leave the rest valid.
 *
 *   shape = footer (a tree of Thrift fields) + chunks, each a list of pages,
 *           each a header (such a tree) and its unpacked bytes
 *
 * All nodes lie in one pool that each call of shape_read empties. */
#ifndef LOCKSTEP_TESTS_FUZZ_PARQUET_SHAPE_H
#define LOCKSTEP_TESTS_FUZZ_PARQUET_SHAPE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include "corpus/snappy.h"
#include "corpus/thrift.h"
#include "tests/fuzz/mutate.h"

/* A field of a struct, or an item of a list (number 0). */
struct node {
    enum thrift_kind kind, item; /* item: of a list */
    int number;
    int64_t value;               /* of an integer; of a bool in a list */
    const uint8_t *bytes;        /* of a binary [length] */
    size_t length;
    struct node *first, *next;   /* what it holds; what comes after it */
};

struct page {
    struct node *header;
    const uint8_t *body;
    size_t length;
    struct page *next;
};

struct chunk {
    struct node *meta;           /* ColumnMetaData */
    int leaf, depth, repeats;    /* the column and its levels */
    struct page *pages;
};

enum { SHAPE_CHUNKS = 64, SHAPE_LEAVES = 32, SHAPE_BODY = 1 << 16 };

struct shape {
    struct node *footer;
    struct chunk chunks[SHAPE_CHUNKS];
    int chunk_count;
};

/* ---- trees ---- */

static struct node *node_get(const struct node *tree, int number)
{
    for (struct node *n = tree == NULL ? NULL : tree->first; n; n = n->next)
        if (n->number == number) return n;
    return NULL;
}

static int64_t node_value(const struct node *tree, int number, int64_t other)
{
    const struct node *n = node_get(tree, number);

    return n == NULL ? other : n->value;
}

static void node_set(struct node *tree, int number, int64_t value)
{
    struct node *n = node_get(tree, number);

    if (n != NULL) n->value = value;
}

static void node_drop(struct node *tree, int number)
{
    for (struct node **n = &tree->first; *n != NULL; n = &(*n)->next)
        if ((*n)->number == number) {
            *n = (*n)->next;
            return;
        }
}

static struct node *node_copy(const struct node *from)
{
    struct node *copy = mutate_take(sizeof *copy), **end;

    if (copy == NULL) return NULL;
    *copy = *from;
    copy->next = copy->first = NULL;
    end = &copy->first;
    for (const struct node *n = from->first; n != NULL; n = n->next) {
        *end = node_copy(n);
        if (*end == NULL) return NULL;
        end = &(*end)->next;
    }
    return copy;
}

static void tree_read(struct thrift *in, struct node *node, int depth);

static void list_read(struct thrift *in, struct node *node, int depth)
{
    int64_t count = thrift_list(in, node->kind, &node->item);
    struct node **end = &node->first;

    for (; count > 0 && !in->failed; count--) {
        *end = mutate_take(sizeof **end);
        if (*end == NULL || depth > 16) {
            in->failed = true;
            return;
        }
        (*end)->kind = node->item;
        if (node->item == THRIFT_TRUE || node->item == THRIFT_FALSE)
            (*end)->value = thrift_integer(in, THRIFT_BYTE);
        else
            tree_read(in, *end, depth + 1);
        end = &(*end)->next;
    }
}

/* Reads the value that follows a node of this kind. Parquet has no maps. */
static void tree_read(struct thrift *in, struct node *node, int depth)
{
    struct node **end = &node->first;
    enum thrift_kind kind;
    int number = 0;

    if (node->kind == THRIFT_BINARY)
        node->bytes = thrift_binary(in, node->kind, &node->length);
    else if (node->kind == THRIFT_LIST || node->kind == THRIFT_SET)
        list_read(in, node, depth);
    else if (node->kind != THRIFT_STRUCT)
        node->value = thrift_integer(in, node->kind);
    else
        while (thrift_field(in, &number, &kind)) {
            *end = mutate_take(sizeof **end);
            if (*end == NULL || depth > 16) {
                in->failed = true;
                return;
            }
            (*end)->kind = kind;
            (*end)->number = number;
            tree_read(in, *end, depth + 1);
            end = &(*end)->next;
        }
}

static void put_zigzag(struct out *out, int64_t value)
{
    put_varint(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static void put_tree(struct out *out, const struct node *node);

static void put_fields(struct out *out, const struct node *node)
{
    int before = 0;

    for (const struct node *n = node->first; n != NULL; n = n->next) {
        const int step = n->number - before;

        before = n->number;
        if (step > 0 && step < 16) {
            put_byte(out, (unsigned)step << 4 | n->kind);
        } else {
            put_byte(out, n->kind);
            put_zigzag(out, n->number);
        }
        put_tree(out, n);
    }
    put_byte(out, THRIFT_STOP);
}

static void put_list(struct out *out, const struct node *node)
{
    unsigned count = 0;

    for (const struct node *n = node->first; n != NULL; n = n->next) count++;
    if (count < 15) {
        put_byte(out, count << 4 | node->item);
    } else {
        put_byte(out, 0xF0u | node->item);
        put_varint(out, count);
    }
    for (const struct node *n = node->first; n != NULL; n = n->next)
        if (n->kind == THRIFT_TRUE || n->kind == THRIFT_FALSE)
            put_byte(out, (unsigned)n->value);
        else
            put_tree(out, n);
}

static void put_tree(struct out *out, const struct node *node)
{
    switch (node->kind) {
    case THRIFT_BYTE: put_byte(out, (unsigned)node->value & 0xFF); return;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: put_zigzag(out, node->value); return;
    case THRIFT_BINARY:
        put_varint(out, node->length);
        put(out, node->bytes, node->length);
        return;
    case THRIFT_LIST:
    case THRIFT_SET: put_list(out, node); return;
    case THRIFT_STRUCT: put_fields(out, node); return;
    default: return; /* a bool's kind is its value */
    }
}

/* ---- reading a file ---- */

/* The levels of each leaf of the schema; how many leaves there are. */
static int shape_leaves(const struct node *footer, int depth[SHAPE_LEAVES],
                        int repeats[SHAPE_LEAVES])
{
    const struct node *schema = node_get(footer, 2), *n;
    int64_t left[16] = {0};
    int d[16] = {0}, s[16] = {0}, top = 0, leaves = 0;

    if (schema == NULL || schema->first == NULL) return 0;
    left[0] = node_value(schema->first, 5, 0);
    for (n = schema->first->next; n != NULL && leaves < SHAPE_LEAVES;
         n = n->next) {
        const int64_t children = node_value(n, 5, 0);
        const int64_t repetition = node_value(n, 3, 0);
        int here, often;

        while (top > 0 && left[top] <= 0) top--;
        if (left[top] > 0) left[top]--;
        here = d[top] + (repetition != 0);
        often = s[top] + (repetition == 2);
        if (children == 0) {
            depth[leaves] = here;
            repeats[leaves++] = often;
        } else if (++top == 16) {
            return leaves;
        } else {
            left[top] = children;
            d[top] = here;
            s[top] = often;
        }
    }
    return leaves;
}

static bool body_unpack(int64_t codec, const uint8_t *from, size_t packed,
                        uint8_t *to, size_t length)
{
    uLongf got = length;
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)from,
                  .avail_in = (unsigned)packed, .next_out = to,
                  .avail_out = (unsigned)length};

    if (codec == 1) return snappy_unpack(from, packed, to, length);
    if (codec == 6)
        return ZSTD_decompress(to, length, from, packed) == length;
    if (codec != 2 || inflateInit2(&z, 15 + 32) != Z_OK) return false;
    got = inflate(&z, Z_FINISH) == Z_STREAM_END ? z.total_out : 0;
    inflateEnd(&z);
    return got == length;
}

static bool page_unpack(struct page *page, int64_t codec)
{
    const int64_t length = node_value(page->header, 2, 0);
    const struct node *second = node_get(page->header, 8);
    const uint64_t plain = second ? (uint64_t)node_value(second, 5, 0) +
                                    (uint64_t)node_value(second, 6, 0) : 0;
    const struct node *flag = second ? node_get(second, 7) : NULL;
    uint8_t *body;

    if (codec == 0 || (flag != NULL && flag->kind == THRIFT_FALSE)) return true;
    if (length < 0 || length > SHAPE_BODY || plain > (uint64_t)length ||
        plain > page->length || (body = mutate_take((size_t)length)) == NULL)
        return false;
    memcpy(body, page->body, plain);
    if ((uint64_t)length > plain &&
        !body_unpack(codec, page->body + plain, page->length - plain,
                     body + plain, (size_t)length - plain))
        return false;
    page->body = body;
    page->length = (size_t)length;
    return true;
}

/* The pages up to the first that is broken: what is written is whole again. */
static void chunk_read(struct chunk *chunk, const uint8_t *data, size_t size)
{
    const int64_t pages = node_value(chunk->meta, 9, 0);
    const int64_t words = node_value(chunk->meta, 11, 0);
    const int64_t at = words > 0 && words < pages ? words : pages;
    const int64_t bytes = node_value(chunk->meta, 7, 0);
    const int64_t codec = node_value(chunk->meta, 4, 0);
    struct page **end = &chunk->pages;
    struct thrift in;

    node_set(chunk->meta, 4, 0);
    if (at < 4 || bytes < 0 || at > (int64_t)size ||
        bytes > (int64_t)size - at)
        return;
    in = (struct thrift){.at = data + at, .end = data + at + bytes};
    while (in.at < in.end) {
        struct page *page = mutate_take(sizeof *page);
        int64_t length;

        if (page == NULL) return;
        page->header = mutate_take(sizeof *page->header);
        if (page->header == NULL) return;
        page->header->kind = THRIFT_STRUCT;
        tree_read(&in, page->header, 0);
        length = node_value(page->header, 3, -1);
        if (in.failed || length < 0 || length > in.end - in.at) return;
        page->body = in.at;
        page->length = (size_t)length;
        in.at += length;
        if (!page_unpack(page, codec)) return;
        *end = page;
        end = &page->next;
    }
}

/* The footer alone; false: it is no valid one. */
static bool shape_footer(struct shape *shape, const uint8_t *data, size_t size)
{
    struct thrift in = {.failed = false};
    size_t length = 0;

    mutate_used = 0;
    *shape = (struct shape){.footer = mutate_take(sizeof(struct node))};
    if (size < 12 || shape->footer == NULL) return false;
    for (size_t i = 4; i > 0; i--) length = length << 8 | data[size - 9 + i];
    if (length > size - 12) return false;
    in.at = data + size - 8 - length;
    in.end = data + size - 8;
    shape->footer->kind = THRIFT_STRUCT;
    tree_read(&in, shape->footer, 0);
    return !in.failed;
}

/* The whole file, its pages unpacked and its codecs 0. */
static bool shape_read(struct shape *shape, const uint8_t *data, size_t size)
{
    int depth[SHAPE_LEAVES], repeats[SHAPE_LEAVES], leaves;
    struct node *groups;

    if (!shape_footer(shape, data, size)) return false;
    leaves = shape_leaves(shape->footer, depth, repeats);
    groups = node_get(shape->footer, 4);
    for (struct node *g = groups ? groups->first : NULL; g; g = g->next) {
        struct node *columns = node_get(g, 1);
        int leaf = 0;

        for (struct node *c = columns ? columns->first : NULL; c; c = c->next) {
            struct chunk *chunk = &shape->chunks[shape->chunk_count];

            if (leaf >= leaves || shape->chunk_count == SHAPE_CHUNKS) break;
            *chunk = (struct chunk){node_get(c, 3), leaf, depth[leaf],
                                    repeats[leaf], NULL};
            leaf++;
            if (chunk->meta == NULL || node_value(chunk->meta, 5, 0) == 0)
                continue;
            chunk_read(chunk, data, size);
            shape->chunk_count++;
        }
    }
    return true;
}

/* ---- writing a file ---- */

static int64_t page_values(const struct page *page)
{
    const struct node *part = node_get(page->header, 8);

    if (part == NULL) part = node_get(page->header, 5);
    return part == NULL ? 0 : node_value(part, 1, 0);
}

/* Writes the pages; sizes and places in headers and footer follow them. */
static void chunk_write(struct chunk *chunk, struct out *out)
{
    const size_t begin = out->at;
    uint64_t values = 0;
    int64_t data = -1, words = -1;

    for (struct page *p = chunk->pages; p != NULL; p = p->next) {
        node_drop(p->header, 4); /* its checksum */
        node_set(p->header, 2, (int64_t)p->length);
        node_set(p->header, 3, (int64_t)p->length);
        if (node_value(p->header, 1, 0) == 2) words = (int64_t)out->at;
        else if (data < 0) data = (int64_t)out->at;
        values += (uint64_t)page_values(p);
        put_tree(out, p->header);
        put(out, p->body, p->length);
    }
    node_set(chunk->meta, 5, (int64_t)values);
    node_set(chunk->meta, 7, (int64_t)(out->at - begin));
    node_set(chunk->meta, 9, data < 0 ? (int64_t)begin : data);
    if (words >= 0) node_set(chunk->meta, 11, words);
}

/* The rows that flat columns have, into the groups and the footer. */
static void shape_count_rows(struct shape *shape)
{
    struct node *groups = node_get(shape->footer, 4);
    uint64_t all = 0;

    for (struct node *g = groups ? groups->first : NULL; g; g = g->next) {
        struct node *columns = node_get(g, 1);

        for (struct node *c = columns ? columns->first : NULL; c; c = c->next)
            for (int i = 0; i < shape->chunk_count; i++)
                if (shape->chunks[i].meta == node_get(c, 3) &&
                    shape->chunks[i].repeats == 0)
                    node_set(g, 3, node_value(shape->chunks[i].meta, 5, 0));
        all += (uint64_t)node_value(g, 3, 0);
    }
    node_set(shape->footer, 3, (int64_t)all);
}

/* Bytes written to data [room]; 0: they do not fit. */
static size_t shape_write(struct shape *shape, uint8_t *data, size_t room,
                          bool count_rows)
{
    struct out out = {.bytes = data, .room = room};
    size_t begin;

    put(&out, "PAR1", 4);
    for (int i = 0; i < shape->chunk_count; i++)
        chunk_write(&shape->chunks[i], &out);
    if (count_rows) shape_count_rows(shape);
    begin = out.at;
    put_tree(&out, shape->footer);
    begin = out.at - begin;
    for (int i = 0; i < 4; i++)
        put_byte(&out, (unsigned)(begin >> 8 * i) & 255);
    put(&out, "PAR1", 4);
    return out.full ? 0 : out.at;
}

#endif
