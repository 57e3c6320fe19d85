// Feeds: readers that share one by leases, what a lost reader or a killed server costs (a repeat, never an
// event), replay from a seq or a time, whose events one sees, and what a feed refuses.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import http from 'node:http';
import test from 'node:test';

import { assertProblem, eventually, LONG, ms, reeld, serve, SLOW, small, sql, tick } from './lib/reeld.mjs';

const at = (name, tail = '') => `/api/v1/feeds/${name}${tail}`;

async function read(server, name, query = '', options) {
    const answer = await server.get(at(name, `?${query}`), options);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
}

async function ack(server, range, more = {}, options) {
    const answer = await server.post(at(range.feed, '/ack'), { lease: range.lease, ...more }, options);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
}

async function state(server, name, options) {
    const answer = await server.get(at(name, '/state'), options);
    assert.equal(answer.status, 200, answer.text);
    return answer.json;
}

const seqs = (range) => range.events.map((event) => event.seq);

/** Tasks that never run: two events each, CREATED and QUEUED. */
async function waiting(server, count, options) {
    const ids = [];
    let left = count;
    const one = async () => {
        while (left-- > 0) {
            const task = await server.submit(small(`waits ${left}`, { run_at: '2099-01-01T00:00:00Z', idempotency: 'off' }), options);
            ids.push(task.task_id);
        }
    };
    await Promise.all(Array.from({ length: Math.min(count, 16) }, one));
    return ids;
}

/** Everything that a feed gives, acknowledged as it comes. */
async function drain(server, name, query = 'max=1000', options) {
    const all = [];
    for (;;) {
        const range = await read(server, name, query, options);
        if (!range.lease) return all;
        all.push(...range.events);
        await ack(server, range, {}, options);
    }
}

test('two readers share a feed without overlap, and it is the log', async (t) => {
    const server = await serve(t);
    const task = await server.submit(small('shared'));
    await server.done(task.task_id);
    await waiting(server, 8);
    const a = await read(server, 'billing', 'max=5');
    const b = await read(server, 'billing', 'max=5');
    assert.equal(a.events.length, 5);
    assert.equal(a.from, 1);
    assert.equal(a.delivery, 1);
    assert.equal(a.gap, null);
    assert.equal(b.from, a.to + 1);
    assert.deepEqual(seqs(a), [1, 2, 3, 4, 5]);
    assert.deepEqual(a.events.filter((e) => e.task_id === task.task_id), (await server.events(task.task_id)).filter((e) => e.seq <= a.to));

    // out of order: the cursor moves over the contiguous prefix only
    assert.equal((await ack(server, b)).cursor, 0);
    assert.equal((await ack(server, a)).cursor, b.to);
    assert.equal((await ack(server, a)).cursor, b.to, 'an acknowledgement may be repeated');
    const rest = await drain(server, 'billing');
    const log = await drain(server, 'audit');
    assert.deepEqual([...a.events, ...b.events, ...rest], log);
    assert.equal((await state(server, 'billing')).lag, 0);
    assert.deepEqual((await server.get('/api/v1/feeds')).json.data.map((feed) => feed.name), ['audit', 'billing']);
});

test('a reader that is gone: its range comes back after the lease, the same, and its late ack is refused', async (t) => {
    const server = await serve(t);
    await waiting(server, 4);
    const lost = await read(server, 'jobs', 'max=3');
    const other = await read(server, 'jobs', 'max=100');
    assert.equal(other.from, lost.to + 1);
    assert.equal((await read(server, 'jobs')).lease, null, 'nothing is given twice while its lease lives');
    const poll = server.get(at('jobs', '?max=1&wait=60'), { timeout: 70000 });
    assert.equal((await server.post(at('jobs', '/extend'), { lease: lost.lease, lease_s: 1 })).status, 200);
    const again = (await poll).json; // it wakes when the lease ends
    assert.deepEqual(again.events, lost.events, 'the same range, whatever max says');
    assert.deepEqual([again.from, again.to, again.delivery], [lost.from, lost.to, 2]);
    assert.notEqual(again.lease, lost.lease);
    assertProblem(await server.post(at('jobs', '/ack'), { lease: lost.lease }), 409, 'LEASE_LOST');
    assertProblem(await server.post(at('jobs', '/extend'), { lease: lost.lease }), 409, 'LEASE_LOST');
    assert.equal((await ack(server, other)).cursor, 0);
    assert.equal((await ack(server, again)).cursor, other.to);
    assertProblem(await server.post(at('jobs', '/ack'), { lease: lost.lease }), 409, 'LEASE_LOST');
});

