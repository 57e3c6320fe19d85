/* Finds the sockets behind CivetWeb's connections in /proc/self/fd. Nothing is kept. A socket may
 * be closed by its worker between a look and a shutdown, and its number be another's by then;
 * whoever calls here without holding the worker accepts that one connection in a crowd is cut for
 * it. */
#include "http/wire.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"

#define HEAD_BYTES 16384 /* the longest head that is taken (max_request_size) */

/* Calls each for every open file until it says stop (true). */
static void each_file(bool (*each)(int fd, void *user), void *user)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) {
        rl_log(RL_LOG_WARN, "http_watch_failed", "reason=\"cannot list open files\"");
        return;
    }
    const struct dirent *item;
    while ((item = readdir(dir)) != NULL) {
        char *end;
        long fd = strtol(item->d_name, &end, 10);
        if (!*end && end != item->d_name && fd <= INT32_MAX && each((int)fd, user))
            break;
    }
    (void)closedir(dir); /* nothing was written */
}

static bool is_local(int fd, int port)
{
    struct sockaddr_in local = {0};
    socklen_t len = sizeof(local);
    return getsockname(fd, (struct sockaddr *)&local, &len) == 0 && local.sin_family == AF_INET &&
           ntohs(local.sin_port) == port;
}

/* ---- one connection ---- */

struct wire_ends wire_ends(const char *peer_ip, int peer_port, int local_port)
{
    struct wire_ends ends = {.local_port = local_port};
    ends.peer.sin_family = AF_INET;
    ends.peer.sin_port = htons((uint16_t)peer_port);
    (void)inet_pton(AF_INET, peer_ip, &ends.peer.sin_addr); /* from getpeername: always valid */
    return ends;
}

struct search {
    const struct wire_ends *ends;
    int fd;
};

static bool is_searched(int fd, void *user)
{
    struct search *search = user;
    const struct sockaddr_in *wanted = &search->ends->peer;
    struct sockaddr_in peer = {0};
    socklen_t len = sizeof(peer);
    if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0 || peer.sin_family != AF_INET ||
        peer.sin_port != wanted->sin_port || peer.sin_addr.s_addr != wanted->sin_addr.s_addr ||
        !is_local(fd, search->ends->local_port))
        return false;
    search->fd = fd;
    return true;
}

int wire_find(const struct wire_ends *ends)
{
    struct search search = {.ends = ends, .fd = -1};
    each_file(is_searched, &search);
    return search.fd;
}

bool wire_left(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* ---- all of them ---- */

struct crowd {
    int port;
    int64_t quiet_ms;
    char *head; /* HEAD_BYTES */
};

static bool is_loitering(int fd, const struct crowd *crowd)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info), int_len = sizeof(int);
    int listens = 1;
    if (!is_local(fd, crowd->port) ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_len) != 0 || listens ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
        info.tcpi_last_data_recv < crowd->quiet_ms)
        return false;
    ssize_t n = recv(fd, crowd->head, HEAD_BYTES, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0)
        return info.tcpi_bytes_received == 0;
    return n > 0 && !memmem(crowd->head, (size_t)n, "\r\n\r\n", 4);
}

static bool cut_loiterer(int fd, void *user)
{
    if (is_loitering(fd, user))
        (void)shutdown(fd, SHUT_RD); /* the peer may have gone meanwhile */
    return false;
}

void wire_clear(int port, int64_t quiet_ms)
{
    struct crowd crowd = {.port = port, .quiet_ms = quiet_ms, .head = malloc(HEAD_BYTES)};
    if (crowd.head) /* else the next look, when there is memory again */
        each_file(cut_loiterer, &crowd);
    free(crowd.head);
}

static bool cut(int fd, void *user)
{
    if (is_local(fd, *(int *)user))
        (void)shutdown(fd, SHUT_RDWR); /* the peer may have gone meanwhile */
    return false;
}

void wire_hang_up(int port)
{
    each_file(cut, &port);
}
