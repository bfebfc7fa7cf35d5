/**
 * The service's own gateway attacks: it has no key, and neither names of members and events nor plain members
 * nor the direction of a message are authenticated. Whatever it makes of a response, an application that uses
 * the official client gets the honest answer, or an honest beginning of it and then an error, or an error.
 * A generator makes the edits of events and members; the rows are what it does not make.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { ask, type Outcome, readStream } from '../support/doors/sdk-outcome.ts';
import {
  attacked,
  type GeneratedAttack,
  generatedAttack,
  laidOut,
  wireTextOf,
} from '../support/remote/attack-generator.ts';
import { plainOf } from '../support/remote/endpoints.ts';
import {
  elementsInOrder,
  essenceOf,
  type HonestExchange,
  honestExchanges,
} from '../support/remote/honest-exchanges.ts';
import {
  type Attack,
  type HostileStack,
  onEvents,
  onMembers,
  onPlain,
  startHostileStack,
  type WireRequest,
  type WireResponse,
} from '../support/remote/man-in-the-middle.ts';
import { CREATED } from '../support/remote/transcripts/transcript.ts';
import {
  inSequence,
  isSealed,
  membersOf,
  messagesOf,
  parseBody,
  type WireEvent,
  type WireMember,
  withUpperCaseIv,
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
type Row = readonly [
  name: string,
  exchange: string,
  attack: Attack,
  expected?: Expected | undefined,
  worker?: string,
];

/** The codes of refusals. */
const REFUSED =
  /"code":"(?:response_not_authentic|response_malformed|stream_unfinished|response_not_encrypted)"/;

// What a gateway can do to events.

type Edit = (events: readonly WireEvent[]) => readonly WireEvent[];
type Members = readonly WireMember[];

const DONE: WireEvent = { data: '[DONE]' };
const MESSAGE_STOP: WireEvent = {
  event: 'message_stop',
  data: [{ name: 'type', value: '"message_stop"' }],
};

const inOrder = (members: Members): Members => inSequence(members.filter(isSealed), []);
const sealedIn = (...events: readonly WireEvent[]): string[] =>
  events.flatMap((event) => inOrder(membersOf(event)).map(({ value }) => value));
const sealedNames = (event: WireEvent): string[] => inOrder(membersOf(event)).map(({ name }) => name);
const plainIn = (event: WireEvent): Members => membersOf(event).filter((member) => !isSealed(member));
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

const rename =
  (from: string, to: string) =>
  (members: Members): WireMember[] =>
    members.map(({ name, value }) => ({ name: name === from ? to : name, value }));
/** All messages anew under these names, in their order; what has no name goes. */
const renamedAll =
  (...names: readonly string[]) =>
  (members: Members): WireMember[] => [
    ...members.filter((member) => !isSealed(member)),
    ...named(
      inOrder(members)
        .slice(0, names.length)
        .map(({ value }) => value),
      names,
    ),
  ];
const withPlain =
  (name: string, value: string) =>
  (members: Members): WireMember[] => [...members.filter((member) => member.name !== name), { name, value }];
const withData = (at: number, edit: (members: Members) => Members): Edit =>
  edited(at, (event) => ({ ...event, data: edit(membersOf(event)) }));

const labelled = (at: number, event: string | readonly string[] | undefined): Edit =>
  edited(at, ({ data }) => ({ event, data }));
const typed =
  (at: number, type: string, edit = (members: Members): Members => members): Edit =>
  (events) =>
    labelled(at, type)(withData(at, (all) => withPlain('type', JSON.stringify(type))(edit(all)))(events));
const cut =
  (at: number, ...instead: readonly WireEvent[]): Edit =>
  (events) => [...events.slice(0, at), ...instead];
const every =
  (edit: (event: WireEvent) => WireEvent): Edit =>
  (events) =>
    events.map(edit);
const withMembers = (edit: (members: Members) => Members): Edit =>
  every((event) => (typeof event.data === 'string' ? event : { ...event, data: edit(event.data) }));
const plainEvent = (value: object, event?: string): WireEvent => ({
  event,
  data: parseBody(JSON.stringify(value)).members,
});

// What it can do to heads and requests.

