// What is stuck, what is said about it, what is put right, and what is removed in time.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { assertProblem, eventually, ms, reeld, run, serve, slow, small, sql, statesOf } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

const HOUR = 3600e3;

/** Changes rows behind the server's back, as no part of it would. */
async function edit(server, statement) {
    const { code, stderr } = await run('sqlite3', [server.db, '.timeout 5000', 'PRAGMA wal_autocheckpoint = 0', statement]);
    assert.equal(code, 0, stderr);
}

const rows = (server) => sql(server.db, 'SELECT * FROM task ORDER BY task_id');
const explain = async (server, id) => {
    const answer = await server.get(`/api/v1/tasks/${id}?explain=1`);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.task_id, id);
    return answer.json.explain;
};
const repair = async (server, query) => {
    const answer = await server.post(`/api/v1/repair?${query}`);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
};

/** Three kinds of tasks that nothing but a repair or a restart moves; returns their ids by kind. */
async function stick(server) {
    await server.done((await server.submit(small('first', { queue_name: 'held' }))).task_id);
    assert.equal((await server.post('/api/v1/queues/held/pause')).status, 200);
    const ids = {};
    for (const kind of ['lost', 'earlier', 'twin', 'fine'])
        ids[kind] = (await server.submit(small(kind, { queue_name: 'held' }))).task_id;
    const claimed = `status = 'PROCESSING', worker_id = 'cpu0', attempt = 1, started_at = 1, updated_at = 1`;
    await edit(server, `UPDATE task SET ${claimed}, epoch = (SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'epoch')
        WHERE task_id = ${ids.lost}`);
    await edit(server, `UPDATE task SET ${claimed}, epoch = 999 WHERE task_id = ${ids.earlier}`);
    await edit(server, `UPDATE task SET waits_for = 4711, not_before = 9223372036854775807, queue_due_at = 0
        WHERE task_id = ${ids.twin}`);
    return ids;
}

test('repair: a dry run lists what is stuck and why, and changes nothing', async (t) => {
    const server = await serve(t);
    const ids = await stick(server);
    const before = await rows(server);
    const report = await repair(server, 'dry_run=true');
    assert.equal(report.dry_run, true);
    assert.equal(report.acted, 0);
    assert.deepEqual(report.stuck.map(({ task_id, status, action }) => [task_id, status, action]), [
        [ids.twin, 'QUEUED', 'release'],
        [ids.lost, 'PROCESSING', 'requeue'],
        [ids.earlier, 'PROCESSING', 'requeue'],
    ]);
    assert.deepEqual(report.stuck.map((row) => row.reason), [
        'it waits for a run that is over', 'no worker runs it', 'its run belongs to an earlier start of the program',
    ]);
    assert.deepEqual(report.status_counts, { PROCESSING: 2, QUEUED: 2, SUCCEEDED: 1 });
    assert.deepEqual((await repair(server, '')).stuck, report.stuck, 'a dry run is the default');
    assert.deepEqual((await repair(server, 'status=QUEUED')).stuck.map((row) => row.task_id), [ids.twin]);
    assert.deepEqual(await rows(server), before);
    assert.match(await explain(server, ids.lost), /no worker runs it: POST \/api\/v1\/repair/);

    const { key } = await server.addKey('alice');
    assert.equal((await server.post('/api/v1/repair?dry_run=false', undefined, { key })).status, 403);
    for (const query of ['dry_run=maybe', 'batch=0', 'batch=1001', 'status=LOST', 'force=1'])
        assert.ok([400, 422].includes((await server.post(`/api/v1/repair?${query}`)).status), query);
    assert.deepEqual(await rows(server), before);
});

