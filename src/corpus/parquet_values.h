/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_values.h - numbers and texts of a Parquet page, one after the other.
 *
 *   hybrid   runs of one value and groups of eight values in a few bits each:
 *            levels and places in a dictionary
 *   delta    differences to the value before, packed in small blocks
 *   values   a page's values in any encoding that is supported
 *
 * Nothing is allocated but a text that is put together from two. Every function
 * says false where bytes end too early or cannot be. Source: the Parquet
 * format's page on encodings. */
#ifndef LOCKSTEP_CORPUS_PARQUET_VALUES_H
#define LOCKSTEP_CORPUS_PARQUET_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/text.h"

struct hybrid {
    const unsigned char *at, *end;
    int width;           /* bits of a value, 0 to 32 */
    int64_t left;        /* values of the run or group */
    bool packed;
    uint32_t value;      /* of a run */
    uint64_t bits;       /* read ahead of a group */
    int bit_count;
};

void hybrid_begin(struct hybrid *hybrid, const unsigned char *at,
                  const unsigned char *end, int width);
bool hybrid_next(struct hybrid *hybrid, uint32_t *value);
/* How many more values of the run are the one that came last; skips `count` of
 * them. */
int64_t hybrid_rest(const struct hybrid *hybrid);
void hybrid_skip(struct hybrid *hybrid, int64_t count);

struct delta {
    const unsigned char *at, *end;
    int64_t left, value;   /* values to come; the next one */
    int64_t block, minis, mini; /* values of a block, its miniblocks, of one */
    int64_t in_mini, in_block;  /* values left */
    const unsigned char *widths;
    int64_t least;
    int width;
    unsigned bit;          /* of the byte at `at` */
};

/* Numbers as in the Parquet format. */
enum parquet_type { PARQUET_INT32 = 1, PARQUET_INT64 = 2, PARQUET_BYTES = 6 };
enum parquet_encoding {
    ENCODING_PLAIN = 0, ENCODING_PLAIN_DICTIONARY = 2, ENCODING_DELTA = 5,
    ENCODING_DELTA_LENGTH = 6, ENCODING_DELTA_BYTES = 7,
    ENCODING_DICTIONARY = 8
};

/* The content of a dictionary page. */
struct parquet_dictionary {
    const unsigned char *bytes; /* plain values */
    const uint32_t *starts;     /* [count + 1] of texts, after their lengths */
    int64_t count;              /* -1: there is none */
    size_t length;              /* bytes */
};

struct parquet_values {
    enum parquet_type type;
    int encoding;
    const struct parquet_dictionary *dictionary;
    int64_t count;                  /* the most values of the page */
    const unsigned char *at, *end;
    struct hybrid places;
    struct delta numbers, prefixes; /* numbers: ids, or lengths of texts */
    struct text text;               /* owned: delta bytes */
};

/* Bytes of a page from the first value on. *known false: an encoding that is
 * not read. */
bool parquet_values_begin(struct parquet_values *values,
                          const unsigned char *at, const unsigned char *end,
                          bool *known);
bool parquet_values_number(struct parquet_values *values, int64_t *value);
/* Bytes that stay until the next call. */
bool parquet_values_text(struct parquet_values *values, const char **text,
                         size_t *length);

#endif
