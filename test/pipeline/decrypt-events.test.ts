import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { byteByByte, everyChunking, inPieces } from '../support/remote/chunkings.ts';
import { ASKED, countingIvs, EXCHANGE, fixedCipher } from '../support/remote/exchange-fixture.ts';
import { literalMembers, literalSealObject } from '../support/remote/literal-envelope.ts';
import { chatChunk, DONE, openEvent, sealedStream } from '../support/remote/sealed-stream.ts';
import sse from '../vectors/inference/sse-responses.json' with { type: 'json' };

const { vectors, referenceFails } = sse;

type Endpoint = 'chat' | 'completions' | 'messages' | 'transcriptions';
const idOf = (endpoint: Endpoint) => (endpoint === 'transcriptions' ? 'transcription' : endpoint);

const opener = (endpoint: Endpoint = 'chat', choices = 1): EventDecrypter =>
  new EventDecrypter({ id: idOf(endpoint) }, fixedCipher(), { ...ASKED, choices });

function run(stream: EventDecrypter, chunks: Iterable<Uint8Array>) {
  const delivered: Uint8Array[] = [];
  for (const chunk of chunks) delivered.push(stream.feed(chunk));
  stream.end();
  return {
    text: Buffer.concat(delivered).toString('utf8'),
    failure: stream.failure?.code,
    finished: stream.finished && stream.failure === undefined,
  };
}

const open = (wire: string, endpoint: Endpoint = 'chat') => run(opener(endpoint), [Buffer.from(wire)]);
const chat = () => sealedStream(['id', 'usage']);
const messages = () => sealedStream(['id', 'type', 'usage']);

describe('an event stream of the vectors', () => {
  for (const { name, endpoint, wire, expected } of [...vectors, ...referenceFails]) {
    if (expected === undefined || name === 'anthropic') continue;
    // These end without a finish_reason; the reference calls that a success.
    const finished = expected.includes('"error":');
    const passed = expected.replace(/^id: .*\n/gm, ''); // ids of events are not passed on
    it(`is opened${finished ? '' : ', except for its end, which a gateway could have forged'}: ${name}`, () => {
      const bytes = Buffer.from(wire);
      const chunkings = bytes.length < 2000 ? everyChunking(bytes) : [[bytes], inPieces(bytes)];
      for (const chunks of chunkings) {
        assert.deepEqual(run(opener(endpoint as Endpoint), chunks), {
          text: finished ? passed : passed.replace(/data: \[done\]\n\n$/i, ''),
          failure: finished ? undefined : 'stream_unfinished',
          finished,
        });
      }
    });
  }

  it('is refused if a message begins without its model: anthropic', () => {
    const { wire } = vectors.find(({ name }) => name === 'anthropic')!;
    assert.deepEqual(open(wire, 'messages'), {
      text: '',
      failure: 'response_not_authentic',
      finished: false,
    });
  });

  it('is not authentic from the first event on that came twice, or at another place', () => {
    for (const [name, delivered] of [
      ['events-swapped', 0],
      ['event-replayed', 1],
    ] as const) {
      const { wire } = referenceFails.find((vector) => vector.name === name)!;
      const text = delivered === 0 ? '' : open(wire.slice(0, wire.indexOf('\n\n') + 2)).text;
      for (const chunks of [[Buffer.from(wire)], byteByByte(Buffer.from(wire))]) {
        const failed = { text, failure: 'response_not_authentic', finished: false };
        assert.deepEqual(run(opener(), chunks), failed);
      }
    }
  });
});

describe('the clean end of an event stream', () => {
  const [forged, unfinished] = ['response_not_authentic', 'stream_unfinished'];
  const END = chatChunk('a', 'stop');

  const finished = chat().event(END);
  for (const [what, wire, text] of [
    ['any event', '', ''],
    ['any event before the terminal one', DONE, ''],
    ['the terminal event', finished, openEvent(END)],
    ['the last byte of the terminal event', finished + DONE.slice(0, -1), openEvent(END)],
  ] as const) {
    it(`is refused without ${what}`, () => {
      assert.deepEqual(open(wire), { text, failure: unfinished, finished: false });
    });
  }

  it('is refused if the order of events is wrong, or of fewer choices than were asked for', () => {
    const more = chat();
    assert.equal(open(more.event(END) + more.event(chatChunk('b'))).failure, forged);
    assert.equal(run(opener('chat', 2), [Buffer.from(finished + DONE)]).failure, unfinished);
  });

  it('is the last thing delivered: what follows is dropped', () => {
    const stream = chat();
    const end = stream.event(END) + DONE;
    const after = `: comment\n\nretry: 5\n${stream.event(chatChunk('b'))}${DONE}data: garbage\n\n`;
    for (const chunks of [[Buffer.from(end + after)], [Buffer.from(end), Buffer.from(after)]]) {
      assert.deepEqual(run(opener(), chunks), {
        text: openEvent(END) + DONE,
        failure: undefined,
        finished: true,
      });
    }
  });
});

