/* SPDX-License-Identifier: Apache-2.0 */
/* feed.c - the data of a run as sources of sequences for steps. */
#include "train/feed.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/prepare.h"
#include "train/progress.h"

static void show(void *argument, double done, double total)
{
    progress_count(argument, done, total);
}

/* What a killed run left half-written in a cache that is its alone. */
static status clean(const char *cache)
{
    char path[PATH_BYTES];
    char **names = NULL;
    int count = 0;
    status result = OK;

    if (!file_is_directory(cache)) return OK;
    TRY(directory_list(cache, &names, &count));
    for (int i = 0; i < count; i++) {
        if (strstr(names[i], ".tmp-") == NULL) continue;
        TRY_GOTO(done, result, path_join(path, sizeof path, cache, names[i]));
        unlink(path);
    }
done:
    directory_list_free(names, count);
    return result;
}

/* Token file of a list of sources: made now, or found in the cache. */
static status prepare(const struct setup *setup,
                      const struct option_list *sources, const char *run,
                      char *path)
{
    const struct options *o = &setup->set->values;
    struct progress progress;
    char cache[PATH_BYTES];

    if (o->data.cache[0] != 0) {
        TRY(path_join(cache, sizeof cache, o->data.cache, ""));
    } else {
        TRY(path_join(cache, sizeof cache, run, "tokens"));
        TRY(clean(cache));
    }
    progress_begin(&progress, stderr, "tokenize", "MB", 1e6);
    const struct data_request request = {
        .sources = sources->items, .source_count = sources->count,
        .field = o->data.field,
        .tokenizer = setup->has_tokenizer ? &setup->tokenizer : NULL,
        .end_of_text = o->tokenizer.end_of_text, .cache = cache,
        .progress = show, .argument = &progress};
    const status result = data_prepare(&request, path);

    if (progress.shown > 0) progress_end(&progress);
    return result;
}

static struct loader_request request_for(const struct setup *setup,
                                         const char *path)
{
    const struct options *o = &setup->set->values;

    return (struct loader_request){
        .path = path, .sequence = o->data.sequence, .seed = (uint64_t)o->seed,
        .joined = strcmp(o->data.documents, "joined") == 0,
        .share = SHARE_ALL, .valid_share = o->data.valid_share,
        .tokenizer = setup->has_tokenizer ? setup->tokenizer.digest : NULL,
        .vocab = setup->model.vocab};
}

static status open_valid(struct feed *feed, const struct setup *setup,
                         const char *run)
{
    const struct options *o = &setup->set->values;
    const bool own = o->data.valid.count > 0;
    struct loader_request request;

    if (!own && o->data.valid_share <= 0) return OK;
    if (own) TRY(prepare(setup, &o->data.valid, run, feed->valid_path));
    request = request_for(setup, own ? feed->valid_path : feed->train_path);
    request.share = own ? SHARE_ALL : SHARE_VALID;
    const status result = loader_open(&feed->valid, &request);

    if (result != OK && own) return status_pass(result, __FILE__, __LINE__);
    if (result != OK) { /* too little is held out to measure anything */
        status_clear();
        loader_close(&feed->valid);
        return OK;
    }
    feed->valid_samples = feed->valid.samples < o->validate.sequences
                              ? feed->valid.samples
                              : o->validate.sequences;
    return OK;
}

status feed_open(struct feed *feed, const struct setup *setup,
                 const char *run)
{
    const struct options *o = &setup->set->values;
    struct loader_request request;

    *feed = (struct feed){.setup = setup};
    if (o->data.train.count == 0)
        FAIL(ERR_CONFIG, "data.train: no file is named; give .txt, .jsonl or "
                         ".tokens files or directories of them");
    TRY(prepare(setup, &o->data.train, run, feed->train_path));
    request = request_for(setup, feed->train_path);
    request.shuffled = true;
    if (o->data.valid.count == 0 && o->data.valid_share > 0)
        request.share = SHARE_TRAIN;
    TRY(loader_open(&feed->train, &request));
    feed->samples = feed->train.samples;
    feed->dropped = feed->train.dropped > 0;
    return open_valid(feed, setup, run);
}

void feed_close(struct feed *feed)
{
    loader_close(&feed->train);
    loader_close(&feed->valid);
    *feed = (struct feed){0};
}

/* A sample touches some 64 KiB of its file wherever it lies. In a long run
 * that would be all of the file. */
static void give_back(struct feed *feed)
{
    enum { SAMPLES = 128 };

    if (++feed->touched < SAMPLES) return;
    feed->touched = 0;
    file_map_drop(&feed->train.file.map);
    file_map_drop(&feed->valid.file.map);
}

static status fill_train(void *argument, int64_t index, int32_t *inputs,
                         int32_t *targets, int32_t *positions,
                         int32_t *documents)
{
    struct feed *feed = argument;

    give_back(feed);
    return loader_sample(&feed->train, feed->first + index, inputs, targets,
                         positions, documents);
}

struct sample_source feed_train(struct feed *feed, int64_t first)
{
    feed->first = first;
    return (struct sample_source){fill_train, feed};
}

/* Counts the text that the targets stand for; an end token is no text. */
static status fill_valid(void *argument, int64_t index, int32_t *inputs,
                         int32_t *targets, int32_t *positions,
                         int32_t *documents)
{
    struct feed *feed = argument;
    const struct tokenizer *tokenizer = &feed->setup->tokenizer;
    const int64_t length = feed->valid.request.sequence;

    give_back(feed);
    TRY(loader_sample(&feed->valid, index, inputs, targets, positions,
                      documents));
    if (index < feed->valid_next) return OK; /* a rank with two stages */
    feed->valid_next = index + 1;
    for (int64_t t = 0; feed->setup->has_tokenizer && t < length; t++) {
        size_t bytes = 0;

        if (targets[t] < 0 || targets[t] == feed->valid.file.end_token)
            continue;
        tokenizer_bytes(tokenizer, targets[t], &bytes);
        feed->valid_bytes += (int64_t)bytes;
    }
    return OK;
}

struct sample_source feed_valid(struct feed *feed)
{
    feed->valid_bytes = feed->valid_next = 0;
    return (struct sample_source){fill_valid, feed};
}
