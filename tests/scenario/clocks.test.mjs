// Clocks that jump, stop and start in 1970: nothing ends early, nothing waits for ever.
import assert from 'node:assert/strict';
import test from 'node:test';

import { Clock, HOUR, YEAR, forgetBoot, noClock } from './lib/clock.mjs';
import { assertLegalHistory, eventually, ms, serve, slow, small, sql, statesOf } from './lib/reeld.mjs';
import { receive, verified } from './lib/receiver.mjs';

const skip = noClock();
const SETTINGS = { 'testpattern.faults': 'on', 'pool.cpu_slots': 2 };

/** Waits until the scheduler went round at least twice since now: once may have been under way. */
async function rounds(server) {
    const ids = [];
    for (const n of [1, 2]) {
        const fence = await server.submit(small(`fence ${n}`, { idempotency: 'off', options: { input_ms: 100 } }));
        await server.until(fence.task_id, ['QUEUED', 'PROCESSING', 'SUCCEEDED']);
        ids.push(fence.task_id);
    }
    return ids;
}

async function assertSteadyHistory(server, id, status = 'SUCCEEDED') {
    const events = await server.events(id);
    assertLegalHistory(events, status);
    const times = events.map((event) => Date.parse(event.timestamp));
    assert.deepEqual(times, [...times].sort((a, b) => a - b), 'the history never runs backwards');
    const task = await server.task(id);
    const own = ['created_at', 'queued_at', 'started_at', 'finished_at'].map((name) => Date.parse(task[name]));
    if (status === 'SUCCEEDED') assert.deepEqual(own, [...own].sort((a, b) => a - b));
    return events;
}

const grows = (ids) => ids.reduce((before, id) => {
    assert.ok(BigInt(id) > BigInt(before), `${id} after ${before}`);
    return id;
});

/** Every kind of waiting at once, and the clock moves in the middle. */
async function jumps(t, move) {
    const receiver = await receive(t, [500, 200]);
    const clock = new Clock(t);
    const server = await serve(t, {
        env: clock.env,
        set: { ...SETTINGS, 'task.retry_delay_ms': 3000, 'callback.wait_ms': 3000 },
    });
    const called = await server.done((await server.submit(small('called', { callback_url: receiver.url }))).task_id);
    const retried = await server.submit(small('retried', { options: { fault: 'fail_once' } }));
    await eventually('its first failure', async () => (await server.task(retried.task_id)).retry_count === 1);
    const began = Date.now();
    const running = [];
    for (const n of [1, 2])
        running.push(await server.submit(slow(`running ${n}`, { frames: 45, run_timeout_s: 1800 })));
    for (const task of running) await server.until(task.task_id, 'PROCESSING');
    const queued = [];
    for (const more of [{ queue_timeout_s: 1800 }, {}, { queue_timeout_s: 0 }])
        queued.push(await server.submit(small(`queued ${queued.length}`, more)));
    const later = await server.submit(small('later', { run_at: new Date(clock.now() + 2500).toISOString() }));
    await receiver.wait(called.task_id, 1);

    move(clock);
    const fences = await rounds(server);
    assert.ok(Date.now() - began < ms(2400), 'the machine is too slow for this test');
    grows([called, retried, ...running, ...queued, later].map((task) => task.task_id).concat(fences));
    for (const task of running) {
        const now = await server.task(task.task_id);
        assert.deepEqual([now.status, now.attempt], ['PROCESSING', 1]);
    }
    for (const task of [...queued, later, retried]) {
        const now = await server.task(task.task_id);
        assert.deepEqual([now.status, now.requeue_count], ['QUEUED', 0], now.prompt);
    }
    assert.equal(receiver.about(called.task_id).length, 1, 'not called again before its time');

    const ends = {};
    for (const task of [...running, ...queued, later, retried]) {
        ends[task.task_id] = await server.done(task.task_id);
        await assertSteadyHistory(server, task.task_id);
    }
    for (const task of [...running, ...queued, later]) {
        const { attempt, requeue_count, crash_count } = ends[task.task_id];
        assert.deepEqual([attempt, requeue_count, crash_count], [1, 0, 0]);
    }
    assert.deepEqual([ends[retried.task_id].attempt, ends[retried.task_id].retry_count], [2, 1]);
    const [first, second] = await receiver.wait(called.task_id, 2);
    const gap = second.at - first.at;
    assert.ok(gap >= 2900 && gap < ms(8000), `called again after ${gap} ms`);
    await server.called(called.task_id, 'SUCCEEDED');
}

