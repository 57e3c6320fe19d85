// Everything a client can get wrong in a body: a problem document that names the field, and no trace.
import assert from 'node:assert/strict';
import test from 'node:test';

import { assertProblem, serve, small } from './lib/reeld.mjs';

const T = '/api/v1/tasks';
const nested = (depth) => `{"prompt":"x","metadata":${'{"a":'.repeat(depth - 1)}1${'}'.repeat(depth - 1)}}`;

// [what, body as bytes or text]: the strict reader refuses the text.
const MALFORMED = [
    ['nothing', ''],
    ['white space', ' \n'],
    ['half an object', '{"prompt":"x"'],
    ['something behind it', '{"prompt":"x"} {}'],
    ['a trailing comma', '{"prompt":"x",}'],
    ['single quotes', "{'prompt':'x'}"],
    ['a comment', '{"prompt":"x"/* */}'],
    ['NaN', '{"prompt":"x","seed":NaN}'],
    ['Infinity', '{"prompt":"x","guidance_scale":Infinity}'],
    ['a leading zero', '{"prompt":"x","frames":04}'],
    ['a plus sign', '{"prompt":"x","frames":+4}'],
    ['a hex number', '{"prompt":"x","frames":0x4}'],
    ['a byte order mark', '\ufeff{"prompt":"x"}'],
    ['a NUL byte in a text', '{"prompt":"a\0b"}'],
    ['a NUL byte behind the end', '{"prompt":"x"}\0'],
    ['\\u0000', '{"prompt":"a\\u0000b"}'],
    ['\\u0000 in a name', '{"prompt":"x","a\\u0000":1}'],
    ['a raw control character', '{"prompt":"a\nb"}'],
    ['an unknown escape', '{"prompt":"a\\x41"}'],
    ['a lone high surrogate', '{"prompt":"\\ud800"}'],
    ['a lone low surrogate', '{"prompt":"\\udc00"}'],
    ['two high surrogates', '{"prompt":"\\ud800\\ud800"}'],
    ['a surrogate, then a letter', '{"prompt":"\\ud83dx"}'],
    ['bytes that are not UTF-8', Buffer.from('{"prompt":"\xff\xfe"}', 'latin1')],
    ['an over-long UTF-8 form', Buffer.from('{"prompt":"\xc0\xaf"}', 'latin1')],
    ['a surrogate in UTF-8', Buffer.from('{"prompt":"\xed\xa0\x80"}', 'latin1')],
    ['a cut UTF-8 sequence', Buffer.from('{"prompt":"\xe2\x82"}', 'latin1')],
    ['UTF-16', Buffer.from('{"prompt":"x"}', 'utf16le')],
    ['nesting 33', nested(33)],
    ['nesting 10,000 of arrays', `${'['.repeat(10000)}${']'.repeat(10000)}`],
    ['nesting without an end', '{"a":'.repeat(20000)],
    ['a name twice', '{"prompt":"x","prompt":"y"}'],
    ['a name twice, once escaped', '{"prompt":"x","pr\\u006fmpt":"y"}'],
    ['a name twice, deep inside', '{"prompt":"x","metadata":{"a":{"b":1,"c":2,"b":3}}}'],
];

