/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c - text sources as one token file, made once and then reused.
 *
 * Documents gather in a batch; the threads encode its documents in turn, each
 * into a list of its own, and the lists are written in the order of the
 * documents: the file does not depend on the number of threads. */
#include "data/prepare.h"

#include <stdatomic.h>
#include <string.h>
#include "base/file.h"
#include "data/corpus.h"
#include "data/token_file.h"

enum {
    BATCH_DOCUMENTS = 4096,
    BATCH_BYTES = 4 << 20,
    CHECKED_BYTES = 16 << 20 /* larger files are known by size and time */
};

struct document {
    size_t start, length; /* in the batch's text */
    struct token_list tokens;
    status result;
};

struct preparing {
    const struct data_request *request;
    struct threads *threads;
    struct token_writer writer;
    struct text text;            /* of the batch */
    struct document *documents;  /* owned [BATCH_DOCUMENTS] */
    int count;                   /* documents in the batch */
    atomic_int next;             /* document to encode */
    const char *path;            /* of the file being read */
    double done, total;          /* bytes of files */
    int64_t at;                  /* bytes of the current file */
};

/* Documents differ in length: whoever is free takes the next. */
static void encode_some(void *argument, int index, int count)
{
    struct preparing *p = argument;

    (void)index;
    (void)count;
    for (;;) {
        const int i = atomic_fetch_add(&p->next, 1);
        struct document *document;

        if (i >= p->count) return;
        document = &p->documents[i];
        document->tokens.count = 0;
        document->result =
            tokenizer_encode(p->request->tokenizer,
                             p->text.bytes + document->start,
                             document->length, true, &document->tokens);
    }
}

/* A template may end with the end token, which the writer adds itself. */
static int64_t without_end(const struct preparing *p,
                           const struct token_list *tokens)
{
    int64_t count = tokens->count;

    if (count > 0 && p->request->tokenizer->last_count > 0 &&
        tokens->ids[count - 1] == p->writer.end_token)
        count--;
    return count;
}

static status flush(struct preparing *p)
{
    atomic_store(&p->next, 0);
    if (p->count == 1)
        encode_some(p, 0, 1);
    else if (p->count > 1)
        threads_run(p->threads, encode_some, p);
    for (int i = 0; i < p->count; i++) {
        const struct document *document = &p->documents[i];

        if (document->result != OK)
            FAIL(document->result, "%s: encoding a document of %zu bytes "
                 "failed", p->path, document->length);
        TRY(token_writer_add(&p->writer, document->tokens.ids,
                             without_end(p, &document->tokens),
                             (int64_t)document->length));
    }
    p->count = 0;
    p->text.length = 0;
    if (p->request->progress != NULL)
        p->request->progress(p->request->argument,
                             p->done + (double)p->at, p->total);
    return OK;
}

static status take_document(void *context, const char *text, size_t length)
{
    struct preparing *p = context;
    struct document *document = &p->documents[p->count];

    document->start = p->text.length;
    document->length = length;
    TRY(text_append(&p->text, text, length));
    p->count++;
    if (p->count == BATCH_DOCUMENTS || p->text.length >= BATCH_BYTES)
        TRY(flush(p));
    return OK;
}

/* Copies the documents of a token file that was made before. */
static status copy_tokens(struct preparing *p, const char *path)
{
    struct token_file file = {0};
    struct token_list list = {0};
    const char *digest = p->writer.tokenizer;
    status result;

    TRY_GOTO(done, result, token_file_open(&file, path));
    TRY_GOTO(done, result, token_file_verify(&file));
    if (digest[0] != '\0' && file.tokenizer[0] != '\0' &&
        strcmp(digest, file.tokenizer) != 0)
        FAIL_GOTO(done, result, ERR_CONFIG, "%s was made with another "
                  "tokenizer (digest %.12s..., this run's is %.12s...)", path,
                  file.tokenizer, digest);
    for (int64_t i = 0; i < file.documents; i++) {
        const int64_t first = token_file_start(&file, i);
        const int64_t count = token_file_start(&file, i + 1) - first - 1;

        list.count = 0;
        TRY_GOTO(done, result, token_list_reserve(&list, count));
        for (int64_t j = 0; j < count; j++)
            list.ids[j] = token_file_at(&file, first + j);
        TRY_GOTO(done, result,
                 token_writer_add(&p->writer, list.ids, count, 0));
    }
    p->writer.text_bytes += file.text_bytes;
done:
    token_list_free(&list);
    token_file_close(&file);
    return result;
}

static status write_files(struct preparing *p, const struct corpus *corpus)
{
    for (int i = 0; i < corpus->count; i++) {
        const struct corpus_file *file = &corpus->files[i];

        p->path = file->path;
        p->at = 0;
        if (file->kind == CORPUS_TOKENS)
            TRY(copy_tokens(p, file->path));
        else
            TRY(corpus_read(file, p->request->field, take_document, p,
                            &p->at));
        p->at = file->bytes;
        TRY(flush(p));
        p->done += (double)file->bytes;
        p->at = 0;
    }
    return OK;
}

