// Requests that two HTTP parsers could read differently, and clients that dawdle: over raw sockets.
import assert from 'node:assert/strict';
import test from 'node:test';

import { assertProblem, eventually, ms, rawExchange, serve, small, statuses } from './lib/reeld.mjs';

const T = '/api/v1/tasks';

/** A request head; headers as [name, value] or raw lines. */
function head(server, method, target, lines = [], { host = `127.0.0.1:${server.port}`, auth = true } = {}) {
    const all = [`${method} ${target} HTTP/1.1`];
    if (host !== null) all.push(`Host: ${host}`);
    if (auth) all.push(`Authorization: Bearer ${server.key}`);
    return `${[...all, ...lines].join('\r\n')}\r\n\r\n`;
}

const JSON_TYPE = 'Content-Type: application/json';
const body = (prompt) => JSON.stringify(small(prompt, { run_at: '2100-01-01T00:00:00Z' }));

/** The status, code and whole text of the only answer; the connection must be closed behind it. */
async function only(server, bytes, options) {
    const text = await rawExchange(server.port, bytes, options);
    const found = statuses(text);
    assert.equal(found.length, 1, `one answer, not ${found}: ${text.slice(0, 600)}`);
    return { status: found[0], code: /"code":"([A-Z_]+)"/.exec(text)?.[1], text };
}

async function refused(server, bytes, status = 400, code = 'BAD_REQUEST') {
    const answer = await only(server, bytes);
    assert.deepEqual([answer.status, answer.code], [status, code], answer.text);
    assert.match(answer.text, /content-type: application\/problem\+json/i);
    assert.match(answer.text, /connection: close/i);
}

test('request smuggling is refused, and nothing behind it is read', async (t) => {
    const server = await serve(t);
    const hidden = head(server, 'POST', T, [JSON_TYPE, `Content-Length: ${body('smuggled').length}`]) + body('smuggled');
    const chunked = `5\r\nhello\r\n0\r\n\r\n`;
    const cases = {
        'length and chunked': [JSON_TYPE, 'Content-Length: 5', 'Transfer-Encoding: chunked'],
        'chunked and length': [JSON_TYPE, 'Transfer-Encoding: chunked', 'Content-Length: 5'],
        'two lengths': [JSON_TYPE, 'Content-Length: 5', 'Content-Length: 6'],
        'the same length twice': [JSON_TYPE, 'Content-Length: 5', 'Content-Length: 5'],
        'a list of lengths': [JSON_TYPE, 'Content-Length: 5, 5'],
        'a signed length': [JSON_TYPE, 'Content-Length: +3'],
        'a negative length': [JSON_TYPE, 'Content-Length: -3'],
        'a hex length': [JSON_TYPE, 'Content-Length: 0x5'],
        'a length with a blank inside': [JSON_TYPE, 'Content-Length: 1 2'],
        'a huge length': [JSON_TYPE, 'Content-Length: 99999999999999999999'],
        'an empty length': [JSON_TYPE, 'Content-Length:'],
        'a length with a vertical tab': [JSON_TYPE, 'Content-Length: \v5'],
        'two codings': [JSON_TYPE, 'Transfer-Encoding: chunked', 'Transfer-Encoding: identity'],
        'gzip, chunked': [JSON_TYPE, 'Transfer-Encoding: gzip, chunked'],
        'identity': [JSON_TYPE, 'Transfer-Encoding: identity'],
        'xchunked': [JSON_TYPE, 'Transfer-Encoding: xchunked'],
        'a space before the colon': [JSON_TYPE, 'Transfer-Encoding : chunked'],
        'a folded line': [JSON_TYPE, 'X-Long: a\r\n b', 'Content-Length: 5'],
    };
    for (const [what, lines] of Object.entries(cases)) {
        try {
            await refused(server, head(server, 'POST', T, lines) + chunked + hidden);
        } catch (error) {
            throw new Error(`${what}: ${error.message}`);
        }
    }
    await refused(server, `GET /healthz HTTP/1.1\nHost: 127.0.0.1\n\n`.replace(/\n\n$/, '\n\r\n\r\n'));
    assert.deepEqual(await server.ids(), [], 'nothing hidden came through');
});

test('heads that are too much', async (t) => {
    const server = await serve(t);
    const fields = Array.from({ length: 65 }, (_, i) => `X-Field-${i}: ${i}`);
    assert.equal((await only(server, head(server, 'GET', '/healthz', fields))).status, 400);
    const few = [...fields.slice(0, 30), 'Connection: close'];
    assert.equal((await only(server, head(server, 'GET', '/healthz', few))).status, 200);
    const huge = await only(server, head(server, 'GET', '/healthz', [`X-Huge: ${'x'.repeat(70000)}`]));
    assert.ok(huge.status >= 400 && huge.status < 500, `${huge.status}`);
    const long = await only(server, head(server, 'GET', `/${'x'.repeat(60000)}`));
    assert.ok(long.status >= 400 && long.status < 500, `${long.status}`);
});

