// Video and poster over HTTP: ranges, validators, who may read them.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';

import { assertProblem, eventually, ms, serve, slow, small, tick } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

/** One finished task with its whole file. */
async function finished(t) {
    const server = await serve(t);
    const task = await server.done((await server.submit(small('a file', { frames: 24 }))).task_id);
    const target = `/api/v1/tasks/${task.task_id}/video`;
    const whole = await server.get(target);
    assert.equal(whole.status, 200);
    return { server, task, target, whole, file: whole.body, size: whole.body.length };
}

test('ranges: exactly the bytes that were asked for', async (t) => {
    const { server, target, whole, file, size } = await finished(t);
    const etag = whole.headers.etag;
    const range = (value, more) => server.get(target, { headers: { range: value, ...more } });

    for (const [value, first, last] of [
        ['bytes=0-0', 0, 0],
        ['bytes=0-99', 0, 99],
        ['bytes=100-199', 100, 199],
        [`bytes=${size - 1}-${size - 1}`, size - 1, size - 1],
        ['bytes=500-', 500, size - 1],
        ['bytes=-100', size - 100, size - 1],
        [`bytes=-${size + 1000}`, 0, size - 1],
        [`bytes=10-${size + 1000}`, 10, size - 1],
        ['bytes=0-99999999999999999999', 0, size - 1],
        ['BYTES=5-6', 5, 6],
    ]) {
        const part = await range(value);
        assert.equal(part.status, 206, value);
        assert.equal(part.headers['content-range'], `bytes ${first}-${last}/${size}`, value);
        assert.equal(part.headers['content-length'], String(last - first + 1), value);
        assert.equal(part.headers.etag, etag);
        assert.ok(part.body.equals(file.subarray(first, last + 1)), value);
    }
    for (const value of [`bytes=${size}-`, `bytes=${size + 5}-${size + 9}`, 'bytes=-0', 'bytes=99999999999999999999-']) {
        const refused = await range(value);
        assertProblem(refused, 416, 'RANGE_NOT_SATISFIABLE');
        assert.equal(refused.headers['content-range'], `bytes */${size}`, value);
    }
    // What is no single valid range may be ignored, and is.
    for (const value of ['bytes=9-3', 'bytes=0-1,5-6', 'bytes=a-b', 'bytes=', 'items=0-1', 'bytes=1-2x', 'bytes=--5']) {
        const ignored = await range(value);
        assert.equal(ignored.status, 200, value);
        assert.ok(ignored.body.equals(file), value);
    }
    // Only the very same representation may be continued.
    assert.equal((await range('bytes=0-9', { 'if-range': etag })).status, 206);
    assert.equal((await range('bytes=0-9', { 'if-range': whole.headers['last-modified'] })).status, 206);
    for (const stale of ['"other"', `W/${etag}`, 'Sun, 06 Nov 1994 08:49:37 GMT', 'nonsense']) {
        const all = await range('bytes=0-9', { 'if-range': stale });
        assert.equal(all.status, 200, stale);
        assert.equal(all.body.length, size);
    }
    // In pieces of any size the file comes together again.
    const pieces = [];
    for (let at = 0; at < size; at += 1777)
        pieces.push((await range(`bytes=${at}-${at + 1776}`)).body);
    assert.ok(Buffer.concat(pieces).equals(file));
});

test('HEAD and validators', async (t) => {
    const { server, task, target, whole, size } = await finished(t);
    const etag = whole.headers.etag;
    assert.equal(etag, `"${task.video.sha256}"`);
    assert.equal(whole.headers['accept-ranges'], 'bytes');
    assert.match(whole.headers['content-disposition'], new RegExp(`inline; filename="${task.task_id}\\.mp4"`));

    const head = await server.api('HEAD', target);
    assert.equal(head.status, 200);
    assert.equal(head.headers['content-length'], String(size));
    assert.equal(head.headers.etag, etag);
    assert.equal(head.headers['content-type'], 'video/mp4');
    assert.equal(head.body.length, 0);

    for (const value of [etag, `W/${etag}`, `"x", ${etag}`, '*']) {
        const same = await server.get(target, { headers: { 'if-none-match': value } });
        assert.equal(same.status, 304, value);
        assert.equal(same.body.length, 0);
        assert.equal(same.headers.etag, etag);
    }
    assert.equal((await server.get(target, { headers: { 'if-none-match': '"x"' } })).status, 200);
    const since = (value) => server.get(target, { headers: { 'if-modified-since': value } });
    assert.equal((await since(whole.headers['last-modified'])).status, 304);
    assert.equal((await since('Sun, 06 Nov 1994 08:49:37 GMT')).status, 200);

    const poster = await server.get(`/api/v1/tasks/${task.task_id}/poster`);
    assert.equal(poster.status, 200);
    assert.notEqual(poster.headers.etag, etag);
    assert.match(poster.headers['content-disposition'], /inline; filename="\d+\.jpg"/);
    const attached = await server.get(`${target}?download=1`);
    assert.match(attached.headers['content-disposition'], /^attachment;/);

    const get = await server.get(`/api/v1/tasks/${task.task_id}`);
    const again = await server.get(`/api/v1/tasks/${task.task_id}`, { headers: { 'if-none-match': get.headers.etag } });
    assert.equal(again.status, 304, 'a task that did not change is not sent again');
});

