/* SPDX-License-Identifier: Apache-2.0 */
/* setup_parameters.c - the parameters of a run, and the optimizer settings of
 * each. */
#include <string.h>

#include "models/mup.h"
#include "optimizer/groups.h"
#include "setup/setup.h"

/* Chooses the settings of single parameters. */
static status choose_groups(struct setup *setup,
                            const struct param_table *whole)
{
    void *rates = NULL;

    TRY(groups_check(&setup->groups, whole));
    if (setup->model.mup == 0) return OK;
    TRY(memory_take((size_t)whole->count + 1, sizeof *setup->rates, &rates));
    setup->groups.rates = setup->rates = rates;
    for (int i = 0; i < whole->count; i++) {
        const struct mup mup = mup_of(&setup->model, &whole->items[i]);

        setup->rates[i] =
            (struct rate_factors){mup.rate, mup.sgd, mup.gain};
    }
    return OK;
}

/* QK-clip shrinks weights after their update. */
static status check_clip(const struct setup *setup, const struct param *param)
{
    if (setup->set->values.optimizer.qk_clip <= 0 ||
        param->spec.role != ROLE_QKV)
        return OK;
    FAIL(ERR_CONFIG, "optimizer.qk_clip: would change %s, which is frozen; set "
                     "it to 0, or leave that matrix to learn", param->name);
}

/* Elements that are not frozen. */
static status count_trained(struct setup *setup,
                            const struct param_table *whole)
{
    struct optimizer_choice choice = {.groups = setup->groups};
    struct optimizer_rule *rules;
    void *memory = NULL;
    status result;

    TRY(optimizer_find(&choice.kind, setup->set->values.optimizer.name));
    TRY(memory_take((size_t)whole->count + 1, sizeof *rules, &memory));
    rules = memory;
    result = rules_build(rules, whole, &choice);
    for (int i = 0; result == OK && i < whole->count; i++)
        if (rules[i].frozen && !whole->items[i].spec.fixed)
            result = check_clip(setup, &whole->items[i]);
        else setup->trained += whole->items[i].elements;
    memory_free(memory);
    if (result == OK && setup->trained == 0)
        FAIL(ERR_CONFIG, "optimizer.groups: every parameter is frozen; at "
                         "least one must learn");
    return result;
}

status setup_parameters(struct setup *setup)
{
    const struct option_list *rows = &setup->set->values.optimizer.groups;
    struct program whole;
    status result;

    setup->groups = (struct groups){
        .rows = rows->items, .count = rows->count,
        .prefix = setup->model.kind->layer_prefix,
        .adapters = setup->model.lora.rank > 0};
    if (setup->parameters > 0 && setup->model.mup == 0) return OK;
    setup->trained = 0;
    TRY(model_build_whole(&whole, &setup->model));
    setup->parameters = whole.params.parameters;
    TRY_GOTO(done, result, choose_groups(setup, &whole.params));
    result = count_trained(setup, &whole.params);
done:
    program_free(&whole);
    return result;
}
