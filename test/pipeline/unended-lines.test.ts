import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createEventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { cutAt } from '../support/chunkings.ts';
import { ASKED, fixedCipher } from '../support/exchange-fixture.ts';

describe('event streams, lines without a blank line', () => {
  const failure = (wire: string, size: number): string | undefined => {
    const bytes = Buffer.from(wire);
    const opener = createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, 2500);
    const cuts = Array.from({ length: Math.floor(bytes.length / size) }, (_, i) => i * size);
    for (const chunk of cutAt(bytes, cuts)) opener.feed(chunk);
    return opener.failure?.code;
  };

  for (const [name, line] of [
    ['data without bytes', 'data:\n'],
    ['data with CRLF', 'data:\r\n'],
    ['data between comments', 'data:\n: x\n'],
    ['names', 'event: x\n'],
    ['ids', 'id: 1\n'],
    ['unknown fields', 'x\n'],
  ] as const) {
    it(`${name}: refused beyond the limit of an event`, () => {
      const count = Math.ceil(2600 / line.length);
      for (const size of [1, 100, 10_000]) {
        assert.equal(failure(line.repeat(count), size), 'response_too_large', `${size}`);
      }
      assert.equal(failure(line.repeat(Math.floor(2400 / line.length)), 100), undefined);
    });
  }

  it('are counted anew after a blank line that two chunks share', () => {
    for (const [bytes, code] of [
      [2516, undefined],
      [2517, 'response_too_large'],
    ] as const) {
      const opener = createEventDecrypter({ id: 'messages' }, fixedCipher(), ASKED, 2500);
      for (const chunk of ['data: [DONE]\n', '\n', ': '.padEnd(bytes, 'x')]) {
        opener.feed(Buffer.from(chunk));
      }
      assert.equal(opener.failure?.code, code, `${bytes}`);
    }
  });

  for (const end of ['\n\n', '\r\n\r\n', '\r\r']) {
    it(`comments may come without end, each with ${JSON.stringify(end)}`, () => {
      for (const size of [100, 10_000]) assert.equal(failure(`: ping${end}`.repeat(5000), size), undefined);
    });
  }
});
