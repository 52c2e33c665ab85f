/* SPDX-License-Identifier: Apache-2.0 */
/* test_prepare.c - mirrors src/corpus/prepare.c: made once, found again, made
 * anew when anything changes; the same file whatever the threads. */
#include "corpus/prepare.h"

#include "data/token_file.h"
#include "tests/test.h"

struct room {
    char directory[PATH_BYTES], source[PATH_BYTES], cache[PATH_BYTES];
    const char *sources[1];
    struct tokenizer tokenizer;
    struct data_request request;
    int calls; /* of progress: something was made */
};

static void count_call(void *argument, double done, double total)
{
    CHECK(done <= total);
    (*(int *)argument)++;
}

static void put(const struct room *room, const char *text)
{
    IS_OK(file_write_atomic(room->source, text, strlen(text)));
}

static void room_make(struct room *room)
{
    *room = (struct room){0};
    test_directory(room->directory);
    IS_OK(path_join(room->source, PATH_BYTES, room->directory, "a.txt"));
    IS_OK(path_join(room->cache, PATH_BYTES, room->directory, "cache"));
    IS_OK(tokenizer_read(&room->tokenizer,
                         "tests/golden/tokenizer/llama3.json"));
    room->sources[0] = room->source;
    room->request = (struct data_request){
        .sources = room->sources, .source_count = 1,
        .format = {.field = "text"},
        .tokenizer = &room->tokenizer, .end_of_text = "",
        .cache = room->cache, .progress = count_call,
        .argument = &room->calls};
}

static void room_free(struct room *room)
{
    tokenizer_free(&room->tokenizer);
    IS_OK(directory_remove(room->directory));
}

/* The one token file that stands for the sources. */
static status prepare(const struct data_request *request,
                      char path[PATH_BYTES])
{
    struct data_parts parts;
    const status result = data_prepare(request, &parts);

    if (result == OK) {
        EQUAL_INT(parts.count, 1);
        snprintf(path, PATH_BYTES, "%s", parts.paths[0]);
    }
    data_parts_free(&parts);
    return result;
}

TEST(a_document_is_its_ids_and_the_end)
{
    struct room room;
    char path[PATH_BYTES];
    struct token_file file;
    struct token_list ids = {0};

    room_make(&room);
    put(&room, "The ships\n<|endoftext|>\nare many\n");
    IS_OK(prepare(&room.request, path));
    IS_OK(token_file_open(&file, path));
    EQUAL_INT(file.documents, 2);
    EQUAL_INT(file.text_bytes, 10 + 9);
    EQUAL_INT(file.vocab, 421);
    EQUAL_TEXT(file.tokenizer, room.tokenizer.digest);
    IS_OK(tokenizer_encode(&room.tokenizer, "The ships\n", 10, true, &ids));
    EQUAL_INT(token_file_start(&file, 1), ids.count + 1);
    for (int64_t i = 0; i < ids.count; i++)
        EQUAL_INT(token_file_at(&file, i), ids.ids[i]);
    EQUAL_INT(token_file_at(&file, ids.count), 0);
    token_file_close(&file);
    token_list_free(&ids);
    room_free(&room);
}

TEST(it_is_made_once_and_anew_after_a_change)
{
    struct room room;
    char path[PATH_BYTES], again[PATH_BYTES];
    struct text bytes;

    room_make(&room);
    put(&room, "The ships");
    IS_OK(prepare(&room.request, path));
    EQUAL_INT(room.calls, 1);
    IS_OK(prepare(&room.request, again));
    EQUAL_TEXT(again, path);
    EQUAL_INT(room.calls, 1); /* found */
    put(&room, "The shipz");
    IS_OK(prepare(&room.request, again));
    CHECK(strcmp(again, path) != 0);
    EQUAL_INT(room.calls, 2);
    /* A damaged one is made again. */
    IS_OK(file_read(again, 1 << 20, &bytes));
    bytes.bytes[193] ^= 1;
    IS_OK(file_write_atomic(again, bytes.bytes, bytes.length));
    text_free(&bytes);
    IS_OK(prepare(&room.request, path));
    EQUAL_TEXT(again, path);
    EQUAL_INT(room.calls, 3);
    room_free(&room);
}

