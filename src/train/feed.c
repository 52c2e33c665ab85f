/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c - the data of a run as sources of sequences for steps. */
#include "train/feed.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "corpus/chat.h"
#include "observe/consumed.h"
#include "observe/progress.h"

static bool is_cached(const char *name)
{
    return name[0] != '\0'; /* no other files are there */
}

/* Removes incomplete files of a killed run from a cache that belongs to this
 * run alone. */
static status clean(const char *cache)
{
    TRY(directory_check_own(cache));
    return file_is_directory(cache) ? directory_clean(cache, is_cached)
                                    : OK;
}

static status where_cached(struct feed *feed, const char *run)
{
    const struct options *o = &feed->setup->set->values;

    if (o->data.cache[0] != 0)
        return path_join(feed->cache, sizeof feed->cache, o->data.cache, "");
    TRY(path_join(feed->cache, sizeof feed->cache, run, "tokens"));
    return clean(feed->cache);
}

static status fill_in_of(const struct options *o,
                         const struct tokenizer *tokenizer,
                         struct fill_in *fill_in)
{
    *fill_in = (struct fill_in){.rate = o->data.fim_rate,
                                .suffix_first = o->data.fim_spm_rate,
                                .seed = (uint64_t)o->seed};
    if (fill_in->rate <= 0 || tokenizer == NULL) return OK;
    return fill_in_tokens(fill_in, tokenizer, o->data.fim_tokens.items,
                          o->data.fim_tokens.count);
}

status feed_prepare(const struct feed *feed, const char *const *sources,
                    int count, struct data_parts *parts)
{
    const struct setup *setup = feed->setup;
    const struct options *o = &setup->set->values;
    struct progress progress;
    struct data_request request = {
        .sources = sources, .source_count = count,
        .format = {.field = o->data.field,
                   .document_bytes = o->data.document_bytes},
        .tokenizer = feed->tokenizer,
        .end_of_text = o->tokenizer.end_of_text, .cache = feed->cache,
        .progress = progress_show, .argument = &progress};

    TRY(corpus_field(&request.sources, &request.source_count,
                     &request.format));
    if (o->data.chat[0] != '\0') {
        TRY(chat_find(o->data.chat, &request.format.chat));
        if (feed->tokenizer != NULL)
            TRY(chat_check(request.format.chat, feed->tokenizer));
    }
    TRY(fill_in_of(o, feed->tokenizer, &request.fill_in));
    progress_begin_bytes(&progress, "tokenize");
    const status result = data_prepare(&request, parts);

    progress_end(&progress);
    return result;
}

struct loader_request feed_request(const struct feed *feed,
                                   const struct data_parts *parts)
{
    const struct setup *setup = feed->setup;
    const struct options *o = &setup->set->values;
    int32_t end =
        setup->model.ends.eos >= 0 ? (int32_t)setup->model.ends.eos : -1;

    if (feed->tokenizer != NULL &&
        tokenizer_end_of_text(feed->tokenizer, o->tokenizer.end_of_text,
                              &end) != OK)
        status_clear(); /* token files may know their own */
    return (struct loader_request){
        .paths = parts->paths, .path_count = parts->count,
        .sequence = o->data.sequence, .seed = (uint64_t)o->seed,
        .joined = strcmp(o->data.documents, "joined") == 0,
        .best_fit = strcmp(o->data.packing, "best_fit") == 0,
        .share = SHARE_ALL, .valid_share = o->data.valid_share,
        .tokenizer = feed->tokenizer != NULL ? feed->tokenizer->digest : NULL,
        .vocab = setup->model.vocab, .end_token = end, .cache = feed->cache};
}

status feed_load(struct loader *loader, const struct loader_request *request)
{
    struct loader_request told = *request;
    struct progress progress;

    told.reading = progress_show;
    told.reading_argument = &progress;
    progress_begin_bytes(&progress, "read tokens");
    const status result = loader_open(loader, &told);

    progress_end(&progress);
    loader->request.reading = NULL; /* the line has ended */
    return result;
}

/* ---- opening ---- */

