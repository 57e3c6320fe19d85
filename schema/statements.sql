-- Every statement but the migrations. `-- read: name` runs on the read-only connections as well, `-- write: name`
-- on the writer only. Bound by name; never built from strings.

-- ---- store ----

-- read: meta_get
SELECT value FROM meta WHERE name = :name

-- write: meta_set
INSERT INTO meta(name, value) VALUES (:name, :value) ON CONFLICT(name) DO UPDATE SET value = excluded.value

-- write: backup
VACUUM INTO :path

-- ---- task ----

-- read: task_last_id
SELECT max(task_id) FROM task

-- read: event_last_seq
SELECT seq FROM sqlite_sequence WHERE name = 'task_event'

-- read: task_get
SELECT * FROM task_row WHERE task_id = :task_id

-- read: task_by_key
SELECT * FROM task_row WHERE user_id = :user_id AND idempotency_key = :idempotency_key

-- write: task_release_key
UPDATE task SET idempotency_key = idempotency_key || '~' || task_id WHERE task_id = :task_id

-- write: task_insert
INSERT INTO task(
    task_id, user_id, idempotency_key, idempotency_kind, request_hash, params_hash, prompt,
    negative_prompt, engine, model, width, height, frames, fps, steps, seed, seed_given, guidance_scale,
    flow_shift, options, status, version, priority, queue_name, rank, worker_id, attempt, epoch, created_at,
    updated_at, queued_at, queue_due_at, not_before, waits_for, started_at, finished_at, run_at, input_at,
    max_retries, queue_timeout_s, run_timeout_s, retry_count, requeue_count, crash_count, best_step, round,
    cancel_mode, error_code, error_msg, dismissed_at, video_file, video_bytes, video_sha256, video_width,
    video_height, video_frames, video_fps, callback_url, callback_secret, callback_events, callback_status,
    callback_retry, reused_from, label, metadata)
VALUES (
    :task_id, :user_id, :idempotency_key, :idempotency_kind, :request_hash, :params_hash, :prompt,
    :negative_prompt, :engine, :model, :width, :height, :frames, :fps, :steps, :seed, :seed_given,
    :guidance_scale, :flow_shift, :options, :status, :version, :priority, :queue_name, :rank, :worker_id,
    :attempt, :epoch, :created_at, :updated_at, :queued_at, :queue_due_at, :not_before, :waits_for,
    :started_at, :finished_at, :run_at, :input_at, :max_retries, :queue_timeout_s, :run_timeout_s,
    :retry_count, :requeue_count, :crash_count, :best_step, :round, :cancel_mode, :error_code, :error_msg,
    :dismissed_at, :video_file, :video_bytes, :video_sha256, :video_width, :video_height, :video_frames,
    :video_fps, :callback_url, :callback_secret, :callback_events, :callback_status, :callback_retry,
    :reused_from, :label, :metadata)

-- The one UPDATE that changes a task's state (task/move.c).
-- write: task_move
UPDATE task SET
    status = :status, version = :version, rank = :rank, worker_id = :worker_id, attempt = :attempt,
    epoch = :epoch, updated_at = :updated_at, queued_at = :queued_at, queue_due_at = :queue_due_at,
    not_before = :not_before, waits_for = :waits_for, started_at = :started_at, finished_at = :finished_at,
    retry_count = :retry_count, requeue_count = :requeue_count, crash_count = :crash_count,
    best_step = :best_step, round = :round, seed = :seed, cancel_mode = :cancel_mode,
    error_code = :error_code, error_msg = :error_msg, dismissed_at = :dismissed_at, video_file = :video_file,
    video_bytes = :video_bytes, video_sha256 = :video_sha256, video_width = :video_width,
    video_height = :video_height, video_frames = :video_frames, video_fps = :video_fps,
    callback_status = :callback_status, callback_retry = :callback_retry, reused_from = :reused_from
WHERE task_id = :task_id AND status = :from_status

-- write: event_insert
INSERT INTO task_event(task_id, user_id, timestamp, from_status, to_status, attempt, worker_id, reason)
VALUES (:task_id, :user_id, :timestamp, :from_status, :to_status, :attempt, :worker_id, :reason)

-- write: queue_ensure
INSERT INTO queue(queue_name, created_at) VALUES (:queue_name, :created_at) ON CONFLICT DO NOTHING

-- read: queue_state
SELECT state FROM queue WHERE queue_name = :queue_name

