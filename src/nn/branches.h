/* SPDX-License-Identifier: Apache-2.0 */
/* branches.h - sequences that begin alike, with the beginning there once.
 *
 *    tokens   |t t t t t|a a a|b b|c c c c| ...      trunk t, branches a b c
 *    means    ttttt aaa,  ttttt bb,  ttttt cccc
 *
 * All that a program does but attention knows single tokens only. Attention of
 * a branch reads the keys of its trunk and its own, laid one after the other
 * from position 0 on: granules, lanes and the tree over them (docs/numerics.md)
 * are those of the sequence alone, and so are the bits. Forward passes of
 * programs that are not cut over ranks. */
#ifndef LOCKSTEP_NN_BRANCHES_H
#define LOCKSTEP_NN_BRANCHES_H

#include "kernels/kernels.h"

struct branch {
    int64_t first, count; /* tokens of the batch */
    int64_t trunk;        /* tokens before them: those from trunk_first on */
    int64_t trunk_first;
};

struct branches {
    const struct branch *items; /* [count] that cover the batch */
    int64_t count;
    void *keys;                 /* branches_bytes: keys and values of one */
};

/* Bytes of the keys of a sequence of that many tokens, `width` elements of
 * keys and values each. */
size_t branches_bytes(int64_t tokens, int64_t width, enum dtype dtype);
/* `call` describes one sequence of all tokens. */
status branches_attend(const struct kernels *kernels, struct stream *stream,
                       const struct attention *call,
                       const struct branches *branches);

#endif
