/* SPDX-License-Identifier: Apache-2.0 */
/* data.c - which documents a step of a run sees: data show. */
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "checkpoint/run_dir.h"
#include "cli/config.h"
#include "cli/left_out.h"
#include "cli/run.h"
#include "cli/table.h"
#include "observe/consumed.h"
#include "train/feed.h"
#include "tokenizer/run_tokenizer.h"

enum {
    SHOWN_TOKENS = 16,
    SHOWN_BYTES = 60,
    FRAGMENTS_MAX = 1 << 16,
    STEP_MAX = 1000000000,
    SAMPLES_MAX = 1 << 20,
    FILE_BYTES_MOST = 1 << 30
};

struct showing {
    struct options_set set;
    struct run_tokenizer tokenizer;
    struct setup setup;
    struct feed feed;
    char own_cache[PATH_BYTES]; /* removed afterwards; "": none */
    struct loader_fragment *fragments; /* owned [FRAGMENTS_MAX] */
    int64_t step, samples, from, batch; /* batch: of the step */
    struct consumed record; /* of the run: the last line up to the step; step
                             * 0: none */
    bool ids;
};

static void showing_free(struct showing *show)
{
    feed_close(&show->feed);
    setup_free(&show->setup);
    run_tokenizer_free(&show->tokenizer);
    options_free(&show->set);
    memory_free(show->fragments);
    if (show->own_cache[0] != '\0' && directory_remove(show->own_cache) != OK)
        status_clear();
}

/* Reads, of a run, its records: a step that was skipped or rewound left samples
 * out, and so do ranges that were given when it was resumed. */
static status read_records(struct showing *show, const char *run)
{
    struct checkpoint newest = {0};
    struct run_dir place = {0};
    struct text text = {0};
    bool whole = false;
    status result;

    TRY_GOTO(done, result, left_out_join(run, &show->feed.left_out, &newest,
                                         &whole));
    TRY_GOTO(done, result, run_dir_read(&place, run));
    if (!file_exists(place.consumed)) goto done;
    TRY_GOTO(done, result,
             file_read_regular(place.consumed, FILE_BYTES_MOST, &text));
    result = consumed_before(text.bytes, text.length, place.consumed,
                             show->step, &show->record);
done:
    if (whole) checkpoint_close(&newest);
    run_dir_close(&place);
    text_free(&text);
    return result;
}

/* The place in the order of a sample of the step. */
static int64_t place_of(const struct showing *show, int64_t number)
{
    const struct consumed *record = &show->record;
    const struct ramp *ramp = &show->setup.ramp;
    const int64_t before = ramp_samples(ramp, show->step - 1);

    if (record->step < show->step)
        return ranges_at(&show->feed.left_out, record->to,
                         before - ramp_samples(ramp, record->step) + number);
    if (record->samples == record->to - record->from) /* whatever is left out
                                                       * since */
        return record->from + number;
    return ranges_at(&show->feed.left_out, record->from, number);
}

static status showing_open(struct showing *show, struct arguments *arguments)
{
    const struct options *o = &show->set.values;
    const char *run;
    void *memory;

    TRY(arguments_integer(arguments, "step", 1, STEP_MAX, &show->step));
    TRY(arguments_integer(arguments, "samples", 1, SAMPLES_MAX,
                          &show->samples));
    TRY(arguments_integer(arguments, "from", 0, SAMPLES_MAX, &show->from));
    show->ids = arguments_has(arguments, "ids");
    TRY(config_read(&show->set, arguments->operands[0], arguments));
    TRY(run_tokenizer_read(&show->tokenizer, o));
    TRY(setup_resolve(&show->setup, &show->set, &show->tokenizer.vocabulary, 1,
                      0));
    show->batch = ramp_batch(&show->setup.ramp, show->step - 1);
    if (show->from >= show->batch)
        FAIL(ERR_USAGE, "--from %lld: this step has %lld samples, from 0",
             (long long)show->from, (long long)show->batch);
    if (show->samples > show->batch - show->from)
        show->samples = show->batch - show->from;
    TRY(memory_take(FRAGMENTS_MAX, sizeof *show->fragments, &memory));
    show->fragments = memory;
    run = o->run.dir;
    if (o->data.cache[0] == '\0' && (run[0] == '\0' || !file_exists(run))) {
        TRY(directory_make_temporary(show->own_cache, "data"));
        run = show->own_cache;
    }
    TRY(feed_open(&show->feed, &show->setup, run_tokenizer_of(&show->tokenizer),
                  run));
    return file_is_directory(arguments->operands[0])
               ? read_records(show, arguments->operands[0]) : OK;
}

