/* SPDX-License-Identifier: Apache-2.0 */
/* profile_file.c - reading and writing the file of a machine. */
#include "planner/profile_file.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "nn/rounding_kernels.h"

enum { FILE_BYTES = 1 << 24, ROWS_MOST = 1 << 16 };

static status start(struct machine *machine, const char *path,
                    const char *from)
{
    for (int i = 0; i < machine_preset_count; i++) {
        if (strcmp(machine_presets[i].name, from) != 0) continue;
        machine_from_preset(machine, &machine_presets[i]);
        snprintf(machine->name, sizeof machine->name, "%s, corrected", from);
        return OK;
    }
    FAIL(ERR_CONFIG, "%s: from: %s is no preset; `lockstep machines` lists "
                     "them", path, from);
}

/* ---- lines of a person ---- */

static char *trim(char *word)
{
    size_t length;

    while (isspace((unsigned char)*word)) word++;
    length = strlen(word);
    while (length > 0 && isspace((unsigned char)word[length - 1])) length--;
    word[length] = 0;
    return word;
}

static status read_line(struct machine *machine, const char *where,
                        char *line)
{
    char *colon, *end, *key, *value;

    line[strcspn(line, "#")] = 0;
    key = trim(line);
    if (*key == 0) return OK;
    colon = strchr(key, ':');
    if (colon == NULL)
        FAIL(ERR_FORMAT, "%s: expected \"name: value\", found \"%.60s\"",
             where, key);
    *colon = 0;
    key = trim(key);
    value = trim(colon + 1);
    if (strcmp(key, "from") == 0) {
        if (machine->arena.name != NULL)
            FAIL(ERR_FORMAT, "%s: from: stands before the constants, once",
                 where);
        return start(machine, where, value);
    }
    if (machine->arena.name == NULL)
        FAIL(ERR_FORMAT, "%s: expected \"from: PRESET\" before the constants, "
                         "found \"%.60s\"", where, key);
    const double number = strtod(value, &end);

    if (end == value || *end != 0)
        FAIL(ERR_FORMAT, "%s: %s: \"%.60s\" is not a number", where, key,
             value);
    for (int i = 0; i < M_CONSTANTS; i++)
        if (strcmp(constant_rows[i].key, key) == 0 &&
            machine->mark[i] == MARK_BY_HAND)
            FAIL(ERR_FORMAT, "%s: %s is set twice", where, key);
    return machine_set(machine, where, key, number, MARK_BY_HAND);
}

static status read_lines(struct machine *machine, const char *path,
                         char *text)
{
    char *rest = text, *line;
    char where[4400];
    int number = 0;

    while ((line = strsep(&rest, "\n")) != NULL) {
        snprintf(where, sizeof where, "%s, line %d", path, ++number);
        TRY(read_line(machine, where, line));
    }
    if (machine->arena.name == NULL)
        FAIL(ERR_FORMAT, "%s is empty; expected \"from: PRESET\" or what "
                         "`lockstep calibrate --out` writes", path);
    return OK;
}

/* ---- JSON ---- */

static status read_constants(struct machine *machine, const char *path,
                             const struct json *all)
{
    for (int i = 0; i < all->count; i++) {
        const char *key = all->items[2 * i].string;
        const struct json *value = &all->items[2 * i + 1];
        const char *mark = "by hand";
        enum mark found = MARK_BY_HAND;
        double number;

        if (value->kind == JSON_OBJECT) {
            TRY(json_get_real(value, path, "value", &number));
            TRY(json_get_string_or(value, path, "mark", mark, &mark));
        } else if (value->kind == JSON_REAL || value->kind == JSON_INTEGER) {
            number = value->real;
        } else {
            FAIL(ERR_FORMAT, "%s: constants.%s: expected a number", path, key);
        }
        for (int m = 0; m < MARKS; m++)
            if (strcmp(mark, mark_name((enum mark)m)) == 0)
                found = (enum mark)m;
        TRY(machine_set(machine, path, key, number, found));
    }
    return OK;
}

