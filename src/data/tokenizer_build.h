/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_build.h - the parts of reading a tokenizer.json. */
#ifndef LOCKSTEP_DATA_TOKENIZER_BUILD_H
#define LOCKSTEP_DATA_TOKENIZER_BUILD_H

#include "base/json.h"
#include "data/tokenizer.h"

/* added_tokens: copies them into the tokenizer (ids are those of the file).
 */
status tokenizer_read_added(struct tokenizer *tokenizer,
                            const struct json *root);
/* model.vocab and the added tokens: names, bytes, kinds and both tables. */
status tokenizer_read_vocab(struct tokenizer *tokenizer,
                            const struct json *model);
/* model.merges, after the vocabulary. */
status tokenizer_read_merges(struct tokenizer *tokenizer,
                             const struct json *model);
/* post_processor: what the template puts around a text. */
status tokenizer_read_template(struct tokenizer *tokenizer,
                               const struct json *json);

#endif
