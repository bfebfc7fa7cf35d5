/** Responses in chunks are what Node's own would be, whatever is written to them and in which order. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, get, ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { describe, it } from 'node:test';
import { AppResponse, BodyHash } from '../../lib/gateway/app-response.ts';

type Answer = (response: ServerResponse) => void | Promise<void>;

/** The raw bytes of what `answer` gives to that many requests on one connection, sent together. */
async function bytesOf(
  answer: Answer,
  {
    head = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n',
    requests = 1,
    Response = AppResponse as typeof ServerResponse,
  } = {},
): Promise<string> {
  const server = createServer({ ServerResponse: Response, keepAlive: false }, (_, response) => {
    response.sendDate = false;
    void answer(response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  const last = head.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n');
  socket.write(head.repeat(requests - 1) + last);
  let text = '';
  socket.setEncoding('latin1').on('data', (piece: string) => {
    text += piece;
  });
  await once(socket, 'close');
  server.close();
  return text;
}

const later = (): Promise<void> => new Promise((done) => setImmediate(done));

const ANSWERS: Readonly<Record<string, Answer>> = {
  'one piece': (response) => void response.end('whole'),
  'a piece and the end': (response) => {
    response.write('first');
    response.end();
  },
  'a piece at each turn': async (response) => {
    for (const piece of ['a', 'bb', 'c'.repeat(300)]) {
      response.write(Buffer.from(piece));
      await later();
    }
    response.end();
  },
  'a piece with the end': async (response) => {
    response.write('first');
    await later();
    response.end('last');
  },
  'text in another encoding': async (response) => {
    response.write('e9', 'hex');
    await later();
    response.write('\u00e9', 'latin1');
    await later();
    response.end();
  },
  'empty pieces': async (response) => {
    response.write('');
    response.write(Buffer.alloc(0));
    response.write('x');
    await later();
    response.write('');
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
    response.end('cd');
  },
  'no body': (response) => {
    response.writeHead(204);
    response.write('dropped');
    response.end();
  },
  'a large piece': async (response) => {
    response.write('x'.repeat(300_000));
    await later();
    response.end();
  },
};
const REQUESTS: Readonly<Record<string, string>> = {
  GET: 'GET / HTTP/1.1\r\nHost: x\r\n\r\n',
  HEAD: 'HEAD / HTTP/1.1\r\nHost: x\r\n\r\n',
  'HTTP/1.0': 'GET / HTTP/1.0\r\n\r\n',
};

describe('a response in chunks', { timeout: 600_000 }, () => {
  for (const [what, answer] of Object.entries(ANSWERS)) {
    for (const [which, head] of Object.entries(REQUESTS)) {
      it(`has the same bytes as Node's own response: ${what}, for ${which}`, async () => {
        const [ours, nodes] = [
          await bytesOf(answer, { head }),
          await bytesOf(answer, { head, Response: ServerResponse }),
        ];
        assert.equal(ours, nodes);
      });
    }
  }

  it('keeps the order of responses on a connection', async () => {
    const number = { next: 0 };
    const answer: Answer = async (response) => {
      const mine = number.next++;
      for (let turn = 3; turn > mine; turn--) await later(); // the last is ready first
      response.write(`<${mine}`);
      response.write('-');
      response.end(`${mine}>`);
    };
    const text = await bytesOf(answer, { requests: 3 });
    const bodies = text
      .split('HTTP/1.1 200 OK')
      .map((each) => each.replace(/[\s\S]*?\r\n\r\n/, '').replace(/\r\n|^[0-9a-f]+$/gm, ''));
    assert.deepEqual(bodies.slice(1), ['<0-0>', '<1-1>', '<2-2>']);
  });

  it('signals by write() and drain that a reader is slow or has caught up, and calls back for each piece', async () => {
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
          assert.equal(response.writableNeedDrain, true);
          const drained = once(response, 'drain', { signal: AbortSignal.timeout(5_000) });
          if ((await drained.catch(() => undefined)) === undefined) response.destroy();
        }
        response.end();
      },
    ).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const request = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' });
    const [response] = await once(request, 'response');
    await new Promise((done) => setTimeout(done, 50));
    let bytes = 0;
    for await (const piece of response) bytes += (piece as Buffer).length;
    assert.equal(bytes, PIECES * 65_536);
    assert.ok(refused > 0, 'the reader was not slow');
    assert.equal(called, PIECES);
    server.close();
  });

  it('refuses a write after its end as Node does', async () => {
    const codes: unknown[] = [];
    await bytesOf((response) => {
      response.on('error', (error: NodeJS.ErrnoException) => codes.push(error.code));
      response.write('x');
      response.end();
      response.write('y', (error) => codes.push((error as NodeJS.ErrnoException | undefined)?.code));
    });
    assert.deepEqual(new Set(codes), new Set(['ERR_STREAM_WRITE_AFTER_END']));
  });
});

/** What the client got, and what the response says of it. */
async function deliver(write: (res: AppResponse) => unknown, method = 'GET') {
  const noted = Promise.withResolvers<ReturnType<BodyHash['digest']>>();
  const server = createServer({ ServerResponse: AppResponse }, async (_req, res) => {
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
    'written in pieces': (res: AppResponse) => {
      res.write('one');
      res.write(Buffer.from('two'));
      res.end('thrée');
    },
    'given at its end': (res: AppResponse) => res.end(new Uint8Array([1, 2, 3])),
    'piped into it': (res: AppResponse) => pipeline(Readable.from([Buffer.from('a'), Buffer.from('b')]), res),
    'written in many short pieces, a long one among them': (res: AppResponse) => {
      for (const length of [1, 700, 2047, 2048, 2049, 3, 4096, 5000, 1, 2048, 2048, 2048, 90]) {
        const piece = Buffer.alloc(length, length);
        res.write(piece);
        res.write(''); // nothing
      }
      res.end();
    },
    'of no body': (res: AppResponse) => res.writeHead(204).end(),
    'written after its end': (res: AppResponse) => {
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