/* Seconds of one call; bytes, or FLOPs, of one. Beyond these nobody measured
 * anything, and sums over a step leave the range of a clock. */
static const struct range { double least, most; }
    call_seconds = {1e-12, 1e6}, call_amount = {1, 1e24};

static status in_range(const char *path, const char *what, double value,
                       struct range range)
{
    if (!(value >= range.least && value <= range.most))
        FAIL(ERR_FORMAT, "%s: %s is %g; expected %g to %g", path, what, value,
             range.least, range.most);
    return OK;
}

static status threads_of(const char *path, const char *what, int64_t threads,
                         int *out)
{
    if (threads < 1 || threads > 4096)
        FAIL(ERR_FORMAT, "%s: %s: %lld threads; expected 1 to 4096", path,
             what, (long long)threads);
    *out = (int)threads;
    return OK;
}

/* The number of a word among `count` names. */
static status named_of(const char *path, const char *what, const char *word,
                       const char *const *names, int count, int *out)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], word) == 0) {
            *out = i;
            return OK;
        }
    FAIL(ERR_FORMAT, "%s: %s is %s; expected one like %s", path, what, word,
         names[0]);
}

static status read_work(const char *path, const struct json *row,
                        struct measured_work *out)
{
    int64_t threads = 1, bits = 32;
    const char *work = NULL;
    int number = 0;

    TRY(json_get_string(row, path, "work", &work));
    TRY(named_of(path, "works: work", work, work_names, WORKS, &number));
    out->work = (enum work)number;
    TRY(json_get_integer(row, path, "rows", &out->rows));
    TRY(json_get_integer(row, path, "width", &out->width));
    TRY(json_get_integer_or(row, path, "bits", 32, &bits));
    if (bits != 16 && bits != 32)
        FAIL(ERR_FORMAT, "%s: works: bits is %lld; expected 16 or 32", path,
             (long long)bits);
    out->bits = (int)bits;
    TRY(json_get_integer_or(row, path, "threads", 1, &threads));
    TRY(threads_of(path, "works", threads, &out->threads));
    if (out->rows < 1 || out->width < 1)
        FAIL(ERR_FORMAT, "%s: works: %lld rows of %lld elements", path,
             (long long)out->rows, (long long)out->width);
    TRY(json_get_real(row, path, "amount", &out->amount));
    TRY(json_get_real(row, path, "seconds", &out->seconds));
    TRY(in_range(path, "works: amount", out->amount, call_amount));
    return in_range(path, "works: seconds", out->seconds, call_seconds);
}

/* Bits, granule, promote. */
static status read_accumulator(const char *path, const struct json *list,
                               struct accumulator *out)
{
    int *const parts[] = {&out->bits, &out->granule, &out->promote};

    *out = (struct accumulator){0};
    if (list == NULL) return OK;
    for (int i = 0; i < 3; i++) {
        if (list->kind != JSON_ARRAY || list->count != 3 ||
            list->items[i].kind != JSON_INTEGER || list->items[i].integer < 0 ||
            list->items[i].integer > INT32_MAX)
            FAIL(ERR_FORMAT, "%s: products: accumulator: expected three "
                             "numbers, such as [14, 32, 128]", path);
        *parts[i] = (int)list->items[i].integer;
    }
    return OK;
}

static status read_product(const char *path, const struct json *row,
                           struct measured_product *out)
{
    int64_t bits = 0, threads = 1;
    const char *kind = NULL;
    int number = PRODUCT_KINDS;

