/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_storage.c - can an answer of a storage, or the name of one, hurt us?
 * Every element that is found lies in the answer and fits its buffer. */
#include <string.h>
#include "checkpoint/s3_text.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void find_all(const char *xml, size_t size, const char *tag)
{
    char out[64];
    const char *inside;
    size_t at = 0, before = 0, length;

    while (s3_inside(xml, size, tag, &at, &inside, &length)) {
        CHECK(at > before && at <= size && length <= size);
        CHECK(inside >= xml && inside + length <= xml + at);
        before = at;
    }
    at = before = 0;
    while (s3_element(xml, size, tag, &at, out, sizeof out)) {
        CHECK(at > before && at <= size);
        CHECK(strlen(out) < sizeof out);
        before = at;
    }
}

static void read_name(const char *text)
{
    struct s3_place place;
    char encoded[3 * S3_PREFIX_BYTES];

    if (s3_place_parse(&place, text) != OK) {
        status_clear();
        return;
    }
    CHECK(strstr(place.prefix, "..") == NULL && place.prefix[0] != '/');
    CHECK(s3_encode(place.prefix, encoded, sizeof encoded));
    CHECK(strspn(encoded, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVW"
                          "XYZ0123456789-._~%") == strlen(encoded));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const tags[] = {"Key", "UploadId", "IsTruncated",
                                       "NextContinuationToken", "Code",
                                       "Upload", "Part"};
    char text[700];
    const size_t some = size < sizeof text - 1 ? size : sizeof text - 1;

    for (int i = 0; i < 7; i++) find_all((const char *)data, size, tags[i]);
    memcpy(text, data, some);
    text[some] = '\0';
    read_name(text);
    return 0;
}

/* ---- the mutator ---- */

static const char *const marks[] = {"<Key>", "</Key>", "&amp;", "&lt;",
                                    "<UploadId>", "</UploadId>", "s3://",
                                    "<Code>", "</Code>", "<Upload>",
                                    "</Upload>", "<Part>", "</Part>", NULL};
static const struct grammar words = {words_grammar_read, words_grammar_write,
                                     marks};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&words, data, size, room, 0);
}
