// The client as it is published, against servers that misbehave in every way the tests can think of.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test as node_test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const dist = mkdtempSync(join(tmpdir(), "reeld-client-"));
const file = join(dist, "client.js");
let Reeld, ReeldError, verifyWebhook;

before(async () => {
  execFileSync(process.execPath, [join(web, "build.mjs"), "--out", dist], { stdio: "ignore" });
  writeFileSync(join(dist, "package.json"), '{"type": "module"}'); // Node 18 does not guess
  ({ Reeld, ReeldError, verifyWebhook } = await import(pathToFileURL(file)));
});
after(() => {
  rmSync(dist, { recursive: true, force: true });
  setTimeout(() => process.exit(1), 2000).unref(); // whatever a failed test left running
});

const test = (name, run, options) => node_test(name, { timeout: 30_000, ...options }, run);

const ID = "7400000000000004096";
const TASK = `/api/v1/tasks/${ID}`;
const SOON = [5, 10, 15];

const task = (part = {}) => ({ task_id: ID, prompt: "a red circle", status: "QUEUED", version: 2, progress: 0, poll_after_ms: 100, ...part });
const json = (response, status, body, headers = {}) =>
  response.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(body));
const refuse = (response, status, code, headers = {}) =>
  json(response, status, { status, code, detail: `${code}!`, errors: [] }, { ...headers, "Content-Type": "application/problem+json" });

const sse = (event, data, id) => `${id === undefined ? "" : `id: ${id}\n`}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
const moved = (seq, to_status, part = {}) => sse("status", { seq, task_id: ID, to_status, from_status: null, ...part }, seq);
const open = (response) => {
  response.writeHead(200, { "Content-Type": "text/event-stream" });
  response.flushHeaders();
  return response;
};

/** A server whose every request goes to answer(request, response, body); all are in `seen`. */
async function serve(t, answer) {
  const seen = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const entry = { at: `${request.method} ${request.url}`, headers: request.headers, body: body && JSON.parse(body) };
    seen.push(entry);
    answer(request, response, seen.filter((e) => e.at === entry.at).length, entry);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => (server.closeAllConnections(), server.close()));
  const url = `http://127.0.0.1:${server.address().port}`;
  return { seen, url, server, count: (at) => seen.filter((e) => e.at.startsWith(at)).length };
}

const client = (server, part) => new Reeld({ url: server.url, key: "rk_test", waits: SOON, ...part });

async function take(events, count) {
  const got = [];
  for await (const event of events) if (got.push(event) === count) break;
  return got;
}

// ---- requests ----

test("a submit is repeated under one key, and another submit has another", async (t) => {
  const server = await serve(t, (request, response, n) => {
    if (n === 1) request.socket.destroy();
    else if (n === 2) refuse(response, 503, "UNAVAILABLE");
    else json(response, 202, task());
  });
  const reeld = client(server);
  assert.equal((await reeld.submit({ prompt: "x", seed: 7 })).task_id, ID);
  await reeld.submit({ prompt: "x", seed: 7 });
  assert.equal(server.seen.length, 4);
  const [first, second, third, other] = server.seen.map((e) => e.body);
  assert.match(first.idempotency_key, /^[0-9a-f]{32}$/);
  assert.deepEqual([first, second, third], Array(3).fill({ prompt: "x", seed: 7, idempotency_key: first.idempotency_key }));
  assert.notEqual(other.idempotency_key, first.idempotency_key);
  assert.equal(server.seen[0].headers["content-type"], "application/json");
});

test("a submit with a key given, and one with none", async (t) => {
  const server = await serve(t, (request, response) => request.socket.destroy());
  const reeld = client(server, { retries: 0 });
  const keys = async (...args) => {
    await assert.rejects(reeld.submit(...args), { status: 0, code: "NO_ANSWER" });
    return server.seen.at(-1).body.idempotency_key;
  };
  assert.equal(await keys({ prompt: "x" }, { idempotencyKey: "mine" }), "mine");
  assert.equal(await keys({ prompt: "x", idempotency_key: "inside" }), "inside");
  const before = server.seen.length;
  await assert.rejects(client(server).submit({ prompt: "x", idempotency: "off" }), { code: "NO_ANSWER" });
  assert.equal(server.seen.length, before + 1, "not safe to repeat");
  assert.deepEqual(server.seen.at(-1).body, { prompt: "x", idempotency: "off" });
});

