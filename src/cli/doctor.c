/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.c - the abilities of this machine and this build, row by row. */
#include "cli/probes.h"
#include "cli/run.h"
#include "cli/table.h"

static const struct table_column columns[] = {
    {"capability", "capability", false},
    {"works", "works", false},
    {"why", "why", false},
    {"what to do", "what_to_do", false},
};

static const char *const of_nodes[] = {"ranks", "seconds", "tolerance",
                                       "place"};

status command_doctor(struct arguments *arguments)
{
    struct table table;
    struct json_writer writer = {0};
    const char *broken = NULL;
    status result;

    if (arguments_has(arguments, "nodes")) return doctor_nodes(arguments);
    for (size_t i = 0; i < sizeof of_nodes / sizeof *of_nodes; i++)
        if (arguments_has(arguments, of_nodes[i]))
            FAIL(ERR_USAGE, "doctor: --%s needs --nodes", of_nodes[i]);
    table_begin(&table, columns, 4);
    for (int i = 0; i < probe_count; i++) {
        struct finding finding = {0};

        probes[i].run(&finding);
        table_text(&table, probes[i].name);
        table_bool(&table, finding.works);
        table_text(&table, finding.why);
        table_text(&table, finding.advice[0] ? finding.advice : NULL);
        if (!finding.works && probes[i].required && broken == NULL)
            broken = probes[i].name;
    }
    if (arguments_has(arguments, "json")) {
        json_write_begin(&writer, 2);
        TRY_GOTO(done, result, table_json(&table, &writer));
        TRY_GOTO(done, result, json_print(&writer, stdout));
    } else {
        TRY_GOTO(done, result, table_print(&table, stdout));
    }
    if (broken != NULL)
        FAIL_GOTO(done, result, ERR_DEVICE,
                  "%s does not work here, and training needs it", broken);
done:
    json_writer_free(&writer);
    table_free(&table);
    return result;
}