test('the wall clock jumps: what runs, waits, is delayed or is called back takes its planned time', { skip, concurrency: true }, async (t) => {
    const moves = {
        'an hour ahead': (clock) => clock.jump(HOUR),
        'an hour back': (clock) => clock.jump(-HOUR),
        'a year ahead': (clock) => clock.jump(YEAR),
        'back to 1970': (clock) => clock.set(60e3),
    };
    await Promise.all(Object.entries(moves).map(([name, move]) => t.test(name, (sub) => jumps(sub, move))));
});

test('a suspend of 8 h counts as waiting and not as running', { skip }, async (t) => {
    const receiver = await receive(t, [500, 200]);
    const clock = new Clock(t);
    const server = await serve(t, { env: clock.env, set: { ...SETTINGS, 'callback.wait_ms': HOUR } });
    const called = await server.done((await server.submit(small('called', { callback_url: receiver.url }))).task_id);
    await receiver.wait(called.task_id, 1);
    await eventually('the failure is on record', async () => (await server.task(called.task_id)).callback_retry === 1);
    const retried = await server.submit(small('retried', { priority: 10, queue_timeout_s: 0, options: { fault: 'fail_once' } }));
    await eventually('its first failure', async () => (await server.task(retried.task_id)).retry_count === 1);
    const running = [];
    for (const n of [1, 2])
        running.push(await server.submit(slow(`running ${n}`, { frames: 250, priority: 10, run_timeout_s: 3600 })));
    for (const task of running) await server.until(task.task_id, 'PROCESSING');
    const hour = await server.submit(small('an hour', { callback_url: receiver.url }));
    const day = await server.submit(small('a day', { queue_timeout_s: 86400 * 2 }));
    const ever = await server.submit(small('for ever', { queue_timeout_s: 0 }));
    const later = await server.submit(small('later', {
        queue_timeout_s: 0, run_at: new Date(clock.now() + 2 * HOUR).toISOString(),
    }));

    for (const n of [1, 2]) {
        clock.suspend(8 * HOUR);
        await eventually(`re-queue ${n}`, async () => (await server.task(hour.task_id)).requeue_count === n);
        const now = await server.task(hour.task_id);
        assert.equal(now.status, 'QUEUED');
        assert.equal((await server.events(hour.task_id)).at(-1).reason, `queue time-out, re-queue ${n} of 2`);
    }
    clock.suspend(8 * HOUR);
    assert.equal((await server.until(hour.task_id, 'TIMEOUT')).error_code, 'QUEUE_TIMEOUT');
    await rounds(server);
    for (const task of running) {
        const now = await server.task(task.task_id);
        assert.deepEqual([now.status, now.attempt], ['PROCESSING', 1], 'a run does not age while the machine sleeps');
    }
    for (const task of [day, ever, later, retried]) {
        const now = await server.task(task.task_id);
        assert.deepEqual([now.status, now.requeue_count], ['QUEUED', 0], now.prompt);
    }
    const waits = Object.fromEntries((await sql(server.db, 'SELECT task_id, not_before FROM task'))
        .map((row) => [row.task_id, row.not_before]));
    assert.ok(Object.values(waits).every((at) => at === 0), 'delays that ended during the sleep are over');
    await receiver.wait(called.task_id, 2);
    await server.called(called.task_id, 'SUCCEEDED');
    await receiver.wait(hour.task_id, 1);

    for (const task of running) await server.post(`/api/v1/tasks/${task.task_id}/cancel`, { mode: 'hard' });
    for (const task of [day, ever, later, retried]) {
        await server.done(task.task_id);
        await assertSteadyHistory(server, task.task_id);
    }
    await assertSteadyHistory(server, hour.task_id, 'TIMEOUT');
});

