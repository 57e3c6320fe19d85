// Live streams as clients nobody here wrote see them: npm eventsource and ws, and plain HTTP long polls.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';

import { EventSource } from 'eventsource';
import WebSocket from 'ws';

import { assertProblem, eventually, ms, readmeBlock, serve, slow, small, tempDir } from './lib/reeld.mjs';

/** An EventSource with the server's key; events are collected as {type, id, data}. */
function follow(t, server, target, { key = server.key, headers = {} } = {}) {
    const seen = [];
    const source = new EventSource(server.url + target, {
        fetch: (url, init) => fetch(url, { ...init, headers: { ...init.headers, ...headers, authorization: `Bearer ${key}` } }),
    });
    for (const type of ['status', 'snapshot', 'progress', 'gap'])
        source.addEventListener(type, (e) => seen.push({ type, id: e.lastEventId, data: JSON.parse(e.data) }));
    t.after(() => source.close());
    return { source, seen, of: (type) => seen.filter((e) => e.type === type) };
}

/** A raw stream: resolves with the text once `done(text)` holds, then hangs up. */
function rawStream(server, target, headers, done) {
    return new Promise((resolve, reject) => {
        let text = '';
        const request = http.get(
            { host: '127.0.0.1', port: server.port, path: target, agent: false,
              headers: { accept: 'text/event-stream', authorization: `Bearer ${server.key}`, ...headers } },
            (response) => {
                response.setEncoding('utf8');
                const finish = () => (request.destroy(), resolve({ status: response.statusCode, headers: response.headers, text }));
                response.on('data', (part) => ((text += part), done(text) && finish()));
                response.on('end', finish);
                response.on('error', () => {});
            });
        const late = setTimeout(() => (request.destroy(), reject(new Error(`${target} goes on: ${text}`))), ms(20000));
        request.on('close', () => clearTimeout(late));
        request.on('error', (e) => (text ? undefined : reject(e)));
    });
}

const seqs = (text) => [...text.matchAll(/event: status\nid: (\d+)\n/g)].map((m) => Number(m[1]));

test('one task: snapshot first, every move once, progress in between, and an end', async (t) => {
    const server = await serve(t);
    const task = await server.submit(slow('watched', { frames: 20, frame_ms: 100 }));
    const stream = follow(t, server, `/api/v1/tasks/${task.task_id}/events`);
    await eventually(() => `SUCCEEDED in ${JSON.stringify(stream.seen)}`,
        () => stream.of('status').some((e) => e.data.to_status === 'SUCCEEDED'), 20000);
    assert.equal(stream.seen[0].type, 'snapshot');
    assert.equal(stream.seen[0].data.task_id, task.task_id);
    const history = await server.events(task.task_id);
    const after = Number(stream.seen[0].id);
    assert.deepEqual(stream.of('status').map((e) => e.data), history.filter((e) => e.seq > after));
    for (const e of stream.of('status')) assert.equal(Number(e.id), e.data.seq);
    const steps = stream.of('progress').map((e) => e.data.step);
    assert.ok(steps.length >= 2 && steps.length <= 8, `progress at most twice a second: ${steps}`);
    assert.deepEqual(steps, [...steps].sort((a, b) => a - b));
    await eventually('the stream of a finished task ends for good', () => stream.source.readyState === EventSource.CLOSED, 15000);
});

test('resume by Last-Event-ID: cut fifty times, no gap and no repeat', async (t) => {
    const server = await serve(t);
    const got = [];
    let last = 0;
    const ids = [];
    for (let i = 0; i < 50; i++) {
        ids.push((await server.submit(small(`cut ${i}`))).task_id);
        const { text } = await rawStream(server, '/api/v1/events', { 'last-event-id': String(last) },
            (so) => seqs(so).length >= 1 + (i % 3));
        got.push(...seqs(text));
        last = got.at(-1);
    }
    for (const id of ids) await server.done(id);
    const { text } = await rawStream(server, '/api/v1/events', { 'last-event-id': String(last) },
        (so) => got.length + seqs(so).length >= 200);
    got.push(...seqs(text));
    assert.deepEqual(got, Array.from({ length: 200 }, (_, i) => i + 1), '50 tasks have 4 moves each');
});

