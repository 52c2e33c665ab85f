/* SPDX-License-Identifier: Apache-2.0 */
/* profile_print.c - a profile as a table, as comma-separated values and as
 * JSON. */
#include "observe/profile.h"

#include <math.h>
#include <string.h>

enum { NAME_BYTES = 64, RATE_BYTES = 24 };

static const char *row_name(const struct profile_row *row,
                            char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "%s%s%s", row->name,
             row->label[0] != '\0' ? " " : "", row->label);
    return out;
}

static double share_of(const struct profile *p, double ms)
{
    return p->step_ms > 0 ? 100 * ms / p->step_ms : 0;
}

/* In the unit of what limits the row. */
static const char *rate_text(const struct profile_row *row,
                             char out[RATE_BYTES])
{
    const bool computes =
        row->kind == METER_MATMUL || row->kind == METER_ATTENTION;

    out[0] = '\0';
    if (row->ms <= 0 || row->bytes <= 0) return out;
    if (computes && row->flops > 0)
        snprintf(out, RATE_BYTES, "%.1f GFLOP/s", 1e-6 * row->flops / row->ms);
    else
        snprintf(out, RATE_BYTES, "%.1f GB/s", 1e-6 * row->bytes / row->ms);
    return out;
}

static status print_line(const struct profile *p,
                         const struct profile_row *row, struct text *out)
{
    char name[NAME_BYTES], rate[RATE_BYTES], of[16] = "", amount[32] = "";
    char flops[32] = "";

    if (row->limit_ms > 0 && row->ms > 0)
        snprintf(of, sizeof of, "%.0f%%", 100 * row->limit_ms / row->ms);
    if (row->bytes > 0) text_bytes(amount, (uint64_t)row->bytes);
    if (row->flops > 0)
        snprintf(flops, sizeof flops, "%.3g", 1e-9 * row->flops);
    return text_printf(out, "%-28s %8.6g %10.3f %6.2f%% %10s %8s %15s %6s\n",
                       row_name(row, name), row->calls, row->ms,
                       share_of(p, row->ms), amount, flops,
                       rate_text(row, rate), of);
}

static status print_kinds(const struct profile *p, struct text *out)
{
    double sum = 0;

    for (int k = 0; k < METER_KINDS; k++) {
        sum += p->kind_ms[k];
        if (p->kind_ms[k] > 0) TRY(print_line(p, &p->kinds[k], out));
    }
    return text_printf(out, "%-37s %10.3f %6.2f%%\n", "sum", sum,
                       share_of(p, sum));
}

static status print_head(const char *what, struct text *out)
{
    return text_printf(out, "%-28s %8s %10s %7s %10s %8s %15s %6s\n", what,
                       "calls", "ms", "share", "bytes", "GFLOP", "rate",
                       "limit");
}

status profile_print(const struct profile *profile, struct text *out)
{
    TRY(print_head("kernel", out));
    for (int i = 0; i < profile->count; i++)
        TRY(print_line(profile, &profile->rows[i], out));
    TRY(text_append_string(out, "\n"));
    TRY(print_head("kind", out));
    return print_kinds(profile, out);
}

status profile_csv(const struct profile *profile, struct text *out)
{
    TRY(text_append_string(out, "kind,name,label,m,n,k,calls,ms,share,bytes,"
                                "flops,limit_ms\n"));
    for (int i = 0; i < profile->count; i++) {
        const struct profile_row *row = &profile->rows[i];

        TRY(text_printf(out, "%s,%s,%s,%lld,%lld,%lld,%.6g,%.6f,%.6f,%.0f,"
                             "%.0f,%.6f\n",
                        meter_kind_name(row->kind), row->name, row->label,
                        (long long)row->shape[0], (long long)row->shape[1],
                        (long long)row->shape[2], row->calls, row->ms,
                        0.01 * share_of(profile, row->ms), row->bytes,
                        row->flops, row->limit_ms));
    }
    return OK;
}

static void write_string(struct json_writer *json, const char *key,
                         const char *value)
{
    json_write_key(json, key);
    json_write_string(json, value);
}

/* NaN is written as null. */
static void write_limit(struct json_writer *json, double limit_ms, double ms)
{
    const bool known = limit_ms > 0 && ms > 0;

    json_write_key_real(json, "limit_ms", known ? limit_ms : (double)NAN);
    json_write_key_real(json, "limit_fraction",
                        known ? limit_ms / ms : (double)NAN);
}

void profile_write_row(const struct profile *p, const struct profile_row *row,
                       struct json_writer *json)
{
    json_write_object(json);
    write_string(json, "kind", meter_kind_name(row->kind));
    write_string(json, "name", row->name);
    if (row->label[0] != '\0') write_string(json, "label", row->label);
    if (row->shape[0] > 0) {
        json_write_key(json, "shape");
        json_write_array(json);
        for (int i = 0; i < 3; i++) json_write_integer(json, row->shape[i]);
        json_write_array_end(json);
    }
    json_write_key_real(json, "calls", row->calls);
    json_write_key_real(json, "ms", row->ms);
    json_write_key_real(json, "share", 0.01 * share_of(p, row->ms));
    json_write_key_real(json, "bytes", row->bytes);
    json_write_key_real(json, "flops", row->flops);
    write_limit(json, row->limit_ms, row->ms);
    if (row->longest_ms > 0) {
        json_write_key_real(json, "longest_ms", row->longest_ms);
        json_write_key_integer(json, "instruction", row->longest_in);
    }
    json_write_object_end(json);
}

void profile_write(const struct profile *profile, struct json_writer *json)
{
    json_write_object(json);
    json_write_key(json, "steps");
    json_write_integer(json, profile->steps);
    json_write_key_real(json, "step_ms", profile->step_ms);
    json_write_key_real(json, "product_flops_per_s",
                        profile->limits.product_flops);
    json_write_key_real(json, "attention_flops_per_s",
                        profile->limits.attention_flops);
    json_write_key_real(json, "memory_bytes_per_s",
                        profile->limits.memory_bytes);
    json_write_key_integer(json, "memory_area_bytes",
                           profile->limits.memory_area);
    json_write_key_real(json, "bound_ms", profile_bound_ms(profile));
    json_write_key(json, "kinds");
    json_write_array(json);
    for (int k = 0; k < METER_KINDS; k++)
        profile_write_row(profile, &profile->kinds[k], json);
    json_write_array_end(json);
    json_write_key(json, "rows");
    json_write_array(json);
    for (int i = 0; i < profile->count; i++)
        profile_write_row(profile, &profile->rows[i], json);
    json_write_array_end(json);
    json_write_object_end(json);
}
