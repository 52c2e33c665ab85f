/* SPDX-License-Identifier: Apache-2.0 */
/* far_files.h - files of a run (base/local_stores.h), read by a rank of another
 * machine: its agent answers, with a process for each who asks.
 *
 *   rank    WIRE_FILE         what, path, offset, length
 *   agent   WIRE_FILE_ANSWER  how it went, bytes that follow, their CRC-32C */
#ifndef LOCKSTEP_CONTROL_FAR_FILES_H
#define LOCKSTEP_CONTROL_FAR_FILES_H

#include <pthread.h>
#include "base/local_stores.h"
#include "control/wire.h"

/* The agent's side: answers until the other one leaves. */
void far_files_serve(struct wire *wire, const struct stores *stores);

struct far_files {
    char name[STORE_NAME_BYTES];
    char address[DOOR_ADDRESS_BYTES];
    struct token token;
    struct wire wire;     /* opened when it is first needed */
    pthread_mutex_t lock;
};
void far_files_init(struct far_files *files, const char *name,
                    const char *address, const struct token *token);
void far_files_close(struct far_files *files);
/* As stores_list and stores_read, over there. argument: a struct far_files.
 * ERR_PEER: it does not answer. */
status far_files_list(void *argument, struct text *out);
status far_files_read(void *argument, const char *path, int64_t offset,
                      void *bytes, size_t length, size_t *got);

/* The environment that an agent gives its ranks. False: this process is no
 * rank of an agent, or the run keeps no shards on its machines. */
struct far_nodes {
    char own[STORE_NAME_BYTES];
    const char *lines;    /* "NAME ADDRESS\n" for each machine; borrowed */
    struct token token;
};
bool far_nodes_find(struct far_nodes *nodes);
/* The next machine of the lines; false: there is none. */
bool far_nodes_next(const char **lines, char name[STORE_NAME_BYTES],
                    char address[DOOR_ADDRESS_BYTES]);

#endif
