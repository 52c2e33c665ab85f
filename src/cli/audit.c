/* SPDX-License-Identifier: Apache-2.0 */
/* audit.c - `lockstep data audit`: the proof that a run lost and repeated no
 * sample. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/run_dir.h"
#include "cli/left_out.h"
#include "cli/run.h"
#include "cli/table.h"
#include "optimizer/ramp.h"
#include "observe/consumed.h"
#include "train/trainer.h"

enum { FILE_BYTES_MOST = 1 << 30 };

struct auditing {
    const char *run;
    struct run_dir place;
    struct options_set set;
    struct ranges left_out;
    struct ramp ramp;
    struct checkpoint checkpoint; /* newest; open: has_checkpoint */
    bool has_checkpoint;
    int64_t cursor;               /* of it */
    int64_t cursor_found;         /* in the lines; -1: no line of its step */
    struct consumed_audit audit;
};

static void auditing_free(struct auditing *a)
{
    if (a->has_checkpoint) checkpoint_close(&a->checkpoint);
    ramp_free(&a->ramp);
    ranges_free(&a->left_out);
    options_free(&a->set);
    run_dir_close(&a->place);
}

/* Everything that the run left out on purpose, so far. */
static status read_left_out(struct auditing *a)
{
    const struct options *o = &a->set.values;

    TRY(ranges_read(&a->left_out, o->data.skip.items, o->data.skip.count));
    TRY(left_out_join(a->run, &a->left_out, &a->checkpoint,
                      &a->has_checkpoint));
    if (!a->has_checkpoint) return OK;
    return json_get_integer(a->checkpoint.state, "state.json", "samples",
                            &a->cursor);
}

static status open_run(struct auditing *a)
{
    const struct options *o = &a->set.values;

    TRY(run_dir_read(&a->place, a->run));
    TRY(options_init(&a->set));
    TRY(trainer_options(&a->set, a->run, NULL, 0));
    TRY(read_left_out(a));
    TRY(ramp_read(&a->ramp, o->train.batch_ramp.items,
                  o->train.batch_ramp.count, o->train.batch));
    a->audit.left_out = &a->left_out;
    a->audit.batch_most = o->train.batch;
    for (int i = 0; i < a->ramp.count; i++)
        if (a->ramp.rows[i].batch > a->audit.batch_most)
            a->audit.batch_most = a->ramp.rows[i].batch;
    if (a->audit.batch_most <= CONSUMED_BATCH_MOST) return OK;
    FAIL(ERR_CONFIG, "train.batch: samples of more than %d a step are not "
                     "recorded, %s has %" PRId64, CONSUMED_BATCH_MOST, a->run,
         a->audit.batch_most);
}

/* The lines up to the checkpoint's step, then the others: in between the place
 * must be the checkpoint's cursor. */
static status read_lines(struct auditing *a)
{
    const char *path = a->place.consumed;
    struct text text = {0};
    char key[48];
    const char *line;
    size_t first;
    status result;

    a->cursor_found = -1;
    if (!file_exists(path))
        FAIL(ERR_MISSING, "%s: there is no such file; runs of this version "
                          "write it while they train", path);
    TRY_GOTO(done, result, file_read_regular(path, FILE_BYTES_MOST, &text));
    first = text.length;
    snprintf(key, sizeof key, "{\"step\": %" PRId64 ", ",
             a->has_checkpoint ? a->checkpoint.manifest.step : -1);
    line = text.bytes != NULL ? memmem(text.bytes, text.length, key,
                                       strlen(key)) : NULL;
    if (line != NULL) {
        const char *end = memchr(line, '\n', text.length -
                                                 (size_t)(line - text.bytes));

        if (end != NULL) first = (size_t)(end - text.bytes) + 1;
    }
    TRY_GOTO(done, result,
             consumed_audit(&a->audit, text.bytes, first, path));
    if (first < text.length || line != NULL) a->cursor_found = a->audit.next;
    result = consumed_audit(&a->audit, text.bytes + first,
                            text.length - first, path);
done:
    text_free(&text);
    return result;
}

