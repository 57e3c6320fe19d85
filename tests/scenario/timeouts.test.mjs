// The two time-outs: waiting too long, and running too long or not at all any more.
import assert from 'node:assert/strict';
import test from 'node:test';

import { assertLegalHistory, eventually, ms, serve, slow, small, sql, statesOf } from './lib/reeld.mjs';
import { receive, verified } from './lib/receiver.mjs';

const FAULTS = { 'testpattern.faults': 'on' };
const hang = (prompt, more = {}) =>
    small(prompt, { run_timeout_s: 1, ...more, options: { fault: 'hang', fault_at: 1 } });
const counts = ({ attempt, requeue_count, retry_count, crash_count }) => [attempt, requeue_count, retry_count, crash_count];
const took = (task) => Date.parse(task.finished_at) - Date.parse(task.started_at);

/** The task once it is there, while the process replaces itself and does not answer for a moment. */
async function patient(server, id, states, timeout = 60000) {
    let end;
    await eventually(() => `${id} ${states}: ${JSON.stringify(end)}\n${server.tail()}`, async () => {
        try {
            end = await server.task(id);
        } catch (error) {
            if (!['ECONNREFUSED', 'ECONNRESET', 'EPIPE'].includes(error.code) && error.message !== 'socket hang up' &&
                !/the server is stopping/.test(error.message))
                throw error;
            return false;
        }
        return [states].flat().includes(end.status);
    }, timeout);
    return end;
}

const replacements = (server) => server.stderr.match(/event=process_replace|"process_replace"|process_replace /g)?.length ?? 0;

test('queue time-out: re-queued twice, then TIMEOUT, a callback and the dead letter', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const secret = (await server.get('/api/v1/callback-secret')).json.secret;
    const blocker = await server.submit(slow('blocker', { frames: 2000 }));
    await server.until(blocker.task_id, 'PROCESSING');
    const task = await server.submit(small('waits', { queue_timeout_s: 1, callback_url: receiver.url }));
    const forever = await server.submit(small('for ever', { queue_timeout_s: 0 }));
    const default_ = await server.submit(small('an hour'));
    const end = await server.until(task.task_id, 'TIMEOUT');
    assert.deepEqual([end.error_code, end.attempt, end.requeue_count], ['QUEUE_TIMEOUT', 0, 2]);
    assert.ok(end.error_msg.length > 0);
    assert.equal(end.queued_at, task.queued_at, 'the place in the queue is never lost');
    const events = await server.events(task.task_id);
    assertLegalHistory(events, 'TIMEOUT');
    assert.deepEqual(statesOf(events), ['CREATED', 'QUEUED', 'QUEUED', 'QUEUED', 'TIMEOUT']);
    assert.deepEqual(events.slice(2).map((event) => event.reason),
        ['queue time-out, re-queue 1 of 2', 'queue time-out, re-queue 2 of 2', 'QUEUE_TIMEOUT']);
    for (const [i, event] of events.slice(1).entries()) {
        const waited = Date.parse(event.timestamp) - Date.parse(task.queued_at);
        // the times are the wall clock's, whole milliseconds, and the queue counts by the steady one
        assert.ok(waited >= 1000 * i - 5 && waited < 1000 * i + ms(900), `event ${i} after ${waited} ms`);
    }
    const [request] = await receiver.wait(task.task_id);
    const body = verified(request, secret);
    assert.deepEqual([body.type, body.status, body.error_code], ['task.timeout', 'TIMEOUT', 'QUEUE_TIMEOUT']);
    const dead = await server.get('/api/v1/dead-letters');
    assert.deepEqual(dead.json.data.map((row) => row.task_id), [task.task_id]);
    await server.post(`/api/v1/tasks/${blocker.task_id}/cancel`, { mode: 'hard' });
    for (const other of [forever, default_]) {
        const done = await server.done(other.task_id);
        assert.deepEqual(counts(done), [1, 0, 0, 0]);
    }
});

