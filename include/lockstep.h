/* SPDX-License-Identifier: Apache-2.0 */
/* lockstep.h - the public face of the library: its version, its exit codes,
 * and the whole program as one function.
 *
 * Only what is listed here is promised to stay. Everything else is reached
 * through the command line (docs/commands.md) and files. */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#ifdef __cplusplus
extern "C" {
#endif

#define LOCKSTEP_VERSION_MAJOR 0
#define LOCKSTEP_VERSION_MINOR 1
#define LOCKSTEP_VERSION_PATCH 0
#define LOCKSTEP_VERSION "0.1.0"
/* Version of the definition of every sum (docs/numerics.md). Two programs
 * with the same number train the same bits. */
#define LOCKSTEP_NUMERICS_VERSION 3

/* Exit codes of the process; docs/exit_codes.md says when. */
enum lockstep_exit {
    LOCKSTEP_EXIT_OK = 0,
    LOCKSTEP_EXIT_DIFFERS = 1,  /* compare: the two are not equal */
    LOCKSTEP_EXIT_USAGE = 2,    /* the command line cannot be understood */
    LOCKSTEP_EXIT_DATA = 65,    /* a file is not what it claims to be */
    LOCKSTEP_EXIT_MISSING = 66, /* an input is not there */
    LOCKSTEP_EXIT_PEER = 68,    /* another rank failed, left or is late */
    LOCKSTEP_EXIT_DEVICE = 69,  /* the accelerator's runtime */
    LOCKSTEP_EXIT_MEMORY = 71,  /* it does not fit into memory */
    LOCKSTEP_EXIT_IO = 74,      /* reading or writing failed */
    LOCKSTEP_EXIT_RESUME = 75,  /* saved and stopped on request: resume me */
    LOCKSTEP_EXIT_NUMERIC = 76, /* infinity or NaN; do not resume blindly */
    LOCKSTEP_EXIT_VERIFY = 77,  /* a check of our own promise failed */
    LOCKSTEP_EXIT_CONFIG = 78,  /* the configuration asks the impossible */
    LOCKSTEP_EXIT_FIT = 79      /* no layout that was asked about fits */
};

/* Runs one command as the program does: reads argv, writes to stdout and
 * stderr, returns the exit code. Not reentrant: it installs signal handlers
 * while a model trains. */
int lockstep_main(int argc, char **argv);

#ifdef __cplusplus
}
#endif

#endif
