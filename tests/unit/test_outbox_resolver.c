/* A name that changes its answer: every attempt is judged by the address that it would dial. This
 * program's own getaddrinfo stands before the system's, also for libcurl. */
#include "test_outbox_scene.h"

#include <netdb.h>
#include <stdatomic.h>
// link: -Wl,--wrap=store_write

static _Atomic(const char *) answer; /* what "flip.test" is now */
static _Atomic int asked;

/* The form that freeaddrinfo of glibc takes: one block per entry. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **res)
{
    struct {
        struct addrinfo info;
        struct sockaddr_in in;
    } *block = calloc(1, sizeof *block);

    (void)hints;
    if (!block)
        return EAI_MEMORY;
    if (!node || inet_pton(AF_INET, strcmp(node, "flip.test") == 0 ? atomic_load(&answer) : node,
                           &block->in.sin_addr) != 1) {
        free(block);
        return EAI_NONAME;
    }
    atomic_fetch_add(&asked, strcmp(node, "flip.test") == 0);
    block->in.sin_family = AF_INET;
    block->in.sin_port = htons((uint16_t)(service ? strtoul(service, NULL, 10) : 0));
    block->info = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_protocol = IPPROTO_TCP,
                                    .ai_addrlen = sizeof block->in,
                                    .ai_addr = (struct sockaddr *)&block->in};
    *res = &block->info;
    return 0;
}

static void deliver(struct tasks *t, int64_t task_id, int port, const char *status)
{
    char url[64];

    (void)snprintf(url, sizeof url, "http://flip.test:%d/", port);
    add(t, (struct new_duty){.task_id = task_id, .port = port, .url = url});
    assert_true(wait_for(t, task_id, status, 1, SOON_MS));
}

static void test_outbox_resolver_answer_changes(void **state)
{
    struct tasks *t = *state;
    int port = receiver_listen(t->receiver, (enum answer[]){ANSWER_200}, 1);

    start_on(t, OWN_PORT);
    atomic_store(&answer, "127.0.0.1");
    deliver(t, 1, port, "SUCCEEDED");
    atomic_store(&answer, "169.254.169.254");
    deliver(t, 2, port, "FAILED");
    assert_delivery(t, 2, 1, 0, "ADDRESS_REFUSED", 0);
    atomic_store(&answer, "10.0.0.7");
    deliver(t, 3, port, "FAILED");
    assert_delivery(t, 3, 1, 0, "ADDRESS_REFUSED", 0);
    atomic_store(&answer, "127.0.0.1");
    deliver(t, 4, port, "SUCCEEDED");
    net_policy_set_own_port(t->policy, port); /* as if reeld itself listened there */
    deliver(t, 5, port, "FAILED");
    assert_delivery(t, 5, 1, 0, "ADDRESS_REFUSED", 0);
    assert_int_equal(receiver_count(t->receiver, 0), 2);
    assert_int_equal(atomic_load(&asked), 5); /* it is this resolver that was asked, every time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_outbox_resolver_answer_changes)};

    return run_scenes(tests, RL_ARRAY_LEN(tests));
}
