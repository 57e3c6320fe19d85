// Models on disk: pulled from a mirror that cuts connections, lies about ranges, changes its files
// and goes silent; added, checked, removed. The mirror is a server of this test, the model the tiny
// one of the unit tests, named by a catalogue of this test.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';

import { BIN, eventually, reeld, serve, tempDir } from './lib/reeld.mjs';

const TINY = path.join(path.dirname(fileURLToPath(import.meta.url)), '../unit/wan');
const FILES = { transformer: 'diffusion_models/tiny.safetensors', text_encoder: 'text_encoders/tiny_text.safetensors', vae: 'vae/tiny_vae.safetensors' };
const sha256 = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');
const bytesOf = (name) => fs.readFileSync(path.join(TINY, name));

/** A catalogue file with the tiny model. */
function catalogue(dir, { name = 'tiny', digests = true, change = (files) => files } = {}) {
    const files = Object.fromEntries(Object.entries(FILES).map(([part, file]) => [part,
        { path: file, source: `hub/${file}`, bytes: bytesOf(file).length, sha256: digests ? sha256(bytesOf(file)) : null }]));
    const file = path.join(dir, `${name}.json`);
    fs.writeFileSync(file, JSON.stringify({ models: [{ name, title: 'a test', licence: 'MIT', memory_bytes: 1000, files: change(files) }] }));
    return file;
}

