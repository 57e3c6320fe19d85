// An accepted submit survives kill -9, in its place in the queue.
import assert from 'node:assert/strict';
import test from 'node:test';

import { LONG, assertLegalHistory, eventually, statesOf, serve, slow, small, sql } from './lib/reeld.mjs';
import { receive, verified } from './lib/receiver.mjs';

const TASKS = 20;

async function submitAll(server, receiver) {
    const ids = [];
    for (let i = 0; i < TASKS; i++) {
        const work = i === 0 ? slow : small;
        const task = await server.submit(work(`durable ${i}`, { callback_url: receiver.url, label: `no ${i}` }));
        ids.push(task.task_id);
    }
    return ids;
}

test('20 submits, kill -9, restart: all are there, in order, and all finish', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const ids = await submitAll(server, receiver);
    assert.equal((await server.until(ids[0], 'PROCESSING')).attempt, 1);

    await server.kill9();
    await server.start();

    assert.deepEqual(await server.ids(), ids);
    const finished = [];
    for (const id of ids) finished.push(await server.done(id, 60000));
    assert.deepEqual(finished.map((task) => task.label), ids.map((_, i) => `no ${i}`));
    assert.deepEqual(finished.map((task) => task.attempt), ids.map((_, i) => (i === 0 ? 2 : 1)),
        'only the interrupted one ran twice');

    const order = finished.map((task) => task.started_at);
    assert.deepEqual(order, [...order].sort(), 'they ran in the order of their submits');
    assert.deepEqual(statesOf(await server.events(ids[0])),
        ['CREATED', 'QUEUED', 'PROCESSING', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    for (const task of finished) assertLegalHistory(await server.events(task.task_id), 'SUCCEEDED');

    const duties = await sql(server.db, 'SELECT cast(task_id AS text) AS id, webhook_id FROM outbox ORDER BY task_id');
    assert.deepEqual(duties, ids.map((id) => ({ id, webhook_id: `evt_${id}_1` })), 'one duty per task');
    for (const id of ids) {
        const [request] = await receiver.wait(id);
        assert.equal(verified(request, await secret(server)).status, 'SUCCEEDED');
        await server.called(id, 'SUCCEEDED');
    }
    assert.deepEqual(server.results().filter((name) => !/^\d+-\d+\.(mp4|jpg)$/.test(name)), [],
        'no partial file is left');
    assert.equal(server.results().length, 2 * TASKS);
});

async function secret(server) {
    return (await server.get('/api/v1/callback-secret')).json.secret;
}

test('kill -9 at any moment while clients submit: what was answered is there', async (t) => {
    const server = await serve(t);
    const answered = [];
    const rounds = LONG ? 20 : 3;
    for (let round = 0; round < rounds; round++) {
        // Clients that submit as fast as they can; the server dies under them.
        let killed = false;
        const clients = Array.from({ length: 4 }, async (_, client) => {
            for (let i = 0; ; i++) {
                try {
                    const task = await server.submit(small(`r${round} c${client} n${i}`, { frames: 1 }));
                    answered.push({ id: task.task_id, prompt: task.prompt });
                } catch (error) {
                    if (killed && error.code !== 'ERR_ASSERTION') return;
                    throw error;
                }
            }
        });
        const goal = answered.length + 10 + 7 * (round % 5);
        await Promise.race([Promise.all(clients), eventually('submits', () => answered.length >= goal)]);
        killed = true;
        await server.kill9();
        await Promise.all(clients);
        await server.start();
        const there = new Set(await server.ids());
        assert.deepEqual(answered.filter(({ id }) => !there.has(id)), []);
    }
    // Up to one per client may be there whose answer was lost; none twice.
    const all = await server.ids();
    assert.ok(all.length <= answered.length + 4 * rounds, `${all.length} of ${answered.length}`);
    assert.equal(new Set(all).size, all.length);
    for (const id of all) {
        const { status } = await server.done(id, 120000);
        assertLegalHistory(await server.events(id), status);
    }
    const [{ integrity_check }] = await sql(server.db, 'PRAGMA integrity_check');
    assert.equal(integrity_check, 'ok');
});

test('an upload in CREATED, a delayed retry and a run_at survive kill -9', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on', 'task.retry_delay_ms': 2000 } });
    const created = await server.submit(small('input', { options: { input_ms: 2000 } }));
    const failing = await server.submit(small('fails once', { options: { fault: 'fail_once' } }));
    const later = await server.submit(small('later', { run_at: new Date(Date.now() + 3000).toISOString() }));
    await server.waitLog(/from=PROCESSING status=QUEUED/);
    assert.equal((await server.task(failing.task_id)).retry_count, 1);

    await server.kill9();
    await server.start();
    assert.equal((await server.done(created.task_id)).status, 'SUCCEEDED');
    assert.equal((await server.done(failing.task_id)).attempt, 2);
    const done = await server.done(later.task_id);
    assert.ok(Date.parse(done.started_at) >= Date.parse(done.run_at), 'not before run_at');
});
