/* SPDX-License-Identifier: Apache-2.0 */
/* unigram.c - the likeliest way to cut a word into tokens.
 *
 * node[i] is the best way to reach byte i: its sum and its last token. Where
 * no token reaches across, everything before is decided and goes out at once;
 * so a whole book as one word needs little memory. */
#include "tokenizer/unigram.h"

#include <math.h>
#include <string.h>
#include "base/arena.h"

enum { UNREACHED = -2, UNKNOWN = -1 };

/* Positions are counted from `base`, the last decided one. */
struct search {
    const struct unigram *unigram;
    struct unigram_nodes *nodes;
    const unsigned char *word;
    size_t length, base;
    size_t reach; /* no token so far ends beyond it */
};

static status nodes_reserve(struct unigram_nodes *nodes, int64_t count)
{
    void *grown = nodes->items;
    int64_t capacity = nodes->capacity;

    if (count <= capacity) return OK;
    capacity = count < 256 ? 256 : count + count / 2;
    TRY(memory_grow(&grown, (size_t)capacity, sizeof *nodes->items));
    nodes->items = grown;
    nodes->capacity = capacity;
    return OK;
}

/* Makes the nodes up to `stop` exist. */
static status extend(struct search *s, size_t stop)
{
    if (stop <= s->reach) return OK;
    TRY(nodes_reserve(s->nodes, (int64_t)(stop - s->base + 1)));
    for (size_t i = s->reach + 1; i <= stop; i++)
        s->nodes->items[i - s->base].id = UNREACHED;
    s->reach = stop;
    return OK;
}

static void offer(struct search *s, size_t at, size_t stop, double sum,
                  int32_t id)
{
    struct unigram_node *node = &s->nodes->items[stop - s->base];

    if (s->unigram->single) sum = (double)(float)sum;
    if (node->id != UNREACHED && !(sum > node->score)) return;
    node->score = sum;
    node->id = id;
    node->length = (uint32_t)(stop - at);
}

static size_t character(const unsigned char *word, size_t at)
{
    const unsigned char first = word[at];

    return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Sums that have grown too large for a float's digits are counted from `at`. */
static void recount(const struct search *s, size_t at)
{
    struct unigram_node *items = s->nodes->items;
    const double before = items[at - s->base].score;

    if (fabs(before) <= UNIGRAM_SUM_MAX) return;
    for (size_t i = at - s->base; i <= s->reach - s->base; i++)
        if (items[i].id != UNREACHED)
            items[i].score = (double)(float)(items[i].score - before);
}

/* All tokens that start at `at`. */
static status spread(struct search *s, size_t at, size_t size)
{
    const struct unigram *unigram = s->unigram;
    bool alone = false;
    int32_t node = 0;
    double before;

    if (unigram->single) recount(s, at);
    before = s->nodes->items[at - s->base].score;

    for (size_t stop = at; stop < s->length;) {
        int32_t id;

        node = trie_step(&unigram->trie, node, s->word[stop]);
        if (node < 0) break;
        stop++;
        id = unigram->trie.units[node].id;
        if (id < 0) continue;
        TRY(extend(s, stop));
        offer(s, at, stop, unigram->scores[id] + before, id);
        alone = alone || stop == at + size;
    }
    if (alone) return OK;
    TRY(extend(s, at + size));
    offer(s, at, at + size, unigram->unknown_score + before, UNKNOWN);
    return OK;
}

/* The tokens from base to `stop` go out; `stop` is the new base. The way back
 * is turned round in place: each node keeps where its token stops. */
static status decide(struct search *s, size_t stop, unigram_take *take,
                     void *context)
{
    struct unigram_node *items = s->nodes->items;
    const double score = items[stop - s->base].score;
    size_t at = stop - s->base, next = 0;

    while (at > 0) {
        const size_t before = at - items[at].length;

        items[at].length = (uint32_t)next;
        next = at;
        at = before;
    }
    for (at = 0; next > 0; next = items[at].length) {
        TRY(take(context, items[next].id, s->base + at, s->base + next));
        at = next;
    }
    s->base = stop;
    items[0] = (struct unigram_node){.score = score};
    return OK;
}

status unigram_run(const struct unigram *unigram, struct unigram_nodes *nodes,
                   const unsigned char *word, size_t length,
                   unigram_take *take, void *context)
{
    struct search s = {.unigram = unigram, .nodes = nodes, .word = word,
                       .length = length};
    size_t at = 0;

    TRY(nodes_reserve(nodes, 1));
    nodes->items[0] = (struct unigram_node){0};
    while (at < length) {
        const size_t size = character(word, at);

        TRY(spread(&s, at, size));
        at += size;
        if (at == s.reach) TRY(decide(&s, at, take, context));
    }
    return OK;
}

void unigram_free(struct unigram *unigram)
{
    trie_free(&unigram->trie);
    *unigram = (struct unigram){0};
}

void unigram_nodes_free(struct unigram_nodes *nodes)
{
    memory_free(nodes->items);
    *nodes = (struct unigram_nodes){0};
}
