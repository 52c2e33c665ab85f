/* SPDX-License-Identifier: Apache-2.0 */
/* word_count.c - how often each word of a text occurs, on all threads. */
#include "tokenizer/word_count.h"

#include <string.h>
#include "base/arena.h"
#include "tokenizer/tokenizer.h"

static status table_grow(struct word_table *table)
{
    const size_t capacity = table->capacity == 0 ? 4096 : table->capacity * 2;
    struct counted_word *places;
    void *memory;

    TRY(memory_take(capacity, sizeof *places, &memory));
    places = memory;
    for (size_t i = 0; i < table->capacity; i++) {
        size_t place = (size_t)table->places[i].hash & (capacity - 1);

        if (table->places[i].length == 0) continue;
        while (places[place].length != 0) place = (place + 1) & (capacity - 1);
        places[place] = table->places[i];
    }
    memory_free(table->places);
    table->places = places;
    table->capacity = capacity;
    return OK;
}

static status bytes_reserve(struct word_table *table, size_t more)
{
    size_t capacity = table->bytes_capacity;
    void *grown = table->bytes;

    if (capacity - table->bytes_used >= more) return OK;
    capacity = capacity + capacity / 2 + more + 65536;
    TRY(memory_grow(&grown, capacity, 1));
    table->bytes = grown;
    table->bytes_capacity = capacity;
    return OK;
}

status word_table_get(struct word_table *table, const unsigned char *word,
                      size_t length, struct counted_word **out)
{
    const uint64_t hash = tokenizer_hash(word, length);
    struct counted_word *entry;
    size_t place;

    if (length == 0 || length > INT32_MAX)
        FAIL(ERR_FORMAT, "a word of %zu bytes: this is not text", length);
    if (2 * table->count >= table->capacity) TRY(table_grow(table));
    place = (size_t)hash & (table->capacity - 1);
    for (;; place = (place + 1) & (table->capacity - 1)) {
        *out = entry = &table->places[place];
        if (entry->length == 0) break;
        if (entry->hash == hash && entry->length == length &&
            memcmp(table->bytes + entry->start, word, length) == 0)
            return OK;
    }
    TRY(bytes_reserve(table, length));
    memcpy(table->bytes + table->bytes_used, word, length);
    *entry = (struct counted_word){hash, table->bytes_used, (uint32_t)length,
                                   0};
    table->bytes_used += length;
    table->count++;
    return OK;
}

void word_table_free(struct word_table *table)
{
    memory_free(table->places);
    memory_free(table->bytes);
    *table = (struct word_table){0};
}

struct counting {
    struct word_table *tables;
    scan_piece *scan;
    const unsigned char *text;
    size_t length;
    status *results; /* [threads] */
};

size_t word_count_cut(const char *text, size_t at, size_t length)
{
    if (at == 0) return 0;
    for (; at < length; at++)
        if (text[at] == ' ' && (text[at - 1] | 0x20) >= 'a' &&
            (text[at - 1] | 0x20) <= 'z') return at;
    return length;
}

static void count_share(void *argument, int index, int count)
{
    const struct counting *counting = argument;
    const size_t share = counting->length / (size_t)count;
    const char *text = (const char *)counting->text;
    size_t at = word_count_cut(text, share * (size_t)index, counting->length);
    const size_t end =
        index + 1 == count ? counting->length
                           : word_count_cut(text, share * (size_t)(index + 1),
                                            counting->length);

    while (at < end) {
        const size_t stop = counting->scan(counting->text, at, end);
        struct counted_word *word;

        counting->results[index] =
            word_table_get(&counting->tables[index], counting->text + at,
                           stop - at, &word);
        if (counting->results[index] != OK) return;
        word->count++;
        at = stop;
    }
}

status word_count(struct word_table *tables, struct threads *threads,
                  scan_piece *scan, const char *text, size_t length)
{
    const int count = threads_count(threads);
    struct counting counting = {tables, scan, (const unsigned char *)text,
                                length, NULL};
    status result = OK;
    void *memory;

    TRY(memory_take((size_t)count, sizeof *counting.results, &memory));
    counting.results = memory;
    /* A short text is not worth waking the others for. */
    if (length < 65536)
        count_share(&counting, 0, 1);
    else
        threads_run(threads, count_share, &counting);
    for (int i = 0; i < count; i++)
        if (counting.results[i] != OK) result = counting.results[i];
    memory_free(memory);
    if (result != OK)
        FAIL(result, "counting the words of a text of %zu bytes failed",
             length);
    return OK;
}
