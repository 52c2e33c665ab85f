/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_footer.h - the description of one column in a Parquet file. */
#ifndef LOCKSTEP_CORPUS_PARQUET_FOOTER_H
#define LOCKSTEP_CORPUS_PARQUET_FOOTER_H

#include "base/arena.h"
#include "corpus/parquet_values.h"
#include "corpus/thrift.h"

/* The part of a column in one row group. */
struct parquet_chunk {
    int codec;
    int64_t rows;
    int64_t values;     /* with nulls; of a list: its items */
    int64_t at, bytes;  /* pages in the file, the dictionary's first */
};

struct parquet_footer {
    struct arena arena; /* owns what follows */
    enum parquet_type type;
    int depth;          /* definition level of a value that is there */
    bool list;
    int items;          /* of a list: level from which there is an item */
    struct parquet_chunk *chunks; /* [chunk_count] */
    int64_t chunk_count;
    int64_t rows;       /* of all row groups; at most INT32_MAX */
};

/* ERR_FORMAT: damaged; ERR_CONFIG: no such column (names those there are), or
 * one that is neither text nor a list of integers. */
status parquet_footer_read(struct parquet_footer *footer, const char *path,
                           const unsigned char *bytes, size_t length,
                           const char *column);
void parquet_footer_free(struct parquet_footer *footer);

#endif
