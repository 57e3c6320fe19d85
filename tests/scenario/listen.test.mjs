// `reeld listen` under the callbacks of a real server, and `reeld verify-webhook` over deliveries that a real server
// sent and a stranger's library signed.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { Webhook as StandardWebhook } from 'standardwebhooks';
import { Webhook as SvixWebhook } from 'svix';

import { BIN, eventually, reeld, serve, small, tempDir } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

const QUICK = { 'callback.wait_ms': 20 };

/** `reeld listen` on a free port: {url, lines, stderr, stop}. */
async function listen(t, args, env = {}) {
    const child = spawn(BIN, ['listen', '--port', '0', ...args],
        { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const it = { stdout: '', stderr: '' };
    t.after(() => child.kill('SIGKILL'));
    child.stdout.setEncoding('utf8').on('data', (text) => (it.stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text) => (it.stderr += text));
    const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal })));
    const url = /listening on (http:\S+)/;
    await eventually(() => `it listens: ${it.stderr}`, () => url.test(it.stderr));
    return Object.assign(it, {
        url: url.exec(it.stderr)[1],
        lines: () => it.stdout.split('\n').filter(Boolean).map((line) => JSON.parse(line)),
        wait: (n) => eventually(() => `${n} lines: ${it.stdout}`, () => it.stdout.split('\n').length > n),
        stop: (signal = 'SIGINT') => {
            child.kill(signal);
            return ended;
        },
    });
}

test('callbacks are printed, verified by the state folder\'s secret, and counted', async (t) => {
    const server = await serve(t, { set: QUICK });
    const receiver = await listen(t, ['--state-dir', server.dir]);
    assert.match(receiver.stderr, /signatures are checked by .*callback\.secret/);
    const task = await server.submit(small('heard', { callback_url: receiver.url, metadata: { a: 'ü' } }));
    await receiver.wait(1);
    await server.called(task.task_id, 'SUCCEEDED');
    const [line] = receiver.lines();
    assert.equal(line.type, 'task.succeeded');
    assert.equal(line.task_id, task.task_id);
    assert.equal(line.verified, true);
    assert.equal(line.reason, null);
    assert.equal(line.try, 1);
    assert.equal(line.duplicate, false);
    assert.equal(line.answered, 200);
    const secret = fs.readFileSync(path.join(server.dir, 'callback.secret'), 'utf8').trim();
    const headers = { 'webhook-id': line.webhook_id, 'webhook-timestamp': line.webhook_timestamp, 'webhook-signature': line.webhook_signature };
    assert.equal(new StandardWebhook(secret).verify(line.body, headers).task_id, task.task_id, 'the body is what was signed');
    const verify = (input) => reeld(['verify-webhook', '-', '--state-dir', server.dir], { input });
    assert.equal((await verify(receiver.stdout)).code, 0, 'a line of it can be checked again');
    assert.equal((await verify(receiver.stdout.replace('SUCCEEDED', 'FAILED'))).code, 10);

    const [delivery] = (await server.get(`/api/v1/deliveries?status=SUCCEEDED`)).json.data;
    assert.equal((await server.post(`/api/v1/deliveries/${delivery.delivery_id}/resend`)).status, 202);
    await receiver.wait(2);
    const again = receiver.lines()[1];
    assert.equal(again.duplicate, true);
    assert.equal(again.try, 2);
    assert.equal(again.webhook_id, line.webhook_id);
    assert.deepEqual(await receiver.stop(), { code: 0, signal: null });
    assert.match(receiver.stderr, /2 deliveries of 1 events, 2 verified, 0 refused, 1 duplicates/);
});

test('--fail-first and --status show retries', async (t) => {
    const server = await serve(t, { set: { ...QUICK, 'callback.tries': 3 } });
    const flaky = await listen(t, ['--state-dir', server.dir, '--fail-first', '2', '--status', '503']);
    const task = await server.submit(small('flaky', { callback_url: flaky.url }));
    await server.called(task.task_id, 'SUCCEEDED');
    await flaky.wait(3);
    assert.deepEqual(flaky.lines().map((line) => [line.try, line.answered, line.duplicate]),
        [[1, 503, false], [2, 503, false], [3, 200, false]], 'a try after a failure is no duplicate');
    assert.equal((await server.task(task.task_id)).callback_retry, 3);

    const down = await listen(t, ['--state-dir', server.dir, '--status', '500']);
    const lost = await server.submit(small('down', { callback_url: down.url }));
    await server.called(lost.task_id, 'FAILED');
    await down.wait(3);
    assert.deepEqual(down.lines().map((line) => line.answered), [500, 500, 500]);
    assert.equal((await down.stop('SIGTERM')).code, 0);
});