test("the pauses are 1, 3 and 9 s and up to half more", async (t) => {
  const real = globalThis.setTimeout;
  const pauses = [];
  globalThis.setTimeout = (call, ms, ...rest) => {
    if (ms >= 1000 && ms <= 15_000) pauses.push(ms);
    return real(call, ms >= 1000 && ms <= 15_000 ? 0 : ms, ...rest);
  };
  t.after(() => (globalThis.setTimeout = real));
  let tries = 0;
  const fetch = async () => (tries++, Promise.reject(new TypeError("fetch failed")));
  await assert.rejects(new Reeld({ url: "http://127.0.0.1:1", fetch }).submit({ prompt: "x" }), { code: "NO_ANSWER" });
  assert.equal(tries, 4);
  assert.equal(pauses.length, 3);
  [1000, 3000, 9000].forEach((ms, i) => assert.ok(pauses[i] >= ms && pauses[i] <= ms * 1.5, `${pauses}`));
});

test("a refusal is an error with what the server said, at once", async (t) => {
  const errors = [{ field: "frames", code: "OUT_OF_RANGE", detail: "33 or 37" }];
  const server = await serve(t, (request, response) => {
    if (request.method === "POST") return json(response, 422, { code: "INVALID_FIELD", detail: "No.", errors });
    if (request.url.endsWith("/1")) return response.writeHead(500).end("<h1>oops");
    if (request.url.endsWith("/2")) return response.writeHead(200).end("<h1>a portal");
    refuse(response, 429, "TOO_MANY_REQUESTS", { "Retry-After": "7" });
  });
  const reeld = client(server);
  await assert.rejects(reeld.submit({ prompt: "x" }), (e) => {
    assert.ok(e instanceof ReeldError && e instanceof Error);
    assert.deepEqual([e.status, e.code, e.message, e.errors], [422, "INVALID_FIELD", "No.", errors]);
    return !e.lost;
  });
  await assert.rejects(reeld.get("1"), { status: 500, code: "HTTP_500", errors: [] });
  await assert.rejects(reeld.get("2"), { status: 200, code: "BAD_ANSWER" });
  await assert.rejects(reeld.get("3"), { status: 429, retryAfterMs: 7000, lost: false });
  assert.equal(server.seen.length, 4);
});

test("Retry-After is waited for", async (t) => {
  const server = await serve(t, (request, response, n) =>
    n === 1 ? refuse(response, 503, "UNAVAILABLE", { "Retry-After": "1" }) : json(response, 200, task()),
  );
  const began = Date.now();
  await client(server).get(ID);
  assert.ok(Date.now() - began >= 990);
});

test("an answer that does not come ends with the time limit, an abort with its reason", async (t) => {
  const server = await serve(t, () => {});
  let tries = 0;
  const counted = (...args) => (tries++, fetch(...args));
  await assert.rejects(client(server, { timeout: 50, retries: 1, fetch: counted }).get(ID), { code: "NO_ANSWER" });
  assert.equal(tries, 2);
  const stop = new AbortController();
  setTimeout(() => stop.abort(new Error("enough")), 30);
  await assert.rejects(client(server).get(ID, { signal: stop.signal }), { message: "enough" });
  await assert.rejects(client(server).get(ID, { signal: AbortSignal.abort(new Error("never")) }), { message: "never" });
});

