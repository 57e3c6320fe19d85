// A client of reeld for browsers and Node 18 or newer: one file, no dependencies. Published at
// /client.js of every server. Knows the REST API and its live streams, nothing of the page.
//
// What it promises: a submit that is repeated makes one task; a stream that breaks goes on where it
// broke, without gaps or repeats; waiting goes on without streams, by asking.

import {
  ReeldError,
  UNFINISHED,
  type FieldError,
  type GapEvent,
  type Page,
  type Progress,
  type Status,
  type StatusEvent,
  type StreamEvent,
  type Submit,
  type Task,
} from "./shapes";
import { FrameParser, position, read_frame, type Frame } from "./sse";
import { web_crypto } from "./webhook";

export * from "./shapes";
export { verifyWebhook, type Callback, type EndpointTest, type HeaderBag, type TaskCallback } from "./webhook";

// ---- options ----

export interface ReeldOptions {
  /** Where the server is. In a browser the page's own server when absent. */
  url?: string;
  /** An API key. In a browser the session cookie signs when absent. */
  key?: string;
  /** ms between tries (1, 3 and 9 s), plus up to half as much again at random. */
  waits?: readonly number[];
  /** Tries after the first for requests that may be repeated; as many as there are waits. */
  retries?: number;
  /** ms for one answer (30 s). */
  timeout?: number;
  /** ms without a byte after which a stream counts as broken (45 s). */
  silence?: number;
  fetch?: typeof fetch;
}

export interface RequestOptions {
  body?: unknown;
  signal?: AbortSignal | undefined;
  /** Repeat when no answer came? By default what only reads is. */
  retry?: boolean;
}

export interface WaitOptions {
  signal?: AbortSignal | undefined;
  /** ms after which the wait ends with WAIT_TIMEOUT; the task goes on. */
  timeout?: number;
  onProgress?: (progress: Progress & { status: Status }) => void;
}

export interface EventsOptions {
  /** Only of this task. */
  taskId?: string;
  /** Only changes to one of these states. */
  statuses?: readonly Status[];
  /** The seq after which to begin; absent = with what happens from now on. */
  after?: number | string | undefined;
  signal?: AbortSignal | undefined;
  /** Also hand out progress and snapshots. */
  progress?: boolean;
  /** Called when the stream opens ("live") and when it breaks ("lost"). */
  onState?: (state: "live" | "lost") => void;
}

export interface ListFilter {
  status?: Status | readonly Status[];
  limit?: number;
  /** `next` of the page before. */
  after?: string | null;
  order?: "desc" | "asc";
}

const WAITS_MS: readonly number[] = [1000, 3000, 9000];
const TIMEOUT_MS = 30_000;
const SILENCE_MS = 45_000;
const LONGEST_RETRY_AFTER_MS = 60_000;
const HOLD_S = 30; // of a long poll
const ASIDE_MS = 30_000; // how long to do without streams after a 503
const POLL_MS = 1000; // when the server does not say
const TIMER_MS = 2 ** 31 - 1; // the most that a timer can

// ---- the client ----

export class Reeld {
  private readonly base: string;
  private readonly key: string;
  private readonly waits: readonly number[];
  private readonly retries: number;
  private readonly timeout: number;
  private readonly silence: number;
  private readonly fetch: typeof fetch;

  constructor(options: ReeldOptions = {}) {
    this.base = base_of(options.url);
    this.key = (options.key ?? "").trim();
    if (!/^[\x21-\x7e]*$/.test(this.key)) throw new TypeError("this key cannot be one of reeld's");
    this.waits = options.waits?.length ? options.waits : WAITS_MS;
    this.retries = options.retries ?? this.waits.length;
    this.timeout = options.timeout ?? TIMEOUT_MS;
    this.silence = options.silence ?? SILENCE_MS;
    this.fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
  }

  /**
   * Make a task. Repeated by itself when no answer came, which is safe: every call carries a key of
   * its own unless it is given one. (With `idempotency: "off"` there is none, and no second try.)
   */
  async submit(
    body: Submit,
    options: { idempotencyKey?: string; signal?: AbortSignal } = {},
  ): Promise<Task> {
    const off = body.idempotency === "off";
    const key = options.idempotencyKey ?? body.idempotency_key ?? (off ? null : await random_key());
    return this.request("POST", "/api/v1/tasks", {
      body: key === null ? body : { ...body, idempotency_key: key },
      signal: options.signal,
      retry: !off,
    });
  }

  get(id: string, options: { signal?: AbortSignal } = {}): Promise<Task> {
    return this.request("GET", task_path(id), options);
  }

