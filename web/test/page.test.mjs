// The built page in a real browser against a server of the tests' own.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.mjs";
import { Api, KEY } from "./server.mjs";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const dist = mkdtempSync(join(tmpdir(), "reeld-dist-"));
let browser;
let api;
let page;

before(async () => {
  execFileSync(process.execPath, [join(web, "build.mjs"), "--out", dist], { stdio: "ignore" });
  browser = await Browser.start();
});

after(async () => {
  await browser?.close();
  rmSync(dist, { recursive: true, force: true });
});

beforeEach(async () => {
  api = await new Api(dist).listen();
});

afterEach(async () => {
  const problems = page?.problems ?? [];
  await page?.close();
  page = undefined;
  await api.close();
  assert.deepEqual(problems, [], "no exception, nothing against the content security policy");
});

const open = async (options) => {
  page = await browser.page(api.url, options);
  await page.until("document.querySelector('.link-live, .link-polling, .sign-in')");
};

for (const streaming of ["yes", "full", "unknown"]) {
  test(`a submitted prompt runs, moves and plays; streams: ${streaming}`, () => whole_life(streaming));
}

async function whole_life(streaming) {
  api.streaming = streaming;
  await open();
  await page.see(".link", streaming === "yes" ? "Live" : "Polling");
  await page.type("#prompt", "a red circle moving left");
  await page.see("#prompt-count", "24 of 32,768 bytes");
  await page.click(".segments label", "High");
  await page.click("button[type=submit]");
  await page.see(".row", "a red circle moving left");
  await page.see(".row", "Number 1 in the queue");
  assert.equal(api.submits.length, 1);
  const { prompt, priority, idempotency_key, ...rest } = api.submits[0];
  assert.deepEqual({ prompt, priority, rest }, { prompt: "a red circle moving left", priority: 10, rest: {} });
  assert.match(idempotency_key, /^[0-9a-f]{32}$/);
  assert.equal(await page.eval("document.querySelector('#prompt').value"), "");

  const [task] = api.tasks;
  api.move(task, "PROCESSING", { phase: "denoise", step: 3, total_steps: 20, progress: 15, eta_seconds: 12 });
  await page.see(".row .progress-text", "Denoising, step 3 of 20 · about 12 s left");
  await page.until("document.querySelector('.row progress').value === 15");
  api.progress(task, { step: 19, progress: 95 });
  await page.until("document.querySelector('.row progress').value === 95");

  api.move(task, "SUCCEEDED");
  await page.see(".row .badge", "Succeeded");
  await page.until("document.querySelector('.row img').naturalWidth > 0");
  await page.see(".unseen", "Succeeded");
  await page.click(".row-open");
  await page.until("document.querySelector('dialog video').readyState >= 1");
  assert.equal(
    await page.eval("new URL(document.querySelector('dialog video').src).pathname"),
    `/api/v1/tasks/${task.task_id}/video`,
  );
  await page.see(".history", "Running");
  await page.see("dialog .facts", "testpattern");
  assert.equal(
    await page.eval("document.querySelector('dialog a[download]').download"),
    `reeld-${task.task_id}.mp4`,
  );
  await page.press("Escape");
  await page.until("!document.querySelector('dialog').open && location.hash === ''");
}

