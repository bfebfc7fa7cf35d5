/** How large an event may be on the wire, however it is written. */
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

  it('allows 16 bytes more for any lines on the wire before the event is complete', () => {
    for (const start of [': ', 'data: ', 'event: ', 'x', 'data:\n', 'data:\n: x\n', 'id: 1\nretry: 1\n']) {
      const lines = (bytes: number) => Buffer.from(start.repeat(200).slice(0, bytes));
      for (const chunks of [[lines(116)], byteByByte(lines(116))]) {
        assert.equal(failure(chunks, 100), undefined, start);
      }
      for (const chunks of [[lines(117)], byteByByte(lines(117))]) {
        assert.equal(failure(chunks, 100), 'response_too_large', start);
      }
    }
  });

  it('fails an event with response_too_large, whether it arrives whole or in parts', () => {
    const wire = Buffer.from(sealedStream(['id', 'usage']).event(chatChunk('x'.repeat(2000), 'stop')));
    for (const chunks of [[wire], byteByByte(wire), cutAt(wire, [3000])]) {
      assert.equal(failure(chunks, 2500), 'response_too_large');
    }
  });

  it('is counted anew after each event', () => {
    const wire = Buffer.from('data: [DONE]\n\n'.repeat(20)); // means nothing there
    assert.equal(failure([wire.subarray(0, 80), wire.subarray(80)], 100, 'messages'), undefined);
  });
});
