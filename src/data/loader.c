/* SPDX-License-Identifier: Apache-2.0 */
/* loader.c - samples of token files in an order that is a pure function of
 * (seed, epoch, index). */
#include "data/loader.h"

#include <string.h>

#include "base/arena.h"
#include "base/mapped_files.h"
#include "data/pack_file.h"
#include "data/token_pages.h"

enum { KEPT_DOCUMENTS = 1 << 16 /* fewer are packed in a moment */ };

/* The documents of the share. */
static status choose_documents(struct loader *loader)
{
    const struct loader_request *r = &loader->request;
    const struct split_request split = {.seed = r->seed,
                                        .share = r->valid_share,
                                        .cache = r->cache};
    int64_t held;

    loader->documents = loader->set.documents;
    loader->tokens = loader->set.tokens;
    if (r->share == SHARE_ALL) return OK;
    TRY(split_build(&loader->split, &loader->set, &split));
    held = loader->split.before[loader->split.count];
    if (r->share == SHARE_VALID) {
        loader->documents = loader->split.count;
        loader->tokens = held;
    } else {
        loader->documents -= loader->split.count;
        loader->tokens -= held;
    }
    return OK;
}

static status too_few(const struct loader *loader)
{
    const struct loader_request *r = &loader->request;

    FAIL(ERR_CONFIG, "%s: %lld tokens in %lld document%s%s are too few for "
                     "one sample of %lld tokens and its last target; "
                     "give more text or lower data.sequence",
         r->name != NULL ? r->name : r->paths[0], (long long)loader->tokens,
         (long long)loader->documents, loader->documents == 1 ? "" : "s",
         r->share == SHARE_VALID ? " held out"
         : r->share == SHARE_TRAIN ? " to train on" : "",
         (long long)r->sequence);
}

/* The document of the files that is the k-th of the share. */
static int64_t file_document(const struct loader *loader, int64_t k)
{
    switch (loader->request.share) {
    case SHARE_ALL: return k;
    case SHARE_TRAIN: return split_trained(&loader->split, k);
    case SHARE_VALID: return loader->split.held[k];
    }
    return k;
}

/* First token of the k-th document; k may be their count. */
static int64_t document_start(const struct loader *loader, int64_t k)
{
    const struct split *split = &loader->split;
    int64_t held;

    switch (loader->request.share) {
    case SHARE_ALL: return token_set_start(&loader->set, k);
    case SHARE_TRAIN:
        held = split_held_before(split, k);
        return token_set_start(&loader->set, k + held) - split->before[held];
    case SHARE_VALID: return split->before[k];
    }
    return 0;
}

static int64_t start_of(const void *loader, int64_t document)
{
    return document_start(loader, document);
}

/* Determines which fragments share a sample. */
static void plan_packing(const struct loader *loader,
                         struct pack_source *source, struct pack_facts *facts)
{
    const struct loader_request *r = &loader->request;

    *source = (struct pack_source){
        .documents = loader->documents, .sequence = r->sequence,
        .start = start_of, .context = loader, .progress = r->progress,
        .argument = r->argument};
    *facts = (struct pack_facts){
        .set = loader->set.key, .documents = (uint64_t)loader->documents,
        .tokens = (uint64_t)loader->tokens,
        .sequence = (uint64_t)r->sequence, .side = (uint64_t)r->share};
    if (r->share == SHARE_ALL) return;
    facts->seed = r->seed;
    memcpy(&facts->share, &r->valid_share, sizeof facts->share);
}

/* Found in the cache, made there, or of few documents made each time. */
static status pack_documents(struct loader *loader)
{
    const struct loader_request *r = &loader->request;
    struct pack_source source;
    struct pack_facts facts;
    bool kept = false;

    plan_packing(loader, &source, &facts);
    if (r->cache != NULL && loader->documents >= KEPT_DOCUMENTS)
        TRY(pack_file_open(&loader->pack, &source, &facts, r->cache, &kept));
    if (!kept) TRY(pack_build(&loader->pack, &source));
    loader->samples = loader->pack.samples;
    return OK;
}

