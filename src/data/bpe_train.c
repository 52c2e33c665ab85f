/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_train.c - learns a byte-level BPE tokenizer from text: texts in,
 * tokenizer.json out. The merging itself is in bpe_merge.c. */
#include "data/bpe_train.h"

#include <string.h>
#include "base/arena.h"
#include "data/bpe_merge.h"
#include "data/tokenizer.h"

struct bpe_trainer {
    struct bpe_options options;
    struct word_table *tables; /* owned [threads] */
    char *end_of_text;         /* owned */
    int64_t bytes_fed;
};

status bpe_trainer_build(struct bpe_trainer **out,
                         const struct bpe_options *options)
{
    const char *special = options->end_of_text;
    struct bpe_trainer *trainer;
    void *memory;

    *out = NULL;
    if (options->vocab < BPE_FIRST_MERGE ||
        options->vocab > TOKENIZER_VOCAB_MAX)
        FAIL(ERR_CONFIG, "a vocabulary of %lld tokens: %d to %d are possible "
             "(256 bytes and the end-of-text token always belong to it)",
             (long long)options->vocab, BPE_FIRST_MERGE, TOKENIZER_VOCAB_MAX);
    if (special == NULL) special = "<|endoftext|>";
    if (special[0] == '\0')
        FAIL(ERR_CONFIG, "the name of the end-of-text token is empty");
    TRY(memory_take(1, sizeof *trainer, &memory));
    *out = trainer = memory;
    trainer->options = *options;
    TRY(memory_take((size_t)threads_count(options->threads),
                    sizeof *trainer->tables, &memory));
    trainer->tables = memory;
    TRY(memory_take(strlen(special) + 1, 1, &memory));
    trainer->end_of_text = memory;
    memcpy(trainer->end_of_text, special, strlen(special));
    return OK;
}

void bpe_trainer_free(struct bpe_trainer *trainer)
{
    if (trainer == NULL) return;
    for (int i = 0; trainer->tables != NULL &&
                    i < threads_count(trainer->options.threads); i++)
        word_table_free(&trainer->tables[i]);
    memory_free(trainer->tables);
    memory_free(trainer->end_of_text);
    memory_free(trainer);
}

static void tell(const struct bpe_trainer *trainer, const char *doing,
                 int64_t done, int64_t total)
{
    const struct bpe_progress progress = {doing, done, total};

    if (trainer->options.progress != NULL)
        trainer->options.progress(trainer->options.context, &progress);
}

status bpe_trainer_feed(struct bpe_trainer *trainer, const char *text,
                        size_t length)
{
    static const size_t step = (size_t)16 << 20; /* between reports */
    size_t at = 0, bad;

    if (text_utf8_invalid(text, length, &bad))
        FAIL(ERR_FORMAT, "the text is not UTF-8: byte %zu is 0x%02x", bad,
             (unsigned char)text[bad]);
    while (at < length) {
        size_t stop = length;

        if (length - at > 2 * step)
            stop = word_count_cut(text, at + step, length);
        TRY(word_count(trainer->tables, trainer->options.threads, scan_gpt2,
                       text + at, stop - at));
        trainer->bytes_fed += (int64_t)(stop - at);
        at = stop;
        tell(trainer, "counting words", trainer->bytes_fed, 0);
    }
    return OK;
}

/* All tables into the first. */
static status add_tables(struct bpe_trainer *trainer)
{
    struct word_table *sum = &trainer->tables[0];

    for (int i = 1; i < threads_count(trainer->options.threads); i++) {
        struct word_table *table = &trainer->tables[i];

        for (size_t j = 0; j < table->capacity; j++) {
            const struct counted_word *from = &table->places[j];
            struct counted_word *to;

            if (from->length == 0) continue;
            TRY(word_table_get(sum, table->bytes + from->start, from->length,
                               &to));
            to->count += from->count;
        }
        word_table_free(table);
    }
    return OK;
}

static void tell_merges(void *context, int64_t done, int64_t total)
{
    tell(context, "merging", done, total);
}

status bpe_trainer_finish(struct bpe_trainer *trainer, struct text *json,
                          int64_t *vocab)
{
    const struct bpe_merging merging = {
        .wanted = trainer->options.vocab - BPE_FIRST_MERGE,
        .count_min = trainer->options.count_min,
        .progress = tell_merges,
        .context = trainer
    };
    struct bpe_merges merges = {0};
    status result;

    if (trainer->bytes_fed == 0)
        FAIL(ERR_CONFIG, "there is no text to learn a tokenizer from");
    TRY(add_tables(trainer));
    TRY_GOTO(done, result, bpe_merge(&trainer->tables[0], &merging, &merges));
    TRY_GOTO(done, result,
             tokenizer_write(json, trainer->end_of_text, &merges));
    *vocab = BPE_FIRST_MERGE + merges.tokens;
done:
    bpe_merges_free(&merges);
    return result;
}