describe('an event stream of the messages API', () => {
  const start = {
    type: 'message_start',
    message: { id: 'msg_1', content: [], model: 'm', stop_reason: null },
  };
  const begin = (index = 0, content_block: object = { type: 'text', text: '' }) => ({
    type: 'content_block_start',
    index,
    content_block,
  });
  const stopBlock = (index = 0) => ({ type: 'content_block_stop', index });
  const delta = (text: string, index = 0) => ({
    type: 'content_block_delta',
    index,
    delta: { type: 'text_delta', text },
  });
  const finish = { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 2 } };
  const STOP = 'event: message_stop\ndata: {"type":"message_stop"}\n\n';
  const sealed = (objects: readonly { type: string }[]): string[] => {
    const stream = messages();
    return objects.map((object) => stream.event(object, object.type));
  };
  /** What becomes of a stream of these events, and its terminal one. */
  const opened = (objects: readonly { type: string }[]) => open(sealed(objects).join('') + STOP, 'messages');

  it('ends well only after an authenticated stop_reason', () => {
    const unstopped = { ...finish, delta: { stop_reason: null } };
    for (const objects of [
      [],
      [start],
      [start, begin(), delta('a'), stopBlock()],
      [start, begin(), delta('"stop_reason":"end_turn"')],
      [start, unstopped],
    ]) {
      const { text, failure } = opened(objects);
      assert.equal(failure, 'stream_unfinished');
      assert.ok(!text.includes('message_stop'));
    }
  });

  it('does not end with [DONE], which belongs to another API', () => {
    const { text, failure } = open(sealed([start, finish]).join('') + DONE, 'messages');
    assert.equal(failure, 'stream_unfinished');
    assert.ok(!text.includes('DONE'));
  });

  it('is refused with a member that the API does not have, except context_management of the last delta', () => {
    const objects = [start, begin(), delta('a'), stopBlock(), finish];
    const code = (at: number, more: object) =>
      opened(objects.map((each, i) => (i === at ? { ...each, ...more } : each))).failure;
    for (const at of objects.keys()) {
      assert.equal(code(at, { z: null }), 'response_not_authentic');
      assert.equal(code(at, { citations: [] }), 'response_not_authentic');
      const last = at === objects.length - 1;
      for (const value of [null, { applied_edits: [] }]) {
        assert.equal(code(at, { context_management: value }), last ? undefined : 'response_not_authentic');
      }
    }
    assert.equal(code(objects.length - 1, { context_management: 0 }), 'response_not_authentic');
  });

  it('is refused for a type of event that is unknown, inherited by every object, or written with escapes', () => {
    for (const type of ['constructor', 'toString', '__proto__', 'new_thing', '', 'p\\u0069ng']) {
      const wire = messages().event({ type: 'ping', z: 1 }).replace('"ping"', `"${type}"`);
      for (const name of ['', `event: ${type}\n`, 'event: ping\n']) {
        assert.equal(open(name + wire, 'messages').failure, 'response_not_authentic', type);
      }
    }
  });
});