-- read: queue_count
SELECT count(*) FROM queue

-- Room for another name. What somebody paused or drains stays so, and the one that everybody uses stays.
-- write: queue_drop_unused
DELETE FROM queue WHERE queue_name = (SELECT q.queue_name FROM queue q WHERE q.state = 'RUNNING' AND q.queue_name <> 'default'
    AND NOT EXISTS (SELECT 1 FROM task t INDEXED BY task_queue WHERE t.queue_name = q.queue_name
        AND t.status IN ('CREATED', 'QUEUED', 'PROCESSING')) ORDER BY q.created_at LIMIT 1)

-- Bounded: past 10,000 waiting tasks a larger set-back changes nothing.
-- read: user_waiting
SELECT count(*) FROM (SELECT 1 FROM task WHERE user_id = :user_id AND status IN ('CREATED', 'QUEUED') LIMIT 10000)

-- read: user_pending
SELECT count(*) FROM (SELECT 1 FROM task WHERE user_id = :user_id AND status IN ('CREATED', 'QUEUED', 'PROCESSING')
    LIMIT :limit)

-- The head of each queue that runs, then the best of these heads: cost grows with the queues, not the tasks.
-- read: claim_head
SELECT t.task_id, t.crash_count
FROM queue q CROSS JOIN task t ON t.task_id =
    (SELECT h.task_id FROM task h INDEXED BY task_claim WHERE h.queue_name = q.queue_name AND h.status = 'QUEUED' AND h.not_before = 0
     ORDER BY h.rank, h.task_id LIMIT 1)
WHERE q.state <> 'PAUSED'
ORDER BY t.rank, t.task_id LIMIT 1

-- The head could not be claimed: the next ones have their turn, it has its own again at :until.
-- write: claim_defer
UPDATE task SET not_before = :until WHERE task_id = :task_id AND status = 'QUEUED'

-- read: running_count
SELECT count(*), coalesce(sum(crash_count > 0), 0) FROM task WHERE status = 'PROCESSING'

-- read: orphans
SELECT task_id FROM task INDEXED BY task_run WHERE status = 'PROCESSING' AND epoch <> :epoch AND task_id > :after ORDER BY task_id LIMIT 1

-- read: waiting_count
SELECT (SELECT count(*) FROM task WHERE status = 'CREATED') + (SELECT count(*) FROM task WHERE status = 'QUEUED')

-- read: due_input
SELECT task_id FROM task INDEXED BY task_input WHERE status = 'CREATED' AND input_at <= :now ORDER BY input_at LIMIT 1

-- The row could not be enqueued: the next ones have their turn, it has its own again at :until.
-- write: input_defer
UPDATE task SET input_at = :until WHERE task_id = :task_id AND status = 'CREATED'

-- read: next_input
SELECT min(input_at) FROM task INDEXED BY task_input WHERE status = 'CREATED'

-- A history never runs backwards: no change of a row that goes on may take it behind what it showed.
-- write: promote_due
UPDATE task SET not_before = 0, updated_at = max(updated_at, :now) WHERE task_id IN
    (SELECT task_id FROM task INDEXED BY task_wait WHERE status = 'QUEUED' AND not_before > 0 AND not_before <= :steady ORDER BY not_before LIMIT 256)

-- read: next_due
SELECT min(not_before) FROM task INDEXED BY task_wait WHERE status = 'QUEUED' AND not_before > 0

-- Of queues that are not paused: a pause must not expire what it holds back.
-- read: queue_expired
SELECT t.task_id, q.resumed_at + t.queue_timeout_s * 1000
FROM queue q CROSS JOIN task t INDEXED BY task_queue_due ON t.queue_name = q.queue_name AND t.status = 'QUEUED' AND t.queue_due_at > 0
    AND t.queue_due_at <= :now
WHERE q.state <> 'PAUSED' LIMIT 1

-- write: queue_defer
UPDATE task SET queue_due_at = :until WHERE task_id = :task_id AND status = 'QUEUED'

-- read: next_queue_due
SELECT min(due) FROM (SELECT (SELECT min(t.queue_due_at) FROM task t INDEXED BY task_queue_due WHERE t.queue_name = q.queue_name
    AND t.status = 'QUEUED' AND t.queue_due_at > 0) AS due FROM queue q WHERE q.state <> 'PAUSED')

