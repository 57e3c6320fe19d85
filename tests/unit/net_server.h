/* A tiny threaded TCP server on an ephemeral loopback port, for tests that need a peer with bad
 * manners. One thread accepts, one thread serves each connection: it reads one HTTP request and
 * hands it to `serve`, which writes whatever it likes. Nothing sleeps: a peer that should stall
 * waits in net_server_hold until the client goes away or the server stops. */
#ifndef TESTS_NET_SERVER_H
#define TESTS_NET_SERVER_H

#include <assert.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define NET_SERVER_MAX         256
#define NET_SERVER_REQUEST_MAX ((size_t)4 << 20)

struct net_server;
/* `request`: the whole request, NUL-terminated. The connection is closed afterwards. */
typedef void (*net_serve_fn)(struct net_server *server, int fd, const char *request);

struct net_server_connection {
    struct net_server *server;
    pthread_t thread;
    int fd;
};

struct net_server {
    net_serve_fn serve;
    int fd;
    int port;
    pthread_t thread;
    atomic_int accepted; /* connections so far */
    int stop[2];         /* pipe: closed at the write end to stop */
    struct net_server_connection connections[NET_SERVER_MAX]; /* accepting thread, then stop */
};

/* Wait until the client has gone or the server stops; false when there is still time to write
 * after `ms` (-1: for ever). */
static inline bool net_server_hold(struct net_server *server, int fd, int ms)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN | POLLRDHUP},
                            {.fd = server->stop[0], .events = POLLIN}};

    return poll(fds, 2, ms) != 0;
}

static inline bool net_server_write(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

static inline bool net_server_say(int fd, const char *text)
{
    return net_server_write(fd, text, strlen(text));
}

/* Close with RST instead of FIN. */
static inline void net_server_reset(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static inline bool net_server_read(int fd, char *buffer, size_t size)
{
    size_t len = 0;
    size_t body = 0;
    const char *end = NULL;

    for (;;) {
        ssize_t n = recv(fd, buffer + len, size - 1 - len, 0);
        if (n <= 0)
            return false;
        len += (size_t)n;
        buffer[len] = '\0';
        if (buffer[0] == 0x16) /* a TLS ClientHello: what it says does not matter here */
            return true;
        if (!end && (end = strstr(buffer, "\r\n\r\n"))) {
            const char *length = strcasestr(buffer, "\r\nContent-Length:");
            body = length ? strtoul(length + 17, NULL, 10) : 0;
            end += 4;
        }
        if (end && len >= (size_t)(end - buffer) + body)
            return true;
        if (len == size - 1)
            return false;
    }
}

static inline void *net_server_connection_run(void *arg)
{
    struct net_server_connection *c = arg;
    char *request = calloc(1, NET_SERVER_REQUEST_MAX);

    assert(request);
    if (net_server_read(c->fd, request, NET_SERVER_REQUEST_MAX))
        c->server->serve(c->server, c->fd, request);
    free(request);
    close(c->fd);
    return NULL;
}

static inline void *net_server_run(void *arg)
{
    struct net_server *s = arg;

    for (int i = 0; i < NET_SERVER_MAX; i++) {
        struct pollfd fds[2] = {{.fd = s->fd, .events = POLLIN},
                                {.fd = s->stop[0], .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 || fds[1].revents)
            break;
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            break;
        s->connections[i] = (struct net_server_connection){.server = s, .fd = fd};
        int rc = pthread_create(&s->connections[i].thread, NULL, net_server_connection_run,
                                &s->connections[i]);
        assert(rc == 0);
        (void)rc;
        atomic_fetch_add(&s->accepted, 1);
    }
    return NULL;
}

static inline struct net_server *net_server_start(net_serve_fn serve)
{
    struct net_server *s = calloc(1, sizeof *s);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    bool ok = s && pipe(s->stop) == 0;

    ok = ok && (s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0;
    ok = ok && bind(s->fd, (struct sockaddr *)&addr, sizeof addr) == 0;
    ok = ok && listen(s->fd, 128) == 0;
    ok = ok && getsockname(s->fd, (struct sockaddr *)&addr, &len) == 0;
    if (ok) {
        s->serve = serve;
        s->port = ntohs(addr.sin_port);
        ok = pthread_create(&s->thread, NULL, net_server_run, s) == 0;
    }
    assert(ok);
    return s;
}

/* Connections accepted so far, those waiting in the backlog at this moment included. */
static inline int net_server_accepted(struct net_server *s)
{
    struct pollfd pending = {.fd = s->fd, .events = POLLIN};

    return atomic_load(&s->accepted) + (poll(&pending, 1, 0) > 0 ? 1 : 0);
}

static inline void net_server_stop(struct net_server *s)
{
    close(s->stop[1]);
    pthread_join(s->thread, NULL);
    for (int i = 0; i < atomic_load(&s->accepted); i++)
        pthread_join(s->connections[i].thread, NULL);
    close(s->stop[0]);
    close(s->fd);
    free(s);
}

/* A loopback port on which nothing listens. */
static inline int net_server_closed_port(void)
{
    struct net_server *s = net_server_start(NULL);
    int port = s->port;

    net_server_stop(s);
    return port;
}

#endif