  /** One page of tasks, the newest first. */
  list(filter: ListFilter = {}, options: { signal?: AbortSignal } = {}): Promise<Page<Task>> {
    const { status, ...rest } = filter;
    const text = typeof status === "string" ? status : status?.join(",");
    return this.request("GET", `/api/v1/tasks${query({ status: text, ...rest })}`, options);
  }

  /** Soft keeps the result of a running task for reuse, hard stops the run. */
  cancel(
    id: string,
    options: { mode?: "soft" | "hard"; signal?: AbortSignal } = {},
  ): Promise<Task> {
    const body = options.mode ? { mode: options.mode } : {};
    return this.request("POST", `${task_path(id)}/cancel`, { body, signal: options.signal, retry: true });
  }

  /**
   * The task as it ended, be that SUCCEEDED, FAILED, TIMEOUT or CANCELED. A server that is away
   * meanwhile is waited for; `signal` or `timeout` (ms) end the wait, not the task.
   */
  async wait(id: string, options: WaitOptions = {}): Promise<Task> {
    const { controller, unlink } = linked(options.signal);
    const { timeout, onProgress } = options;
    const late = new ReeldError(0, "WAIT_TIMEOUT", `Task ${id} did not end within ${timeout} ms.`);
    const timer =
      timeout === undefined ? undefined : setTimeout(() => controller.abort(late), Math.min(timeout, TIMER_MS));
    try {
      return await this.follow(id, controller.signal, onProgress);
    } finally {
      clearTimeout(timer);
      unlink();
    }
  }

  /**
   * Changes of state as they happen, each once and in order. A broken stream is resumed. Ends when
   * the one task has ended, by `signal`, or with an error that trying again would not change.
   */
  events(options: EventsOptions & { progress: true }): AsyncGenerator<StreamEvent, void>;
  events(options?: EventsOptions): AsyncGenerator<StatusEvent | GapEvent, void>;
  events(options: EventsOptions = {}): AsyncGenerator<StreamEvent, void> {
    return this.stream(options, true);
  }