test('part of a range, a range given back, and more time for one', async (t) => {
    const server = await serve(t);
    await waiting(server, 5);
    const range = await read(server, 'parts', 'max=10');
    const part = await ack(server, range, { to: 4 });
    assert.deepEqual([part.from, part.to, part.cursor], [1, 4, 4]);
    assert.equal((await ack(server, range, { to: 4 })).cursor, 4);
    assertProblem(await server.post(at('parts', '/ack'), { lease: range.lease, to: 9 }), 409, 'LEASE_LOST');
    const rest = await read(server, 'parts');
    assert.deepEqual(seqs(rest), seqs(range).filter((seq) => seq > 4));
    assert.equal(rest.delivery, 2);
    assertProblem(await server.post(at('parts', '/ack'), { lease: rest.lease, to: 4 }), 422, 'INVALID_FIELD', 'to');
    assertProblem(await server.post(at('parts', '/ack'), { lease: rest.lease, to: 11 }), 422, 'INVALID_FIELD', 'to');

    const longer = await server.post(at('parts', '/extend'), { lease: rest.lease, lease_s: 600 });
    assert.equal(longer.status, 200, longer.text);
    assert.ok(Date.parse(longer.json.expires_at) > Date.now() + 590e3);
    const waiter = server.get(at('parts', '?wait=30'));
    await eventually('it waits', async () => /reeld_http_streams 1\n/.test((await server.get('/metrics')).text));
    assert.equal((await server.post(at('parts', '/extend'), { lease: rest.lease, lease_s: 0 })).status, 200);
    const back = (await waiter).json;
    assert.deepEqual(back.events, rest.events, 'what is given back is the next reader\'s at once');
    assert.equal(back.delivery, 3);
    await ack(server, back);
    assertProblem(await server.post(at('parts', '/extend'), { lease: back.lease }), 409, 'LEASE_LOST');
});

test('kill -9 between lease and acknowledgement: the lease lives, then the range comes back', async (t) => {
    const server = await serve(t);
    await waiting(server, 6);
    const kept = await read(server, 'durable', 'max=4');
    const lost = await read(server, 'durable', 'max=4');
    await server.kill9();
    await server.start();
    const third = await read(server, 'durable', 'max=4');
    assert.equal(third.from, lost.to + 1, 'the leases survived');
    assert.equal((await ack(server, kept)).cursor, kept.to);
    assert.equal((await server.post(at('durable', '/extend'), { lease: lost.lease, lease_s: 1 })).status, 200);
    await server.kill9();
    await server.start();
    const again = await read(server, 'durable', 'wait=20');
    assert.deepEqual(again.events, lost.events);
    assert.equal(again.delivery, 2);
    assert.equal((await ack(server, third)).cursor, kept.to);
    assert.equal((await ack(server, again)).cursor, third.to);
    assert.equal((await ack(server, kept)).cursor, third.to, 'repeated over two restarts');
    assert.equal((await read(server, 'durable')).lease, null);
});

test('replay from a seq and from a time; earliest and latest', async (t) => {
    const server = await serve(t);
    await waiting(server, 3);
    const before = await drain(server, 'replay');
    await tick(50);
    const mark = new Date().toISOString();
    await tick(50);
    await waiting(server, 3);
    const after = await drain(server, 'replay');
    const stale = await server.post(at('replay', '/seek'), { seq: 3 });
    assert.equal(stale.status, 200, stale.text);
    assert.equal(stale.json.cursor, 2);
    const range = await read(server, 'replay', 'max=2');
    assert.deepEqual(seqs(range), [3, 4]);
    assert.equal((await server.post(at('replay', '/seek'), { time: mark })).status, 200);
    assertProblem(await server.post(at('replay', '/ack'), { lease: range.lease }), 409, 'LEASE_LOST');
    assert.deepEqual(await drain(server, 'replay'), after);
    assert.equal((await server.post(at('replay', '/seek'), { from: 'earliest' })).status, 200);
    assert.deepEqual(await drain(server, 'replay'), [...before, ...after]);
    assert.deepEqual(await drain(server, 'by-time', `from=${mark}`), after);
    assert.deepEqual(await drain(server, 'by-seq', `from=${after[1].seq}`), after.slice(1));
    assert.deepEqual(await drain(server, 'new', 'from=latest'), []);
    const made = await server.api('PUT', at('put'), { body: { time: mark, status: ['QUEUED'] } });
    assert.equal(made.status, 201, made.text);
    assert.equal((await server.api('PUT', at('put'), { body: { status: ['QUEUED'] } })).status, 200);
    assertProblem(await server.api('PUT', at('put'), { body: {} }), 409, 'CONFLICT', 'status');
    assert.deepEqual(await drain(server, 'put', 'max=2'), after.filter((e) => e.to_status === 'QUEUED'));
    assertProblem(await server.post(at('replay', '/seek'), { seq: 1e6 }), 422, 'INVALID_FIELD', 'seq');
    assertProblem(await server.get(at('far', '?from=1000000')), 422, 'INVALID_FIELD', 'from');
    assert.equal((await server.api('DELETE', at('put'))).status, 204);
    assertProblem(await server.get(at('put', '/state')), 404, 'NOT_FOUND');
    assertProblem(await server.post(at('put', '/ack'), { lease: '1.1' }), 404, 'NOT_FOUND');
});