static status check_options(const struct options *o)
{
    const bool best_fit = strcmp(o->data.packing, "best_fit") == 0;

    if (o->data.train.count > 0 && o->data.mixture.count > 0)
        FAIL(ERR_CONFIG, "data.train and data.mixture are both given; one of "
                         "them names the data");
    if (o->data.phases.count > 0 && o->data.mixture.count == 0)
        FAIL(ERR_CONFIG, "data.phases changes the weights of data.mixture, "
                         "which is empty");
    if (!best_fit && strcmp(o->data.packing, "concat") != 0)
        FAIL(ERR_CONFIG, "data.packing: %s is not concat or best_fit",
             o->data.packing);
    if (best_fit && strcmp(o->data.documents, "joined") == 0)
        FAIL(ERR_CONFIG, "data.packing: best_fit keeps documents apart; it "
                         "cannot be with data.documents: joined");
    return OK;
}

status feed_check_named(const struct options *o)
{
    if (o->data.train.count > 0 || o->data.mixture.count > 0) return OK;
    FAIL(ERR_CONFIG, "data.train: no file is named; give .txt, .jsonl, "
                     ".parquet or token files or directories of them");
}

static status check_tokens(const struct options *o,
                           const struct tokenizer *tokenizer)
{
    const char *name = o->data.chat;
    const struct chat_template *chat;
    struct fill_in fill_in;

    TRY(fill_in_of(o, tokenizer, &fill_in));
    if (name[0] == '\0') return OK;
    TRY(chat_find(name, &chat));
    return tokenizer != NULL ? chat_check(chat, tokenizer) : OK;
}

status feed_check(const struct setup *setup,
                  const struct tokenizer *tokenizer)
{
    const struct options *o = &setup->set->values;
    struct mixture_rows rows = {0};
    struct ranges left_out = {0};
    status result = OK;

    TRY(check_options(o));
    TRY(check_tokens(o, tokenizer));
    if (o->data.mixture.count > 0)
        result = mixture_rows_read(&rows, o->data.mixture.items,
                                   o->data.mixture.count, o->data.phases.items,
                                   o->data.phases.count);
    mixture_rows_free(&rows);
    TRY(result);
    result = ranges_read(&left_out, o->data.skip.items, o->data.skip.count);
    ranges_free(&left_out);
    return result;
}

/* Too little may be held out to measure anything: then nobody validates. Each
 * other failure is one of this rank alone, and ends the run. */
static status load_held(struct feed_source *source,
                        struct loader_request request)
{
    status result;

    request.share = SHARE_VALID;
    result = feed_load(&source->valid, &request);
    if (result != ERR_CONFIG) return result;
    status_clear();
    loader_close(&source->valid);
    return OK;
}

static status open_source(struct feed *feed, int index)
{
    const struct options *o = &feed->setup->set->values;
    struct feed_source *source = &feed->sources[index];
    struct loader_request request;
    const bool mixed = feed->rows.count > 0;
    const bool held = o->data.valid.count == 0 && o->data.valid_share > 0;
    status result;

    source->name = mixed ? feed->rows.sources[index].name : "train";
    if (mixed)
        TRY(feed_prepare(feed, feed->rows.sources[index].paths,
                         feed->rows.sources[index].path_count,
                         &source->parts));
    else
        TRY(feed_prepare(feed, o->data.train.items, o->data.train.count,
                         &source->parts));
    request = feed_request(feed, &source->parts);
    request.name = mixed ? source->name : "data.train";
    request.source = (uint64_t)index;
    request.progress = progress_show;
    request.argument = &feed->packing;
    progress_begin(&feed->packing, stderr, "pack", "thousand documents", 1e3);
    result = held ? load_held(source, request) : OK;
    if (held) request.share = SHARE_TRAIN;
    request.shuffled = true;
    if (result == OK) result = feed_load(&source->train, &request);
    progress_end(&feed->packing);
    TRY(result);
    feed->samples += source->train.samples;
    feed->dropped += source->train.dropped > 0;
    return OK;
}

static status open_sources(struct feed *feed)
{
    void *memory;

    feed->count = 0;
    const int count = feed->rows.count > 0 ? feed->rows.count : 1;

    TRY(memory_take((size_t)count, sizeof *feed->sources, &memory));
    feed->sources = memory;
    memset(memory, 0, (size_t)count * sizeof *feed->sources);
    for (int i = 0; i < count; i++) {
        feed->count = i + 1; /* so that it is closed in any case */
        TRY(open_source(feed, i));
    }
    return OK;
}

