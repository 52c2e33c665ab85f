/* SPDX-License-Identifier: Apache-2.0 */
/* run_tokenizer.c - the tokenizer of a run. */
#include "tokenizer/run_tokenizer.h"

/* Token files may bring an end token of their own: a tokenizer may have none,
 * unless one is asked for by name. */
static status find_end(struct run_tokenizer *of, const char *name)
{
    if (tokenizer_end_of_text(&of->tokenizer, name, &of->vocabulary.end) == OK)
        return OK;
    of->vocabulary.end = -1;
    if (name[0] != '\0') return ERR_CONFIG; /* the trace stands */
    status_clear();
    return OK;
}

status run_tokenizer_read(struct run_tokenizer *out, const struct options *o)
{
    *out = (struct run_tokenizer){.vocabulary = {0, -1}};
    if (o->tokenizer.from[0] == '\0') return OK;
    TRY(tokenizer_read(&out->tokenizer, o->tokenizer.from));
    out->vocabulary.size = tokenizer_vocab(&out->tokenizer);
    return find_end(out, o->tokenizer.end_of_text);
}

void run_tokenizer_free(struct run_tokenizer *of)
{
    if (of->vocabulary.size > 0) tokenizer_free(&of->tokenizer);
    *of = (struct run_tokenizer){.vocabulary = {0, -1}};
}

const struct tokenizer *run_tokenizer_of(const struct run_tokenizer *of)
{
    return of->vocabulary.size > 0 ? &of->tokenizer : NULL;
}

status run_vocabulary(struct vocabulary *out, const struct options *o)
{
    struct run_tokenizer read;
    const status result = run_tokenizer_read(&read, o);

    *out = read.vocabulary;
    run_tokenizer_free(&read);
    return result;
}