test('everybody sees their own events only, the owner all, and names do not meet', async (t) => {
    const server = await serve(t, { set: { 'limit.pending_tasks': 0 } });
    const alice = await server.addKey('alice');
    const bob = await server.addKey('bob');
    const boss = await server.addKey('alice', 'owner');
    const hers = await waiting(server, 3, { key: alice.key });
    const his = await waiting(server, 2, { key: bob.key });
    const seen = async (key) => [...new Set((await drain(server, 'same', 'max=2', { key })).map((e) => e.task_id))].sort();
    assert.deepEqual(await seen(alice.key), hers.sort());
    assert.deepEqual(await seen(bob.key), his.sort());
    assert.deepEqual(await seen(boss.key), [...hers, ...his].sort(), 'an owner\'s feed is another one than the app\'s of the same user');
    assert.deepEqual(await seen(server.key), [...hers, ...his].sort());
    assert.equal((await state(server, 'same', { key: alice.key })).scope, 'own');
    assert.equal((await state(server, 'same', { key: boss.key })).scope, 'all');

    await waiting(server, 1, { key: alice.key });
    const range = await read(server, 'same', '', { key: alice.key });
    assertProblem(await server.post(at('same', '/ack'), { lease: range.lease }, { key: bob.key }), 409, 'LEASE_LOST');
    assertProblem(await server.post(at('same', '/ack'), { lease: range.lease }, { key: boss.key }), 409, 'LEASE_LOST');
    await ack(server, range, {}, { key: alice.key });
    assertProblem(await server.get('/api/v1/feeds', { key: null }), 401, 'UNAUTHORIZED');

    // a long poll of one user is not woken by another's events, and gets its own at once
    const poll = server.get(at('same', '?wait=30'), { key: bob.key });
    await eventually('it waits', async () => /reeld_http_streams 1\n/.test((await server.get('/metrics')).text));
    await waiting(server, 2, { key: alice.key });
    const [mine] = await waiting(server, 1, { key: bob.key });
    const woken = (await poll).json;
    assert.ok(woken.events.length > 0 && woken.events.every((e) => e.task_id === mine), JSON.stringify(woken));
});

test('a long poll wakes at once, ends empty, gives up with its key, and has a budget', async (t) => {
    const server = await serve(t, { set: { 'http.stream_threads': 2, 'http.threads': 12 } });
    const { key, key_id } = await server.addKey('carol');
    let began = Date.now();
    const none = await read(server, 'poll', 'wait=1');
    assert.deepEqual(none, { lease: null, feed: 'poll', from: null, to: null, delivery: null, expires_at: null, events: [], gap: null });
    assert.ok(Date.now() - began >= 900);
    const streams = (n) => eventually(`${n} wait`, async () =>
        new RegExp(`reeld_http_streams ${n}\n`).test((await server.get('/metrics')).text));
    const poll = server.get(at('poll', '?wait=30'));
    await streams(1);
    const other = server.get(at('mine', '?wait=30'), { key });
    await streams(2);
    const refused = await server.get(at('poll', '?wait=5'));
    assertProblem(refused, 503, 'UNAVAILABLE');
    assert.ok(Number(refused.headers['retry-after']) > 0);
    assert.equal((await server.get(at('poll'))).status, 200, 'a read that does not wait needs no place');
    began = Date.now();
    const [id] = await waiting(server, 1);
    const woken = (await poll).json;
    assert.ok(Date.now() - began < ms(1500), 'at once');
    assert.equal(woken.events[0].task_id, id);
    await ack(server, woken);
    assert.equal((await server.api('DELETE', `/api/v1/keys/${key_id}`)).status, 204);
    await waiting(server, 1, {});
    await server.post('/api/v1/queues/default/pause'); // rings the doorbell for everybody
    assertProblem(await other, 401, 'UNAUTHORIZED');

    const deleted = server.get(at('poll', '?wait=30&from=latest'));
    const first = (await deleted).json; // the event of the task above
    await ack(server, first);
    const gone = server.get(at('poll', '?wait=30'));
    await streams(1);
    await server.api('DELETE', at('poll'));
    assertProblem(await gone, 404, 'NOT_FOUND');
});

