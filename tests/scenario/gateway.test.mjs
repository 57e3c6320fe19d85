// The gateway's rules: whose turn it is, who is refused, what is reused, what comes back from the
// dead letter.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import test from 'node:test';

import { assertLegalHistory, assertProblem, eventually, ms, serve, slow, small, sql, statesOf } from './lib/reeld.mjs';
import { receive, verified } from './lib/receiver.mjs';

const cancel = (server, id, mode, options) => server.post(`/api/v1/tasks/${id}/cancel`, mode && { mode }, options);
const queue = async (server, name) =>
    (await server.get('/api/v1/queues')).json.data.find((row) => row.queue_name === name);
const seen = ({ status, reused_from, worker_id }) => [status, reused_from, worker_id];

/** Something that holds the only slot until it is cancelled. */
async function block(server) {
    const task = await server.submit(slow('blocker', { frames: 2000, priority: 10, queue_name: 'blockers' }));
    await server.until(task.task_id, 'PROCESSING');
    return () => cancel(server, task.task_id, 'hard');
}

/** Prompts in the order in which their tasks started. */
async function order(server, tasks) {
    const done = [];
    for (const task of tasks) done.push(await server.done(task.task_id));
    const starts = (await sql(server.db, "SELECT CAST(task_id AS TEXT) AS id FROM task_event WHERE to_status = 'PROCESSING' ORDER BY seq"))
        .map((row) => row.id);
    return done.sort((a, b) => starts.indexOf(a.task_id) - starts.indexOf(b.task_id)).map((task) => task.prompt);
}

test('priorities with ageing: an old low task goes before a fresh high one', async (t) => {
    const server = await serve(t, { set: { 'queue.step_ms': 100 } });
    const release = await block(server);
    const tasks = [await server.submit(small('old low', { priority: 'low' }))];
    const submitted = Date.now();
    await eventually('nine steps and more', () => Date.now() - submitted > 1100);
    tasks.push(await server.submit(small('low', { priority: 1 })));
    tasks.push(await server.submit(small('normal')));
    tasks.push(await server.submit(small('high', { priority: 'high' })));
    const positions = [];
    for (const task of tasks) positions.push((await server.task(task.task_id)).queue_position);
    assert.deepEqual(positions, [1, 4, 3, 2]);
    await release();
    assert.deepEqual(await order(server, tasks), ['old low', 'high', 'normal', 'low']);
});

test('queue.step_ms=0: first come, first served', async (t) => {
    const server = await serve(t, { set: { 'queue.step_ms': 0 } });
    const release = await block(server);
    const tasks = [];
    for (const priority of [1, 10, 5]) tasks.push(await server.submit(small(`priority ${priority}`, { priority })));
    await release();
    assert.deepEqual(await order(server, tasks), ['priority 1', 'priority 10', 'priority 5']);
});

test('fair_step: one user\'s pile does not keep another from his turn', async (t) => {
    const server = await serve(t, { set: { 'queue.fair_step_ms': 60000 } });
    const keys = { alice: await server.addKey('alice'), bob: await server.addKey('bob') };
    const release = await block(server);
    const tasks = [];
    for (const [user, n] of [['alice', 1], ['alice', 2], ['alice', 3], ['bob', 1], ['bob', 2]])
        tasks.push(await server.submit(small(`${user} ${n}`), { key: keys[user].key }));
    await release();
    assert.deepEqual(await order(server, tasks), ['alice 1', 'bob 1', 'alice 2', 'bob 2', 'alice 3']);
});

test('a paused queue holds its tasks, the others go on; a resume lets them go', async (t) => {
    const server = await serve(t);
    const running = await server.submit(slow('running', { frames: 15, queue_name: 'night' }));
    await server.until(running.task_id, 'PROCESSING');
    const held = await server.submit(small('held', { queue_name: 'night', priority: 'high' }));
    const paused = await server.post('/api/v1/queues/night/pause');
    assert.equal(paused.status, 200, paused.text);
    const late = await server.submit(small('taken although paused', { queue_name: 'night' }));
    const other = await server.submit(small('elsewhere', { priority: 'low' }));
    await server.done(running.task_id);
    await server.done(other.task_id);
    for (const task of [held, late]) assert.equal((await server.task(task.task_id)).status, 'QUEUED');
    const row = await queue(server, 'night');
    assert.deepEqual([row.state, row.depth, row.oldest_at], ['PAUSED', 2, held.queued_at]);
    assert.equal((await queue(server, 'default')).state, 'RUNNING');
    await server.kill9();
    await server.start();
    assert.equal((await queue(server, 'night')).state, 'PAUSED', 'a pause outlives the process');
    assert.equal((await server.post('/api/v1/queues/night/resume')).status, 200);
    assert.deepEqual(await order(server, [held, late]), ['held', 'taken although paused']);
    assert.deepEqual([(await queue(server, 'night')).state, (await queue(server, 'night')).depth], ['RUNNING', 0]);
});

