/** Events that are known by their bytes are a shortcut: nothing may come out of it that the parser would not give. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRequestCipher } from '../../../lib/envelope/message-cipher.ts';
import { createEventDecrypter } from '../../../lib/pipeline/decrypt-events.ts';
import type { JsonKind } from '../../../lib/pipeline/json/json-index.ts';
import { EventMatch, KnownEvents, patternOf, scanEvent } from '../../../lib/pipeline/sse/event-data.ts';
import { ASKED, EXCHANGE, fixedCipher } from '../../support/exchange-fixture.ts';
import { chatChunk, DONE, sealedStream } from '../../support/sealed-stream.ts';
import { sealedMessage } from '../../support/sealing.ts';

const KNOWN = '{"id":"c1","choices":"s:00:11:22","n":[0,10,-3.05e7],"usage":{"a":0,"b":12},"z":"s:33"}';
const plain = new Map<string, readonly JsonKind[]>([
  ['id', ['string']],
  ['n', ['array']],
  ['usage', ['object']],
]);

function pattern(data: string, name?: string) {
  const bytes = Buffer.from(data);
  const match = new EventMatch();
  return patternOf(bytes, scanEvent(bytes, plain, match).members, match, name);
}

const KIND = { type: 'chunk', row: { required: {} }, order: [], checks: [] };

/** Remembers the one event. */
function knownAs(name?: string): KnownEvents<typeof KIND> {
  const known = new KnownEvents<typeof KIND>();
  known.remember(pattern(KNOWN, name), KIND);
  return known;
}

function matched(data: string, name?: string): { known: boolean; match: EventMatch; size: number } {
  const known = knownAs(name);
  const bytes = Buffer.from(`xy${data}`, 'latin1');
  const match = new EventMatch();
  return { known: known.find(bytes, 2, match) === KIND, match, size: bytes.length };
}

describe('an event that is known by its bytes', () => {
  const event = (data: string): string => `data: ${data}\n\n`;

  it('is found with its messages, and nothing of what follows', () => {
    const { known, match, size } = matched(`${event(KNOWN)}data: more`);
    assert.equal(known, true);
    assert.equal(match.end, size - 'data: more'.length);
    const text = `xy${event(KNOWN)}`;
    const messages = match.starts.map((start, part) => text.slice(start, match.ends[part]));
    assert.deepEqual(messages, ['s:00:11:22', 's:33']);
    assert.equal(match.count, 2);
  });

  const same = [
    ['other messages', KNOWN.replace('s:33', 't:4444444')],
    ['other numbers', KNOWN.replace('[0,10,-3', '[7,123456,-9').replace('12}', '0}')],
  ] as const;
  for (const [what, data] of same) {
    it(`is known again with ${what}`, () => assert.equal(matched(event(data)).known, true));
  }

  const others = [
    ['another name', event(KNOWN.replace('choices', 'choicez'))],
    ['another id', event(KNOWN.replace('c1', 'c2'))],
    ['a number that begins with a zero', event(KNOWN.replace('10', '010'))],
    ['digits after a zero', event(KNOWN.replace('[0,', '[05,'))],
    ['no number', event(KNOWN.replace('10', ''))],
    ['a number with a sign it had not', event(KNOWN.replace('12}', '-12}'))],
    ['other digits after a zero of a fraction', event(KNOWN.replace('.05', '.06'))],
    ['a string in place of a number', event(KNOWN.replace('12}', '"12"}'))],
    ['text after it', event(`${KNOWN} `)],
    ['CRLF', event(KNOWN).replaceAll('\n', '\r\n')],
    ['no end yet', event(KNOWN).slice(0, -1)],
    ['LF inside a message', event(KNOWN.replace('s:00', 's\n00'))],
    ['CR inside a message', event(KNOWN.replace('s:00', 's\r00'))],
    ['another control character inside a message', event(KNOWN.replace('s:00', 's\x1f00'))],
    ['an open message', event(KNOWN).slice(0, event(KNOWN).indexOf(':11'))],
    ['a name of an event before it', `event: x\n${event(KNOWN)}`],
    ['no blank after the colon', event(KNOWN).replace('data: ', 'data:')],
  ] as const;
  for (const [what, text] of others) {
    it(`is not known with ${what}`, () => assert.equal(matched(text).known, false));
  }

  it('is known with its name only, where it has to have one', () => {
    assert.equal(matched(`event: ping\n${event(KNOWN)}`, 'ping').known, true);
    for (const before of ['', 'event: pong\n', 'event: pin\n']) {
      assert.equal(matched(`${before}${event(KNOWN)}`, 'ping').known, false);
    }
  });

  const named = knownAs('ping');
  const begun = [
    ['its first byte', 'e', true],
    ['half its name', 'event: pi', true],
    ['its name', 'event: ping', true],
    ['its data', `event: ping\n${event(KNOWN).slice(0, 40)}`, true],
    ['another name', 'event: po', false],
    ['a comment', ': keep-alive', false],
    ['a line end that may be the first of two', 'event: ping\n', false],
    ['all but its last byte', `event: ping\n${event(KNOWN)}`.slice(0, -1), false],
    ['a whole line behind it', `event: ping\n${event(KNOWN).trimEnd()}\n: keep-alive`, false],
    ['a line end of another kind', `event: ping\n${event(KNOWN).slice(0, 40)}\r`, false],
  ] as const;
  for (const [what, text, like] of begun) {
    it(`${like ? 'may begin' : 'does not begin'} with ${what}`, () => {
      assert.equal(named.mayBegin(Buffer.from(`xy${text}`), 2), like);
    });
  }

  it('is not remembered where it has more than 4 KiB beside its messages', () => {
    for (const blanks of [3_900, 4_100]) {
      const padded = KNOWN.replace('{', `{${' '.repeat(blanks)}`);
      const known = new KnownEvents();
      known.remember(pattern(padded), KIND);
      const found = known.find(Buffer.from(event(padded)), 0, new EventMatch());
      assert.equal(found, blanks < 4_000 ? KIND : undefined);
    }
  });

  it('has something to open', () => {
    assert.equal(pattern('{"id":"c"}'), undefined);
  });
});