/** A mirror. `answer(req, res, bytes, n)` may take a request over by returning true; n counts them. */
async function mirror(t, answer = () => false) {
    const seen = [];
    const etag = (bytes) => `"${sha256(bytes).slice(0, 12)}"`;
    const server = http.createServer((req, res) => {
        const file = req.url.replace(/^\/(moved\/)?hub\//, '').replace(/\?.*/, '');
        const bytes = Object.values(FILES).includes(file) ? bytesOf(file) : null;
        seen.push({ url: req.url, range: req.headers.range ?? null, ifRange: req.headers['if-range'] ?? null });
        res.on('error', () => {});
        if (answer(req, res, bytes, seen.length)) return;
        if (!bytes) return res.writeHead(404).end('no such file');
        honest(req, res, bytes, etag(bytes));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    t.after(() => { server.closeAllConnections(); server.close(); });
    return { url: `http://127.0.0.1:${server.address().port}`, seen, etag };
}

/** As a good server answers, or only the first `limit` bytes of it and then a cut. */
function honest(req, res, bytes, etag, limit = Infinity) {
    const match = /^bytes=(\d+)-$/.exec(req.headers.range ?? '');
    const from = match && (!req.headers['if-range'] || req.headers['if-range'] === etag) ? Number(match[1]) : 0;
    const headers = { etag, 'content-length': bytes.length - from };
    if (from) headers['content-range'] = `bytes ${from}-${bytes.length - 1}/${bytes.length}`;
    res.writeHead(from ? 206 : 200, headers);
    if (bytes.length - from <= limit) return res.end(bytes.subarray(from));
    res.write(bytes.subarray(from, from + limit), () => res.socket.destroy());
}

/** A folder for models and what a command needs to use it. */
function place(t, server, options) {
    const dir = tempDir(t);
    const set = { 'model.mirror': server?.url ?? 'http://127.0.0.1:9', 'model.catalogue': catalogue(dir, options),
        'model.retry_ms': 5, 'model.stall_ms': 1000, 'model.tries': 4, 'store.min_free_bytes': 0 };
    const args = (more = {}) => ['--state-dir', dir, ...Object.entries({ ...set, ...more }).flatMap(([k, v]) => ['--set', `${k}=${v}`])];
    const run = async (words, { code = 0, more } = {}) => {
        const result = await reeld(['model', ...words, ...args(more)]);
        assert.equal(result.code, code, `model ${words.join(' ')}: ${result.stdout}${result.stderr}`);
        return result;
    };
    const list = async () => JSON.parse((await run(['list'])).stdout).data;
    return { dir, models: path.join(dir, 'models'), args, run, list, one: async (name) => (await list()).find((m) => m.name === name) };
}

const events = (stdout) => stdout.trim().split('\n').filter(Boolean).map((line) => JSON.parse(line));

function isWhole(here, name = 'tiny') {
    for (const file of Object.values(FILES))
        assert.deepEqual(fs.readFileSync(path.join(here.models, name, file)), bytesOf(file), file);
    assert.equal(fs.existsSync(path.join(here.models, `.${name}.part`)), false, 'nothing half-done is left');
    assert.deepEqual(fs.readdirSync(path.join(here.models, name)).sort(), ['diffusion_models', 'model.json', 'text_encoders', 'vae']);
}

test('pull: a model appears whole, with a manifest, and is listed, verified and removed', async (t) => {
    const server = await mirror(t);
    const here = place(t, server);
    assert.deepEqual((await here.list()).map((m) => [m.name, m.state]).slice(-1), [['tiny', 'available']]);
    const { stdout } = await here.run(['pull', 'tiny']);
    assert.equal(events(stdout).at(-1).event, 'done');
    isWhole(here);
    assert.deepEqual(server.seen.map((s) => s.range), [null, null, null]);
    const manifest = JSON.parse(fs.readFileSync(path.join(here.models, 'tiny/model.json'), 'utf8'));
    assert.equal(manifest.licence, 'MIT');
    assert.equal(manifest.origin, `pulled from ${server.url}`);
    assert.deepEqual(manifest.files.map((f) => f.sha256), Object.values(FILES).map((f) => sha256(bytesOf(f))));
    const listed = await here.one('tiny');
    assert.deepEqual([listed.state, listed.licence], ['ready', 'MIT']);
    assert.equal((await here.list()).filter((m) => m.default).length, 1, 'one is the default: the starter, or else this');
    const again = events((await here.run(['pull', 'tiny'])).stdout);
    assert.match(again.at(-1).text, /already/);
    assert.equal(server.seen.length, 3, 'not asked again');
    assert.equal(JSON.parse((await here.run(['verify', 'tiny'])).stdout).ok, true);
    await here.run(['rm', 'tiny'], { code: 2 }); // nobody to ask
    assert.equal((await here.one('tiny')).state, 'ready');
    await here.run(['rm', 'tiny', '--yes']);
    assert.equal((await here.one('tiny')).state, 'available');
    assert.deepEqual(fs.readdirSync(here.models), ['.lock']);
});

test('pull: connections that are cut at random places, and the range begins where the part ends', async (t) => {
    const server = await mirror(t, (req, res, bytes) => {
        if (!bytes) return false;
        honest(req, res, bytes, `"${bytes.length}"`, 1 + Math.floor(Math.random() * bytes.length / 3));
        return true;
    });
    const here = place(t, server);
    const { stdout } = await here.run(['pull', 'tiny']);
    isWhole(here);
    const resumed = server.seen.filter((s) => s.range);
    assert.ok(resumed.length >= 6, `${resumed.length} resumed requests`);
    assert.ok(resumed.every((s) => /^"\d+"$/.test(s.ifRange)), 'If-Range with the ETag');
    assert.ok(events(stdout).some((e) => e.event === 'retry' && /from byte \d+/.test(e.text)));
});

test('pull: a server that ignores ranges, one that sends another range, one without an ETag', async (t) => {
    const cut = (req, res, bytes, n) => n === 1 && (honest(req, res, bytes, '"x"', 100000), true);
    const ignores = await mirror(t, (req, res, bytes, n) => cut(req, res, bytes, n)
        || (req.headers.range && (res.writeHead(200, { 'content-length': bytes.length }), res.end(bytes), true)));
    let here = place(t, ignores);
    await here.run(['pull', 'tiny']);
    isWhole(here);

    const lies = await mirror(t, (req, res, bytes, n) => {
        if (cut(req, res, bytes, n)) return true;
        if (!req.headers.range) return false;
        res.writeHead(206, { 'content-range': `bytes 0-${bytes.length - 1}/${bytes.length}`, 'content-length': bytes.length });
        res.end(bytes);
        return true;
    });
    here = place(t, lies);
    const lied = events((await here.run(['pull', 'tiny'])).stdout);
    assert.equal(lied.filter((e) => /another range/.test(e.text)).length, 2);
    isWhole(here);
    assert.equal(lies.seen.filter((s) => s.range).length, 2, 'after two lies no more ranges');

    const quiet = await mirror(t, (req, res, bytes, n) => { // the range is right, its bytes are not
        if (cut(req, res, bytes, n)) return true;
        if (!req.headers.range) return false;
        const from = Number(/\d+/.exec(req.headers.range)[0]);
        res.writeHead(206, { 'content-range': `bytes ${from}-${bytes.length - 1}/${bytes.length}` });
        res.end(Buffer.alloc(bytes.length - from));
        return true;
    });
    here = place(t, quiet);
    const { stdout } = await here.run(['pull', 'tiny']);
    assert.ok(events(stdout).some((e) => e.event === 'anew'));
    isWhole(here);
});

test('pull: a file that changes between two attempts is fetched anew, and refused when it is not the catalogue\'s', async (t) => {
    let changed = false;
    const server = await mirror(t, (req, res, bytes, n) => {
        if (n === 1) return honest(req, res, Buffer.alloc(bytes.length, 7), '"old"', 100000), true;
        changed ||= Boolean(req.headers.range);
        return false;
    });
    let here = place(t, server);
    await here.run(['pull', 'tiny']);
    isWhole(here);
    assert.ok(changed, 'it was asked to go on, and the ETag said no');

    const other = await mirror(t, (req, res, bytes) => (honest(req, res, Buffer.alloc(bytes.length, 7), '"new"'), true));
    here = place(t, other);
    const { stderr } = await here.run(['pull', 'tiny'], { code: 5 });
    assert.match(stderr, /SHA-256/);
    assert.deepEqual(fs.readdirSync(path.join(here.models, '.tiny.part/diffusion_models')), [], 'it was not kept');
    assert.equal((await here.one('tiny')).state, 'partial');
});

test('pull: too much, too little, another size', async (t) => {
    const more = await mirror(t, (req, res, bytes) => (res.writeHead(200), res.end(Buffer.concat([bytes, bytes])), true));
    let here = place(t, more);
    assert.match((await here.run(['pull', 'tiny'], { code: 4 })).stderr, /more than the catalogue's/);
    assert.notEqual((await here.one('tiny')).state, 'ready');

    const less = await mirror(t, (req, res, bytes) => (res.writeHead(200), res.end(bytes.subarray(0, 1000)), true));
    here = place(t, less);
    assert.match((await here.run(['pull', 'tiny'], { code: 4 })).stderr, /given up after 4 tries/);

    const short = await mirror(t, (req, res, bytes) => (res.writeHead(200, { 'content-length': bytes.length }), res.write(bytes.subarray(0, 5000), () => res.socket.end()), true));
    here = place(t, short);
    await here.run(['pull', 'tiny'], { code: 4 });

    const other = await mirror(t, (req, res, bytes) => (res.end(Buffer.concat([bytes, bytes])), true));
    here = place(t, other);
    assert.match((await here.run(['pull', 'tiny'], { code: 5 })).stderr, /bytes, the catalogue's/);
    assert.equal(other.seen.length, 1, 'asking again would not help');
});

test('pull: a page of some proxy in place of the file costs nothing of what is there', async (t) => {
    let portal = null;
    const server = await mirror(t, (req, res, bytes, n) => {
        if (n === 1) return honest(req, res, bytes, `"${sha256(bytes).slice(0, 12)}"`, 100000), true;
        return portal !== null && (res.writeHead(200, portal).end('<html>please sign in</html>'), true);
    });
    const here = place(t, server);
    const part = path.join(here.models, '.tiny.part', `${FILES.transformer}.part`);
    portal = { 'content-type': 'text/html', 'content-length': 27 };
    await here.run(['pull', 'tiny'], { code: 5 });
    assert.equal(fs.statSync(part).size, 100000);
    portal = { 'content-type': 'text/html' };
    await here.run(['pull', 'tiny'], { code: 4 });
    assert.equal(fs.statSync(part).size, 100000);
    portal = null;
    server.seen.length = 0;
    await here.run(['pull', 'tiny']);
    assert.equal(server.seen[0].range, 'bytes=100000-');
    isWhole(here);
});

test('pull: 404, 403, 503 and redirects', async (t) => {
    const absent = await mirror(t, (req, res) => (res.writeHead(404).end('<html>nothing here</html>'), true));
    let here = place(t, absent);
    assert.match((await here.run(['pull', 'tiny'], { code: 3 })).stderr, /does not have this file/);
    assert.equal(absent.seen.length, 1);
    const closed = await mirror(t, (req, res) => (res.writeHead(403).end(), true));
    assert.match((await place(t, closed).run(['pull', 'tiny'], { code: 3 })).stderr, /403/);
    const busy = await mirror(t, (req, res, bytes, n) => n < 3 && (res.writeHead(503).end('later'), true));
    here = place(t, busy);
    await here.run(['pull', 'tiny']);
    isWhole(here);
    const moved = await mirror(t, (req, res) => !req.url.startsWith('/moved') && (res.writeHead(302, { location: `/moved${req.url}?signed=${'x'.repeat(1500)}` }).end('see there'), true));
    here = place(t, moved);
    await here.run(['pull', 'tiny']);
    isWhole(here);
    const round = await mirror(t, (req, res) => (res.writeHead(302, { location: req.url }).end(), true));
    assert.match((await place(t, round).run(['pull', 'tiny'], { code: 4 })).stderr, /redirects too often/);
    assert.ok(round.seen.length <= 7);
});

test('pull: a silent server is left and asked again; a slow one is waited for', async (t) => {
    const server = await mirror(t, (req, res, bytes, n) => {
        if (n === 1) { // says nothing after the first bytes
            res.writeHead(200, { 'content-length': bytes.length, etag: '"x"' });
            res.write(bytes.subarray(0, 70000));
            return true;
        }
        if (n !== 3) return false;
        res.writeHead(200, { 'content-length': bytes.length });
        let at = 0;
        const drip = setInterval(() => {
            res.write(bytes.subarray(at, at + 4000));
            at += 4000;
            if (at >= bytes.length) { clearInterval(drip); res.end(); }
        }, 200);
        return true;
    });
    const here = place(t, server, { digests: true });
    const { stdout } = await here.run(['pull', 'tiny']);
    assert.ok(events(stdout).some((e) => e.event === 'retry' && /silent/.test(e.text)));
    assert.ok(events(stdout).some((e) => e.event === 'progress' && e.step === 'download'));
    isWhole(here);
});

test('pull: Ctrl-C and kill -9 leave a state from which the next pull goes on; two at once are refused', async (t) => {
    let hold = true;
    const server = await mirror(t, (req, res, bytes) => {
        if (!hold || !bytes) return false;
        res.writeHead(req.headers.range ? 206 : 200, { etag: `"${sha256(bytes).slice(0, 12)}"`,
            ...(req.headers.range ? { 'content-range': `bytes ${/\d+/.exec(req.headers.range)[0]}-${bytes.length - 1}/${bytes.length}` } : { 'content-length': bytes.length }) });
        const from = req.headers.range ? Number(/\d+/.exec(req.headers.range)[0]) : 0;
        res.write(bytes.subarray(from, from + 50000));
        return true;
    });
    const here = place(t, server);
    const part = path.join(here.models, '.tiny.part', `${FILES.transformer}.part`);
    const size = () => (fs.existsSync(part) ? fs.statSync(part).size : 0);
    for (const [signal, end, want] of [['SIGINT', { code: 130, signal: null }, 50000], ['SIGKILL', { code: null, signal: 'SIGKILL' }, 100000]]) {
        const child = spawn(BIN, ['model', 'pull', 'tiny', ...here.args({ 'model.stall_ms': 60000 })], { stdio: ['ignore', 'pipe', 'pipe'] });
        t.after(() => child.kill('SIGKILL'));
        let stderr = '';
        child.stderr.on('data', (d) => (stderr += d));
        const ended = new Promise((resolve) => child.on('close', (code, s) => resolve({ code, signal: s })));
        await eventually('a part', () => size() === want);
        if (signal === 'SIGINT') {
            const second = await here.run(['pull', 'tiny'], { code: 6 });
            assert.match(second.stderr, /another `reeld model` command/);
            await here.run(['rm', 'tiny', '--yes'], { code: 6 });
        }
        assert.equal((await here.one('tiny')).state, 'partial', 'half-done is no model');
        child.kill(signal);
        assert.deepEqual(await ended, end, stderr);
        if (signal === 'SIGINT') assert.match(stderr, /goes on from here/);
    }
    hold = false;
    server.seen.length = 0;
    await here.run(['pull', 'tiny']);
    assert.equal(server.seen[0].range, 'bytes=100000-');
    assert.equal(server.seen[0].ifRange, server.etag(bytesOf(FILES.transformer)));
    isWhole(here);
});

test('pull: no room, no such model, a catalogue that is wrong, a mirror that is no address', async (t) => {
    const server = await mirror(t);
    const here = place(t, server);
    const { stderr } = await here.run(['pull', 'tiny'], { code: 1, more: { 'store.min_free_bytes': 1099511627776 } });
    assert.match(stderr, /are needed, .* are free/);
    assert.equal(server.seen.length, 0);
    assert.match((await here.run(['pull', 'tinny'], { code: 2 })).stderr, /which has wan2\.1-t2v-1\.3b,.* tiny/);
    await here.run(['pull', 'tiny'], { code: 1, more: { 'model.mirror': 'ftp://127.0.0.1/' } });
    const file = (text) => { const f = path.join(tempDir(t), 'c.json'); fs.writeFileSync(f, text); return { code: 2, more: { 'model.catalogue': f } }; };
    await here.run(['list'], file('{'));
    assert.match((await here.run(['list'], file('{"models":[{"name":"../x"}]}'))).stderr, /name/);
    const wrong = JSON.parse(fs.readFileSync(catalogue(tempDir(t)), 'utf8'));
    wrong.models[0].files.vae.path = 'vae/../../x';
    assert.match((await here.run(['list'], file(JSON.stringify(wrong)))).stderr, /path/);
});

test('pull: files that are the catalogue\'s but no model do not become one', async (t) => {
    const server = await mirror(t);
    const here = place(t, server, { change: (files) => ({ ...files, vae: { ...files.text_encoder, path: 'vae/tiny.safetensors' } }) });
    assert.match((await here.run(['pull', 'tiny'], { code: 1 })).stderr, /holds no VAE/);
    assert.equal((await here.one('tiny')).state, 'partial');
});

test('pull: a digest that is not known is computed; a file that another model has is shared', async (t) => {
    const server = await mirror(t);
    const here = place(t, server, { digests: false });
    await here.run(['pull', 'tiny']);
    const manifest = JSON.parse(fs.readFileSync(path.join(here.models, 'tiny/model.json'), 'utf8'));
    assert.equal(manifest.files[0].sha256, sha256(bytesOf(FILES.transformer)));
    server.seen.length = 0;
    const second = { 'model.catalogue': catalogue(tempDir(t), { name: 'second' }) };
    const { stdout } = await here.run(['pull', 'second'], { more: second });
    assert.equal(server.seen.length, 0);
    assert.equal(events(stdout).filter((e) => e.event === 'shared' && e.text === 'shared with tiny').length, 3);
    const ino = (name) => fs.statSync(path.join(here.models, name, FILES.vae)).ino;
    assert.equal(ino('tiny'), ino('second'));
    await here.run(['rm', 'tiny', '--yes']);
    isWhole(here, 'second');
});

test('pull: a complete file without a known digest is hashed, not fetched again', async (t) => {
    let closed = true;
    const server = await mirror(t, (req, res) => closed && req.url.includes(FILES.vae) && (res.writeHead(403).end(), true));
    const here = place(t, server, { digests: false });
    await here.run(['pull', 'tiny'], { code: 3 });
    closed = false;
    server.seen.length = 0;
    await here.run(['pull', 'tiny']);
    assert.deepEqual(server.seen.map((s) => s.url), [`/hub/${FILES.vae}`]);
    isWhole(here);
    const manifest = JSON.parse(fs.readFileSync(path.join(here.models, 'tiny/model.json'), 'utf8'));
    assert.deepEqual(manifest.files.map((f) => f.sha256), Object.values(FILES).map((f) => sha256(bytesOf(f))));
});

test('add: a folder, three files in any order, links; .pth and half a model are refused', async (t) => {
    const here = place(t, null, { name: 'known' });
    await here.run(['add', TINY]);
    isWhole(here);
    assert.deepEqual((await here.one('tiny')).source, 'copied, the catalogue\'s known');
    assert.match((await here.run(['add', TINY], { code: 1 })).stderr, /--name/);
    const files = Object.values(FILES).map((f) => path.join(TINY, f)).reverse();
    await here.run(['add', ...files, '--name', 'three']);
    isWhole(here, 'three');
    const own = path.join(here.dir, 'own');
    fs.cpSync(TINY, own, { recursive: true });
    await here.run(['add', own, '--link', '--name', 'linked']);
    assert.equal(fs.statSync(path.join(own, FILES.vae)).ino, fs.statSync(path.join(here.models, 'linked', FILES.vae)).ino);
    assert.match((await here.run(['add', files[0], files[0], files[1]], { code: 1 })).stderr, /same part/);
    await here.run(['add', files[0], files[1]], { code: 2 });
    const pth = path.join(here.dir, 'Wan2.1_VAE.pth');
    fs.writeFileSync(pth, 'PK\x03\x04');
    assert.match((await here.run(['add', files[1], files[2], pth], { code: 1 })).stderr, /safetensors/);
    fs.rmSync(path.join(own, FILES.vae));
    await here.run(['add', own, '--name', 'half'], { code: 3 });
    fs.writeFileSync(path.join(own, FILES.vae), bytesOf(FILES.vae).subarray(0, 60000));
    await here.run(['add', own, '--name', 'half'], { code: 1 });
    assert.deepEqual(fs.readdirSync(here.models).sort(), ['.lock', 'linked', 'three', 'tiny']);
});

test('add --link: the symbolic links of a hub\'s cache are followed', async (t) => {
    const here = place(t, null);
    const blobs = path.join(here.dir, 'cache/blobs'), snapshot = path.join(here.dir, 'cache/snapshots/1234');
    fs.mkdirSync(blobs, { recursive: true });
    for (const file of Object.values(FILES)) {
        const blob = path.join(blobs, sha256(bytesOf(file)));
        fs.writeFileSync(blob, bytesOf(file));
        fs.mkdirSync(path.dirname(path.join(snapshot, file)), { recursive: true });
        fs.symlinkSync(path.relative(path.dirname(path.join(snapshot, file)), blob), path.join(snapshot, file));
    }
    await here.run(['add', snapshot, '--link', '--name', 'cached']);
    isWhole(here, 'cached');
    const stat = fs.lstatSync(path.join(here.models, 'cached', FILES.vae));
    assert.ok(stat.isFile() && stat.ino === fs.statSync(path.join(snapshot, FILES.vae)).ino);
});

test('what a command with a strict umask makes is for the service\'s user to read', async (t) => {
    const server = await mirror(t);
    const here = place(t, server);
    for (const words of [['pull', 'tiny'], ['add', TINY, '--name', 'mine']]) {
        const child = spawn('/bin/sh', ['-c', 'umask 077 && exec "$@"', 'sh', BIN, 'model', ...words, ...here.args()], { stdio: 'ignore' });
        assert.equal(await new Promise((resolve) => child.on('close', resolve)), 0, words.join(' '));
    }
    const mode = (...names) => (fs.statSync(path.join(here.models, ...names)).mode & 0o777).toString(8);
    assert.equal(mode(), '755');
    for (const name of ['tiny', 'mine']) {
        assert.deepEqual([mode(name), mode(name, 'vae'), mode(name, FILES.vae), mode(name, 'model.json')], ['755', '755', '644', '644'], name);
    }
});

test('verify: damage of every kind is found, and the report tells no paths', async (t) => {
    const here = place(t, null, { name: 'known' });
    await here.run(['add', TINY, '--name', 'mine']);
    const checks = async (code) => JSON.parse((await here.run(['verify', 'mine'], { code })).stdout).data[0].checks;
    const file = path.join(here.models, 'mine', FILES.transformer);
    const bytes = bytesOf(FILES.transformer);
    assert.ok((await checks(0)).every((c) => c.verdict === 'ok'));
    const put = (change) => { const b = Buffer.from(bytes); fs.writeFileSync(file, change(b) ?? b); };
    put((b) => { b[b.length - 9] ^= 1; });
    assert.match((await checks(1)).find((c) => c.verdict === 'FAIL').text, /SHA-256 is/);
    put((b) => { b.writeUInt16LE(0x7e00, b.length - 10); });
    assert.match((await checks(1)).find((c) => c.name === 'transformer').text, /^1 of \d+ tensors have numbers that are none \(NaN/);
    put((b) => b.subarray(0, b.length - 2));
    assert.deepEqual((await checks(1)).filter((c) => c.verdict === 'FAIL').map((c) => c.name), [FILES.transformer, 'model']);
    put((b) => { b.write('}', 8); });
    assert.equal((await here.one('mine')).state, 'broken');
    fs.rmSync(file);
    assert.match((await checks(1))[0].text, /not there/);
    fs.writeFileSync(file, bytes);
    fs.rmSync(path.join(here.models, 'mine/model.json')); // put there by hand
    assert.match((await checks(0))[0].text, /the catalogue's tiny\.safetensors/);
    fs.renameSync(path.join(here.models, 'mine', FILES.vae), path.join(here.models, 'mine/vae/my secret name.safetensors'));
    const report = path.join(here.dir, 'report.txt');
    await here.run(['verify', '--report', report], { more: { 'model.catalogue': '' } });
    const text = fs.readFileSync(report, 'utf8');
    assert.match(text, /warn vae\/<file>: SHA-256 not known, computed: [0-9a-f]{64}/);
    assert.match(text, /blocks\.0\.self_attn\.q\.weight F16 \[64, 64\] min -/);
    assert.match(text, /^reeld \d.*libcurl/);
    assert.ok(!text.includes(here.dir) && !text.includes('secret') && !text.includes('mine'), text);
    await here.run(['verify', 'nosuch'], { code: 3 });
});

test('a pull beside a running server disturbs nothing, and its model is there after a restart', async (t) => {
    const source = await mirror(t);
    const server = await serve(t);
    const here = place(t, source);
    const models = async () => {
        const { stdout } = await reeld(['engines', '--state-dir', server.dir]);
        return (JSON.parse(stdout).data.find((e) => e.name === 'wan')?.models ?? []).map((m) => m.name);
    };
    const pulled = await reeld(['model', 'pull', 'tiny', ...here.args().slice(2), '--state-dir', server.dir]);
    assert.equal(pulled.code, 0, pulled.stderr);
    assert.ok(!(await models()).includes('tiny'), 'looked through at start only');
    await server.stop();
    await server.start();
    assert.ok((await models()).includes('tiny'));
    const removed = await reeld(['model', 'rm', 'tiny', '--yes', '--state-dir', server.dir]);
    assert.equal(removed.code, 0, removed.stderr);
    assert.equal((await fetch(`${server.url}/readyz`)).status, 200);
});