test('a draining queue finishes what it holds and takes nothing new', async (t) => {
    const server = await serve(t);
    const release = await block(server);
    const inside = await server.submit(small('inside', { queue_name: 'old' }));
    assert.equal((await server.post('/api/v1/queues/old/drain')).status, 200);
    assertProblem(await server.post('/api/v1/tasks', small('too late', { queue_name: 'old' })), 409, 'CONFLICT', 'queue_name');
    const again = await server.post('/api/v1/tasks', small('inside', { queue_name: 'old' }));
    assert.equal(again.status, 200, 'a retry of what is inside is no new task');
    assert.equal(again.json.task_id, inside.task_id);
    await release();
    await server.done(inside.task_id);
    assert.equal((await queue(server, 'old')).state, 'DRAINING');
    assert.equal((await server.post('/api/v1/queues/old/resume')).status, 200);
    await server.done((await server.submit(small('welcome back', { queue_name: 'old' }))).task_id);
});

test('queues: who may steer them, and which', async (t) => {
    const server = await serve(t);
    const { key } = await server.addKey('alice');
    await server.done((await server.submit(small('one'))).task_id);
    for (const verb of ['pause', 'resume', 'drain']) {
        assert.equal((await server.post(`/api/v1/queues/default/${verb}`, undefined, { key })).status, 403);
        assertProblem(await server.post(`/api/v1/queues/nobodys/${verb}`), 404, 'NOT_FOUND');
    }
    assert.equal((await server.post('/api/v1/queues/default/stop')).status, 404);
    assert.equal((await queue(server, 'default')).state, 'RUNNING');
});

test('run_at: not before its time, at once when it is past, refused when it is none', async (t) => {
    const server = await serve(t);
    const at = new Date(Date.now() + 1500);
    const later = await server.submit(small('later', { run_at: at.toISOString(), priority: 'high' }));
    const past = await server.submit(small('past', { run_at: '2001-02-03T04:05:06+07:00' }));
    await server.done(past.task_id);
    const waiting = await server.task(later.task_id);
    assert.deepEqual([waiting.status, waiting.queue_position], ['QUEUED', null]);
    const done = await server.done(later.task_id);
    const late = Date.parse(done.started_at) - at;
    assert.ok(late >= -2 && late < ms(1000), `started ${late} ms after its time`);
    for (const run_at of ['tomorrow', 1700000000, '2026-13-01T00:00:00Z', ''])
        assertProblem(await server.post('/api/v1/tasks', small('never', { run_at })), 422, 'INVALID_FIELD', 'run_at');
});

test('quota: three unfinished tasks per app user; a retry is never refused; the owner has none', async (t) => {
    const server = await serve(t);
    const alice = { key: (await server.addKey('alice')).key };
    const bob = { key: (await server.addKey('bob')).key };
    const release = await block(server);
    const tasks = [];
    for (const n of [1, 2]) tasks.push(await server.submit(small(`task ${n}`), alice));
    tasks.push(await server.submit(small('task 3'), { ...alice, headers: { 'idempotency-key': 'three' } }));
    for (let n = 0; n < 3; n++) {
        const refused = await server.post('/api/v1/tasks', small('task 4'), alice);
        assertProblem(refused, 429, 'TOO_MANY_PENDING_TASKS');
        assert.ok(Number(refused.headers['retry-after']) > 0, JSON.stringify(refused.headers));
    }
    assert.equal((await sql(server.db, "SELECT count(*) AS n FROM task WHERE user_id = 'alice'"))[0].n, 3);
    const derived = await server.post('/api/v1/tasks', small('task 1'), alice);
    assert.deepEqual([derived.status, derived.json.task_id], [200, tasks[0].task_id]);
    const keyed = await server.post('/api/v1/tasks', small('task 3'), { ...alice, headers: { 'idempotency-key': 'three' } });
    assert.deepEqual([keyed.status, keyed.json.task_id], [200, tasks[2].task_id]);
    await server.submit(small('task 1'), bob);
    for (let n = 0; n < 5; n++) await server.submit(small(`the owner's ${n}`));

    assert.equal((await cancel(server, tasks[1].task_id, 'soft', alice)).status, 200);
    const fourth = await server.submit(small('task 4'), alice);
    assertProblem(await server.post('/api/v1/tasks', small('task 5'), alice), 429, 'TOO_MANY_PENDING_TASKS');
    await release();
    await server.done(fourth.task_id);
    await server.submit(small('task 5'), alice);
});

