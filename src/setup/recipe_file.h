/* SPDX-License-Identifier: Apache-2.0 */
/* recipe_file.h - a recipe of one's own as a file: numerics.recipe names a YAML
 * file whose section `numerics` has the keys of a recipe. Its values take the
 * place of the name, so that a run keeps what the file said, not where it was:
 *
 *     numerics:
 *       recipe: nvfp4
 *       recipe_rows: ["gradients e4m3 1x32 up", "hadamard off"]
 *       high_last: 2                                                        */
#ifndef LOCKSTEP_SETUP_RECIPE_FILE_H
#define LOCKSTEP_SETUP_RECIPE_FILE_H

#include "base/options.h"

/* Reads the file that numerics.recipe names, if it is the name of one: with a /
 * or the ending .yaml or .yml. What somebody set beside it wins. ERR_CONFIG: a
 * key that is none of a recipe, or no recipe to begin with. ERR_FORMAT, at
 * once: a pipe or a device. */
status recipe_file_read(struct options_set *set);
/* Like recipe_file_read, of a file that was read into `file`; path: for
 * messages. */
status recipe_file_apply(struct options_set *set,
                         const struct options_set *file, const char *path);

#endif
