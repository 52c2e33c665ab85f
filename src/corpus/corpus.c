/* SPDX-License-Identifier: Apache-2.0 */
/* corpus.c - documents from files: which files. */
#include "corpus/corpus.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "base/text.h"
#include "data/token_file.h"

enum { FILES_MAX = 1 << 22 };

/* A name without the ending of what packed it. */
static void unpacked_name(const char *path, char out[PATH_BYTES])
{
    static const char *const endings[] = {".gz", ".zst"};

    snprintf(out, PATH_BYTES, "%s", path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (text_ends_like(out, endings[i]))
            out[strlen(out) - strlen(endings[i])] = '\0';
}

/* By the ending of a name; false: nothing is known about it. */
static bool kind_of(const char *path, bool named, enum corpus_kind *kind)
{
    static const struct { const char *ending; enum corpus_kind kind; } rows[] =
        {{".txt", CORPUS_TEXT}, {".md", CORPUS_TEXT},
         {".jsonl", CORPUS_JSONL}, {".ndjson", CORPUS_JSONL},
         {".parquet", CORPUS_PARQUET}};
    char name[PATH_BYTES];

    if (token_file_is(path, named)) {
        *kind = CORPUS_TOKENS;
        return true;
    }
    unpacked_name(path, name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (text_ends_like(name, rows[i].ending)) {
            *kind = rows[i].kind;
            return *kind != CORPUS_PARQUET || strcmp(name, path) == 0;
        }
    *kind = CORPUS_JSONL; /* data sets have lines under .json.gz too */
    return strcmp(name, path) != 0 && text_ends_like(name, ".json");
}

/* A file that the user names is text whatever its ending, unless it surely is
 * not. */
static status kind_of_named(const char *path, enum corpus_kind *kind)
{
    static const char *const packed[] = {".xz", ".bz2", ".zip", ".tar", ".7z",
                                         ".lz4"};
    static const char *const binary[] = {".arrow", ".npy", ".npz",
                                         ".safetensors", ".pdf", ".pt", ".h5"};
    char name[PATH_BYTES];

    if (kind_of(path, true, kind)) return OK;
    *kind = CORPUS_TEXT;
    unpacked_name(path, name);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++)
        if (text_ends_like(name, packed[i]))
            FAIL(ERR_CONFIG, "%s: the file is packed in a way that is not "
                 "read (.gz and .zst are); unpack it first", path);
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++)
        if (text_ends_like(name, binary[i]))
            FAIL(ERR_CONFIG, "%s: not text; docs/data.md lists the supported "
                 "files",
                 path);
    if (text_ends_like(name, ".bin") || text_ends_like(name, ".idx"))
        FAIL(ERR_CONFIG, "%s: neither half of Megatron's .bin and .idx nor a "
             "file of llm.c; raw tokens must end with .u16 or .u32", path);
    if (text_ends_like(name, ".json"))
        FAIL(ERR_CONFIG, "%s: JSON is read with one object per line; if it is "
             "such a file, call it .jsonl", path);
    return OK;
}

static status add_file(struct corpus *corpus, const char *path,
                       enum corpus_kind kind)
{
    struct corpus_file *file;
    struct stat facts;
    char *copy;

    if (corpus->count == FILES_MAX)
        FAIL(ERR_CONFIG, "%s: more than %d files", path, FILES_MAX);
    if (corpus->count == corpus->capacity) {
        const int capacity = corpus->capacity * 2 + 16;
        void *grown = corpus->files;

        TRY(memory_grow(&grown, (size_t)capacity, sizeof *corpus->files));
        corpus->files = grown;
        corpus->capacity = capacity;
    }
    if (stat(path, &facts) != 0) return file_absent(path);
    if (!S_ISREG(facts.st_mode))
        FAIL(ERR_CONFIG, "%s: a pipe or device, which can be read only once; "
             "expected a file: write its text into one first", path);
    TRY(arena_copy_text(&corpus->arena, path, &copy));
    file = &corpus->files[corpus->count++];
    *file = (struct corpus_file){
        .path = copy, .kind = kind, .bytes = (int64_t)facts.st_size,
        .changed_ns = (int64_t)facts.st_mtim.tv_sec * 1000000000 +
                      (int64_t)facts.st_mtim.tv_nsec};
    corpus->bytes += file->bytes;
    return OK;
}

/* Directories still to be looked into; a list, not recursion. */
struct pending {
    char **paths; /* in the corpus's arena; the array is owned */
    int count, capacity;
};

