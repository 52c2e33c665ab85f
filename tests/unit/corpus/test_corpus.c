/* SPDX-License-Identifier: Apache-2.0 */
/* test_corpus.c - mirrors src/corpus/corpus.c and corpus_read.c. */
#include "corpus/corpus.h"

#include <sys/resource.h>
#include <zlib.h>
#include "base/text.h"
#include "tests/sanitized.h"
#include "tests/test.h"

/* Its text is under this key, or its ids. */
static const char *field = "text";

/* A file in a fresh directory. */
static void put(const char *directory, const char *name, const char *bytes,
                size_t length)
{
    char path[PATH_BYTES];

    IS_OK(path_join(path, sizeof path, directory, name));
    IS_OK(file_write_atomic(path, bytes, length));
}

/* Documents joined by '|'. */
static status join(void *context, const struct corpus_document *document)
{
    for (int64_t i = 0; i < document->id_count; i++)
        TRY(text_printf(context, "%d ", document->ids[i]));
    if (document->text != NULL)
        TRY(text_append(context, document->text, document->length));
    TRY(text_append(context, "|", 1));
    return OK;
}

static status read_one(const char *name, const char *bytes, size_t length,
                       struct text *out)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    const char *sources[] = {path};
    struct corpus corpus;
    status result;

    *out = (struct text){0};
    test_directory(directory);
    put(directory, name, bytes, length);
    IS_OK(path_join(path, sizeof path, directory, name));
    result = corpus_open(&corpus, sources, 1);
    if (result == OK)
        result = corpus_read(&corpus.files[0],
                             &(struct corpus_format){.field = field}, join,
                             out, NULL);
    corpus_close(&corpus);
    IS_OK(directory_remove(directory));
    return result;
}

