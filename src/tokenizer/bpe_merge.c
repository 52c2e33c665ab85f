/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_merge.c - which pairs of tokens to merge, most frequent first.
 *
 *   words   each distinct word once, as a run of ids that shrinks, and how
 *           often it occurs
 *   pairs   a table of all pairs of neighbours and how often they occur
 *   heap    the pairs by count; each entry lists the words where to look
 *
 * A merge visits only the words of its pair. It changes counts of neighbour
 * pairs at once, but leaves their heap entries alone: an entry whose count is
 * found to be too high when it comes up goes back with the right one. Two
 * merges that spell the same bytes make one token (see token_of). */
#include "tokenizer/bpe_merge.h"

#include <string.h>
#include "base/arena.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/tokenizer.h"

enum { NODE_WORDS = 14 };

/* Lists of words in nodes that are reused. */
struct node {
    int32_t next; /* node, or -1 */
    int32_t count;
    int32_t words[NODE_WORDS];
};

struct pair {
    uint64_t key;    /* left << 32 | right; UINT64_MAX: an empty place */
    int64_t count;
    int32_t pending; /* node of words where the last merge made it; or -1 */
};

/* Bytes of a token in the table `tokens`. */
struct token_span { size_t start; size_t length; };

enum { BPE_BYTE_FIRST = 1 }; /* id of the first byte's token */

struct entry { int64_t count; uint64_t key; int32_t node; };

struct merger {
    int32_t *symbols;  /* owned; the words' ids behind each other */
    size_t *starts;    /* owned [words + 1] */
    int32_t *lengths;  /* owned [words] */
    int64_t *counts;   /* owned [words] */
    size_t words;
    struct pair *pairs;/* owned [pair_capacity] */
    size_t pair_capacity, pair_count;
    struct entry *heap;/* owned */
    size_t heap_count, heap_capacity;
    struct node *nodes; /* owned */
    int32_t node_count, node_capacity, node_idle;
    uint64_t *touched; /* owned; keys with pending words */
    size_t touched_count, touched_capacity;
    struct word_table tokens; /* the bytes of each token; count = its id */
    struct token_span *spans; /* owned; of id BPE_BYTE_FIRST + i */
    int64_t span_count, span_capacity;
    struct text joined;       /* the bytes of the token being made */
};

static void merger_free(struct merger *m)
{
    memory_free(m->symbols);
    memory_free(m->starts);
    memory_free(m->lengths);
    memory_free(m->counts);
    memory_free(m->pairs);
    memory_free(m->heap);
    memory_free(m->nodes);
    memory_free(m->touched);
    memory_free(m->spans);
    word_table_free(&m->tokens);
    text_free(&m->joined);
    *m = (struct merger){0};
}

static status node_take(struct merger *m, int32_t next, int32_t *out)
{
    if (m->node_idle >= 0) {
        *out = m->node_idle;
        m->node_idle = m->nodes[*out].next;
    } else {
        if (m->node_count == m->node_capacity) {
            const int32_t capacity = m->node_capacity * 2 + 1024;
            void *grown = m->nodes;

            if (m->node_capacity > INT32_MAX / 2 - 1024)
                FAIL(ERR_MEMORY, "the text has too many distinct words to "
                     "learn a tokenizer from; use a part of it");
            TRY(memory_grow(&grown, (size_t)capacity, sizeof *m->nodes));
            m->nodes = grown;
            m->node_capacity = capacity;
        }
        *out = m->node_count++;
    }
    m->nodes[*out].next = next;
    m->nodes[*out].count = 0;
    return OK;
}

