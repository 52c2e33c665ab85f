/* SPDX-License-Identifier: Apache-2.0 */
/* named_rows.h - rows of an option that begin with a name: NAME WORD...
 *
 * Words are parted by spaces; one that has a space goes into double quotes. A
 * name becomes part of the names of metrics: letters, digits, - and _. */
#ifndef LOCKSTEP_DATA_NAMED_ROWS_H
#define LOCKSTEP_DATA_NAMED_ROWS_H

#include "base/arena.h"
#include "base/status.h"

struct named_row {
    const char *name;
    const char **words; /* [count] */
    int count;
};

struct named_rows {
    struct arena arena; /* owns everything */
    struct named_row *items;
    int count;
};

/* `option` names the rows in messages, `form` says what one is: "NAME PATH...".
 * ERR_CONFIG: fewer words than `least`, more than `most`, a name that is none
 * or that two rows have. */
struct named_form {
    const char *option, *form;
    int least, most;
};
status named_read(struct named_rows *rows, const struct named_form *form,
                  const char *const *texts, int count);
void named_free(struct named_rows *rows);

/* The next word of a row, taken out of it (the row is changed); NULL: none. */
char *named_word(char **row);

#endif
