/* SPDX-License-Identifier: Apache-2.0 */
/* shards.c - sources as token files of a limited size in one directory. */
#include "corpus/shards.h"

#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/json.h"
#include "corpus/chat.h"
#include "data/token_file.h"

enum { STATE_BYTES_MAX = 1 << 16, NAME_BYTES = 32 };

struct writing {
    const struct shards_request *request;
    struct corpus corpus;
    struct encoder *encoder;
    struct token_writer writer;
    struct file_lock lock;      /* of the directory, while shards are written */
    bool open;                  /* a shard is being written */
    int32_t end_token;
    char digest[65];            /* of sources and settings */
    struct shards_result *out;
    int64_t file, in_file;      /* documents written: of which file, how many */
    int64_t skip_file, skip;    /* where a call before stopped */
    int64_t read;               /* documents of the file read */
    const char *path;
    double done, total;
    int64_t at;
};

/* ---- progress.json ---- */

static status state_path(const struct writing *w, char path[PATH_BYTES])
{
    return path_join(path, PATH_BYTES, w->request->data.cache,
                     "progress.json");
}

static status state_write(const struct writing *w, bool finished)
{
    struct json_writer json = {0};
    char path[PATH_BYTES];
    status result;

    if (w->request->file != NULL) return OK;
    TRY(state_path(w, path));
    json_write_begin(&json, 2);
    json_write_object(&json);
    json_write_key(&json, "sources");
    json_write_string(&json, w->digest);
    json_write_key_integer(&json, "shards", w->out->shards);
    json_write_key_integer(&json, "documents", w->out->documents);
    json_write_key_integer(&json, "tokens", w->out->tokens);
    json_write_key_integer(&json, "text_bytes", w->out->text_bytes);
    json_write_key_integer(&json, "file", w->file);
    json_write_key_integer(&json, "documents_of_file", w->in_file);
    json_write_key(&json, "finished");
    json_write_bool(&json, finished);
    json_write_object_end(&json);
    TRY_GOTO(done, result, json_write_end(&json));
    TRY_GOTO(done, result, file_write_atomic(path, json.out.bytes,
                                             json.out.length));
done:
    json_writer_free(&json);
    return result;
}

static status state_parse(struct writing *w, const struct json *root,
                          const char *path, bool *finished)
{
    const char *digest;

    TRY(json_get_string(root, path, "sources", &digest));
    if (strcmp(digest, w->digest) != 0)
        FAIL(ERR_CONFIG, "%s: the directory holds shards of other sources or "
             "settings; choose another, or remove it", path);
    TRY(json_get_integer(root, path, "shards", &w->out->shards));
    TRY(json_get_integer(root, path, "documents", &w->out->documents));
    TRY(json_get_integer(root, path, "tokens", &w->out->tokens));
    TRY(json_get_integer(root, path, "text_bytes", &w->out->text_bytes));
    TRY(json_get_integer(root, path, "file", &w->skip_file));
    TRY(json_get_integer(root, path, "documents_of_file", &w->skip));
    TRY(json_get_bool_or(root, path, "finished", false, finished));
    w->out->found = w->out->shards;
    return OK;
}

/* A shard that was cut since is not counted as written. */
static status check_shards(const struct writing *w)
{
    for (int64_t i = 0; i < w->out->shards; i++) {
        struct token_file file = {0};
        char path[PATH_BYTES], name[NAME_BYTES];
        status result;

        snprintf(name, sizeof name, "%05lld.tokens", (long long)i);
        TRY(path_join(path, sizeof path, w->request->data.cache, name));
        result = token_file_open(&file, path);
        token_file_close(&file);
        if (result == ERR_FORMAT || result == ERR_MISSING)
            return status_hint(result, "remove %s to make all of its shards "
                                       "again", w->request->data.cache);
        TRY(result);
    }
    return OK;
}

static status state_read(struct writing *w, bool *finished)
{
    const struct json *root;
    struct arena arena;
    char path[PATH_BYTES];
    status result;

    *finished = false;
    TRY(state_path(w, path));
    if (!file_exists(path)) return OK;
    arena_init(&arena, "progress.json", 0);
    TRY_GOTO(done, result, json_read_file(&root, &arena, path,
                                          STATE_BYTES_MAX));
    TRY_GOTO(done, result, state_parse(w, root, path, finished));
    TRY_GOTO(done, result, check_shards(w));
done:
    arena_free(&arena);
    return result;
}

/* ---- shards ---- */

static status open_shard(struct writing *w)
{
    const struct tokenizer *t = w->request->data.tokenizer;
    char path[PATH_BYTES], name[NAME_BYTES];

    if (w->request->file != NULL) {
        TRY(path_join(path, sizeof path, "", w->request->file));
    } else {
        snprintf(name, sizeof name, "%05lld.tokens",
                 (long long)w->out->shards);
        TRY(path_join(path, sizeof path, w->request->data.cache, name));
    }
    w->open = true;
    return token_writer_open(&w->writer, path, tokenizer_vocab(t),
                             w->end_token, t->digest, w->digest);
}

static status close_shard(struct writing *w)
{
    w->out->documents += w->writer.documents;
    w->out->tokens += w->writer.count;
    w->out->text_bytes += w->writer.text_bytes;
    TRY(token_writer_close(&w->writer));
    token_writer_free(&w->writer);
    w->open = false;
    w->out->shards++;
    TRY(fault_point("shards.count"));
    return state_write(w, false);
}

