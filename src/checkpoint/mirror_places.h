/* SPDX-License-Identifier: Apache-2.0 */
/* mirror_places.h - the steps of a run that an object storage holds.
 *
 * A step lies below step-00001000/. Where other training reaches the same step
 * (after a rewind, say), it goes to step-00001000-2/ and so on: objects that
 * may be read at the moment are not written again. */
#ifndef LOCKSTEP_CHECKPOINT_MIRROR_PLACES_H
#define LOCKSTEP_CHECKPOINT_MIRROR_PLACES_H

#include "base/arena.h"
#include "checkpoint/s3.h"

enum { MIRROR_NAME_BYTES = 48, MIRROR_VERSIONS_MOST = 100000 };

struct mirror_place { int64_t step; int version; }; /* version from 1 */
void mirror_place_name(char out[MIRROR_NAME_BYTES],
                       const struct mirror_place *place);
/* False when `name`, up to its end or a slash, is not of this form. */
bool mirror_place_parse(const char *name, struct mirror_place *out);

/* An object that a storage holds. */
struct mirror_object {
    struct mirror_place place;
    const char *key;       /* the arena's */
    bool manifest;         /* it is the manifest, which is sent last */
};
struct mirror_objects {
    struct mirror_object *items; /* owned */
    int count, capacity;
    struct arena arena;
};
/* Objects of steps whose names are safe; zeroed before. */
status mirror_objects_read(struct mirror_objects *objects, struct s3 *s3);
void mirror_objects_free(struct mirror_objects *objects);
/* The newest version of a step that was sent whole; 0: none. */
int mirror_version(const struct mirror_objects *objects, int64_t step);
/* Whether there is an object of that name. */
bool mirror_holds(const struct mirror_objects *objects, const char *key);

/* Removes steps before `newest` but for the last keep_last, the multiples of
 * keep_every (0: none) and `best` (-1: none), all versions of a step but the
 * newest whole one, and uploads in parts, up to `newest`, that nobody goes on
 * with. */
status mirror_prune(struct s3 *s3, const struct mirror_place *newest,
                    int64_t keep_last, int64_t keep_every, int64_t best);

#endif
