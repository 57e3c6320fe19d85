// The build: the same bytes each time, and the C tables hold the files.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
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
    assert.equal(rows.length, 4);
    for (const [, path, , n, immutable] of rows) {
      const file = first[path === "/" ? "index.html" : path.slice(1)];
      assert.deepEqual(bytes(`bytes_${n}`), file);
      if (c.includes(`gzip_${n}[]`)) assert.deepEqual(gunzipSync(bytes(`gzip_${n}`)), file);
      assert.equal(immutable, String(path !== "/"));
    }
    const html = first["index.html"].toString();
    assert.doesNotMatch(html, /<style|style=|<script(?![^>]* src=)| on[a-z]+=/);
    for (const [, path] of rows.slice(1)) assert.ok(html.includes(`"${path}"`), path);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

test("the lock file names no place to download from", () => {
  assert.doesNotMatch(readFileSync(join(web, "package-lock.json"), "utf8"), /"resolved"/);
});
