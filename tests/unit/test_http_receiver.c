/* The loopback receiver behind `reeld listen`: what reaches its call-back, what it refuses itself.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "http/receiver.h"
#include "http_client.h"

#include <pthread.h>
#include <stdatomic.h>

struct scene {
    struct receiver *receiver;
    int port;
    atomic_int calls, status;
    char id[256], timestamp[64], signature[64], body[64]; /* of the first call */
    size_t body_len;
};

static int on_delivery(void *user, const struct rl_webhook *hook)
{
    struct scene *s = user;
    if (atomic_fetch_add(&s->calls, 1) == 0) {
        (void)snprintf(s->id, sizeof(s->id), "%s", hook->id ? hook->id : "-");
        (void)snprintf(s->timestamp, sizeof(s->timestamp), "%s",
                       hook->timestamp ? hook->timestamp : "-");
        (void)snprintf(s->signature, sizeof(s->signature), "%s",
                       hook->signature ? hook->signature : "-");
        (void)snprintf(s->body, sizeof(s->body), "%s", (const char *)hook->body);
        s->body_len = hook->body_len;
    }
    return atomic_load(&s->status);
}

static int setup(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    struct rl_err err;
    atomic_store(&s->status, 200);
    if (receiver_start(0, on_delivery, s, &s->receiver, &s->port, &err) != RL_OK)
        fail_msg("%s", err.reason);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    receiver_stop(s->receiver);
    free(s);
    return 0;
}

static void ask(struct scene *s, int status, const char *text)
{
    struct answer a = client_raw(s->port, text);
    if (a.status != status)
        fail_msg("%d, wanted %d: %s", a.status, status, a.head);
    answer_free(&a);
}

static void test_receiver_hands_over(void **state)
{
    struct scene *s = *state;
    ask(s, 200,
        "POST /any?path HTTP/1.1\r\nHost: 127.0.0.1\r\nWebhook-Id: evt_1\r\n"
        "webhook-timestamp: 7\r\nwebhook-signature: v1,a v1,b\r\nContent-Length: 4\r\n\r\nbody");
    assert_int_equal(atomic_load(&s->calls), 1);
    assert_string_equal(s->id, "evt_1");
    assert_string_equal(s->timestamp, "7");
    assert_string_equal(s->signature, "v1,a v1,b");
    assert_string_equal(s->body, "body");
    assert_int_equal(s->body_len, 4);
}

static void test_receiver_answers_as_told(void **state)
{
    static const int statuses[] = {204, 410, 429, 503};
    struct scene *s = *state;
    for (size_t i = 0; i < RL_ARRAY_LEN(statuses); i++) {
        atomic_store(&s->status, statuses[i]);
        ask(s, statuses[i], "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
    }
    assert_string_equal(s->id, "-");
}

static void test_receiver_takes_chunks(void **state)
{
    struct scene *s = *state;
    ask(s, 200,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        "2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n");
    assert_string_equal(s->body, "body");
}

static void test_receiver_refuses(void **state)
{
    struct scene *s = *state;
    ask(s, 405, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    ask(s, 405, "OPTIONS / HTTP/1.1\r\nHost: a\r\nOrigin: http://x\r\n\r\n");
    AUTO_BUF struct rl_buf big = {0};
    rl_buf_init(&big, 4 << 20);
    rl_buf_fmt(&big, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", 2 << 20);
    for (int i = 0; i < (1 << 20) / 64 + 64; i++)
        rl_buf_str(&big, "0123456789012345678901234567890123456789012345678901234567890123");
    int fd = client_open(s->port);
    (void)client_send(fd, big.data, big.len); /* it may be closed before the last byte is out */
    struct answer a = client_read(fd, false);
    assert_true(a.status == 413 || a.status == 0); /* or the close overtook the answer */
    answer_free(&a);
    close(fd);
    fd = client_open(s->port);
    const char *cut = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nshort";
    assert_true(client_send(fd, cut, strlen(cut)));
    (void)shutdown(fd, SHUT_WR);
    a = client_read(fd, false);
    assert_int_equal(a.status, 400);
    answer_free(&a);
    close(fd);
    assert_int_equal(atomic_load(&s->calls), 0);
}

static void *post_some(void *arg)
{
    static const char post[] = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}";
    static const char good[] = "HTTP/1.1 200";
    struct scene *s = arg;
    for (int i = 0; i < 10; i++) { /* client_read is for one thread */
        char head[sizeof(good)] = "";
        int fd = client_open(s->port);
        assert_true(client_send(fd, post, sizeof(post) - 1));
        for (size_t n = 0; n < sizeof(good) - 1 && client_byte(fd, &head[n]);)
            n++;
        assert_string_equal(head, good);
        close(fd);
    }
    return NULL;
}

static void test_receiver_many_at_once(void **state)
{
    struct scene *s = *state;
    pthread_t threads[12];
    for (size_t i = 0; i < RL_ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_some, s), 0);
    for (size_t i = 0; i < RL_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&s->calls), 120);
}

static void test_receiver_port_taken(void **state)
{
    struct scene *s = *state;
    struct receiver *other = NULL;
    struct rl_err err;
    int port = 0;
    assert_int_equal(receiver_start(s->port, on_delivery, s, &other, &port, &err), RL_IO_ERROR);
    assert_non_null(strstr(err.reason, "is the port taken?"));
    ask(s, 200, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_receiver_hands_over),   TEST(test_receiver_answers_as_told),
        TEST(test_receiver_takes_chunks), TEST(test_receiver_refuses),
        TEST(test_receiver_many_at_once), TEST(test_receiver_port_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
