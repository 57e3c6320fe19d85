// Events of outside services, signed by the libraries that such services use (npm standardwebhooks and svix) and by
// hand: what gets in, what does not and how it is answered, one effect per id over races and kills.
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import test from 'node:test';

import { Webhook as StandardWebhook } from 'standardwebhooks';
import { Webhook as SvixWebhook } from 'svix';

import { assertProblem, BIN, eventually, LONG, rawExchange, readmeBlock, run, serve, sql, statuses, tick } from './lib/reeld.mjs';

const EVENT = JSON.stringify({ type: 'video.completed', data: { id: 'video_1' } });
const now = () => Math.floor(Date.now() / 1000);

async function add(server, source = 'openai', more = {}) {
    const answer = await server.post('/api/v1/hooks', { source, ...more });
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.headers.location, `/api/v1/hooks/${source}`);
    return answer.json;
}

/** Headers of a delivery, signed by npm standardwebhooks. */
function signed(secret, id, body = EVENT, at = new Date()) {
    return {
        'content-type': 'application/json', 'webhook-id': id,
        'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
        'webhook-signature': new StandardWebhook(secret).sign(id, at, body),
    };
}

const deliver = (server, headers, body = EVENT, source = 'openai') =>
    server.api('POST', `/api/v1/hooks/${source}`, { key: null, body: Buffer.from(body), headers });

const send = (server, secret, id, body) => deliver(server, signed(secret, id, body), body);

