/* SPDX-License-Identifier: Apache-2.0 */
/* prepare.c - sources as token files, made once and then reused. */
#include "corpus/prepare.h"

#include <string.h>
#include "base/file.h"
#include "base/log.h"
#include "corpus/chat.h"
#include "data/token_file.h"

enum { CHECKED_BYTES = 16 << 20 /* larger files are known by size and time */ };

/* Files of a corpus that become one token file. */
struct preparing {
    const struct data_request *request;
    const struct corpus_file *files; /* [count] */
    int count;
    struct encoder *encoder;
    struct token_writer writer;
    const char *path;            /* of the file being read */
    double done, total;          /* bytes of files */
    int64_t at;                  /* bytes of the current file */
};

static status write_document(void *context, const struct encoded *document)
{
    struct preparing *p = context;

    return token_writer_add_masked(&p->writer, document->ids,
                                   document->learned, document->count,
                                   document->text_bytes);
}

static status flush(struct preparing *p)
{
    TRY(encoder_flush(p->encoder, p->path));
    if (p->request->progress != NULL)
        p->request->progress(p->request->argument,
                             p->done + (double)p->at, p->total);
    return OK;
}

static status take_document(void *context,
                            const struct corpus_document *document)
{
    struct preparing *p = context;

    TRY(encoder_add(p->encoder, document));
    if (encoder_full(p->encoder)) TRY(flush(p));
    return OK;
}

static status write_files(struct preparing *p)
{
    struct corpus_format format = p->request->format;

    format.vocab = tokenizer_vocab(p->request->tokenizer);
    for (int i = 0; i < p->count; i++) {
        const struct corpus_file *file = &p->files[i];

        p->path = file->path;
        p->at = 0;
        TRY(corpus_read(file, &format, take_document, p, &p->at));
        p->at = file->bytes;
        TRY(flush(p));
        p->done += (double)file->bytes;
        p->at = 0;
    }
    return OK;
}

static status write_corpus(struct preparing *p, const char *path,
                           const char *digest)
{
    const struct data_request *request = p->request;
    struct encoder_request encoder = {
        .tokenizer = request->tokenizer, .threads = request->threads,
        .fill_in = request->fill_in, .sink = write_document, .context = p};
    struct threads *own = NULL;
    status result;

    TRY(tokenizer_end_of_text(request->tokenizer, request->end_of_text,
                              &encoder.end_token));
    if (encoder.threads == NULL) {
        TRY_GOTO(done, result, threads_build(&own, 0));
        encoder.threads = own;
    }
    TRY_GOTO(done, result, encoder_build(&p->encoder, &encoder));
    TRY_GOTO(done, result,
             token_writer_open(&p->writer, path,
                               tokenizer_vocab(request->tokenizer),
                               encoder.end_token, request->tokenizer->digest,
                               digest));
    TRY_GOTO(done, result, write_files(p));
    TRY_GOTO(done, result, token_writer_close(&p->writer));
done:
    token_writer_free(&p->writer);
    encoder_free(p->encoder);
    threads_free(own);
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

static status make_digest(const struct preparing *p, char digest[65])
{
    const struct data_request *request = p->request;
    const struct fill_in *f = &request->fill_in;
    struct text key = {0};
    status result;

    TRY_GOTO(done, result,
             text_printf(&key, "LSTOKEN1 %d %s %s %s\n", TOKENIZER_VERSION,
                         request->tokenizer->digest, request->format.field,
                         request->end_of_text));
    if (request->format.chat != NULL)
        TRY_GOTO(done, result,
                 text_printf(&key, "chat %d %s\n", CHAT_VERSION,
                             request->format.chat->name));
    if (f->rate > 0)
        TRY_GOTO(done, result,
                 text_printf(&key, "fim %d %.17g %.17g %llu %d %d %d\n",
                             FILL_IN_VERSION, f->rate, f->suffix_first,
                             (unsigned long long)f->seed,
                             f->prefix, f->middle, f->suffix));
    for (int i = 0; i < p->count; i++)
        TRY_GOTO(done, result, describe_file(&p->files[i], &key));
    sha256_hex(key.bytes, key.length, digest);
done:
    text_free(&key);
    return result;
}

/* A file of the cache that is whole and was made from these sources; a damaged
 * one is made again, and said. */
static bool is_made(const char *path, const char *digest)
{
    struct token_file file = {0};
    bool whole = false, same = false;

    if (file_exists(path)) {
        whole = token_file_open(&file, path) == OK;
        same = whole && strcmp(file.source, digest) == 0;
        if (same) whole = token_file_trust(&file, NULL, TRUST_READ) == OK;
        if (!whole)
            LOG(WARNING, "data", "damaged, and made again from the text: %s",
                status_message());
        status_clear();
    }
    token_file_close(&file);
    return whole && same;
}

static status prepare_group(struct preparing *p, char path[PATH_BYTES])
{
    const struct data_request *request = p->request;
    char digest[65], name[32];

    if (request->tokenizer == NULL)
        FAIL(ERR_CONFIG, "%s: set tokenizer.from: text needs a tokenizer, and "
             "a column of ids needs its end-of-text token", p->files[0].path);
    TRY(make_digest(p, digest));
    snprintf(name, sizeof name, "%.16s.tokens", digest);
    TRY(path_join(path, PATH_BYTES, request->cache, name));
    if (is_made(path, digest)) return OK;
    TRY(directory_make(request->cache));
    for (int i = 0; i < p->count; i++) p->total += (double)p->files[i].bytes;
    return write_corpus(p, path, digest);
}

static status add_part(struct data_parts *parts, const char *path)
{
    char *copy;

    TRY(arena_copy_text(&parts->arena, path, &copy));
    parts->paths[parts->count++] = copy;
    return OK;
}

static status prepare_corpus(const struct data_request *request,
                             const struct corpus *corpus,
                             struct data_parts *parts)
{
    char path[PATH_BYTES];
    void *memory;
    int next;

    TRY(arena_take_array(&parts->arena, (size_t)corpus->count,
                         sizeof *parts->paths, &memory));
    parts->paths = memory;
    for (int i = 0; i < corpus->count; i = next) {
        struct preparing p = {.request = request, .files = &corpus->files[i]};

        next = i + 1;
        if (corpus->files[i].kind == CORPUS_TOKENS) {
            TRY(add_part(parts, corpus->files[i].path));
            continue;
        }
        while (next < corpus->count &&
               corpus->files[next].kind != CORPUS_TOKENS)
            next++;
        p.count = next - i;
        TRY(prepare_group(&p, path));
        TRY(add_part(parts, path));
    }
    return OK;
}

status data_prepare(const struct data_request *request,
                    struct data_parts *parts)
{
    struct corpus corpus = {0};
    status result;

    *parts = (struct data_parts){0};
    arena_init(&parts->arena, "paths of token files", 0);
    TRY_GOTO(done, result,
             corpus_open(&corpus, request->sources, request->source_count));
    TRY_GOTO(done, result, prepare_corpus(request, &corpus, parts));
done:
    corpus_close(&corpus);
    return result;
}

void data_parts_free(struct data_parts *parts)
{
    arena_free(&parts->arena);
    *parts = (struct data_parts){0};
}
