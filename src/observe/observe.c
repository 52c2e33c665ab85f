/* SPDX-License-Identifier: Apache-2.0 */
/* observe.c - the outputs of a run beside metrics.jsonl. */
#include "observe/observe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static bool wants_layers(const struct options *o)
{
    return o->observe.layers > 0 || o->observe.histograms > 0;
}

int64_t observe_values(const struct options *options, int ranks)
{
    return wants_layers(options) ? layers_values(ranks) : 0;
}

/* ---- opening ---- */

static status open_layers_file(struct observer *o, int64_t step_kept)
{
    char path[PATH_BYTES];

    TRY(path_join(path, sizeof path, o->run, "layers.jsonl"));
    TRY(lines_cut(path, step_kept, NULL));
    return lines_open(&o->layers_file, path, "layers.append", 0);
}

/* The configuration, as Markdown that keeps its lines. */
static status tell_configuration(struct observer *o, int64_t step)
{
    struct text yaml = {0}, page = {0};
    const struct events_moment moment = {step, clock_wall_s()};
    status result;

    TRY_GOTO(done, result, options_write_yaml(o->set, &yaml));
    TRY_GOTO(done, result, text_append_string(&page, "```yaml\n"));
    TRY_GOTO(done, result, text_append(&page, yaml.bytes, yaml.length));
    TRY_GOTO(done, result, text_append_string(&page, "```\n"));
    TRY_GOTO(done, result, events_text(&o->events, moment, "configuration",
                                       page.bytes, page.length));
done:
    text_free(&yaml);
    text_free(&page);
    return result;
}

/* Files that go on behind a step. */
static status open_files(struct observer *o, int64_t step_kept)
{
    o->step_kept = step_kept;
    if (o->options->observe.tensorboard) {
        TRY(events_open(&o->events, o->run, step_kept, clock_wall_s()));
        TRY(tell_configuration(o, step_kept + 1));
    }
    return o->options->observe.layers > 0 ? open_layers_file(o, step_kept)
                                          : OK;
}

static void close_files(struct observer *o)
{
    events_close(&o->events);
    lines_close(&o->layers_file);
}

static void tell_address(const char *address, const char *run)
{
    fprintf(stderr, "metrics   http://%s/metrics\n", address);
    if (!prometheus_is_open(address)) return;
    fprintf(stderr, "warning   everybody who can reach this machine's port %s "
                    "reads there, without a password: losses, rates, speed, "
                    "the directory's name (%s) and the version; with "
                    "observe.prometheus=127.0.0.1:%s only this machine can\n",
            strrchr(address, ':') + 1, run, strrchr(address, ':') + 1);
}

status observe_open(struct observer *o, const struct options_set *set,
                    struct train_step *step,
                    const struct inventory *inventory, int64_t step_kept)
{
    const char *address = set->values.observe.prometheus;

    o->set = set;
    o->options = &set->values;
    snprintf(o->run, sizeof o->run, "%s", set->values.run.dir);
    if (wants_layers(o->options)) {
        o->sees_layers = true;
        TRY(layers_build(&o->layers, step, inventory, &o->events));
    }
    if (team_rank(step->team) != 0) return OK;
    TRY(open_files(o, step_kept));
    if (address[0] == '\0') return OK;
    TRY(prometheus_open(&o->prometheus, address, o->run));
    tell_address(prometheus_address(o->prometheus), o->run);
    return OK;
}

status observe_finish(struct observer *o)
{
    TRY(lines_finish(&o->events.lines));
    return lines_finish(&o->layers_file);
}

status observe_rewind(struct observer *o, int64_t step_kept)
{
    close_files(o);
    return open_files(o, step_kept);
}

void observe_close(struct observer *o)
{
    prometheus_close(o->prometheus);
    close_files(o);
    layers_free(&o->layers);
    *o = (struct observer){0};
}

/* ---- steps ---- */

void observe_begin(struct observer *o, int64_t step)
{
    if (!o->sees_layers) return;
    o->layers.time_s = clock_wall_s();
    layers_begin(&o->layers, step, due(step, o->options->observe.layers),
                 due(step, o->options->observe.histograms));
}

static status write_layers(struct observer *o)
{
    struct text line = {0};
    status result;

    TRY_GOTO(done, result, layers_format(&line, &o->layers));
    result = lines_put(&o->layers_file, line.bytes, line.length);
done:
    text_free(&line);
    return result;
}

status observe_end(struct observer *o)
{
    const bool looked = o->sees_layers && o->layers.looks;

    if (!o->sees_layers) return OK;
    o->looked = looked;
    TRY(layers_end(&o->layers));
    if (!looked || o->layers_file.descriptor <= 0) return OK;
    TRY(write_layers(o));
    return events_on(&o->events) ? layers_tell(&o->layers) : OK;
}

void observe_roundings(const struct observer *o, double *cut, double *zeroed)
{
    *cut = *zeroed = (double)NAN;
    if (o->sees_layers && o->looked)
        roundings_worst(&o->layers.roundings, cut, zeroed);
}

status observe_row(struct observer *o, const struct metrics_row *row,
                   bool logged)
{
    if (o->prometheus != NULL) prometheus_update(o->prometheus, row);
    if (!logged || !events_on(&o->events)) return OK;
    return events_metrics(&o->events, row);
}

status observe_sample(struct observer *o, int64_t step, const char *tag,
                      const char *text)
{
    struct text page = {0};
    const struct events_moment moment = {step, clock_wall_s()};
    status result;

    if (!events_on(&o->events) || text == NULL || step <= o->step_kept)
        return OK;
    TRY_GOTO(done, result, text_printf(&page, "```\n%s\n```\n", text));
    TRY_GOTO(done, result, events_text(&o->events, moment, tag, page.bytes,
                                       page.length));
done:
    text_free(&page);
    return result;
}
