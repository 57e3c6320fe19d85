// The wan engine in the server, with a tiny model of random weights in the models folder (and the
// starter model, where the program was built with it).
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

import { assertLegalHistory, assertProblem, eventually, serve, tempDir } from './lib/reeld.mjs';

const TINY = path.join(path.dirname(fileURLToPath(import.meta.url)), '../unit/wan');
const STEPS = 1000; // about a second
const FSYNCED = 200; // steps, where each is written to disk

/** A models folder with the tiny model. */
function models(t) {
    const dir = tempDir(t);
    fs.symlinkSync(TINY, path.join(dir, 'tiny'));
    return dir;
}

const clip = (more = {}) => ({ prompt: 'a red circle moving left', engine: 'wan', model: 'tiny', width: 64, height: 64,
    steps: STEPS, seed: 5, idempotency: 'off', ...more });

/** A new task, caught while it is being made; on a busy machine one may be over before it is seen. */
async function caught(server, body) {
    for (let tries = 0; tries < 5; tries++) {
        const { task_id } = await server.submit(body);
        const task = await eventually('a step', async () => {
            const now = await server.task(task_id);
            return (now.phase === 'denoise' && now.step >= 10) || now.status === 'SUCCEEDED' ? now : null;
        });
        if (task.status === 'PROCESSING') return task;
    }
    throw new Error('every clip was over at once');
}

async function published(server) {
    const { json } = await server.get('/api/v1/engines');
    return json.data;
}

test('the models of the folder are published, and only what they can make is taken', async (t) => {
    const dir = models(t);
    fs.mkdirSync(path.join(dir, 'broken/vae'), { recursive: true });
    fs.writeFileSync(path.join(dir, 'broken/vae/x.safetensors'), 'no such thing');
    const server = await serve(t, { set: { 'model.dir': dir } });
    const wan = (await published(server)).find((engine) => engine.name === 'wan');
    assert.deepEqual(wan.models.map((model) => model.name).filter((name) => name !== 'starter'), ['tiny']);
    await server.waitLog(/event=model_left_out engine=wan model=broken/);
    const { defaults, limits } = wan.models.find((model) => model.name === 'tiny');
    assert.deepEqual([defaults.width, defaults.frames, defaults.steps, limits.max_frames], [128, 9, 6, 9]);
    assertProblem(await server.post('/api/v1/tasks', clip({ frames: 10 })), 422, 'INVALID_FIELD', 'frames');
    assertProblem(await server.post('/api/v1/tasks', clip({ model: 'broken' })), 422, 'INVALID_FIELD', 'model');
    assertProblem(await server.post('/api/v1/tasks', clip({ options: { solver: 'dpm' } })), 422, 'INVALID_FIELD',
        'options.solver');
    const done = await server.done((await server.submit(clip({ steps: 6, width: 96, height: 64 }))).task_id);
    assert.deepEqual([done.video.width, done.video.height, done.video.frames], [96, 64, 9]);
    assert.equal(done.params.model, 'tiny');
});

test('kill -9 in the middle: the video is the same, to the byte', async (t) => {
    const server = await serve(t, { set: { 'model.dir': models(t), 'run.checkpoint_s': 0 } });
    const whole = await server.done((await server.submit(clip({ steps: FSYNCED }))).task_id);
    const task = await caught(server, clip({ steps: FSYNCED }));
    await server.kill9();
    assert.deepEqual(server.results().filter((name) => name.endsWith('.ckpt')), [`${task.task_id}.ckpt`]);

    await server.start();
    const done = await server.done(task.task_id);
    assert.equal(done.attempt, 2);
    assert.equal(done.video.sha256, whole.video.sha256);
    assert.doesNotMatch(server.stderr, /checkpoint_not_used|checkpoint_unfit/);
    assertLegalHistory(await server.events(task.task_id), 'SUCCEEDED');
    const other = await server.done((await server.submit(clip({ steps: FSYNCED, seed: 6 }))).task_id);
    assert.notEqual(other.video.sha256, whole.video.sha256);
});

test('a stop keeps the steps that were made', async (t) => {
    const server = await serve(t, { set: { 'model.dir': models(t), 'run.checkpoint_s': 3600 } });
    const whole = await server.done((await server.submit(clip())).task_id);
    const task = await caught(server, clip());
    await server.stop();
    assert.deepEqual(server.results().filter((name) => name.endsWith('.ckpt')), [`${task.task_id}.ckpt`]);
    await server.start();
    const done = await server.done(task.task_id);
    assert.equal(done.video.sha256, whole.video.sha256);
    assert.doesNotMatch(server.stderr, /checkpoint_not_used|checkpoint_unfit/);
});

test('a hard cancel ends the run within a step', async (t) => {
    const server = await serve(t, { set: { 'model.dir': models(t) } });
    const task = await caught(server, clip());
    await server.post(`/api/v1/tasks/${task.task_id}/cancel`, { mode: 'hard' });
    const done = await server.until(task.task_id, 'CANCELED');
    assert.ok(done.video === null && task.step < STEPS);
    assert.deepEqual(server.results().filter((name) => name.startsWith(task.task_id)), []);
});

test('a prompt alone gives a video: the starter model is the default', async (t) => {
    const server = await serve(t, { set: { 'engine.default': '' } });
    const wan = (await published(server)).find((engine) => engine.name === 'wan');
    if (!wan) return t.skip('built without the starter model');
    assert.equal(wan.default, true);
    assert.equal(wan.models[0].name, 'starter');
    assert.match(wan.models[0].doc, /spinning.*circle/s);
    const done = await server.done((await server.submit({ prompt: 'a red circle moving left' })).task_id, 60000);
    assert.deepEqual([done.params.engine, done.params.model], ['wan', 'starter']);
    assert.ok(done.video.width >= 256 && done.video.frames > 8);
});
