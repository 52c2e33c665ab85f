/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - samples of a token file in an order that is a pure function of
 * (seed, epoch, index). */
#include "data/loader.h"

#include <string.h>

#include "base/arena.h"

/* Whether document `index` is held out: a coin of its own, by (seed, index).
 * The first trains in any case: one document cannot be split. */
static bool held_out(const struct loader_request *r, int64_t index)
{
    const struct random_key key = random_key_make(r->seed, "data.split");

    return index > 0 &&
           random_uniform(key, (uint64_t)index) < r->valid_share;
}

static bool belongs(const struct loader_request *r, int64_t index)
{
    if (r->share == SHARE_ALL) return true;
    return held_out(r, index) == (r->share == SHARE_VALID);
}

/* The documents of the share, where they start in the file and in the
 * stream. */
static status choose_documents(struct loader *loader)
{
    const struct token_file *file = &loader->file;
    void *memory = NULL;

    loader->documents = file->documents;
    loader->tokens = file->count;
    if (loader->request.share == SHARE_ALL) return OK;
    TRY(memory_take((size_t)file->documents + 1, sizeof(int64_t), &memory));
    loader->starts = memory;
    TRY(memory_take((size_t)file->documents + 1, sizeof(int64_t), &memory));
    loader->first = memory;
    loader->documents = loader->tokens = 0;
    for (int64_t i = 0; i < file->documents; i++) {
        const int64_t first = token_file_start(file, i);

        if (!belongs(&loader->request, i)) continue;
        loader->first[loader->documents] = first;
        loader->starts[loader->documents++] = loader->tokens;
        loader->tokens += token_file_start(file, i + 1) - first;
    }
    loader->starts[loader->documents] = loader->tokens;
    return OK;
}

static status check_file(const struct loader *loader)
{
    const struct loader_request *r = &loader->request;
    const struct token_file *file = &loader->file;

    if (r->tokenizer != NULL && file->tokenizer[0] != 0 &&
        strcmp(r->tokenizer, file->tokenizer) != 0)
        FAIL(ERR_CONFIG, "%s was made with another tokenizer (digest %.12s..., "
                         "this run's is %.12s...)", file->path,
             file->tokenizer, r->tokenizer);
    if (r->vocab > 0 && file->vocab > r->vocab)
        FAIL(ERR_CONFIG, "%s has ids up to %lld, the model's vocabulary is "
                         "%lld", file->path, (long long)file->vocab - 1,
             (long long)r->vocab);
    return token_file_verify(file);
}

status loader_open(struct loader *loader, const struct loader_request *request)
{
    *loader = (struct loader){.request = *request};
    TRY(token_file_open(&loader->file, request->path));
    TRY(check_file(loader));
    TRY(choose_documents(loader));
    if (loader->tokens > 0)
        loader->samples = (loader->tokens - 1) / request->sequence;
    if (loader->samples == 0)
        FAIL(ERR_CONFIG, "%s: %lld tokens in %lld documents%s are too few for "
                         "one sample of %lld tokens and its last target; "
                         "give more text or lower data.sequence",
             request->path, (long long)loader->tokens,
             (long long)loader->documents,
             request->share == SHARE_VALID ? " held out"
             : request->share == SHARE_TRAIN ? " to train on" : "",
             (long long)request->sequence);
    loader->dropped = loader->tokens - 1 -
                      loader->samples * request->sequence;
    return OK;
}

void loader_close(struct loader *loader)
{
    token_file_close(&loader->file);
    memory_free(loader->starts);
    memory_free(loader->first);
    *loader = (struct loader){0};
}

static int64_t document_start(const struct loader *loader, int64_t document)
{
    return loader->starts != NULL ? loader->starts[document]
                                  : token_file_start(&loader->file, document);
}

/* The document that holds token `at` of the stream. */
static int64_t document_of(const struct loader *loader, int64_t at)
{
    int64_t low = 0, high = loader->documents;

    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;

        if (document_start(loader, middle) <= at) low = middle;
        else high = middle;
    }
    return low;
}

static int64_t file_index(const struct loader *loader, int64_t document,
                          int64_t at)
{
    if (loader->starts == NULL) return at;
    return loader->first[document] + (at - loader->starts[document]);
}

status loader_sample(const struct loader *loader, int64_t index,
                     int32_t *inputs, int32_t *targets, int32_t *positions,
                     int32_t *documents)
{
    const struct loader_request *r = &loader->request;
    const int64_t epoch = index / loader->samples;
    uint64_t sample = (uint64_t)(index % loader->samples);
    int64_t document, at, position = 0;
    int32_t segment = 0;

    if (r->shuffled) {
        struct random_key key = random_key_make(r->seed, "data.order");

        key.word[1] ^= (uint32_t)epoch;
        key.word[0] += (uint32_t)((uint64_t)epoch >> 32);
        sample = random_permute(key, (uint64_t)loader->samples, sample);
    }
    at = (int64_t)sample * r->sequence;
    document = document_of(loader, at);
    for (int64_t t = 0; t < r->sequence; t++, at++, position++) {
        int64_t next = document;

        inputs[t] = token_file_at(&loader->file,
                                  file_index(loader, document, at));
        documents[t] = segment;
        positions[t] = (int32_t)position;
        if (at + 1 == document_start(loader, document + 1)) next++;
        targets[t] = next == loader->documents
                         ? -1
                         : token_file_at(&loader->file,
                                         file_index(loader, next, at + 1));
        if (next == document) continue;
        document = next;
        if (r->joined) continue;
        targets[t] = -1;
        segment++;
        position = -1;
    }
    return OK;
}
