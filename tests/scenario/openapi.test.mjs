// What /openapi.json says of an answer's members is what the server sends.
import assert from 'node:assert/strict';
import test from 'node:test';

import { serve, small } from './lib/reeld.mjs';
import { receive } from './lib/receiver.mjs';

/** The JSON schema of a route's 200, with its references followed. */
function schema_of(api, path) {
    const follow = (schema) => (schema.$ref ? follow(schema.$ref.slice(2).split('/').reduce((at, key) => at[key], api)) : schema);
    const whole = follow(api.paths[path].get.responses['200'].content['application/json'].schema);
    return { ...whole, row: whole.properties?.data && follow(whole.properties.data.items) };
}

function assert_members(schema, value, optional = []) {
    const said = Object.keys(schema.properties).filter((name) => name in value || !optional.includes(name));
    assert.deepEqual(Object.keys(value).sort(), said.sort());
    for (const name of schema.required ?? []) assert.ok(name in value, `${name} is required`);
}

test('tasks, events, deliveries, workers and queues have the members that the schema names', async (t) => {
    const receiver = await receive(t);
    const server = await serve(t);
    const api = (await server.get('/openapi.json')).json;
    const task = await server.submit(small('all of it', { callback_url: receiver.url }));
    await server.called(task.task_id, 'SUCCEEDED');
    const done = (await server.get(`/api/v1/tasks/${task.task_id}?explain=1`)).json;
    assert_members(schema_of(api, '/api/v1/tasks/{id}'), done);
    for (const [path, target] of [
        ['/api/v1/tasks', '/api/v1/tasks'],
        ['/api/v1/tasks/{id}/events', `/api/v1/tasks/${task.task_id}/events`],
        ['/api/v1/tasks/{id}/deliveries', `/api/v1/tasks/${task.task_id}/deliveries`],
        ['/api/v1/workers', '/api/v1/workers'],
        ['/api/v1/queues', '/api/v1/queues'],
    ]) {
        const { row } = schema_of(api, path);
        const [first] = (await server.get(target)).json.data;
        assert_members(row, first, ['explain', 'attempts']);
    }
});
