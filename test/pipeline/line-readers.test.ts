/**
 * Many clients read streams without a parser of event streams: each line for itself, skipping what is no JSON, or whatever follows
 * `data: ` anywhere in a line. The framing is not authenticated: with it a gateway must neither hide an event from them nor add one.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createEventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { ASKED, fixedCipher } from '../support/exchange-fixture.ts';
import { chatChunk, DONE, sealedStream } from '../support/sealed-stream.ts';

const FORGED = '{"choices":[{"index":0,"delta":{"content":"FORGED"}}]}';

const READERS: Readonly<Record<string, (text: string) => string[]>> = {
  'each line for itself': (text) => text.split('\n').flatMap((line) => line.match(/^data:(.*)/)?.[1] ?? []),
  'what follows `data: `': (text) => text.split('data: ').map((part) => part.split('\n', 1)[0]!),
  'lines without the name': (text) => text.split('\n').map((line) => line.replace(/^\w*:/, '')),
};

function wordsOf(lines: readonly string[]): string[] {
  return lines.flatMap((line) => {
    try {
      return JSON.parse(line).choices[0].delta.content as string;
    } catch {
      return [];
    }
  });
}

const two = (edit: (event: string) => string): string => {
  const stream = sealedStream(['id', 'usage']);
  return `${edit(stream.event(chatChunk('one')))}${stream.event(chatChunk('two', 'stop'))}${DONE}`;
};
const ATTACKS: Readonly<Record<string, string>> = {
  'data in several lines': two((event) => event.replace(/ , /g, '\ndata: , ')),
  'a comment with data': two((event) => `: data: ${FORGED}\n\n${event}`),
  'a comment that is JSON': two((event) => `:${FORGED}\n\n${event}`),
  'an id with data': two((event) => `id: data: ${FORGED}\n${event}`),
  'an id that is JSON': two((event) => `id:${FORGED}\n${event}`),
};

describe('a stream read line by line', () => {
  for (const [attack, wire] of Object.entries(ATTACKS)) {
    for (const [reader, lines] of Object.entries(READERS)) {
      it(`${attack}, ${reader}: the honest events`, () => {
        const opener = createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED);
        const text = Buffer.from(opener.feed(Buffer.from(wire))).toString();
        assert.equal(opener.failure, undefined);
        assert.deepEqual(wordsOf(lines(text)), ['one', 'two']);
      });
    }
  }

  it('keeps comments and ids that are a few words, and a comment of anything else as an empty one', () => {
    const opener = createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED);
    const text = `: keep-alive 2\n\n: ping: 1\n\n:${'x'.repeat(257)}\n\n`;
    assert.equal(Buffer.from(opener.feed(Buffer.from(text))).toString(), ': keep-alive 2\n\n:\n\n:\n\n');
  });
});
