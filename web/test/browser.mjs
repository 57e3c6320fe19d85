// A headless Chromium, driven over --remote-debugging-pipe: no port and no library.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const DEADLINE_MS = 20_000;

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.profile = mkdtempSync(join(tmpdir(), "reeld-web-"));
    browser.child = spawn(
      process.env.CHROMIUM ?? "/usr/bin/chromium",
      [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-default-apps",
        "--mute-audio",
        `--user-data-dir=${browser.profile}`,
        "--remote-debugging-pipe",
        "about:blank",
      ],
      { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] },
    );
    browser.waiting = new Map();
    browser.pages = new Map();
    browser.last = 0;
    let rest = "";
    const fail = (why) => {
      for (const { reject } of browser.waiting.values()) reject(new Error(why));
      browser.waiting.clear();
    };
    browser.child.on("error", (e) => fail(`chromium does not start: ${e.message}`));
    browser.gone = new Promise((done) => {
      browser.child.on("exit", () => {
        fail("chromium has gone");
        done();
      });
    });
    browser.child.stdio[3].on("error", () => {});
    browser.child.stdio[4].setEncoding("utf8").on("data", (chunk) => {
      const parts = (rest + chunk).split("\0");
      rest = parts.pop();
      for (const part of parts) browser.receive(JSON.parse(part));
    });
    return browser;
  }

  receive(message) {
    const { id, sessionId, result, error } = message;
    if (id === undefined) {
      this.pages.get(sessionId)?.receive(message);
      return;
    }
    const call = this.waiting.get(id);
    this.waiting.delete(id);
    if (error) call?.reject(new Error(error.message));
    else call?.resolve(result);
  }

  send(method, params = {}, sessionId) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
  }

  async page(url, { width = 1280, height = 900, dark = false } = {}) {
    const { browserContextId } = await this.send("Target.createBrowserContext");
    const { targetId } = await this.send("Target.createTarget", {
      url: "about:blank",
      browserContextId,
    });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const page = new Page(this, sessionId, browserContextId);
    this.pages.set(sessionId, page);
    for (const domain of ["Page", "Runtime", "Log"]) await page.send(`${domain}.enable`);
    await page.send("Emulation.setDeviceMetricsOverride", {
      width,
      height,
      deviceScaleFactor: 1,
      mobile: false,
    });
    await page.send("Emulation.setEmulatedMedia", {
      features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }],
    });
    await page.send("Page.navigate", { url });
    return page;
  }

  async close() {
    await Promise.race([this.send("Browser.close").catch(() => {}), this.gone]);
    await this.gone;
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

class Page {
  constructor(browser, sessionId, contextId) {
    Object.assign(this, { browser, sessionId, contextId });
    this.problems = []; // exceptions and breaches of the content security policy
  }

  receive({ method, params }) {
    if (method === "Runtime.exceptionThrown") {
      const { exception, text } = params.exceptionDetails;
      this.problems.push(exception?.description ?? text);
    }
    if (method === "Log.entryAdded" && params.entry.source === "security") {
      this.problems.push(params.entry.text);
    }
  }

  send(method, params) {
    return this.browser.send(method, params, this.sessionId);
  }

  async eval(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression,
      returnByValue: true,
      awaitPromise: true,
    });
    if (exceptionDetails) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    }
    return result.value;
  }

  /** Wait until the expression is true in the page. Watches every frame inside the page itself. */
  async until(expression) {
    const found = await this.eval(`new Promise((done) => {
      const end = Date.now() + ${DEADLINE_MS};
      const look = () => {
        let found = false;
        try { found = Boolean(${expression}); } catch {}
        if (found || Date.now() > end) done(found);
        else setTimeout(look, 20);
      };
      look();
    })`);
    if (!found) {
      const text = await this.eval("document.body.innerText");
      throw new Error(`never true: ${expression}\nthe page says:\n${text}`);
    }
  }

  /** Wait until the element is there and holds the text. */
  see(selector, text = "") {
    const find = `[...document.querySelectorAll(${JSON.stringify(selector)})]`;
    return this.until(`${find}.some((e) => e.innerText.includes(${JSON.stringify(text)}))`);
  }

  text(selector) {
    return this.eval(`document.querySelector(${JSON.stringify(selector)})?.innerText ?? null`);
  }

  /** A real click in the middle of the element, once it has stopped moving. */
  async click(selector, text = "") {
    await this.see(selector, text);
    const { x, y } = await this.eval(`(async () => {
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      const place = () => {
        const e = [...document.querySelectorAll(${JSON.stringify(selector)})]
          .find((e) => e.innerText.includes(${JSON.stringify(text)}));
        e.scrollIntoView({ block: "nearest" });
        const r = e.getBoundingClientRect();
        return { x: r.x + r.width / 2, y: r.y + r.height / 2 };
      };
      for (let last = place(); ; ) {
        await frame();
        await frame();
        const now = place();
        if (now.x === last.x && now.y === last.y) return now;
        last = now;
      }
    })()`);
    for (const type of ["mousePressed", "mouseReleased"]) {
      await this.send("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1 });
    }
  }

  /** Replace what a field holds, as a person who types would. */
  async type(selector, text) {
    await this.see(selector);
    await this.eval(`(() => {
      const e = document.querySelector(${JSON.stringify(selector)});
      e.focus();
      e.select();
    })()`);
    await this.send("Input.insertText", { text });
  }

  async press(key) {
    for (const type of ["keyDown", "keyUp"]) {
      await this.send("Input.dispatchKeyEvent", { type, key, code: key, windowsVirtualKeyCode: KEYS[key] });
    }
  }

  async screenshot() {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" });
    return Buffer.from(data, "base64");
  }

  async close() {
    this.browser.pages.delete(this.sessionId);
    await this.browser.send("Target.disposeBrowserContext", { browserContextId: this.contextId });
  }
}

const KEYS = { Escape: 27, Enter: 13, Tab: 9 };
