/* SPDX-License-Identifier: Apache-2.0 */
/* learn.c - a tokenizer from text: tokenizer train. */
#include <string.h>
#include "base/clock.h"
#include "base/json.h"
#include "cli/run.h"
#include "cli/table.h"
#include "tokenizer/bpe_train.h"
#include "corpus/corpus.h"
#include "tokenizer/tokenizer.h"
#include "observe/progress.h"

struct learning {
    struct corpus corpus;
    struct threads *threads;
    struct bpe_trainer *trainer;
    struct progress progress;
    const char *doing;   /* of the live line; NULL: none yet */
    struct text json;
    int64_t documents, vocab_asked, vocab;
    struct bpe_left_out left_out;
    char scratch[PATH_BYTES]; /* directory of the result */
    const struct file_map *map; /* being read; NULL: none */
    double seconds;
};

static void learning_free(struct learning *work)
{
    progress_end(&work->progress);
    text_free(&work->json);
    bpe_trainer_free(work->trainer);
    threads_free(work->threads);
    corpus_close(&work->corpus);
}

/* Words are counted in bytes of text, merges in tokens. */
static void tell(void *context, const struct bpe_progress *told)
{
    struct learning *work = context;
    const bool bytes = told->doing[0] == 'c';
    const double total = told->total > 0 ? (double)told->total
                         : bytes         ? (double)work->corpus.bytes
                                         : 0;

    if (work->doing != told->doing) {
        progress_end(&work->progress);
        progress_begin(&work->progress, stderr, told->doing,
                       bytes ? "MB" : "tokens", bytes ? 1e6 : 1);
        work->doing = told->doing;
    }
    progress_count(&work->progress, (double)told->done, total);
    if (work->map != NULL) file_map_drop(work->map); /* what was read */
}

static status take(void *context, const struct corpus_document *document)
{
    struct learning *work = context;

    if (document->text == NULL)
        FAIL(ERR_CONFIG, "a tokenizer learns from text, and document %lld of "
             "the sources is token ids", (long long)work->documents);
    work->documents++;
    work->map = document->map;
    return bpe_trainer_feed(work->trainer, document->text, document->length);
}

static status read_corpus(struct learning *work,
                          const struct corpus_format *format)
{
    for (int i = 0; i < work->corpus.count; i++) {
        const struct corpus_file *file = &work->corpus.files[i];

        if (file->kind == CORPUS_TOKENS)
            FAIL(ERR_CONFIG, "%s: a token file; a tokenizer learns from .txt "
                             "and .jsonl", file->path);
        TRY(corpus_read(file, format, take, work, NULL));
    }
    return OK;
}

static status learn(struct learning *work, const struct arguments *arguments,
                    const char *out)
{
    struct bpe_options options = {.vocab = work->vocab_asked, .count_min = 1,
                                  .progress = tell, .context = work};
    struct corpus_format format = {
        .field = arguments_text(arguments, "field", "text")};
    const double began = clock_s();
    int64_t threads = 0, memory = 2048;

    options.end_of_text = arguments_text(arguments, "end-of-text", NULL);
    TRY(arguments_integer(arguments, "min-count", 1, INT64_MAX,
                          &options.count_min));
    TRY(arguments_integer(arguments, "threads", 0, THREADS_MOST, &threads));
    TRY(arguments_integer(arguments, "memory", 64, 1 << 24, &memory));
    options.memory = (size_t)memory << 20;
    snprintf(work->scratch, sizeof work->scratch, "%s", out);
    if (strrchr(work->scratch, '/') == NULL)
        snprintf(work->scratch, sizeof work->scratch, ".");
    else
        *strrchr(work->scratch, '/') = 0;
    options.scratch = work->scratch[0] ? work->scratch : "/";
    TRY(corpus_open(&work->corpus, arguments->operands,
                    arguments->operand_count));
    TRY(threads_build(&work->threads, (int)threads));
    options.threads = work->threads;
    TRY(bpe_trainer_build(&work->trainer, &options));
    TRY(arguments_integer(arguments, "document-bytes", DOCUMENT_BYTES_LEAST,
                          DOCUMENT_BYTES_MOST, &format.document_bytes));
    TRY(read_corpus(work, &format));
    work->map = NULL;
    TRY(bpe_trainer_finish(work->trainer, &work->json, &work->vocab));
    work->left_out = *bpe_trainer_left_out(work->trainer);
    TRY(file_write_named(out, work->json.bytes, work->json.length));
    work->seconds = clock_s() - began;
    progress_end(&work->progress);
    return OK;
}

static status print_json(const struct learning *work, const char *out)
{
    struct json_writer writer = {0};

    json_write_begin(&writer, 2);
    json_write_object(&writer);
    json_write_key(&writer, "tokenizer");
    json_write_string(&writer, out);
    json_write_key(&writer, "vocab");
    json_write_integer(&writer, work->vocab);
    json_write_key(&writer, "documents");
    json_write_integer(&writer, work->documents);
    json_write_key(&writer, "bytes");
    json_write_integer(&writer, work->corpus.bytes);
    json_write_key_integer(&writer, "words_left_out", work->left_out.words);
    json_write_key_integer(&writer, "word_count_least",
                           work->left_out.count_least);
    json_write_key(&writer, "seconds");
    json_write_real(&writer, work->seconds);
    json_write_object_end(&writer);
    return json_print(&writer, stdout);
}

static void print_text(const struct learning *work, const char *out)
{
    char vocab[32], bytes[32], documents[32], time[32];

    printf("%s: %s tokens from %s in %s document%s, %s\n", out,
           text_count(vocab, work->vocab),
           text_bytes(bytes, (uint64_t)work->corpus.bytes),
           text_count(documents, work->documents),
           work->documents == 1 ? "" : "s",
           text_duration(time, work->seconds));
    if (work->left_out.words > 0)
        printf("%s words seen fewer than %lld times (%.2g%% of the text's) did "
               "not fit --memory and were left out\n",
               text_count(documents, work->left_out.words),
               (long long)work->left_out.count_least,
               100.0 * (double)work->left_out.occurrences /
                   (double)work->left_out.of);
    if (work->vocab < work->vocab_asked)
        printf("fewer than the %lld requested: the text has no more pairs\n",
               (long long)work->vocab_asked);
}

status command_tokenizer_train(struct arguments *arguments)
{
    const char *out = arguments_text(arguments, "out", NULL);
    struct learning work = {0};
    status result;

    TRY(arguments_integer(arguments, "vocab", 257, TOKENIZER_VOCAB_MAX,
                          &work.vocab_asked));
    if (work.vocab_asked == 0 || out == NULL)
        FAIL(ERR_USAGE, "tokenizer train needs --vocab N and --out "
                        "TOKENIZER.json");
    TRY(file_may_write(out)); /* before hours of work */
    TRY_GOTO(done, result, learn(&work, arguments, out));
    if (arguments_has(arguments, "json"))
        TRY_GOTO(done, result, print_json(&work, out));
    else
        print_text(&work, out);
done:
    learning_free(&work);
    return result;
}
