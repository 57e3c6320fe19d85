/* WebSockets: what a client says is answered at once, and wakes nobody but its own socket. */
#include "http_world.h"

#include <civetweb.h>
#include <dlfcn.h>
#include <errno.h>

#define FRAME_MAX    125    /* texts here are short: one length byte */
#define EVENTS       2000   /* of a long replay */
#define HEAVY        400000 /* padding: a frame that finds no room by and by */
#define HEAVY_EVENTS 40     /* fill every buffer on the way */

/* ---- the library's write, which can be held, or cut short once ---- */

typedef int write_fn(struct mg_connection *conn, int opcode, const char *data, size_t len);

static struct {
    write_fn *real; /* set before the first thread */
    pthread_mutex_t lock;
    pthread_cond_t turn;
    const char *hold; /* texts with this in them wait before they are written; NULL = none do */
    bool held;        /* one waits */
    const char *cut;  /* of the first text with this in it half is written */
    const struct mg_connection *cut_conn;
    int after_cut;   /* frames for that connection afterwards */
    int begun, done; /* frames */
} door = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};

static int real_write(struct mg_connection *conn, int opcode, const char *data, size_t len)
{
    pthread_mutex_lock(&door.lock);
    door.begun++;
    pthread_mutex_unlock(&door.lock);
    int n = door.real(conn, opcode, data, len);
    pthread_mutex_lock(&door.lock);
    door.done++;
    pthread_cond_broadcast(&door.turn);
    pthread_mutex_unlock(&door.lock);
    return n;
}

int mg_websocket_write(struct mg_connection *conn, int opcode, const char *data, size_t len)
{
    pthread_mutex_lock(&door.lock);
    if (opcode == MG_WEBSOCKET_OPCODE_TEXT && door.hold &&
        memmem(data, len, door.hold, strlen(door.hold))) {
        door.held = true;
        pthread_cond_broadcast(&door.turn);
        mg_unlock_connection(conn); /* the caller has it: the worker may answer meanwhile */
        while (door.held)
            pthread_cond_wait(&door.turn, &door.lock);
        pthread_mutex_unlock(&door.lock);
        mg_lock_connection(conn);
        pthread_mutex_lock(&door.lock);
    }
    bool cut = opcode == MG_WEBSOCKET_OPCODE_TEXT && door.cut &&
               memmem(data, len, door.cut, strlen(door.cut));
    if (cut) {
        door.cut = NULL;
        door.cut_conn = conn;
    } else if (conn == door.cut_conn) {
        door.after_cut++;
    }
    pthread_mutex_unlock(&door.lock);
    if (!cut)
        return real_write(conn, opcode, data, len);
    const char head[2] = {(char)0x81, (char)len};
    assert_true(len <= FRAME_MAX);
    mg_lock_connection(conn);
    assert_int_equal(mg_write(conn, head, sizeof head), sizeof head);
    int n = mg_write(conn, data, len / 2);
    mg_unlock_connection(conn);
    return n;
}

static void door_hold(const char *text)
{
    pthread_mutex_lock(&door.lock);
    door.hold = text;
    pthread_mutex_unlock(&door.lock);
}

/* Until one waits; fails after 10 s. */
static void door_wait(void)
{
    struct timespec until = rl_deadline(CLOCK_MONOTONIC, 10000);
    pthread_mutex_lock(&door.lock);
    int rc = 0;
    while (!door.held && rc == 0)
        rc = pthread_cond_clockwait(&door.turn, &door.lock, CLOCK_MONOTONIC, &until);
    pthread_mutex_unlock(&door.lock);
    assert_int_equal(rc, 0);
}

/* Until a frame has not been written for 5 s: the library tries again every two, and the kernel may
 * have made room by then. */
static void door_stuck(void)
{
    bool stuck = false;
    pthread_mutex_lock(&door.lock);
    while (!stuck) {
        struct timespec until = rl_deadline(CLOCK_MONOTONIC, 5000);
        int rc = pthread_cond_clockwait(&door.turn, &door.lock, CLOCK_MONOTONIC, &until);
        stuck = rc == ETIMEDOUT && door.begun > door.done;
    }
    pthread_mutex_unlock(&door.lock);
}

/* Let go who waits, and hold the next with this text. */
static void door_next(const char *hold)
{
    pthread_mutex_lock(&door.lock);
    door.hold = hold;
    door.held = false;
    pthread_cond_broadcast(&door.turn);
    pthread_mutex_unlock(&door.lock);
}

/* ---- a client ---- */