const head = (status: number | undefined, headers: Readonly<Record<string, string>> = {}): Attack => ({
  onResponse: (response) => ({
    ...response,
    status: status ?? response.status,
    headers: { ...response.headers, ...headers },
  }),
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
const IN_CLEAR = { 'privatemode-encrypted': 'false' };

/** The messages of the request take the places of the response's own, as far as they go. */
const reflected = (api: Api, change = (message: string): string => message): Attack => ({
  onResponse: (response, { body }) => {
    const messages = messagesOf(body, plainOf(api).request).map(change);
    const swap = (members: Members): Members => {
      const taken = new Map(inOrder(members).map((each) => [each, messages.shift() ?? each.value]));
      return members.map((member) => ({ ...member, value: taken.get(member) ?? member.value }));
    };
    const attack = 'events' in response.content ? onEvents(withMembers(swap)) : onMembers(swap);
    return attack.onResponse!(response, { body } as WireRequest);
  },
});

/** The edits of the generator, made of the response that came. */
const generated = ({ edits, reseat, succeeds }: GeneratedAttack, exchange: HonestExchange): Attack => ({
  onResponse: (response, { body }) => {
    const { content, status } = response;
    if ('text' in content) return response;
    const events = 'events' in content ? content.events : [{ data: content.body.members }];
    const isArray = 'body' in content && content.body.isArray;
    const recorded = { exchange, events, isArray, runs: [sealedIn(...events)] };
    const request = messagesOf(body, plainOf(exchange.api).request);
    const text = wireTextOf(recorded, attacked(recorded, { edits, reseat }, request));
    return { ...response, status: succeeds ? 200 : status, content: { text } };
  },
});

/** The simulator refuses no document, so nobody gets that error here. */
const HONEST = honestExchanges().filter(({ name }) => name !== 'unstructured-error');
const byName = new Map(HONEST.map((exchange) => [exchange.name, exchange]));
const honest = (name: string): HonestExchange => byName.get(name) as HonestExchange;
const FORGED = JSON.stringify(honest('chat-whole').body);

/**
 * The exchange, whose request also has members that read, in their order, like the messages of its response:
 * a document is one message, which reads like an element.
 */
function lookAlike(name: string): HonestExchange {
  const exchange = honest(name);
  const { api, request } = exchange;
  const texts = laidOut(exchange).plaintexts;
  const look = texts.map((text, index) => [
    `a${String(index).padStart(3, '0')}`,
    api === 'transcription' ? text : JSON.parse(text),
  ]);
  const asked = api === 'unstructured' ? JSON.parse(texts[0]!) : Object.fromEntries(look);
  return { ...exchange, name: `${name}-look`, request: { ...request, ...asked } };
}
const LOOKS = [
  ...['chat-stream', 'messages-stream', 'transcription-stream'],
  ...['chat-whole', 'messages-whole', 'embeddings-whole', 'transcription-whole', 'unstructured-whole'],
].map(lookAlike);
const EXCHANGES = new Map([...HONEST, ...LOOKS].map((exchange) => [exchange.name, exchange]));

/** A second run of all streams, which differs in one thing and in what it says. */
const otherRun = (what: 'created' | 'model' | 'id', value: number | string): HonestExchange[] =>
  honestExchanges({ says: 'other ', [what]: value })
    .filter(({ events }) => events !== undefined)
    .map((exchange) => ({
      ...exchange,
      request: { ...exchange.request, model: `${exchange.name}/${what}` },
    }));

/** Edits by name, where they are not to be refused with what they come to. */
type Edits<T> = Readonly<Record<string, T | readonly [edit: T, expected: Expected]>>;
const rowsOf = <T>(exchange: string, edits: Edits<T>, attack: (edit: T) => Attack): Row[] =>
  Object.entries(edits).map(([name, each]) => {
    const [edit, expected] = Array.isArray(each) ? each : [each];
    return [name, exchange, attack(edit), expected];
  });
/** Edits of the events of one stream. */
const streams = (exchange: string, edits: Edits<Edit>): Row[] => rowsOf(exchange, edits, onEvents);
/** Edits of the members of one whole body. */
const wholes = (exchange: string, edits: Edits<(members: Members) => Members>): Row[] =>
  rowsOf(exchange, edits, onMembers);
/** The same attack on several exchanges. */
const each = (name: string, exchanges: readonly string[], attack: Attack, expected?: Expected): Row[] =>
  exchanges.map((exchange) => [name, exchange, attack, expected]);

/** Exchanges in whose place the worker is asked for another number of choices. */
const COUNTS: readonly (readonly [how: string, exchange: string, worker: string, n: string])[] = [
  ['fewer', 'chat-stream-2', 'chat-stream', '1'],
  ['more', 'chat-stream', 'chat-stream-2', '2'],
  ['fewer', 'chat-whole-2', 'chat-whole', '1'],
  ['more', 'completions-whole', 'completions-whole-batch', '6'],
  ['fewer', 'completions-stream-batch', 'completions-stream', '1'],
];

const nothingSealed = onMembers((members) => members.filter((member) => !isSealed(member)));

const ATTACKS: Readonly<Record<string, readonly Row[]>> = {
  'that hides messages of later events in an earlier one under other names:': [
    ...streams('chat-stream', {
      'choices as prompt_text': (events) =>
        merged(2, 2, [...sealedNames(events[2] as WireEvent), 'prompt_text'])(events),
      'everything in the first event': (events) => [
        ...merged(0, events.length - 1, sealedNames(events[0] as WireEvent))(events),
        DONE,
      ],
    }),
    ...streams('messages-stream', {
      'the delta as context_management': merged(8, 2, ['context_management', 'd', 'delta', 'index']),
    }),
  ],

  'that changes event lines:': [
    ...streams('messages-stream', {
      'no event line at delta 8': labelled(8, undefined),
      'no event line at all': every(({ data }) => ({ data })),
      'a delta as ping': labelled(8, 'ping'),
      'two event lines, ping last': labelled(8, ['content_block_delta', 'ping']),
    }),
    ...streams('chat-stream', {
      'event line error at every chunk': [every(({ data }) => ({ event: 'error', data })), 'harmless'],
    }),
  ],

  'that changes content blocks of the messages API:': [
    ...streams('messages-stream', {
      'a whole block in message_delta': (events) => {
        const count = sealedIn(...events.slice(7, 12)).length;
        return merged(7, 6, [...numbered('a', count), 'delta'], 12)(events);
      },
      'a block in content_block_stop': merged(6, 6, ['index']),
      'the stop of a block as context_management of message_delta': merged(
        11,
        2,
        ['context_management', 'delta'],
        12,
      ),
      'a block in ping': (events) => {
        const block = sealedIn(...events.slice(2, 7));
        const ping = plainEvent({ type: 'ping' }, 'ping');
        return events.toSpliced(1, 6, { ...ping, data: [...membersOf(ping), ...named(block, [])] });
      },
      'a block in plain members of ping': (events) => {
        const block = sealedIn(...events.slice(2, 7)).map((message) => JSON.parse(message) as string);
        return events.toSpliced(1, 6, plainEvent({ type: 'ping', usage: block }, 'ping'));
      },
      'a block in message_start': merged(0, 7, ['message']),
      'a block in message_stop': (events) => {
        const end = named(sealedIn(...events.slice(7, 13)), []);
        return cut(7, { ...MESSAGE_STOP, data: [...membersOf(MESSAGE_STOP), ...end] })(events);
      },
      'two blocks as one': merged(5, 4, ['delta', 'e', 'f', 'g', 'h', 'i', 'index']),
      'a delta as the start of a block': typed(8, 'content_block_start', rename('delta', 'content_block')),
      'message_delta in the place of message_start': typed(0, 'message_delta', rename('message', 'delta')),
      'an error among other members': typed(8, 'error', rename('delta', 'error')),
      'pings everywhere': [
        (events) => events.flatMap((event) => [plainEvent({ type: 'ping' }, 'ping'), event]),
        'harmless',
      ],
    }),
  ],

  'that changes members of whole responses:': [
    ...wholes('chat-whole', {
      'choices in capitals': rename('choices', 'Choices'),
      'object and all behind it gone': renamedAll('choices', 'created', 'kv_transfer_params', 'model'),
      'choices as error': renamedAll('error', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm'),
      'another id': [withPlain('id', '"chatcmpl-other"'), 'harmless'],
      'members in another order': [(members) => members.toReversed(), 'harmless'],
    }),
    ...wholes('messages-whole', {
      'stop_reason under another name': rename('stop_reason', 'stop_sequence'),
      'model as role': renamedAll('content', 'role', 'stop_reason', 'z'),
    }),
    ...wholes('messages-whole-stopped', {
      'the sequence that stopped it as the reason': renamedAll(
        ...['content', 'model', 'role', 'stop', 'stop_reason'],
      ),
      'every text under the name before its own': renamedAll(
        ...['content', 'kodel', 'model', 'role', 'stop_reason'],
      ),
    }),
    ...wholes('embeddings-whole', {
      'created as data': renamedAll('data', 'e', 'model', 'object'),
      'created under another name': [rename('created', 'createe'), 'harmless'],
    }),
    ...wholes('transcription-verbose', { 'language as text': renamedAll('text', 'u', 'v', 'w') }),
    ...wholes('transcription-whole', { 'text plain': withPlain('text', '"forged"') }),
    ...wholes('unstructured-whole', {
      'an element plain': (members) => members.with(0, { name: '0', value: '{"text":"forged"}' }),
      'the first element gone': (members) => members.slice(1),
    }),
    ...['chat', 'messages', 'embeddings', 'transcription'].flatMap((api): Row[] => [
      ['nothing sealed at all', `${api}-whole`, nothingSealed],
      ['an empty object', `${api}-whole`, said('{}')],
    ]),
    ['an empty list', 'chat-whole', said('[]')],
    ...['chat-error', 'messages-error'].flatMap((exchange) =>
      wholes(exchange, {
        'a plain usage that is text': withPlain('usage', '"forged"'),
        'a plain id that is an object': withPlain('id', '{"message":"forged"}'),
        'a plain id that is huge': withPlain('id', `"${'x'.repeat(16_384)}"`),
        'a plain message beside': withPlain('message', '"forged"'),
        'another type in clear': withPlain('type', '"forged"'),
      }),
    ),
  ],

  'that sends fewer or more choices than asked for, or ends a stream early:': [
    ...COUNTS.map(
      ([how, exchange, worker, n]): Row => [
        `${how} choices than asked for`,
        exchange,
        askedAs(worker, { n }),
        'refused',
        worker,
      ],
    ),
    ...streams('chat-stream-2', { 'the finish of one choice for both': cut(6, DONE) }),
    ...streams('completions-stream-batch', { 'cut after the first prompt': cut(3, DONE) }),
    ...streams('chat-stream', {
      'a finish in plain': cut(
        5,
        plainEvent({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] }),
        DONE,
      ),
      'only [DONE]': () => [DONE],
    }),
    ...streams('transcription-stream', {
      'cut after a stretch of audio': cut(3, DONE),
      'a closing chunk in plain': cut(3, plainEvent({ choices: [] }), DONE),
    }),
    ...streams('messages-stream', {
      'cut between two blocks': cut(7, MESSAGE_STOP),
      'a plain message_delta': cut(
        7,
        plainEvent({ type: 'message_delta', delta: { stop_reason: 'end_turn' } }, 'message_delta'),
        MESSAGE_STOP,
      ),
      'only message_stop': () => [MESSAGE_STOP],
    }),
  ],

  'that splices a response of two runs of one request:': [
    ...['chat-stream', 'completions-stream', 'transcription-stream'].flatMap((exchange): Row[] => [
      ['the rest from a run with another created', exchange, spliced(2, `${exchange}/created`)],
      ['the rest from a run with another model', exchange, spliced(2, `${exchange}/model`)],
    ]),
    ['only the finish from a run with another created', 'chat-stream', spliced(5, 'chat-stream/created')],
    ['the rest from a run with another id', 'transcription-stream', spliced(3, 'transcription-stream/id')],
  ],

  'that sends messages of the request back as the response:': [
    ...LOOKS.map(({ api, name }): Row => ['as they came', name, reflected(api)]),
    ...LOOKS.filter(({ name }) => /^chat|^unstructured/.test(name)).map(
      ({ api, name }): Row => ['ivs in capitals', name, reflected(api, withUpperCaseIv)],
    ),
  ],

  'that changes heads:': [
    ...each(
      'a header that says unencrypted',
      [
        ...['chat-stream', 'messages-stream'],
        ...['chat-whole', 'messages-whole', 'embeddings-whole', 'transcription-whole'],
      ],
      head(undefined, IN_CLEAR),
    ),
    ...['chat-stream', 'chat-whole'].flatMap((exchange): Row[] => [
      ['status 400', exchange, head(400), 'error'],
      ['status 204 and no body', exchange, said('', { status: 204 }), 'error'],
      ['no body', exchange, said('')],
      ['status 299', exchange, head(299), 'either'],
      ['status 302', exchange, head(302, { location: 'https://elsewhere.test/' }), 'error'],
      ['status 401 in plain', exchange, head(401, IN_CLEAR), 'error'],
      ['a header that says gzip', exchange, head(undefined, { 'content-encoding': 'gzip' })],
    ]),
    ...each('an error as a success', ['chat-error', 'messages-error', 'transcription-error'], head(200)),
    [
      'an error as the text of a success',
      'transcription-error',
      {
        onResponse: (response, request) => ({
          ...(onMembers(rename('error', 'text')).onResponse!(response, request) as WireResponse),
          status: 200,
        }),
      },
    ],
    ...each('a stream as JSON', ['chat-stream', 'messages-stream'], head(undefined, OK)),
    ...each('JSON as a stream', ['chat-whole', 'messages-whole'], head(undefined, STREAM_HEAD)),
    ...each('JSON as text', ['chat-whole'], head(undefined, { 'content-type': 'text/plain' }), 'either'),
    ['a plain success in the place of the real one', 'chat-whole', said(FORGED)],
    // Python's requests raises for 400 to 599 alone.
    [
      'a plain answer with status 600',
      'chat-whole',
      said(FORGED, { status: 600, headers: { ...OK, ...IN_CLEAR } }),
    ],
  ],

  'that changes plain members:': [
    ['`stream` taken away', 'chat-stream', askedAs('chat-whole', { stream: 'false' })],
    ['`stream` added', 'chat-whole', askedAs('chat-stream', { stream: 'true' })],
    ['`stream` taken away', 'messages-stream', askedAs('messages-whole', { stream: 'false' })],
    ['`stream` taken away', 'transcription-stream', askedAs('transcription-whole', { stream: 'false' })],
    ...streams('chat-stream', {
      'message_stop in the place of a chunk': (events) => events.with(3, MESSAGE_STOP),
      'a stretch of choices in a plain member': withData(2, (members) => {
        const message = sealedIn({ data: members })[0]!;
        return withPlain('usage', message)(members.filter(({ name }) => name !== 'choices'));
      }),
      'the end of a stream in plain members': (events) => {
        const end = sealedIn(...events.slice(4)).map((message) => JSON.parse(message) as string);
        return [...withData(3, withPlain('usage', JSON.stringify(end)))(events.slice(0, 4)), DONE];
      },
      'plain choices beside the sealed ones': withData(2, (all) => [
        ...all,
        { name: 'choices', value: '[]' },
      ]),
      'another usage': [withMembers(withPlain('usage', '{"total_tokens":1}')), 'harmless'],
    }),
  ],
};

/** What may be delivered: a beginning of one of these. The first is the answer to what was asked. */
type Honest = readonly (readonly unknown[])[];

const isBeginning = (items: readonly unknown[], honest: Honest): boolean =>
  honest.some((of) => isDeepStrictEqual(items, of.slice(0, items.length)));

/**
 * Whole answers: 502, the code in the body; errors keep their status. Streams: the same, or an honest
 * beginning, an error event and a broken connection.
 */
function assertRefused({ api, events, ...given }: HonestExchange, outcome: Outcome, honest: Honest): void {
  const { status, text, broken, items } = outcome;
  assertError(given as HonestExchange, outcome, honest);
  if (status === 502 || status === given.status) {
    assert.match(text, REFUSED);
    assert.deepEqual([items, broken], [[], false]);
    return;
  }
  assert.notEqual(events, undefined, `${status}: ${text}`);
  const read = readStream(api, text).items;
  assert.deepEqual([Math.trunc(status / 100), broken], [2, true], text);
  assert.match(JSON.stringify(read.at(-1)), REFUSED);
  assert.deepEqual(read.slice(0, -1), items);
}

/** The end of a list of elements is not authenticated: the last of their sequence can be missing. */
function assertHarmless({ api }: HonestExchange, outcome: Outcome, [honest = []]: Honest): void {
  const { status, broken, items, error, text } = outcome;
  assert.deepEqual([error, Math.trunc(status / 100), broken], [undefined, 2, false], text);
  const [given, all] = [items, honest].map((each) =>
    api === 'unstructured' ? elementsInOrder(each[0] as unknown[]) : each,
  );
  assert.deepEqual(given, api === 'unstructured' ? all?.slice(0, given?.length) : all);
}

/** Whatever error it is: nothing dishonest comes before it. */
function assertError(_: HonestExchange, { items, error }: Outcome, honest: Honest): void {
  assert.notEqual(error, undefined, `the client is content with ${JSON.stringify(items)}`);
  assert.ok(isBeginning(items, honest), `not an honest beginning: ${JSON.stringify(items)}`);
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
    stack = await startHostileStack([...HONEST, ...runs]);
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

  it('gets nothing dishonest through by up to four generated edits of events and members', async () => {
    const counts = { harmless: 0, refused: 0 };
    const property = fc.asyncProperty(
      fc.constantFrom(...EXCHANGES.values()),
      generatedAttack,
      async (exchange, edits) => {
        const honest = [await honestly(exchange.name)];
        stack.attack = generated(edits, exchange);
        const outcome = await ask(stack.url, exchange);
        JUDGES[endsInError(exchange) ? 'error' : 'either'](exchange, outcome, honest);
        counts[outcome.error === undefined ? 'harmless' : 'refused'] += 1;
      },
    );
    await fc.assert(property, { seed: 20261130, numRuns: 300 });
    assert.ok(Math.min(...Object.values(counts)) > 30, JSON.stringify(counts));
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
