/* Every knob and every limit of reeld, with its unit and its reason.
 * X(ID, "name", TYPE, "default", min, max, "unit", "what it does, and why this default")
 * TYPE: INT (min..max), BOOL (on|off), TEXT (min..max bytes), CHOICE (TEXT whose unit field lists
 * the allowed words, separated by |). */
#ifndef RL_CONFIG_KEYS_H
#define RL_CONFIG_KEYS_H

/* clang-format off */
#define CONFIG_KEYS(X)                                                                                            \
    X(STATE_DIR, "state_dir", TEXT, "/var/lib/reeld", 1, 1024, "path",                                            \
      "database, results and keys live here; must be a local file system")                                        \
    X(LISTEN, "listen", TEXT, "127.0.0.1:8080", 1, 128, "ip:port",                                                \
      "IPv4 address and port; loopback because TLS and exposure belong to a front proxy")                         \
    X(NODE_ID, "node_id", INT, "0", 0, 1023, "",                                                                  \
      "10 bits in every task id; give each machine of a fleet its own")                                           \
    X(LOG_LEVEL, "log.level", CHOICE, "info", 1, 8, "debug|info|warn|error", "least severe line that is written") \
    /* HTTP */                                                                                                    \
    X(HTTP_THREADS, "http.threads", INT, "128", 12, 4096, "threads",                                              \
      "ordinary requests at once; one connection holds one thread for its life (16 KiB each)")                    \
    X(HTTP_STREAM_THREADS, "http.stream_threads", INT, "64", 0, 1024, "threads",                                  \
      "extra threads for streams and long polls, so that watchers never starve requests")                         \
    X(HTTP_HEARTBEAT_MS, "http.heartbeat_ms", INT, "10000", 100, 600000, "ms",                                    \
      "a sign of life on streams: keeps proxies from closing them and finds clients that are gone")               \
    X(HTTP_SOCKETS, "http.sockets", INT, "16", 0, 1024, "sockets",                                                \
      "WebSockets at once; few, because the HTTP library reserves memory by the length a frame claims")           \
    X(HTTP_SOCKETS_PER_KEY, "http.sockets_per_key", INT, "4", 1, 1024, "sockets",                                 \
      "WebSockets of one app key at once (the owner's: none but http.sockets)")                                   \
    X(HTTP_BODY_LIMIT, "http.body_limit", INT, "262144", 4096, 16777216, "bytes",                                 \
      "largest JSON body; a task is text, results never travel this way")                                         \
    X(HTTP_REQUEST_TIMEOUT_MS, "http.request_timeout_ms", INT, "3000", 500, 60000, "ms",                          \
      "silence after which a connection is dropped; also bounds slow request heads")                              \
    X(HTTP_BODY_DEADLINE_MS, "http.body_deadline_ms", INT, "15000", 500, 600000, "ms",                            \
      "total time for one request body, however slowly its bytes drip")                                           \
    X(HTTP_STALL_MS, "http.stall_ms", INT, "60000", 1000, 3600000, "ms",                                          \
      "how long a download may stand still, as a paused player lets it; 5 s at most while threads are short")     \
    X(HTTP_KEEP_ALIVE_MS, "http.keep_alive_ms", INT, "5000", 100, 60000, "ms",                                    \
      "idle time of a kept connection, which holds a thread meanwhile")                                           \
    X(HTTP_ALLOWED_HOSTS, "http.allowed_hosts", TEXT, "", 0, 4096, "names",                                       \
      "extra Host names, comma separated; loopback names and the listen address always pass (DNS rebinding)")     \
    X(HTTP_DRAIN_MS, "http.drain_ms", INT, "20000", 0, 120000, "ms",                                              \
      "how long a stop waits for requests in flight")                                                             \
    X(HTTP_METRICS_OPEN, "http.metrics_open", BOOL, "off", 0, 0, "on|off",                                        \
      "answers /metrics without a key, for scrapers that cannot send one; the figures tell of everybody's tasks") \
    X(HTTP_PUBLIC_URL, "http.public_url", TEXT, "", 0, 1024, "url",                                               \
      "what callbacks and links begin with when a front proxy stands before reeld; empty = http://<listen>")      \
    X(AUTH_SESSION_HOURS, "auth.session_hours", INT, "720", 1, 87600, "h", "life of a browser session cookie")    \
    X(AUTH_LINK_MINUTES, "auth.link_minutes", INT, "60", 1, 1440, "min", "life of a sign-in link")                \
    /* store */                                                                                                   \
    X(STORE_READERS, "store.readers", INT, "6", 1, 64, "connections",                                             \
      "read-only SQLite connections shared by all requests (4 MiB of cache each at most)")                        \
    X(STORE_WRITE_QUEUE, "store.write_queue", INT, "4096", 64, 65536, "operations",                               \
      "writes waiting for the writer; beyond it requests get 503")                                                \
    X(STORE_BALLAST, "store.ballast_bytes", INT, "67108864", 0, 1073741824, "bytes",                              \
      "file deleted when the disk is full, so that running tasks still reach an end")                             \
    X(STORE_MIN_FREE, "store.min_free_bytes", INT, "536870912", 0, 1099511627776, "bytes",                        \
      "free space under which new tasks, events, feeds, endpoints and keys get 507; what ends work goes on")                                       \
    /* tasks */                                                                                                   \
    X(PROMPT_BYTES, "task.prompt_bytes", INT, "32768", 16, 131072, "bytes", "longest prompt, in UTF-8 bytes")     \
    X(TASK_METADATA_BYTES, "task.metadata_bytes", INT, "8192", 0, 12288, "bytes",                                 \
      "largest metadata object; it travels in every callback, which stays under 20 kB")                           \
    X(TASK_DERIVE_KEYS, "task.derive_keys", BOOL, "on", 0, 0, "on|off",                                           \
      "a submit without an idempotency key gets one from its prompt and parameters, so a blind retry is caught")  \
    X(TASK_DERIVED_MS, "task.derived_ms", INT, "60000", 0, 31536000000, "ms",                                     \
      "how long after its success a task still answers for a derived key (for good when the seed was named)")     \
    X(TASK_MAX_RETRIES, "task.max_retries", INT, "2", 0, 100, "retries",                                          \
      "retryable engine errors before FAILED; a task may ask for its own")                                        \
    X(TASK_RETRY_DELAY_MS, "task.retry_delay_ms", INT, "180000", 0, 86400000, "ms",                               \
      "wait before the first retry (3 min: a busy GPU or a broken file needs time); doubles each time")           \
    X(TASK_CREATED_MS, "task.created_ms", INT, "300000", 1000, 86400000, "ms",                                    \
      "a CREATED task older than this is driven again")                                                           \
    X(QUEUE_TIMEOUT_S, "queue.timeout_s", INT, "3600", 0, 31536000, "s",                                          \
      "wait in the queue before a re-queue, 0 = none; an hour because one workstation serves minutes-long jobs")  \
    X(QUEUE_REQUEUES, "queue.requeues", INT, "2", 0, 100, "times", "re-queues before TIMEOUT/QUEUE_TIMEOUT")      \
    X(QUEUE_STEP_MS, "queue.step_ms", INT, "600000", 0, 315360000000, "ms",                                       \
      "head start per priority point; 0 = first come, first served")                                              \
    X(QUEUE_FAIR_STEP_MS, "queue.fair_step_ms", INT, "0", 0, 315360000000, "ms",                                  \
      "set-back per task the same user already has waiting; 0 = off")                                             \
    X(QUEUE_NAMES, "queue.names", INT, "64", 1, 1024, "queues", "distinct queue_names in use; a claim looks at each head") \
    X(QUEUE_DEPTH, "queue.depth", INT, "1000000", 1, 100000000, "tasks", "waiting tasks before QUEUE_FULL")       \
    X(RUN_FLOOR_S, "run.timeout_floor_s", INT, "300", 1, 31536000, "s",                                           \
      "least processing time-out; the derived one is run.timeout_factor times the expected run time. Of a first " \
      "run, of which nothing is expected yet, the longest silence")                                               \
    X(RUN_FACTOR, "run.timeout_factor", INT, "4", 1, 100, "times", "see run.timeout_floor_s; machines get busy")  \
    X(RUN_STALE_MS, "run.stale_ms", INT, "60000", 50, 3600000, "ms",                                              \
      "silence of a run that counts as a hang, if it is also 4 times its slowest beat in that phase")             \
    X(CHECKPOINT_S, "run.checkpoint_s", INT, "30", 0, 3600, "s",                                                  \
      "work between two denoise checkpoints: what a crash may cost; 0 = at every chance")                         \
    X(CHECKPOINT_BYTES, "run.checkpoint_bytes", INT, "2147483648", 0, 1099511627776, "bytes",                     \
      "largest denoise checkpoint; it is held in memory twice while it is saved; 0 = none are kept")              \
    X(LIMIT_PENDING, "limit.pending_tasks", INT, "3", 0, 1000000, "tasks",                                        \
      "unfinished tasks of one app user before TOO_MANY_PENDING_TASKS (the owner: none); 0 = no limit")           \
    X(LIMIT_SUBMITS, "limit.submits_per_minute", INT, "600", 0, 1000000, "per min",                               \
      "submits of one app key (the owner's: none); 0 = no limit")                                                 \
    X(LIMIT_READS, "limit.reads_per_minute", INT, "0", 0, 10000000, "per min", "reads of one app key; 0 = no limit") \
    X(LIMIT_ADDRESS, "limit.address_per_second", INT, "100", 0, 1000000, "per s",                                 \
      "failed sign-ins of one address, and all requests of one that is not loopback; 0 = no limit")               \
    X(TRUSTED_PROXIES, "limit.trusted_proxies", TEXT, "", 0, 4096, "CIDR list",                                   \
      "front proxies whose X-Forwarded-For is believed, comma separated; whoever another one on loopback brings is a stranger")\
    X(LIMIT_CLIENTS, "limit.clients", TEXT, "", 0, 4096, "CIDR list",                                             \
      "addresses that may use the server besides loopback, comma separated; empty = any (a key is needed all the same)")\
    X(RETAIN_DAYS, "retain.days", INT, "0", 0, 36500, "days",                                                     \
      "finished tasks and their videos are removed after this; 0 = kept (they are somebody's work)")              \
    X(RETAIN_COUNT, "retain.count", INT, "0", 0, 100000000, "tasks", "finished tasks kept at most; 0 = all")       \
    X(RETAIN_BYTES, "retain.bytes", INT, "0", 0, 1152921504606846976, "bytes", "videos kept at most; 0 = all")     \
    X(RETAIN_EVENTS_DAYS, "retain.events_days", INT, "90", 1, 36500, "days",                                      \
      "history of removed tasks: until then they answer TASK_EXPIRED, and feeds can replay them")                 \
    X(CACHE_BYTES, "task.cache_bytes", INT, "16777216", 0, 17179869184, "bytes",                                  \
      "finished tasks answered from memory, the least recently read make room; 16 MiB hold some 10,000; 0 = off") \
    /* feeds */                                                                                                   \
    X(FEED_COUNT, "feed.count", INT, "32", 1, 1000, "feeds",                                                      \
      "feeds of one user; each is a cursor that somebody has to move")                                            \
    X(FEED_LEASE_S, "feed.lease_s", INT, "60", 1, 43200, "s",                                                     \
      "how long a reader has for its range before the next one gets it; a read may ask for its own")              \
    X(FEED_LEASES, "feed.leases", INT, "256", 1, 10000, "ranges",                                                 \
      "ranges of one feed before its cursor has to move; as many acknowledged ones are remembered for repeats")   \
    X(FEED_HOLD_DAYS, "feed.hold_days", INT, "30", 0, 36500, "days",                                              \
      "how much longer than retain.events_days history waits for a feed that has not read it; then the feed hears of a gap")\
    /* pool */                                                                                                    \
    X(POOL_CPU_SLOTS, "pool.cpu_slots", INT, "1", 0, 64, "slots",                                                 \
      "slots when no GPU is found (an engine uses all cores itself)")                                             \
    X(POOL_CAP, "pool.processing_cap", INT, "0", 0, 1024, "tasks",                                                \
      "PROCESSING tasks at once; 0 = as many as there are workers (one per GPU, or the CPU slots)")                            \
    X(POOL_CRASH_BUDGET, "pool.crash_budget", INT, "3", 0, 100, "crashes",                                        \
      "runs of one task that may take the process down before FAILED; 0 = none is fatal to the task")             \
    /* engines */                                                                                                 \
    X(ENGINE_DEFAULT, "engine.default", TEXT, "", 0, 64, "name",                                                  \
      "engine of tasks that name none; empty = the first that is here: wan, which has the starter model")         \
    X(MODEL_DIR, "model.dir", TEXT, "", 0, 1024, "path",                                                          \
      "folder of the wan engine's models, one folder each, looked through at start; empty = models/ in state_dir")\
    X(MODEL_MIRROR, "model.mirror", TEXT, "https://huggingface.co", 8, 1024, "url",                               \
      "where `reeld model pull` finds the catalogue's files; a mirror keeps the paths below it")                  \
    X(MODEL_CATALOGUE, "model.catalogue", TEXT, "", 0, 1024, "path",                                              \
      "JSON file of more models for `reeld model`: those of your own, on your own mirror; empty = none")          \
    X(MODEL_TRIES, "model.tries", INT, "8", 1, 1000, "tries",                                                     \
      "attempts in a row that bring nothing before a download gives up; one that brought bytes starts the count") \
    X(MODEL_RETRY_MS, "model.retry_ms", INT, "1000", 0, 600000, "ms",                                             \
      "wait before the second attempt, doubled for each further one up to 30 s, so that a server can recover")    \
    X(MODEL_STALL_MS, "model.stall_ms", INT, "60000", 1000, 3600000, "ms",                                        \
      "silence after which a download's connection is given up and made anew")                                    \
    X(ENGINE_PLUGIN_DIR, "engine.plugin_dir", TEXT, "/usr/lib/reeld/engines", 0, 1024, "path",                    \
      "shared objects loaded at start (the CUDA back end is one); empty = none")                                  \
    X(TESTPATTERN_FAULTS, "testpattern.faults", BOOL, "off", 0, 0, "on|off",                                      \
      "lets clients script faults (also a SIGKILL of the server): for tests only")                                \
    /* video */                                                                                                   \
    X(VIDEO_ENCODER, "video.encoder", CHOICE, "auto", 1, 16, "auto|h264_nvenc|libx264|libopenh264",               \
      "auto = the first of these that this machine can open")                                                     \
    X(VIDEO_CRF, "video.crf", INT, "18", 0, 51, "",                                                               \
      "H.264 quality: lower is better and larger; 18 looks lossless; 0 is taken as 1, for browsers play no "      \
      "lossless H.264")                                                                                           \
    /* callbacks */                                                                                               \
    X(CALLBACK_TRIES, "callback.tries", INT, "5", 1, 100, "tries",                                                \
      "attempts before the dead letter; 5 cover 40 s and more, 12 about a day")                                   \
    X(CALLBACK_TIMEOUT_MS, "callback.timeout_ms", INT, "10000", 100, 120000, "ms", "total time of one attempt")   \
    X(CALLBACK_CONNECT_MS, "callback.connect_ms", INT, "3000", 50, 60000, "ms", "time to connect, within the total") \
    X(CALLBACK_WAIT_MS, "callback.wait_ms", INT, "1000", 1, 3600000, "ms",                                        \
      "wait after the first failure; each further wait is three times as long")                                   \
    X(CALLBACK_MAX_WAIT_MS, "callback.max_wait_ms", INT, "21600000", 1000, 604800000, "ms", "longest wait between attempts") \
    X(CALLBACK_IN_FLIGHT, "callback.in_flight", INT, "32", 1, 1024, "requests", "callbacks under way at once")    \
    X(CALLBACK_PER_HOST, "callback.per_host", INT, "2", 1, 64, "requests",                                        \
      "callbacks under way to one host and port, so that one receiver never delays another")                      \
    X(CALLBACK_RESPONSE_BYTES, "callback.response_bytes", INT, "16384", 0, 1048576, "bytes",                      \
      "how much of a receiver's answer is kept for the delivery log")                                             \
    X(CALLBACK_MAX_AGE_S, "callback.max_age_s", INT, "86400", 1, 2592000, "s",                                    \
      "a callback older than this is dead, whatever it waits for; dead ones can be sent again")                   \
    X(CALLBACK_BREAKER_FAILURES, "callback.breaker_failures", INT, "5", 0, 1000, "failures",                      \
      "connect errors, time-outs and 5xx of one host in a row before its callbacks wait, spending no tries; 0 = off")\
    X(CALLBACK_BREAKER_MS, "callback.breaker_ms", INT, "30000", 10, 3600000, "ms",                                \
      "first such wait; then one callback tries the host, and each further wait doubles up to 10 times this")     \
    X(CALLBACK_ALLOW, "callback.allow", TEXT, "", 0, 4096, "list",                                                \
      "addresses that may be called back: CIDR[:port[-port]] and name=CIDR, comma separated; loopback needs none while callback.loopback opens it")\
    X(CALLBACK_LOOPBACK, "callback.loopback", CHOICE, "auto", 1, 8, "auto|on|off",                                \
      "callbacks to programs on this machine; auto = on while listen is loopback and nothing names a front proxy: "\
      "http.allowed_hosts, http.public_url and limit.trusted_proxies are empty")                                  \
    X(CALLBACK_PUBLIC, "callback.public", CHOICE, "https", 1, 8, "off|https|any",                                 \
      "callbacks to public addresses; https by default, because a body in the clear can be read and changed on the way")\
    X(CALLBACK_ENDPOINTS, "callback.endpoints", INT, "200", 1, 10000, "endpoints",                                \
      "registered endpoints of one user; each gets a row for every task that ends")                               \
    X(CALLBACK_ROTATION_GRACE_S, "callback.rotation_grace_s", INT, "86400", 0, 604800, "s",                       \
      "how long an endpoint's former secret signs beside the new one")                                            \
    /* inbound */                                                                                                 \
    X(HOOK_TOLERANCE_S, "hook.tolerance_s", INT, "300", 1, 86400, "s",                                            \
      "how far a delivery's webhook-timestamp may lie before or after now; 5 min as in the reference libraries")  \
    X(HOOK_PER_MINUTE, "hook.per_minute", INT, "600", 0, 1000000, "per min",                                      \
      "deliveries to one source from one address, counted before the body is read; 0 = no limit; a source may have its own")\
    X(HOOK_BODY_BYTES, "hook.body_bytes", INT, "65536", 256, 1048576, "bytes",                                    \
      "largest event of an outside service; Standard Webhooks asks for less than 20 kB")                          \
    X(HOOK_BACKLOG, "hook.backlog", INT, "20000", 1, 1000000, "events",                                           \
      "events of one source that nobody has handled before new ones get 429, so that none is dropped")            \
    X(HOOK_SOURCES, "hook.sources", INT, "100", 1, 10000, "sources", "outside services that may post events")     \
    X(RETAIN_HOOK_DAYS, "retain.hook_days", INT, "30", 1, 3650, "days",                                           \
      "how long an event's id is remembered, longer than any sender retries; unhandled events go then, too")      \
    X(RETAIN_HOOK_EVENTS, "retain.hook_events", INT, "1000000", 1, 1000000000, "events",                       \
      "handled events remembered at most, some 200 bytes each; the oldest go first")
/* clang-format on */

#endif
