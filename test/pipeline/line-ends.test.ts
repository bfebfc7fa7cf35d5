/**
 * Many clients read streams without a parser of event streams: each line for itself, skipping what is no
 * JSON, or whatever follows `data: ` anywhere in a line. The framing is not authenticated: with it a gateway
 * must neither hide an event from them nor add one.
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
  const stream = sealed();
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
      it(`has only the honest events, with ${attack}, for a client that reads ${reader}`, () => {
        const { text, failure } = open(wire);
        assert.equal(failure, undefined);
        assert.deepEqual(wordsOf(lines(text)), ['one', 'two']);
      });
    }
  }
});

const FORGED_LINE = `data: ${FORGED}`;
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
