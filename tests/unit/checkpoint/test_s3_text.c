/* SPDX-License-Identifier: Apache-2.0 */
/* test_s3_text.c - mirrors src/checkpoint/s3_text.c. */
#include <string.h>
#include "checkpoint/s3_text.h"
#include "tests/test.h"

static bool is_refused(const char *url)
{
    struct s3_place place;
    const status result = s3_place_parse(&place, url);

    status_clear();
    return result == ERR_CONFIG;
}

TEST(places_are_a_bucket_and_a_prefix)
{
    struct s3_place place;
    char longer[600] = "s3://models/";

    IS_OK(s3_place_parse(&place, "s3://my-models.2/runs/a_b/"));
    CHECK(strcmp(place.bucket, "my-models.2") == 0);
    CHECK(strcmp(place.prefix, "runs/a_b") == 0);
    IS_OK(s3_place_parse(&place, "s3://models"));
    CHECK(strcmp(place.bucket, "models") == 0 && place.prefix[0] == '\0');
    IS_OK(s3_place_parse(&place, "s3://models/"));
    CHECK(place.prefix[0] == '\0');
    memset(longer + 12, 'a', sizeof longer - 13);
    CHECK(is_refused(longer));
    CHECK(is_refused("s3://") && is_refused("s3:/models/a"));
    CHECK(is_refused("s3://ab/c") && is_refused("s3://Models/c"));
    CHECK(is_refused("s3://models/a//b") && is_refused("s3://models//b"));
    CHECK(is_refused("s3://models/a b") && is_refused("s3://models/../b"));
    CHECK(is_refused("s3://models/a?b") && is_refused("s3://models/a%41"));
}

TEST(queries_are_encoded_or_refused)
{
    char out[16];

    CHECK(s3_encode("a/b+c=~", out, sizeof out));
    CHECK(strcmp(out, "a%2Fb%2Bc%3D~") == 0);
    CHECK(s3_encode("\xff", out, sizeof out) && strcmp(out, "%FF") == 0);
    CHECK(s3_encode("123456789012345", out, sizeof out));
    CHECK(!s3_encode("1234567890123456", out, sizeof out));
    CHECK(!s3_encode("12345678901234/", out, sizeof out));
}

static bool next(const char *xml, const char *tag, size_t *at, char *out,
                 size_t size)
{
    return s3_element(xml, strlen(xml), tag, at, out, size);
}

TEST(elements_are_found_in_turn)
{
    const char *xml = "<a><Key>x/1</Key><Keys>no</Keys><Key>a &amp;amp; b"
                      "</Key><Key></Key><Key>open";
    char out[16];
    size_t at = 0;

    CHECK(next(xml, "Key", &at, out, sizeof out) && !strcmp(out, "x/1"));
    CHECK(next(xml, "Key", &at, out, sizeof out) && !strcmp(out, "a &amp; b"));
    CHECK(next(xml, "Key", &at, out, sizeof out) && !strcmp(out, ""));
    CHECK(!next(xml, "Key", &at, out, sizeof out));
    at = 0;
    CHECK(!next(xml, "Key", &at, out, 3)); /* too long for it */
    at = strlen(xml) + 1;
    CHECK(!next(xml, "Key", &at, out, sizeof out));
    at = 0;
    CHECK(!s3_element("<K>\0</K>", 8, "K", &at, out, sizeof out));
}

TEST_MAIN(places_are_a_bucket_and_a_prefix, queries_are_encoded_or_refused,
          elements_are_found_in_turn)