/* The beginning of a fragment as text on one line, or its ids. */
static status excerpt(const struct showing *show, const struct loader *loader,
                      const struct loader_fragment *fragment, struct text *out)
{
    const int64_t count = fragment->count < SHOWN_TOKENS ? fragment->count
                                                      : SHOWN_TOKENS;
    int32_t ids[SHOWN_TOKENS];

    out->length = 0;
    TRY(token_set_read(&loader->set, fragment->at, count, loader->request.vocab,
                       ids));
    if (show->ids || show->tokenizer.vocabulary.size == 0) {
        for (int64_t i = 0; i < count; i++)
            TRY(text_printf(out, "%s%d", i > 0 ? " " : "", ids[i]));
    } else {
        size_t bad;

        TRY(tokenizer_decode(&show->tokenizer.tokenizer, ids, count, out));
        if (out->length > SHOWN_BYTES) out->length = SHOWN_BYTES;
        if (text_utf8_invalid(out->bytes, out->length, &bad))
            out->length = bad;
        for (size_t i = 0; i < out->length; i++)
            if ((unsigned char)out->bytes[i] < ' ') out->bytes[i] = ' ';
        TRY(text_append(out, "", 0));
    }
    return count < fragment->count ? text_append_string(out, " ...") : OK;
}

/* Tokens of a fragment that are targets, but for masks of its ends. */
static int64_t learned(const struct loader *loader,
                       const struct loader_fragment *fragment)
{
    int64_t count = 0;

    for (int64_t i = 0; i < fragment->count; i++)
        count += token_set_learned(&loader->set, fragment->at + i);
    return count;
}

static status add_sample(struct showing *show, int64_t number,
                         struct table *table, struct text *text)
{
    const int64_t at = place_of(show, number);
    struct loader *loader;
    int64_t index, count;
    int source;

    mixture_at(&show->feed.mixture, at, &source, &index);
    loader = &show->feed.sources[source].train;
    TRY(loader_fragments(loader, index, FRAGMENTS_MAX, show->fragments,
                         &count));
    for (int64_t i = 0; i < count && i < FRAGMENTS_MAX; i++) {
        const struct loader_fragment *fragment = &show->fragments[i];

        TRY(excerpt(show, loader, fragment, text));
        table_integer(table, number);
        table_integer(table, at);
        table_text(table, show->feed.sources[source].name);
        table_integer(table, index / loader->samples);
        table_integer(table, fragment->document);
        table_integer(table, fragment->offset);
        table_integer(table, fragment->count);
        table_integer(table, fragment->length);
        table_integer(table, learned(loader, fragment));
        table_text(table, text->bytes);
    }
    return OK;
}

static void add_ledger(const struct showing *show, struct table *table)
{
    const int64_t after = place_of(show, show->batch - 1) + 1;

    for (int i = 0; i < show->feed.count; i++) {
        const struct feed_source *source = &show->feed.sources[i];
        const int64_t taken = mixture_taken(&show->feed.mixture, i, after);

        table_text(table, source->name);
        table_integer(table, taken);
        table_integer(table, taken * show->set.values.data.sequence);
        table_real(table, (double)taken / (double)source->train.samples, 4);
        table_integer(table, source->train.samples);
        table_integer(table, source->train.set.documents);
        table_integer(table, source->train.set.tokens);
    }
}

static status print_all(const struct showing *show,
                        const struct table *samples,
                        const struct table *ledger, bool json)
{
    struct json_writer writer = {0};
    char step[32];
    status result;

    if (!json) {
        printf("step %s: samples %lld to %lld of its %lld\n",
               text_count(step, show->step), (long long)show->from,
               (long long)(show->from + show->samples - 1),
               (long long)show->batch);
        TRY(table_print(samples, stdout));
        printf("\nafter this step\n");
        return table_print(ledger, stdout);
    }
    json_write_begin(&writer, 2);
    json_write_object(&writer);
    json_write_key_integer(&writer, "step", show->step);
    json_write_key(&writer, "fragments");
    TRY_GOTO(done, result, table_json(samples, &writer));
    json_write_key(&writer, "sources");
    TRY_GOTO(done, result, table_json(ledger, &writer));
    json_write_object_end(&writer);
    TRY_GOTO(done, result, json_print(&writer, stdout));
done:
    json_writer_free(&writer);
    return result;
}

status command_data_show(struct arguments *arguments)
{
    static const struct table_column fragments[] = {
        {"sample", "sample", true}, {"place", "place", true},
        {"source", "source", false}, {"epoch", "epoch", true},
        {"document", "document", true},
        {"from", "first_token", true}, {"tokens", "tokens", true},
        {"of", "document_tokens", true}, {"learned", "learned_tokens", true},
        {"text", "text", false}};
    static const struct table_column sources[] = {
        {"source", "source", false}, {"samples", "samples", true},
        {"tokens", "tokens", true}, {"epochs", "epochs", true},
        {"samples an epoch", "epoch_samples", true},
        {"documents", "documents", true},
        {"its tokens", "source_tokens", true}};
    struct showing show = {.step = 1, .samples = 4};
    struct table samples, ledger;
    struct text text = {0};
    status result;

    table_begin(&samples, fragments,
                sizeof fragments / sizeof *fragments);
    table_begin(&ledger, sources, 7);
    TRY_GOTO(done, result, showing_open(&show, arguments));
    for (int64_t i = 0; i < show.samples; i++)
        TRY_GOTO(done, result,
                 add_sample(&show, show.from + i, &samples, &text));
    add_ledger(&show, &ledger);
    TRY_GOTO(done, result, print_all(&show, &samples, &ledger,
                                     arguments_has(arguments, "json")));
done:
    text_free(&text);
    table_free(&samples);
    table_free(&ledger);
    showing_free(&show);
    return result;
}
