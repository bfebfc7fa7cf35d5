/** What the fast path by bytes takes must be what a client would read: a line end inside of data is none of the text of the line. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createEventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { ASKED, fixedCipher } from '../support/exchange-fixture.ts';
import { chatChunk, DONE, sealedStream } from '../support/sealed-stream.ts';

/** The data of each event that is dispatched, as the HTML standard reads LF-only text: an event without data is none. */
function dispatched(text: string): string[] {
  return text.split('\n\n').flatMap((block) => {
    const lines = block.split('\n').filter((line) => line.startsWith('data:'));
    const data = lines.map((line) => line.replace(/^data: ?/, '')).join('\n');
    return data === '' ? [] : [data];
  });
}

describe('raw line ends in an event like one whose data had line ends', () => {
  for (const lines of ['\n', '\n\n', ' \n']) {
    it(`${JSON.stringify(lines)} before the data: no event is lost without an error`, () => {
      const sealed = sealedStream(['id', 'usage']);
      const opener = createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, 1 << 20);
      const first = `data: ${lines.replaceAll('\n', '\ndata: ')}${sealed.data(chatChunk('one'))}\n\n`;
      const second = `data: ${lines}${sealed.data(chatChunk('two'))}\n\n`;
      const wire = `${first}${second}${sealed.event(chatChunk('three', 'stop'))}${DONE}`;
      const text = Buffer.from(opener.feed(Buffer.from(wire))).toString();
      const read = dispatched(text).filter((data) => data !== '[DONE]');
      const words = read.map((data) => JSON.parse(data).choices[0].delta.content);
      assert.deepEqual(words, ['one', 'two', 'three'].slice(0, words.length));
      if (opener.failure === undefined) assert.deepEqual(words, ['one', 'two', 'three']);
    });
  }
});