test('the snapshot of everything comes from before the first event that follows it', async (t) => {
    const server = await serve(t);
    const first = await server.submit(slow('runs', { frames: 30 }));
    const stream = follow(t, server, '/api/v1/events');
    await eventually('a snapshot', () => stream.of('snapshot').length === 1);
    assert.deepEqual(stream.seen[0].data.data.map((task) => task.task_id), [first.task_id]);
    const second = await server.submit(small('comes later'));
    await eventually('its events', () => stream.of('status').some((e) => e.data.task_id === second.task_id));
    for (const e of stream.of('status')) assert.ok(Number(e.id) > Number(stream.seen[0].id));
});

test('a snapshot too large to send is a gap, and the stream goes on', async (t) => {
    const server = await serve(t, { set: { 'task.prompt_bytes': 131072, 'limit.pending_tasks': 0 } });
    const { key } = await server.addKey('app');
    const later = { run_at: '2099-01-01T00:00:00Z' };
    for (let n = 0; n < 40; n++) // a few users are enough: 40 of these are over 4 MiB
        await server.submit(small(`${n} ${'x'.repeat(120000)}`, later), { key });
    const stream = follow(t, server, '/api/v1/events');
    await eventually('a gap', () => stream.of('gap').length === 1);
    const { id } = stream.of('gap')[0];
    const next = await server.submit(small('next', later));
    await eventually('its event', () => stream.of('status').some((e) => e.data.task_id === next.task_id));
    assert.ok(stream.of('status').every((e) => Number(e.id) > Number(id)));
    assert.deepEqual(stream.of('snapshot'), []);
});

test('filters: by status, by user; others\' tasks are never seen', async (t) => {
    const server = await serve(t);
    const { key } = await server.addKey('app');
    const mine = follow(t, server, '/api/v1/events?after=0', { key });
    const ends = follow(t, server, '/api/v1/events?after=0&status=SUCCEEDED');
    await server.done((await server.submit(small('the owner\'s'))).task_id);
    const own = await server.submit(small('the app\'s'), { key });
    await eventually('the app\'s end', () => mine.of('status').some((e) => e.data.to_status === 'SUCCEEDED'));
    await eventually('both ends', () => ends.of('status').length === 2);
    assert.deepEqual([...new Set(mine.of('status').map((e) => e.data.task_id))], [own.task_id]);
    assert.ok(ends.of('status').every((e) => e.data.to_status === 'SUCCEEDED'));
    assertProblem(await server.get('/api/v1/events?status=NONSENSE'), 422, 'INVALID_FIELD', 'status');
    assertProblem(await server.get('/api/v1/events?after=x'), 422, 'INVALID_FIELD', 'after');
    const foreign = await server.submit(small('not for the app'));
    const refused = await rawStream(server, `/api/v1/tasks/${foreign.task_id}/events`, { authorization: `Bearer ${key}` }, () => false);
    assert.equal(refused.status, 404);
});

test('the stream of one task ends with it, also when its end is not asked for', async (t) => {
    const server = await serve(t);
    const task = await server.submit(small('cancelled', { run_at: '2099-01-01T00:00:00Z' }));
    const target = `/api/v1/tasks/${task.task_id}/events?status=FAILED`;
    let begun = '';
    const open = rawStream(server, target, { 'last-event-id': '0' }, (text) => {
        begun = text;
        return false;
    });
    await eventually('it is open', () => begun !== '');
    await server.post(`/api/v1/tasks/${task.task_id}/cancel`);
    const { text } = await open;
    assert.deepEqual(seqs(text), []);
    const { version } = await server.task(task.task_id);
    assert.ok(text.endsWith(`\n\nid: ${version}\n\n`), `the position without an event: ${text}`);
    for (const last of [version, 1]) { // also of a client that ignores what comes without data
        const late = await rawStream(server, target, { 'last-event-id': String(last) }, () => false);
        assert.deepEqual([late.status, late.text], [204, '']);
    }
    const wanted = await rawStream(server, target.replace('FAILED', 'CANCELED'), { 'last-event-id': '1' }, () => false);
    assert.deepEqual([wanted.status, seqs(wanted.text)], [200, [version]]);
});

test('a filtered stream of one task stops for good when it ends: EventSource and the client', async (t) => {
    const server = await serve(t);
    const task = await server.submit(slow('not asked for', { frames: 10 }));
    const stream = follow(t, server, `/api/v1/tasks/${task.task_id}/events?status=FAILED`);
    await eventually('it is open', () => stream.of('snapshot').length === 1);
    const dir = tempDir(t);
    fs.writeFileSync(path.join(dir, 'client.mjs'), (await server.get('/client.js')).text);
    const { Reeld } = await import(path.join(dir, 'client.mjs'));
    const client = new Reeld({ url: server.url, key: server.key, waits: [50] });
    const heard = [];
    for await (const event of client.events({ taskId: task.task_id, statuses: ['FAILED'], signal: AbortSignal.timeout(ms(20000)) }))
        heard.push(event);
    assert.deepEqual(heard, []);
    assert.equal((await server.task(task.task_id)).status, 'SUCCEEDED');
    await eventually('the EventSource is closed', () => stream.source.readyState === 2);
    assert.deepEqual(stream.of('status'), []);
});

