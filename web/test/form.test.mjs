// The built page: the form, from what it offers to what is sent.
import assert from "node:assert/strict";
import { test } from "node:test";
import { api, open, page } from "./harness.mjs";
import { KEY } from "./server.mjs";

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
