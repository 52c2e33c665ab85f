/* SPDX-License-Identifier: Apache-2.0 */
/* machines.c - the machines that the planner knows, with the source of every
 * constant. */
#include <string.h>
#include "cli/run.h"
#include "cli/table.h"
#include "planner/machine.h"

static int64_t ports_of(const struct machine *m)
{
    return (int64_t)(m->value[M_NICS] > 0 ? m->value[M_NICS]
                                          : m->value[M_DEVICES]);
}

static void links_write(const struct machine *m, struct json_writer *w)
{
    static const struct { const char *path; int rate, share, latency; } rows[] =
        {{"node", M_LINK_RATE, M_LINK, M_LINK_LATENCY},
         {"network", M_NIC_RATE, M_NIC, M_NIC_LATENCY}};

    json_write_key(w, "links");
    json_write_array(w);
    for (int i = 0; i < 2; i++) {
        json_write_object(w);
        json_write_key_text(w, "path", rows[i].path);
        json_write_key_real(w, "bytes_per_s", m->value[rows[i].rate]);
        if (rows[i].rate == M_NIC_RATE)
            json_write_key_integer(w, "ports", ports_of(m));
        json_write_key_real(w, "reached", m->value[rows[i].share]);
        json_write_key_real(w, "latency_s", m->value[rows[i].latency]);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void machine_row(const struct machine *m, const char *title,
                        struct json_writer *w)
{
    json_write_object(w);
    json_write_key_text(w, "name", m->name);
    json_write_key(w, "title");
    if (title != NULL) json_write_string(w, title);
    else json_write_null(w);
    json_write_key_text(w, "mark", mark_name(m->mark[M_GEMM]));
    json_write_key_text(w, "source", m->source[M_GEMM]);
    json_write_key_integer(w, "devices_per_node",
                           (int64_t)m->value[M_DEVICES]);
    json_write_key_real(w, "memory_bytes", m->value[M_MEMORY_BYTES]);
    links_write(m, w);
    json_write_key(w, "constants");
    machine_constants_write(m, w);
    json_write_object_end(w);
}

static void preset_rows(struct json_writer *w)
{
    for (int i = 0; i < machine_preset_count; i++) {
        struct machine m;

        machine_from_preset(&m, &machine_presets[i]);
        machine_row(&m, machine_presets[i].title, w);
        machine_free(&m);
    }
}

/* The title of a machine that is a preset as it stands. */
static const char *title_of(const char *name)
{
    for (int i = 0; i < machine_preset_count; i++)
        if (strcmp(machine_presets[i].name, name) == 0)
            return machine_presets[i].title;
    return NULL;
}

/* All presets, or the one machine that was asked for. */
static status print_json(const struct machine *one, const char *name)
{
    struct json_writer w = {0};

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_integer(&w, "version", 1);
    json_write_key(&w, "machines");
    json_write_array(&w);
    if (one == NULL) preset_rows(&w);
    else machine_row(one, title_of(name), &w);
    json_write_array_end(&w);
    json_write_object_end(&w);
    return json_print(&w, stdout);
}

static void overview(struct table *table)
{
    static const struct table_column columns[] = {
        {"machine", "machine", false}, {"devices", "devices", true},
        {"16 bits, TFLOP/s", "peak_16", true}, {"reached", "gemm", true},
        {"memory", "memory_bytes", true}, {"GB/s", "memory_rate", true},
        {"node, GB/s", "link_rate", true}, {"ports", "nics", true},
        {"of GB/s", "nic_rate", true},
        {"shares are", "mark", false}, {"meaning", "title", false}};

    table_begin(table, columns, 11);
    for (int i = 0; i < machine_preset_count; i++) {
        struct machine m;

        machine_from_preset(&m, &machine_presets[i]);
        table_text(table, m.name);
        table_integer(table, (int64_t)m.value[M_DEVICES]);
        table_real(table, m.value[M_PEAK_16] / 1e12, 4);
        table_real(table, m.value[M_GEMM], 3);
        table_bytes(table, (int64_t)m.value[M_MEMORY_BYTES]);
        table_real(table, m.value[M_MEMORY_RATE] / 1e9, 4);
        table_real(table, m.value[M_LINK_RATE] / 1e9, 4);
        table_integer(table, ports_of(&m));
        table_real(table, m.value[M_NIC_RATE] / 1e9, 4);
        table_text(table, mark_name(m.mark[M_GEMM]));
        table_text(table, machine_presets[i].title);
        machine_free(&m);
    }
}

static void constants(const struct machine *m, struct table *table)
{
    static const struct table_column columns[] = {
        {"constant", "constant", false}, {"value", "value", true},
        {"unit", "unit", false}, {"mark", "mark", false},
        {"meaning", "meaning", false}, {"source", "source", false}};

    table_begin(table, columns, 6);
    for (int i = 0; i < M_CONSTANTS; i++) {
        table_text(table, constant_rows[i].key);
        table_real(table, m->value[i], 5);
        table_text(table, constant_rows[i].unit);
        table_text(table, mark_name(m->mark[i]));
        table_text(table, constant_rows[i].meaning);
        table_text(table, m->source[i]);
    }
}

status command_machines(struct arguments *arguments)
{
    const char *one = arguments_text(arguments, "explain", NULL);
    struct table table = {0};
    struct machine m = {0};
    status result;

    if (one != NULL)
        TRY(machine_open(&m, &(struct machine_choice){one, "", true,
                                                   "--explain"}));
    if (arguments_has(arguments, "json")) {
        result = print_json(one != NULL ? &m : NULL, one);
    } else {
        if (one == NULL) overview(&table);
        else constants(&m, &table);
        result = table_print(&table, stdout);
        table_free(&table);
    }
    machine_free(&m);
    return result;
}