test('beats keep a silent stream alive; a revoked key ends it; the stop of the server ends it', async (t) => {
    const server = await serve(t, { set: { 'http.heartbeat_ms': 200 } });
    const { key, key_id } = await server.addKey('app');
    const beats = await rawStream(server, '/api/v1/events', {}, (so) => (so.match(/^: beat/gm) ?? []).length >= 3);
    assert.match(beats.text, /^retry: 2000/);
    assert.equal(beats.headers['cache-control'], 'no-store');
    assert.equal(beats.headers['x-accel-buffering'], 'no');
    const held = rawStream(server, '/api/v1/events', { authorization: `Bearer ${key}` }, () => false);
    await eventually('it is open', async () => /reeld_http_streams 1/.test((await server.get('/metrics')).text));
    await server.api('DELETE', `/api/v1/keys/${key_id}`);
    await held;
    const begun = Date.now();
    const last = rawStream(server, '/api/v1/events', {}, () => false);
    await eventually('it is open', async () => /reeld_http_streams 1/.test((await server.get('/metrics')).text));
    await server.stop();
    await last;
    assert.ok(Date.now() - begun < ms(10000));
});

test('a full budget: 503 with Retry-After at once, and ordinary requests go on', async (t) => {
    const server = await serve(t, { set: { 'http.stream_threads': 3, 'http.heartbeat_ms': 200 } });
    const open = Array.from({ length: 3 }, () => follow(t, server, '/api/v1/events'));
    await eventually('three streams', () => open.every((s) => s.of('snapshot').length === 1));
    const refused = await server.get('/api/v1/events', { headers: { accept: 'text/event-stream' } });
    assertProblem(refused, 503, 'UNAVAILABLE');
    assert.equal(refused.headers['retry-after'], '5');
    assert.equal((await server.get('/healthz', { key: null })).status, 200);
    assert.equal((await server.get('/api/v1/tasks')).status, 200);
    open[0].source.close();
    await eventually('its place is free again', async () =>
        (await rawStream(server, '/api/v1/events', {}, (so) => so.includes('snapshot'))).status === 200);
});

test('who leaves gives the place back at once: streams and long polls', async (t) => {
    const server = await serve(t, { set: { 'http.stream_threads': 1, 'http.heartbeat_ms': 60000 } });
    const task = await server.submit(small('far away', { run_at: '2099-01-01T00:00:00Z' }));
    const poll = async () => (await server.get(`/api/v1/tasks/${task.task_id}?wait=1&after_version=${task.version}`)).status;
    for (const target of ['/api/v1/events', `/api/v1/tasks/${task.task_id}/events`,
        `/api/v1/tasks/${task.task_id}?wait=50&after_version=${task.version}`]) {
        const socket = net.connect(server.port, '127.0.0.1');
        t.after(() => socket.destroy());
        socket.write(`GET ${target} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n`
            + `Authorization: Bearer ${server.key}\r\nAccept: text/event-stream\r\n\r\n`);
        // not by poll(): that takes the place itself, and the stream would be refused
        await eventually('the place is taken', async () => /reeld_http_streams 1/.test((await server.get('/metrics')).text));
        assert.equal(await poll(), 503);
        socket.destroy();
        const began = Date.now();
        await eventually(`a place is free after ${target}`, async () => (await poll()) === 200, 10000);
        assert.ok(Date.now() - began < ms(4000), `${target}: after ${Date.now() - began} ms`);
    }
});