// [field that the answer names, what is wrong in an otherwise good body]
const INVALID = [
    ['prompt', { prompt: undefined }],
    ['prompt', { prompt: null }],
    ['prompt', { prompt: '' }],
    ['prompt', { prompt: ' \t\n ' }],
    ['prompt', { prompt: 'x'.repeat(32769) }],
    ['prompt', { prompt: 'ü'.repeat(16385) }],
    ['prompt', { prompt: ['x'] }],
    ['prompt', { prompt: 5 }],
    ['negative_prompt', { negative_prompt: 'x'.repeat(32769) }],
    ['negative_prompt', { negative_prompt: {} }],
    ['engine', { engine: 'nosuch' }],
    ['engine', { engine: '' }],
    ['engine', { engine: 1 }],
    ['engine', { engine: '../testpattern' }],
    ['model', { model: 'nosuch' }],
    ['model', { model: false }],
    ['width', { width: 0 }],
    ['width', { width: -64 }],
    ['width', { width: 33 }],
    ['width', { width: 65536 }],
    ['width', { width: '64' }],
    ['width', { width: true }],
    ['height', { height: 31 }],
    ['height', { height: 64.5 }],
    ['height', { height: [] }],
    ['frames', { frames: 0 }],
    ['frames', { frames: -1 }],
    ['frames', { frames: 1.5 }],
    ['frames', { frames: 3601 }],
    ['frames', { frames: 2 ** 53 }],
    ['frames', { frames: 1e300 }],
    ['frames', { frames: '4' }],
    ['fps', { fps: 0 }],
    ['fps', { fps: 61 }],
    ['fps', { fps: 23.976 }],
    ['fps', { fps: {} }],
    ['steps', { steps: 0 }],
    ['steps', { steps: 100001 }],
    ['steps', { steps: 'many' }],
    ['seed', { seed: -1 }],
    ['seed', { seed: 2 ** 53 }],
    ['seed', { seed: 0.5 }],
    ['seed', { seed: 'abc' }],
    ['seed', { seed: '' }],
    ['seed', { seed: '-1' }],
    ['seed', { seed: '9007199254740992' }],
    ['seed', { seed: '1e3' }],
    ['seed', { seed: ' 1' }],
    ['seed', { seed: [] }],
    ['guidance_scale', { guidance_scale: 'much' }],
    ['guidance_scale', { guidance_scale: -1 }],
    ['guidance_scale', { guidance_scale: 1e10 }],
    ['flow_shift', { flow_shift: null, guidance_scale: undefined, seed: 'x' }, 'seed'],
    ['flow_shift', { flow_shift: true }],
    ['options', { options: [] }],
    ['options', { options: 'frame_ms=1' }],
    ['options.frame_ms', { options: { frame_ms: -1 } }],
    ['options.frame_ms', { options: { frame_ms: 60001 } }],
    ['options.frame_ms', { options: { frame_ms: '5' } }],
    ['options.frame_ms', { options: { frame_ms: 0.5 } }],
    ['options.nosuch', { options: { nosuch: 1 } }],
    ['options.fault', { options: { fault: 'abort' } }],
    ['priority', { priority: 2 }],
    ['priority', { priority: 0 }],
    ['priority', { priority: 5.5 }],
    ['priority', { priority: 'urgent' }],
    ['priority', { priority: 'HIGH' }],
    ['priority', { priority: {} }],
    ['queue_name', { queue_name: '' }],
    ['queue_name', { queue_name: 'a b' }],
    ['queue_name', { queue_name: 'a/b' }],
    ['queue_name', { queue_name: 'nächste' }],
    ['queue_name', { queue_name: 'x'.repeat(65) }],
    ['queue_name', { queue_name: 7 }],
    ['run_at', { run_at: 'tomorrow' }],
    ['run_at', { run_at: '2026-13-01T00:00:00Z' }],
    ['run_at', { run_at: '2026-02-30T00:00:00Z' }],
    ['run_at', { run_at: '2026-01-01T00:00:00' }],
    ['run_at', { run_at: '2026-01-01' }],
    ['run_at', { run_at: 1767225600 }],
    ['max_retries', { max_retries: -1 }],
    ['max_retries', { max_retries: 101 }],
    ['max_retries', { max_retries: 'two' }],
    ['queue_timeout_s', { queue_timeout_s: -1 }],
    ['queue_timeout_s', { queue_timeout_s: 31536001 }],
    ['run_timeout_s', { run_timeout_s: -5 }],
    ['run_timeout_s', { run_timeout_s: 1.5 }],
    ['idempotency_key', { idempotency_key: '' }],
    ['idempotency_key', { idempotency_key: 'schlüssel' }],
    ['idempotency_key', { idempotency_key: 'a b' }],
    ['idempotency_key', { idempotency_key: 'x'.repeat(256) }],
    ['idempotency_key', { idempotency_key: 12 }],
    ['idempotency', { idempotency: 'on' }],
    ['idempotency', { idempotency: true }],
    ['idempotency', { idempotency: 'off', idempotency_key: 'k' }],
    ['callback_url', { callback_url: '' }],
    ['callback_url', { callback_url: 'ftp://127.0.0.1/' }],
    ['callback_url', { callback_url: 'file:///etc/passwd' }],
    ['callback_url', { callback_url: '127.0.0.1:80' }],
    ['callback_url', { callback_url: '//127.0.0.1/' }],
    ['callback_url', { callback_url: 'http:/127.0.0.1/' }],
    ['callback_url', { callback_url: 'http://user:pass@127.0.0.1/' }],
    ['callback_url', { callback_url: 'http://user@127.0.0.1/' }],
    ['callback_url', { callback_url: 'http://' }],
    ['callback_url', { callback_url: 'http:///path' }],
    ['callback_url', { callback_url: 'http://?q' }],
    ['callback_url', { callback_url: 'http://127.0.0.1:0/' }],
    ['callback_url', { callback_url: 'http://127.0.0.1:65536/' }],
    ['callback_url', { callback_url: 'http://127.0.0.1:port/' }],
    ['callback_url', { callback_url: 'http://127.0.0.1/\r\nX-Evil: 1' }],
    ['callback_url', { callback_url: 'http://127.0.0.1/a b' }],
    ['callback_url', { callback_url: 'http://exa%6dple.com/' }],
    ['callback_url', { callback_url: 'http://bücher.example/' }],
    ['callback_url', { callback_url: `http://127.0.0.1/${'x'.repeat(2048)}` }],
    ['callback_url', { callback_url: 80 }],
    ['callback_url', { callback_secret: 'whsec_AAAA' }],
    ['callback_url', { callback_events: ['task.failed'] }],
    ['callback_secret', { callback_url: 'http://127.0.0.1:9/', callback_secret: 'whsec_%%%' }],
    ['callback_secret', { callback_url: 'http://127.0.0.1:9/', callback_secret: 'whsec_' }],
    ['callback_secret', { callback_url: 'http://127.0.0.1:9/', callback_secret: 'with space' }],
    ['callback_secret', { callback_url: 'http://127.0.0.1:9/', callback_secret: 'x'.repeat(257) }],
    ['callback_secret', { callback_url: 'http://127.0.0.1:9/', callback_secret: '' }],
    ['callback_events', { callback_url: 'http://127.0.0.1:9/', callback_events: [] }],
    ['callback_events', { callback_url: 'http://127.0.0.1:9/', callback_events: 'task.failed' }],
    ['callback_events', { callback_url: 'http://127.0.0.1:9/', callback_events: ['task.canceled'] }],
    ['callback_events', { callback_url: 'http://127.0.0.1:9/', callback_events: [1] }],
    ['metadata', { metadata: [] }],
    ['metadata', { metadata: 'text' }],
    ['metadata', { metadata: { text: 'x'.repeat(8192) } }],
    ['metadata', { metadata: { text: 'ü'.repeat(1400) } }], // six bytes each in a callback
    ['label', { label: 'x'.repeat(201) }],
    ['label', { label: {} }],
    ['promt', { promt: 'a spelling mistake' }],
    ['task_id', { task_id: '1' }],
    ['status', { status: 'SUCCEEDED' }],
    ['__proto__', JSON.parse('{"__proto__": 1}')],
];

