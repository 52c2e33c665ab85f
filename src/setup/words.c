/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - options that are words, where nothing is set up: a step of another
 * program is predicted from them all the same. */
#include <string.h>

#include "nn/program.h"
#include "optimizer/kind.h"
#include "schedule/build.h"
#include "setup/rounds.h"
#include "setup/setup.h"

status setup_dtype(const char *name, enum dtype *out)
{
    static const char *const names[] = {"float32", "float64", "bfloat16",
                                        "float16"};
    enum { NAMES = sizeof names / sizeof *names };

    for (int i = 0; i < NAMES; i++)
        if (strcmp(name, names[i]) == 0 && dtype_parse(name, out)) return OK;
    const char *near = text_nearest(name, names, NAMES);

    FAIL(ERR_CONFIG, "train.dtype: %s is not float32, float64, bfloat16 or "
                     "float16%s%s", name, near ? "; nearest: " : "",
         near ? near : "");
}

status setup_check_words(const struct options *o)
{
    const struct optimizer_kind *kind;
    const struct schedule_row *row;
    struct mesh alone = mesh_alone();
    struct mesh_order order;
    enum dtype dtype;

    TRY(setup_dtype(o->train.dtype, &dtype));
    TRY(program_check_recompute(o->train.recompute.items,
                                o->train.recompute.count));
    TRY(rounds_check(o->zero_reduce));
    TRY(optimizer_find(&kind, o->optimizer.name));
    TRY(mesh_order_parse(&order, o->mesh.order));
    TRY(mesh_nodes(&alone, &order, 0, o->moe.exchange));
    if (setup_schedule_is_file(o->schedule.name)) return OK;
    return schedule_row_find(o->schedule.name, &row);
}
