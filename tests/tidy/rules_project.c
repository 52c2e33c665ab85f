/* SPDX-License-Identifier: Apache-2.0 */
/* rules_project.c - rules about files together: layers, cycles, dead files,
 * where the lists of back ends stand. */
#include "tidy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The row of `folder` in src/layers.txt, or NULL; `length` is of the line. */
static const char *layers_row(struct tidy *tidy, const char *folder,
                              size_t *length)
{
    const struct source *layers = tidy_find(tidy, "src/layers.txt");
    const char *at = layers ? layers->text : "";

    while (*at) {
        *length = strcspn(at, "\n");
        const size_t word = strcspn(at, " \n");
        if (word == strlen(folder) && memcmp(at, folder, word) == 0)
            return at;
        at += *length + (at[*length] == '\n');
    }
    return NULL;
}

/* A folder may always include itself. */
static bool layers_allow(struct tidy *tidy, const char *from, const char *to)
{
    size_t length;
    const char *row = layers_row(tidy, from, &length);
    const char *end = row ? row + length : NULL;

    for (const char *at = row; at && at < end;) {
        at += strspn(at, " ");
        const size_t word = strcspn(at, " \n");
        if (word == strlen(to) && memcmp(at, to, word) == 0) return true;
        at += word + (word == 0);
    }
    return false;
}

static void rule_layers(struct tidy *tidy, const struct source *source)
{
    size_t length;
    char to[100];

    if (!source->folder[0]) return;
    if (!layers_row(tidy, source->folder, &length))
        tidy_report(tidy, "layers", source->path, 1,
                    "%s is not in src/layers.txt", source->folder);
    for (int i = 0; i < source->include_count; i++) {
        const struct include *include = &source->includes[i];

        if (include->system || !strchr(include->path, '/')) continue;
        snprintf(to, sizeof to, "%.*s",
                 (int)strcspn(include->path, "/"), include->path);
        if (!layers_allow(tidy, source->folder, to))
            tidy_report(tidy, "layers", source->path, include->line,
                        "%s may not include %s; see src/layers.txt",
                        source->folder, to);
    }
}

/* The file that an include names: below src, or beside the one that names. */
static struct source *included(struct tidy *tidy, const struct source *from,
                               const struct include *include)
{
    char path[600];
    const char *slash = strrchr(from->path, '/');
    static const char *const places[] = {"src/", "include/", ""};

    if (include->system) return NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%s%s", places[i], include->path);
        struct source *found = tidy_find(tidy, path);
        if (found) return found;
    }
    snprintf(path, sizeof path, "%.*s%s",
             slash ? (int)(slash - from->path) + 1 : 0, from->path,
             include->path);
    return tidy_find(tidy, path);
}

/* Headers reachable from `start`, breadth first; true when it is among them. */
static bool reaches_itself(struct tidy *tidy, struct source *start)
{
    enum { QUEUE_MAX = 400 };
    struct source *queue[QUEUE_MAX] = {start};
    int count = 1;

    for (int at = 0; at < count; at++)
        for (int i = 0; i < queue[at]->include_count; i++) {
            struct source *next =
                included(tidy, queue[at], &queue[at]->includes[i]);
            bool known = false;

            if (next == start) return true;
            for (int k = 0; k < count; k++) known |= queue[k] == next;
            if (next && !known && count < QUEUE_MAX) queue[count++] = next;
        }
    return false;
}

static void rule_cycles(struct tidy *tidy, struct source *source)
{
    if (path_ends(source->path, ".h") && reaches_itself(tidy, source))
        tidy_report(tidy, "cycle", source->path, 1,
                    "this header includes itself through others");
}

static bool is_included(struct tidy *tidy, const struct source *header)
{
    for (int i = 0; i < tidy->source_count; i++)
        for (int j = 0; j < tidy->sources[i].include_count; j++)
            if (included(tidy, &tidy->sources[i],
                         &tidy->sources[i].includes[j]) == header)
                return true;
    return false;
}

/* Some other page has its file name. */
static bool is_linked(struct tidy *tidy, const struct source *page)
{
    const char *name = strrchr(page->path, '/') + 1;

    for (int i = 0; i < tidy->source_count; i++) {
        const struct source *other = &tidy->sources[i];

        if (other != page && path_ends(other->path, ".md")
            && strstr(other->text, name))
            return true;
    }
    return false;
}

/* The Makefile compiles src/<folder>/<file>.c the folders of kernels and
 * the plug-in of MPI, and links what is tests/unit/<folder>/test_<file>.c. */
static bool is_compiled(const char *path)
{
    int slashes = 0;

    for (const char *p = path; *p; p++) slashes += *p == '/';
    if (path_begins(path, "src/"))
        return slashes == 2 || path_begins(path, "src/kernels/reference/")
               || path_begins(path, "src/kernels/cpu/")
               || path_begins(path, "src/kernels/cuda/")
               || path_begins(path, "src/comm/mpi/")
               || path_begins(path, "src/comm/nccl/");
    if (path_begins(path, "tests/unit/"))
        return slashes == 3 && strstr(path, "/test_");
    return true;
}

static void rule_dead(struct tidy *tidy, const struct source *source)
{
    if (path_ends(source->path, ".h")
        && !path_begins(source->path, "include/")
        && !is_included(tidy, source))
        tidy_report(tidy, "dead", source->path, 1, "nobody includes it");
    if (path_ends(source->path, ".c") && !is_compiled(source->path)
        && !is_included(tidy, source))
        tidy_report(tidy, "dead", source->path, 1, "nobody compiles it");
    if (path_begins(source->path, "docs/")
        && path_ends(source->path, ".md") && !is_linked(tidy, source))
        tidy_report(tidy, "dead", source->path, 1, "no page links to it");
}

/* #if HAVE_...: only where the lists of back ends stand. */
static void rule_have(struct tidy *tidy, const struct source *source)
{
    static const char *const lists[] = {"src/device/device.c",
                                        "src/comm/comm.c",
                                        "src/kernels/kernels.c"};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (strcmp(source->path, lists[i]) == 0) return;
    if (!path_begins(source->path, "src/")) return;
    for (int i = 0; i < source->token_count; i++) {
        const struct token *t = &source->tokens[i];

        if (t->preprocessor && t->length > 5
            && memcmp(t->text, "HAVE_", 5) == 0)
            tidy_report(tidy, "have", source->path, t->line,
                        "%.*s belongs in the list of back ends", t->length,
                        t->text);
    }
}

/* A script that starts with #! is meant to be started. */
static void rule_mode(struct tidy *tidy, const struct source *source)
{
    char path[1200];

    if (!path_ends(source->path, ".sh") || !path_begins(source->text, "#!"))
        return;
    snprintf(path, sizeof path, "%.500s/%.600s", tidy->root, source->path);
    if (access(path, X_OK) != 0)
        tidy_report(tidy, "mode", source->path, 1,
                    "nobody can start it: chmod +x");
}

void rules_project(struct tidy *tidy)
{
    for (int i = 0; i < tidy->source_count; i++) {
        struct source *source = &tidy->sources[i];

        rule_layers(tidy, source);
        rule_cycles(tidy, source);
        rule_dead(tidy, source);
        rule_have(tidy, source);
        rule_mode(tidy, source);
    }
}
