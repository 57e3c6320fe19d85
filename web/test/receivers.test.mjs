// The README's two receivers of callbacks, as they stand there.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { createHmac } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const README = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
const block = (name) => README.split(`<!-- ${name} -->\n`)[1].split(/^```.*\n/m)[1];
const KEY = Buffer.from("0123456789abcdef01234567");
const BODIES = [
  { type: "task.succeeded", task_id: "7", result_url: "http://there", error_code: null },
  { type: "endpoint.test", task_id: null, endpoint_id: "3" },
];

async function free_port() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

function request(body, key) {
  const time = Math.floor(Date.now() / 1000);
  const mac = createHmac("sha256", key).update(`evt_1.${time}.${body}`).digest("base64");
  const headers = { "webhook-id": "evt_1", "webhook-timestamp": time, "webhook-signature": `v1,${mac}` };
  return { method: "POST", body, headers };
}

/** Asks until the program listens. */
async function post(url, init) {
  for (let tries = 0; ; tries++) {
    try {
      return (await fetch(url, init)).status;
    } catch (error) {
      if (tries === 200) throw error;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

for (const [name, program] of [["receiver.mjs", process.execPath], ["receiver.py", "python3"]]) {
  const skip = spawnSync(program, ["--version"]).error ? `no ${program}` : false;
  for (const [kind, secret, key] of [["encoded", `whsec_${KEY.toString("base64")}`, KEY], ["plain", "a-plain-secret", "a-plain-secret"]]) {
    test(`${name} with a secret that is ${kind}`, { skip }, async (t) => {
      const folder = mkdtempSync(join(tmpdir(), "reeld-receiver-"));
      t.after(() => rmSync(folder, { recursive: true, force: true }));
      writeFileSync(join(folder, name), block(name));
      const port = await free_port();
      const env = { ...process.env, REELD_SECRET: secret, PORT: String(port) };
      const child = spawn(program, [name], { cwd: folder, env, stdio: ["ignore", "pipe", "ignore"] });
      t.after(() => child.kill());
      let said = "";
      child.stdout.setEncoding("utf8").on("data", (text) => (said += text));
      const url = `http://127.0.0.1:${port}/`;
      for (const body of BODIES) assert.equal(await post(url, request(JSON.stringify(body), key)), 204);
      assert.equal(await post(url, request("{}", "another")), 401);
      for (let tries = 0; said.split("\n").length < 3 && tries < 200; tries++) await new Promise((done) => setTimeout(done, 20));
      assert.match(said, /^task\.succeeded 7 http:\/\/there\nendpoint\.test (null|None) /);
    });
  }
}
