/* SPDX-License-Identifier: Apache-2.0 */
/* stop_text.c - texts that end a generated text, wherever tokens cut them. */
#include "inference/stop_text.h"

#include <string.h>

size_t stop_text_certain(const struct stop_texts *stops, const char *bytes,
                         size_t length, bool all, bool *found)
{
    *found = false;
    for (size_t at = 0; at < length; at++)
        for (int i = 0; i < stops->count; i++) {
            const size_t whole = strlen(stops->items[i]), left = length - at;
            const size_t compared = whole < left ? whole : left;

            if (memcmp(bytes + at, stops->items[i], compared) != 0 ||
                (all && whole > left))
                continue;
            /* An earlier one may still become whole: it counts first. */
            *found = compared == whole;
            return at;
        }
    return length;
}
