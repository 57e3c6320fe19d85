// A real browser against the real server: the page from the sign-in link to the playing video, and
// the browser's own EventSource across a restart.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import test from 'node:test';

import { Browser } from '../../web/test/browser.mjs';
import { eventually, serve, small } from './lib/reeld.mjs';

const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const skip = fs.existsSync(CHROMIUM) ? false : `no ${CHROMIUM}`;

/** The page of a server, signed in by the link that its first start printed. */
async function open(t, server) {
    const browser = await Browser.start();
    t.after(() => browser.close());
    const link = /sign in: (\S+)/.exec(server.stdout)[1];
    const page = await browser.page(link);
    await page.see('.link-live');
    return page;
}

test('from the sign-in link to a video that plays', { skip }, async (t) => {
    const server = await serve(t);
    const page = await open(t, server);
    await page.type('textarea', 'a red circle moving left');
    await page.click('button[type=submit]');
    await page.see('.row-open', 'a red circle moving left');
    await page.see('.badge', 'Succeeded');
    await page.click('.row-open', 'a red circle moving left');
    await page.until('document.querySelector("video")?.readyState >= 2 && document.querySelector("video").videoWidth > 0');
    assert.deepEqual(page.problems, []);
    assert.equal((await server.ids()).length, 1);
});

test('the form offers what the starter model takes', { skip }, async (t) => {
    const server = await serve(t, { set: { 'engine.default': '' } });
    const { json } = await server.get('/api/v1/engines');
    if (json.data.find((engine) => engine.default).name !== 'wan') return t.skip('built without the starter model');
    const page = await open(t, server);
    await page.see('#choice option', 'Default (wan · starter)');
    await page.click('summary');
    const { limits, defaults } = json.data.find((engine) => engine.name === 'wan').models[0];
    await page.see('#steps-hint', `1 to ${limits.max_steps.toLocaleString('en')}`);
    await page.see('#width-hint', `${limits.min_px} to ${limits.max_px.toLocaleString('en')}`);
    assert.equal(await page.eval('document.querySelector("#steps").placeholder'), String(defaults.steps));
    assert.deepEqual(page.problems, []);
});

test('the browser\'s EventSource: every event once, across a restart of the server', { skip }, async (t) => {
    const server = await serve(t);
    const page = await open(t, server);
    await page.eval(`void (() => {
        window.heard = [];
        window.source = new EventSource('/api/v1/events');
        window.source.addEventListener('status', (event) => window.heard.push([event.lastEventId, JSON.parse(event.data).seq]));
    })()`);
    await page.until('window.source.readyState === EventSource.OPEN');
    const ids = [];
    const add = async (n) => {
        const task = await server.submit(small(`no ${n}`));
        ids.push(task.task_id);
        await server.done(task.task_id);
    };
    for (let n = 0; n < 3; n++) await add(n);
    await server.kill9();
    server.listen = `127.0.0.1:${server.port}`;
    await server.start();
    for (let n = 3; n < 6; n++) await add(n);
    const told = [];
    for (const id of ids) told.push(...(await server.events(id)).map((event) => event.seq));
    told.sort((a, b) => Number(a) - Number(b));
    await eventually('all are heard', async () => (await page.eval('window.heard.length')) >= told.length, 20000);
    const heard = await page.eval('window.heard');
    assert.deepEqual(heard.map(([, seq]) => seq), told);
    assert.ok(heard.every(([id, seq]) => id === String(seq)));
});
