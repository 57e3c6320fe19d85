-- reeld's database. Times are integer milliseconds UTC; 0 or NULL = not yet. One row of `task` is both
-- the task and its place in the queue.

CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE user (
    user_id         TEXT PRIMARY KEY,
    callback_secret TEXT NOT NULL,          -- whsec_…: signs callbacks of tasks that bring no secret
    created_at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_key (
    key_id     INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id    TEXT NOT NULL REFERENCES user(user_id),
    hash       BLOB NOT NULL UNIQUE,        -- BLAKE2b-256 of the key; the key itself is never stored
    hint       TEXT NOT NULL,               -- its first characters, to tell keys apart in lists
    role       TEXT NOT NULL CHECK (role IN ('owner', 'app')),
    label      TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE queue (
    queue_name TEXT PRIMARY KEY,
    state      TEXT NOT NULL DEFAULT 'RUNNING' CHECK (state IN ('RUNNING', 'PAUSED', 'DRAINING')),
    resumed_at INTEGER NOT NULL DEFAULT 0,  -- steady clock: waiting tasks' time-outs count anew from here
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE task (
    task_id         INTEGER PRIMARY KEY,    -- snowflake: 41 bits ms, 10 node, 12 sequence
    user_id         TEXT NOT NULL,
    idempotency_key TEXT,
    idempotency_kind TEXT CHECK (idempotency_kind IN ('client', 'derived')),
    request_hash    TEXT NOT NULL,          -- of the whole body: the same idempotency key must bring the same
    params_hash     TEXT NOT NULL,          -- of what decides the video: prompt and parameters (seed only if named)
    prompt          TEXT NOT NULL CHECK (instr(prompt, char(0)) = 0),
    negative_prompt TEXT NOT NULL,
    engine          TEXT NOT NULL,
    model           TEXT NOT NULL,
    width           INTEGER NOT NULL,
    height          INTEGER NOT NULL,
    frames          INTEGER NOT NULL,
    fps             INTEGER NOT NULL,
    steps           INTEGER NOT NULL,
    seed            INTEGER NOT NULL,
    seed_given      INTEGER NOT NULL,       -- 1 = the client named it
    guidance_scale  REAL NOT NULL,
    flow_shift      REAL NOT NULL,
    options         TEXT NOT NULL,          -- canonical JSON object
    status          TEXT NOT NULL CHECK (status IN ('CREATED', 'QUEUED', 'PROCESSING', 'SUCCEEDED', 'FAILED', 'TIMEOUT', 'CANCELED')),
    version         INTEGER NOT NULL,       -- seq of the newest history row
    priority        INTEGER NOT NULL CHECK (priority IN (1, 5, 10)),
    queue_name      TEXT NOT NULL,          -- has a row of queue while the task is unfinished
    rank            INTEGER NOT NULL,       -- queued_at - priority * step + fair_step * waiting
    worker_id       TEXT,
    attempt         INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,       -- of the run; 0 = no run
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    queued_at       INTEGER NOT NULL,       -- first enqueue of the round
    queue_due_at    INTEGER NOT NULL,       -- steady clock: when the queue time-out strikes; 0 = never
    not_before      INTEGER NOT NULL,       -- steady clock: 0 = claimable; else due then (delayed start, retry)
    waits_for       INTEGER NOT NULL,       -- a soft-cancelled twin still runs: its result is wanted
    started_at      INTEGER NOT NULL,
    finished_at     INTEGER NOT NULL,
    run_at          INTEGER NOT NULL,       -- asked-for start
    input_at        INTEGER NOT NULL,       -- steady clock: CREATED until then, inputs are being fetched
    max_retries     INTEGER NOT NULL,
    queue_timeout_s INTEGER NOT NULL,       -- 0 = none
    run_timeout_s   INTEGER NOT NULL,       -- 0 = none, -1 = derived from the work
    retry_count     INTEGER NOT NULL,
    requeue_count   INTEGER NOT NULL,
    crash_count     INTEGER NOT NULL,
    best_step       INTEGER NOT NULL,       -- furthest durable step of any run
    round           INTEGER NOT NULL,
    cancel_mode     TEXT CHECK (cancel_mode IN ('soft', 'hard')),
    error_code      TEXT,
    error_msg       TEXT,
    dismissed_at    INTEGER NOT NULL,       -- discarded from the dead letters
    video_file      TEXT,                   -- name inside results/
    video_bytes     INTEGER NOT NULL,
    video_sha256    TEXT,
    video_width     INTEGER NOT NULL,
    video_height    INTEGER NOT NULL,
    video_frames    INTEGER NOT NULL,
    video_fps       INTEGER NOT NULL,
    callback_url    TEXT,
    callback_secret TEXT,
    callback_events TEXT,                   -- comma separated; NULL = all terminal ones
    callback_status TEXT CHECK (callback_status IN ('PENDING', 'SUCCEEDED', 'FAILED')),
    callback_retry  INTEGER NOT NULL,
    reused_from     INTEGER NOT NULL,
    label           TEXT,
    metadata        TEXT,                   -- JSON object as canonical text
    CHECK ((status = 'PROCESSING') <= (epoch > 0)),
    CHECK ((status IN ('SUCCEEDED', 'FAILED', 'TIMEOUT', 'CANCELED')) = (finished_at > 0)),
    CHECK ((status = 'SUCCEEDED') <= (video_file IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX task_idempotency ON task(user_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX task_claim ON task(queue_name, rank, task_id) WHERE status = 'QUEUED' AND not_before = 0;
CREATE INDEX task_queue ON task(queue_name) WHERE status IN ('CREATED', 'QUEUED', 'PROCESSING');
CREATE INDEX task_priority ON task(priority, queued_at) WHERE status = 'QUEUED' AND not_before = 0;
CREATE INDEX task_wait ON task(not_before) WHERE status = 'QUEUED' AND not_before > 0;
CREATE INDEX task_input ON task(input_at) WHERE status = 'CREATED';
CREATE INDEX task_run ON task(task_id) WHERE status = 'PROCESSING';
CREATE INDEX task_queue_due ON task(queue_name, queue_due_at) WHERE status = 'QUEUED' AND queue_due_at > 0;
CREATE INDEX task_twin ON task(waits_for) WHERE waits_for > 0;
CREATE INDEX task_kept ON task(user_id, params_hash) WHERE status = 'CANCELED' AND cancel_mode = 'soft';
CREATE INDEX task_dead ON task(task_id) WHERE status IN ('FAILED', 'TIMEOUT') AND dismissed_at = 0;
CREATE INDEX task_dead_user ON task(user_id, task_id) WHERE status IN ('FAILED', 'TIMEOUT') AND dismissed_at = 0;
CREATE INDEX task_done ON task(finished_at, task_id) WHERE finished_at > 0;
CREATE INDEX task_status ON task(status, task_id);
CREATE INDEX task_user ON task(user_id, status, task_id);

-- One order of columns for every SELECT of a whole task: task/columns.h repeats it.
CREATE VIEW task_row AS
SELECT task_id, user_id, idempotency_key, idempotency_kind, request_hash, params_hash, prompt, negative_prompt, engine, model,
       width, height, frames, fps, steps, seed, seed_given, guidance_scale, flow_shift, options,
       status, version, priority, queue_name, rank, worker_id, attempt, epoch,
       created_at, updated_at, queued_at, queue_due_at, not_before, waits_for, started_at, finished_at, run_at, input_at,
       max_retries, queue_timeout_s, run_timeout_s, retry_count, requeue_count, crash_count, best_step, round,
       cancel_mode, error_code, error_msg, dismissed_at,
       video_file, video_bytes, video_sha256, video_width, video_height, video_frames, video_fps,
       callback_url, callback_secret, callback_events, callback_status, callback_retry, reused_from, label, metadata
FROM task;

-- The transition table of task/state.c, once more: no statement can go round it.
CREATE TRIGGER task_transition BEFORE UPDATE OF status ON task
WHEN NOT (
       (OLD.status = 'CREATED'    AND NEW.status IN ('QUEUED', 'FAILED', 'CANCELED'))
    OR (OLD.status = 'QUEUED'     AND NEW.status IN ('QUEUED', 'PROCESSING', 'FAILED', 'TIMEOUT', 'CANCELED'))
    OR (OLD.status = 'PROCESSING' AND NEW.status IN ('QUEUED', 'SUCCEEDED', 'FAILED', 'TIMEOUT', 'CANCELED'))
    OR (OLD.status IN ('FAILED', 'TIMEOUT') AND NEW.status = 'QUEUED'))
BEGIN
    SELECT RAISE(ABORT, 'illegal transition');
END;

CREATE TRIGGER task_birth BEFORE INSERT ON task WHEN NEW.status <> 'CREATED'
BEGIN
    SELECT RAISE(ABORT, 'a task starts CREATED');
END;

-- What retention compares with its limits, kept with every change: counting would walk all that is kept.
CREATE TABLE finished (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    tasks INTEGER NOT NULL,
    bytes INTEGER NOT NULL                  -- of their videos
) STRICT;
INSERT INTO finished(one, tasks, bytes) VALUES (1, 0, 0);

CREATE TRIGGER task_finished AFTER UPDATE OF finished_at, video_bytes ON task
WHEN (OLD.finished_at > 0) <> (NEW.finished_at > 0) OR (NEW.finished_at > 0 AND NEW.video_bytes <> OLD.video_bytes)
BEGIN
    UPDATE finished SET tasks = tasks + (NEW.finished_at > 0) - (OLD.finished_at > 0),
        bytes = bytes + NEW.video_bytes * (NEW.finished_at > 0) - OLD.video_bytes * (OLD.finished_at > 0);
END;

CREATE TRIGGER task_removed AFTER DELETE ON task WHEN OLD.finished_at > 0
BEGIN
    UPDATE finished SET tasks = tasks - 1, bytes = bytes - OLD.video_bytes;
END;

CREATE TABLE task_event (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id     INTEGER NOT NULL,
    user_id     TEXT NOT NULL,
    timestamp   INTEGER NOT NULL,
    from_status TEXT,
    to_status   TEXT NOT NULL,
    attempt     INTEGER NOT NULL,
    worker_id   TEXT,
    reason      TEXT
) STRICT;
CREATE INDEX task_event_task ON task_event(task_id, seq);
CREATE INDEX task_event_user ON task_event(user_id, seq);

-- Tasks that retention removed: they answer TASK_EXPIRED as long as their history is kept.
CREATE TABLE purged (
    task_id   INTEGER PRIMARY KEY,
    user_id   TEXT NOT NULL,
    purged_at INTEGER NOT NULL
) STRICT;
CREATE INDEX purged_age ON purged(purged_at);

-- Named consumer groups over task_event. What is up to `cursor` is acknowledged or does not concern the feed; what is
-- up to `head` was handed out.
CREATE TABLE feed (
    feed_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id    TEXT NOT NULL,
    everybody  INTEGER NOT NULL,        -- 1 = an owner's key made it: the events of all users
    name       TEXT NOT NULL,
    statuses   TEXT,                    -- comma separated to_status; NULL = all
    cursor     INTEGER NOT NULL,
    head       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (user_id, everybody, name),
    CHECK (cursor <= head)
) STRICT;

-- Ranges of a feed that are out, and the last acknowledged ones, so that an acknowledgement can be repeated.
CREATE TABLE feed_lease (
    lease_id   INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again: a cancelled lease stays lost
    feed_id    INTEGER NOT NULL REFERENCES feed(feed_id) ON DELETE CASCADE,
    from_seq   INTEGER NOT NULL,
    to_seq     INTEGER NOT NULL,
    acked      INTEGER NOT NULL DEFAULT 0,
    partial    INTEGER NOT NULL DEFAULT 0, -- acked less than was handed out: to_seq moved
    deliveries INTEGER NOT NULL,        -- how often it was handed out: the lease is <lease_id>.<deliveries>
    until      INTEGER NOT NULL,        -- steady clock: then the next reader gets it
    CHECK (from_seq <= to_seq)
) STRICT;
CREATE INDEX feed_lease_open ON feed_lease(feed_id, from_seq) WHERE acked = 0;
CREATE INDEX feed_lease_feed ON feed_lease(feed_id, to_seq);

-- Measured speed, for time-outs and ETAs: ms per million units of work (pixel x frame x step).
CREATE TABLE speed (
    engine      TEXT NOT NULL,
    model       TEXT NOT NULL,
    device      TEXT NOT NULL,
    ms_per_unit REAL NOT NULL,
    runs        INTEGER NOT NULL,
    PRIMARY KEY (engine, model, device)
) STRICT, WITHOUT ROWID;

-- Registered receivers: every task of their user that ends in a wanted way is delivered to them.
CREATE TABLE endpoint (
    endpoint_id      INTEGER PRIMARY KEY AUTOINCREMENT,
    user_id          TEXT NOT NULL,
    url              TEXT NOT NULL,
    host             TEXT NOT NULL,          -- scheme://host:port
    secret           TEXT NOT NULL,
    old_secret       TEXT,                   -- signs beside the new one for a while
    old_secret_until INTEGER NOT NULL DEFAULT 0, -- wall clock
    events           TEXT,                   -- comma separated; NULL = all
    state            TEXT NOT NULL DEFAULT 'ENABLED' CHECK (state IN ('ENABLED', 'DISABLED', 'PARKED')),
    description      TEXT,
    succeeded        INTEGER NOT NULL DEFAULT 0, -- deliveries that ended so
    failed           INTEGER NOT NULL DEFAULT 0,
    last_success_at  INTEGER NOT NULL DEFAULT 0,
    last_error       TEXT,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX endpoint_user ON endpoint(user_id, endpoint_id);

-- Callback duties: written in the transaction of the terminal state, body frozen. One row per receiver:
-- endpoint_id 0 is the task's own callback_url, and only that one drives callback_status.
CREATE TABLE outbox (
    outbox_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id     INTEGER NOT NULL,           -- 0 = a test event of an endpoint
    round       INTEGER NOT NULL,
    endpoint_id INTEGER NOT NULL,
    user_id     TEXT NOT NULL,
    webhook_id  TEXT NOT NULL,              -- evt_<task_id>_<round>, the same for every delivery
    event_type  TEXT NOT NULL,
    url         TEXT NOT NULL,
    host        TEXT NOT NULL,              -- scheme://host:port: what fairness counts by
    secret      TEXT NOT NULL,              -- '' = the endpoint's, as it is when the duty is sent
    body        BLOB NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('PENDING', 'SUCCEEDED', 'FAILED')),
    held        INTEGER NOT NULL DEFAULT 0, -- 1 = its endpoint is not ENABLED: waits, spends no tries
    tries       INTEGER NOT NULL DEFAULT 0, -- of the present budget; a resend starts a new one
    max_tries   INTEGER NOT NULL,
    next_at     INTEGER NOT NULL,           -- steady clock
    expires_at  INTEGER NOT NULL,           -- steady clock: dead then, whatever it waits for
    created_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL DEFAULT 0,
    last_error  TEXT
) STRICT;
CREATE UNIQUE INDEX outbox_duty ON outbox(task_id, round, endpoint_id, url) WHERE task_id > 0;
CREATE INDEX outbox_due ON outbox(next_at, outbox_id) WHERE status = 'PENDING' AND held = 0;
CREATE INDEX outbox_host ON outbox(host, next_at, outbox_id) WHERE status = 'PENDING' AND held = 0;
CREATE INDEX outbox_expiry ON outbox(expires_at) WHERE status = 'PENDING';
CREATE INDEX outbox_list ON outbox(status, outbox_id, user_id, endpoint_id);
CREATE INDEX outbox_endpoint ON outbox(endpoint_id, status, outbox_id) WHERE endpoint_id > 0;
CREATE INDEX outbox_task ON outbox(task_id, outbox_id);

CREATE TABLE delivery (
    outbox_id   INTEGER NOT NULL REFERENCES outbox(outbox_id) ON DELETE CASCADE,
    n           INTEGER NOT NULL,
    timestamp   INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    http_status INTEGER NOT NULL,           -- 0 = no answer
    error       TEXT,
    ip          TEXT,
    response    BLOB,
    PRIMARY KEY (outbox_id, n)
) STRICT, WITHOUT ROWID;

-- Inbound: outside services that may post signed events.
CREATE TABLE hook (
    hook_id          INTEGER PRIMARY KEY AUTOINCREMENT,
    source           TEXT NOT NULL UNIQUE,   -- its name, in the path
    secret           TEXT NOT NULL,
    old_secret       TEXT,                   -- verifies beside the new one for a while
    old_secret_until INTEGER NOT NULL DEFAULT 0, -- wall clock
    allow            TEXT NOT NULL,          -- addresses and CIDR ranges, comma separated; '' = any
    per_minute       INTEGER NOT NULL,       -- deliveries from one address; 0 = no limit, -1 = hook.per_minute
    enabled          INTEGER NOT NULL DEFAULT 1,
    received         INTEGER NOT NULL DEFAULT 0, -- events, repeats not counted
    last_event_at    INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
) STRICT;

-- Their events: what was answered 2xx is here, once, and waits for its consumer. A handled row stays to know a
-- repeat by; its body goes.
CREATE TABLE processed_event (
    event_seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    hook_id        INTEGER NOT NULL,
    event_id       TEXT NOT NULL,            -- webhook-id
    received_at    INTEGER NOT NULL,
    event_type     TEXT,
    correlation_id TEXT,                     -- the thing it is about, in the sender's words
    body_hash      BLOB NOT NULL,            -- BLAKE2b-256
    body           BLOB NOT NULL,
    handled_at     INTEGER NOT NULL DEFAULT 0,
    UNIQUE (hook_id, event_id)
) STRICT;
CREATE INDEX processed_event_list ON processed_event(hook_id, event_seq);
CREATE INDEX processed_event_waiting ON processed_event(hook_id, event_seq) WHERE handled_at = 0;
CREATE INDEX processed_event_about ON processed_event(hook_id, correlation_id, event_seq) WHERE handled_at = 0;
CREATE INDEX processed_event_age ON processed_event(received_at);
CREATE INDEX processed_event_unhandled ON processed_event(received_at) WHERE handled_at = 0;