static status pending_add(struct pending *pending, struct arena *arena,
                          const char *path)
{
    if (pending->count == FILES_MAX)
        FAIL(ERR_CONFIG, "%s: more than %d directories", path, FILES_MAX);
    if (pending->count == pending->capacity) {
        const int capacity = pending->capacity * 2 + 16;
        void *grown = pending->paths;

        TRY(memory_grow(&grown, (size_t)capacity, sizeof *pending->paths));
        pending->paths = grown;
        pending->capacity = capacity;
    }
    TRY(arena_copy_text(arena, path, &pending->paths[pending->count]));
    pending->count++;
    return OK;
}

/* Is the directory, through a link, one of those on its path from the root? Its
 * files would come again and again. */
static bool holds_itself(const char *root, const char *path)
{
    struct stat own, other;
    char above[PATH_BYTES];

    if (stat(path, &own) != 0) return false;
    snprintf(above, sizeof above, "%s", path);
    while (strlen(above) > strlen(root)) {
        *strrchr(above, '/') = '\0';
        if (stat(above, &other) == 0 && other.st_ino == own.st_ino &&
            other.st_dev == own.st_dev)
            return true;
    }
    return false;
}

static status scan_directory(struct corpus *corpus, struct pending *pending,
                             const char *directory)
{
    char **names = NULL, path[PATH_BYTES];
    enum corpus_kind kind;
    status result;
    int count = 0;

    TRY(directory_list(directory, &names, &count));
    result = OK;
    for (int i = 0; i < count; i++) {
        if (names[i][0] == '.') continue; /* hidden: not the user's text */
        TRY_GOTO(done, result,
                 path_join(path, sizeof path, directory, names[i]));
        if (file_is_directory(path) && holds_itself(pending->paths[0], path))
            LOG(WARNING, "data", "%s: is not looked into: a link leads back to "
                "a directory that holds it", path);
        else if (file_is_directory(path))
            TRY_GOTO(done, result,
                     pending_add(pending, &corpus->arena, path));
        else if (kind_of(path, false, &kind)) {
            TRY_GOTO(done, result, add_file(corpus, path, kind));
            /* Among others an empty file says nothing; alone it is an error. */
            if (corpus->files[corpus->count - 1].bytes == 0) corpus->count--;
        }
    }
done:
    directory_list_free(names, count);
    return result;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct corpus_file *)a)->path,
                  ((const struct corpus_file *)b)->path);
}

static status add_directory(struct corpus *corpus, const char *directory)
{
    struct pending pending = {0};
    const int before = corpus->count;
    status result;

    TRY_GOTO(done, result, pending_add(&pending, &corpus->arena, directory));
    for (int i = 0; i < pending.count; i++)
        TRY_GOTO(done, result,
                 scan_directory(corpus, &pending, pending.paths[i]));
    if (corpus->count == before)
        FAIL_GOTO(done, result, ERR_CONFIG, "%s: the directory has no .txt, "
                  ".md, .jsonl, .parquet or token file with anything in it",
                  directory);
    qsort(corpus->files + before, (size_t)(corpus->count - before),
          sizeof *corpus->files, by_path);
done:
    memory_free(pending.paths);
    return result;
}

status corpus_field(const char *const **sources, int *count,
                    struct corpus_format *format)
{
    static const char word[] = "field=";
    const char *first = *count > 0 ? (*sources)[0] : "";

    if (strncmp(first, word, sizeof word - 1) != 0) return OK;
    if (first[sizeof word - 1] == '\0' || *count == 1)
        FAIL(ERR_CONFIG, "'%s': expected field=KEY PATH...; a file of that "
             "name is ./%s", first, first);
    format->field = first + sizeof word - 1;
    ++*sources;
    --*count;
    return OK;
}

static status add_source(struct corpus *corpus, const char *source)
{
    char pair[PATH_BYTES];
    enum corpus_kind kind;

    /* Megatron's users name the pair without an ending. */
    if (!file_exists(source) &&
        snprintf(pair, sizeof pair, "%s.idx", source) < PATH_BYTES &&
        token_file_is(pair, true)) {
        TRY(add_file(corpus, pair, CORPUS_TOKENS));
        return OK;
    }
    if (!file_exists(source)) return file_absent(source);
    if (file_is_directory(source)) {
        TRY(add_directory(corpus, source));
        return OK;
    }
    TRY(kind_of_named(source, &kind));
    TRY(add_file(corpus, source, kind));
    return OK;
}

status corpus_open(struct corpus *corpus, const char *const *sources,
                   int count)
{
    *corpus = (struct corpus){0};
    arena_init(&corpus->arena, "corpus", 0);
    for (int i = 0; i < count; i++) TRY(add_source(corpus, sources[i]));
    if (corpus->count == 0)
        FAIL(ERR_CONFIG, "there is no data: name .txt, .jsonl, .parquet or "
             "token files or directories of them");
    return OK;
}

void corpus_close(struct corpus *corpus)
{
    memory_free(corpus->files);
    arena_free(&corpus->arena);
    *corpus = (struct corpus){0};
}
