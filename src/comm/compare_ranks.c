/* SPDX-License-Identifier: Apache-2.0 */
/* compare_ranks.c - checks that values are the same on all ranks before they
 * are used. */
#include "comm/compare_ranks.h"

#include <inttypes.h>
#include <string.h>
#include "base/arena.h"

enum { LINE_SHOWN = 100 }; /* bytes */

status comm_same(struct group *group, const char *what, uint64_t number)
{
    uint64_t first = number;
    const struct tensor bytes = tensor_1d(&first, DTYPE_U8, sizeof first);
    status mine = OK;

    TRY(comm_broadcast(group, bytes, 0));
    if (first != number)
        mine = status_fail(ERR_CONFIG, __FILE__, __LINE__,
                           "another %s (%016" PRIx64 ") than rank 0 (%016"
                           PRIx64 "); all ranks need the same program and "
                           "configuration", what, number, first);
    TRY(comm_agree(group, mine));
    return OK;
}

struct line { const char *bytes; int length; };

static struct line line_at(const char *text, size_t length, size_t at)
{
    const char *first = text + at, *end;

    end = at < length ? memchr(first, '\n', length - at) : NULL;
    const size_t bytes = at >= length ? 0
                         : end != NULL ? (size_t)(end - first) : length - at;

    return (struct line){first, bytes < LINE_SHOWN ? (int)bytes : LINE_SHOWN};
}

/* The line that holds the first byte in which they differ. */
static status fail_text(const char *what, const char *mine, size_t mine_length,
                        const char *first, size_t first_length)
{
    size_t at = 0, begin = 0;
    struct line here, there;

    while (at < mine_length && at < first_length && mine[at] == first[at])
        if (mine[at++] == '\n') begin = at;
    here = line_at(mine, mine_length, begin);
    there = line_at(first, first_length, begin);
    FAIL(ERR_CONFIG, "another %s than rank 0: \"%.*s\" here, \"%.*s\" there; "
         "all ranks need the same", what, here.length, here.bytes,
         there.length, there.bytes);
}

status comm_same_text(struct group *group, const char *what, const char *text,
                      size_t length)
{
    uint64_t bytes = length;
    void *first = NULL;
    status mine = OK, result;

    TRY(comm_broadcast(group, tensor_1d(&bytes, DTYPE_U8, sizeof bytes), 0));
    TRY(memory_take((size_t)bytes + 1, 1, &first));
    if (group->rank == 0 && length > 0) memcpy(first, text, length);
    TRY_GOTO(done, result, comm_broadcast(
        group, tensor_1d(first, DTYPE_U8, (int64_t)bytes), 0));
    if (bytes != length || (length > 0 && memcmp(first, text, length) != 0))
        mine = fail_text(what, text, length, first, (size_t)bytes);
    result = comm_agree(group, mine);
done:
    memory_free(first);
    return result == OK ? OK : status_pass(result, __FILE__, __LINE__);
}
