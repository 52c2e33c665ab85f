/* SPDX-License-Identifier: Apache-2.0 */
/* tidy.c - walks the tree, applies the rules, honours the exceptions.
 *
 *     tidy ROOT [OBJECTS]             the project; OBJECTS holds its .o files
 *     tidy --expect RULE ROOT [OBJECTS]   a tree that must break just that rule
 *     tidy --expect clean ROOT [OBJECTS]  a tree that must break none */
#include "tidy.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 12 };

void *tidy_grow(void *items, int count, size_t size)
{
    if (count != 0 && (count < 16 || (count & (count - 1)) != 0))
        return items;
    const size_t room = count < 16 ? 16 : 2 * (size_t)count;
    void *grown = realloc(items, room * size);
    if (!grown) {
        fprintf(stderr, "tidy: out of memory\n");
        exit(71);
    }
    return grown;
}

bool path_ends(const char *path, const char *end)
{
    const size_t all = strlen(path), part = strlen(end);

    return all >= part && strcmp(path + all - part, end) == 0;
}

bool path_begins(const char *path, const char *begin)
{
    return strncmp(path, begin, strlen(begin)) == 0;
}

struct source *tidy_find(struct tidy *tidy, const char *path)
{
    for (int i = 0; i < tidy->source_count; i++)
        if (strcmp(tidy->sources[i].path, path) == 0)
            return &tidy->sources[i];
    return NULL;
}

static bool excepted(struct tidy *tidy, const char *rule, const char *path)
{
    for (int i = 0; i < tidy->exception_count; i++) {
        struct exception *e = &tidy->exceptions[i];

        if (strcmp(e->rule, rule) == 0 && strcmp(e->path, path) == 0)
            return e->used = true;
    }
    return false;
}

void tidy_report(struct tidy *tidy, const char *rule, const char *path,
                 int line, const char *format, ...)
{
    va_list arguments;

    if (excepted(tidy, rule, path)) return;
    tidy->report_count++;
    if (tidy->expected_rule && strcmp(tidy->expected_rule, rule) == 0) {
        tidy->expected_count++;
        return;
    }
    printf("%s:%d: %s: ", path, line, rule);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
}

static bool is_code(const char *path)
{
    static const char *const ends[] = {".c", ".h", ".cu", ".def", ".py", ".sh",
                                       "Makefile", ".ci/run"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (path_ends(path, ends[i])) return true;
    return false;
}

/* Text that people wrote: code, pages, examples; not data. */
static bool is_read(const char *path)
{
    static const char *const ends[] = {".md", ".txt", ".yaml", ".yml",
                                       ".svg", ".gitignore"};

    if (is_code(path)) return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (path_ends(path, ends[i])) return true;
    return false;
}

static bool is_skipped(const char *path, const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return true;
    if (strcmp(path, ".git") == 0 || strcmp(path, "runs") == 0
        || strcmp(path, "corpus") == 0 || strcmp(path, "demo") == 0)
        return true;
    return path_begins(path, "build") || strcmp(name, "__pycache__") == 0
           || strcmp(path, "tests/golden/models") == 0;
}

static char *file_text(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t room = 0;

    *size = 0;
    if (!file) {
        fprintf(stderr, "tidy: cannot read %s\n", path);
        exit(66);
    }
    for (;;) {
        if (*size + 1 >= room) {
            room = room ? 2 * room : 65536;
            text = realloc(text, room);
            if (!text) exit(71);
        }
        const size_t got = fread(text + *size, 1, room - *size - 1, file);
        if (got == 0) break;
        *size += got;
    }
    text[*size] = '\0';
    fclose(file);
    return text;
}

static void source_add(struct tidy *tidy, const char *path, const char *full)
{
    struct source source = {0};

    snprintf(source.path, sizeof source.path, "%s", path);
    if (path_begins(path, "src/") && strchr(path + 4, '/'))
        snprintf(source.folder, sizeof source.folder, "%.*s",
                 (int)strcspn(path + 4, "/"), path + 4);
    source.text = file_text(full, &source.size);
    source.is_code = is_code(path);
    source.is_c = path_ends(path, ".c") || path_ends(path, ".h")
                  || path_ends(path, ".cu");
    if (source.is_c) source_parse(&source);
    tidy->sources = tidy_grow(tidy->sources, tidy->source_count,
                              sizeof source);
    tidy->sources[tidy->source_count++] = source;
}

/* Depth is bounded: links could make the tree endless. */
static void walk(struct tidy *tidy, const char *folder, int depth)
{
    char full[900], path[600];
    struct dirent *entry;
    struct stat info;

    snprintf(full, sizeof full, "%s/%s", tidy->root, folder);
    DIR *directory = opendir(full);
    if (!directory || depth > DEPTH_MAX) {
        fprintf(stderr, "tidy: cannot walk %s\n", full);
        exit(66);
    }
    while ((entry = readdir(directory))) {
        snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "",
                 entry->d_name);
        if (is_skipped(path, entry->d_name)) continue;
        snprintf(full, sizeof full, "%s/%s", tidy->root, path);
        if (lstat(full, &info) != 0) continue;
        if (S_ISDIR(info.st_mode)) walk(tidy, path, depth + 1);
        else if (S_ISREG(info.st_mode) && is_read(path))
            source_add(tidy, path, full);
    }
    closedir(directory);
}

