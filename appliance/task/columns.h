/* The columns of a task row, in the order of every SELECT that reads one (schema/statements.sql,
 * checked against it by a unit test). X(TYPE, name): INT -> int64_t, REAL -> double, TEXT -> char
 * *. */
#ifndef RL_TASK_COLUMNS_H
#define RL_TASK_COLUMNS_H

/* clang-format off */
#define TASK_COLUMNS(X)                                                                            \
    X(INT, task_id) X(TEXT, user_id) X(TEXT, idempotency_key) X(TEXT, idempotency_kind)            \
    X(TEXT, request_hash) X(TEXT, params_hash) X(TEXT, prompt) X(TEXT, negative_prompt) X(TEXT, engine) X(TEXT, model)  \
    X(INT, width) X(INT, height) X(INT, frames) X(INT, fps) X(INT, steps) X(INT, seed)             \
    X(INT, seed_given) X(REAL, guidance_scale) X(REAL, flow_shift) X(TEXT, options)                \
    X(TEXT, status) X(INT, version) X(INT, priority) X(TEXT, queue_name) X(INT, rank)              \
    X(TEXT, worker_id) X(INT, attempt) X(INT, epoch)                                               \
    X(INT, created_at) X(INT, updated_at) X(INT, queued_at) X(INT, queue_due_at)                 \
    X(INT, not_before) X(INT, waits_for) X(INT, started_at) X(INT, finished_at) X(INT, run_at) X(INT, input_at)      \
    X(INT, max_retries) X(INT, queue_timeout_s) X(INT, run_timeout_s)                              \
    X(INT, retry_count) X(INT, requeue_count) X(INT, crash_count) X(INT, best_step) X(INT, round)  \
    X(TEXT, cancel_mode) X(TEXT, error_code) X(TEXT, error_msg) X(INT, dismissed_at)               \
    X(TEXT, video_file) X(INT, video_bytes) X(TEXT, video_sha256) X(INT, video_width)              \
    X(INT, video_height) X(INT, video_frames) X(INT, video_fps)                                    \
    X(TEXT, callback_url) X(TEXT, callback_secret) X(TEXT, callback_events)                        \
    X(TEXT, callback_status) X(INT, callback_retry) X(INT, reused_from) X(TEXT, label)             \
    X(TEXT, metadata)

/* What task_move may change. */
#define TASK_MUTABLE(X)                                                                            \
    X(TEXT, status) X(INT, version) X(INT, rank) X(TEXT, worker_id) X(INT, attempt) X(INT, epoch)  \
    X(INT, updated_at) X(INT, queued_at) X(INT, queue_due_at) X(INT, not_before)                   \
    X(INT, waits_for) X(INT, started_at) X(INT, finished_at)                                       \
    X(INT, retry_count) X(INT, requeue_count) X(INT, crash_count) X(INT, best_step) X(INT, round)  \
    X(INT, seed) X(TEXT, cancel_mode) X(TEXT, error_code) X(TEXT, error_msg)                       \
    X(INT, dismissed_at) X(TEXT, video_file) X(INT, video_bytes) X(TEXT, video_sha256)             \
    X(INT, video_width) X(INT, video_height) X(INT, video_frames) X(INT, video_fps)                \
    X(TEXT, callback_status) X(INT, callback_retry) X(INT, reused_from)
/* clang-format on */

#endif
