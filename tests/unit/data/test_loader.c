/* SPDX-License-Identifier: Apache-2.0 */
/* test_loader.c - mirrors src/data/loader.c: packing, masks, order, split. */
#include "data/loader.h"

#include "tests/test.h"

enum { END = 9, SEQUENCE = 4 };

/* Documents of 2, 1, 5 and 3 tokens: with the ends 15 tokens. */
static const int32_t tokens[] = {1, 2, END, 3, END, 4, 5,  6,
                                 7, 8, END, 1, 3,   5, END};

static void write_small(char path[PATH_BYTES], char directory[PATH_BYTES])
{
    struct token_writer writer;
    int first = 0;

    test_directory(directory);
    IS_OK(path_join(path, PATH_BYTES, directory, "a.tokens"));
    IS_OK(token_writer_open(&writer, path, 10, END, "abc", NULL));
    for (int i = 0; i < ROWS(tokens); i++) {
        if (tokens[i] != END) continue;
        IS_OK(token_writer_add(&writer, tokens + first, i - first, i - first));
        first = i + 1;
    }
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
}

struct sample {
    int32_t inputs[SEQUENCE], targets[SEQUENCE], positions[SEQUENCE],
        documents[SEQUENCE];
};

static void take(struct loader *loader, int64_t index,
                 struct sample *sample)
{
    IS_OK(loader_sample(loader, index, sample->inputs, sample->targets,
                        sample->positions, sample->documents));
    for (int t = 0; t < SEQUENCE; t++)
        EQUAL_INT(sample->documents[t], t - sample->positions[t]);
}

TEST(samples_are_cut_from_all_tokens)
{
    static const struct sample expected[] = {
        {{1, 2, END, 3}, {2, END, -1, END}, {0, 1, 2, 0}, {0, 0, 0, 3}},
        {{END, 4, 5, 6}, {-1, 5, 6, 7}, {0, 0, 1, 2}, {0, 1, 1, 1}},
        {{7, 8, END, 1}, {8, END, -1, 3}, {0, 1, 2, 0}, {0, 0, 0, 3}},
    };
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct loader loader;
    struct sample sample;

    write_small(path, directory);
    IS_OK(loader_open(&loader, &(struct loader_request){
                                   .paths = (const char *[]){path},
                                   .path_count = 1, .sequence = SEQUENCE,
                                   .seed = 1, .tokenizer = "abc",
                                   .vocab = 10}));
    EQUAL_INT(loader.samples, 3); /* 15 tokens: 3 samples, one target more */
    EQUAL_INT(loader.dropped, 2);
    for (int i = 0; i < 3; i++) {
        take(&loader, i, &sample);
        EQUAL_BYTES(&sample, &expected[i], sizeof sample);
    }
    loader_close(&loader);
    IS_OK(directory_remove(directory));
}

TEST(joined_documents_mask_nothing)
{
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct loader loader;
    struct sample sample;

    write_small(path, directory);
    IS_OK(loader_open(&loader, &(struct loader_request){
                                   .paths = (const char *[]){path},
                                   .path_count = 1, .sequence = SEQUENCE,
                                   .joined = true}));
    for (int i = 0; i < 3; i++) {
        take(&loader, i, &sample);
        for (int t = 0; t < SEQUENCE; t++) {
            EQUAL_INT(sample.inputs[t], tokens[i * SEQUENCE + t]);
            EQUAL_INT(sample.targets[t], tokens[i * SEQUENCE + t + 1]);
            EQUAL_INT(sample.positions[t], t);
            EQUAL_INT(sample.documents[t], 0);
        }
    }
    loader_close(&loader);
    IS_OK(directory_remove(directory));
}

/* Documents 0 to 199 of one token, their number, each. */
static void write_many(char path[PATH_BYTES], char directory[PATH_BYTES])
{
    struct token_writer writer;

    test_directory(directory);
    IS_OK(path_join(path, PATH_BYTES, directory, "b.tokens"));
    IS_OK(token_writer_open(&writer, path, 70000, 200, NULL, NULL));
    for (int32_t i = 0; i < 200; i++)
        IS_OK(token_writer_add(&writer, &i, 1, 1));
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
}

