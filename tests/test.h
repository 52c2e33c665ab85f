/* SPDX-License-Identifier: Apache-2.0 */
/* test.h - the harness of the unit tests, over cmocka.
 *
 *   TEST(sums_are_exact) { EQUAL_INT(1 + 1, 2); }
 *   TEST_MAIN(sums_are_exact, ...)
 *
 * A test that ends with memory of an arena or memory_take out fails. Of the
 * names those run that TEST_ONLY in the environment matches (*, ?). */
#ifndef LOCKSTEP_TESTS_TEST_H
#define LOCKSTEP_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"

#define TEST(name) static void name(void **test_state_)
#define ROWS(table) ((int)(sizeof(table) / sizeof(*(table))))

/* In a test a false claim fails this test and not the program. */
#undef CHECK
#define CHECK(claim) \
    ((claim) ? (void)0 : test_failed(__FILE__, __LINE__, #claim))
#define IS_OK(call)                                                  \
    do {                                                             \
        if ((call) != OK)                                            \
            test_failed(__FILE__, __LINE__, #call " is OK");         \
    } while (0)
/* The call returns `code` and its sentence contains `words`. */
#define FAILS(call, code, words)                                     \
    test_fails((call), (code), (words), __FILE__, __LINE__, #call)
#define EQUAL_INT(a, b)                                              \
    test_equal_int((long long)(a), (long long)(b), __FILE__, __LINE__, #a)
#define EQUAL_TEXT(a, b) \
    test_equal_text((a), (b), __FILE__, __LINE__, #a)
#define EQUAL_BYTES(a, b, length)                                    \
    CHECK(memcmp((a), (b), (size_t)(length)) == 0)

static inline void test_failed(const char *file, int line, const char *claim)
{
    print_error("%s:%d: this should hold: %s\n", file, line, claim);
    if (status_message()[0] != '\0')
        print_error("  last status: %s\n", status_message());
    _fail(file, line);
}

static inline void test_fails(status found, status expected,
                              const char *words, const char *file, int line,
                              const char *call)
{
    if (found == expected && strstr(status_message(), words) != NULL) return;
    print_error("%s:%d: %s\n  expected %s: ...%s...\n  found %s: %s\n", file,
                line, call, status_name(expected), words, status_name(found),
                status_message());
    _fail(file, line);
}

static inline void test_equal_int(long long found, long long expected,
                                  const char *file, int line,
                                  const char *what)
{
    if (found == expected) return;
    print_error("%s:%d: %s is %lld, expected %lld\n", file, line, what, found,
                expected);
    _fail(file, line);
}

static inline void test_equal_text(const char *found, const char *expected,
                                   const char *file, int line,
                                   const char *what)
{
    if (found != NULL && strcmp(found, expected) == 0) return;
    print_error("%s:%d: %s is\n%s\nexpected\n%s\n", file, line, what,
                found != NULL ? found : "NULL", expected);
    _fail(file, line);
}

/* A fresh directory under $TMPDIR; the caller removes it with
 * directory_remove. */
static inline void test_directory(char out[PATH_BYTES])
{
    const char *base = getenv("TMPDIR");

    if (path_join(out, PATH_BYTES, base != NULL ? base : "/tmp",
                  "lockstep-test-XXXXXX") != OK ||
        mkdtemp(out) == NULL)
        test_failed(__FILE__, __LINE__, "a temporary directory can be made");
}

static size_t test_bytes_before;

static inline int test_begin_(void **state)
{
    (void)state;
    status_clear();
    test_bytes_before = arena_bytes_out();
    return 0;
}

static inline int test_end_(void **state)
{
    (void)state;
    if (arena_bytes_out() == test_bytes_before) return 0;
    print_error("the test ends with %zd bytes of memory out\n",
                (ssize_t)(arena_bytes_out() - test_bytes_before));
    return 1;
}

/* `names` is the list of arguments as text: one name, comma, space, ... */
static inline int test_main_(const CMUnitTestFunction *functions,
                             size_t count, const char *names,
                             const char *program)
{
    enum { TESTS_MAX = 200, NAMES_BYTES = 16384 };
    static struct CMUnitTest tests[TESTS_MAX];
    static char copy[NAMES_BYTES];
    char *rest = copy;

    if (count > TESTS_MAX || strlen(names) >= NAMES_BYTES) return 99;
    strcpy(copy, names);
    for (size_t i = 0; i < count; i++) {
        tests[i].name = strtok_r(NULL == rest ? NULL : rest, ", \n", &rest);
        tests[i].test_func = functions[i];
        tests[i].setup_func = test_begin_;
        tests[i].teardown_func = test_end_;
    }
    cmocka_set_test_filter(getenv("TEST_ONLY"));
    return _cmocka_run_group_tests(program, tests, count, NULL, NULL);
}

/* Unused parameters are the price of cmocka's signature. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define TEST_MAIN(...)                                                    \
    int main(void)                                                        \
    {                                                                     \
        static const CMUnitTestFunction functions[] = {__VA_ARGS__};      \
        return test_main_(functions, sizeof functions / sizeof *functions,\
                          #__VA_ARGS__, __FILE__);                        \
    }

#endif
