/** How large an event may be, and what a gateway can make the proxy compute with few bytes. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { byteByByte, cutAt } from '../support/remote/chunkings.ts';
import { ASKED, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { chatChunk, sealedStream } from '../support/remote/sealed-stream.ts';

/** The code with which these chunks fail, under that limit in bytes. */
function failure(
  chunks: Iterable<Uint8Array>,
  limit?: number,
  id: 'chat' | 'messages' = 'chat',
): string | undefined {
  const opener = new EventDecrypter({ id }, fixedCipher(), ASKED, limit);
  for (const chunk of chunks) opener.feed(chunk);
  return opener.failure?.code;
}

describe('the limit of an event', () => {
  it('is 32 MiB of data', () => {
    const blanks = 'x'.repeat(33_554_432); // no JSON
    assert.equal(failure([Buffer.from(`data: ${blanks}\n\n`)]), 'response_malformed');
    assert.equal(failure([Buffer.from(`data: x${blanks}\n\n`)]), 'response_too_large');
  });

  it('allows 16 bytes more for any lines on the wire without a blank line', () => {
    for (const start of [': ', 'data: ', 'event: ', 'x']) {
      const line = (bytes: number): Buffer[] => [Buffer.from(start.padEnd(bytes, 'y'))];
      assert.equal(failure(line(116), 100), undefined, start);
      assert.equal(failure(line(117), 100), 'response_too_large', start);
    }
  });

  it('fails an event with response_too_large, whether it arrives whole or byte by byte', () => {
    const event = sealedStream(['id', 'usage']).event(chatChunk('x'.repeat(2000), 'stop'));
    for (const wire of [event, `: ${'x'.repeat(3000)}`, 'data: x\n'.repeat(3000)].map((text) =>
      Buffer.from(text),
    )) {
      for (const chunks of [[wire], byteByByte(wire), cutAt(wire, [3000])]) {
        assert.equal(failure(chunks, 2500), 'response_too_large');
      }
    }
  });
});

describe('lines of a stream without a blank line between them', () => {
  const failureOf = (wire: string, size: number): string | undefined => {
    const bytes = Buffer.from(wire);
    const cuts = Array.from({ length: Math.floor(bytes.length / size) }, (_, i) => i * size);
    return failure(cutAt(bytes, cuts), 2500);
  };

  for (const [name, line] of [
    ['data without bytes', 'data:\n'],
    ['data with CRLF', 'data:\r\n'],
    ['data between comments', 'data:\n: x\n'],
    ['names', 'event: x\n'],
    ['ids', 'id: 1\n'],
    ['unknown fields', 'x\n'],
  ] as const) {
    it(`fail with response_too_large once together they exceed the limit of an event: ${name}`, () => {
      const count = Math.ceil(2600 / line.length);
      for (const size of [1, 100, 10_000]) {
        assert.equal(failureOf(line.repeat(count), size), 'response_too_large', `${size}`);
      }
      assert.equal(failureOf(line.repeat(Math.floor(2400 / line.length)), 100), undefined);
    });
  }

  it('are counted from zero after a blank line, even if its two line ends are in two chunks', () => {
    for (const [bytes, code] of [
      [2516, undefined],
      [2517, 'response_too_large'],
    ] as const) {
      const chunks = ['data: [DONE]\n', '\n', ': '.padEnd(bytes, 'x')].map((text) => Buffer.from(text));
      assert.equal(failure(chunks, 2500, 'messages'), code, `${bytes}`);
    }
  });

  for (const end of ['\n\n', '\r\n\r\n', '\r\r']) {
    it(`do not include comments that each end with a blank line, which may come without limit: ${JSON.stringify(end)}`, () => {
      for (const size of [100, 10_000]) assert.equal(failureOf(`: ping${end}`.repeat(5000), size), undefined);
    });
  }
});

/** ms that a chunk of 32 KiB takes; the least of several, for others compute too. */
function cost(line: string): number {
  const chunk = Buffer.from(line.repeat((32 * 1024) / line.length));
  const times = [1, 2, 3].map(() => {
    const start = performance.now();
    failure([chunk], 1 << 20);
    return performance.now() - start;
  });
  return Math.min(...times);
}

describe('the time for lines that mean nothing', () => {
  cost(':\n'); // compiles
  for (const line of ['a\n', 'retry:x\n']) {
    it(`is, for ${JSON.stringify(line)}, at most eight times that for comments`, { timeout: 600_000 }, () => {
      const [comments, others] = [cost(':\n'), cost(line)];
      assert.ok(others < 8 * comments, `${others.toFixed(1)} ms against ${comments.toFixed(1)} ms`);
    });
  }
});

describe('plain members of many numbers', () => {
  for (const usage of [`{"a":[${'1,'.repeat(7_000)}1]}`, `{"a":"${'1a'.repeat(7_000)}"}`]) {
    it(`are passed on or refused as malformed, and cause no internal error: ${usage.slice(0, 10)}`, () => {
      const wire = Buffer.from(`event: ping\ndata: {"type":"ping","usage":${usage}}\n\n`);
      assert.equal(failure([wire], 1 << 20, 'messages') ?? 'response_malformed', 'response_malformed');
    });
  }
});
