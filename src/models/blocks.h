/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h - a set of blocks: those that are excepted from the window, or from
 * turning queries and keys. As text: "0-4,6". */
#ifndef LOCKSTEP_MODELS_BLOCKS_H
#define LOCKSTEP_MODELS_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* The most of model.layers (base/options.def). */
enum { BLOCKS_MOST = 10000, BLOCKS_WORDS = (BLOCKS_MOST + 63) / 64 };

struct blocks { uint64_t words[BLOCKS_WORDS]; };

bool blocks_has(const struct blocks *set, int layer);
void blocks_put(struct blocks *set, int layer);
/* Every n-th block, n = period; 0: none. */
void blocks_every(struct blocks *set, int count, int period);
/* The period that makes the set again; -1: none does. */
int blocks_period(const struct blocks *set, int count);
int blocks_count(const struct blocks *set);
/* The number of the `count` blocks from `first` on that are in it. */
int blocks_among(const struct blocks *set, int first, int count);
bool blocks_same(const struct blocks *a, const struct blocks *b);
/* `where` begins the sentence of an error. "" is no block. */
status blocks_from_text(struct blocks *set, int count, const char *where,
                        const char *text);
status blocks_to_text(const struct blocks *set, int count, struct text *out);

#endif