test("addresses, keys, lists and cancels", async (t) => {
  const server = await serve(t, (request, response) => json(response, 200, { data: [], next: null }));
  const reeld = new Reeld({ url: `${server.url}/behind/`, key: " rk_test\n" });
  await reeld.list({ status: ["QUEUED", "PROCESSING"], limit: 5, after: "a+b", order: "asc" });
  await reeld.list({ status: "FAILED" });
  await reeld.list();
  await reeld.cancel("7", { mode: "hard" });
  await reeld.cancel("7");
  await reeld.get("../keys");
  assert.deepEqual(server.seen.map((e) => e.at), [
    "GET /behind/api/v1/tasks?status=QUEUED,PROCESSING&limit=5&after=a%2Bb&order=asc",
    "GET /behind/api/v1/tasks?status=FAILED",
    "GET /behind/api/v1/tasks",
    "POST /behind/api/v1/tasks/7/cancel",
    "POST /behind/api/v1/tasks/7/cancel",
    "GET /behind/api/v1/tasks/..%2Fkeys",
  ]);
  assert.deepEqual([server.seen[3].body, server.seen[4].body], [{ mode: "hard" }, {}]);
  assert.ok(server.seen.every((e) => e.headers.authorization === "Bearer rk_test"));
  await new Reeld({ url: server.url }).list();
  assert.equal(server.seen.at(-1).headers.authorization, undefined);
  assert.throws(() => new Reeld({ url: server.url, key: "a b" }), TypeError);
  assert.throws(() => new Reeld({ url: "file:///etc" }), TypeError);
  assert.throws(() => new Reeld(), TypeError);
});

// ---- waiting ----

test("wait follows the stream of the task to its end", async (t) => {
  const server = await serve(t, (request, response) => {
    if (request.url === TASK) return json(response, 200, task({ status: "SUCCEEDED", version: 4, progress: 100 }));
    open(response).write(": hello\n\n" + sse("snapshot", task(), 2) + moved(3, "PROCESSING"));
    response.write(sse("progress", { task_id: ID, phase: "denoise", step: 3, total_steps: 20, progress: 15, eta_seconds: 12 }));
    response.write(moved(4, "SUCCEEDED"));
  });
  const told = [];
  const done = await client(server).wait(ID, { onProgress: (p) => told.push(p) });
  assert.equal(done.status, "SUCCEEDED");
  assert.deepEqual(server.seen.map((e) => e.at), [`GET ${TASK}/events`, `GET ${TASK}`]);
  assert.equal(server.seen[0].headers.accept, "text/event-stream");
  assert.equal(server.seen[0].headers.authorization, "Bearer rk_test");
  assert.deepEqual(told.map((p) => p.status), ["QUEUED", "PROCESSING", "PROCESSING"]);
  assert.deepEqual(told[2], { task_id: ID, status: "PROCESSING", phase: "denoise", step: 3, total_steps: 20, progress: 15, eta_seconds: 12 });
});

test("wait answers at once for a task that has ended, and closes its stream", async (t) => {
  let closed;
  const gone = new Promise((done) => (closed = done));
  const server = await serve(t, (request, response) => {
    response.on("close", closed);
    open(response).write(sse("snapshot", task({ status: "CANCELED" }), 9));
  });
  assert.equal((await client(server).wait(ID)).status, "CANCELED");
  await gone;
  assert.equal(server.seen.length, 1);
});

test("wait resumes a cut stream where it broke, though the cut was inside an event", async (t) => {
  const server = await serve(t, (request, response, n) => {
    if (request.url === TASK) return json(response, 200, task({ status: "FAILED" }));
    open(response);
    if (n === 1) response.write(sse("snapshot", task(), 2) + moved(3, "PROCESSING") + "id: 4\nevent: status\ndata: {\"seq\":", () => response.destroy());
    else if (n === 2) request.socket.destroy();
    else response.write(moved(3, "PROCESSING") + moved(4, "FAILED"));
  });
  const told = [];
  const done = await client(server).wait(ID, { onProgress: (p) => told.push(p.status) });
  assert.equal(done.status, "FAILED");
  const streams = server.seen.filter((e) => e.at.endsWith("/events"));
  assert.deepEqual(streams.map((e) => e.headers["last-event-id"]), [undefined, "3", "3"]);
  assert.deepEqual(told, ["QUEUED", "PROCESSING"], "a repeat is not told again");
});

