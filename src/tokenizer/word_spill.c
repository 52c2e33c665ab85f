/* SPDX-License-Identifier: Apache-2.0 */
/* word_spill.c - counts of more words than memory holds. */
#include "tokenizer/word_spill.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"

enum { BUFFER_BYTES = 1 << 18 };

size_t word_table_bytes(const struct word_table *table)
{
    return table->capacity * sizeof *table->places + table->bytes_capacity;
}

static int compare(const unsigned char *a, size_t a_length,
                   const unsigned char *b, size_t b_length)
{
    const int order =
        memcmp(a, b, a_length < b_length ? a_length : b_length);

    if (order != 0) return order;
    return (a_length > b_length) - (a_length < b_length);
}

static status fail_run(const struct word_spill *spill, const char *doing)
{
    FAIL(ERR_IO, "%s: %s words that do not fit memory: %s", spill->directory,
         doing, errno == ENOSPC ? "the disk is full" : strerror(errno));
}

/* A file without a name: whatever happens, nothing is left behind. */
static status run_open(struct word_spill *spill, FILE **out)
{
    char path[PATH_BYTES], name[64];

    snprintf(name, sizeof name, ".words-%ld-%lld.tmp", (long)getpid(),
             (long long)spill->made++);
    TRY(path_join(path, sizeof path, spill->directory, name));
    TRY(file_create(path, out));
    unlink(path);
    setvbuf(*out, NULL, _IOFBF, BUFFER_BYTES);
    return OK;
}

/* ---- a run: count, length, bytes of each word, in order ---- */

struct entry { int64_t count; uint64_t length; };

static bool entry_write(FILE *file, const unsigned char *word, size_t length,
                        int64_t count)
{
    const struct entry entry = {count, length};

    return fwrite(&entry, sizeof entry, 1, file) == 1 &&
           fwrite(word, 1, length, file) == length;
}

static int by_bytes(const void *a, const void *b, void *bytes)
{
    const struct counted_word *left = a, *right = b;
    const unsigned char *text = bytes;

    return compare(text + left->start, left->length, text + right->start,
                   right->length);
}

/* Each thread sorts every count-th table, its words to the front. */
struct sorting_all { struct word_table *tables; int count; };

static void sort_some(void *argument, int index, int count)
{
    const struct sorting_all *all = argument;

    for (int i = index; i < all->count; i += count) {
        struct word_table *table = &all->tables[i];
        size_t kept = 0;

        for (size_t j = 0; j < table->capacity; j++)
            if (table->places[j].length != 0)
                table->places[kept++] = table->places[j];
        if (kept > 0)
            qsort_r(table->places, kept, sizeof *table->places, by_bytes,
                    table->bytes);
    }
}

static status write_table(struct word_spill *spill, struct word_table *table)
{
    FILE *file = NULL;

    TRY(run_open(spill, &file));
    spill->runs[spill->count++] = file;
    for (size_t i = 0; i < table->count; i++) {
        const struct counted_word *word = &table->places[i];

        if (!entry_write(file, table->bytes + word->start, word->length,
                         word->count))
            return fail_run(spill, "writing");
    }
    if (fflush(file) != 0) return fail_run(spill, "writing");
    word_table_free(table);
    return OK;
}

/* ---- merging ---- */

struct cursor {
    FILE *file;
    unsigned char *word;   /* owned */
    size_t length, capacity;
    int64_t count;
    bool ended;
};

static status cursor_next(const struct word_spill *spill, struct cursor *c)
{
    struct entry entry;
    void *grown = c->word;

    c->ended = fread(&entry, sizeof entry, 1, c->file) != 1;
    if (c->ended) return ferror(c->file) ? fail_run(spill, "reading") : OK;
    if (entry.length > c->capacity) {
        TRY(memory_grow(&grown, entry.length + 64, 1));
        c->word = grown;
        c->capacity = entry.length + 64;
    }
    if (fread(c->word, 1, entry.length, c->file) != entry.length)
        return fail_run(spill, "reading");
    c->length = entry.length;
    c->count = entry.count;
    return OK;
}

