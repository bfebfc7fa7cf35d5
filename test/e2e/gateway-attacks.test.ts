/**
 * The service's own gateway attacks: it has no key, and neither names of members and events nor plain members
 * nor the direction of a message are authenticated. Whatever it makes of a response, an application that uses
 * the official client gets the honest answer, or an honest beginning of it and then an error, or an error.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { ask, type Outcome, readStream } from '../support/doors/sdk-outcome.ts';
import {
  essenceOf,
  type HonestExchange,
  honestExchanges,
  PLAIN,
} from '../support/remote/honest-exchanges.ts';
import {
  type Ask,
  type Attack,
  type HostileStack,
  onEvents,
  onMembers,
  onPlain,
  startHostileStack,
  type WireRequest,
  type WireResponse,
} from '../support/remote/man-in-the-middle.ts';
import { CREATED, MODEL } from '../support/remote/transcripts/transcript.ts';
import {
  inSequence,
  isSealed,
  membersOf,
  messagesOf,
  parseBody,
  type WireEvent,
  type WireMember,
  withUpperCaseIv,
  writeBody,
} from '../support/remote/wire-text.ts';

/**
 * `refused`: an error event and a broken connection after an honest beginning, or a 502 in place of a whole
 * answer. `harmless`: the application gets the honest answer. `either`: one of the two. `error`: what it gets
 * is an error, of whatever kind.
 */
type Expected = 'refused' | 'harmless' | 'either' | 'error';

/**
 * What is asked (the name of an honest exchange), how it is edited, and what the application must get: by
 * default a refusal. `worker`: the exchange whose answer the worker really gave, where the gateway had it
 * asked something else.
 */
type Row = readonly [name: string, exchange: string, attack: Attack, expected?: Expected, worker?: string];

/** The codes of refusals. */
const REFUSED = [
  'response_not_authentic',
  'response_malformed',
  'stream_unfinished',
  'response_not_encrypted',
];

// What a gateway can do to events.

type Edit = (events: readonly WireEvent[]) => readonly WireEvent[];

const DONE: WireEvent = { data: '[DONE]' };
const MESSAGE_STOP: WireEvent = {
  event: 'message_stop',
  data: [{ name: 'type', value: '"message_stop"' }],
};

const sealedIn = (...events: readonly WireEvent[]): string[] =>
  events.flatMap((event) => inSequence(membersOf(event).filter(isSealed), []).map(({ value }) => value));
const plainIn = (event: WireEvent): WireMember[] => membersOf(event).filter((member) => !isSealed(member));
const named = (messages: readonly string[], names: readonly string[]): WireMember[] =>
  messages.map((value, index) => ({ name: names[index] ?? `z${String(index).padStart(3, '0')}`, value }));
