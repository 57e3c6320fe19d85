/* Scripted HTTP receivers on loopback for test_outbox.c: any number of ports, one thread. Each port
 * answers its requests by its script (the last entry repeats) and every request is kept. */
#ifndef TEST_OUTBOX_RECEIVER_H
#define TEST_OUTBOX_RECEIVER_H

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* A limit in ms, with room where each instruction is watched (packaging/check). */
static inline int64_t in_time(int64_t ms)
{
    return getenv("REELD_WATCHED") ? 5 * ms : ms;
}

enum answer {
    ANSWER_200,
    ANSWER_200_SLOW,  /* after 300 ms */
    ANSWER_200_STALL, /* the status, then a body that never comes */
    ANSWER_302,
    ANSWER_410,
    ANSWER_500,
    ANSWER_503_RETRY_1S,
    ANSWER_HUGE, /* 200 and 3 MiB */
    ANSWER_RESET,
    ANSWER_NEVER
};

#define RECEIVER_PORTS    128
#define RECEIVER_SCRIPT   4
#define RECEIVER_REQUESTS 512
#define RECEIVER_HELD     64

struct received {
    int port;
    int64_t wall_ms;
    char id[64], timestamp[32], signature[160], key[64], type[64], agent[64];
    char body[2048];
    size_t body_len;
};

struct receiver {
    pthread_t thread;
    int wake;
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t changed;
    bool stopping;
    int redirect_port;
    size_t ports;
    struct {
        int fd, port;
        enum answer script[RECEIVER_SCRIPT];
        size_t steps, requests;
    } at[RECEIVER_PORTS];
    size_t n;
    struct received request[RECEIVER_REQUESTS];
    /* the thread's own */
    struct {
        int fd;
        int64_t answer_at; /* CLOCK_MONOTONIC ms; 0 = free */
    } held[RECEIVER_HELD];
};

static inline void receiver_header(const char *head, const char *name, char *value, size_t size)
{
    const char *line = strcasestr(head, name);

    value[0] = '\0';
    if (!line)
        return;
    line += strlen(name);
    line += strspn(line, ": ");
    (void)snprintf(value, size, "%.*s", (int)strcspn(line, "\r"), line);
}

/* Read one request whole. false: it broke off. */
static inline bool receiver_read(int fd, struct received *r)
{
    char buf[8192];
    size_t len = 0;
    char text[32];

    for (;;) {
        ssize_t n = recv(fd, buf + len, sizeof buf - 1 - len, 0);
        if (n <= 0)
            return false;
        len += (size_t)n;
        buf[len] = '\0';
        char *end = strstr(buf, "\r\n\r\n");
        if (!end)
            continue;
        receiver_header(buf, "\r\ncontent-length", text, sizeof text);
        size_t want = (size_t)strtoul(text, NULL, 10);
        if (want >= sizeof r->body || len < (size_t)(end - buf) + 4 + want)
            continue;
        memcpy(r->body, end + 4, want);
        r->body_len = want;
        end[2] = '\0';
        receiver_header(buf, "\r\nwebhook-id", r->id, sizeof r->id);
        receiver_header(buf, "\r\nwebhook-timestamp", r->timestamp, sizeof r->timestamp);
        receiver_header(buf, "\r\nwebhook-signature", r->signature, sizeof r->signature);
        receiver_header(buf, "\r\nidempotency-key", r->key, sizeof r->key);
        receiver_header(buf, "\r\ncontent-type", r->type, sizeof r->type);
        receiver_header(buf, "\r\nuser-agent", r->agent, sizeof r->agent);
        return true;
    }
}

static inline void receiver_say(int fd, const char *text)
{
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL); /* the client may be gone */
}

static inline void receiver_hold(struct receiver *x, int fd, int64_t for_ms)
{
    for (size_t i = 0; i < RECEIVER_HELD; i++)
        if (!x->held[i].answer_at) {
            x->held[i].fd = fd;
            x->held[i].answer_at = rl_mono_ms() + for_ms;
            return;
        }
    (void)close(fd);
}