test("wait goes on when the task is under way again, and after a gap looks itself", async (t) => {
  const answers = ["QUEUED", "PROCESSING", "SUCCEEDED"];
  const server = await serve(t, (request, response) => {
    if (request.url === TASK) return json(response, 200, task({ status: answers.shift() }));
    open(response).write(sse("snapshot", task({ status: "PROCESSING" }), 2) + moved(3, "FAILED") + moved(4, "QUEUED"));
    response.write(sse("gap", { from: 5, to: 8 }, 8) + moved(9, "SUCCEEDED"));
  });
  assert.equal((await client(server).wait(ID)).status, "SUCCEEDED");
  assert.equal(server.count(`GET ${TASK}/events`), 1);
  assert.deepEqual(answers, []);
});

test("wait polls long when all streams are taken", async (t) => {
  const server = await serve(t, (request, response, n) => {
    if (request.url.endsWith("/events")) return refuse(response, 503, "UNAVAILABLE", { "Retry-After": "5" });
    if (request.url === TASK) return json(response, 200, task({ version: 2 }));
    if (request.url.endsWith("after_version=2")) return setTimeout(() => json(response, 200, task({ version: 3, status: "PROCESSING" })), 40);
    json(response, 200, task({ version: 4, status: "SUCCEEDED" }));
  });
  assert.equal((await client(server).wait(ID)).status, "SUCCEEDED");
  assert.deepEqual(server.seen.map((e) => e.at), [
    `GET ${TASK}/events`,
    `GET ${TASK}`,
    `GET ${TASK}?wait=30&after_version=2`,
    `GET ${TASK}?wait=30&after_version=3`,
  ]);
});

for (const [name, events, long] of [
  ["a server without streams", (r) => json(r, 200, { data: [], next: null }), (r) => json(r, 200, task())],
  ["a server that knows neither", (r) => refuse(r, 404, "NOT_FOUND"), (r) => refuse(r, 422, "INVALID_FIELD")],
  ["a server with no thread to spare", (r) => refuse(r, 503, "UNAVAILABLE"), (r) => refuse(r, 503, "UNAVAILABLE")],
]) {
  test(`wait asks at the pace that ${name} names`, async (t) => {
    const began = Date.now();
    const server = await serve(t, (request, response) => {
      if (request.url.endsWith("/events")) return events(response);
      const over = Date.now() - began > 450;
      if (request.url !== TASK && !over) return long(response);
      json(response, 200, task(over ? { status: "SUCCEEDED" } : {}));
    });
    assert.equal((await client(server).wait(ID)).status, "SUCCEEDED");
    assert.equal(server.count(`GET ${TASK}/events`), 1);
    assert.ok(server.seen.length >= 3 && server.seen.length <= 9, `${server.seen.length} requests`);
  });
}

test("wait outlives a server that is away, in every mode", async (t) => {
  const server = await serve(t, (request, response, n) => {
    if (request.url.endsWith("/events")) return n < 3 ? request.socket.destroy() : refuse(response, 503, "UNAVAILABLE");
    if (n < 8) return n % 2 ? request.socket.destroy() : refuse(response, 503, "UNAVAILABLE");
    json(response, 200, task({ status: "SUCCEEDED" }));
  });
  assert.equal((await client(server).wait(ID)).status, "SUCCEEDED");
  assert.equal(server.count(`GET ${TASK}/events`), 3);
});

test("a stream that falls silent is opened again", async (t) => {
  const server = await serve(t, (request, response, n) => {
    if (n === 1) return; // not even a head
    open(response);
    if (n === 2) response.write(sse("snapshot", task(), 2));
    else response.write(sse("snapshot", task({ status: "SUCCEEDED" }), 3));
  });
  assert.equal((await client(server, { silence: 100 }).wait(ID)).status, "SUCCEEDED");
  assert.ok(server.seen.length >= 3);
});

