/* SPDX-License-Identifier: Apache-2.0 */
/* bpe_train.c - learns a byte-level BPE tokenizer from text: texts in,
 * tokenizer.json out. The merging itself is in bpe_merge.c. */
#include "tokenizer/bpe_train.h"

#include <string.h>
#include "base/arena.h"
#include "tokenizer/bpe_merge.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_spill.h"

struct bpe_trainer {
    struct bpe_options options;
    struct word_table *tables; /* owned [threads] */
    char *end_of_text;         /* owned */
    int64_t bytes_fed;
    struct word_spill spill;
    struct bpe_left_out left_out;
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
    trainer->spill.directory = options->scratch;
    trainer->left_out.count_least = 1;
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
    word_spill_free(&trainer->spill);
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

/* A table that grows is there twice for a while, once with double its size: a
 * quarter of the memory is full. */
static status spill_full(struct bpe_trainer *trainer)
{
    const int count = threads_count(trainer->options.threads);
    size_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += word_table_bytes(&trainer->tables[i]);
    if (trainer->options.memory == 0 || bytes <= trainer->options.memory / 4)
        return OK;
    return word_spill_write(&trainer->spill, trainer->tables, count,
                            trainer->options.threads);
}

status bpe_trainer_feed(struct bpe_trainer *trainer, const char *text,
                        size_t length)
{
    static const size_t step = (size_t)16 << 20; /* between reports */
    size_t at = 0, bad;

    while (at < length) {
        size_t stop = length;

        if (length - at > 2 * step)
            stop = word_count_cut(text, at + step, length);
        if (text_utf8_invalid(text + at, stop - at, &bad))
            FAIL(ERR_FORMAT, "the text is not UTF-8: byte %zu is 0x%02x",
                 at + bad, (unsigned char)text[at + bad]);
        TRY(word_count(trainer->tables, trainer->options.threads, scan_gpt2,
                       text + at, stop - at));
        TRY(spill_full(trainer));
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

/* ---- words that were spilled ---- */

enum { COUNTS = 1 << 16 }; /* more is as good as this */

/* How many words of each count there are, and of how many bytes. */
struct spectrum { int64_t words[COUNTS], bytes[COUNTS], occurrences[COUNTS]; };

static status note_word(void *context, const unsigned char *word,
                        size_t length, int64_t count)
{
    struct spectrum *spectrum = context;
    const int64_t at = count < COUNTS ? count : COUNTS - 1;

    (void)word;
    spectrum->words[at]++;
    spectrum->bytes[at] += (int64_t)length;
    spectrum->occurrences[at] += count;
    return OK;
}

/* The bytes of the table (a power of two, at most half full, growing) and of
 * merging: symbols, words, and the places of each pair. */
static size_t merging_bytes(int64_t words, int64_t bytes)
{
    size_t places = 4096;

    while (places <= 2 * (size_t)words) places *= 2;
    return places * sizeof(struct counted_word) * 3 / 2 +
           20 * (size_t)words + 16 * (size_t)bytes;
}

/* The smallest count whose words, and those of all larger ones, fit. */
static void choose_least(struct bpe_trainer *trainer,
                         const struct spectrum *spectrum)
{
    struct bpe_left_out *out = &trainer->left_out;
    int64_t bytes = 0;
    bool fits = true;

    for (int count = COUNTS - 1; count > 0; count--) {
        const int64_t words = out->kept + spectrum->words[count];

        bytes += spectrum->bytes[count];
        fits = fits && (count == COUNTS - 1 ||
                        merging_bytes(words, bytes) <=
                            trainer->options.memory);
        out->of += spectrum->occurrences[count];
        if (fits) {
            out->kept = words;
            out->count_least = count;
        } else {
            out->words += spectrum->words[count];
            out->occurrences += spectrum->occurrences[count];
        }
    }
}

static status keep_word(void *context, const unsigned char *word,
                        size_t length, int64_t count)
{
    struct bpe_trainer *trainer = context;
    struct counted_word *kept;

    if (count < trainer->left_out.count_least) return OK;
    TRY(word_table_get(&trainer->tables[0], word, length, &kept));
    kept->count = count;
    return OK;
}

/* The most frequent words that fit, from all runs, into the first table. */
static status merge_runs(struct bpe_trainer *trainer)
{
    const int count = threads_count(trainer->options.threads);
    void *spectrum = NULL;
    status result;

    TRY(word_spill_write(&trainer->spill, trainer->tables, count,
                         trainer->options.threads));
    TRY(memory_take(1, sizeof(struct spectrum), &spectrum));
    result = word_spill_merge(&trainer->spill, note_word, spectrum);
    if (result == OK) choose_least(trainer, spectrum);
    memory_free(spectrum);
    TRY(result);
    return word_spill_merge(&trainer->spill, keep_word, trainer);
}

const struct bpe_left_out *bpe_trainer_left_out(
    const struct bpe_trainer *trainer)
{
    return &trainer->left_out;
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
    TRY(trainer->spill.count > 0 ? merge_runs(trainer) : add_tables(trainer));
    TRY_GOTO(done, result, bpe_merge(&trainer->tables[0], &merging, &merges));
    TRY_GOTO(done, result,
             tokenizer_write(json, trainer->end_of_text, &merges));
    *vocab = BPE_FIRST_MERGE + merges.tokens;
done:
    bpe_merges_free(&merges);
    return result;
}