TEST(each_epoch_takes_every_sample_once_in_its_own_order)
{
    char path[PATH_BYTES], directory[PATH_BYTES];
    int seen[200] = {0}, moved = 0;
    struct loader loader;
    struct sample sample;

    write_many(path, directory);
    IS_OK(loader_open(&loader, &(struct loader_request){
                                   .paths = (const char *[]){path},
                                   .path_count = 1, .sequence = SEQUENCE,
                                   .seed = 7, .shuffled = true}));
    EQUAL_INT(loader.set.files[0].bytes_per_token, 4);
    EQUAL_INT(loader.samples, 99);
    for (int64_t i = 0; i < 3 * loader.samples; i++) {
        struct sample again;
        int32_t first;

        take(&loader, i, &sample);
        take(&loader, i, &again); /* a pure function of the index */
        EQUAL_BYTES(&sample, &again, sizeof sample);
        first = sample.inputs[0];
        EQUAL_INT(seen[first], i / loader.samples);
        seen[first]++;
        moved += first != 2 * (i % loader.samples);
    }
    CHECK(moved > 200);
    loader_close(&loader);
    IS_OK(directory_remove(directory));
}

TEST(a_split_parts_the_documents)
{
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct loader train, valid;
    struct loader_request request = {.sequence = SEQUENCE, .seed = 3,
                                     .share = SHARE_TRAIN,
                                     .valid_share = 0.25};
    int in_valid[201] = {0};
    struct loader_fragment fragment;
    struct sample sample;
    int64_t count;

    write_many(path, directory);
    request.paths = (const char *[]){path};
    request.path_count = 1;
    IS_OK(loader_open(&train, &request));
    request.share = SHARE_VALID;
    IS_OK(loader_open(&valid, &request));
    EQUAL_INT(train.documents + valid.documents, 200);
    EQUAL_INT(train.tokens + valid.tokens, 400);
    CHECK(valid.documents > 30 && valid.documents < 70);
    for (int64_t i = 0; i < valid.samples; i++) {
        take(&valid, i, &sample);
        for (int t = 0; t < SEQUENCE; t += 2) in_valid[sample.inputs[t]] = 1;
    }
    for (int64_t i = 0; i < train.samples; i++) {
        take(&train, i, &sample);
        for (int t = 0; t < SEQUENCE; t += 2)
            EQUAL_INT(in_valid[sample.inputs[t]], 0);
    }
    loader_close(&train);
    loader_close(&valid);
    request.share = SHARE_TRAIN; /* whatever the coins say */
    for (request.seed = 1; request.seed <= 100; request.seed++) {
        IS_OK(loader_open(&train, &request));
        IS_OK(loader_fragments(&train, 0, 1, &fragment, &count));
        EQUAL_INT(fragment.document, 0);
        loader_close(&train);
    }
    IS_OK(directory_remove(directory));
}

TEST(what_cannot_be_trained_on_is_refused)
{
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct loader loader;
    struct loader_request request = {.sequence = SEQUENCE};

    write_small(path, directory);
    request.paths = (const char *[]){path};
    request.path_count = 1;
    request.tokenizer = "abd";
    FAILS(loader_open(&loader, &request), ERR_CONFIG, "another tokenizer");
    loader_close(&loader);
    status_clear();
    request.tokenizer = NULL;
    request.vocab = 9;
    FAILS(loader_open(&loader, &request), ERR_CONFIG, "has ids below 10");
    loader_close(&loader);
    status_clear();
    request.vocab = 10;
    request.sequence = 15;
    FAILS(loader_open(&loader, &request), ERR_CONFIG,
          "15 tokens in 4 documents are too few");
    loader_close(&loader);
    IS_OK(directory_remove(directory));
}

