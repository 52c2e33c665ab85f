/* SPDX-License-Identifier: Apache-2.0 */
/* same.c - all ranks run the same program with the same configuration. */
#include "train/same.h"

#include <string.h>

#include "base/file.h"
#include "lockstep.h"

static const char *const may_differ[] = {
    "train.threads", "numerics.isa", "train.memory", "data.cache"};

static bool must_agree(const char *name)
{
    for (size_t i = 0; i < sizeof may_differ / sizeof *may_differ; i++)
        if (strcmp(name, may_differ[i]) == 0) return false;
    return true;
}

/* Two builds of one version are two programs. */
static uint32_t hash_program(void)
{
    struct text text = {0};
    uint32_t hash = 0;

    if (file_read("/proc/self/exe", (size_t)1 << 28, &text) == OK)
        hash = crc32c(0, text.bytes, text.length);
    else
        status_clear(); /* then the version must do */
    text_free(&text);
    return hash;
}

/* One line for everything that must agree: "train.batch\t16". */
static status describe(const struct options_set *set, struct text *out)
{
    const char *const *names;
    const int count = options_names(&names);
    struct text value = {0};
    status result;

    TRY_GOTO(done, result,
             text_printf(out, "the program\t%s (build %08x, numerics %d)\n",
                         LOCKSTEP_VERSION, hash_program(),
                         LOCKSTEP_NUMERICS_VERSION));
    for (int i = 0; i < count; i++) {
        if (!must_agree(names[i])) continue;
        text_free(&value);
        TRY_GOTO(done, result, options_get_text(set, names[i], &value));
        TRY_GOTO(done, result,
                 text_printf(out, "%s\t%s\n", names[i],
                             value.bytes != NULL ? value.bytes : ""));
    }
done:
    text_free(&value);
    return result;
}

/* The first line in which the two differ. */
static status compare(const char *mine, const char *first)
{
    while (*mine != '\0' && *first != '\0') {
        const int a = (int)strcspn(mine, "\n"), b = (int)strcspn(first, "\n");
        const int name = (int)strcspn(mine, "\t\n");

        if (a != b || memcmp(mine, first, (size_t)a) != 0)
            FAIL(ERR_CONFIG, "%.*s is \"%.*s\" on this rank, but \"%.*s\" on "
                             "rank 0; all ranks need the same program and "
                             "configuration", name, mine, a - name - 1,
                 mine + name + 1, (int)strcspn(first + name + 1, "\n"),
                 first + name + 1);
        mine += a + (mine[a] != '\0');
        first += b + (first[b] != '\0');
    }
    if (*mine != *first)
        FAIL(ERR_CONFIG, "this rank has another list of options than rank 0; "
                         "all ranks need the same program");
    return OK;
}

/* Rank 0's text on every rank. */
static status exchange(struct group *world, const struct text *mine,
                       void **first)
{
    double bytes = (double)mine->length;

    TRY(comm_broadcast(world, tensor_1d(&bytes, DTYPE_F64, 1), 0));
    TRY(memory_take((size_t)bytes + 1, 1, first));
    ((char *)*first)[(size_t)bytes] = '\0';
    if (world->rank == 0) memcpy(*first, mine->bytes, mine->length);
    return comm_broadcast(world, tensor_1d(*first, DTYPE_U8, (int64_t)bytes),
                          0);
}

status same_options(struct group *world, const struct options_set *set)
{
    struct text mine = {0};
    void *first = NULL;
    status result;

    if (world == NULL || world->size == 1) return OK;
    TRY_GOTO(done, result, describe(set, &mine));
    TRY_GOTO(done, result, exchange(world, &mine, &first));
    TRY_GOTO(done, result, comm_agree(world, compare(mine.bytes, first)));
done:
    memory_free(first);
    text_free(&mine);
    return result;
}

status same_schedule(struct group *world, const struct setup *setup)
{
    struct text lists = {0};
    status result;

    if (world == NULL || world->size == 1) return OK;
    TRY_GOTO(done, result, schedule_write(&setup->schedule, &lists));
    TRY_GOTO(done, result, comm_same(world, "schedule",
                                     crc32c(0, lists.bytes, lists.length)));
done:
    text_free(&lists);
    return result;
}
