// The result is a playable MP4, as ffprobe sees it.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { run, serve, small, tempDir } from './lib/reeld.mjs';

/** Types of the top-level boxes of an MP4, in order. */
function boxes(file) {
    const types = [];
    for (let at = 0; at < file.length;) {
        let size = file.readUInt32BE(at);
        types.push(file.toString('latin1', at + 4, at + 8));
        if (size === 1) size = Number(file.readBigUInt64BE(at + 8));
        assert.ok(size >= 8 && at + size <= file.length, `box ${types.at(-1)} of ${size} bytes at ${at}`);
        at += size;
    }
    return types;
}

/** Width and height from the frame header of a JPEG. */
function jpegSize(file) {
    assert.equal(file.readUInt16BE(0), 0xffd8, 'starts as a JPEG');
    assert.equal(file.readUInt16BE(file.length - 2), 0xffd9, 'ends as a JPEG');
    for (let at = 2; at < file.length;) {
        const marker = file.readUInt16BE(at);
        if (marker >= 0xffc0 && marker <= 0xffc2)
            return { width: file.readUInt16BE(at + 7), height: file.readUInt16BE(at + 5) };
        at += 2 + file.readUInt16BE(at + 2);
    }
    throw new Error('no frame header');
}

async function probe(file) {
    const { code, stdout, stderr } = await run('ffprobe', ['-v', 'error', '-count_frames', '-print_format', 'json',
        '-show_streams', '-show_format', file]);
    assert.equal(code, 0, stderr);
    assert.equal(stderr, '', 'decodes without a complaint');
    return JSON.parse(stdout);
}

async function check(server, dir, task, want) {
    const { video, task_id } = task;
    const answer = await server.get(`/api/v1/tasks/${task_id}/video`);
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['content-type'], 'video/mp4');
    assert.equal(answer.body.length, video.bytes);
    assert.equal(crypto.createHash('sha256').update(answer.body).digest('hex'), video.sha256);
    assert.equal(video.url, `/api/v1/tasks/${task_id}/video`);
    assert.equal(task.result_url, server.url + video.url);
    const { width, height, frames, fps } = want;
    assert.deepEqual({ width: video.width, height: video.height, frames: video.frames, fps: video.fps }, want);
    assert.ok(Math.abs(video.duration_s - frames / fps) < 0.002, `${video.duration_s}`);

    const file = path.join(dir, `${task_id}.mp4`);
    fs.writeFileSync(file, answer.body);
    const { streams, format } = await probe(file);
    assert.equal(streams.length, 1);
    const [stream] = streams;
    assert.equal(stream.codec_name, 'h264');
    assert.equal(stream.pix_fmt, 'yuv420p');
    assert.equal(stream.width, width);
    assert.equal(stream.height, height);
    assert.equal(Number(stream.nb_read_frames), frames);
    assert.equal(Number(stream.nb_frames), frames);
    const [n, d] = stream.r_frame_rate.split('/').map(Number);
    assert.equal(n / d, fps);
    assert.ok(Math.abs(Number(format.duration) - frames / fps) < 0.05, format.duration);

    const types = boxes(answer.body);
    assert.equal(types[0], 'ftyp');
    assert.ok(types.includes('moov') && types.includes('mdat'), types.join());
    assert.ok(types.indexOf('moov') < types.indexOf('mdat'), `moov before mdat: ${types}`);

    const poster = await server.get(`/api/v1/tasks/${task_id}/poster`);
    assert.equal(poster.status, 200);
    assert.equal(poster.headers['content-type'], 'image/jpeg');
    assert.deepEqual(jpegSize(poster.body), { width, height });
}

test('ffprobe agrees with the task at every size, length and rate', async (t) => {
    const dir = tempDir(t);
    const server = await serve(t);
    const wants = [
        { width: 64, height: 48, frames: 4, fps: 8 },
        { width: 32, height: 32, frames: 1, fps: 1 }, // the smallest there is
        { width: 34, height: 62, frames: 3, fps: 60 }, // no multiple of 4, 8 or 16
        { width: 1280, height: 720, frames: 2, fps: 25 },
        { width: 2048, height: 32, frames: 2, fps: 30 }, // the widest
        { width: 32, height: 2048, frames: 2, fps: 24 }, // the highest
        { width: 130, height: 98, frames: 61, fps: 7 }, // several groups of pictures, an odd rate
    ];
    const tasks = [];
    for (const want of wants) tasks.push(await server.submit({ prompt: `size ${want.width}x${want.height}`, ...want }));
    for (const [i, want] of wants.entries()) await check(server, dir, await server.done(tasks[i].task_id, 60000), want);
});

test('a prompt alone gives the default size, with everything named in the answer', async (t) => {
    const server = await serve(t);
    const { data } = (await server.get('/api/v1/engines')).json;
    const engine = data.find((entry) => entry.name === 'testpattern');
    assert.ok(engine, JSON.stringify(data));
    const task = await server.submit({ prompt: 'a red circle moving left' });
    const { width, height, frames, fps, seed, model } = task.params;
    assert.deepEqual({ width, height, frames, fps }, { width: 640, height: 360, frames: 48, fps: 24 });
    assert.equal(task.params.engine, 'testpattern');
    assert.ok(model.length > 0);
    assert.ok(Number.isSafeInteger(seed) && seed >= 0);
    const done = await server.done(task.task_id, 60000);
    assert.equal(done.progress, 100);
    assert.equal(done.params.seed, seed);
    await check(server, tempDir(t), done, { width, height, frames, fps });
});

test('the same prompt and seed give the same bytes, another seed other ones', async (t) => {
    const server = await serve(t, { set: { 'task.derive_keys': 'off' } });
    const hashes = [];
    for (const seed of [7, '7', 8]) {
        const task = await server.submit(small('a blue star spinning', { seed }));
        assert.equal(task.params.seed, Number(seed));
        hashes.push((await server.done(task.task_id)).video.sha256);
    }
    assert.equal(hashes[0], hashes[1]);
    assert.notEqual(hashes[0], hashes[2]);
});

test('sizes and lengths that the model cannot make name the nearest it can', async (t) => {
    const server = await serve(t);
    for (const [field, value, nearest] of [['width', 33, '32'], ['height', 2049, '2048'], ['width', 30, '32'],
        ['frames', 0, '1'], ['frames', 3601, '3600'], ['fps', 61, '60']]) {
        const answer = await server.post('/api/v1/tasks', small('odd', { [field]: value }));
        assert.equal(answer.status, 422, answer.text);
        assert.equal(answer.json.errors[0].field, field);
        assert.match(answer.json.errors[0].detail, new RegExp(`\\b${nearest}\\b`));
    }
});
