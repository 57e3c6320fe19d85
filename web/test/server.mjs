// The API as the page sees it, on loopback: enough rules to drive the page, all state in the open.
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const KEY = "rk_a-key-for-the-tests";

const POLICY =
  "default-src 'self'; img-src 'self' data:; media-src 'self' blob:; style-src 'self'; " +
  "script-src 'self'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
const clip = readFileSync(join(dirname(fileURLToPath(import.meta.url)), "clip.mp4"));

/** The answer of GET /api/v1/engines, as the server gives it. */
export const ENGINES = {
  data: [
    {
      name: "wan",
      doc: "text to video",
      default: false,
      models: [
        {
          name: "starter",
          doc: "a single coloured shape that moves",
          limits: { min_px: 64, max_px: 1024, px_step: 2, min_frames: 17, max_frames: 17, frame_step: 4, min_fps: 1, max_fps: 60, max_pixels: 1048576, min_steps: 1, max_steps: 1000, min_guidance_scale: 1, max_guidance_scale: 20, min_flow_shift: 0.1, max_flow_shift: 30 },
          defaults: { width: 256, height: 256, frames: 17, fps: 8, steps: 20, guidance_scale: 2, flow_shift: 3 },
        },
        {
          name: "wan2.1-t2v-1.3b",
          doc: "moving pictures of all kinds",
          limits: { min_px: 128, max_px: 1280, px_step: 16, min_frames: 1, max_frames: 81, frame_step: 4, min_fps: 1, max_fps: 60, max_pixels: 399360, min_steps: 1, max_steps: 1000, min_guidance_scale: 1, max_guidance_scale: 20, min_flow_shift: 0.1, max_flow_shift: 30 },
          defaults: { width: 832, height: 480, frames: 81, fps: 16, steps: 50, guidance_scale: 5, flow_shift: 3 },
        },
      ],
      options: [{ name: "solver", type: "choice", default: "auto", choices: ["auto", "unipc", "euler"], doc: "how the steps follow the flow" }],
    },
    {
      name: "testpattern",
      doc: "deterministic test cards drawn by the CPU",
      default: true,
      models: [
        {
          name: "testcard",
          doc: "a test card with a moving figure",
          limits: { min_px: 32, max_px: 2048, px_step: 2, min_frames: 1, max_frames: 3600, frame_step: 1, min_fps: 1, max_fps: 60, max_pixels: 4194304 },
          defaults: { width: 640, height: 360, frames: 48, fps: 24 },
        },
      ],
      options: [{ name: "frame_ms", type: "int", min: 0, max: 60000, default: 0, doc: "time that each frame takes, in ms" }],
    },
  ],
  next: null,
};

const SHIFT_MS = (n) => new Date(Date.now() - n * 1000).toISOString();

export class Api {
  constructor(dist) {
    this.files = new Map(
      readdirSync(dist).map((name) => [name === "index.html" ? "/" : `/${name}`, readFileSync(join(dist, name))]),
    );
    this.signed_in = true;
    this.user = "ada";
    this.engines = ENGINES;
    this.down = false; // every API request gets no answer
    this.refuse = null; // a problem document for the next submit
    this.streaming = "yes"; // "full": 503, "unknown": 404
    this.streams = new Set(); // {response, id}; id undefined = of all tasks
    this.tasks = []; // newest first
    this.events = new Map();
    this.submits = [];
    this.requests = []; // "METHOD /path?query"
    this.seq = 0;
    this.last_id = 7_400_000_000_000_000_000n;
    this.server = createServer((request, response) => void this.answer(request, response));
  }

  listen() {
    return new Promise((done) => {
      this.server.listen(0, "127.0.0.1", () => {
        this.url = `http://127.0.0.1:${this.server.address().port}/`;
        done(this);
      });
    });
  }

  close() {
    this.server.closeAllConnections?.();
    return new Promise((done) => this.server.close(done));
  }