static bool before(const struct cursor *a, const struct cursor *b)
{
    if (a->ended || b->ended) return !a->ended;
    return compare(a->word, a->length, b->word, b->length) < 0;
}

/* Restores the heap below `at`: parents come first. */
static void sink(int *heap, int count, int at, const struct cursor *cursors)
{
    for (;;) {
        int least = at;

        for (int child = 2 * at + 1; child <= 2 * at + 2 && child < count;
             child++)
            if (before(&cursors[heap[child]], &cursors[heap[least]]))
                least = child;
        if (least == at) return;
        const int kept = heap[at];

        heap[at] = heap[least];
        heap[least] = kept;
        at = least;
    }
}

/* The word of all runs that comes first, with its whole count, in `word`. */
static status merge_one(const struct word_spill *spill, int *heap,
                        struct cursor *cursors, struct cursor *word)
{
    struct cursor *first = &cursors[heap[0]];
    struct cursor kept = *word;

    *word = *first; /* the buffers change places */
    word->file = NULL;
    first->word = kept.word;
    first->capacity = kept.capacity;
    TRY(cursor_next(spill, first));
    sink(heap, spill->count, 0, cursors);
    for (first = &cursors[heap[0]];
         !first->ended && compare(first->word, first->length, word->word,
                                  word->length) == 0;
         first = &cursors[heap[0]]) {
        word->count += first->count;
        TRY(cursor_next(spill, first));
        sink(heap, spill->count, 0, cursors);
    }
    return OK;
}

status word_spill_merge(struct word_spill *spill, word_spill_take *take,
                        void *context)
{
    struct cursor cursors[SPILL_RUNS] = {{0}}, word = {0};
    int heap[SPILL_RUNS];
    status result = OK;

    for (int i = 0; i < spill->count; i++) {
        cursors[i].file = spill->runs[i];
        rewind(spill->runs[i]);
        TRY_GOTO(done, result, cursor_next(spill, &cursors[i]));
        heap[i] = i;
    }
    for (int i = spill->count / 2; i >= 0; i--)
        sink(heap, spill->count, i, cursors);
    while (spill->count > 0 && !cursors[heap[0]].ended) {
        TRY_GOTO(done, result, merge_one(spill, heap, cursors, &word));
        TRY_GOTO(done, result,
                 take(context, word.word, word.length, word.count));
    }
done:
    for (int i = 0; i < spill->count; i++) memory_free(cursors[i].word);
    memory_free(word.word);
    return result;
}

/* ---- more runs than may be open ---- */

struct joining { const struct word_spill *spill; FILE *file; };

static status join_one(void *context, const unsigned char *word, size_t length,
                       int64_t count)
{
    const struct joining *joining = context;

    return entry_write(joining->file, word, length, count)
               ? OK : fail_run(joining->spill, "writing");
}

static status join_runs(struct word_spill *spill)
{
    struct joining joining = {spill, NULL};
    status result;

    TRY(run_open(spill, &joining.file));
    result = word_spill_merge(spill, join_one, &joining);
    if (result == OK && fflush(joining.file) != 0)
        result = fail_run(spill, "writing");
    if (result != OK) {
        fclose(joining.file);
        return result;
    }
    for (int i = 0; i < spill->count; i++) fclose(spill->runs[i]);
    spill->runs[0] = joining.file;
    spill->count = 1;
    return OK;
}

status word_spill_write(struct word_spill *spill, struct word_table *tables,
                        int count, struct threads *threads)
{
    struct sorting_all all = {tables, count};

    threads_run(threads, sort_some, &all);
    for (int i = 0; i < count; i++) {
        if (tables[i].count == 0) continue;
        if (spill->count == SPILL_RUNS) TRY(join_runs(spill));
        TRY(write_table(spill, &tables[i]));
    }
    return OK;
}

void word_spill_free(struct word_spill *spill)
{
    for (int i = 0; i < spill->count; i++) fclose(spill->runs[i]);
    *spill = (struct word_spill){0};
}
