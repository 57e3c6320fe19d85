// A clock that tests can move while the server runs: tests/shim/clock.c, preloaded into it.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

import { BIN, SLOW, tempDir } from './reeld.mjs';

const SHIM = process.env.REELD_CLOCK_SHIM ?? path.join(path.dirname(BIN), 'tests/shim/reeld_clock.so');

export const HOUR = 3600e3;
export const YEAR = 365 * 24 * HOUR;

/** Why the clock cannot be moved in this run, or false. For `test(…, {skip: noClock()}, …)`. */
export function noClock() {
    if (SLOW) return 'a sanitizer must be the first library: the clock shim needs a plain build';
    return fs.existsSync(SHIM) ? false : `no ${path.basename(SHIM)} beside the binary: build with REELD_TESTS=ON`;
}

export class Clock {
    constructor(t) {
        this.file = path.join(tempDir(t), 'offsets');
        this.wall = 0;
        this.boot = 0;
        this.write();
        this.env = { LD_PRELOAD: SHIM, REELD_CLOCK: this.file };
    }

    /** In place: the server has the file mapped. */
    write() {
        const bytes = Buffer.alloc(16);
        bytes.writeBigInt64LE(BigInt(Math.round(this.wall)) * 1000000n, 0);
        bytes.writeBigInt64LE(BigInt(Math.round(this.boot)) * 1000000n, 8);
        const fd = fs.openSync(this.file, fs.existsSync(this.file) ? 'r+' : 'w');
        fs.writeSync(fd, bytes, 0, 16, 0);
        fs.closeSync(fd);
    }

    /** What the server's wall clock says. */
    now() {
        return Date.now() + this.wall;
    }

    /** The wall clock alone goes on by so many ms (somebody set it). */
    jump(time) {
        this.wall += time;
        this.write();
    }

    /** The wall clock is set to this time. */
    set(time) {
        this.jump(time - this.now());
    }

    /** The machine slept: the wall clock and CLOCK_BOOTTIME went on, CLOCK_MONOTONIC did not. */
    suspend(time) {
        this.boot += time;
        this.jump(time);
    }

    /** As right after a boot: CLOCK_BOOTTIME starts again. */
    reboot() {
        const [uptime] = fs.readFileSync('/proc/uptime', 'utf8').split(' ');
        this.boot = 5000 - Number(uptime) * 1000;
        this.write();
    }
}

/** Makes a stopped server's next start the first after a reboot. */
export function forgetBoot(server) {
    execFileSync('sqlite3', [server.db, "UPDATE meta SET value = 'an earlier boot' WHERE name = 'boot_id'"]);
}
