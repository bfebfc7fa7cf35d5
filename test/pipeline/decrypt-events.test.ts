import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EventDecrypter } from '../../lib/pipeline/decrypt-events.ts';
import { grammarOf } from '../../lib/pipeline/response-grammar.ts';
import { byteByByte, cutAt, everyChunking } from '../support/remote/chunkings.ts';
import {
  ASKED,
  countingIvs,
  EXCHANGE,
  fixedCipher,
  inferenceVectors,
} from '../support/remote/exchange-fixture.ts';
import { literalMembers, literalSealObject } from '../support/remote/literal-envelope.ts';
import { chatChunk, DONE, openEvent, sealedStream } from '../support/remote/sealed-stream.ts';

interface SseVector {
  readonly name: string;
  readonly endpoint: 'chat' | 'messages' | 'transcriptions';
  readonly plainFields: readonly (readonly [string])[];
  readonly wire: string;
  readonly expected?: string;
  readonly betterExpectation?: string;
}

const { vectors, referenceFails } = inferenceVectors<{
  readonly vectors: readonly SseVector[];
  readonly referenceFails: readonly SseVector[];
}>('sse-responses');

type Endpoint = 'chat' | 'completions' | 'messages' | 'transcriptions';
const idOf = (endpoint: Endpoint) => (endpoint === 'transcriptions' ? 'transcription' : endpoint);

const opener = (endpoint: Endpoint = 'chat', choices = 1): EventDecrypter =>
  new EventDecrypter({ id: idOf(endpoint) }, fixedCipher(), { ...ASKED, choices });

function run(stream: EventDecrypter, chunks: Iterable<Uint8Array>) {
  const delivered: Uint8Array[] = [];
  for (const chunk of chunks) delivered.push(stream.feed(chunk));
  delivered.push(stream.flush());
  return {
    text: Buffer.concat(delivered).toString('utf8'),
    failure: stream.failure?.code,
    finished: stream.finished,
  };
}

const open = (wire: string, endpoint: Endpoint = 'chat') => run(opener(endpoint), [Buffer.from(wire)]);
const chat = () => sealedStream(['id', 'usage']);
const messages = () => sealedStream(['id', 'type', 'usage']);

