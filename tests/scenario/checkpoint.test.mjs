// GPU work survives a killed server: the next run goes on from the last checkpoint.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { SLOW, assertLegalHistory, eventually, serve, slow, statesOf } from './lib/reeld.mjs';

const FRAMES = 60;
const FRAME_MS = SLOW ? 200 : 50; // an instrumented encoder must not outweigh the waits
const clip = () => slow('a blue ball bouncing', { frames: FRAMES, frame_ms: FRAME_MS, seed: 11, idempotency: 'off' });
const checkpoints = (server) => server.results().filter((name) => name.includes('.ckpt'));
const runMs = (task) => Date.parse(task.finished_at) - Date.parse(task.started_at);
const step = (server, id, count) => eventually(`frame ${count}`, async () => {
    const task = await server.task(id);
    return task.phase === 'denoise' && task.step >= count;
});

async function digest(server, task) {
    const answer = await server.get(task.video.url.replace(/^https?:\/\/[^/]*/, ''));
    assert.equal(answer.status, 200);
    const sum = crypto.createHash('sha256').update(answer.body).digest('hex');
    assert.equal(sum, task.video.sha256);
    return sum;
}

test('kill -9 in the middle: the second attempt resumes and gives the same bytes', async (t) => {
    const server = await serve(t, { set: { 'run.checkpoint_s': 0 } });
    const whole = await server.done((await server.submit(clip())).task_id);
    const task = await server.submit(clip());
    await step(server, task.task_id, FRAMES * 3 / 4);
    await server.kill9();
    assert.deepEqual(checkpoints(server), [`${task.task_id}.ckpt`]);

    await server.start();
    const done = await server.done(task.task_id);
    assert.deepEqual([done.attempt, done.crash_count], [2, 0], 'the crash is forgiven: it got further');
    assert.equal(await digest(server, done), await digest(server, whole));
    // Three quarters are not waited for again; half of that is allowed for a busy machine.
    assert.ok(runMs(whole) >= FRAMES * FRAME_MS);
    assert.ok(runMs(done) < runMs(whole) * 5 / 8, `${runMs(done)} ms of ${runMs(whole)}`);
    const events = await server.events(task.task_id);
    assertLegalHistory(events, 'SUCCEEDED');
    assert.deepEqual(statesOf(events), ['CREATED', 'QUEUED', 'PROCESSING', 'QUEUED', 'PROCESSING', 'SUCCEEDED']);
    await eventually('the checkpoint goes', () => checkpoints(server).length === 0);
});

test('a checkpoint that was damaged is refused and costs time only', async (t) => {
    const server = await serve(t, { set: { 'run.checkpoint_s': 0 } });
    const whole = await server.done((await server.submit(clip())).task_id);
    const task = await server.submit(clip());
    await step(server, task.task_id, 10);
    await server.kill9();
    const file = path.join(server.dir, 'results', `${task.task_id}.ckpt`);
    const bytes = fs.readFileSync(file);
    bytes[bytes.length - 1] ^= 1;
    fs.writeFileSync(file, bytes);

    await server.start();
    const done = await server.done(task.task_id);
    await server.waitLog(new RegExp(`event=checkpoint_unfit task_id=${task.task_id} .*checksum`));
    assert.equal(await digest(server, done), await digest(server, whole));
    assert.ok(runMs(done) >= FRAMES * FRAME_MS, 'made from the start');
    await eventually('the checkpoint goes', () => checkpoints(server).length === 0);
});

test('a stop keeps what was made, whatever the interval; cancelling the waiting task drops it', async (t) => {
    const server = await serve(t, { set: { 'run.checkpoint_s': 3600 } });
    const task = await server.submit(clip());
    await step(server, task.task_id, 10);
    assert.deepEqual(checkpoints(server), [], 'nothing was due yet');
    await server.stop();
    assert.deepEqual(server.results(), [`${task.task_id}.ckpt`]);

    await server.start();
    await step(server, task.task_id, 11);
    await server.stop();
    await server.start({ set: { 'pool.cpu_slots': 0 } });
    assert.equal((await server.post(`/api/v1/tasks/${task.task_id}/cancel`, {})).status, 200);
    await eventually('the checkpoint goes', () => checkpoints(server).length === 0);
});
