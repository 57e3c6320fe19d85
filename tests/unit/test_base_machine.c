/* The memory that is left to a process, from control groups of a made-up tree. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/machine.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void group(const char *path, const char *limit)
{
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s", root, path);
    assert_true(mkdir(name, 0700) == 0 || access(name, F_OK) == 0);
    (void)snprintf(name, sizeof name, "%s%s/memory.max", root, path);
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    (void)fputs(limit, f);
    assert_int_equal(fclose(f), 0);
}

static int make_tree(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/reeld-machine-XXXXXX");
    assert_non_null(mkdtemp(root));
    group("/system.slice", "max\n");
    group("/system.slice/reeld.service", "21474836480\n");
    group("/user.slice", "1000000\n");
    group("/user.slice/app", "5000000\n");
    return 0;
}

static int remove_tree(void **state)
{
    char command[96];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void test_cgroup_memory_is_the_least_on_the_way_up(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want;
    } cases[] = {{"0::/system.slice/reeld.service\n", INT64_C(21474836480)},
                 {"0::/user.slice/app\n", 1000000}, /* the one above allows less */
                 {"0::/user.slice/app", 1000000},
                 {"0::/user.slice/gone/deeper\n", 1000000},
                 {"0::/system.slice\n", INT64_MAX},
                 {"0::/\n", INT64_MAX},
                 {"0::\n", INT64_MAX},
                 {"", INT64_MAX},
                 {"4:memory:/user.slice/app\n", INT64_MAX}, /* v1 */
                 {"4:memory:/x\n0::/user.slice\n", 1000000},
                 {"0::/user.slice-and-more\n", INT64_MAX}};
    for (size_t i = 0; i < RL_ARRAY_LEN(cases); i++)
        assert_int_equal(rl_cgroup_memory(cases[i].text, root), cases[i].want);
    group("", "7000\n"); /* the root of a container has one */
    assert_int_equal(rl_cgroup_memory("0::/\n", root), 7000);
    group("", "nonsense\n");
    assert_int_equal(rl_cgroup_memory("0::/\n", root), INT64_MAX);
}

static void test_machine_memory_is_no_more_than_there_is(void **state)
{
    (void)state;
    int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    assert_in_range(rl_machine_memory(), 1 << 20, all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cgroup_memory_is_the_least_on_the_way_up, make_tree,
                                        remove_tree),
        cmocka_unit_test(test_machine_memory_is_no_more_than_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