test("wait ends with a refusal, its time limit or the caller's signal", async (t) => {
  let status = 401;
  const server = await serve(t, (request, response) =>
    status ? refuse(response, status, "NO") : open(response).write(sse("snapshot", task(), 2)),
  );
  const reeld = client(server);
  await assert.rejects(reeld.wait(ID), { status: 401 });
  assert.equal(server.seen.length, 1);
  status = 404;
  await assert.rejects(reeld.wait(ID), { status: 404 });
  status = 0;
  await assert.rejects(reeld.wait(ID, { timeout: 60 }), { status: 0, code: "WAIT_TIMEOUT", lost: false });
  const stop = new AbortController();
  const onProgress = () => stop.abort(new Error("enough"));
  await assert.rejects(reeld.wait(ID, { signal: stop.signal, onProgress }), { message: "enough" });
  const bad = () => {
    throw new RangeError("the caller's own");
  };
  await assert.rejects(reeld.wait(ID, { onProgress: bad }), RangeError);
});

// ---- events ----

test("events come once and in order, whatever happens to the connection", async (t) => {
  const LAST = 300;
  let random = 1;
  const upTo = (n) => (random = (random * 48271) % 2147483647) % n;
  const server = await serve(t, (request, response) => {
    if (upTo(8) === 0) return refuse(response, 503, "UNAVAILABLE");
    if (upTo(8) === 0) return request.socket.destroy();
    const from = Math.max(1, Number(request.headers["last-event-id"]) + 1 - upTo(4)); // some again
    let text = "\uFEFF: hello\n\n";
    for (let seq = from; seq <= LAST; seq++) {
      text += moved(seq, "QUEUED", { reason: "Ünïcode 🎬 — fin" });
      if (upTo(5) === 0) text += ":\n\n" + sse("progress", { task_id: ID, progress: 1 }) + "event: news\ndata: x\n\n";
    }
    const bytes = Buffer.from(text.replaceAll("\n", ["\n", "\r\n", "\r"][upTo(3)]));
    const end = Math.min(bytes.length, upTo(6000));
    open(response).socket.setNoDelay(true);
    let at = 0;
    const step = () => {
      const next = Math.min(end, at + 1 + upTo(400));
      response.write(bytes.subarray(at, next));
      at = next;
      if (at < end) setImmediate(step);
      else if (upTo(2)) response.end();
      else setImmediate(() => response.destroy());
    };
    step();
  });
  const got = await take(client(server, { waits: [1] }).events({ after: 0 }), LAST);
  assert.deepEqual(got.map((e) => e.seq), Array.from({ length: LAST }, (_, i) => i + 1));
  assert.ok(got.every((e) => e.type === "status" && e.reason === "Ünïcode 🎬 — fin"));
  assert.ok(server.seen.length > 10, "there were cuts");
});

test("a stream reads the same wherever its bytes are split", async () => {
  for (const newline of ["\n", "\r\n", "\r"]) {
    const text = "\uFEFFid: 1\nevent:status\ndata: {\"seq\": 1,\ndata:\"reason\": \"é🎬\"}\nretry: 5\nnonsense\n\n:x\n\nid: 7\n\n" + moved(8, "QUEUED");
    const bytes = new TextEncoder().encode(text.replaceAll("\n", newline));
    for (let cut = 0; cut <= bytes.length; cut++) {
      const pieces = [bytes.slice(0, cut), bytes.slice(cut)];
      const asked = [];
      const fetch = async (url, init) => {
        asked.push(init.headers["Last-Event-ID"]);
        const body = new ReadableStream({
          pull: (c) => (pieces.length ? c.enqueue(pieces.shift()) : c.close()),
        });
        return new Response(body, { headers: { "Content-Type": "text/event-stream; charset=utf-8" } });
      };
      const reeld = new Reeld({ url: "http://127.0.0.1:1", waits: [1], fetch });
      const got = await take(reeld.events(), 2);
      assert.deepEqual([got[0].seq, got[0].reason, got[1].seq], [1, "é🎬", 8], `cut at ${cut}`);
      assert.deepEqual(asked, [undefined]);
    }
  }
});

