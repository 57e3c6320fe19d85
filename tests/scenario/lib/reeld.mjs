// A real reeld server under test: start, stop, kill, ask, wait. Every server has a state folder of
// its own, listens on a free loopback port, and is ended by its own process id. Waiting is polling
// with a deadline; nothing sleeps for a fixed time and hopes.
//
// REELD_BIN   the binary (default: build/reeld of this tree)
// REELD_SLOW  1 = the binary is an instrumented build: deadlines are longer
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));

export const BIN = path.resolve(process.env.REELD_BIN ?? path.join(here, '../../../build/reeld'));
export const SLOW = process.env.REELD_SLOW === '1' || /san/.test(process.env.REELD_BUILD ?? '');
export const LONG = process.env.REELD_LONG === '1';

/** A deadline in ms, stretched for instrumented builds. */
export const ms = (n) => (SLOW ? n * 6 : n);

const TERMINAL = ['SUCCEEDED', 'FAILED', 'TIMEOUT', 'CANCELED'];
const COMPLAINTS = /ERROR: AddressSanitizer|ERROR: LeakSanitizer|runtime error:|WARNING: ThreadSanitizer/;

const children = new Set();
process.on('exit', () => {
    for (const child of children) child.kill('SIGKILL');
});
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(1));

export const tick = (time = 15) => new Promise((resolve) => setTimeout(resolve, time));

/** Calls fn until it returns something true; throws what it waited for when the time is over. */
export async function eventually(what, fn, timeout = 15000) {
    const until = Date.now() + ms(timeout);
    for (let pause = 5; ; pause = Math.min(pause * 1.5, 100)) {
        const value = await fn();
        if (value) return value;
        if (Date.now() > until) {
            const text = typeof what === 'function' ? await what() : what;
            throw new Error(`not within ${ms(timeout)} ms: ${text}`);
        }
        await tick(pause);
    }
}

/** The block of code that follows <!-- name --> in the README. */
export function readmeBlock(name) {
    const readme = fs.readFileSync(new URL('../../../README.md', import.meta.url), 'utf8');
    const [, after] = readme.split(`<!-- ${name} -->\n\`\`\``);
    assert.ok(after, `a block ${name}`);
    return after.slice(after.indexOf('\n') + 1, after.indexOf('\n```') + 1);
}

/** A folder that is gone after the test. */
export function tempDir(t) {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'reeld-scenario-'));
    t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    return dir;
}

/** Runs a program to its end: {code, signal, stdout, stderr}. */
export function run(file, args, { input, env, timeout = 60000, cwd } = {}) {
    return new Promise((resolve) => {
        const child = execFile(file, args,
            { env: { ...process.env, ...env }, maxBuffer: 64 << 20, timeout: ms(timeout), cwd },
            (error, stdout, stderr) => {
                children.delete(child);
                resolve({ code: error ? child.exitCode : 0, signal: child.signalCode, stdout, stderr });
            });
        children.add(child);
        child.stdin.on('error', () => {}); // a program that ends before it has read everything
        child.stdin.end(input ?? '');
    });
}

/** A command of reeld itself. */
export async function reeld(args, options) {
    const result = await run(BIN, args, options);
    assert.doesNotMatch(result.stderr, COMPLAINTS);
    return result;
}

/** Rows of a query on a server's database, as objects. Read only. */
export async function sql(file, query) {
    const { code, stdout, stderr } = await run('sqlite3', ['-readonly', '-json', file, query]);
    assert.equal(code, 0, stderr);
    return stdout.trim() ? JSON.parse(stdout) : [];
}

export class Server {
    /** under: a command that starts it, e.g. ['env', '--ignore-signal=HUP']; it must exec. */
    constructor(t, { dir, set = {}, args = [], env = {}, listen = '127.0.0.1:0', under = [] }) {
        Object.assign(this, { t, dir: dir ?? tempDir(t), set, args, env, listen, under });
        this.defaults = { 'engine.default': 'testpattern' }; // deterministic, and as fast as asked for
        this.stdout = '';
        this.stderr = '';
        this.child = null;
        this.exits = []; // {code, signal} of every process so far
    }

    /** Starts the process and waits until it listens; rejects with its exit and stderr otherwise. */
    async start({ set } = {}) {
        assert.equal(this.child, null, 'already running');
        if (set) this.set = set;
        const options = Object.entries({ ...this.defaults, ...this.set }).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
        const [command, ...args] = [...this.under, BIN, 'serve', '--state-dir', this.dir, '--listen', this.listen, ...options, ...this.args];
        const child = spawn(command, args,
            { env: { ...process.env, ...this.env }, stdio: ['ignore', 'pipe', 'pipe'] });
        children.add(child);
        this.child = child;
        this.stdout = '';
        const mark = this.stderr.length;
        child.stdout.setEncoding('utf8').on('data', (text) => (this.stdout += text));
        child.stderr.setEncoding('utf8').on('data', (text) => (this.stderr += text));
        this.exited = new Promise((resolve) => {
            child.on('close', (code, signal) => {
                children.delete(child);
                this.child = null;
                this.exits.push({ code, signal });
                resolve({ code, signal });
            });
        });
        const listening = /listening on http:\/\/([0-9.]+):(\d+)/;
        await eventually(() => `listening: ${this.stdout}${this.stderr.slice(mark)}`,
            () => listening.test(this.stdout) || this.child === null, 20000);
        const match = listening.exec(this.stdout);
        if (!match) {
            const { code, signal } = await this.exited;
            const error = new Error(`the server ended with ${signal ?? code}: ${this.stderr.slice(mark)}`);
            throw Object.assign(error, { code, signal, stderr: this.stderr.slice(mark) });
        }
        this.port = Number(match[2]);
        this.url = `http://${match[1]}:${match[2]}`;
        this.pid = child.pid;
        this.key = fs.readFileSync(path.join(this.dir, 'owner.key'), 'utf8').trim();
        return this;
    }