test('long poll: answers on the change, on the end, and when time is over', async (t) => {
    const server = await serve(t);
    const task = await server.submit(slow('polled', { frames: 15 }));
    let version = task.version;
    const states = [];
    for (let i = 0; i < 5 && states.at(-1) !== 'SUCCEEDED'; i++) {
        const answer = await server.get(`/api/v1/tasks/${task.task_id}?wait=20&after_version=${version}`);
        assert.equal(answer.status, 200, answer.text);
        assert.ok(answer.json.version > version);
        version = answer.json.version;
        states.push(answer.json.status);
    }
    assert.deepEqual(states.slice(-2), ['PROCESSING', 'SUCCEEDED'].slice(-Math.min(2, states.length)));
    const begun = Date.now();
    const done = await server.get(`/api/v1/tasks/${task.task_id}?wait=20&after_version=${version}`);
    assert.equal(done.json.status, 'SUCCEEDED');
    assert.ok(Date.now() - begun < ms(5000), 'nothing more will come: answered at once');
    const long = await server.submit(slow('long', { frames: 100 }));
    const running = await server.until(long.task_id, 'PROCESSING');
    const over = Date.now();
    const same = await server.get(`/api/v1/tasks/${long.task_id}?wait=1&after_version=${running.version}`);
    assert.equal(same.json.version, running.version);
    assert.ok(Date.now() - over >= 950);
    for (const wait of ['61', '-1', 'x', ''])
        assertProblem(await server.get(`/api/v1/tasks/${long.task_id}?wait=${wait}`), 422, 'INVALID_FIELD', 'wait');
});

test('Prefer: wait on submit: 200 with the finished task, or 202 when time is over', async (t) => {
    const server = await serve(t);
    const quick = await server.post('/api/v1/tasks', small('quick'), { headers: { prefer: 'wait=20' } });
    assert.equal(quick.status, 200, quick.text);
    assert.equal(quick.json.status, 'SUCCEEDED');
    assert.equal(quick.headers['preference-applied'], 'wait=20');
    const late = await server.post('/api/v1/tasks', slow('late', { frames: 60 }), { headers: { prefer: 'wait=1' } });
    assert.equal(late.status, 202, late.text);
});

// ---- WebSocket ----

function dial(t, server, { key = server.key, headers = {} } = {}) {
    const socket = new WebSocket(`${server.url.replace('http', 'ws')}/api/v1/ws`,
        { headers: { ...(key ? { authorization: `Bearer ${key}` } : {}), ...headers } });
    const seen = [];
    socket.on('message', (data) => seen.push(JSON.parse(data.toString())));
    socket.on('error', (error) => (socket.failure = error));
    socket.on('close', (code, reason) => (socket.end = { code, reason: reason.toString() }));
    t.after(() => socket.terminate());
    return { socket, seen, say: (message) => socket.send(typeof message === 'string' ? message : JSON.stringify(message)),
             of: (event) => seen.filter((m) => m.event === event) };
}
const opened = (s) => eventually(() => `open: ${s.socket.failure}`, () => s.socket.readyState === WebSocket.OPEN);

test('WebSocket: subscribe, events, unsubscribe, resume by seq', async (t) => {
    const server = await serve(t);
    const one = dial(t, server);
    await opened(one);
    const task = await server.submit(slow('watched', { frames: 12 }));
    one.say({ op: 'subscribe', task_ids: [task.task_id], after: 0 });
    await eventually(() => `SUCCEEDED in ${JSON.stringify(one.seen)}`,
        () => one.of('status').some((m) => m.data.to_status === 'SUCCEEDED'), 20000);
    const history = await server.events(task.task_id);
    assert.deepEqual(one.of('status').map((m) => m.data), history);
    assert.ok(one.of('progress').length >= 1);
    await server.done((await server.submit(small('not subscribed'))).task_id);
    assert.ok(one.of('status').every((m) => m.data.task_id === task.task_id));
    one.say({ op: 'ping' });
    await eventually('pong', () => one.of('pong').length === 1);
    const all = dial(t, server);
    await opened(all);
    all.say({ op: 'subscribe', all: true, after: history[1].seq });
    await eventually('the rest of the log', () => all.of('status').length >= 6);
    assert.deepEqual(all.of('status').map((m) => m.data.seq), [3, 4, 5, 6, 7, 8]);
    all.say({ op: 'unsubscribe', all: true });
    await eventually('unsubscribed', () => all.of('unsubscribed').length === 1);
    await server.done((await server.submit(small('unheard'))).task_id);
    assert.equal(all.of('status').length, 6);
});