/* Adds the word to the list unless it is its last one. */
static status list_add(struct merger *m, int32_t *list, int32_t word)
{
    struct node *node = *list < 0 ? NULL : &m->nodes[*list];

    if (node != NULL && node->words[node->count - 1] == word) return OK;
    if (node == NULL || node->count == NODE_WORDS) {
        TRY(node_take(m, *list, list));
        node = &m->nodes[*list];
    }
    node->words[node->count++] = word;
    return OK;
}

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static size_t pair_place(const struct merger *m, uint64_t key)
{
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    size_t place;

    hash ^= hash >> 29;
    place = (size_t)(hash * 0xD1B54A32D192ED03u >> 20) & (m->pair_capacity - 1);
    while (m->pairs[place].key != key && m->pairs[place].key != UINT64_MAX)
        place = (place + 1) & (m->pair_capacity - 1);
    return place;
}

static status pairs_grow(struct merger *m)
{
    const size_t before = m->pair_capacity;
    struct pair *old = m->pairs;
    void *memory;

    m->pair_capacity = before == 0 ? (size_t)1 << 16 : before * 2;
    m->pairs = NULL;
    if (memory_take(m->pair_capacity, sizeof *m->pairs, &memory) != OK) {
        memory_free(old);
        FAIL(ERR_MEMORY, "no memory for a table of %zu pairs",
             m->pair_capacity);
    }
    m->pairs = memory;
    for (size_t i = 0; i < m->pair_capacity; i++) m->pairs[i].key = UINT64_MAX;
    for (size_t i = 0; i < before; i++)
        if (old[i].key != UINT64_MAX)
            m->pairs[pair_place(m, old[i].key)] = old[i];
    memory_free(old);
    return OK;
}

/* *out = the pair, made with count 0 where it is new; until the next call. */
static status pair_get(struct merger *m, uint64_t key, struct pair **out)
{
    if (2 * m->pair_count >= m->pair_capacity) TRY(pairs_grow(m));
    *out = &m->pairs[pair_place(m, key)];
    if ((*out)->key == UINT64_MAX) {
        **out = (struct pair){key, 0, -1};
        m->pair_count++;
    }
    return OK;
}

/* The pair occurs `more` times more in this word. */
static status pair_change(struct merger *m, uint64_t key, int64_t more,
                          int32_t word)
{
    struct pair *pair;

    TRY(pair_get(m, key, &pair));
    pair->count += more;
    if (more < 0) return OK;
    if (pair->pending < 0) {
        if (m->touched_count == m->touched_capacity) {
            const size_t capacity = m->touched_capacity * 2 + 1024;
            void *grown = m->touched;

            TRY(memory_grow(&grown, capacity, sizeof *m->touched));
            m->touched = grown;
            m->touched_capacity = capacity;
        }
        m->touched[m->touched_count++] = key;
    }
    TRY(list_add(m, &pair->pending, word));
    return OK;
}

