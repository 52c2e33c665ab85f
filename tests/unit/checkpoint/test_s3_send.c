/* SPDX-License-Identifier: Apache-2.0 */
/* test_s3_send.c - mirrors src/checkpoint/s3_send.c: a server of scripted
 * answers says which requests a file takes. */
#include "tests/unit/checkpoint/s3_server.h"

/* ---- what is sent ---- */

static void fill(void)
{
    for (int64_t i = 0; i < LENGTH; i++) bytes[i] = (char)(i * 7 + i / 251);
}

static status send_file(bool there)
{
    char room[PATH_BYTES], path[PATH_BYTES];
    struct s3 *s3;
    status result;

    fill();
    test_directory(room);
    IS_OK(path_join(path, sizeof path, room, "big"));
    IS_OK(file_write_atomic(path, bytes, LENGTH));
    IS_OK(s3_open(&s3, "s3://models/run"));
    result = s3_put_file(s3, "big", path, LENGTH, there);
    s3_close(s3);
    CHECK(directory_remove(room) == OK);
    return result;
}

#define LIST "GET /models?prefix=run%2Fbig&uploads= "
#define PARTS "GET /models/run/big?part-number-marker="
#define BEGIN "POST /models/run/big?uploads= "
#define PART(n) "PUT /models/run/big?partNumber=" #n "&uploadId=U%2F1 "
#define COMPLETE "POST /models/run/big?uploadId=U%2F1 "
#define DROP "DELETE /models/run/big?uploadId=U%2F1 "
#define BACK "GET /models/run/big "
#define BEGUN {LIST, 200, "<None/>"}, \
    {BEGIN, 200, "<UploadId>U/1</UploadId>"}, {PART(1), 200, ""}, \
    {PART(2), 200, ""}, {PART(3), 200, ""}

TEST(an_interrupted_upload_goes_on_where_it_stopped)
{
    static char parts[2][512];
    const struct turn turns[] = {
        {LIST, 200, "<Upload><Key>run/bigger</Key><UploadId>N</UploadId>"
                    "</Upload><Upload><Key>run/big</Key><UploadId>U/1"
                    "</UploadId></Upload>"},
        {PARTS "0&uploadId=U%2F1 ", 200, parts[0]},
        {PARTS "1&uploadId=U%2F1 ", 200, parts[1]},
        {PART(2), 200, ""}, {PART(3), 200, ""}, {COMPLETE, 200, "<Done/>"},
        {BACK, 200, NULL}};
    char hash[33];

    if (no_library()) return;
    fill();
    md5_hex(bytes, S3_PART_BYTES, hash);
    snprintf(parts[0], sizeof parts[0], "<IsTruncated>true</IsTruncated><Part>"
             "<PartNumber>1</PartNumber><ETag>&quot;%s&quot;</ETag></Part>",
             hash);
    snprintf(parts[1], sizeof parts[1], "<IsTruncated>false</IsTruncated><Part>"
             "<PartNumber>2</PartNumber><ETag>&quot;%s&quot;</ETag></Part>"
             "<Part><PartNumber>9</PartNumber><ETag>x</ETag></Part>", hash);
    RUN(turns);
    IS_OK(send_file(false));
    stop();
}

TEST(an_error_in_an_answer_200_is_repeated)
{
    const struct turn turns[] = {
        BEGUN, {COMPLETE, 200, "<?xml?>\n<Error><Code>InternalError</Code>"
                               "</Error>"},
        {COMPLETE, 200, "<Done/>"}, {BACK, 200, NULL}};

    if (no_library()) return;
    RUN(turns);
    IS_OK(send_file(false));
    stop();
}

TEST(a_lost_answer_is_no_failure_where_the_file_is_whole)
{
    const struct turn turns[] = {
        BEGUN, {COMPLETE, 500, ""},
        {COMPLETE, 404, "<Error><Code>NoSuchUpload</Code></Error>"},
        {BACK, 200, NULL}, {BACK, 200, NULL}};

    if (no_library()) return;
    RUN(turns);
    IS_OK(send_file(false));
    stop();
}

TEST(bytes_that_come_back_wrong_are_read_again_then_sent_again)
{
    const struct turn turns[] = {
        BEGUN, {COMPLETE, 200, "<Done/>"}, {BACK, 200, "wrong"},
        {BACK, 200, "wrong"}, BEGUN, {COMPLETE, 200, "<Done/>"},
        {BACK, 200, "wrong"}, {BACK, 200, NULL}};

    if (no_library()) return;
    RUN(turns);
    IS_OK(send_file(false));
    stop();
}

TEST(an_upload_that_was_ended_is_begun_anew_once)
{
    const struct turn turns[] = {
        BEGUN, {COMPLETE, 404, ""}, {BACK, 200, "something older"},
        {BEGIN, 200, "<UploadId>U/1</UploadId>"}, {PART(1), 200, ""},
        {PART(2), 200, ""}, {PART(3), 200, ""}, {COMPLETE, 404, ""}};

    if (no_library()) return;
    RUN(turns);
    FAILS(send_file(false), ERR_MISSING, "404");
    stop();
}

TEST(an_upload_that_is_refused_is_removed)
{
    const struct turn turns[] = {
        {LIST, 403, ""}, {BEGIN, 200, "<UploadId>U/1</UploadId>"},
        {PART(1), 200, ""}, {PART(2), 403, ""}, {DROP, 204, ""}};

    if (no_library()) return;
    RUN(turns);
    FAILS(send_file(false), ERR_CONFIG, "403");
    stop();
}

TEST(an_object_that_is_there_is_not_sent_again)
{
    const struct turn same[] = {{BACK, 200, NULL}};
    const struct turn other[] = {{BACK, 404, ""}, BEGUN,
                                 {COMPLETE, 200, "<Done/>"}, {BACK, 200, NULL}};

    if (no_library()) return;
    RUN(same);
    IS_OK(send_file(true));
    stop();
    RUN(other);
    IS_OK(send_file(true));
    stop();
}

static bool is_ours(const void *argument, const char *key)
{
    (void)argument;
    return strcmp(key, "old") == 0;
}

TEST(uploads_that_nobody_goes_on_with_are_removed)
{
    const struct turn turns[] = {
        {"GET /models?prefix=run%2F&uploads= ", 200,
         "<Upload><Key>run/old</Key><UploadId>a&amp;b</UploadId></Upload>"
         "<Upload><Key>run/new</Key><UploadId>c</UploadId></Upload>"
         "<Upload><Key>else</Key><UploadId>d</UploadId></Upload>"},
        {"DELETE /models/run/old?uploadId=a%26b ", 204, ""}};
    struct s3 *s3;

    if (no_library()) return;
    RUN(turns);
    IS_OK(s3_open(&s3, "s3://models/run"));
    IS_OK(s3_drop_uploads(s3, is_ours, NULL));
    s3_close(s3);
    stop();
}

TEST_MAIN(bytes_that_come_back_wrong_are_read_again_then_sent_again,
          an_interrupted_upload_goes_on_where_it_stopped,
          an_error_in_an_answer_200_is_repeated,
          a_lost_answer_is_no_failure_where_the_file_is_whole,
          an_upload_that_was_ended_is_begun_anew_once,
          an_upload_that_is_refused_is_removed,
          an_object_that_is_there_is_not_sent_again,
          uploads_that_nobody_goes_on_with_are_removed)
