// Who may do what: keys, sessions, sign-in links.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { Clock, HOUR, noClock } from './lib/clock.mjs';
import { assertProblem, serve, slow, small } from './lib/reeld.mjs';

const T = '/api/v1/tasks';
const ID = '7000000000000000000';
const ROUTES = [
    ['POST', T], ['GET', T], ['GET', `${T}/${ID}`], ['GET', `${T}/${ID}/events`], ['POST', `${T}/${ID}/cancel`],
    ['GET', `${T}/${ID}/video`], ['GET', `${T}/${ID}/poster`], ['GET', '/api/v1/engines'], ['GET', '/api/v1/workers'],
    ['GET', '/api/v1/keys'], ['POST', '/api/v1/keys'], ['DELETE', '/api/v1/keys/1'], ['GET', '/api/v1/session'],
    ['POST', '/api/v1/session/link'], ['GET', '/api/v1/callback-secret'], ['GET', '/api/v1/backup'],
];

test('without a key: nothing but the probes, the page and its description', async (t) => {
    const server = await serve(t);
    const wrong = [null, '', 'x', `${server.key}x`, server.key.slice(0, -1), server.key.toUpperCase(), `rk_${'A'.repeat(43)}`,
        'x'.repeat(5000)];
    for (const [method, target] of ROUTES) {
        const body = method === 'POST' ? {} : undefined;
        const answer = await server.api(method, target, { body, key: null });
        assertProblem(answer, 401, 'UNAUTHORIZED');
        assert.match(answer.headers['www-authenticate'], /^Bearer/);
    }
    for (const key of wrong) assertProblem(await server.get(T, { key }), 401, 'UNAUTHORIZED');
    for (const authorization of [`Basic ${Buffer.from(`owner:${server.key}`).toString('base64')}`, server.key,
        `Bearer${server.key}`, 'Bearer', `Bearer ${server.key} x`])
        assertProblem(await server.get(T, { key: null, headers: { authorization } }), 401, 'UNAUTHORIZED');
    // A wrong key is not outweighed by a right one elsewhere, nor does a key work in the query.
    assertProblem(await server.get(T, { key: 'rk_wrong', headers: { 'x-api-key': server.key } }), 401, 'UNAUTHORIZED');
    assertProblem(await server.get(`${T}?key=${server.key}`, { key: null }), 401, 'UNAUTHORIZED');
    for (const target of ['/healthz', '/readyz', '/openapi.json', '/'])
        assert.equal((await server.get(target, { key: null })).status, 200, target);
    for (const headers of [{ authorization: `bearer ${server.key}` }, { 'x-api-key': server.key }])
        assert.equal((await server.get(T, { key: null, headers })).status, 200);
});

test('a revoked key is void at once, and its sessions with it', async (t) => {
    const server = await serve(t);
    const { key, key_id } = await server.addKey('alice');
    const session = await server.post('/api/v1/session', { key }, { key: null });
    const cookie = session.headers['set-cookie'][0].split(';')[0];
    const task = await server.submit(slow('hers', { frames: 10 }), { key });
    assert.equal((await server.get(T, { key: null, headers: { cookie } })).status, 200);

    const gone = await server.api('DELETE', `/api/v1/keys/${key_id}`);
    assert.equal(gone.status, 204);
    assertProblem(await server.get(T, { key }), 401, 'UNAUTHORIZED');
    assertProblem(await server.post(T, small('again'), { key }), 401, 'UNAUTHORIZED');
    assertProblem(await server.get(T, { key: null, headers: { cookie } }), 401, 'UNAUTHORIZED');
    assertProblem(await server.post('/api/v1/session', { key }, { key: null }), 401, 'UNAUTHORIZED');
    assertProblem(await server.api('DELETE', `/api/v1/keys/${key_id}`), 404, 'NOT_FOUND');
    assert.equal((await server.done(task.task_id)).status, 'SUCCEEDED', 'her task goes on');
    const { data } = (await server.get('/api/v1/keys')).json;
    const row = data.find((entry) => entry.key_id === key_id);
    assert.ok(row.revoked_at);
    assert.equal(data.find((entry) => entry.user_id === 'owner').revoked_at, null);

    await server.stop();
    await server.start();
    assertProblem(await server.get(T, { key }), 401, 'UNAUTHORIZED');
});