    get db() {
        return path.join(this.dir, 'reeld.db');
    }

    /** SIGTERM, and a clean end. */
    async stop({ signal = 'SIGTERM', code = 0, timeout = 30000 } = {}) {
        if (!this.child) return;
        this.child.kill(signal);
        await this.ended(timeout);
        const end = await this.exited;
        assert.deepEqual(end, { code, signal: null }, `exit after ${signal}\n${this.tail()}`);
    }

    /** kill -9, as a power cut would. */
    async kill9() {
        this.child.kill('SIGKILL');
        await this.ended(5000);
    }

    /** Waits until the process has ended, by whatever cause. */
    async ended(timeout = 15000) {
        await eventually(() => `the server ends\n${this.tail()}`, () => this.child === null, timeout);
        return this.exited;
    }

    tail(lines = 25) {
        return this.stderr.split('\n').slice(-lines).join('\n');
    }

    complaints() {
        return COMPLAINTS.exec(this.stderr);
    }

    waitLog(pattern, timeout) {
        return eventually(() => `log line ${pattern}\n${this.tail()}`,
            () => pattern.exec(this.stderr), timeout);
    }

    /** One request: {status, headers, body, text, json}. key: null sends none. */
    api(method, target, { body, key = this.key, headers = {}, timeout = 30000 } = {}) {
        const all = { ...headers };
        if (key) all.authorization ??= `Bearer ${key}`;
        let bytes = body;
        if (body !== undefined && !Buffer.isBuffer(body)) {
            bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
            all['content-type'] ??= 'application/json';
        }
        if (bytes !== undefined) all['content-length'] ??= bytes.length;
        return new Promise((resolve, reject) => {
            const request = http.request(
                { host: '127.0.0.1', port: this.port, method, path: target, headers: all, agent: false },
                (response) => {
                    const parts = [];
                    response.on('data', (part) => parts.push(part)).on('error', reject);
                    response.on('end', () => {
                        const whole = Buffer.concat(parts);
                        const text = whole.toString('utf8');
                        let json;
                        if (/json/.test(response.headers['content-type'] ?? '') && text) json = JSON.parse(text);
                        resolve({ status: response.statusCode, headers: response.headers, body: whole, text, json });
                    });
                });
            request.setTimeout(ms(timeout), () => request.destroy(new Error(`${method} ${target}: no answer`)));
            request.on('error', reject);
            request.end(bytes);
        });
    }

    get(target, options) {
        return this.api('GET', target, options);
    }

    post(target, body, options = {}) {
        return this.api('POST', target, { body, ...options });
    }

    /** A new task from a body: the task object. Anything but 202 fails the test. */
    async submit(body, options) {
        const answer = await this.post('/api/v1/tasks', body, options);
        assert.equal(answer.status, 202, answer.text);
        assert.equal(answer.headers.location, `/api/v1/tasks/${answer.json.task_id}`);
        return answer.json;
    }

    async task(id, options) {
        const answer = await this.get(`/api/v1/tasks/${id}`, options);
        assert.equal(answer.status, 200, answer.text);
        return answer.json;
    }

    /** The task once it is in one of these states. */
    async until(id, states = TERMINAL, timeout = 30000) {
        const wanted = [states].flat();
        let last;
        await eventually(() => `task ${id} ${wanted}: ${JSON.stringify(last)}\n${this.tail()}`, async () => {
            last = await this.task(id);
            if (!wanted.includes(last.status) && TERMINAL.includes(last.status))
                throw new Error(`task ${id} is ${last.status} ${last.error_code}, not ${wanted}: ${last.error_msg}`);
            return wanted.includes(last.status);
        }, timeout);
        return last;
    }

    /** The task once it has made this many frames (and is still running). */
    async frame(id, count) {
        let last;
        await eventually(() => `frame ${count} of ${id}: ${JSON.stringify(last)}`, async () => {
            last = await this.task(id);
            assert.ok(['QUEUED', 'PROCESSING'].includes(last.status), last.status);
            return last.phase === 'denoise' && last.step >= count;
        });
        return last;
    }

    done(id, timeout) {
        return this.until(id, 'SUCCEEDED', timeout);
    }