describe('errors inside an event stream', () => {
  const error = { error: { message: 'boom', type: 'x', code: 500 } };

  it('end the stream if they are authentic, in any chunks: only [DONE] passes after them', () => {
    const stream = chat();
    const wire = stream.event(chatChunk('a')) + stream.event(error);
    const text = openEvent(chatChunk('a')) + openEvent(error);
    assert.deepEqual(open(wire), { text, failure: undefined, finished: false });
    const more = wire + stream.event(chatChunk('b')) + DONE;
    for (const chunks of [
      [Buffer.from(more)],
      [Buffer.from(wire), Buffer.from(more.slice(wire.length))],
      byteByByte(Buffer.from(more)),
    ]) {
      assert.deepEqual(run(opener(), chunks), { text: text + DONE, failure: undefined, finished: true });
    }
  });

  it('are refused as not authentic if they are no objects, or stand beside content', () => {
    const { choices, ...others } = chatChunk('a');
    for (const value of [null, 'x', 1, []]) {
      for (const event of [{ error: value }, { ...others, error: value }, { choices, error: value }]) {
        assert.equal(open(chat().event(event)).failure, 'response_not_authentic');
      }
      const message = messages().event({ type: 'error', error: value }, 'error');
      assert.equal(open(message, 'messages').failure, 'response_not_authentic');
    }
  });

  it('say in words that agents act on that a prompt with images does not fit', () => {
    const decoder = 'The decoder prompt (length 7) is longer than the maximum model length of 6.';
    const chatError = { message: decoder, type: 'BadRequestError', param: null, code: 400 };
    const code = 'context_length_exceeded';
    assert.equal(
      open(chat().event({ error: chatError }) + DONE).text,
      openEvent({ error: { ...chatError, type: 'invalid_request_error', code } }) + DONE,
    );
    const shown = { type: 'invalid_request_error', message: `prompt is too long: ${decoder}` };
    const messageError = { type: 'error', error: { type: 'internal_error', message: decoder } };
    assert.equal(
      open(messages().event(messageError, 'error'), 'messages').text,
      openEvent({ type: 'error', error: shown }, 'error'),
    );
  });

  it('keeps characters of any kind in a new error inside of its text', () => {
    const said = 'maximum context length is 9 äß😀 ';
    const raw = JSON.stringify({ message: `${said}END` }).replace(
      'END',
      '\\u010a\\u0122\\u00e9\\ud83d\\ude00',
    );
    const data = literalSealObject(
      EXCHANGE,
      [{ name: 'error', writtenName: '"error"', raw }],
      ['id', 'usage'],
      countingIvs(),
    );
    const [first, ...more] = open(`data: ${data}\n\n${DONE}`).text.split('\n\n');
    assert.equal(JSON.parse(first!.slice('data: '.length)).error.message, `${said}\u010a\u0122\u00e9😀`);
    assert.deepEqual(more, ['data: [DONE]', '']);
  });
});

describe('a sealed value in an event stream', () => {
  it('comes out in one line, with blanks in place of its line ends', () => {
    const raw = '[{"index":0,\r\n"delta":{},\r"finish_reason":\n"stop"}]';
    const members = literalMembers(chatChunk('')).map((each) =>
      each.name === 'choices' ? { ...each, raw } : each,
    );
    const data = literalSealObject(EXCHANGE, members, ['id', 'usage'], countingIvs());
    const { text } = open(`data: ${data}\n\n${DONE}`);
    assert.ok(text.includes('"choices":[{"index":0, "delta":{}, "finish_reason": "stop"}]'), text);
  });

  it('is refused as not authentic if it is no JSON, whatever its member', () => {
    const members = literalMembers({ ...chatChunk('a', 'stop'), system_fingerprint: null });
    const failureWith = (changed: string, raw: string) => {
      const raws = members.map((each) => (each.name === changed ? { ...each, raw } : each));
      const data = literalSealObject(EXCHANGE, raws, ['id', 'usage'], countingIvs());
      return open(`data: ${data}\n\n${DONE}`).failure;
    };
    assert.equal(failureWith('system_fingerprint', 'null'), undefined);
    for (const name of ['choices', 'created', 'model', 'object', 'system_fingerprint']) {
      for (const raw of ['', 'nul', 'x']) assert.equal(failureWith(name, raw), 'response_not_authentic');
    }
  });
});