test('repair: acts in batches, leaves what lives alone, and the tasks come to their end', async (t) => {
    const server = await serve(t);
    const ids = await stick(server);
    const alive = await server.submit(slow('alive', { frames: 2000 }));
    await server.until(alive.task_id, 'PROCESSING');
    await edit(server, `UPDATE task SET updated_at = 1 WHERE task_id = ${alive.task_id}`);
    const acted = [];
    for (let n = 0; n < 3; n++) {
        const report = await repair(server, 'dry_run=false&batch=2');
        assert.equal(report.acted, report.stuck.length);
        acted.push(report.stuck.map((row) => row.task_id));
    }
    assert.deepEqual(acted, [[ids.twin, ids.lost], [ids.earlier], []]);
    assert.equal((await server.task(alive.task_id)).status, 'PROCESSING');
    await server.post(`/api/v1/tasks/${alive.task_id}/cancel`, { mode: 'hard' });
    assert.equal((await server.post('/api/v1/queues/held/resume')).status, 200);
    for (const id of Object.values(ids)) {
        const done = await server.done(id);
        assert.equal(done.crash_count, 0);
        assert.equal(done.reused_from, null);
    }
    const history = await server.events(ids.lost);
    assert.equal(history.find((event) => event.from_status === 'PROCESSING').reason, 'repair');
});

test('reeld repair: says what it would do, does it with --apply, and repeats until nothing is stuck', async (t) => {
    const server = await serve(t);
    const ids = await stick(server);
    const before = await rows(server);
    const dry = await reeld(['repair', '--state-dir', server.dir]);
    assert.equal(dry.code, 0, dry.stderr);
    for (const kind of ['twin', 'lost', 'earlier']) assert.match(dry.stdout, new RegExp(ids[kind]));
    assert.doesNotMatch(dry.stdout, new RegExp(ids.fine));
    assert.deepEqual(await rows(server), before);
    const apply = await reeld(['repair', '--apply', '--batch', '2', '--state-dir', server.dir]);
    assert.equal(apply.code, 0, apply.stderr);
    for (const kind of ['twin', 'lost', 'earlier']) assert.match(apply.stdout, new RegExp(ids[kind]));
    assert.deepEqual((await repair(server, '')).stuck, []);
});

