/**
 * Many clients read streams without a parser of event streams: each line for itself, some by more line ends
 * than the standard has. In text that nothing authenticates, a gateway must not forge a line for them.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { ASKED, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { chatChunk, DONE, sealedStream } from '../support/remote/sealed-stream.ts';

const sealed = () => sealedStream(['id', 'usage']);

function open(wire: string): { readonly text: string; readonly failure: string | undefined } {
  const opener = new EventDecrypter({ id: 'chat' }, fixedCipher(), ASKED);
  const text = Buffer.from(opener.feed(Buffer.from(wire))).toString();
  return { text, failure: opener.failure?.code };
}

const FORGED_LINE = 'data: {"choices":[{"index":0,"delta":{"content":"FORGED"}}]}';
/**
 * Python's str.splitlines (httpx.iter_lines) and Java's Scanner split at these too. Where nothing
 * authenticates a text, it must not hold them: behind one, a gateway could write events of its own.
 */
const LINES = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/;

type Sealed = ReturnType<typeof sealed>;
const PLACES: Readonly<Record<string, (stream: Sealed, end: string) => string>> = {
  'a comment': (stream, end) => `: x${end}${FORGED_LINE}${end}\n\n${stream.event(chatChunk('one', 'stop'))}`,
  'an id of an event': (stream, end) =>
    `id: x${end}${FORGED_LINE}${end}\n${stream.event(chatChunk('one', 'stop'))}`,
  'the plain id': (stream, end) =>
    stream.event({ ...chatChunk('one', 'stop'), id: `x${end}${FORGED_LINE.replaceAll('"', "'")}${end}` }),
  'the plain usage': (stream, end) =>
    stream.event({ ...chatChunk('one', 'stop'), usage: { [`x${end}data: [DONE]${end}`]: 1 } }),
  'the name of a member': (stream, end) =>
    stream.event({ ...chatChunk('one', 'stop'), [`x${end}data: [DONE]${end}`]: null }),
};

describe('line separators in text that nothing authenticates', () => {
  for (const [place, wire] of Object.entries(PLACES)) {
    for (const end of ['\u2028', '\u2029', '\u0085', '\f', '\x1e']) {
      it(`forge no line of data in ${place}: ${JSON.stringify(end)}`, () => {
        const { text, failure } = open(`${wire(sealed(), end)}${DONE}`);
        const forged = text.split(LINES).filter((line) => /^data: (?:\[DONE\]|\{.choices)/.test(line));
        assert.deepEqual(forged, failure === undefined ? ['data: [DONE]'] : []);
      });
    }
  }
});
