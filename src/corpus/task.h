/* SPDX-License-Identifier: Apache-2.0 */
/* task.h - questions whose answers a model's likelihoods give: the records of
 * a JSON-lines file, as EleutherAI's lm-evaluation-harness words them.
 *
 *   hellaswag        activity_label, ctx_a, ctx_b (or ctx), endings, label
 *   arc              question, choices {text, label}, answerKey; also the
 *                    first form, question {stem, choices [{text, label}]}
 *   lambada          text: its last word is asked for
 *   multiple_choice  context, choices, answer (a number from 0, or a choice)
 *   perplexity       documents of text, JSON-lines or Parquet files (corpus.h)
 *
 * Source: Gao et al., lm-evaluation-harness, versions 0.4, whose YAML files
 * and process_docs functions say how each record becomes text. Zellers et al.
 * 2019, arXiv:1905.07830; Clark et al. 2018, arXiv:1803.05457; Paperno et al.
 * 2016, arXiv:1606.06031. */
#ifndef LOCKSTEP_CORPUS_TASK_H
#define LOCKSTEP_CORPUS_TASK_H

#include <stdbool.h>
#include "base/arena.h"
#include "base/json.h"

enum task_kind { TASK_HELLASWAG, TASK_ARC, TASK_LAMBADA, TASK_CHOICE,
                 TASK_TEXT, TASK_KINDS };
extern const char *const task_kind_names[TASK_KINDS];

/* UTF-8; may hold U+0000. */
struct task_text { const char *bytes; size_t length; };

struct task_item {
    struct task_text context;  /* "" of TASK_TEXT */
    struct task_text *choices; /* [choice_count], without the space that comes
                                * before; one of TASK_LAMBADA and TASK_TEXT */
    int choice_count;
    int answer;                /* index of the right one */
    int64_t line;              /* of the file, from 1; a document's number */
};

struct task {
    enum task_kind kind;
    char *path;              /* in the arena */
    struct arena arena;      /* owns the texts */
    struct task_item *items; /* owned [capacity] */
    int64_t count, capacity;
};

/* ERR_CONFIG names the nearest kind. `where` is what stands before it. */
status task_kind_find(const char *where, const char *name,
                      enum task_kind *kind);
/* The first `limit` records (0: all) of a file, which may be packed (.gz,
 * .zst). ERR_FORMAT names the line and what it lacks; ERR_MISSING. */
struct task_source {
    const char *path;
    enum task_kind kind;
    int64_t limit;
    const char *field; /* of documents: key of .jsonl, column of .parquet;
                        * NULL: "text" */
};
status task_read(struct task *task, const struct task_source *source);
void task_free(struct task *task);

/* Guesses the kind of a task file from the keys of its first record; .txt and
 * .parquet are documents. ERR_CONFIG: the keys fit no kind. */
status task_guess_file(const char *path, enum task_kind *kind);

/* White space at the end of a text, bytes; characters of it; and words as
 * Python's len(re.split(r"\s+", text)) counts them. */
size_t task_trailing_space(struct task_text text);
int64_t task_characters(struct task_text text);
int64_t task_words(struct task_text text);

#endif
