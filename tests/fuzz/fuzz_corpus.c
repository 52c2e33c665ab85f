/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_corpus.c - can a file of documents hurt us? The first byte of the input
 * says what is read, the rest is the file: its lines, packed or not; text,
 * mapped and line by line, which must be the same documents; packed text; JSON
 * lines with texts, ids or conversations; Parquet. */
#include <stdio.h>
#include "base/arena.h"
#include "corpus/byte_source.h"
#include "corpus/chat.h"
#include "corpus/corpus.h"
#include "tests/fuzz/grammar.h"
#include "tests/fuzz/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORK_MAX = 1 << 24 }; /* bytes: what is packed may be a bomb */

static void read_stream(const uint8_t *data, size_t size)
{
    struct line_reader reader = {0};
    struct text line = {0};
    size_t work = 0;
    bool there = true;
    FILE *file = fmemopen((void *)(uintptr_t)data, size, "rb");

    if (file != NULL && line_reader_begin(&reader, file, "fuzz") == OK)
        while (there && work < WORK_MAX &&
               line_reader_next(&reader, &line, &there) == OK)
            work += line.length + 1;
    line_reader_close(&reader);
    text_free(&line);
}

/* Sums over all documents of a file. */
struct seen {
    int64_t documents, bytes;
    uint64_t hash;
    int64_t last; /* where in the file the last one began */
    int64_t at;
};

static status take(void *context, const struct corpus_document *document)
{
    struct seen *seen = context;
    size_t length = 0;

    CHECK(seen->at >= seen->last);
    CHECK((document->length > 0) == (document->text != NULL));
    CHECK((document->id_count > 0) == (document->ids != NULL));
    CHECK(document->length > 0 || document->id_count > 0);
    for (int i = 0; i < document->segment_count; i++)
        length += document->segments[i].length;
    CHECK(document->segment_count == 0 || length == document->length);
    for (int64_t i = 0; i < document->id_count; i++)
        CHECK(document->ids[i] >= 0);
    if (document->text != NULL) {
        size_t bad;

        CHECK(!text_utf8_invalid(document->text, document->length, &bad));
        for (size_t i = 0; i < document->length; i++)
            seen->hash = (seen->hash ^ (unsigned char)document->text[i]) *
                         0x100000001B3u; /* FNV-1a */
        seen->hash ^= document->length;
    }
    seen->last = seen->at;
    seen->documents++;
    seen->bytes += (int64_t)document->length + document->id_count;
    return seen->bytes > WORK_MAX ? ERR_STOPPED : OK;
}

/* The documents of scratch/name, which holds the input. */
static status read_file(const char *name, const char *field, bool chat,
                        struct seen *seen)
{
    struct corpus_format format = {.field = field};
    struct corpus corpus;
    char path[PATH_BYTES];
    const char *sources[] = {path};
    status result;

    *seen = (struct seen){0};
    if (chat) CHECK(chat_find("chatml", &format.chat) == OK);
    CHECK(path_join(path, PATH_BYTES, scratch, name) == OK);
    CHECK(corpus_open(&corpus, sources, 1) == OK && corpus.count == 1);
    result = corpus_read(&corpus.files[0], &format, take, seen, &seen->at);
    CHECK((result == OK) <= (seen->documents > 0));
    status_clear();
    corpus_close(&corpus);
    return result;
}

/* A file that is not packed gives the same documents under both names. */
static void read_text(const uint8_t *data, size_t size)
{
    struct seen mapped, streamed;
    status first, second;

    scratch_put("a.txt", data, size);
    scratch_put("a.txt.gz", data, size);
    first = read_file("a.txt", "text", false, &mapped);
    second = read_file("a.txt.gz", "text", false, &streamed);
    if (size > 0 && (data[0] == 0x1F || data[0] == 0x28 ||
                     (data[0] & 0xF0) == 0x50)) return; /* may be packed */
    CHECK(first == second);
    if (first != OK) return;
    CHECK(mapped.documents == streamed.documents);
    CHECK(mapped.bytes == streamed.bytes && mapped.hash == streamed.hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen seen;

    if (size < 2) return 0;
    (void)scratch_make();
    size--;
    switch (*data++ % 6) {
    case 0: read_stream(data, size); break;
    case 1: read_text(data, size); break;
    case 2:
        scratch_put("a.txt.zst", data, size);
        (void)read_file("a.txt.zst", "text", false, &seen);
        break;
    case 3:
        scratch_put("a.jsonl", data, size);
        (void)read_file("a.jsonl", "text", false, &seen);
        break;
    case 4:
        scratch_put("a.jsonl.gz", data, size);
        (void)read_file("a.jsonl.gz", "text", true, &seen);
        break;
    default:
        scratch_put("a.parquet", data, size);
        (void)read_file("a.parquet", "text", false, &seen);
        break;
    }
    status_clear();
    CHECK(arena_bytes_out() == 0);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "text", "ids", "messages", "prompt", "completion", "conversations", "role",
    "content", "from", "value", "user", "assistant", "human", "gpt", "system",
    "<|endoftext|>", NULL};
static const struct grammar records = {jsonl_grammar_read, jsonl_grammar_write,
                                       words};
static const struct grammar lines = {words_grammar_read, words_grammar_write,
                                     words};

/* fuzz_parquet.c changes Parquet by its own form. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    if (size == 0 || data[0] % 6 == 5)
        return LLVMFuzzerMutate(data, size, room);
    return mutate_packed(data[0] % 6 >= 3 ? &records : &lines, data, size, room,
                         1);
}