test("what is asked for: the task, states, position; progress only on demand", async (t) => {
  const server = await serve(t, (request, response) => {
    const progress = sse("progress", { task_id: ID, progress: 15 });
    open(response).write(sse("snapshot", task(), 2) + progress + moved(3, "QUEUED") + progress + moved(4, "FAILED"));
  });
  const reeld = client(server);
  const types = (got) => got.map((e) => e.type).join(" ");
  assert.equal(types(await take(reeld.events({ taskId: ID, statuses: ["QUEUED", "FAILED"] }), 2)), "status status");
  assert.equal(types(await take(reeld.events({ progress: true, after: "1" }), 4)), "snapshot progress status progress");
  assert.deepEqual(server.seen.map((e) => [e.at, e.headers["last-event-id"]]), [
    [`GET ${TASK}/events?status=QUEUED,FAILED`, undefined],
    ["GET /api/v1/events", "1"],
  ]);
});

test("the events of a task end with the task", async (t) => {
  const server = await serve(t, (request, response, n) => {
    if (n === 3) return response.writeHead(204).end();
    open(response).end(n === 1 ? sse("snapshot", task(), 2) + moved(3, "PROCESSING") : moved(4, "FAILED"));
  });
  const got = [];
  for await (const event of client(server).events({ taskId: ID, progress: true })) got.push(event);
  assert.deepEqual(got.map((e) => e.tasks?.[0].task_id ?? e.seq), [ID, 3, 4]);
  assert.deepEqual(server.seen.map((e) => e.headers["last-event-id"]), [undefined, "3", "4"]);
});

test("the snapshot of all is a list", async (t) => {
  const two = { data: [task(), task({ task_id: "9" })], next: null };
  const server = await serve(t, (request, response) => open(response).write(sse("snapshot", two, 7)));
  const [event] = await take(client(server).events({ progress: true }), 1);
  assert.deepEqual(event, { type: "snapshot", tasks: two.data });
});

test("wait asks when the server says that nothing more will come", async (t) => {
  const server = await serve(t, (request, response, n) => {
    if (request.url === TASK) return json(response, 200, task({ status: "TIMEOUT" }));
    if (n === 1) open(response).end(sse("snapshot", task(), 2));
    else response.writeHead(204).end();
  });
  assert.equal((await client(server).wait(ID)).status, "TIMEOUT");
});

test("a gap is said, also one that only the client can know of", async (t) => {
  const server = await serve(t, (request, response, n) => {
    open(response);
    if (n === 1) response.end(); // gone before any position was known
    else if (n === 2) response.end(moved(50, "QUEUED") + sse("gap", { from: 51, to: 60 }, 60) + moved(61, "QUEUED"));
    else if (n === 3) response.end(sse("gap", {}, 10)); // another history: it begins lower
    else response.write(moved(11, "QUEUED"));
  });
  const states = [];
  const got = await take(client(server).events({ onState: (s) => states.push(s) }), 6);
  assert.deepEqual(got.map((e) => (e.type === "gap" ? `gap to ${e.to}` : e.seq)), ["gap to undefined", 50, "gap to 60", 61, "gap to undefined", 11]);
  assert.deepEqual(server.seen.map((e) => e.headers["last-event-id"]), [undefined, undefined, "61", "10"]);
  assert.deepEqual(states, ["live", "lost", "live", "lost", "live", "lost", "live"]);
});

test("a damaged event is asked for again", async (t) => {
  const server = await serve(t, (request, response, n) => {
    const broken = ["id: 2\nevent: status\ndata: {\"seq\": 2\n\n", sse("status", { seq: "x" }, 2), sse("status", null, 2)][n - 1];
    open(response).write(n === 1 ? moved(1, "QUEUED") + broken : (broken ?? moved(2, "QUEUED")));
  });
  const got = await take(client(server).events(), 2);
  assert.deepEqual(got.map((e) => e.seq), [1, 2]);
  assert.deepEqual(server.seen.map((e) => e.headers["last-event-id"]), [undefined, "1", "1", "1"]);
});

