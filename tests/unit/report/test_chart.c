/* SPDX-License-Identifier: Apache-2.0 */
/* test_chart.c - mirrors src/report/chart.c. */
#include <math.h>
#include "tests/test.h"
#include "report/chart.h"

TEST(ticks_are_round_and_inside)
{
    static const struct {
        double least, greatest, first, last;
        int count;
    } rows[] = {
        {0, 300, 0, 300, 7},       {2.9, 7.7, 3, 7, 5},
        {0, 1e-3, 0, 1e-3, 6},     {-1, 1, -1, 1, 5},
        {1e6, 5.2e6, 1e6, 5e6, 5}, {0.1, 0.7, 0.1, 0.7, 7},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        double ticks[16];
        const int count =
            chart_ticks(rows[i].least, rows[i].greatest, ticks, 16);

        EQUAL_INT(count, rows[i].count);
        CHECK(fabs(ticks[0] - rows[i].first) < 1e-9 * fabs(rows[i].greatest));
        CHECK(fabs(ticks[count - 1] - rows[i].last) <
              1e-9 * fabs(rows[i].greatest));
    }
}

TEST(hopeless_ranges_have_no_ticks)
{
    double ticks[16];

    EQUAL_INT(chart_ticks(1, 1, ticks, 16), 0);
    EQUAL_INT(chart_ticks(2, 1, ticks, 16), 0);
    EQUAL_INT(chart_ticks(0, (double)INFINITY, ticks, 16), 0);
    EQUAL_INT(chart_ticks(0, (double)NAN, ticks, 16), 0);
    EQUAL_INT(chart_ticks(1e300, 1e300 * (1 + 1e-15), ticks, 16), 0);
}

TEST(markup_and_bad_bytes_are_escaped)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"<script>alert('x')</script>",
         "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;"},
        {"a & \"b\"", "a &amp; &quot;b&quot;"},
        {"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80",
         "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80"},
        {"x\xC3", "x\xEF\xBF\xBD"},
        {"\xE4\xB8<", "\xEF\xBF\xBD&lt;"},
        {"\xFFy", "\xEF\xBF\xBDy"},
        {"\x80<", "\xEF\xBF\xBD&lt;"},
        {"\x1B[0m\n", "\xEF\xBF\xBD[0m\n"},
    };

    for (int i = 0; i < ROWS(rows); i++) {
        struct text out = {0};

        IS_OK(html_escape(&out, rows[i].in, strlen(rows[i].in)));
        EQUAL_TEXT(out.bytes, rows[i].out);
        text_free(&out);
    }
}

static int occurrences(const char *text, const char *word)
{
    int count = 0;

    for (; (text = strstr(text, word)) != NULL; text++) count++;
    return count;
}

TEST(a_long_curve_stays_small_and_keeps_its_spike)
{
    enum { COUNT = 100000 };
    static double x[COUNT], y[COUNT];
    struct chart chart = {
        .title = "a < b", .x_name = "step", .y_name = "loss", .y_unit = "",
        .series = {{.name = "one", .style = CHART_LINE, .colour = 1, .x = x,
                    .y = y, .count = COUNT}},
        .series_count = 1};
    struct text out = {0};

    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
        y[i] = 1;
    }
    y[50001] = 100;
    y[7] = (double)NAN;
    IS_OK(chart_svg(&out, &chart));
    CHECK(out.length < 60000);
    CHECK(strstr(out.bytes, "a &lt; b") != NULL);
    CHECK(strstr(out.bytes, "nan") == NULL);
    /* The spike reaches 100 / 104 of the height: 260 - 220 / 1.04. */
    CHECK(strstr(out.bytes, ",48.5 ") != NULL);
    CHECK(occurrences(out.bytes, "<title>") <= 161);
    text_free(&out);
}

TEST(nothing_to_draw_says_so)
{
    double x = 1, y = (double)NAN;
    struct chart chart = {
        .title = "", .x_name = "step", .y_name = "", .y_unit = "",
        .series = {{.name = "one", .style = CHART_DOTS, .colour = 1, .x = &x,
                    .y = &y, .count = 1}},
        .series_count = 1, .has_level = true, .level = 3, .level_name = ""};
    struct text out = {0};

    IS_OK(chart_svg(&out, &chart));
    CHECK(strstr(out.bytes, "nothing was measured") != NULL);
    text_free(&out);
    y = 4; /* one point, and a constant, are drawn */
    IS_OK(chart_svg(&out, &chart));
    CHECK(strstr(out.bytes, "nan") == NULL && strstr(out.bytes, "inf") == NULL);
    EQUAL_INT(occurrences(out.bytes, "<circle"), 1);
    CHECK(strstr(out.bytes, "<title>step 1: one 4 </title>") != NULL);
    text_free(&out);
}

/* Shown over a point by the mouse. */
TEST(a_point_has_its_name_and_its_unit)
{
    double x = 12, y = 0.5, band = 0.25;
    struct chart chart = {
        .title = "", .x_name = "a<b", .y_name = "", .y_unit = "ms",
        .series = {{.name = "c&d", .style = CHART_DOTS, .colour = 1, .x = &x,
                    .y = &y, .band = &band, .band_name = "most", .count = 1}},
        .series_count = 1};
    struct text out = {0};

    IS_OK(chart_svg(&out, &chart));
    CHECK(strstr(out.bytes, "<title>a&lt;b 12: c&amp;d 0.5 ms, most 0.25"
                            "</title>") != NULL);
    text_free(&out);
}

TEST_MAIN(ticks_are_round_and_inside, hopeless_ranges_have_no_ticks,
          markup_and_bad_bytes_are_escaped,
          a_long_curve_stays_small_and_keeps_its_spike, nothing_to_draw_says_so,
          a_point_has_its_name_and_its_unit)