-- read: queue_position
SELECT count(*), coalesce(sum(units), 0.0) FROM (SELECT 1.0 * width * height * frames * max(steps, 1) / 1e6 AS units FROM task INDEXED BY task_claim
    WHERE queue_name = :queue_name AND status = 'QUEUED' AND not_before = 0 AND (rank, task_id) < (:rank, :task_id)
    LIMIT :limit)

-- write: task_request_cancel
UPDATE task SET cancel_mode = :cancel_mode, updated_at = max(updated_at, :now) WHERE task_id = :task_id AND status = 'PROCESSING'

-- A soft-cancelled run's result is kept in the row that is already CANCELED.
-- read: kept_twin
SELECT * FROM task_row WHERE user_id = :user_id AND params_hash = :params_hash AND status = 'CANCELED'
    AND cancel_mode = 'soft' AND epoch > 0 ORDER BY video_file IS NOT NULL DESC, task_id DESC LIMIT 1

-- Its result has served: whoever asks the same once more, without a seed, wants another video.
-- write: twin_served
UPDATE task SET epoch = 0 WHERE task_id = :task_id AND status = 'CANCELED' AND seed_given = 0

-- read: twin_wanted
SELECT waits_for FROM task INDEXED BY task_twin WHERE waits_for > 0 AND status = 'QUEUED' LIMIT 1

-- read: twin_waiting
SELECT task_id FROM task INDEXED BY task_twin WHERE waits_for = :task_id AND waits_for > 0 AND status = 'QUEUED' ORDER BY task_id LIMIT 1

-- The twin ended without a result: its followers wait like everybody else.
-- write: twin_release
UPDATE task INDEXED BY task_twin SET waits_for = 0, not_before = 0, updated_at = max(updated_at, :now),
    queue_due_at = CASE queue_timeout_s WHEN 0 THEN 0 ELSE :steady + queue_timeout_s * 1000 END
WHERE waits_for = :task_id AND waits_for > 0 AND status = 'QUEUED'

-- write: task_keep_result
UPDATE task SET video_file = :video_file, video_bytes = :video_bytes, video_sha256 = :video_sha256,
    video_width = :video_width, video_height = :video_height, video_frames = :video_frames, video_fps = :video_fps,
    updated_at = max(updated_at, :now)
WHERE task_id = :task_id AND status = 'CANCELED' AND attempt = :attempt AND epoch = :epoch

-- write: task_callback_result
UPDATE task SET callback_status = :callback_status, callback_retry = :callback_retry
WHERE task_id = :task_id AND round = :round AND callback_status IS NOT NULL

-- write: outbox_insert
INSERT INTO outbox(task_id, round, endpoint_id, user_id, webhook_id, event_type, url, host, secret, body, status,
    max_tries, next_at, expires_at, created_at)
VALUES (:task_id, :round, 0, :user_id, :webhook_id, :event_type, :url, :host, :secret, :body, 'PENDING',
    :max_tries, :next_at, :expires_at, :now)

-- read: endpoints_of
SELECT 1 FROM endpoint WHERE user_id = :user_id AND state <> 'DISABLED' LIMIT 1

-- One duty per endpoint that wants this event; a parked one has it when it is enabled again.
-- write: outbox_insert_endpoints
INSERT INTO outbox(task_id, round, endpoint_id, user_id, webhook_id, event_type, url, host, secret, body, status,
    max_tries, next_at, expires_at, created_at, held)
SELECT :task_id, :round, endpoint_id, user_id, :webhook_id, :event_type, url, host, '', :body, 'PENDING',
    :max_tries, :next_at, :expires_at, :now, state = 'PARKED'
FROM endpoint WHERE user_id = :user_id AND state <> 'DISABLED'
    AND (events IS NULL OR instr(',' || events || ',', ',' || :event_type || ',') > 0)

-- Lists: per wanted status at most :limit rows from an index, then the best :limit of them: bounded whatever the
-- table holds. :statuses is a bit mask in the order of enum task_status.
-- read: task_list_desc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE status = w.status AND task_id < :after ORDER BY task_id DESC LIMIT :limit)
WHERE w.bit & :statuses ORDER BY r.task_id DESC LIMIT :limit

-- read: task_list_asc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE status = w.status AND task_id > :after ORDER BY task_id LIMIT :limit)
WHERE w.bit & :statuses ORDER BY r.task_id LIMIT :limit

-- read: task_list_user_desc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE user_id = :user_id AND status = w.status AND task_id < :after ORDER BY task_id DESC LIMIT :limit)
WHERE w.bit & :statuses ORDER BY r.task_id DESC LIMIT :limit