/* Before a packed sample is used: a kept plan that is damaged is made again. */
static status check_packing(struct loader *loader, int64_t sample)
{
    struct pack_source source;
    struct pack_facts facts;

    if (!loader->request.best_fit ||
        pack_file_check(&loader->pack, sample) == OK)
        return OK;
    plan_packing(loader, &source, &facts);
    return pack_file_renew(&loader->pack, &source, &facts,
                           loader->request.cache, sample);
}

status loader_open(struct loader *loader, const struct loader_request *request)
{
    const struct token_set_request set = {
        .paths = request->paths, .count = request->path_count,
        .tokenizer = request->tokenizer, .vocab = request->vocab,
        .end_token = request->end_token, .cache = request->cache,
        .progress = request->reading, .argument = request->reading_argument};

    *loader = (struct loader){.request = *request};
    TRY(token_set_open(&loader->set, &set));
    TRY(choose_documents(loader));
    if (request->best_fit) {
        TRY(pack_documents(loader));
        return loader->samples == 0 ? too_few(loader) : OK;
    }
    if (loader->tokens > 0)
        loader->samples = (loader->tokens - 1) / request->sequence;
    if (loader->samples == 0) return too_few(loader);
    loader->dropped = loader->tokens - 1 -
                      loader->samples * request->sequence;
    return OK;
}

void loader_close(struct loader *loader)
{
    token_set_close(&loader->set);
    pack_free(&loader->pack);
    split_free(&loader->split);
    *loader = (struct loader){0};
}

void loader_drop(const struct loader *loader)
{
    token_set_drop(&loader->set);
    file_map_drop(&loader->pack.map);
}

/* The document that holds token `at` of all documents. */
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
    if (loader->request.share == SHARE_ALL) return at;
    return token_set_start(&loader->set, file_document(loader, document)) +
           (at - document_start(loader, document));
}

/* A fragment of an index that lies, and has the right checksums. */
static status beyond(const struct loader *loader, int64_t document)
{
    char path[PATH_BYTES] = "packed samples";
    struct pack_source source;
    struct pack_facts facts;

    plan_packing(loader, &source, &facts);
    if (loader->pack.image != NULL)
        TRY(pack_file_path(&facts, loader->request.cache, path));
    FAIL(ERR_FORMAT,
         "%s: a packed fragment goes beyond document %lld of %s; "
         "remove the file, and it is made again",
         path, (long long)document, loader->set.files[0].path);
}

/* Which sample of the files is the one at `index` of the run. */
static int64_t ordered(const struct loader *loader, int64_t index)
{
    const struct loader_request *r = &loader->request;
    const int64_t epoch = index / loader->samples;
    const int64_t sample = index % loader->samples;
    struct random_key key;

    if (!r->shuffled) return sample;
    key = random_key_make(r->seed + r->source * UINT64_C(0x9E3779B97F4A7C15),
                          "data.order");
    key.word[1] ^= (uint32_t)epoch;
    key.word[0] += (uint32_t)((uint64_t)epoch >> 32);
    return (int64_t)random_permute(key, (uint64_t)loader->samples,
                                   (uint64_t)sample);
}

/* Bits that flip under a seal: other pages of the files in each epoch. */
static status check_epoch(struct loader *loader, int64_t epoch)
{
    const struct token_set *set = &loader->set;

    if (epoch <= loader->checked) return OK;
    loader->checked = epoch;
    return token_pages_check_all(set->files, set->count,
                                 loader->request.seed + (uint64_t)epoch *
                                     UINT64_C(0x9E3779B97F4A7C15));
}

/* ---- the fragments of a sample ---- */

struct walk {
    const struct loader *loader;
    int64_t at, left;   /* counted over all documents: next token, tokens to
                         * come */
    int64_t fragment, end; /* best fit: of the plan */
    int64_t document;   /* of the share: of the fragment that was taken last */
    int64_t from, count, stop; /* that fragment, counted over all documents;
                                * document's end */
};

static void walk_begin(struct walk *walk, const struct loader *loader,
                       int64_t sample)
{
    const int64_t sequence = loader->request.sequence;

    *walk = (struct walk){.loader = loader};
    if (loader->request.best_fit) {
        walk->fragment = loader->pack.first[sample];
        walk->end = loader->pack.first[sample + 1];
        return;
    }
    walk->at = sample * sequence;
    walk->left = sequence;
    walk->document = document_of(loader, walk->at);
}