test("events wait for a free stream, and end with what waiting would not change", async (t) => {
  let answer;
  const server = await serve(t, (request, response, n) => answer(response, n));
  const reeld = client(server);
  answer = (r, n) => (n < 5 ? refuse(r, [503, 429, 502, 500][n - 1], "LATER") : open(r).write(moved(1, "QUEUED")));
  assert.equal((await take(reeld.events(), 1))[0].seq, 1);
  answer = (r) => refuse(r, 401, "UNAUTHORIZED");
  await assert.rejects(take(reeld.events(), 1), { status: 401 });
  answer = (r) => refuse(r, 404, "NOT_FOUND");
  await assert.rejects(take(reeld.events(), 1), { status: 404 });
  answer = (r) => json(r, 200, { data: [], next: null });
  await assert.rejects(take(reeld.events(), 1), { code: "NO_STREAM" });
});

test("leaving the loop and an abort both close the connection", async (t) => {
  let closed = 0;
  const gone = [];
  const server = await serve(t, (request, response) => {
    gone.push(new Promise((done) => response.on("close", done)).then(() => closed++));
    open(response).write(moved(1, "QUEUED"));
  });
  await take(client(server).events(), 1);
  const stop = new AbortController();
  const events = client(server).events({ signal: stop.signal });
  await events.next();
  setTimeout(() => stop.abort(new Error("enough")), 20);
  await assert.rejects(events.next(), { message: "enough" });
  assert.equal(gone.length, 2);
  await Promise.all(gone);
  assert.equal(closed, 2);
});

test("an event without end is not collected for ever", async (t) => {
  const server = await serve(t, (request, response, n) => {
    open(response);
    if (n > 1) return response.write(moved(1, "QUEUED"));
    const piece = "x".repeat(1 << 20);
    response.write("data: ");
    const more = () => !response.destroyed && response.write(piece, more);
    more();
  });
  assert.equal((await take(client(server).events({ after: 0 }), 1))[0].seq, 1);
  assert.equal(server.seen.length, 2);
});

// ---- callbacks ----

const SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const sign = (secret, id, time, body) =>
  `v1,${createHmac("sha256", secret.startsWith("whsec_") ? Buffer.from(secret.slice(6), "base64") : secret).update(`${id}.${time}.`).update(body).digest("base64")}`;
const now_s = () => Math.floor(Date.now() / 1000);
const delivery = (body, { time = now_s(), secret = SECRET, more = "" } = {}) => ({
  "webhook-id": "evt_1_1",
  "webhook-timestamp": String(time),
  "webhook-signature": more + sign(secret, "evt_1_1", time, body),
});

test("verifyWebhook knows the vector of the standard", async (t) => {
  const real = Date.now;
  Date.now = () => 1614265330_000;
  t.after(() => (Date.now = real));
  const headers = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  };
  assert.deepEqual(await verifyWebhook(headers, '{"test": 2432232314}', SECRET), { test: 2432232314 });
});

test("verifyWebhook takes headers and bodies as they come", async () => {
  const text = JSON.stringify({ type: "task.succeeded", task_id: ID, metadata: { word: "é🎬" } });
  const headers = delivery(text);
  const upper = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), [value]]));
  for (const given of [headers, upper, new Headers(headers)]) {
    for (const body of [text, Buffer.from(text), new TextEncoder().encode(text).buffer]) {
      assert.equal((await verifyWebhook(given, body, `${SECRET}\n`)).task_id, ID);
    }
  }
  const rotated = delivery(text, { more: `v1a,AAAA v1,!! v1, v1,${Buffer.alloc(32).toString("base64")} ` });
  assert.equal((await verifyWebhook(rotated, text, SECRET)).task_id, ID);
});

