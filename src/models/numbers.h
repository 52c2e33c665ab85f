/* SPDX-License-Identifier: Apache-2.0 */
/* numbers.h - numbers of a model that some families or all have, each an
 * option of the section `model` and a field of struct model.
 *
 * A row is all that options, model.from, import and init.from need to know of
 * such a number: who reads it in the program is the only other place. */
#ifndef LOCKSTEP_MODELS_NUMBERS_H
#define LOCKSTEP_MODELS_NUMBERS_H

#include "base/options.h"
#include "models/model.h"

struct model_number {
    const char *name;     /* "query_scale": of the option */
    size_t option, field; /* offsets in struct options, in struct model */
    bool (*has)(const struct model_kind *); /* NULL: every family has it */
    bool of_file;         /* the config.json of model.from sets it: then the
                           * option is refused */
};
extern const struct model_number model_numbers[];
extern const int model_number_count;

bool model_number_is_of(const struct model_number *number,
                        const struct model_kind *kind);
double model_number_option(const struct model_number *number,
                           const struct options *options);
double model_number_value(const struct model_number *number,
                          const struct model *model);
/* Every number of the model, as the options have it. */
void model_numbers_take(struct model *model, const struct options *options);
/* ERR_CONFIG: an option that the family does not have. */
status model_numbers_check(const struct model_kind *kind,
                           const struct options *options);

#endif
