/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the configuration as one struct, made from options.def.
 *
 * A value comes from the default, the file (YAML through libyaml; scalars are
 * typed by the table, so `no`, `1e-4` and `010` mean what the option says) or
 * --set. Unknown keys are ERR_CONFIG with the nearest known key. Who set each
 * value is kept and written into the run directory. */
#ifndef LOCKSTEP_BASE_OPTIONS_H
#define LOCKSTEP_BASE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/arena.h"
#include "base/text.h"

struct option_list { const char **items; int count; };

#define OPTION_TYPE_INT int64_t
#define OPTION_TYPE_REAL double
#define OPTION_TYPE_BOOL bool
#define OPTION_TYPE_TEXT const char *
#define OPTION_TYPE_LIST struct option_list
#define OPTION_TYPE_SETS const char * /* "fsdp", "{states: [shard]}" */

struct options {
#define TOP(type, field, ...) OPTION_TYPE_##type field;
#define SECTION(name, help) struct {
#define OPTION(type, section, field, ...) OPTION_TYPE_##type field;
#define TOP_CHANGES TOP
#define CHANGES OPTION
#define LOCAL OPTION
#define END(name) } name;
#include "base/options.def"
#undef TOP
#undef SECTION
#undef OPTION
#undef TOP_CHANGES
#undef CHANGES
#undef LOCAL
#undef END
};

enum option_origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_COMMAND_LINE,
                     ORIGIN_ENVIRONMENT, ORIGIN_SEARCH /* mesh: auto */,
                     ORIGIN_RUN };

struct options_set {
    struct options values;
    struct arena arena;   /* owns texts and lists */
    unsigned char *origin;/* [rows] enum option_origin */
};

/* Defaults. */
status options_init(struct options_set *set);
/* yes, false, 1 and the like, as an option of type BOOL reads them. False: it
 * is none of them. */
bool options_flag(const char *text, bool *out);
void options_free(struct options_set *set);
/* A YAML file or text; later values win. Names file and line in errors. */
status options_read_file(struct options_set *set, const char *path);
/* Like options_read_file, of a run's config.yaml or of a file that an option
 * names: ERR_FORMAT for a pipe or a device. */
status options_read_run(struct options_set *set, const char *path);
status options_read_text(struct options_set *set, const char *text,
                         size_t length, const char *source,
                         enum option_origin origin);
/* "a.b=c". */
status options_assign(struct options_set *set, const char *assignment,
                      enum option_origin origin);
/* LOCKSTEP_OPTIMIZER__LR=3e-4 and the like. */
status options_read_environment(struct options_set *set);
/* The whole resolved configuration as YAML that reads back, each line with
 * who set it. */
status options_write_yaml(const struct options_set *set, struct text *out);
/* Reads the origin of each value from the comments of a file that
 * options_write_yaml wrote and that was read as ORIGIN_RUN. A value without a
 * comment stays ORIGIN_RUN. */
void options_read_origins(struct options_set *set, const char *text,
                          size_t length);
/* The table for --help and docs/generated/options.md. */
status options_describe(struct text *out, bool markdown);
/* Origin of "a.b", or ORIGIN_DEFAULT when unknown. */
enum option_origin options_origin(const struct options_set *set,
                                  const char *name);
/* How many options there are, and the name of one, counted from 0. */
int options_count(void);
const char *option_name(int at);
/* Whether a resumed run may have another value than the run had. */
bool options_may_change(const char *name);
/* Whether ranks may have different values. */
bool options_may_differ(const char *name);
/* Value of one option as text, for messages and diffs. ERR_CONFIG unknown. */
status options_get_text(const struct options_set *set, const char *name,
                        struct text *out);

/* The name of an element type that is also known by a short one: "bfloat16" for
 * bf16, likewise fp16, fp32, fp64; any other text as it is. */
const char *options_type_name(const char *text);

#endif