static bool goes_first(const struct entry *a, const struct entry *b)
{
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

static status heap_push(struct merger *m, const struct entry *entry)
{
    size_t at = m->heap_count;

    if (m->heap_count == m->heap_capacity) {
        const size_t capacity = m->heap_capacity * 2 + 1024;
        void *grown = m->heap;

        TRY(memory_grow(&grown, capacity, sizeof *m->heap));
        m->heap = grown;
        m->heap_capacity = capacity;
    }
    m->heap_count++;
    while (at > 0 && goes_first(entry, &m->heap[(at - 1) / 2])) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = *entry;
    return OK;
}

static struct entry heap_pop(struct merger *m)
{
    const struct entry top = m->heap[0], last = m->heap[--m->heap_count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;

        if (child >= m->heap_count) break;
        if (child + 1 < m->heap_count &&
            goes_first(&m->heap[child + 1], &m->heap[child])) child++;
        if (!goes_first(&m->heap[child], &last)) break;
        m->heap[at] = m->heap[child];
        at = child;
    }
    m->heap[at] = last;
    return top;
}

/* Pairs with pending words become entries of the heap. */
static status push_touched(struct merger *m)
{
    for (size_t i = 0; i < m->touched_count; i++) {
        struct pair *pair = &m->pairs[pair_place(m, m->touched[i])];

        if (pair->count > 0)
            TRY(heap_push(m, &(struct entry){pair->count, pair->key,
                                             pair->pending}));
        pair->pending = -1; /* the few nodes of vanished pairs are lost */
    }
    m->touched_count = 0;
    return OK;
}

static status take_words(struct merger *m, const struct word_table *table)
{
    const size_t words = table->count;
    void *memory;

    if (words > INT32_MAX)
        FAIL(ERR_MEMORY, "%zu distinct words are too many to learn a "
             "tokenizer from", words);
    TRY(memory_take(table->bytes_used + 1, sizeof *m->symbols, &memory));
    m->symbols = memory;
    TRY(memory_take(words + 1, sizeof *m->starts, &memory));
    m->starts = memory;
    TRY(memory_take(words + 1, sizeof *m->lengths, &memory));
    m->lengths = memory;
    TRY(memory_take(words + 1, sizeof *m->counts, &memory));
    m->counts = memory;
    return OK;
}

/* Ids 1 to 256: the bytes in order of their characters. */
static void byte_ids(int32_t ids[256])
{
    struct byte_level alphabet;
    int32_t next = 1;

    byte_level_init(&alphabet);
    for (int i = 0; i < BYTE_LEVEL_LIMIT; i++)
        if (alphabet.byte[i] >= 0) ids[alphabet.byte[i]] = next++;
}

static status load_words(struct merger *m, const struct word_table *table)
{
    int32_t ids[256];
    size_t at = 0;

    TRY(take_words(m, table));
    byte_ids(ids);
    for (size_t i = 0; i < table->capacity; i++) {
        const struct counted_word *word = &table->places[i];
        const int32_t index = (int32_t)m->words;

        if (word->length == 0) continue;
        m->starts[m->words] = at;
        m->lengths[m->words] = (int32_t)word->length;
        m->counts[m->words++] = word->count;
        for (uint32_t j = 0; j < word->length; j++)
            m->symbols[at + j] = ids[table->bytes[word->start + j]];
        for (uint32_t j = 0; j + 1 < word->length; j++)
            TRY(pair_change(m, key_of(m->symbols[at + j],
                                      m->symbols[at + j + 1]),
                            word->count, index));
        at += word->length;
    }
    TRY(push_touched(m));
    return OK;
}

/* Replaces (left, right) by its id in one word. */
static status merge_word(struct merger *m, int32_t word,
                         const struct bpe_merge *pair)
{
    const int32_t id = pair->id;
    int32_t *symbols = m->symbols + m->starts[word];
    const int32_t length = m->lengths[word];
    const int64_t count = m->counts[word];
    int32_t to = 0;

    for (int32_t from = 0; from < length; from++, to++) {
        if (from + 1 == length || symbols[from] != pair->left ||
            symbols[from + 1] != pair->right) {
            symbols[to] = symbols[from];
            continue;
        }
        if (to > 0) {
            TRY(pair_change(m, key_of(symbols[to - 1], pair->left), -count,
                            word));
            TRY(pair_change(m, key_of(symbols[to - 1], id), count, word));
        }
        from++;
        if (from + 1 < length) {
            TRY(pair_change(m, key_of(pair->right, symbols[from + 1]), -count,
                            word));
            TRY(pair_change(m, key_of(id, symbols[from + 1]), count, word));
        }
        symbols[to] = id;
    }
    m->lengths[word] = to;
    return OK;
}

static status merge_entry(struct merger *m, const struct entry *entry,
                          const struct bpe_merge *pair)
{
    int32_t node = entry->node;

    while (node >= 0) {
        const int32_t next = m->nodes[node].next;

        for (int32_t i = 0; i < m->nodes[node].count; i++)
            TRY(merge_word(m, m->nodes[node].words[i], pair));
        m->nodes[node].next = m->node_idle;
        m->node_idle = node;
        node = next;
    }
    TRY(push_touched(m));
    return OK;
}

/* *id = the token with these bytes; *added when it is a new one. */
static status token_get(struct merger *m, const void *bytes, size_t length,
                        int32_t *id, bool *added)
{
    struct counted_word *token;

    TRY(word_table_get(&m->tokens, bytes, length, &token));
    *added = token->count == 0;
    if (*added) {
        if (m->span_count == m->span_capacity) {
            const int64_t capacity = m->span_capacity * 2 + 1024;
            void *grown = m->spans;

            TRY(memory_grow(&grown, (size_t)capacity, sizeof *m->spans));
            m->spans = grown;
            m->span_capacity = capacity;
        }
        token->count = BPE_BYTE_FIRST + m->span_count;
        m->spans[m->span_count++] = (struct token_span){token->start, length};
    }
    *id = (int32_t)token->count;
    return OK;
}

static status add_bytes(struct merger *m)
{
    int32_t ids[256], id;
    bool added;

    byte_ids(ids);
    for (int32_t wanted = 1; wanted <= 256; wanted++)
        for (int i = 0; i < 256; i++) {
            const unsigned char byte = (unsigned char)i;

            if (ids[i] == wanted) TRY(token_get(m, &byte, 1, &id, &added));
        }
    return OK;
}

/* The token that a pair makes. */
static status token_of(struct merger *m, const struct bpe_merge *pair,
                       int32_t *id, bool *added)
{
    const struct token_span *left = &m->spans[pair->left - BPE_BYTE_FIRST];
    const struct token_span *right = &m->spans[pair->right - BPE_BYTE_FIRST];

    m->joined.length = 0;
    TRY(text_append(&m->joined, m->tokens.bytes + left->start, left->length));
    TRY(text_append(&m->joined, m->tokens.bytes + right->start,
                    right->length));
    TRY(token_get(m, m->joined.bytes, m->joined.length, id, added));
    return OK;
}

static status merges_add(struct bpe_merges *merges,
                         const struct bpe_merge *merge)
{
    if (merges->count == merges->capacity) {
        const int64_t capacity = merges->capacity * 2 + 1024;
        void *grown = merges->items;

        TRY(memory_grow(&grown, (size_t)capacity, sizeof *merges->items));
        merges->items = grown;
        merges->capacity = capacity;
    }
    merges->items[merges->count++] = *merge;
    return OK;
}

static status merge_all(struct merger *m, const struct bpe_merging *merging,
                        struct bpe_merges *merges)
{
    const int64_t least = merging->count_min < 1 ? 1 : merging->count_min;

    while (merges->tokens < merging->wanted && m->heap_count > 0) {
        struct entry top = heap_pop(m);
        const int64_t now = m->pairs[pair_place(m, top.key)].count;
        struct bpe_merge pair = {(int32_t)(top.key >> 32),
                                 (int32_t)(top.key & UINT32_MAX), 0};
        bool added;

        if (top.count != now) {
            top.count = now;
            TRY(heap_push(m, &top));
            continue;
        }
        if (now < least) break;
        TRY(token_of(m, &pair, &pair.id, &added));
        TRY(merge_entry(m, &top, &pair));
        TRY(merges_add(merges, &pair));
        merges->tokens += added;
        if (merges->count % 256 == 0 && merging->progress != NULL)
            merging->progress(merging->context, merges->tokens,
                              merging->wanted);
    }
    return OK;
}

status bpe_merge(const struct word_table *words,
                 const struct bpe_merging *merging, struct bpe_merges *merges)
{
    struct merger merger = {.node_idle = -1};
    status result;

    *merges = (struct bpe_merges){0};
    TRY_GOTO(done, result, add_bytes(&merger));
    TRY_GOTO(done, result, load_words(&merger, words));
    TRY_GOTO(done, result, merge_all(&merger, merging, merges));
done:
    merger_free(&merger);
    return result;
}

void bpe_merges_free(struct bpe_merges *merges)
{
    memory_free(merges->items);
    *merges = (struct bpe_merges){0};
}
