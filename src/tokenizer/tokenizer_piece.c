/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_piece.c - SentencePiece's `.model` files.
 *
 * One protobuf message: the pieces with their scores and types, how the model
 * was trained, and how text is normalized. Of the training only three things
 * matter afterwards: BPE or Unigram, whether unknown characters fall back to
 * bytes, and on which side of a word its space stands. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tokenizer/piece_message.h"
#include "tokenizer/tokenizer_build.h"

#define MARK "\xE2\x96\x81" /* U+2581 */

enum piece_type {
    PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED,
    PIECE_BYTE
};
enum model_type { MODEL_TYPE_UNIGRAM = 1, MODEL_TYPE_BPE };

struct piece {
    const char *name; /* in the file */
    size_t length;
    float score;
    enum piece_type type;
};

struct piece_model {
    const char *source;
    struct piece *pieces; /* owned */
    int64_t count, capacity;
    uint64_t model_type;
    bool byte_fallback, suffix;       /* trainer_spec */
    bool prefix, trim, escape;        /* normalizer_spec */
    const unsigned char *map;         /* precompiled_charsmap */
    size_t map_length;
    int64_t user_count;
};

/* ModelProto.SentencePiece */
static status read_piece(struct piece_model *m,
                         const struct proto_field *from,
                         struct piece *piece)
{
    struct piece_message in =
        piece_message_of(from, m->source, "a SentencePiece");
    struct proto_field field;
    bool more;
    size_t bad;

    *piece = (struct piece){.type = PIECE_NORMAL};
    for (;;) {
        TRY(piece_message_next(&in, &field, &more));
        if (!more) break;
        if (field.number == 1) {
            TRY(piece_message_expect(&in, &field, PROTO_BYTES));
            piece->name = (const char *)field.bytes;
            piece->length = field.length;
        } else if (field.number == 2) {
            TRY(piece_message_expect(&in, &field, PROTO_32));
            piece->score = (float)proto_real(&field);
        } else if (field.number == 3) {
            TRY(piece_message_expect(&in, &field, PROTO_VARINT));
            if (field.integer < PIECE_NORMAL || field.integer > PIECE_BYTE)
                FAIL(ERR_FORMAT, "%s: piece %lld has type %llu", m->source,
                     (long long)m->count, (unsigned long long)field.integer);
            piece->type = (enum piece_type)field.integer;
        } else {
            FAIL(ERR_FORMAT, "%s: piece %lld has a field %d, which is not "
                 "known", m->source, (long long)m->count, field.number);
        }
    }
    if (piece->length == 0 ||
        memchr(piece->name, 0, piece->length) != NULL ||
        text_utf8_invalid(piece->name, piece->length, &bad))
        FAIL(ERR_FORMAT, "%s: piece %lld is empty, not UTF-8 or has U+0000",
             m->source, (long long)m->count);
    if (!isfinite(piece->score))
        FAIL(ERR_FORMAT, "%s: piece %lld has no finite score", m->source,
             (long long)m->count);
    return OK;
}

static status add_piece(struct piece_model *m,
                        const struct proto_field *field)
{
    if (m->count == TOKENIZER_VOCAB_MAX)
        FAIL(ERR_FORMAT, "%s: more than %d pieces", m->source,
             TOKENIZER_VOCAB_MAX);
    if (m->count == m->capacity) {
        const int64_t capacity = m->capacity * 2 + 1024;
        void *grown = m->pieces;

        TRY(memory_grow(&grown, (size_t)capacity, sizeof *m->pieces));
        m->pieces = grown;
        m->capacity = capacity;
    }
    TRY(read_piece(m, field, &m->pieces[m->count]));
    m->user_count += m->pieces[m->count].type == PIECE_USER;
    m->count++;
    return OK;
}

/* Fields 1 to 7, 10 to 26, 30 to 36, 40 to 55 say how it was trained. */
static bool trainer_knows(int number)
{
    return number <= 7 || (number >= 10 && number <= 26) ||
           (number >= 30 && number <= 36) || (number >= 40 && number <= 55);
}

static status read_trainer(struct piece_model *m,
                           const struct proto_field *from)
{
    struct piece_message in =
        piece_message_of(from, m->source, "the TrainerSpec");
    struct proto_field field;
    bool more;

    for (;;) {
        TRY(piece_message_next(&in, &field, &more));
        if (!more) return OK;
        if (!trainer_knows(field.number))
            FAIL(ERR_FORMAT, "%s: the TrainerSpec has a field %d, which is "
                 "not known", m->source, field.number);
        if (field.number != 3 && field.number != 24 && field.number != 35)
            continue;
        TRY(piece_message_expect(&in, &field, PROTO_VARINT));
        if (field.number == 3) m->model_type = field.integer;
        if (field.number == 24) m->suffix = field.integer != 0;
        if (field.number == 35) m->byte_fallback = field.integer != 0;
    }
}

