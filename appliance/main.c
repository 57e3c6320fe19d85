/* The entry point. The one file that may end the process without unwinding. */
#include "cli/cli.h"

#include <unistd.h>

static void end_process(int status)
{
    _exit(status);
}

int main(int argc, char **argv)
{
    return cli_main(argc, argv, end_process);
}