TEST(documents_are_cut_where_the_rules_say)
{
    static const struct { const char *name, *bytes, *documents; } rows[] = {
        {"a.txt", "one\ntwo\n", "one\ntwo\n|"},
        {"a.txt", "\xEF\xBB\xBFone", "one|"},
        {"a.txt", "one\n<|endoftext|>\ntwo", "one\n|two|"},
        {"a.txt", "<|endoftext|>\r\none\n<|endoftext|>\n<|endoftext|>",
         "one\n|"},
        {"a.txt", "one\n<|endoftext|>\r", "one\n|"}, /* as packed text */
        {"a.txt", "one <|endoftext|>\n<|endoftext|> two\n",
         "one <|endoftext|>\n<|endoftext|> two\n|"},
        {"a.jsonl", "{\"text\":\"a\\n\\u00e9\"}\n\n  \n{\"text\":\"\"}\r\n"
         "{\"x\":1,\"text\":\"b\"}", "a\n\xC3\xA9|b|"},
        {"a.JSONL", "{\"text\":null}\n{\"text\":\"b\"}", "b|"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text out;

        IS_OK(read_one(rows[i].name, rows[i].bytes, strlen(rows[i].bytes),
                       &out));
        EQUAL_TEXT(out.bytes, rows[i].documents);
        text_free(&out);
    }
}

/* Guards a field inside an object, which Parquet had and lines of JSON not. */
TEST(a_field_may_be_inside_objects)
{
    static const struct { const char *field, *line, *documents; } rows[] = {
        {"a.b", "{\"x\":[{}],\"a\":{\"c\":1,\"b\":\"one\"},\"b\":\"no\"}",
         "one|"},
        {"a.b", "{\"a\":{\"b\":\"no\"},\"a.b\":\"one\"}", "one|"},
        {"a.b", "{\"a\":{\"b\":[1, 2]}}", "1 2 |"},
        {"a.b.c", "{\"a.b\":{\"d\":0},\"a\":{\"b\":{\"c\":\"one\"}}}",
         "one|"},
        {"a.b.c", "{\"a.b\":{\"c\":\"one\"},\"a\":3}", "one|"},
        {"a.b.c", "{\"a\":{\"b.c\":\"one\"}}", "one|"},
        {"a.b", "{\"a\":{\"x\":\"no\"}}", "but text under \"a.x\""},
        {"a.b", "{\"a\":\"no\"}", "but text under \"a\""},
        {"a.b", "{\"a\":{\"b\":[1, \"x\"]}}", "item 1 of \"a.b\" is not"},
        {"a.b", "{\"a\":{\"b\":{}}}", "is neither a string nor"},
        {".", "{\"a\":{\"b\":{}}}", "there is no key \".\""},
        {"text", "{\"a\":{\"b\":\"x\"}}", "but text under \"a.b\""},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text out;

        field = rows[i].field;
        const status result = read_one("a.jsonl", rows[i].line,
                                       strlen(rows[i].line), &out);

        field = "text";
        if (result == OK) EQUAL_TEXT(out.bytes, rows[i].documents);
        else FAILS(result, ERR_FORMAT, rows[i].documents);
        status_clear();
        text_free(&out);
    }
}

TEST(bad_files_are_named_with_the_place)
{
    static const struct { const char *name, *bytes, *words; } rows[] = {
        {"a.txt", "", "a.txt: the file is empty"},
        {"a.txt", "<|endoftext|>\n", "there is no text in it"},
        {"a.txt", "ok\nb\xFFz", "byte 4 (line 2) is 0xff"},
        {"a.jsonl", "{\"text\":\"a\"}\n{\"body\":\"b\"}\n",
         "line 2: there is no key \"text\", but text under \"body\"; "
         "name one with data.field"},
        {"a.jsonl", "{\"a\":\"b\",\"n\":1,\"c\":\"d\"}\n",
         "but text under \"a\", \"c\"; name one with data.field"},
        {"a.jsonl", "{\"n\":1}\n", "no key \"text\"; name another"},
        {"a.jsonl", "[\"text\"]\n", "no key \"text\"; name another"},
        {"a.jsonl", "{\"messages\":[{\"role\":\"user\"}]}\n",
         "it is a conversation: name its template with data.chat"},
        {"a.jsonl", "{\"text\":1}\n", "line 1: the value of \"text\""},
        {"a.jsonl", "{\"text\":\"a\"}\n{\"text\":\n",
         "line 2, column 9: expected"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text out;

        FAILS(read_one(rows[i].name, rows[i].bytes, strlen(rows[i].bytes),
                       &out), ERR_FORMAT, rows[i].words);
        status_clear();
        text_free(&out);
    }
}

TEST(directories_are_read_in_order_of_paths)
{
    char directory[PATH_BYTES], inner[PATH_BYTES];
    const char *sources[] = {directory};
    struct corpus corpus;

    test_directory(directory);
    IS_OK(path_join(inner, sizeof inner, directory, "m"));
    IS_OK(directory_make(inner));
    put(directory, "z.txt", "z", 1);
    put(inner, "b.jsonl", "{}", 2);
    put(directory, "a.txt", "a", 1);
    put(directory, "notes.c", "n", 1);
    put(directory, "empty.txt", "", 0);
    put(directory, ".hidden.txt", "h", 1);
    IS_OK(corpus_open(&corpus, sources, 1));
    EQUAL_INT(corpus.count, 3);
    CHECK(text_ends_with(corpus.files[0].path, "/a.txt"));
    CHECK(text_ends_with(corpus.files[1].path, "/m/b.jsonl"));
    CHECK(text_ends_with(corpus.files[2].path, "/z.txt"));
    EQUAL_INT(corpus.files[1].kind, CORPUS_JSONL);
    EQUAL_INT(corpus.bytes, 4);
    corpus_close(&corpus);
    IS_OK(directory_remove(directory));
}

/* Guards files that came 40 times, once for each turn of a link upwards. */
TEST(a_link_upwards_is_not_followed)
{
    char directory[PATH_BYTES], inner[PATH_BYTES], link[PATH_BYTES];
    char beside[PATH_BYTES];
    const char *sources[] = {directory};
    struct corpus corpus;

    test_directory(beside);
    test_directory(directory);
    IS_OK(path_join(inner, sizeof inner, directory, "m"));
    IS_OK(directory_make(inner));
    put(directory, "a.txt", "a", 1);
    put(inner, "b.txt", "b", 1);
    put(beside, "c.txt", "c", 1);
    IS_OK(path_join(link, sizeof link, inner, "up"));
    CHECK(symlink("..", link) == 0);
    IS_OK(path_join(link, sizeof link, inner, "up too"));
    CHECK(symlink(directory, link) == 0);
    IS_OK(path_join(link, sizeof link, directory, "z"));
    CHECK(symlink(beside, link) == 0);
    IS_OK(path_join(link, sizeof link, beside, "back"));
    CHECK(symlink(inner, link) == 0);
    IS_OK(corpus_open(&corpus, sources, 1));
    EQUAL_INT(corpus.count, 4); /* b.txt is in z/back, too */
    CHECK(text_ends_with(corpus.files[3].path, "/z/c.txt"));
    corpus_close(&corpus);
    IS_OK(directory_remove(directory));
    IS_OK(directory_remove(beside));
}

TEST(sources_that_cannot_be_read_are_refused)
{
    char directory[PATH_BYTES], path[PATH_BYTES];
    const char *sources[] = {directory, path};
    struct corpus corpus;

    test_directory(directory);
    FAILS(corpus_open(&corpus, sources, 1), ERR_CONFIG,
          "has no .txt, .md, .jsonl, .parquet or token file");
    corpus_close(&corpus);
    status_clear();
    put(directory, "a.txt", "a", 1);
    put(directory, "a.zip", "a", 1);
    IS_OK(path_join(path, sizeof path, directory, "a.zip"));
    FAILS(corpus_open(&corpus, sources, 2), ERR_CONFIG, "a.zip: the file is");
    corpus_close(&corpus);
    status_clear();
    put(directory, "a.json", "a", 1);
    IS_OK(path_join(path, sizeof path, directory, "a.json"));
    FAILS(corpus_open(&corpus, sources, 2), ERR_CONFIG, "one object per line");
    corpus_close(&corpus);
    status_clear();
    put(directory, "LICENSE", "a", 1);
    IS_OK(path_join(path, sizeof path, directory, "LICENSE"));
    IS_OK(corpus_open(&corpus, sources, 2));
    EQUAL_INT(corpus.files[corpus.count - 1].kind, CORPUS_TEXT);
    corpus_close(&corpus);
    IS_OK(path_join(path, sizeof path, directory, "none.txt"));
    FAILS(corpus_open(&corpus, sources, 2), ERR_MISSING, "none.txt");
    corpus_close(&corpus);
    status_clear();
    FAILS(corpus_open(&corpus, sources, 0), ERR_CONFIG, "there is no data");
    corpus_close(&corpus);
    IS_OK(directory_remove(directory));
}

/* BEGIN, then `bytes` of `again`, then END, packed: some KB. */
static void put_packed(const char *path, const char *begin, const char *again,
                       int64_t bytes, const char *end)
{
    gzFile file = gzopen(path, "wb1");
    static char piece[6 << 10];
    const size_t length = strlen(again);

    CHECK(file != NULL && sizeof piece % length == 0);
    for (size_t i = 0; i < sizeof piece; i++) piece[i] = again[i % length];
    CHECK(gzputs(file, begin) >= 0);
    for (int64_t i = 0; i < bytes; i += (int64_t)sizeof piece)
        CHECK(gzwrite(file, piece, sizeof piece) == (int)sizeof piece);
    CHECK(gzputs(file, end) >= 0);
    EQUAL_INT(gzclose(file), Z_OK);
}

static status count_bytes(void *context, const struct corpus_document *document)
{
    *(int64_t *)context += (int64_t)document->length + document->id_count;
    return OK;
}

/* Guards memory: 117 KB of packed lines took 6.9 GiB. */
TEST(a_document_has_a_limit_and_memory_with_it)
{
    enum { MOST = 6 << 20, PEAK_KB = 80 << 10 };
    static const struct {
        const char *name, *begin, *again, *end, *words;
        int64_t bytes, documents;
    } rows[] = {
        {"a.jsonl.gz", "{\"text\": [1", ",1", "]}\n",
         "a.jsonl.gz, line 1: longer than 6291456 bytes, the most of "
         "data.document_bytes", 60 << 20, 0},
        {"b.jsonl.gz", "{\"text\": [1", ",1", "]}\n",
         "b.jsonl.gz, line 1: more than 1572864 ids of 4 bytes", 4 << 20, 0},
        {"c.jsonl.gz", "{\"text\": [1", ",1", "]}\n", NULL, 2 << 20,
         1 + (2 << 20) / 2 + 2048},
        {"d.jsonl.gz", "{\"a\": [[]", ",[]", "], \"text\": \"abc\"}\n", NULL,
         5 << 20, 3},
        {"e.txt.gz", "x", "words\n", "", "the document from line 1 on has more "
         "than 6291456 bytes", 60 << 20, 0},
        {"f.txt.gz", "x", "y", "", "longer than 6291456 bytes", 60 << 20, 0},
    };
    char directory[PATH_BYTES], path[PATH_BYTES];
    const char *sources[] = {path};
    struct rusage usage;

    test_directory(directory);
    for (int i = 0; i < ROWS(rows); i++) {
        const struct corpus_format format = {.field = "text",
                                             .document_bytes = MOST};
        struct corpus corpus;
        int64_t bytes = 0;
        status result;

        IS_OK(path_join(path, sizeof path, directory, rows[i].name));
        put_packed(path, rows[i].begin, rows[i].again, rows[i].bytes,
                   rows[i].end);
        IS_OK(corpus_open(&corpus, sources, 1));
        CHECK(corpus.files[0].bytes < 1 << 20);
        result = corpus_read(&corpus.files[0], &format, count_bytes, &bytes,
                             NULL);
        if (rows[i].words != NULL) FAILS(result, ERR_FORMAT, rows[i].words);
        else IS_OK(result);
        status_clear();
        if (rows[i].documents > 0)
            CHECK(bytes >= rows[i].documents - 4096 &&
                  bytes <= rows[i].documents + 4096);
        corpus_close(&corpus);
    }
    EQUAL_INT(getrusage(RUSAGE_SELF, &usage), 0);
    CHECK(SANITIZED || usage.ru_maxrss < PEAK_KB);
    IS_OK(directory_remove(directory));
}

/* Guards mixtures of sources whose texts have other keys. */
TEST(a_list_of_sources_may_name_its_field)
{
    const char *const named[] = {"field=body", "a", "b"};
    const char *const empty[] = {"field=", "a"}, *const alone[] = {"field=a"};
    struct corpus_format format = {.field = "text"};
    const char *const *sources = named + 1;
    int count = 2;

    IS_OK(corpus_field(&sources, &count, &format));
    EQUAL_TEXT(format.field, "text");
    EQUAL_INT(count, 2);
    sources = named;
    count = 3;
    IS_OK(corpus_field(&sources, &count, &format));
    EQUAL_TEXT(format.field, "body");
    EQUAL_TEXT(sources[0], "a");
    EQUAL_INT(count, 2);
    sources = empty;
    FAILS(corpus_field(&sources, &count, &format), ERR_CONFIG,
          "expected field=KEY PATH...");
    status_clear();
    sources = alone;
    count = 1;
    FAILS(corpus_field(&sources, &count, &format), ERR_CONFIG, "./field=a");
    status_clear();
}

TEST_MAIN(a_list_of_sources_may_name_its_field,
          a_document_has_a_limit_and_memory_with_it,
          documents_are_cut_where_the_rules_say,
          a_field_may_be_inside_objects, bad_files_are_named_with_the_place,
          a_link_upwards_is_not_followed,
          directories_are_read_in_order_of_paths,
          sources_that_cannot_be_read_are_refused)
