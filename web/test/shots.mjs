// Pictures of the page in every state, to look at: node test/shots.mjs DIR
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { Browser } from "./browser.mjs";
import { Api } from "./server.mjs";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");
const dir = resolve(process.argv[2] ?? join(web, "dist/shots"));
mkdirSync(dir, { recursive: true });
execFileSync(process.execPath, [join(web, "build.mjs"), "--out", join(dir, "page")]);

const api = await new Api(join(dir, "page")).listen();
const done = api.add({ prompt: "a lighthouse at dusk, its lamp turning slowly over a calm sea" }, 7300);
api.move(done, "SUCCEEDED", { started_at: new Date(Date.now() - 14_000).toISOString() });
api.move(api.add({ prompt: "a red circle moving left" }, 3700), "SUCCEEDED");
api.move(api.add({ prompt: "ten thousand paper lanterns rising", params: { ...done.params } }, 900), "TIMEOUT", {
  error_code: "PROCESSING_TIMEOUT",
  error_msg: "The run took longer than 600 s.",
});
api.move(api.add({ prompt: "a map that folds itself into a boat" }, 640), "CANCELED");
const failed = api.add({ prompt: "static" }, 300);
api.move(failed, "FAILED", { error_code: "OUTPUT_INVALID", error_msg: "Every frame has the same colour everywhere." });
api.move(
  api.add({ prompt: "a green square and a yellow triangle crossing paths, the square passes in front, then both fade to the colour of the wall behind them and leave only shadows" }, 42),
  "PROCESSING",
  { phase: "denoise", step: 14, total_steps: 30, progress: 47, eta_seconds: 16 },
);
api.add({ prompt: "two blue circles bouncing" }, 20);
api.add({ prompt: "snow falling on a tin roof", queue_position: 2, priority: 1 }, 4);
api.add({ prompt: "the reference picture, in motion", status: "CREATED", queue_position: null }, 1);

const browser = await Browser.start();
for (const [width, height] of [
  [1280, 900],
  [360, 780],
]) {
  for (const dark of [false, true]) {
    const page = await browser.page(api.url, { width, height, dark });
    const shot = async (name) => {
      await new Promise((r) => setTimeout(r, 500));
      writeFileSync(join(dir, `${name}-${width}-${dark ? "dark" : "light"}.png`), await page.screenshot());
    };
    await page.see(".row");
    await page.type("#prompt", "a red circle moving left");
    await shot("home");
    await page.eval("document.querySelector('.tasks').scrollIntoView()");
    await shot("list");
    await page.eval("scrollTo(0, 0)");
    await page.click("summary");
    await page.type("#frames", "34");
    api.refuse = { status: 422, code: "INVALID_FIELD", detail: "", errors: [{ field: "frames", code: "", detail: "Not 34: the nearest are 33 and 37." }] };
    await page.click("button[type=submit]");
    await page.see("#frames-error");
    await shot("form");
    await page.eval(`location.hash = 'task-${done.task_id}'`);
    await page.until("document.querySelector('dialog video').readyState >= 1");
    await shot("detail");
    await page.eval("document.querySelector('dialog').scrollTo(0, 9999)");
    await shot("history");
    await page.eval(`location.hash = 'task-${failed.task_id}'`);
    await page.see("dialog", "OUTPUT_INVALID");
    await shot("failed");
    await page.press("Escape");
    api.down = true;
    await page.see(".banner");
    await page.eval("scrollTo(0, 0)");
    await shot("lost");
    api.down = false;
    await page.until("!document.querySelector('.banner')");
    api.signed_in = false;
    await page.see(".sign-in");
    await shot("sign-in");
    api.signed_in = true;
    await page.close();
  }
}
await browser.close();
await api.close();