test('whatever is wrong in a submit: a problem document, no task, and the server goes on', async (t) => {
    const server = await serve(t);
    const count = (await server.ids()).length;
    for (const [what, body] of MALFORMED) {
        const bytes = Buffer.isBuffer(body) ? body : Buffer.from(body);
        const answer = await server.post(T, bytes, { headers: { 'content-type': 'application/json' } });
        try {
            assertProblem(answer, 400, 'MALFORMED_JSON');
        } catch (error) {
            throw new Error(`${what}: ${error.message}`);
        }
    }
    for (const [field, wrong, named = field] of INVALID) {
        const body = { ...small('good'), ...wrong };
        if (Object.hasOwn(wrong, '__proto__'))
            Object.defineProperty(body, '__proto__', { value: 1, enumerable: true });
        const answer = await server.post(T, body);
        try {
            assertProblem(answer, 422, 'INVALID_FIELD', named);
        } catch (error) {
            throw new Error(`${JSON.stringify(wrong).slice(0, 100)}: ${error.message}`);
        }
    }
    assertProblem(await server.post(T, '{"prompt":"x","frames":1e999}'), 422, 'INVALID_FIELD', 'frames');
    assertProblem(await server.post(T, '{"prompt":"x","seed":9007199254740993}'), 422, 'INVALID_FIELD', 'seed');
    for (const body of ['[]', '"prompt"', '5', 'null', 'true'])
        assertProblem(await server.post(T, body), 422, 'INVALID_FIELD');

    assert.equal((await server.ids()).length, count, 'nothing was made');
    const good = await server.submit(small('still here'));
    await server.done(good.task_id);
});

