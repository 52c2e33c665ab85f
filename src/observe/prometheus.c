/* SPDX-License-Identifier: Apache-2.0 */
/* prometheus.c - the thread that serves the newest metrics. All its memory is
 * taken when it starts. It never waits for one client alone, but for the first
 * of all that is ready. */
#include "observe/prometheus.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/meter.h"
#include "base/threads.h"

enum {
    CLIENTS_MAX = 8,
    REQUEST_BYTES = 4096,
    ANSWER_BYTES = 64 << 10, /* a page has about 6 KiB */
    RUN_BYTES = 1024,
    EXTRAS_MAX = 128,        /* metrics that a configuration named */
    EXTRA_BYTES = 96,
    BACKLOG = 16,
    PATIENCE_MS = 2000,      /* for a request and its answer */
    SHORT_MS = 100,
    NEVER_MS = 60000         /* between looks at nothing */
};

struct client {
    int descriptor;  /* -1: free */
    int64_t end_ns;  /* then it is dropped */
    size_t used, sent, total;
    bool answered;   /* all was sent: only its end is awaited */
    char request[REQUEST_BYTES];
    char answer[ANSWER_BYTES];
};

struct prometheus {
    pthread_t thread;
    bool running;
    int listener;
    int wake[2];     /* a pipe: the run ends */
    char address[96];
    pthread_mutex_t lock; /* of the rows */
    struct metrics_row step, validation;
    bool has_step, has_validation;
    struct metrics_extra extras[EXTRAS_MAX];
    char names[EXTRAS_MAX][EXTRA_BYTES];
    char run[RUN_BYTES];
    char page[ANSWER_BYTES];
    struct client clients[CLIENTS_MAX];
};

/* ---- the run's side ---- */

/* A row's extras are its owner's only for the call. */
static void copy_extras(struct prometheus *p, const struct metrics_row *row)
{
    const int count =
        row->extra_count < EXTRAS_MAX ? row->extra_count : EXTRAS_MAX;

    for (int i = 0; i < count; i++) {
        snprintf(p->names[i], EXTRA_BYTES, "%s", row->extras[i].name);
        p->extras[i] = (struct metrics_extra){p->names[i],
                                              row->extras[i].value};
    }
    p->validation.extras = p->extras;
    p->validation.extra_count = count;
}

void prometheus_update(struct prometheus *p, const struct metrics_row *row)
{
    pthread_mutex_lock(&p->lock);
    if (row->kind == METRICS_STEP) {
        p->step = *row;
        p->step.extra_count = 0;
        p->has_step = true;
    } else {
        p->validation = *row;
        copy_extras(p, row);
        p->has_validation = true;
    }
    pthread_mutex_unlock(&p->lock);
}

const char *prometheus_address(const struct prometheus *p)
{
    return p->address;
}

/* ---- answers ---- */

/* Under the lock: a page is made in microseconds, for which the end of a step
 * may have to wait. */
static size_t render(struct prometheus *p)
{
    struct prometheus_page page = {.run = p->run};
    size_t length;

    pthread_mutex_lock(&p->lock);
    if (p->has_step) page.step = &p->step;
    if (p->has_validation) page.validation = &p->validation;
    length = prometheus_render(p->page, sizeof p->page, &page);
    pthread_mutex_unlock(&p->lock);
    return length;
}

static void fill(struct client *c, const char *state, const char *kind,
                 const char *body, size_t length, bool with_body)
{
    const int head = snprintf(
        c->answer, sizeof c->answer,
        "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n%s\r\n", state, kind,
        length, strncmp(state, "405", 3) == 0 ? "Allow: GET, HEAD\r\n" : "");

    c->total = (size_t)head;
    if (!with_body || length > sizeof c->answer - c->total) return;
    memcpy(c->answer + c->total, body, length);
    c->total += length;
}

static void fill_text(struct client *c, const char *state, const char *body)
{
    fill(c, state, "text/plain; charset=utf-8", body, strlen(body), true);
}

static void answer(struct prometheus *p, struct client *c,
                   enum prometheus_ask ask)
{
    static const char kind[] = "text/plain; version=0.0.4; charset=utf-8";
    size_t length;

    switch (ask) {
    case PROMETHEUS_PAGE:
    case PROMETHEUS_PAGE_HEAD:
        length = render(p);
        if (length == 0)
            fill_text(c, "500 Internal Server Error", "too many metrics\n");
        else
            fill(c, "200 OK", kind, p->page, length, ask == PROMETHEUS_PAGE);
        return;
    case PROMETHEUS_ROOT:
        fill_text(c, "200 OK", "lockstep; metrics are at /metrics\n");
        return;
    case PROMETHEUS_UNKNOWN:
        fill_text(c, "404 Not Found", "metrics are at /metrics\n");
        return;
    case PROMETHEUS_METHOD:
        fill_text(c, "405 Method Not Allowed", "GET or HEAD\n");
        return;
    case PROMETHEUS_BAD:
    case PROMETHEUS_MORE: break;
    }
    fill_text(c, "400 Bad Request", "this is not an HTTP/1 request\n");
}