    TRY(json_get_integer(row, path, "m", &out->m));
    TRY(json_get_integer(row, path, "n", &out->n));
    TRY(json_get_integer(row, path, "k", &out->k));
    TRY(json_get_integer(row, path, "bits", &bits));
    TRY(json_get_real(row, path, "seconds", &out->seconds));
    TRY(json_get_real_or(row, path, "sigma", 0, &out->sigma));
    TRY(json_get_integer_or(row, path, "threads", 1, &threads));
    TRY(threads_of(path, "products", threads, &out->threads));
    TRY(json_get_string_or(row, path, "kind", NULL, &kind));
    if (kind != NULL)
        TRY(named_of(path, "products: kind", kind, product_kind_names,
                     PRODUCT_KINDS, &number));
    TRY(read_accumulator(path, json_get(row, "accumulator"),
                         &out->accumulator));
    out->kind = (enum product_kind)number;
    if (bits != 8 && bits != 16 && bits != 32)
        FAIL(ERR_FORMAT, "%s: products: bits is %lld; expected 8, 16 or 32",
             path, (long long)bits);
    out->bits = (int)bits;
    if (out->m < 1 || out->n < 1 || out->k < 1)
        FAIL(ERR_FORMAT, "%s: products: %lld x %lld x %lld is no product", path,
             (long long)out->m, (long long)out->n, (long long)out->k);
    return in_range(path, "products: seconds", out->seconds, call_seconds);
}

static status read_rounding(const char *path, const struct json *row,
                            struct measured_rounding *out)
{
    const char *how = NULL;
    int64_t threads = 1;

    TRY(json_get_string(row, path, "how", &how));
    if (how[0] == 0 || strlen(how) >= sizeof out->how)
        FAIL(ERR_FORMAT, "%s: roundings: how is \"%.80s\"; expected 1 to %d "
                         "letters, like \"quantize e4m3 1x128 up nearest\"",
             path, how, ROUNDING_BYTES - 1);
    snprintf(out->how, sizeof out->how, "%s", how);
    out->code = rounded_code(how);
    TRY(json_get_integer(row, path, "rows", &out->rows));
    TRY(json_get_integer(row, path, "width", &out->width));
    TRY(json_get_integer_or(row, path, "threads", 1, &threads));
    TRY(threads_of(path, "roundings", threads, &out->threads));
    if (out->rows < 1 || out->width < 1)
        FAIL(ERR_FORMAT, "%s: roundings: %lld rows of %lld elements", path,
             (long long)out->rows, (long long)out->width);
    TRY(json_get_real(row, path, "seconds", &out->seconds));
    return in_range(path, "roundings: seconds", out->seconds, call_seconds);
}

static status read_list(const struct json *list, const char *path,
                        const char *what, struct range range, double *out,
                        int *count)
{
    if (list == NULL || list->kind != JSON_ARRAY || list->count < 1 ||
        list->count > SIZES_MOST)
        FAIL(ERR_FORMAT, "%s: collectives: %s: expected 1 to %d numbers", path,
             what, SIZES_MOST);
    *count = list->count;
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind != JSON_REAL &&
            list->items[i].kind != JSON_INTEGER)
            FAIL(ERR_FORMAT, "%s: collectives: %s: expected numbers", path,
                 what);
        out[i] = list->items[i].real;
        TRY(in_range(path, what, out[i], range));
    }
    return OK;
}

static status read_collective(const char *path, const struct json *row,
                              struct measured_collective *out)
{
    const char *op = NULL, *way = NULL;
    int64_t ranks = 0;
    int times = 0, known = 0;

    TRY(json_get_string(row, path, "op", &op));
    TRY(json_get_string(row, path, "path", &way));
    TRY(json_get_integer(row, path, "ranks", &ranks));
    TRY(named_of(path, "collectives: op", op, collective_names,
                 COLLECTIVE_OPS, &known));
    TRY(named_of(path, "collectives: path", way, collective_paths,
                 COLLECTIVE_PATHS, &known));
    snprintf(out->op, sizeof out->op, "%s", op);
    snprintf(out->path, sizeof out->path, "%s", way);
    if (ranks < 2 || ranks > 1 << 20)
        FAIL(ERR_FORMAT, "%s: collectives: %lld ranks; expected 2 or more",
             path, (long long)ranks);
    out->ranks = (int)ranks;
    TRY(read_list(json_get(row, "bytes"), path, "bytes", call_amount,
                  out->bytes, &out->count));
    TRY(read_list(json_get(row, "seconds"), path, "seconds", call_seconds,
                  out->seconds, &times));
    if (times != out->count)
        FAIL(ERR_FORMAT, "%s: collectives: %d sizes and %d times", path,
             out->count, times);
    for (int i = 1; i < out->count; i++)
        if (out->bytes[i] <= out->bytes[i - 1])
            FAIL(ERR_FORMAT, "%s: collectives: sizes must ascend", path);
    return OK;
}

