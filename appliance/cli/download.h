/* A response body into a file that appears under its name only when it is complete. */
#ifndef RL_CLI_DOWNLOAD_H
#define RL_CLI_DOWNLOAD_H

#include "cli/client.h"

struct cli_download {
    int fd;          /* path.part */
    char *part;      /* owned */
    int64_t size;    /* bytes in the file */
    int write_errno; /* why a write failed, 0 = none did */
};

/* Open path.part with this mode and be the only one who writes to it, until it is closed; resume:
 * keep what is there, else start empty. Complains; CLI_OK, CLI_LOCKED or CLI_FAILED. */
int cli_download_open(struct cli_download *download, const char *path, bool resume, unsigned mode);
/* The rest of an answer into the file (Range from its size when it is not empty). An answer that
 * ignores the range starts the file anew. Complains; exit status. */
int cli_download_fetch(struct cli_download *download, const struct cli_client *client,
                       const char *url_path);
/* fsync, rename to path, fsync the folder. Complains. */
int cli_download_commit(struct cli_download *download, const char *path);
void cli_download_close(struct cli_download *download); /* the part stays */

#endif