/* ---- clients ---- */

static void drop(struct client *c)
{
    if (c->descriptor >= 0) close(c->descriptor);
    c->descriptor = -1;
}

static bool again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void send_some(struct client *c)
{
    while (c->sent < c->total) {
        const ssize_t sent = send(c->descriptor, c->answer + c->sent,
                                  c->total - c->sent, MSG_NOSIGNAL);

        if (sent < 0 && again()) return;
        if (sent <= 0) {
            drop(c);
            return;
        }
        c->sent += (size_t)sent;
    }
    /* Closed at once, bytes that came meanwhile would reset the connection
     * before the answer is read. */
    shutdown(c->descriptor, SHUT_WR);
    c->answered = true;
}

static void read_some(struct prometheus *p, struct client *c)
{
    char rest[1024];
    char *to = c->total > 0 ? rest : c->request + c->used;
    const size_t room = c->total > 0 ? sizeof rest
                                     : sizeof c->request - c->used;
    const ssize_t got = recv(c->descriptor, to, room, 0);
    enum prometheus_ask ask;

    if (got < 0 && again()) return;
    if (got <= 0) {
        drop(c);
        return;
    }
    if (c->total > 0) return; /* is answered already */
    c->used += (size_t)got;
    ask = prometheus_parse(c->request, c->used);
    if (ask == PROMETHEUS_MORE && c->used < sizeof c->request) return;
    if (ask == PROMETHEUS_MORE)
        fill_text(c, "431 Request Header Fields Too Large",
                  "a request has 4 KiB at most\n");
    else
        answer(p, c, ask);
    send_some(c);
}

/* A free place, or that of the client who has been here longest. */
static struct client *place_for(struct prometheus *p)
{
    struct client *oldest = &p->clients[0];

    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &p->clients[i];

        if (c->descriptor < 0) return c;
        if (c->end_ns < oldest->end_ns) oldest = c;
    }
    drop(oldest);
    return oldest;
}

static void welcome(struct prometheus *p)
{
    const int descriptor = accept4(p->listener, NULL, NULL,
                                   SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct client *c;

    if (descriptor < 0) {
        if (!again()) poll(NULL, 0, SHORT_MS); /* no descriptors are left */
        return;
    }
    c = place_for(p);
    c->descriptor = descriptor;
    c->used = c->sent = c->total = 0;
    c->answered = false;
    c->end_ns = meter_now_ns() + (int64_t)PATIENCE_MS * 1000000;
}

/* ---- the thread ---- */

/* Milliseconds until the first client's patience ends; drops those whose has.
 */
static int sweep(struct prometheus *p)
{
    const int64_t now = meter_now_ns();
    int64_t least = (int64_t)NEVER_MS * 1000000;

    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &p->clients[i];

        if (c->descriptor < 0) continue;
        if (c->end_ns <= now) drop(c);
        else if (c->end_ns - now < least) least = c->end_ns - now;
    }
    return (int)(least / 1000000) + 1;
}

static void serve_client(struct prometheus *p, struct client *c, short events)
{
    if (events & (POLLERR | POLLNVAL)) {
        drop(c);
        return;
    }
    if (events & (POLLIN | POLLHUP)) read_some(p, c);
    if (c->descriptor >= 0 && (events & POLLOUT) && c->total > 0 &&
        !c->answered)
        send_some(c);
}

static void *serve(void *argument)
{
    struct prometheus *p = argument;

    threads_aside();
    for (;;) {
        struct pollfd polled[2 + CLIENTS_MAX];
        struct client *who[CLIENTS_MAX];
        nfds_t count = 2;
        const int wait_ms = sweep(p);

        polled[0] = (struct pollfd){p->wake[0], POLLIN, 0};
        polled[1] = (struct pollfd){p->listener, POLLIN, 0};
        for (int i = 0; i < CLIENTS_MAX; i++) {
            struct client *c = &p->clients[i];
            const bool sends = c->total > c->sent;

            if (c->descriptor < 0) continue;
            who[count - 2] = c;
            polled[count++] = (struct pollfd){
                c->descriptor, (short)(POLLIN | (sends ? POLLOUT : 0)), 0};
        }
        if (poll(polled, count, wait_ms) < 0 && errno != EINTR) return NULL;
        if (polled[0].revents != 0) return NULL;
        for (nfds_t i = 2; i < count; i++)
            if (polled[i].revents != 0)
                serve_client(p, who[i - 2], polled[i].revents);
        if (polled[1].revents & POLLIN) welcome(p);
    }
}

/* ---- opening ---- */

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

static status bad_address(const char *text)
{
    FAIL(ERR_CONFIG, "observe.prometheus: %s is not an address; expected "
                     "HOST:PORT with a host of numbers, as 127.0.0.1:9400, or "
                     "a port alone", text);
}

