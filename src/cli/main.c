/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the entry of the program. */
#include <signal.h>
#include "base/temporaries.h"
#include "base/terminal.h"
#include "lockstep.h"

int main(int argc, char **argv)
{
    /* A file beyond the size limit is then a write that fails, with a
     * sentence, and not the end of the process. */
    signal(SIGXFSZ, SIG_IGN);
    temporaries_guard();
    terminal_guard();
    return lockstep_main(argc, argv);
}