test('a reader that hung up while it waited gets no range', async (t) => {
    const server = await serve(t);
    const streams = (n) => eventually(`${n} wait`, async () =>
        new RegExp(`reeld_http_streams ${n}\n`).test((await server.get('/metrics')).text));
    const request = http.get({ host: '127.0.0.1', port: server.port, path: at('hang', '?wait=30'), agent: false,
        headers: { authorization: `Bearer ${server.key}` } });
    request.on('error', () => {});
    await streams(1);
    request.destroy();
    await streams(0);
    const [id] = await waiting(server, 1);
    const range = await read(server, 'hang');
    assert.equal(range.events[0].task_id, id);
    assert.equal(range.delivery, 1);
});

test('history that retention removed is a gap that has to be acknowledged', async (t) => {
    const server = await serve(t);
    const tasks = [];
    for (const prompt of ['one', 'two', 'three']) tasks.push(await server.submit(small(prompt)));
    for (const task of tasks) await server.done(task.task_id);
    assert.ok((await read(server, 'slow', 'max=2')).lease);
    await server.api('PUT', at('slow-too'));
    const before = (await server.get('/api/v1/events')).json.data;
    await server.stop();
    // as retention does with two of the tasks, whose events are the oldest of what is left
    const removed = tasks.slice(0, 2).map((task) => task.task_id);
    const most = Math.max(...before.filter((e) => removed.includes(e.task_id)).map((e) => e.seq));
    execFileSync('sqlite3', [server.db, `DELETE FROM task_event WHERE task_id IN (${removed});
        INSERT INTO meta(name, value) VALUES ('events_pruned', '${most}');`]);
    await server.start();
    const left = before.filter((e) => !removed.includes(e.task_id));
    const range = await read(server, 'slow-too');
    assert.deepEqual(range.events, left);
    assert.deepEqual(range.gap, { from_seq: range.from, first_retained: left[0].seq });
    await server.post(at('slow', '/seek'), { seq: 1 });
    const from = await read(server, 'slow', 'max=1');
    assert.equal(from.gap.from_seq, 1);
    const rest = await drain(server, 'slow');
    assert.deepEqual([...from.events, ...rest], left);
    const filtered = await read(server, 'failures', 'status=FAILED&from=1');
    assert.deepEqual([filtered.events, filtered.gap.first_retained], [[], null]);
    assert.equal((await ack(server, filtered)).cursor, before.at(-1).seq);
    assert.equal((await read(server, 'failures')).lease, null);
});

test('retention waits for a feed that has not read, for a while', async (t) => {
    const server = await serve(t);
    const task = await server.submit(small('held'));
    await server.done(task.task_id);
    await server.api('PUT', at('archive'));
    await server.stop();
    const day = 86400e3;
    const purge = (days) => [`DELETE FROM task; DELETE FROM purged;
        INSERT INTO purged(task_id, user_id, purged_at) VALUES (${task.task_id}, 'owner', ${Date.now() - days * day});`];
    execFileSync('sqlite3', [server.db, ...purge(10)]);
    const set = { 'retain.events_days': 5, 'feed.hold_days': 10 };
    await server.start({ set });
    await server.waitLog(/listening|started/, 5000);
    await tick(300);
    assert.ok((await sql(server.db, 'SELECT count(*) AS n FROM task_event'))[0].n > 0, 'held');
    await server.stop();
    execFileSync('sqlite3', [server.db, ...purge(16)]);
    await server.start({ set });
    await eventually('the history is gone', async () => (await sql(server.db, 'SELECT count(*) AS n FROM task_event'))[0].n === 0);
    const range = await read(server, 'archive');
    assert.ok(range.lease && range.gap, 'and the feed says so');
});