/* 1 is its name and 6 the rules that were compiled into 2. */
static status read_rules(struct piece_model *m,
                         const struct proto_field *from)
{
    struct piece_message in =
        piece_message_of(from, m->source, "the NormalizerSpec");
    struct proto_field field;
    bool more;

    for (;;) {
        TRY(piece_message_next(&in, &field, &more));
        if (!more) return OK;
        if (field.number == 2) {
            TRY(piece_message_expect(&in, &field, PROTO_BYTES));
            m->map = field.bytes;
            m->map_length = field.length;
        } else if (field.number >= 3 && field.number <= 5) {
            TRY(piece_message_expect(&in, &field, PROTO_VARINT));
            if (field.number == 3) m->prefix = field.integer != 0;
            if (field.number == 4) m->trim = field.integer != 0;
            if (field.number == 5) m->escape = field.integer != 0;
        } else if (field.number != 1 && field.number != 6) {
            FAIL(ERR_FORMAT, "%s: the NormalizerSpec has a field %d, which "
                 "is not known", m->source, field.number);
        }
    }
}

/* 5 normalizes what was decoded; only an empty one is nothing. */
static status check_denormalizer(const struct piece_model *m,
                                 const struct proto_field *from)
{
    struct piece_message in =
        piece_message_of(from, m->source, "the denormalizer");
    struct proto_field field;
    bool more;

    for (;;) {
        TRY(piece_message_next(&in, &field, &more));
        if (!more) return OK;
        if (field.number == 2 && field.length > 0)
            FAIL(ERR_FORMAT, "%s: its denormalizer_spec has a character map, "
                 "which is not supported", m->source);
    }
}

static status read_message(struct piece_model *m, const char *bytes,
                           size_t length)
{
    struct piece_message in = {proto_open(bytes, length), m->source,
                               "the ModelProto"};
    struct proto_field field;
    bool more;

    for (;;) {
        TRY(piece_message_next(&in, &field, &more));
        if (!more) return OK;
        if (field.number < 1 || field.number > 5)
            FAIL(ERR_FORMAT, "%s: the ModelProto has a field %d, which is not "
                 "known", m->source, field.number);
        TRY(piece_message_expect(&in, &field, PROTO_BYTES));
        switch (field.number) {
        case 1: TRY(add_piece(m, &field)); break;
        case 2: TRY(read_trainer(m, &field)); break;
        case 3: TRY(read_rules(m, &field)); break;
        case 5: TRY(check_denormalizer(m, &field)); break;
        default: break; /* 4: texts to test oneself with */
        }
    }
}

/* A BPE merges unused pieces too, and takes them apart at the end. */
static bool is_spelled(const struct piece_model *m, const struct piece *piece)
{
    return piece->type == PIECE_NORMAL || piece->type == PIECE_USER ||
           (piece->type == PIECE_UNUSED && m->model_type == MODEL_TYPE_BPE);
}

static status build_vocab(struct tokenizer *tokenizer,
                          const struct piece_model *m)
{
    struct vocab_entry *entries;
    void *memory = NULL;
    status result;

    TRY(memory_take((size_t)m->count + 1, sizeof *entries, &memory));
    entries = memory;
    for (int64_t i = 0; i < m->count; i++) {
        const struct piece *piece = &m->pieces[i];
        const bool special =
            piece->type == PIECE_UNKNOWN || piece->type == PIECE_CONTROL;

        entries[i] = (struct vocab_entry){
            .name = piece->name,
            .length = piece->length,
            .id = (int32_t)i,
            .kind = special ? TOKEN_SPECIAL : TOKEN_LEARNED,
            .spelled = is_spelled(m, piece)};
    }
    result = tokenizer_build_vocab(tokenizer, entries, m->count);
    memory_free(memory);
    return result;
}

