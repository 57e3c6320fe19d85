// The same request again gives the same task.
import assert from 'node:assert/strict';
import test from 'node:test';

import { assertProblem, serve, slow, small } from './lib/reeld.mjs';

const T = '/api/v1/tasks';

function assertReplay(answer, id) {
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.task_id, id);
    assert.equal(answer.headers['idempotency-replayed'], 'true');
    assert.equal(answer.headers.location, `${T}/${id}`);
}

test('a key stands for its task, in header or body, before and after its end', async (t) => {
    const server = await serve(t);
    const body = small('once', { metadata: { b: 1, a: [1, 2] } });
    const post = (key, content = body) => server.post(T, content, { headers: { 'idempotency-key': key } });
    const first = await post('k1');
    assert.equal(first.status, 202);
    assert.equal(first.headers['idempotency-replayed'], undefined);
    const id = first.json.task_id;
    assert.equal(first.json.idempotency_key, 'k1');
    assertReplay(await post('k1'), id);
    // The order of members is no content.
    const turned = Object.fromEntries(Object.entries({ ...body, metadata: { a: [1, 2], b: 1 } }).reverse());
    assertReplay(await post('k1', turned), id);
    await server.done(id);
    const late = await post('k1');
    assertReplay(late, id);
    assert.equal(late.json.status, 'SUCCEEDED');

    for (const other of [{ ...body, prompt: 'twice' }, { ...body, frames: 5 }, { ...body, label: 'x' },
        { ...body, metadata: { a: [2, 1], b: 1 } }, { ...body, priority: 'high' }])
        assertProblem(await post('k1', other), 422, 'IDEMPOTENCY_KEY_REUSED', 'idempotency_key');

    const inBody = await server.submit({ ...body, idempotency_key: 'k2' });
    assertReplay(await server.post(T, { ...body, idempotency_key: 'k2' }), inBody.task_id);
    assertProblem(await server.post(T, { ...body, idempotency_key: 'k2' }, { headers: { 'idempotency-key': 'k3' } }),
        422, 'INVALID_FIELD', 'idempotency_key');
    for (const key of ['', 'a b', 'x'.repeat(256), 'schl\u00fcssel'])
        assertProblem(await post(key), 422, 'INVALID_FIELD', 'Idempotency-Key');
    assert.equal((await post('x'.repeat(255))).status, 202);
    assert.equal((await server.ids()).length, 3);
});

test('a key survives kill -9', async (t) => {
    const server = await serve(t);
    const post = () => server.post(T, small('durable'), { headers: { 'idempotency-key': 'k' } });
    const { task_id } = (await post()).json;
    await server.kill9();
    await server.start();
    assertReplay(await post(), task_id);
    await server.done(task_id);
});

test('without a key: an unfinished twin answers; another seed, prompt or size is another task', async (t) => {
    const server = await serve(t);
    const hold = await server.submit(slow('holds the slot', { frames: 30 }));
    const first = await server.submit(small('twin'));
    assertReplay(await server.post(T, small('twin')), first.task_id);
    assertReplay(await server.post(T, small('twin', { width: 64, priority: 5 })), first.task_id);
    const others = [small('twin', { seed: 1 }), small('twin '), small('Twin'), small('twin', { frames: 5 }),
        small('twin', { negative_prompt: 'x' }), small('twin', { options: { frame_ms: 1 } })];
    const ids = new Set([first.task_id]);
    for (const other of others) ids.add((await server.submit(other)).task_id);
    assert.equal(ids.size, 1 + others.length);
    const off = await server.submit(small('twin', { idempotency: 'off' }));
    assert.ok(!ids.has(off.task_id));
    assert.equal(off.idempotency_key, null);
    await server.until(hold.task_id, ['SUCCEEDED']);
});

test('after its success a twin answers for a while, with a named seed for good; a failure never', async (t) => {
    const server = await serve(t, { set: { 'task.derived_ms': 0, 'testpattern.faults': 'on' } });
    const free = await server.done((await server.submit(small('free seed'))).task_id);
    const again = await server.submit(small('free seed'));
    assert.notEqual(again.task_id, free.task_id);
    const named = await server.done((await server.submit(small('named', { seed: 3 }))).task_id);
    assertReplay(await server.post(T, small('named', { seed: 3 })), named.task_id);
    const failing = small('fails', { seed: 3, max_retries: 0, options: { fault: 'fail' } });
    const failed = await server.until((await server.submit(failing)).task_id, 'FAILED');
    const retry = await server.submit(failing);
    assert.notEqual(retry.task_id, failed.task_id);
    await server.until(retry.task_id, 'FAILED');
});

test('fifty posts at once with one key make one task', async (t) => {
    const server = await serve(t);
    for (const headers of [{ 'idempotency-key': 'race' }, {}]) {
        const before = (await server.ids()).length;
        const body = small(`race ${JSON.stringify(headers)}`);
        const answers = await Promise.all(Array.from({ length: 50 }, () => server.post(T, body, { headers })));
        assert.equal(new Set(answers.map((answer) => answer.json.task_id)).size, 1);
        assert.equal(answers.filter((answer) => answer.status === 202).length, 1, 'exactly one made it');
        assert.equal(answers.filter((answer) => answer.status === 200).length, 49);
        assert.equal((await server.ids()).length, before + 1);
    }
});

test('keys belong to a user', async (t) => {
    const server = await serve(t);
    const alice = (await server.addKey('alice')).key;
    const bob = (await server.addKey('bob')).key;
    const headers = { 'idempotency-key': 'same' };
    const tasks = [];
    for (const key of [alice, bob]) {
        tasks.push(await server.submit(small('shared'), { key, headers }));
        tasks.push(await server.submit(small('shared without a key'), { key }));
    }
    assert.equal(new Set(tasks.map((task) => task.task_id)).size, 4);
    for (const task of tasks) await server.done(task.task_id);
});