describe('a stream, opened by bytes or by the parser', () => {
  /** One byte a chunk never gives a whole event at a boundary: all of it goes through the parser. */
  const open = (wire: Buffer, size: number): { text: string; code: string | undefined; events: number } => {
    const opener = createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, 100_000);
    let text = '';
    for (let i = 0; i < wire.length; i += size) text += Buffer.from(opener.feed(wire.subarray(i, i + size)));
    return { text, code: opener.failure?.code, events: opener.events };
  };

  const long = 'long '.repeat(100);
  const stream = (): string[] => {
    const sealed = sealedStream(['id', 'usage']);
    const texts = ['a', long, 'ünï\u{1f600}', '"\\', '', 'b'];
    return [
      ...texts.map((text, index) => sealed.event(chatChunk(text, null, 9 * index))),
      ': comment\n\n',
      sealed.event(chatChunk('c', 'stop', 100)),
      DONE,
    ];
  };
  const streams = {
    plainly: (events: string[]) => events,
    'with an event changed': (events: string[]) =>
      events.with(
        3,
        events[3]!.replace(/([0-9a-f])"/, (_, d) => `${d === '0' ? 1 : 0}"`),
      ),
    'with an event left out': (events: string[]) => events.toSpliced(2, 1),
    'with a field of its own before an event': (events: string[]) => events.with(2, `id: 7\n${events[2]}`),
    'with an event in two lines': (events: string[]) =>
      events.with(2, events[2]!.replace(',"choices"', ',\ndata: "choices"')),
    'with CRLF': (events: string[]) => events.map((event) => event.replaceAll('\n', '\r\n')),
    'with an event that is too large': (events: string[]) =>
      events.with(2, events[2]!.replace('"usage"', `${' '.repeat(100_000)}"usage"`)),
    'with hex that is none': (events: string[]) =>
      events.with(4, events[4]!.replace(/[0-9a-f]{4}"/, 'zzzz"')),
    'with a message cut short': (events: string[]) =>
      events.with(4, events[4]!.replace(/:[0-9a-f]+"/, ':00"')),
    // The id of a message is not compared, so only the shape of the event gives these away.
    'with LF inside a message': (events: string[]) =>
      events.with(4, events[4]!.replace(/"[^":]{43}=:/, '"\n:')),
    'with CR inside a message': (events: string[]) =>
      events.with(4, events[4]!.replace(/"[^":]{43}=:/, '"\r:')),
    'with a control character inside a message': (events: string[]) =>
      events.with(4, events[4]!.replace(/"[^":]{43}=:/, '"\x1f:')),
    'with text after the end': (events: string[]) => [...events, ...events],
  };
  for (const [what, change] of Object.entries(streams)) {
    it(`is the same ${what}`, () => {
      const wire = Buffer.from(change(stream()).join(''));
      const parsed = open(wire, 1);
      for (const size of [7, 100, 1000, 4096, wire.length])
        assert.deepEqual(open(wire, size), parsed, `${size}`);
    });
  }

  it('keeps its id where it is like an earlier one', () => {
    const sealed = sealedStream(['id', 'usage']);
    const [first, second] = ['a', 'b'].map((text) => sealed.event(chatChunk(text)));
    const { text } = open(Buffer.from(`${first}id: 7\n${second}`), 1_000_000);
    assert.deepEqual(text.match(/^id: .*\ndata: /gm), ['id: 7\ndata: ']);
  });

  it('is malformed with more than 32 KiB beside its messages and plain values', () => {
    const malformed = [32_000, 33_000].map((blanks) => {
      const event = sealedStream(['id', 'usage']).event(chatChunk('a'));
      return open(Buffer.from(event.replace('{', `{${' '.repeat(blanks)}`)), 1_000_000).code;
    });
    assert.deepEqual(malformed, [undefined, 'response_malformed']);
  });

  it('is malformed where text stands behind the data of a known event, in lines of its own', () => {
    for (const behind of ['', '\ndata:', '\ndata:\ndata:', '\ndata:\ndata: x', '\ndata: x']) {
      const sealed = sealedStream(['id', 'usage']);
      const [first, second] = ['a', 'b'].map((text) => sealed.event(chatChunk(text)));
      const { code, events } = open(Buffer.from(`${first}${second!.trimEnd()}${behind}\n\n`), 1);
      const wrong = behind.endsWith('x');
      assert.deepEqual([code, events], wrong ? ['response_malformed', 1] : [undefined, 2], behind);
    }
  });

  it('is refused from the same size of an event on', () => {
    const opened = (excess: number, size: number) => {
      const sealed = sealedStream(['id', 'usage']);
      const first = sealed.event(chatChunk('a', null, 1));
      const data = sealed.data(chatChunk(long, 'stop', 2));
      const opener = createEventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, data.length - excess);
      const wire = Buffer.from(`${first}data: ${data}\n\n${DONE}`);
      for (let i = 0; i < wire.length; i += size) opener.feed(wire.subarray(i, i + size));
      return [opener.failure?.code, opener.events];
    };
    for (const size of [1, 100, 4096, 100_000]) {
      assert.deepEqual(opened(0, size), [undefined, 3], `${size}`);
      assert.deepEqual(opened(1, size), ['response_too_large', 1], `${size}`);
    }
  });

  it('keeps the lines of a plaintext that has several', () => {
    const cipher = createRequestCipher(EXCHANGE, { nonce: EXCHANGE.nonce });
    const seal = (text: string): string => sealedMessage(cipher.seal(), Buffer.from(text));
    const rest = (): string =>
      ['1', '"m"', '"chat.completion.chunk"']
        .map((text, i) => `"${['created', 'model', 'object'][i]}":${seal(text)}`)
        .join();
    const choice = '{"index":0,\r"delta":{}\n}';
    const events = ['[]', '[\n]', `[\r\n${choice},\r${choice}\n]`, '[\n]'].map(
      (text) => `data: {"choices":${seal(text)},${rest()},"id":"c"}\n\n`,
    );
    const wire = Buffer.from(events.join(''));
    const { text, code } = open(wire, wire.length);
    assert.equal(code, undefined);
    assert.deepEqual(open(wire, 1).text, text);
    assert.match(text, /data: \{"choices":\[\ndata: \],"created":1,"model":"m",[^\n]*,"id":"c"\}\n\n/);
  });
});
