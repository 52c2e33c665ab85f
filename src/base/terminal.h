/* SPDX-License-Identifier: Apache-2.0 */
/* terminal.h - a filter of terminal output: text from files cannot control the
 * terminal.
 *
 * File names, values, pieces of tokenizers and generated text may hold escape
 * sequences that clear the screen, change the title or turn the direction of
 * writing around. Whatever the program prints passes one filter, which writes
 * the characters that control a terminal as text:
 *
 *   C0 without newline and tab, DEL, C1        \u001b  \u007f  \u009b
 *   U+202A to U+202E, U+2066 to U+2069         \u202e
 *   bytes that are no UTF-8                    \xff
 *
 * All else stays as it is. Printed JSON stays JSON of the same content, because
 * \u202e inside a string stands for the same character there. */
#ifndef LOCKSTEP_BASE_TERMINAL_H
#define LOCKSTEP_BASE_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A byte becomes at most so many. */
enum { TERMINAL_GROWTH = 6 };

/* Writes bytes [length] as they are shown, out [TERMINAL_GROWTH * length];
 * returns how many bytes that is. `lines`: newlines and tabs stay. */
size_t terminal_escape(char *out, const char *bytes, size_t length,
                       bool lines);
/* Like terminal_escape, in place; cut with "..." where it does not fit size
 * bytes. */
void terminal_escape_line(char *line, size_t size);

/* From now on all that is printed to stdout and stderr passes the filter. For
 * the program's main; where the C library cannot do it, nothing changes. */
void terminal_guard(void);
/* The file without the filter, for colours and cursor movements of ours. */
FILE *terminal_raw(FILE *file);

#endif
