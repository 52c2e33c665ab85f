/* SPDX-License-Identifier: Apache-2.0 */
/* task_request.c - a task as sequences of tokens whose likelihoods are asked
 * for. */
#include "corpus/task_request.h"

#include <string.h>

/* One call's room and what it reads. */
struct encoder {
    struct task_requests *requests;
    const struct task *task;
    const struct task_encoding *encoding;
    struct text whole;         /* owned */
    struct token_list context, both; /* owned */
    size_t context_length;     /* of whole, bytes */
};

static status add_request(struct encoder *e, struct task_request request,
                          const int32_t *ids)
{
    struct task_requests *r = e->requests;

    if (r->count == r->capacity) {
        const int64_t room = 2 * r->capacity + 64;
        void *grown = r->items;

        TRY(memory_grow(&grown, (size_t)room, sizeof *r->items));
        r->items = grown;
        r->capacity = room;
    }
    request.first = r->ids.count;
    TRY(token_list_append(&r->ids, ids, (int64_t)request.length + 1));
    r->items[r->count++] = request;
    r->scored += request.scored;
    if (request.length > r->longest) r->longest = request.length;
    return OK;
}

static status encode(const struct encoder *e, const char *bytes, size_t length,
                     bool special, struct token_list *out)
{
    const struct tokenizer *t = e->encoding->tokenizer;

    const int64_t first = special ? t->first_count : 0;

    out->count = 0;
    TRY(token_list_append(out, t->first, first));
    TRY(tokenizer_encode(t, bytes, length, false, out));
    if (first == 0 || out->count == first || out->ids[first] != t->first[0])
        return OK;
    out->count -= first; /* the text itself begins with it */
    memmove(out->ids, out->ids + first, (size_t)out->count * sizeof *out->ids);
    return OK;
}

/* ---- pairs ---- */

/* The first `context` tokens of `both` precede the continuation. */
static status add_pair(struct encoder *e, int64_t item, int choice,
                       int64_t context)
{
    const int64_t count = e->both.count, most = e->encoding->context + 1;
    const int64_t scored = count - context;
    const int64_t line = e->task->items[item].line;
    int64_t from = 0;

    if (scored <= 0)
        FAIL(ERR_CONFIG, "%s: line %lld: choice %d adds no token to its "
             "context", e->task->path, (long long)line, choice);
    if (scored > e->encoding->context)
        FAIL(ERR_CONFIG, "%s: line %lld: choice %d has %lld tokens, the "
             "model's context only %lld", e->task->path, (long long)line,
             choice, (long long)scored, (long long)e->encoding->context);
    if (count > most) {
        from = count - most;
        e->requests->truncated++;
    }
    return add_request(e, (struct task_request){
                              .length = (int32_t)(count - from - 1),
                              .scored = (int32_t)scored, .item = item,
                              .choice = choice},
                       e->both.ids + from);
}

/* No text stands before: a token does, unless the continuation begins with
 * it. */
static status add_unconditional(struct encoder *e, int64_t item, int choice)
{
    const int32_t prefix = e->encoding->prefix;

    TRY(encode(e, e->whole.bytes, e->whole.length, false, &e->context));
    e->both.count = 0;
    if (e->context.count == 0 || e->context.ids[0] != prefix)
        TRY(token_list_append(&e->both, &prefix, 1));
    TRY(token_list_append(&e->both, e->context.ids, e->context.count));
    return add_pair(e, item, choice, 1);
}

static status add_choice(struct encoder *e, int64_t item, int choice)
{
    const bool special = e->encoding->special;
    const struct task_text text = e->task->items[item].choices[choice];
    const size_t space = task_trailing_space(
        (struct task_text){e->whole.bytes, e->context_length});
    const size_t context = e->context_length - space;

    e->whole.length = e->context_length;
    TRY(text_append(&e->whole, " ", 1));
    TRY(text_append(&e->whole, text.bytes, text.length));
    if (e->context_length == 0) return add_unconditional(e, item, choice);
    TRY(encode(e, e->whole.bytes, context, special, &e->context));
    TRY(encode(e, e->whole.bytes, e->whole.length, special, &e->both));
    if (e->context.count > 0)
        return add_pair(e, item, choice, e->context.count);
    return add_unconditional(e, item, choice); /* white space alone */
}

