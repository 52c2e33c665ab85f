/* SPDX-License-Identifier: Apache-2.0 */
/* thrift.c - a reader of Thrift's compact protocol. */
#include "corpus/thrift.h"

#include "base/varint.h"

enum { DEPTH_MAX = 32, LONG_LIST = 15 };

static size_t left(const struct thrift *in)
{
    return (size_t)(in->end - in->at);
}

static unsigned take_byte(struct thrift *in)
{
    if (in->failed || left(in) == 0) {
        in->failed = true;
        return 0;
    }
    return *in->at++;
}

static uint64_t varint(struct thrift *in)
{
    uint64_t value = 0;

    if (!in->failed && varint_read(&in->at, in->end, &value) == VARINT_READ)
        return value;
    in->failed = true;
    return 0;
}

static int64_t zigzag(struct thrift *in)
{
    return varint_signed(varint(in));
}

bool thrift_field(struct thrift *in, int *number, enum thrift_kind *kind)
{
    const unsigned head = take_byte(in);

    *kind = (enum thrift_kind)(head & 0xF);
    if (in->failed || *kind == THRIFT_STOP) return false;
    if (*kind > THRIFT_STRUCT) {
        in->failed = true;
        return false;
    }
    *number = head >> 4 != 0 ? *number + (int)(head >> 4)
                             : (int)(int16_t)zigzag(in);
    return !in->failed;
}

int64_t thrift_integer(struct thrift *in, enum thrift_kind kind)
{
    if (kind == THRIFT_BYTE) return (int8_t)take_byte(in);
    if (kind == THRIFT_TRUE || kind == THRIFT_FALSE)
        return kind == THRIFT_TRUE;
    if (kind >= THRIFT_I16 && kind <= THRIFT_I64) return zigzag(in);
    in->failed = true;
    return 0;
}

const unsigned char *thrift_binary(struct thrift *in, enum thrift_kind kind,
                                   size_t *length)
{
    const unsigned char *bytes;
    const uint64_t count = kind == THRIFT_BINARY ? varint(in) : 0;

    *length = 0;
    if (kind != THRIFT_BINARY || in->failed || count > left(in)) {
        in->failed = true;
        return in->at;
    }
    bytes = in->at;
    in->at += count;
    *length = (size_t)count;
    return bytes;
}

int64_t thrift_list(struct thrift *in, enum thrift_kind kind,
                    enum thrift_kind *item)
{
    const unsigned head = take_byte(in);
    uint64_t count = head >> 4;

    *item = (enum thrift_kind)(head & 0xF);
    if (count == LONG_LIST) count = varint(in);
    if ((kind != THRIFT_LIST && kind != THRIFT_SET) || count > left(in) ||
        *item > THRIFT_STRUCT) {
        in->failed = true;
        return 0;
    }
    return in->failed ? 0 : (int64_t)count;
}

/* A list, map or struct that is being skipped. */
struct level {
    enum thrift_kind kind;
    enum thrift_kind item[2]; /* list, set: one; map: key and value */
    int64_t left;             /* items */
    int number;               /* struct: of its last field */
};

static void begin_map(struct thrift *in, struct level *level)
{
    const uint64_t pairs = varint(in);
    unsigned kinds;

    level->left = 0;
    if (pairs == 0) return;
    kinds = take_byte(in);
    if (pairs > left(in) || kinds >> 4 > THRIFT_STRUCT ||
        (kinds & 0xF) > THRIFT_STRUCT) {
        in->failed = true;
        return;
    }
    level->item[0] = (enum thrift_kind)(kinds >> 4);
    level->item[1] = (enum thrift_kind)(kinds & 0xF);
    level->left = (int64_t)(2 * pairs);
}

/* Skips a value, or begins a level for one that holds others. */
static bool skip_value(struct thrift *in, enum thrift_kind kind, bool in_list,
                       struct level *level)
{
    size_t length;

    *level = (struct level){.kind = kind};
    switch (kind) {
    case THRIFT_STOP: in->failed = true; return false;
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        if (in_list) take_byte(in); /* elsewhere the kind is the value */
        return false;
    case THRIFT_BYTE: take_byte(in); return false;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: varint(in); return false;
    case THRIFT_DOUBLE:
        for (int i = 0; i < 8; i++) take_byte(in);
        return false;
    case THRIFT_BINARY: thrift_binary(in, kind, &length); return false;
    case THRIFT_LIST:
    case THRIFT_SET:
        level->left = thrift_list(in, kind, &level->item[0]);
        level->item[1] = level->item[0];
        return true;
    case THRIFT_MAP: begin_map(in, level); return true;
    case THRIFT_STRUCT: return true;
    }
    return false;
}

void thrift_skip(struct thrift *in, enum thrift_kind kind)
{
    struct level levels[DEPTH_MAX];
    int depth = 0;

    if (!skip_value(in, kind, false, &levels[0])) return;
    while (depth >= 0 && !in->failed) {
        struct level *level = &levels[depth], next;
        const bool fields = level->kind == THRIFT_STRUCT;
        enum thrift_kind item;

        if (fields ? !thrift_field(in, &level->number, &item)
                   : level->left == 0) {
            depth--;
            continue;
        }
        if (!fields) item = level->item[level->left-- & 1];
        if (!skip_value(in, item, !fields, &next)) continue;
        if (++depth == DEPTH_MAX) in->failed = true;
        else levels[depth] = next;
    }
}
