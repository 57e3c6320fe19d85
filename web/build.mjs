// Bundles the page: node build.mjs [--out DIR] [--deps DIR] [--c DIR]
//   --out   where index.html, app-<hash>.js, app-<hash>.css, favicon-<hash>.svg and the client
//           (client.js, client.d.ts) go (default dist)
//   --deps  the folder whose node_modules holds esbuild and preact (default: this folder)
//   --c     also write web_assets.h and web_assets.c there, the same files as C tables
// The same sources and dependencies give the same bytes, wherever the folders are.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { cHeader, cSource } from "./embed.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const { values: args } = parseArgs({
  options: { out: { type: "string" }, deps: { type: "string" }, c: { type: "string" } },
});
const out = resolve(args.out ?? join(here, "dist"));
const deps = resolve(args.deps ?? here);
const esbuild = createRequire(join(deps, "package.json"))("esbuild");

const hashed = (name, bytes) => {
  const hash = createHash("sha256").update(bytes).digest("hex").slice(0, 12);
  const dot = name.lastIndexOf(".");
  return `${name.slice(0, dot)}-${hash}${name.slice(dot)}`;
};

const result = await esbuild.build({
  absWorkingDir: here,
  entryPoints: { app: "src/app.tsx" },
  outdir: "out",
  write: false,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2020", "chrome100", "firefox100", "safari15.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  charset: "utf8",
  legalComments: "none",
  nodePaths: [join(deps, "node_modules")],
  logLevel: "warning",
});

// The client for other programs, as people will read it: one module, not minified.
const client = await esbuild.build({
  absWorkingDir: here,
  entryPoints: ["src/client.ts"],
  write: false,
  bundle: true,
  format: "esm",
  target: ["es2022", "node18", "chrome100", "firefox100", "safari15.4"],
  charset: "utf8",
  banner: { js: "// reeld: a client for browsers and Node 18 or newer.\n// @ts-self-types=\"./client.d.ts\"" },
  logLevel: "warning",
});

// Preact's licence asks to travel with every copy.
const licence = readFileSync(join(deps, "node_modules/preact/LICENSE"), "utf8").trim();
const assets = [];
const add = (name, type, text, immutable = true) => {
  const bytes = Buffer.from(text);
  const file = immutable ? hashed(name, bytes) : name;
  assets.push({ file, path: `/${file}`, type, bytes, immutable });
  return `/${file}`;
};
const built = (ext) => result.outputFiles.find((f) => f.path.endsWith(ext)).text;
const js = add(
  "app.js",
  "text/javascript; charset=utf-8",
  `${built(".js").trimEnd()}\n/*! This file contains Preact.\n${licence}\n*/\n`,
);
const css = add("app.css", "text/css; charset=utf-8", built(".css"));
const icon = add(
  "favicon.svg",
  "image/svg+xml",
  readFileSync(join(here, "src/favicon.svg"), "utf8"),
);
add("client.js", "text/javascript; charset=utf-8", client.outputFiles[0].text, false);
add("client.d.ts", "application/typescript; charset=utf-8", readFileSync(join(here, "client.d.ts"), "utf8"), false);
const html = readFileSync(join(here, "src/index.html"), "utf8")
  .replace("%JS%", js)
  .replace("%CSS%", css)
  .replace("%ICON%", icon);
assets.unshift({
  file: "index.html",
  path: "/",
  type: "text/html; charset=utf-8",
  bytes: Buffer.from(html),
  immutable: false,
});

mkdirSync(out, { recursive: true });
for (const name of readdirSync(out)) {
  if (/^(app|favicon)-[0-9a-f]{12}\.(js|css|svg)$/.test(name)) rmSync(join(out, name));
}
for (const asset of assets) writeFileSync(join(out, asset.file), asset.bytes);
if (args.c) {
  mkdirSync(args.c, { recursive: true });
  writeFileSync(join(args.c, "web_assets.h"), cHeader());
  writeFileSync(join(args.c, "web_assets.c"), cSource(assets));
}
const kib = (n) => `${(n / 1024).toFixed(1)} KiB`;
console.log(assets.map((a) => `${a.file} ${kib(a.bytes.length)}`).join(", "));
