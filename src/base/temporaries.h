/* SPDX-License-Identifier: Apache-2.0 */
/* temporaries.h - files and directories that are removed when Ctrl-C, SIGTERM,
 * SIGHUP or a reader that is gone (SIGPIPE) ends the process.
 *
 * A result is written beside its place and renamed. Whoever writes it removes
 * it after an error; a signal leaves nobody to do so, and of a long command
 * gigabytes would stay. So they are noted while they are there, and a handler
 * removes them before the signal has its usual effect. */
#ifndef LOCKSTEP_BASE_TEMPORARIES_H
#define LOCKSTEP_BASE_TEMPORARIES_H

/* Takes these signals where they have their default action. Programs that
 * handle them otherwise later, such as a training run, replace it. */
void temporaries_guard(void);
/* A file, or a directory with all that is in it: before it is made; where
 * `mkdtemp` chooses the name, right after. Its name must be no other process's.
 * Where there are too many it is not noted. */
void temporary_note(const char *path);
/* After it was renamed or removed; one that was not noted changes nothing. */
void temporary_forget(const char *path);

#endif
