/**
 * Bodies that are meant to hurt: what is sealed is what was read, and nothing of it takes more than its
 * share.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { describe, it } from 'node:test';
import { startGateway } from '../support/doors/gateway.ts';
import {
  answerTo,
  assertError,
  CANARY,
  chatBody,
  gatewayFixture,
  post,
} from '../support/doors/gateway-fixture.ts';
import { rawClient } from '../support/doors/raw-client.ts';
import { completion, openedRequest } from '../support/remote/sealed-answers.ts';
import { createTestAuthority } from '../support/remote/tls-authority.ts';

const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);
const member = (text: string): string => `{"model":"m","messages":[],${text}}`;

/** How each of these, and others, is read: test/json/scan.test.ts, test/pipeline/request-body.test.ts. */
const REFUSED: [name: string, body: string | Buffer, code: string][] = [
  ['a member twice, once escaped', member(`"user":1,"\\u0075ser":"${CANARY}"`), 'duplicate_member'],
  ['a name that is a modifier', member(`"@this":"${CANARY}"`), 'unsupported_member_name'],
  ['a name that would be "stream" without its colon', member('":stream":true'), 'unsupported_member_name'],
  ['a plain member of another kind', member(`"n":"${CANARY}"`), 'invalid_plain_member'],
  ['a text in a plain object', member(`"stream_options":{"${CANARY}":true}`), 'invalid_plain_member'],
  ['an object behind the object', `${chatBody()}${chatBody()}`, 'invalid_json'],
  ['an empty body', '', 'invalid_json'],
  ['a byte order mark', `\ufeff${chatBody()}`, 'invalid_json'],
  ['half a surrogate pair as bytes', Buffer.from(member('"a":"\xed\xa0\x80"'), 'latin1'), 'invalid_json'],
  ['100k nested lists as messages', `{"model":"m","messages":${nested(100_000)}}`, 'invalid_json'],
  ['100k brackets of two kinds', `{"a":${'[{"a":'.repeat(100_000)}`, 'invalid_json'],
];

const ACCEPTED: [name: string, body: string, member: string, value: string][] = [
  ['9,000 nested lists as messages', `{"model":"m","messages":${nested(9_000)}}`, 'messages', nested(9_000)],
  ['numbers beyond all doubles', member('"seed":1e999999'), 'seed', '1e999999'],
  ['__proto__ once', member('"__proto__":{"x":1}'), '__proto__', '{"x":1}'],
  ['half a surrogate pair, escaped', member('"a":"\\ud800"'), 'a', '"\\ud800"'],
  ['blanks of all kinds', ' {\r\n"model"\t:\n"m" , "a" : [ 1 , 2 ] }\r\n ', 'a', '[ 1 , 2 ]'],
  ['duplicates further down', member('"a":{"b":1,"b":2}'), 'a', '{"b":1,"b":2}'],
];

describe('hostile bodies', { concurrency: true }, () => {
  for (const [name, body, code] of REFUSED) {
    it(`${name}: 400 ${code}, and nothing is sent`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t);
      const answer = await ask(post(body));
      assertError(answer, 400, code);
      assert.ok(!answer.body.includes(CANARY), 'the answer quotes the body');
      assert.equal(upstream.connections.total, 0);
    });
  }

  for (const [name, body, named, value] of ACCEPTED) {
    it(`${name}: sealed, byte for byte`, async (t) => {
      const { upstream, ask } = await gatewayFixture(t, { answers: completion });
      assert.equal((await ask(post(body))).status, 200);
      const opened = openedRequest(upstream.requests[0]?.body as Buffer);
      assert.ok(opened.get(named) === value, 'the value is another one');
    });
  }
});

describe('a body of 128 MiB', { timeout: 600_000 }, () => {
  it('is sealed without a second copy of all of it', async (t) => {
    const authority = createTestAuthority('sink');
    let received = 0;
    const sink = createServer(authority.issue(['localhost']), (req, res) => {
      req.on('data', (chunk: Buffer) => {
        received += chunk.length;
      });
      req.on('end', () => res.writeHead(400, { 'privatemode-encrypted': 'false' }).end('enough'));
    });
    sink.listen(0, '127.0.0.1');
    await once(sink, 'listening');
    const size = 128 * 1024 * 1024;
    const { port } = sink.address() as AddressInfo;
    const gateway = await startGateway({
      upstream: { port, ca: authority.pem },
      settings: { maxBodyBytes: size },
    });
    const { socket, ...client } = rawClient(gateway.port);
    t.after(async () => {
      socket.destroy();
      await gateway.close();
      sink.closeAllConnections();
      sink.close();
    });

    const before = process.memoryUsage().arrayBuffers;
    let peak = 0;
    const watch = setInterval(() => {
      peak = Math.max(peak, process.memoryUsage().arrayBuffers - before);
    }, 5);
    const head = '{"model":"m","messages":"';
    client.send(post(head, { headers: [`Content-Length: ${size}`] }));
    const block = Buffer.alloc(1024 * 1024, 'x');
    for (let left = size - head.length - 2; left > 0; left -= block.length) {
      if (!socket.write(block.subarray(0, left))) await once(socket, 'drain');
    }
    client.send('"}');
    const answer = await answerTo({ socket, ...client }, 30_000);
    clearInterval(watch);
    assert.deepEqual([answer.status, answer.body], [400, 'enough']);
    assert.ok(received > 2 * size && received < 2 * size + 2_000, `${received} bytes were sent`);
    assert.ok(peak < 2.5 * size, `${Math.round(peak / 2 ** 20)} MiB at the peak`);
  });
});
