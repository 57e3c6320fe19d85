// What the engine can do wrong, and what becomes of the task, its neighbours and the server.
import assert from 'node:assert/strict';
import test from 'node:test';

import { assertLegalHistory, assertProblem, ms, serve, small, slow, statesOf } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

const FAULTS = { 'testpattern.faults': 'on', 'task.retry_delay_ms': 50 };
const faulty = (prompt, fault, more = {}) => small(prompt, { ...more, options: { fault, ...more.options } });

/** Restarts the server whenever the process kills itself, until the work is done. */
async function keepAlive(server, work) {
    let over = false;
    const settled = work().finally(() => (over = true));
    while (!over) {
        if (server.child) await Promise.race([server.exited, settled.catch(() => {})]);
        else
            await server.start().catch((error) => {
                if (error.signal !== 'SIGKILL') throw error; // else: dead before it listened
            });
    }
    await settled;
}

/** Asks until the server that is being restarted answers. */
async function patient(server, id, wanted) {
    for (const end = Date.now() + ms(60000); ;) {
        try {
            return await server.until(id, wanted, 60000);
        } catch (error) {
            const away = ['ECONNREFUSED', 'ECONNRESET', 'EPIPE'].includes(error.code) || error.message === 'socket hang up';
            if (!away || Date.now() > end) throw error;
            await new Promise((resolve) => setTimeout(resolve, 20));
        }
    }
}

test('a failing engine: retries, then FAILED with its reason', async (t) => {
    const server = await serve(t, { set: FAULTS });
    const task = await server.submit(faulty('always', 'fail', { options: { fault_at: 2 } }));
    const end = await server.until(task.task_id, 'FAILED');
    assert.equal(end.error_code, 'ENGINE_ERROR');
    assert.match(end.error_msg, /frame 2/);
    assert.deepEqual([end.attempt, end.retry_count, end.max_retries, end.crash_count], [3, 2, 2, 0]);
    assert.equal(end.video, null);
    assert.equal(end.result_url, null);
    const events = await server.events(task.task_id);
    assertLegalHistory(events, 'FAILED');
    assert.deepEqual(statesOf(events), ['CREATED', 'QUEUED', 'PROCESSING', 'QUEUED', 'PROCESSING', 'QUEUED', 'PROCESSING', 'FAILED']);
    const requeued = events.filter((event) => event.from_status === 'PROCESSING');
    for (const event of requeued) assert.match(event.reason ?? '', /ENGINE_ERROR/);
    assert.deepEqual(server.results(), [], 'no file is left');

    const once = await server.submit(faulty('no retry', 'fail', { max_retries: 0 }));
    const spent = await server.until(once.task_id, 'FAILED');
    assert.deepEqual([spent.attempt, spent.retry_count], [1, 0]);
});

test('each wait before a retry is twice the one before', async (t) => {
    const server = await serve(t, { set: { ...FAULTS, 'task.retry_delay_ms': 300 } });
    const task = await server.submit(faulty('waits', 'fail'));
    await server.until(task.task_id, 'FAILED');
    const at = (await server.events(task.task_id)).map((event) => Date.parse(event.timestamp));
    const [first, second] = [at[4] - at[3], at[6] - at[5]];
    assert.ok(first >= 300 && second >= 600, `${first} ${second}`);
});

test('fail_once: the second attempt succeeds', async (t) => {
    const server = await serve(t, { set: FAULTS });
    const task = await server.submit(faulty('once', 'fail_once'));
    const neighbour = await server.submit(small('not held up'));
    const end = await server.done(task.task_id);
    assert.deepEqual([end.attempt, end.retry_count, end.error_code, end.error_msg], [2, 1, null, null]);
    await server.done(neighbour.task_id);
});

test('constant frames and half a clip are no result', async (t) => {
    const server = await serve(t, { set: FAULTS });
    const flat = await server.submit(faulty('flat', 'constant'));
    const half = await server.submit(faulty('half', 'short'));
    const partly = await server.submit(faulty('flat from frame 2', 'constant', { options: { fault_at: 2 } }));
    for (const [task, words] of [[flat, /equal/], [half, /2 of 4 frames/]]) {
        const end = await server.until(task.task_id, 'FAILED');
        assert.equal(end.error_code, 'OUTPUT_INVALID');
        assert.match(end.error_msg, words);
        assert.deepEqual([end.attempt, end.retry_count], [2, 1], 'worth exactly one more try');
    }
    await server.done(partly.task_id);
    assert.equal(server.results().length, 2, 'only the good clip has files');
});

