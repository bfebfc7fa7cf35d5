import assert from 'node:assert/strict';
import { it } from 'node:test';
import fc from 'fast-check';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { byteByByte, cutAnywhere } from '../support/remote/chunkings.ts';
import { ASKED, EXCHANGE, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { honestExchanges } from '../support/remote/honest-exchanges.ts';
import { literalData, literalOpenStream } from '../support/remote/literal-sse.ts';
import { sealedStream } from '../support/remote/sealed-stream.ts';

type Api = 'chat' | 'messages';
const APIS = {
  chat: { plain: ['id', 'usage'], end: '[DONE]' },
  messages: { plain: ['id', 'type', 'usage'], end: 'message_stop' },
} as const;

interface Opened {
  readonly text: string;
  readonly failure: string | undefined;
  readonly finished: boolean;
}

function open(api: Api, chunks: Iterable<Uint8Array>): Opened {
  const opener = new EventDecrypter({ id: api }, fixedCipher(), ASKED, 1 << 20);
  const delivered: Uint8Array[] = [];
  for (const chunk of chunks) delivered.push(Buffer.from(opener.feed(chunk)));
  opener.end();
  return {
    text: Buffer.concat(delivered).toString('utf8'),
    failure: opener.failure?.code,
    finished: opener.finished,
  };
}

/** The data of what was delivered, each as JSON in one form. */
const dataOf = ({ text }: Opened): string[] =>
  literalData(text).map((each) => (each.startsWith('{') ? JSON.stringify(JSON.parse(each)) : each));

/** The end is delivered in capitals, however the service wrote it. */
const literal = (api: Api, wire: Uint8Array) => {
  const { data, ...rest } = literalOpenStream(EXCHANGE, wire, APIS[api].plain, APIS[api].end);
  return { ...rest, data: data.map((each) => (/^\[done\]$/i.test(each) ? '[DONE]' : each)) };
};

type Event = Readonly<Record<string, unknown>>;

const NAMES = [
  ...['chat-stream', 'chat-stream-tools', 'chat-stream-additions'],
  ...['messages-stream', 'messages-stream-tool'],
];
/** What honest servers send, with these words in front of every text. */
const script = fc
  .tuple(fc.constantFrom(...NAMES), fc.string({ unit: 'grapheme', maxLength: 12 }))
  .map(([wanted, says]) => {
    const { api, events = [] } = honestExchanges({ says }).find(({ name }) => name === wanted)!;
    const isEnd = ({ type }: Event): boolean => type === 'message_stop';
    return { api: api as Api, events: events.filter((event) => !isEnd(event)) };
  });

/** How the events of a stream are written: the same for all of it. */
const framing = fc.record({
  lineEnd: fc.constantFrom('\n', '\r\n', '\r'),
  blank: fc.constantFrom(' ', ''),
  notes: fc.constantFrom('', ': keep-alive', 'retry: 100', 'foo: bar', 'id: 7'),
});

/** Each event as it stands on the wire, the terminal one last. */
function wireOf(
  { api, events }: { api: Api; events: readonly Event[] },
  { lineEnd, blank, notes }: { lineEnd: string; blank: string; notes: string },
): string[] {
  const stream = sealedStream(APIS[api].plain);
  const framed = (data: string, name?: string): string =>
    [
      ...(notes === '' ? [] : [notes]),
      ...(name === undefined ? [] : [`event:${blank}${name}`]),
      `data:${blank}${data}`,
      '',
      '',
    ].join(lineEnd);
  const nameOf = (event: Event) => (api === 'messages' ? String(event['type']) : undefined);
  const sealed = events.map((event) => framed(stream.object(event), nameOf(event)));
  return [...sealed, api === 'chat' ? framed('[DONE]') : framed('{"type":"message_stop"}', 'message_stop')];
}

const cuts = fc.array(fc.nat(), { maxLength: 6 });
type Damage =
  | { readonly kind: 'flip'; readonly at: number; readonly bit: number }
  | { readonly kind: 'drop' | 'cut'; readonly at: number }
  | { readonly kind: 'insert'; readonly at: number; readonly text: string };

const damage: fc.Arbitrary<Damage> = fc.oneof(
  fc.record({ kind: fc.constant('flip' as const), at: fc.nat(), bit: fc.nat({ max: 7 }) }),
  fc.record({ kind: fc.constantFrom('drop' as const, 'cut' as const), at: fc.nat() }),
  fc.record({
    kind: fc.constant('insert' as const),
    at: fc.nat(),
    text: fc.constantFrom(
      'data: [DONE]\n\n',
      'event: message_stop\ndata: {"type":"message_stop"}\n\n',
      'data: {"choices":[{"index":0,"delta":{"content":"FORGED"},"finish_reason":"stop"}]}\n\n',
      'data: {"type":"ping"}\n\n',
      'data: {}\n\n',
      'data\n\n',
      '\n',
      '\r',
      ':',
      '\0',
    ),
  }),
);

function damaged(events: readonly string[], { kind, at, ...rest }: Damage): string[] {
  const i = at % events.length;
  const all = [...events];
  const event = all[i] as string;
  const place = at % (event.length + 1);
  switch (kind) {
    case 'flip': {
      const { bit } = rest as { bit: number };
      const bytes = Buffer.from(event);
      bytes[at % bytes.length] = (bytes[at % bytes.length] as number) ^ (1 << bit);
      return all.with(i, bytes.toString('latin1'));
    }
    case 'drop':
      return all.toSpliced(i, 1);
    case 'cut':
      return [...all.slice(0, i), event.slice(0, place)];
    case 'insert':
      return all.with(i, event.slice(0, place) + (rest as { text: string }).text + event.slice(place));
  }
}

it('event streams are opened as the literal implementation opens them, in any framing and chunks; damaged ones no further, and end well only where it sees the end', () => {
  const counts = { whole: 0, refused: 0 };
  const property = fc.property(
    script,
    framing,
    fc.array(damage, { maxLength: 3 }),
    cuts,
    (what, how, harm, at) => {
      const events = harm.reduce(
        (all: string[], each) => (all.length === 0 ? all : damaged(all, each)),
        wireOf(what, how),
      );
      const wire = Buffer.from(events.join(''), 'latin1');
      const expected = literal(what.api, wire);
      const opened = open(what.api, [wire]);
      assert.deepEqual(open(what.api, at.length === 0 ? byteByByte(wire) : cutAnywhere(wire, at)), opened);
      const data = dataOf(opened);
      assert.deepEqual(data, expected.data.slice(0, data.length));
      assert.ok(!data.some((each) => each.includes('FORGED')));
      if (opened.failure !== undefined) counts.refused += 1;
      else assert.ok(expected.complete || data.at(-1)?.includes('"error"'));
      if (harm.length > 0) return;
      counts.whole += 1;
      assert.deepEqual([opened.failure, opened.finished, data], [undefined, true, expected.data]);
    },
  );
  fc.assert(property, { seed: 20261121, numRuns: 1_500 });
  assert.ok(Math.min(counts.whole, counts.refused) > 200, JSON.stringify(counts));
});