test('an app sees and steers its own tasks only', async (t) => {
    const server = await serve(t);
    const alice = (await server.addKey('alice')).key;
    const bob = (await server.addKey('bob')).key;
    const hers = await server.submit(small('hers'), { key: alice });
    const his = await server.submit(small('his'), { key: bob });
    const mine = await server.submit(small('mine'));
    assert.deepEqual([hers.user_id, his.user_id, mine.user_id], ['alice', 'bob', 'owner']);
    await server.done(mine.task_id);

    for (const [method, tail] of [['GET', ''], ['GET', '/events'], ['GET', '/video'], ['GET', '/poster'], ['POST', '/cancel']])
        for (const task of [his, mine])
            assertProblem(await server.api(method, `${T}/${task.task_id}${tail}`, { key: alice }), 404, 'NOT_FOUND');
    const list = async (key) => (await server.get(T, { key })).json.data.map((task) => task.task_id);
    assert.deepEqual(await list(alice), [hers.task_id]);
    assert.deepEqual(await list(bob), [his.task_id]);
    assert.deepEqual(await list(server.key), [mine, his, hers].map((task) => task.task_id));

    for (const [method, target] of [['GET', '/api/v1/keys'], ['POST', '/api/v1/keys'], ['DELETE', '/api/v1/keys/1'], ['GET', '/api/v1/backup']])
        assertProblem(await server.api(method, target, { key: alice, body: method === 'POST' ? { user: 'eve', role: 'owner' } : undefined }),
            403, 'FORBIDDEN');
    assert.equal((await server.get('/api/v1/engines', { key: alice })).status, 200);
    const second = (await server.addKey('alice')).key;
    assert.equal((await server.get(`${T}/${hers.task_id}`, { key: second })).status, 200, 'a user may have several keys');
});

test('the list of workers names no task of another user', async (t) => {
    const server = await serve(t);
    const alice = (await server.addKey('alice')).key;
    const bob = (await server.addKey('bob')).key;
    const hers = await server.submit(slow('hers', { frames: 2000 }), { key: alice });
    await server.until(hers.task_id, 'PROCESSING');
    const worker = async (key) => (await server.get('/api/v1/workers', { key })).json.data[0];
    for (const key of [alice, server.key]) assert.equal((await worker(key)).task_id, hers.task_id);
    const { worker_id, device, alive, ...run } = await worker(bob);
    assert.ok(worker_id && device && alive);
    assert.deepEqual(run, { task_id: null, attempt: null, phase: null, step: null, total_steps: null,
        heartbeat_at: null, running_seconds: null });
    await server.post(`${T}/${hers.task_id}/cancel`, { mode: 'hard' });
});

test('keys: made once, listed without themselves, bad names refused', async (t) => {
    const server = await serve(t);
    const { key } = await server.addKey('a.b_c@d-1');
    assert.match(key, /^rk_[A-Za-z0-9_-]{43}$/);
    const listed = await server.get('/api/v1/keys');
    assert.ok(!listed.text.includes(key) && !listed.text.includes(server.key));
    const file = fs.readFileSync(server.db).toString('latin1') + fs.readFileSync(`${server.db}-wal`).toString('latin1');
    assert.ok(!file.includes(key) && !file.includes(server.key), 'nor does the database hold one');
    assert.ok(!server.stderr.includes(key), 'nor the log');
    const add = (body) => server.post('/api/v1/keys', body);
    for (const user of ['', 'a b', 'a/b', 'ä', 'x'.repeat(64), 'a\n', 5])
        assertProblem(await add({ user }), 422, 'INVALID_FIELD', 'user');
    assertProblem(await add({}), 422, 'INVALID_FIELD', 'user');
    assertProblem(await add({ user: 'x', role: 'admin' }), 422, 'INVALID_FIELD', 'role');
    assertProblem(await add({ user: 'x', owner: true }), 422, 'INVALID_FIELD', 'owner');
    assert.equal((await add({ user: 'x'.repeat(63) })).status, 201);
});

