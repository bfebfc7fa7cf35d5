/**
 * Clients that read lines with Python's str.splitlines (httpx.iter_lines) or Java's Scanner also split at other characters than CR and
 * LF. Where nothing authenticates a text, it must not hold them: behind one, a gateway could write events of its own.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createEventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { ASKED, fixedCipher } from '../support/exchange-fixture.ts';
import { chatChunk, DONE, sealedStream } from '../support/sealed-stream.ts';

const FORGED = 'data: {"choices":[{"index":0,"delta":{"content":"FORGED"}}]}';
const LINES = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/;

const sealed = () => sealedStream(['id', 'usage']);
type Sealed = ReturnType<typeof sealed>;
const PLACES: Readonly<Record<string, (stream: Sealed, end: string) => string>> = {
  'a comment': (stream, end) => `: x${end}${FORGED}${end}\n\n${stream.event(chatChunk('one', 'stop'))}`,
  'an id of an event': (stream, end) =>
    `id: x${end}${FORGED}${end}\n${stream.event(chatChunk('one', 'stop'))}`,
  'the plain id': (stream, end) =>
    stream.event({ ...chatChunk('one', 'stop'), id: `x${end}${FORGED.replaceAll('"', "'")}${end}` }),
  'the plain usage': (stream, end) =>
    stream.event({ ...chatChunk('one', 'stop'), usage: { [`x${end}data: [DONE]${end}`]: 1 } }),
  'the name of a member': (stream, end) =>
    stream.event({ ...chatChunk('one', 'stop'), [`x${end}data: [DONE]${end}`]: null }),
};

describe('line separators in text that nothing authenticates', () => {
  for (const [place, wire] of Object.entries(PLACES)) {
    for (const end of ['\u2028', '\u2029', '\u0085', '\f', '\x1e']) {
      it(`${place}: ${JSON.stringify(end)}`, () => {
        const opener = createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, 1 << 20);
        const text = Buffer.from(opener.feed(Buffer.from(`${wire(sealed(), end)}${DONE}`))).toString();
        const forged = text.split(LINES).filter((line) => /^data: (?:\[DONE\]|\{.choices)/.test(line));
        assert.deepEqual(forged, opener.failure === undefined ? ['data: [DONE]'] : []);
      });
    }
  }
});
