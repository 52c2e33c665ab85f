/* SPDX-License-Identifier: Apache-2.0 */
/* snappy.c - unpacks a block of Snappy. */
#include "corpus/snappy.h"

#include <stdint.h>
#include <string.h>

struct unpacking {
    const unsigned char *at, *end;
    unsigned char *out;
    size_t done, length;
};

/* Little-endian; false: not that many bytes are left. */
static bool number(struct unpacking *u, unsigned bytes, size_t *value)
{
    *value = 0;
    if ((size_t)(u->end - u->at) < bytes) return false;
    for (unsigned i = 0; i < bytes; i++)
        *value |= (size_t)u->at[i] << 8 * i;
    u->at += bytes;
    return true;
}

static bool literal(struct unpacking *u, unsigned tag)
{
    enum { IN_TAG = 60 };
    size_t count = tag >> 2;

    if (count >= IN_TAG && !number(u, (unsigned)count - IN_TAG + 1, &count))
        return false;
    count++;
    if (count > (size_t)(u->end - u->at) || count > u->length - u->done)
        return false;
    memcpy(u->out + u->done, u->at, count);
    u->at += count;
    u->done += count;
    return true;
}

static bool copy(struct unpacking *u, unsigned tag)
{
    size_t count = (tag >> 2) + 1, distance;

    if (!number(u, (tag & 3) == 3 ? 4 : tag & 3, &distance)) return false;
    if ((tag & 3) == 1) {
        count = (tag >> 2 & 7) + 4;
        distance |= (size_t)(tag >> 5) << 8;
    }
    if (distance == 0 || distance > u->done || count > u->length - u->done)
        return false;
    if (distance >= count) {
        memcpy(u->out + u->done, u->out + u->done - distance, count);
    } else { /* the copy runs into itself: a repetition */
        for (size_t i = 0; i < count; i++)
            u->out[u->done + i] = u->out[u->done + i - distance];
    }
    u->done += count;
    return true;
}

bool snappy_unpack(const unsigned char *packed, size_t packed_length,
                   unsigned char *out, size_t length)
{
    struct unpacking u = {.at = packed, .end = packed + packed_length,
                          .out = out, .length = length};
    uint64_t said = 0;
    int shift = 0;

    for (;; shift += 7) {
        if (u.at == u.end || shift > 28) return false;
        said |= (uint64_t)(*u.at & 0x7F) << shift;
        if (*u.at++ < 0x80) break;
    }
    if (said != length) return false;
    while (u.at < u.end) {
        const unsigned tag = *u.at++;

        if (!((tag & 3) == 0 ? literal(&u, tag) : copy(&u, tag))) return false;
    }
    return u.done == length;
}