static status rows_of(const struct json *root, const char *path,
                      const char *key, const struct json **out)
{
    *out = json_get(root, key);
    if (*out != NULL && ((*out)->kind != JSON_ARRAY ||
                         (*out)->count > ROWS_MOST))
        FAIL(ERR_FORMAT, "%s: %s: expected an array of at most %d rows", path,
             key, ROWS_MOST);
    return OK;
}

static status read_tables(struct machine *machine, const char *path,
                          const struct json *root)
{
    const struct json *rows;
    void *memory = NULL;

    TRY(rows_of(root, path, "products", &rows));
    if (rows != NULL && rows->count > 0) {
        TRY(arena_take_array(&machine->arena, (size_t)rows->count,
                             sizeof *machine->products, &memory));
        machine->products = memory;
        for (int i = 0; i < rows->count; i++)
            TRY(read_product(path, &rows->items[i], &machine->products[i]));
        machine->product_count = rows->count;
    }
    TRY(rows_of(root, path, "works", &rows));
    if (rows != NULL && rows->count > 0) {
        TRY(arena_take_array(&machine->arena, (size_t)rows->count,
                             sizeof *machine->works, &memory));
        machine->works = memory;
        for (int i = 0; i < rows->count; i++)
            TRY(read_work(path, &rows->items[i], &machine->works[i]));
        machine->work_count = rows->count;
    }
    TRY(rows_of(root, path, "roundings", &rows));
    if (rows != NULL && rows->count > 0) {
        TRY(arena_take_array(&machine->arena, (size_t)rows->count,
                             sizeof *machine->roundings, &memory));
        machine->roundings = memory;
        for (int i = 0; i < rows->count; i++)
            TRY(read_rounding(path, &rows->items[i], &machine->roundings[i]));
        machine->rounding_count = rows->count;
    }
    TRY(rows_of(root, path, "collectives", &rows));
    if (rows == NULL || rows->count == 0) return OK;
    TRY(arena_take_array(&machine->arena, (size_t)rows->count,
                         sizeof *machine->collectives, &memory));
    machine->collectives = memory;
    for (int i = 0; i < rows->count; i++)
        TRY(read_collective(path, &rows->items[i], &machine->collectives[i]));
    machine->collective_count = rows->count;
    return OK;
}

/* Where struct moments has each number, a double. */
static const struct { const char *name; size_t at; } moment_keys[] = {
    {"before_s", offsetof(struct moments, before.product_s)},
    {"after_s", offsetof(struct moments, after.product_s)},
    {"cache_before_s", offsetof(struct moments, before.cache_s)},
    {"cache_after_s", offsetof(struct moments, after.cache_s)},
    {"memory_before_s", offsetof(struct moments, before.memory_s)},
    {"memory_after_s", offsetof(struct moments, after.memory_s)},
    {"exchange_before_s", offsetof(struct moments, before.exchange_s)},
    {"exchange_after_s", offsetof(struct moments, after.exchange_s)},
    {"product_s", offsetof(struct moments, pace.product_s)},
    {"products_follow", offsetof(struct moments, pace.products)},
    {"works_follow", offsetof(struct moments, pace.works)},
    {"rest", offsetof(struct moments, pace.rest)},
    {"exchange_s", offsetof(struct moments, pace.exchange_s)},
};
enum { MOMENT_KEYS = sizeof moment_keys / sizeof *moment_keys };

