// The command line as scripts use it: JSON through pipes, exit codes, files.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { BIN, SLOW, eventually, reeld, serve, slow, small, sql, tempDir } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

const quick = ['--size', '64x48', '--frames', '4', '--fps', '8'];

/** A command against this server; fails unless it ends with `code`. */
async function cli(server, args, { code = 0, ...options } = {}) {
    const end = args.includes('--') ? args.indexOf('--') : args.length;
    const result = await reeld([...args.slice(0, end), '--state-dir', server.dir, ...args.slice(end)], options);
    assert.equal(result.code, code, `${args.join(' ')}: ${result.stdout}${result.stderr}`);
    return result;
}

const json = async (server, args, options) => JSON.parse((await cli(server, args, options)).stdout);

test('submit --wait prints the finished task, saves the video, and says by its exit how it went', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on' } });
    const file = path.join(tempDir(t), 'red.mp4');
    const { stdout, stderr } = await cli(server, ['submit', '--wait', '--output', file, ...quick, '--seed', '5',
        '--label', 'mine', '--metadata', '{"n":1}', '--priority', 'high', '--', 'a red circle moving left']);
    const task = JSON.parse(stdout);
    assert.equal(stdout.trim().split('\n').length, 1, 'nothing but JSON');
    assert.equal(stderr, '', 'no progress bar into a pipe');
    assert.deepEqual([task.status, task.prompt, task.params.seed, task.label, task.priority, task.metadata.n],
        ['SUCCEEDED', 'a red circle moving left', 5, 'mine', 10, 1]);
    const bytes = fs.readFileSync(file);
    assert.equal(crypto.createHash('sha256').update(bytes).digest('hex'), task.video.sha256);
    const failed = await json(server, ['submit', '--wait', ...quick, '--max-retries', '0', '--option', 'fault=fail', 'fails'], { code: 1 });
    assert.deepEqual([failed.status, failed.error_code], ['FAILED', 'ENGINE_ERROR']);
});

test('submit: from standard input, from a JSON file, with a key', async (t) => {
    const server = await serve(t);
    const piped = await json(server, ['submit', ...quick], { input: 'from a pipe\n' });
    assert.equal(piped.prompt, 'from a pipe');
    assert.equal(piped.status, 'QUEUED');
    const dash = await json(server, ['submit', ...quick, '-'], { input: 'two\nlines' });
    assert.equal(dash.prompt, 'two\nlines');
    const file = path.join(tempDir(t), 'body.json');
    fs.writeFileSync(file, JSON.stringify(small('from a file', { seed: 9 })));
    assert.equal((await json(server, ['submit', '--json', file])).params.seed, 9);
    const first = await json(server, ['submit', '--idempotency-key', 'k', ...quick, 'keyed']);
    const again = await json(server, ['submit', '--idempotency-key', 'k', ...quick, 'keyed']);
    assert.equal(again.task_id, first.task_id);
    const twice = [await json(server, ['submit', ...quick, 'same']), await json(server, ['submit', ...quick, 'same'])];
    assert.notEqual(twice[0].task_id, twice[1].task_id, 'two commands are two wishes');
});

