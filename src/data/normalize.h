/* SPDX-License-Identifier: Apache-2.0 */
/* normalize.h - the Unicode normal forms that a tokenizer may ask for. */
#ifndef LOCKSTEP_DATA_NORMALIZE_H
#define LOCKSTEP_DATA_NORMALIZE_H

#include "base/json.h"
#include "base/text.h"

enum normal_form { FORM_NFC, FORM_NFD, FORM_NFKC, FORM_NFKD };
enum { NORMALIZE_STEPS_MAX = 4 };

struct normalizer {
    enum normal_form steps[NORMALIZE_STEPS_MAX];
    int count; /* 0: text stays as it is */
};

/* From the "normalizer" of tokenizer.json; NULL and null: none. ERR_FORMAT
 * names a component that is not known. */
status normalizer_read(struct normalizer *normalizer, const struct json *json,
                       const char *source);
/* *result = text in normal form: the input itself when nothing changes for
 * sure, else in `work`, which the caller frees. */
status normalizer_run(const struct normalizer *normalizer, const char *text,
                      size_t length, struct text *work, const char **result,
                      size_t *result_length);

#endif