test('a delivery that does not verify is refused, and it says why', async (t) => {
    const server = await serve(t, { set: { ...QUICK, 'callback.tries': 1 } });
    const receiver = await listen(t, ['--secret', 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=']);
    const task = await server.submit(small('strange', { callback_url: receiver.url }));
    await server.called(task.task_id, 'FAILED');
    await receiver.wait(1);
    const [line] = receiver.lines();
    assert.equal(line.verified, false);
    assert.match(line.reason, /another secret/);
    assert.equal(line.answered, 401);
    for (const [headers, reason] of [
        [{}, /webhook-id: the header is missing/],
        [{ 'webhook-id': 'a.b', 'webhook-timestamp': '1', 'webhook-signature': 'v1,x' }, /webhook-id: must not hold a dot/],
    ]) {
        const before = receiver.lines().length;
        const answer = await fetch(receiver.url, { method: 'POST', body: 'not json', headers });
        assert.equal(answer.status, 401);
        await receiver.wait(before + 1);
        assert.match(receiver.lines()[before].reason, reason);
        assert.equal(receiver.lines()[before].body, 'not json');
    }
    assert.equal((await fetch(receiver.url)).status, 405);
});

test('without a secret nothing is checked, and it says so', async (t) => {
    const server = await serve(t, { set: QUICK });
    const receiver = await listen(t, [], { REELD_STATE_DIR: tempDir(t) });
    assert.match(receiver.stderr, /signatures are not checked/);
    const task = await server.submit(small('unchecked', { callback_url: receiver.url }));
    await server.called(task.task_id, 'SUCCEEDED');
    await receiver.wait(1);
    assert.equal(receiver.lines()[0].verified, null);
    const wrong = await reeld(['listen', '--state-dir', tempDir(t)]);
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /callback\.secret cannot be read/);
    const taken = await reeld(['listen', '--port', new URL(receiver.url).port, '--secret', 'x']);
    assert.equal(taken.code, 1);
    assert.match(taken.stderr, /is the port taken\?/);
});

test('verify-webhook: a delivery of a real server, as it was and as people break it', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const task = await server.submit(small('captured', { callback_url: receiver.url, metadata: { name: 'Grün 🎬' } }));
    const [{ method, url, rawHeaders, headers, body }] = await receiver.wait(task.task_id);
    const head = [`${method} ${url} HTTP/1.1`, ...rawHeaders.map((_, i) => i % 2 ? '' : `${rawHeaders[i]}: ${rawHeaders[i + 1]}`)]
        .filter(Boolean).join('\r\n');
    const dir = tempDir(t);
    const file = path.join(dir, 'request');
    const check = async (bytes, ...args) => {
        fs.writeFileSync(file, bytes);
        const { code, stdout, stderr } = await reeld(['verify-webhook', file, '--state-dir', server.dir, ...args]);
        assert.equal(stderr, '');
        return { code, ...JSON.parse(stdout) };
    };
    const whole = Buffer.concat([Buffer.from(`${head}\r\n\r\n`), body]);
    const good = await check(whole);
    assert.equal(good.code, 0);
    assert.equal(good.verdict, 'valid');
    assert.equal(good.webhook_id, headers['webhook-id']);
    assert.equal(good.body_bytes, body.length);

    const bare = head.replace(/\r\ncontent-length: \d+/i, '');
    const parsed = JSON.parse(body);
    for (const again of [JSON.stringify(parsed), JSON.stringify(parsed, null, 2)]) {
        const result = await check(`${bare}\r\n\r\n${again}`);
        assert.equal(result.code, 10);
        assert.equal(result.verdict, 'bad_signature');
        assert.match(result.reason, /re-serialised/);
    }
    assert.match((await check(Buffer.concat([Buffer.from(`${bare}\n\n`), body, Buffer.from('\n')]))).reason, /line end/);
    assert.match((await check(`${bare}\r\n\r\n${body.toString().replace('SUCCEEDED', 'FAILED')}`)).reason, /was changed/);
    assert.equal((await check(whole.subarray(0, whole.length - 5))).code, 12);
    assert.match((await check(whole.toString().replace('v1,', ''))).reason, /v1/);
    assert.equal((await check(whole, '--at', '2020-01-01T00:00:00Z')).code, 11);
    assert.equal((await check(whole, '--at', new Date(Date.now() + 3600e3).toISOString(), '--tolerance', '7200')).code, 0);
    const piped = await reeld(['verify-webhook', '-', '--secret-file', path.join(server.dir, 'callback.secret')], { input: whole });
    assert.equal(piped.code, 0, piped.stderr);
});

test('verify-webhook agrees with the libraries of others', async (t) => {
    const secret = `whsec_${Buffer.from('thirty-two bytes, not a secret!!').toString('base64')}`;
    const dir = tempDir(t);
    const file = path.join(dir, 'body');
    for (const [Library, id, body] of [
        [StandardWebhook, 'msg_1', '{"a":1}'], [SvixWebhook, 'msg_2', '{ "ü": [1, 2] }\n'], [StandardWebhook, 'msg_3', ''],
    ]) {
        const at = new Date();
        fs.writeFileSync(file, body);
        const signature = new Library(secret).sign(id, at, body);
        const args = ['verify-webhook', '--secret', secret, '--body', file, '--id', id, '--timestamp',
            String(Math.floor(at / 1000)), '--signature'];
        assert.equal((await reeld([...args, signature])).code, 0, id);
        assert.equal((await reeld([...args, `v1a,x ${signature}`])).code, 0, id);
        assert.equal((await reeld([...args, signature.replace(/.{3}=$/, 'AAA=')])).code, 10, id);
    }
});
