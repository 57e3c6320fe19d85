// The REST API as the page uses it: its shapes and one small client. Knows nothing of the page.

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

/** What a task is made with; null or absent = not used by its engine. */
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
  prompt: string;
  status: Status;
  priority: number;
  version: number | string;
  attempt: number;
  worker_id: string | null;
  created_at: string;
  queued_at: string | null;
  started_at: string | null;
  finished_at: string | null;
  error_code: string | null;
  error_msg: string | null;
  retry_count: number;
  round: number;
  progress: number;
  phase: string | null;
  step: number | null;
  total_steps: number | null;
  queue_position: number | null;
  eta_seconds: number | null;
  cancel_mode: string | null;
  params: Params;
  reused_from: string | null;
  label: string | null;
  callback_url: string | null;
  callback_status: string | null;
  video: Video | null;
}

export interface TaskEvent {
  seq: number | string;
  task_id: string;
  timestamp: string;
  from_status: Status | null;
  to_status: Status;
  attempt: number;
  worker_id: string | null;
  reason: string | null;
}

export interface Page<T> {
  data: T[];
  next: string | null;
}

export interface Session {
  user_id: string;
  owner: boolean;
  expires_at: string | null;
}

export interface EngineRange {
  min: number;
  max: number;
  step: number;
  default: number;
}

/** null: the model has no such knob. */
export interface EngineModel {
  name: string;
  doc: string;
  default: boolean;
  width: EngineRange;
  height: EngineRange;
  max_pixels: number;
  frames: EngineRange;
  fps: EngineRange;
  steps: EngineRange | null;
}

export interface Engine {
  name: string;
  doc: string;
  default: boolean;
  models: EngineModel[];
}

export interface FieldError {
  field: string;
  code: string;
  detail: string;
}

/** The server answered, and the answer is no. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly errors: FieldError[] = [],
  ) {
    super(message);
  }
}

/** No answer, or one that says "not now": worth trying again. */
export class LostError extends Error {}

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** Read an application/problem+json body (RFC 9457), or whatever else came instead. */
async function problem(response: Response): Promise<ApiError> {
  let body: Record<string, unknown> = {};
  try {
    body = (await response.json()) as Record<string, unknown>;
  } catch {
    /* not JSON: the status line has to do */
  }
  const list = Array.isArray(body.errors) ? (body.errors as Record<string, unknown>[]) : [];
  return new ApiError(
    response.status,
    text(body.code) || `HTTP_${response.status}`,
    text(body.detail) || text(body.title) || `The server answered ${response.status}.`,
    list.map((e) => ({ field: text(e.field), code: text(e.code), detail: text(e.detail) })),
  );
}

export class Client {
  constructor(
    private readonly base = "",
    private readonly timeout_ms = 15_000,
  ) {}

  private async call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), this.timeout_ms);
    const init: RequestInit = {
      method,
      signal: stop.signal,
      credentials: "same-origin",
      cache: "no-store",
      headers: { Accept: "application/json" },
    };
    if (body !== undefined) {
      init.headers = { Accept: "application/json", "Content-Type": "application/json" };
      init.body = JSON.stringify(body);
    }
    try {
      const response = await fetch(this.base + path, init);
      if (response.ok) {
        return (response.status === 204 ? undefined : await response.json()) as T;
      }
      const error = await problem(response);
      if ([502, 503, 504].includes(response.status)) throw new LostError(error.message);
      throw error;
    } catch (error) {
      if (error instanceof ApiError || error instanceof LostError) throw error;
      throw new LostError("The server does not answer.");
    } finally {
      clearTimeout(timer);
    }
  }

  session(): Promise<Session> {
    return this.call("GET", "/api/v1/session");
  }
  sign_in(key: string): Promise<unknown> {
    return this.call("POST", "/api/v1/session", { key });
  }
  sign_out(): Promise<unknown> {
    return this.call("DELETE", "/api/v1/session");
  }
  engines(): Promise<{ data: Engine[] }> {
    return this.call("GET", "/api/v1/engines");
  }
  submit(body: Record<string, unknown>): Promise<Task> {
    return this.call("POST", "/api/v1/tasks", body);
  }
  task(id: string): Promise<Task> {
    return this.call("GET", task_path(id));
  }
  tasks(query: { status?: readonly Status[]; limit?: number; after?: string }): Promise<Page<Task>> {
    const search = new URLSearchParams();
    if (query.status?.length) search.set("status", query.status.join(","));
    search.set("limit", String(query.limit ?? 50));
    if (query.after) search.set("after", query.after);
    // A comma is allowed as it is in a query; some servers split before they decode.
    return this.call("GET", `/api/v1/tasks?${search.toString().replace(/%2C/g, ",")}`);
  }
  cancel(id: string, mode: "soft" | "hard"): Promise<Task> {
    return this.call("POST", `${task_path(id)}/cancel`, { mode });
  }
  events(id: string, after?: string): Promise<Page<TaskEvent>> {
    const more = after ? `&after=${encodeURIComponent(after)}` : "";
    return this.call("GET", `${task_path(id)}/events?limit=200&order=asc${more}`);
  }
}

const task_path = (id: string): string => `/api/v1/tasks/${encodeURIComponent(id)}`;

/** Same-origin addresses of a task's files: the page's own policy allows no other. */
export const video_path = (id: string): string => `${task_path(id)}/video`;
export const poster_path = (id: string): string => `${task_path(id)}/poster`;

export const is_unfinished = (task: Task): boolean => UNFINISHED.includes(task.status);