test('the Host header: known names only, exactly one', async (t) => {
    const server = await serve(t, { set: { 'http.allowed_hosts': 'reeld.example, box' } });
    const close = ['Connection: close'];
    const by = (host) => only(server, head(server, 'GET', '/healthz', close, { host, auth: false }));
    for (const host of [`127.0.0.1:${server.port}`, '127.0.0.1', 'localhost', `localhost:${server.port}`, 'LOCALHOST',
        '[::1]', 'reeld.example', 'Reeld.Example:443', 'box'])
        assert.equal((await by(host)).status, 200, host);
    for (const host of ['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example', 'evilreeld.example',
        '10.0.0.1', '', 'a b', 'localhost:x', 'localhost@evil.example']) {
        const answer = await by(host);
        assert.ok([400, 403].includes(answer.status), `${host}: ${answer.status}`);
    }
    assert.equal((await by('evil.example')).code, 'FORBIDDEN');
    assert.equal((await by(null)).status, 400, 'no Host');
    const two = head(server, 'GET', '/healthz', ['Host: evil.example', ...close], { auth: false });
    assert.equal((await only(server, two)).status, 400, 'two Hosts');
});

test('slow and broken bodies end; the server stays', async (t) => {
    const server = await serve(t, { set: { 'http.body_deadline_ms': 1000 } });
    const start = head(server, 'POST', T, [JSON_TYPE, 'Content-Length: 100000']);
    // One byte at a time, for ever: only the deadline ends this.
    const began = Date.now();
    const drip = async (answered, socket) => {
        while (!answered() && !socket.destroyed) {
            socket.write(' ');
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
    };
    const slow = await only(server, [start, drip], { timeout: 20000 });
    assert.deepEqual([slow.status, slow.code], [408, 'REQUEST_TIMEOUT'], slow.text);
    assert.ok(Date.now() - began < ms(6000), `${Date.now() - began} ms`);
    // A body that ends early.
    const short = await only(server, [`${start}{"prompt"`], { end: true, timeout: 20000 });
    assert.ok([400, 408].includes(short.status), short.text);
    assert.deepEqual(await server.ids(), []);
    await server.submit(small('still here'));
});

test('chunked bodies and Expect: 100-continue work', async (t) => {
    const server = await serve(t);
    const text = body('chunked');
    const chunk = (part) => `${Buffer.byteLength(part).toString(16)}\r\n${part}\r\n`;
    const lines = [JSON_TYPE, 'Transfer-Encoding: chunked'];
    const whole = `${chunk(text.slice(0, 10))}${chunk(text.slice(10))}0\r\n\r\n`;
    const answer = await only(server, head(server, 'POST', T, lines) + whole);
    assert.equal(answer.status, 202, answer.text);

    for (const broken of ['zz\r\nhello\r\n0\r\n\r\n', 'ffffffffffffffff\r\nx\r\n0\r\n\r\n', '-5\r\nhello\r\n0\r\n\r\n']) {
        const bad = await only(server, head(server, 'POST', T, lines) + broken, { end: true, timeout: 20000 });
        assert.ok(bad.status >= 400 && bad.status < 500, `${broken}: ${bad.text}`);
    }
    const endless = `${chunk('x'.repeat(60000)).repeat(6)}`;
    assert.equal((await only(server, head(server, 'POST', T, lines) + endless)).status, 413);

    const asked = body('expected');
    const expecting = head(server, 'POST', T, [JSON_TYPE, `Content-Length: ${asked.length}`, 'Expect: 100-continue', 'Connection: close']);
    const sendLater = (seen, socket) => eventually('100 Continue', () => /^HTTP\/1\.1 100 /.test(seen()))
        .then(() => socket.write(asked));
    const both = await rawExchange(server.port, [expecting, sendLater]);
    assert.deepEqual(statuses(both), [100, 202]);
    const denied = head(server, 'POST', T, [JSON_TYPE, 'Content-Length: 5', 'Expect: 100-continue', 'Connection: close'], { auth: false });
    assert.deepEqual(statuses(await rawExchange(server.port, denied)), [401], 'not asked for when it is not wanted');
    assert.equal((await server.ids()).length, 2);
});

test('white space behind a header value is no part of it', async (t) => {
    const server = await serve(t);
    const text = body('spaces');
    const lines = ['Content-Type: application/json  ', `Content-Length: ${text.length}`, 'Idempotency-Key: mine  ',
        `Authorization: Bearer ${server.key} `];
    const answer = await only(server, head(server, 'POST', T, lines, { auth: false }) + text);
    assert.equal(answer.status, 202, answer.text);
    assert.match(answer.text, /"idempotency_key":"mine"/);
});

test('pipelined requests each get their answer; garbage behind one ends the connection', async (t) => {
    const server = await serve(t);
    const get = head(server, 'GET', '/healthz');
    const last = head(server, 'GET', '/readyz', ['Connection: close']);
    assert.deepEqual(statuses(await rawExchange(server.port, get + get + last)), [200, 200, 200]);
    const text = body('pipelined');
    const post = head(server, 'POST', T, [JSON_TYPE, `Content-Length: ${text.length}`]) + text;
    assert.deepEqual(statuses(await rawExchange(server.port, post + last)), [202, 200]);
    const garbage = statuses(await rawExchange(server.port, `${get}\x00\x01\x02 garbage\r\n\r\n`));
    assert.equal(garbage[0], 200);
    assert.ok(garbage.length <= 2 && (garbage[1] ?? 400) === 400, `${garbage}`);
    // A body that was refused unread is not taken for the next request.
    const large = `${head(server, 'POST', T, [JSON_TYPE, 'Content-Length: 400000'])}${get.repeat(50)}`;
    assert.deepEqual(statuses(await rawExchange(server.port, large)), [413]);
    for (const junk of ['\r\n\r\n', 'GET\r\n\r\n', 'GET /\r\n\r\n', 'GET / HTTP/9.9\r\nHost: localhost\r\n\r\n',
        '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n']) {
        const answers = statuses(await rawExchange(server.port, Buffer.from(junk, 'latin1'), { end: true }));
        assert.ok(answers.every((status) => status >= 400 && status < 600), `${JSON.stringify(junk)}: ${answers}`);
    }
    assert.equal((await server.get('/healthz')).status, 200);
});

test('paths and methods', async (t) => {
    const server = await serve(t);
    const by = (method, target, options) => only(server, head(server, method, target, ['Connection: close'], options));
    for (const target of ['/%00', '/api/v1/tasks%00', '/api/v1/tasks/1%0d%0aX: y', '/healthz%0a'])
        assert.equal((await by('GET', target)).status, 400, target);
    for (const target of ['//', '//healthz', '/healthz/', '/api//v1/tasks', '/api/v1/tasks/', '/../etc/passwd', '/..',
        '/api/v1/../v1/tasks', '/assets/../owner.key', '/assets/%2e%2e/owner.key', '/owner.key', '/reeld.db',
        '/results/', '/api/v1/tasks;x', '/HEALTHZ', '/healthz%20', '/api/v1', '/.git/config'])
        assert.equal((await by('GET', target)).status, 404, target);
    assert.equal((await by('GET', 'healthz')).status, 400);
    // CivetWeb itself ends the connection on these forms, which are for proxies, without a word.
    for (const line of [`GET http://127.0.0.1:${server.port}/healthz`, 'GET http://evil.example/healthz', 'OPTIONS *'])
        assert.deepEqual(statuses(await rawExchange(server.port, head(server, ...line.split(' ')))), [], line);

    const options = await by('OPTIONS', T, { auth: false });
    assert.equal(options.status, 204);
    assert.match(options.text, /\r\nAllow: POST, GET, HEAD, OPTIONS\r\n/i);
    assert.doesNotMatch(options.text, /access-control/i, 'no CORS');
    for (const method of ['PUT', 'DELETE', 'PATCH']) {
        const answer = await by(method, T);
        assert.deepEqual([answer.status, answer.code], [405, 'METHOD_NOT_ALLOWED'], method);
        assert.match(answer.text, /\r\nAllow: /i);
    }
    for (const method of ['TRACE', 'CONNECT', 'BREW', 'get', 'PROPFIND']) {
        const answer = await by(method, T);
        assert.ok([400, 405, 501].includes(answer.status), `${method}: ${answer.status}`);
        assert.doesNotMatch(answer.text, new RegExp(server.key), 'nothing is echoed');
    }
    assertProblem(await server.get('/nothing'), 404, 'NOT_FOUND');
    assertProblem(await server.get('/nothing', { key: null }), 404, 'NOT_FOUND');
});

test('no answer lets a browser guess or cache', async (t) => {
    const server = await serve(t);
    for (const target of [T, '/healthz', '/nothing']) {
        const { headers } = await server.get(target, { headers: { origin: 'https://evil.example' } });
        assert.equal(headers['x-content-type-options'], 'nosniff');
        assert.match(headers['cache-control'], /no-store|no-cache/);
        assert.equal(headers['access-control-allow-origin'], undefined);
        assert.ok(headers['content-security-policy']);
        assert.match(headers['x-request-id'], /^[\w.-]{1,64}$/);
    }
    const { headers } = await server.get('/healthz', { headers: { 'x-request-id': 'mine-1' } });
    assert.equal(headers['x-request-id'], 'mine-1');
});
