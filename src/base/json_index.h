/* SPDX-License-Identifier: Apache-2.0 */
/* json_index.h - the key index of large JSON objects; only the reader and
 * json_get know it. */
#ifndef LOCKSTEP_BASE_JSON_INDEX_H
#define LOCKSTEP_BASE_JSON_INDEX_H

#include "base/json.h"

/* Gives an object of many keys its index, in time linear in their number.
 * *twice = a key that stood there before, or NULL. */
status json_index_build(struct json *object, struct arena *arena,
                        uint64_t seed, const struct json **twice);

#endif
