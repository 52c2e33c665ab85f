/* SPDX-License-Identifier: Apache-2.0 */
/* token_set.h - token files one after the other, as one.
 *
 * Files of different layouts and widths may stand together. They stay where
 * they are and are mapped. Opening costs microseconds for each, whatever their
 * size, when a seal says that they are whole (token_file.h); a large one that
 * never had a seal is opened by its table and read whole beside the work. */
#ifndef LOCKSTEP_DATA_TOKEN_SET_H
#define LOCKSTEP_DATA_TOKEN_SET_H

#include "data/token_file.h"

struct token_set {
    struct token_file *files; /* owned [count] */
    int count;
    int64_t *document_before; /* owned [count + 1]: of files before a file */
    int64_t *token_before;    /* owned [count + 1] */
    int64_t documents, tokens;
    bool masked;              /* some file says which tokens are learned */
    int64_t text_bytes;       /* 0 where a file does not say */
    uint32_t crc;             /* of one file its own; else of them all; after
                               * token_set_settle */
    uint64_t key;             /* of what the documents are, for caches */
    struct token_check *check;/* owned: of files opened unread; NULL: none */
};

struct token_set_request {
    const char *const *paths; /* [count]; must outlive the set */
    int count;
    const char *tokenizer;    /* digest that files must carry; NULL: any */
    int64_t vocab;            /* of the model: ids must be below; 0: any */
    int32_t end_token;        /* where a file does not say; -1: unknown */
    const char *cache;        /* for seals; NULL: beside the files */
    /* Reports the bytes read of a file that must be read to be opened; may be
     * NULL. */
    void (*progress)(void *argument, double done, double total);
    void *argument;
};

/* ERR_CONFIG: another tokenizer, an id that the model has not. */
status token_set_open(struct token_set *set,
                      const struct token_set_request *request);
void token_set_close(struct token_set *set); /* also if never opened */
/* Whether settling would not wait; adds the bytes that were read beside the
 * work so far, and all of those. */
bool token_set_settled(const struct token_set *set, int64_t *read,
                       int64_t *bytes);
/* Waits for what is still read of the files (token_check.h); then crc is known.
 * ERR_FORMAT: one of them is not whole; ERR_CONFIG: it holds an id that the
 * model has not. */
status token_set_settle(struct token_set *set);

/* First token of document `index` in [0, documents]; the last is tokens. */
int64_t token_set_start(const struct token_set *set, int64_t index);
/* ids [count] = tokens [at, at + count). ERR_FORMAT: an id is not below `vocab`
 * (0: any is right). */
status token_set_read(const struct token_set *set, int64_t at, int64_t count,
                      int64_t vocab, int32_t *ids);
/* Whether token `at` is a target; false where a mask says that it is not. */
bool token_set_learned(const struct token_set *set, int64_t at);
/* Gives back the memory of pages that were read. */
void token_set_drop(const struct token_set *set);

#endif
