// Cancel: waiting, running softly, running hard, finished.
import assert from 'node:assert/strict';
import test from 'node:test';

import { assertLegalHistory, assertProblem, eventually, ms, serve, slow, small, sql, statesOf } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

const cancel = (server, id, body, options) => server.api('POST', `/api/v1/tasks/${id}/cancel`, { body, ...options });

test('waiting: CANCELED at once, in every way to ask; the others keep their turn', async (t) => {
    const server = await serve(t);
    const running = await server.submit(slow('A', { frames: 10 }));
    const behind = await server.submit(small('B'));
    const bodies = [undefined, {}, { mode: 'soft' }, { mode: 'hard' }, '', { mode: null }];
    const waiting = [];
    for (const [i] of bodies.entries()) waiting.push(await server.submit(small(`C${i}`)));
    await server.until(running.task_id, 'PROCESSING');
    for (const [i, body] of bodies.slice(0, 5).entries()) {
        const answer = await cancel(server, waiting[i].task_id, body);
        assert.equal(answer.status, 200, answer.text);
        assert.equal(answer.json.status, 'CANCELED');
        assert.equal(answer.json.task_id, waiting[i].task_id);
        assert.ok(answer.json.finished_at);
        assert.equal(answer.json.callback_status, null);
        const again = await cancel(server, waiting[i].task_id, body);
        assert.equal(again.status, 200, 'cancelling twice is fine');
        assert.equal(again.json.version, answer.json.version, 'and changes nothing');
        assert.deepEqual(statesOf(await server.events(waiting[i].task_id)), ['CREATED', 'QUEUED', 'CANCELED']);
    }
    await cancel(server, waiting[5].task_id);
    assert.equal((await server.done(running.task_id)).attempt, 1, 'A was left alone');
    await server.done(behind.task_id);
    assert.equal((await sql(server.db, 'SELECT count(*) AS n FROM outbox'))[0].n, 0);
});

test('CREATED: cancelled before its input is there', async (t) => {
    const server = await serve(t);
    const task = await server.submit(small('input', { options: { input_ms: 600 } }));
    const answer = await cancel(server, task.task_id);
    assert.equal(answer.json.status, 'CANCELED');
    const fence = await server.submit(small('fence', { options: { input_ms: 700 } }));
    await server.done(fence.task_id);
    assert.deepEqual(statesOf(await server.events(task.task_id)), ['CREATED', 'CANCELED']);
});

test('running, hard: it stops within two frames, its files go, the next one starts', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const task = await server.submit(slow('stop me', { frames: 200, frame_ms: 100, callback_url: receiver.url }));
    const next = await server.submit(small('next', { callback_url: receiver.url }));
    await server.frame(task.task_id, 2);
    assert.ok(server.results().length > 0, 'it writes already');

    const asked = Date.now();
    const answer = await cancel(server, task.task_id, { mode: 'hard' });
    assert.equal(answer.status, 202, answer.text);
    assert.deepEqual([answer.json.status, answer.json.cancel_mode], ['PROCESSING', 'hard']);
    const end = await server.until(task.task_id, 'CANCELED');
    const stopped = Date.parse(end.finished_at) - asked;
    assert.ok(stopped < ms(1000), `stopped after ${stopped} ms`);
    assert.deepEqual([end.video, end.result_url, end.callback_status, end.cancel_mode], [null, null, null, 'hard']);
    assertLegalHistory(await server.events(task.task_id), 'CANCELED');

    const done = await server.done(next.task_id);
    assert.ok(Date.parse(done.started_at) - Date.parse(end.finished_at) < ms(1000), 'the slot is free at once');
    assert.deepEqual(server.results().filter((name) => name.startsWith(task.task_id)), [], 'no file is left');
    await receiver.wait(next.task_id);
    assert.equal(receiver.requests.length, 1, 'nothing was announced');
    assert.equal((await cancel(server, task.task_id, { mode: 'hard' })).status, 200);
});

test('running, soft: CANCELED at once, the run goes on to its end, nothing is announced', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const task = await server.submit(slow('let it finish', { frames: 12, frame_ms: 100, callback_url: receiver.url }));
    const next = await server.submit(small('next', { callback_url: receiver.url }));
    await server.until(task.task_id, 'PROCESSING');
    const answer = await cancel(server, task.task_id);
    assert.equal(answer.status, 200);
    assert.deepEqual([answer.json.status, answer.json.cancel_mode], ['CANCELED', 'soft']);

    const done = await server.done(next.task_id);
    const canceled = await server.task(task.task_id);
    assert.ok(Date.parse(done.started_at) > Date.parse(canceled.finished_at) + 500, 'the run kept its slot meanwhile');
    const [row] = await sql(server.db, `SELECT video_file, video_frames FROM task WHERE task_id = ${task.task_id}`);
    assert.equal(row.video_frames, 12, 'its result is kept');
    assert.ok(server.results().includes(row.video_file));
    assert.deepEqual([canceled.status, canceled.callback_status, canceled.video], ['CANCELED', null, null]);
    assertProblem(await server.get(`/api/v1/tasks/${task.task_id}/video`), 404, 'VIDEO_NOT_READY');
    await receiver.wait(next.task_id);
    assert.equal(receiver.requests.length, 1);
});