  /** Any other request of the API; the answer's JSON. */
  async request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const retry = options.retry ?? (method === "GET" || method === "HEAD");
    for (let tries = 0; ; tries++) {
      try {
        return await this.ask<T>(method, path, options, this.timeout);
      } catch (error) {
        if (!is_lost(error) || !retry || tries >= this.retries) throw error;
        await this.pause(tries, error, options.signal);
      }
    }
  }

  // ---- one request ----

  private send(path: string, init: RequestInit, headers: Record<string, string>): Promise<Response> {
    const { fetch } = this; // a browser's own must not be called as a method
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    return fetch(this.base + path, { ...init, headers, cache: "no-store", credentials: "same-origin" });
  }

  private async ask<T>(method: string, path: string, options: RequestOptions, timeout: number): Promise<T> {
    const { controller, unlink } = linked(options.signal);
    const init: RequestInit = { method, signal: controller.signal };
    const headers: Record<string, string> = { Accept: "application/json" };
    if (options.body !== undefined) {
      init.body = JSON.stringify(options.body);
      headers["Content-Type"] = "application/json";
    }
    const timer = setTimeout(() => controller.abort(), Math.min(timeout, TIMER_MS));
    try {
      const response = await this.send(path, init, headers);
      if (!response.ok) throw await problem(response);
      return parse_answer<T>(await response.text(), response.status);
    } catch (error) {
      throw reason(error, options.signal);
    } finally {
      clearTimeout(timer);
      unlink();
    }
  }

  private pause(tries: number, error: unknown, signal?: AbortSignal): Promise<void> {
    const wait = this.waits[Math.min(tries, this.waits.length - 1)]!;
    const asked = error instanceof ReeldError ? (error.retryAfterMs ?? 0) : 0;
    const ms = Math.max(wait, Math.min(asked, LONGEST_RETRY_AFTER_MS));
    return sleep(ms * (1 + Math.random() / 2), signal);
  }

  // ---- streams ----

  /**
   * One connection: `null` once it is open, then its events. Returns when the server ends it: true
   * when it says that nothing more will come.
   */
  private async *connect(
    path: string,
    last: number | null,
    signal?: AbortSignal,
  ): AsyncGenerator<Frame | null, boolean> {
    const { controller, unlink } = linked(signal);
    let timer: ReturnType<typeof setTimeout> | undefined;
    // Only while something is awaited from the server: a slow reader of the events is no silence.
    const heard = async <T>(answer: Promise<T>): Promise<T> => {
      timer = setTimeout(() => controller.abort(), Math.min(this.silence, TIMER_MS));
      try {
        return await answer;
      } catch (error) {
        throw reason(error, signal);
      } finally {
        clearTimeout(timer);
      }
    };
    try {
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (last !== null) headers["Last-Event-ID"] = String(last);
      const response = await heard(this.send(path, { signal: controller.signal }, headers));
      if (!response.ok) throw await heard(problem(response));
      if (response.status === 204) return true;
      const type = response.headers.get("Content-Type") ?? "";
      if (!/^text\/event-stream\b/i.test(type) || !response.body) {
        throw new ReeldError(response.status, "NO_STREAM", "The server does not answer with a stream.");
      }
      yield null;
      const reader = response.body.getReader();
      const parser = new FrameParser();
      for (;;) {
        const { done, value } = await heard(reader.read());
        if (done) return false;
        yield* parser.feed(value);
      }
    } finally {
      unlink();
      controller.abort();
    }
  }

  /** Connection after connection. Not patient: a server that has no stream to give is an error. */
  private async *stream(options: EventsOptions, patient: boolean): AsyncGenerator<StreamEvent, void> {
    const { taskId, statuses, after, signal, progress, onState } = options;
    const folder = taskId === undefined ? "/api/v1" : task_path(taskId);
    const path = `${folder}/events${query({ status: statuses?.join(",") })}`;
    let last = position(after); // the newest seq that was handed out; null = not known
    let known = false; // a stream was open before
    for (let tries = 0; ; tries++) {
      const connection = this.connect(path, last, signal);
      let live = false;
      let error: unknown;
      try {
        for (;;) {
          const { done, value: frame } = await connection.next();
          if (done) {
            if (frame) return;
            break;
          }
          if (!frame) {
            live = true;
            onState?.("live");
            if (known && last === null) yield { type: "gap" };
            known = true;
            continue;
          }
          const event = read_frame(frame);
          const seq = event?.type === "status" ? position(event.seq) : position(frame.id);
          const seen = seq !== null && last !== null && seq <= last;
          if (event?.type === "gap") last = seq; // backwards too: the history may be another one
          else if (seq !== null && !seen) last = seq;
          tries = 0;
          if (!event || (seen && event.type === "status")) continue;
          if (progress || event.type === "status" || event.type === "gap") yield event;
        }
      } catch (caught) {
        if (!worth_again(caught, patient) || signal?.aborted) throw caught;
        error = caught;
      } finally {
        await connection.return(false);
      }
      if (live) onState?.("lost");
      await this.pause(tries, error, signal);
    }
  }

  // ---- waiting ----

  private async follow(id: string, signal: AbortSignal, report: WaitOptions["onProgress"]): Promise<Task> {
    const tell = teller(id, report);
    const often = report !== undefined;
    let after: string | undefined;
    for (;;) {
      let stream_at: number; // when streams may be tried again
      try {
        for await (const event of this.stream({ taskId: id, after, signal, progress: true }, false)) {
          if (event.type === "progress") tell(event);
          else if (event.type === "status" && UNFINISHED.includes(event.to_status)) {
            tell({ status: event.to_status });
          } else {
            // An end or a gap: the task itself knows more, and may even be under way again.
            const task = event.type === "snapshot" ? event.tasks[0]! : await this.poll(id, 0, signal, tell, often);
            if (isFinished(task)) return task;
            tell(task);
          }
        }
        stream_at = Date.now() + ASIDE_MS; // nothing more will come, the server says
      } catch (error) {
        stream_at = without_stream(error, signal);
      }
      const task = await this.poll(id, stream_at, signal, tell, often);
      if (isFinished(task)) return task;
      after = String(task.version);
    }
  }

  /** Ask until the task has ended or the time has come (Date.now()); at least once. */
  private async poll(
    id: string,
    until: number,
    signal: AbortSignal,
    tell: (task: Task) => void,
    often: boolean, // progress is wanted as well, which ends no long poll
  ): Promise<Task> {
    let version: string | undefined;
    let holds = true; // the server has long polls to give
    for (let tries = 0; ; ) {
      const asked = Date.now();
      const hold_s = version === undefined || !holds ? 0 : often ? 2 : HOLD_S;
      const search = hold_s ? query({ wait: hold_s, after_version: version }) : "";
      try {
        const task = await this.ask<Task>("GET", task_path(id) + search, { signal }, this.timeout + hold_s * 1000);
        tries = 0;
        if (isFinished(task)) return task;
        const changed = String(task.version) !== version;
        version = String(task.version);
        tell(task);
        if (Date.now() >= until) return task;
        const held = hold_s > 0 && Date.now() - asked >= hold_s * 900;
        if (!held && !(changed && holds)) await sleep(Math.max(100, task.poll_after_ms ?? POLL_MS), signal);
      } catch (error) {
        if (!(error instanceof ReeldError) || signal.aborted) throw error;
        if (hold_s && [400, 422, 429, 503].includes(error.status)) holds = false;
        else if (error.lost || error.status === 429) await this.pause(tries++, error, signal);
        else throw error;
      }
    }
  }
}

const is_lost = (error: unknown): boolean => error instanceof ReeldError && error.lost;