describe('event streams that a gateway edits', () => {
  const ERROR = '{"type":"error","error":{"message":"boom","type":"x","code":500}}';
  const objects = [chatChunk('one'), chatChunk('two', null, 2), chatChunk('three', 'stop', 3)];
  const events = () => {
    const stream = chat();
    return objects.map((object) => stream.event(object));
  };
  const first = openEvent(objects[0]!);

  for (const [endpoint, datas] of [
    [
      'chat',
      ['{"choices":[]}', '{"id":"x"}', '{"usage":{"total_tokens":1}}', '{"id":"x","usage":null}', ERROR],
    ],
    ['messages', ['{"id":"x"}', '{"type":"message_delta","usage":{}}', '{"type":"error"}', ERROR]],
  ] as const) {
    for (const data of datas) {
      it(`an event of ${endpoint} without ciphertext is not authentic: ${data}`, () => {
        const refused = { text: '', failure: 'response_not_authentic', finished: false };
        assert.deepEqual(open(`data: ${data}\n\n`, endpoint), refused);
      });
    }
  }

  it('data that is no object is malformed and ends no stream, before or after the finish', () => {
    const finished = chat().event(chatChunk('a', 'stop'));
    const texts = ['hello', '1', 'null', '[]', '{}', '"x"', '{"a', '[DONE', '{"choices":"x"} y'];
    for (const data of [...texts, '[DONF]', '"DONE"', '123456', '[1, 2]', '{"choices":"x"']) {
      assert.equal(open(`data: ${data}\n\n`).failure, 'response_malformed', data);
      assert.deepEqual(open(`${finished}data: ${data}\n\n`), {
        text: openEvent(chatChunk('a', 'stop')),
        failure: 'response_malformed',
        finished: false,
      });
    }
  });

  it('nothing is delivered after a failure, in the same chunk or later', () => {
    const [a, b] = events() as [string, string];
    const stream = opener();
    const text = Buffer.from(stream.feed(Buffer.from(`${a}data: x\n\n: late\n\nretry: 1\n${b}`))).toString();
    assert.equal(text, first);
    assert.equal(stream.feed(Buffer.from(b)).length, 0);
    stream.end();
    assert.equal(stream.failure?.code, 'response_malformed');
    assert.equal(stream.events, 1);
  });
});

describe('the members of the events of a stream', () => {
  const rows = {
    chat: ['chat.completion.chunk', ['id', 'usage'], ['created', 'model', 'object']],
    transcriptions: ['transcription.chunk', ['duration', 'usage'], ['created', 'id', 'model', 'object']],
  } as const;
  for (const endpoint of ['chat', 'transcriptions'] as const) {
    const [object, plain, constant] = rows[endpoint];
    /** The code, where the second of two chunks has these members too, and lacks that one. */
    const code = (more: Record<string, unknown>, missing?: string) => {
      const stream = sealedStream(plain);
      const { usage: _, ...first } = { ...chatChunk('a'), object };
      const second = Object.entries({ ...first, ...more }).filter(([name]) => name !== missing);
      return open(stream.event(first) + stream.event(Object.fromEntries(second)), endpoint).failure;
    };
    for (const name of constant) {
      it(`${endpoint}: ${name} must be present, and the same in every event`, () => {
        for (const value of [2, 1_700_000_001, 'other', null]) {
          assert.equal(code({ [name]: value }), 'response_not_authentic');
        }
        assert.equal(code({}, name), 'response_not_authentic');
        assert.equal(code({}), 'stream_unfinished');
      });
    }

    it(`${endpoint}: one that is not listed passes, unless it looks like content`, () => {
      assert.equal(code({ z: [], constructor: 1 }), 'stream_unfinished');
      assert.equal(code({ z: [{ delta: {} }] }), 'response_not_authentic');
      assert.equal(code({ z: object }), 'response_not_authentic');
    });
  }
});

describe('the usage of an event stream', () => {
  const { usage: _, ...BARE } = chatChunk('');
  const chunk = (content: string, finish: string | null, n: number) => ({
    ...{ ...BARE, choices: [{ index: 0, delta: { content }, finish_reason: finish }] },
    usage: { prompt_tokens: 3, completion_tokens: n, details: { cached: 0, share: 0.5 } },
  });
  const OBJECTS = [chunk('a', null, 1), chunk('long '.repeat(200), null, 2), chunk('', 'stop', 3)];
  const CLOSING = { ...chunk('', null, 3), choices: [] };
  const bare = ({ usage: __, ...rest }: Record<string, unknown>) => rest;

  /** Where among the members the usage stands. */
  const places: Record<string, (object: Record<string, unknown>) => Record<string, unknown>> = {
    'at the end': (object) => object,
    'at the beginning': ({ usage, ...rest }) => ({ usage, ...rest }),
    null: (object) => ({ ...object, usage: null }),
    absent: bare,
  };
  for (const [place, put] of Object.entries(places)) {
    for (const usage of ['every', 'last', 'none'] as const) {
      it(`is delivered in ${usage === 'none' ? 'no event' : `${usage} event`}, as requested, if it is ${place}`, () => {
        const stream = chat();
        const objects = [...OBJECTS, CLOSING].map(put);
        const wire = Buffer.from(objects.map((each) => stream.event(each)).join('') + DONE);
        const chunks = objects.slice(0, -1).map((each) => (usage === 'every' ? each : bare(each)));
        const expected = [...chunks, ...(usage === 'none' ? [] : objects.slice(-1))];
        for (const bytes of [[wire], byteByByte(wire)]) {
          const opened = new EventDecrypter({ id: 'chat' }, fixedCipher(), { ...ASKED, usage });
          const text = expected.map((each) => openEvent(each)).join('') + DONE;
          assert.deepEqual(run(opened, bytes), { text, failure: undefined, finished: true });
          assert.equal(opened.events, expected.length + 1);
          assert.equal(opened.usage?.completion, put({ usage: 3 })['usage'] ? 3 : undefined);
        }
      });
    }
  }
});

