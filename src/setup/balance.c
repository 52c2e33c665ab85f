/* SPDX-License-Identifier: Apache-2.0 */
/* balance.c - the tokens whose choices weigh the experts in balance losses. */
#include "setup/balance.h"

#include <string.h>

static const char *const names[] = {[BALANCE_SEQUENCE] = "sequence",
                                    [BALANCE_BATCH] = "batch",
                                    [BALANCE_MICRO_BATCH] = "micro_batch"};
enum { NAMES = sizeof names / sizeof *names };

status balance_choose(struct regularization *out, const struct options *o)
{
    const char *name = o->moe.balance_scope;
    int which = 0;

    while (which < NAMES && strcmp(name, names[which]) != 0) which++;
    if (which == NAMES) {
        const char *near = text_nearest(name, names, NAMES);

        FAIL(ERR_CONFIG, "moe.balance_scope: %s is not sequence, batch or "
                         "micro_batch%s%s", name, near ? "; nearest: " : "",
             near ? near : "");
    }
    out->scope = o->moe.balance_loss > 0 || o->moe.device_loss > 0
                     ? (enum balance_scope)which : BALANCE_SEQUENCE;
    return OK;
}

bool balance_needs_micro_batch(const struct options *o)
{
    return strcmp(o->moe.balance_scope, names[BALANCE_MICRO_BATCH]) == 0 &&
           (o->moe.balance_loss > 0 || o->moe.device_loss > 0);
}

status balance_check(const struct setup *setup)
{
    const struct stage_request *r = &setup->request;
    const int64_t asked = setup->set->values.train.micro_batch;

    if (r->regular.scope != BALANCE_MICRO_BATCH ||
        setup->model.moe.experts == 0)
        return OK;
    if (asked == 0)
        FAIL(ERR_CONFIG, "moe.balance_scope: micro_batch makes the micro-batch "
                         "a part of the result, and train.micro_batch is left "
                         "open; set it, such as train.micro_batch=%lld",
             (long long)r->size.micro_batch);
    if (asked != r->size.micro_batch)
        FAIL(ERR_CONFIG, "moe.balance_scope: micro_batch makes the micro-batch "
                         "a part of the result: a rank has %lld sequences, "
                         "fewer than train.micro_batch=%lld; use fewer ranks "
                         "that share the batch", (long long)r->size.micro_batch,
             (long long)asked);
    return OK;
}
