/* SPDX-License-Identifier: Apache-2.0 */
/* test_bpe_train.c - mirrors src/tokenizer/bpe_train.c, bpe_merge.c,
 * word_count.c and tokenizer_write.c: what we learn is what the library's
 * BpeTrainer learns (tests/golden/tokenizer_golden.py, learned.json). */
#include "tokenizer/bpe_train.h"

#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_count.h"
#include "tests/test.h"

static void learn(struct text *json, const char *text, size_t length,
                  int64_t wanted, int threads_wanted)
{
    struct threads *threads = NULL;
    struct bpe_trainer *trainer;
    int64_t vocab = 0;

    IS_OK(threads_build(&threads, threads_wanted));
    IS_OK(bpe_trainer_build(&trainer, &(struct bpe_options){
                                          .vocab = wanted,
                                          .threads = threads}));
    IS_OK(bpe_trainer_feed(trainer, text, length));
    IS_OK(bpe_trainer_finish(trainer, json, &vocab));
    CHECK(vocab <= wanted);
    bpe_trainer_free(trainer);
    threads_free(threads);
}

TEST(it_learns_what_the_library_learns)
{
    struct text json = {0};
    struct arena arena;
    const struct json *theirs, *ours, *text, *a, *b;

    arena_init(&arena, "test", 0);
    IS_OK(json_read_file(&theirs, &arena,
                         "tests/golden/tokenizer/expected.json", 1 << 24));
    text = json_get(theirs, "training");
    learn(&json, text->string, (size_t)text->string_length, 700, 1);
    IS_OK(json_read_file(&theirs, &arena,
                         "tests/golden/tokenizer/learned.json", 1 << 24));
    IS_OK(json_read(&ours, &arena, json.bytes, json.length, "ours"));
    a = json_get(json_get(ours, "model"), "vocab");
    b = json_get(json_get(theirs, "model"), "vocab");
    EQUAL_INT(a->count, 700);
    EQUAL_INT(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const struct json *id = json_get(b, a->items[2 * i].string);

        CHECK(id != NULL);
        EQUAL_INT(id->integer, a->items[2 * i + 1].integer);
    }
    a = json_get(json_get(ours, "model"), "merges");
    b = json_get(json_get(theirs, "model"), "merges");
    EQUAL_INT(a->count, 443);
    EQUAL_INT(a->count, b->count);
    for (int i = 0; i < a->count; i++)
        for (int half = 0; half < 2; half++)
            EQUAL_TEXT(a->items[i].items[half].string,
                       b->items[i].items[half].string);
    text_free(&json);
    arena_free(&arena);
}

/* A text long enough to be divided among threads. */
TEST(threads_do_not_show)
{
    struct text text = {0}, one = {0}, three = {0};

    for (int i = 0; i < 20000; i++)
        IS_OK(text_printf(&text, "ship %d passes %d\n  by night %x.", i,
                          i * 7919 % 10007, i * 31));
    learn(&one, text.bytes, text.length, 2000, 1);
    learn(&three, text.bytes, text.length, 2000, 3);
    EQUAL_INT(one.length, three.length);
    EQUAL_BYTES(one.bytes, three.bytes, one.length);
    text_free(&text);
    text_free(&one);
    text_free(&three);
}

/* Hundreds of thousands of numbers in 1 MiB: counts go to the disk and the
 * rarest words are left out, the same ones whatever the threads. */
static void learn_within(struct text *json, const struct text *text,
                         size_t memory, int threads_wanted,
                         struct bpe_left_out *left_out)
{
    struct threads *threads = NULL;
    struct bpe_trainer *trainer;
    int64_t vocab = 0;

    IS_OK(threads_build(&threads, threads_wanted));
    IS_OK(bpe_trainer_build(&trainer, &(struct bpe_options){
                                          .vocab = 400, .threads = threads,
                                          .memory = memory,
                                          .scratch = "/tmp"}));
    for (size_t at = 0; at < text->length;) { /* fed in pieces */
        const size_t stop =
            word_count_cut(text->bytes, at + 40000 < text->length
                                            ? at + 40000 : text->length,
                           text->length);

        IS_OK(bpe_trainer_feed(trainer, text->bytes + at, stop - at));
        at = stop;
    }
    IS_OK(bpe_trainer_finish(trainer, json, &vocab));
    *left_out = *bpe_trainer_left_out(trainer);
    bpe_trainer_free(trainer);
    threads_free(threads);
}

