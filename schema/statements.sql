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
    (SELECT h.task_id FROM task h WHERE h.queue_name = q.queue_name AND h.status = 'QUEUED' AND h.not_before = 0
     ORDER BY h.rank, h.task_id LIMIT 1)
WHERE q.state <> 'PAUSED'
ORDER BY t.rank, t.task_id LIMIT 1

-- read: running_count
SELECT count(*), coalesce(sum(crash_count > 0), 0) FROM task WHERE status = 'PROCESSING'

-- read: orphans
SELECT task_id FROM task WHERE status = 'PROCESSING' AND epoch <> :epoch ORDER BY task_id LIMIT 1

-- read: waiting_count
SELECT (SELECT count(*) FROM task WHERE status = 'CREATED') + (SELECT count(*) FROM task WHERE status = 'QUEUED')

-- read: due_input
SELECT task_id FROM task WHERE status = 'CREATED' AND input_at <= :now ORDER BY input_at LIMIT 1

-- read: next_input
SELECT min(input_at) FROM task WHERE status = 'CREATED'

-- write: promote_due
UPDATE task SET not_before = 0, updated_at = :now WHERE task_id IN
    (SELECT task_id FROM task WHERE status = 'QUEUED' AND not_before > 0 AND not_before <= :now ORDER BY not_before LIMIT 256)

-- read: next_due
SELECT min(not_before) FROM task WHERE status = 'QUEUED' AND not_before > 0

-- Of queues that are not paused: a pause must not expire what it holds back.
-- read: queue_expired
SELECT t.task_id, q.resumed_at + t.queue_timeout_s * 1000
FROM queue q CROSS JOIN task t ON t.queue_name = q.queue_name AND t.status = 'QUEUED' AND t.queue_due_at > 0
    AND t.queue_due_at <= :now
WHERE q.state <> 'PAUSED' LIMIT 1

-- write: queue_defer
UPDATE task SET queue_due_at = :queue_due_at WHERE task_id = :task_id AND status = 'QUEUED'

-- read: next_queue_due
SELECT min(due) FROM (SELECT (SELECT min(t.queue_due_at) FROM task t WHERE t.queue_name = q.queue_name
    AND t.status = 'QUEUED' AND t.queue_due_at > 0) AS due FROM queue q WHERE q.state <> 'PAUSED')

-- read: queue_position
SELECT count(*), coalesce(sum(units), 0.0) FROM (SELECT 1.0 * width * height * frames * max(steps, 1) / 1e6 AS units FROM task
    WHERE queue_name = :queue_name AND status = 'QUEUED' AND not_before = 0 AND (rank, task_id) < (:rank, :task_id)
    LIMIT :limit)

-- write: task_request_cancel
UPDATE task SET cancel_mode = :cancel_mode, updated_at = :now WHERE task_id = :task_id AND status = 'PROCESSING'

-- A soft-cancelled run's result is kept in the row that is already CANCELED.
-- read: kept_twin
SELECT * FROM task_row WHERE user_id = :user_id AND params_hash = :params_hash AND status = 'CANCELED'
    AND cancel_mode = 'soft' ORDER BY video_file IS NOT NULL DESC, task_id DESC LIMIT 1

-- read: twin_wanted
SELECT waits_for FROM task WHERE waits_for > 0 AND status = 'QUEUED' LIMIT 1

-- read: twin_waiting
SELECT task_id FROM task WHERE waits_for = :task_id AND waits_for > 0 AND status = 'QUEUED' ORDER BY task_id LIMIT 1

-- The twin ended without a result: its followers wait like everybody else.
-- write: twin_release
UPDATE task SET waits_for = 0, not_before = 0, updated_at = :now,
    queue_due_at = CASE queue_timeout_s WHEN 0 THEN 0 ELSE :steady + queue_timeout_s * 1000 END
WHERE waits_for = :task_id AND waits_for > 0 AND status = 'QUEUED'

-- write: task_keep_result
UPDATE task SET video_file = :video_file, video_bytes = :video_bytes, video_sha256 = :video_sha256,
    video_width = :video_width, video_height = :video_height, video_frames = :video_frames, video_fps = :video_fps,
    updated_at = :now
WHERE task_id = :task_id AND status = 'CANCELED' AND attempt = :attempt AND epoch = :epoch

-- write: task_callback_result
UPDATE task SET callback_status = :callback_status, callback_retry = :callback_retry
WHERE task_id = :task_id AND round = :round AND callback_status IS NOT NULL

-- write: outbox_insert
INSERT INTO outbox(task_id, round, webhook_id, event_type, url, host, secret, body, status, max_tries, next_at, created_at)
VALUES (:task_id, :round, :webhook_id, :event_type, :url, :host, :secret, :body, 'PENDING', :max_tries, :next_at, :now)

-- Lists: per wanted status at most :limit rows from an index, then the best :limit of them: bounded whatever the
-- table holds. :statuses is a bit mask in the order of enum task_status.
-- read: task_list_desc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE status = w.status AND task_id < :after ORDER BY task_id DESC LIMIT :limit)
WHERE w.bit & :statuses
ORDER BY r.task_id DESC LIMIT :limit

-- read: task_list_asc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE status = w.status AND task_id > :after ORDER BY task_id LIMIT :limit)
WHERE w.bit & :statuses
ORDER BY r.task_id LIMIT :limit

