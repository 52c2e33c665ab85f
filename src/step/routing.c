/* SPDX-License-Identifier: Apache-2.0 */
/* routing.c - where the routers of a mixture of experts sent the tokens of a
 * step. */
#include "step/routing.h"

#include <string.h>

#include "kernels/math.h"
#include "nn/routes.h"

static int64_t count_of(const struct routing *routing)
{
    return (int64_t)routing->layers * routing->experts;
}

static enum balance_scope scope_of(const struct pipeline *pipeline)
{
    return pipeline->stages[0].request.regular.scope;
}

status routing_build(struct routing *routing, struct pipeline *pipeline)
{
    const struct model *model = pipeline->stages[0].request.model;
    void *table = NULL;

    *routing = (struct routing){.pipeline = pipeline,
                                .experts = model->moe.experts,
                                .layers = model_blocks(model)};
    if (routing->experts == 0) return OK;
    TRY(memory_take((size_t)count_of(routing) + 1, sizeof *routing->table,
                    &table));
    routing->table = table;
    if (scope_of(pipeline) != BALANCE_BATCH) return OK;
    TRY(memory_take((size_t)count_of(routing), sizeof *routing->before,
                    &table));
    routing->before = table;
    return OK;
}

void routing_free(struct routing *routing)
{
    memory_free(routing->table);
    memory_free(routing->before);
    *routing = (struct routing){0};
}

void routing_begin(struct routing *routing)
{
    if (routing->experts == 0) return;
    memset(routing->table, 0,
           ((size_t)count_of(routing) + 1) * sizeof *routing->table);
    for (int i = 0; i < routing->pipeline->count; i++) {
        struct run *run = &routing->pipeline->stages[i].run;

        routes_reset(run);
        run->counted.before = routing->before;
    }
}

struct block_routing routing_judge_block(const double *counts, int experts)
{
    const double most = experts > 1 ? math_log(experts) : 1;
    struct block_routing b = {0};

    for (int e = 0; e < experts; e++) {
        b.total += counts[e];
        if (counts[e] > b.most) b.most = counts[e];
        b.idle += counts[e] == 0;
    }
    for (int e = 0; e < experts && b.total > 0; e++) {
        const double share = counts[e] / b.total;

        if (share > 0) b.entropy -= share * math_log(share);
    }
    b.entropy = experts > 1 ? b.entropy / most : 1;
    return b;
}

void routing_judge(const double *table, int layers, int experts,
                   struct routing_result *out)
{
    int blocks = 0;

    *out = (struct routing_result){0};
    for (int i = 0; i < layers; i++) {
        const struct block_routing b =
            routing_judge_block(table + (int64_t)i * experts, experts);
        const double over = b.most * experts / b.total;

        if (b.total == 0) continue; /* a dense block */
        blocks++;
        if (over > out->busiest) out->busiest = over;
        out->mean += over;
        out->entropy += b.entropy;
        out->idle += b.idle;
    }
    if (blocks == 0) return;
    out->mean /= blocks;
    out->entropy /= blocks;
}

status routing_share(struct routing *routing, struct team *team,
                     struct routing_result *out)
{
    *out = routing_none();
    if (routing->experts == 0) return OK;
    for (int i = 0; i < routing->pipeline->count; i++)
        routes_collect(&routing->pipeline->stages[i].run, routing->experts,
                       routing->table, routing->table + count_of(routing));
    TRY(team_join(team, routing->table, count_of(routing) + 1));
    routing_judge(routing->table, routing->layers, routing->experts, out);
    out->dropped = routing->table[count_of(routing)];
    return OK;
}

/* ---- tokens of the step before ---- */

static size_t before_bytes(const struct routing *routing)
{
    return (size_t)count_of(routing) * sizeof *routing->before;
}

void routing_take(struct routing *routing, const struct routing *from)
{
    if (routing->before == NULL) return;
    CHECK(from->before != NULL && count_of(from) == count_of(routing));
    memcpy(routing->before, from->before, before_bytes(routing));
}

void routing_keep(struct routing *routing)
{
    if (routing->before != NULL)
        memcpy(routing->before, routing->table, before_bytes(routing));
}

void routing_write(const struct routing *routing, struct json_writer *w)
{
    const double *tokens = routing->before;

    if (tokens == NULL) return;
    json_write_key(w, "expert_tokens");
    json_write_array(w);
    for (int i = 0; i < routing->layers; i++) {
        json_write_array(w);
        for (int e = 0; e < routing->experts; e++)
            json_write_integer(w, (int64_t)*tokens++);
        json_write_array_end(w);
    }
    json_write_array_end(w);
}