test('a task that kills the process stops after its crash budget; its neighbours complete', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t, { set: { ...FAULTS, 'pool.crash_budget': 3 } });
    const holder = await server.submit(slow('all are queued behind it', { frames: 10, frame_ms: 100 }));
    const killer = await server.submit(faulty('killer', 'abort', { callback_url: receiver.url, options: { fault_at: 1 } }));
    const neighbours = [];
    for (let i = 0; i < 3; i++) neighbours.push(await server.submit(small(`neighbour ${i}`)));
    let end;
    await keepAlive(server, async () => {
        end = await patient(server, killer.task_id, 'FAILED');
        for (const task of neighbours) await patient(server, task.task_id, 'SUCCEEDED');
    });
    assert.deepEqual(server.exits, Array(3).fill({ code: null, signal: 'SIGKILL' }));
    assert.equal((await server.task(holder.task_id)).attempt, 1);
    assert.equal(end.error_code, 'WORKER_CRASH');
    assert.deepEqual([end.crash_count, end.attempt, end.retry_count], [3, 3, 0]);
    const events = await server.events(killer.task_id);
    assertLegalHistory(events, 'FAILED');
    assert.equal(statesOf(events).filter((state) => state === 'PROCESSING').length, 3);
    for (const task of neighbours) {
        const done = await server.done(task.task_id);
        assert.deepEqual([done.crash_count, done.attempt], [0, 1], 'never charged');
    }
    const [request] = await receiver.wait(killer.task_id);
    assert.equal(JSON.parse(request.body).error_code, 'WORKER_CRASH');
    assert.equal(server.results().filter((name) => /part/.test(name)).length, 0);
});

test('a run that gets further each time is not blamed for the deaths of its server', async (t) => {
    const server = await serve(t, { set: { 'run.checkpoint_s': 0, 'pool.crash_budget': 3 } });
    const task = await server.submit(slow('long', { frames: 120, frame_ms: ms(25) }));
    for (const frames of [20, 45, 70, 95]) {
        await server.frame(task.task_id, frames);
        await server.kill9();
        await server.start();
    }
    const done = await server.done(task.task_id);
    assert.deepEqual([done.crash_count, done.attempt, done.video.frames], [0, 5, 120]);
    assertLegalHistory(await server.events(task.task_id), 'SUCCEEDED');
});

test('a hanging run does not keep the server from stopping; the task goes on after the restart', async (t) => {
    const server = await serve(t, { set: FAULTS });
    const hung = await server.submit(faulty('hangs', 'hang', { options: { fault_at: 1 } }));
    const waiting = await server.submit(small('waits behind it'));
    await server.frame(hung.task_id, 1);
    assert.equal((await server.get('/readyz')).status, 200);
    server.child.kill('SIGTERM');
    const end = await server.ended(45000);
    assert.equal(end.signal, null, server.tail());
    assert.equal(end.code, 1, 'a pool thread did not come back, and the exit status says so');
    await server.waitLog(/pool_hangs/);

    await server.start();
    assert.equal((await server.until(waiting.task_id, ['QUEUED', 'PROCESSING', 'SUCCEEDED'])).attempt <= 1, true);
    const after = await server.until(hung.task_id, ['QUEUED', 'PROCESSING', 'FAILED']);
    assert.ok(after.attempt <= 2);
    await server.kill9();
});

test('faults need the configuration, and are not advertised', async (t) => {
    const server = await serve(t);
    const refused = await server.post('/api/v1/tasks', faulty('please', 'fail'));
    assertProblem(refused, 422, 'INVALID_FIELD', 'options.fault');
    const at = await server.post('/api/v1/tasks', small('please', { options: { fault_at: 1 } }));
    assertProblem(at, 422, 'INVALID_FIELD', 'options.fault_at');
    const engines = await server.get('/api/v1/engines');
    assert.doesNotMatch(engines.text, /"fault/);
    assert.match(engines.text, /frame_ms/);
});

test('input_ms: CREATED is visible, then QUEUED; others go first', async (t) => {
    const server = await serve(t);
    const task = await server.submit(small('an input to fetch', { options: { input_ms: 700 } }));
    assert.equal(task.status, 'CREATED');
    assert.equal(task.queued_at, null);
    assert.equal((await server.task(task.task_id)).status, 'CREATED');
    const other = await server.done((await server.submit(small('no input'))).task_id);
    const done = await server.done(task.task_id);
    assert.ok(Date.parse(done.queued_at) - Date.parse(done.created_at) >= 700);
    assert.ok(other.started_at < done.started_at);
    const events = await server.events(task.task_id);
    assert.deepEqual(statesOf(events), ['CREATED', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
});

test('a slow run shows its progress', async (t) => {
    const server = await serve(t);
    const task = await server.submit(slow('watched', { frames: 20, frame_ms: 60 }));
    const seen = [];
    for (;;) {
        const now = await server.task(task.task_id);
        seen.push(now);
        if (now.status === 'SUCCEEDED') break;
        assert.ok(now.progress < 100, '100 only at the end');
        assert.ok(now.poll_after_ms > 0);
    }
    const progress = seen.map((now) => now.progress);
    assert.deepEqual(progress, [...progress].sort((a, b) => a - b), 'never goes back');
    assert.ok(new Set(progress).size > 5, `${progress}`);
    const running = seen.filter((now) => now.phase === 'denoise' && now.step > 2 && now.step < 20);
    assert.ok(running.length > 0, JSON.stringify(seen[0]));
    for (const now of running) {
        assert.equal(now.total_steps, 20);
        assert.ok(now.eta_seconds >= 0 && now.eta_seconds < 60, `${now.eta_seconds}`);
        assert.ok(now.worker_id.length > 0);
    }
    const end = seen.at(-1);
    assert.deepEqual([end.progress, end.phase, end.step, end.eta_seconds, end.poll_after_ms], [100, null, null, null, null]);
});
