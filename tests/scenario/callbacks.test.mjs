// Callbacks: signed, repeated until they arrive or end in the dead letter, never where they must not go.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { assertProblem, eventually, ms, serve, slow, small, sql } from './lib/reeld.mjs';
import { Receiver, receive, verified } from './lib/receiver.mjs';

const FAULTS = { 'testpattern.faults': 'on' };
const QUICK = { 'callback.wait_ms': 20 };
const secretOf = (server) => fs.readFileSync(path.join(server.dir, 'callback.secret'), 'utf8').trim();

test('a success is announced once, signed as Standard Webhooks says', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const metadata = { order: 'ü-1', deep: { list: [1, 2.5, null, true] }, big: 9007199254740991 };
    const task = await server.submit(small('announce', { callback_url: receiver.url, metadata }));
    const [request] = await receiver.wait(task.task_id);
    assert.equal(request.method, 'POST');
    assert.equal(request.url, '/hook');
    const body = verified(request, secretOf(server));
    const done = await server.called(task.task_id, 'SUCCEEDED');

    assert.deepEqual(Object.keys(body), ['type', 'timestamp', 'task_id', 'status', 'result_url', 'download_url',
        'error_code', 'error_msg', 'attempt', 'round', 'metadata']);
    assert.ok(body.download_url.startsWith(`${done.result_url}?sig=`), body.download_url);
    const { timestamp, download_url, ...rest } = body;
    assert.match(timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.deepEqual(rest, { type: 'task.succeeded', task_id: task.task_id, status: 'SUCCEEDED',
        result_url: done.result_url, error_code: null, error_msg: null, attempt: 1, round: 1, metadata });
    assert.match(request.body.toString('latin1'), /^[\x20-\x7e]*$/, 'ASCII only');

    const { headers } = request;
    assert.equal(headers['content-type'], 'application/json');
    assert.equal(headers['webhook-id'], `evt_${task.task_id}_1`);
    assert.equal(headers['idempotency-key'], task.task_id);
    assert.match(headers['webhook-signature'], /^v1,[A-Za-z0-9+/]{43}=$/);
    assert.ok(Math.abs(Number(headers['webhook-timestamp']) - Date.now() / 1000) < 30);
    assert.match(headers['user-agent'], /^reeld\//);
    assert.equal(done.callback_retry, 1);

    const other = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
    assert.throws(() => verified(request, other), 'another secret does not fit');
    request.body[10] ^= 1;
    assert.throws(() => verified(request, secretOf(server)), 'nor another body');
});

test('whose secret signs: the task\'s own, else the user\'s', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const own = `whsec_${Buffer.alloc(24, 3).toString('base64')}`;
    const mine = await server.submit(small('own secret', { callback_url: receiver.url, callback_secret: own }));
    assert.ok(!JSON.stringify(mine).includes(own), 'a secret is never answered');
    verified((await receiver.wait(mine.task_id))[0], own);

    const { key } = await server.addKey('alice');
    const { secret } = (await server.get('/api/v1/callback-secret', { key })).json;
    assert.notEqual(secret, secretOf(server));
    const hers = await server.submit(small('her secret', { callback_url: receiver.url }), { key });
    const [request] = await receiver.wait(hers.task_id);
    verified(request, secret);
    assert.throws(() => verified(request, secretOf(server)));
});

test('500, 500, 200: the same message again, freshly stamped', async (t) => {
    const receiver = await receive(t, [500, 503, 204]);
    const server = await serve(t, { set: { 'callback.wait_ms': 400 } });
    const task = await server.submit(small('again', { callback_url: receiver.url }));
    const requests = await receiver.wait(task.task_id, 3);
    const done = await server.called(task.task_id, 'SUCCEEDED');
    assert.equal(done.callback_retry, 3);
    assert.equal(receiver.requests.length, 3);
    for (const request of requests) {
        verified(request, secretOf(server));
        assert.equal(request.headers['webhook-id'], `evt_${task.task_id}_1`);
        assert.ok(request.body.equals(requests[0].body), 'byte for byte');
    }
    const stamps = requests.map((request) => Number(request.headers['webhook-timestamp']));
    assert.ok(stamps[2] > stamps[0], `${stamps}`);
    assert.notEqual(requests[2].headers['webhook-signature'], requests[0].headers['webhook-signature']);
    const waits = [requests[1].at - requests[0].at, requests[2].at - requests[1].at];
    assert.ok(waits[0] >= 390 && waits[1] >= 1190, `each wait is three times the one before: ${waits}`);
    const log = await sql(server.db, 'SELECT n, http_status, ip FROM delivery ORDER BY n');
    assert.deepEqual(log.map((row) => row.http_status), [500, 503, 204]);
    assert.deepEqual(log.map((row) => row.ip), ['127.0.0.1', '127.0.0.1', '127.0.0.1']);
});

