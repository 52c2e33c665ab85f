/* SPDX-License-Identifier: Apache-2.0 */
/* test_run.c - mirrors src/cli/run.c: the program as one function. */
#include "lockstep.h"
#include "tests/test.h"

TEST(the_public_exit_codes_are_those_of_the_statuses)
{
    static const struct {
        status code;
        enum lockstep_exit exit;
    } rows[] = {{OK, LOCKSTEP_EXIT_OK},
                {ERR_DIFFERS, LOCKSTEP_EXIT_DIFFERS},
                {ERR_USAGE, LOCKSTEP_EXIT_USAGE},
                {ERR_CONFIG, LOCKSTEP_EXIT_CONFIG},
                {ERR_MISSING, LOCKSTEP_EXIT_MISSING},
                {ERR_FORMAT, LOCKSTEP_EXIT_DATA},
                {ERR_MEMORY, LOCKSTEP_EXIT_MEMORY},
                {ERR_IO, LOCKSTEP_EXIT_IO},
                {ERR_DEVICE, LOCKSTEP_EXIT_DEVICE},
                {ERR_PEER, LOCKSTEP_EXIT_PEER},
                {ERR_STOPPED, LOCKSTEP_EXIT_RESUME},
                {ERR_NUMERIC, LOCKSTEP_EXIT_NUMERIC},
                {ERR_VERIFY, LOCKSTEP_EXIT_VERIFY},
                {ERR_FIT, LOCKSTEP_EXIT_FIT}};

    EQUAL_INT(ROWS(rows), STATUS_COUNT);
    for (int i = 0; i < ROWS(rows); i++)
        EQUAL_INT(status_exit_code(rows[i].code), rows[i].exit);
}

TEST(the_version_is_its_parts)
{
    char text[32];

    snprintf(text, sizeof text, "%d.%d.%d", LOCKSTEP_VERSION_MAJOR,
             LOCKSTEP_VERSION_MINOR, LOCKSTEP_VERSION_PATCH);
    EQUAL_TEXT(LOCKSTEP_VERSION, text);
}

/* Twice in one process, whatever came before. */
TEST(a_command_can_be_called)
{
    char program[] = "lockstep", version[] = "version", json[] = "--json";
    char wrong[] = "vresion";
    char *good[] = {program, version, json, NULL};
    char *bad[] = {program, wrong, NULL};

    EQUAL_INT(lockstep_main(2, bad), LOCKSTEP_EXIT_USAGE);
    EQUAL_INT(lockstep_main(3, good), LOCKSTEP_EXIT_OK);
    EQUAL_INT(lockstep_main(2, bad), LOCKSTEP_EXIT_USAGE);
    EQUAL_TEXT(status_message(), "");
}

TEST_MAIN(the_public_exit_codes_are_those_of_the_statuses,
          the_version_is_its_parts, a_command_can_be_called)
