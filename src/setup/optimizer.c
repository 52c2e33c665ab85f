/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.c - from options to an optimizer, its states and its masters. */
#include "setup/optimizer.h"

#include <string.h>

#include "base/text.h"

/* Whether masters are split. */
static status choose_masters(struct optimizer_choice *choice,
                             const struct options *o, enum dtype dtype)
{
    static const char *const values[] = {"float32", "split"};
    const char *near = text_nearest(o->optimizer.masters, values, 2);

    choice->split = strcmp(o->optimizer.masters, "split") == 0;
    if (strcmp(o->optimizer.masters, "float32") == 0) return OK;
    if (!choice->split)
        FAIL(ERR_CONFIG, "optimizer.masters: %s is not float32 or split%s%s",
             o->optimizer.masters, near ? "; nearest: " : "",
             near ? near : "");
    if (dtype != DTYPE_BF16)
        FAIL(ERR_CONFIG, "optimizer.masters: split keeps what weights of "
                         "bfloat16 lack, and train.dtype is %s; set one to "
                         "float32 or the other to bfloat16", dtype_name(dtype));
    if (choice->states == STATE_INT8)
        FAIL(ERR_CONFIG, "optimizer.masters: split beside optimizer.state_dtype"
                         "=int8, whose scales span more weights than are "
                         "numbers at once; bfloat16 states go with it");
    return OK;
}

/* Which optimizer, and how it stores its states. */
static status choose_kind(struct optimizer_choice *choice,
                               const struct options *o, enum dtype dtype)
{
    const struct optimizer_kind *kind;
    bool narrow;

    TRY(optimizer_find(&choice->kind, o->optimizer.name));
    TRY(state_type_parse(&choice->states, o->optimizer.state_dtype));
    kind = choice->kind;
    narrow = kind->matrices; /* adamw has the rest */
    for (int i = 0; i < OPTIMIZER_STATES; i++)
        narrow = narrow || kind->states[i].narrow;
    if (kind == &optimizer_schedule_free && o->optimizer.beta1 == 0)
        FAIL(ERR_CONFIG, "optimizer.beta1: 0 leaves schedule_free no average; "
                         "0.9 is usual");
    if (kind == &optimizer_schedule_free &&
        strcmp(o->optimizer.schedule, "constant") != 0)
        FAIL(ERR_CONFIG, "optimizer.schedule: %s, but schedule_free has an "
                         "average instead of a schedule; set it to constant "
                         "(optimizer.warmup may stay)", o->optimizer.schedule);
    if (kind == &optimizer_schedule_free &&
        (o->optimizer.ema > 0 || o->optimizer.qk_clip > 0))
        FAIL(ERR_CONFIG, "optimizer.%s: schedule_free trains weights whose "
                         "average it keeps already; set it to 0",
             o->optimizer.ema > 0 ? "ema" : "qk_clip");
    if (choice->states == STATE_REAL) return OK;
    if (!narrow)
        FAIL(ERR_CONFIG, "optimizer.state_dtype: %s stores its states as "
                         "float32 only; adamw, lion, sgd and muon have "
                         "bfloat16 and int8", kind->name);
    if (dtype == DTYPE_F64)
        FAIL(ERR_CONFIG, "optimizer.state_dtype: %s beside train.dtype=float64;"
                         " states are narrow where computing is float32, "
                         "bfloat16 or float16", o->optimizer.state_dtype);
    return OK;
}

static status check_averages(const struct options *o)
{
    const char *weights = o->validate.weights;

    if (o->optimizer.ema >= 1)
        FAIL(ERR_CONFIG, "optimizer.ema: a decay of 1 keeps the weights of "
                         "step 0; 0.999 is usual");
    if (strcmp(weights, "ema") == 0 && o->optimizer.ema == 0)
        FAIL(ERR_CONFIG, "validate.weights: ema, but optimizer.ema is 0: there "
                         "is not an average; 0.999 is usual");
    if (strcmp(weights, "ema") == 0 || strcmp(weights, "trained") == 0)
        return OK;
    FAIL(ERR_CONFIG, "validate.weights: %s is not trained or ema", weights);
}

status optimizer_choose(struct optimizer_choice *choice,
                        const struct options *o, enum dtype dtype)
{
    TRY(choose_kind(choice, o, dtype));
    TRY(choose_masters(choice, o, dtype));
    choice->average = o->optimizer.ema;
    return check_averages(o);
}
