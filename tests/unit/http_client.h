/* A raw HTTP client for tests: sends bytes as they are, reads one answer. Loopback only. */
#ifndef TEST_HTTP_CLIENT_H
#define TEST_HTTP_CLIENT_H

#include <arpa/inet.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct answer {
    int status; /* 0: the connection ended without one */
    char head[4096];
    char *body; /* owned, NUL-terminated */
    size_t body_len;
};

static inline int client_open(int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

/* false: the peer has closed. */
static inline bool client_send(int fd, const char *bytes, size_t len)
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

/* One byte within 10 s; false at the end. */
static inline bool client_byte(int fd, char *ret_byte)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 10000) == 1 && recv(fd, ret_byte, 1, 0) == 1;
}

static inline const char *answer_header(const struct answer *a, const char *name)
{
    static char value[1024];
    size_t len = strlen(name);
    for (const char *p = strstr(a->head, "\r\n"); p; p = strstr(p + 2, "\r\n"))
        if (!strncasecmp(p + 2, name, len) && p[2 + len] == ':') {
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(p + len + 4, "\r"), p + len + 4);
            return value;
        }
    return NULL;
}

static inline void answer_free(struct answer *a)
{
    free(a->body);
    *a = (struct answer){0};
}

/* Read one answer; `head_only` for HEAD. */
static inline struct answer client_read(int fd, bool head_only)
{
    struct answer a = {0};
    size_t len = 0;
    while (len + 1 < sizeof(a.head) && client_byte(fd, &a.head[len]))
        if (++len >= 4 && !memcmp(a.head + len - 4, "\r\n\r\n", 4))
            break;
    a.body = calloc(1, 1);
    if (len < 12 || sscanf(a.head, "HTTP/1.1 %d", &a.status) != 1)
        return a;
    const char *length = answer_header(&a, "Content-Length");
    size_t want = length && !head_only ? strtoul(length, NULL, 10) : 0;
    free(a.body);
    a.body = calloc(1, want + 1);
    assert_non_null(a.body);
    while (a.body_len < want && client_byte(fd, a.body + a.body_len))
        a.body_len++;
    return a;
}

/* Does the peer close without sending more? */
static inline bool client_closed(int fd)
{
    char byte;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 5000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

static inline struct answer client_raw(int port, const char *text)
{
    int fd = client_open(port);
    assert_true(client_send(fd, text, strlen(text)));
    struct answer a = client_read(fd, !strncmp(text, "HEAD ", 5));
    close(fd);
    return a;
}

#endif