  add(part, seconds_ago = 0) {
    this.last_id += 4096n;
    const task = {
      task_id: String(this.last_id),
      user_id: "ada",
      prompt: "a red circle moving left",
      status: "QUEUED",
      priority: 5,
      version: ++this.seq,
      attempt: 0,
      worker_id: null,
      created_at: SHIFT_MS(seconds_ago),
      queued_at: SHIFT_MS(seconds_ago),
      run_at: null,
      not_before: null,
      started_at: null,
      finished_at: null,
      error_code: null,
      error_msg: null,
      retry_count: 0,
      max_retries: 2,
      queue_timeout_s: 0,
      run_timeout_s: null,
      round: 1,
      progress: 0,
      phase: null,
      step: null,
      total_steps: null,
      queue_position: 1,
      eta_seconds: null,
      cancel_mode: null,
      params: { engine: "testpattern", model: "testcard", width: 320, height: 240, frames: 33, fps: 16, steps: 0, seed: 42, negative_prompt: null, guidance_scale: 0, flow_shift: 0, options: {} },
      reused_from: null,
      label: null,
      callback_url: null,
      callback_status: null,
      video: null,
      ...part,
    };
    this.tasks.unshift(task);
    this.events.set(task.task_id, []);
    this.note(task, null, "CREATED", "submitted");
    if (task.status !== "CREATED") this.note(task, "CREATED", "QUEUED", null);
    return task;
  }

  note(task, from_status, to_status, reason) {
    task.version = ++this.seq;
    const event = {
      seq: this.seq,
      task_id: task.task_id,
      timestamp: new Date().toISOString(),
      from_status,
      to_status,
      attempt: task.attempt,
      worker_id: task.worker_id,
      reason,
    };
    this.events.get(task.task_id).push(event);
    this.push(task, status_text(event));
  }

  push(task, text) {
    for (const stream of this.streams) if ([undefined, task.task_id].includes(stream.id)) stream.response.write(text);
  }

  /** Tell how far a task is, as the pool does. */
  progress(task, part) {
    Object.assign(task, part);
    const { task_id, phase, step, total_steps, progress, eta_seconds } = task;
    this.push(task, `event: progress\ndata: ${JSON.stringify({ task_id, phase, step, total_steps, progress, eta_seconds })}\n\n`);
  }

  cut() {
    for (const stream of this.streams) stream.response.destroy();
  }

  move(task, status, part = {}) {
    const from = task.status;
    Object.assign(task, { status, queue_position: null, phase: null, step: null, eta_seconds: null }, part);
    if (status === "PROCESSING") {
      Object.assign(task, { attempt: task.attempt + 1, worker_id: "cpu0", started_at: SHIFT_MS(3) });
    } else if (status !== "QUEUED") {
      task.finished_at = SHIFT_MS(0);
    }
    if (status === "SUCCEEDED") {
      task.progress = 100;
      task.video = { url: `${this.url}api/v1/tasks/${task.task_id}/video`, bytes: clip.length, sha256: "ab".repeat(32), width: 320, height: 240, frames: 33, fps: 16, duration_s: 2.0625 };
    }
    this.note(task, from, status, part.reason ?? null);
  }

  async answer(request, response) {
    const url = new URL(request.url, this.url);
    const file = this.files.get(url.pathname);
    if (file && request.method === "GET") {
      const type = url.pathname === "/" ? TYPES.html : TYPES[url.pathname.split(".").pop()];
      response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": POLICY });
      response.end(file);
      return;
    }
    this.requests.push(`${request.method} ${request.url}`);
    if (this.down) {
      request.socket.destroy();
      return;
    }
    let body = "";
    for await (const chunk of request) body += chunk;
    try {
      this.route(request.method, url, body, request, response);
    } catch (error) {
      problem(response, 500, "INTERNAL", String(error));
    }
  }

  route(method, url, body, request, response) {
    const at = `${method} ${url.pathname}`;
    if (at === "POST /api/v1/session") {
      if (JSON.parse(body).key !== KEY) return problem(response, 401, "UNAUTHORIZED", "No such key.");
      this.signed_in = true;
      return json(response, 200, this.session());
    }
    if (!this.signed_in) return problem(response, 401, "UNAUTHORIZED", "Sign in first.");
    if (at === "GET /api/v1/session") return json(response, 200, this.session());
    if (at === "DELETE /api/v1/session") {
      this.signed_in = false;
      response.writeHead(204).end();
      return;
    }
    if (at === "GET /api/v1/events") return this.stream(request, response);
    if (at === "GET /api/v1/engines") return json(response, 200, this.engines);
    if (at === "GET /api/v1/tasks") return this.list(url, response);
    if (at === "POST /api/v1/tasks") return this.submit(JSON.parse(body), response);
    const [, id, rest] = /^\/api\/v1\/tasks\/([0-9]+)(?:\/([a-z]+))?$/.exec(url.pathname) ?? [];
    const task = this.tasks.find((t) => t.task_id === id);
    if (!task) return problem(response, 404, "NOT_FOUND", "There is no such task.");
    if (method === "GET" && !rest) return json(response, 200, task);
    if (method === "GET" && rest === "events") {
      if (request.headers.accept === "text/event-stream") return this.stream(request, response, id);
      return json(response, 200, { data: this.events.get(id), next: null });
    }
    if (method === "POST" && rest === "cancel") return this.cancel(task, JSON.parse(body), response);
    if (rest === "video") return send_clip(request, response);
    if (rest === "poster") return send_poster(task, response);
    problem(response, 404, "NOT_FOUND", "There is no such page.");
  }