test('a receiver that always fails: the dead letter after callback.tries', async (t) => {
    const receiver = await receive(t, { status: 500, body: 'no' });
    const server = await serve(t, { set: { ...QUICK, 'callback.tries': 2 } });
    const task = await server.submit(small('dead letter', { callback_url: receiver.url }));
    const done = await server.called(task.task_id, 'FAILED');
    assert.equal(done.status, 'SUCCEEDED', 'the task itself is fine');
    assert.equal(done.callback_retry, 2);
    assert.equal(receiver.requests.length, 2);
    const [row] = await sql(server.db, 'SELECT status, tries, last_error FROM outbox');
    assert.deepEqual(row, { status: 'FAILED', tries: 2, last_error: 'HTTP 500' });
});

test('Retry-After is honoured; 410 ends it at once', async (t) => {
    const server = await serve(t, { set: QUICK });
    const waits = await receive(t, [{ status: 503, headers: { 'retry-after': '2' } }, 200]);
    const gone = await receive(t, 410);
    const first = await server.submit(small('wait', { callback_url: waits.url }));
    const second = await server.submit(small('gone', { callback_url: gone.url }));
    const requests = await waits.wait(first.task_id, 2);
    assert.ok(requests[1].at - requests[0].at >= 1950, `${requests[1].at - requests[0].at}`);
    const done = await server.called(second.task_id, 'FAILED');
    assert.equal(done.callback_retry, 1);
    assert.equal(gone.requests.length, 1);
});

test('a redirect is not followed', async (t) => {
    const target = await receive(t);
    const receiver = await receive(t, { status: 302, headers: { location: target.url } });
    const server = await serve(t, { set: { ...QUICK, 'callback.tries': 2 } });
    const task = await server.submit(small('elsewhere', { callback_url: receiver.url }));
    await server.called(task.task_id, 'FAILED');
    assert.equal(receiver.requests.length, 2);
    assert.equal(target.requests.length, 0);
    assert.equal(target.sockets.size, 0);
});

test('never to reeld itself, never link-local, whatever the address is called', async (t) => {
    const server = await serve(t, { set: QUICK });
    const before = (await server.ids()).length;
    // What the text of an address gives away is refused at submit.
    for (const callback_url of [
        `http://127.0.0.1:${server.port}/api/v1/tasks`,
        `http://127.9.9.9:${server.port}/`,
        `http://0.0.0.0:${server.port}/`,
        `http://[::ffff:127.0.0.1]:${server.port}/`,
        `http://2130706433:${server.port}/`,
        `http://0x7f.1:${server.port}/`,
        'http://169.254.169.254/latest/meta-data/',
        'https://169.254.169.254/',
        'http://[fe80::1]/',
        'http://[::ffff:169.254.169.254]/',
        'http://0251.0376.0251.0376/',
        'http://224.0.0.1/',
    ]) {
        const answer = await server.post('/api/v1/tasks', small('forbidden', { callback_url }));
        assertProblem(answer, 422, 'INVALID_FIELD', 'callback_url');
    }
    assert.equal((await server.ids()).length, before);
    // What a name hides shows when it is dialled: refused at once, not tried again.
    for (const name of ['localhost', 'LOCALHOST', 'hidden.localhost']) {
        const task = await server.submit(small(name, { callback_url: `http://${name}:${server.port}/api/v1/tasks` }));
        const done = await server.called(task.task_id, 'FAILED');
        assert.equal(done.callback_retry, 1);
        const [row] = await sql(server.db, `SELECT last_error FROM outbox WHERE task_id = ${task.task_id}`);
        assert.match(row.last_error, /^ADDRESS_REFUSED/);
    }
    assert.equal((await server.ids()).length, before + 3, 'no request came in');
});

test('behind a front proxy the other services of this machine are not for callers', async (t) => {
    const receiver = await receive(t);
    const ask = (server) => server.post('/api/v1/tasks', small('neighbour', { callback_url: receiver.url }));
    for (const set of [
        { 'http.allowed_hosts': 'video.example.org' },
        { 'http.public_url': 'https://video.example.org' },
        { 'limit.trusted_proxies': '127.0.0.1' },
        { 'callback.loopback': 'off' },
    ]) {
        const server = await serve(t, { set });
        const refused = await ask(server);
        assertProblem(refused, 422, 'INVALID_FIELD', 'callback_url');
        assert.match(refused.text, /callback\.loopback/);
        await server.stop();
    }
    const proxied = { ...QUICK, 'http.allowed_hosts': 'video.example.org' };
    const server = await serve(t, { set: proxied });
    const { port } = new URL(receiver.url);
    const named = await server.submit(small('by its name', { callback_url: `http://localhost:${port}/` }));
    await server.called(named.task_id, 'FAILED');
    const [row] = await sql(server.db, `SELECT last_error FROM outbox WHERE task_id = ${named.task_id}`);
    assert.match(row.last_error, /^ADDRESS_REFUSED.*callback\.loopback/);
    assert.equal(receiver.sockets.size, 0);
    for (const open of [{ 'callback.loopback': 'on' }, { 'callback.allow': `127.0.0.1/32:${port}` }]) {
        await server.stop();
        await server.start({ set: { ...proxied, ...open } });
        const task = await server.submit(small(JSON.stringify(open), { callback_url: receiver.url }));
        await server.called(task.task_id, 'SUCCEEDED');
    }
});

