/* SPDX-License-Identifier: Apache-2.0 */
/* inheritance.c - memory without a name, the token, the environment of ranks.
 */
#include "comm/inheritance.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"

status inherited_memory(const char *name, int64_t bytes, int *out)
{
    const int descriptor = memfd_create(name, MFD_CLOEXEC);

    if (descriptor < 0 || ftruncate(descriptor, bytes) != 0 ||
        fchmod(descriptor, 0600) != 0) {
        const int why = errno;

        if (descriptor >= 0) close(descriptor);
        FAIL(ERR_MEMORY, "%" PRId64 " bytes of memory for %s: %s%s", bytes,
             name, strerror(why), why == EFBIG ? " (ulimit -f)" : "");
    }
    *out = descriptor;
    return OK;
}

status inherited_token(const struct token *token, int *out)
{
    char text[2 * SHA256_BYTES + 1];
    int file;

    TRY(inherited_memory("lockstep-token", 0, &file));
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", token->key[i]);
    if (file_put(file, "the token in memory", text, 2 * SHA256_BYTES) != OK) {
        close(file);
        return status_pass(ERR_IO, __FILE__, __LINE__);
    }
    *out = file;
    return OK;
}

status inherited_number(const char *name, uint64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRIu64, number);
    if (setenv(name, text, 1) != 0)
        FAIL(ERR_MEMORY, "no memory for the environment");
    return OK;
}
