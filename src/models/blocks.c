/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - a set of blocks, one bit for each. */
#include "models/blocks.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool blocks_has(const struct blocks *set, int layer)
{
    return (set->words[layer / 64] >> layer % 64 & 1) != 0;
}

void blocks_put(struct blocks *set, int layer)
{
    set->words[layer / 64] |= (uint64_t)1 << layer % 64;
}

void blocks_every(struct blocks *set, int count, int period)
{
    *set = (struct blocks){{0}};
    for (int i = period; period > 0 && i <= count; i += period)
        blocks_put(set, i - 1);
}

int blocks_period(const struct blocks *set, int count)
{
    struct blocks again;
    int first = 0;

    while (first < count && !blocks_has(set, first)) first++;
    if (first == count) return 0;
    blocks_every(&again, count, first + 1);
    return blocks_same(set, &again) ? first + 1 : -1;
}

int blocks_count(const struct blocks *set)
{
    int count = 0;

    for (int i = 0; i < BLOCKS_WORDS; i++)
        count += __builtin_popcountll(set->words[i]);
    return count;
}

int blocks_among(const struct blocks *set, int first, int count)
{
    int found = 0;

    while (count > 0) {
        const int bit = first % 64, rest = 64 - bit;
        const int here = count < rest ? count : rest;
        const uint64_t word = set->words[first / 64] >> bit;

        found += __builtin_popcountll(
            here == 64 ? word : word & (((uint64_t)1 << here) - 1));
        first += here;
        count -= here;
    }
    return found;
}

bool blocks_same(const struct blocks *a, const struct blocks *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* A number below count at *text, which moves behind it; -1: there is none. */
static int number(const char **text, int count)
{
    char *end;

    if (!isdigit((unsigned char)**text)) return -1;
    const long value = strtol(*text, &end, 10);

    *text = end;
    return value < count ? (int)value : -1;
}

/* "3" or "3-5" at *text, which moves behind it. */
static bool range(struct blocks *set, int count, const char **text)
{
    const int first = number(text, count);
    int last = first;

    if (first < 0) return false;
    if (**text == '-') {
        (*text)++;
        last = number(text, count);
    }
    for (int i = first; i <= last; i++) blocks_put(set, i);
    return last >= first;
}

status blocks_from_text(struct blocks *set, int count, const char *where,
                        const char *text)
{
    const char *at = text;

    *set = (struct blocks){{0}};
    if (*at == 0) return OK;
    while (range(set, count, &at)) {
        if (*at == 0) return OK;
        if (*at++ != ',') break;
    }
    FAIL(ERR_CONFIG, "%s: \"%s\" is not a list of blocks from 0 to %d, such as "
         "0-2,4",
         where, text, count - 1);
}

status blocks_to_text(const struct blocks *set, int count, struct text *out)
{
    const char *comma = "";

    for (int first = 0, last; first < count; first = last + 1) {
        last = first;
        if (!blocks_has(set, first)) continue;
        while (last + 1 < count && blocks_has(set, last + 1)) last++;
        if (last > first)
            TRY(text_printf(out, "%s%d-%d", comma, first, last));
        else
            TRY(text_printf(out, "%s%d", comma, first));
        comma = ",";
    }
    return OK;
}
