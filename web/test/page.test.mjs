// The built page: the life of a task, the list, the session and the link to the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, open, page } from "./harness.mjs";
import { KEY } from "./server.mjs";

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

test("times are told as people tell them", async () => {
  const at = (ms) => new Date(Date.now() + ms).toISOString();
  const times = { started_at: at(-7_190_000), finished_at: at(0) };
  const made = api.add({ prompt: "made" });
  api.move(made, "SUCCEEDED", times);
  Object.assign(made, times);
  const later = 3 * 86_400_000;
  api.add({ prompt: "later", queue_position: null, run_at: at(later), not_before: at(later) });
  api.add({ prompt: "again", queue_position: null, retry_count: 1, not_before: at(later) });
  api.add({ prompt: "next", eta_seconds: 0, not_before: at(-1000) });
  api.move(api.add({ prompt: "nearly" }), "PROCESSING", { phase: "mux", eta_seconds: 0 });
  await open();
  await page.see(".row");
  const notes = await page.eval("[...document.querySelectorAll('.row-note, .progress-text')].map((e) => e.innerText)");
  const date = new Date(Date.now() + later).getFullYear();
  assert.equal(notes[0], "Writing the video");
  assert.equal(notes[1], "Number 1 in the queue");
  assert.match(notes[2], new RegExp(`^Tries again at .*${date}`));
  assert.match(notes[3], new RegExp(`^Starts at .*${date}`));
  assert.equal(notes[4], "Made in 2 h");
});

test("a link to a task opens it; one to no task says so", async () => {
  const task = api.add({ prompt: "linked" });
  await open({}, `#task-${task.task_id}`);
  await page.see("dialog", "linked");
  await page.eval("location.hash = 'task-1'");
  await page.see("dialog .error", "There is no such task.");
  await page.click("dialog .close");
  await page.until("!document.querySelector('dialog').open");
});

test("a link to a task opens it after the sign in that it needs", async () => {
  const task = api.add({ prompt: "linked" });
  api.signed_in = false;
  await open({}, `#task-${task.task_id}`);
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
