// A callback receiver: answers as scripted and remembers every request byte for byte.
import http from 'node:http';

import { Webhook } from 'standardwebhooks';

import { eventually } from './reeld.mjs';

export class Receiver {
    /** answers: a status, {status, headers, body}, or a list of them of which the last one stays. */
    constructor(answers = 200) {
        this.answers = [answers].flat();
        this.requests = [];
        this.sockets = new Set();
        this.server = http.createServer((request, response) => {
            const parts = [];
            request.on('data', (part) => parts.push(part));
            request.on('end', () => this.answer(request, Buffer.concat(parts), response));
        });
        this.server.on('connection', (socket) => {
            this.sockets.add(socket);
            socket.on('close', () => this.sockets.delete(socket));
        });
    }

    answer(request, body, response) {
        const { method, url, headers, rawHeaders } = request;
        this.requests.push({ method, url, headers, rawHeaders, body, at: Date.now() });
        const answer = this.answers.length > 1 ? this.answers.shift() : this.answers[0];
        const { status, headers: extra = {}, body: text = '' } =
            typeof answer === 'number' ? { status: answer } : answer;
        response.writeHead(status, extra).end(text);
    }

    listen(port = 0) {
        return new Promise((resolve, reject) => {
            this.server.once('error', reject);
            this.server.listen(port, '127.0.0.1', () => {
                this.port = this.server.address().port;
                this.url = `http://127.0.0.1:${this.port}/hook`;
                resolve(this);
            });
        });
    }

    close() {
        for (const socket of this.sockets) socket.destroy();
        return new Promise((resolve) => this.server.close(resolve));
    }

    /** The requests about one task. */
    about(id) {
        return this.requests.filter((request) => request.headers['idempotency-key'] === id);
    }

    /** The first n requests about a task, once they are there. */
    async wait(id, n = 1, timeout = 20000) {
        await eventually(() => `${n} callbacks about ${id}, there are ${this.about(id).length}`,
            () => this.about(id).length >= n, timeout);
        return this.about(id);
    }
}

/** A receiver that is there until the test ends. */
export async function receive(t, answers) {
    const receiver = await new Receiver(answers).listen();
    t.after(() => receiver.close());
    return receiver;
}

/** The body of a delivery that the npm package accepts; throws when the signature is wrong. */
export function verified(request, secret) {
    return new Webhook(secret).verify(request.body.toString('utf8'), request.headers);
}