static status find_unknown(struct tokenizer *tokenizer,
                           const struct piece_model *m)
{
    tokenizer->unknown = -1;
    tokenizer->fuse_unknown = true;
    for (int32_t i = 0; i < m->count; i++)
        if (m->pieces[i].type == PIECE_UNKNOWN) tokenizer->unknown = i;
    if (tokenizer->unknown < 0)
        FAIL(ERR_FORMAT, "%s: no piece is of the type UNKNOWN", m->source);
    if (!m->byte_fallback) return OK;
    tokenizer_find_fallback(tokenizer);
    for (int i = 0; i < 256; i++)
        if (tokenizer->fallback[i] < 0)
            FAIL(ERR_FORMAT, "%s: byte_fallback is set, but there is no piece "
                 "<0x%02X>", m->source, (unsigned)i);
    return OK;
}

/* Pieces that the user defined are found in the text before anything else
 * happens to it. */
static status build_user(struct tokenizer *tokenizer,
                         const struct piece_model *m)
{
    struct added_token *tokens;
    int32_t count = 0;
    void *memory;

    TRY(arena_take_array(&tokenizer->arena, (size_t)m->user_count + 1,
                         sizeof *tokens, &memory));
    tokenizer->added = tokens = memory;
    TRY(added_init(&tokenizer->raw, tokens));
    TRY(added_init(&tokenizer->normal, tokens));
    TRY(added_init(&tokenizer->kept, tokens));
    for (int32_t i = 0; i < m->count; i++) {
        if (m->pieces[i].type != PIECE_USER) continue;
        tokens[count] = (struct added_token){
            .content = tokenizer->names[i],
            .length = tokenizer->name_lengths[i],
            .id = i,
            .normalized = true};
        TRY(added_insert(&tokenizer->kept, count, tokens[count].content,
                         tokens[count].length));
        if (m->model_type == MODEL_TYPE_BPE)
            TRY(added_insert(&tokenizer->normal, count, tokens[count].content,
                             tokens[count].length));
        count++;
    }
    tokenizer->added_count = count;
    return OK;
}

static status build_normalizer(struct tokenizer *tokenizer,
                               const struct piece_model *m)
{
    struct normalize_step *step = &tokenizer->normalizer.steps[0];
    struct added_matcher *kept;
    void *memory;

    tokenizer->normalizer.count = 1;
    *step = (struct normalize_step){.kind = NORMALIZE_PIECES,
                                    .trim = m->trim,
                                    .before = m->prefix && !m->suffix,
                                    .after = m->prefix && m->suffix,
                                    .escape = m->escape};
    if (m->user_count > 0) {
        /* Its nodes are the tokenizer's: it may lie anywhere. */
        TRY(arena_take(&tokenizer->arena, sizeof *kept, &memory));
        kept = memory;
        *kept = tokenizer->kept;
        step->kept = kept;
    }
    return charsmap_read(&step->map, &tokenizer->arena, m->map, m->map_length,
                         m->source);
}

static void build_decoder(struct tokenizer *tokenizer,
                          const struct piece_model *m)
{
    struct decoder *decoder = &tokenizer->decoder;

    if (m->byte_fallback)
        decoder->steps[decoder->count++].kind = DECODE_FALLBACK;
    decoder->steps[decoder->count++] =
        (struct decode_step){.kind = DECODE_MARK,
                             .replace = {.literal = MARK, .literal_length = 3,
                                         .content = " ",
                                         .content_length = 1}};
    decoder->strip_byte = ' ';
    decoder->strip_once = true;
    decoder->strip = m->trim ? INT64_MAX : m->prefix ? 1 : 0;
}

struct scored { float score; int32_t id; };

static int compare_scores(const void *a, const void *b)
{
    const struct scored *left = a, *right = b;

    if (left->score != right->score) return left->score > right->score ? -1 : 1;
    if (signbit(left->score) != signbit(right->score))
        return signbit(left->score) ? 1 : -1;
    return left->id < right->id ? -1 : left->id > right->id;
}

static status build_halves(struct tokenizer *tokenizer,
                           const struct piece_model *m)
{
    struct halves *halves;
    int64_t unused = 0;
    void *memory;

    for (int64_t i = 0; i < m->count; i++)
        unused += m->pieces[i].type == PIECE_UNUSED;
    if (unused == 0) return OK;
    TRY(arena_take_array(&tokenizer->arena, (size_t)tokenizer->vocab,
                         sizeof *halves, &memory));
    tokenizer->halves = halves = memory;
    for (int64_t i = 0; i < m->count; i++)
        halves[i].left = m->pieces[i].type == PIECE_UNUSED ? HALVES_UNKNOWN
                                                           : HALVES_WHOLE;
    for (uint64_t i = 0; i < tokenizer->merge_places; i++) {
        const struct merge *merge = &tokenizer->merges[i];

        if (merge->pair == UINT64_MAX ||
            m->pieces[merge->id].type != PIECE_UNUSED) continue;
        halves[merge->id].left = (int32_t)(merge->pair >> 32);
        halves[merge->id].right = (int32_t)(merge->pair & 0xFFFFFFFFu);
    }
    return OK;
}