test('no file before its time, and none for strangers', async (t) => {
    const server = await serve(t);
    const { key } = await server.addKey('alice');
    const stranger = (await server.addKey('bob')).key;
    const task = await server.submit(slow('not yet', { frames: 8, frame_ms: 50 }), { key });
    for (const name of ['video', 'poster'])
        assertProblem(await server.get(`/api/v1/tasks/${task.task_id}/${name}`, { key }), 404, 'VIDEO_NOT_READY');
    await server.done(task.task_id);
    for (const name of ['video', 'poster']) {
        const target = `/api/v1/tasks/${task.task_id}/${name}`;
        assert.equal((await server.get(target, { key })).status, 200);
        assert.equal((await server.get(target)).status, 200, 'the owner sees everything');
        assertProblem(await server.get(target, { key: stranger }), 404, 'NOT_FOUND');
        assertProblem(await server.get(target, { key: null }), 401, 'UNAUTHORIZED');
        assertProblem(await server.api('POST', target), 405, 'METHOD_NOT_ALLOWED');
    }
    assertProblem(await server.get('/api/v1/tasks/1/video', { key }), 404, 'NOT_FOUND');
});

test('the download_url of a callback needs no key; a forged signature opens nothing', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const task = await server.submit(small('signed', { callback_url: receiver.url }));
    const other = await server.submit(small('another'));
    const [request] = await receiver.wait(task.task_id);
    const { download_url } = JSON.parse(request.body);
    await server.done(other.task_id);
    const target = download_url.slice(server.url.length);
    const sig = new URL(download_url).searchParams.get('sig');
    const file = await server.get(target, { key: null });
    assert.equal(file.status, 200);
    assert.equal(file.body.length, (await server.task(task.task_id)).video.bytes);
    const part = await server.get(target, { key: null, headers: { range: 'bytes=0-9' } });
    assert.equal(part.status, 206);

    const flipped = (sig[0] === 'A' ? 'B' : 'A') + sig.slice(1);
    for (const forged of [flipped, sig.slice(0, -1), `${sig}A`, '', 'A'.repeat(500), '%00', '..']) {
        const answer = await server.get(`/api/v1/tasks/${task.task_id}/video?sig=${forged}`, { key: null });
        assert.ok([400, 401].includes(answer.status), `${forged}: ${answer.status}`);
    }
    const swapped = await server.get(`/api/v1/tasks/${other.task_id}/video?sig=${sig}`, { key: null });
    assert.equal(swapped.status, 401, 'a signature is for one task only');
    assert.equal((await server.get(`/api/v1/tasks/1/video?sig=${sig}`, { key: null })).status, 401);
    assert.equal((await server.get(`/api/v1/tasks/${task.task_id}?sig=${sig}`, { key: null })).status, 401,
        'and for the file only');
    assert.equal((await server.get(`/api/v1/tasks/${task.task_id}/events?sig=${sig}`, { key: null })).status, 401);
});

/** Reads a download by hand: sends the request, then nothing is read until resume(). */
function slowly(t, server, target) {
    const socket = net.connect(server.port, '127.0.0.1');
    t.after(() => socket.destroy());
    const state = { socket, bytes: 0, ended: false };
    socket.on('error', () => {});
    socket.on('close', () => (state.ended = true));
    socket.on('data', (part) => (state.bytes += part.length));
    socket.pause();
    socket.write(`GET ${target} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nAuthorization: Bearer ${server.key}\r\nConnection: close\r\n\r\n`);
    return state;
}

/** A finished task whose video is this large: the file is made longer, and its row with it. */
async function large(server, bytes) {
    const done = await server.done((await server.submit(small('large'))).task_id);
    const name = server.results().find((file) => file.startsWith(done.task_id) && file.endsWith('.mp4'));
    await server.stop();
    fs.truncateSync(path.join(server.dir, 'results', name), bytes);
    execFileSync('sqlite3', [server.db, `UPDATE task SET video_bytes = ${bytes} WHERE task_id = ${done.task_id}`]);
    await server.start();
    return `/api/v1/tasks/${done.task_id}/video`;
}

test('a reader may pause, as players do; who never reads on is let go', async (t) => {
    const server = await serve(t, { set: { 'http.request_timeout_ms': 500, 'http.stall_ms': 8000 } });
    const target = await large(server, 64 << 20);
    const paused = slowly(t, server, target);
    const stuck = slowly(t, server, target);
    await tick(6000); // longer than the library waits for one write, and for the next
    paused.socket.resume();
    await eventually('all of it', () => paused.bytes > 64 << 20, 30000);
    stuck.socket.on('data', () => {});
    await tick(ms(8000));
    stuck.socket.resume();
    await eventually('cut', () => stuck.ended);
    assert.ok(stuck.bytes < 64 << 20);
});

test('a stop does not wait for a download that nobody reads', async (t) => {
    const server = await serve(t);
    const held = slowly(t, server, await large(server, 64 << 20));
    await eventually('under way', async () => /reeld_http_in_flight 2\n/.test((await server.get('/metrics')).text));
    const began = Date.now();
    await server.stop();
    assert.ok(Date.now() - began < ms(6000), `stopped after ${Date.now() - began} ms`);
    held.socket.destroy();
});

test('a file that is not the one of its row is not served', async (t) => {
    const server = await serve(t);
    const done = await server.done((await server.submit(small('swapped'))).task_id);
    const name = server.results().find((file) => file.endsWith('.mp4'));
    fs.truncateSync(path.join(server.dir, 'results', name), 100);
    assertProblem(await server.get(`/api/v1/tasks/${done.task_id}/video`), 500, 'IO_ERROR');
});
