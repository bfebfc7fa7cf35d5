import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { breakConnection, endAfterUpload, respondWhole } from '../../lib/gateway/own-response.ts';
import type { Exchange } from '../../lib/gateway/request-state.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const MIB = 1024 * 1024;

/** A request whose body is arriving, and the answer to it. */
function exchange(t: TestContext, headers: Record<string, string> = { 'content-length': '99999999' }) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const request = Object.assign(new EventEmitter(), {
    complete: false,
    destroyed: false,
    headers,
    resumed: false,
    resume() {
      request.resumed = true;
    },
  });
  const response = Object.assign(new EventEmitter(), {
    ends: 0,
    end() {
      response.ends += 1;
    },
  });
  endAfterUpload({ deps: { clock: systemClock }, req: request, res: response } as unknown as Exchange);
  return { request, response, arrives: (size: number) => request.emit('data', Buffer.alloc(size)) };
}

describe('an answer before the end of the upload', () => {
  it('ends once more than one MiB of the rest has been dropped, and not before', (t) => {
    const { request, response, arrives } = exchange(t);
    assert.ok(request.resumed);
    for (let i = 0; i < 4; i++) arrives(MIB / 4);
    assert.equal(response.ends, 0);
    arrives(1);
    assert.equal(response.ends, 1);
    assert.equal(request.listenerCount('data') + request.listenerCount('end'), 0);
    t.mock.timers.tick(5_000);
    assert.equal(response.ends, 1);
  });

  it('ends after more than 10,000 pieces of the rest, however small', (t) => {
    const { response, arrives } = exchange(t);
    for (let i = 0; i < 10_000; i++) arrives(1);
    assert.equal(response.ends, 0);
    arrives(1);
    assert.equal(response.ends, 1);
  });

  it('ends after a second', (t) => {
    const { response, arrives } = exchange(t);
    t.mock.timers.tick(999);
    arrives(1);
    assert.equal(response.ends, 0);
    t.mock.timers.tick(1);
    assert.equal(response.ends, 1);
  });

  it('ends with the upload', (t) => {
    const { request, response } = exchange(t);
    request.emit('end');
    assert.equal(response.ends, 1);
    t.mock.timers.tick(5_000);
    assert.equal(response.ends, 1);
  });

  for (const headers of [{}, { 'content-length': '0' }] as Record<string, string>[]) {
    it(`ends at once if there is no body: ${JSON.stringify(headers)}`, (t) => {
      const { request, response } = exchange(t, headers);
      assert.deepEqual([response.ends, request.resumed], [1, false]);
    });
  }
});

describe('a whole response', () => {
  /** The sizes of what is written of a body, and 'end'. */
  function written(bytes: number) {
    const calls: unknown[] = [];
    const res = Object.assign(new EventEmitter(), {
      headersSent: false,
      destroyed: false,
      writeHead() {},
      write: ({ length }: Uint8Array) => calls.push(length) < 0,
      end: () => calls.push('end'),
    });
    const req = { complete: true };
    const exchange = { req, res } as unknown as Exchange;
    respondWhole(exchange, { status: 200, headers: {}, body: new Uint8Array(bytes) });
    return { calls, res };
  }

  it('is written in pieces of 64 KiB at most, each when the client has taken the one before, and then ends', () => {
    const { calls, res } = written(150_000);
    assert.deepEqual(calls, [65_536]);
    res.emit('drain');
    assert.deepEqual(calls, [65_536, 65_536]);
    res.emit('drain');
    assert.deepEqual(calls, [65_536, 65_536, 18_928]);
    res.emit('drain');
    assert.deepEqual(calls, [65_536, 65_536, 18_928, 'end']);
    assert.equal(res.listenerCount('drain'), 0);
  });

  it('is not written on after its client has left', () => {
    const { calls, res } = written(150_000);
    res.destroyed = true;
    res.emit('drain');
    assert.deepEqual(calls, [65_536]);
  });
});

describe('a connection that is broken on purpose', () => {
  const breaking: [version: string, headers: Record<string, string>, rest: RegExp][] = [
    ['1.0', {}, /\r\n\r\npart$/],
    ['1.1', {}, /\r\n\r\n4\r\npart\r\n$/],
    ['1.1', { 'content-length': '99' }, /\r\n\r\npart$/],
  ];
  for (const [version, headers, rest] of breaking) {
    it(`is closed on a socket file, which has no reset: HTTP/${version}, ${JSON.stringify(headers)}`, async (t) => {
      const path = join(temporaryDirectory('own-response-'), 'a.sock');
      const thrown: unknown[] = [];
      const server = createServer((_, res) => {
        res.writeHead(200, headers).write('part', () => {
          try {
            breakConnection({ res } as unknown as Exchange);
          } catch (reason) {
            thrown.push(reason);
            res.destroy();
          }
        });
      });
      t.after(() => server.close());
      await new Promise<void>((resolve) => server.listen(path, resolve));
      const client = connect(path);
      client.write(`GET / HTTP/${version}\r\nHost: localhost\r\n\r\n`);
      assert.match(await text(client), rest);
      assert.deepEqual(thrown, []);
    });
  }
});