static status write_document(void *context, const struct encoded *document)
{
    struct writing *w = context;

    if (!w->open) TRY(open_shard(w));
    TRY(token_writer_add_masked(&w->writer, document->ids, document->learned,
                                document->count, document->text_bytes));
    w->in_file++;
    if (w->request->tokens > 0 && w->writer.count >= w->request->tokens)
        return close_shard(w);
    return OK;
}

static status flush(struct writing *w)
{
    const struct data_request *data = &w->request->data;

    TRY(encoder_flush(w->encoder, w->path));
    if (data->progress != NULL)
        data->progress(data->argument, w->done + (double)w->at, w->total);
    return OK;
}

static status take_document(void *context,
                            const struct corpus_document *document)
{
    struct writing *w = context;

    if (w->file == w->skip_file && w->read < w->skip) { /* written before */
        w->read++;
        w->in_file++;
        encoder_pass(w->encoder);
        return OK;
    }
    w->read++;
    TRY(encoder_add(w->encoder, document));
    if (encoder_full(w->encoder)) TRY(flush(w));
    return OK;
}

static status write_files(struct writing *w)
{
    struct corpus_format format = w->request->data.format;

    format.vocab = tokenizer_vocab(w->request->data.tokenizer);
    for (int i = 0; i < w->corpus.count; i++) {
        const struct corpus_file *file = &w->corpus.files[i];

        if (file->kind == CORPUS_TOKENS)
            FAIL(ERR_CONFIG, "%s: token files are trained on as they are; "
                 "only text is tokenized", file->path);
        w->done += (double)file->bytes;
        if (i < w->skip_file) continue;
        w->done -= (double)file->bytes;
        w->path = file->path;
        w->file = i;
        w->at = w->read = w->in_file = 0;
        TRY(corpus_read(file, &format, take_document, w, &w->at));
        w->at = file->bytes;
        TRY(flush(w));
        w->done += (double)file->bytes;
        w->at = 0;
    }
    if (w->open) TRY(close_shard(w));
    return state_write(w, true);
}

static status make_digest(struct writing *w)
{
    const struct data_request *data = &w->request->data;
    const struct fill_in *f = &data->fill_in;
    const char *chat = data->format.chat != NULL ? data->format.chat->name
                                                 : "";
    struct text key = {0};
    status result;

    if (data->format.chat != NULL)
        TRY_GOTO(done, result, text_printf(&key, "chat %d\n", CHAT_VERSION));
    if (f->rate > 0)
        TRY_GOTO(done, result,
                 text_printf(&key, "fim %d\n", FILL_IN_VERSION));
    TRY_GOTO(done, result,
             text_printf(&key,
                         "shards %d %s %s %s %d %lld %.17g %.17g %llu\n",
                         TOKENIZER_VERSION, data->tokenizer->digest,
                         data->format.field, chat, w->end_token,
                         (long long)w->request->tokens, f->rate,
                         f->suffix_first, (unsigned long long)f->seed));
    for (int i = 0; i < w->corpus.count; i++)
        TRY_GOTO(done, result,
                 text_printf(&key, "%s %lld %lld\n", w->corpus.files[i].path,
                             (long long)w->corpus.files[i].bytes,
                             (long long)w->corpus.files[i].changed_ns));
    sha256_hex(key.bytes, key.length, w->digest);
done:
    text_free(&key);
    return result;
}

/* Files that are written here under the lock. */
static bool is_written(const char *name)
{
    const size_t digits = strspn(name, "0123456789");

    return strcmp(name, "progress.json") == 0 ||
           (digits >= 5 && strcmp(name + digits, ".tokens") == 0);
}

/* Two calls at once would take turns with the names of the shards and leave
 * documents of both. A directory that is finished is only read. */
static status begin(struct writing *w, bool *finished)
{
    const char *directory = w->request->data.cache;
    char path[PATH_BYTES];

    *finished = false;
    if (w->request->file != NULL) return OK;
    TRY(directory_make(directory));
    TRY(state_read(w, finished));
    if (*finished) return OK;
    TRY(path_join(path, sizeof path, directory, "lock"));
    TRY(file_lock_take(&w->lock, path));
    TRY(directory_clean(directory, is_written));
    return state_read(w, finished);
}

static status write_all(struct writing *w, struct threads **own)
{
    const struct data_request *data = &w->request->data;
    struct encoder_request encoder = {
        .tokenizer = data->tokenizer, .threads = data->threads,
        .fill_in = data->fill_in, .sink = write_document, .context = w};
    bool finished;

    TRY(tokenizer_end_of_text(data->tokenizer, data->end_of_text,
                              &w->end_token));
    encoder.end_token = w->end_token;
    TRY(corpus_open(&w->corpus, data->sources, data->source_count));
    w->total = (double)w->corpus.bytes;
    TRY(make_digest(w));
    TRY(begin(w, &finished));
    if (finished) return OK;
    if (encoder.threads == NULL) {
        TRY(threads_build(own, 0));
        encoder.threads = *own;
    }
    TRY(encoder_build(&w->encoder, &encoder));
    return write_files(w);
}

status shards_write(const struct shards_request *request,
                    struct shards_result *out)
{
    struct writing w = {.request = request, .out = out};
    struct threads *own = NULL;
    status result;

    *out = (struct shards_result){0};
    result = write_all(&w, &own);
    token_writer_free(&w.writer);
    encoder_free(w.encoder);
    corpus_close(&w.corpus);
    file_lock_drop(&w.lock);
    threads_free(own);
    return result;
}
