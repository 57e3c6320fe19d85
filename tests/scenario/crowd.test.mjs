// More connections than threads: who says nothing, keeps an idle connection or sends a body drop by
// drop must not keep others waiting.
import assert from 'node:assert/strict';
import net from 'node:net';
import test from 'node:test';

import { eventually, ms, serve, small, tick } from './lib/reeld.mjs';

const THREADS = 128; // http.threads as it comes
const SPARE = 8;

const kinds = {
    silent: () => '',
    halting: () => 'GET /healthz HTTP/1.1\r\nHost: 12',
    idle: (server) => `GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n\r\n`,
    slow: (server) => `POST /api/v1/tasks HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nAuthorization: Bearer ${server.key}\r\n`
        + 'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"prompt":',
};

/** A body drop by drop, for a path that asks for no key. */
const stranger = (path) => (server) => `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n`
    + 'webhook-id: a\r\nwebhook-timestamp: ' + Math.floor(Date.now() / 1000) + '\r\nwebhook-signature: v1,' + 'A'.repeat(43) + '=\r\n'
    + 'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"key":';
Object.assign(kinds, { session: stranger('/api/v1/session'), hook: stranger('/api/v1/hooks/nobody') });
const dripping = ['slow', 'session', 'hook'];

/** `count` connections of these kinds in turn, held until the test ends or calls what this returns. */
async function crowd(t, server, count, names) {
    const sockets = [];
    t.after(() => sockets.forEach((socket) => socket.destroy()));
    let open = 0;
    for (let i = 0; i < count; i++) {
        const socket = net.connect(server.port, '127.0.0.1', () => {
            open++;
            socket.write(kinds[names[i % names.length]](server));
        });
        socket.on('error', () => {}); // turned away: as it should be
        socket.resume();
        sockets.push(socket);
    }
    await eventually(() => `${open} of ${count} connected`, () => open === count, 20000);
    const drip = setInterval(() => sockets.forEach((socket, i) =>
        dripping.includes(names[i % names.length]) && socket.writable && socket.write(' ')), 500);
    t.after(() => clearInterval(drip));
    return () => sockets.forEach((socket) => socket.destroy());
}

/** ms until /healthz has answered on a connection of its own. */
async function probe(server) {
    const began = performance.now();
    const { status } = await server.get('/healthz', { timeout: 60000 });
    assert.equal(status, 200);
    return performance.now() - began;
}

test('as many silent, idle and slow connections as there are threads but eight: /healthz within 100 ms', async (t) => {
    const server = await serve(t);
    await crowd(t, server, THREADS - SPARE, ['silent', 'idle', 'slow']);
    for (let i = 0; i < 20; i++) {
        const took = await probe(server);
        assert.ok(took < ms(100), `${took} ms`);
        await tick(20);
    }
});

/** A raw connection of an honest client: {text, ended}. */
function honest(t, server, first) {
    const socket = net.connect(server.port, '127.0.0.1');
    const state = { socket, text: '', ended: false };
    t.after(() => socket.destroy());
    socket.setEncoding('latin1').on('data', (part) => (state.text += part)).on('error', () => {});
    socket.on('close', () => (state.ended = true));
    socket.write(first);
    return state;
}

test('in a crowd of silent connections nobody who has spoken is cut', async (t) => {
    const server = await serve(t, { set: { 'http.heartbeat_ms': 500 } });
    const auth = `Host: 127.0.0.1:${server.port}\r\nAuthorization: Bearer ${server.key}\r\n`;
    const body = JSON.stringify(small('by drops'));
    const stream = honest(t, server, `GET /api/v1/events HTTP/1.1\r\n${auth}Accept: text/event-stream\r\n\r\n`);
    const poll = honest(t, server, `GET /api/v1/feeds/honest?wait=8 HTTP/1.1\r\n${auth}\r\n`);
    const socket = honest(t, server, `GET /api/v1/ws HTTP/1.1\r\n${auth}Upgrade: websocket\r\nConnection: Upgrade\r\n`
        + 'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n');
    await eventually('all three are served', () => /200 OK/.test(stream.text) && /101 /.test(socket.text));
    await crowd(t, server, 150, ['silent']);
    const upload = honest(t, server, `POST /api/v1/tasks HTTP/1.1\r\n${auth}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`);
    const head = honest(t, server, 'GET /healthz HT');
    for (let i = 0; i < 8; i++) { // 4 s: well beyond half the request time-out
        await tick(500);
        upload.socket.write(body.slice(i * body.length / 8, (i + 1) * body.length / 8));
        if (i === 2) head.socket.write(`TP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n\r\n`);
    }
    await eventually('the upload is taken', () => / 202 /.test(upload.text));
    assert.match(head.text, / 200 OK/);
    await eventually('the poll is answered', () => /by drops|"to_status":"CREATED"/.test(poll.text));
    await eventually('the stream goes on', () => /event: status/.test(stream.text));
    assert.ok(!stream.ended && !socket.ended);
});

for (const [count, names] of [[600, ['silent']], [1500, ['silent']], [600, ['idle']], [600, ['slow']], [600, ['halting']],
    [900, ['silent', 'idle', 'slow']]])
    test(`${count} connections, ${names.join(', ')}: /healthz is back within the request time-out and a second`, async (t) => {
        const server = await serve(t);
        await crowd(t, server, count, names);
        const took = await probe(server);
        t.diagnostic(`${Math.round(took)} ms`);
        assert.ok(took < ms(4000), `${took} ms`);
        assert.ok(await probe(server) < ms(1000), 'and stays');
    });

test('who has a key is served while 400 bodies of strangers come drop by drop', async (t) => {
    const server = await serve(t);
    const leave = await crowd(t, server, 400, ['session', 'hook']);
    await eventually('those who came at once are told', async () =>
        (await server.post('/api/v1/tasks', small('the first'))).status === 202, 2000);
    for (let i = 0; i < 20; i++) {
        const began = performance.now();
        assert.equal((await server.post('/api/v1/tasks', small(`one of many ${i}`))).status, 202);
        assert.ok(performance.now() - began < ms(1000), `${performance.now() - began} ms`);
        await tick(100);
    }
    leave();
});