TEST(threads_do_not_show)
{
    struct room room;
    char path[PATH_BYTES], again[PATH_BYTES];
    struct text text = {0}, one, three;
    struct threads *threads = NULL;

    room_make(&room);
    for (int i = 0; i < 3000; i++)
        IS_OK(text_printf(&text, "The keeper %d counts %d ships\n"
                                 "<|endoftext|>\n", i, i * i));
    put(&room, text.bytes);
    IS_OK(prepare(&room.request, path));
    IS_OK(file_read(path, 1 << 24, &one));
    IS_OK(threads_build(&threads, 3));
    room.request.threads = threads;
    IS_OK(directory_remove(room.cache));
    IS_OK(prepare(&room.request, again));
    IS_OK(file_read(again, 1 << 24, &three));
    EQUAL_INT(one.length, three.length);
    EQUAL_BYTES(one.bytes, three.bytes, one.length);
    threads_free(threads);
    text_free(&one);
    text_free(&three);
    text_free(&text);
    room_free(&room);
}

TEST(token_files_are_used_as_they_are)
{
    struct room room;
    char path[PATH_BYTES], moved[PATH_BYTES];
    struct data_parts parts;
    const char *both[2];

    room_make(&room);
    put(&room, "The ships");
    IS_OK(prepare(&room.request, path));
    room.sources[0] = path;
    IS_OK(prepare(&room.request, moved));
    EQUAL_TEXT(moved, path);
    both[0] = path;
    both[1] = room.source;
    room.request.sources = both;
    room.request.source_count = 2;
    IS_OK(data_prepare(&room.request, &parts));
    EQUAL_INT(parts.count, 2);
    EQUAL_TEXT(parts.paths[0], path);
    EQUAL_TEXT(parts.paths[1], path); /* the same text, found in the cache */
    data_parts_free(&parts);
    room_free(&room);
}

TEST(packed_lines_and_ids_are_documents_too)
{
    struct room room;
    char path[PATH_BYTES];
    struct token_file file;

    room_make(&room);
    IS_OK(path_join(room.source, PATH_BYTES, room.directory, "a.jsonl"));
    put(&room, "{\"text\": \"The ships\"}\n{\"text\": [5, 6, 0]}\n"
               "{\"text\": [7]}\n");
    IS_OK(prepare(&room.request, path));
    IS_OK(token_file_open(&file, path));
    EQUAL_INT(file.documents, 3);
    const int64_t at = token_file_start(&file, 1);

    EQUAL_INT(token_file_at(&file, at), 5);
    EQUAL_INT(token_file_start(&file, 2), at + 3); /* 0 is the end token */
    EQUAL_INT(token_file_at(&file, at + 3), 7);
    token_file_close(&file);
    room_free(&room);
}

TEST(bad_requests_leave_nothing_behind)
{
    struct room room;
    char path[PATH_BYTES], **names;
    int count = -1;

    room_make(&room);
    put(&room, "bad \xFF");
    FAILS(prepare(&room.request, path), ERR_FORMAT, "a.txt: not UTF-8");
    status_clear();
    IS_OK(directory_list(room.cache, &names, &count));
    EQUAL_INT(count, 0);
    directory_list_free(names, count);
    room.request.end_of_text = "</none>";
    FAILS(prepare(&room.request, path), ERR_CONFIG, "</none>");
    status_clear();
    room.request.tokenizer = NULL;
    FAILS(prepare(&room.request, path), ERR_CONFIG,
          "set tokenizer.from");
    room_free(&room);
}

TEST_MAIN(a_document_is_its_ids_and_the_end,
          it_is_made_once_and_anew_after_a_change, threads_do_not_show,
          token_files_are_used_as_they_are,
          packed_lines_and_ids_are_documents_too,
          bad_requests_leave_nothing_behind)
