/* SPDX-License-Identifier: Apache-2.0 */
/* test_shards.c - mirrors src/corpus/shards.c: shards hold every document once;
 * a call that is killed anywhere and repeated leaves the same bytes; two calls
 * at once do not mix their shards. */
#include "corpus/shards.h"

#include <sys/wait.h>
#include "base/fault.h"
#include "data/token_file.h"
#include "tests/test.h"

enum { DOCUMENTS = 400 };

struct room {
    char directory[PATH_BYTES], source[PATH_BYTES], other[PATH_BYTES],
        shards[PATH_BYTES];
    const char *sources[2];
    struct tokenizer tokenizer;
    struct shards_request request;
};

static void room_make(struct room *room)
{
    struct text text = {0};

    *room = (struct room){0};
    test_directory(room->directory);
    IS_OK(path_join(room->source, PATH_BYTES, room->directory, "a.jsonl"));
    IS_OK(path_join(room->other, PATH_BYTES, room->directory, "b.jsonl"));
    IS_OK(path_join(room->shards, PATH_BYTES, room->directory, "shards"));
    for (int i = 0; i < DOCUMENTS; i++)
        IS_OK(text_printf(&text, "{\"text\": \"The %d ships of the keeper "
                                 "%d\"}\n", i, i * i));
    IS_OK(file_write_atomic(room->source, text.bytes, text.length));
    IS_OK(file_write_atomic(room->other, text.bytes, text.length));
    text_free(&text);
    IS_OK(tokenizer_read(&room->tokenizer,
                         "tests/golden/tokenizer/llama3.json"));
    room->sources[0] = room->source;
    room->sources[1] = room->other;
    room->request = (struct shards_request){
        .tokens = 2000,
        .data = {.sources = room->sources, .source_count = 2,
                 .format = {.field = "text"}, .tokenizer = &room->tokenizer,
                 .end_of_text = "", .cache = room->shards}};
}

static void room_free(struct room *room)
{
    tokenizer_free(&room->tokenizer);
    IS_OK(directory_remove(room->directory));
}

/* The bytes of all shards, one after the other. */
static int read_shards(const struct room *room, struct text *out)
{
    char **names, path[PATH_BYTES];
    int count, shards = 0;

    *out = (struct text){0};
    IS_OK(directory_list(room->shards, &names, &count));
    for (int i = 0; i < count; i++) {
        struct text one;

        CHECK(strstr(names[i], ".tmp-") == NULL);
        if (!text_ends_with(names[i], ".tokens")) continue;
        IS_OK(path_join(path, sizeof path, room->shards, names[i]));
        IS_OK(file_read(path, 1 << 24, &one));
        IS_OK(text_append(out, one.bytes, one.length));
        text_free(&one);
        shards++;
    }
    directory_list_free(names, count);
    return shards;
}

TEST(shards_hold_every_document_once)
{
    struct shards_result result;
    struct text bytes;
    struct room room;

    room_make(&room);
    IS_OK(shards_write(&room.request, &result));
    EQUAL_INT(result.documents, 2 * DOCUMENTS);
    EQUAL_INT(result.found, 0);
    CHECK(result.shards > 5);
    EQUAL_INT(read_shards(&room, &bytes), result.shards);
    text_free(&bytes);
    IS_OK(shards_write(&room.request, &result)); /* nothing left to do */
    EQUAL_INT(result.found, result.shards);
    EQUAL_INT(result.documents, 2 * DOCUMENTS);
    room.request.tokens = 3000;
    FAILS(shards_write(&room.request, &result), ERR_CONFIG,
          "other sources or settings");
    room_free(&room);
}

TEST(one_call_at_a_time_writes_a_directory)
{
    struct file_lock other = {0};
    struct shards_result result;
    char path[PATH_BYTES], half[PATH_BYTES], foreign[PATH_BYTES];
    struct room room;

    room_make(&room);
    IS_OK(directory_make(room.shards));
    IS_OK(path_join(path, sizeof path, room.shards, "lock"));
    IS_OK(path_join(half, sizeof half, room.shards,
                    "00000.tokens.tmp-1-0-0123456789abcdef"));
    IS_OK(path_join(foreign, sizeof foreign, room.shards,
                    "mine.tokens.tmp-1-0-0123456789abcdef"));
    IS_OK(file_write_atomic(foreign, "x", 1));
    IS_OK(file_lock_take(&other, path));
    IS_OK(file_write_atomic(half, "x", 1));
    FAILS(shards_write(&room.request, &result), ERR_CONFIG,
          "shards/lock: in use by process");
    CHECK(file_exists(half)); /* of the other call */
    file_lock_drop(&other);
    IS_OK(shards_write(&room.request, &result));
    CHECK(!file_exists(half));
    CHECK(file_exists(foreign)); /* who writes it takes no lock */
    EQUAL_INT(unlink(foreign), 0);
    EQUAL_INT(result.documents, 2 * DOCUMENTS);
    IS_OK(file_lock_take(&other, path)); /* finished: is read beside others */
    IS_OK(shards_write(&room.request, &result));
    EQUAL_INT(result.found, result.shards);
    file_lock_drop(&other);
    room_free(&room);
}

/* A child dies at the n-th visit of a fault point. */
static bool dies(const struct room *room, const char *fault)
{
    struct shards_result result;
    pid_t child = fork();
    int code;

    CHECK(child >= 0);
    if (child == 0) {
        IS_OK(fault_arm(fault));
        _exit(shards_write(&room->request, &result) != OK);
    }
    CHECK(waitpid(child, &code, 0) == child);
    return WIFSIGNALED(code);
}

TEST(a_killed_call_goes_on_to_the_same_bytes)
{
    static const char *const points[] = {"shards.count", "tokens.write"};
    struct shards_result result;
    struct text whole, again;
    struct room room;
    char fault[64];

    room_make(&room);
    IS_OK(shards_write(&room.request, &result));
    read_shards(&room, &whole);
    for (int p = 0; p < ROWS(points); p++)
        for (int visit = 1; visit <= result.shards; visit += 3) {
            IS_OK(directory_remove(room.shards));
            snprintf(fault, sizeof fault, "%s:%d:kill", points[p], visit);
            CHECK(dies(&room, fault));
            IS_OK(shards_write(&room.request, &result));
            EQUAL_INT(result.documents, 2 * DOCUMENTS);
            read_shards(&room, &again);
            EQUAL_INT(again.length, whole.length);
            EQUAL_BYTES(again.bytes, whole.bytes, whole.length);
            text_free(&again);
        }
    text_free(&whole);
    room_free(&room);
}

TEST_MAIN(shards_hold_every_document_once,
          one_call_at_a_time_writes_a_directory,
          a_killed_call_goes_on_to_the_same_bytes)
