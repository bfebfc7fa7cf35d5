/** Anthropic messages. Every event is named after its type. */
import {
  forVersions,
  type Members,
  MODEL,
  type Row,
  SERVED_MODEL,
  since,
  stream,
  type Transcript,
  type TranscriptEvent,
  type Version,
  whole,
} from './transcript.ts';

const ID = 'chatcmpl-6a1f7730c2d84b9e';
const REQUEST = { model: MODEL, max_tokens: 100, messages: [{ role: 'user', content: 'Say something.' }] };
const asked = (more: Members = {}): Members => ({ ...REQUEST, ...more });
const streamed = (more: Members = {}): Members => asked({ stream: true, ...more });

const event = (type: string, members: Members = {}): TranscriptEvent => ({
  event: type,
  data: { type, ...members },
});

/**
 * The order of the members of an event is that of the server's class: `delta` and `content_block` before
 * `index`.
 */
const start = (version: Version, model = MODEL): TranscriptEvent =>
  event('message_start', {
    message: {
      id: ID,
      // Members that were never set are left out, and 0.20 sets neither.
      ...(since(version, '0.26') ? { type: 'message', role: 'assistant' } : {}),
      content: [],
      model,
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: 11, output_tokens: 0 },
    },
  });

const opens = (index: number, block: Members): TranscriptEvent =>
  event('content_block_start', { content_block: block, index });
const grows = (index: number, delta: Members): TranscriptEvent =>
  event('content_block_delta', { delta, index });
const closes = (index: number): TranscriptEvent => event('content_block_stop', { index });

const stops = (version: Version, reason: string | null, sequence: string | null = null): TranscriptEvent =>
  event('message_delta', {
    delta: {
      stop_reason: reason,
      ...(since(version, '0.33') ? { stop_sequence: sequence } : {}),
    },
    usage: { input_tokens: 11, output_tokens: 5 },
  });

const STOP = event('message_stop');
const PING = event('ping');

const text = (index: number, ...pieces: readonly string[]): TranscriptEvent[] => [
  opens(index, { type: 'text', text: '' }),
  ...pieces.map((piece) => grows(index, { type: 'text_delta', text: piece })),
  closes(index),
];

const thinking = (index: number): TranscriptEvent[] => [
  opens(index, { type: 'thinking', thinking: '' }),
  grows(index, { type: 'thinking_delta', thinking: 'Let me' }),
  grows(index, { type: 'thinking_delta', thinking: ' think.' }),
  grows(index, { type: 'signature_delta', signature: '8f6d3c0b2a194e57' }),
  closes(index),
];

const toolUse = (index: number, name: string, pieces: readonly string[]): TranscriptEvent[] => [
  opens(index, { type: 'tool_use', id: `chatcmpl-tool-${index}`, name, input: {} }),
  ...pieces.map((piece) => grows(index, { type: 'input_json_delta', partial_json: piece })),
  closes(index),
];

const TOOLS = [
  { name: 'get_weather', input_schema: { type: 'object', properties: { city: { type: 'string' } } } },
];

const ERROR = event('error', {
  error: { type: 'internal_error', message: 'EngineCore encountered an issue.' },
});

/** An error ends the stream where it stands; from 0.33 on the block is closed before. */
const broken = (version: Version): TranscriptEvent[] => [
  start(version),
  opens(0, { type: 'text', text: '' }),
  grows(0, { type: 'text_delta', text: 'Hel' }),
  ...(since(version, '0.33') ? [closes(0)] : []),
  ERROR,
];

const streamRow = (name: string, request: Members, events: readonly TranscriptEvent[]): Row => ({
  ...{ name, request, response: stream(events) },
});