/* Answers 101, or what is wanted. Returns the connection. */
static int socket_ask(struct server *s, const char *key, int status)
{
    char text[512];
    int fd = client_open(s->port), small = 4096;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
    (void)snprintf(text, sizeof text,
                   "GET /api/v1/ws HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer %s\r\n"
                   "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                   s->port, key);
    assert_true(client_send(fd, text, strlen(text)));
    struct answer a = client_read(fd, true);
    assert_int_equal(a.status, status);
    answer_free(&a);
    return fd;
}

static int socket_open(struct server *s)
{
    return socket_ask(s, s->app, 101);
}

/* false: the server has closed. */
static bool socket_send(int fd, int opcode, const char *text)
{
    static const char mask[4] = {1, 2, 3, 4};
    char frame[6 + FRAME_MAX];
    size_t len = strlen(text);
    assert_true(len <= FRAME_MAX);
    frame[0] = (char)(0x80 | opcode); /* final */
    frame[1] = (char)(0x80 | len);
    memcpy(frame + 2, mask, sizeof mask);
    for (size_t i = 0; i < len; i++)
        frame[6 + i] = (char)(text[i] ^ mask[i % 4]);
    return client_send(fd, frame, 6 + len);
}

static void socket_say(int fd, const char *text)
{
    assert_true(socket_send(fd, MG_WEBSOCKET_OPCODE_TEXT, text));
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

/* Everything until the server closes; fails when that takes more than 10 s of silence. */
static void socket_drain(int fd)
{
    char bytes[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ssize_t n = 1;
    while (n > 0) {
        if (poll(&p, 1, 10000) != 1)
            fail_msg("the server does not close");
        n = recv(fd, bytes, sizeof bytes, 0);
    }
}

/* As if `count` moves of this task had been committed, each told with as much padding. Returns the
 * last seq. */
static int64_t publish(struct server *s, int64_t task_id, int count, int padding)
{
    static char json[HEAVY + 128]; /* one thread publishes */
    struct hub_event event = {
        .task_id = task_id, .user_id = "app", .to_status = "QUEUED", .json = json};
    for (int i = 0; i < count; i++) {
        event.seq = hub_last_seq(s->hub) + 1;
        (void)snprintf(json, sizeof json, "{\"seq\":%lld,\"task\":%lld,\"text\":\"%*s\"}",
                       (long long)event.seq, (long long)task_id, padding, "");
        hub_publish(s->hub, &event);
    }
    return event.seq;
}

/* The next text has this in it. */
static void expect_text(int fd, const char *format, int64_t number)
{
    char text[FRAME_MAX + 1], wanted[FRAME_MAX + 1];
    (void)snprintf(wanted, sizeof wanted, format, (long long)number);
    socket_hear(fd, text);
    if (!strstr(text, wanted))
        fail_msg("wanted %s: %s", wanted, text);
}

#define EVENT_SEQ      "\"status\",\"data\":{\"seq\":%lld,"
#define SUBSCRIBED_SEQ "{\"event\":\"subscribed\",\"data\":{\"seq\":%lld,"

/* Until the metrics count this many; fails after 20 s. */
static void wait_sockets(struct server *s, int count)
{
    char line[64];
    int64_t until = rl_mono_ms() + 20000;
    (void)snprintf(line, sizeof line, "\nreeld_http_sockets %d\n", count);
    for (bool done = false; !done;) {
        struct answer a = call_as(s, s->owner, "GET", "/metrics", NULL, NULL);
        assert_int_equal(a.status, 200);
        done = strstr(a.body, line) != NULL;
        answer_free(&a);
        if (!done && rl_mono_ms() > until)
            fail_msg("there are not %d sockets", count);
        if (!done)
            (void)hub_wait(s->hub, NULL, hub_tick(s->hub), 20); /* leaves the server a core */
    }
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

/* The client says goodbye in the middle of a replay: the writer's next write must not wait for the
 * lock under which the connection is closed. */
static void test_socket_close_during_a_replay(void **state)
{
    struct server *s = *state;
    char text[128], byte;
    int64_t first = hub_last_seq(s->hub);
    (void)publish(s, 1, EVENTS, 120);
    (void)snprintf(text, sizeof text, "{\"op\":\"subscribe\",\"all\":true,\"after\":%lld}",
                   (long long)first);
    for (int i = 0; i < 20; i++) {
        int fd = socket_open(s);
        socket_say(fd, text);
        assert_true(client_byte(fd, &byte));
        if (i % 2) {
            assert_true(socket_send(fd, MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE, ""));
            socket_drain(fd);
        }
        close(fd);
    }
    wait_sockets(s, 0);
}

/* The writer is about to say the second of three events that it took in one go, of the tasks 11, 12
 * and 11, while only 12 is subscribed. Returns the seq before the three. */
static int64_t hold_in_a_batch(struct server *s, int fd)
{
    socket_say(fd, "{\"op\":\"subscribe\",\"task_ids\":[\"12\"]}");
    expect_text(fd, SUBSCRIBED_SEQ, hub_last_seq(s->hub));
    door_hold("\"task\":12,");
    int64_t before = publish(s, 12, 1, 0);
    door_wait();
    (void)publish(s, 11, 1, 0);
    (void)publish(s, 12, 1, 0);
    (void)publish(s, 11, 1, 0);
    door_next("\"task\":12,");
    expect_text(fd, EVENT_SEQ, before);
    door_wait();
    return before;
}

/* The worker has understood what was said so far, though the writer is held. */
static void socket_understood(int fd)
{
    char head[2] = "";
    assert_true(socket_send(fd, MG_WEBSOCKET_OPCODE_PING, ""));
    assert_true(client_byte(fd, &head[0]) && client_byte(fd, &head[1]));
    assert_int_equal((unsigned char)head[0], 0x80 | MG_WEBSOCKET_OPCODE_PONG);
    assert_int_equal(head[1], 0);
}

/* A position that is set while a batch is said holds also when it is where the batch began: what
 * was passed over is said, nothing out of turn. */
static void test_socket_subscribe_from_where_the_batch_began(void **state)
{
    struct server *s = *state;
    char text[128];
    int fd = socket_open(s);
    int64_t before = hold_in_a_batch(s, fd);
    (void)snprintf(text, sizeof text, "{\"op\":\"subscribe\",\"task_ids\":[\"11\"],\"after\":%lld}",
                   (long long)before);
    socket_say(fd, text);
    socket_understood(fd);
    door_next(NULL);
    expect_text(fd, EVENT_SEQ, before + 2);
    expect_text(fd, SUBSCRIBED_SEQ, before);
    socket_say(fd, "{\"op\":\"ping\"}");
    for (int i = 1; i <= 3; i++)
        expect_text(fd, EVENT_SEQ, before + i);
    expect_text(fd, "\"pong\"", 0);
    close(fd);
}

/* Who subscribes while a batch is said is told of all after the seq of the answer, which is the
 * batch's end, for its first event was passed over already. */
static void test_socket_subscribe_during_a_batch_says_its_end(void **state)
{
    struct server *s = *state;
    int fd = socket_open(s);
    int64_t before = hold_in_a_batch(s, fd);
    socket_say(fd, "{\"op\":\"subscribe\",\"task_ids\":[\"11\"]}");
    socket_understood(fd);
    door_next(NULL);
    expect_text(fd, EVENT_SEQ, before + 2);
    expect_text(fd, EVENT_SEQ, before + 3);
    expect_text(fd, SUBSCRIBED_SEQ, before + 3);
    expect_text(fd, EVENT_SEQ, publish(s, 11, 1, 0));
    close(fd);
}

/* ---- who does not leave ---- */

static int revoked_socket(struct server *s)
{
    char key[KEY_TEXT], head[4];
    int64_t id;
    struct rl_err err;
    assert_int_equal(key_add(s->tasks, "gone", NULL, false, key, &id, &err), RL_OK);
    int fd = socket_ask(s, key, 101);
    assert_int_equal(key_revoke(s->tasks, id, &err), RL_OK);
    for (size_t i = 0; i < sizeof head; i++)
        assert_true(client_byte(fd, &head[i]));
    assert_int_equal((unsigned char)head[0], 0x80 | MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE);
    assert_int_equal((unsigned char)head[2] << 8 | (unsigned char)head[3], 1008);
    return fd;
}

/* The close frame of a revoked key is ignored: the place is free all the same. */
static void test_socket_revoked_client_stays(void **state)
{
    struct server *s = *state;
    int silent = revoked_socket(s);
    wait_sockets(s, 0);
    close(silent);
    int talks = revoked_socket(s);
    int64_t until = rl_mono_ms() + 10000;
    char byte;
    while (socket_send(talks, MG_WEBSOCKET_OPCODE_PING, "") && client_byte(talks, &byte))
        assert_true(rl_mono_ms() < until);
    close(talks);
    wait_sockets(s, 0);
}

/* A replay that the client asks for and never takes. */
static int clogged_socket(struct server *s)
{
    char text[128], byte;
    int64_t first = hub_last_seq(s->hub);
    int fd = socket_open(s);
    (void)publish(s, 1, HEAVY_EVENTS, HEAVY);
    (void)snprintf(text, sizeof text, "{\"op\":\"subscribe\",\"all\":true,\"after\":%lld}",
                   (long long)first);
    socket_say(fd, text);
    assert_true(client_byte(fd, &byte));
    return fd;
}

/* Too slow: its place is free when the write has timed out. */
static void test_socket_client_that_does_not_read(void **state)
{
    struct server *s = *state;
    int fd = clogged_socket(s);
    wait_sockets(s, 0);
    close(fd);
}

/* The client says goodbye and takes nothing more: that is not waited for as long as a write may
 * take, 30 s here. */
static void test_socket_close_while_the_writer_is_stuck(void **state)
{
    struct server *s = *state;
    int fd = clogged_socket(s);
    door_stuck();
    assert_true(socket_send(fd, MG_WEBSOCKET_OPCODE_CONNECTION_CLOSE, ""));
    wait_sockets(s, 0);
    close(fd);
}

/* Of a frame only a part could be written: nothing follows it, not even a goodbye. */
static void test_socket_short_write_ends_it(void **state)
{
    struct server *s = *state;
    char byte;
    size_t count = 0;
    int fd = socket_open(s);
    socket_say(fd, "{\"op\":\"subscribe\",\"all\":true}");
    expect_text(fd, SUBSCRIBED_SEQ, hub_last_seq(s->hub));
    pthread_mutex_lock(&door.lock);
    door.cut = "\"task\":13,";
    pthread_mutex_unlock(&door.lock);
    (void)publish(s, 13, 2, 0);
    while (client_byte(fd, &byte))
        count++;
    assert_in_range(count, 2 + 10, 2 + FRAME_MAX / 2);
    assert_true(client_closed(fd));
    pthread_mutex_lock(&door.lock);
    assert_int_equal(door.after_cut, 0);
    door.cut_conn = NULL;
    pthread_mutex_unlock(&door.lock);
    close(fd);
    wait_sockets(s, 0);
}

/* One app's key has four places; the owner's keys, and another app's, have theirs. */
static void test_socket_places_of_a_key(void **state)
{
    struct server *s = *state;
    char key[KEY_TEXT];
    int64_t id;
    int fds[10];
    struct rl_err err;
    assert_int_equal(key_add(s->tasks, "app", NULL, false, key, &id, &err), RL_OK);
    wait_sockets(s, 0);
    for (int i = 0; i < 4; i++)
        fds[i] = socket_ask(s, s->app, 101);
    struct answer a =
        call(s, "GET", "/api/v1/ws",
             "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
             NULL);
    assert_int_equal(a.status, 429);
    assert_string_equal(answer_header(&a, "Retry-After"), "5");
    assert_string_equal(answer_header(&a, "x-ratelimit-limit"), "4");
    expect(a, 429, "too many sockets of this key (http.sockets_per_key)");
    fds[4] = socket_ask(s, key, 101);
    for (int i = 5; i < 10; i++)
        fds[i] = socket_ask(s, s->owner, 101);
    wait_sockets(s, 10);
    close(fds[1]);
    wait_sockets(s, 9);
    fds[1] = socket_ask(s, s->app, 101);
    close(socket_ask(s, s->app, 429));
    for (int i = 0; i < 10; i++)
        close(fds[i]);
    wait_sockets(s, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_socket_message_wakes_its_own_writer_only),
        cmocka_unit_test(test_socket_close_wakes_its_own_writer_only),
        cmocka_unit_test(test_socket_close_during_a_replay),
        cmocka_unit_test(test_socket_subscribe_from_where_the_batch_began),
        cmocka_unit_test(test_socket_subscribe_during_a_batch_says_its_end),
        cmocka_unit_test(test_socket_revoked_client_stays),
        cmocka_unit_test(test_socket_client_that_does_not_read),
        cmocka_unit_test(test_socket_short_write_ends_it),
        cmocka_unit_test(test_socket_places_of_a_key),
    };
    const struct CMUnitTest patient[] = {
        cmocka_unit_test(test_socket_close_while_the_writer_is_stuck),
    };
    *(void **)&door.real = dlsym(RTLD_NEXT, "mg_websocket_write");
    int failed = cmocka_run_group_tests(tests, server_start, server_end);
    return failed + cmocka_run_group_tests(patient, server_start_patient, server_end);
}