static int by_path(const void *a, const void *b)
{
    const struct source *left = a, *right = b;

    return strcmp(left->path, right->path);
}

/* Lines of `rule path reason`. */
static void exceptions_read(struct tidy *tidy)
{
    char path[600], line[600];

    snprintf(path, sizeof path, "%s/tests/tidy/exceptions.txt", tidy->root);
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        struct exception e = {0};
        char reason[8] = "";

        if (line[0] == '#' || line[0] == '\n') continue;
        sscanf(line, "%39s %299s %7s", e.rule, e.path, reason);
        if (!reason[0])
            tidy_report(tidy, "exception", "tests/tidy/exceptions.txt", 0,
                        "%s %s: without a reason", e.rule, e.path);
        tidy->exceptions = tidy_grow(tidy->exceptions, tidy->exception_count,
                                     sizeof e);
        tidy->exceptions[tidy->exception_count++] = e;
    }
    fclose(file);
}

/* An exception of a rule that did not run cannot be judged. */
static void exceptions_check(struct tidy *tidy)
{
    for (int i = 0; i < tidy->exception_count; i++) {
        const struct exception *e = &tidy->exceptions[i];

        if (e->used || (!tidy->objects && strcmp(e->rule, "unused") == 0))
            continue;
        tidy_report(tidy, "exception", "tests/tidy/exceptions.txt", 0,
                    "%s %s is no longer needed", e->rule, e->path);
    }
}

static int verdict(const struct tidy *tidy)
{
    const char *rule = tidy->expected_rule;

    if (!rule) {
        printf("tidy: %d files, %d reports\n", tidy->source_count,
               tidy->report_count);
        return tidy->report_count != 0;
    }
    const int others = tidy->report_count - tidy->expected_count;
    const bool clean = strcmp(rule, "clean") == 0;
    if (others == 0 && (clean || tidy->expected_count > 0)) return 0;
    printf("tidy: %s: expected only %s, found %d of it and %d others\n",
           tidy->root, rule, tidy->expected_count, others);
    return 1;
}

int main(int argc, char **argv)
{
    struct tidy tidy = {0};

    if (argc > 2 && strcmp(argv[1], "--expect") == 0) {
        tidy.expected_rule = argv[2];
        argc -= 2;
        argv += 2;
    }
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: tidy [--expect RULE] ROOT [OBJECTS]\n");
        return 2;
    }
    tidy.root = argv[1];
    tidy.objects = argc == 3 ? argv[2] : NULL;
    exceptions_read(&tidy);
    walk(&tidy, "", 0);
    qsort(tidy.sources, (size_t)tidy.source_count, sizeof *tidy.sources,
          by_path);
    rules_text(&tidy);
    rules_function(&tidy);
    rules_project(&tidy);
    if (tidy.objects) rules_symbol(&tidy);
    exceptions_check(&tidy);
    return verdict(&tidy);
}