async function events(server, source = 'openai', query = '') {
    const answer = await server.get(`/api/v1/hooks/${source}/events${query}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.json.data;
}

const figures = async (server, source = 'openai') => (await server.get(`/api/v1/hooks/${source}`)).json.stats;

async function refused(server, result) {
    const { text } = await server.get('/metrics');
    return Number(new RegExp(`^reeld_hook_deliveries_total{result="${result}"} (\\d+)$`, 'm').exec(text)[1]);
}

test('an event gets in once, by whichever library it is signed', async (t) => {
    const server = await serve(t);
    const made = await add(server);
    assert.match(made.secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
    assert.equal(made.url, `${server.url}/api/v1/hooks/openai`);
    const { secret, ...rest } = made;
    assert.deepEqual((await server.get('/api/v1/hooks')).json, { data: [rest], next: null }, 'a secret is shown once');

    const first = await send(server, secret, 'evt_1');
    assert.equal(first.status, 202, first.text);
    assert.deepEqual(first.json, { event_id: 'evt_1', repeated: false });
    const again = await send(server, secret, 'evt_1');
    assert.equal(again.status, 200);
    assert.deepEqual(again.json, { event_id: 'evt_1', repeated: true });
    const other = await send(server, secret, 'evt_1', '{"type":"video.failed"}');
    assert.equal(other.status, 200, 'the first body of an id is the one that counts');
    await server.waitLog(/event=hook_event_differs source=openai event_id="?evt_1/);

    const at = new Date();
    const svix = await deliver(server, {
        'content-type': 'application/json; charset=utf-8', 'webhook-id': 'msg_2',
        'webhook-timestamp': String(Math.floor(at / 1000)),
        'webhook-signature': new SvixWebhook(secret).sign('msg_2', at, EVENT),
    });
    assert.equal(svix.status, 202, svix.text);

    const [second, oldest] = await events(server);
    assert.equal(second.event_id, 'msg_2');
    assert.deepEqual({ ...oldest, event_seq: '', received_at: '' }, {
        event_seq: '', event_id: 'evt_1', type: 'video.completed', correlation_id: 'video_1', received_at: '',
        handled_at: null, body: EVENT,
    });
    assert.deepEqual((await events(server, 'openai', '?order=asc&limit=1')).map((e) => e.event_id), ['evt_1']);
    const stats = await figures(server);
    assert.equal(stats.received, 2);
    assert.equal(stats.waiting, 2);
    assert.equal(await refused(server, 'accepted'), 2);
    assert.equal(await refused(server, 'repeated'), 2);
});

test('curl and openssl, as the README shows', async (t) => {
    const server = await serve(t);
    const { secret, url } = await add(server);
    const env = { HOOK_SECRET: secret, HOOK_URL: url };
    const { code, stdout, stderr } = await run('bash', ['-euc', readmeBlock('hook.sh')], { env });
    assert.equal(code, 0, stderr);
    assert.equal(JSON.parse(stdout).repeated, false);
});

test('what is not signed as it should be is 401, and all of it looks the same', async (t) => {
    const server = await serve(t);
    const { secret } = await add(server);
    await add(server, 'off', { secret, enabled: false });
    const good = signed(secret, 'evt_1');
    const wrong = await deliver(server, { ...good, 'webhook-id': 'evt_2' });
    assertProblem(wrong, 401, 'UNAUTHORIZED');
    const comparable = ({ headers: { date, 'x-request-id': id, ...headers }, ...answer }) => ({ ...answer, headers });
    for (const [what, answer] of [
        ['no such source', await deliver(server, good, EVENT, 'nobody')],
        ['no name of one', await deliver(server, good, EVENT, 'No-Body..')],
        ['a disabled source', await deliver(server, good, EVENT, 'off')],
        ['another secret', await deliver(server, signed(`whsec_${randomBytes(32).toString('base64')}`, 'evt_1'))],
        ['another body', await deliver(server, good, EVENT.replace('video_1', 'video_2'))],
        ['a body with a space more', await deliver(server, good, `${EVENT} `)],
        ['a time a second later', await deliver(server, { ...good, 'webhook-timestamp': String(now() + 1) })],
        ['a signature cut short', await deliver(server, { ...good, 'webhook-signature': good['webhook-signature'].slice(0, -1) })],
    ]) {
        assert.equal(answer.status, 401, what);
        assert.deepEqual(comparable(answer), comparable(wrong), what);
    }
    for (const [headers, field] of [
        [{ 'webhook-id': '' }, 'webhook-id'], [{ 'webhook-id': 'a.b' }, 'webhook-id'],
        [{ 'webhook-id': 'x'.repeat(129) }, 'webhook-id'],
        [{ 'webhook-timestamp': String(Date.now()) }, 'webhook-timestamp'],
        [{ 'webhook-signature': good['webhook-signature'].slice(3) }, 'webhook-signature'],
        [{ 'webhook-signature': `v1a,${good['webhook-signature'].slice(3)}` }, 'webhook-signature'],
    ])
        assertProblem(await deliver(server, { ...good, ...headers }), 401, 'UNAUTHORIZED', field);
    for (const name of ['webhook-id', 'webhook-timestamp', 'webhook-signature']) {
        const { [name]: gone, ...less } = good;
        assertProblem(await deliver(server, less), 401, 'UNAUTHORIZED', name);
        assertProblem(await deliver(server, { ...good, [name]: [gone, gone] }), 401, 'UNAUTHORIZED', name);
    }
    assert.equal((await events(server)).length, 0);
    assert.equal((await deliver(server, good)).status, 202, 'and the one they were made from is good');
    assert.ok(await refused(server, 'signature') >= 5);
    assert.equal(await refused(server, 'source'), 3);
    assert.doesNotMatch(server.stderr, /whsec_|v1,/, 'no secret or signature in the log');
});

test('a list of signatures: any of them will do', async (t) => {
    const server = await serve(t);
    const { secret } = await add(server);
    const headers = signed(secret, 'evt_1');
    headers['webhook-signature'] = `v1a,abc v1,${Buffer.alloc(32).toString('base64')} ${headers['webhook-signature']}`;
    assert.equal((await deliver(server, headers)).status, 202);
});

test('the window: five minutes either way', async (t) => {
    const server = await serve(t, { set: { 'hook.tolerance_s': 300 } });
    const { secret } = await add(server);
    const at = (offset) => deliver(server, signed(secret, `evt_${offset}`, EVENT, new Date(Date.now() + offset * 1000)));
    for (const offset of [-290, 290]) assert.equal((await at(offset)).status, 202, `${offset} s`);
    for (const offset of [-310, 310, -86400])
        assertProblem(await at(offset), 401, 'UNAUTHORIZED', 'webhook-timestamp');
    assert.equal(await refused(server, 'time'), 3);
});

test('a rotation: two secrets are valid for a while', async (t) => {
    const server = await serve(t);
    const made = await add(server, 'openai', { secret: 'not base64 but long enough'.replaceAll(' ', '-') });
    const plain = (id) => {
        const time = String(now());
        const mac = createHmac('sha256', made.secret).update(`${id}.${time}.${EVENT}`).digest('base64');
        return { 'content-type': 'application/json', 'webhook-id': id, 'webhook-timestamp': time, 'webhook-signature': `v1,${mac}` };
    };
    assert.equal((await deliver(server, plain('evt_1'))).status, 202);
    const rotated = await server.post('/api/v1/hooks/openai/rotate');
    assert.equal(rotated.status, 200, rotated.text);
    assert.ok(Date.parse(rotated.json.old_secret_until) > Date.now() + 23 * 3600e3, 'a day by default');
    assert.equal((await deliver(server, plain('evt_2'))).status, 202);
    assert.equal((await send(server, rotated.json.secret, 'evt_3')).status, 202);
    // The promise to the first secret stands; nothing was changed by the refusal.
    assertProblem(await server.post('/api/v1/hooks/openai/rotate'), 409, 'CONFLICT', 'grace_s');
    assert.equal((await deliver(server, plain('evt_3b'))).status, 202);
    const last = await server.post('/api/v1/hooks/openai/rotate', { grace_s: 0 });
    assert.equal((await deliver(server, plain('evt_4'))).status, 401);
    assert.equal((await send(server, rotated.json.secret, 'evt_4')).status, 401);
    assert.equal((await send(server, last.json.secret, 'evt_4')).status, 202);
    // What must not count any more is not kept: a clock that is set back would revive it.
    assert.deepEqual(await sql(server.db, 'SELECT old_secret FROM hook'), [{ old_secret: null }]);
});

test('any program with an owner\'s key consumes the events', async (t) => {
    const server = await serve(t, { set: { 'hook.backlog': 3 } });
    const { secret } = await add(server);
    for (const id of ['a', 'b', 'c'])
        assert.equal((await send(server, secret, id)).status, 202);
    assert.equal((await send(server, secret, 'd')).status, 429);
    const waits = await events(server, 'openai', '?handled=false&order=asc');
    assert.deepEqual(waits.map((event) => [event.event_id, event.body]), [['a', EVENT], ['b', EVENT], ['c', EVENT]]);
    const report = (event_seqs) => server.post('/api/v1/hooks/openai/events/handled', { event_seqs });
    const [a, b] = waits.map((event) => event.event_seq);
    for (let i = 0; i < 2; i++)
        assert.deepEqual((await report([a, '99'])).json, { handled: [a], unknown: ['99'] });
    assert.deepEqual((await events(server, 'openai', '?handled=false')).map((event) => event.event_id), ['c', 'b']);
    assert.equal((await send(server, secret, 'd')).status, 202, 'there is room again');
    assert.equal((await send(server, secret, 'a')).json.repeated, true);
    for (const wrong of [[], ['x'], [1], 'a', Array(201).fill('1')])
        assertProblem(await report(wrong), 422, 'INVALID_FIELD', 'event_seqs');
    assertProblem(await server.get('/api/v1/hooks/openai/events?handled=true'), 422, 'INVALID_FIELD', 'handled');

    const cli = (...args) => run(BIN, [...args, '--state-dir', server.dir]);
    const table = await cli('hook', 'events', 'openai', '--waiting');
    assert.equal(JSON.parse(table.stdout).data.length, 3);
    const done = await cli('hook', 'handled', 'openai', b, '99', '--json');
    assert.equal(done.code, 3, done.stderr);
    assert.deepEqual(JSON.parse(done.stdout), { handled: [b], unknown: ['99'] });
    assert.equal((await cli('hook', 'handled', 'openai', 'b')).code, 2);
    assert.equal((await figures(server)).waiting, 2);
});

test('an address that is not listed learns nothing; rates and bodies are judged in order', async (t) => {
    const server = await serve(t, { set: { 'hook.per_minute': 5, 'hook.body_bytes': 1000, 'limit.trusted_proxies': '127.0.0.1' } });
    const { secret } = await add(server, 'openai', { allow: ['192.0.2.0/24', '2001:db8::7'] });
    const from = (address, id) => deliver(server, { ...signed(secret, id), 'x-forwarded-for': address });
    assert.equal((await from('192.0.2.9', 'a')).status, 202);
    assert.equal((await from('2001:db8::7', 'b')).status, 202);
    // For an address that is not listed there is no such source: the answers are the same but for the request's id.
    const seen = ({ status, text, headers: { date, 'x-request-id': id, ...headers } }) => ({ status, text, headers });
    for (const address of ['198.51.100.1', '2001:db8::8', '127.0.0.1']) {
        const answer = await from(address, 'c');
        assertProblem(answer, 401, 'UNAUTHORIZED');
        const unknown = await deliver(server, { ...signed(secret, 'c'), 'x-forwarded-for': address }, EVENT, 'nobody');
        assert.deepEqual(seen(answer), seen(unknown));
    }
    assert.equal(await refused(server, 'address'), 3);
    assert.equal(await refused(server, 'source'), 3);
    // The head alone is enough for a refusal by rate: the body never comes.
    for (let i = 0; i < 4; i++)
        await from('127.0.0.1', 'c');
    const head = Object.entries({ ...signed(secret, 'd'), 'content-length': '900' }).map(([k, v]) => `${k}: ${v}\r\n`).join('');
    const text = await rawExchange(server.port, `POST /api/v1/hooks/openai HTTP/1.1\r\nHost: 127.0.0.1\r\n${head}\r\n`,
        { done: (all) => /\r\n\r\n/.test(all) });
    assert.deepEqual(statuses(text), [429]);

    const { json: open } = await server.post('/api/v1/hooks', { source: 'open' });
    const big = JSON.stringify({ x: 'x'.repeat(1000) });
    assertProblem(await deliver(server, signed(open.secret, 'big', big), big, 'open'), 413, 'BODY_TOO_LARGE');
    assertProblem(await deliver(server, { ...signed(open.secret, 't'), 'content-type': 'text/plain' }, EVENT, 'open'), 415,
        'UNSUPPORTED_MEDIA_TYPE');
    for (const body of ['', '{', '{"a":1,"a":2}'])
        assertProblem(await deliver(server, signed(open.secret, 'j', body), body, 'open'), 400, 'MALFORMED_JSON');
    const late = await deliver(server, signed(open.secret, 'late'), EVENT, 'open');
    assertProblem(late, 429, 'RATE_LIMITED');
    assert.ok(Number(late.headers['retry-after']) >= 1);
    const elsewhere = { ...signed(open.secret, 'late'), 'x-forwarded-for': '192.0.2.77' };
    assert.equal((await deliver(server, elsewhere, EVENT, 'open')).status, 202, 'junk uses up nobody else\'s rate');
    await server.api('PATCH', '/api/v1/hooks/open', { body: { per_minute: 0 } });
    assert.equal((await deliver(server, signed(open.secret, 'free'), EVENT, 'open')).status, 202);
    assert.equal(await refused(server, 'rate'), 2);
    assert.equal(await refused(server, 'address'), 7);
});

test('a source nobody listens to is told so in the end, and loses nothing', async (t) => {
    const server = await serve(t, { set: { 'hook.backlog': 3 } });
    const { secret } = await add(server);
    for (const id of ['a', 'b', 'c']) assert.equal((await send(server, secret, id)).status, 202);
    const full = await send(server, secret, 'd');
    assertProblem(full, 429, 'QUEUE_FULL');
    assert.ok(full.headers['retry-after']);
    assert.equal((await send(server, secret, 'c')).status, 200);
    assert.equal((await figures(server)).received, 3);
});

test('owners alone register sources; a source can be changed, listed and removed', async (t) => {
    const server = await serve(t);
    const { key } = await server.addKey('alice');
    for (const [method, target, body] of [
        ['GET', '', undefined], ['POST', '', { source: 'x' }], ['GET', '/openai', undefined], ['PATCH', '/openai', {}],
        ['DELETE', '/openai', undefined], ['POST', '/openai/rotate', {}], ['GET', '/openai/events', undefined],
    ]) {
        const as = (who) => server.api(method, `/api/v1/hooks${target}`, { key: who, body });
        assert.equal((await as(key)).status, 403, `${method} ${target}`);
        assert.equal((await as(null)).status, 401, `${method} ${target}`);
    }
    const { secret } = await add(server);
    for (const [body, field] of [
        [{}, 'source'], [{ source: 'A' }, 'source'], [{ source: 'x', allow: ['10.0.0.0/33'] }, 'allow'],
        [{ source: 'x', allow: '10.0.0.0/8' }, 'allow'], [{ source: 'x', allow: ['10.0.0.1,10.0.0.2'] }, 'allow'],
        [{ source: 'x', secret: 'whsec_!' }, 'secret'], [{ source: 'x', per_minute: -1 }, 'per_minute'],
        [{ source: 'x', enabled: 1 }, 'enabled'], [{ source: 'x', url: 'y' }, 'url'],
    ])
        assertProblem(await server.post('/api/v1/hooks', body), 422, 'INVALID_FIELD', field);
    assertProblem(await server.post('/api/v1/hooks', { source: 'openai' }), 409, 'CONFLICT');
    const changed = await server.api('PATCH', '/api/v1/hooks/openai', { body: { allow: ['10.0.0.0/8'], per_minute: 9 } });
    assert.deepEqual(changed.json.allow, ['10.0.0.0/8']);
    assert.equal(changed.json.per_minute, 9);
    const freed = await server.api('PATCH', '/api/v1/hooks/openai', { body: { allow: [], per_minute: null } });
    assert.deepEqual(freed.json.allow, []);
    assert.equal(freed.json.per_minute, null);

    assert.equal((await send(server, secret, 'evt_1')).status, 202);
    assert.equal((await server.api('DELETE', '/api/v1/hooks/openai')).status, 204);
    assert.equal((await send(server, secret, 'evt_2')).status, 401);
    for (const target of ['openai', 'openai/events'])
        assertProblem(await server.get(`/api/v1/hooks/${target}`), 404, 'NOT_FOUND');
    assert.deepEqual(await sql(server.db, 'SELECT * FROM processed_event'), []);
});

test('fifty posts of one id at once: one row, one 202', async (t) => {
    const server = await serve(t, { set: { 'hook.per_minute': 0 } });
    const { secret } = await add(server);
    const headers = signed(secret, 'evt_race');
    const answers = await Promise.all(Array.from({ length: 50 }, () => deliver(server, headers)));
    const tally = answers.map((answer) => answer.status).sort();
    assert.deepEqual(tally, [...Array(49).fill(200), 202]);
    assert.equal((await events(server)).length, 1);
    assert.equal((await figures(server)).received, 1);
});

test('kill -9 between the commit and the answer: the sender\'s repeat has no second effect', async (t) => {
    const server = await serve(t, { set: { 'hook.per_minute': 0 } });
    const { secret } = await add(server);
    // The row is there, the sender has not heard of it: the power goes.
    const sender = rawExchange(server.port, [
        `POST /api/v1/hooks/openai HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: ${EVENT.length}\r\n${Object
            .entries(signed(secret, 'evt_kill')).map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`,
        async (text, socket) => {
            socket.pause(); // reads no answer
            socket.write(EVENT);
        },
    ]).catch(() => '');
    await eventually('the row', async () => (await sql(server.db, 'SELECT 1 FROM processed_event')).length === 1);
    await server.kill9();
    await server.start();
    const repeat = await send(server, secret, 'evt_kill');
    assert.equal(repeat.status, 200, repeat.text);
    assert.equal(repeat.json.repeated, true);
    assert.equal((await events(server)).length, 1);
    assert.equal((await figures(server)).received, 1);
    await sender;
});

test('kill -9 at any moment: what was answered 2xx is there, once', async (t) => {
    const server = await serve(t, { set: { 'hook.per_minute': 0 } });
    const { secret } = await add(server);
    let sent = 0;
    for (let round = 0; round < (LONG ? 60 : 6); round++) {
        const heard = [];
        const ids = Array.from({ length: 8 }, () => `evt_${sent++}`);
        const flights = ids.map((id) => send(server, secret, id).then((a) => heard.push([id, a.status]), () => {}));
        await tick(Math.random() * 8);
        await server.kill9();
        await Promise.all(flights);
        await server.start();
        for (const [id, status] of heard) {
            assert.equal(status, 202, id);
            assert.equal((await send(server, secret, id)).status, 200, `${id} was promised`);
        }
        for (const id of ids) assert.ok([200, 202].includes((await send(server, secret, id)).status), id);
    }
    const rows = await sql(server.db, 'SELECT event_id FROM processed_event');
    assert.equal(rows.length, sent);
    assert.equal((await figures(server)).received, sent);
});
