/* SPDX-License-Identifier: Apache-2.0 */
/* options_table.h - the rows of options.def as data, for the files that read
 * and write configurations. */
#ifndef LOCKSTEP_BASE_OPTIONS_TABLE_H
#define LOCKSTEP_BASE_OPTIONS_TABLE_H

#include <stddef.h>
#include "base/options.h"

enum option_type {
    TYPE_INT, TYPE_REAL, TYPE_BOOL, TYPE_TEXT, TYPE_LIST, TYPE_SETS
};

/* Whether a value may change when a run resumes; or even differ between
 * ranks. */
enum option_free { FREE_NO, FREE_ON_RESUME, FREE_OF_RANK };

struct option_row {
    const char *name;    /* "model.width" */
    const char *section; /* "model"; NULL: stands outside a section */
    const char *field;   /* "width" */
    enum option_type type;
    size_t offset;       /* bytes from the start of struct options */
    const char *initial; /* the default, as a user would write it */
    const char *unit;
    double least, most;  /* both 0: any value */
    const char *help;
    enum option_free free;
};

struct option_section {
    const char *name;
    const char *help;
};

enum { OPTION_NAME_BYTES = 128 };

extern const struct option_row option_rows[];
extern const int option_count;
extern const struct option_section option_sections[];
extern const int option_section_count;

const struct option_row *option_find(const char *name); /* NULL: unknown */
const struct option_section *option_section_find(const char *name);
/* The row that a section alone stands for: "mesh: auto"; NULL: none. */
const struct option_row *option_short(const char *name);
/* ERR_CONFIG: "<name> is not an option; nearest: ...". `where` is what stands
 * before it: "file:3: " or "". */
status option_unknown(const char *where, const char *name);

/* A value as the user wrote it: one text, or several of a list. */
struct option_value {
    const char *const *items;
    int count;
    bool sequence; /* written as a list */
};

/* Checks the value against the row and stores it. A value that is refused
 * leaves the one before. */
status option_store(struct options_set *set, const struct option_row *row,
                    struct option_value value, enum option_origin origin,
                    const char *where);
/* Appends the value as YAML. */
status option_print(const struct options_set *set,
                    const struct option_row *row, struct text *out);
/* The field of `set` that the row describes. */
const void *option_field(const struct options_set *set,
                         const struct option_row *row);

#endif
