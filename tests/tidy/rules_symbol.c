/* SPDX-License-Identifier: Apache-2.0 */
/* rules_symbol.c - functions that nobody calls, from the object files.
 *
 * A global function that no other object of src refers to, and that no test
 * names, should be static or go. nm knows what macros made of the names. */
#include "tidy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct symbol {
    char object[300], name[120], kind; /* kind: T defined, U used */
};

struct symbols {
    struct symbol *items;
    int count;
};

/* Whether an object's source is there: `OBJECTS/src/a/b.avx2.o:` is of
 * src/a/b.c, or of src/a/b.cu. A build that goes on after a file was renamed
 * keeps the old object. */
static bool has_source(const struct tidy *tidy, const char *object)
{
    const char *path = object + strlen(tidy->objects) + 1;
    const char *base = strrchr(path, '/');
    const size_t stem = base ? (size_t)(base - path) + strcspn(base, ".") : 0;

    for (int i = 0; i < tidy->source_count; i++)
        if (strncmp(tidy->sources[i].path, path, stem) == 0 &&
            (strcmp(tidy->sources[i].path + stem, ".c") == 0 ||
             strcmp(tidy->sources[i].path + stem, ".cu") == 0))
            return true;
    return false;
}

/* Lines of nm -A -P: `object: name kind value size`. */
static void symbols_read(struct tidy *tidy, struct symbols *symbols)
{
    char command[700], line[800];

    snprintf(command, sizeof command,
             "find '%s/src' -name '*.o' -exec nm -A -P -g {} +",
             tidy->objects);
    FILE *nm = popen(command, "r");
    if (!nm) return;
    while (fgets(line, sizeof line, nm)) {
        struct symbol s = {0};

        if (sscanf(line, "%299s %119s %c", s.object, s.name, &s.kind) != 3)
            continue;
        if (s.kind != 'T' && s.kind != 'U') continue;
        if (!has_source(tidy, s.object)) continue;
        symbols->items = tidy_grow(symbols->items, symbols->count, sizeof s);
        symbols->items[symbols->count++] = s;
    }
    if (pclose(nm) != 0 || symbols->count == 0)
        tidy_report(tidy, "unused", tidy->objects, 0,
                    "no symbols: build first");
}

static int by_name(const void *a, const void *b)
{
    const struct symbol *left = a, *right = b;

    return strcmp(left->name, right->name);
}

static bool test_names(struct tidy *tidy, const char *name)
{
    for (int i = 0; i < tidy->source_count; i++) {
        const struct source *source = &tidy->sources[i];

        if (!path_begins(source->path, "tests/")) continue;
        if (!strstr(source->text, name)) continue;
        for (int t = 0; t < source->token_count; t++)
            if (token_is(&source->tokens[t], name)) return true;
    }
    return false;
}

void rules_symbol(struct tidy *tidy)
{
    struct symbols symbols = {0};

    symbols_read(tidy, &symbols);
    if (!symbols.items) return;
    qsort(symbols.items, (size_t)symbols.count, sizeof *symbols.items,
          by_name);
    for (int i = 0, end; i < symbols.count; i = end) {
        const struct symbol *first = &symbols.items[i];
        const char *defined = NULL;
        bool used = strcmp(first->name, "main") == 0;

        for (end = i; end < symbols.count
                      && strcmp(symbols.items[end].name, first->name) == 0;
             end++) {
            if (symbols.items[end].kind == 'U') used = true;
            else defined = symbols.items[end].object;
        }
        if (defined && !used && !test_names(tidy, first->name))
            tidy_report(tidy, "unused", first->name, 0,
                        "only %s uses it, if anybody: static or gone",
                        defined);
    }
    free(symbols.items);
}
