// Registered endpoints over HTTP: what the libraries of receivers say to the deliveries, rotation, states,
// the dead letter of deliveries, and where callbacks must not go. Verified by npm standardwebhooks and svix.
import assert from 'node:assert/strict';
import net from 'node:net';
import test from 'node:test';

import { Webhook as StandardWebhook } from 'standardwebhooks';
import { Webhook as SvixWebhook } from 'svix';

import { assertProblem, eventually, reeld, serve, small, tick } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

const QUICK = { 'callback.wait_ms': 20 };

async function create(server, url, more = {}, options) {
    const answer = await server.post('/api/v1/endpoints', { url, ...more }, options);
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.headers.location, `/api/v1/endpoints/${answer.json.endpoint_id}`);
    return answer.json;
}

const endpoint = async (server, { endpoint_id }) => (await server.get(`/api/v1/endpoints/${endpoint_id}`)).json;

async function deliveries(server, query) {
    const answer = await server.get(`/api/v1/deliveries?${query}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.json.data;
}

/** Both libraries accept it. Svix takes the webhook-* names, too. */
function verifies(secret, { body, headers }) {
    const a = new StandardWebhook(secret).verify(body.toString('utf8'), headers);
    const b = new SvixWebhook(secret).verify(body.toString('utf8'), headers);
    assert.deepEqual(a, b);
    return a;
}

test('every task of its user arrives, signed by the endpoint\'s own secret', async (t) => {
    const receiver = await receive(t);
    const own = await receive(t);
    const server = await serve(t);
    const made = await create(server, `${receiver.url}?tenant=7`, { description: 'orders' });
    assert.match(made.secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
    const shown = await endpoint(server, made);
    const { secret, ...rest } = made;
    assert.deepEqual(shown, rest, 'the secret is shown once');

    const one = await server.submit(small('one'));
    const two = await server.submit(small('two', { callback_url: own.url }));
    const [first] = await receiver.wait(one.task_id);
    const [second] = await receiver.wait(two.task_id);
    assert.equal(first.url, '/hook?tenant=7');
    assert.equal(verifies(secret, first).task_id, one.task_id);
    assert.equal(verifies(secret, second).task_id, two.task_id);
    const [mine] = await own.wait(two.task_id);
    assert.equal(mine.headers['webhook-id'], second.headers['webhook-id'], 'one event, one id');
    assert.ok(mine.body.equals(second.body), 'and one body');
    assert.throws(() => verifies(secret, mine), 'but each its own secret');
    assert.equal((await server.task(one.task_id)).callback_status, null, 'only the own URL is the task\'s matter');
    await server.called(two.task_id, 'SUCCEEDED');

    const { key } = await server.addKey('alice');
    assert.equal((await server.get(`/api/v1/endpoints/${made.endpoint_id}`, { key })).status, 404);
    assert.deepEqual((await server.get('/api/v1/endpoints', { key })).json.data, []);
    const hers = await server.submit(small('hers'), { key });
    await server.done(hers.task_id);
    await eventually('both deliveries are recorded', async () =>
        (await endpoint(server, made)).stats.succeeded === 2);
    assert.equal(receiver.about(hers.task_id).length, 0, 'another user\'s task is not announced');
});

test('a rotation: both secrets verify during the grace, then the new one alone', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const made = await create(server, receiver.url);
    const rotated = await server.post(`/api/v1/endpoints/${made.endpoint_id}/rotate`);
    assert.equal(rotated.status, 200, rotated.text);
    assert.notEqual(rotated.json.secret, made.secret);
    assert.ok(Date.parse(rotated.json.old_secret_until) > Date.now() + 23 * 3600e3, 'a day by default');
    const task = await server.submit(small('rotate'));
    const [request] = await receiver.wait(task.task_id);
    assert.equal(request.headers['webhook-signature'].split(' ').length, 2);
    verifies(rotated.json.secret, request);
    verifies(made.secret, request);

    assertProblem(await server.post(`/api/v1/endpoints/${made.endpoint_id}/rotate`), 409, 'CONFLICT', 'grace_s');
    const last = await server.post(`/api/v1/endpoints/${made.endpoint_id}/rotate`, { grace_s: 0 });
    const after = await server.submit(small('rotated'));
    const [alone] = await receiver.wait(after.task_id);
    verifies(last.json.secret, alone);
    assert.throws(() => verifies(rotated.json.secret, alone));
});

test('test event, disable, enable, 410 and delete', async (t) => {
    const receiver = await receive(t, [200, 410, 200]);
    const server = await serve(t, { set: QUICK });
    const made = await create(server, receiver.url, { events: ['task.succeeded'] });
    const at = `/api/v1/endpoints/${made.endpoint_id}`;
    const sent = await server.post(`${at}/test`);
    assert.equal(sent.status, 202, sent.text);
    await eventually('the test event', () => receiver.requests.length === 1);
    const event = verifies(made.secret, receiver.requests[0]);
    assert.equal(event.type, 'endpoint.test');
    assert.equal(event.endpoint_id, made.endpoint_id);

    const task = await server.submit(small('gone'));
    await eventually('410 parks it', async () => (await endpoint(server, made)).state === 'PARKED');
    const [waiting] = await deliveries(server, `endpoint_id=${made.endpoint_id}&status=PENDING`);
    assert.equal(waiting.task_id, task.task_id);
    assert.equal(waiting.held, true);
    assert.equal(waiting.tries, 0);
    assert.equal((await server.post(`${at}/enable`)).json.state, 'ENABLED');
    const [before, again] = await receiver.wait(task.task_id, 2);
    assert.equal(again.headers['webhook-id'], before.headers['webhook-id']);
    assert.ok(again.body.equals(before.body));

    assert.equal((await server.post(`${at}/disable`)).json.state, 'DISABLED');
    const silent = await server.submit(small('silent'));
    await server.done(silent.task_id);
    assert.deepEqual((await server.get(`/api/v1/tasks/${silent.task_id}/deliveries`)).json.data, []);
    const changed = await server.api('PATCH', at, { body: { events: null, description: 'x' } });
    assert.equal(changed.status, 200, changed.text);
    assert.equal(changed.json.events, null);
    assert.equal((await server.api('DELETE', at)).status, 204);
    assert.equal((await server.get(at)).status, 404);
    assert.equal(receiver.about(silent.task_id).length, 0);
});

test('dead letters of deliveries: seen, sent again one by one and together', async (t) => {
    const receiver = await receive(t, [{ status: 500, body: 'not ü' }, 500, 500, 500, 204]);
    const server = await serve(t, { set: { ...QUICK, 'callback.tries': 2 } });
    const one = await server.submit(small('one', { callback_url: `${receiver.url}?token=secret` }));
    const two = await server.submit(small('two', { callback_url: receiver.url }));
    await server.called(one.task_id, 'FAILED');
    await server.called(two.task_id, 'FAILED');
    const dead = await deliveries(server, 'status=FAILED&order=asc');
    assert.deepEqual(dead.map((d) => d.task_id).sort(), [one.task_id, two.task_id].sort());

    const attempts = (await server.get(`/api/v1/tasks/${one.task_id}/deliveries`)).json.data;
    assert.equal(attempts.length, 2);
    assert.deepEqual(attempts.map((a) => [a.n, a.http_status, a.error, a.ip, a.endpoint_id]),
        [[1, 500, 'HTTP 500', '127.0.0.1', null], [2, 500, 'HTTP 500', '127.0.0.1', null]]);
    assert.ok(!JSON.stringify([dead, attempts]).includes('token'), 'never a whole URL');
    const excerpts = [];
    for (const id of [one.task_id, two.task_id])
        excerpts.push(...(await server.get(`/api/v1/tasks/${id}/deliveries`)).json.data.map((a) => a.response_excerpt));
    assert.ok(excerpts.includes('not ü'), `${excerpts}`);

    const delivery = dead.find((d) => d.task_id === one.task_id);
    const again = await server.post(`/api/v1/deliveries/${delivery.delivery_id}/resend`);
    assert.equal(again.status, 202, again.text);
    await server.called(one.task_id, 'SUCCEEDED');
    const requests = receiver.about(one.task_id);
    assert.equal(requests.length, 3);
    assert.equal(requests[2].headers['webhook-id'], requests[0].headers['webhook-id']);
    assert.ok(requests[2].body.equals(requests[0].body), 'byte for byte');

    const all = await server.post('/api/v1/deliveries/resend', { from: two.created_at });
    assert.deepEqual([all.status, all.json], [202, { resent: 1, more: false }]);
    await server.called(two.task_id, 'SUCCEEDED');
    assert.deepEqual(await deliveries(server, 'status=FAILED'), []);
});

test('addresses: refused when accepted, refused when dialled, allowed when listed', async (t) => {
    const server = await serve(t, { set: { ...QUICK, 'callback.allow': '192.0.2.0/24:443' } });
    const refused = async (url, field, body, target) => {
        const answer = await server.post(target, { ...body, [field]: url });
        assert.equal(answer.status, 422, `${url}: ${answer.text}`);
        assert.equal(answer.json.errors[0].field, field);
    };
    for (const url of ['http://169.254.169.254/', 'http://2852039166/', 'http://[::ffff:169.254.169.254]/',
        'http://10.0.0.1/', 'http://012.0.0.1/', 'http://0/', `http://127.0.0.1:${server.port}/`,
        `http://2130706433:${server.port}/`, 'http://192.0.2.1:80/']) {
        await refused(url, 'callback_url', small('x'), '/api/v1/tasks');
        await refused(url, 'url', {}, '/api/v1/endpoints');
    }
    await create(server, 'https://192.0.2.1/', { events: ['task.timeout'] });
    const hidden = await create(server, `http://localhost:${server.port}/`); // a name is judged when it is dialled
    await server.submit(small('hidden'));
    const [dead] = await eventually('it is refused', async () => {
        const rows = await deliveries(server, `endpoint_id=${hidden.endpoint_id}&status=FAILED`);
        return rows.length && rows;
    });
    assert.match(dead.last_error, /^ADDRESS_REFUSED/);
    assert.equal(dead.tries, 1);
    const broken = await reeld(['serve', '--state-dir', `${server.dir}-none`,
        '--listen', '127.0.0.1:0', '--set', 'callback.allow=10.0.0.0/99']);
    assert.notEqual(broken.code, 0);
    assert.match(broken.stderr, /callback\.allow/);
});