/* Phases begin at steps; the mixture counts samples. */
static status build_mixture(struct feed *feed)
{
    const struct options *o = &feed->setup->set->values;
    const double one = 1;
    const int64_t start = 0;
    int64_t *from;
    void *memory;
    status result;

    if (feed->rows.count == 0)
        return mixture_build(&feed->mixture, 1, 1, &one, &start, 0);
    TRY(memory_take((size_t)feed->rows.phases, sizeof *from, &memory));
    from = memory;
    for (int i = 0; i < feed->rows.phases; i++)
        from[i] = ramp_samples(&feed->setup->ramp, feed->rows.steps[i]);
    result = mixture_build(&feed->mixture, feed->count, feed->rows.phases,
                           feed->rows.weights, from, (uint64_t)o->seed);
    memory_free(memory);
    return result;
}

/* Held-out samples in the proportions of the first phase, of the sources that
 * have any. */
static status mix_valid(struct feed *feed)
{
    const int64_t start = 0;
    double *weights, sum = 0;
    int64_t samples = 0;
    void *memory;
    status result = OK;

    TRY(memory_take((size_t)feed->count, sizeof *weights, &memory));
    weights = memory;
    for (int i = 0; i < feed->count; i++) {
        weights[i] = feed->sources[i].valid.samples == 0 ? 0
                     : feed->rows.count > 0 ? feed->rows.weights[i] : 1;
        samples += weights[i] > 0 ? feed->sources[i].valid.samples : 0;
        sum += weights[i];
    }
    if (sum > 0)
        result = mixture_build(&feed->held_out, feed->count, 1, weights,
                               &start, 1);
    memory_free(memory);
    feed->valid_samples = samples;
    return result;
}

static status open_valid(struct feed *feed)
{
    const struct options *o = &feed->setup->set->values;

    if (o->data.valid.count > 0) {
        TRY(feed_prepare(feed, o->data.valid.items, o->data.valid.count,
                         &feed->valid_parts));
        struct loader_request request = feed_request(feed, &feed->valid_parts);

        request.name = "data.valid";
        TRY(feed_load(&feed->valid, &request));
        feed->valid_samples = feed->valid.samples;
    } else {
        TRY(mix_valid(feed));
    }
    if (feed->valid_samples > o->validate.sequences)
        feed->valid_samples = o->validate.sequences;
    return OK;
}

/* Room for the largest batch of the run. */
static status take_checksums(struct feed *feed)
{
    const struct ramp *ramp = &feed->setup->ramp;
    void *memory;

    feed->batch_most = feed->setup->set->values.train.batch;
    for (int i = 0; i < ramp->count; i++)
        if (ramp->rows[i].batch > feed->batch_most)
            feed->batch_most = ramp->rows[i].batch;
    for (int i = 0; i < 2; i++) {
        struct feed_batch *batch = &feed->batches[i];

        TRY(memory_take((size_t)feed->batch_most, sizeof *batch->checksums,
                        &memory));
        batch->feed = feed;
        batch->checksums = memory;
    }
    return OK;
}

status feed_open(struct feed *feed, const struct setup *setup,
                 const struct tokenizer *tokenizer, const char *run)
{
    const struct options *o = &setup->set->values;

    *feed = (struct feed){.setup = setup, .tokenizer = tokenizer};
    TRY(feed_check_named(o));
    TRY(check_options(o));
    if (o->data.mixture.count > 0)
        TRY(mixture_rows_read(&feed->rows, o->data.mixture.items,
                              o->data.mixture.count, o->data.phases.items,
                              o->data.phases.count));
    TRY(ranges_read(&feed->left_out, o->data.skip.items,
                    o->data.skip.count));
    TRY(take_checksums(feed));
    TRY(where_cached(feed, run));
    TRY(open_sources(feed));
    TRY(build_mixture(feed));
    return open_valid(feed);
}