-- read: task_list_user_asc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE user_id = :user_id AND status = w.status AND task_id > :after ORDER BY task_id LIMIT :limit)
WHERE w.bit & :statuses ORDER BY r.task_id LIMIT :limit

-- read: history_asc
SELECT seq, task_id, timestamp, from_status, to_status, attempt, worker_id, reason
FROM task_event WHERE task_id = :task_id AND seq > :after ORDER BY seq LIMIT :limit

-- read: history_desc
SELECT seq, task_id, timestamp, from_status, to_status, attempt, worker_id, reason
FROM task_event WHERE task_id = :task_id AND seq < :after ORDER BY seq DESC LIMIT :limit

-- read: result_known
SELECT 1 FROM task WHERE task_id = :task_id AND video_file = :video_file

-- A task that may still run, and so go on from its checkpoint.
-- read: checkpoint_owner
SELECT 1 FROM task WHERE task_id = :task_id AND status IN ('CREATED', 'QUEUED', 'PROCESSING')

-- A checkpoint was saved further on than any before it: the crashes of earlier runs are no suspicion any more.
-- Changes no state, so it has no history row; only the run that holds the task may write it.
-- write: task_progressed
UPDATE task SET best_step = :best_step, crash_count = 0
WHERE task_id = :task_id AND status = 'PROCESSING' AND attempt = :attempt AND epoch = :epoch AND best_step < :best_step

-- ---- speed ----

-- read: speed_all
SELECT engine, model, device, ms_per_unit, runs FROM speed

-- write: speed_put
INSERT INTO speed(engine, model, device, ms_per_unit, runs) VALUES (:engine, :model, :device, :ms_per_unit, 1)
ON CONFLICT(engine, model, device) DO UPDATE SET ms_per_unit = excluded.ms_per_unit, runs = runs + 1

-- ---- queues ----

-- read: queue_list
SELECT q.queue_name, q.state, q.created_at,
    (SELECT count(*) FROM (SELECT 1 FROM task t INDEXED BY task_claim WHERE t.queue_name = q.queue_name AND t.status = 'QUEUED'
        AND t.not_before = 0 LIMIT 10001)),
    (SELECT t.queued_at FROM task t INDEXED BY task_claim WHERE t.queue_name = q.queue_name AND t.status = 'QUEUED' AND t.not_before = 0
        ORDER BY t.rank, t.task_id LIMIT 1)
FROM queue q ORDER BY q.queue_name

-- write: queue_set
UPDATE queue SET state = :state, resumed_at = CASE WHEN state = 'PAUSED' AND :state <> 'PAUSED' THEN :steady
    ELSE resumed_at END WHERE queue_name = :queue_name

-- ---- dead letters ----

-- read: dead_desc
SELECT * FROM task_row WHERE task_id IN (SELECT task_id FROM task INDEXED BY task_dead WHERE status IN ('FAILED', 'TIMEOUT')
    AND dismissed_at = 0 AND task_id < :after ORDER BY task_id DESC LIMIT :limit) ORDER BY task_id DESC

-- read: dead_asc
SELECT * FROM task_row WHERE task_id IN (SELECT task_id FROM task INDEXED BY task_dead WHERE status IN ('FAILED', 'TIMEOUT')
    AND dismissed_at = 0 AND task_id > :after ORDER BY task_id LIMIT :limit) ORDER BY task_id

-- read: dead_user_desc
SELECT * FROM task_row WHERE task_id IN (SELECT task_id FROM task INDEXED BY task_dead_user WHERE user_id = :user_id AND status IN ('FAILED', 'TIMEOUT')
    AND dismissed_at = 0 AND task_id < :after ORDER BY task_id DESC LIMIT :limit) ORDER BY task_id DESC

-- read: dead_user_asc
SELECT * FROM task_row WHERE task_id IN (SELECT task_id FROM task INDEXED BY task_dead_user WHERE user_id = :user_id AND status IN ('FAILED', 'TIMEOUT')
    AND dismissed_at = 0 AND task_id > :after ORDER BY task_id LIMIT :limit) ORDER BY task_id

-- write: dead_dismiss
UPDATE task SET dismissed_at = :now WHERE task_id = :task_id AND status IN ('FAILED', 'TIMEOUT') AND dismissed_at = 0

-- ---- repair ----