test("while the stream is open nothing is asked in vain", async () => {
  const task = api.add({});
  api.move(task, "PROCESSING", { phase: "denoise", step: 1, total_steps: 20, progress: 1 });
  await open();
  await page.see(".link-live", "Live");
  await new Promise((done) => setTimeout(done, 500));
  const before = api.requests.length;
  for (let step = 2; step <= 20; step++) {
    api.progress(task, { step, progress: step * 4 });
    await page.see(".row .progress-text", `step ${step} of 20`);
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.ok(api.requests.length - before <= 1, api.requests.slice(before).join("\n"));
  await page.click(".row-open");
  api.progress(task, { step: 20, progress: 99 });
  await page.until("document.querySelector('dialog progress').value === 99");
  api.move(task, "FAILED", { error_code: "OUTPUT_INVALID", error_msg: "constant frames" });
  await page.see(".detail-state .badge", "Failed");
  await page.see("dialog .history", "Failed");
});

test("a stream that is cut is resumed, and what was missed is shown", async () => {
  const task = api.add({});
  await open();
  await page.see(".link-live");
  api.streaming = "full";
  api.cut();
  await page.see(".link-polling", "Polling");
  api.move(task, "PROCESSING", { phase: "denoise", step: 3, total_steps: 20, progress: 15 });
  await page.see(".badge", "Running");
  api.streaming = "yes";
  await page.see(".link-live", "Live");
  api.move(task, "CANCELED");
  await page.see(".badge", "Canceled");
});

test("a page that nobody sees holds no connection", async () => {
  const task = api.add({});
  await open();
  await page.see(".link-live");
  assert.equal(api.streams.size, 1);
  const show = (hidden) =>
    page.eval(`Object.defineProperty(document, "hidden", { value: ${hidden}, configurable: true });
      void document.dispatchEvent(new Event("visibilitychange"))`);
  await show(true);
  while (api.streams.size) await new Promise((done) => setTimeout(done, 20));
  api.move(task, "CANCELED");
  await show(false);
  await page.see(".badge", "Canceled");
  await page.see(".link-live");
  assert.equal(api.streams.size, 1);
});

test("the published client works in a browser by the session alone", async () => {
  await open();
  await page.see(".link-live");
  const waiting = page.eval(`(async () => {
    const { Reeld, ReeldError } = await import("/client.js");
    const reeld = new Reeld();
    const { task_id } = await reeld.submit({ prompt: "by the client", priority: 5 });
    const missing = await reeld.get("1").catch((e) => e);
    const done = await reeld.wait(task_id, { timeout: 15000 });
    return [missing instanceof ReeldError && missing.code, done.status, done.prompt];
  })()`);
  await page.see(".row-open", "by the client");
  while (api.streams.size < 2) await new Promise((done) => setTimeout(done, 20));
  api.move(api.tasks[0], "SUCCEEDED");
  assert.deepEqual(await waiting, ["NOT_FOUND", "SUCCEEDED", "by the client"]);
});

test("an error stands beside the field that it names", async () => {
  await open();
  api.refuse = {
    status: 422,
    code: "INVALID_FIELD",
    detail: "One field is wrong.",
    errors: [
      { field: "frames", code: "OUT_OF_RANGE", detail: "33 or 37 frames can be made, 34 cannot." },
      { field: "metadata", code: "TOO_LONG", detail: "too long" },
    ],
  };
  await page.type("#prompt", "x");
  await page.click("summary");
  await page.type("#frames", "34");
  await page.click("button[type=submit]");
  await page.see("#frames-error", "33 or 37 frames can be made, 34 cannot.");
  await page.until("document.activeElement.id === 'frames'");
  assert.match(await page.eval("document.activeElement.getAttribute('aria-describedby')"), /frames-error/);
  await page.see("[role=alert] .error", "metadata: too long");
  assert.equal(api.submits[0].frames, 34);
  await page.type("#frames", "33");
  await page.until("!document.querySelector('#frames-error')");
  await page.click("button[type=submit]");
  await page.see(".row");
  assert.notEqual(api.submits[0].idempotency_key, api.submits[1].idempotency_key);
});

test("the form offers what the chosen model takes", async () => {
  await open();
  await page.see("#choice option", "Default (testpattern · testcard)");
  await page.click("summary");
  await page.see("#width-hint", "32 to 2,048, in steps of 2");
  await page.see(".length", "Length: 2 s");
  assert.equal(await page.eval("document.querySelector('#steps')"), null);
  const choose = (key) => page.eval(`(() => {
    const e = document.querySelector("#choice");
    e.value = ${JSON.stringify(key)};
    e.dispatchEvent(new Event("change", { bubbles: true }));
  })()`);
  await choose("wan/starter");
  await page.see("#choice-doc", "a single coloured shape");
  await page.see("#steps-hint", "1 to 1,000");
  await page.see("#frames-hint", "always 17");
  const shown = "['width', 'frames', 'fps', 'steps'].map((id) => document.getElementById(id).placeholder)";
  assert.deepEqual(await page.eval(shown), ["256", "17", "8", "20"]);
  await choose("wan/wan2.1-t2v-1.3b");
  await page.see("#frames-hint", "1 to 81, in steps of 4");
  assert.deepEqual(await page.eval(shown), ["832", "81", "16", "50"]);
});

test("a submit is confirmed at the button, and its task is in the list", async () => {
  api.move(api.add({ prompt: "an old one" }), "FAILED");
  await open({ width: 360, height: 780 });
  await page.click(".chips button", "Failed");
  await page.see(".row-open", "an old one");
  await page.type("#prompt", "a new one");
  await page.click("button[type=submit]", "Make");
  await page.see(".made", "Submitted · show it");
  const box = await page.eval("document.querySelector('.made').getBoundingClientRect().toJSON()");
  assert.ok(box.top > 0 && box.bottom < 780, "in sight");
  await page.see(".chips [aria-pressed=true]", "All");
  await page.see(".row-open", "a new one");
  await page.click(".made a");
  await page.see("dialog .detail-prompt", "a new one");
  await page.click("dialog .close");
  await page.type("#prompt", "the next");
  await page.until("!document.querySelector('.made')");
});

test("what the page can tell is wrong is not sent", async () => {
  await open();
  await page.click("button[type=submit]");
  await page.see("#prompt-error", "Write what the video should show.");
  await page.type("#prompt", "x");
  await page.click("summary");
  await page.type("#seed", "-1");
  await page.click("button[type=submit]");
  await page.see("#seed-error", "whole number");
  assert.equal(api.submits.length, 0);
});

test("a refusal without a field is shown whole", async () => {
  await open();
  api.refuse = { status: 429, code: "TOO_MANY_PENDING_TASKS", detail: "100 tasks are waiting already." };
  await page.type("#prompt", "x");
  await page.click("button[type=submit]");
  await page.see("form .error", "100 tasks are waiting already.");
  assert.equal(await page.eval("document.querySelector('#prompt').value"), "x");
});

test("markup in a prompt is text", async () => {
  const prompt = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>`;
  api.move(api.add({ prompt }), "FAILED", { error_code: "ENGINE_ERROR", error_msg: "<b>bold</b>", reason: "<i>r</i>" });
  await open();
  await page.see(".row-open", prompt);
  await page.see(".row-note", "<b>bold</b>");
  await page.click(".row-open");
  await page.see(".detail-prompt", prompt);
  await page.see(".history", "<i>r</i>");
  assert.equal(await page.eval("window.hit === undefined && !document.querySelector('b, i, #app script')"), true);
});

test("sign in, a wrong key first, and out again", async () => {
  api.signed_in = false;
  api.add({});
  await open();
  await page.see(".sign-in", "reeld link");
  await page.type("#key", "rk_wrong");
  await page.click("button[type=submit]");
  await page.see("#key-error", "does not know this key");
  await page.type("#key", ` ${KEY} `);
  await page.click("button[type=submit]");
  await page.see(".who", "ada");
  await page.see(".row");
  await page.click(".top button", "Sign out");
  await page.see(".sign-in");
  assert.equal(await page.eval("document.querySelectorAll('.row').length"), 0);
});

test("a session that ends while the page is open asks to sign in", async () => {
  api.add({});
  await open();
  await page.see(".row");
  api.signed_in = false;
  await page.see(".sign-in");
});

const value = (selector) => page.eval(`document.querySelector(${JSON.stringify(selector)}).value`);

test("what is typed outlives the session, not a sign out", async () => {
  await open();
  await page.type("#prompt", "a long and careful prompt");
  await page.click("summary");
  await page.type("#seed", "7");
  api.signed_in = false;
  await page.click("button[type=submit]");
  await page.type("#key", KEY);
  await page.click("button[type=submit]", "Sign in");
  await page.see("#prompt");
  assert.equal(await value("#prompt"), "a long and careful prompt");
  await page.click("button[type=submit]", "Make");
  await page.see(".row");
  assert.equal(api.tasks[0].params.seed, "7");
  await page.type("#prompt", "mine");
  await page.click(".top button", "Sign out");
  await page.type("#key", KEY);
  await page.click("button[type=submit]", "Sign in");
  await page.see("#prompt");
  assert.equal(await value("#prompt") + await value("#seed"), "");
});

test("what is typed while a task is submitted stays", async () => {
  await open();
  const { answer, submit } = hold_submit();
  await page.type("#prompt", "the first");
  await page.click("button[type=submit]");
  await submit;
  await page.type("#prompt", "the second");
  answer();
  await page.see(".row-open", "the first");
  await page.see("button[type=submit]", "Make");
  assert.equal(await value("#prompt"), "the second");
});

/** Lets the next submit wait for an answer. */
function hold_submit() {
  const real = api.submit.bind(api);
  let answer;
  const submit = new Promise((come) => {
    api.submit = (body, response) => {
      api.submit = real;
      answer = () => real(body, response);
      come();
    };
  });
  return { submit, answer: () => answer() };
}

test("a lost server is said and found again", async () => {
  const task = api.add({});
  await open();
  await page.see(".row");
  api.down = true;
  await page.see(".banner", "does not answer");
  await page.see(".link", "Offline");
  await page.see(".row", "red circle");
  await page.type("#prompt", "in the dark");
  await page.click("button[type=submit]");
  await page.see("form .error", "Nothing is lost");
  api.move(task, "CANCELED");
  api.down = false;
  await page.see(".badge", "Canceled");
  await page.until("!document.querySelector('.banner')");
  await page.click("button[type=submit]");
  await page.see(".row-open", "in the dark");
});

test("the same body after no answer carries the same key, another one a new key", async () => {
  await open();
  await page.see(".empty");
  const submit = api.submit.bind(api);
  const trouble = (status, detail) =>
    (api.submit = (body, response) => {
      api.submits.push(body);
      api.submit = submit;
      response.writeHead(status, { "Content-Type": "application/problem+json" });
      response.end(JSON.stringify({ status, code: "TROUBLE", detail, errors: [] }));
    });
  const attempt = async (text, status = 0, detail = "") => {
    if (status) trouble(status, detail);
    if (text) await page.type("#prompt", text);
    await page.click("button[type=submit]", "Make");
    if (status) await page.see("form .error", detail);
    else await page.until("document.querySelector('#prompt').value === ''");
    return api.submits.at(-1).idempotency_key;
  };
  const first = await attempt("once", 503, "Starting again. Nothing is lost");
  assert.equal(await attempt("", 500, "Broken. Nothing is lost"), first, "a 500 may come after the task");
  await page.type("#prompt", "on");
  assert.equal(await attempt("once"), first, "typed over and back");
  const refused = await attempt("once", 429, "Too many.");
  assert.notEqual(refused, first, "it has become a task");
  const lost = await attempt("", 503, "Later.");
  assert.notEqual(lost, refused, "a refusal ends it");
  api.signed_in = false;
  await page.click("button[type=submit]", "Make");
  await page.type("#key", KEY);
  await page.click("button[type=submit]", "Sign in");
  assert.equal(await attempt("", 503, "Not yet."), lost, "signing in again does not");
  await page.click(".row-open");
  await page.click("dialog button", "Use these settings");
  await page.type("#prompt", "other");
  assert.notEqual(await attempt(""), lost, "other content");
});

test("cancel: at once while waiting, stopping while it runs", async () => {
  const running = api.add({ prompt: "running" });
  api.move(running, "PROCESSING", { phase: "denoise", step: 1, total_steps: 9 });
  const waiting = api.add({ prompt: "waiting" });
  await open();
  await page.click(`[data-task="${waiting.task_id}"] .cancel`);
  await page.see(`[data-task="${waiting.task_id}"] .badge`, "Canceled");
  await page.click(`[data-task="${running.task_id}"] .cancel`);
  await page.see(`[data-task="${running.task_id}"] .badge`, "Stopping");
  assert.equal(running.cancel_mode, "hard");
  api.move(running, "CANCELED");
  await page.see(`[data-task="${running.task_id}"] .badge`, "Canceled");
  assert.equal(await page.eval("document.querySelectorAll('.cancel').length"), 0);
});

test("what happens is announced, and the focus has somewhere to go", async () => {
  const [one, two, three] = ["one", "two", "three"].map((prompt) => api.add({ prompt }));
  api.move(three, "PROCESSING", { phase: "denoise" });
  await open();
  await page.eval(`window.heard = []; void new MutationObserver(() => heard.push(document.querySelector(".unseen").textContent.trim()))
    .observe(document.querySelector(".unseen"), { childList: true, characterData: true, subtree: true })`);
  const cancel = async (task) => {
    await page.see(`[data-task="${task.task_id}"] .cancel`);
    await page.eval(`(() => {
      const e = document.querySelector('[data-task="${task.task_id}"] .cancel');
      e.focus();
      e.click();
    })()`);
  };
  await cancel(three);
  await page.see(".unseen", "three: Stopping");
  await cancel(one);
  await page.see(".unseen", "one: Canceled");
  await page.until(`document.activeElement === document.querySelector('[data-task="${one.task_id}"] .row-open')`);
  await page.click(".chips button", "Waiting");
  await cancel(two);
  await page.until("!document.querySelector('.row')");
  await page.until("document.activeElement.innerText === 'Waiting'");
  await page.click(".chips button", "Running");
  await page.see(".row-open", "three");
  api.move(three, "SUCCEEDED");
  await page.see(".unseen", "three: Succeeded");
  for (let i = 0; i < 2; i++) {
    await page.type("#prompt", `again ${i}`);
    await page.click("button[type=submit]", "Make");
    await page.see(".row-open", `again ${i}`);
  }
  const heard = ["three: Stopping", "one: Canceled", "two: Canceled", "three: Succeeded", "Task submitted", "Task submitted"];
  assert.deepEqual((await page.eval("heard")).filter(Boolean), heard);
  await page.click(".top button", "Sign out");
  await page.see(".sign-in");
  assert.equal(await page.text(".unseen"), "");
});

test("a refused action is said until it is closed or the next one", async () => {
  const task = api.add({});
  for (let i = 0; i < 60; i++) api.move(api.add({ prompt: `clip ${i}` }), "SUCCEEDED");
  await open();
  const route = api.route.bind(api);
  let refuse = /cancel|after=|DELETE/;
  api.route = (method, url, body, request, response) => {
    if (!refuse?.test(`${method} ${url.pathname}${url.search}`)) return route(method, url, body, request, response);
    response.writeHead(500, { "Content-Type": "application/problem+json" });
    response.end(JSON.stringify({ status: 500, code: "INTERNAL", detail: "It broke.", errors: [] }));
  };
  const round = async () => {
    const seen = api.requests.length;
    api.move(api.tasks[0], "SUCCEEDED"); // an event: the page looks
    while (!api.requests.slice(seen).some((r) => r.startsWith("GET /api/v1/tasks"))) await new Promise((done) => setTimeout(done, 20));
    await new Promise((done) => setTimeout(done, 200));
  };
  await page.click(".more");
  await page.see(".refused", "No more tasks were loaded: It broke.");
  await round();
  await page.see(".refused", "It broke.");
  await page.see(".link-live");
  await page.click(".refused .close");
  await page.until("!document.querySelector('.refused')");
  await page.click(".top button", "Sign out");
  await page.see(".refused", "Not signed out: It broke.");
  await page.eval(`location.hash = 'task-${task.task_id}'`);
  await page.click("dialog .cancel");
  await page.see("dialog .refused", "Not canceled: It broke.");
  await round();
  await page.see("dialog .refused", "Not canceled: It broke.");
  refuse = null;
  await page.click("dialog .cancel");
  await page.see(".detail-state .badge", "Canceled");
  await page.until("!document.querySelector('.refused')");
});

test("filters and further pages", async () => {
  for (let i = 0; i < 120; i++) {
    api.move(api.add({ prompt: `clip ${i}` }), i % 10 ? "SUCCEEDED" : "FAILED", { error_msg: "no" });
  }
  await open();
  await page.until("document.querySelectorAll('.row').length === 50");
  await page.click(".more");
  await page.until("document.querySelectorAll('.row').length === 100");
  await page.click(".more");
  await page.until("document.querySelectorAll('.row').length === 120 && !document.querySelector('.more')");
  api.add({ prompt: "the newest" });
  await page.click("button[type=submit]"); // only an error: the list must keep its pages meanwhile
  await page.see("#prompt-error");
  await page.click(".chips button", "Failed");
  await page.until("document.querySelectorAll('.row').length === 12");
  assert.ok(api.requests.includes("GET /api/v1/tasks?status=FAILED,TIMEOUT&limit=50"));
  await page.click(".chips button", "Waiting");
  await page.see(".row", "the newest");
  await page.until("document.querySelectorAll('.row').length === 1");
});

test("a page left open keeps no more rows than were asked for", async () => {
  const make = (from, to) => {
    for (let i = from; i < to; i++) api.move(api.add({ prompt: `clip ${i}` }), "SUCCEEDED");
  };
  const rows = (n) => page.until(`document.querySelectorAll('.row').length === ${n}`);
  const newest = (i) => page.until(`document.querySelector('.row-open')?.innerText === 'clip ${i}'`);
  make(0, 130);
  await open();
  await rows(50);
  make(130, 150);
  await newest(149);
  await rows(50);
  await page.click(".more");
  await rows(100);
  make(150, 190);
  await newest(189);
  await rows(100);
  for (const n of [150, 190]) {
    await page.click(".more");
    await rows(n);
  }
  const names = await page.eval("[...document.querySelectorAll('.row-open')].map((e) => e.innerText)");
  assert.deepEqual(names, [...names.keys()].map((i) => `clip ${189 - i}`), "every row once, none left out");
});

test("an unfinished task beyond the first page is still followed", async () => {
  const old = api.add({ prompt: "old and slow" });
  for (let i = 0; i < 60; i++) api.move(api.add({ prompt: `clip ${i}` }), "SUCCEEDED");
  await open();
  await page.click(".more");
  await page.see(".row", "old and slow");
  api.move(old, "PROCESSING", { phase: "decode", step: 2, total_steps: 4, progress: 90 });
  await page.see(".row-processing", "Decoding frames, step 2 of 4");
  api.move(old, "SUCCEEDED");
  await page.see(`[data-task="${old.task_id}"] .badge`, "Succeeded");
});

test("the settings of a task go back into the form", async () => {
  const task = api.add({ prompt: "a blue square" });
  Object.assign(task, { priority: 1 });
  Object.assign(task.params, { engine: "wan", model: "starter", width: 256, height: 256, steps: 12, seed: 0, options: { frame_ms: 5 } });
  api.move(task, "FAILED", { error_code: "OUTPUT_INVALID", error_msg: "constant frames" });
  await open();
  await page.click(".row-open");
  await page.see(".detail-state", "OUTPUT_INVALID");
  await page.click("dialog button", "Use these settings");
  await page.until("!document.querySelector('dialog').open");
  await page.until("document.activeElement.id === 'prompt'");
  await page.click("button[type=submit]");
  await page.until("document.querySelectorAll('.row').length === 2");
  const { idempotency_key, ...body } = api.submits[0];
  assert.ok(idempotency_key);
  assert.deepEqual(body, {
    prompt: "a blue square",
    priority: 1,
    engine: "wan",
    model: "starter",
    width: 256,
    height: 256,
    frames: 33,
    fps: 16,
    steps: 12,
    seed: "0",
    options: { frame_ms: 5 },
  });
});

test("a link to a task opens it; one to no task says so", async () => {
  const task = api.add({ prompt: "linked" });
  page = await browser.page(`${api.url}#task-${task.task_id}`);
  await page.see("dialog", "linked");
  await page.eval("location.hash = 'task-1'");
  await page.see("dialog .error", "There is no such task.");
  await page.click("dialog .close");
  await page.until("!document.querySelector('dialog').open");
});

test("a link to a task opens it after the sign in that it needs", async () => {
  const task = api.add({ prompt: "linked" });
  api.signed_in = false;
  page = await browser.page(`${api.url}#task-${task.task_id}`);
  const sign_in = async () => {
    await page.type("#key", KEY);
    await page.click("button[type=submit]", "Sign in");
  };
  await sign_in();
  await page.see("dialog .detail-prompt", "linked");
  api.signed_in = false;
  api.move(task, "PROCESSING");
  await sign_in();
  await page.see("dialog .detail-prompt", "linked");
  await page.see(".detail-state .badge", "Running");
});

for (const width of [360, 1280]) {
  test(`nothing is wider than the window at ${width} px`, async () => {
    api.add({ prompt: "w".repeat(300) });
    api.move(api.add({ prompt: "x ".repeat(300) }), "FAILED", { error_msg: "y".repeat(300) });
    await open({ width, height: 800 });
    await page.see(".row");
    await page.click("summary");
    const fits = "document.documentElement.scrollWidth <= innerWidth";
    assert.equal(await page.eval(fits), true);
    await page.click(".row-open");
    await page.see("dialog .history");
    assert.equal(await page.eval(`${fits} && document.querySelector('dialog').scrollWidth <= innerWidth`), true);
  });
}
