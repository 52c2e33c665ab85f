/* SPDX-License-Identifier: Apache-2.0 */
/* access.h - the memory that an instruction reads and writes, stated once: the
 * pass that finds needs, and the verifier, both read it.
 *
 * Memory is a space of one stage, an interval of it, and a tag that says what
 * lies there: a micro-batch in a frame, a unit in a room. A read names the tag
 * that it expects; a write leaves one. */
#ifndef LOCKSTEP_LIST_ACCESS_H
#define LOCKSTEP_LIST_ACCESS_H

#include "list/list.h"

enum space {
    SPACE_BATCH, SPACE_FRAME,   /* by frames: sequences; activations */
    SPACE_ENTRY, SPACE_EXIT,    /* ... and the borders of a stage */
    SPACE_EXIT_GRADIENT, SPACE_ENTRY_GRADIENT,
    SPACE_RETURN,               /* by buffers */
    SPACE_ROOM,                 /* of gathered weights, by elements */
    SPACE_BUCKET,               /* of gradients to be reduced, by elements */
    SPACE_GRADIENTS,            /* by items of stage->reduced, per level */
    SPACE_WEIGHTS,              /* by units */
    SPACE_PLACED,               /* by units: where kernels read them */
    SPACE_AHEAD,                /* by micro-batches, of the first chunk: the
                                 * batch of the next step */
    SPACE_COUNT
};

enum { TAG_ANY = -1, TAG_NONE = 0 };
/* SPACE_GRADIENTS: of micro-batches; of the ranks that divide them; of all. */
enum { TAG_OPEN = 1, TAG_REDUCED, TAG_SUMMED };

struct access {
    enum space space;
    int chunk;
    int64_t first, end;
    bool writes;
    int64_t expects;   /* there before; TAG_ANY: whatever */
    int64_t leaves;    /* there afterwards: writes only; TAG_ANY: the same */
};

typedef status access_visit(void *argument, const struct access *access);

/* Calls `visit` for each access of an instruction, in the order in which they
 * happen. */
status list_accesses(const struct pipeline *pipeline, bool forward,
                     const struct instruction *instruction,
                     access_visit *visit, void *argument);
/* Only those to spaces of which there is a bit in `spaces`. */
status list_accesses_to(uint32_t spaces, const struct pipeline *pipeline,
                        bool forward, const struct instruction *instruction,
                        access_visit *visit, void *argument);

static inline bool access_conflicts(const struct access *a,
                                    const struct access *b)
{
    return a->space == b->space && a->chunk == b->chunk &&
           a->first < b->end && b->first < a->end &&
           (a->writes || b->writes);
}

#endif