static inline void receiver_huge(int fd)
{
    static const char zeros[65536];

    receiver_say(fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    for (int i = 0; i < 48; i++)
        if (send(fd, zeros, sizeof zeros, MSG_NOSIGNAL) < 0)
            return;
}

static inline void receiver_answer(struct receiver *x, int fd, enum answer answer,
                                   int redirect_port)
{
    char text[256];

    switch (answer) {
    case ANSWER_200:
        receiver_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        break;
    case ANSWER_200_SLOW:
        receiver_hold(x, fd, 300);
        return;
    case ANSWER_200_STALL:
        receiver_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        receiver_hold(x, fd, 3600000);
        return;
    case ANSWER_302:
        (void)snprintf(text, sizeof text,
                       "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/\r\n"
                       "Content-Length: 0\r\n\r\n",
                       redirect_port);
        receiver_say(fd, text);
        break;
    case ANSWER_410:
        receiver_say(fd, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n");
        break;
    case ANSWER_500:
        receiver_say(fd, "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
        break;
    case ANSWER_503_RETRY_1S:
        receiver_say(fd, "HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
        break;
    case ANSWER_HUGE:
        receiver_huge(fd);
        break;
    case ANSWER_RESET:
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        break;
    case ANSWER_NEVER:
        receiver_hold(x, fd, 3600000);
        return;
    }
    (void)close(fd);
}

static inline void receiver_serve(struct receiver *x, size_t which)
{
    struct received r = {0};
    struct timeval patience = {.tv_sec = 2};
    int fd = accept4(x->at[which].fd, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (!receiver_read(fd, &r)) {
        (void)close(fd);
        return;
    }
    (void)pthread_mutex_lock(&x->lock);
    size_t step = x->at[which].requests++;
    step = step < x->at[which].steps ? step : x->at[which].steps - 1;
    enum answer answer = x->at[which].script[step];
    int redirect_port = x->redirect_port;
    r.port = x->at[which].port;
    r.wall_ms = rl_wall_ms();
    if (x->n < RECEIVER_REQUESTS)
        x->request[x->n++] = r;
    (void)pthread_cond_broadcast(&x->changed);
    (void)pthread_mutex_unlock(&x->lock);
    receiver_answer(x, fd, answer, redirect_port);
}

/* Answer the held connections whose time has come; ms until the next, -1 = none. */
static inline int receiver_release(struct receiver *x)
{
    int64_t now = rl_mono_ms();
    int64_t next = -1;

    for (size_t i = 0; i < RECEIVER_HELD; i++) {
        if (!x->held[i].answer_at)
            continue;
        int64_t left = x->held[i].answer_at - now;
        if (left <= 0) {
            receiver_say(x->held[i].fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            (void)close(x->held[i].fd);
            x->held[i].answer_at = 0;
        } else if (next < 0 || left < next) {
            next = left;
        }
    }
    return (int)next;
}

static void *receiver_main(void *arg)
{
    struct receiver *x = arg;

    for (;;) {
        struct pollfd fds[RECEIVER_PORTS + 1] = {{.fd = x->wake, .events = POLLIN}};
        uint64_t rung = 0;
        (void)pthread_mutex_lock(&x->lock);
        bool stopping = x->stopping;
        size_t ports = x->ports;
        for (size_t i = 0; i < ports; i++)
            fds[i + 1] = (struct pollfd){.fd = x->at[i].fd, .events = POLLIN};
        (void)pthread_mutex_unlock(&x->lock);
        if (stopping)
            return NULL;
        (void)poll(fds, (nfds_t)ports + 1, receiver_release(x));
        if (fds[0].revents && read(x->wake, &rung, sizeof rung) < 0)
            return NULL;
        for (size_t i = 0; i < ports; i++)
            if (fds[i + 1].revents)
                receiver_serve(x, i);
    }
}

static inline struct receiver *receiver_new(void)
{
    struct receiver *x = calloc(1, sizeof *x);

    if (!x)
        return NULL;
    (void)pthread_mutex_init(&x->lock, NULL);
    (void)pthread_cond_init(&x->changed, NULL);
    x->wake = eventfd(0, EFD_CLOEXEC);
    if (x->wake < 0 || pthread_create(&x->thread, NULL, receiver_main, x)) {
        free(x);
        return NULL;
    }
    return x;
}

static inline void receiver_ring(struct receiver *x)
{
    if (write(x->wake, &(uint64_t){1}, sizeof(uint64_t)) < 0)
        abort();
}

static inline void receiver_free(struct receiver *x)
{
    (void)pthread_mutex_lock(&x->lock);
    x->stopping = true;
    (void)pthread_mutex_unlock(&x->lock);
    receiver_ring(x);
    (void)pthread_join(x->thread, NULL);
    for (size_t i = 0; i < x->ports; i++)
        (void)close(x->at[i].fd);
    for (size_t i = 0; i < RECEIVER_HELD; i++)
        if (x->held[i].answer_at)
            (void)close(x->held[i].fd);
    (void)close(x->wake);
    free(x);
}

/* A new port with this script. Returns the port. */
static inline int receiver_listen(struct receiver *x, const enum answer *script, size_t steps)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&in, len) || listen(fd, 64) ||
        getsockname(fd, (struct sockaddr *)&in, &len))
        abort();
    (void)pthread_mutex_lock(&x->lock);
    if (x->ports == RECEIVER_PORTS || steps > RECEIVER_SCRIPT)
        abort();
    x->at[x->ports].fd = fd;
    x->at[x->ports].port = ntohs(in.sin_port);
    memcpy(x->at[x->ports].script, script, steps * sizeof *script);
    x->at[x->ports].steps = steps;
    x->ports++;
    (void)pthread_mutex_unlock(&x->lock);
    receiver_ring(x);
    return ntohs(in.sin_port);
}

static inline void receiver_redirect_to(struct receiver *x, int port)
{
    (void)pthread_mutex_lock(&x->lock);
    x->redirect_port = port;
    (void)pthread_mutex_unlock(&x->lock);
}

/* Requests so far at this port (0 = any). */
static inline size_t receiver_count(struct receiver *x, int port)
{
    size_t count = 0;

    (void)pthread_mutex_lock(&x->lock);
    for (size_t i = 0; i < x->n; i++)
        count += !port || x->request[i].port == port;
    (void)pthread_mutex_unlock(&x->lock);
    return count;
}

/* Wait for `count` requests in all. */
static inline bool receiver_wait(struct receiver *x, size_t count, int64_t wait_ms)
{
    struct timespec until = rl_deadline(CLOCK_REALTIME, wait_ms);

    (void)pthread_mutex_lock(&x->lock);
    while (x->n < count && !pthread_cond_timedwait(&x->changed, &x->lock, &until))
        ;
    bool there = x->n >= count;
    (void)pthread_mutex_unlock(&x->lock);
    return there;
}

static inline void receiver_get(struct receiver *x, size_t i, struct received *ret_request)
{
    (void)pthread_mutex_lock(&x->lock);
    *ret_request = x->request[i];
    (void)pthread_mutex_unlock(&x->lock);
}

#endif