test('restarted under another wall clock: the waits go on where they were', { skip }, async (t) => {
    const clock = new Clock(t);
    const server = await serve(t, { env: clock.env, set: SETTINGS });
    const queued = await server.submit(small('in an hour', {
        queue_timeout_s: 60, run_at: new Date(clock.now() + HOUR).toISOString(),
    }));
    const due = async () => (await sql(server.db, `SELECT not_before, queue_due_at FROM task WHERE task_id = ${queued.task_id}`))[0];
    const steady = async () => Number((await sql(server.db, "SELECT value FROM meta WHERE name = 'steady_clock'"))[0].value.split(' ')[0]);
    const planned = await due();
    let last = queued.task_id;
    let before = { steady: await steady(), at: Date.now() };
    for (const move of [HOUR * 3, -HOUR * 6, YEAR, -3 * YEAR]) {
        await server.stop();
        clock.jump(move);
        await server.start();
        const now = { steady: await steady(), at: Date.now() };
        const drift = now.steady - before.steady - (now.at - before.at);
        assert.ok(Math.abs(drift) < ms(5000), `the steady clock went ${drift} ms astray`);
        assert.ok(now.steady >= before.steady);
        before = now;
        const [fence] = await rounds(server);
        last = grows([last, fence]);
        assert.deepEqual(await due(), planned);
        const task = await server.task(queued.task_id);
        assert.deepEqual([task.status, task.requeue_count], ['QUEUED', 0]);
        await assertSteadyHistory(server, (await server.done(fence)).task_id);
    }
    clock.suspend(HOUR);
    await server.done(queued.task_id);
});

test('a first start in 1970 works, and so does the day the clock is set right', { skip }, async (t) => {
    const receiver = await receive(t);
    const clock = new Clock(t);
    clock.set(20e3);
    const server = await serve(t, { env: clock.env, set: SETTINGS });
    const ids = [];
    const first = await server.submit(small('first', { callback_url: receiver.url }));
    assert.ok(first.created_at.startsWith('1970-01-01T00:00:'), first.created_at);
    ids.push(first.task_id);
    assert.ok(BigInt(first.task_id) > 0n);
    await server.done(first.task_id);
    const [request] = await receiver.wait(first.task_id);
    assert.ok(Number(request.headers['webhook-timestamp']) < 3600, 'signed with the time it believes in');
    const running = [];
    for (const n of [1, 2]) running.push(await server.submit(slow(`running ${n}`, { frames: 40 })));
    const queued = await server.submit(small('queued', { queue_timeout_s: 600 }));
    ids.push(...running.map((task) => task.task_id), queued.task_id);
    await server.until(running[1].task_id, 'PROCESSING');

    clock.set(Date.now());
    ids.push(...(await rounds(server)));
    assert.deepEqual((await server.task(queued.task_id)).requeue_count, 0);
    for (const id of ids) {
        await server.done(id);
        await assertSteadyHistory(server, id);
    }
    grows(ids);
    const secret = (await server.get('/api/v1/callback-secret')).json.secret;
    const right = await server.submit(small('after', { callback_url: receiver.url }));
    const [after] = await receiver.wait(right.task_id);
    assert.equal(verified(after, secret).task_id, right.task_id);
});