test('queue.requeues=0: the first time-out is the last; the server default applies', async (t) => {
    const server = await serve(t, { set: { 'queue.requeues': 0, 'queue.timeout_s': 1 } });
    const blocker = await server.submit(slow('blocker', { frames: 2000, queue_timeout_s: 0 }));
    await server.until(blocker.task_id, 'PROCESSING');
    const task = await server.submit(small('waits'));
    const longer = await server.submit(small('waits longer', { queue_timeout_s: 100 }));
    const end = await server.until(task.task_id, 'TIMEOUT');
    assert.deepEqual([end.error_code, end.requeue_count], ['QUEUE_TIMEOUT', 0]);
    assert.deepEqual(statesOf(await server.events(task.task_id)), ['CREATED', 'QUEUED', 'TIMEOUT']);
    await server.post(`/api/v1/tasks/${blocker.task_id}/cancel`, { mode: 'hard' });
    await server.done(longer.task_id);
});

test('a paused queue expires nothing; a resume gives its tasks their whole time again', async (t) => {
    const server = await serve(t);
    const blocker = await server.submit(slow('blocker', { frames: 2000 }));
    await server.until(blocker.task_id, 'PROCESSING');
    const held = await server.submit(small('held back', { queue_name: 'night', queue_timeout_s: 1 }));
    assert.equal((await server.post('/api/v1/queues/night/pause')).status, 200);
    const late = await server.submit(small('comes later', { queue_name: 'night', queue_timeout_s: 1 }));
    const other = await server.submit(small('elsewhere', { queue_timeout_s: 1 }));
    await server.until(other.task_id, 'TIMEOUT');
    for (const task of [held, late]) {
        const now = await server.task(task.task_id);
        assert.deepEqual([now.status, now.requeue_count], ['QUEUED', 0], 'three time-outs long');
    }
    const resumed = Date.now();
    assert.equal((await server.post('/api/v1/queues/night/resume')).status, 200);
    for (const task of [held, late]) {
        await eventually('its time-out strikes', async () => (await server.task(task.task_id)).requeue_count === 1);
        const strike = (await server.events(task.task_id)).at(-1);
        assert.match(strike.reason, /re-queue 1 of 2/);
        assert.ok(Date.parse(strike.timestamp) - resumed >= 950, 'not before its time after the resume');
    }
});

test('a slow run that beats: grace once, then TIMEOUT; its files go, the slot is free', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const task = await server.submit(slow('too slow', { frames: 300, run_timeout_s: 1, callback_url: receiver.url }));
    const next = await server.submit(small('next'));
    const end = await server.until(task.task_id, 'TIMEOUT');
    assert.deepEqual([end.error_code, ...counts(end)], ['PROCESSING_TIMEOUT', 1, 0, 0, 0]);
    assert.ok(took(end) >= 2000 && took(end) < ms(9000), `stopped after ${took(end)} ms`);
    for (const line of [/run_grace/g, /run_timeout /g]) {
        await server.waitLog(line);
        assert.equal(server.stderr.match(line).length, 1, server.tail());
    }
    assertLegalHistory(await server.events(task.task_id), 'TIMEOUT');
    await server.done(next.task_id);
    assert.deepEqual(server.results().filter((name) => name.startsWith(task.task_id)), []);
    const [request] = await receiver.wait(task.task_id);
    assert.equal(JSON.parse(request.body).error_code, 'PROCESSING_TIMEOUT');
    assert.equal(replacements(server), 0, 'no reason to replace the process');
});

test('a run that ends within its grace succeeds; run_timeout_s=0 never times out; a measured pace counts', async (t) => {
    const server = await serve(t, { set: { 'run.timeout_floor_s': 1 } });
    const close = await server.submit(slow('just in time', { frames: 14, run_timeout_s: 1 }));
    const never = await server.submit(slow('takes its time', { frames: 80, run_timeout_s: 0 }));
    const known = await server.submit(slow('known to take so long', { frames: 70 }));
    assert.deepEqual(counts(await server.done(close.task_id)), [1, 0, 0, 0]);
    const free = await server.done(never.task_id);
    assert.ok(took(free) >= 7900, `${took(free)}`);
    assert.deepEqual(counts(free), [1, 0, 0, 0]);
    const measured = await server.done(known.task_id);
    assert.ok(took(measured) >= 6900);
    assert.equal(server.stderr.match(/run_timeout /g), null);
});