const streams = (version: Version): Row[] => [
  streamRow('plain text', streamed(), [
    start(version, SERVED_MODEL),
    ...text(0, 'Hello', ', "wörld" 🙂\n', 'event: message_stop'),
    stops(version, 'end_turn'),
    STOP,
  ]),
  streamRow('no more tokens', streamed(), [
    start(version),
    ...text(0, 'Hel'),
    stops(version, 'max_tokens'),
    STOP,
  ]),
  streamRow('a ping, thinking with its signature, then text', streamed(), [
    start(version),
    PING,
    ...thinking(0),
    ...text(1, '6', ' * ', '7'),
    stops(version, 'end_turn'),
    STOP,
  ]),
  streamRow('text, then two tools', streamed({ tools: TOOLS }), [
    start(version),
    ...text(0, 'I will look.'),
    ...toolUse(1, 'get_weather', ['{"city"', ': "Oslo"}']),
    ...toolUse(2, 'get_weather', ['{}']),
    stops(version, 'tool_use'),
    STOP,
  ]),
  streamRow('a tool without arguments', streamed({ tools: TOOLS }), [
    start(version),
    ...toolUse(0, 'get_weather', []),
    stops(version, 'tool_use'),
    STOP,
  ]),
  streamRow('no block at all', streamed(), [start(version), stops(version, 'end_turn'), STOP]),
  streamRow('pings, as other servers send them', streamed(), [
    start(version),
    PING,
    ...text(0, 'Hello'),
    PING,
    stops(version, 'end_turn'),
    STOP,
  ]),
  {
    name: 'an error after the start',
    request: streamed(),
    response: stream([start(version), ERROR]),
    ends: 'error',
  },
  { name: 'an error first', request: streamed(), response: stream([ERROR]), ends: 'error' },
  { name: 'an error after content', request: streamed(), response: stream(broken(version)), ends: 'error' },
  // The API has no word for `abort` and `repetition`, so these end without a reason.
  {
    name: 'no reason to stop',
    request: streamed(),
    response: stream([start(version), ...text(0, 'Hel'), stops(version, null), STOP]),
    ends: 'unfinished',
  },
];

const latestStreams = (version: Version): Row[] => [
  streamRow('stopped by a text', streamed({ stop_sequences: ['END'] }), [
    start(version),
    ...text(0, 'x'),
    stops(version, 'stop_sequence', 'END'),
    STOP,
  ]),
  streamRow('no block, and context management of null', streamed(), [
    start(version),
    event('message_delta', {
      delta: { stop_reason: 'end_turn', stop_sequence: null },
      usage: { input_tokens: 11, output_tokens: 5 },
      context_management: null,
    }),
    STOP,
  ]),
];

const message = (content: readonly Members[], reason: string, more: Members = {}): Members => ({
  id: ID,
  type: 'message',
  role: 'assistant',
  content,
  model: MODEL,
  stop_reason: reason,
  ...more,
  usage: { input_tokens: 11, output_tokens: 5 },
});

const wholes = (version: Version): Row[] => [
  {
    name: 'a whole answer',
    request: asked(),
    response: whole(
      message([{ type: 'text', text: 'Hello "wörld" 🙂\n' }], 'end_turn', { model: SERVED_MODEL }),
    ),
  },
  {
    name: 'a whole answer that was cut by its length',
    request: asked(),
    response: whole(message([{ type: 'text', text: 'Hel' }], 'max_tokens')),
  },
  {
    name: 'a whole answer that thinks, says something and uses a tool',
    request: asked({ tools: TOOLS }),
    response: whole(
      message(
        [
          { type: 'thinking', thinking: 'Let me think.', signature: '8f6d3c0b2a194e57' },
          { type: 'text', text: 'I will look.' },
          { type: 'tool_use', id: 'chatcmpl-tool-0', name: 'get_weather', input: { city: 'Oslo' } },
        ],
        'tool_use',
      ),
    ),
  },
  ...(since(version, '0.26')
    ? []
    : [
        {
          name: 'a whole answer without content',
          request: asked(),
          response: whole(message([], 'end_turn')),
        },
      ]),
];

const latestWholes: readonly Row[] = [
  {
    name: 'a whole answer that a text stopped which reads like a reason',
    request: asked({ stop_sequences: ['end_turn'] }),
    response: whole(message([{ type: 'text', text: 'x' }], 'stop_sequence', { stop_sequence: 'end_turn' })),
  },
  {
    name: 'a whole answer with transfer parameters',
    request: asked(),
    response: whole({
      ...message([{ type: 'text', text: 'x' }], 'end_turn'),
      kv_transfer_params: { remote_block_ids: [4] },
      ec_transfer_params: { remote_engine_id: 'e1' },
    }),
  },
];

export const MESSAGES: readonly Transcript[] = forVersions('messages', (version) => [
  ...streams(version),
  ...(since(version, '0.33') ? latestStreams(version) : []),
  ...wholes(version),
  ...(since(version, '0.33') ? latestWholes : []),
]);