test('soft cancel, then the same again while the run goes on: it waits and gets that result', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const body = slow('the same', { frames: 25, callback_url: receiver.url });
    const first = await server.submit(body);
    await eventually('it makes frames', async () => (await server.task(first.task_id)).step >= 2);
    assert.equal((await cancel(server, first.task_id)).status, 200);
    const behind = await server.submit(small('another task'));
    const second = await server.submit(body);
    assert.notEqual(second.task_id, first.task_id);
    assert.deepEqual(seen(second), ['QUEUED', null, null]);
    const waiting = await server.get(`/api/v1/tasks/${second.task_id}?explain=1`);
    assert.match(waiting.json.explain, new RegExp(`task ${first.task_id}, which was soft-cancelled`));
    const third = await server.post('/api/v1/tasks', body);
    assert.deepEqual([third.status, third.json.task_id], [200, second.task_id], 'a retry of the second');

    const done = await server.done(second.task_id);
    assert.deepEqual(seen(done), ['SUCCEEDED', first.task_id, 'reuse']);
    assert.deepEqual([done.attempt, done.progress], [1, 100]);
    const events = await server.events(second.task_id);
    assertLegalHistory(events, 'SUCCEEDED');
    assert.deepEqual(statesOf(events), ['CREATED', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    const [kept] = await sql(server.db, `SELECT video_sha256, seed FROM task WHERE task_id = ${first.task_id}`);
    assert.equal(done.video.sha256, kept.video_sha256);
    assert.equal(String(done.params.seed), String(kept.seed), 'the seed that made it');
    assert.equal((await server.get(`/api/v1/tasks/${second.task_id}/video`)).body.length, done.video.bytes);
    await server.done(behind.task_id);
    await receiver.wait(second.task_id);
    assert.deepEqual(receiver.requests.map((request) => JSON.parse(request.body).task_id), [second.task_id]);
    assert.equal((await sql(server.db, "SELECT count(*) AS n FROM task_event WHERE to_status = 'PROCESSING' AND worker_id <> 'reuse'"))[0].n, 2);

    const again = await server.submit({ ...body, idempotency: 'off' });
    assert.deepEqual(seen(again), ['QUEUED', null, null], 'the result has served: without a seed the same words ask for another video');
    await server.until(again.task_id, 'PROCESSING');
    assert.equal((await cancel(server, again.task_id)).status, 200);
    const hash = async ({ task_id }) => (await sql(server.db, `SELECT video_sha256 FROM task WHERE task_id = ${task_id}`))[0].video_sha256;
    await eventually('it is kept', () => hash(again));
    const at_once = await server.submit({ ...body, label: 'again', idempotency: 'off' });
    assert.deepEqual(seen(at_once), ['SUCCEEDED', again.task_id, 'reuse'], 'the result is there: SUCCEEDED in the answer to the submit');
    assert.equal(at_once.video.sha256, await hash(again));
    const seeded = { ...body, seed: 7, idempotency: 'off' };
    const cut = await server.submit(seeded);
    await server.until(cut.task_id, 'PROCESSING');
    assert.equal((await cancel(server, cut.task_id)).status, 200);
    await eventually('it is kept', () => hash(cut));
    for (let i = 0; i < 2; i++)
        assert.deepEqual(seen(await server.submit(seeded)), ['SUCCEEDED', cut.task_id, 'reuse'], 'with a seed there is only one');
    assert.deepEqual(await sql(server.db, 'SELECT task_id FROM task WHERE waits_for > 0'), []);
    assert.deepEqual(statesOf(await server.events(at_once.task_id)), ['CREATED', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    await receiver.wait(at_once.task_id);
});

test('reuse never crosses users, nor parameters', async (t) => {
    const server = await serve(t);
    const alice = { key: (await server.addKey('alice')).key };
    const bob = { key: (await server.addKey('bob')).key };
    const body = slow('shared words', { frames: 15 });
    const first = await server.submit(body, alice);
    await server.until(first.task_id, 'PROCESSING');
    assert.equal((await cancel(server, first.task_id, 'soft', alice)).status, 200);
    const others = [
        await server.submit(small('shared words', { frames: 15, options: { frame_ms: 1 } }), alice),
        await server.submit(body, bob),
        await server.submit({ ...body, options: { frame_ms: 1 } }, bob),
    ];
    const own = await server.submit(body, alice);
    assert.equal((await server.done(own.task_id)).reused_from, first.task_id);
    for (const task of others) {
        const done = await server.done(task.task_id);
        assert.deepEqual([done.reused_from, done.worker_id === 'reuse'], [null, false]);
    }
    assertProblem(await server.get(`/api/v1/tasks/${first.task_id}`, bob), 404, 'NOT_FOUND');
});

test('a hard cancel after the soft one sends the waiting task into the queue', async (t) => {
    const server = await serve(t);
    const body = slow('the same', { frames: 20 });
    const first = await server.submit({ ...body, options: { frame_ms: 100 } });
    await server.until(first.task_id, 'PROCESSING');
    await cancel(server, first.task_id, 'soft');
    const second = await server.submit(body);
    assert.equal(second.status, 'QUEUED');
    assert.equal((await cancel(server, first.task_id, 'hard')).status, 200);
    const done = await server.done(second.task_id);
    assert.deepEqual([done.reused_from, done.attempt], [null, 1]);
    assert.notEqual(done.worker_id, 'reuse');
    assert.deepEqual(server.results().filter((name) => name.startsWith(first.task_id)), []);
});

test('kill -9 during a soft-cancelled run sends the waiting task into the queue', async (t) => {
    const server = await serve(t);
    const body = slow('the same', { frames: 20 });
    const first = await server.submit(body);
    await server.until(first.task_id, 'PROCESSING');
    await cancel(server, first.task_id, 'soft');
    const second = await server.submit(body);
    await server.kill9();
    await server.start();
    const done = await server.done(second.task_id);
    assert.deepEqual([done.reused_from, done.attempt, done.crash_count], [null, 1, 0]);
    assert.equal((await server.task(first.task_id)).status, 'CANCELED');
});

test('a kept result whose file is gone is not promised', async (t) => {
    const server = await serve(t);
    const body = slow('the same', { frames: 8 });
    const first = await server.submit(body);
    await server.until(first.task_id, 'PROCESSING');
    await cancel(server, first.task_id, 'soft');
    const name = await eventually('the kept file', async () =>
        (await sql(server.db, `SELECT video_file FROM task WHERE task_id = ${first.task_id}`))[0].video_file);
    fs.rmSync(`${server.dir}/results/${name}`);
    const done = await server.done((await server.submit(body)).task_id);
    assert.equal(done.reused_from, null);
    assert.equal((await server.get(`/api/v1/tasks/${done.task_id}/video`)).status, 200);
});

test('dead letters: the next round of the same task, with a callback of its own', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t, { set: { 'queue.requeues': 0 } });
    const secret = (await server.get('/api/v1/callback-secret')).json.secret;
    const release = await block(server);
    const task = await server.submit(small('late', { queue_timeout_s: 1, callback_url: receiver.url }));
    const dead = await server.until(task.task_id, 'TIMEOUT');
    await server.called(task.task_id, 'SUCCEEDED');
    assert.match((await server.get(`/api/v1/tasks/${task.task_id}?explain=1`)).json.explain, /dead-letters\/\d+\/replay/);
    await release();
    const answer = await server.post(`/api/v1/dead-letters/${task.task_id}/replay`);
    assert.equal(answer.status, 202, answer.text);
    assert.equal(answer.headers.location, `/api/v1/tasks/${task.task_id}`);
    const { status, round, error_code, error_msg, finished_at, requeue_count, callback_status, callback_retry } = answer.json;
    assert.deepEqual([status, round, error_code, error_msg, finished_at, requeue_count, callback_status, callback_retry],
        ['QUEUED', 2, null, null, null, 0, 'PENDING', 0]);
    const done = await server.done(task.task_id);
    assert.deepEqual([done.round, done.attempt, done.created_at], [2, 1, dead.created_at]);
    assert.deepEqual(statesOf(await server.events(task.task_id)),
        ['CREATED', 'QUEUED', 'TIMEOUT', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    assertLegalHistory(await server.events(task.task_id), 'SUCCEEDED');
    const second = await eventually('the second callback', () => receiver.requests[1]);
    const [first] = receiver.requests;
    assert.deepEqual([first, second].map(({ headers }) => [headers['webhook-id'], headers['idempotency-key']]), [
        [`evt_${task.task_id}_1`, task.task_id],
        [`evt_${task.task_id}_2`, `${task.task_id}-2`],
    ]);
    assert.deepEqual([first, second].map((request) => verified(request, secret)).map((body) => [body.type, body.round]),
        [['task.timeout', 1], ['task.succeeded', 2]]);
    assert.deepEqual((await server.get('/api/v1/dead-letters')).json.data, []);
    assertProblem(await server.post(`/api/v1/dead-letters/${task.task_id}/replay`), 409, 'CONFLICT');
});

test('dead letters: list, pages, replay of many, discard, and whose they are', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on', 'limit.pending_tasks': 0 } });
    const alice = { key: (await server.addKey('alice')).key };
    const fails = (prompt) => small(prompt, { max_retries: 0, options: { fault: 'fail' } });
    const ids = [];
    for (const n of [1, 2, 3]) ids.push((await server.submit(fails(`own ${n}`))).task_id);
    const hers = (await server.submit(fails('hers'), alice)).task_id;
    const good = (await server.submit(small('good'))).task_id;
    await server.done(good);
    for (const id of [...ids, hers]) assert.equal((await server.until(id, 'FAILED')).error_code, 'ENGINE_ERROR');
    const list = async (query = '', options) => (await server.get(`/api/v1/dead-letters${query}`, options)).json;
    const named = (page) => page.data.map((row) => row.task_id);
    assert.deepEqual(named(await list()), [hers, ...[...ids].reverse()]);
    assert.deepEqual(named(await list('', alice)), [hers]);
    const page = await list('?limit=3&order=asc');
    assert.deepEqual(named(page), ids);
    assert.deepEqual(named(await list(`?limit=3&order=asc&after=${page.next}`)), [hers]);

    assert.equal((await server.api('DELETE', `/api/v1/dead-letters/${ids[2]}`)).status, 204);
    assertProblem(await server.api('DELETE', `/api/v1/dead-letters/${ids[2]}`), 404, 'NOT_FOUND');
    assertProblem(await server.api('DELETE', `/api/v1/dead-letters/${good}`), 404, 'NOT_FOUND');
    assert.equal((await server.task(ids[2])).status, 'FAILED', 'the task stays');
    assert.deepEqual(named(await list('?order=asc')), [ids[0], ids[1], hers]);

    assertProblem(await server.post(`/api/v1/dead-letters/${ids[0]}/replay`, undefined, alice), 404, 'NOT_FOUND');
    assertProblem(await server.api('DELETE', `/api/v1/dead-letters/${ids[0]}`, alice), 404, 'NOT_FOUND');
    const many = await server.post('/api/v1/dead-letters/replay', { task_ids: [ids[0], good, '4711', ids[1]] });
    assert.equal(many.status, 200, many.text);
    assert.deepEqual(many.json, {
        replayed: [ids[0], ids[1]],
        refused: [{ task_id: good, code: 'CONFLICT' }, { task_id: '4711', code: 'NOT_FOUND' }],
    });
    for (const id of [ids[0], ids[1]]) {
        await eventually('it failed again', async () => {
            const now = await server.task(id);
            return now.round === 2 && now.status === 'FAILED';
        });
        const again = await server.task(id);
        assert.deepEqual([again.attempt, again.retry_count, again.crash_count], [2, 0, 0]);
    }
    assert.deepEqual(named(await list('?order=asc')), [ids[0], ids[1], hers], 'and they are dead again');
    const none = await server.post('/api/v1/dead-letters/replay', { task_ids: [ids[0]] }, alice);
    assert.deepEqual(none.json, { replayed: [], refused: [{ task_id: ids[0], code: 'NOT_FOUND' }] });
    for (const body of [{}, { task_ids: [] }, { task_ids: 'all' }, { task_ids: [1] }, { task_ids: ['x'] }])
        assertProblem(await server.post('/api/v1/dead-letters/replay', body), 422, 'INVALID_FIELD', 'task_ids');
});