TEST(words_beyond_the_memory_go_to_the_disk)
{
    struct text text = {0}, all = {0}, spilled = {0}, small = {0}, three = {0};
    struct bpe_left_out left_out;

    for (int i = 0; i < 60000; i++)
        IS_OK(text_printf(&text, "x%d often of%d", i, i % 500));
    learn(&all, text.bytes, text.length, 400, 1);
    learn_within(&spilled, &text, (size_t)24 << 20, 2, &left_out);
    EQUAL_INT(left_out.words, 0); /* spilled, and nothing lost */
    EQUAL_INT(left_out.count_least, 1);
    EQUAL_TEXT(all.bytes, spilled.bytes);
    learn_within(&small, &text, (size_t)1 << 20, 1, &left_out);
    CHECK(left_out.words > 50000 && left_out.count_least > 1);
    EQUAL_INT(left_out.occurrences, left_out.words); /* each was there once */
    CHECK(left_out.kept > 500);
    learn_within(&three, &text, (size_t)1 << 20, 3, &left_out);
    EQUAL_TEXT(small.bytes, three.bytes);
    CHECK(strcmp(small.bytes, all.bytes) != 0);
    text_free(&text);
    text_free(&all);
    text_free(&spilled);
    text_free(&small);
    text_free(&three);
}

TEST(a_full_disk_is_said)
{
    struct bpe_trainer *trainer;
    struct text text = {0};

    for (int i = 0; i < 30000; i++) IS_OK(text_printf(&text, "x%d ", i));
    IS_OK(bpe_trainer_build(&trainer, &(struct bpe_options){
                                          .vocab = 400, .memory = 65536,
                                          .scratch = "/nowhere/at/all"}));
    FAILS(bpe_trainer_feed(trainer, text.bytes, text.length), ERR_IO,
          "/nowhere/at/all");
    status_clear();
    bpe_trainer_free(trainer);
    text_free(&text);
}

TEST(our_reader_takes_what_our_writer_wrote)
{
    static const char words[] = "low lower lowest newer newest low low";
    struct text json = {0}, back = {0};
    struct token_list ids = {0};
    struct tokenizer tokenizer;
    int32_t id;

    learn(&json, words, strlen(words), 270, 1);
    IS_OK(tokenizer_read_text(&tokenizer, json.bytes, json.length, "ours"));
    EQUAL_INT(tokenizer_vocab(&tokenizer), 270);
    IS_OK(tokenizer_end_of_text(&tokenizer, "", &id));
    EQUAL_INT(id, 0);
    IS_OK(tokenizer_encode(&tokenizer, words, strlen(words), true, &ids));
    CHECK(ids.count < 20);
    IS_OK(tokenizer_decode(&tokenizer, ids.ids, ids.count, &back));
    EQUAL_TEXT(back.bytes, words);
    token_list_free(&ids);
    text_free(&back);
    text_free(&json);
    tokenizer_free(&tokenizer);
}

TEST(too_little_text_gives_a_smaller_vocabulary)
{
    struct bpe_trainer *trainer;
    struct text json = {0};
    int64_t vocab = 0;

    IS_OK(bpe_trainer_build(&trainer, &(struct bpe_options){
                                          .vocab = 1000, .count_min = 2}));
    FAILS(bpe_trainer_finish(trainer, &json, &vocab), ERR_CONFIG, "no text");
    status_clear();
    FAILS(bpe_trainer_feed(trainer, "\x80", 1), ERR_FORMAT, "byte 0");
    status_clear();
    IS_OK(bpe_trainer_feed(trainer, "abab", 4));
    IS_OK(bpe_trainer_finish(trainer, &json, &vocab));
    EQUAL_INT(vocab, 258); /* ab occurs twice, abab once */
    bpe_trainer_free(trainer);
    text_free(&json);
    FAILS(bpe_trainer_build(&trainer, &(struct bpe_options){.vocab = 256}),
          ERR_CONFIG, "256 tokens");
    bpe_trainer_free(trainer);
}

TEST_MAIN(it_learns_what_the_library_learns, threads_do_not_show,
          words_beyond_the_memory_go_to_the_disk, a_full_disk_is_said,
          our_reader_takes_what_our_writer_wrote,
          too_little_text_gives_a_smaller_vocabulary)
