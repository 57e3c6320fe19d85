/* What of this machine the process may use. No state; any thread. */
#ifndef RL_BASE_MACHINE_H
#define RL_BASE_MACHINE_H

#include "base/rl.h"

/* Bytes of memory for this process: the machine's, or the least that memory.max of its control
 * group (v2) or of one above allows: a service with MemoryMax, a container. */
int64_t rl_machine_memory(void);
/* The least memory.max below root along the path in the text of /proc/self/cgroup; INT64_MAX: no
 * limit. */
int64_t rl_cgroup_memory(const char *proc_cgroup, const char *root);

#endif
