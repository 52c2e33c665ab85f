/* SPDX-License-Identifier: Apache-2.0 */
/* host.c - the name of this machine. */
#include "control/host.h"

#include <string.h>
#include <unistd.h>

void host_name(char out[HOST_NAME_BYTES])
{
    memset(out, 0, HOST_NAME_BYTES);
    if (gethostname(out, HOST_NAME_BYTES - 1) != 0) out[0] = '\0';
}
