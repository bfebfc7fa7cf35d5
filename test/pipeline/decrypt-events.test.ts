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

const opener = (endpoint: Endpoint = 'chat', maxEventBytes = 8 << 20, choices = 1): EventDecrypter =>
  new EventDecrypter({ id: idOf(endpoint) }, fixedCipher(), { ...ASKED, choices }, maxEventBytes);

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

describe('an event stream, by the vectors', () => {
  for (const { name, endpoint, plainFields, wire, expected } of [...vectors, ...referenceFails]) {
    if (expected === undefined || name === 'anthropic') continue;
    // These end without a finish_reason; the reference calls that a success.
    const finished = expected.includes('"error":');
    it(`${name}${finished ? '' : ', without its forgeable end'}`, () => {
      assert.deepEqual(
        [...grammarOf({ id: idOf(endpoint) }).plain.keys()].sort(),
        plainFields.map(([each]) => each).sort(),
      );
      const bytes = Buffer.from(wire);
      const chunkings = bytes.length < 2000 ? everyChunking(bytes) : [[bytes], byteByByte(bytes)];
      for (const chunks of chunkings) {
        assert.deepEqual(run(opener(endpoint), chunks), {
          text: finished ? expected : expected.replace(/data: \[done\]\n\n$/i, ''),
          failure: finished ? undefined : 'stream_unfinished',
          finished,
        });
      }
    });
  }

  it('anthropic: refused, since no model server begins a message without its model', () => {
    const { wire } = vectors.find(({ name }) => name === 'anthropic')!;
    assert.deepEqual(open(wire, 'messages'), {
      text: '',
      failure: 'response_not_authentic',
      finished: false,
    });
  });

  const better = (name: string) => referenceFails.find((vector) => vector.name === name)!;

  it('multi-line-data: joined, opened, and written as one line', () => {
    const { text } = open(better('multi-line-data').wire);
    assert.match(text, /^data: \{"id":"c1", "object":"chat\.completion\.chunk","created":1,.*\}\n\n$/);
  });

  it('events-swapped: nothing delivered, not authentic', () => {
    const { wire } = better('events-swapped');
    assert.deepEqual(open(wire), { text: '', failure: 'response_not_authentic', finished: false });
  });

  it('event-replayed: the first delivered, then not authentic, in any chunks', () => {
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
  it('needs the finish and the terminal event, and comes with both', () => {
    const stream = chat();
    const [a, b] = [chatChunk('a'), chatChunk('b', 'stop', 2)];
    const usage = { ...chatChunk(''), choices: [] };
    const wire = stream.event(a) + stream.event(b) + stream.event(usage) + DONE;
    const text = openEvent(a) + openEvent(b) + openEvent(usage) + DONE;
    for (const chunks of [[Buffer.from(wire)], byteByByte(Buffer.from(wire))]) {
      assert.deepEqual(run(opener(), chunks), { text, failure: undefined, finished: true });
    }
  });

  it('is spelled as clients know it', () => {
    const wire = chat().event(chatChunk('a', 'stop')) + DONE.toLowerCase();
    assert.equal(open(wire).text, openEvent(chatChunk('a', 'stop')) + DONE);
  });

  it('is refused without the terminal event', () => {
    const stream = chat();
    const wire = stream.event(chatChunk('a', 'stop'));
    assert.deepEqual(open(wire), {
      text: openEvent(chatChunk('a', 'stop')),
      failure: 'stream_unfinished',
      finished: false,
    });
  });

  it('is refused without any event', () => {
    assert.equal(open('').failure, 'stream_unfinished');
    assert.equal(open(DONE).failure, 'stream_unfinished');
    assert.equal(open(DONE).text, '');
  });

  it('is refused where the terminal event is cut off before its blank line', () => {
    const wire = chat().event(chatChunk('a', 'stop')) + DONE.slice(0, -1);
    assert.equal(open(wire).failure, 'stream_unfinished');
  });

  it('is refused where content came after the finish, or after the closing chunk', () => {
    const usage = { ...chatChunk(''), choices: [] };
    for (const late of [[chatChunk('b')], [chatChunk('', 'stop')], [usage, chatChunk('b')], [usage, usage]]) {
      const stream = chat();
      const wire = [chatChunk('a', 'stop'), ...late].map((each) => stream.event(each)).join('') + DONE;
      assert.equal(open(wire).failure, 'response_not_authentic');
    }
  });

  it('does not take leading chunks without choices for the closing one', () => {
    const stream = chat();
    const usage = { ...chatChunk(''), choices: [] };
    const wire = [usage, chatChunk('a'), chatChunk('', 'stop'), usage].map((each) => stream.event(each));
    assert.equal(open(wire.join('') + DONE).failure, undefined);
    const audio = sealedStream(['duration', 'usage']);
    const { usage: _, ...chunk } = { ...chatChunk(''), object: 'transcription.chunk' };
    assert.equal(
      open(audio.event({ ...chunk, choices: [] }) + DONE, 'transcriptions').failure,
      'stream_unfinished',
    );
  });

  it('needs no finish of a choice without a token, once the closing chunk has come', () => {
    const usage = { ...chatChunk(''), choices: [] };
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
      const stream = chat();
      const wire = Buffer.from(objects.map((each) => stream.event(each)).join('') + DONE);
      const { failure } = run(opener('chat', 8 << 20, choices), [wire]);
      assert.equal(failure, ends ? undefined : 'stream_unfinished', JSON.stringify(objects));
    }
  });

  it('takes the finish of any choice of an event', () => {
    const stream = chat();
    const choices = (...reasons: (string | null)[]) => ({
      ...chatChunk(''),
      choices: reasons.map((finish_reason, index) => ({ index, delta: {}, finish_reason })),
    });
    const two = (wire: string) => run(opener('chat', 8 << 20, 2), [Buffer.from(wire)]);
    const both = stream.event(choices(null, null)) + stream.event(choices('stop', 'length')) + DONE;
    assert.equal(two(both).failure, undefined);
    const other = chat();
    const again = other.event(choices('stop', null)) + other.event(choices(null, 'length')) + DONE;
    assert.equal(two(again).failure, 'response_not_authentic'); // the first has had content since
  });

  describe('of several choices', () => {
    const choice = (index: number, finish_reason: string | null = null, more: object = {}) => ({
      ...chatChunk(''),
      choices: [{ index, delta: { content: 'x', ...more }, finish_reason }],
    });
    const tools = { tool_calls: [{ index: 0, id: 'c', function: { arguments: '{"index":5,' } }] };
    const usage = { ...chatChunk(''), choices: [] };
    const forged = 'response_not_authentic';
    const unfinished = 'stream_unfinished';
    const rows: readonly [string, number, readonly Record<string, unknown>[], string?][] = [
      ['is refused after the first one finished', 2, [choice(0), choice(1), choice(0, 'stop')], unfinished],
      ['comes once all have', 2, [choice(0), choice(1), choice(0, 'stop'), choice(1, 'stop')]],
      ['comes in any order', 2, [choice(1), choice(0), choice(1, 'stop'), choice(0, 'length'), usage]],
      ['is refused where one never began', 2, [choice(0), choice(0, 'stop')], unfinished],
      ['is refused where one never began, closed or not', 2, [choice(0, 'stop'), usage], unfinished],
      ['is refused where one finishes twice', 2, [choice(0, 'stop'), choice(0, 'stop')], forged],
      ['has none that was not asked for', 2, [choice(0, 'stop'), choice(1, 'stop'), choice(2)], forged],
      ['has none that was not asked for, at first', 1, [choice(1)], forged],
      ['is refused where one goes on', 2, [choice(0, 'stop'), choice(1, 'stop'), choice(1)], forged],
      ['reads indices of two digits', 12, [choice(11), choice(1, 'stop')], unfinished],
      ['tells tool calls from choices', 4, [choice(3, null, tools), choice(0, 'stop')], unfinished],
      ['finishes a choice of tool calls', 1, [choice(0, null, tools), choice(0, 'tool_calls', tools)]],
      [
        'sees the second of an event without any finish',
        2,
        [{ ...usage, choices: [0, 1].map((index) => ({ index, delta: {} })) }, choice(0, 'stop')],
        unfinished,
      ],
      ...[-1, 0.5, '0', null, undefined].map((index): [string, number, Record<string, unknown>[], string] => [
        `has no choice ${JSON.stringify(index)}`,
        2,
        [{ ...usage, choices: [{ index, delta: {}, finish_reason: null }] }],
        forged,
      ]),
    ];
    for (const [name, choices, objects, code] of rows) {
      it(name, () => {
        const stream = chat();
        const wire = objects.map((object) => stream.event(object)).join('') + DONE;
        const { failure, finished } = run(opener('chat', 8 << 20, choices), [Buffer.from(wire)]);
        assert.deepEqual({ failure, finished }, { failure: code, finished: code === undefined });
      });
    }
  });

  it('does not take a finish from text, from a key further down, or from a null', () => {
    for (const choice of [
      { delta: { content: '"finish_reason":"stop"' }, finish_reason: null },
      { delta: { finish_reason: 'stop' }, finish_reason: null },
      { delta: { finish_reason: 'stop' } },
      { delta: {} },
      { finish_reason: null, delta: {} },
    ]) {
      const wire = chat().event({ ...chatChunk(''), choices: [{ index: 0, ...choice }] }) + DONE;
      assert.equal(open(wire).failure, 'stream_unfinished', JSON.stringify(choice));
    }
  });

  it('takes the finish of legacy completions and of transcriptions', () => {
    const completion = {
      ...chatChunk(''),
      object: 'text_completion',
      choices: [{ index: 0, text: 'x', finish_reason: 'length' }],
    };
    assert.equal(open(chat().event(completion) + DONE, 'completions').failure, undefined);
  });

  it('of a transcription comes with the closing chunk, whatever number of stretches has finished', () => {
    const chunk = (finish_reason: string | null) => ({
      ...chatChunk(''),
      object: 'transcription.chunk',
      choices: [{ delta: { content: 'x' }, finish_reason }],
    });
    const audio = [chunk(null), chunk('stop'), chunk(null), chunk('stop')];
    const closing = { ...chunk(null), choices: [] };
    const wireOf = (objects: readonly Record<string, unknown>[]) => {
      const stream = sealedStream(['duration', 'usage']);
      return objects.map((each) => stream.event(each)).join('') + DONE;
    };
    for (const [objects, code] of [
      [[...audio, closing], undefined],
      [audio, 'stream_unfinished'],
      [audio.slice(0, 2), 'stream_unfinished'],
      [[...audio, closing, chunk(null)], 'response_not_authentic'],
    ] as const) {
      assert.equal(open(wireOf(objects), 'transcriptions').failure, code);
    }
  });

  it('ignores the plain members: a forged usage is no finish', () => {
    const wire = chat().event({ ...chatChunk('a'), usage: { choices: [{ finish_reason: 'stop' }] } }) + DONE;
    assert.equal(open(wire).failure, 'stream_unfinished');
  });

  it('drops what follows it', () => {
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

describe('an event stream of messages', () => {
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
  const event = (stream: ReturnType<typeof messages>, object: { type: string }) =>
    stream.event(object, object.type);

  it('is opened, ping and all', () => {
    const stream = messages();
    const objects = [start, begin(), delta('a'), stopBlock(), finish];
    const wire = objects.map((each) => event(stream, each)).join(PING) + STOP;
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
      const stream = messages();
      const { text, failure } = open(objects.map((each) => event(stream, each)).join('') + STOP, 'messages');
      assert.equal(failure, 'stream_unfinished');
      assert.ok(!text.includes('message_stop'));
    }
  });

  it('does not end by [DONE], which is not of its API', () => {
    const stream = messages();
    const wire = event(stream, start) + event(stream, finish) + DONE;
    assert.equal(open(wire, 'messages').failure, 'stream_unfinished');
    assert.ok(!open(wire, 'messages').text.includes('DONE'));
  });

  describe('has its events in their order', () => {
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
      ['an empty beginning', false, [...text, finish]],
      ['two starts', false, [start, start, finish]],
      ['a start after a block', false, [start, ...text, start, finish]],
      ['a block that begins with 1', false, [start, begin(1), stopBlock(1), finish]],
      ['a block that begins twice', false, [start, begin(), begin(), stopBlock(), finish]],
      ['block 0 once more', false, [start, ...text, ...text, finish]],
      ['a delta of another block', false, [start, begin(), delta('a', 1), stopBlock(), finish]],
      ['a delta without a block', false, [start, delta('a'), finish]],
      ['the end of another block', false, [start, begin(), stopBlock(1), finish]],
      ['an end without a block', false, [start, stopBlock(), finish]],
      ['a finish in a block', false, [start, begin(), delta('a'), finish]],
      ['a block after a delta of the message', false, [start, unstopped, begin(), stopBlock(), finish]],
      ['a block after the finish', false, [start, finish, begin(), stopBlock(), finish]],
      ['two finishes', false, [start, finish, finish]],
    ];
    for (const [name, honest, objects] of rows) {
      it(`${name}: ${honest ? 'passes' : 'refused'}`, () => {
        const stream = messages();
        const wire = objects.map((each) => event(stream, each)).join('') + STOP;
        assert.equal(open(wire, 'messages').failure, honest ? undefined : 'response_not_authentic');
      });
    }
  });

  it('takes no members that the API does not have, but for context_management of the last delta', () => {
    const objects = [start, begin(), delta('a'), stopBlock(), finish];
    const code = (at: number, more: object) => {
      const stream = messages();
      const events = objects.map((each, i) => event(stream, i === at ? { ...each, ...more } : each));
      return open(events.join('') + STOP, 'messages').failure;
    };
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

  it('takes every event of the API as it is', () => {
    const stream = messages();
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
    const wire = objects.map((object) => event(stream, object)).join('') + STOP;
    const { failure, finished } = open(wire, 'messages');
    assert.deepEqual({ failure, finished }, { failure: undefined, finished: true });
  });

  it('refuses a type that is none: unknown, a member of every object, or with escapes', () => {
    for (const type of ['constructor', 'toString', '__proto__', 'new_thing', '', 'p\\u0069ng']) {
      const wire = messages().event({ type: 'ping', z: 1 }).replace('"ping"', `"${type}"`);
      for (const name of ['', `event: ${type}\n`, 'event: ping\n']) {
        assert.equal(open(name + wire, 'messages').failure, 'response_not_authentic', type);
      }
    }
  });

  it('refuses an event without a type', () => {
    const wire = messages().event({ index: 0, delta: {} });
    assert.equal(open(wire, 'messages').failure, 'response_not_authentic');
  });

  it('refuses any other event without ciphertext', () => {
    for (const bare of ['{"type":"message_delta","usage":{}}', '{"type":"error"}', '{"id":"x"}', '{}']) {
      assert.equal(open(`data: ${bare}\n\n`, 'messages').failure, 'response_not_authentic', bare);
    }
  });
});

describe('further members of an event', () => {
  it('may have the names of members that every object has', () => {
    for (const name of ['constructor', 'toString', 'hasOwnProperty']) {
      const object = { ...chatChunk('a', 'stop'), [name]: 1 };
      assert.deepEqual(open(chat().event(object) + DONE), {
        text: openEvent(object) + DONE,
        failure: undefined,
        finished: true,
      });
    }
  });
});

describe('errors inside an event stream', () => {
  const error = { error: { message: 'boom', type: 'x', code: 500 } };

  it('let [DONE] pass behind them where they are authentic, wherever it is cut, and nothing else', () => {
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

  it('of the messages API are its end where they are authentic', () => {
    const object = { type: 'error', ...error };
    const wire = messages().event(object, 'error');
    assert.deepEqual(open(wire, 'messages'), {
      text: openEvent(object, 'error'),
      failure: undefined,
      finished: true,
    });
  });

  it('are not authentic in clear', () => {
    for (const endpoint of ['chat', 'messages'] as const) {
      const wire = `data: ${JSON.stringify({ type: 'error', ...error })}\n\n`;
      assert.deepEqual(open(wire, endpoint), {
        text: '',
        failure: 'response_not_authentic',
        finished: false,
      });
    }
  });

  it('are objects: a null, or another member under that name, is not authentic', () => {
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

  it('a sealed value that is not JSON is not authentic, whatever its member', () => {
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

  it('are none where they are null beside content', () => {
    const wire = chat().event({ ...chatChunk('a'), error: null });
    assert.equal(open(wire).failure, 'stream_unfinished');
  });
});

describe('event streams that a gateway edits', () => {
  const objects = [chatChunk('one'), chatChunk('two', null, 2), chatChunk('three', 'stop', 3)];
  const events = () => {
    const stream = chat();
    return objects.map((object) => stream.event(object));
  };
  const first = openEvent(objects[0]!);

  it('a plain value where ciphertext belongs is noticed, whatever its kind', () => {
    const [a, b] = events() as [string, string];
    for (const value of ['"forged"', '[]', 'null', '{"index":0}', '1']) {
      const forged = b.replace(/"choices": "[^"]*"/, `"choices": ${value}`);
      assert.notEqual(forged, b);
      const { text, failure } = open(a + forged + DONE);
      assert.match(String(failure), /^response_(malformed|not_authentic)$/);
      assert.equal(text, first);
    }
  });

  it('a plain value put beside the ciphertext is noticed: added, repeated, or inside usage', () => {
    const [a, b] = events() as [string, string];
    for (const extra of ['"x":1,', '"choices":[],', '"usage":1,', '"choices":"x:y:z:00",']) {
      const { text, failure } = open(a + b.replace('{', `{${extra}`) + DONE);
      assert.match(String(failure), /^response_(malformed|not_authentic)$/, extra);
      assert.equal(text, first);
    }
    for (const usage of ['{"a":1}}', '{"a":1},"choices":[]', '1 2', '{"a":01}', '{a:1}', '']) {
      const { failure } = open(a + b.replace(/"usage": \{[^}]*\}/, `"usage": ${usage}`) + DONE);
      assert.match(String(failure), /^response_(malformed|not_authentic)$/, usage);
    }
  });

  it('a plain value that differs from the one before only in digits is still JSON, or malformed', () => {
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

  it('bare events are not authentic', () => {
    for (const bare of ['{}', '{"id":"x"}', '{"usage":{"total_tokens":1}}', '{"id":"x","usage":null}']) {
      assert.equal(open(`data: ${bare}\n\n`).failure, 'response_not_authentic', bare);
    }
  });

  it('six characters that are not [DONE] are no end, before or after the finish', () => {
    for (const data of ['[DONF]', '"DONE"', '123456', '[1, 2]', '{"a":1']) {
      assert.equal(open(`data: ${data}\n\n`).failure, 'response_malformed', data);
      const finished = chat().event(chatChunk('a', 'stop'));
      assert.deepEqual(open(`${finished}data: ${data}\n\n`), {
        text: openEvent(chatChunk('a', 'stop')),
        failure: 'response_malformed',
        finished: false,
      });
    }
  });

  it('what is no object is malformed', () => {
    for (const data of ['hello', '1', 'null', '[]', '"x"', '{"a":', '[DONE', '{"choices":"x"} y']) {
      assert.equal(open(`data: ${data}\n\n`).failure, 'response_malformed', data);
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

  it('no single changed byte of an event changes what is delivered, but for plain members and names', () => {
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
        each.replace(/"(id|usage)": ("[^"]*"|\{[^}]*\})/g, '').replace(/"[^"]{2,20}": /g, '');
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
    /** Code and delivered events, where the second of four events is changed before it is sealed. */
    const code = (change: (event: Record<string, unknown>) => Record<string, unknown>) => {
      const stream = sealedStream(plain);
      const events = [of(A), change(of(B)), of(END), of(CLOSING)].map((each) => stream.event(each));
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
      ['a known name in other letters', { Model: null }, false],
      ['a known plain name in other letters', { USAGE: null }, false],
      ['a known member of another type', { system_fingerprint: 1 }, false],
    ];
    for (const [name, more, passes] of rows) {
      it(`${endpoint}: ${name} ${passes ? 'passes' : 'is refused'}`, () => {
        assert.deepEqual(
          code((event) => ({ ...event, ...more })),
          passes ? honest : forged,
        );
      });
    }

    const constant = ['created', 'model', 'object', ...(endpoint === 'transcriptions' ? ['id'] : [])];
    it(`${endpoint}: null means null only`, () => {
      for (const [value, result] of [
        [null, honest],
        ['ab', honest],
        [1234, forged],
        [true, forged],
      ] as const) {
        const more = { system_fingerprint: value };
        assert.deepEqual(
          code((event) => ({ ...event, ...more })),
          result,
          String(value),
        );
      }
    });

    for (const name of constant) {
      it(`${endpoint}: ${name} is there, and the same in every event`, () => {
        assert.deepEqual(
          code((event) => event),
          honest,
        );
        for (const value of [2, 170, 1_700_000_001, 'other', 'n', null]) {
          assert.deepEqual(
            code((event) => ({ ...event, [name]: value })),
            forged,
          );
        }
        assert.deepEqual(
          code(({ [name]: __, ...event }) => event),
          forged,
        );
      });
    }

    it(`${endpoint}: the object says of what kind the response is`, () => {
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
      it(`is delivered in ${usage === 'none' ? 'no event' : `${usage} event`}, as asked: ${place}`, () => {
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
          assert.deepEqual(
            events.map((each) => JSON.parse(each.replace('data: ', ''))),
            expected,
          );
          assert.deepEqual(
            events.map((each) => Object.keys(JSON.parse(each.replace('data: ', '')))),
            expected.map((each) => Object.keys(each)),
          );
          assert.equal(opened.events, expected.length + 1);
        }
      });
    }
  }

  it('counts the closing chunk for the end, delivered or not', () => {
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

  it('leaves nothing else out of a chunk whose only member is left out', () => {
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
    'event names, which OpenAI-style clients skip events by': (data) =>
      `event: thread.x\ndata: ${data}\n\nevent: error\ndata: [DONE]\n\n`,
  };
  for (const [name, wire] of Object.entries(wires)) {
    it(name, () => {
      const bytes = Buffer.from(wire(chat().object(object)));
      for (const chunks of everyChunking(bytes)) {
        assert.deepEqual(run(opener(), chunks), { text, failure: undefined, finished: true });
      }
    });
  }

  it('keeps comments, ids and retry', () => {
    const wire = `: keep-alive\n\nid: 7\nretry: 250\ndata: ${chat().object(object)}\n\n:\n${DONE}`;
    assert.equal(open(wire).text, `: keep-alive\n\nretry: 250\nid: 7\n${openEvent(object)}: \n\n${DONE}`);
  });

  it('writes opened text with line breaks as one data line', () => {
    const stream = chat();
    const data = stream.object(object).replace('{', '{\n').replace(/\}$/, '\n}');
    const wire = `data: ${data.split('\n').join('\ndata: ')}\n\n${DONE}`;
    assert.deepEqual(
      JSON.parse(
        open(wire)
          .text.split('\n')[0]!
          .replace(/^data: /, ''),
      ),
      object,
    );
  });

  it('takes an event of several MiB', () => {
    const large = chatChunk('x'.repeat(3 << 20), 'stop');
    assert.equal(open(chat().event(large) + DONE).text, openEvent(large) + DONE);
  });
});

describe('endpoints without streams', () => {
  it('have none opened', () => {
    for (const id of ['embeddings', 'unstructured'] as const) {
      assert.throws(() => new EventDecrypter({ id }, fixedCipher(), ASKED), { code: 'response_malformed' });
    }
    assert.throws(() => new EventDecrypter({ id: 'models' }, fixedCipher(), ASKED), { code: 'internal' });
  });
});
