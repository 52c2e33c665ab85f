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

/* Keeps the ids of the document. */
static status keep_ids(void *context, const struct encoded *document)
{
    return token_list_append(context, document->ids, document->count);
}

static void encode_document(const struct tokenizer *tokenizer,
                            const struct corpus_document *document,
                            struct token_list *out)
{
    const struct encoder_request request = {
        .tokenizer = tokenizer, .end_token = -1, .sink = keep_ids,
        .context = out};
    struct encoder *encoder;

    out->count = 0;
    IS_OK(encoder_build(&encoder, &request));
    IS_OK(encoder_add(encoder, document));
    IS_OK(encoder_flush(encoder, "test"));
    encoder_free(encoder);
}

static void same_ids(const struct token_list *found, const int32_t *ids,
                     int64_t count)
{
    EQUAL_INT(found->count, count);
    EQUAL_BYTES(found->ids, ids, (size_t)count * sizeof *ids);
}

/* Where no token could have a part of two segments: what the library gives for
 * the whole text, as apply_chat_template does. */
TEST(segments_are_those_of_the_whole_text)
{
    static const char *const files[] = {
        "families/phi3.json", "families/llama2.json", "families/mistral.json",
        "families/mistral_split.json", "families/gemma.json", "llama3.json"};
    static const char *const parts[] = {
        "<|user|>\nHow many ships?<|end|>\n<|user|>\n", "Three ships.<|end|>",
        "\n<|user|>\n And the</s>\n", "fourth</s>", "\n"};
    enum { PARTS = sizeof parts / sizeof *parts };

    for (int i = 0; i < ROWS(files); i++) {
        struct corpus_segment segments[PARTS];
        struct token_list whole = {0}, found = {0};
        struct tokenizer tokenizer;
        struct text text = {0}, path = {0};

        for (int j = 0; j < PARTS; j++) {
            segments[j] = (struct corpus_segment){strlen(parts[j]), j % 2};
            IS_OK(text_append_string(&text, parts[j]));
        }
        IS_OK(text_printf(&path, "tests/golden/tokenizer/%s", files[i]));
        IS_OK(tokenizer_read(&tokenizer, path.bytes));
        IS_OK(tokenizer_encode(&tokenizer, text.bytes, text.length, false,
                               &whole));
        encode_document(&tokenizer,
                        &(struct corpus_document){
                            .text = text.bytes, .length = text.length,
                            .segments = segments, .segment_count = PARTS},
                        &found);
        same_ids(&found, whole.ids, whole.count);
        token_list_free(&whole);
        token_list_free(&found);
        text_free(&text);
        text_free(&path);
        tokenizer_free(&tokenizer);
    }
}

TEST(a_headed_document_begins_as_a_prompt)
{
    static const struct { const char *before, *after; } rows[] = {
        {"How many? ", "Three."}, {"<s>How many? ", "Three."}, {"", "Three."}};

    for (int i = 0; i < ROWS(rows); i++) {
        const size_t before = strlen(rows[i].before);
        const bool begins = strncmp(rows[i].before, "<s>", 3) == 0;
        const struct corpus_segment segments[] = {
            {before, false}, {strlen(rows[i].after), true}};
        struct token_list prompt = {0}, found = {0};
        struct tokenizer tokenizer;
        struct text text = {0};

        IS_OK(text_printf(&text, "%s%s", rows[i].before, rows[i].after));
        IS_OK(tokenizer_read(&tokenizer,
                             "tests/golden/tokenizer/families/gemma.json"));
        IS_OK(tokenizer_encode(&tokenizer, rows[i].before, before, !begins,
                               &prompt));
        encode_document(&tokenizer,
                        &(struct corpus_document){
                            .text = text.bytes, .length = text.length,
                            .segments = segments, .segment_count = 2,
                            .headed = true},
                        &found);
        CHECK(found.count > prompt.count);
        found.count = prompt.count;
        same_ids(&found, prompt.ids, prompt.count);
        token_list_free(&prompt);
        token_list_free(&found);
        text_free(&text);
        tokenizer_free(&tokenizer);
    }
}

/* Cut anywhere, a document decodes to itself, also with a tokenizer that puts a
 * space before each text. */
TEST(parts_of_a_document_go_on)
{
    static const char *const files[] = {
        "families/llama2.json", "families/mistral.json", "families/phi3.json",
        "families/bpe.model", "gpt2.json"};
    static const char text[] = "the ships of\n  day";

    for (int i = 0; i < ROWS(files); i++) {
        struct tokenizer tokenizer;
        struct text path = {0}, whole = {0};
        struct token_list ids = {0};

        IS_OK(text_printf(&path, "tests/golden/tokenizer/%s", files[i]));
        IS_OK(tokenizer_read(&tokenizer, path.bytes));
        IS_OK(tokenizer_encode(&tokenizer, text, sizeof text - 1, false, &ids));
        IS_OK(tokenizer_decode(&tokenizer, ids.ids, ids.count, &whole));
        for (size_t a = 1; a < sizeof text - 1; a++) {
            struct text back = {0};

            ids.count = 0;
            IS_OK(tokenizer_encode_after(&tokenizer, text, 0, a, &ids));
            IS_OK(tokenizer_encode_after(&tokenizer, text, a, sizeof text - 1,
                                         &ids));
            IS_OK(tokenizer_decode(&tokenizer, ids.ids, ids.count, &back));
            EQUAL_INT(back.length, whole.length);
            EQUAL_BYTES(back.bytes, whole.bytes, whole.length);
            text_free(&back);
        }
        token_list_free(&ids);
        text_free(&path);
        text_free(&whole);
        tokenizer_free(&tokenizer);
    }
}

TEST_MAIN(a_filled_document_loses_nothing, ids_pass_and_segments_are_masked,
          segments_are_those_of_the_whole_text,
          a_headed_document_begins_as_a_prompt, parts_of_a_document_go_on)