test('a clock that was a year ahead: the same words ask for a new video once it is right', { skip }, async (t) => {
    const clock = new Clock(t);
    clock.jump(YEAR);
    const server = await serve(t, { env: clock.env, set: SETTINGS });
    const ahead = await server.done((await server.submit(small('same words'))).task_id);
    assert.equal((await server.post('/api/v1/tasks', small('same words'))).json.task_id, ahead.task_id, 'a repeat within a minute');
    clock.jump(-YEAR);
    const again = await server.post('/api/v1/tasks', small('same words'));
    assert.equal(again.status, 202, again.text);
    assert.notEqual(again.json.task_id, ahead.task_id);
});

test('a boot in 1970 over a database of today: ids grow, nothing expires, nothing is called early', { skip }, async (t) => {
    const clock = new Clock(t);
    const server = await serve(t, { env: clock.env, set: { ...SETTINGS, 'retain.days': 1 } });
    const done = await server.done((await server.submit(small('kept'))).task_id);
    const queued = await server.submit(small('queued', { queue_timeout_s: 60, run_at: new Date(Date.now() + HOUR).toISOString() }));
    await server.stop();
    clock.set(10e3);
    clock.reboot();
    forgetBoot(server);
    await server.start();
    await server.waitLog(/clock_suspect/);
    const fences = await rounds(server);
    grows([done.task_id, queued.task_id, ...fences]);
    const task = await server.task(queued.task_id);
    assert.deepEqual([task.status, task.requeue_count, task.crash_count], ['QUEUED', 0, 0]);
    assert.equal((await server.get(`/api/v1/tasks/${done.task_id}/video`)).status, 200);
    for (const id of fences) {
        await server.done(id);
        await assertSteadyHistory(server, id);
    }
    const answer = await server.post(`/api/v1/tasks/${queued.task_id}/cancel`);
    assert.equal(answer.json.status, 'CANCELED');
    assert.deepEqual(statesOf(await assertSteadyHistory(server, queued.task_id, 'CANCELED')), ['CREATED', 'QUEUED', 'CANCELED']);
    assert.ok(Date.parse((await server.task(queued.task_id)).finished_at) > Date.now() - HOUR, 'not before it began');
});

test('a wall clock that was set removes nothing at once, and holds up retention for three days only', { skip }, async (t) => {
    const clock = new Clock(t);
    const server = await serve(t, { env: clock.env, set: { ...SETTINGS, 'retain.days': 30 } });
    const old = await server.done((await server.submit(small('old'))).task_id);
    clock.jump(YEAR);
    for (const [days, left] of [[0, /259\d{6}/], [2, /8\d{7}/]]) {
        clock.suspend(days * 24 * HOUR);
        await server.stop();
        await server.start();
        await server.waitLog(new RegExp(`retain_paused drift_ms=3\\d{10} accepted_in_ms=${left.source} `));
        assert.equal((await server.get(`/api/v1/tasks/${old.task_id}/video`)).status, 200);
    }
    const fresh = await server.done((await server.submit(small('fresh'))).task_id);
    clock.suspend(2 * 24 * HOUR);
    await server.stop();
    await server.start();
    await server.waitLog(/clock_accepted/);
    await eventually('the old one is gone', async () => (await server.ids()).length === 1);
    assert.deepEqual(await server.ids(), [fresh.task_id]);
});

test('a task finished before the wall clock fell back is still answered, listed and explained', { skip }, async (t) => {
    const clock = new Clock(t);
    const server = await serve(t, { env: clock.env, set: SETTINGS });
    const task = await server.done((await server.submit(small('done'))).task_id);
    clock.jump(-HOUR);
    const again = await server.task(task.task_id);
    assert.equal(again.finished_at, task.finished_at);
    assert.deepEqual(await server.ids(), [task.task_id]);
    assert.match((await server.get(`/api/v1/tasks/${task.task_id}?explain=1`)).json.explain, /^Ended SUCCEEDED 0 s ago/);
    for (const path of ['/api/v1/workers', '/readyz', '/healthz'])
        assert.equal((await server.get(path)).status, 200, path);
});