-- read: repair_scan
SELECT task_id, status, attempt, epoch, updated_at, input_at, not_before, waits_for FROM task
WHERE status IN ('CREATED', 'QUEUED', 'PROCESSING') AND status = :status AND task_id > :after ORDER BY task_id LIMIT :limit

-- read: status_counts
SELECT status, count(*) FROM task GROUP BY status

-- ---- retention ----

-- The oldest finished task after this one whose callback is settled (or was never due).
-- read: retain_oldest
SELECT t.task_id, t.user_id, t.finished_at, t.video_file, t.video_bytes FROM task t
WHERE t.finished_at > 0 AND (t.finished_at, t.task_id) > (:after_at, :after_id)
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.task_id = t.task_id AND o.status = 'PENDING')
    AND NOT EXISTS (SELECT 1 FROM task w WHERE w.waits_for = t.task_id AND w.waits_for > 0)
ORDER BY t.finished_at, t.task_id LIMIT 1

-- read: retain_totals
SELECT tasks, bytes FROM finished

-- read: retain_before
SELECT count(*), coalesce(sum(video_bytes), 0) FROM task
WHERE finished_at > 0 AND (finished_at, task_id) < (:finished_at, :task_id)

-- write: purge_outbox
DELETE FROM outbox WHERE task_id = :task_id

-- write: purge_task
DELETE FROM task WHERE task_id = :task_id AND finished_at > 0
    AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.task_id = :task_id AND o.status = 'PENDING')
    AND NOT EXISTS (SELECT 1 FROM task w WHERE w.waits_for = :task_id AND w.waits_for > 0)

-- write: purge_note
INSERT INTO purged(task_id, user_id, purged_at) VALUES (:task_id, :user_id, :now)

-- read: purged_oldest
SELECT task_id FROM purged WHERE purged_at < :before ORDER BY purged_at LIMIT 1

-- write: purge_events
DELETE FROM task_event WHERE task_id = :task_id

-- write: purge_forget
DELETE FROM purged WHERE task_id = :task_id

-- read: purged_user
SELECT user_id FROM purged WHERE task_id = :task_id

-- ---- following ----

-- read: events_pruned
SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'events_pruned'

-- Up to where the history has holes: the newest seq that retention removed.
-- write: events_pruned_set
INSERT INTO meta(name, value) SELECT 'events_pruned', CAST(max(seq) AS TEXT) FROM task_event WHERE task_id = :task_id
    HAVING max(seq) IS NOT NULL
ON CONFLICT(name) DO UPDATE SET value = CAST(max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER)) AS TEXT)

-- read: follow_task
SELECT seq, task_id, timestamp, from_status, to_status, attempt, worker_id, reason
FROM task_event WHERE task_id = :task_id AND seq > :after ORDER BY seq LIMIT :limit

-- read: follow_all
SELECT seq, task_id, timestamp, from_status, to_status, attempt, worker_id, reason
FROM task_event WHERE seq > :after ORDER BY seq LIMIT :limit

-- read: follow_user
SELECT seq, task_id, timestamp, from_status, to_status, attempt, worker_id, reason
FROM task_event WHERE user_id = :user_id AND seq > :after ORDER BY seq LIMIT :limit

-- ---- stats ----

-- read: depth
SELECT count(*) FROM (SELECT 1 FROM task INDEXED BY task_priority WHERE status = 'QUEUED' AND not_before = 0 AND priority = :priority LIMIT 100000)

-- read: oldest
SELECT min(queued_at) FROM task INDEXED BY task_priority WHERE status = 'QUEUED' AND not_before = 0 AND priority = :priority

-- How long tasks stayed in each state: the time from one history row to the next.
-- read: stats
WITH moves AS (
    SELECT e.task_id, e.to_status AS status, e.timestamp AS since,
        lead(e.timestamp) OVER (PARTITION BY e.task_id ORDER BY e.seq) AS until
    FROM (SELECT seq, task_id, to_status, timestamp FROM task_event
        WHERE seq > (SELECT coalesce(max(seq), 0) FROM task_event) - :events ORDER BY seq LIMIT :events) e),
spans AS (
    SELECT t.engine, m.since / 86400000 AS day, m.status, m.until - m.since AS ms
    FROM moves m JOIN task t ON t.task_id = m.task_id WHERE m.until IS NOT NULL),
ranked AS (
    SELECT engine, day, status, ms,
        row_number() OVER (PARTITION BY engine, day, status ORDER BY ms) AS n,
        count(*) OVER (PARTITION BY engine, day, status) AS total
    FROM spans)