/** Would the same request for a stream make sense a little later? */
function worth_again(error: unknown, patient: boolean): boolean {
  if (!(error instanceof ReeldError)) return false;
  if (error.status === 503 || error.status === 429) return patient;
  return error.lost || error.status === 500;
}

/** A stream was refused: until when (Date.now()) to do without. Throws what asking would meet too. */
function without_stream(error: unknown, signal: AbortSignal): number {
  if (!(error instanceof ReeldError) || signal.aborted) throw error;
  if ([429, 503].includes(error.status)) return Date.now() + ASIDE_MS;
  if (error.code === "NO_STREAM" || [404, 405, 406, 501].includes(error.status)) return Infinity;
  throw error;
}

/** Collects what is known of a task's progress and hands all of it out each time. */
function teller(id: string, report: WaitOptions["onProgress"]): (part: Partial<Task>) => void {
  const now: Record<string, unknown> = { task_id: id, status: "CREATED", phase: null, step: null };
  Object.assign(now, { total_steps: null, progress: 0, eta_seconds: null });
  return (part) => {
    for (const name of Object.keys(now)) {
      const value = part[name as keyof Task];
      if (value !== undefined) now[name] = value;
    }
    report?.({ ...now } as unknown as Progress & { status: Status });
  };
}

export const isFinished = (task: Task): boolean => !UNFINISHED.includes(task.status);

/** 128 random bits; randomUUID is missing on plain http beyond loopback. */
async function random_key(): Promise<string> {
  const raw = (await web_crypto()).getRandomValues(new Uint8Array(16));
  return Array.from(raw, (b) => b.toString(16).padStart(2, "0")).join("");
}

// ---- small things ----

function base_of(url: string | undefined): string {
  if (url === undefined) {
    if (typeof location === "undefined") throw new TypeError("url is missing");
    return "";
  }
  const { protocol, origin, pathname } = new URL(url);
  if (!/^https?:$/.test(protocol)) throw new TypeError("url must begin with http:// or https://");
  return origin + pathname.replace(/\/+$/, "");
}

const task_path = (id: string): string => `/api/v1/tasks/${encodeURIComponent(id)}`;

function query(values: Record<string, string | number | null | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  // A comma is allowed as it is in a query, and reads better in a log.
  const text = given.map(([name, value]) => `${name}=${encodeURIComponent(value!).replace(/%2C/g, ",")}`);
  return text.length ? `?${text.join("&")}` : "";
}

/** Read an application/problem+json body (RFC 9457), or whatever else came instead. */
async function problem(response: Response): Promise<ReeldError> {
  let body: Record<string, unknown> = {};
  try {
    body = Object((await response.json()) as unknown) as Record<string, unknown>;
  } catch {
    /* not JSON: the status line has to do */
  }
  const text = (value: unknown): string => (typeof value === "string" ? value : "");
  const list: Record<string, unknown>[] = Array.isArray(body.errors) ? body.errors.map(Object) : [];
  const errors = list.map((e): FieldError => ({ field: text(e.field), code: text(e.code), detail: text(e.detail) }));
  return new ReeldError(
    response.status,
    text(body.code) || `HTTP_${response.status}`,
    text(body.detail) || text(body.title) || `The server answered ${response.status}.`,
    errors,
    retry_after(response.headers.get("Retry-After")),
  );
}

/** Seconds or a date; source: RFC 9110, section 10.2.3. */
function retry_after(value: string | null): number | null {
  if (!value) return null;
  const ms = /^[0-9]+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(ms) ? null : Math.max(0, ms);
}

function parse_answer<T>(text: string, status: number): T {
  try {
    return (text ? JSON.parse(text) : undefined) as T;
  } catch {
    throw new ReeldError(status, "BAD_ANSWER", "The answer is not JSON. Is this a reeld server?");
  }
}

/** What to throw: the caller's own reason when they stopped it, else that no answer came. */
function reason(error: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted) return signal.reason;
  return error instanceof ReeldError ? error : new ReeldError(0, "NO_ANSWER", "The server does not answer.");
}

/** A controller that stops with the signal; AbortSignal.any is too new for Node 18. */
function linked(signal?: AbortSignal): { controller: AbortController; unlink: () => void } {
  const controller = new AbortController();
  const stop = (): void => controller.abort(signal?.reason);
  if (signal?.aborted) stop();
  else signal?.addEventListener("abort", stop);
  return { controller, unlink: () => signal?.removeEventListener("abort", stop) };
}

function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const stop = (): void => {
      clearTimeout(timer);
      fail(signal!.reason);
    };
    if (signal?.aborted) return fail(signal.reason);
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      done();
    }, Math.min(ms, TIMER_MS));
    signal?.addEventListener("abort", stop);
  });
}
