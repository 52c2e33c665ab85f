/* SPDX-License-Identifier: Apache-2.0 */
/* about.c - version, and the pages of docs/generated. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>
#include <yaml.h>
#include "base/options.h"
#include "cli/about.h"
#include "cli/run.h"
#include "cli/table.h"
#include "kernels/kernels.h"
#include "lockstep.h"
#include "observe/metrics.h"

#define QUOTE_(text) #text
#define QUOTE(text) QUOTE_(text)
#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Instruction sets the kernels were compiled for, apart by spaces. */
const char *about_isas(void)
{
    return QUOTE(ISAS);
}

void about_libraries(struct about_library out[ABOUT_LIBRARIES])
{
    const char *space;
    char *pcre2 = out[1].version;

    out[0].name = "libyaml";
    snprintf(out[0].version, ABOUT_VERSION_BYTES, "%s",
             yaml_get_version_string());
    out[1].name = "pcre2";
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) >= ABOUT_VERSION_BYTES ||
        pcre2_config(PCRE2_CONFIG_VERSION, pcre2) < 0)
        snprintf(pcre2, ABOUT_VERSION_BYTES, "unknown");
    space = strchr(pcre2, ' '); /* "10.42 2022-12-11" */
    if (space != NULL) pcre2[space - pcre2] = '\0';
    out[2].name = "utf8proc";
    snprintf(out[2].version, ABOUT_VERSION_BYTES, "%s", utf8proc_version());
}

static void version_json(struct json_writer *writer)
{
    struct about_library libraries[ABOUT_LIBRARIES];

    about_libraries(libraries);
    json_write_begin(writer, 2);
    json_write_object(writer);
    json_write_key(writer, "version");
    json_write_string(writer, LOCKSTEP_VERSION);
    json_write_key(writer, "numerics_version");
    json_write_integer(writer, LOCKSTEP_NUMERICS_VERSION);
    json_write_key(writer, "compiler");
    json_write_string(writer, COMPILER);
    json_write_key(writer, "isas_built");
    json_write_string(writer, about_isas());
    json_write_key(writer, "isa_used");
    json_write_string(writer, isa_name(isa_best()));
    json_write_key(writer, "libraries");
    json_write_object(writer);
    for (int i = 0; i < ABOUT_LIBRARIES; i++) {
        json_write_key(writer, libraries[i].name);
        json_write_string(writer, libraries[i].version);
    }
    json_write_object_end(writer);
    json_write_object_end(writer);
}

status command_version(struct arguments *arguments)
{
    struct about_library libraries[ABOUT_LIBRARIES];
    struct json_writer writer = {0};

    if (arguments_has(arguments, "json")) {
        version_json(&writer);
        return json_print(&writer, stdout);
    }
    about_libraries(libraries);
    printf("lockstep %s\n", LOCKSTEP_VERSION);
    printf("numerics %d\n", LOCKSTEP_NUMERICS_VERSION);
    printf("compiler %s\n", COMPILER);
    printf("isas built %s; used here %s\n", about_isas(),
           isa_name(isa_best()));
    for (int i = 0; i < ABOUT_LIBRARIES; i++)
        printf("%s %s\n", libraries[i].name, libraries[i].version);
    return OK;
}

static status options_page(struct text *out)
{
    TRY(text_append_string(out, "# Options\n\nKeys of a configuration, of "
                                "`--set` and, upper case with two underscores "
                                "for the dot,\nof the environment "
                                "(`LOCKSTEP_OPTIMIZER__LR`). Printed by "
                                "`lockstep docs options`\nfrom "
                                "`src/base/options.def`.\n\n"));
    return options_describe(out, true);
}

status command_docs(struct arguments *arguments)
{
    static const struct {
        const char *name;
        status (*write)(struct text *out);
    } pages[] = {{"options", options_page},
                 {"metrics", metrics_describe},
                 {"commands", help_markdown}};
    const char *wanted = arguments->operands[0];
    struct text text = {0};
    status result;

    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        if (strcmp(pages[i].name, wanted) != 0) continue;
        TRY_GOTO(done, result, pages[i].write(&text));
        fwrite(text.bytes, 1, text.length, stdout);
        goto done;
    }
    FAIL_GOTO(done, result, ERR_USAGE,
              "there is no page %s; expected options, metrics or commands",
              wanted);
done:
    text_free(&text);
    return result;
}