test('what is allowed is accepted to its very edge', async (t) => {
    const server = await serve(t);
    const accepted = async (more) => {
        const task = await server.submit(small('edge', { idempotency: 'off', run_at: '2100-01-01T00:00:00Z', ...more }));
        return task;
    };
    const prompt = `${'x'.repeat(32766)}ü`;
    assert.equal((await accepted({ prompt })).prompt, prompt);
    assert.equal((await accepted({ prompt: '\u{1f3ac} "\\/\u2028\u{10ffff}' })).prompt, '\u{1f3ac} "\\/\u2028\u{10ffff}');
    assert.equal((await accepted({ seed: 2 ** 53 - 1 })).params.seed, 2 ** 53 - 1);
    assert.equal((await accepted({ seed: '9007199254740991' })).params.seed, 2 ** 53 - 1);
    assert.equal((await accepted({ seed: 0 })).params.seed, 0);
    assert.equal((await accepted({ frames: 3600 })).params.frames, 3600);
    assert.equal((await accepted({ frames: 4.0 })).params.frames, 4);
    assert.equal((await accepted({ label: 'x'.repeat(200) })).label.length, 200);
    assert.equal((await accepted({ queue_name: 'x'.repeat(64) })).queue_name.length, 64);
    const metadata = { text: 'x'.repeat(8192 - 11) };
    assert.deepEqual((await accepted({ metadata })).metadata, metadata);
    const far = '"run_at":"2100-01-01T00:00:00Z","idempotency":"off",';
    const answer = await server.post(T, nested(32).replace('"prompt"', `${far}"prompt"`));
    assert.equal(answer.status, 202, answer.text);
    const absent = await accepted({ label: null, priority: null, width: null, callback_url: null, options: null });
    assert.deepEqual([absent.label, absent.priority, absent.params.width, absent.callback_url], [null, 5, 640, null]);
    const escaped = await server.post(T, `{${far}"pr\\u006fmpt":"x"}`);
    assert.equal(escaped.status, 202, escaped.text);
});

test('sizes and types of bodies', async (t) => {
    const server = await serve(t, { set: { 'http.body_limit': 8192 } });
    const padded = (size) => `{"prompt":"x","run_at":"2100-01-01T00:00:00Z"${' '.repeat(size - 46)}}`;
    assert.equal(padded(8192).length, 8192);
    assert.equal((await server.post(T, padded(8192))).status, 202);
    assertProblem(await server.post(T, padded(8193)), 413, 'BODY_TOO_LARGE');
    assertProblem(await server.post(T, padded(300000)), 413, 'BODY_TOO_LARGE');
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', '',
        'application/jsonp', 'application/json; charset=latin1', 'text/json', 'application/xml'])
        assertProblem(await server.post(T, '{"prompt":"x"}', { headers: { 'content-type': type } }),
            415, 'UNSUPPORTED_MEDIA_TYPE');
    for (const type of ['application/json; charset=utf-8', 'Application/JSON', 'application/json;charset="UTF-8"'])
        assert.equal((await server.post(T, '{"prompt":"x","run_at":"2100-01-01T00:00:00Z"}',
            { headers: { 'content-type': type } })).status < 300, true, type);
    assertProblem(await server.api('POST', T), 415, 'UNSUPPORTED_MEDIA_TYPE');
});

test('metadata over any limit names its field, whatever a body may hold', async (t) => {
    const server = await serve(t, { set: { 'http.body_limit': 4 << 20 } });
    for (const size of [9000, 1 << 20, 3 << 20])
        assertProblem(await server.post(T, { prompt: 'x', metadata: { text: 'x'.repeat(size) } }), 422, 'INVALID_FIELD', 'metadata');
});

test('an id that is no id is not found', async (t) => {
    const server = await serve(t);
    const { task_id } = await server.submit(small('real'));
    const ids = ['abc', '-1', '+1', '0', '01', '1.0', '1e3', '9223372036854775808', '99999999999999999999999',
        `${task_id}x`, `0${task_id}`, ` ${task_id}`, `${task_id}%20`, '%31', '0x10', 'null', '..', '.', '%2e%2e', '*',
        '%C3%A4', 'x'.repeat(3000)];
    for (const id of ids)
        for (const [method, tail] of [['GET', ''], ['GET', '/events'], ['GET', '/video'], ['GET', '/poster'], ['POST', '/cancel']]) {
            const answer = await server.api(method, `${T}/${id.replaceAll(' ', '%20')}${tail}`);
            assertProblem(answer, 404, 'NOT_FOUND');
        }
    assertProblem(await server.get(`${T}/9223372036854775807`), 404, 'NOT_FOUND');
    await server.done(task_id);
});