static status end_token(const struct data_request *request,
                        const struct corpus *corpus, int64_t *vocab,
                        int32_t *id)
{
    if (request->tokenizer != NULL) {
        *vocab = tokenizer_vocab(request->tokenizer);
        return tokenizer_end_of_text(request->tokenizer, request->end_of_text,
                                     id);
    }
    *vocab = 0;
    for (int i = 0; i < corpus->count; i++) {
        struct token_file file = {0};

        if (corpus->files[i].kind != CORPUS_TOKENS)
            FAIL(ERR_CONFIG, "%s is text, and there is no tokenizer: set "
                 "tokenizer.from", corpus->files[i].path);
        TRY(token_file_open(&file, corpus->files[i].path));
        if (file.vocab > *vocab) *vocab = file.vocab;
        *id = file.end_token;
        token_file_close(&file);
    }
    return OK;
}

static status write_corpus(const struct data_request *request,
                           const struct corpus *corpus, const char *path,
                           const char *digest)
{
    struct preparing p = {.request = request, .threads = request->threads,
                          .total = (double)corpus->bytes};
    struct threads *own = NULL;
    int32_t end = 0;
    int64_t vocab;
    status result;
    void *memory;

    TRY(memory_take(BATCH_DOCUMENTS, sizeof *p.documents, &memory));
    p.documents = memory;
    TRY_GOTO(done, result, end_token(request, corpus, &vocab, &end));
    if (p.threads == NULL) {
        TRY_GOTO(done, result, threads_build(&own, 0));
        p.threads = own;
    }
    TRY_GOTO(done, result,
             token_writer_open(&p.writer, path, vocab, end,
                               request->tokenizer != NULL
                                   ? request->tokenizer->digest : NULL,
                               digest));
    TRY_GOTO(done, result, write_files(&p, corpus));
    TRY_GOTO(done, result, token_writer_close(&p.writer));
done:
    token_writer_free(&p.writer);
    threads_free(own);
    for (int i = 0; i < BATCH_DOCUMENTS; i++)
        token_list_free(&p.documents[i].tokens);
    memory_free(p.documents);
    text_free(&p.text);
    return result;
}

/* A line of the key for each file. */
static status describe_file(const struct corpus_file *file, struct text *key)
{
    uint32_t crc = 0;

    if (file->bytes <= CHECKED_BYTES) {
        struct file_map map;

        TRY(file_map_open(&map, file->path));
        if (map.length > 0) crc = crc32c(0, map.bytes, map.length);
        file_map_close(&map);
    }
    TRY(text_printf(key, "%s %lld %lld %08x\n", file->path,
                    (long long)file->bytes, (long long)file->changed_ns, crc));
    return OK;
}

static status make_digest(const struct data_request *request,
                          const struct corpus *corpus, char digest[65])
{
    struct text key = {0};
    status result;

    TRY_GOTO(done, result,
             text_printf(&key, "LSTOKEN1 %s %s %s\n",
                         request->tokenizer != NULL
                             ? request->tokenizer->digest : "none",
                         request->field, request->end_of_text));
    for (int i = 0; i < corpus->count; i++)
        TRY_GOTO(done, result, describe_file(&corpus->files[i], &key));
    sha256_hex(key.bytes, key.length, digest);
done:
    text_free(&key);
    return result;
}

/* A file of the cache that is whole and was made from these sources; a damaged
 * one is simply made again. */
static bool is_made(const char *path, const char *digest)
{
    struct token_file file = {0};
    bool made = false;

    if (file_exists(path)) {
        made = token_file_open(&file, path) == OK &&
               strcmp(file.source, digest) == 0 &&
               token_file_verify(&file) == OK;
        if (!made) status_clear();
    }
    token_file_close(&file);
    return made;
}

static status prepare_corpus(const struct data_request *request,
                             const struct corpus *corpus, char *path)
{
    char digest[65], name[32];

    if (corpus->count == 1 && corpus->files[0].kind == CORPUS_TOKENS) {
        TRY(path_join(path, PATH_BYTES, "", corpus->files[0].path));
        return OK;
    }
    TRY(make_digest(request, corpus, digest));
    snprintf(name, sizeof name, "%.16s.tokens", digest);
    TRY(path_join(path, PATH_BYTES, request->cache, name));
    if (is_made(path, digest)) return OK;
    TRY(directory_make(request->cache));
    TRY(write_corpus(request, corpus, path, digest));
    return OK;
}

status data_prepare(const struct data_request *request, char *path)
{
    struct corpus corpus = {0};
    status result;

    path[0] = '\0';
    TRY_GOTO(done, result,
             corpus_open(&corpus, request->sources, request->source_count));
    TRY_GOTO(done, result, prepare_corpus(request, &corpus, path));
done:
    corpus_close(&corpus);
    return result;
}