test('the browser session: by key or link, HttpOnly and SameSite, for pages of this host only', async (t) => {
    const server = await serve(t);
    const origin = server.url;
    const session = await server.post('/api/v1/session', { key: server.key }, { key: null });
    assert.equal(session.status, 200, session.text);
    const [set] = session.headers['set-cookie'];
    assert.match(set, /^reeld_session=[^;]+; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict$/);
    const cookie = set.split(';')[0];
    const by = (method, target, { body, headers } = {}) =>
        server.api(method, target, { key: null, body, headers: { cookie, ...headers } });

    assert.equal((await by('GET', T)).status, 200);
    const me = await by('GET', '/api/v1/session');
    assert.deepEqual([me.json.user_id, me.json.owner], ['owner', true]);
    assert.ok(Date.parse(me.json.expires_at) > Date.now());

    for (const headers of [{}, { origin: 'https://evil.example' }, { origin: 'null' }, { origin: `${origin}.evil.example` },
        { origin: `http://127.0.0.1:${server.port + 1}` }, { origin: '' }]) {
        assertProblem(await by('POST', T, { body: small('forged'), headers }), 403, 'FORBIDDEN');
        assertProblem(await by('DELETE', '/api/v1/keys/1', { headers }), 403, 'FORBIDDEN');
    }
    assert.deepEqual(await server.ids(), []);
    const made = await by('POST', T, { body: small('from the page'), headers: { origin } });
    assert.equal(made.status, 202, made.text);
    await server.done(made.json.task_id);
    assertProblem(await server.post('/api/v1/session', { key: server.key }, { key: null, headers: { origin: 'https://evil.example' } }),
        403, 'FORBIDDEN');

    // A GET with consequences: a page elsewhere on this host name sends the cookie, too, and no Origin.
    const FEED = '/api/v1/feeds/page';
    for (const target of [FEED, '/api/v1/backup']) {
        for (const headers of [{}, { origin }, { 'sec-fetch-site': 'same-site' }, { 'sec-fetch-site': 'cross-site' },
            { 'sec-fetch-site': '' }])
            assertProblem(await by('GET', target, { headers }), 403, 'FORBIDDEN');
    }
    assert.deepEqual((await server.get('/api/v1/feeds')).json.data, [], 'no feed was made');
    for (const site of ['same-origin', 'none'])
        for (const target of [FEED, '/api/v1/backup'])
            assert.equal((await by('GET', target, { headers: { 'sec-fetch-site': site } })).status, 200, `${target} ${site}`);
    assert.equal((await server.get(FEED)).status, 200, 'a key needs no such header');

    const out = await by('DELETE', '/api/v1/session', { headers: { origin } });
    assert.equal(out.status, 204);
    assert.match(out.headers['set-cookie'][0], /^reeld_session=; .*Max-Age=0/);
});