test('a first run takes as long as it takes; the next one, of which much less is expected, gets the floor', async (t) => {
    const server = await serve(t, { set: { 'run.timeout_floor_s': 1 } });
    const first = await server.submit(slow('nobody knows yet', { frames: 90 }));
    await server.until(first.task_id, 'PROCESSING');
    const { json } = await server.get(`/api/v1/tasks/${first.task_id}?explain=1`);
    assert.match(json.explain, /No such work was measured on this device yet/);
    assert.ok(took(await server.done(first.task_id)) > 8900);
    for (let i = 0; i < 3; i++) await server.done((await server.submit(small(`quick ${i}`))).task_id);
    const task = await server.submit(slow('far slower', { frames: 10, frame_ms: 2000 }));
    const end = await server.until(task.task_id, 'TIMEOUT');
    assert.equal(end.error_code, 'PROCESSING_TIMEOUT');
    assert.ok(took(end) < ms(15000), `${took(end)}`);
});

test('a first run that falls silent for the floor hangs', async (t) => {
    const server = await serve(t, { set: { ...FAULTS, 'run.timeout_floor_s': 2, 'run.stale_ms': 300, 'pool.crash_budget': 1 } });
    const hung = await server.submit(hang('hangs', { run_timeout_s: undefined }));
    const end = await patient(server, hung.task_id, 'TIMEOUT');
    assert.match(end.error_msg, /the run hung/);
    assert.ok(took(end) >= 2000, `${took(end)}`);
    await server.kill9(); // it replaces itself just now
});

test('a run hangs: the process replaces itself, only the hung task is charged, until its budget is spent', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t, {
        set: { ...FAULTS, 'run.stale_ms': 300, 'pool.cpu_slots': 2, 'pool.crash_budget': 2 },
    });
    const hung = await server.submit(hang('hangs', { callback_url: receiver.url }));
    const beside = await server.submit(slow('beside it', { frames: 90, run_timeout_s: 100 }));
    const waiting = await server.submit(small('waits behind them'));
    await server.until(beside.task_id, 'PROCESSING');
    const pid = server.pid;
    await server.waitLog(/run_hangs .*/, 20000);
    await eventually('a new life in the same process', () => server.stdout.match(/listening on/g)?.length >= 2);
    assert.equal(server.child.pid, pid);

    for (const task of [beside, waiting]) {
        const done = await patient(server, task.task_id, 'SUCCEEDED');
        assert.deepEqual(counts(done), [1, 0, 0, 0], done.prompt);
        assertLegalHistory(await server.events(task.task_id), 'SUCCEEDED');
    }
    assert.deepEqual(statesOf(await server.events(beside.task_id)),
        ['CREATED', 'QUEUED', 'PROCESSING', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    const end = await patient(server, hung.task_id, 'TIMEOUT');
    await eventually('the server is back', async () => (await server.get('/readyz').catch(() => ({}))).status === 200, 30000);
    assert.deepEqual([end.error_code, ...counts(end)], ['PROCESSING_TIMEOUT', 2, 0, 0, 2]);
    const events = await server.events(hung.task_id);
    assertLegalHistory(events, 'TIMEOUT');
    assert.deepEqual(events.slice(2).map((event) => [event.to_status, event.attempt]),
        [['PROCESSING', 1], ['QUEUED', 1], ['PROCESSING', 2], ['TIMEOUT', 2]]);
    assert.equal(events[3].reason, 'the run hung');
    await receiver.wait(hung.task_id);
    assert.equal(JSON.parse(receiver.about(hung.task_id)[0].body).status, 'TIMEOUT');
    await server.done((await server.submit(small('all is well'))).task_id);
    assert.equal(server.child.pid, pid);
    assert.deepEqual(server.results().filter((name) => name.startsWith(hung.task_id) || /part/.test(name)), []);
});

