/**
 * Events that are known by their bytes are a shortcut: nothing may come out of it that the parser would not
 * give.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createRequestCipher } from '../../../lib/envelope/message-cipher.ts';
import { EventDecrypter } from '../../../lib/pipeline/decrypt-events.ts';
import type { JsonKind } from '../../../lib/pipeline/json/json-index.ts';
import { KnownEvents, patternOf } from '../../../lib/pipeline/sse/known-events.ts';
import { EventMatch, scanEvent } from '../../../lib/pipeline/sse/read-event.ts';
import { ASKED, EXCHANGE, fixedCipher } from '../../support/remote/exchange-fixture.ts';
import { chatChunk, DONE, sealedStream } from '../../support/remote/sealed-stream.ts';
import { sealedMessage } from '../../support/remote/sealing.ts';

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
function knownAs(data: string, name?: string): KnownEvents<typeof KIND> {
  const known = KnownEvents.ofStream<typeof KIND>();
  known.remember(pattern(data, name), KIND);
  return known;
}

function matched(data: string, name?: string): { known: boolean; match: EventMatch; size: number } {
  const known = knownAs(KNOWN, name);
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
    ['a number of 20 digits', KNOWN.replace('10', '1'.repeat(20))],
    ['another id', KNOWN.replace('c1', 'chatcmpl-0_1.A:b')],
    ['an id of 128 characters', KNOWN.replace('c1', 'x'.repeat(128))],
  ] as const;
  for (const [what, data] of same) {
    it(`is known again with ${what}`, () => assert.equal(matched(event(data)).known, true));
  }

  const others = [
    ['another name', event(KNOWN.replace('choices', 'choicez'))],
    ['no id', event(KNOWN.replace('c1', ''))],
    ['an id of 129 characters', event(KNOWN.replace('c1', 'x'.repeat(129)))],
    ['an id with an escape', event(KNOWN.replace('c1', String.raw`c\u0031`))],
    ['an id with a blank', event(KNOWN.replace('c1', 'c 1'))],
    ['an id beyond ASCII', event(KNOWN.replace('c1', 'c\xe9'))],
    ['an id with a line end', event(KNOWN.replace('c1', 'c\n1'))],
    ['a number that begins with a zero', event(KNOWN.replace('10', '010'))],
    ['digits after a zero', event(KNOWN.replace('[0,', '[05,'))],
    ['a number of 21 digits', event(KNOWN.replace('10', '1'.repeat(21)))],
    ['no number', event(KNOWN.replace('10', ''))],
    ['a number with a sign it had not', event(KNOWN.replace('12}', '-12}'))],
    ['other digits after a zero of a fraction', event(KNOWN.replace('.05', '.06'))],
    ['a string in place of a number', event(KNOWN.replace('12}', '"12"}'))],
    ['text after it', event(`${KNOWN} `)],
    ['CRLF', event(KNOWN).replaceAll('\n', '\r\n')],
    ['no end yet', event(KNOWN).slice(0, -1)],
    ['an open message', event(KNOWN).slice(0, event(KNOWN).indexOf(':11'))],
    ['a name of an event before it', `event: x\n${event(KNOWN)}`],
    ['no blank after the colon', event(KNOWN).replace('data: ', 'data:')],
  ] as const;
  for (const [what, text] of others) {
    it(`is not known with ${what}`, () => assert.equal(matched(text).known, false));
  }

  it('is known only after its own event name, if it has one', () => {
    assert.equal(matched(`event: ping\n${event(KNOWN)}`, 'ping').known, true);
    for (const before of ['', 'event: pong\n', 'event: pin\n']) {
      assert.equal(matched(`${before}${event(KNOWN)}`, 'ping').known, false);
    }
  });

  const named = knownAs(KNOWN, 'ping');
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

  it('is not remembered if it has more than 4 KiB beside its messages and numbers', () => {
    const remembered = (bytes: number): boolean => {
      const padded = KNOWN.replace('{', `{${' '.repeat(bytes)}`);
      assert.equal(pattern(padded)?.text.length, bytes + pattern(KNOWN)!.text.length);
      return knownAs(padded).find(Buffer.from(event(padded)), 0, new EventMatch()) === KIND;
    };
    const most = 4_096 - pattern(KNOWN)!.text.length;
    assert.deepEqual([remembered(most), remembered(most + 1)], [true, false]);
  });

  it('is known with other numbers in a plain value of up to 1,024 characters, and in no longer one', () => {
    const withUsage = (length: number, number: number): string => {
      const usage = `{"a":${number},"b":""}`;
      return KNOWN.replace(
        /"usage":\{[^}]*\}/,
        `"usage":${usage.replace('""', `"${'x'.repeat(length - usage.length)}"`)}`,
      );
    };
    for (const [length, varies] of [
      [1_024, true],
      [1_025, false],
    ] as const) {
      const known = knownAs(withUsage(length, 1));
      for (const number of [1, 2]) {
        const found = known.find(Buffer.from(event(withUsage(length, number))), 0, new EventMatch());
        assert.equal(found === KIND, varies || number === 1, `${length}, ${number}`);
      }
    }
  });

  it('is one of at most eight kinds: a ninth replaces the kind after the one found last', () => {
    const kinds = Array.from({ length: 10 }, (_, i) => ({ ...KIND, type: `kind ${i}` }));
    const data = (i: number): string => KNOWN.replace('"z"', `"${'abcdefghij'[i]}"`);
    const known = KnownEvents.ofStream<typeof KIND>();
    const found = (): string[] =>
      kinds.flatMap((_, i) => known.find(Buffer.from(event(data(i))), 0, new EventMatch())?.type ?? []);
    for (const [i, kind] of kinds.entries()) {
      if (i === 8) {
        assert.deepEqual(
          found(),
          kinds.slice(0, 8).map(({ type }) => type),
        );
        known.find(Buffer.from(event(data(2))), 0, new EventMatch()); // the last now
      }
      known.remember(pattern(data(i)), kind);
    }
    assert.deepEqual(
      found(),
      [0, 1, 2, 5, 6, 7, 8, 9].map((i) => `kind ${i}`),
    );
  });

  it('is known again only with the same id if that id is no plain word', () => {
    const blank = KNOWN.replace('c1', 'c 1');
    const known = knownAs(blank);
    const isKnown = (data: string): boolean =>
      known.find(Buffer.from(event(data)), 0, new EventMatch()) === KIND;
    assert.deepEqual(
      [isKnown(blank), isKnown(KNOWN), isKnown(blank.replace('c 1', 'c 2'))],
      [true, false, false],
    );
  });

  describe('in another stream', () => {
    const streams = () => {
      const others = KnownEvents.ofAllStreams<typeof KIND>();
      return [KnownEvents.ofStream(others), KnownEvents.ofStream(others)] as const;
    };
    const data = (name: string): Buffer => Buffer.from(event(KNOWN.replace('"z"', `"${name}"`)));
    const made = (name: string) => pattern(KNOWN.replace('"z"', `"${name}"`));

    it('is known at its first occurrence there, and only from then on by its beginning', () => {
      const [first, second] = streams();
      first.remember(made('z'), KIND);
      assert.equal(second.mayBegin(data('z').subarray(0, 20), 0), false);
      const match = new EventMatch();
      assert.equal(second.find(data('z'), 0, match), KIND);
      assert.deepEqual([match.count, match.end], [2, data('z').length]);
      assert.equal(second.mayBegin(data('z').subarray(0, 20), 0), true);
    });

    it('stays known in its own stream, however many kinds the other streams have', () => {
      const [first, second] = streams();
      first.remember(made('z'), KIND);
      for (let i = 0; i < 100; i++)
        second.remember(made(`n${'abcdefghij'[i % 10]}${'abcdefghij'[(i - (i % 10)) / 10]}`), KIND);
      assert.equal(first.find(data('z'), 0, new EventMatch()), KIND);
    });

    it('is one of 32 kinds at most', () => {
      const [first, second] = streams();
      const names = Array.from(
        { length: 40 },
        (_, i) => `n${String.fromCharCode(97 + (i % 26))}${i < 26 ? 'a' : 'b'}`,
      );
      for (const name of names) first.remember(made(name), KIND);
      const found = names.filter((name) => second.find(data(name), 0, new EventMatch()) === KIND);
      assert.deepEqual(found, names.slice(8));
    });
  });

  it('has at least one sealed message', () => {
    assert.equal(pattern('{"id":"c"}'), undefined);
  });
});

describe('a stream, whether its events are known by their bytes or parsed', () => {
  /**
   * One byte a chunk never gives a whole event at a boundary: all of it goes through the parser. Otherwise
   * the first is known too.
   */
  const open = (wire: Buffer, size: number): { text: string; code: string | undefined; events: number } => {
    const opener = new EventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, 100_000);
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
    'if nothing is changed': (events: string[]) => events,
    'with an event changed': (events: string[]) =>
      events.with(
        3,
        events[3]!.replace(/([0-9a-f])"/, (_, d) => `${d === '0' ? 1 : 0}"`),
      ),
    'with another id in each event': (events: string[]) =>
      events.map((event, i) => event.replace(/"id":"[^"]*"/, `"id":"${'wxyz'[i % 4]}"`)),
    'with an id beyond ASCII': (events: string[]) =>
      events.with(2, events[2]!.replace(/"id":"[^"]*"/, '"id":"ünï"')),
    'with a line separator in an id': (events: string[]) =>
      events.with(2, events[2]!.replace(/"id":"[^"]*"/, '"id":"a\u2028"')),
    'with a byte order mark at the beginning': (events: string[]) => events.with(0, `\ufeff${events[0]}`),
    'with a byte order mark before an event': (events: string[]) => events.with(1, `\ufeff${events[1]}`),
    'with an event left out': (events: string[]) => events.toSpliced(2, 1),
    'with an id field before an event': (events: string[]) => events.with(2, `id: 7\n${events[2]}`),
    'with a vertical tab before an event': (events: string[]) => events.with(2, `\v${events[2]}`),
    'with a form feed before an event': (events: string[]) => events.with(2, `\f${events[2]}`),
    'with a blank before an event': (events: string[]) => events.with(2, ` ${events[2]}`),
    'with blank lines before an event': (events: string[]) => events.with(2, `\n\n\n${events[2]}`),
    'with CR before an event': (events: string[]) => events.with(2, `\r${events[2]}`),
    'with an event in two lines': (events: string[]) =>
      events.with(2, events[2]!.replace(',"choices"', ',\ndata: "choices"')),
    'with CRLF': (events: string[]) => events.map((event) => event.replaceAll('\n', '\r\n')),
    'with an event that is too large': (events: string[]) =>
      events.with(2, events[2]!.replace('"usage"', `${' '.repeat(100_000)}"usage"`)),
    'with letters that are no hex digits': (events: string[]) =>
      events.with(4, events[4]!.replace(/[0-9a-f]{4}"/, 'zzzz"')),
    'with a message cut short': (events: string[]) =>
      events.with(4, events[4]!.replace(/:[0-9a-f]+"/, ':00"')),
    // The id of a message is not compared, so only the shape of the event gives these away.
    'with LF inside a message': (events: string[]) =>
      events.with(4, events[4]!.replace(/"[^":]{43}=:/, '"\nx:')),
    'with CR inside a message': (events: string[]) =>
      events.with(4, events[4]!.replace(/"[^":]{43}=:/, '"\rx:')),
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

  it('keeps the id line of an event that is otherwise like an earlier one', () => {
    const sealed = sealedStream(['id', 'usage']);
    const [first, second] = ['a', 'b'].map((text) => sealed.event(chatChunk(text)));
    const { text } = open(Buffer.from(`${first}id: 7\n${second}`), 1_000_000);
    assert.deepEqual(text.match(/^id: .*\ndata: /gm), ['id: 7\ndata: ']);
  });

  it('is malformed if an event has more than 32 KiB beside its messages and plain values', () => {
    const data = sealedStream(['id', 'usage']).object(chatChunk('a'));
    const { usage } = chatChunk('a');
    const bare = data.replaceAll(/"[^"]{43}=:[^"]*"/g, '""').replace(JSON.stringify(usage), '');
    const malformed = [32_768, 32_769].map((bytes) => {
      const padded = data.replace('{', `{${' '.repeat(bytes - bare.length)}`);
      return open(Buffer.from(`data: ${padded}\n\n`), 1_000_000).code;
    });
    assert.deepEqual(malformed, [undefined, 'response_malformed']);
  });

  it('is malformed if text follows the data of a known event in separate data lines', () => {
    for (const behind of ['', '\ndata:', '\ndata:\ndata:', '\ndata:\ndata: x', '\ndata: x']) {
      const sealed = sealedStream(['id', 'usage']);
      const [first, second] = ['a', 'b'].map((text) => sealed.event(chatChunk(text)));
      const { code, events } = open(Buffer.from(`${first}${second!.trimEnd()}${behind}\n\n`), 1);
      const wrong = behind.endsWith('x');
      assert.deepEqual([code, events], wrong ? ['response_malformed', 1] : [undefined, 2], behind);
    }
  });

  it('is refused above the same size of an event, in any chunks', () => {
    const opened = (excess: number, size: number) => {
      const sealed = sealedStream(['id', 'usage']);
      const first = sealed.event(chatChunk('a', null, 1));
      const data = sealed.object(chatChunk(long, 'stop', 2));
      const opener = new EventDecrypter({ id: 'chat' }, fixedCipher(), ASKED, data.length - excess);
      const wire = Buffer.from(`${first}data: ${data}\n\n${DONE}`);
      for (let i = 0; i < wire.length; i += size) opener.feed(wire.subarray(i, i + size));
      return [opener.failure?.code, opener.events];
    };
    for (const size of [1, 100, 4096, 100_000]) {
      assert.deepEqual(opened(0, size), [undefined, 3], `${size}`);
      assert.deepEqual(opened(1, size), ['response_too_large', 1], `${size}`);
    }
  });

  for (const end of ['\n', '\r', '\r\n']) {
    for (const size of [10, 500, 5_000]) {
      it(`replaces the only line end of a plaintext by one blank: ${JSON.stringify(end)} in ${size} bytes`, () => {
        for (const at of [1, size - end.length - 1]) {
          const blank = `[${' '.repeat(size - 2)}]`;
          const choices = blank.slice(0, at) + end + blank.slice(at + end.length);
          assert.equal(choices.length, size);
          const head = ['1', '"m"', '"chat.completion.chunk"'];
          const cipher = createRequestCipher(EXCHANGE, { nonce: EXCHANGE.nonce });
          const messages = [choices, ...head].map((text) => sealedMessage(cipher.seal(), Buffer.from(text)));
          const names = ['choices', 'created', 'model', 'object'];
          const members = names.map((name, i) => `"${name}":${messages[i]}`);
          const { text, code } = open(Buffer.from(`data: {${members},"id":"c"}\n\n`), 1_000_000);
          assert.equal(code, undefined);
          const lines = choices.replace(end, ' ');
          assert.equal(
            text,
            `data: {"choices":${lines},${names.slice(1).map((n, i) => `"${n}":${head[i]}`)},"id":"c"}\n\n`,
          );
        }
      });
    }
  }

  it('writes a plaintext of several lines as one', () => {
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
    assert.match(text, /data: \{"choices":\[ \],"created":1,"model":"m",[^\n]*,"id":"c"\}\n\n/);
  });
});
