/* SPDX-License-Identifier: Apache-2.0 */
/* stop_text.h - texts that end a generated text, wherever tokens cut them. */
#ifndef LOCKSTEP_INFERENCE_STOP_TEXT_H
#define LOCKSTEP_INFERENCE_STOP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct stop_texts {
    const char *const *items; /* borrowed, none empty */
    int count;                /* 0: nothing ends a text so */
};

/* How many of the bytes at the end of a text, not yet written, may be: up to
 * the first stop (*found), else all but the longest tail that begins one. all:
 * no bytes follow, so a tail that only begins one is written. */
size_t stop_text_certain(const struct stop_texts *stops, const char *bytes,
                         size_t length, bool all, bool *found);

#endif