test('WebSocket: strangers, bad words, the cap, revocation and the stop', async (t) => {
    const server = await serve(t, { set: { 'http.sockets': 2, 'http.heartbeat_ms': 200 } });
    for (const options of [{ key: null }, { key: 'rk_wrong' }, { headers: { origin: 'http://evil.test' } }]) {
        const stranger = dial(t, server, options);
        await eventually('refused', () => stranger.socket.failure);
        assert.match(String(stranger.socket.failure), options.headers ? /403/ : /401/);
    }
    assert.equal((await server.get('/api/v1/ws')).status, 400);
    const { key, key_id } = await server.addKey('app');
    const one = dial(t, server);
    const two = dial(t, server, { key });
    await Promise.all([opened(one), opened(two)]);
    const third = dial(t, server);
    await eventually('refused', () => third.socket.failure);
    assert.match(String(third.socket.failure), /503/);
    const bad = ['not json', '{"op":"dance"}', '{"op":"subscribe"}', '{"op":"subscribe","task_ids":["1","x"]}',
        '{"op":"subscribe","task_ids":{}}', '{"op":"subscribe","all":"yes"}', '{"op":"subscribe","all":true,"tasks":[]}',
        '{"op":"ping","all":true}', '{"op":"subscribe","all":true,"after":-1}',
        JSON.stringify({ op: 'subscribe', task_ids: Array.from({ length: 65 }, (_, i) => String(i + 1)) })];
    for (const text of bad) one.say(text);
    await eventually('an error for each', () => one.of('error').length === bad.length);
    one.say({ op: 'unsubscribe', task_ids: ['9'] });
    await eventually('an answer', () => one.of('unsubscribed').length === 1);
    assert.deepEqual([one.of('unsubscribed')[0].data.all, one.of('unsubscribed')[0].data.tasks], [false, 0], 'nothing of them was applied');
    assert.equal(one.of('error')[0].data.code, 'MALFORMED_JSON');
    await server.api('DELETE', `/api/v1/keys/${key_id}`);
    await eventually('closed', () => two.socket.end);
    assert.equal(two.socket.end.code, 1008);
    one.say('x'.repeat(9000));
    await eventually('closed', () => one.socket.end);
    assert.equal(one.socket.end.code, 1009);
    const last = dial(t, server);
    await eventually('a place is free again', () => {
        if (last.socket.failure) throw last.socket.failure;
        return last.socket.readyState === WebSocket.OPEN;
    });
    await tickOver(1500); // silence longer than a request's time-out must not end a socket
    assert.equal(last.socket.readyState, WebSocket.OPEN);
    const stopping = server.stop();
    await eventually('closed', () => last.socket.end);
    assert.equal(last.socket.end.code, 1001);
    await stopping;
});

const tickOver = (time) => new Promise((resolve) => setTimeout(resolve, time));

test('the README\'s stream and socket, as a page that is signed in', async (t) => {
    const server = await serve(t);
    const { url } = (await server.post('/api/v1/session/link', {})).json;
    const signedIn = await server.get(url.slice(server.url.length), { key: null });
    const cookie = signedIn.headers['set-cookie'][0].split(';')[0];
    const open = [];
    t.after(() => open.forEach((one) => (one.terminate ?? one.close).call(one)));
    class Source extends EventSource {
        constructor(target) {
            super(server.url + target, { fetch: (at, init) => fetch(at, { ...init, headers: { ...init.headers, cookie } }) });
            open.push(this);
        }
    }
    class Socket extends WebSocket {
        constructor(at) {
            super(at, { headers: { cookie }, origin: server.url });
            open.push(this);
        }
    }
    const seen = { 'stream.js': [], 'socket.js': [] };
    const page = (name, code) => new Function('EventSource', 'WebSocket', 'location', 'console', code)(
        Source, Socket, new URL(server.url), { log: (...words) => seen[name].push(words.join(' ')) });
    page('stream.js', readmeBlock('stream.js'));
    page('socket.js', readmeBlock('socket.js'));
    await eventually('both are open', () => open.length === 2 && open.every((one) => one.readyState === 1));
    const { task_id } = await server.submit(small('watched'));
    await eventually(() => JSON.stringify(seen), () => seen['stream.js'].some((line) => line.endsWith(`${task_id} SUCCEEDED`))
        && seen['socket.js'].some((line) => line.includes(task_id) && line.includes('"to_status":"SUCCEEDED"')));
});

test('a seq from another life of the database is a gap, not silence', async (t) => {
    const server = await serve(t);
    await server.done((await server.submit(small('one'))).task_id);
    const stream = follow(t, server, '/api/v1/events?after=999999');
    await eventually('a gap', () => stream.of('gap').length === 1);
    assert.equal(stream.of('gap')[0].id, '4');
    await server.done((await server.submit(small('two'))).task_id);
    await eventually('and what comes after it', () => stream.of('status').length === 4);
    assert.deepEqual(stream.of('status').map((e) => e.data.seq), [5, 6, 7, 8]);
});
