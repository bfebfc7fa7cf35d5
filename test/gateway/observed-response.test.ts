/**
 * The class of the gateway's responses writes what Node's own would. That receipts have what the client got
 * is test/e2e/receipts.test.ts.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, get, ServerResponse } from 'node:http';
import { connect } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { describe, it, type TestContext } from 'node:test';
import { AppResponse } from '../../lib/gateway/observed-response.ts';
import { eventually } from '../support/processes/eventually.ts';
import { listening } from '../support/remote/loopback.ts';

type Answer = (response: ServerResponse) => void | Promise<void>;

/** The raw bytes of what `answer` gives to that request. */
async function bytesOf(t: TestContext, answer: Answer, head: string, Response: typeof ServerResponse) {
  const server = createServer({ ServerResponse: Response, keepAlive: false }, (_, response) => {
    response.sendDate = false;
    void answer(response);
  });
  const socket = connect((await listening(t, server)).port, '127.0.0.1');
  socket.write(`${head}Connection: close\r\n\r\n`);
  return text(socket);
}

const later = (): Promise<void> => new Promise((done) => setImmediate(done));

const ANSWERS: Readonly<Record<string, Answer>> = {
  'pieces, each at a turn of its own, a large one among them': async (response) => {
    for (const piece of ['a', 'bb', 'x'.repeat(300_000)]) {
      response.write(Buffer.from(piece));
      await later();
    }
    response.write('last');
    response.end();
  },
  'text, and empty pieces': async (response) => {
    response.write('');
    response.write('\u00e9');
    await later();
    response.write(Buffer.alloc(0));
    response.end();
  },
  'a head of its own': async (response) => {
    response.writeHead(201, { 'x-y': 'z' });
    response.flushHeaders();
    response.write('x');
    await later();
    response.end();
  },
  'a length': (response) => {
    response.writeHead(200, { 'content-length': 4 });
    response.write('ab');
    response.write('cd');
    response.end();
  },
  'no body': (response) => {
    response.writeHead(204);
    response.write('dropped');
    response.end();
  },
};
const REQUESTS = ['GET / HTTP/1.1\r\nHost: x\r\n', 'HEAD / HTTP/1.1\r\nHost: x\r\n', 'GET / HTTP/1.0\r\n'];

describe('the response of the gateway', () => {
  for (const [what, answer] of Object.entries(ANSWERS)) {
    it(`has the same bytes as Node's own, for GET, HEAD and HTTP/1.0: ${what}`, async (t) => {
      for (const head of REQUESTS) {
        const ours = await bytesOf(t, answer, head, AppResponse as typeof ServerResponse);
        assert.equal(ours, await bytesOf(t, answer, head, ServerResponse));
      }
    });
  }

  it('says by write() and drain that a reader is slow or has caught up, and calls back for each piece', async (t) => {
    const PIECES = 200;
    let [refused, called] = [0, 0];
    const server = createServer(
      { ServerResponse: AppResponse as typeof ServerResponse },
      async (_, response) => {
        for (let i = 0; i < PIECES; i++) {
          const more = response.write(Buffer.alloc(65_536, i), () => {
            called += 1;
          });
          if (more) continue;
          refused += 1;
          await once(response, 'drain');
        }
        response.end();
      },
    );
    const request = get({ port: (await listening(t, server)).port, host: '127.0.0.1' });
    const [response] = await once(request, 'response');
    await eventually('full buffers', () => refused > 0);
    assert.equal((await buffer(response)).length, PIECES * 65_536);
    assert.equal(called, PIECES);
  });
});
