import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { BodyHash, ObservedResponse } from '../../lib/gateway/observed-response.ts';

/** What the client got, and what the response says of it. */
async function deliver(write: (res: ObservedResponse) => unknown, method = 'GET') {
  const noted = Promise.withResolvers<ReturnType<BodyHash['digest']>>();
  const server = createServer({ ServerResponse: ObservedResponse }, async (_req, res) => {
    const hash = new BodyHash();
    res.observe({ responseBody: (chunk) => hash.update(chunk) });
    res.once('close', () => noted.resolve(hash.digest()));
    await write(res);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const { port } = server.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/`, { method });
    const body = Buffer.from(await response.arrayBuffer());
    const expected = { sha256: createHash('sha256').update(body).digest('hex'), bytes: body.length };
    return { noted: await noted.promise, expected };
  } finally {
    server.close();
    server.closeAllConnections();
  }
}

describe('the digest of a response', () => {
  const WAYS = {
    'written in pieces': (res: ObservedResponse) => {
      res.write('one');
      res.write(Buffer.from('two'));
      res.end('thrée');
    },
    'given at its end': (res: ObservedResponse) => res.end(new Uint8Array([1, 2, 3])),
    'piped into it': (res: ObservedResponse) =>
      pipeline(Readable.from([Buffer.from('a'), Buffer.from('b')]), res),
    'written in many short pieces, a long one among them': (res: ObservedResponse) => {
      for (const length of [1, 700, 2047, 2048, 2049, 3, 4096, 5000, 1, 2048, 2048, 2048, 90]) {
        const piece = Buffer.alloc(length, length);
        res.write(piece);
        res.write(''); // nothing
      }
      res.end();
    },
    'of no body': (res: ObservedResponse) => res.writeHead(204).end(),
    'written after its end': (res: ObservedResponse) => {
      res.on('error', () => {});
      res.end('all');
      res.write('more');
    },
  };
  for (const [how, write] of Object.entries(WAYS)) {
    it(`is that of the body that the client got: ${how}`, async () => {
      const { noted, expected } = await deliver(write);
      assert.deepEqual(noted, expected);
    });
  }

  it('is that of an empty body if the request was HEAD', async () => {
    const { noted, expected } = await deliver((res) => {
      res.write('dropped by Node');
      res.end();
    }, 'HEAD');
    assert.deepEqual([noted, noted.bytes], [expected, 0]);
  });
});