describe('an event stream of the vectors', () => {
  for (const { name, endpoint, plainFields, wire, expected } of [...vectors, ...referenceFails]) {
    if (expected === undefined || name === 'anthropic') continue;
    // These end without a finish_reason; the reference calls that a success.
    const finished = expected.includes('"error":');
    const passed = expected.replace(/^id: .*\n/gm, ''); // ids of events are not passed on
    it(`is opened${finished ? '' : ', except for its end, which a gateway could have forged'}: ${name}`, () => {
      assert.deepEqual(
        [...grammarOf({ id: idOf(endpoint) }).plain.keys()].sort(),
        plainFields.map(([each]) => each).sort(),
      );
      const bytes = Buffer.from(wire);
      const chunkings = bytes.length < 2000 ? everyChunking(bytes) : [[bytes], byteByByte(bytes)];
      for (const chunks of chunkings) {
        assert.deepEqual(run(opener(endpoint), chunks), {
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

  const better = (name: string) => referenceFails.find((vector) => vector.name === name)!;

  it('is joined, opened and written as one line: multi-line-data', () => {
    const { text } = open(better('multi-line-data').wire);
    assert.match(text, /^data: \{"id":"c1","object":"chat\.completion\.chunk","created":1,.*\}\n\n$/);
  });

  it('is not authentic, with nothing delivered: events-swapped', () => {
    const { wire } = better('events-swapped');
    assert.deepEqual(open(wire), { text: '', failure: 'response_not_authentic', finished: false });
  });

  it('is not authentic after its first event, which is delivered, in any chunks: event-replayed', () => {
    const { wire } = better('event-replayed');
    const first = open(wire.slice(0, wire.indexOf('\n\n') + 2)).text;
    for (const chunks of [[Buffer.from(wire)], byteByByte(Buffer.from(wire))]) {
      assert.deepEqual(run(opener(), chunks), {
        text: first,
        failure: 'response_not_authentic',
        finished: false,
      });
    }
  });
});

describe('the clean end of an event stream', () => {
  const [forged, unfinished] = ['response_not_authentic', 'stream_unfinished'];
  const END = chatChunk('a', 'stop');
  const usage = { ...chatChunk(''), choices: [] };
  const choice = (index: number, finish_reason: string | null = null, more: object = {}) => ({
    ...usage,
    choices: [{ index, delta: { content: 'x', ...more }, finish_reason }],
  });
  /** How a stream of these objects ends that has its terminal event. */
  function endOf(objects: readonly object[], choices = 1, endpoint: Endpoint = 'chat') {
    const stream = sealedStream(endpoint === 'transcriptions' ? ['duration', 'usage'] : ['id', 'usage']);
    const wire = objects.map((object) => stream.event({ ...object })).join('') + DONE;
    const { failure, finished } = run(opener(endpoint, choices), [Buffer.from(wire)]);
    assert.equal(finished, failure === undefined);
    return failure;
  }

  const ends: readonly [string, readonly object[], (string | undefined)?, Endpoint?][] = [
    ['is refused if content comes after the finish', [END, chatChunk('b')], forged],
    ['is refused if the finish comes twice', [END, chatChunk('', 'stop')], forged],
    ['is refused if content comes after the closing chunk', [END, usage, chatChunk('b')], forged],
    ['is refused if the closing chunk comes twice', [END, usage, usage], forged],
    ['may come after a stream that begins with a chunk without choices', [usage, chatChunk('a'), END, usage]],
    [
      'is refused without a finish if only the plain member usage has one',
      [{ ...chatChunk('a'), usage: { choices: [{ finish_reason: 'stop' }] } }],
      unfinished,
    ],
    [
      'takes the finish of legacy completions',
      [{ ...usage, object: 'text_completion', choices: [{ index: 0, text: 'x', finish_reason: 'length' }] }],
      undefined,
      'completions',
    ],
  ];
  for (const [name, objects, code, endpoint] of ends) {
    it(name, () => assert.equal(endOf(objects, 1, endpoint), code));
  }

  it('is reached with the finish and the terminal event', () => {
    const stream = chat();
    const [a, b] = [chatChunk('a'), chatChunk('b', 'stop', 2)];
    const wire = stream.event(a) + stream.event(b) + stream.event(usage) + DONE;
    const text = openEvent(a) + openEvent(b) + openEvent(usage) + DONE;
    for (const chunks of [[Buffer.from(wire)], byteByByte(Buffer.from(wire))]) {
      assert.deepEqual(run(opener(), chunks), { text, failure: undefined, finished: true });
    }
  });

  it('is written as "data: [DONE]" if it came in small letters', () => {
    assert.equal(open(finished + DONE.toLowerCase()).text, openEvent(END) + DONE);
  });

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

  it('needs no finish_reason of a single choice without a token if the closing chunk has come', () => {
    const role = (index: number, delta: object = { role: 'assistant', content: '' }) => ({
      ...chatChunk(''),
      choices: [{ index, delta, finish_reason: null }],
    });
    const rows: readonly [number, readonly Record<string, unknown>[], boolean][] = [
      [1, [role(0), usage], true],
      [1, [role(0)], false],
      [2, [role(0), usage], false],
      [2, [role(0), role(1), chatChunk('a', 'stop'), usage], false], // the closing chunk may be another run's
      [2, [role(0), role(1), usage], false],
      [1, [role(0), role(0), usage], false],
      [1, [role(0, { role: 'assistant', content: null, refusal: null }), usage], true],
      [1, [role(0, { role: 'assistant' }), usage], true],
      [1, [role(0, { role: null, content: '' }), usage], false],
      [1, [role(0, { content: '' }), usage], false],
      [1, [role(0, { role: 'assistant', content: 0 }), usage], false],
      [1, [role(0, { role: 'assistant', content: 'x' }), usage], false],
      [1, [role(0), chatChunk('a'), usage], false],
    ];
    for (const [choices, objects, ends] of rows) {
      assert.equal(endOf(objects, choices), ends ? undefined : unfinished, JSON.stringify(objects));
    }
  });

  describe('with several choices', () => {
    const tools = { tool_calls: [{ index: 0, id: 'c', function: { arguments: '{"index":5,' } }] };
    const together = (...reasons: (string | null)[]) => ({
      ...usage,
      choices: reasons.map((finish_reason, index) => ({ index, delta: {}, finish_reason })),
    });
    const rows: readonly [string, number, readonly Record<string, unknown>[], string?][] = [
      [
        'is refused if only the first choice has finished',
        2,
        [choice(0), choice(1), choice(0, 'stop')],
        unfinished,
      ],
      [
        'comes once all choices have finished',
        2,
        [choice(0), choice(1), choice(0, 'stop'), choice(1, 'stop')],
      ],
      [
        'comes in whatever order the choices finish',
        2,
        [choice(1), choice(0), choice(1, 'stop'), choice(0, 'length'), usage],
      ],
      ['is refused if a choice never began', 2, [choice(0), choice(0, 'stop')], unfinished],
      [
        'is refused if a choice never began, also with the closing chunk',
        2,
        [choice(0, 'stop'), usage],
        unfinished,
      ],
      ['is refused if a choice finishes twice', 2, [choice(0, 'stop'), choice(0, 'stop')], forged],
      [
        'is refused if a choice that was not asked for comes at the end',
        2,
        [choice(0, 'stop'), choice(1, 'stop'), choice(2)],
        forged,
      ],
      ['is refused if a choice that was not asked for comes first', 1, [choice(1)], forged],
      [
        'is refused if a choice goes on after its finish',
        2,
        [choice(0, 'stop'), choice(1, 'stop'), choice(1)],
        forged,
      ],
      [
        'is refused if choice 1 finishes, but choice 11 does not',
        12,
        [choice(11), choice(1, 'stop')],
        unfinished,
      ],
      [
        'is refused if a choice with tool calls does not finish, but another does',
        4,
        [choice(3, null, tools), choice(0, 'stop')],
        unfinished,
      ],
      [
        'comes if one event begins and another finishes all choices',
        2,
        [together(null, null), together('stop', 'length')],
      ],
      [
        'is refused if a finished choice goes on in the event that finishes another',
        2,
        [together('stop', null), together(null, 'length')],
        forged,
      ],
      [
        'comes after the finish of a choice with tool calls',
        1,
        [choice(0, null, tools), choice(0, 'tool_calls', tools)],
      ],
      [
        'is refused if the second choice of an event never finishes',
        2,
        [{ ...usage, choices: [0, 1].map((index) => ({ index, delta: {} })) }, choice(0, 'stop')],
        unfinished,
      ],
      ...[-1, 0.5, '0', null, undefined].map((index): [string, number, Record<string, unknown>[], string] => [
        `is refused if the index of a choice is ${JSON.stringify(index)}`,
        2,
        [{ ...usage, choices: [{ index, delta: {}, finish_reason: null }] }],
        forged,
      ]),
    ];
    for (const [name, choices, objects, code] of rows) {
      it(name, () => assert.equal(endOf(objects, choices), code));
    }
  });

  it('does not follow from a finish_reason in text, in a nested member, or with the value null', () => {
    for (const choice of [
      { delta: { content: '"finish_reason":"stop"' }, finish_reason: null },
      { delta: { finish_reason: 'stop' }, finish_reason: null },
      { delta: { finish_reason: 'stop' } },
      { delta: {} },
      { finish_reason: null, delta: {} },
    ]) {
      const object = { ...chatChunk(''), choices: [{ index: 0, ...choice }] };
      assert.equal(endOf([object]), unfinished, JSON.stringify(choice));
    }
  });

  it('comes with the closing chunk in a transcription, whatever number of stretches has finished', () => {
    const chunk = (finish_reason: string | null) => ({
      ...chatChunk(''),
      object: 'transcription.chunk',
      choices: [{ delta: { content: 'x' }, finish_reason }],
    });
    const audio = [chunk(null), chunk('stop'), chunk(null), chunk('stop')];
    const closing = { ...chunk(null), choices: [] };
    for (const [objects, code] of [
      [[...audio, closing], undefined],
      [audio, unfinished],
      [audio.slice(0, 2), unfinished],
      [[closing], unfinished],
      [[...audio, closing, chunk(null)], forged],
    ] as const) {
      assert.equal(endOf(objects, 1, 'transcriptions'), code);
    }
  });

  it('is the last thing delivered: what follows is dropped', () => {
    const stream = chat();
    const end = stream.event(chatChunk('a', 'stop')) + DONE;
    const after = `: comment\n\nretry: 5\n${stream.event(chatChunk('b'))}${DONE}data: garbage\n\n`;
    for (const chunks of [[Buffer.from(end + after)], [Buffer.from(end), Buffer.from(after)]]) {
      assert.deepEqual(run(opener(), chunks), {
        text: openEvent(chatChunk('a', 'stop')) + DONE,
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
  const PING = 'event: ping\ndata: {"type":"ping"}\n\n';
  const sealed = (objects: readonly { type: string }[]): string[] => {
    const stream = messages();
    return objects.map((object) => stream.event(object, object.type));
  };
  /** What becomes of a stream of these events, and its terminal one. */
  const opened = (objects: readonly { type: string }[]) => open(sealed(objects).join('') + STOP, 'messages');

  it('is opened, including its pings', () => {
    const objects = [start, begin(), delta('a'), stopBlock(), finish];
    const wire = sealed(objects).join(PING) + STOP;
    const text = objects.map((each) => openEvent(each, each.type)).join(PING) + STOP;
    assert.deepEqual(open(wire, 'messages'), { text, failure: undefined, finished: true });
  });

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

  describe('judged by the order of its events', () => {
    const tool = begin(1, { type: 'tool_use', id: 't', name: 'f', input: {} });
    const json = {
      type: 'content_block_delta',
      index: 1,
      delta: { type: 'input_json_delta', partial_json: '' },
    };
    const unstopped = { ...finish, delta: { stop_reason: null } };
    const ping = { type: 'ping' };
    const text = [begin(), delta('a'), delta('b'), stopBlock()];
    const rows: readonly [string, boolean, readonly { type: string }[]][] = [
      ['two blocks', true, [start, ...text, tool, json, stopBlock(1), finish]],
      ['no block', true, [start, finish]],
      ['a block without deltas', true, [start, begin(), stopBlock(), finish]],
      ['several deltas of the message', true, [start, ...text, unstopped, finish]],
      ['pings anywhere', true, [ping, start, ping, begin(), ping, stopBlock(), ping, finish, ping]],
      ['no start', false, [...text, finish]],
      ['two starts', false, [start, start, finish]],
      ['a start after a block', false, [start, ...text, start, finish]],
      ['a first block with the index 1', false, [start, begin(1), stopBlock(1), finish]],
      ['a block that begins twice', false, [start, begin(), begin(), stopBlock(), finish]],
      ['block 0 once more', false, [start, ...text, ...text, finish]],
      ['a delta of another block', false, [start, begin(), delta('a', 1), stopBlock(), finish]],
      ['a delta without a block', false, [start, delta('a'), finish]],
      ['the end of another block', false, [start, begin(), stopBlock(1), finish]],
      ['an end without a block', false, [start, stopBlock(), finish]],
      ['a finish in an open block', false, [start, begin(), delta('a'), finish]],
      ['a block after a delta of the message', false, [start, unstopped, begin(), stopBlock(), finish]],
      ['a block after the finish', false, [start, finish, begin(), stopBlock(), finish]],
      ['two finishes', false, [start, finish, finish]],
    ];
    for (const [name, honest, objects] of rows) {
      it(`${honest ? 'passes' : 'is refused'} with ${name}`, () => {
        assert.equal(opened(objects).failure, honest ? undefined : 'response_not_authentic');
      });
    }
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

  it('is accepted with tool, text, thinking and signature content, and with an unknown kind of delta', () => {
    const objects = [
      start,
      begin(0, { type: 'tool_use', id: 't', input: {} }),
      { type: 'content_block_delta', index: 0, delta: { type: 'input_json_delta', partial_json: '{' } },
      { type: 'content_block_delta', index: 0, delta: { partial_json: '"stop_reason":1', type: 'x_delta' } },
      delta('says "stop_reason"'),
      stopBlock(),
      begin(1, { type: 'thinking', thinking: '' }),
      { type: 'content_block_delta', index: 1, delta: { type: 'signature_delta', signature: 'x' } },
      stopBlock(1),
      { ...finish, context_management: null },
    ];
    const { failure, finished } = opened(objects);
    assert.deepEqual({ failure, finished }, { failure: undefined, finished: true });
  });

  it('is refused for a type of event that is unknown, inherited by every object, or written with escapes', () => {
    for (const type of ['constructor', 'toString', '__proto__', 'new_thing', '', 'p\\u0069ng']) {
      const wire = messages().event({ type: 'ping', z: 1 }).replace('"ping"', `"${type}"`);
      for (const name of ['', `event: ${type}\n`, 'event: ping\n']) {
        assert.equal(open(name + wire, 'messages').failure, 'response_not_authentic', type);
      }
    }
  });

  it('is refused for an event without a type', () => {
    const wire = messages().event({ index: 0, delta: {} });
    assert.equal(open(wire, 'messages').failure, 'response_not_authentic');
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

  it('end a stream of the messages API if they are authentic', () => {
    const object = { type: 'error', ...error };
    const wire = messages().event(object, 'error');
    assert.deepEqual(open(wire, 'messages'), {
      text: openEvent(object, 'error'),
      failure: undefined,
      finished: true,
    });
  });

  it('are refused as not authentic if they are no objects', () => {
    const { choices, ...others } = chatChunk('a');
    for (const value of [null, 'x', 1, []]) {
      assert.equal(open(chat().event({ error: value })).failure, 'response_not_authentic');
      assert.equal(open(chat().event({ ...others, error: value })).failure, 'response_not_authentic');
      const type = 'error';
      assert.equal(
        open(messages().event({ type, error: value }), 'messages').failure,
        'response_not_authentic',
      );
      if (value === null) continue;
      assert.equal(open(chat().event({ choices, error: value })).failure, 'response_not_authentic');
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

  it('never ask for less output, because Claude Code acts on that only after a status', () => {
    const message =
      "This model's maximum context length is 65536 tokens. However, you requested 32000 output tokens and your prompt contains at least 33537 input tokens.";
    const wire = messages().event({ type: 'error', error: { type: 'x', message } }, 'error');
    assert.match(open(wire, 'messages').text, /"prompt is too long: This model's maximum/);
  });

  it('do not include a member error that is null beside content', () => {
    const wire = chat().event({ ...chatChunk('a'), error: null });
    assert.equal(open(wire).failure, 'stream_unfinished');
  });
});

describe('a sealed value in an event stream', () => {
  it('is refused as not authentic if it is no JSON, whatever its member', () => {
    const members = literalMembers(chatChunk('a', 'stop'));
    const sealed = (changed: string | undefined): string => {
      const raws = members.map((each) => (each.name === changed ? { ...each, raw: 'x' } : each));
      return `data: ${literalSealObject(EXCHANGE, raws, ['id', 'usage'], countingIvs())}\n\n${DONE}`;
    };
    assert.equal(open(sealed(undefined)).failure, undefined);
    const fingerprint = { name: 'system_fingerprint', writtenName: '"system_fingerprint"' };
    for (const [raw, failure] of [
      ['null', undefined],
      ['', 'response_not_authentic'],
      ['nul', 'response_not_authentic'],
    ] as const) {
      const all = [...members, { ...fingerprint, raw }];
      const data = literalSealObject(EXCHANGE, all, ['id', 'usage'], countingIvs());
      assert.equal(open(`data: ${data}\n\n${DONE}`).failure, failure, raw);
    }
    for (const name of ['choices', 'created', 'model', 'object']) {
      assert.deepEqual(open(sealed(name)), { text: '', failure: 'response_not_authentic', finished: false });
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

  const edits: Readonly<Record<string, readonly [RegExp | string, readonly string[]]>> = {
    'where ciphertext belongs': [
      /"choices": "[^"]*"/,
      ['"forged"', '[]', 'null', '{"index":0}', '1'].map((value) => `"choices": ${value}`),
    ],
    'beside the ciphertext': [
      '{',
      ['"x":1,', '"choices":[],', '"usage":1,', '"choices":"x:y:z:00",'].map((extra) => `{${extra}`),
    ],
    'inside usage': [
      /"usage": \{[^}]*\}/,
      ['{"a":1}}', '{"a":1},"choices":[]', '1 2', '{"a":01}', '{a:1}', ''].map(
        (usage) => `"usage": ${usage}`,
      ),
    ],
  };
  for (const [where, [found, forgeries]] of Object.entries(edits)) {
    it(`a plain value ${where} is refused, whatever it is`, () => {
      const [a, b] = events() as [string, string];
      for (const forgery of forgeries) {
        const forged = b.replace(found, forgery);
        assert.notEqual(forged, b);
        const { text, failure } = open(a + forged + DONE);
        assert.match(String(failure), /^response_(malformed|not_authentic)$/, forgery);
        assert.equal(text, first);
      }
    });
  }

  it('a plain value that differs from the one before only in digits is malformed if it is no JSON', () => {
    const [a, b] = events() as [string, string];
    const usage = (event: string, text: string) =>
      event.replace(/"usage": \{[^}]*\}/, `"usage": {"a":${text}}`);
    for (const [first, second, code] of [
      ['12', '345', undefined],
      ['-1.5e+7', '-20.5e+123', undefined],
      ['12', '012', 'response_malformed'],
      ['1.5', '00.5', 'response_malformed'],
      ['"\\u1234"', '"\\u5678"', undefined],
      ['"\\u1234"', '"\\u12"', 'response_malformed'],
    ] as const) {
      const { text, failure } = open(usage(a, first) + usage(b, second));
      assert.equal(failure, code ?? 'stream_unfinished', `${first} then ${second}`);
      assert.equal(text.includes(`{"a":${second}}`), code === undefined);
    }
  });

  it('a plain member of another kind, or longer than 16 KiB, is malformed', () => {
    const [a, b] = events() as [string, string];
    const numbers = `{"n":[${Array.from({ length: 10_000 }, () => 0).join()}]}`;
    for (const [member, value] of [
      ['usage', numbers],
      ['usage', '[]'],
      ['usage', '"x"'],
      ['usage', '1'],
      // All but its numbers is as it was in the event before.
      ['usage', b.match(/"usage": (\{[^}]*\})/)![1]!.replace(/[0-9]+/, '9'.repeat(20_000))],
      ['id', '1'],
      ['id', '{}'],
      ['id', `"${'x'.repeat(16_384)}"`],
    ] as const) {
      const forged = b.replace(
        member === 'id' ? /"id": "[^"]*"/ : /"usage": \{[^}]*\}/,
        `"${member}": ${value}`,
      );
      assert.notEqual(forged, b);
      assert.deepEqual(open(a + forged), { text: first, failure: 'response_malformed', finished: false });
    }
    const longest = b.replace(/"id": "[^"]*"/, `"id": "${'x'.repeat(16_382)}"`);
    assert.equal(open(a + longest).failure, 'stream_unfinished');
  });

  for (const [endpoint, datas] of [
    ['chat', ['{}', '{"id":"x"}', '{"usage":{"total_tokens":1}}', '{"id":"x","usage":null}', ERROR]],
    ['messages', ['{}', '{"id":"x"}', '{"type":"message_delta","usage":{}}', '{"type":"error"}', ERROR]],
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
    const texts = ['hello', '1', 'null', '[]', '"x"', '{"a":', '{"a', '[DONE', '{"choices":"x"} y'];
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
    assert.equal(stream.flush().length, 0);
    assert.equal(stream.failure?.code, 'response_malformed');
    assert.equal(stream.events, 1);
  });

  it('a single changed byte of an event changes nothing that is delivered, except plain members and names', () => {
    const [a, b] = events() as [string, string];
    const wire = Buffer.from(a + b);
    const from = a.length + 'data: '.length;
    const clean = open(a + b).text;
    for (let i = from; i < wire.length - 2; i++) {
      const changed = Buffer.from(wire);
      changed[i] = changed[i]! ^ 1;
      const { text } = run(opener(), [changed]);
      if (text === first || text === clean) continue;
      // Not authenticated by this protocol: id, usage, and how a member is called.
      const strip = (each: string) =>
        each.replace(/"(id|usage)":("[^"]*"|\{[^}]*\})/g, '').replace(/"[^"]{2,20}":/g, '');
      assert.equal(strip(text), strip(clean), `byte ${i}`);
    }
  });
});

describe('content of an event stream under other names', () => {
  const styles = {
    chat: { object: 'chat.completion.chunk', plain: ['id', 'usage'] },
    completions: { object: 'text_completion', plain: ['id', 'usage'] },
    transcriptions: { object: 'transcription.chunk', plain: ['duration', 'usage'] },
  } as const;
  const [A, B, END] = [chatChunk('a'), chatChunk('b'), chatChunk('', 'stop')];
  const { usage: _, ...CLOSING } = { ...chatChunk(''), choices: [] };
  const choices = A.choices;

  for (const endpoint of ['chat', 'completions', 'transcriptions'] as const) {
    const { object, plain } = styles[endpoint];
    const of = (chunk: object) => {
      const { usage: __, ...rest } = { ...chunk, object } as Record<string, unknown>;
      if (endpoint !== 'completions') return rest;
      const asText = ({ delta, ...choice }: Record<string, unknown>) => ({
        ...choice,
        text: (delta as { content: string }).content,
      });
      return { ...rest, choices: (rest['choices'] as Record<string, unknown>[]).map(asText) };
    };
    /** Code and delivered events, where the second of four has these members too, and lacks that one. */
    const code = (more: Record<string, unknown>, missing?: string) => {
      const stream = sealedStream(plain);
      const changed = Object.entries({ ...of(B), ...more }).filter(([name]) => name !== missing);
      const objects = [of(A), Object.fromEntries(changed), of(END), of(CLOSING)];
      const events = objects.map((each) => stream.event(each));
      const { text, failure } = open(events.join('') + DONE, endpoint);
      return [failure, text.split('\n\n').length - 1];
    };
    const forged = ['response_not_authentic', 1];
    const honest = [undefined, 5];

    const rows: readonly [string, Record<string, unknown>, boolean][] = [
      ['an empty list', { citations: [] }, true],
      ['an empty object', { metrics: {} }, true],
      ['null under any name', { anything: null, kv_transfer_params: null, error: null }, true],
      ['numbers', { prompt_token_ids: [1, 2], x: 3 }, true],
      ['a fingerprint', { system_fingerprint: 'fp' }, true],
      ['no fingerprint', { system_fingerprint: null }, true],
      ['names that every object has', { constructor: 1, toString: 1, hasOwnProperty: 1 }, true],
      ['choices under an unknown name', { z000: choices }, false],
      ['choices under a known name', { prompt_token_ids: choices }, false],
      ['a bare delta in a list', { z: [{ delta: {} }] }, false],
      ['a bare text in a list', { z: [{ text: '' }] }, false],
      ['a bare index, behind a null', { z: [null, { index: 0 }] }, false],
      ['a message in a list', { z: [{ message: {} }] }, false],
      ['a finish in a list', { z: [{ finish_reason: null }] }, false],
      ['the kind of another event', { z: object }, false],
      ['the kind of another event, under a known name', { system_fingerprint: object }, false],
      ['an error beside the choices', { error: { message: 'x' } }, false],
      ['an error under an unknown name', { z: { message: 'x', type: 'y' } }, false],
      ['an error under a known name', { metrics: { message: 'x', code: 1 } }, false],
      ['a known name with a capital letter', { Model: null }, false],
      ['a known plain name in capitals', { USAGE: null }, false],
      ['a known member of another type', { system_fingerprint: 1 }, false],
      ['a known member of another type, as long as null', { system_fingerprint: 1234 }, false],
      ['a known member that is true', { system_fingerprint: true }, false],
    ];
    for (const [name, more, passes] of rows) {
      it(`${endpoint}: ${name} ${passes ? 'passes' : 'is refused'}`, () => {
        assert.deepEqual(code(more), passes ? honest : forged);
      });
    }

    const constant = ['created', 'model', 'object', ...(endpoint === 'transcriptions' ? ['id'] : [])];
    for (const name of constant) {
      it(`${endpoint}: ${name} must be present, and the same in every event`, () => {
        assert.deepEqual(code({}), honest);
        for (const value of [2, 170, 1_700_000_001, 'other', 'n', null]) {
          assert.deepEqual(code({ [name]: value }), forged);
        }
        assert.deepEqual(code({}, name), forged);
      });
    }

    it(`${endpoint}: an event whose object is chat.completion is refused`, () => {
      const stream = sealedStream(plain);
      const other = { ...of(END), object: 'chat.completion' };
      assert.equal(open(stream.event(other), endpoint).failure, 'response_not_authentic');
    });
  }
});

describe('the usage of an event stream', () => {
  const usageOf = (n: number) => ({
    prompt_tokens: 3,
    completion_tokens: n,
    details: { cached: 0, share: 0.5 },
  });
  const { usage: _, ...BARE } = chatChunk('');
  const chunk = (content: string, finish: string | null, n: number) => ({
    ...{ ...BARE, choices: [{ index: 0, delta: { content }, finish_reason: finish }] },
    usage: usageOf(n),
  });
  const OBJECTS = [
    ...['a', 'b', 'long '.repeat(200), 'c'].map((text, i) => chunk(text, null, i)),
    chunk('', 'stop', 10),
  ];
  const CLOSING = { ...BARE, choices: [], usage: usageOf(10) };
  const bare = ({ usage: __, ...rest }: Record<string, unknown>) => rest;

  /** Where among the members the usage stands. */
  const places: Record<string, (object: Record<string, unknown>) => Record<string, unknown>> = {
    'at the end': (object) => object,
    'at the beginning': ({ usage, ...rest }) => ({ usage, ...rest }),
    'between two messages': ({ usage, choices, ...rest }) => ({ ...rest, usage, choices }),
    null: (object) => ({ ...object, usage: null }),
    'with escapes': (object) => ({ ...object, usage: { 'a\n5': 1 } }),
    absent: bare,
  };
  for (const [place, put] of Object.entries(places)) {
    for (const usage of ['every', 'last', 'none'] as const) {
      it(`is delivered in ${usage === 'none' ? 'no event' : `${usage} event`}, as requested, if it is ${place}`, () => {
        const stream = chat();
        const objects = [...OBJECTS, CLOSING].map(put);
        const wire = Buffer.from(objects.map((each) => stream.event(each)).join('') + DONE);
        const chunks = objects.slice(0, -1).map((each) => (usage === 'every' ? each : bare(each)));
        const closing = usage === 'none' ? [] : objects.slice(-1);
        const expected = [...chunks, ...closing];
        for (const bytes of [[wire], byteByByte(wire), cutAt(wire, [700, 1500, 1501, 3000])]) {
          const opened = new EventDecrypter({ id: 'chat' }, fixedCipher(), { ...ASKED, usage }, 1 << 20);
          const { text, failure, finished } = run(opened, bytes);
          assert.deepEqual([failure, finished], [undefined, true]);
          const events = text.split('\n\n').slice(0, -2);
          // As text, since the order of the members counts too.
          assert.deepEqual(
            events.map((each) => JSON.stringify(JSON.parse(each.replace('data: ', '')))),
            expected.map((each) => JSON.stringify(each)),
          );
          assert.equal(opened.events, expected.length + 1);
        }
      });
    }
  }

  it('is left out together with the closing chunk, which still counts for the end', () => {
    const audio = sealedStream(['duration', 'usage']);
    const object = 'transcription.chunk';
    const words = { ...chunk('x', 'stop', 1), object };
    const wire = audio.event(words) + audio.event({ ...CLOSING, object }) + DONE;
    const opened = new EventDecrypter(
      { id: 'transcription' },
      fixedCipher(),
      { ...ASKED, usage: 'none' },
      1 << 20,
    );
    const { text, failure } = run(opened, [Buffer.from(wire)]);
    assert.equal(failure, undefined);
    assert.deepEqual(
      text.split('\n\n').map((each) => each.slice(0, 12)),
      ['data: {"id":', 'data: [DONE]', ''],
    );
  });

  it('is refused as not authentic if it is the only member of an event, even if usage is left out', () => {
    const opened = new EventDecrypter({ id: 'chat' }, fixedCipher(), { ...ASKED, usage: 'none' }, 1 << 20);
    assert.equal(run(opened, [Buffer.from('data: {"usage":{}}\n\n')]).failure, 'response_not_authentic');
  });
});

describe('the framing of an event stream', () => {
  const object = chatChunk('h\u00e9\u{1f600}', 'stop');
  const text = openEvent(object) + DONE;
  const wires: Record<string, (data: string) => string> = {
    LF: (data) => `data: ${data}\n\ndata: [DONE]\n\n`,
    CRLF: (data) => `data: ${data}\r\n\r\ndata: [DONE]\r\n\r\n`,
    CR: (data) => `data: ${data}\r\rdata: [DONE]\r\r`,
    'no blank after the colon': (data) => `data:${data}\n\ndata:[DONE]\n\n`,
    'a byte order mark first': (data) => `\ufeffdata: ${data}\n\ndata: [DONE]\n\n`,
    'unknown fields': (data) => `foo: bar\ndata: ${data}\n\nx\n\ndata: [DONE]\n\n`,
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

  it('takes an event of several MiB', () => {
    const large = chatChunk('x'.repeat(3 << 20), 'stop');
    assert.equal(open(chat().event(large) + DONE).text, openEvent(large) + DONE);
  });
});

describe('endpoints without streams', () => {
  it('throw response_malformed for a stream if their responses are sealed, and internal if they are not', () => {
    for (const id of ['embeddings', 'unstructured'] as const) {
      assert.throws(() => new EventDecrypter({ id }, fixedCipher(), ASKED), { code: 'response_malformed' });
    }
    assert.throws(() => new EventDecrypter({ id: 'models' }, fixedCipher(), ASKED), { code: 'internal' });
  });
});
