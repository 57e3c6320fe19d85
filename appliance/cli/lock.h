/* Who holds a state folder. */
#ifndef RL_CLI_LOCK_H
#define RL_CLI_LOCK_H

#include "base/rl.h"

/* Process that holds the lock of this state folder; 0 = nobody, or it cannot be told (another pid
 * namespace). */
int64_t cli_lock_holder(const char *state_dir);
/* "ext4", "xfs", … of the file system that holds path, or its number in hex, into name[32].
 * *ret_remote: a network file system, on which SQLite must not live. false: path cannot be looked
 * at. */
bool cli_file_system(const char *path, char *name, bool *ret_remote);

#endif