SELECT engine, day * 86400000, status, total,
    min(ms) FILTER (WHERE n * 100 >= total * 50), min(ms) FILTER (WHERE n * 100 >= total * 90),
    min(ms) FILTER (WHERE n * 100 >= total * 99), max(ms)
FROM ranked GROUP BY engine, day, status ORDER BY day DESC, engine, status

-- ---- keys ----

-- write: user_ensure
INSERT INTO user(user_id, callback_secret, created_at) VALUES (:user_id, :callback_secret, :now) ON CONFLICT DO NOTHING

-- read: user_secret
SELECT callback_secret FROM user WHERE user_id = :user_id

-- write: key_insert
INSERT INTO api_key(user_id, hash, hint, role, label, created_at) VALUES (:user_id, :hash, :hint, :role, :label, :now)

-- read: key_by_hash
SELECT key_id, user_id, role, revoked_at FROM api_key WHERE hash = :hash

-- read: key_by_id
SELECT key_id, user_id, role, revoked_at FROM api_key WHERE key_id = :key_id

-- read: key_owner
SELECT key_id FROM api_key WHERE role = 'owner' AND revoked_at = 0 LIMIT 1

-- read: key_list
SELECT key_id, user_id, role, label, hint, created_at, revoked_at FROM api_key ORDER BY key_id

-- write: key_revoke
UPDATE api_key SET revoked_at = :now WHERE key_id = :key_id AND revoked_at = 0

-- ---- outbox ----

-- A walk over the hosts that wait for anything, one seek each (index outbox_host), and per host its first due rows:
-- the cost grows with the hosts, not with the depth of a backlog.
-- read: outbox_next_host
SELECT host FROM outbox INDEXED BY outbox_host WHERE status = 'PENDING' AND held = 0 AND host > :after ORDER BY host LIMIT 1

-- read: outbox_host_due
SELECT outbox_id FROM outbox INDEXED BY outbox_host WHERE status = 'PENDING' AND held = 0 AND host = :host AND next_at <= :now
ORDER BY next_at, outbox_id LIMIT :limit

-- An endpoint's secret is read when the duty is sent, so that a rotation applies to what is queued.
-- read: outbox_load
SELECT o.task_id, o.round, o.webhook_id, o.url, o.host, coalesce(e.secret, o.secret), o.body, o.tries, o.max_tries,
    o.endpoint_id, CASE WHEN e.old_secret_until > :wall THEN e.old_secret END, o.expires_at
FROM outbox o LEFT JOIN endpoint e ON e.endpoint_id = o.endpoint_id
WHERE o.outbox_id = :outbox_id AND o.status = 'PENDING' AND o.held = 0

-- read: outbox_timer
SELECT min(next_at) FROM outbox INDEXED BY outbox_due WHERE status = 'PENDING' AND held = 0 AND next_at > :now

-- read: outbox_pending
SELECT count(*) FROM (SELECT 1 FROM outbox WHERE status = 'PENDING' LIMIT :limit)

-- read: outbox_expired
SELECT outbox_id, task_id, round, endpoint_id, tries FROM outbox INDEXED BY outbox_expiry WHERE status = 'PENDING' AND expires_at <= :now
ORDER BY expires_at LIMIT :limit

-- write: outbox_record
UPDATE outbox SET status = :status, tries = tries + :spent, next_at = :next_at,
    finished_at = :finished_at, last_error = :last_error
WHERE outbox_id = :outbox_id AND status = 'PENDING'

-- write: delivery_insert
INSERT INTO delivery(outbox_id, n, timestamp, duration_ms, http_status, error, ip, response)
VALUES (:outbox_id, (SELECT coalesce(max(n), 0) + 1 FROM delivery WHERE outbox_id = :outbox_id), :timestamp,
    :duration_ms, :http_status, :error, :ip, :response)

-- write: endpoint_count
UPDATE endpoint SET succeeded = succeeded + (:status = 'SUCCEEDED'), failed = failed + (:status = 'FAILED'),
    last_success_at = CASE :status WHEN 'SUCCEEDED' THEN :now ELSE last_success_at END,
    last_error = coalesce(:error, last_error)
WHERE endpoint_id = :endpoint_id

-- It answered 410.
-- write: endpoint_park
UPDATE endpoint SET state = 'PARKED', updated_at = :now WHERE endpoint_id = :endpoint_id AND state = 'ENABLED'

