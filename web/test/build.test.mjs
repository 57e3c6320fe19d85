// The build: the same bytes each time, and the C tables hold the files.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";

const web = join(dirname(fileURLToPath(import.meta.url)), "..");

function build(folder) {
  const args = [join(web, "build.mjs"), "--out", join(folder, "dist"), "--c", join(folder, "gen")];
  execFileSync(process.execPath, args, { stdio: "ignore", cwd: folder });
  const all = {};
  for (const part of ["dist", "gen"]) {
    for (const name of readdirSync(join(folder, part))) all[name] = readFileSync(join(folder, part, name));
  }
  return all;
}

test("two builds are equal and the tables decode to the files", () => {
  const root = mkdtempSync(join(tmpdir(), "reeld-build-"));
  try {
    const first = build(mkdtempSync(join(root, "a-")));
    const second = build(mkdtempSync(join(root, "another-")));
    assert.deepEqual(first, second);
    const c = first["web_assets.c"].toString();
    const bytes = (name) =>
      Buffer.from(new RegExp(`${name}\\[\\] = \\{\\n([^}]*)\\}`).exec(c)[1].split(",").slice(0, -1).map(Number));
    const rows = [...c.matchAll(/\{"(\/[^"]*)", "([^"]+)", bytes_([0-9]+),.*(true|false)\},/g)];
    assert.equal(rows.length, 6);
    const names = ["/", "/client.js", "/client.d.ts"];
    for (const [, path, , n, immutable] of rows) {
      const file = first[path === "/" ? "index.html" : path.slice(1)];
      assert.deepEqual(bytes(`bytes_${n}`), file);
      if (c.includes(`gzip_${n}[]`)) assert.deepEqual(gunzipSync(bytes(`gzip_${n}`)), file);
      assert.equal(immutable, String(!names.includes(path)));
    }
    const html = first["index.html"].toString();
    assert.doesNotMatch(html, /<style|style=|<script(?![^>]* src=)| on[a-z]+=/);
    for (const [, path] of rows) if (!names.includes(path)) assert.ok(html.includes(`"${path}"`), path);
    assert.match(c, /"\/client\.js", "text\/javascript; charset=utf-8"/);
    assert.doesNotMatch(first["client.js"].toString(), /^import |\bfrom "/m, "one file");
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

test("the styles work in the oldest browsers that the build is for", () => {
  const css = readFileSync(join(web, "src/app.css"), "utf8");
  assert.doesNotMatch(css, /color-mix\(/, "Chrome 111, Firefox 113, Safari 16.2");
  const guarded = /@supports selector\(:has\(a\)\) \{\n(?:  .*\n|\n)*\}\n/g;
  assert.match(css.match(guarded)?.join("") ?? "", /outline: none/);
  assert.doesNotMatch(css.replace(guarded, ""), /outline: none/, "Firefox before 121 has no :has()");
});

test("the lock file names no place to download from", () => {
  assert.doesNotMatch(readFileSync(join(web, "package-lock.json"), "utf8"), /"resolved"/);
});

test("client.d.ts is what the client's sources say, and serves a strict program", () => {
  const folder = mkdtempSync(join(tmpdir(), "reeld-types-"));
  try {
    execFileSync(process.execPath, [join(web, "types.mjs"), join(folder, "fresh.d.ts")]);
    assert.equal(readFileSync(join(web, "client.d.ts"), "utf8"), readFileSync(join(folder, "fresh.d.ts"), "utf8"), "run: npm run types");
    copyFileSync(join(web, "client.d.ts"), join(folder, "client.d.ts"));
    writeFileSync(
      join(folder, "app.ts"),
      `import { Reeld, ReeldError, verifyWebhook, type Task } from "./client.js";
      const reeld = new Reeld({ url: "http://127.0.0.1:8080", key: "k" });
      const task: Task = await reeld.submit({ prompt: "x", seed: 7 }, { idempotencyKey: "one" });
      const done = await reeld.wait(task.task_id, { onProgress: (p) => console.log(p.progress, p.status), timeout: 5 });
      for await (const event of reeld.events({ statuses: ["FAILED"] })) {
        if (event.type === "status") console.log(event.seq + 1, done.video?.bytes);
      }
      for await (const event of reeld.events({ progress: true })) if (event.type === "snapshot") event.tasks[0]?.prompt;
      // @ts-expect-error: there is no such field
      await reeld.submit({ prompt: "x", fames: 3 });
      const page = await reeld.list({ status: ["QUEUED"] });
      await reeld.cancel(page.data[0]!.task_id, { mode: "hard" });
      const callback = await verifyWebhook(new Headers(), "", "");
      if (callback.type === "endpoint.test") callback.endpoint_id.length; else callback.attempt + 1;
      try { (await verifyWebhook(new Headers(), "", "")).task_id; } catch (e) { if (e instanceof ReeldError) e.errors[0]?.field; }
      `,
    );
    const options = "--strict --noEmit --target es2022 --module esnext --moduleResolution bundler --lib es2022,dom".split(" ");
    const tsc = join(web, "node_modules/typescript/bin/tsc");
    execFileSync(process.execPath, [tsc, ...options, join(folder, "app.ts")], { encoding: "utf8", stdio: "pipe" });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
