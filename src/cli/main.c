/* SPDX-License-Identifier: Apache-2.0 */
/* main.c - the program. */
#include "lockstep.h"

int main(int argc, char **argv)
{
    return lockstep_main(argc, argv);
}