test('a sign-in link becomes the cookie; forged and expired ones do not', async (t) => {
    const server = await serve(t);
    const printed = /sign in: (http:\S+)/.exec(server.stdout)[1];
    const { url, expires_at } = (await server.post('/api/v1/session/link', {})).json;
    assert.ok(Math.abs(Date.parse(expires_at) - Date.now() - 3600000) < 60000);
    for (const link of [printed, url]) {
        assert.ok(link.startsWith(`${server.url}/sign-in?token=`), link);
        const answer = await server.get(link.slice(server.url.length), { key: null });
        assert.equal(answer.status, 303);
        assert.equal(answer.headers.location, '/');
        const cookie = answer.headers['set-cookie'][0].split(';')[0];
        assert.equal((await server.get(T, { key: null, headers: { cookie } })).status, 200);
    }
    const token = new URL(url).searchParams.get('token');
    const [purpose, key_id, expires, mac] = token.split('.');
    const last = mac.at(-2) === 'A' ? 'B' : 'A';
    const forged = [
        `${purpose}.${key_id}.${expires}.${mac.slice(0, -2)}${last}${mac.at(-1)}`,
        `${purpose}.${key_id}.${Number(expires) + 1}.${mac}`,
        `${purpose}.2.${expires}.${mac}`,
        `session.${key_id}.${expires}.${mac}`,
        `${purpose}.${key_id}.${expires}`,
        `${purpose}.${key_id}.${expires}.`,
        `${token}x`, '', '....', 'x'.repeat(4000),
    ];
    for (const value of forged) {
        const answer = await server.get(`/sign-in?token=${value}`, { key: null });
        assert.equal(answer.status, 401, value);
        assert.equal(answer.headers['set-cookie'], undefined);
        assertProblem(await server.get(T, { key: null, headers: { cookie: `reeld_session=${value || 'x'}` } }), 401, 'UNAUTHORIZED');
    }
    const asSession = await server.get(T, { key: null, headers: { cookie: `reeld_session=${token}` } });
    assertProblem(asSession, 401, 'UNAUTHORIZED'); // a link is no session
    assert.ok(!server.stderr.includes(mac), 'no token is logged');
});

test('a session cannot be made to live longer', async (t) => {
    // An hour is the shortest life there is; what a client can do about it is lie.
    const server = await serve(t, { set: { 'auth.session_hours': 1 } });
    const session = await server.post('/api/v1/session', { key: server.key }, { key: null });
    const cookie = session.headers['set-cookie'][0].split(';')[0];
    assert.equal((await server.get(T, { key: null, headers: { cookie } })).status, 200);
    const [, , expires] = cookie.split('=')[1].split('.');
    assert.ok(Math.abs(Number(expires) - Date.now() / 1000 - 3600) < 60);
    const [name, mac] = [cookie.split('.').slice(0, 2).join('.'), cookie.split('.')[3]];
    const longer = `${name}.${Number(expires) + 36000}.${mac}`;
    assertProblem(await server.get(T, { key: null, headers: { cookie: longer } }), 401, 'UNAUTHORIZED');
});

test('sessions and links end with their time', { skip: noClock() }, async (t) => {
    const clock = new Clock(t);
    const server = await serve(t, { set: { 'auth.session_hours': 1, 'auth.link_minutes': 10 }, env: clock.env });
    const session = await server.post('/api/v1/session', { key: server.key }, { key: null });
    const cookie = session.headers['set-cookie'][0].split(';')[0];
    const target = new URL((await server.post('/api/v1/session/link', {})).json.url);
    const signIn = () => server.get(target.pathname + target.search, { key: null });
    const look = () => server.get(T, { key: null, headers: { cookie } });
    assert.deepEqual([(await signIn()).status, (await look()).status], [303, 200]);
    clock.jump(HOUR / 4);
    assert.deepEqual([(await signIn()).status, (await look()).status], [401, 200]);
    clock.jump(HOUR);
    assert.deepEqual([(await signIn()).status, (await look()).status], [401, 401]);
});

test('what is secret is readable by its user only', async (t) => {
    const server = await serve(t);
    await server.done((await server.submit(small('a result'))).task_id);
    const mode = (name) => fs.statSync(path.join(server.dir, name)).mode & 0o777;
    assert.equal(mode('owner.key'), 0o600);
    assert.equal(mode('callback.secret'), 0o600);
    for (const name of fs.readdirSync(server.dir)) assert.equal(mode(name) & 0o077, 0, `${name} ${mode(name).toString(8)}`);
    for (const name of server.results()) assert.equal(mode(path.join('results', name)) & 0o007, 0, name);
    assert.match(fs.readFileSync(path.join(server.dir, 'callback.secret'), 'utf8'), /^whsec_[A-Za-z0-9+/]{43}=\n$/);
});