static status parse_port(const char *text, const char *digits, uint16_t *out)
{
    char *end;
    long port;

    if (digits[0] < '0' || digits[0] > '9') return bad_address(text);
    port = strtol(digits, &end, 10);
    if (*end != '\0' || port > 65535) return bad_address(text);
    *out = htons((uint16_t)port);
    return OK;
}

static status parse_address(const char *text, union address *out,
                            socklen_t *length)
{
    const char *colon = strrchr(text, ':');
    char host[80] = "127.0.0.1";
    const size_t given = colon != NULL ? (size_t)(colon - text) : 0;
    uint16_t port;

    if (given >= sizeof host) return bad_address(text);
    TRY(parse_port(text, colon != NULL ? colon + 1 : text, &port));
    if (given > 0) {
        memcpy(host, text, given);
        host[given] = '\0';
    }
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    memset(out, 0, sizeof *out);
    if (host[0] == '[' && host[strlen(host) - 1] == ']') {
        host[strlen(host) - 1] = '\0';
        out->six.sin6_family = AF_INET6;
        out->six.sin6_port = port;
        *length = sizeof out->six;
        if (inet_pton(AF_INET6, host + 1, &out->six.sin6_addr) == 1) return OK;
    } else {
        out->four.sin_family = AF_INET;
        out->four.sin_port = port;
        *length = sizeof out->four;
        if (inet_pton(AF_INET, host, &out->four.sin_addr) == 1) return OK;
    }
    return bad_address(text);
}

bool prometheus_is_open(const char *address)
{
    static const char *const loopback[] = {"127.", "[::1]:",
                                           "[::ffff:127."};

    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        if (strncmp(address, loopback[i], strlen(loopback[i])) == 0)
            return false;
    return true;
}

/* Notes the address that the system chose, as text. */
static void note_address(struct prometheus *p)
{
    union address bound;
    socklen_t length = sizeof bound;
    char host[INET6_ADDRSTRLEN] = "";

    if (getsockname(p->listener, &bound.any, &length) != 0) return;
    if (bound.any.sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &bound.six.sin6_addr, host, sizeof host);
        snprintf(p->address, sizeof p->address, "[%s]:%d", host,
                 ntohs(bound.six.sin6_port));
    } else {
        inet_ntop(AF_INET, &bound.four.sin_addr, host, sizeof host);
        snprintf(p->address, sizeof p->address, "%s:%d", host,
                 ntohs(bound.four.sin_port));
    }
}

static status start_listening(struct prometheus *p, const char *text)
{
    const int yes = 1;
    union address address;
    socklen_t length;

    TRY(parse_address(text, &address, &length));
    p->listener = socket(address.any.sa_family,
                         SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p->listener < 0)
        FAIL(ERR_IO, "observe.prometheus: no socket: %s", strerror(errno));
    setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(p->listener, &address.any, length) != 0 ||
        listen(p->listener, BACKLOG) != 0)
        FAIL(ERR_CONFIG, "observe.prometheus: cannot listen on %s: %s; choose "
                         "another port, or leave it empty", text,
             strerror(errno));
    note_address(p);
    return OK;
}

status prometheus_check(const char *address)
{
    union address parsed;
    socklen_t length;

    return parse_address(address, &parsed, &length);
}

status prometheus_try(const char *address)
{
    struct prometheus p = {.listener = -1};
    const status result = start_listening(&p, address);

    if (p.listener >= 0) close(p.listener);
    return result;
}

/* Signals belong to the run's own thread. */
static status start_thread(struct prometheus *p)
{
    sigset_t all, before;
    int error;

    if (pipe2(p->wake, O_CLOEXEC) != 0)
        FAIL(ERR_IO, "observe.prometheus: no pipe: %s", strerror(errno));
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&p->thread, NULL, serve, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        FAIL(ERR_MEMORY, "observe.prometheus: no thread: %s",
             strerror(error));
    p->running = true;
    return OK;
}

status prometheus_open(struct prometheus **out, const char *address,
                       const char *run)
{
    struct prometheus *p;
    void *memory;

    TRY(memory_take(1, sizeof *p, &memory));
    *out = p = memory;
    memset(p, 0, sizeof *p);
    p->listener = p->wake[0] = p->wake[1] = -1;
    for (int i = 0; i < CLIENTS_MAX; i++) p->clients[i].descriptor = -1;
    pthread_mutex_init(&p->lock, NULL);
    snprintf(p->run, sizeof p->run, "%s", run);
    TRY(start_listening(p, address));
    return start_thread(p);
}

void prometheus_close(struct prometheus *p)
{
    if (p == NULL) return;
    /* The thread sees that this end of the pipe is closed, and ends. */
    if (p->wake[1] >= 0) close(p->wake[1]);
    if (p->running) pthread_join(p->thread, NULL);
    for (int i = 0; i < CLIENTS_MAX; i++) drop(&p->clients[i]);
    if (p->wake[0] >= 0) close(p->wake[0]);
    if (p->listener >= 0) close(p->listener);
    pthread_mutex_destroy(&p->lock);
    memory_free(p);
}
