/* SPDX-License-Identifier: Apache-2.0 */
/* run_tokenizer.h - the tokenizer of a run: tokenizer.from, if it is set. */
#ifndef LOCKSTEP_TOKENIZER_RUN_TOKENIZER_H
#define LOCKSTEP_TOKENIZER_RUN_TOKENIZER_H

#include "base/options.h"
#include "base/vocabulary.h"
#include "tokenizer/tokenizer.h"

struct run_tokenizer {
    struct tokenizer tokenizer;   /* owned, where vocabulary.size > 0 */
    struct vocabulary vocabulary;
};

/* ERR_CONFIG: tokenizer.end_of_text is no token of it; ERR_IO, ERR_FORMAT: the
 * file. */
status run_tokenizer_read(struct run_tokenizer *out, const struct options *o);
void run_tokenizer_free(struct run_tokenizer *of);
/* NULL: the run has none. */
const struct tokenizer *run_tokenizer_of(const struct run_tokenizer *of);
/* The sizes alone. */
status run_vocabulary(struct vocabulary *out, const struct options *o);

#endif
