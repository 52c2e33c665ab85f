/* SPDX-License-Identifier: Apache-2.0 */
/* thrift.h - a reader of Thrift's compact protocol: what Parquet's headers are
 * written in.
 *
 * A struct is fields, each with a number and a kind, and a stop. Reading past
 * the end, or an impossible value, sets `failed` and gives zeros; `failed` is
 * checked once, when a header was read. Source: the Thrift project's
 * description of the compact protocol. */
#ifndef LOCKSTEP_CORPUS_THRIFT_H
#define LOCKSTEP_CORPUS_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum thrift_kind {
    THRIFT_STOP, THRIFT_TRUE, THRIFT_FALSE, THRIFT_BYTE, THRIFT_I16,
    THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE, THRIFT_BINARY, THRIFT_LIST,
    THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT
};

struct thrift {
    const unsigned char *at, *end;
    bool failed;
};

/* The next field of a struct; false at its stop. *number holds that of the
 * field before, 0 at first. */
bool thrift_field(struct thrift *in, int *number, enum thrift_kind *kind);
/* An integer of any width; 0 and failed when the kind is none. */
int64_t thrift_integer(struct thrift *in, enum thrift_kind kind);
/* Bytes that stay in the input. */
const unsigned char *thrift_binary(struct thrift *in, enum thrift_kind kind,
                                   size_t *length);
/* Items of a list that follow; never more than bytes are left. */
int64_t thrift_list(struct thrift *in, enum thrift_kind kind,
                    enum thrift_kind *item);
void thrift_skip(struct thrift *in, enum thrift_kind kind);

#endif