void feed_close(struct feed *feed)
{
    for (int i = 0; i < feed->count; i++) {
        loader_close(&feed->sources[i].train);
        loader_close(&feed->sources[i].valid);
        data_parts_free(&feed->sources[i].parts);
    }
    memory_free(feed->sources);
    for (int i = 0; i < 2; i++) memory_free(feed->batches[i].checksums);
    mixture_free(&feed->mixture);
    mixture_free(&feed->held_out);
    loader_close(&feed->valid);
    data_parts_free(&feed->valid_parts);
    ranges_free(&feed->left_out);
    mixture_rows_free(&feed->rows);
    *feed = (struct feed){0};
}

int64_t feed_tokens(const struct feed *feed)
{
    int64_t tokens = 0;

    for (int i = 0; i < feed->count; i++)
        tokens += feed->sources[i].train.set.tokens;
    return tokens;
}

/* Whether nothing is left to wait for; how much was read of how much. */
static bool settled(const struct feed *feed, int64_t *read, int64_t *bytes)
{
    bool all = token_set_settled(&feed->valid.set, read, bytes);

    for (int i = 0; i < feed->count; i++)
        if (!token_set_settled(&feed->sources[i].train.set, read, bytes))
            all = false;
    return all;
}

/* A rank that waits for another's seal reads nothing and has nothing to
 * report. */
static void wait_settled(const struct feed *feed)
{
    enum { COLUMNS = 1 << 10 }; /* a step's line may be on the screen */
    const struct timespec tick = {.tv_nsec = 20000000};
    struct progress progress;
    int64_t read = 0, bytes = 0;

    if (settled(feed, &read, &bytes)) return;
    progress_begin_bytes(&progress, "read tokens");
    do {
        nanosleep(&tick, NULL);
        if (progress.terminal && progress.drawn_s < 0)
            progress.shown = COLUMNS;
        if (read > 0) progress_count(&progress, (double)read, (double)bytes);
        read = bytes = 0;
    } while (!settled(feed, &read, &bytes));
    if (progress.drawn_s >= 0) progress_end(&progress);
}

status feed_settle(struct feed *feed)
{
    wait_settled(feed);
    for (int i = 0; i < feed->count; i++)
        TRY(token_set_settle(&feed->sources[i].train.set));
    return token_set_settle(&feed->valid.set);
}

static status poll(struct token_set *set)
{
    int64_t read = 0, bytes = 0;

    return token_set_settled(set, &read, &bytes) ? token_set_settle(set) : OK;
}

status feed_poll(struct feed *feed)
{
    for (int i = 0; i < feed->count; i++)
        TRY(poll(&feed->sources[i].train.set));
    return poll(&feed->valid.set);
}

uint32_t feed_crc(const struct feed *feed, int64_t samples)
{
    uint32_t crc = 0;

    if (feed->rows.count == 0) return feed->sources[0].train.set.crc;
    for (int i = 0; i < feed->count; i++) {
        const uint64_t facts[2] = {
            feed->sources[i].train.set.crc,
            (uint64_t)mixture_taken(&feed->mixture, i, samples)};

        crc = crc32c(crc, facts, sizeof facts);
    }
    return crc;
}

/* ---- samples ---- */

/* A sample touches some 64 KiB of its file wherever it lies. In a long run
 * that would be all of the file. */
static void give_back(struct feed *feed)
{
    enum { SAMPLES = 128 };

    if (++feed->touched < SAMPLES) return;
    feed->touched = 0;
    for (int i = 0; i < feed->count; i++) {
        loader_drop(&feed->sources[i].train);
        loader_drop(&feed->sources[i].valid);
    }
    loader_drop(&feed->valid);
}

static status fill_train(void *argument, int64_t index, int32_t *inputs,
                         int32_t *targets, int32_t *positions,
                         int32_t *documents)
{
    const struct feed_batch *batch = argument;
    struct feed *feed = batch->feed;
    int64_t sample;
    int source;

    give_back(feed);
    mixture_at(&feed->mixture,
               ranges_at(&feed->left_out, batch->first, index), &source,
               &sample);
    TRY(loader_sample(&feed->sources[source].train, sample, inputs, targets,
                      positions, documents));
    if (index < feed->batch_most)
        batch->checksums[index] =
            crc32c(0, inputs, (size_t)feed->setup->set->values.data.sequence *
                                  sizeof *inputs);
    return OK;
}

