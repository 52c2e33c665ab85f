/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - where plug-ins lie: shared objects beside the program, opened when
 * a run needs them. */
#ifndef LOCKSTEP_BASE_PLUGIN_H
#define LOCKSTEP_BASE_PLUGIN_H

#include <stddef.h>
#include "base/status.h"

/* The path of a plug-in: in the directory that LOCKSTEP_PLUGINS names, else in
 * that of the program. */
status plugin_path(const char *file, char *out, size_t bytes);

#endif