test('hostile input is refused by name', async (t) => {
    const server = await serve(t, { set: { 'feed.count': 3 } });
    await waiting(server, 1);
    const query = async (text, field) => assertProblem(await server.get(at('x', `?${text}`)), 422, 'INVALID_FIELD', field);
    for (const value of ['0', '1001', '-1', '1.5', 'x', '', '99999999999999999999']) await query(`max=${value}`, 'max');
    for (const value of ['61', '-1', 'x', '']) await query(`wait=${value}`, 'wait');
    for (const value of ['0', '43201', 'x']) await query(`lease_s=${value}`, 'lease_s');
    for (const value of ['', 'yesterday', '0', '-1', '2026-13-01T00:00:00Z', '1e3']) await query(`from=${value}`, 'from');
    for (const value of ['', 'DONE', 'QUEUED,', 'queued']) await query(`status=${value}`, 'status');
    await query('mx=1', 'mx');
    await query('max=1&max=2', 'max');
    for (const name of ['-x', '.x', 'a%20b', 'a%2fb', '%C3%BC', 'x'.repeat(65)])
        assertProblem(await server.get(at(name)), 422, 'INVALID_FIELD', 'name');
    assert.equal((await server.get('/api/v1/feeds')).json.data.length, 0, 'nothing was made on the way');

    const range = await read(server, 'x');
    const body = async (tail, value, field, status = 422, code = 'INVALID_FIELD') =>
        assertProblem(await server.post(at('x', tail), value), status, code, field);
    await body('/ack', {}, 'lease');
    for (const lease of [1, null, '', [], 'x'.repeat(48)]) await body('/ack', { lease }, 'lease');
    for (const lease of ['x', '1', '1.', '.1', '0.1', '1.0', '01.1', '1.1.1', '-1.1', '9223372036854775808.1', '1.1 ', '999.1', '1.2'])
        await body('/ack', { lease }, undefined, 409, 'LEASE_LOST');
    for (const to of [0, -1, 1.5, '1', 1e300, range.to + 1]) await body('/ack', { lease: range.lease, to }, 'to');
    await body('/ack', { lease: range.lease, all: true }, 'all');
    await body('/ack', '[', undefined, 400, 'MALFORMED_JSON');
    for (const lease_s of [-1, 43201, '1', 0.5]) await body('/extend', { lease: range.lease, lease_s }, 'lease_s');
    await body('/seek', {}, 'seq');
    await body('/seek', { seq: 1, time: '2026-01-01T00:00:00Z' }, 'seq');
    for (const seq of [0, -1, '1', 1.5, 2 ** 53]) await body('/seek', { seq }, 'seq');
    for (const time of [1, 'now', '2026-01-01']) await body('/seek', { time }, 'time');
    for (const from of [1, 'start', null]) await body('/seek', { from }, 'from');
    for (const status of ['QUEUED', [], ['NO'], [1], {}])
        assertProblem(await server.api('PUT', at('y'), { body: { status } }), 422, 'INVALID_FIELD', 'status');
    assertProblem(await server.get(at('x', '?status=FAILED')), 409, 'CONFLICT', 'status');
    assert.equal((await state(server, 'x')).ranges[0].lease, range.lease, 'the lease is as it was');
    await read(server, 'y');
    await read(server, 'z');
    assertProblem(await server.get(at('one-more')), 409, 'CONFLICT');
    assertProblem(await server.api('PUT', at('one-more')), 409, 'CONFLICT');
    assertProblem(await server.get(at('none', '/state')), 404, 'NOT_FOUND');
    assert.equal((await server.api('HEAD', at('x'))).status, 405, 'HEAD would take a range and show nothing');
});