TEST(best_fit_keeps_documents_whole)
{
    /* Documents of 3, 2, 6 and 4 tokens: 8 of padding would be 3 samples. */
    static const struct sample expected[] = {
        {{4, 5, 6, 7}, {5, 6, 7, 8}, {0, 1, 2, 3}, {0, 0, 0, 0}},
        {{1, 3, 5, END}, {3, 5, END, -1}, {0, 1, 2, 3}, {0, 0, 0, 0}},
        {{1, 2, END, END}, {2, END, -1, -1}, {0, 1, 2, 0}, {0, 0, 0, 3}},
        {{3, END, 8, END}, {END, -1, END, -1}, {0, 1, 0, 1}, {0, 0, 2, 2}},
    };
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct loader loader;
    struct sample sample;

    write_small(path, directory);
    IS_OK(loader_open(&loader, &(struct loader_request){
                                   .paths = (const char *[]){path},
                                   .path_count = 1, .sequence = SEQUENCE,
                                   .best_fit = true, .vocab = 10}));
    EQUAL_INT(loader.samples, 4);
    EQUAL_INT(loader.pack.padding, 1);
    for (int i = 0; i < 4; i++) {
        take(&loader, i, &sample);
        EQUAL_BYTES(&sample, &expected[i], sizeof sample);
    }
    loader_close(&loader);
    IS_OK(directory_remove(directory));
}

TEST(several_files_follow_each_other)
{
    char path[PATH_BYTES], directory[PATH_BYTES];
    const char *paths[] = {path, path, path};
    struct loader loader, one;
    struct loader_fragment fragments[SEQUENCE];
    struct sample sample, again;
    int64_t count;

    write_small(path, directory);
    IS_OK(loader_open(&loader, &(struct loader_request){
                                   .paths = paths, .path_count = 3,
                                   .sequence = SEQUENCE, .joined = true}));
    EQUAL_INT(loader.set.tokens, 45);
    EQUAL_INT(loader.set.documents, 12);
    for (int i = 0; i < loader.samples; i++) {
        take(&loader, i, &sample);
        for (int t = 0; t < SEQUENCE; t++) {
            EQUAL_INT(sample.inputs[t], tokens[(i * SEQUENCE + t) % 15]);
            EQUAL_INT(sample.targets[t], tokens[(i * SEQUENCE + t + 1) % 15]);
        }
    }
    IS_OK(loader_fragments(&loader, 3, SEQUENCE, fragments, &count));
    EQUAL_INT(count, 2); /* the end of the last document, the first again */
    EQUAL_INT(fragments[0].document, 3);
    EQUAL_INT(fragments[0].offset, 1);
    EQUAL_INT(fragments[1].document, 4);
    EQUAL_INT(fragments[1].count, 1);
    IS_OK(loader_open(&one, &(struct loader_request){
                                .paths = paths, .path_count = 1,
                                .sequence = SEQUENCE, .joined = true}));
    take(&one, 0, &sample);
    take(&loader, 0, &again);
    EQUAL_BYTES(&sample, &again, sizeof sample);
    loader_close(&one);
    loader_close(&loader);
    IS_OK(directory_remove(directory));
}

TEST(a_mask_says_what_is_learned)
{
    static const int32_t ids[] = {1, 2, 3, 4};
    static const bool learned[] = {false, true, false, true};
    static const int32_t targets[] = {8, END, -1, 2, -1, 4, END, -1};
    char path[PATH_BYTES], directory[PATH_BYTES];
    struct token_writer writer;
    struct loader loader;
    int32_t out[4][8];

    test_directory(directory);
    IS_OK(path_join(path, PATH_BYTES, directory, "a.tokens"));
    IS_OK(token_writer_open(&writer, path, 10, END, NULL, NULL));
    IS_OK(token_writer_add(&writer, (const int32_t[]){7, 8}, 2, 2));
    IS_OK(token_writer_add_masked(&writer, ids, learned, 4, 4));
    IS_OK(token_writer_add(&writer, (const int32_t[]){7}, 1, 2));
    IS_OK(token_writer_close(&writer));
    token_writer_free(&writer);
    IS_OK(loader_open(&loader, &(struct loader_request){
                                   .paths = (const char *[]){path},
                                   .path_count = 1, .sequence = 8}));
    IS_OK(loader_sample(&loader, 0, out[0], out[1], out[2], out[3]));
    for (int t = 0; t < 8; t++) EQUAL_INT(out[1][t], targets[t]);
    loader_close(&loader);
    IS_OK(directory_remove(directory));
}

TEST_MAIN(samples_are_cut_from_all_tokens, joined_documents_mask_nothing,
          each_epoch_takes_every_sample_once_in_its_own_order,
          a_split_parts_the_documents, what_cannot_be_trained_on_is_refused,
          best_fit_keeps_documents_whole, several_files_follow_each_other,
          a_mask_says_what_is_learned)
