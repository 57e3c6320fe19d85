// A stop hands work back; the queue keeps its order.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';

import { assertLegalHistory, eventually, ms, serve, slow, small, sql, statesOf } from './lib/reeld.mjs';

test('SIGTERM during a run: exit 0, the task is back in the queue unspent, a restart finishes it', async (t) => {
    const server = await serve(t);
    const task = await server.submit(slow('interrupted', { frames: 40, frame_ms: 50 }));
    const behind = await server.submit(small('behind it'));
    await server.frame(task.task_id, 2);
    const began = Date.now();
    await server.stop();
    assert.ok(Date.now() - began < ms(5000), `stopped after ${Date.now() - began} ms`);
    assert.ok(!fs.existsSync(path.join(server.dir, 'url')), 'the address is withdrawn');
    const rows = await sql(server.db, 'SELECT status, attempt, retry_count, crash_count FROM task ORDER BY task_id');
    assert.deepEqual(rows, [{ status: 'QUEUED', attempt: 0, retry_count: 0, crash_count: 0 },
        { status: 'QUEUED', attempt: 0, retry_count: 0, crash_count: 0 }]);
    assert.deepEqual(server.results(), [`${task.task_id}.ckpt`], 'its work is kept, a partial video is not');

    await server.start();
    const done = await server.done(task.task_id);
    assert.deepEqual([done.attempt, done.crash_count], [1, 0]);
    const events = await server.events(task.task_id);
    assertLegalHistory(events, 'SUCCEEDED');
    assert.deepEqual(statesOf(events), ['CREATED', 'QUEUED', 'PROCESSING', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    assert.equal(events[3].reason, 'drain');
    assert.ok((await server.done(behind.task_id)).started_at > done.started_at, 'it kept its place');
});

test('a hang-up means nothing to a server that nohup started', async (t) => {
    const server = await serve(t, { under: ['env', '--ignore-signal=HUP'] });
    server.child.kill('SIGHUP');
    const task = await server.submit(small('goes on'));
    assert.equal((await server.done(task.task_id)).status, 'SUCCEEDED');
});

for (const signal of ['SIGINT', 'SIGHUP'])
    test(`${signal} stops as well, at once when nothing is under way, whoever is connected`, async (t) => {
        // The tests may run under nohup themselves.
        const server = await serve(t, { under: ['env', '--default-signal'] });
        const idle = net.connect(server.port, '127.0.0.1');
        t.after(() => idle.destroy());
        idle.write(`GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n\r\n`);
        await once(idle, 'data');
        const began = Date.now();
        await server.stop({ signal });
        assert.ok(Date.now() - began < ms(1000), `stopped after ${Date.now() - began} ms`);
    });

test('while it drains, a stop answers requests in flight and refuses new tasks', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on' } });
    // A hanging run keeps the drain open for as long as it may take.
    const hung = await server.submit(small('hangs', { options: { fault: 'hang', fault_at: 1 } }));
    await server.frame(hung.task_id, 1);
    server.child.kill('SIGTERM');
    await server.waitLog(/stopping/);
    await eventually('not ready', async () => (await server.get('/readyz')).status === 503);
    const refused = await server.post('/api/v1/tasks', small('too late'));
    assert.equal(refused.status, 503);
    assert.equal(refused.json.code, 'UNAVAILABLE');
    assert.ok(Number(refused.headers['retry-after']) >= 1);
    // A second signal ends it at once.
    server.child.kill('SIGTERM');
    assert.deepEqual(await server.ended(5000), { code: 1, signal: null });
});

test('high before normal before low, first come first served within', async (t) => {
    const server = await serve(t);
    const first = await server.submit(slow('holds the slot', { frames: 20, frame_ms: 100 }));
    await server.until(first.task_id, 'PROCESSING');
    const wants = ['low', 'normal', 'high', 1, 5, 10, undefined];
    const tasks = [];
    for (const [i, priority] of wants.entries())
        tasks.push(await server.submit(small(`no ${i}`, { frames: 1, priority })));
    assert.deepEqual(tasks.map((task) => task.priority), [1, 5, 10, 1, 5, 10, 5]);
    const position = async (i) => (await server.task(tasks[i].task_id)).queue_position;
    assert.deepEqual([await position(2), await position(5), await position(1), await position(3)], [1, 2, 3, 7]);
    const started = [];
    for (const task of tasks) started.push((await server.done(task.task_id)).started_at);
    const order = started.map((at, i) => [at, i]).sort((a, b) => a[0].localeCompare(b[0]) || a[1] - b[1]).map(([, i]) => i);
    assert.deepEqual(order, [2, 5, 1, 4, 6, 0, 3]);
});

test('run_at: not before its time, and nobody waits for it', async (t) => {
    const server = await serve(t);
    const when = Date.now() + 1500;
    const later = await server.submit(small('later', { run_at: new Date(when).toISOString() }));
    assert.equal(later.status, 'QUEUED');
    const past = await server.submit(small('past', { run_at: '2020-01-01T00:00:00Z' }));
    const offset = await server.submit(small('offset', { run_at: '2020-01-01T02:00:00.5+02:00' }));
    assert.equal(offset.run_at, '2020-01-01T00:00:00.500Z');
    await server.done(past.task_id);
    await server.done(offset.task_id);
    const done = await server.done(later.task_id);
    const started = Date.parse(done.started_at);
    assert.ok(started >= when, `${when - started} ms too early`);
    assert.ok(started - when < ms(2000), `${started - when} ms late`);
});

test('a queue of another name is served too', async (t) => {
    const server = await serve(t);
    const tasks = [];
    for (const queue_name of ['default', 'night', 'A.b_c-1'])
        tasks.push(await server.submit(small(`in ${queue_name}`, { queue_name })));
    for (const task of tasks) await server.done(task.task_id);
    assert.deepEqual(tasks.map((task) => task.queue_name), ['default', 'night', 'A.b_c-1']);
});
