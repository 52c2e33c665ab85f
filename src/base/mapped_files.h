/* SPDX-License-Identifier: Apache-2.0 */
/* mapped_files.h - files that are mapped, and the one that shrinks under its
 * reader.
 *
 * Reading a mapped page that the file no longer has raises SIGBUS. A handler
 * maps zeros in place of the missing pages and notes the file. The reader goes
 * on, on any thread, with bytes that must not be used. Code that commits a
 * result calls mapped_check before it does: for each batch, for each file that
 * is renamed into place, and at the end of each command. Between these calls
 * the check costs nothing. A SIGBUS at any other address has its usual
 * effect. */
#ifndef LOCKSTEP_BASE_MAPPED_FILES_H
#define LOCKSTEP_BASE_MAPPED_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include "base/status.h"

/* A ticket; 0: there are too many, and this one stays without a handler. */
int mapped_add(const void *bytes, size_t length, const char *path);
void mapped_remove(int ticket); /* before it is unmapped */
/* ERR_FORMAT: a mapped file was cut; ERR_IO: it could not be read. Stays so
 * until the process ends. */
status mapped_check(void);
/* This thread reads ahead: its bytes are used only after another mapped_check.
 * So files that shrink under it are no reason to refuse earlier results. */
void mapped_read_ahead(void);
/* mapped_check of all that other threads read. */
status mapped_check_used(void);
bool mapped_is_whole(void);
/* For tests: as if nothing had happened; takes the signal anew, which a test's
 * frame takes away. */
void mapped_forget(void);

#endif
