/* SPDX-License-Identifier: Apache-2.0 */
/* token_set.c - token files one after the other, as one. */
#include "data/token_set.h"

#include <string.h>

#include "base/arena.h"
#include "data/token_check.h"

/* Bytes of a file that are read while it is opened. */
struct reading {
    const struct token_set_request *request;
    int64_t done, total;
};

static void count_bytes(void *argument, int64_t bytes)
{
    struct reading *reading = argument;
    const struct token_set_request *r = reading->request;

    reading->done += bytes;
    if (r->progress != NULL)
        r->progress(r->argument, (double)reading->done,
                    (double)reading->total);
}

/* To find documents all of the file must be read in any case. */
static status check_file(struct token_file *file,
                         const struct token_set_request *r)
{
    const bool split = file->end_token < 0 && r->end_token >= 0;
    const bool find = split && file->starts == NULL;
    const int64_t length = (int64_t)file->length;
    struct reading reading = {r, 0, find ? 2 * length : length};

    TRY(token_file_fits(file, r->tokenizer, r->vocab));
    file->model_vocab = r->vocab;
    file->progress = count_bytes;
    file->argument = &reading;
    TRY(token_file_trust(file, r->cache, find ? TRUST_READ : TRUST_LATER));
    TRY(token_file_fits(file, NULL, r->vocab));
    if (reading.done == 0) reading.total = length;
    if (split) TRY(token_file_split(file, r->end_token, r->cache));
    file->progress = NULL;
    return OK;
}

static status open_file(struct token_set *set,
                        const struct token_set_request *r, int index)
{
    struct token_file *file = &set->files[index];

    set->count = index + 1; /* so that it is closed in any case */
    TRY(token_file_open(file, r->paths[index]));
    TRY(check_file(file, r));
    if (file->end_token < 0) file->end_token = r->end_token;
    set->document_before[index + 1] =
        set->document_before[index] + file->documents;
    set->token_before[index + 1] = set->token_before[index] + file->count;
    set->text_bytes += file->text_bytes;
    set->masked = set->masked || file->mask != NULL;
    return OK;
}

static uint32_t crc_of(const struct token_set *set)
{
    uint32_t crc = 0;

    if (set->count == 1) return set->files[0].crc;
    for (int i = 0; i < set->count; i++) {
        const uint64_t facts[2] = {set->files[i].crc,
                                   (uint64_t)set->files[i].count};

        crc = crc32c(crc, facts, sizeof facts);
    }
    return crc;
}

static void make_key(struct token_set *set)
{
    for (int i = 0; i < set->count; i++) {
        const struct token_file *file = &set->files[i];
        const uint64_t facts[4] = {
            set->key, token_file_key(file), (uint64_t)file->count,
            (uint64_t)file->documents << 32 ^ (uint32_t)file->end_token};

        set->key = token_key(facts, sizeof facts);
    }
}

status token_set_open(struct token_set *set, const struct token_set_request *r)
{
    const size_t room = (size_t)r->count + 1;
    void *memory;

    *set = (struct token_set){0};
    TRY(memory_take(room, sizeof *set->files, &memory));
    set->files = memory;
    memset(set->files, 0, room * sizeof *set->files);
    TRY(memory_take(room, sizeof(int64_t), &memory));
    set->document_before = memory;
    TRY(memory_take(room, sizeof(int64_t), &memory));
    set->token_before = memory;
    set->document_before[0] = set->token_before[0] = 0;
    for (int i = 0; i < r->count; i++) TRY(open_file(set, r, i));
    set->documents = set->document_before[set->count];
    set->tokens = set->token_before[set->count];
    set->crc = crc_of(set);
    make_key(set);
    return token_check_begin(&set->check,
                             &(struct token_check_request){
                                 .files = set->files, .count = set->count,
                                 .cache = r->cache, .vocab = r->vocab});
}

bool token_set_settled(const struct token_set *set, int64_t *read,
                       int64_t *bytes)
{
    return set->check == NULL || token_check_done(set->check, read, bytes);
}

status token_set_settle(struct token_set *set)
{
    if (set->check == NULL) return OK;
    TRY(token_check_end(set->check, set->files));
    token_check_free(set->check);
    set->check = NULL;
    set->crc = crc_of(set);
    return OK;
}

void token_set_close(struct token_set *set)
{
    token_check_free(set->check);
    for (int i = 0; i < set->count; i++) token_file_close(&set->files[i]);
    memory_free(set->files);
    memory_free(set->document_before);
    memory_free(set->token_before);
    *set = (struct token_set){0};
}

/* The last file whose `before` is at most `at`: empty ones are passed over. */
static int file_of(const struct token_set *set, const int64_t *before,
                   int64_t at)
{
    int low = 0, high = set->count;

    while (high - low > 1) {
        const int middle = low + (high - low) / 2;

        if (before[middle] <= at) low = middle;
        else high = middle;
    }
    return low;
}

int64_t token_set_start(const struct token_set *set, int64_t index)
{
    int file = 0;

    if (index >= set->documents) return set->tokens;
    if (set->count > 1) file = file_of(set, set->document_before, index);
    return set->token_before[file] +
           token_file_start(&set->files[file],
                            index - set->document_before[file]);
}

/* An id that a sample meets: before the check beside the work does, or of a
 * file that it found whole. */
static status outside(const struct token_file *file, int64_t at, int32_t id,
                      int64_t vocab)
{
    if (file->unread)
        FAIL(ERR_CONFIG, "%s: token %lld is %d, outside the model's "
             "vocabulary of %lld", file->path, (long long)at, id,
             (long long)vocab);
    FAIL(ERR_FORMAT, "%s: token %lld is %d, outside the vocabulary of %lld: "
         "the file was changed since it was checked", file->path,
         (long long)at, id, (long long)vocab);
}

status token_set_read(const struct token_set *set, int64_t at, int64_t count,
                      int64_t vocab, int32_t *ids)
{
    int index = set->count > 1 ? file_of(set, set->token_before, at) : 0;
    const int64_t limit = vocab > 0 ? vocab : (int64_t)INT32_MAX + 1;

    for (int64_t i = 0; i < count; i++, at++) {
        while (at >= set->token_before[index + 1]) index++;
        const struct token_file *file = &set->files[index];

        ids[i] = token_file_at(file, at - set->token_before[index]);
        if (ids[i] < 0 || ids[i] >= limit)
            return outside(file, at - set->token_before[index], ids[i],
                           limit);
    }
    return OK;
}

bool token_set_learned(const struct token_set *set, int64_t at)
{
    const int index = set->count > 1 ? file_of(set, set->token_before, at) : 0;

    return token_file_learned(&set->files[index],
                              at - set->token_before[index]);
}

void token_set_drop(const struct token_set *set)
{
    for (int i = 0; i < set->count; i++) file_map_drop(&set->files[i].map);
}
