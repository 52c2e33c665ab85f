/* SPDX-License-Identifier: Apache-2.0 */
/* encoder.c - documents to ids, many at once, in the order in which they came.
 */
#include "corpus/encoder.h"

#include <string.h>

#include "base/jobs.h"
#include "base/random.h"

enum { BATCH_DOCUMENTS = 4096, BATCH_BYTES = 4 << 20 };

/* A document of the batch: segments of text, or ids. */
struct job {
    size_t start, length;    /* in the batch's text */
    int first_segment, segments;
    bool is_ids, masked, headed;
    int64_t number;
    struct token_list tokens;
    bool *learned;           /* owned [learned_room] */
    int64_t learned_room;
    status result;
};

struct encoder {
    struct encoder_request request;
    struct text text;        /* of the batch */
    struct job *jobs;        /* owned [BATCH_DOCUMENTS] */
    struct corpus_segment *segments; /* owned [segment_room] of the batch */
    int segment_count, segment_room;
    int count;               /* jobs in the batch */
    int64_t next_number;
};

/* ---- one document ---- */

static status learned_room(struct job *job, int64_t count)
{
    void *grown = job->learned;
    const int64_t room = 2 * count + 64;

    if (count <= job->learned_room) return OK;
    TRY(memory_grow(&grown, (size_t)room, sizeof *job->learned));
    job->learned = grown;
    job->learned_room = room;
    return OK;
}

/* The tokenizer's first tokens before those that there are, unless these begin
 * with them, as those of a text that a template wrote may. */
static status put_first(const struct tokenizer *tokenizer,
                        struct token_list *list)
{
    const int64_t first = tokenizer->first_count, count = list->count;

    if (first == 0 || (count >= first &&
                       memcmp(list->ids, tokenizer->first,
                              (size_t)first * sizeof *list->ids) == 0))
        return OK;
    TRY(token_list_append(list, tokenizer->first, first));
    memmove(list->ids + first, list->ids, (size_t)count * sizeof *list->ids);
    memcpy(list->ids, tokenizer->first, (size_t)first * sizeof *list->ids);
    return OK;
}

static status encode_segments(const struct encoder *e, struct job *job)
{
    const struct tokenizer *tokenizer = e->request.tokenizer;
    const struct corpus_segment *segments = &e->segments[job->first_segment];
    const char *at = e->text.bytes + job->start;
    size_t last = 0; /* bytes of the segment before */

    for (int i = 0; i < job->segments; i++) {
        const int64_t before = job->tokens.count;

        TRY(tokenizer_encode_after(tokenizer, at, last,
                                   last + segments[i].length, &job->tokens));
        if (i == 0 && job->headed)
            TRY(put_first(tokenizer, &job->tokens));
        TRY(learned_room(job, job->tokens.count));
        for (int64_t t = before; t < job->tokens.count; t++)
            job->learned[t] = segments[i].learned;
        at += last;
        last = segments[i].length;
    }
    return OK;
}

/* The next place from `at` on where a character begins. */
static size_t character(const char *text, size_t length, size_t at)
{
    while (at < length && ((unsigned char)text[at] & 0xC0) == 0x80) at++;
    return at;
}

static status encode_part(const struct encoder *e, struct job *job,
                          int32_t token, size_t from, size_t to)
{
    const char *text = e->text.bytes + job->start;

    if (token >= 0) TRY(token_list_append(&job->tokens, &token, 1));
    if (from == to) return OK;
    return tokenizer_encode_after(e->request.tokenizer, text, from, to,
                                  &job->tokens);
}

static status encode_filled(const struct encoder *e, struct job *job,
                            struct random_key key, bool suffix_first)
{
    const struct fill_in *f = &e->request.fill_in;
    const char *text = e->text.bytes + job->start;
    const uint64_t number = (uint64_t)job->number * 4;
    size_t a = (size_t)random_below(key, number + 2, job->length + 1);
    size_t b = (size_t)random_below(key, number + 3, job->length + 1);

    if (a > b) {
        const size_t other = a;

        a = b;
        b = other;
    }
    a = character(text, job->length, a);
    b = character(text, job->length, b);
    TRY(token_list_append(&job->tokens, e->request.tokenizer->first,
                          e->request.tokenizer->first_count));
    TRY(encode_part(e, job, f->prefix, 0, suffix_first ? 0 : a));
    TRY(encode_part(e, job, f->suffix, b, job->length));
    if (!suffix_first) return encode_part(e, job, f->middle, a, b);
    TRY(encode_part(e, job, f->middle, 0, a));
    return encode_part(e, job, -1, a, b);
}

static status encode_text(const struct encoder *e, struct job *job)
{
    const struct fill_in *f = &e->request.fill_in;
    const struct random_key key = random_key_make(f->seed, "data.fill_in");
    const uint64_t number = (uint64_t)job->number * 4;

    if (f->rate > 0 && random_uniform(key, number) < f->rate)
        return encode_filled(e, job, key, random_uniform(key, number + 1) <
                                          f->suffix_first);
    return tokenizer_encode(e->request.tokenizer, e->text.bytes + job->start,
                            job->length, true, &job->tokens);
}

static void encode_one(void *argument, int number, int index)
{
    struct encoder *e = argument;
    struct job *job = &e->jobs[number];

    (void)index;
    job->tokens.count = 0;
    if (job->is_ids)
        job->result = token_list_append(
            &job->tokens, (const int32_t *)(const void *)
                              (e->text.bytes + job->start),
            (int64_t)(job->length / sizeof(int32_t)));
    else
        job->result = job->masked ? encode_segments(e, job)
                                  : encode_text(e, job);
}

