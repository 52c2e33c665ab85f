/* SPDX-License-Identifier: Apache-2.0 */
/* kind.c - the table of optimizers, and which of them has which parameter. */
#include "optimizer/kind.h"

#include <string.h>

#include "base/text.h"
#include "optimizer/groups.h"
#include "optimizer/whole_tensors.h"

/* Every optimizer there is. */
static const struct optimizer_kind *const kinds[] = {
    &optimizer_adamw, &optimizer_lion, &optimizer_sgd,
    &optimizer_muon,
    &optimizer_adafactor, &optimizer_soap,
    &optimizer_schedule_free};
enum { KINDS = sizeof kinds / sizeof *kinds };

status optimizer_find(const struct optimizer_kind **kind, const char *name)
{
    const char *names[KINDS];

    for (int i = 0; i < KINDS; i++) {
        *kind = kinds[i];
        names[i] = kinds[i]->name;
        if (strcmp(names[i], name) == 0) return OK;
    }
    const char *near = text_nearest(name, names, KINDS);

    FAIL(ERR_CONFIG, "optimizer.name: %s is not an optimizer%s%s; "
                     "docs/optimizers.md has the list", name,
         near ? "; nearest: " : "", near ? near : "");
}

status state_type_parse(enum state_type *type, const char *name)
{
    static const char *const names[] = {"float32", "bfloat16", "int8"};
    enum { NAMES = sizeof names / sizeof *names };

    for (int i = 0; i < NAMES; i++) {
        *type = (enum state_type)i;
        if (strcmp(names[i], name) == 0) return OK;
    }
    const char *near = text_nearest(name, names, NAMES);

    FAIL(ERR_CONFIG, "optimizer.state_dtype: %s is not float32, bfloat16 or "
                     "int8%s%s", name, near ? "; nearest: " : "",
         near ? near : "");
}

/* A matrix of a block, as papers on matrices of weights mean it. */
static bool is_inner_matrix(const struct param *param)
{
    return !param->spec.vector && !param->spec.outside_vector &&
           param->layer >= 0;
}

/* Validation and checkpoints read the average of all weights. */
static status check_averages(const struct optimizer_rule *rules,
                             const struct param_table *table,
                             const struct optimizer_kind *kind)
{
    for (int i = 0; i < table->count; i++)
        if (rules[i].kind->average != NULL && rules[i].kind != kind)
            FAIL(ERR_CONFIG, "optimizer.groups: %s has %s, which averages "
                             "whole models; set optimizer.name to it instead",
                 table->items[i].name, rules[i].kind->name);
    return OK;
}

static status check_masters(const struct optimizer_rule *rules,
                            const struct param_table *table)
{
    for (int i = 0; i < table->count; i++) {
        const struct optimizer_kind *kind = rules[i].kind;

        if (kind->whole != NULL && kind->whole->weights && !rules[i].frozen)
            FAIL(ERR_CONFIG, "optimizer.masters: split, but %s, which updates "
                             "%s, reads the masters of whole matrices; set it "
                             "to float32, or choose adamw, muon or soap",
                 kind->name, table->items[i].name);
    }
    return OK;
}

status rules_build(struct optimizer_rule *rules,
                   const struct param_table *table,
                   const struct optimizer_choice *choice)
{
    const struct optimizer_kind *kind =
        choice->kind != NULL ? choice->kind : &optimizer_adamw;

    for (int i = 0; i < table->count; i++) {
        rules[i] = (struct optimizer_rule){
            .kind = kind, .lr = 1, .gradient = 1, .weight_decay = -1,
            .beta1 = -1, .beta2 = -1, .average = choice->average};
        if (kind->matrices && !is_inner_matrix(&table->items[i]))
            rules[i].kind = &optimizer_adamw;
        rules[i].frozen = choice->groups.adapters &&
                          !table->items[i].spec.adapter;
    }
    TRY(groups_apply(&choice->groups, table, rules));
    for (int i = 0; i < table->count; i++)
        if (table->items[i].spec.fixed) rules[i].frozen = true;
    if (choice->split) TRY(check_masters(rules, table));
    return check_averages(rules, table, kind);
}

const struct optimizer_state *rule_state(const struct optimizer_rule *rule,
                                         int slot)
{
    static const struct optimizer_state average = {
        .name = "ema", .title = "moving averages"};

    if (slot == STATE_AVERAGE)
        return rule->frozen || rule->average == 0 ? NULL : &average;
    if (rule->frozen || rule->kind->states[slot].name == NULL) return NULL;
    return &rule->kind->states[slot];
}
