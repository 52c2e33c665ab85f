/* SPDX-License-Identifier: Apache-2.0 */
/* shape_text.h - the sizes of a model that is given as a configuration, for
 * tests of the planner. */
#ifndef LOCKSTEP_TESTS_SHAPE_TEXT_H
#define LOCKSTEP_TESTS_SHAPE_TEXT_H

#include <string.h>
#include "planner/shape.h"
#include "tests/test.h"

/* With sequences of so many tokens. */
static inline void shape_of_text(struct shape *shape, const char *yaml,
                                 int64_t sequence)
{
    struct options_set set;
    struct model model;

    IS_OK(options_init(&set));
    IS_OK(options_read_text(&set, yaml, strlen(yaml), "test", ORIGIN_FILE));
    IS_OK(model_from_options(&model, &set.values, 0));
    IS_OK(shape_of(shape, &model, sequence));
    options_free(&set);
}

#endif