-- read: task_list_user_desc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE user_id = :user_id AND status = w.status AND task_id < :after ORDER BY task_id DESC LIMIT :limit)
WHERE w.bit & :statuses
ORDER BY r.task_id DESC LIMIT :limit

-- read: task_list_user_asc
WITH wanted(status, bit) AS (VALUES ('CREATED', 1), ('QUEUED', 2), ('PROCESSING', 4), ('SUCCEEDED', 8),
    ('FAILED', 16), ('TIMEOUT', 32), ('CANCELED', 64))
SELECT r.* FROM wanted w CROSS JOIN task_row r ON r.task_id IN
    (SELECT task_id FROM task WHERE user_id = :user_id AND status = w.status AND task_id > :after ORDER BY task_id LIMIT :limit)
WHERE w.bit & :statuses
ORDER BY r.task_id LIMIT :limit

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
    (SELECT count(*) FROM (SELECT 1 FROM task t WHERE t.queue_name = q.queue_name AND t.status = 'QUEUED'
        AND t.not_before = 0 LIMIT 100001)),
    (SELECT t.queued_at FROM task t WHERE t.queue_name = q.queue_name AND t.status = 'QUEUED' AND t.not_before = 0
        ORDER BY t.rank, t.task_id LIMIT 1)
FROM queue q ORDER BY q.queue_name

-- write: queue_set
UPDATE queue SET state = :state, resumed_at = CASE WHEN state = 'PAUSED' AND :state <> 'PAUSED' THEN :steady
    ELSE resumed_at END WHERE queue_name = :queue_name

-- ---- dead letters ----

-- read: dead_desc
SELECT * FROM task_row WHERE task_id IN (SELECT task_id FROM task WHERE status IN ('FAILED', 'TIMEOUT')
    AND dismissed_at = 0 AND (:user_id IS NULL OR user_id = :user_id) AND task_id < :after ORDER BY task_id DESC LIMIT :limit)
ORDER BY task_id DESC

-- read: dead_asc
SELECT * FROM task_row WHERE task_id IN (SELECT task_id FROM task WHERE status IN ('FAILED', 'TIMEOUT')
    AND dismissed_at = 0 AND (:user_id IS NULL OR user_id = :user_id) AND task_id > :after ORDER BY task_id LIMIT :limit)
ORDER BY task_id

-- write: dead_dismiss
UPDATE task SET dismissed_at = :now WHERE task_id = :task_id AND status IN ('FAILED', 'TIMEOUT') AND dismissed_at = 0

-- ---- repair ----

-- read: repair_scan
SELECT task_id, status, attempt, epoch, updated_at, input_at, not_before, waits_for FROM task
WHERE status IN ('CREATED', 'QUEUED', 'PROCESSING') AND status = :status AND task_id > :after ORDER BY task_id LIMIT :limit

-- read: status_counts
SELECT status, count(*) FROM task GROUP BY status

-- ---- retention ----

-- The oldest finished tasks whose callback is settled (or was never due).
-- read: retain_oldest
SELECT t.task_id, t.user_id, t.finished_at, t.video_file, t.video_bytes FROM task t
WHERE t.finished_at > 0 AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.task_id = t.task_id AND o.status = 'PENDING')
    AND NOT EXISTS (SELECT 1 FROM task w WHERE w.waits_for = t.task_id AND w.waits_for > 0)
ORDER BY t.finished_at, t.task_id LIMIT 1

-- read: retain_totals
SELECT count(*), coalesce(sum(video_bytes), 0) FROM task WHERE finished_at > 0

-- write: purge_outbox
DELETE FROM outbox WHERE task_id = :task_id

-- write: purge_task
DELETE FROM task WHERE task_id = :task_id

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

-- ---- stats ----

-- read: depth
SELECT count(*) FROM (SELECT 1 FROM task WHERE status = 'QUEUED' AND not_before = 0 AND priority = :priority LIMIT 100000)

-- read: oldest
SELECT min(queued_at) FROM task WHERE status = 'QUEUED' AND not_before = 0 AND priority = :priority

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

-- write: worker_seen
INSERT INTO worker(worker_id, device, epoch, started_at) VALUES (:worker_id, :device, :epoch, :now)
ON CONFLICT(worker_id) DO UPDATE SET device = excluded.device, epoch = excluded.epoch, started_at = excluded.started_at

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
SELECT host FROM outbox WHERE status = 'PENDING' AND host > :after ORDER BY host LIMIT 1

-- read: outbox_host_due
SELECT outbox_id FROM outbox WHERE status = 'PENDING' AND host = :host AND next_at <= :now
ORDER BY next_at, outbox_id LIMIT :limit

-- read: outbox_load
SELECT task_id, round, webhook_id, url, host, secret, body, tries, max_tries FROM outbox
WHERE outbox_id = :outbox_id AND status = 'PENDING'

-- read: outbox_timer
SELECT min(next_at) FROM outbox WHERE status = 'PENDING' AND next_at > :now

-- write: outbox_record
UPDATE outbox SET status = :status, tries = tries + 1, next_at = :next_at,
    finished_at = :finished_at, last_error = :last_error
WHERE outbox_id = :outbox_id AND status = 'PENDING'

-- write: delivery_insert
INSERT INTO delivery(outbox_id, n, timestamp, duration_ms, http_status, error, ip, response)
VALUES (:outbox_id, (SELECT coalesce(max(n), 0) + 1 FROM delivery WHERE outbox_id = :outbox_id), :timestamp,
    :duration_ms, :http_status, :error, :ip, :response)