/* Choices of a step are fewer: 2^40 tokens have 64 each at most. */
static const int64_t TOKENS_MOST = (int64_t)1 << 46;

static status read_block(struct routing *routing, const struct json *row,
                         int block, const char *source)
{
    double *tokens = routing->before + (int64_t)block * routing->experts;

    if (row->kind != JSON_ARRAY || row->count != routing->experts)
        FAIL(ERR_FORMAT, "%s: expert_tokens, block %d: expected a list of the "
                         "tokens of %d experts", source, block,
             routing->experts);
    for (int e = 0; e < routing->experts; e++) {
        const struct json *value = &row->items[e];

        if (value->kind != JSON_INTEGER || value->integer < 0 ||
            value->integer > TOKENS_MOST)
            FAIL(ERR_FORMAT, "%s: expert_tokens, block %d, expert %d: expected "
                             "an integer from 0 to 2^46", source, block, e);
        tokens[e] = (double)value->integer;
    }
    return OK;
}

status routing_read(struct routing *routing, const struct json *state,
                    const char *source)
{
    const struct json *rows = json_get(state, "expert_tokens");

    if (routing->before == NULL) return OK;
    if (rows == NULL || rows->kind != JSON_ARRAY ||
        rows->count != routing->layers)
        FAIL(ERR_FORMAT, "%s: \"expert_tokens\" should be the tokens of the "
                         "experts of %d blocks, which moe.balance_scope=batch "
                         "needs", source, routing->layers);
    for (int i = 0; i < routing->layers; i++)
        TRY(read_block(routing, &rows->items[i], i, source));
    return OK;
}

/* ---- selection biases ---- */

enum { AT_ONCE = 128 }; /* elements of a bias */

/* Adds `steps` to some elements, whose copies follow. */
static status balance_some(const struct update *u, struct tensor bias,
                           const struct tensor *copy, const double *steps)
{
    const size_t bytes = (size_t)tensor_bytes(&bias);
    double room[AT_ONCE], narrow[AT_ONCE];
    struct tensor here = bias, there = *copy;

    here.data = room;
    there.data = narrow;
    TRY(device_read(u->stream, room, bias.data, bytes));
    for (int64_t i = 0; i < bias.shape[0]; i++) {
        tensor_set(&here, i, tensor_get(&here, i) + steps[i]);
        if (copy->data != NULL) tensor_set(&there, i, tensor_get(&here, i));
    }
    if (copy->data != NULL)
        TRY(device_write(u->stream, copy->data, narrow,
                         (size_t)tensor_bytes(copy)));
    return device_write(u->stream, bias.data, room, bytes);
}

/* How much the biases of a router change, and whose tokens decide. */
struct balancing { const double *counts; double rate; };

/* The elements of one router's bias that are in a part of what this rank
 * updates. */
static status balance_part(const struct update *u,
                           const struct update_item *item,
                           const void *argument)
{
    const struct balancing *b = argument;
    const int64_t experts = item->param->elements;
    const int64_t all = item->range.last - item->range.first;
    double total = 0, steps[AT_ONCE];

    for (int64_t e = 0; e < experts; e++) total += b->counts[e];
    for (int64_t at = 0; at < all; at += AT_ONCE) {
        const int64_t count = all - at < AT_ONCE ? all - at : AT_ONCE;
        const struct update_item some = update_part(item, at, count);

        for (int64_t i = 0; i < count; i++) {
            const double below =
                total - (double)experts * b->counts[some.range.first + i];

            steps[i] = below > 0 ? b->rate : below < 0 ? -b->rate : 0;
        }
        TRY(balance_some(u, some.weight, &some.copy, steps));
    }
    return OK;
}

status routing_balance(const struct routing *routing, int chunk,
                     const struct update *update)
{
    const struct program *p = &routing->pipeline->stages[chunk].program;
    const struct update_call call = {.factor = 1};
    const double rate = dtype_real(p->dtype) == DTYPE_F64
                            ? p->regular.bias_rate
                            : (double)(float)p->regular.bias_rate;

    for (int i = 0; i < p->params.count; i++) {
        const struct param *param = &p->params.items[i];
        const struct balancing balancing = {
            routing->table + (int64_t)param->layer * routing->experts, rate};

        if (param->spec.role != ROLE_SELECTION_BIAS ||
            update->layout->rules[i].still)
            continue;
        const struct update_item item = update_item(update, i, &call);

        if (item.range.first < item.range.last)
            TRY(update_in_parts(update, &item, WEIGHT_CHANGES, balance_part,
                                &balancing));
    }
    return OK;
}