test('get, list, cancel, watch, events, video', async (t) => {
    const server = await serve(t);
    const running = await server.submit(slow('watched', { frames: SLOW ? 90 : 20 }));
    const queued = await server.submit(small('queued'));
    await server.until(running.task_id, 'PROCESSING');
    assert.equal((await json(server, ['list', '--status', 'QUEUED'])).data.length, 1);
    assert.equal((await json(server, ['cancel', queued.task_id])).status, 'CANCELED');
    assert.equal((await json(server, ['get', running.task_id])).status, 'PROCESSING');
    const list = await json(server, ['list']);
    assert.deepEqual(list.data.map((task) => task.task_id), [queued.task_id, running.task_id]);
    const page = await json(server, ['list', '--limit', '1']);
    assert.equal((await json(server, ['list', '--limit', '1', '--after', page.next])).data[0].task_id, running.task_id);
    assert.equal((await json(server, ['list', '--all'])).data.length, 2);

    const watched = await cli(server, ['watch', '--json', running.task_id]);
    const lines = watched.stdout.trim().split('\n').map((line) => JSON.parse(line));
    assert.deepEqual(lines.map((event) => event.to_status), ['CREATED', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    assert.equal((await cli(server, ['watch', queued.task_id], { code: 1 })).code, 1, 'it did not succeed');
    const history = await json(server, ['events', running.task_id]);
    assert.equal(history.data.length, 4);

    const cwd = tempDir(t);
    await cli(server, ['video', running.task_id], { cwd });
    const file = path.join(cwd, `${running.task_id}.mp4`);
    assert.equal(fs.statSync(file).size, (await server.task(running.task_id)).video.bytes);
    const again = await server.submit(slow('stopped', { frames: 600 }));
    await server.until(again.task_id, 'PROCESSING');
    assert.equal((await json(server, ['cancel', '--hard', again.task_id])).cancel_mode, 'hard');
    await server.until(again.task_id, 'CANCELED');
});

test('exit codes: 2 for wrong words, 3 for a refusal, 4 for no server', async (t) => {
    const server = await serve(t);
    for (const args of [['submit', '--nosuch', 'x'], ['submit', 'a', 'b'], ['submit', '--frames', 'many', 'x'],
        ['submit', '--size', '64', 'x'], ['submit', '--metadata', '[1]', 'x'], ['submit', '--output', 'f.mp4', 'x'],
        ['get'], ['get', 'abc'], ['get', '1', '2'], ['cancel'], ['list', '--limit', '0'], ['key', 'add'],
        ['key', 'revoke', 'x'], ['backup'], ['watch', '1x']]) {
        const { stdout, stderr } = await cli(server, args, { code: 2 });
        assert.equal(stdout, '', args.join(' '));
        assert.match(stderr, /^reeld: /);
    }
    for (const args of [[], ['nosuch'], ['--nosuch'], ['key'], ['key', 'nosuch'], ['serve', 'word'], ['serve', '--set', 'nosuch=1'],
        ['serve', '--set', 'http.threads=many'], ['serve', '--listen', 'nowhere'], ['--print-config', '--set', 'x']]) {
        const { code, stderr } = await reeld(args);
        assert.equal(code, 2, args.join(' '));
        assert.notEqual(stderr, '');
    }
    assert.match((await reeld(['sumbit'])).stderr, /did you mean 'submit'/);
    assert.match((await reeld(['serve', '--set', 'http.thread=20'])).stderr, /http\.threads/);

    const bad = await cli(server, ['submit', '--frames', '0', 'x'], { code: 3 });
    assert.match(bad.stderr, /422 INVALID_FIELD: frames:/);
    await cli(server, ['get', '123'], { code: 3 });
    await cli(server, ['submit', ''], { code: 3 });
    const done = await server.done((await server.submit(small('done'))).task_id);
    assert.match((await cli(server, ['cancel', done.task_id], { code: 3 })).stderr, /409 TASK_FINISHED/);
    const wrong = await reeld(['list', '--url', server.url, '--key', 'rk_wrong']);
    assert.equal(wrong.code, 3);
    assert.match(wrong.stderr, /401/);

    assert.equal((await reeld(['list', '--url', 'http://127.0.0.1:1', '--key', 'x'])).code, 4);
    assert.equal((await reeld(['list', '--state-dir', tempDir(t)])).code, 4);
    await server.kill9();
    const lost = await cli(server, ['list'], { code: 4 });
    assert.match(lost.stderr, /no answer from|is the server running/);
    await server.start();
});

test('the server is found by option, environment or folder', async (t) => {
    const server = await serve(t);
    const { key } = await server.addKey('alice');
    const empty = { REELD_URL: '', REELD_API_KEY: '', REELD_STATE_DIR: '' };
    const list = async (args, env) => {
        const result = await reeld(['list', ...args], { env: { ...empty, ...env } });
        assert.equal(result.code, 0, result.stderr);
    };
    await list(['--url', server.url, '--key', key]);
    await list([], { REELD_URL: server.url, REELD_API_KEY: key });
    await list([], { REELD_STATE_DIR: server.dir });
    await list(['--url', `${server.url}/`, '--key', key], { REELD_URL: 'http://127.0.0.1:1' });
    const stranger = await reeld(['list', '--url', server.url], { env: empty });
    assert.equal(stranger.code, 3, 'no key: refused');
});

test('keys, link, secret, engines', async (t) => {
    const server = await serve(t);
    const { stdout } = await cli(server, ['key', 'add', '--user', 'alice', '--label', 'her app']);
    const key = stdout.trim();
    assert.match(stdout, /^rk_[A-Za-z0-9_-]{43}\n$/, 'only the key');
    assert.equal((await server.get('/api/v1/tasks', { key })).status, 200);
    const { data } = await json(server, ['key', 'list']);
    const row = data.find((entry) => entry.user_id === 'alice');
    assert.deepEqual([row.role, row.label], ['app', 'her app']);
    await cli(server, ['key', 'revoke', row.key_id]);
    assert.equal((await server.get('/api/v1/tasks', { key })).status, 401);
    await cli(server, ['key', 'revoke', row.key_id], { code: 3 });
    const owner = (await cli(server, ['key', 'add', '--user', 'second', '--owner'])).stdout.trim();
    assert.equal((await server.get('/api/v1/keys', { key: owner })).status, 200);

    const link = (await cli(server, ['link'])).stdout.trim();
    assert.equal((await server.get(link.slice(server.url.length), { key: null })).status, 303);
    const secret = (await cli(server, ['secret'])).stdout;
    assert.equal(secret, fs.readFileSync(path.join(server.dir, 'callback.secret'), 'utf8'));
    const engines = await json(server, ['engines']);
    assert.ok(engines.data.some((engine) => engine.name === 'testpattern'));
});

test('endpoints and deliveries', async (t) => {
    const receiver = await receive(t, [204, 500, 204]);
    const server = await serve(t, { set: { 'callback.tries': 1 } });
    const made = await json(server, ['endpoint', 'add', receiver.url, '--events', 'task.succeeded', '--description', 'mine']);
    assert.match(made.secret, /^whsec_/);
    assert.deepEqual([made.events, made.description], [['task.succeeded'], 'mine']);
    const id = made.endpoint_id;
    const test = await json(server, ['endpoint', 'test', id]);
    assert.equal(test.event_type, 'endpoint.test');
    await eventually('the test event', () => receiver.requests.length === 1);

    const task = await server.submit(small('lost'));
    const failed = ['delivery', 'list', '--status', 'FAILED', '--endpoint', id];
    const [lost] = await eventually('its callback fails', async () => {
        const { data } = await json(server, failed);
        return data.length && data;
    });
    assert.equal(lost.task_id, task.task_id);
    assert.equal((await json(server, ['delivery', 'resend', lost.delivery_id])).status, 'PENDING');
    await receiver.wait(task.task_id, 2);
    await eventually('it arrived', async () => (await json(server, failed)).data.length === 0);
    assert.equal((await json(server, ['delivery', 'resend', '--endpoint', id])).resent, 0);
    assert.deepEqual((await json(server, ['delivery', 'list', '--all'])).data.map((row) => row.status), ['SUCCEEDED', 'SUCCEEDED']);

    assert.equal((await json(server, ['endpoint', 'disable', id])).state, 'DISABLED');
    assert.equal((await json(server, ['endpoint', 'enable', id])).state, 'ENABLED');
    assert.notEqual((await json(server, ['endpoint', 'rotate', id, '--grace', '0'])).secret, made.secret);
    assert.deepEqual((await json(server, ['endpoint', 'list'])).data.map((row) => row.endpoint_id), [id]);
    assert.equal((await cli(server, ['endpoint', 'rm', id])).stdout, '');
    await cli(server, ['endpoint', 'rm', id], { code: 3 });
});

test('feed extend keeps a range, or gives it back', async (t) => {
    const server = await serve(t);
    await server.done((await server.submit(small('read'))).task_id);
    const range = await json(server, ['feed', 'read', 'mine', '--lease', '5']);
    const longer = await json(server, ['feed', 'extend', 'mine', range.lease, '--lease', '500']);
    assert.ok(Date.parse(longer.expires_at) > Date.parse(range.expires_at));
    await json(server, ['feed', 'extend', 'mine', range.lease, '--lease', '0']);
    const again = await json(server, ['feed', 'read', 'mine', '--ack']);
    assert.deepEqual([again.from, again.delivery], [range.from, 2], 'what was given back goes to the next reader at once');
    await cli(server, ['feed', 'extend', 'mine', range.lease], { code: 3 });
});

test('backup: a whole, consistent database, made while work goes on', async (t) => {
    const server = await serve(t);
    const done = await server.done((await server.submit(small('in the backup'))).task_id);
    const running = await server.submit(slow('meanwhile', { frames: 30 }));
    await server.until(running.task_id, 'PROCESSING');
    const dir = tempDir(t);
    const file = path.join(dir, 'copy.db');
    await cli(server, ['backup', file]);
    assert.equal(fs.statSync(file).mode & 0o777, 0o600);
    assert.deepEqual(fs.readdirSync(dir), ['copy.db'], 'one file, nothing beside it');
    assert.deepEqual(await sql(file, 'PRAGMA integrity_check'), [{ integrity_check: 'ok' }]);
    assert.deepEqual(await sql(file, 'SELECT cast(task_id AS text) AS id, status FROM task ORDER BY task_id'),
        [{ id: done.task_id, status: 'SUCCEEDED' }, { id: running.task_id, status: 'PROCESSING' }]);
    await cli(server, ['backup', file], { code: 2 });
    await cli(server, ['backup', '--force', file]);
    const app = await server.addKey('alice');
    const refused = await reeld(['backup', path.join(dir, 'no.db'), '--url', server.url, '--key', app.key]);
    assert.equal(refused.code, 3);
    assert.deepEqual(fs.readdirSync(dir), ['copy.db']);
    assert.deepEqual(fs.readdirSync(path.join(server.dir, 'tmp')), [], 'the server keeps no copy');

    // A server started on the copy has the same tasks.
    const other = tempDir(t);
    fs.copyFileSync(file, path.join(other, 'reeld.db'));
    fs.copyFileSync(path.join(server.dir, 'owner.key'), path.join(other, 'owner.key'));
    const restored = await serve(t, { dir: other });
    assert.equal((await restored.task(done.task_id)).status, 'SUCCEEDED');
    assert.equal((await restored.done(running.task_id)).attempt, 2);
});

test('doctor: with and without a server', async (t) => {
    const server = await serve(t);
    const running = await cli(server, ['doctor', '--json']);
    const { checks, ok } = JSON.parse(running.stdout);
    assert.equal(ok, true, running.stdout);
    const text = JSON.stringify(checks);
    for (const word of ['version', 'state_dir', 'disk', 'server', 'device', 'encoder', 'database', 'commits'])
        assert.ok(text.includes(`"${word}"`), word);
    assert.match(text, /durable commits per second/);
    const plain = await cli(server, ['doctor']);
    assert.match(plain.stdout, /^ok   version: reeld/m);
    // Which folder: --state-dir, --set, REELD_STATE_DIR, in this order.
    const env = { REELD_STATE_DIR: server.dir };
    assert.ok((await reeld(['doctor'], { env })).stdout.includes(`state_dir: ${server.dir} on `));
    assert.ok((await reeld(['doctor', '--set', 'state_dir=/nowhere'], { env })).stdout.includes('state_dir: /nowhere is not'));
    assert.ok((await cli(server, ['doctor'], { env: { REELD_STATE_DIR: '/nowhere' } })).stdout.includes(`${server.dir} on `));
    // The encoder is asked with what is configured.
    const crf = await cli(server, ['doctor', '--set', 'video.crf=0']);
    assert.match(crf.stdout, /^ok   encoder: \S+ with crf 0$/m);
    await server.stop();
    const stopped = await cli(server, ['doctor']);
    assert.match(stopped.stdout, /^warn server: not running/m);
    // A damaged database is told.
    const file = fs.readFileSync(server.db);
    const damaged = tempDir(t);
    file.fill(0x55, 4096 * 2, Math.min(file.length, 4096 * 12));
    fs.writeFileSync(path.join(damaged, 'reeld.db'), file);
    const broken = await reeld(['doctor', '--state-dir', damaged]);
    assert.equal(broken.code, 1, broken.stdout);
    assert.match(broken.stdout, /^FAIL database: /m);
});

test('--help of everything, --version', async () => {
    const all = await reeld(['--help']);
    assert.equal(all.code, 0);
    const commands = [...all.stdout.matchAll(/^ {2}([a-z]+(?: [a-z]+)?) {2,}/gm)].map((match) => match[1]);
    for (const name of ['serve', 'submit', 'get', 'list', 'cancel', 'watch', 'key add', 'key list', 'key revoke', 'backup', 'doctor'])
        assert.ok(commands.includes(name), `${name} in ${commands}`);
    for (const name of commands.filter((word) => !['version', 'help'].includes(word))) {
        const help = await reeld([...name.split(' '), '--help']);
        assert.equal(help.code, 0, name);
        assert.match(help.stdout, new RegExp(`^usage: reeld ${name}`), name);
        assert.equal((await reeld(['help', ...name.split(' ')])).stdout, help.stdout);
    }
    assert.match((await reeld(['--version'])).stdout, /^reeld \d+\.\d+\.\d+\n$/);
});

test('--print-config is a file that serve reads back', async (t) => {
    const dir = tempDir(t);
    const file = path.join(dir, 'reeld.conf');
    const set = ['--set', 'http.threads=20', '--set', 'callback.tries=7', '--set', 'http.allowed_hosts=a.example,b', '--set', 'task.derive_keys=off'];
    const first = await reeld(['--print-config', ...set]);
    assert.equal(first.code, 0, first.stderr);
    fs.writeFileSync(file, first.stdout);
    const second = await reeld(['--print-config', '--config', file]);
    assert.equal(second.stdout, first.stdout);
    assert.match(second.stdout, /^callback\.tries *= *7$/m);
    const server = await serve(t, { args: ['--config', file] });
    const twice = [await server.submit(small('same')), await server.submit(small('same'))];
    assert.notEqual(twice[0].task_id, twice[1].task_id, 'task.derive_keys=off took effect');
    const table = await reeld(['--print-config=markdown']);
    assert.match(table.stdout, /\| `?callback\.tries`? /);
});

test('Ctrl-C ends the waiting, not the task', async (t) => {
    const server = await serve(t, { set: { 'log.level': 'debug' } });
    const child = spawn(BIN, ['submit', '--wait', '--state-dir', server.dir, ...quick, '--option', 'frame_ms=500', 'patience'],
        { stdio: ['ignore', 'pipe', 'pipe'] });
    t.after(() => child.kill('SIGKILL'));
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text) => (stderr += text));
    let code = null;
    child.on('close', (status) => (code = status));
    const [id] = await eventually('the task', async () => {
        const ids = await server.ids();
        return ids.length && ids;
    });
    // It holds SIGINT from before its first look at the task.
    await server.waitLog(new RegExp(`event=http_request .*method=GET path="/api/v1/tasks/${id}"`));
    child.kill('SIGINT');
    await eventually('its end', () => code !== null);
    assert.equal(code, 130);
    assert.match(stderr, new RegExp(`task ${id} goes on`));
    await server.done(id);
});
