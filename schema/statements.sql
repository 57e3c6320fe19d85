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
INSERT INTO task(task_id, user_id, idempotency_key, idempotency_kind, request_hash, params_hash, prompt, negative_prompt, engine, model,
    width, height, frames, fps, steps, seed, seed_given, guidance_scale, flow_shift, options,
    status, version, priority, queue_name, rank, worker_id, attempt, epoch,
    created_at, updated_at, queued_at, queue_clock_at, not_before, started_at, finished_at, run_at, input_at,
    max_retries, queue_timeout_s, run_timeout_s, retry_count, requeue_count, crash_count, best_step, round,
    cancel_mode, error_code, error_msg, dismissed_at,
    video_file, video_bytes, video_sha256, video_width, video_height, video_frames, video_fps,
    callback_url, callback_secret, callback_events, callback_status, callback_retry, reused_from, label, metadata)
VALUES (:task_id, :user_id, :idempotency_key, :idempotency_kind, :request_hash, :params_hash, :prompt, :negative_prompt, :engine, :model,
    :width, :height, :frames, :fps, :steps, :seed, :seed_given, :guidance_scale, :flow_shift, :options,
    'CREATED', :version, :priority, :queue_name, 0, NULL, 0, 0,
    :created_at, :created_at, 0, 0, 0, 0, 0, :run_at, :input_at,
    :max_retries, :queue_timeout_s, :run_timeout_s, 0, 0, 0, 0, 1,
    NULL, NULL, NULL, 0,
    NULL, 0, NULL, 0, 0, 0, 0,
    :callback_url, :callback_secret, :callback_events, :callback_status, 0, 0, :label, :metadata)

-- The one UPDATE that changes a task's state (task/move.c).
-- write: task_move
UPDATE task SET status = :to_status, version = :version, rank = :rank, worker_id = :worker_id, attempt = :attempt,
    epoch = :epoch, updated_at = :updated_at, queued_at = :queued_at, queue_clock_at = :queue_clock_at,
    not_before = :not_before, started_at = :started_at, finished_at = :finished_at,
    retry_count = :retry_count, requeue_count = :requeue_count, crash_count = :crash_count, best_step = :best_step,
    round = :round, cancel_mode = :cancel_mode, error_code = :error_code, error_msg = :error_msg,
    dismissed_at = :dismissed_at, video_file = :video_file, video_bytes = :video_bytes, video_sha256 = :video_sha256,
    video_width = :video_width, video_height = :video_height, video_frames = :video_frames, video_fps = :video_fps,
    callback_status = :callback_status, callback_retry = :callback_retry, reused_from = :reused_from
WHERE task_id = :task_id AND status = :from_status

-- write: event_insert
INSERT INTO task_event(task_id, user_id, timestamp, from_status, to_status, attempt, worker_id, reason)
VALUES (:task_id, :user_id, :timestamp, :from_status, :to_status, :attempt, :worker_id, :reason)

-- write: queue_ensure
INSERT INTO queue(queue_name, created_at) VALUES (:queue_name, :created_at) ON CONFLICT DO NOTHING

-- read: queue_exists
SELECT 1 FROM queue WHERE queue_name = :queue_name

-- read: queue_count
SELECT count(*) FROM queue

-- read: user_waiting
SELECT count(*) FROM task WHERE user_id = :user_id AND status IN ('CREATED', 'QUEUED')

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

-- read: queue_position
SELECT count(*) FROM (SELECT 1 FROM task WHERE queue_name = :queue_name AND status = 'QUEUED' AND not_before = 0
    AND (rank, task_id) < (:rank, :task_id) LIMIT 10001)

-- write: task_request_cancel
UPDATE task SET cancel_mode = :cancel_mode, updated_at = :now WHERE task_id = :task_id AND status = 'PROCESSING'

-- A soft-cancelled run's result is kept in the row that is already CANCELED.
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
VALUES (:task_id, :round, :webhook_id, :event_type, :url, :host, :secret, :body, 'PENDING', :max_tries, :now, :now)

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
SELECT next_at, wait_ms FROM outbox WHERE status = 'PENDING' AND next_at > :now ORDER BY next_at LIMIT 1

-- Rows that were planned at a moment which has not come yet: the clock went back.
-- read: outbox_drifted
SELECT EXISTS (SELECT 1 FROM outbox WHERE status = 'PENDING' AND next_at - wait_ms > :now)

-- write: outbox_reanchor
UPDATE outbox SET next_at = :now + wait_ms WHERE status = 'PENDING' AND next_at - wait_ms > :now

-- write: outbox_record
UPDATE outbox SET status = :status, tries = tries + 1, next_at = :next_at, wait_ms = :wait_ms,
    finished_at = :finished_at, last_error = :last_error
WHERE outbox_id = :outbox_id AND status = 'PENDING'

-- write: delivery_insert
INSERT INTO delivery(outbox_id, n, timestamp, duration_ms, http_status, error, ip, response)
VALUES (:outbox_id, (SELECT coalesce(max(n), 0) + 1 FROM delivery WHERE outbox_id = :outbox_id), :timestamp,
    :duration_ms, :http_status, :error, :ip, :response)