const numbered = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}${String(index).padStart(3, '0')}`);

const edited =
  (at: number, edit: (event: WireEvent) => WireEvent): Edit =>
  (events) =>
    events.map((event, index) => (index === at ? edit(event) : event));

/**
 * Makes one event of `count` of them, with the messages of all under `names`; the later ones under `z…` where
 * the names end.
 */
const merged =
  (at: number, count: number, names: readonly string[], like = at): Edit =>
  (events) => {
    const gone = events.slice(at, at + count);
    const { event } = events[like] as WireEvent;
    const data = [...plainIn(events[like] as WireEvent), ...named(sealedIn(...gone), names)];
    return events.toSpliced(at, count, { event, data });
  };

/** The messages of the event behind it go under names that sort behind its own. */
const hidden =
  (at: number, count = 2): Edit =>
  (events) => {
    const first = events[at] as WireEvent;
    const later = sealedIn(...events.slice(at + 1, at + count));
    const data = [...membersOf(first), ...named(later, numbered('z', later.length))];
    return events.toSpliced(at, count, { ...first, data });
  };

/**
 * Its own messages go under names that sort before those of the event behind it, which take the names that
 * are read.
 */
const displaced =
  (at: number, prefix = 'a'): Edit =>
  (events) => {
    const own = sealedIn(events[at] as WireEvent);
    const next = events[at + 1] as WireEvent;
    const data = [...named(own, numbered(prefix, own.length)), ...membersOf(next)];
    return events.toSpliced(at, 2, { ...next, data });
  };

const renamed =
  (at: number, from: string, to: string): Edit =>
  (events) =>
    edited(at, (event) => ({ ...event, data: rename(from, to)(membersOf(event)) }))(events);
const rename =
  (from: string, to: string) =>
  (members: readonly WireMember[]): WireMember[] =>
    members.map(({ name, value }) => ({ name: name === from ? to : name, value }));
const removed =
  (...names: readonly string[]) =>
  (members: readonly WireMember[]): WireMember[] =>
    members.filter(({ name }) => !names.includes(name));
/** All messages anew under these names, in their order; what has no name goes. */
const renamedAll =
  (...names: readonly string[]) =>
  (members: readonly WireMember[]): WireMember[] => [
    ...members.filter((member) => !isSealed(member)),
    ...named(
      inSequence(members.filter(isSealed), [])
        .map(({ value }) => value)
        .slice(0, names.length),
      names,
    ),
  ];
const withPlain =
  (name: string, value: string) =>
  (members: readonly WireMember[]): WireMember[] => [...removed(name)(members), { name, value }];
const withData =
  (at: number, edit: (members: readonly WireMember[]) => readonly WireMember[]): Edit =>
  (events) =>
    edited(at, (event) => ({ ...event, data: edit(membersOf(event)) }))(events);

const labelled = (at: number, event: string | readonly string[] | undefined): Edit =>
  edited(at, ({ data }) => ({ event, data }));
const typed = (at: number, type: string): Edit =>
  edited(at, ({ data }) => ({
    event: type,
    data: withPlain('type', JSON.stringify(type))(membersOf({ data })),
  }));
const cut =
  (at: number, ...instead: readonly WireEvent[]): Edit =>
  (events) => [...events.slice(0, at), ...instead];
const inserted =
  (at: number, event: WireEvent): Edit =>
  (events) =>
    events.toSpliced(at, 0, event);
const dropped =
  (...at: readonly number[]): Edit =>
  (events) =>
    events.filter((_, index) => !at.includes(index));
const every =
  (edit: (event: WireEvent) => WireEvent): Edit =>
  (events) =>
    events.map(edit);
const plainEvent = (value: Readonly<Record<string, unknown>>, event?: string): WireEvent => ({
  event,
  data: Object.entries(value).map(([name, member]) => ({ name, value: JSON.stringify(member) })),
});

// What it can do to heads and requests.

const head = (status: number | undefined, headers: Readonly<Record<string, string>> = {}): Attack => ({
  onResponse: (response) => ({
    ...response,
    status: status ?? response.status,
    headers: { ...response.headers, ...headers },
  }),
});
/** The status of a success, with the sealed error under that name. */
const errorAs = (name: string): Attack => ({
  onResponse: (response, request) => ({
    ...(onMembers(rename('error', name)).onResponse?.(response, request) as WireResponse),
    status: 200,
  }),
});
/** The same head and nothing behind it. */
const emptied = (status: number): Attack => ({
  onResponse: ({ headers }) => ({ status, headers, content: { text: '' } }),
});
/** That text in place of the body. */
const said = (text: string, changes: Partial<WireResponse> = {}): Attack => ({
  onResponse: (response) => ({ ...response, ...changes, content: { text } }),
});
/**
 * The worker is asked as if for the answer that the other model gives; `plain` are further plain members of
 * the request.
 */
const askedAs = (model: string, plain: Readonly<Record<string, string>> = {}): Attack =>
  onPlain({ model: JSON.stringify(model), ...plain });

/**
 * The request runs twice; of the first run come `count` events, of the second, which that model answers, the
 * rest.
 */
const spliced = (count: number, model: string): Attack => ({
  onRequest: async (request, askWorker) => {
    const second = await askedAs(model).onRequest?.(request, askWorker);
    const runs = [await askWorker(request), await askWorker(second as typeof request)] as const;
    const [one, two] = runs.map(({ content }) => ('events' in content ? content.events : []));
    const events = [...(one ?? []).slice(0, count), ...(two ?? []).slice(count)];
    return { ...runs[0], content: { events } };
  },
});

type Api = HonestExchange['api'];
const OK = { 'content-type': 'application/json' };
const STREAM_HEAD = { 'content-type': 'text/event-stream; charset=utf-8' };

/**
 * The worker is not asked: the messages of the request come back as events, so many messages in each, under
 * these names.
 */
function reflectedStream(
  api: Api,
  layout: readonly WireEvent[],
  change: (message: string) => string = (m) => m,
): Attack {
  return {
    onRequest: async ({ body }): Promise<WireResponse> => {
      const messages = messagesOf(body, PLAIN[api].request).map(change);
      const take = (event: WireEvent): WireEvent =>
        typeof event.data === 'string'
          ? event
          : {
              ...event,
              data: event.data.map(({ name, value }) => ({
                name,
                value: value === '' ? (messages.shift() ?? '""') : value,
              })),
            };
      return { status: 200, headers: STREAM_HEAD, content: { events: layout.map(take) } };
    },
  };
}
function reflectedBody(
  api: Api,
  names: readonly string[],
  change: (message: string) => string = (m) => m,
): Attack {
  return {
    onRequest: async ({ body }): Promise<WireResponse> => {
      const messages = messagesOf(body, PLAIN[api].request).slice(0, names.length).map(change);
      const isArray = api === 'unstructured';
      const members = [
        ...named(messages, names),
        ...(api === 'messages' ? [{ name: 'type', value: '"message"' }] : []),
      ];
      return { status: 200, headers: OK, content: { body: { isArray, members } } };
    },
  };
}
/** An event whose members are filled with the next messages of the request. */
const filled = (names: readonly string[], type?: string): WireEvent => ({
  event: type,
  data: [
    ...(type === undefined ? [] : [{ name: 'type', value: JSON.stringify(type) }]),
    ...names.map((name) => ({ name, value: '' })),
  ],
});
/** The worker's stream, its first messages replaced by those of the request. */
const reflectedBeginning = (api: Api, count: number): Attack =>
  onEvents((events, { body }) => {
    const messages = messagesOf(body, PLAIN[api].request).slice(0, count);
    let next = 0;
    return events.map((event) => {
      if (typeof event.data === 'string') return event;
      const order = inSequence(event.data.filter(isSealed), []);
      const replaced = new Map(order.map((member) => [member, messages[next++] ?? member.value]));
      return {
        ...event,
        data: event.data.map((member) => ({ ...member, value: replaced.get(member) ?? member.value })),
      };
    });
  });

/**
 * The worker is asked as if for that stream or body; the members of its first event, or of its body, by name.
 */
async function firstMembers(
  name: string,
  plain: Readonly<Record<string, string>>,
  request: WireRequest,
  askWorker: Ask,
): Promise<readonly WireMember[]> {
  const changed = await askedAs(name, plain).onRequest?.(request, askWorker);
  const { content } = await askWorker(changed as WireRequest);
  if ('events' in content) return membersOf(content.events[0] as WireEvent);
  return 'body' in content ? content.body.members : [];
}

/** The first event of a stream as if it were the whole body. */
const firstChunkAsBody = (stream: string): Attack => ({
  onRequest: async (request, askWorker) => ({
    status: 200,
    headers: OK,
    content: {
      body: {
        isArray: false,
        members: await firstMembers(stream, { stream: 'true' }, request, askWorker),
      },
    },
  }),
});

/** Two runs of one request, one of them streamed: the choices of the one, everything else of the other. */
const choicesOf = (other: string, own: string, streaming: boolean): Attack => ({
  onRequest: async (request, askWorker) => {
    const from = await firstMembers(other, { stream: String(!streaming) }, request, askWorker);
    const rest = await firstMembers(own, { stream: String(streaming) }, request, askWorker);
    const choices = from.find(({ name }) => name === 'choices') as WireMember;
    const members = rest.map((member) => (member.name === 'choices' ? choices : member));
    return streaming
      ? { status: 200, headers: STREAM_HEAD, content: { events: [{ data: members }, DONE] } }
      : { status: 200, headers: OK, content: { body: { isArray: false, members } } };
  },
});

/**
 * The sealed request also goes to the chat API, its plain members made for that: the choices of that run are
 * the content of the other.
 */
const choicesAsContent = (chat: string): Attack => ({
  onRequest: async (request, askWorker) => {
    const answered = await askWorker(request);
    const { members } = parseBody(request.body);
    const body = writeBody({
      isArray: false,
      members: withPlain('model', JSON.stringify(chat))(rename('max_tokens', 'max_tokent')(members)),
    });
    const other = await askWorker({ ...request, path: '/v1/chat/completions', body });
    const bodyOf = ({ content }: WireResponse): readonly WireMember[] =>
      'body' in content ? content.body.members : [];
    const choices = bodyOf(other).find(({ name }) => name === 'choices') as WireMember;
    return {
      ...answered,
      content: {
        body: { isArray: false, members: withPlain('content', choices.value)(bodyOf(answered)) },
      },
    };
  },
});

// What is asked.

/** Fields of a request that read, in their order, like the messages of a response. */
const lookAlike = (values: readonly unknown[]): Record<string, unknown> =>
  Object.fromEntries(values.map((value, index) => [`a${String(index).padStart(3, '0')}`, value]));
const chatLook = (delta: object, finish: string | null = null): unknown[] => [
  [{ index: 0, delta, logprobs: null, finish_reason: finish }],
  CREATED,
  MODEL,
  'chat.completion.chunk',
];
const textLook = (text: string, finish: string | null = null): unknown[] => [
  [{ index: 0, text, logprobs: null, finish_reason: finish }],
  CREATED,
  MODEL,
  'text_completion',
];
const WHOLE_LOOK = {
  chat: [
    [{ index: 0, message: { role: 'assistant', content: 'reflected' }, finish_reason: 'stop' }],
    CREATED,
    MODEL,
    'chat.completion',
  ],
  completions: textLook('reflected', 'stop'),
  messages: [[{ type: 'text', text: 'reflected' }], MODEL, 'assistant', 'end_turn'],
  embeddings: [[{ object: 'embedding', index: 0, embedding: [1] }], MODEL, 'list'],
};

/** The simulator refuses no document, so nobody gets that error here. */
const HONEST = honestExchanges().filter(({ name }) => name !== 'unstructured-error');
const byName = new Map(HONEST.map((exchange) => [exchange.name, exchange]));
const honest = (name: string): HonestExchange => byName.get(name) as HonestExchange;
const FORGED = JSON.stringify(honest('chat-whole').body);

/** An exchange whose request holds more; the model server answers it like the other one. */
const asking = (like: string, name: string, request: Record<string, unknown>): HonestExchange => ({
  ...honest(like),
  name,
  request: { ...honest(like).request, ...request },
});
/** A second run of all streams, which differs in one thing and in what it says. */
const otherRun = (what: 'created' | 'model' | 'id', value: number | string): HonestExchange[] =>
  honestExchanges({ says: 'other ', [what]: value })
    .filter(({ events }) => events !== undefined)
    .map((exchange) => ({
      ...exchange,
      request: { ...exchange.request, model: `${exchange.name}/${what}` },
    }));

const REQUESTS: readonly HonestExchange[] = [
  asking('chat-whole', 'chat-whole-look', lookAlike(WHOLE_LOOK.chat)),
  asking('chat-stream', 'chat-stream-look', {
    ...lookAlike([
      ...chatLook({ role: 'assistant', content: 'reflected' }),
      ...chatLook({}, 'stop'),
      [],
      ...chatLook({}).slice(1),
    ]),
  }),
  asking('chat-stream', 'chat-stream-begin', {
    ...lookAlike([...chatLook({ role: 'assistant', content: 'reflected' }), null]),
  }),
  asking('completions-whole', 'completions-whole-look', lookAlike(WHOLE_LOOK.completions)),
  asking('completions-stream', 'completions-stream-look', {
    ...lookAlike([...textLook('reflected'), ...textLook('', 'stop'), [], ...textLook('').slice(1)]),
  }),
  asking('messages-whole', 'messages-whole-look', lookAlike(WHOLE_LOOK.messages)),
  asking('messages-stream', 'messages-stream-look', {
    ...lookAlike([
      {
        id: 'msg_1',
        type: 'message',
        role: 'assistant',
        content: [],
        model: MODEL,
        stop_reason: null,
        usage: {},
      },
      { type: 'text', text: '' },
      0,
      { type: 'text_delta', text: 'reflected' },
      0,
      0,
      { stop_reason: 'end_turn' },
    ]),
  }),
  asking('embeddings-whole', 'embeddings-whole-look', lookAlike(WHOLE_LOOK.embeddings)),
  asking('transcription-whole', 'transcription-whole-look', lookAlike(['"reflected"'])),
  asking('unstructured-whole', 'unstructured-whole-look', {
    type: 'Text',
    element_id: '0',
    text: 'reflected',
  }),
  asking('transcription-stream', 'transcription-stream-look', {
    ...lookAlike(
      [
        [{ delta: { content: 'reflected' }, finish_reason: 'stop' }],
        CREATED,
        'trsc-1',
        MODEL,
        'transcription.chunk',
        [],
        CREATED,
        'trsc-1',
        MODEL,
        'transcription.chunk',
      ].map((value) => JSON.stringify(value)),
    ),
  }),
];
const EXCHANGES = new Map([...HONEST, ...REQUESTS].map((exchange) => [exchange.name, exchange]));

/** One choice of one token: its closing chunk comes where the second choice of two has but named its role. */
const SHORT: HonestExchange = {
  ...honest('chat-stream'),
  name: 'chat-stream-short',
  request: { ...honest('chat-stream').request, model: 'chat-stream-short' },
  events: (() => {
    const [role, content, closing] = [0, 1, -1].map((at) => honest('chat-stream').events?.at(at));
    const { kv_transfer_params: _, ...chunk } = content as Record<string, unknown>;
    const choices = [{ index: 0, delta: { content: 'one' }, logprobs: null, finish_reason: 'length' }];
    return [role, { ...chunk, choices }, closing] as NonNullable<HonestExchange['events']>;
  })(),
};

/**
 * Two choices are asked for: the roles of both, then the closing chunk of a run with one choice and one
 * token.
 */
const closedAfterRoles: Attack = {
  onRequest: async (request, askWorker) => {
    const eventsOf = async (name: string, n: string): Promise<readonly WireEvent[]> => {
      const changed = await askedAs(name, { n }).onRequest?.(request, askWorker);
      const { content } = await askWorker(changed as WireRequest);
      return 'events' in content ? content.events : [];
    };
    const [two, one] = [await eventsOf('chat-stream-2', '2'), await eventsOf(SHORT.name, '1')];
    const [first, second] = two as [WireEvent, WireEvent];
    const events = [
      first,
      { data: removed('prompt_token_ids')(membersOf(second)) },
      one[2] as WireEvent,
      DONE,
    ];
    return { status: 200, headers: STREAM_HEAD, content: { events } };
  },
};

// The attacks.

const CHUNK = ['choices', 'created', 'model', 'object'];
const TRANSCRIPTION_CHUNK = ['choices', 'created', 'id', 'model', 'object'];
const stream = (name: string, exchange: string, edit: Edit, expected?: Expected): Row => [
  name,
  exchange,
  onEvents(edit),
  expected ?? 'refused',
];
const whole = (
  name: string,
  exchange: string,
  edit: (members: readonly WireMember[]) => readonly WireMember[],
  expected?: Expected,
): Row => [name, exchange, onMembers(edit), expected ?? 'refused'];

/** Several edits of one exchange, by name; each is refused. */
const streams = (exchange: string, edits: Readonly<Record<string, Edit>>): Row[] =>
  Object.entries(edits).map(([name, edit]) => stream(name, exchange, edit));
const wholes = (exchange: string, edits: Readonly<Record<string, Parameters<typeof whole>[2]>>): Row[] =>
  Object.entries(edits).map(([name, edit]) => whole(name, exchange, edit));

/** Content chunks that stand next to each other, by stream. */
const CONTENT: readonly (readonly [exchange: string, at: number])[] = [
  ['chat-stream', 2],
  ['chat-stream-2', 2],
  ['chat-stream-tools', 2],
  ['completions-stream', 1],
  ['completions-stream-batch', 0],
  ['completions-stream-echo', 0],
  ['chat-stream-continued', 1],
  ['transcription-stream', 0],
];
/** Names that a chunk of chat may hold besides, all behind its own. */
const OPTIONAL = ['prompt_text', 'prompt_token_ids', 'service_tier', 'system_fingerprint'];

/** Exchanges in whose place the worker is asked for another number of choices. */
const COUNTS: readonly (readonly [how: string, exchange: string, worker: string, n: string])[] = [
  ['fewer', 'chat-stream-2', 'chat-stream', '1'],
  ['more', 'chat-stream', 'chat-stream-2', '2'],
  ['fewer', 'chat-whole-2', 'chat-whole', '1'],
  ['more', 'chat-whole', 'chat-whole-2', '2'],
  ['more', 'completions-whole', 'completions-whole-batch', '6'],
  ['fewer', 'completions-whole-batch', 'completions-whole', '1'],
  ['more', 'completions-stream', 'completions-stream-batch', '2'],
  ['fewer', 'completions-stream-batch', 'completions-stream', '1'],
  ['more', 'completions-whole-scored', 'completions-whole-255', '255'],
  ['fewer', 'completions-whole-255', 'completions-whole-scored', '1'],
  ['fewer', 'completions-stream-255', 'completions-stream-scored', '1'],
];

/** Names under which messages of a request could pass for those of a whole response. */
const NEEDED: Readonly<Partial<Record<Api, readonly string[]>>> = {
  chat: CHUNK,
  completions: CHUNK,
  messages: ['content', 'model', 'role', 'stop_reason'],
  embeddings: ['data', 'model', 'object'],
  transcription: ['text'],
};
/** The same of a stream. */
const LAYOUTS: Readonly<Partial<Record<Api, readonly WireEvent[]>>> = {
  chat: [filled(CHUNK), filled(CHUNK), filled(CHUNK), DONE],
  completions: [filled(CHUNK), filled(CHUNK), filled(CHUNK), DONE],
  transcription: [filled(TRANSCRIPTION_CHUNK), filled(TRANSCRIPTION_CHUNK), DONE],
  messages: [
    filled(['message'], 'message_start'),
    filled(['content_block', 'index'], 'content_block_start'),
    filled(['delta', 'index'], 'content_block_delta'),
    filled(['index'], 'content_block_stop'),
    filled(['delta'], 'message_delta'),
    filled([], 'message_stop'),
  ],
};

const ATTACKS: Readonly<Record<string, readonly Row[]>> = {
  'that hides messages of later events in an earlier one under other names:': [
    ...CONTENT.flatMap(([exchange, at]) => [
      stream('under names behind its own', exchange, hidden(at)),
      stream('two events under names behind its own', exchange, hidden(at, 3)),
      stream('its own before those of the next', exchange, displaced(at)),
      stream('its own under the same names in capitals', exchange, (events) =>
        merged(at, 2, [
          ...sealedNames(events[at] as WireEvent).map((name) => name.toUpperCase()),
          ...sealedNames(events[at + 1] as WireEvent),
        ])(events),
      ),
      stream('its own choices as Choices', exchange, (events) => {
        const own = sealedNames(events[at] as WireEvent);
        const next = sealedNames(events[at + 1] as WireEvent);
        return merged(at, 2, ['Choices', ...numbered('D', own.length - 1), ...next])(events);
      }),
    ]),
    ...OPTIONAL.map((name) =>
      stream(`choices as ${name}`, 'chat-stream', (events) =>
        merged(2, 2, [...sealedNames(events[2] as WireEvent), name, ...numbered('z', 4)])(events),
      ),
    ),
    stream(
      'choices as kv_transfer_params',
      'chat-stream',
      merged(2, 2, [
        'choices',
        'created',
        'd',
        'e',
        'f',
        'kv_transfer_params',
        'l0',
        'l1',
        'model',
        'object',
      ]),
    ),
    stream(
      'choices as metrics',
      'chat-stream-tools',
      merged(1, 2, ['choices', 'created', 'd', 'e', 'metrics', 'mi', 'model', 'object']),
    ),
    ...streams('messages-stream', {
      'the delta behind it': hidden(8),
      'the deltas before it': displaced(8),
      'the delta as context_management': merged(8, 2, ['context_management', 'd', 'delta', 'index']),
      'the delta in capitals': merged(8, 2, ['DELTA', 'INDEX', 'delta', 'index']),
    }),
    stream('everything in the first event', 'chat-stream', (events) =>
      cut(events.length, DONE)(hidden(0, events.length - 1)(events)),
    ),
  ],

  'that changes event lines:': [
    ...[8, 9, 10].map((at) =>
      stream(`no event line at delta ${at}`, 'messages-stream', labelled(at, undefined)),
    ),
    ...streams('messages-stream', {
      'no event line at any delta': (events) =>
        events.map((event, at) => (at >= 8 && at <= 10 ? { data: event.data } : event)),
      'no event line at all': every(({ data }) => ({ data })),
      'no event line at message_delta': labelled(12, undefined),
      'no event line at message_stop': labelled(13, undefined),
      'no event line at message_start': labelled(0, undefined),
      'a delta as ping': labelled(8, 'ping'),
      'a delta as ping, in its type too': typed(8, 'ping'),
      'a delta as something unknown': typed(8, 'note'),
      'a delta as error': typed(8, 'error'),
      'a delta as message_delta': typed(8, 'message_delta'),
      'a stop as ping': typed(6, 'ping'),
      'two event lines, ping last': labelled(8, ['content_block_delta', 'ping']),
      'two event lines, an empty one last': labelled(8, ['content_block_delta', '']),
    }),
    stream(
      'two event lines, ping first',
      'messages-stream',
      labelled(8, ['ping', 'content_block_delta']),
      'either',
    ),
    stream(
      'the same event line twice',
      'messages-stream',
      every((event) => ({ ...event, event: [event.event as string, event.event as string] })),
      'either',
    ),
    ...['chat-stream', 'completions-stream', 'transcription-stream'].flatMap((exchange) =>
      ['error', 'thread.message.delta', 'ping', 'message'].map((name) =>
        stream(
          `event line ${name} at chunks that have none`,
          exchange,
          every(({ data }) => ({ event: name, data })),
          'harmless',
        ),
      ),
    ),
  ],

  'that changes content blocks of the messages API:': [
    ...streams('messages-stream', {
      'a whole block in message_delta': (events) => {
        const count = sealedIn(...events.slice(7, 12)).length;
        return merged(7, 6, [...numbered('a', count), 'delta'], 12)(events);
      },
      'a whole block in message_delta, its text as context_management': (events) =>
        merged(10, 3, ['context_management', 'cp', 'cq', 'delta'], 12)(events),
      'the stop of a block as context_management of message_delta': merged(
        11,
        2,
        ['context_management', 'delta'],
        12,
      ),
      'a block in content_block_stop': (events) => {
        const count = sealedIn(...events.slice(7, 12)).length;
        return merged(6, 6, ['index', ...numbered('z', count)])(events);
      },
      'the index of a block under another name': merged(6, 6, [...numbered('a', 10), 'index']),
      'a block in ping': (events) => {
        const block = sealedIn(...events.slice(2, 7));
        const ping: WireEvent = {
          event: 'ping',
          data: [{ name: 'type', value: '"ping"' }, ...named(block, numbered('a', block.length))],
        };
        return events.toSpliced(1, 6, ping);
      },
      'a block in plain members of ping': (events) => {
        const block = sealedIn(...events.slice(2, 7));
        const ping = plainEvent({ type: 'ping', usage: block.map((message) => JSON.parse(message)) }, 'ping');
        return events.toSpliced(1, 6, ping);
      },
      'a block in message_start': (events) => {
        const block = sealedIn(...events.slice(2, 7));
        return merged(0, 7, ['message', ...numbered('z', block.length)])(events);
      },
      'a block in message_stop': (events) => {
        const end = sealedIn(...events.slice(7, 13));
        return cut(7, {
          ...MESSAGE_STOP,
          data: [...(MESSAGE_STOP.data as WireMember[]), ...named(end, numbered('a', end.length))],
        })(events);
      },
      'two blocks as one': merged(5, 4, ['delta', 'e', 'f', 'g', 'h', 'i', 'index']),
      'two blocks as one, deltas of another index': merged(5, 3, ['delta', 'e', 'f', 'g', 'index']),
      'the stop and the start that are between two blocks as one delta': merged(
        6,
        3,
        ['a', 'b', 'c', 'delta', 'index'],
        8,
      ),
      'the start of a block as a delta': (events) =>
        typed(7, 'content_block_delta')(renamed(7, 'content_block', 'delta')(events)),
      'a delta as the start of a block': (events) =>
        typed(8, 'content_block_start')(renamed(8, 'delta', 'content_block')(events)),
      'the stop of a block as its start': typed(6, 'content_block_start'),
      'a second message_stop in the middle': inserted(7, MESSAGE_STOP),
    }),
    stream(
      'pings everywhere',
      'messages-stream',
      (events) => events.flatMap((event) => [plainEvent({ type: 'ping' }, 'ping'), event]),
      'harmless',
    ),
    ...streams('messages-stream', {
      'message_delta in the place of message_start': (events) =>
        typed(0, 'message_delta')(renamed(0, 'message', 'delta')(events)),
      'message_start under another name': renamed(0, 'message', 'messagf'),
      'an error among other members': (events) => typed(8, 'error')(renamed(8, 'delta', 'error')(events)),
    }),
  ],

  'that changes members of whole responses:': [
    ...wholes('transcription-verbose', {
      'language as text': renamedAll('text', 'u', 'v', 'w'),
      'language as text, nothing else': renamedAll('text'),
      'text and words gone': renamedAll('language', 'segments'),
      'words gone': renamedAll('language', 'segments', 'text'),
    }),
    ...wholes('transcription-whole', {
      'text under another name': rename('text', 'texu'),
      'text plain': withPlain('text', '"forged"'),
    }),
    ...wholes('messages-whole', {
      'stop_reason gone': removed('stop_reason'),
      'stop_reason and role gone': removed('stop_reason', 'role'),
      'everything but the content gone': renamedAll('content'),
      'stop_reason under another name': rename('stop_reason', 'stop_sequence'),
    }),
    ...wholes('messages-whole-stopped', {
      'the sequence that stopped it as the reason': renamedAll(
        'content',
        'model',
        'role',
        'stop',
        'stop_reason',
      ),
      'every text under the name before its own': renamedAll(
        'content',
        'kodel',
        'model',
        'role',
        'stop_reason',
      ),
    }),
    ...wholes('messages-whole', {
      'role under another name': rename('role', 'rolf'),
      'content under another name': rename('content', 'contenu'),
    }),
    ...['"error"', '"text"', 'null', '{}'].map((type) =>
      whole(`the plain type as ${type}`, 'messages-whole', withPlain('type', type), 'either'),
    ),
    whole('the plain type gone', 'messages-whole', removed('type'), 'either'),
    whole('model as role', 'messages-whole', renamedAll('content', 'role', 'stop_reason', 'z')),
    ...['chat-whole', 'completions-whole'].flatMap((exchange) => [
      ...(
        [
          ['choices', 'choicet'],
          ['choices', 'Choices'],
          ['created', 'createe'],
          ['model', 'modem'],
          ['object', 'objecu'],
        ] as const
      ).map(([from, to]) => whole(`${from} as ${to}`, exchange, rename(from, to))),
      whole(
        'object and all behind it gone',
        exchange,
        renamedAll('choices', 'created', 'kv_transfer_params', 'model'),
      ),
      whole('choices as error', exchange, renamedAll('error', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm')),
      whole('a plain error beside', exchange, withPlain('error', '{"message":"forged"}')),
      whole('nothing sealed at all', exchange, (members) => members.filter((member) => !isSealed(member))),
    ]),
    ...wholes('embeddings-whole', {
      'data under another name': rename('data', 'datb'),
      'object under another name': rename('object', 'objecu'),
      'object gone': removed('object'),
      'created as data': renamedAll('data', 'e', 'model', 'object'),
    }),
    whole('created under another name', 'embeddings-whole', rename('created', 'createe'), 'harmless'),
    ...['messages-whole', 'embeddings-whole', 'transcription-whole'].map((exchange) =>
      whole('nothing sealed at all', exchange, (members) => members.filter((member) => !isSealed(member))),
    ),
    ...['chat', 'completions', 'messages', 'embeddings', 'transcription'].flatMap((api): Row[] => [
      ['an empty object', `${api}-whole`, said('{}')],
      ['an empty list', `${api}-whole`, said('[]')],
    ]),
    ['an error as a success', 'chat-error', head(200)],
    ['an error as a success', 'messages-error', head(200)],
    ...['chat-error', 'messages-error'].flatMap((exchange) => [
      whole('a plain usage that is text', exchange, withPlain('usage', '"forged"')),
      whole('a plain usage that is a list', exchange, withPlain('usage', '[{"message":"forged"}]')),
      whole('a plain usage that is huge', exchange, withPlain('usage', `{"a":"${'x'.repeat(16_384)}"}`)),
      whole('a plain id that is an object', exchange, withPlain('id', '{"message":"forged"}')),
      whole('a plain id that is huge', exchange, withPlain('id', `"${'x'.repeat(16_384)}"`)),
      whole('a plain message beside', exchange, withPlain('message', '"forged"')),
      whole('a plain duration beside', exchange, withPlain('duration', '"forged"')),
    ]),
    whole('a plain type in another style', 'chat-error', withPlain('type', '"error"')),
    ...wholes('messages-error', {
      'another type in clear': withPlain('type', '"forged"'),
      'an error as a message': withPlain('type', '"message"'),
    }),
    ...wholes('unstructured-whole', {
      'an element plain': (members) => members.with(0, { name: '0', value: '{"text":"forged"}' }),
      'an element twice': (members) => [members[0] as WireMember, ...members],
      'the first element gone': (members) => members.slice(1),
    }),
  ],

  'that sends fewer or more choices than asked for, or cuts a stream short:': [
    ...COUNTS.map(
      ([how, exchange, worker, n]): Row => [
        `${how} choices than asked for`,
        exchange,
        askedAs(worker, { n }),
        'refused',
        worker,
      ],
    ),
    stream('cut after the first prompt', 'completions-stream-batch', cut(3, DONE)),
    stream('one of two choices never finishes', 'chat-stream-2', cut(7, DONE)),
    ...streams('chat-stream', {
      'cut before the finish': cut(5, DONE),
      'cut before the finish, nothing after it': cut(5),
      'no [DONE]': cut(7),
      'a finish in plain': cut(
        5,
        plainEvent({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
        DONE,
      ),
    }),
    ...streams('transcription-stream', {
      'cut after a stretch of audio': cut(3, DONE),
      'cut within the second stretch': cut(4, DONE),
      'cut before the closing chunk': cut(6, DONE),
      'a closing chunk in plain': cut(3, plainEvent({ choices: [] }), DONE),
    }),
    ...streams('messages-stream', {
      'cut between two blocks': cut(7, MESSAGE_STOP),
      'cut before message_delta': cut(12, MESSAGE_STOP),
      'a plain message_delta': cut(
        7,
        plainEvent({ type: 'message_delta', delta: { stop_reason: 'end_turn' } }, 'message_delta'),
        MESSAGE_STOP,
      ),
      'no message_stop': cut(13),
      'message_stop without its line, behind a plain one': cut(12, plainEvent({ type: 'message_stop' })),
    }),
    stream('the finish of one choice for both', 'chat-stream-2', cut(6, DONE)),
    stream('only [DONE]', 'chat-stream', () => [DONE]),
    stream('only message_stop', 'messages-stream', () => [MESSAGE_STOP]),
    stream('no event at all', 'chat-stream', () => []),
  ],

  'that splices a response of two runs of one request:': [
    ...(['created', 'model'] as const).flatMap((what) => [
      ...['chat-stream', 'chat-stream-2', 'completions-stream', 'transcription-stream'].map(
        (exchange): Row => [
          `the rest from a run with another ${what}`,
          exchange,
          spliced(2, `${exchange}/${what}`),
        ],
      ),
      [
        `only the last word from a run with another ${what}`,
        'chat-stream',
        spliced(4, `chat-stream/${what}`),
      ] as const,
      [
        `only the finish from a run with another ${what}`,
        'chat-stream',
        spliced(5, `chat-stream/${what}`),
      ] as const,
    ]),
    ['the end of a run with fewer choices', 'chat-stream-2', closedAfterRoles],
    ['the rest from a run with another id', 'transcription-stream', spliced(3, 'transcription-stream/id')],
  ],

  'that sends messages of the request back as the response:': [
    ['the conversation as choices', 'chat-whole', reflectedBody('chat', ['a', 'choices'])],
    ['the conversation as content', 'messages-whole', reflectedBody('messages', ['a', 'b', 'content'])],
    ['the prompt as choices', 'completions-whole', reflectedBody('completions', ['a', 'choices'])],
    [
      'the conversation as choices of a chunk',
      'chat-stream',
      reflectedStream('chat', [filled(['a', 'choices']), DONE]),
    ],
    ['a field of the form as text', 'transcription-whole', reflectedBody('transcription', ['a', 'text'])],
    ['the document', 'unstructured-whole-look', reflectedBody('unstructured', ['0'])],
    [
      'the document, its iv in capitals',
      'unstructured-whole-look',
      reflectedBody('unstructured', ['0'], withUpperCaseIv),
    ],
    ...([(message: string) => message, withUpperCaseIv] as const).flatMap((change, capitals): Row[] => {
      const how = capitals === 1 ? ', ivs in capitals' : '';
      return [
        ...Object.entries(NEEDED).map(
          ([api, names]): Row => [
            `all that a response needs${how}`,
            `${api}-whole-look`,
            reflectedBody(api as Api, names, change),
          ],
        ),
        ...Object.entries(LAYOUTS).map(
          ([api, layout]): Row => [
            `all that a stream needs${how}`,
            `${api}-stream-look`,
            reflectedStream(api as Api, layout, change),
          ],
        ),
      ];
    }),
    ['the beginning of a real stream', 'chat-stream-begin', reflectedBeginning('chat', 5)],
    ['the beginning of a real stream', 'messages-stream-look', reflectedBeginning('messages', 1)],
  ],

  'that changes heads, plain members and marks of the end:': [
    ['`stream` taken away', 'chat-stream', askedAs('chat-whole', { stream: 'false' })],
    ['`stream` added', 'chat-whole', askedAs('chat-stream', { stream: 'true' })],
    [
      '`stream` added, the first chunk as the whole body',
      'completions-whole',
      firstChunkAsBody('completions-stream'),
    ],
    ['the choices of the chat API as content', 'messages-whole', choicesAsContent('chat-whole')],
    [
      'the choices of the first chunk in a whole body',
      'chat-whole',
      choicesOf('chat-stream', 'chat-whole', false),
    ],
    [
      'the choices of a whole body in the only chunk',
      'chat-stream',
      choicesOf('chat-whole', 'chat-stream', true),
    ],
    ['`stream` taken away', 'messages-stream', askedAs('messages-whole', { stream: 'false' })],
    ['`stream` added', 'messages-whole', askedAs('messages-stream', { stream: 'true' })],
    ['`stream` taken away', 'transcription-stream', askedAs('transcription-whole', { stream: 'false' })],
    ...[
      'chat-stream',
      'chat-whole',
      'messages-stream',
      'messages-whole',
      'embeddings-whole',
      'transcription-whole',
      'unstructured-whole',
    ].flatMap((exchange): Row[] => [
      ['a header that says unencrypted', exchange, head(undefined, { 'privatemode-encrypted': 'false' })],
      ['status 400', exchange, head(400), 'error'],
      ['status 204', exchange, head(204), 'error'],
      ['status 204 and no body', exchange, emptied(204), 'error'],
      ['status 205 and no body', exchange, emptied(205), 'error'],
      ['no body', exchange, emptied(200)],
      ['status 206', exchange, head(206), 'either'],
      ['status 299', exchange, head(299), 'either'],
      ['status 302', exchange, head(302, { location: 'https://elsewhere.test/' }), 'error'],
      ['status 401 in plain', exchange, head(401, { 'privatemode-encrypted': 'false' }), 'error'],
      ['a header that says gzip', exchange, head(undefined, { 'content-encoding': 'gzip' })],
    ]),
    ...['chat-error', 'messages-error', 'transcription-error'].map(
      (exchange): Row => ['an error as a success', exchange, head(200)],
    ),
    ['an error as the text of a success', 'transcription-error', errorAs('text')],
    ...['chat-stream', 'messages-stream', 'transcription-stream'].map(
      (exchange): Row => ['a stream as JSON', exchange, head(undefined, OK)],
    ),
    ...['chat-whole', 'messages-whole', 'transcription-whole'].map(
      (exchange): Row => ['JSON as a stream', exchange, head(undefined, STREAM_HEAD)],
    ),
    ...['chat-whole', 'messages-whole', 'embeddings-whole'].map(
      (exchange): Row => [
        'JSON as text',
        exchange,
        head(undefined, { 'content-type': 'text/plain' }),
        'either',
      ],
    ),
    ['a plain success in the place of the real one', 'chat-whole', said(FORGED)],
    // Python's requests raises for 400 to 599 alone.
    ...[600, 999].map(
      (status): Row => [
        `a plain answer with status ${status}`,
        'chat-whole',
        said(FORGED, { status, headers: { ...OK, 'privatemode-encrypted': 'false' } }),
      ],
    ),
    ...streams('chat-stream', {
      '[DONE] at the beginning': inserted(0, DONE),
      '[DONE] before the finish': inserted(3, DONE),
      '[done] before the finish': inserted(3, { data: '[done]' }),
    }),
    stream('[DONE] in messages', 'messages-stream', inserted(8, DONE), 'either'),
    ...streams('chat-stream', {
      'message_stop in a chat': inserted(3, MESSAGE_STOP),
      'a stretch of choices in a plain member': (events) => {
        const { data, ...event } = events[2] as WireEvent;
        const message = sealedIn({ data })[0] as string;
        return events.with(2, {
          ...event,
          data: withPlain('usage', message)(removed('choices')(membersOf({ data }))),
        });
      },
      'the end of a stream in plain members': (events) => {
        const end = sealedIn(...events.slice(4)).map((message) => JSON.parse(message) as string);
        return [...withData(3, withPlain('usage', JSON.stringify(end)))(events.slice(0, 4)), DONE];
      },
      'an unknown plain member in an event': withData(2, withPlain('zz', '1')),
      'plain choices beside the sealed ones': withData(2, (members) => [
        ...members,
        { name: 'choices', value: '[]' },
      ]),
      'sealed choices twice': withData(2, (members) => [
        ...members,
        members.find(({ name }) => name === 'choices') as WireMember,
      ]),
      'a plain error': withData(2, withPlain('error', '{"message":"forged"}')),
    }),
    ...streams('messages-stream', {
      'a plain delta': inserted(
        8,
        plainEvent(
          { type: 'content_block_delta', index: 1, delta: { type: 'text_delta', text: 'forged' } },
          'content_block_delta',
        ),
      ),
      'a plain error event': inserted(
        8,
        plainEvent({ type: 'error', error: { type: 'api_error', message: 'forged' } }, 'error'),
      ),
    }),
    ...streams('chat-stream', {
      'an empty object': inserted(2, plainEvent({})),
      'an event of nothing but usage': inserted(2, plainEvent({ id: 'x', usage: null })),
      'an event lost': dropped(2),
      'an event twice': (events) => events.toSpliced(2, 0, events[2] as WireEvent),
      'two events in the other order': (events) =>
        events.with(2, events[3] as WireEvent).with(3, events[2] as WireEvent),
    }),
    stream(
      'another usage',
      'chat-stream',
      every((event) =>
        typeof event.data === 'string'
          ? event
          : { ...event, data: withPlain('usage', '{"total_tokens":1}')(event.data) },
      ),
      'harmless',
    ),
    whole('another id', 'chat-whole', withPlain('id', '"chatcmpl-other"'), 'harmless'),
    whole('members in another order', 'chat-whole', (members) => members.toReversed(), 'harmless'),
  ],
};

function sealedNames(event: WireEvent): string[] {
  return inSequence(membersOf(event).filter(isSealed), []).map(({ name }) => name);
}

// The tests.

/** What may be delivered: a beginning of one of these. The first is the answer to what was asked. */
type Honest = readonly (readonly unknown[])[];

const isBeginning = (items: readonly unknown[], honest: Honest): boolean =>
  honest.some((of) => isDeepStrictEqual(items, of.slice(0, items.length)));

const codeOf = (item: unknown): string =>
  (item as { error?: { code?: string } } | undefined)?.error?.code ?? 'none';

/**
 * Whole answers: 502, the code in the body; errors keep their status. Streams: the same, or an honest
 * beginning, an error event and a broken connection.
 */
function assertRefused({ api, events, ...given }: HonestExchange, outcome: Outcome, honest: Honest): void {
  const { status, text, broken, items, error } = outcome;
  assert.notEqual(error, undefined, `the client is content with ${JSON.stringify(items)}`);
  assert.ok(isBeginning(items, honest), `not an honest beginning: ${JSON.stringify(items)}`);
  if (status === 502 || status === given.status) {
    assert.match(text, new RegExp(`"code":"(?:${REFUSED.join('|')})"`));
    assert.deepEqual([items, broken], [[], false]);
    return;
  }
  assert.notEqual(events, undefined, `${status}: ${text}`);
  const read = readStream(api, text).items;
  assert.deepEqual([Math.trunc(status / 100), broken], [2, true], text);
  assert.ok(REFUSED.includes(codeOf(read.at(-1))), text);
  assert.deepEqual(read.slice(0, -1), items);
}

function assertHarmless(_: HonestExchange, outcome: Outcome, [honest]: Honest): void {
  const { status, broken, items, error, text } = outcome;
  assert.deepEqual([error, Math.trunc(status / 100), broken], [undefined, 2, false], text);
  assert.deepEqual(items, honest);
}

/** Whatever error it is: nothing dishonest comes before it. */
function assertError(_: HonestExchange, { items, error }: Outcome, honest: Honest): void {
  assert.notEqual(error, undefined, `the client is content with ${JSON.stringify(items)}`);
  assert.ok(isBeginning(items, honest), JSON.stringify(items));
}

const JUDGES: Readonly<Record<Expected, typeof assertRefused>> = {
  refused: assertRefused,
  harmless: assertHarmless,
  either: (exchange, outcome, honest) =>
    (outcome.error === undefined ? assertHarmless : assertRefused)(exchange, outcome, honest),
  error: assertError,
};

const endsInError = ({ name }: HonestExchange): boolean => /-error\b/.test(name);

describe('a hostile gateway', { timeout: 600_000 }, () => {
  let stack: HostileStack;
  before(async () => {
    const runs = [
      ...otherRun('created', CREATED + 9),
      ...otherRun('model', 'other'),
      ...otherRun('id', 'run-2'),
    ];
    stack = await startHostileStack([...HONEST, SHORT, ...runs]);
  });
  after(() => stack.close());

  const known = new Map<string, readonly unknown[]>();
  /** What the client makes of an exchange that nobody attacks. */
  async function honestly(name: string): Promise<readonly unknown[]> {
    const items = known.get(name);
    if (items !== undefined) return items;
    const exchange = EXCHANGES.get(name) as HonestExchange;
    stack.attack = undefined;
    const outcome = await ask(stack.url, exchange);
    const { error, broken } = outcome;
    assert.deepEqual([error !== undefined, broken], [endsInError(exchange), false], String(error));
    known.set(name, outcome.items);
    return outcome.items;
  }

  describe('that passes everything on unchanged', () => {
    for (const exchange of EXCHANGES.values()) {
      it(`is not noticed: ${exchange.name}`, async () => {
        const items = await honestly(exchange.name);
        if (exchange.api === 'unstructured') assert.ok(Array.isArray(items[0]));
        else if (!endsInError(exchange)) assert.deepEqual(items, essenceOf(exchange));
      });
    }
  });

  for (const [title, rows] of Object.entries(ATTACKS)) {
    describe(title, () => {
      for (const [name, exchangeName, attack, expected = 'refused', worker = exchangeName] of rows) {
        it(`${name} (exchange ${exchangeName}): ${expected === 'either' ? 'refused or harmless' : expected}`, {
          timeout: 600_000,
        }, async () => {
          const exchange = EXCHANGES.get(exchangeName) as HonestExchange;
          const honest = [await honestly(exchangeName), await honestly(worker)];
          stack.attack = attack;
          const outcome = await ask(stack.url, exchange);
          JUDGES[expected](exchange, outcome, honest);
        });
      }
    });
  }
});
