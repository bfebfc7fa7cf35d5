import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, it, type TestContext } from 'node:test';
import { endAfterUpload } from '../../lib/gateway/own-response.ts';

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
  endAfterUpload(request as unknown as IncomingMessage, response as unknown as ServerResponse);
  return { request, response, arrives: (size: number) => request.emit('data', Buffer.alloc(size)) };
}

describe('an answer before the end of the upload', () => {
  it('ends once one MiB more has been thrown away, and not before', (t) => {
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

  it('ends after 10 000 pieces, however small', (t) => {
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
    it(`ends at once where no body is to come: ${JSON.stringify(headers)}`, (t) => {
      const { request, response } = exchange(t, headers);
      assert.deepEqual([response.ends, request.resumed], [1, false]);
    });
  }
});
