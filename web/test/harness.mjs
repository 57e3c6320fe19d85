// The built page in a real browser against a server of the tests' own: what the test files share.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, afterEach, before, beforeEach } from "node:test";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.mjs";
import { Api } from "./server.mjs";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const dist = mkdtempSync(join(tmpdir(), "reeld-dist-"));
let browser;
export let api;
export let page;

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

export const open = async (options, hash = "") => {
  page = await browser.page(api.url + hash, options);
  await page.until("document.querySelector('.link-live, .link-polling, .link-lost, .sign-in')");
};
