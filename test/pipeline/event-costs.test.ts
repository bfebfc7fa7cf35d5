/** What a gateway can make the proxy compute with few bytes. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createEventDecrypter, type EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { ASKED, fixedCipher } from '../support/exchange-fixture.ts';

const stream = (): EventDecrypter => createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, 1 << 20);

/** ms that a chunk of 32 KiB takes; the least of several, for others compute too. */
function cost(line: string): number {
  const chunk = Buffer.from(line.repeat((32 * 1024) / line.length));
  const times = [1, 2, 3].map(() => {
    const opener = stream();
    const start = performance.now();
    opener.feed(chunk);
    return performance.now() - start;
  });
  return Math.min(...times);
}

describe('the cost of lines that mean nothing', () => {
  cost(':\n'); // compiles
  for (const line of ['a\n', 'retry:x\n']) {
    it(`${JSON.stringify(line)}: no more than eight times that of comments`, { timeout: 60_000 }, () => {
      const [comments, others] = [cost(':\n'), cost(line)];
      assert.ok(others < 8 * comments, `${others.toFixed(1)} ms against ${comments.toFixed(1)} ms`);
    });
  }
});

describe('plain members of many numbers', () => {
  for (const usage of [`{"a":[${'1,'.repeat(7_000)}1]}`, `{"a":"${'1a'.repeat(7_000)}"}`]) {
    it(`${usage.slice(0, 10)}: passed on or refused as malformed, not an internal error`, () => {
      const opener = createEventDecrypter({ id: 'messages' }, fixedCipher(), ASKED, 1 << 20);
      opener.feed(Buffer.from(`event: ping\ndata: {"type":"ping","usage":${usage}}\n\n`));
      assert.equal(opener.failure?.code ?? 'response_malformed', 'response_malformed');
    });
  }
});
