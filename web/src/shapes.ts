// What travels between reeld and its clients, and the one error class.

export type Status =
  | "CREATED"
  | "QUEUED"
  | "PROCESSING"
  | "SUCCEEDED"
  | "FAILED"
  | "TIMEOUT"
  | "CANCELED";

export const UNFINISHED: readonly Status[] = ["CREATED", "QUEUED", "PROCESSING"];

export interface Video {
  url: string;
  bytes: number;
  sha256: string;
  width: number;
  height: number;
  frames: number;
  fps: number;
  duration_s: number;
}

/** What a task is made with; absent, null, or 0 of a number but the seed = not used by its engine. */
export interface Params {
  engine?: string | null;
  model?: string | null;
  negative_prompt?: string | null;
  width?: number | null;
  height?: number | null;
  frames?: number | null;
  fps?: number | null;
  steps?: number | null;
  seed?: number | string | null;
  guidance_scale?: number | null;
  flow_shift?: number | null;
  options?: Record<string, unknown> | null;
}

/** Times are RFC 3339 texts; unknown is null. */
export interface Task {
  task_id: string;
  user_id: string;
  idempotency_key: string | null;
  prompt: string;
  status: Status;
  version: number | string;
  priority: number;
  queue_name: string;
  worker_id: string | null;
  attempt: number;
  progress: number;
  phase: string | null;
  step: number | null;
  total_steps: number | null;
  queue_position: number | null;
  eta_seconds: number | null;
  poll_after_ms: number | null;
  created_at: string;
  updated_at: string;
  run_at: string | null;
  /** Set while a waiting task is put off: until `run_at`, or before its next try. */
  not_before: string | null;
  queued_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  result_url: string | null;
  error_code: string | null;
  error_msg: string | null;
  retry_count: number;
  requeue_count: number;
  crash_count: number;
  max_retries: number;
  /** Seconds; 0 = none. */
  queue_timeout_s: number;
  /** Seconds; 0 = none, null = by the measured speed. */
  run_timeout_s: number | null;
  round: number;
  cancel_mode: "soft" | "hard" | null;
  callback_url: string | null;
  callback_status: "PENDING" | "SUCCEEDED" | "FAILED" | null;
  callback_retry: number;
  reused_from: string | null;
  label: string | null;
  metadata: Record<string, unknown> | null;
  params: Params;
  video: Video | null;
}

/** The body of a submit. Only the prompt is needed. */
export interface Submit {
  prompt: string;
  negative_prompt?: string;
  engine?: string;
  model?: string;
  width?: number;
  height?: number;
  frames?: number;
  fps?: number;
  steps?: number;
  seed?: number | string;
  guidance_scale?: number;
  flow_shift?: number;
  options?: Record<string, unknown>;
  priority?: 1 | 5 | 10 | "low" | "normal" | "high";
  queue_name?: string;
  run_at?: string;
  max_retries?: number;
  queue_timeout_s?: number;
  run_timeout_s?: number;
  idempotency_key?: string;
  idempotency?: "off";
  callback_url?: string;
  callback_secret?: string;
  callback_events?: string[];
  metadata?: Record<string, unknown>;
  label?: string;
}

/** One change of state. `seq` grows over all tasks: it is the position in the stream. */
export interface TaskEvent {
  seq: number;
  task_id: string;
  timestamp: string;
  from_status: Status | null;
  to_status: Status;
  attempt: number;
  worker_id: string | null;
  reason: string | null;
}

export interface Progress {
  task_id: string;
  phase: string | null;
  step: number | null;
  total_steps: number | null;
  progress: number;
  eta_seconds: number | null;
}

export type StatusEvent = { type: "status" } & TaskEvent;
/** Events are missing: their history was pruned, or the position was not known. Look yourself. */
export type GapEvent = { type: "gap" } & Record<string, unknown>;
export type ProgressEvent = { type: "progress" } & Progress;
/** The one task, or all that are unfinished, where a stream begins. */
export type SnapshotEvent = { type: "snapshot"; tasks: Task[] };
export type StreamEvent = StatusEvent | GapEvent | ProgressEvent | SnapshotEvent;

export interface Page<T> {
  data: T[];
  next: string | null;
}

export interface FieldError {
  field: string;
  code: string;
  detail: string;
}

/**
 * The server refused (`status`, `code` and `errors` are its problem document), or could not be
 * reached (`status` 0, code NO_ANSWER). Codes of the client itself: NO_ANSWER, BAD_ANSWER,
 * NO_STREAM, WAIT_TIMEOUT, BAD_SIGNATURE.
 */
export class ReeldError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly errors: FieldError[] = [],
    /** When the server asks to come back; null = it did not say. */
    readonly retryAfterMs: number | null = null,
  ) {
    super(message);
    this.name = "ReeldError";
  }

  /** No answer, or one that says "not now": worth trying again. */
  get lost(): boolean {
    return [0, 408, 502, 503, 504].includes(this.status) && this.code !== "WAIT_TIMEOUT";
  }
}
