/* SPDX-License-Identifier: Apache-2.0 */
/* test_s3.c - mirrors src/checkpoint/s3.c: what is put only where nothing has
 * changed since. */
#include "tests/unit/checkpoint/s3_server.h"

#define PUT_KEY "PUT /models/run/name "
#define GET_KEY "GET /models/run/name "
#define TAG "\"5d41-2\""
#define PUT_NEW PUT_KEY "\nIf-None-Match: *\r\n"
#define PUT_SAME PUT_KEY "\nIf-Match: \"5d41-2\"\r\n"
#define PUT_ANY PUT_KEY "\nContent-Length: 3\r\n"

static status put_if(const char *etag, bool *put)
{
    struct text text = {0};
    struct s3 *s3;
    status result;

    IS_OK(text_append_string(&text, "who"));
    IS_OK(s3_open(&s3, "s3://models/run"));
    result = s3_put_if(s3, "name", &text, etag, put);
    s3_close(s3);
    text_free(&text);
    return result;
}

TEST(a_condition_is_met_or_not)
{
    static const struct {
        const char *etag;
        struct turn turns[3];
        int count;
        bool put;
    } rows[] = {
        {NULL, {{PUT_NEW, 200, ""}}, 1, true},
        {NULL, {{PUT_NEW, 412, ""}}, 1, false},
        {NULL, {{PUT_NEW, 409, ""}}, 1, false},
        {TAG, {{PUT_SAME, 200, ""}}, 1, true},
        {TAG, {{PUT_SAME, 412, ""}}, 1, false},
        {TAG, {{PUT_SAME, 404, ""}}, 1, false},
        /* An answer that was lost: this was put, or another was. */
        {NULL, {{PUT_NEW, 500, ""}, {PUT_NEW, 412, ""}}, 2, false},
        /* Storages that refuse conditions. */
        {NULL, {{PUT_NEW, 501, ""}, {PUT_ANY, 200, ""}}, 2, true},
        {TAG, {{PUT_SAME, 400, ""}, {PUT_ANY, 200, ""}}, 2, true},
        /* Tags that say nothing of bytes. */
        {"W/" TAG, {{PUT_ANY, 200, ""}}, 1, true},
        {"", {{PUT_ANY, 200, ""}}, 1, true},
        {"\"a\"b\"", {{PUT_ANY, 200, ""}}, 1, true},
    };

    if (no_library()) return;
    for (int i = 0; i < ROWS(rows); i++) {
        bool put = !rows[i].put;

        start(rows[i].turns, rows[i].count);
        IS_OK(put_if(rows[i].etag, &put));
        stop();
        CHECK(put == rows[i].put);
    }
}

TEST(what_is_refused_without_conditions_is_refused)
{
    const struct turn turns[] = {
        {PUT_NEW, 403, "<Error><Code>AccessDenied</Code></Error>"}};
    const struct turn both[] = {
        {PUT_NEW, 400, ""},
        {PUT_ANY, 400, "<Error><Code>InvalidRequest</Code></Error>"}};
    bool put;

    if (no_library()) return;
    RUN(turns);
    FAILS(put_if(NULL, &put), ERR_CONFIG, "AccessDenied");
    stop();
    RUN(both);
    FAILS(put_if(NULL, &put), ERR_CONFIG, "InvalidRequest");
    stop();
}

TEST(the_tag_of_an_object_comes_with_it)
{
    const struct turn turns[] = {
        {GET_KEY, 200, "who"}, {GET_KEY, 200, "somebody else"},
        {GET_KEY, 404, "<Error><Code>NoSuchKey</Code></Error>"}};
    char etag[S3_ETAG_BYTES];
    struct text text = {0};
    struct s3 *s3;

    if (no_library()) return;
    RUN(turns);
    IS_OK(s3_open(&s3, "s3://models/run"));
    IS_OK(s3_get_tagged(s3, "name", 8, &text, etag));
    EQUAL_TEXT(text.bytes, "who");
    EQUAL_TEXT(etag, "\"e0\"");
    FAILS(s3_get_tagged(s3, "name", 8, &text, etag), ERR_FORMAT, "more than 8");
    EQUAL_TEXT(etag, "\"e1\"");
    FAILS(s3_get_tagged(s3, "name", 8, &text, etag), ERR_MISSING, "NoSuchKey");
    s3_close(s3);
    text_free(&text);
    stop();
}

TEST_MAIN(a_condition_is_met_or_not,
          what_is_refused_without_conditions_is_refused,
          the_tag_of_an_object_comes_with_it)