-- write: outbox_hold
UPDATE outbox SET held = 1 WHERE endpoint_id = :endpoint_id AND endpoint_id > 0 AND status = 'PENDING' AND task_id > 0

-- write: outbox_release
UPDATE outbox SET held = 0, next_at = :steady
WHERE endpoint_id = :endpoint_id AND endpoint_id > 0 AND status = 'PENDING' AND held = 1

-- ---- endpoints ----

-- read: endpoint_count_user
SELECT count(*) FROM endpoint WHERE user_id = :user_id

-- write: endpoint_insert
INSERT INTO endpoint(user_id, url, host, secret, events, description, created_at, updated_at)
VALUES (:user_id, :url, :host, :secret, :events, :description, :now, :now)

-- read: endpoint_get
SELECT e.endpoint_id, e.user_id, e.url, e.host, e.events, e.state, e.description, e.created_at, e.updated_at, e.succeeded, e.failed,
    e.last_success_at, e.last_error, e.secret, CASE WHEN e.old_secret IS NOT NULL THEN e.old_secret_until ELSE 0 END,
    (SELECT count(*) FROM (SELECT 1 FROM outbox o WHERE o.endpoint_id = e.endpoint_id AND o.endpoint_id > 0
        AND o.status = 'PENDING' LIMIT 10000))
FROM endpoint e WHERE e.endpoint_id = :endpoint_id AND (:user_id IS NULL OR e.user_id = :user_id)

-- read: endpoint_list_asc
SELECT endpoint_id FROM endpoint WHERE (:user_id IS NULL OR user_id = :user_id) AND endpoint_id > :after
ORDER BY endpoint_id LIMIT :limit

-- read: endpoint_list_desc
SELECT endpoint_id FROM endpoint WHERE (:user_id IS NULL OR user_id = :user_id) AND endpoint_id < :after
ORDER BY endpoint_id DESC LIMIT :limit

-- write: endpoint_update
UPDATE endpoint SET url = :url, host = :host, events = :events, description = :description, updated_at = :now
WHERE endpoint_id = :endpoint_id

-- What is queued follows the endpoint to its new address.
-- write: outbox_follow
UPDATE outbox SET url = :url, host = :host
WHERE endpoint_id = :endpoint_id AND endpoint_id > 0 AND status = 'PENDING'

-- write: endpoint_state
UPDATE endpoint SET state = :state, updated_at = :now WHERE endpoint_id = :endpoint_id

-- write: endpoint_rotate
UPDATE endpoint SET old_secret = secret, old_secret_until = :until, secret = :secret, updated_at = :now
WHERE endpoint_id = :endpoint_id

-- write: endpoint_delete
DELETE FROM endpoint WHERE endpoint_id = :endpoint_id

-- write: outbox_abandon
UPDATE outbox SET status = 'FAILED', held = 0, finished_at = :now, last_error = 'endpoint deleted'
WHERE endpoint_id = :endpoint_id AND endpoint_id > 0 AND status = 'PENDING'

-- write: outbox_insert_test
INSERT INTO outbox(task_id, round, endpoint_id, user_id, webhook_id, event_type, url, host, secret, body, status,
    max_tries, next_at, expires_at, created_at)
SELECT 0, 1, endpoint_id, user_id, :webhook_id, 'endpoint.test', url, host, '', :body, 'PENDING',
    1, :next_at, :expires_at, :now
FROM endpoint WHERE endpoint_id = :endpoint_id

-- Test events have no task whose retention would remove them: the newest few are kept.
-- write: outbox_trim_tests
DELETE FROM outbox WHERE task_id = 0 AND outbox_id IN (SELECT outbox_id FROM outbox
    WHERE endpoint_id = :endpoint_id AND endpoint_id > 0 AND task_id = 0
    ORDER BY outbox_id DESC LIMIT -1 OFFSET :keep)

-- ---- deliveries ----

-- One order of columns for the duty lists (outbox/deliveries.c).
-- read: delivery_list_desc
WITH wanted(status, bit) AS (VALUES ('PENDING', 1), ('SUCCEEDED', 2), ('FAILED', 4))
SELECT o.outbox_id, o.webhook_id, o.endpoint_id, o.task_id, o.event_type, o.host, o.status, o.held, o.tries, o.max_tries,
    o.next_at, o.created_at, o.finished_at, o.last_error
