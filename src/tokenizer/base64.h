/* SPDX-License-Identifier: Apache-2.0 */
/* base64.h - bytes written as text (RFC 4648, section 4). */
#ifndef LOCKSTEP_TOKENIZER_BASE64_H
#define LOCKSTEP_TOKENIZER_BASE64_H

#include "base/text.h"

/* Appends the bytes that `text` [length] stands for. ERR_FORMAT: a character
 * that is not of the alphabet, or a length that cannot be; `source` names the
 * file. */
status base64_read(struct text *out, const char *text, size_t length,
                   const char *source);

#endif