test('too many ranges out: readers wait until the cursor moves', async (t) => {
    const server = await serve(t, { set: { 'feed.leases': 2 } });
    await waiting(server, 3);
    const [a, b] = [await read(server, 'few', 'max=1'), await read(server, 'few', 'max=1')];
    assert.equal((await read(server, 'few', 'max=1')).lease, null);
    await ack(server, b);
    assert.equal((await read(server, 'few', 'max=1')).lease, null, 'the prefix is still open');
    const poll = server.get(at('few', '?max=1&wait=30'));
    await eventually('it waits', async () => /reeld_http_streams 1\n/.test((await server.get('/metrics')).text));
    await ack(server, a);
    assert.equal((await poll).json.from, 3);
    const metrics = (await server.get('/metrics')).text;
    assert.match(metrics, /\nreeld_feeds 1\n/);
    assert.match(metrics, /\nreeld_feed_leases 1\n/);
    assert.match(metrics, /\nreeld_feed_lag_max 4\n/);
});

test('10,000 events, four readers, two kills: every event, and twice only across a kill', async (t) => {
    const server = await serve(t);
    const tasks = SLOW && !LONG ? 500 : 5000;
    await waiting(server, tasks);
    const total = tasks * 2;
    const seen = new Map(); // seq → how often it was acknowledged by a 200
    const given = new Map(); // seq → deliveries
    let kills = 0;
    const answered = async (ask) => { // a client repeats what got no answer
        for (;;) {
            try {
                return await ask();
            } catch (error) {
                assert.ok(!server.stopped, error);
                await tick(20);
            }
        }
    };
    const reader = async () => {
        for (;;) {
            const { json: range } = await answered(() => server.get(at('big', `?max=100&wait=2&lease_s=${SLOW ? 20 : 4}`)));
            if (!range.lease) {
                if (seen.size === total || server.stopped) return;
                continue;
            }
            for (const event of range.events) given.set(event.seq, (given.get(event.seq) ?? 0) + 1);
            const answer = await answered(() => server.post(at('big', '/ack'), { lease: range.lease }));
            if (answer.status === 200) for (const seq of seqs(range)) seen.set(seq, (seen.get(seq) ?? 0) + 1);
            else assertProblem(answer, 409, 'LEASE_LOST');
        }
    };
    const readers = Array.from({ length: 4 }, reader);
    for (const share of [0.3, 0.6]) {
        await eventually(() => `${share} of the events, ${seen.size}`, () => seen.size >= total * share, 60000);
        await server.kill9();
        await server.start();
        kills++;
    }
    const giveUp = setTimeout(() => (server.stopped = true), ms(60000));
    await Promise.all(readers);
    clearTimeout(giveUp);
    assert.equal(seen.size, total, 'no event is lost');
    for (const [seq, times] of seen) assert.equal(times, 1, `seq ${seq} acknowledged once`);
    const twice = [...given.values()].filter((times) => times > 1).length;
    assert.ok(twice <= kills * 4 * 100, `${twice} events were given again`);
    const end = await state(server, 'big');
    assert.deepEqual([end.cursor, end.lag, end.leases], [total, 0, 0]);
});

test('the command line reads, acknowledges, moves and removes feeds', async (t) => {
    const server = await serve(t);
    await waiting(server, 2);
    const options = ['--state-dir', server.dir];
    const feed = (...args) => reeld(['feed', ...args, ...options]);
    const range = JSON.parse((await feed('read', 'cli', '--max', '3')).stdout);
    assert.deepEqual(seqs(range), [1, 2, 3]);
    assert.equal(JSON.parse((await feed('ack', 'cli', range.lease, '--to', '2')).stdout).cursor, 2);
    const rest = JSON.parse((await feed('read', 'cli', '--ack')).stdout);
    assert.deepEqual(seqs(rest), [3]);
    assert.equal((await state(server, 'cli')).cursor, 3);
    assert.equal(JSON.parse((await feed('seek', 'cli', '2')).stdout).cursor, 1);
    assert.equal(JSON.parse((await feed('seek', 'cli', 'latest')).stdout).cursor, 4);
    assert.equal(JSON.parse((await feed('seek', 'cli', '2020-01-01T00:00:00Z')).stdout).cursor, 0);
    assert.equal(JSON.parse((await feed('list')).stdout).data[0].name, 'cli');
    const lost = await feed('ack', 'cli', range.lease);
    assert.equal(lost.code, 3);
    assert.match(lost.stderr, /LEASE_LOST/);
    assert.equal((await feed('rm', 'cli')).code, 0);
    assert.equal((await feed('rm', 'cli')).code, 3);
    assert.equal((await feed('read', '../cli')).code, 2);
    assert.equal((await feed('seek', 'cli', 'soon')).code, 2);
});