static void check_cursor(struct auditing *a)
{
    const int64_t step = a->has_checkpoint ? a->checkpoint.manifest.step : 0;

    if (step == 0) return;
    if (a->cursor_found < 0) {
        consumed_find(&a->audit, "step %" PRId64 ", of the newest checkpoint, "
                      "has no line", step);
        a->audit.missing++;
    } else if (a->cursor != a->cursor_found) {
        consumed_find(&a->audit, "the checkpoint of step %" PRId64 " goes on "
                      "at place %" PRId64 ", the lines at %" PRId64, step,
                      a->cursor, a->cursor_found);
        a->audit.wrong++;
    }
}

static bool is_sound(const struct consumed_audit *audit)
{
    return audit->lost == 0 && audit->repeated == 0 && audit->wrong == 0 &&
           audit->missing == 0 && audit->finding_count == 0;
}

static void print(const struct auditing *a)
{
    const struct consumed_audit *audit = &a->audit;
    const int kept = audit->finding_count < CONSUMED_FINDINGS
                         ? audit->finding_count : CONSUMED_FINDINGS;

    printf("steps      %" PRId64 " (%" PRId64 " to %" PRId64 ")\n",
           audit->steps, audit->first_step, audit->last_step);
    printf("samples    %" PRId64 " consumed, %" PRId64 " left out on purpose, "
           "%" PRId64 " lost, %" PRId64 " repeated\n", audit->samples,
           audit->left, audit->lost, audit->repeated);
    if (a->has_checkpoint)
        printf("checkpoint step %" PRId64 " goes on at place %" PRId64 "\n",
               a->checkpoint.manifest.step, a->cursor);
    for (int i = 0; i < kept; i++) printf("finding    %s\n",
                                          audit->findings[i]);
    if (audit->finding_count > kept)
        printf("finding    and %d more\n", audit->finding_count - kept);
}

static status print_json(const struct auditing *a)
{
    const struct consumed_audit *audit = &a->audit;
    struct json_writer w = {0};
    status result;

    json_write_begin(&w, 2);
    json_write_object(&w);
    json_write_key_text(&w, "run", a->run);
    json_write_key_integer(&w, "steps", audit->steps);
    json_write_key_integer(&w, "first_step", audit->first_step);
    json_write_key_integer(&w, "last_step", audit->last_step);
    json_write_key_integer(&w, "consumed", audit->samples);
    json_write_key_integer(&w, "left_out", audit->left);
    json_write_key_integer(&w, "lost", audit->lost);
    json_write_key_integer(&w, "repeated", audit->repeated);
    json_write_key_integer(&w, "steps_wrong", audit->wrong);
    json_write_key_integer(&w, "steps_missing", audit->missing);
    json_write_key(&w, "findings");
    json_write_array(&w);
    for (int i = 0; i < audit->finding_count && i < CONSUMED_FINDINGS; i++)
        json_write_string(&w, audit->findings[i]);
    json_write_array_end(&w);
    json_write_key(&w, "sound");
    json_write_bool(&w, is_sound(audit));
    json_write_object_end(&w);
    result = json_print(&w, stdout);
    json_writer_free(&w);
    return result;
}

status command_data_audit(struct arguments *arguments)
{
    struct auditing a = {.run = arguments->operands[0]};
    status result;

    TRY_GOTO(done, result, open_run(&a));
    TRY_GOTO(done, result, read_lines(&a));
    check_cursor(&a);
    if (arguments_has(arguments, "json")) TRY_GOTO(done, result,
                                                   print_json(&a));
    else print(&a);
    if (!is_sound(&a.audit))
        FAIL_GOTO(done, result, ERR_VERIFY,
                  "%s: %" PRId64 " samples are lost, %" PRId64 " repeated; %"
                  PRId64 " steps consumed something else, %" PRId64 " have no "
                  "line", a.run, a.audit.lost, a.audit.repeated,
                  a.audit.wrong, a.audit.missing);
done:
    auditing_free(&a);
    return result;
}