void feed_use(void *argument, int64_t first, int64_t count)
{
    struct feed *feed = argument;
    const struct feed_batch *batch = &feed->batches[feed->now];

    for (int64_t i = first; i < first + count; i++) {
        CHECK(i < feed->batch_most);
        feed->used++;
        feed->used_order +=
            consumed_mark(ranges_at(&feed->left_out, batch->first, i));
        feed->used_tokens += batch->checksums[i];
    }
}

void feed_forget(struct feed *feed)
{
    feed->used = 0;
    feed->used_order = feed->used_tokens = 0;
}

/* Sums of 32 bits of fewer than 2^21 samples are exact as doubles. */
status feed_count(struct feed *feed, struct team *team, struct consumed *out)
{
    enum { LOW = 0, HIGH = 1 };
    const uint64_t sums[2] = {feed->used_order, feed->used_tokens};
    double values[5] = {(double)feed->used};

    for (int i = 0; i < 2; i++) {
        values[1 + 2 * i + LOW] = (double)(sums[i] & 0xffffffff);
        values[1 + 2 * i + HIGH] = (double)(sums[i] >> 32);
    }
    feed_forget(feed);
    TRY(team_join(team, values, 5));
    out->samples = (int64_t)values[0];
    out->order = (uint64_t)values[1 + LOW] + ((uint64_t)values[1 + HIGH] << 32);
    out->tokens = (uint64_t)values[3 + LOW] +
                  ((uint64_t)values[3 + HIGH] << 32);
    return OK;
}

/* Samples are only ever left out, so the same first and last are the same
 * batch. Another one takes the place of the one that is not the step's. */
static struct feed_batch *batch_from(struct feed *feed, int64_t first)
{
    const int64_t last =
        ranges_at(&feed->left_out, first, feed->batch_most - 1);
    struct feed_batch *batch;

    for (int i = 0; i < 2; i++) {
        batch = &feed->batches[i];
        if (batch->content != 0 && batch->first == first &&
            batch->last == last)
            return batch;
    }
    batch = &feed->batches[1 - feed->now];
    batch->first = first;
    batch->last = last;
    batch->content = ++feed->made;
    return batch;
}

static struct sample_source source_of(struct feed_batch *batch)
{
    return (struct sample_source){fill_train, batch, batch->first,
                                  batch->content};
}

struct sample_source feed_train(struct feed *feed, int64_t first)
{
    struct feed_batch *batch = batch_from(feed, first);

    feed->now = (int)(batch - feed->batches);
    return source_of(batch);
}

struct sample_source feed_ahead(struct feed *feed, int64_t first)
{
    return source_of(batch_from(feed, first));
}

int64_t feed_text_bytes(const struct feed *feed, const struct loader *loader,
                        const int32_t *targets)
{
    const int64_t length = feed->setup->set->values.data.sequence;
    int64_t sum = 0;

    for (int64_t t = 0; feed->tokenizer != NULL && t < length; t++) {
        size_t bytes = 0;

        if (targets[t] < 0 || targets[t] == loader->set.files[0].end_token)
            continue;
        tokenizer_bytes(feed->tokenizer, targets[t], &bytes);
        sum += (int64_t)bytes;
    }
    return sum;
}

static status fill_valid(void *argument, int64_t index, int32_t *inputs,
                         int32_t *targets, int32_t *positions,
                         int32_t *documents)
{
    struct feed *feed = argument;
    struct loader *loader = &feed->valid;
    int64_t sample = index;
    int source;

    give_back(feed);
    if (loader->set.count == 0) {
        mixture_at(&feed->held_out, index, &source, &sample);
        loader = &feed->sources[source].valid;
        sample %= loader->samples;
    }
    TRY(loader_sample(loader, sample, inputs, targets, positions, documents));
    if (index < feed->valid_next) return OK; /* a rank with two stages */
    feed->valid_next = index + 1;
    feed->valid_bytes += feed_text_bytes(feed, loader, targets);
    return OK;
}

struct sample_source feed_valid(struct feed *feed)
{
    feed->valid_bytes = feed->valid_next = 0;
    return (struct sample_source){.fill = fill_valid, .argument = feed,
                                  .content = 1};
}