  session() {
    return { user_id: this.user, owner: true, expires_at: null };
  }

  list(url, response) {
    const status = url.searchParams.get("status")?.split(",");
    const after = url.searchParams.get("after");
    const limit = Number(url.searchParams.get("limit") ?? 50);
    const all = this.tasks.filter(
      (t) => (!status || status.includes(t.status)) && (!after || BigInt(t.task_id) < BigInt(after)),
    );
    const data = all.slice(0, limit);
    json(response, 200, { data, next: all.length > limit ? data[data.length - 1].task_id : null });
  }

  stream(request, response, id) {
    if (this.streaming === "unknown") return problem(response, 404, "NOT_FOUND", "There is no such page.");
    if (this.streaming === "full") return problem(response, 503, "UNAVAILABLE", "All streams are in use.");
    const last = request.headers["last-event-id"];
    response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
    response.write("retry: 2000\n\n");
    if (last === undefined) {
      const data = this.tasks.filter((t) => ["CREATED", "QUEUED", "PROCESSING"].includes(t.status));
      const snapshot = id ? this.tasks.find((t) => t.task_id === id) : { data, next: null };
      response.write(`event: snapshot\nid: ${this.seq}\ndata: ${JSON.stringify(snapshot)}\n\n`);
    } else {
      const events = id ? this.events.get(id) : [...this.events.values()].flat();
      const missed = events.filter((e) => e.seq > Number(last));
      for (const event of missed.sort((a, b) => a.seq - b.seq)) response.write(status_text(event));
    }
    const stream = { response, id };
    this.streams.add(stream);
    response.on("close", () => this.streams.delete(stream));
  }

  submit(body, response) {
    this.submits.push(body);
    if (this.refuse) {
      const { status, ...rest } = this.refuse;
      this.refuse = null;
      return problem(response, status, rest.code, rest.detail, rest.errors);
    }
    const { prompt, priority, ...given } = body;
    const task = this.add({ prompt, priority });
    const known = ["engine", "model", "width", "height", "frames", "fps", "steps", "seed", "negative_prompt", "options"];
    for (const name of known) if (name in given) task.params[name] = given[name];
    json(response, 202, task);
  }

  cancel(task, { mode }, response) {
    if (task.status === "PROCESSING") {
      task.cancel_mode = mode;
      return json(response, 202, task);
    }
    if (task.status === "QUEUED" || task.status === "CREATED") this.move(task, "CANCELED");
    if (task.status !== "CANCELED") return problem(response, 409, "TASK_FINISHED", "It is over.");
    json(response, 200, task);
  }
}

const status_text = (event) => `event: status\nid: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`;

function json(response, status, body) {
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
}

function problem(response, status, code, detail, errors = []) {
  response.writeHead(status, { "Content-Type": "application/problem+json" });
  response.end(JSON.stringify({ type: "about:blank", title: code, status, detail, code, errors }));
}

function send_clip(request, response) {
  const [, from, to] = /^bytes=([0-9]+)-([0-9]*)$/.exec(request.headers.range ?? "") ?? [];
  const headers = { "Content-Type": "video/mp4", "Accept-Ranges": "bytes" };
  if (from === undefined) return response.writeHead(200, headers).end(clip);
  const last = to ? Math.min(Number(to), clip.length - 1) : clip.length - 1;
  headers["Content-Range"] = `bytes ${from}-${last}/${clip.length}`;
  response.writeHead(206, headers).end(clip.subarray(Number(from), last + 1));
}

function send_poster(task, response) {
  const hue = Number(BigInt(task.task_id) / 4096n % 36n) * 10;
  response.writeHead(200, { "Content-Type": "image/svg+xml" });
  response.end(
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 320 240"><rect width="320" height="240" fill="hsl(${hue} 45% 22%)"/>` +
      `<path d="M0 190 90 120 160 175 230 95 320 180V240H0Z" fill="hsl(${hue} 40% 34%)"/><circle cx="215" cy="70" r="34" fill="hsl(${hue + 40} 80% 62%)"/></svg>`,
  );
}