test('callback_events chooses; FAILED is announced with its reason', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t, { set: FAULTS });
    const failing = (prompt, more) => server.submit(small(prompt, {
        options: { fault: 'fail' }, max_retries: 0, callback_url: receiver.url, ...more }));
    const quiet = await failing('only successes', { callback_events: ['task.succeeded'] });
    const loud = await failing('all');
    const chosen = await failing('chosen', { callback_events: ['task.timeout', 'task.failed'] });
    const success = await server.submit(small('not wanted', { callback_url: receiver.url, callback_events: ['task.failed'] }));

    for (const task of [loud, chosen]) {
        const body = verified((await receiver.wait(task.task_id))[0], secretOf(server));
        const { error_code, error_msg } = await server.task(task.task_id);
        assert.deepEqual([body.type, body.status, body.result_url, body.download_url, body.metadata],
            ['task.failed', 'FAILED', null, null, null]);
        assert.deepEqual([body.error_code, body.error_msg], [error_code, error_msg]);
        assert.equal(body.error_code, 'ENGINE_ERROR');
    }
    await server.done(success.task_id);
    const duties = await sql(server.db, 'SELECT cast(task_id AS text) AS id FROM outbox ORDER BY task_id');
    assert.deepEqual(duties.map((row) => row.id), [loud.task_id, chosen.task_id]);
    assert.equal(receiver.about(quiet.task_id).length + receiver.about(success.task_id).length, 0);
    assert.equal((await server.task(quiet.task_id)).callback_status, null, 'nothing is owed');
});

test('no callback for a cancelled task', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const running = await server.submit(slow('cancel me', { callback_url: receiver.url }));
    const queued = await server.submit(small('me too', { callback_url: receiver.url }));
    await server.until(running.task_id, 'PROCESSING');
    for (const task of [queued, running]) await server.post(`/api/v1/tasks/${task.task_id}/cancel`, { mode: 'hard' });
    const last = await server.submit(small('the fence', { callback_url: receiver.url }));
    await receiver.wait(last.task_id);
    assert.equal(receiver.requests.length, 1, 'only the task after them was announced');
    for (const task of [queued, running]) {
        const end = await server.until(task.task_id, 'CANCELED');
        assert.equal(end.callback_status, null);
    }
    assert.equal((await sql(server.db, 'SELECT count(*) AS n FROM outbox'))[0].n, 1);
});

test('a receiver that is down at first gets it when it comes up', async (t) => {
    const early = await new Receiver().listen();
    const { port, url } = early;
    await early.close();
    const server = await serve(t, { set: { 'callback.wait_ms': 100, 'callback.tries': 12, 'callback.max_wait_ms': 1000 } });
    const task = await server.submit(small('patience', { callback_url: url }));
    await eventually('a try', async () => (await server.task(task.task_id)).callback_retry >= 2);
    assert.equal((await server.task(task.task_id)).callback_status, 'PENDING');
    const late = new Receiver();
    await late.listen(port);
    t.after(() => late.close());
    const [request] = await late.wait(task.task_id);
    verified(request, secretOf(server));
    assert.ok((await server.called(task.task_id, 'SUCCEEDED')).callback_retry >= 3);
});

test('kill -9 between the success and its delivery: delivered after the restart', async (t) => {
    const receiver = await receive(t, [500, 200]);
    const server = await serve(t, { set: { 'callback.wait_ms': 3000 } });
    const task = await server.submit(small('owed', { callback_url: receiver.url, metadata: { a: 1 } }));
    await receiver.wait(task.task_id);
    await eventually('the try is on disk', async () => (await server.task(task.task_id)).callback_retry === 1);
    await server.kill9();
    await server.start();
    const requests = await receiver.wait(task.task_id, 2);
    verified(requests[1], secretOf(server));
    assert.ok(requests[1].body.equals(requests[0].body), 'frozen with the success');
    assert.equal(requests[1].headers['webhook-id'], requests[0].headers['webhook-id']);
    assert.equal((await server.called(task.task_id, 'SUCCEEDED')).callback_retry, 2);
});

test('one slow receiver does not hold up another', async (t) => {
    const fast = await receive(t);
    const stuck = await receive(t);
    stuck.answer = function hold(request) {
        this.requests.push({ headers: request.headers, body: Buffer.alloc(0), at: Date.now() });
    };
    const server = await serve(t, { set: { 'callback.timeout_ms': ms(4000), 'callback.tries': 1 } });
    const tasks = [];
    for (let i = 0; i < 6; i++) tasks.push(await server.submit(small(`stuck ${i}`, { frames: 1, callback_url: stuck.url })));
    const task = await server.submit(small('fast', { callback_url: fast.url }));
    const [request] = await fast.wait(task.task_id);
    const { finished_at } = await server.task(task.task_id);
    assert.ok(request.at - Date.parse(finished_at) < ms(2000), `${request.at - Date.parse(finished_at)} ms`);
    assert.ok(stuck.sockets.size <= 2, 'callback.per_host');
    assert.equal((await server.called(tasks[0].task_id, 'FAILED')).callback_retry, 1);
});