    /** The task once its callback is decided. */
    async called(id, status, timeout = 20000) {
        let last;
        await eventually(() => `callback of ${id} ${status}: ${last.callback_status}`, async () => {
            last = await this.task(id);
            return last.callback_status === status;
        }, timeout);
        return last;
    }

    async events(id, options) {
        const answer = await this.get(`/api/v1/tasks/${id}/events?limit=200`, options);
        assert.equal(answer.status, 200, answer.text);
        return answer.json.data;
    }

    /** Every task id, oldest first. */
    async ids(query = '') {
        const all = [];
        for (let after = ''; ;) {
            const page = await this.get(`/api/v1/tasks?order=asc&limit=200${query}${after}`);
            assert.equal(page.status, 200, page.text);
            all.push(...page.json.data.map((task) => task.task_id));
            if (!page.json.next) return all;
            after = `&after=${page.json.next}`;
        }
    }

    /** Makes an app's key; returns {key, key_id}. */
    async addKey(user, role = 'app') {
        const answer = await this.post('/api/v1/keys', { user, role });
        assert.equal(answer.status, 201, answer.text);
        return answer.json;
    }

    results() {
        return fs.readdirSync(path.join(this.dir, 'results')).sort();
    }
}

/** A running server that ends with the test: cleanly, and without a word from a sanitizer. */
export async function serve(t, options = {}) {
    let server; // hooks run in this order: it stops before its folder goes
    t.after(async () => {
        try {
            await server.stop();
        } finally {
            if (server.child) await server.kill9();
        }
        assert.equal(server.complaints(), null, server.tail(80));
    });
    server = new Server(t, options);
    await server.start();
    return server;
}

/** A body that takes a blink to render. */
export const small = (prompt, more = {}) =>
    ({ prompt, width: 64, height: 48, frames: 4, fps: 8, ...more });

/** A body whose run takes about frames × frame_ms. */
export const slow = (prompt, { frames = 40, frame_ms = 100, options = {}, ...more } = {}) =>
    ({ ...small(prompt, more), frames, options: { frame_ms, ...options } });

const MOVES = {
    null: ['CREATED'],
    CREATED: ['QUEUED', 'FAILED', 'CANCELED'],
    QUEUED: ['QUEUED', 'PROCESSING', 'FAILED', 'TIMEOUT', 'CANCELED'],
    PROCESSING: ['QUEUED', 'SUCCEEDED', 'FAILED', 'TIMEOUT', 'CANCELED'],
    FAILED: ['QUEUED'],
    TIMEOUT: ['QUEUED'],
};

/** Fails unless these events are one unbroken path through the states that ends in `status`. */
export function assertLegalHistory(events, status) {
    let at = null;
    let seq = 0;
    for (const event of events) {
        assert.equal(event.from_status, at, JSON.stringify(events));
        assert.ok(MOVES[at]?.includes(event.to_status), `${at} → ${event.to_status}`);
        assert.ok(event.seq > seq, 'seq grows');
        assert.match(event.timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
        seq = event.seq;
        at = event.to_status;
    }
    assert.equal(at, status, JSON.stringify(events));
}

/** The states a history went through, in order. */
export const statesOf = (events) => events.map((event) => event.to_status);

/** Fails unless the answer is a problem document with this status and code (and field). */
export function assertProblem(answer, status, code, field) {
    assert.equal(answer.status, status, answer.text);
    assert.equal(answer.headers['content-type'], 'application/problem+json');
    const problem = answer.json;
    assert.deepEqual(Object.keys(problem).sort(), ['code', 'detail', 'errors', 'status', 'title', 'type']);
    assert.equal(problem.status, status);
    assert.equal(problem.code, code, answer.text);
    assert.ok(problem.detail.length > 0 && problem.title.length > 0);
    if (field !== undefined) {
        assert.equal(problem.errors.length, 1, answer.text);
        assert.equal(problem.errors[0].field, field, answer.text);
        assert.equal(problem.errors[0].code, code);
        assert.ok(problem.errors[0].detail.length > 0);
    }
}

/** Bytes to the server and everything it answers until it closes; `done(text)` ends it sooner. */
export function rawExchange(port, bytes, { done, timeout = 10000, end = false } = {}) {
    return new Promise((resolve, reject) => {
        const socket = net.connect(port, '127.0.0.1');
        let text = '';
        const finish = () => {
            socket.destroy();
            resolve(text);
        };
        socket.setTimeout(ms(timeout), () => {
            socket.destroy();
            reject(new Error(`no end of the answer; so far: ${text}`));
        });
        socket.setEncoding('latin1');
        socket.on('data', (part) => {
            text += part;
            if (done?.(text)) finish();
        });
        socket.on('close', finish);
        socket.on('error', (error) => (text || error.code === 'ECONNRESET' || error.code === 'EPIPE'
            ? finish() : reject(error)));
        socket.on('connect', async () => {
            for (const part of [bytes].flat()) {
                if (typeof part === 'function') await part(() => text, socket);
                else if (!socket.destroyed) socket.write(part);
            }
            if (end) socket.end();
        });
    });
}

/** Status codes of the answers in the text of a connection, 100 Continue included. */
export const statuses = (text) => [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map((match) => Number(match[1]));
