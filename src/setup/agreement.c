/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.c - all ranks run the same program with the same configuration. */
#include "setup/agreement.h"

#include <string.h>

#include "base/file.h"
#include "comm/compare_ranks.h"
#include "lockstep.h"

/* Two builds of one version are two programs. */
static status hash_program(uint32_t *hash)
{
    struct text text = {0};
    status result = file_read("/proc/self/exe", (size_t)1 << 28, &text);

    *hash = result == OK ? crc32c(0, text.bytes, text.length) : 0;
    text_free(&text);
    if (result == OK || result == ERR_MEMORY) return result;
    status_clear(); /* then the version must do */
    return OK;
}

/* One line for everything that must agree: "train.batch=16". */
static status describe(const struct options_set *set, struct text *out)
{
    struct text value = {0};
    uint32_t hash;
    status result;

    TRY_GOTO(done, result, hash_program(&hash));
    TRY_GOTO(done, result,
             text_printf(out, "program=%s (build %08x, numerics %d)\n",
                         LOCKSTEP_VERSION, hash,
                         LOCKSTEP_NUMERICS_VERSION));
    for (int i = 0; i < options_count(); i++) {
        const char *name = option_name(i);

        if (options_may_differ(name)) continue;
        text_free(&value);
        TRY_GOTO(done, result, options_get_text(set, name, &value));
        TRY_GOTO(done, result,
                 text_printf(out, "%s=%s\n", name,
                             value.bytes != NULL ? value.bytes : ""));
    }
done:
    text_free(&value);
    return result;
}

status same_options(struct group *world, const struct options_set *set)
{
    struct text mine = {0};
    status result;

    if (world == NULL || world->size == 1) return OK;
    TRY_GOTO(done, result, describe(set, &mine));
    TRY_GOTO(done, result, comm_same_text(world, "configuration", mine.bytes,
                                          mine.length));
done:
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