test("verifyWebhook refuses what does not hold", async () => {
  const body = '{"task_id":"1"}';
  const bad = (headers, text = body, secret = SECRET) =>
    assert.rejects(verifyWebhook(headers, text, secret), { status: 401, code: "BAD_SIGNATURE" });
  await verifyWebhook(delivery(body, { time: now_s() - 290 }), body, SECRET);
  await bad(delivery(body, { time: now_s() - 310 }));
  await bad(delivery(body, { time: now_s() + 310 }));
  await bad(delivery(body), '{"task_id":"2"}');
  await bad(delivery(body), body, `whsec_${Buffer.alloc(24, 1).toString("base64")}`);
  await bad({ ...delivery(body), "webhook-id": "evt_2_1" });
  await bad({ ...delivery(body), "webhook-signature": "v1,AAAA" });
  await bad({ ...delivery(body), "webhook-timestamp": `${now_s()}.0` });
  for (const name of Object.keys(delivery(body))) await bad({ ...delivery(body), [name]: undefined });
  await bad(delivery("not JSON"), "not JSON");
  for (const secret of ["", "whsec_", "whsec_???"]) await assert.rejects(verifyWebhook(delivery(body), body, secret), TypeError);
});

test("verifyWebhook takes a secret without whsec_ as its own bytes", async () => {
  const secret = "c2VjcmV0LXdvcmQ="; // which could be base64
  const body = '{"type":"endpoint.test","task_id":null}';
  assert.equal((await verifyWebhook(delivery(body, { secret }), body, `${secret}\n`)).type, "endpoint.test");
  await assert.rejects(verifyWebhook(delivery(body, { secret }), body, `whsec_${secret}`), { code: "BAD_SIGNATURE" });
});

test("the README's program runs", async (t) => {
  const readme = readFileSync(join(web, "../README.md"), "utf8");
  const [, program] = /^<!-- app\.mjs -->\n```js\n(.*?)^```$/ms.exec(readme);
  const folder = mkdtempSync(join(tmpdir(), "reeld-app-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const server = await serve(t, (request, response) => {
    if (request.url === "/client.js") return response.end(readFileSync(file));
    if (request.url === "/the-video") return response.end("moving pictures");
    if (request.method === "POST") return json(response, 202, task());
    const result_url = `${server.url}/the-video`;
    open(response).write(sse("snapshot", task(), 2) + sse("snapshot", task({ status: "SUCCEEDED", result_url }), 4));
  });
  const client_js = await (await fetch(`${server.url}/client.js`)).text();
  writeFileSync(join(folder, "reeld.mjs"), client_js);
  writeFileSync(join(folder, "app.mjs"), program);
  const env = { ...process.env, REELD_URL: server.url, REELD_API_KEY: "rk_test" };
  await promisify(execFile)(process.execPath, ["app.mjs"], { cwd: folder, env });
  assert.equal(readFileSync(join(folder, "circle.mp4"), "utf8"), "moving pictures");
  assert.equal(server.seen.at(-1).headers.authorization, "Bearer rk_test");
});

const has_flag = Number(process.versions.node.split(".")[0]) <= 22;

test("Node without a global crypto, as 18 is", () => {
  const body = '{"task_id":"1"}';
  const code = `
    if (globalThis.crypto) throw new Error("there is one");
    const { Reeld, verifyWebhook } = await import(${JSON.stringify(pathToFileURL(file))});
    const body = ${JSON.stringify(body)};
    let sent;
    const fetch = async (url, init) => ((sent = init.body), new Response("{}"));
    await new Reeld({ url: "http://127.0.0.1:1", fetch }).submit({ prompt: "x" });
    console.log(JSON.parse(sent).idempotency_key, (await verifyWebhook(${JSON.stringify(delivery(body))}, body, "${SECRET}")).task_id);`;
  const script = join(dist, "old.mjs"); // with -e there would be a global crypto after all
  writeFileSync(script, code);
  const args = ["--no-experimental-global-webcrypto", script];
  assert.match(execFileSync(process.execPath, args, { encoding: "utf8" }), /^[0-9a-f]{32} 1\n$/);
}, { skip: !has_flag });