test('soft, then hard: the run stops after all', async (t) => {
    const server = await serve(t);
    const task = await server.submit(slow('both', { frames: 600, frame_ms: 100 }));
    const next = await server.submit(small('next'));
    await server.until(task.task_id, 'PROCESSING');
    assert.equal((await cancel(server, task.task_id, { mode: 'soft' })).status, 200);
    assert.equal((await cancel(server, task.task_id, { mode: 'hard' })).status, 200);
    await server.done(next.task_id);
    assert.deepEqual(server.results().filter((name) => name.startsWith(task.task_id)), []);
});

test('finished tasks: 409, whatever the mode; strangers: 404; nonsense: 422', async (t) => {
    const server = await serve(t, { set: { 'testpattern.faults': 'on' } });
    const done = await server.done((await server.submit(small('done'))).task_id);
    const failed = await server.submit(small('failed', { max_retries: 0, options: { fault: 'fail' } }));
    await server.until(failed.task_id, 'FAILED');
    for (const task of [done, failed])
        for (const body of [undefined, { mode: 'hard' }, { mode: 'soft' }])
            assertProblem(await cancel(server, task.task_id, body), 409, 'TASK_FINISHED');
    assert.equal((await server.task(done.task_id)).status, 'SUCCEEDED');
    assert.equal((await server.get(`/api/v1/tasks/${done.task_id}/video`)).status, 200);

    const { key } = await server.addKey('alice');
    assertProblem(await cancel(server, done.task_id, undefined, { key }), 404, 'NOT_FOUND');
    assertProblem(await cancel(server, '12345'), 404, 'NOT_FOUND');
    assertProblem(await cancel(server, done.task_id, { mode: 'gently' }), 422, 'INVALID_FIELD', 'mode');
    assertProblem(await cancel(server, done.task_id, { mode: 1 }), 422, 'INVALID_FIELD', 'mode');
    assertProblem(await cancel(server, done.task_id, { force: true }), 422, 'INVALID_FIELD', 'force');
    assertProblem(await cancel(server, done.task_id, []), 422, 'INVALID_FIELD');
    assertProblem(await cancel(server, done.task_id, '{"mode":'), 400, 'MALFORMED_JSON');
});

test('a cancelled task gives its place to the next; its own idempotency key stays taken', async (t) => {
    const server = await serve(t);
    const running = await server.submit(slow('first', { frames: 10 }));
    const task = await server.submit(small('x'), { headers: { 'idempotency-key': 'one' } });
    await cancel(server, task.task_id);
    const again = await server.post('/api/v1/tasks', small('x'), { headers: { 'idempotency-key': 'one' } });
    assert.equal(again.status, 200);
    assert.equal(again.json.task_id, task.task_id);
    assert.equal(again.json.status, 'CANCELED');
    await server.done(running.task_id);
});

test('cancel races with the end of the run: one end each, and the file agrees with it', async (t) => {
    const server = await serve(t);
    for (let i = 0; i < 12; i++) {
        const task = await server.submit(small(`race ${i}`, { frames: 1 + (i % 4), options: { frame_ms: 10 } }));
        await eventually('it starts', async () => (await server.task(task.task_id)).status !== 'QUEUED');
        const answer = await cancel(server, task.task_id, { mode: 'hard' });
        assert.ok([200, 202, 409].includes(answer.status), answer.text);
        const end = await server.until(task.task_id, ['CANCELED', 'SUCCEEDED']);
        assert.equal(end.status === 'SUCCEEDED', answer.status === 409, `${answer.status} but ${end.status}`);
        assertLegalHistory(await server.events(task.task_id), end.status);
        const fence = await server.done((await server.submit(small(`fence ${i}`, { frames: 1 }))).task_id);
        assert.ok(fence.video);
        const files = server.results().filter((name) => name.startsWith(task.task_id));
        assert.equal(files.length, end.status === 'SUCCEEDED' ? 2 : 0, files.join());
    }
});