static status read_sentinels(struct machine *machine, const char *path,
                             const struct json *from)
{
    for (int i = 0; from != NULL && i < MOMENT_KEYS; i++) {
        const char *name = moment_keys[i].name;
        double value;

        TRY(json_get_real_or(from, path, name, 0, &value));
        if (!(value >= 0))
            FAIL(ERR_FORMAT, "%s: sentinel: %s is %g; expected 0 or more",
                 path, name, value);
        memcpy((char *)&machine->moments + moment_keys[i].at, &value,
               sizeof value);
    }
    return OK;
}

/* Where struct left_out has each number, an int. */
static const struct { const char *name; size_t at; } left_out_keys[] = {
    {"products", offsetof(struct left_out, products)},
    {"works", offsetof(struct left_out, works)},
    {"roundings", offsetof(struct left_out, roundings)},
    {"large", offsetof(struct left_out, large)},
};
enum { LEFT_OUT_KEYS = sizeof left_out_keys / sizeof *left_out_keys };

static status read_left_out(struct machine *machine, const char *path,
                            const struct json *from)
{
    for (int i = 0; from != NULL && i < LEFT_OUT_KEYS; i++) {
        const char *name = left_out_keys[i].name;
        int64_t value;
        int rows;

        TRY(json_get_integer_or(from, path, name, 0, &value));
        if (value < 0 || value > ROWS_MOST)
            FAIL(ERR_FORMAT, "%s: left_out: %s is %lld; expected 0 to %d",
                 path, name, (long long)value, ROWS_MOST);
        rows = (int)value;
        memcpy((char *)&machine->left_out + left_out_keys[i].at, &rows,
               sizeof rows);
    }
    return OK;
}

