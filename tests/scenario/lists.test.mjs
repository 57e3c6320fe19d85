// Lists: pages that cover everything exactly once, filters, histories.
import assert from 'node:assert/strict';
import test from 'node:test';

import { assertLegalHistory, assertProblem, serve, slow, small } from './lib/reeld.mjs';

const T = '/api/v1/tasks';

test('250 tasks: pages in both orders cover each exactly once, while new ones arrive', async (t) => {
    const server = await serve(t);
    const total = 250;
    const far = '2100-01-01T00:00:00Z';
    const made = [];
    // A few at a time; ids are what orders them, not the answers.
    const clients = Array.from({ length: 5 }, async (_, client) => {
        for (let i = client; i < total; i += 5) made.push((await server.submit(small(`no ${i}`, { run_at: far }))).task_id);
    });
    await Promise.all(clients);
    made.sort();
    assert.equal(new Set(made).size, total);

    const arrivals = [];
    const pages = async (order, limit) => {
        const seen = [];
        for (let after = ''; ;) {
            const { status, json, text } = await server.get(`${T}?order=${order}&limit=${limit}${after}`);
            assert.equal(status, 200, text);
            assert.deepEqual(Object.keys(json), ['data', 'next']);
            assert.ok(json.data.length <= limit);
            seen.push(...json.data.map((task) => task.task_id));
            if (json.next === null) return seen;
            assert.equal(json.data.length, limit, 'only the last page is short');
            after = `&after=${json.next}`;
            arrivals.push((await server.submit(small(`late ${arrivals.length}`, { run_at: far }))).task_id);
        }
    };
    for (const limit of [200, 50, 7]) {
        const down = await pages('desc', limit);
        const known = new Set([...made, ...arrivals]);
        assert.deepEqual(down, [...down].sort().reverse(), 'newest first');
        assert.equal(new Set(down).size, down.length, 'none twice');
        assert.ok(down.every((id) => known.has(id)));
        assert.deepEqual(down.filter((id) => made.includes(id)).reverse(), made, 'none missing');
    }
    const up = await pages('asc', 60);
    assert.deepEqual(up.slice(0, total), made);
    assert.deepEqual(up, [...up].sort());
    const exact = await server.get(`${T}?limit=50`);
    assert.equal(exact.json.data.length, 50, 'the default');
    assert.equal((await server.get(T)).json.data.length, 50);
});

test('filters by status', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on' } });
    const by = {};
    by.SUCCEEDED = [(await server.submit(small('good'))).task_id];
    by.FAILED = [(await server.submit(small('bad', { max_retries: 0, options: { fault: 'fail' } }))).task_id];
    await server.done(by.SUCCEEDED[0]);
    await server.until(by.FAILED[0], 'FAILED');
    by.CREATED = [(await server.submit(small('input', { options: { input_ms: 3600000 } }))).task_id];
    by.PROCESSING = [(await server.submit(slow('running', { frames: 1000 }))).task_id];
    await server.until(by.PROCESSING[0], 'PROCESSING');
    by.QUEUED = [(await server.submit(small('waits'))).task_id, (await server.submit(small('waits too'))).task_id];
    by.CANCELED = [(await server.submit(small('canceled'))).task_id];
    await server.api('POST', `${T}/${by.CANCELED[0]}/cancel`);
    by.TIMEOUT = [];
    for (const [status, ids] of Object.entries(by)) {
        const { json } = await server.get(`${T}?status=${status}&order=asc`);
        assert.deepEqual(json.data.map((task) => task.task_id), ids, status);
        assert.ok(json.data.every((task) => task.status === status));
        assert.equal(json.next, null);
    }
    assert.deepEqual(await server.ids('&status=FAILED,SUCCEEDED'), [...by.SUCCEEDED, ...by.FAILED]);
    assert.deepEqual(await server.ids('&status=QUEUED%2CCREATED'), [...by.CREATED, ...by.QUEUED]);
    const first = await server.get(`${T}?status=QUEUED&limit=1&order=asc`);
    assert.deepEqual(first.json.data.map((task) => task.task_id), [by.QUEUED[0]]);
    const second = await server.get(`${T}?status=QUEUED&limit=1&order=asc&after=${first.json.next}`);
    assert.deepEqual(second.json.data.map((task) => task.task_id), [by.QUEUED[1]]);
    const whole = await server.get(`${T}/${by.QUEUED[1]}`);
    const listed = second.json.data[0];
    assert.deepEqual(Object.keys(listed), Object.keys(whole.json), 'a list holds whole tasks');
});

test('bad parameters name themselves', async (t) => {
    const server = await serve(t);
    const bad = async (query, field) => assertProblem(await server.get(`${T}?${query}`), 422, 'INVALID_FIELD', field);
    for (const limit of ['0', '201', '-1', 'x', '1.5', '', '1e2', '99999999999999999999', '05']) await bad(`limit=${limit}`, 'limit');
    for (const after of ['x', '-1', '1.5', '', '99999999999999999999', '1,2']) await bad(`after=${after}`, 'after');
    for (const order of ['up', '', 'ASC', 'desc;']) await bad(`order=${order}`, 'order');
    for (const status of ['', 'DONE', 'queued', 'QUEUED,', ',QUEUED', 'QUEUED,,FAILED', 'QUEUED FAILED']) await bad(`status=${encodeURIComponent(status)}`, 'status');
    await bad('page=2', 'page');
    await bad('limit=1&limit=2', 'limit');
    assertProblem(await server.get(`${T}?limit=%zz`), 400, 'BAD_REQUEST');
    assertProblem(await server.get(`${T}?status=%00`), 400, 'BAD_REQUEST');
    assertProblem(await server.get(`${T}?status=%ff`), 400, 'BAD_REQUEST');
    const { task_id } = await server.submit(small('x'));
    assertProblem(await server.get(`${T}/${task_id}/events?status=QUEUED`), 422, 'INVALID_FIELD', 'status');
    assertProblem(await server.get(`${T}/${task_id}/events?after=x`), 422, 'INVALID_FIELD', 'after');
    await server.done(task_id);
});

test('the history of a task, in pages', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on', 'task.retry_delay_ms': 10 } });
    const task = await server.submit(small('retried', { max_retries: 3, options: { fault: 'fail' } }));
    const end = await server.until(task.task_id, 'FAILED');
    const all = await server.events(task.task_id);
    assertLegalHistory(all, 'FAILED');
    assert.equal(all.length, 10);
    assert.deepEqual(Object.keys(all[0]), ['seq', 'task_id', 'timestamp', 'from_status', 'to_status', 'attempt', 'worker_id', 'reason']);
    assert.ok(all.every((event) => event.task_id === task.task_id && typeof event.seq === 'number'));
    assert.equal(end.version, all.at(-1).seq);
    assert.deepEqual(all.map((event) => event.attempt), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    for (const event of all) assert.equal(event.worker_id !== null, event.attempt > 0, 'who ran it');
    const seen = [];
    for (let after = ''; ;) {
        const { json } = await server.get(`${T}/${task.task_id}/events?limit=2${after}`);
        seen.push(...json.data);
        if (json.next === null) break;
        after = `&after=${json.next}`;
    }
    assert.deepEqual(seen, all);
    const down = await server.get(`${T}/${task.task_id}/events?order=desc`);
    assert.deepEqual(down.json.data, [...all].reverse());
});
