// The built page while it stays open: the server goes and comes back, others act, lists grow.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, open, page } from "./harness.mjs";
import { ENGINES, KEY } from "./server.mjs";

const tick = (ms) => new Promise((done) => setTimeout(done, ms));
const made = (from, to) => {
  for (let i = from; i < to; i++) api.move(api.add({ prompt: `clip ${i}` }), "SUCCEEDED");
};
const rows = (n) => page.until(`document.querySelectorAll('.row').length === ${n}`);
const show = (hidden) =>
  page.eval(`Object.defineProperty(document, "hidden", { value: ${hidden}, configurable: true });
    void document.dispatchEvent(new Event("visibilitychange"))`);

/** Requests that match get this answer until it is taken back: a status, or a promise to wait for. */
function instead(pattern, answer) {
  const route = api.route.bind(api);
  api.route = async (method, url, body, request, response) => {
    if (!pattern.test(`${method} ${url.pathname}${url.search}`)) return route(method, url, body, request, response);
    if (typeof answer === "number") return response.writeHead(answer).end();
    await answer;
    route(method, url, body, request, response);
  };
  return () => (api.route = route);
}

test("an open dialog tells what happens, too", async () => {
  const task = api.add({ prompt: "seen close" });
  api.move(task, "PROCESSING", { phase: "denoise", step: 1, total_steps: 9 });
  await open();
  await page.click(".row-open");
  await page.see("dialog .detail-prompt", "seen close");
  await page.click("dialog .cancel");
  await page.see("dialog .unseen", "seen close: Stopping");
  api.down = true;
  api.cut();
  await page.see("dialog .banner", "does not answer");
  assert.equal(await page.eval("document.querySelectorAll('.banner').length"), 1);
  api.down = false;
  await page.until("!document.querySelector('.banner')");
  api.move(task, "CANCELED");
  await page.see("dialog .unseen", "seen close: Canceled");
});

test("a finished task beyond the first page is followed when it is replayed", async () => {
  const old = api.add({ prompt: "old and failed" });
  api.move(old, "FAILED", { error_code: "ENGINE_ERROR", error_msg: "no" });
  made(0, 60);
  await open();
  await page.click(".more");
  await page.see(".row", "old and failed");
  await page.click(`[data-task="${old.task_id}"] .row-open`);
  await page.see(".detail-state .badge", "Failed");
  api.move(old, "QUEUED", { round: 2, finished_at: null });
  await page.see(".detail-state .badge", "Queued");
  await page.see("dialog .history", "Queued");
  api.move(old, "SUCCEEDED");
  await page.see(".detail-state .badge", "Succeeded");
  await page.see(`[data-task="${old.task_id}"] .badge`, "Succeeded");
});

test("so are many at once", async () => {
  const old = [...Array(25).keys()].map((i) => api.add({ prompt: `old ${i}` }));
  for (const task of old) api.move(task, "SUCCEEDED");
  made(0, 60);
  await open();
  await page.click(".more");
  await rows(85);
  for (const task of old) api.move(task, "FAILED", { error_code: "ENGINE_ERROR", error_msg: "no" });
  await page.until("document.querySelectorAll('.row .badge-failed').length === 25");
});

test("a server that is gone is said also to who comes by a link to a task", async () => {
  const task = api.add({ prompt: "by a link" });
  api.down = true;
  await open({}, `#task-${task.task_id}`);
  await page.see(".banner", "does not answer");
  api.down = false;
  await page.see("dialog .detail-prompt", "by a link");
});

test("what was loaded while a look was under way stays", async () => {
  made(0, 120);
  await open();
  await page.click(".chips button", "Succeeded");
  await rows(50);
  let go;
  const restore = instead(/status=CREATED,QUEUED,PROCESSING/, new Promise((done) => (go = done)));
  const seen = api.requests.length;
  api.add({ prompt: "an event" });
  while (!api.requests.slice(seen).some((r) => r.includes("status=CREATED,QUEUED,PROCESSING"))) await tick(20);
  await page.click(".more");
  await rows(100);
  restore();
  go();
  await tick(500);
  await rows(100);
  await page.click(".more");
  await rows(120);
});

test("posters and players that failed to load are tried again", async () => {
  made(0, 1);
  const media = instead(/poster|video/, 503);
  await open();
  await page.see(".row .leader");
  await page.click(".row-open");
  await page.see("dialog .error", "could not be loaded");
  media();
  await page.click("dialog .error button", "Try again");
  await page.until("document.querySelector('dialog video').readyState >= 1");
  await page.press("Escape");
  assert.equal(await page.eval("document.querySelector('.row img')"), null);
  api.down = true;
  api.cut();
  await page.see(".banner", "does not answer");
  api.down = false;
  await page.until("document.querySelector('.row img')?.naturalWidth > 0");
});

