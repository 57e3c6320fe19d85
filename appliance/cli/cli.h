/* The command line: every command but `serve` talks to a running server by REST (or works offline,
 * as doctor does). */
#ifndef RL_CLI_CLI_H
#define RL_CLI_CLI_H

/* Ends the process at once with this status, without unwinding; main.c alone may do that. */
typedef void (*cli_end_fn)(int status);

/* Runs `reeld <command> …`; returns the process's exit status. `end` is for serve only: a database
 * that can no longer be trusted, a stop that hangs, a second signal. */
int cli_main(int argc, char **argv, cli_end_fn end);

/* Exit statuses (documented in reeld(1)). */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,        /* the task ended FAILED, TIMEOUT or CANCELED; doctor found something */
    CLI_USAGE = 2,         /* wrong words on the command line */
    CLI_REFUSED = 3,       /* the server said no (4xx): bad input, no such task, no permission */
    CLI_UNREACHABLE = 4,   /* no server answers there */
    CLI_SERVER = 5,        /* the server failed (5xx), or its answer is not understood */
    CLI_LOCKED = 6,        /* serve: another instance owns the state folder; model: its own;
                              downloads: another command writes the file */
    CLI_FORGED = 10,       /* verify-webhook: not signed by these secrets */
    CLI_OUT_OF_TIME = 11,  /* verify-webhook: signed, but outside the window */
    CLI_MALFORMED = 12,    /* verify-webhook: no delivery at all */
    CLI_INTERRUPTED = 130, /* Ctrl-C while waiting; the task goes on */
    CLI_REPLACE = 75,      /* serve: the process must be replaced (a GPU fault, a hung engine) */
    CLI_FATAL = 70         /* serve: the database can no longer be trusted */
};

#endif