/* ---- examples ---- */

static status add_shot(struct text *out, const struct task_item *item)
{
    const struct task_text answer = item->choices[item->answer];

    TRY(text_append(out, item->context.bytes, item->context.length));
    TRY(text_append(out, " ", 1));
    TRY(text_append(out, answer.bytes, answer.length));
    return text_append(out, "\n\n", 2);
}

/* The first examples but the item itself. */
static status render_shots(struct encoder *e, int64_t item)
{
    const struct task *from = e->encoding->examples;
    const bool own = from == NULL;
    int left = e->encoding->shots;

    if (own) from = e->task;
    e->whole.length = 0;
    for (int64_t i = 0; left > 0 && i < from->count; i++) {
        if (own && i == item) continue;
        TRY(add_shot(&e->whole, &from->items[i]));
        left--;
    }
    if (left > 0)
        FAIL(ERR_CONFIG, "%s: has %lld items, too few for %d shots before "
             "each", from->path, (long long)from->count, e->encoding->shots);
    return OK;
}

static status add_item(struct encoder *e, int64_t index)
{
    const struct task_item *item = &e->task->items[index];

    TRY(render_shots(e, index));
    TRY(text_append(&e->whole, item->context.bytes, item->context.length));
    e->context_length = e->whole.length;
    for (int i = 0; i < item->choice_count; i++) TRY(add_choice(e, index, i));
    return OK;
}

/* ---- documents ---- */

/* Window k has the tokens [k most, (k + 1) most) as targets; the last one, if
 * it is short, more context. */
static status add_document(struct encoder *e, int64_t index)
{
    const struct task_text text = e->task->items[index].choices[0];
    const int64_t most = e->encoding->context;
    const int32_t prefix = e->encoding->prefix;
    int64_t done = 0;

    e->both.count = 0;
    TRY(token_list_append(&e->both, &prefix, 1));
    TRY(encode(e, text.bytes, text.length, e->encoding->special,
               &e->context));
    TRY(token_list_append(&e->both, e->context.ids, e->context.count));
    while (done < e->context.count) {
        const int64_t left = e->context.count - done;
        const int64_t scored = left < most ? left : most;
        const int64_t end = done + scored; /* target `end` of both is last */
        const int64_t first = end > most ? end - most : 0;

        TRY(add_request(e, (struct task_request){
                               .length = (int32_t)(end - first),
                               .scored = (int32_t)scored, .item = index},
                        e->both.ids + first));
        done = end;
    }
    return OK;
}

status task_requests_add(struct task_requests *requests,
                         const struct task *task,
                         const struct task_encoding *encoding)
{
    struct encoder e = {.requests = requests, .task = task,
                        .encoding = encoding};
    status result = OK;

    CHECK(encoding->context >= 1);
    if (encoding->shots > 0 && task->kind == TASK_TEXT)
        FAIL(ERR_CONFIG, "%s: examples cannot stand before a document; kind "
             "perplexity takes no shots", task->path);
    for (int64_t i = 0; i < task->count; i++)
        TRY_GOTO(done, result, task->kind == TASK_TEXT ? add_document(&e, i)
                                                       : add_item(&e, i));
done:
    text_free(&e.whole);
    token_list_free(&e.context);
    token_list_free(&e.both);
    return result;
}

void task_requests_free(struct task_requests *requests)
{
    token_list_free(&requests->ids);
    memory_free(requests->items);
    *requests = (struct task_requests){0};
}

status task_prefix(const struct tokenizer *tokenizer, int64_t bos, int64_t eos,
                   int32_t *out)
{
    *out = -1;
    if (tokenizer->first_count > 0) {
        *out = tokenizer->first[0];
        return OK;
    }
    if (bos >= 0) *out = (int32_t)bos;
    if (bos >= 0) return OK;
    if (tokenizer_end_of_text(tokenizer, "", out) == OK) return OK;
    status_clear();
    if (eos < 0)
        FAIL(ERR_CONFIG, "the tokenizer has no token for the beginning or end "
                         "of a text, which must precede the first token");
    *out = (int32_t)eos;
    return OK;
}
