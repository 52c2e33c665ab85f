/* SPDX-License-Identifier: Apache-2.0 */
/* test_prometheus_page.c - mirrors src/observe/prometheus_page.c. */
#include <math.h>
#include "tests/test.h"
#include "observe/prometheus.h"

static char page[1 << 16];

static size_t render(const struct metrics_row *step,
                     const struct metrics_row *validation)
{
    const struct prometheus_page from = {"runs/a \"b\"\n", step, validation};

    return prometheus_render(page, sizeof page, &from);
}

static int lines_of(const char *beginning)
{
    int count = 0;

    for (const char *at = page; at != NULL; at = strchr(at, '\n')) {
        if (*at == '\n') at++;
        count += strncmp(at, beginning, strlen(beginning)) == 0;
    }
    return count;
}

TEST(every_metric_has_help_type_and_value)
{
    struct metrics_row step = metrics_blank(METRICS_STEP);
    struct metrics_row valid = metrics_blank(METRICS_VALIDATION);

    step.step = 12;
    step.tokens = (int64_t)1 << 40;
    step.loss = 0.1;
    step.peak_fraction = (double)NAN;
    valid.val_loss = (double)INFINITY;
    const size_t length = render(&step, &valid);

    EQUAL_INT(length, strlen(page));
    CHECK(strstr(page, "# TYPE lockstep_loss gauge\nlockstep_loss "
                       "0.10000000000000001\n") != NULL);
    CHECK(strstr(page, "# TYPE lockstep_step_total counter\n"
                       "lockstep_step_total 12\n") != NULL);
    CHECK(strstr(page, "\nlockstep_tokens_total 1099511627776\n") != NULL);
    CHECK(strstr(page, "\nlockstep_peak_fraction NaN\n") != NULL);
    CHECK(strstr(page, "\nlockstep_val_loss +Inf\n") != NULL);
    CHECK(strstr(page, "run=\"runs/a \\\"b\\\"\\n\"") != NULL);
    EQUAL_INT(lines_of("# HELP"), lines_of("# TYPE"));
    EQUAL_INT(lines_of("lockstep_"), lines_of("# HELP"));
    EQUAL_INT(page[strlen(page) - 1], '\n');
}

TEST(what_never_came_is_not_shown)
{
    render(NULL, NULL);
    EQUAL_INT(lines_of("lockstep_"), 1);
    CHECK(strstr(page, "lockstep_info{") != NULL);
}

TEST(named_metrics_are_labels)
{
    const struct metrics_extra extras[] = {
        {"val.co\"de.loss", 2.5}, {"none", (double)NAN}};
    struct metrics_row valid = metrics_blank(METRICS_VALIDATION);

    valid.extras = extras;
    valid.extra_count = 2;
    render(NULL, &valid);
    CHECK(strstr(page, "lockstep_validation{metric=\"val.co\\\"de.loss\"} "
                       "2.5\n") != NULL);
    EQUAL_INT(lines_of("lockstep_validation{"), 1);
}

TEST(a_page_that_does_not_fit_is_none)
{
    const struct prometheus_page from = {"run", NULL, NULL};
    char small[40];

    EQUAL_INT(prometheus_render(small, sizeof small, &from), 0);
}

TEST(requests_are_understood_or_refused)
{
    static const struct { const char *text; enum prometheus_ask ask; }
    rows[] = {
        {"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", PROMETHEUS_PAGE},
        {"GET /metrics HTTP/1.0\n\n", PROMETHEUS_PAGE},
        {"GET /metrics?x=1 HTTP/1.1\r\n\r\n", PROMETHEUS_PAGE},
        {"HEAD /metrics HTTP/1.1\r\n\r\n", PROMETHEUS_PAGE_HEAD},
        {"GET / HTTP/1.1\r\n\r\n", PROMETHEUS_ROOT},
        {"GET /metric HTTP/1.1\r\n\r\n", PROMETHEUS_UNKNOWN},
        {"GET /../etc/passwd HTTP/1.1\r\n\r\n", PROMETHEUS_UNKNOWN},
        {"POST /metrics HTTP/1.1\r\n\r\n", PROMETHEUS_METHOD},
        {"GET /metrics HTTP/2\r\n\r\n", PROMETHEUS_BAD},
        {"GET /metrics\r\n\r\n", PROMETHEUS_BAD},
        {"\r\n\r\n", PROMETHEUS_BAD},
        {"\x16\x03\x01\n\n", PROMETHEUS_BAD},
        {"GET /metrics HTTP/1.1\r\nHost: a\r\n", PROMETHEUS_MORE},
        {"", PROMETHEUS_MORE}};

    for (int i = 0; i < ROWS(rows); i++)
        EQUAL_INT(prometheus_parse(rows[i].text, strlen(rows[i].text)),
                  rows[i].ask);
}

TEST_MAIN(every_metric_has_help_type_and_value, what_never_came_is_not_shown,
          named_metrics_are_labels, a_page_that_does_not_fit_is_none,
          requests_are_understood_or_refused)
