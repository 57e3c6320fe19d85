// Two servers never share a state folder.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import test from 'node:test';

import { reeld, serve, slow, small } from './lib/reeld.mjs';

test('a second server on the same folder ends with a clear message; the first is unharmed', async (t) => {
    const first = await serve(t);
    const running = await first.submit(slow('undisturbed', { frames: 10 }));
    await first.until(running.task_id, 'PROCESSING');
    const before = fs.readFileSync(path.join(first.dir, 'url'), 'utf8');

    const second = await reeld(['serve', '--state-dir', first.dir, '--listen', '127.0.0.1:0']);
    assert.equal(second.code, 6);
    assert.equal(second.stdout, '');
    const words = second.stderr.trim().split('\n').at(-1);
    assert.equal(words, `reeld: another reeld is using ${first.dir} (pid ${first.pid})`);

    assert.equal(fs.readFileSync(path.join(first.dir, 'url'), 'utf8'), before, 'the command line still finds the first');
    assert.equal((await first.done(running.task_id)).attempt, 1);
    await first.done((await first.submit(small('after'))).task_id);
    assert.equal((await first.get('/readyz')).status, 200);
});

test('the folder is free again as soon as its server is gone, however it went', async (t) => {
    const server = await serve(t);
    await server.kill9();
    await server.start();
    await server.stop();
    await server.start();
    assert.equal((await server.get('/readyz')).json.status, 'ready');
});
