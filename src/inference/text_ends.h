/* SPDX-License-Identifier: Apache-2.0 */
/* text_ends.h - the tokens that end a text.
 *
 * The tokenizer's end of text, and every id of eos_token_id: config.json and
 * generation_config.json may give a list (Llama 3 Instruct: two ends). */
#ifndef LOCKSTEP_INFERENCE_TEXT_ENDS_H
#define LOCKSTEP_INFERENCE_TEXT_ENDS_H

#include "models/model.h"
#include "tokenizer/tokenizer.h"

struct text_ends {
    int count;
    int32_t ids[MODEL_MORE_ENDS + 2]; /* the tokenizer's first, if it has one */
};

/* Ids that the model has no row for are left out. */
void text_ends_find(const struct tokenizer *tokenizer,
                    const struct model *model, struct text_ends *out);
bool text_ends_has(const struct text_ends *ends, int32_t id);

#endif