FROM wanted w CROSS JOIN outbox o ON o.outbox_id IN
    (SELECT outbox_id FROM outbox WHERE status = w.status AND outbox_id < :after
        AND (:user_id IS NULL OR user_id = :user_id) AND (:endpoint_id < 0 OR endpoint_id = :endpoint_id)
     ORDER BY outbox_id DESC LIMIT :limit)
WHERE w.bit & :statuses ORDER BY o.outbox_id DESC LIMIT :limit

-- read: delivery_list_asc
WITH wanted(status, bit) AS (VALUES ('PENDING', 1), ('SUCCEEDED', 2), ('FAILED', 4))
SELECT o.outbox_id, o.webhook_id, o.endpoint_id, o.task_id, o.event_type, o.host, o.status, o.held, o.tries, o.max_tries,
    o.next_at, o.created_at, o.finished_at, o.last_error
FROM wanted w CROSS JOIN outbox o ON o.outbox_id IN
    (SELECT outbox_id FROM outbox WHERE status = w.status AND outbox_id > :after
        AND (:user_id IS NULL OR user_id = :user_id) AND (:endpoint_id < 0 OR endpoint_id = :endpoint_id)
     ORDER BY outbox_id LIMIT :limit)
WHERE w.bit & :statuses ORDER BY o.outbox_id LIMIT :limit

-- read: delivery_get
SELECT o.outbox_id, o.webhook_id, o.endpoint_id, o.task_id, o.event_type, o.host, o.status, o.held, o.tries, o.max_tries,
    o.next_at, o.created_at, o.finished_at, o.last_error, o.round
FROM outbox o WHERE o.outbox_id = :outbox_id AND (:user_id IS NULL OR o.user_id = :user_id)

-- read: attempts_asc
SELECT o.outbox_id, o.webhook_id, o.endpoint_id, o.host, o.status, d.n, d.timestamp, d.http_status, d.error, d.duration_ms,
    d.ip, d.response
FROM outbox o JOIN delivery d ON d.outbox_id = o.outbox_id
WHERE o.task_id = :task_id AND o.outbox_id >= :outbox_id AND (o.outbox_id > :outbox_id OR d.n > :n)
ORDER BY o.outbox_id, d.n LIMIT :limit

-- read: attempts_desc
SELECT o.outbox_id, o.webhook_id, o.endpoint_id, o.host, o.status, d.n, d.timestamp, d.http_status, d.error, d.duration_ms,
    d.ip, d.response
FROM outbox o JOIN delivery d ON d.outbox_id = o.outbox_id
WHERE o.task_id = :task_id AND o.outbox_id <= :outbox_id AND (o.outbox_id < :outbox_id OR d.n < :n)
ORDER BY o.outbox_id DESC, d.n DESC LIMIT :limit

-- The next FAILED duties, whosever they are, and whether each is one of those that are to be sent again: a page costs
-- the same however few of them are. Of itself only what belongs to a task and whose receiver is still known is sent.
-- read: resend_page
SELECT o.outbox_id, o.task_id > 0 AND (:user_id IS NULL OR o.user_id = :user_id)
    AND (:endpoint_id < 0 OR o.endpoint_id = :endpoint_id) AND o.created_at >= :from AND o.created_at < :to
    AND (o.endpoint_id = 0 OR EXISTS (SELECT 1 FROM endpoint e WHERE e.endpoint_id = o.endpoint_id))
FROM outbox o INDEXED BY outbox_list WHERE o.status = 'FAILED' AND o.outbox_id > :after ORDER BY o.outbox_id LIMIT :limit

-- A new budget, the same webhook_id and body; an endpoint's duty goes to its present address.
-- write: outbox_resend
UPDATE outbox SET status = 'PENDING', tries = 0, next_at = :steady, expires_at = :expires_at, finished_at = 0,
    held = coalesce((SELECT e.state <> 'ENABLED' AND outbox.task_id > 0 FROM endpoint e WHERE e.endpoint_id = outbox.endpoint_id), 0),
    url = coalesce((SELECT e.url FROM endpoint e WHERE e.endpoint_id = outbox.endpoint_id), url),
    host = coalesce((SELECT e.host FROM endpoint e WHERE e.endpoint_id = outbox.endpoint_id), host)
WHERE outbox_id = :outbox_id AND status IN ('FAILED', :also)

-- write: outbox_due_now
UPDATE outbox SET next_at = :steady WHERE outbox_id = :outbox_id AND status = 'PENDING'