test('a black hole delays no other receiver', async (t) => {
    const sockets = [];
    const hole = net.createServer((socket) => sockets.push(socket.on('error', () => {}))).listen(0, '127.0.0.1');
    await new Promise((resolve) => hole.once('listening', resolve));
    t.after(() => {
        for (const socket of sockets) socket.destroy();
        hole.close();
    });
    const receiver = await receive(t);
    const server = await serve(t);
    await create(server, `http://127.0.0.1:${hole.address().port}/`);
    await create(server, receiver.url);
    for (let n = 0; n < 5; n++) {
        const task = await server.submit(small(`n${n}`));
        const done = await server.done(task.task_id);
        const [request] = await receiver.wait(task.task_id);
        assert.ok(request.at - Date.parse(done.finished_at) < 1000);
    }
    assert.ok(sockets.length >= 1 && sockets.length <= 2, 'callback.per_host');
});

test('kill -9 again and again: every event at least once, the same bytes, no more copies than kills explain', async (t) => {
    const receiver = await receive(t);
    const own = await receive(t);
    const server = await serve(t, { set: { ...QUICK, 'pool.crash_budget': 0 } });
    const made = await create(server, receiver.url);
    const tasks = [];
    for (let n = 0; n < 12; n++) tasks.push(await server.submit(small(`n${n}`, { callback_url: own.url })));
    let kills = 0;
    for (const pause of [5, 30, 60, 90, 130, 20, 45]) { // before, between and after POST, 2xx and record
        await tick(pause);
        await server.kill9();
        kills++;
        await server.start();
    }
    for (const task of tasks) {
        await server.done(task.task_id);
        await server.called(task.task_id, 'SUCCEEDED');
    }
    await eventually('all are recorded', async () => (await endpoint(server, made)).stats.succeeded === tasks.length);
    for (const { requests } of [receiver, own]) {
        const bodies = new Map();
        for (const request of requests) {
            const id = request.headers['webhook-id'];
            assert.ok((bodies.get(id) ?? request.body).equals(request.body), 'byte for byte');
            bodies.set(id, request.body);
        }
        assert.deepEqual([...bodies.keys()].sort(), tasks.map((task) => `evt_${task.task_id}_1`).sort());
        assert.ok(requests.length - bodies.size <= 2 * kills, 'callback.per_host is what one kill can repeat');
    }
    for (const request of receiver.requests) verifies(made.secret, request);
});
