/* SPDX-License-Identifier: Apache-2.0 */
/* test_encoder.c - mirrors src/corpus/encoder.c: order, fill-in-the-middle that
 * loses nothing, masks of conversations, ids that pass through. */
#include "corpus/encoder.h"

#include "tests/test.h"

enum { DOCUMENTS = 600 };
/* Tokens of the tokenizer that no text becomes. */
enum { PREFIX = 3, MIDDLE = 4, SUFFIX = 5, BEGIN = 420 };

struct room {
    struct tokenizer tokenizer;
    struct encoder *encoder;
    int64_t seen, filled, suffix_first;
};

static void text_of(int i, struct text *out)
{
    out->length = 0;
    IS_OK(text_printf(out, "The %d ships \xC3\xA9\xE2\x82\xAC of day %d", i,
                      i * i));
}

/* Appends the text of ids [from, to). */
static void decode(const struct room *room, const struct encoded *document,
                   int64_t from, int64_t to, struct text *out)
{
    IS_OK(tokenizer_decode(&room->tokenizer, document->ids + from, to - from,
                           out));
}

static int64_t find(const struct encoded *document, int32_t id)
{
    for (int64_t i = 0; i < document->count; i++)
        if (document->ids[i] == id) return i;
    return -1;
}

/* Puts the document back in order: it must be what it was. */
static status check_filled(void *context, const struct encoded *document)
{
    struct room *room = context;
    const int64_t suffix = find(document, SUFFIX);
    const int64_t middle = find(document, MIDDLE);
    struct text whole = {0}, text = {0};

    EQUAL_INT(document->ids[0], BEGIN); /* the template's, in any case */
    if (suffix < 0) {
        decode(room, document, 1, document->count, &whole);
    } else {
        EQUAL_INT(document->ids[1], PREFIX);
        CHECK(suffix < middle);
        room->filled++;
        room->suffix_first += suffix == 2;
        decode(room, document, 2, suffix, &whole);
        decode(room, document, middle + 1, document->count, &whole);
        decode(room, document, suffix + 1, middle, &whole);
    }
    text_of((int)room->seen++, &text);
    EQUAL_INT(whole.length, text.length);
    EQUAL_BYTES(whole.bytes, text.bytes, text.length);
    text_free(&whole);
    text_free(&text);
    return OK;
}

static void run(struct room *room, const struct encoder_request *request)
{
    struct text text = {0};

    IS_OK(encoder_build(&room->encoder, request));
    for (int i = 0; i < DOCUMENTS; i++) {
        text_of(i, &text);
        IS_OK(encoder_add(room->encoder,
                          &(struct corpus_document){.text = text.bytes,
                                                    .length = text.length}));
        if (i % 100 == 7) IS_OK(encoder_flush(room->encoder, "test"));
    }
    IS_OK(encoder_flush(room->encoder, "test"));
    EQUAL_INT(room->seen, DOCUMENTS);
    encoder_free(room->encoder);
    text_free(&text);
}

TEST(a_filled_document_loses_nothing)
{
    struct room room = {0};
    struct encoder_request request = {
        .tokenizer = &room.tokenizer, .end_token = 0,
        .fill_in = {.rate = 0.5, .suffix_first = 0.5, .seed = 4,
                    .prefix = PREFIX, .middle = MIDDLE, .suffix = SUFFIX},
        .sink = check_filled, .context = &room};
    int64_t filled;

    IS_OK(tokenizer_read(&room.tokenizer,
                         "tests/golden/tokenizer/llama3.json"));
    run(&room, &request);
    CHECK(room.filled > 250 && room.filled < 350);
    CHECK(room.suffix_first > room.filled / 3 &&
          room.suffix_first < room.filled * 2 / 3);
    filled = room.filled;
    room.seen = room.filled = 0;
    IS_OK(threads_build(&request.threads, 3));
    run(&room, &request);
    EQUAL_INT(room.filled, filled);
    threads_free(request.threads);
    tokenizer_free(&room.tokenizer);
}

static status check_parts(void *context, const struct encoded *document)
{
    struct room *room = context;
    struct text learned = {0};

    if (room->seen++ == 0) {
        EQUAL_INT(document->count, 3);
        EQUAL_INT(document->ids[2], 7);
        CHECK(document->learned == NULL);
        return OK;
    }
    for (int64_t i = 0; i < document->count; i++)
        if (document->learned[i]) decode(room, document, i, i + 1, &learned);
    EQUAL_TEXT(learned.bytes, "Three.");
    text_free(&learned);
    return OK;
}

TEST(ids_pass_and_segments_are_masked)
{
    static const int32_t ids[] = {5, 6, 7, 0}; /* with the end token */
    static const struct corpus_segment segments[] = {{9, false}, {6, true},
                                                     {1, false}};
    struct room room = {0};
    const struct encoder_request request = {
        .tokenizer = &room.tokenizer, .end_token = 0, .sink = check_parts,
        .context = &room};

    IS_OK(tokenizer_read(&room.tokenizer,
                         "tests/golden/tokenizer/llama3.json"));
    IS_OK(encoder_build(&room.encoder, &request));
    IS_OK(encoder_add(room.encoder, &(struct corpus_document){
                                        .ids = ids, .id_count = 4}));
    IS_OK(encoder_add(room.encoder, &(struct corpus_document){
                                        .text = "How many?Three.\n",
                                        .length = 16, .segments = segments,
                                        .segment_count = 3}));
    IS_OK(encoder_flush(room.encoder, "test"));
    EQUAL_INT(room.seen, 2);
    encoder_free(room.encoder);
    tokenizer_free(&room.tokenizer);
}

TEST_MAIN(a_filled_document_loses_nothing, ids_pass_and_segments_are_masked)
