/* SPDX-License-Identifier: Apache-2.0 */
/* task_clean.h - the text clean-up of the evaluation harness, with the Python
 * functions that it uses. */
#ifndef LOCKSTEP_CORPUS_TASK_CLEAN_H
#define LOCKSTEP_CORPUS_TASK_CLEAN_H

#include "base/text.h"

/* text.strip(), which Jinja's trim is, too: without the white space at both
 * ends. */
void task_strip(const char **bytes, size_t *length);
/* Appends text.strip() with " [title]" made ". ", then every "[...]" of a line
 * taken out, then two spaces made one: brackets that WikiHow left. */
status task_clean(struct text *out, const char *bytes, size_t length);
/* Appends text.capitalize(): the first character as in a title, the others
 * small. Each character becomes one: the few that Python makes two or three
 * stay as they are. */
status task_capitalize(struct text *out, const char *bytes, size_t length);

#endif
