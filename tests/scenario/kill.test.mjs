// kill -9 at every point between the finished file, its COMMIT, the POST, the 2xx and its record:
// the server kills itself just before the nth system call that changes anything (tests/shim/kill.c).
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { BIN, LONG, SLOW, serve, small, sql, tempDir, tick } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

const SHIM = path.join(path.dirname(BIN), 'tests/shim/reeld_kill.so');
const POINTS = LONG ? Infinity : 28; // of the fifty or so, evenly spread
const skip = SLOW ? 'a sanitizer must be the first library'
    : fs.existsSync(SHIM) ? false : `no ${path.basename(SHIM)} beside the binary: build with REELD_TESTS=ON`;

class Counter {
    constructor(t) {
        this.file = path.join(tempDir(t), 'counter');
        fs.writeFileSync(this.file, Buffer.alloc(24));
        this.env = { LD_PRELOAD: SHIM, REELD_KILL: this.file };
    }

    /** In place: the server has the file mapped. */
    set(n) {
        const bytes = Buffer.alloc(24); // nothing counted yet
        bytes.writeBigInt64LE(BigInt(n), 0);
        const fd = fs.openSync(this.file, 'r+');
        fs.writeSync(fd, bytes, 0, 24, 0);
        fs.closeSync(fd);
    }

    get calls() {
        return Number(fs.readFileSync(this.file).readBigInt64LE(8));
    }
}

test('killed at every system call from the finished file to the recorded delivery', { skip }, async (t) => {
    const receiver = await receive(t);
    const counter = new Counter(t);
    const server = await serve(t, { env: counter.env, set: { 'pool.crash_budget': 0, 'callback.wait_ms': 50 } });
    const submit = (n) => server.submit(small(`killed at ${n}`, { frames: 2, width: 64, height: 64, callback_url: receiver.url }));

    // How many calls there are: one delivery in peace.
    const whole = await submit('no call');
    await server.called(whole.task_id, 'SUCCEEDED');
    counter.set(0);
    const alone = await submit('no call either');
    await receiver.wait(alone.task_id);
    await tick(300); // nobody asks meanwhile: asking is made of system calls too
    const calls = counter.calls;
    assert.ok(calls >= 20, `${calls} calls`);
    t.diagnostic(`${calls} calls`);

    const tasks = [whole, alone];
    let kills = 0;
    const step = Math.max(1, Math.ceil(calls / POINTS));
    for (let n = 1; n <= calls; n += step) {
        counter.set(n);
        const task = await submit(n);
        tasks.push(task);
        const came = receiver.wait(task.task_id).then(() => tick(300), () => null);
        await Promise.race([server.exited, came]);
        if (!server.child) {
            assert.equal(server.exits.at(-1).signal, 'SIGKILL');
            kills++;
            counter.set(0);
            await server.start();
        }
        counter.set(0);
        assert.equal((await server.called(task.task_id, 'SUCCEEDED')).status, 'SUCCEEDED');
        const got = receiver.about(task.task_id);
        assert.ok(got.length >= 1 && got.length <= 2, `killed at ${n}: ${got.length} deliveries`);
        for (const one of got) {
            assert.equal(one.headers['webhook-id'], `evt_${task.task_id}_1`);
            assert.ok(one.body.equals(got[0].body), `killed at ${n}: byte for byte`);
        }
        const rows = await sql(server.db, `SELECT to_status FROM task_event WHERE task_id = ${task.task_id}`);
        assert.equal(rows.filter((row) => row.to_status === 'SUCCEEDED').length, 1, `killed at ${n}: one success`);
    }
    assert.ok(kills >= (calls / step) * 0.8, `${kills} kills of ${Math.ceil(calls / step)}`);
    const repeats = receiver.requests.length - tasks.length;
    t.diagnostic(`${kills} kills, ${repeats} repeats`);
    assert.ok(repeats <= kills);
});
