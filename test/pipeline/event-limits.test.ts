/** How large an event may be on the wire, however it is written. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { byteByByte } from '../support/remote/chunkings.ts';
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
  it('is 32 MiB on the wire', () => {
    const text = 'x'.repeat(33_554_432);
    assert.equal(failure([Buffer.from(text)]), undefined);
    assert.equal(failure([Buffer.from(text), Buffer.from('x')]), 'response_too_large');
  });

  it('counts all lines of which the event is not complete', () => {
    for (const start of [': ', 'data: ', 'event: ', 'x', 'data:\n', 'data:\n: x\n', 'id: 1\nretry: 1\n']) {
      const lines = (bytes: number) => Buffer.from(start.repeat(200).slice(0, bytes));
      for (const inParts of [(bytes: Buffer) => [bytes], byteByByte]) {
        assert.equal(failure(inParts(lines(100)), 100), undefined, start);
        assert.equal(failure(inParts(lines(101)), 100), 'response_too_large', start);
      }
    }
  });

  it('is counted anew after each event', () => {
    const wire = Buffer.from('data: [DONE]\n\n'.repeat(20)); // means nothing there
    assert.equal(failure([wire.subarray(0, 80), wire.subarray(80)], 100, 'messages'), undefined);
  });
});

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

const MIB = 1024 * 1024;
function inUse(): number {
  collect();
  collect(); // memory outside of the heap goes with the second one
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

it('an event without an end takes no more memory than it says, however short its lines', () => {
  for (const line of ['data:a\n', 'data:ab\r', 'data:\n']) {
    const chunk = Buffer.from(line.repeat(2048));
    const opener = new EventDecrypter({ id: 'chat' }, fixedCipher(), ASKED);
    opener.feed(chunk);
    assert.equal(opener.held, 0); // up to 16 KiB: it is not large
    const before = inUse();
    for (let k = 1; k < 200; k++) opener.feed(chunk);
    const kept = inUse() - before;
    assert.equal(opener.failure, undefined);
    assert.ok(kept < opener.held, `${kept} of ${opener.held}`);
  }
});

it('a stream has at most 10,000 chunks below 64 bytes between two events', () => {
  const heartbeat = Buffer.from('data:\n\n');
  const crumbs = (count: number): Buffer[] => Array<Buffer>(count).fill(heartbeat);
  assert.equal(failure(crumbs(10_000)), undefined);
  assert.equal(failure(crumbs(10_001)), 'response_malformed');
  const event = Buffer.from(sealedStream(['id', 'usage']).event(chatChunk('x')));
  assert.equal(failure([...crumbs(10_000), event, ...crumbs(10_000)]), undefined);
  assert.equal(failure([...crumbs(10_000), event, ...crumbs(10_001)]), 'response_malformed');
});

it('a stream keeps less than 16 MiB of eight events of 4 MiB, each of which has one more member', () => {
  const sealed = sealedStream(['id', 'usage']);
  const opener = new EventDecrypter({ id: 'chat' }, fixedCipher(), ASKED);
  const more: Record<string, null> = {};
  const before = inUse();
  for (let k = 0; k < 8; k++) {
    more[`a_member_with_a_long_name_${k}`] = null; // V8 copies short ones
    opener.feed(Buffer.from(sealed.event({ ...chatChunk('x'.repeat(2 * MIB)), ...more })));
  }
  const kept = (inUse() - before) / MIB;
  assert.equal(opener.events, 8);
  assert.ok(kept < 16, `${kept.toFixed(1)} MiB are kept`);
});