/* ---- the batch ---- */

status encoder_build(struct encoder **out,
                     const struct encoder_request *request)
{
    struct encoder *e;
    void *memory;

    *out = NULL;
    TRY(memory_take(1, sizeof *e, &memory));
    e = memory;
    memset(e, 0, sizeof *e);
    *out = e;
    e->request = *request;
    TRY(memory_take(BATCH_DOCUMENTS, sizeof *e->jobs, &memory));
    e->jobs = memory;
    memset(e->jobs, 0, BATCH_DOCUMENTS * sizeof *e->jobs);
    return OK;
}

static status add_segments(struct encoder *e, struct job *job,
                           const struct corpus_document *document)
{
    const int needed = e->segment_count + document->segment_count;

    job->first_segment = e->segment_count;
    job->segments = document->segment_count;
    if (needed > e->segment_room) {
        void *grown = e->segments;

        TRY(memory_grow(&grown, 2 * (size_t)needed, sizeof *e->segments));
        e->segments = grown;
        e->segment_room = 2 * needed;
    }
    for (int i = 0; i < document->segment_count; i++)
        e->segments[e->segment_count++] = document->segments[i];
    return OK;
}

status encoder_add(struct encoder *e, const struct corpus_document *document)
{
    struct job *job = &e->jobs[e->count];
    static const char zeros[4];

    CHECK(e->count < BATCH_DOCUMENTS);
    job->is_ids = document->text == NULL;
    job->masked = document->segment_count > 0;
    job->headed = document->headed;
    job->number = e->next_number++;
    if (job->is_ids && e->text.length % 4 != 0) /* ids stay aligned */
        TRY(text_append(&e->text, zeros, 4 - e->text.length % 4));
    job->start = e->text.length;
    job->length = job->is_ids ? (size_t)document->id_count * sizeof(int32_t)
                              : document->length;
    TRY(text_append(&e->text, job->is_ids ? (const void *)document->ids
                                          : document->text, job->length));
    TRY(add_segments(e, job, document));
    e->count++;
    return OK;
}

bool encoder_full(const struct encoder *e)
{
    return e->count == BATCH_DOCUMENTS || e->text.length >= BATCH_BYTES;
}

void encoder_pass(struct encoder *e) { e->next_number++; }

/* A template may end with the end token, which the sink adds itself. */
static int64_t without_end(const struct encoder *e, const struct job *job)
{
    const int64_t count = job->tokens.count;

    return count > 0 && (e->request.tokenizer->last_count > 0 ||
                         job->is_ids) &&
           job->tokens.ids[count - 1] == e->request.end_token
               ? count - 1 : count;
}

status encoder_flush(struct encoder *e, const char *source)
{
    /* One document wakes no threads; more of them differ in length. */
    if (e->count > 0)
        jobs_run(e->count > 1 ? e->request.threads : NULL, e->count,
                 encode_one, e);
    for (int i = 0; i < e->count; i++) {
        const struct job *job = &e->jobs[i];
        const struct encoded encoded = {
            .ids = job->tokens.ids,
            .learned = job->masked ? job->learned : NULL,
            .count = without_end(e, job),
            .text_bytes = job->is_ids ? 0 : (int64_t)job->length};

        if (job->result != OK)
            FAIL(job->result, "%s: encoding a document of %zu bytes failed",
                 source, job->length);
        TRY(e->request.sink(e->request.context, &encoded));
    }
    e->count = e->segment_count = 0;
    e->text.length = 0;
    return OK;
}

void encoder_free(struct encoder *e)
{
    if (e == NULL) return;
    for (int i = 0; e->jobs != NULL && i < BATCH_DOCUMENTS; i++) {
        token_list_free(&e->jobs[i].tokens);
        memory_free(e->jobs[i].learned);
    }
    memory_free(e->jobs);
    memory_free(e->segments);
    text_free(&e->text);
    memory_free(e);
}

/* ---- fill in the middle ---- */

status fill_in_tokens(struct fill_in *fill_in,
                      const struct tokenizer *tokenizer,
                      const char *const *names, int count)
{
    static const char *const families[][3] = {
        {"<fim_prefix>", "<fim_middle>", "<fim_suffix>"},
        {"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"},
        {"<fim-prefix>", "<fim-middle>", "<fim-suffix>"},
        {"<|fim_begin|>", "<|fim_end|>", "<|fim_hole|>"},
        {"<PRE>", "<MID>", "<SUF>"}};
    int32_t *const ids[3] = {&fill_in->prefix, &fill_in->middle,
                             &fill_in->suffix};

    if (count != 0 && count != 3)
        FAIL(ERR_CONFIG, "data.fim_tokens: %d names; expected three: prefix, "
             "middle, suffix", count);
    for (int i = 0; i < count; i++)
        if (!tokenizer_find(tokenizer, names[i], ids[i]))
            FAIL(ERR_CONFIG, "data.fim_tokens: %s has no token %s",
                 tokenizer->source, names[i]);
    if (count == 3) return OK;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        int found = 0;

        for (int i = 0; i < 3; i++)
            found += tokenizer_find(tokenizer, families[f][i], ids[i]);
        if (found == 3) return OK;
    }
    FAIL(ERR_CONFIG, "%s has no tokens for fill-in-the-middle that are known; "
         "name them with data.fim_tokens: [prefix, middle, suffix]",
         tokenizer->source);
}