static bool walk_next(struct walk *walk)
{
    const struct loader *loader = walk->loader;

    if (loader->request.best_fit) {
        if (walk->fragment >= walk->end) return false;
        walk->from = loader->pack.fragments[walk->fragment].at;
        walk->count = loader->pack.fragments[walk->fragment++].count;
        walk->document = document_of(loader, walk->from);
        walk->stop = document_start(loader, walk->document + 1);
        return true;
    }
    if (walk->left == 0) return false;
    /* Documents without tokens are passed over. */
    while ((walk->stop = document_start(loader, walk->document + 1)) <=
           walk->at)
        walk->document++;
    walk->from = walk->at;
    walk->count = walk->stop - walk->at < walk->left ? walk->stop - walk->at
                                                     : walk->left;
    walk->at += walk->count;
    walk->left -= walk->count;
    return true;
}

/* The token after the fragment, if it is to be predicted there; else -1. */
static status last_target(const struct walk *walk, int32_t *target)
{
    const struct loader *loader = walk->loader;
    const int64_t next = walk->from + walk->count;
    int64_t document = walk->document, at;

    *target = -1;
    if (next == walk->stop &&
        (!loader->request.joined || next >= loader->tokens))
        return OK;
    if (next == walk->stop) document = document_of(loader, next);
    at = file_index(loader, document, next);
    if (!token_set_learned(&loader->set, at)) return OK;
    return token_set_read(&loader->set, at, 1, loader->request.vocab, target);
}

static status fill_fragment(const struct walk *walk, int32_t *inputs,
                            int32_t *targets)
{
    const struct loader *loader = walk->loader;
    const int64_t at = file_index(loader, walk->document, walk->from);

    TRY(token_set_read(&loader->set, at, walk->count, loader->request.vocab,
                       inputs));
    for (int64_t i = 0; i + 1 < walk->count; i++)
        targets[i] = inputs[i + 1];
    if (loader->set.masked)
        for (int64_t i = 0; i + 1 < walk->count; i++)
            if (!token_set_learned(&loader->set, at + i + 1)) targets[i] = -1;
    return last_target(walk, &targets[walk->count - 1]);
}

status loader_sample(struct loader *loader, int64_t index,
                     int32_t *inputs, int32_t *targets, int32_t *positions,
                     int32_t *documents)
{
    const struct loader_request *r = &loader->request;
    const int64_t sample = ordered(loader, index);
    int32_t begin = 0, position = 0; /* of the document, in it */
    struct walk walk;
    int64_t t = 0;

    TRY(check_epoch(loader, index / loader->samples));
    TRY(check_packing(loader, sample));
    walk_begin(&walk, loader, sample);
    while (walk_next(&walk)) {
        if (walk.count <= 0 || walk.count > r->sequence - t ||
            walk.from + walk.count > walk.stop) {
            TRY(mapped_check());
            return beyond(loader, walk.document);
        }
        TRY(fill_fragment(&walk, inputs + t, targets + t));
        for (int64_t i = 0; i < walk.count; i++, t++) {
            documents[t] = begin;
            positions[t] = position++;
        }
        if (r->joined) continue;
        begin = (int32_t)t;
        position = 0;
    }
    for (; t < r->sequence; t++) { /* padding: a document of its own */
        inputs[t] = loader->set.files[0].end_token > 0
                        ? loader->set.files[0].end_token : 0;
        targets[t] = -1;
        documents[t] = begin;
        positions[t] = position++;
    }
    return mapped_check();
}

status loader_fragments(struct loader *loader, int64_t index, int64_t most,
                        struct loader_fragment *fragments, int64_t *count)
{
    const int64_t sample = ordered(loader, index);
    struct walk walk;

    *count = 0;
    TRY(check_packing(loader, sample));
    walk_begin(&walk, loader, sample);
    for (; walk_next(&walk); (*count)++) {
        const int64_t start = document_start(loader, walk.document);
        const int64_t at = file_index(loader, walk.document, walk.from);

        if (*count >= most) continue;
        fragments[*count] = (struct loader_fragment){
            .document = file_document(loader, walk.document),
            .offset = walk.from - start, .count = walk.count,
            .length = walk.stop - start, .at = at};
    }
    return OK;
}