test('a start and the scheduler heal by themselves: lost runs, missed enqueues, delays that are over', async (t) => {
    const server = await serve(t);
    const ids = await stick(server);
    ids.created = (await server.submit(small('created', { options: { input_ms: HOUR } }))).task_id;
    ids.delayed = (await server.submit(small('delayed', { run_at: new Date(Date.now() + HOUR).toISOString() }))).task_id;
    assert.match(await explain(server, ids.created), /inputs are still being fetched/);
    assert.match(await explain(server, ids.delayed), /Its start is delayed: 5\d min left|60 min left/);
    await server.stop();
    await edit(server, `UPDATE task SET input_at = 1, updated_at = 1 WHERE task_id = ${ids.created}`);
    await edit(server, `UPDATE task SET not_before = 1, updated_at = 1 WHERE task_id = ${ids.delayed}`);
    await edit(server, "UPDATE queue SET state = 'RUNNING'");
    await server.start();
    for (const id of Object.values(ids)) await server.done(id);
    assert.deepEqual((await repair(server, '')).stuck, []);
    assert.deepEqual(statesOf(await server.events(ids.created)), ['CREATED', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
});

test('explain: in words where a task stands', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on', 'run.stale_ms': 40000 } });
    const failed = await server.submit(small('failed', { max_retries: 0, options: { fault: 'fail' } }));
    await server.until(failed.task_id, 'FAILED');
    assert.match(await explain(server, failed.task_id), /Ended FAILED \d+ s ago: ENGINE_ERROR, scripted failure.*dead-letters/s);
    const done = await server.done((await server.submit(small('done'))).task_id);
    assert.match(await explain(server, done.task_id), /^Ended SUCCEEDED \d+ s ago\.$/);
    const delayed = await server.submit(small('delayed', { options: { fault: 'fail_once' } }));
    await eventually('its first failure', async () => (await server.task(delayed.task_id)).retry_count === 1);
    assert.match(await explain(server, delayed.task_id), /delayed after an error: (17\d s|2 min|3 min) left/);

    const silent = await server.submit(small('silent', { run_timeout_s: 600, options: { fault: 'hang', fault_at: 1 } }));
    await server.frame(silent.task_id, 1);
    assert.match(await explain(server, silent.task_id),
        /^Running on worker cpu0 \(attempt 1\) for \d+ s, phase denoise, step 1 of 4\. Its processing time-out is 600 s, with one grace as long\.$/);
    const queued = await server.submit(small('queued', { queue_name: 'night' }));
    const behind = await server.submit(small('behind', { queue_name: 'night' }));
    assert.match(await explain(server, behind.task_id), /Waiting in queue "night" for \d+ s\. It is number 2 there; 1 of the workers are busy/);
    await server.post('/api/v1/queues/night/pause');
    assert.match(await explain(server, queued.task_id), /The queue is PAUSED: nothing is claimed until POST \/api\/v1\/queues\/night\/resume/);
    await eventually('a silent worker is named', async () =>
        /The worker has been silent for 1\d s; it counts as hanging after 40 s/.test(await explain(server, silent.task_id)), 15000);
    const { json } = await server.get('/api/v1/workers');
    const worker = json.data.find((row) => row.task_id === silent.task_id);
    assert.ok(Date.now() - Date.parse(worker.heartbeat_at) > 9000, 'the list of workers shows the silence, too');
    assert.equal((await server.get(`/api/v1/tasks/${queued.task_id}`)).json.explain, undefined, 'only when asked');
    await server.kill9();
});

/** Some finished tasks, oldest first. */
async function finish(server, prompts, more) {
    const tasks = [];
    for (const prompt of prompts) tasks.push(await server.done((await server.submit(small(prompt), more)).task_id));
    return tasks;
}

const restart = async (server, set) => {
    await server.stop();
    await server.start({ set });
};

const filesOf = (server, task) => server.results().filter((name) => name.startsWith(task.task_id));

test('retention by count: the oldest go, with their files; whoever owned them is told so', async (t) => {
    const server = await serve(t);
    const alice = { key: (await server.addKey('alice')).key };
    const hers = await finish(server, ['hers 1', 'hers 2'], alice);
    const own = await finish(server, ['own 1', 'own 2', 'own 3']);
    await restart(server, { 'retain.count': 2 });
    const gone = [...hers, own[0]];
    await eventually('the oldest are gone', async () => (await server.ids()).length === 2);
    assert.deepEqual(await server.ids(), [own[1].task_id, own[2].task_id]);
    for (const task of gone) {
        const url = `/api/v1/tasks/${task.task_id}`;
        const who = hers.includes(task) ? alice : {};
        for (const rest of ['', '/video', '/events?limit=5'])
            assertProblem(await server.get(url + rest, who), 404, 'TASK_EXPIRED');
        assertProblem(await server.post(`${url}/cancel`, undefined, who), 404, 'TASK_EXPIRED');
        assert.deepEqual(filesOf(server, task), []);
    }
    assertProblem(await server.get(`/api/v1/tasks/${own[0].task_id}`, alice), 404, 'NOT_FOUND');
    assertProblem(await server.get('/api/v1/tasks/4711'), 404, 'NOT_FOUND');
    for (const task of own.slice(1)) {
        assert.equal(filesOf(server, task).length, 2);
        assert.equal((await server.get(`/api/v1/tasks/${task.task_id}/video`)).status, 200);
    }
    const again = await server.submit(small('own 1'));
    assert.notEqual(again.task_id, own[0].task_id, 'its idempotency key is free again');
    await server.kill9();
    await server.start();
    assertProblem(await server.get(`/api/v1/tasks/${own[0].task_id}`), 404, 'TASK_EXPIRED');
});

test('retention by bytes and by days', async (t) => {
    const server = await serve(t);
    const tasks = await finish(server, ['a', 'b', 'c', 'd']);
    const bytes = tasks.slice(2).reduce((sum, task) => sum + task.video.bytes, 0);
    await restart(server, { 'retain.bytes': bytes });
    await eventually('the older half is gone', async () => (await server.ids()).length === 2);
    assert.deepEqual(await server.ids(), [tasks[2].task_id, tasks[3].task_id]);
    await server.stop();
    await edit(server, `UPDATE task SET finished_at = finished_at - 3 * 86400000 WHERE task_id = ${tasks[2].task_id}`);
    await server.start({ set: { 'retain.days': 2 } });
    await eventually('the old one is gone', async () => (await server.ids()).length === 1);
    assertProblem(await server.get(`/api/v1/tasks/${tasks[2].task_id}`), 404, 'TASK_EXPIRED');
    assert.equal((await server.task(tasks[3].task_id)).status, 'SUCCEEDED');
});

test('retention: never a task whose callback is not delivered', async (t) => {
    const receiver = await receive(t, 500);
    const server = await serve(t, { set: { 'callback.wait_ms': 3600000 } });
    const waiting = await server.done((await server.submit(small('waits for its callback', { callback_url: receiver.url }))).task_id);
    await receiver.wait(waiting.task_id, 1);
    const others = await finish(server, ['one', 'two', 'three']);
    await restart(server, { 'callback.wait_ms': 3600000, 'retain.count': 1 });
    await eventually('the others are gone', async () => (await server.ids()).length === 2);
    assert.deepEqual(await server.ids(), [waiting.task_id, others[2].task_id], 'the oldest of all stays, and pushes out no newer one');
    for (const task of others.slice(0, 2)) assertProblem(await server.get(`/api/v1/tasks/${task.task_id}`), 404, 'TASK_EXPIRED');
    assert.equal((await server.task(waiting.task_id)).callback_status, 'PENDING');
    assert.equal(filesOf(server, waiting).length, 2);
});

test('retention removes hundreds while the server works', async (t) => {
    const server = await serve(t);
    const [task] = await finish(server, ['model']);
    await server.stop();
    const columns = (await sql(server.db, "SELECT name FROM pragma_table_info('task')")).map((row) => row.name);
    const copy = columns.map((name) => ({
        task_id: 'n', idempotency_key: 'NULL', status: "'CREATED'", finished_at: '0', video_file: 'NULL', input_at: String(2 ** 52),
    })[name] ?? name);
    await edit(server, `WITH RECURSIVE c(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM c WHERE n < 700)
        INSERT INTO task SELECT ${copy} FROM task, c WHERE task_id = ${task.task_id};
        UPDATE task SET status = 'CANCELED', finished_at = 1 WHERE status = 'CREATED'`);
    await server.start({ set: { 'retain.count': 1 } });
    await server.done((await server.submit(small('meanwhile', { options: { input_ms: 20 } }))).task_id);
    await eventually('one is left', async () => (await server.ids()).length === 1);
    assert.equal((await sql(server.db, 'SELECT count(*) AS n FROM purged'))[0].n, 701);
});

test('orphan files: old ones that no row knows go, everything else stays', async (t) => {
    const server = await serve(t);
    const done = await server.done((await server.submit(small('done'))).task_id);
    const running = await server.submit(slow('running', { frames: 2000 }));
    await eventually('it writes', async () => (await server.task(running.task_id)).step >= 2);
    const old = new Date(Date.now() - 2 * HOUR);
    const make = (name, age) => {
        const file = path.join(server.dir, 'results', name);
        fs.writeFileSync(file, 'x');
        if (age) fs.utimesSync(file, age, age);
    };
    const orphans = ['4711-1.mp4', '4711-1.jpg', '4712-3.mp4.part', `${done.task_id}-7.mp4`];
    for (const name of orphans) make(name, old);
    const kept = ['4713-1.mp4', 'notes.txt', '.hidden'];
    make(kept[0]);
    for (const name of kept.slice(1)) make(name, old);
    for (const name of [...filesOf(server, done), ...filesOf(server, running)])
        if (!orphans.includes(name)) fs.utimesSync(path.join(server.dir, 'results', name), old, old);
    const before = server.results();
    assert.equal((await repair(server, 'dry_run=true')).orphan_files, orphans.length);
    assert.deepEqual(server.results(), before);
    assert.equal((await repair(server, 'dry_run=false')).orphan_files, orphans.length);
    assert.deepEqual(server.results(), before.filter((name) => !orphans.includes(name)));
    assert.equal((await repair(server, 'dry_run=false')).orphan_files, 0);
    assert.equal((await server.get(`/api/v1/tasks/${done.task_id}/video`)).status, 200);
    assert.equal((await server.task(running.task_id)).status, 'PROCESSING');
    await server.post(`/api/v1/tasks/${running.task_id}/cancel`, { mode: 'hard' });
    make('4714-1.mp4', old);
    const [asked] = [Date.now()];
    await restart(server, {});
    await eventually('a start looks for them, too', () => !server.results().includes('4714-1.mp4'));
    assert.ok(Date.now() - asked < ms(20000));
});