/** More of it: test/fuzz/sse.test.ts. */
describe('the framing of an event stream', () => {
  const object = chatChunk('h\u00e9\u{1f600}', 'stop');
  const text = openEvent(object) + DONE;
  const wires: Record<string, (data: string) => string> = {
    'a byte order mark first': (data) => `\ufeffdata: ${data}\n\ndata: [DONE]\n\n`,
    'unknown fields': (data) => `foo: bar\ndata: ${data}\n\nx\n\ndata: [DONE]\n\n`,
    'data in several lines': (data) => `data: ${data.replace(/ , /g, '\ndata: , ')}\n\ndata: [DONE]\n\n`,
    'blank lines': (data) => `\n\n\ndata: ${data}\n\n\n\n\ndata: [DONE]\n\n`,
    'events whose data is empty': (data) =>
      `data:\n\ndata: \r\n\r\nevent: error\nid: 7\ndata\n\ndata: ${data}\n\ndata:\n\ndata: [DONE]\n\n`,
    'event names, which OpenAI-style clients skip events by': (data) =>
      `event: thread.x\ndata: ${data}\n\nevent: error\ndata: [DONE]\n\n`,
  };
  for (const [name, wire] of Object.entries(wires)) {
    it(`takes ${name}, in any chunks, and comes out in one form`, () => {
      const bytes = Buffer.from(wire(chat().object(object)));
      for (const chunks of everyChunking(bytes)) {
        assert.deepEqual(run(opener(), chunks), { text, failure: undefined, finished: true });
      }
    });
  }

  it('keeps retry, and comments without their text; drops ids', () => {
    const wire = `: keep-alive\n\nid: 7\nretry: 250\ndata: ${chat().object(object)}\n\n:\n${DONE}`;
    assert.equal(open(wire).text, `:\n\nretry: 250\n${openEvent(object)}:\n\n${DONE}`);
  });
});

it('endpoints without streams throw response_malformed for a stream if their responses are sealed, and internal if they are not', () => {
  for (const id of ['embeddings', 'unstructured'] as const) {
    assert.throws(() => new EventDecrypter({ id }, fixedCipher(), ASKED), { code: 'response_malformed' });
  }
  assert.throws(() => new EventDecrypter({ id: 'models' }, fixedCipher(), ASKED), { code: 'internal' });
});

/**
 * Many clients read streams line by line, some by more line ends than the standard has: Python's splitlines
 * (httpx.iter_lines) and Java's Scanner split at these too. In text that nothing authenticates, a gateway
 * must not forge a line for them.
 */
describe('line separators in text that nothing authenticates', () => {
  const LINES = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/;
  const FORGED = 'data: {"choices":[{"index":0,"delta":{"content":"FORGED"}}]}';
  const ONE = chatChunk('one', 'stop');
  const PLACES: Readonly<Record<string, (end: string) => string>> = {
    'a comment': (end) => `: x${end}${FORGED}${end}\n\n${chat().event(ONE)}`,
    'an id of an event': (end) => `id: x${end}${FORGED}${end}\n${chat().event(ONE)}`,
    'the plain id': (end) => chat().event({ ...ONE, id: `x${end}${FORGED.replaceAll('"', "'")}${end}` }),
    'the plain usage': (end) => chat().event({ ...ONE, usage: { [`x${end}data: [DONE]${end}`]: 1 } }),
    'the name of a member': (end) => chat().event({ ...ONE, [`x${end}data: [DONE]${end}`]: null }),
  };
  for (const [place, wire] of Object.entries(PLACES)) {
    it(`forge no line of data in ${place}`, () => {
      for (const end of ['\u2028', '\u2029', '\u0085', '\f', '\x1e']) {
        const { text, failure } = open(`${wire(end)}${DONE}`);
        const forged = text.split(LINES).filter((line) => /^data: (?:\[DONE\]|\{.choices)/.test(line));
        assert.deepEqual(forged, failure === undefined ? ['data: [DONE]'] : [], JSON.stringify(end));
      }
    });
  }
});
