/* The listening address and the service manager's socket. No state. */
#include "cli/listen.h"

#include "base/fs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum rl_rc cli_listen_parse(const char *listen, char *ip, int *ret_port, struct rl_err *err)
{
    const char *colon = strrchr(listen, ':');
    char text[16];
    struct in_addr addr;
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;

    if (!colon || digits == 0 || digits > 5 || colon[1 + digits] ||
        colon - listen >= (ptrdiff_t)sizeof(text))
        return rl_fail_field(err, RL_INVALID_FIELD, "listen", "'%.60s' is not IPv4:PORT", listen);
    memcpy(text, listen, (size_t)(colon - listen));
    text[colon - listen] = '\0';
    long port = strtol(colon + 1, NULL, 10);
    if (inet_pton(AF_INET, text, &addr) != 1 || port > 65535)
        return rl_fail_field(err, RL_INVALID_FIELD, "listen", "'%.60s' is not IPv4:PORT", listen);
    (void)rl_copy_str(ip, sizeof(text), text); /* fits */
    *ret_port = (int)port;
    return RL_OK;
}

enum rl_rc cli_listen_probe(const char *ip, int port, int *ret_port, struct rl_err *err)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t len = sizeof(addr);
    int on = 1;

    AUTO_CLOSE int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return rl_fail_errno(err, "socket", errno);
    (void)inet_pton(AF_INET, ip, &addr.sin_addr);                    /* cli_listen_parse saw it */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)); /* as the server does */
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 || listen(fd, 1) != 0) {
        char text[128];
        return rl_fail(err, RL_UNAVAILABLE, "cannot listen on %s:%d: %s", ip, port,
                       strerror_r(errno, text, sizeof(text)));
    }
    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        return rl_fail_errno(err, "getsockname", errno);
    *ret_port = ntohs(addr.sin_port);
    return RL_OK;
}

void cli_listen_url(const char *ip, int port, char *url)
{
    (void)snprintf(url, 64, "http://%s:%d", strcmp(ip, "0.0.0.0") == 0 ? "127.0.0.1" : ip,
                   port); /* fits */
}

void cli_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    if (!path || (path[0] != '/' && path[0] != '@') || !path[1] ||
        strlen(path) >= sizeof(addr.sun_path))
        return;
    size_t len = strlen(path);
    memcpy(addr.sun_path, path, len);
    if (path[0] == '@')
        addr.sun_path[0] = '\0'; /* abstract name: no end mark, exact length */
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    /* a manager that does not listen is not our trouble */
    (void)sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&addr,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
}

int64_t cli_watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");

    if (!usec || (pid && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    long long value = strtoll(usec, NULL, 10);
    return value > 0 ? (value / 2000 > 0 ? value / 2000 : 1) : 0;
}