static bool same_score(const struct scored *a, const struct scored *b)
{
    return a->score == b->score && signbit(a->score) == signbit(b->score);
}

/* Equal scores are equal ranks: of those the leftmost pair goes first. Their
 * bits are compared, as there: -0, which the first merge has, follows 0. */
static status build_merges(struct tokenizer *tokenizer,
                           const struct piece_model *m)
{
    struct scored *order;
    int32_t *ranks, rank = 0;
    void *memory = NULL, *second = NULL;
    status result;

    TRY_GOTO(done, result,
             memory_take((size_t)m->count + 1, sizeof *order, &memory));
    TRY_GOTO(done, result,
             memory_take((size_t)m->count + 1, sizeof *ranks, &second));
    order = memory;
    ranks = second;
    for (int32_t i = 0; i < m->count; i++)
        order[i] = (struct scored){m->pieces[i].score, i};
    qsort(order, (size_t)m->count, sizeof *order, compare_scores);
    for (int64_t i = 0; i < m->count; i++) {
        if (i > 0 && !same_score(&order[i], &order[i - 1])) rank++;
        ranks[order[i].id] =
            is_spelled(m, &m->pieces[order[i].id]) ? rank : -1;
    }
    TRY_GOTO(done, result, tokenizer_derive_merges(tokenizer, ranks));
    TRY_GOTO(done, result, tokenizer_build_cuts(tokenizer));
    TRY_GOTO(done, result, build_halves(tokenizer, m));
done:
    memory_free(memory);
    memory_free(second);
    return result;
}

/* The score that SentencePiece gives to a user-defined piece, whatever the file
 * says: a long piece scores higher than several short ones. */
static double user_score(size_t length)
{
    return (double)(float)(0.1 * (double)((int)length - 1));
}

/* Sums of scores are floats there. */
static status build_unigram(struct tokenizer *tokenizer,
                            const struct piece_model *m)
{
    float least = INFINITY;
    double *scores;
    void *memory;

    TRY(arena_take_array(&tokenizer->arena, (size_t)m->count + 1,
                         sizeof *scores, &memory));
    scores = memory;
    for (int64_t i = 0; i < m->count; i++) {
        const struct piece *piece = &m->pieces[i];

        if (piece->type == PIECE_NORMAL && piece->score < least)
            least = piece->score;
    }
    for (int64_t i = 0; i < m->count; i++) {
        const struct piece *piece = &m->pieces[i];

        scores[i] = piece->type == PIECE_USER ? user_score(piece->length)
                                              : (double)piece->score;
    }
    tokenizer->unigram.single = true;
    tokenizer->unigram.unknown_score =
        (double)(least - (float)UNIGRAM_PENALTY);
    return tokenizer_build_unigram(tokenizer, scores);
}

static status build(struct tokenizer *tokenizer, const struct piece_model *m)
{
    if (m->model_type != MODEL_TYPE_UNIGRAM && m->model_type != MODEL_TYPE_BPE)
        FAIL(ERR_FORMAT, "%s: model_type %llu is not supported; 1 (Unigram) "
             "and 2 (BPE) are", m->source, (unsigned long long)m->model_type);
    tokenizer->last_byte_whole = true;
    tokenizer->model = m->model_type == MODEL_TYPE_BPE ? MODEL_CHARACTERS
                                                       : MODEL_UNIGRAM;
    build_decoder(tokenizer, m);
    TRY(build_vocab(tokenizer, m));
    TRY(find_unknown(tokenizer, m));
    TRY(build_user(tokenizer, m));
    TRY(build_normalizer(tokenizer, m));
    if (tokenizer->model == MODEL_CHARACTERS) return build_merges(tokenizer, m);
    return build_unigram(tokenizer, m);
}

status tokenizer_read_pieces(struct tokenizer *tokenizer)
{
    struct piece_model m = {.source = tokenizer->source,
                            .model_type = MODEL_TYPE_UNIGRAM,
                            .prefix = true,
                            .trim = true,
                            .escape = true};
    status result;

    tokenizer->file_name = "tokenizer.model";
    TRY_GOTO(done, result,
             read_message(&m, tokenizer->json, tokenizer->json_length));
    TRY_GOTO(done, result, build(tokenizer, &m));
done:
    memory_free(m.pieces);
    return result;
}
