/* SPDX-License-Identifier: Apache-2.0 */
/* sanitized.h - is this program checked by a sanitizer?
 *
 * It is then many times slower, and what it looks for depends on the code that
 * runs and not on the numbers. So tests may leave out cases that repeat code
 * with other numbers, which builds without a sanitizer run. */
#ifndef LOCKSTEP_TESTS_SANITIZED_H
#define LOCKSTEP_TESTS_SANITIZED_H

#if defined(__has_feature)
#define SANITIZED_BY(what) __has_feature(what##_sanitizer)
#else
#define SANITIZED_BY(what) 0
#endif

#if defined(__SANITIZE_THREAD__) || SANITIZED_BY(thread)
enum { SANITIZED_THREADS = 1 };
#else
enum { SANITIZED_THREADS = 0 };
#endif

#if defined(__SANITIZE_ADDRESS__) || SANITIZED_BY(address)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = SANITIZED_THREADS };
#endif

#endif