test("models that have come or gone while the page was open", async () => {
  await open();
  await page.click("summary");
  await page.eval(`(() => {
    const e = document.querySelector("#choice");
    e.value = "wan/starter";
    e.dispatchEvent(new Event("change", { bubbles: true }));
  })()`);
  await page.type("#steps", "20.5");
  await page.type("#prompt", "x");
  await page.click("button[type=submit]");
  await page.see("#steps-error", "whole number");
  const [wan, test] = ENGINES.data;
  api.engines = { data: [test, { ...wan, models: [wan.models[1]] }], next: null };
  api.cut(); // as a server does that starts anew
  await page.until("[...document.querySelectorAll('#choice option')].every((e) => e.value !== 'wan/starter')");
  await page.click("button[type=submit]");
  await page.see("#choice-error", "wan · starter");
  await page.eval(`(() => {
    const e = document.querySelector("#choice");
    e.value = "";
    e.dispatchEvent(new Event("change", { bubbles: true }));
  })()`);
  await page.click("button[type=submit]");
  await page.see(".row");
  const { prompt, engine, steps } = api.submits[0];
  assert.deepEqual({ prompt, engine, steps }, { prompt: "x", engine: undefined, steps: undefined }, "a field that is not there says nothing");
  assert.equal(api.submits.length, 1);
});

test("mending one of two wrong fields keeps the focus in it", async () => {
  await open();
  await page.click("summary");
  await page.type("#seed", "-1");
  await page.click("button[type=submit]");
  await page.see("#seed-error");
  await page.until("document.activeElement.id === 'prompt'");
  await page.type("#prompt", "a");
  await page.until("!document.querySelector('#prompt-error')");
  await tick(50);
  assert.equal(await page.eval("document.activeElement.id"), "prompt");
  await page.see("#seed-error");
});

test("somebody else who signs in with another tab does not see or send what was the first one's", async () => {
  api.add({ prompt: "of ada" });
  await open();
  await page.see(".row", "of ada");
  await page.type("#prompt", "ada's draft");
  await show(true);
  api.user = "bob";
  api.tasks = [];
  api.add({ prompt: "of bob" });
  await show(false);
  await page.see(".who", "bob");
  await page.see(".row", "of bob");
  assert.equal(await page.eval("document.querySelector('#prompt').value"), "");
});

test("an answer that was under way at a sign out is not shown to the next one", async () => {
  api.add({ prompt: "of ada" });
  await open();
  await page.see(".row", "of ada");
  let go;
  const restore = instead(/GET .*tasks\?/, new Promise((done) => (go = done)));
  const seen = api.requests.length;
  api.add({ prompt: "of ada, too" });
  while (!api.requests.slice(seen).some((r) => r.startsWith("GET /api/v1/tasks?"))) await tick(20);
  await page.click(".top button", "Sign out");
  await page.see(".sign-in");
  restore();
  const later = instead(/GET .*tasks\?/, new Promise(() => {}));
  go();
  await page.type("#key", KEY);
  await page.click("button[type=submit]", "Sign in");
  await page.see(".who");
  await tick(300);
  assert.equal(await page.eval("document.querySelectorAll('.row').length"), 0);
  later();
});

test("the focus goes on when what had it has gone", async () => {
  const on = (what) => page.until(`document.activeElement === document.querySelector(${JSON.stringify(what)})`);
  const press = async (selector, text = "") => {
    await page.see(selector, text);
    await page.eval(`(() => {
      const e = [...document.querySelectorAll(${JSON.stringify(selector)})].find((e) => e.innerText.includes(${JSON.stringify(text)}));
      e.focus();
      e.click();
    })()`);
  };
  made(0, 60);
  api.signed_in = false;
  await open();
  await page.type("#key", KEY);
  await press("button[type=submit]", "Sign in");
  await on("#prompt");
  await rows(50);
  await press(".more");
  await rows(60);
  await on(".row:nth-child(51) .row-open");
  const restore = instead(/DELETE/, 500);
  await press(".top button", "Sign out");
  await press(".refused .close");
  await on(".chips [aria-pressed=true]");
  restore();
  await press(".top button", "Sign out");
  await on("#key");
});
