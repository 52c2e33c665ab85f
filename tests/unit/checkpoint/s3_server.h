/* SPDX-License-Identifier: Apache-2.0 */
/* s3_server.h - an S3 storage of scripted answers on the loopback address. */
#ifndef LOCKSTEP_TESTS_S3_SERVER_H
#define LOCKSTEP_TESTS_S3_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/file.h"
#include "checkpoint/s3.h"
#include "checkpoint/s3_curl.h"
#include "tests/test.h"

/* ---- the server ---- */

enum { LENGTH = 2 * S3_PART_BYTES + 1000 };

static char bytes[LENGTH]; /* of the file */

/* A request that must come next, and its answer. */
struct turn {
    const char *request; /* how it begins; behind a newline one of its
                          * headers */
    int code;
    const char *body;    /* NULL: the bytes of the file */
};

static struct {
    const struct turn *turns;
    int count, done, listener;
    char wrong[256]; /* a request that was not the next */
    pthread_t thread;
} server;

/* The request line and the head; what follows it is read. */
static void take_request(int from, char line[1024], char head[8192])
{
    static char waste[1 << 16];
    size_t used = 0;
    long left = 0;
    const char *length;

    while (used < 8191 && recv(from, head + used, 1, 0) == 1) {
        head[++used] = '\0';
        if (used >= 4 && strcmp(head + used - 4, "\r\n\r\n") == 0) break;
    }
    snprintf(line, 1024, "%.*s", (int)strcspn(head, "\r"), head);
    length = strcasestr(head, "\r\ncontent-length:");
    if (length != NULL) left = strtol(length + 17, NULL, 10);
    while (left > 0) {
        const ssize_t some = recv(from, waste, left < (long)sizeof waste
                                                   ? (size_t)left
                                                   : sizeof waste, 0);

        if (some <= 0) return;
        left -= some;
    }
}

static void send_all(int to, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t some = send(to, text, length, MSG_NOSIGNAL);

        if (some <= 0) return;
        text += some;
        length -= (size_t)some;
    }
}

static void answer(int to, const struct turn *turn)
{
    const char *body = turn->body != NULL ? turn->body : bytes;
    const size_t length = turn->body != NULL ? strlen(turn->body) : LENGTH;
    char head[256];

    snprintf(head, sizeof head, "HTTP/1.1 %d so\r\nContent-Length: %zu\r\n"
             "ETag: \"e%d\"\r\nConnection: close\r\n\r\n", turn->code, length,
             server.done);
    send_all(to, head, strlen(head));
    send_all(to, body, length);
}

static bool is_asked(const struct turn *turn, const char *line,
                     const char *head)
{
    const size_t length = strcspn(turn->request, "\n");

    return strncmp(line, turn->request, length) == 0 &&
           (turn->request[length] == '\0' ||
            strcasestr(head, turn->request + length) != NULL);
}

static void *serve(void *none)
{
    static const struct turn wrong = {"", 418, "another was expected"};
    char line[1024], head[8192];
    int peer;

    while ((peer = accept(server.listener, NULL, NULL)) >= 0) {
        const struct turn *turn = server.done < server.count
                                      ? &server.turns[server.done] : &wrong;

        take_request(peer, line, head);
        if (!is_asked(turn, line, head)) turn = &wrong;
        if (turn == &wrong && server.wrong[0] == '\0')
            snprintf(server.wrong, sizeof server.wrong, "%d: %.200s",
                     server.done, line);
        answer(peer, turn);
        server.done++;
        shutdown(peer, SHUT_WR);
        close(peer);
    }
    return none;
}

static void start(const struct turn *turns, int count)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    char url[64];

    server.turns = turns;
    server.count = count;
    server.done = 0;
    server.wrong[0] = '\0';
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(server.listener, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(listen(server.listener, 8) == 0);
    CHECK(getsockname(server.listener, (struct sockaddr *)&at, &size) == 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port));
    setenv("AWS_ENDPOINT_URL", url, 1);
    setenv("AWS_ACCESS_KEY_ID", "nobody", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "knows", 1);
    unsetenv("AWS_ENDPOINT_URL_S3");
    CHECK(pthread_create(&server.thread, NULL, serve, NULL) == 0);
}

/* All turns came, and no other. */
static void stop(void)
{
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    EQUAL_TEXT(server.wrong, "");
    EQUAL_INT(server.done, server.count);
}

/* Without libcurl nothing is sent, and s3_open says so. */
static bool no_library(void)
{
    if (curl_find() && curl_signs()) return false;
    fprintf(stderr, "not run: no libcurl that signs\n");
    return true;
}

#define RUN(turns) start(turns, ROWS(turns))

#endif