static status read_json(struct machine *machine, const char *path,
                        const struct text *text, struct arena *arena)
{
    static const char *const keys[] = {
        "version", "name", "key", "from", "constants", "sentinel", "left_out",
        "products", "works", "roundings", "collectives"};
    const struct json *root, *constants;
    const char *from = NULL, *name = NULL, *key = NULL;
    int64_t version = 0;

    TRY(json_read(&root, arena, text->bytes, text->length, path));
    if (root->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: expected an object", path);
    TRY(json_get_integer(root, path, "version", &version));
    if (version != PROFILE_VERSION)
        FAIL(ERR_FORMAT, "%s: version is %lld; this program reads %d", path,
             (long long)version, PROFILE_VERSION);
    TRY(json_only_keys(root, path, keys, (int)(sizeof keys / sizeof *keys)));
    TRY(json_get_string_or(root, path, "from", "cpu", &from));
    TRY(json_get_string_or(root, path, "name", "", &name));
    TRY(json_get_string_or(root, path, "key", "", &key));
    TRY(start(machine, path, from));
    if (name[0] != 0)
        snprintf(machine->name, sizeof machine->name, "%s", name);
    snprintf(machine->key, sizeof machine->key, "%s", key);
    constants = json_get(root, "constants");
    if (constants != NULL && constants->kind != JSON_OBJECT)
        FAIL(ERR_FORMAT, "%s: constants: expected an object of numbers", path);
    if (constants != NULL) TRY(read_constants(machine, path, constants));
    TRY(read_sentinels(machine, path, json_get(root, "sentinel")));
    TRY(read_left_out(machine, path, json_get(root, "left_out")));
    return read_tables(machine, path, root);
}

status profile_read(struct machine *machine, const char *path)
{
    struct arena arena;
    struct text text = {0};
    size_t at = 0;
    status result;

    arena_init(&arena, "profile", 0);
    TRY_GOTO(done, result, file_read(path, FILE_BYTES, &text));
    while (at < text.length && isspace((unsigned char)text.bytes[at])) at++;
    if (at < text.length && text.bytes[at] == '{')
        result = read_json(machine, path, &text, &arena);
    else if (text.length > 0)
        result = read_lines(machine, path, text.bytes);
    else
        result = read_lines(machine, path, (char[]){0});
done:
    text_free(&text);
    arena_free(&arena);
    return result;
}

/* ---- writing ---- */

static void write_accumulator(const struct accumulator *a,
                              struct json_writer *w)
{
    json_write_key(w, "accumulator");
    json_write_array(w);
    json_write_integer(w, a->bits);
    json_write_integer(w, a->granule);
    json_write_integer(w, a->promote);
    json_write_array_end(w);
}

static void write_tables(const struct machine *machine,
                         struct json_writer *w)
{
    json_write_key(w, "products");
    json_write_array(w);
    for (int i = 0; i < machine->product_count; i++) {
        const struct measured_product *p = &machine->products[i];

        json_write_object(w);
        json_write_key_integer(w, "m", p->m);
        json_write_key_integer(w, "n", p->n);
        json_write_key_integer(w, "k", p->k);
        if (p->kind < PRODUCT_KINDS)
            json_write_key_text(w, "kind", product_kind_names[p->kind]);
        json_write_key_integer(w, "bits", p->bits);
        json_write_key_integer(w, "threads", p->threads);
        json_write_key_real(w, "seconds", p->seconds);
        json_write_key_real(w, "sigma", p->sigma);
        if (p->accumulator.bits > 0) write_accumulator(&p->accumulator, w);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_key(w, "works");
    json_write_array(w);
    for (int i = 0; i < machine->work_count; i++) {
        const struct measured_work *x = &machine->works[i];

        json_write_object(w);
        json_write_key_text(w, "work", work_names[x->work]);
        json_write_key_integer(w, "rows", x->rows);
        json_write_key_integer(w, "width", x->width);
        json_write_key_integer(w, "bits", x->bits);
        json_write_key_integer(w, "threads", x->threads);
        json_write_key_real(w, "amount", x->amount);
        json_write_key_real(w, "seconds", x->seconds);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_key(w, "roundings");
    json_write_array(w);
    for (int i = 0; i < machine->rounding_count; i++) {
        const struct measured_rounding *r = &machine->roundings[i];

        json_write_object(w);
        json_write_key_text(w, "how", r->how);
        json_write_key_integer(w, "rows", r->rows);
        json_write_key_integer(w, "width", r->width);
        json_write_key_integer(w, "threads", r->threads);
        json_write_key_real(w, "seconds", r->seconds);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_key(w, "collectives");
    json_write_array(w);
    for (int i = 0; i < machine->collective_count; i++) {
        const struct measured_collective *c = &machine->collectives[i];

        json_write_object(w);
        json_write_key_text(w, "op", c->op);
        json_write_key_text(w, "path", c->path);
        json_write_key_integer(w, "ranks", c->ranks);
        json_write_key_list(w, "bytes", c->bytes, c->count, json_write_real);
        json_write_key_list(w, "seconds", c->seconds, c->count,
                            json_write_real);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void write_sentinels(const struct machine *machine,
                            struct json_writer *w)
{
    for (int i = 0; i < MOMENT_KEYS; i++) {
        double value;

        memcpy(&value, (const char *)&machine->moments + moment_keys[i].at,
               sizeof value);
        json_write_key_real(w, moment_keys[i].name, value);
    }
}

void machine_left_out_write(const struct machine *machine,
                            struct json_writer *w)
{
    json_write_object(w);
    for (int i = 0; i < LEFT_OUT_KEYS; i++) {
        int rows;

        memcpy(&rows, (const char *)&machine->left_out + left_out_keys[i].at,
               sizeof rows);
        json_write_key_integer(w, left_out_keys[i].name, rows);
    }
    json_write_object_end(w);
}

status machine_write(const struct machine *machine, struct text *out)
{
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 1);
    json_write_object(&w);
    json_write_key_integer(&w, "version", PROFILE_VERSION);
    json_write_key_text(&w, "name", machine->name);
    json_write_key_text(&w, "key", machine->key);
    json_write_key(&w, "sentinel");
    json_write_object(&w);
    write_sentinels(machine, &w);
    json_write_object_end(&w);
    json_write_key(&w, "left_out");
    machine_left_out_write(machine, &w);
    json_write_key(&w, "constants");
    machine_constants_write(machine, &w);
    write_tables(machine, &w);
    json_write_object_end(&w);
    result = json_write_line(&w, out);
    json_writer_free(&w);
    return result;
}
