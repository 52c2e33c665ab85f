/* SPDX-License-Identifier: Apache-2.0 */
/* encode_many.c - encodings of many texts by Lockstep, for comparisons.
 *
 *   encode_many TOKENIZER [repeat | places | decode] < TEXTS
 *
 * TEXTS is a run of texts, each after its length in bytes as a u32. Prints
 * the ids of each on a line; with `places`, after each id its characters
 * [start, stop) and the same in bytes; with `decode`, the text that the ids
 * stand for in hexadecimal; with `repeat`, encodes all of them so often and
 * prints the seconds of processor time of each round instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tokenizer/tokenizer.h"

/* The time of this process, so that others on the machine do not count. */
static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static status read_all(struct text *out)
{
    static char buffer[1 << 16];
    size_t count;

    while ((count = fread(buffer, 1, sizeof buffer, stdin)) > 0)
        TRY(text_append(out, buffer, count));
    return OK;
}

static status encode_all(const struct tokenizer *tokenizer,
                         const struct text *texts, struct token_list *ids,
                         bool print)
{
    for (size_t at = 0; at + 4 <= texts->length;) {
        uint32_t length;

        memcpy(&length, texts->bytes + at, 4);
        at += 4;
        ids->count = 0;
        TRY(tokenizer_encode(tokenizer, texts->bytes + at, length, true, ids));
        at += length;
        if (!print) continue;
        for (int64_t i = 0; i < ids->count; i++)
            printf(i > 0 ? " %d" : "%d", ids->ids[i]);
        putchar('\n');
    }
    return OK;
}

static status print_places(const struct tokenizer *tokenizer,
                           const struct text *texts, struct token_list *ids,
                           struct token_places *places)
{
    for (size_t at = 0; at + 4 <= texts->length;) {
        uint32_t length;

        memcpy(&length, texts->bytes + at, 4);
        at += 4;
        ids->count = places->count = 0;
        TRY(tokenizer_encode_places(tokenizer, texts->bytes + at, length, true,
                                    ids, places));
        CHECK(ids->count == places->count);
        at += length;
        for (int64_t i = 0; i < ids->count; i++) {
            const struct token_place *place = &places->items[i];

            printf("%s%d %lld %lld %lld %lld", i > 0 ? " " : "", ids->ids[i],
                   (long long)place->characters.start,
                   (long long)place->characters.stop,
                   (long long)place->bytes.start,
                   (long long)place->bytes.stop);
        }
        putchar('\n');
    }
    return OK;
}

static status print_text(const struct tokenizer *tokenizer,
                         const struct text *texts, struct token_list *ids,
                         struct text *back)
{
    for (size_t at = 0; at + 4 <= texts->length;) {
        uint32_t length;

        memcpy(&length, texts->bytes + at, 4);
        at += 4;
        ids->count = 0;
        back->length = 0;
        TRY(tokenizer_encode(tokenizer, texts->bytes + at, length, true, ids));
        TRY(tokenizer_decode(tokenizer, ids->ids, ids->count, back));
        at += length;
        for (size_t i = 0; i < back->length; i++)
            printf("%02x", (unsigned char)back->bytes[i]);
        putchar('\n');
    }
    return OK;
}

static status run(struct tokenizer *tokenizer, const char *path,
                  const char *mode, struct text *texts, struct token_list *ids)
{
    struct token_places places = {0};
    const int repeat = atoi(mode);

    TRY(tokenizer_read(tokenizer, path));
    TRY(read_all(texts));
    if (strcmp(mode, "decode") == 0) {
        struct text back = {0};
        const status result = print_text(tokenizer, texts, ids, &back);

        text_free(&back);
        return result;
    }
    if (strcmp(mode, "places") == 0) {
        const status result = print_places(tokenizer, texts, ids, &places);

        token_places_free(&places);
        return result;
    }
    if (repeat == 0) return encode_all(tokenizer, texts, ids, true);
    for (int i = 0; i < repeat; i++) {
        const double began = now_s();

        TRY(encode_all(tokenizer, texts, ids, false));
        printf("%.6f\n", now_s() - began);
    }
    return OK;
}

int main(int count, char **words)
{
    struct tokenizer tokenizer = {0};
    struct token_list ids = {0};
    struct text texts = {0};
    status result;

    if (count < 2) return 2;
    result =
        run(&tokenizer, words[1], count > 2 ? words[2] : "0", &texts, &ids);
    if (result != OK) status_print(result, stderr);
    text_free(&texts);
    token_list_free(&ids);
    tokenizer_free(&tokenizer);
    return result == OK ? 0 : 1;
}
