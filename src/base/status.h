/* SPDX-License-Identifier: Apache-2.0 */
/* status.h - how a function that can fail reports it.
 *
 * OK is zero. The function that first meets an error writes one sentence for
 * the operator with FAIL; each caller passes it up with TRY, which adds its
 * own line to the trace. A status is never dropped and never printed twice:
 * only main and the trainer's recovery loop print the trace.
 * Mistakes of the programmer are not statuses: they stop at CHECK.
 * The trace belongs to the calling thread. */
#ifndef LOCKSTEP_BASE_STATUS_H
#define LOCKSTEP_BASE_STATUS_H

#include <stdio.h>

typedef enum status {
    OK = 0,
    ERR_DIFFERS, /* compare: the two are not equal */
    ERR_USAGE,   /* the command line cannot be understood */
    ERR_CONFIG,  /* the user asked for something impossible */
    ERR_MISSING, /* a file or directory that must be there is not */
    ERR_FORMAT,  /* a file is not what it claims to be */
    ERR_MEMORY,  /* an allocation does not fit */
    ERR_IO,      /* reading or writing failed */
    ERR_DEVICE,  /* the accelerator's runtime */
    ERR_PEER,    /* another rank failed, left or is late */
    ERR_STOPPED, /* saved and stopped on request: resume me */
    ERR_NUMERIC, /* infinity or NaN where there must be none */
    ERR_VERIFY,  /* a check of our own promise failed */
    ERR_FIT,     /* no layout that was asked about fits the memory */
    STATUS_COUNT
} status;

/* Starts a trace: one sentence, no final newline. Returns `code`. */
status status_fail(status code, const char *file, int line,
                   const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds one line to the trace. Returns `code`. */
status status_pass(status code, const char *file, int line);
/* Prints the claim and aborts. */
void status_bug(const char *file, int line, const char *claim)
    __attribute__((noreturn));
/* Adds a hint ("try ...") that is printed under the trace. Returns `code`. */
status status_hint(status code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const char *status_name(status code);    /* "config" */
int status_exit_code(status code);       /* 78; table in docs/exit_codes.md */
const char *status_message(void);        /* the sentence; "" if none */
const char *status_hint_text(void);      /* the hint; "" if none */
void status_print(status code, FILE *out); /* error, trace (LOCKSTEP_TRACE=1),
                                            * hint; then forgets them */
void status_clear(void);

/* The code is returned by the macros themselves, so that the compiler sees
 * that a function which failed did not return OK. */
#define FAIL(code, ...)                                        \
    do {                                                       \
        status_fail((code), __FILE__, __LINE__, __VA_ARGS__);  \
        return (code);                                         \
    } while (0)
#define FAIL_GOTO(label, result, code, ...)                    \
    do {                                                       \
        status_fail((code), __FILE__, __LINE__, __VA_ARGS__);  \
        (result) = (code);                                     \
        goto label;                                            \
    } while (0)
#define TRY(call)                                              \
    do {                                                       \
        const status try_ = (call);                            \
        if (try_ != OK) {                                      \
            status_pass(try_, __FILE__, __LINE__);             \
            return try_;                                       \
        }                                                      \
    } while (0)
#define TRY_GOTO(label, result, call)                          \
    do {                                                       \
        if (((result) = (call)) != OK) {                       \
            status_pass((result), __FILE__, __LINE__);         \
            goto label;                                        \
        }                                                      \
    } while (0)
#define CHECK(claim) \
    ((claim) ? (void)0 : status_bug(__FILE__, __LINE__, #claim))

#endif
