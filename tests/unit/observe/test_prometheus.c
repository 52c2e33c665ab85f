/* SPDX-License-Identifier: Apache-2.0 */
/* test_prometheus.c - mirrors src/observe/prometheus.c: clients of every kind.
 * */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "tests/test.h"
#include "observe/prometheus.h"

static const char page_request[] =
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

static struct prometheus *start(void)
{
    struct prometheus *p = NULL;
    struct metrics_row row = metrics_blank(METRICS_STEP);

    IS_OK(prometheus_open(&p, "0", "runs/test"));
    row.step = 7;
    row.loss = 2.5;
    prometheus_update(p, &row);
    return p;
}

static int join(const struct prometheus *p)
{
    const char *port = strrchr(prometheus_address(p), ':') + 1;
    const struct timeval patience = {5, 0};
    struct sockaddr_in address = {.sin_family = AF_INET};
    const int client = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_port = htons((uint16_t)atoi(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(client >= 0);
    setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    CHECK(connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    return client;
}

static void say(int client, const char *text, size_t length)
{
    CHECK(send(client, text, length, MSG_NOSIGNAL) == (ssize_t)length);
}

/* All that comes until the end, with a NUL. */
static size_t hear(int client, char *out, size_t size)
{
    size_t length = 0;
    ssize_t got;

    while (length + 1 < size &&
           (got = recv(client, out + length, size - length - 1, 0)) > 0)
        length += (size_t)got;
    out[length] = '\0';
    close(client);
    return length;
}

static void ask(const struct prometheus *p, const char *request,
                const char *state, const char *words)
{
    static char answer[1 << 17];
    const int client = join(p);

    say(client, request, strlen(request));
    CHECK(hear(client, answer, sizeof answer) > 0);
    CHECK(strncmp(answer, "HTTP/1.1 ", 9) == 0);
    CHECK(strncmp(answer + 9, state, strlen(state)) == 0);
    CHECK(strstr(answer, words) != NULL);
}

TEST(the_page_has_the_newest_row)
{
    struct prometheus *p = start();
    struct metrics_row row = metrics_blank(METRICS_STEP);

    ask(p, page_request, "200 OK", "\nlockstep_loss 2.5\n");
    ask(p, page_request, "200 OK",
        "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
    row.step = 8;
    row.loss = 2.25;
    prometheus_update(p, &row);
    ask(p, page_request, "200 OK", "\nlockstep_loss 2.25\n");
    ask(p, page_request, "200 OK", "\nlockstep_step_total 8\n");
    prometheus_close(p);
}

TEST(what_is_not_there_is_said_so)
{
    struct prometheus *p = start();

    ask(p, "GET /other HTTP/1.1\r\n\r\n", "404", "/metrics");
    ask(p, "DELETE /metrics HTTP/1.1\r\n\r\n", "405", "Allow: GET, HEAD\r\n");
    ask(p, "what\r\n\r\n", "400", "not an HTTP/1");
    ask(p, "GET / HTTP/1.1\r\n\r\n", "200", "/metrics");
    prometheus_close(p);
}

TEST(a_head_has_no_body)
{
    static char answer[1 << 17];
    struct prometheus *p = start();
    const int client = join(p);
    static const char request[] = "HEAD /metrics HTTP/1.1\r\n\r\n";

    say(client, request, strlen(request));
    CHECK(hear(client, answer, sizeof answer) > 0);
    CHECK(strstr(answer, "Content-Length: ") != NULL);
    CHECK(strstr(answer, "lockstep_") == NULL);
    prometheus_close(p);
}

TEST(a_request_may_come_byte_by_byte)
{
    static char answer[1 << 17];
    struct prometheus *p = start();
    const int client = join(p);

    for (size_t i = 0; i < strlen(page_request); i++)
        say(client, page_request + i, 1);
    CHECK(hear(client, answer, sizeof answer) > 0);
    CHECK(strstr(answer, "lockstep_loss 2.5") != NULL);
    prometheus_close(p);
}

/* A head without an end: no more than 4 KiB of it is kept. */
TEST(an_endless_request_is_refused)
{
    static char answer[1 << 17], noise[4096];
    struct prometheus *p = start();
    const int client = join(p);

    memset(noise, 'a', sizeof noise);
    say(client, noise, sizeof noise);
    CHECK(hear(client, answer, sizeof answer) > 0);
    CHECK(strstr(answer, "431") != NULL);
    prometheus_close(p);
}

/* More clients than there are places, all silent: whoever asks is served. */
TEST(silent_clients_keep_nobody_out)
{
    struct prometheus *p = start();
    int silent[40];

    for (int i = 0; i < ROWS(silent); i++) silent[i] = join(p);
    ask(p, page_request, "200 OK", "lockstep_loss 2.5");
    for (int i = 0; i < ROWS(silent); i++) close(silent[i]);
    prometheus_close(p);
}

TEST(a_silent_client_is_dropped)
{
    static char answer[64];
    struct prometheus *p = start();
    const int client = join(p);

    say(client, "GET", 3);
    EQUAL_INT(hear(client, answer, sizeof answer), 0); /* after 2 s, not 5 */
    ask(p, page_request, "200 OK", "lockstep_loss 2.5");
    prometheus_close(p);
}

/* A client that asks and leaves must not end the program by a signal. */
TEST(who_leaves_early_does_no_harm)
{
    struct prometheus *p = start();

    for (int i = 0; i < 50; i++) {
        const struct linger at_once = {1, 0};
        const int client = join(p);

        say(client, page_request, strlen(page_request));
        setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        close(client); /* a reset */
    }
    ask(p, page_request, "200 OK", "lockstep_loss 2.5");
    prometheus_close(p);
}

TEST(addresses_are_checked)
{
    static const char *const bad[] = {
        "",  "here:80", "127.0.0.1",      "127.0.0.1:", "127.0.0.1:99999",
        ":x", "[::1:9", "127.0.0.1:80 ", "-1",         "1.2.3.4.5:80"};
    struct prometheus *p = NULL, *second = NULL;

    for (int i = 0; i < ROWS(bad); i++) {
        FAILS(prometheus_open(&p, bad[i], "run"), ERR_CONFIG,
              "is not an address");
        prometheus_close(p);
        p = NULL;
    }
    IS_OK(prometheus_open(&p, "localhost:0", "run"));
    CHECK(strncmp(prometheus_address(p), "127.0.0.1:", 10) == 0);
    FAILS(prometheus_open(&second, prometheus_address(p), "run"), ERR_CONFIG,
          "cannot listen");
    prometheus_close(second);
    prometheus_close(p);
    prometheus_close(NULL);
}

/* Nothing listens here: what an address opens is told from its text. */
TEST(an_open_address_is_known)
{
    static const char *const own[] = {"127.0.0.1:9400", "127.8.0.1:1",
                                      "[::1]:9400", "[::ffff:127.0.0.1]:9"};
    static const char *const open[] = {"0.0.0.0:9400", "[::]:9400",
                                       "10.0.0.7:9400", "[::12]:1",
                                       "[fe80::1]:9400"};

    for (int i = 0; i < ROWS(own); i++) CHECK(!prometheus_is_open(own[i]));
    for (int i = 0; i < ROWS(open); i++) CHECK(prometheus_is_open(open[i]));
}

TEST_MAIN(the_page_has_the_newest_row, what_is_not_there_is_said_so,
          a_head_has_no_body, a_request_may_come_byte_by_byte,
          an_endless_request_is_refused, silent_clients_keep_nobody_out,
          a_silent_client_is_dropped, who_leaves_early_does_no_harm,
          addresses_are_checked, an_open_address_is_known)
