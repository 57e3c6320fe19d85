/* Run one command line inside the test, with its output caught. */
#ifndef TESTS_CLI_RUN_H
#define TESTS_CLI_RUN_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

struct cli_run {
    int status;
    char out[65536], err[16384];
};

static inline int cli_run_redirect(int fd, FILE *file)
{
    int saved = dup(fd);

    (void)dup2(fileno(file), fd);
    return saved;
}

static inline void cli_run_take(FILE *file, char *text, size_t size)
{
    rewind(file);
    size_t n = fread(text, 1, size - 1, file);
    text[n] = '\0';
    (void)fclose(file);
}

static inline void cli_run_end(int status)
{
    (void)status;
}

/* Terminal that standard output goes to instead (`out` stays empty then); -1 = none. */
static int cli_run_tty_fd = -1;

/* argv: NULL-terminated, "reeld" first. input: standard input, NULL = empty. */
static inline void cli_run(struct cli_run *run, const char *input, const char *const *words)
{
    char copies[24][512], *argv[25];
    int argc = 0, saved[3];
    FILE *in = tmpfile(), *out = tmpfile(), *err = tmpfile();

    for (; argc < 24 && words[argc]; argc++) {
        (void)snprintf(copies[argc], sizeof(copies[0]), "%s", words[argc]);
        argv[argc] = copies[argc];
    }
    argv[argc] = NULL;
    if (input)
        (void)fwrite(input, 1, strlen(input), in);
    rewind(in);
    (void)fflush(NULL);
    saved[0] = cli_run_redirect(0, in);
    saved[1] = cli_run_redirect(1, out);
    if (cli_run_tty_fd >= 0)
        (void)dup2(cli_run_tty_fd, 1);
    saved[2] = cli_run_redirect(2, err);
    clearerr(stdin);
    run->status = cli_main(argc, argv, cli_run_end);
    (void)fflush(NULL);
    for (int i = 0; i < 3; i++) {
        (void)dup2(saved[i], i);
        (void)close(saved[i]);
    }
    (void)fclose(in);
    cli_run_take(out, run->out, sizeof(run->out));
    cli_run_take(err, run->err, sizeof(run->err));
}

#endif
