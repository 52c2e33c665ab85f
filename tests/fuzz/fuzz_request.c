/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_request.c - can a request to the page of metrics hurt a run? A request
 * that is cut is not complete, or says the same as the whole. */
#include <stdlib.h>
#include <string.h>
#include "observe/prometheus.h"
#include "tests/fuzz/grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size + 1); /* what is read beyond it is seen */
    enum prometheus_ask ask;

    if (copy == NULL) return 0;
    if (size > 0) memcpy(copy, data, size);
    ask = prometheus_parse(copy, size);
    CHECK(ask <= PROMETHEUS_BAD);
    for (size_t cut = 0; cut < size && cut < 64; cut++) {
        const enum prometheus_ask of = prometheus_parse(copy, size - cut - 1);

        CHECK(of == PROMETHEUS_MORE || of == ask);
    }
    free(copy);
    return 0;
}

/* ---- the mutator ---- */

static const char *const words[] = {
    "GET ", "HEAD ", "POST ", "/metrics", "/", "?", " HTTP/1.1", "\r\n",
    "\r\n\r\n", "\n\n", "Host: ", "HTTP/", NULL};
static const struct grammar grammar = {words_grammar_read, words_grammar_write,
                                       words};

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room,
                               unsigned seed)
{
    mutate_seed(seed);
    return mutate_from(&grammar, data, size, room, 0);
}