test('an idle slot does not take a hung task up again', async (t) => {
    const server = await serve(t, {
        set: { ...FAULTS, 'run.stale_ms': 300, 'pool.cpu_slots': 2, 'pool.crash_budget': 2 },
    });
    const hung = await server.submit(hang('hangs'));
    const end = await patient(server, hung.task_id, 'TIMEOUT');
    assert.deepEqual(counts(end), [2, 0, 0, 2]);
    const events = await sql(server.db, `SELECT to_status, reason FROM task_event WHERE task_id = ${hung.task_id} AND from_status = 'PROCESSING'`);
    assert.deepEqual(events, [{ to_status: 'QUEUED', reason: 'the run hung' }, { to_status: 'TIMEOUT', reason: 'the run hung' }]);
    await eventually('the server is back', async () => (await server.get('/readyz').catch(() => ({}))).status === 200, 30000);
});

test('a neighbour of a hung run that does not stop either is not charged', async (t) => {
    const server = await serve(t, {
        set: { ...FAULTS, 'run.stale_ms': 300, 'pool.cpu_slots': 2, 'pool.crash_budget': 2 },
    });
    const hung = await server.submit(hang('hangs'));
    const deaf = await server.submit(hang('hangs, but nobody said how long is too long', { run_timeout_s: 0 }));
    await server.until(deaf.task_id, 'PROCESSING');
    const end = await patient(server, hung.task_id, 'TIMEOUT');
    assert.deepEqual([end.error_code, ...counts(end)], ['PROCESSING_TIMEOUT', 2, 0, 0, 2]);
    const again = await patient(server, deaf.task_id, 'PROCESSING');
    assert.deepEqual(counts(again), [1, 0, 0, 0], 'its attempt was given back');
    await server.kill9();
    const events = await sql(server.db, `SELECT task_id = ${hung.task_id} AS hung, to_status, attempt, reason FROM task_event
        WHERE from_status = 'PROCESSING' AND attempt <= 2 ORDER BY seq`);
    assert.deepEqual(events.slice(0, 3), [
        { hung: 1, to_status: 'QUEUED', attempt: 1, reason: 'the run hung' },
        { hung: 0, to_status: 'QUEUED', attempt: 0, reason: 'drain' },
        { hung: 1, to_status: 'TIMEOUT', attempt: 2, reason: 'the run hung' },
    ]);
});

test('a hung run that is cancelled hard: CANCELED, no callback, and the server heals', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t, { set: { ...FAULTS, 'run.stale_ms': 300 } });
    const hung = await server.submit(hang('hangs', { run_timeout_s: 0, callback_url: receiver.url }));
    const next = await server.submit(small('next', { callback_url: receiver.url }));
    await server.frame(hung.task_id, 1);
    const answer = await server.post(`/api/v1/tasks/${hung.task_id}/cancel`, { mode: 'hard' });
    assert.equal(answer.status, 202, answer.text);
    const end = await patient(server, hung.task_id, 'CANCELED');
    assert.deepEqual([end.cancel_mode, end.callback_status, ...counts(end)], ['hard', null, 1, 0, 0, 0]);
    assert.deepEqual(counts(await patient(server, next.task_id, 'SUCCEEDED')), [1, 0, 0, 0]);
    await receiver.wait(next.task_id);
    assert.equal(receiver.requests.length, 1);
    assert.deepEqual(server.results().filter((name) => name.startsWith(hung.task_id)), []);
});

test('a hung run without a time-out is left alone: nobody said how long is too long', async (t) => {
    const server = await serve(t, { set: { ...FAULTS, 'run.stale_ms': 100 } });
    const hung = await server.submit(hang('hangs', { run_timeout_s: 0 }));
    await eventually('it was silent for long', async () => {
        const { json } = await server.get('/api/v1/workers');
        const [worker] = json.data;
        return worker.task_id === hung.task_id && Date.now() - Date.parse(worker.heartbeat_at) > 6000;
    });
    assert.equal((await server.task(hung.task_id)).status, 'PROCESSING');
    assert.equal(replacements(server), 0);
    await server.kill9();
});
