// Starting: the first run, and everything that can be in its way.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import test from 'node:test';

import { Server, assertProblem, reeld, serve, small, tempDir } from './lib/reeld.mjs';

/** serve in a folder, which must fail with this exit status; its last words. */
async function fails(args, code, options) {
    const result = await reeld(['serve', ...args], options);
    assert.equal(result.code, code, result.stderr);
    assert.equal(result.stdout, '');
    const words = result.stderr.trim().split('\n').at(-1);
    assert.match(words, /^reeld: /);
    return words;
}

const at = (dir, listen = '127.0.0.1:0') => ['--state-dir', dir, '--listen', listen];

test('the first run makes its folder, for its user only, and tells the key and a link', async (t) => {
    const dir = path.join(tempDir(t), 'deep/state');
    const server = await serve(t, { dir });
    assert.equal(fs.statSync(dir).mode & 0o777, 0o700);
    assert.equal(fs.statSync(path.join(dir, 'results')).mode & 0o777 & 0o007, 0);
    const lines = server.stdout.trim().split('\n');
    assert.equal(lines.length, 3, server.stdout);
    assert.match(lines[0], new RegExp(`^reeld \\d+\\.\\d+\\.\\d+ listening on ${server.url}$`));
    assert.equal(lines[1], `owner key: ${dir}/owner.key`);
    assert.match(lines[2], new RegExp(`^sign in: ${server.url}/sign-in\\?token=`));
    assert.equal(fs.readFileSync(path.join(dir, 'url'), 'utf8').trim(), server.url);
    const key = server.key;
    await server.stop();
    await server.start();
    assert.equal(server.stdout.trim().split('\n').length, 1, 'only the first run shows a link');
    assert.equal(server.key, key);
    assert.ok(!server.stderr.includes(key), 'the key is in no log');
});

test('lost files are made again; what was in them is not changed', async (t) => {
    const server = await serve(t);
    const secret = fs.readFileSync(path.join(server.dir, 'callback.secret'), 'utf8');
    await server.stop();
    fs.rmSync(path.join(server.dir, 'callback.secret'));
    fs.writeFileSync(path.join(server.dir, 'url'), 'not a url \x00 at all');
    await server.start();
    assert.equal(fs.readFileSync(path.join(server.dir, 'callback.secret'), 'utf8'), secret);
    assert.equal(fs.readFileSync(path.join(server.dir, 'url'), 'utf8').trim(), server.url);
});

test('a spoiled or stale url file: a clear message and an exit code', async (t) => {
    const server = await serve(t);
    const list = () => reeld(['list', '--state-dir', server.dir]);
    fs.writeFileSync(path.join(server.dir, 'url'), 'gopher://nowhere\n');
    let result = await list();
    assert.equal(result.code, 2);
    assert.match(result.stderr, /no usable server URL/);
    fs.writeFileSync(path.join(server.dir, 'url'), '\n');
    result = await list();
    assert.ok([2, 4].includes(result.code), `${result.code}`);
    fs.writeFileSync(path.join(server.dir, 'url'), 'http://127.0.0.1:1\n');
    result = await list();
    assert.equal(result.code, 4);
    assert.match(result.stderr, /no answer from http:\/\/127\.0\.0\.1:1/);
});

test('a port in use', async (t) => {
    const other = net.createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => other.once('listening', resolve));
    t.after(() => other.close());
    const { port } = other.address();
    const words = await fails(at(tempDir(t), `127.0.0.1:${port}`), 1);
    assert.match(words, new RegExp(`cannot listen on 127\\.0\\.0\\.1:${port}: Address already in use`));
});

test('a folder that cannot be used', async (t) => {
    const dir = tempDir(t);
    const file = path.join(dir, 'file');
    fs.writeFileSync(file, 'x');
    assert.match(await fails(at(file), 1), /file/);
    assert.match(await fails(at(path.join(file, 'below')), 1), /file/);
    assert.match(await fails(at('/proc/nowhere'), 1), /\/proc\/nowhere/);
    if (process.getuid() !== 0) {
        const closed = path.join(dir, 'closed');
        fs.mkdirSync(closed, { mode: 0o500 });
        assert.match(await fails(at(closed), 1), /Permission denied/);
    }
});

test('a database that is none, or of a newer version, is left alone', async (t) => {
    const dir = tempDir(t);
    const junk = Buffer.alloc(8192, 'this is no database ');
    fs.writeFileSync(path.join(dir, 'reeld.db'), junk);
    assert.match(await fails(at(dir), 1), /database/);
    assert.ok(fs.readFileSync(path.join(dir, 'reeld.db')).equals(junk), 'not touched');

    const server = await serve(t);
    await server.stop();
    const future = fs.readFileSync(server.db);
    future.writeUInt32BE(999, 60); // user_version
    fs.writeFileSync(server.db, future);
    assert.match(await fails(at(server.dir), 1), /version|newer/);
});

test('a configuration file that is wrong names its line', async (t) => {
    const dir = tempDir(t);
    const file = path.join(dir, 'reeld.conf');
    for (const [text, line, words] of [
        ['# fine\nhttp.threads = many\n', 2, /http\.threads/],
        ['\n\nnosuch.key = 1\n', 3, /nosuch\.key/],
        ['callback.tries = 5\ncallback.tries\n', 2, /./],
        ['log.level = loud\n', 1, /debug\|info\|warn\|error/],
        ['http.threads = 11\n', 1, /12/],
        ['task.derive_keys = yes\n', 1, /on or off/],
        ['label\xff = x\n', 1, /./],
    ]) {
        fs.writeFileSync(file, Buffer.from(text, 'latin1'));
        const said = await fails([...at(dir), '--config', file], 2);
        assert.ok(said.includes(`${file}:${line}`), `${said} does not name line ${line}`);
        assert.match(said, words);
    }
    assert.match(await fails([...at(dir), '--config', path.join(dir, 'nosuch.conf')], 1), /nosuch\.conf/);
    fs.writeFileSync(file, '  http.threads =  20  \r\n# comment\n\ncallback.tries=3');
    const server = new Server(t, { dir: tempDir(t), args: ['--config', file] });
    await server.start();
    await server.done((await server.submit(small('configured'))).task_id);
    await server.stop();
});

test('a default engine that is not there: served all the same, and said', async (t) => {
    const server = await serve(t, { set: { 'engine.default': 'nosuch' } });
    await server.waitLog(/level=warn event=default_engine_missing engine=nosuch/);
    assertProblem(await server.post('/api/v1/tasks', small('x')), 422, 'INVALID_FIELD', 'engine');
    await server.done((await server.submit(small('x', { engine: 'testpattern' }))).task_id);
});
