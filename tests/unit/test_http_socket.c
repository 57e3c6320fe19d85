/* WebSockets: what a client says is answered at once, and wakes nobody but its own socket. */
#include "http_world.h"

#define FRAME_MAX 125 /* texts here are short: one length byte */

static int socket_open(struct server *s)
{
    char text[512];
    int fd = client_open(s->port);
    (void)snprintf(text, sizeof text,
                   "GET /api/v1/ws HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
                   "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                   s->port, s->app);
    assert_true(client_send(fd, text, strlen(text)));
    struct answer a = client_read(fd, true);
    assert_int_equal(a.status, 101);
    answer_free(&a);
    return fd;
}

static void socket_say(int fd, const char *text)
{
    static const char mask[4] = {1, 2, 3, 4};
    char frame[6 + FRAME_MAX];
    size_t len = strlen(text);
    assert_true(len <= FRAME_MAX);
    frame[0] = (char)0x81; /* final, text */
    frame[1] = (char)(0x80 | len);
    memcpy(frame + 2, mask, sizeof mask);
    for (size_t i = 0; i < len; i++)
        frame[6 + i] = (char)(text[i] ^ mask[i % 4]);
    assert_true(client_send(fd, frame, 6 + len));
}

/* The next text frame into text[FRAME_MAX + 1]. */
static void socket_hear(int fd, char *text)
{
    char head[2];
    for (int i = 0; i < 2; i++)
        assert_true(client_byte(fd, &head[i]));
    assert_int_equal((unsigned char)head[0], 0x81);
    size_t len = (unsigned char)head[1];
    assert_true(len <= FRAME_MAX);
    for (size_t i = 0; i < len; i++)
        assert_true(client_byte(fd, &text[i]));
    text[len] = '\0';
}

/* Thirty turns take as long as one wait of the writer would: each is heard at once, and the
 * doorbell does not ring for them. */
static void test_socket_message_wakes_its_own_writer_only(void **state)
{
    struct server *s = *state;
    char text[FRAME_MAX + 1];
    int one = socket_open(s), two = socket_open(s);
    socket_say(two, "{\"op\":\"ping\"}");
    socket_hear(two, text);
    uint64_t tick = hub_tick(s->hub);
    int64_t begun = rl_mono_ms();
    for (int i = 0; i < 30; i++) {
        socket_say(one, i % 2 ? "{\"op\":\"ping\"}" : "{\"op\":\"subscribe\",\"all\":true}");
        socket_hear(one, text);
        assert_non_null(strstr(text, i % 2 ? "\"event\":\"pong\"" : "\"event\":\"subscribed\""));
    }
    assert_true(rl_mono_ms() - begun < 15000); /* half of what waiting would take */
    assert_int_equal(hub_tick(s->hub), tick);
    close(one);
    close(two);
}

/* A client that goes is let go at once, with nothing rung. */
static void test_socket_close_wakes_its_own_writer_only(void **state)
{
    struct server *s = *state;
    char text[FRAME_MAX + 1];
    uint64_t tick = hub_tick(s->hub);
    int64_t begun = rl_mono_ms();
    for (int i = 0; i < 10; i++) {
        int fd = socket_open(s);
        socket_say(fd, "{\"op\":\"ping\"}");
        socket_hear(fd, text);
        (void)shutdown(fd, SHUT_WR);
        while (client_byte(fd, text)) /* the server has closed when the socket is released */
            ;
        close(fd);
    }
    assert_true(rl_mono_ms() - begun < 9000);
    assert_int_equal(hub_tick(s->hub), tick);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socket_message_wakes_its_own_writer_only),
        cmocka_unit_test(test_socket_close_wakes_its_own_writer_only),
    };
    return cmocka_run_group_tests(tests, server_start, server_end);
}
