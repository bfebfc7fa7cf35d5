/**
 * What honest responses consist of, written a second time: slow, literal, the whole response at once, JSON.parse. It shares no
 * code with lib/; the attacks of attack-generator.ts are tried on both.
 */
import { EXCHANGE } from './exchange-fixture.ts';
import { type ApiName, type HonestExchange, PLAIN } from './honest-exchanges.ts';
import { literalOpen } from './literal-envelope.ts';
import { inSequence, isSealed, membersOf, type WireEvent } from './wire-text.ts';

/** What is delivered, as text, and whether it ended in a refusal. */
export interface LiteralOpened {
  readonly text: string;
  readonly failure: string | undefined;
}

class Refused extends Error {}
function demand(condition: boolean, words: string): asserts condition {
  if (!condition) throw new Refused(words);
}

type Kind = 'integer' | 'string' | 'object' | 'objects' | 'objects or null';
type Members = ReadonlyMap<string, unknown>;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const areObjects = (value: unknown): value is Record<string, unknown>[] =>
  Array.isArray(value) && value.every(isObject);

const IS: Readonly<Record<Kind, (value: unknown) => boolean>> = {
  integer: Number.isInteger,
  string: (value) => typeof value === 'string',
  object: isObject,
  objects: areObjects,
  'objects or null': (value) => value === null || areObjects(value),
};

/** The required members of chunks; a text that is none of the kinds is the value that it must have. */
const CHUNKS: Readonly<Partial<Record<ApiName, Readonly<Record<string, Kind | `=${string}`>>>>> = {
  chat: { choices: 'objects', created: 'integer', model: 'string', object: '=chat.completion.chunk' },
  completions: { choices: 'objects', created: 'integer', model: 'string', object: '=text_completion' },
  transcription: {
    choices: 'objects',
    created: 'integer',
    id: 'string',
    model: 'string',
    object: '=transcription.chunk',
  },
};
const EVENTS: Readonly<Record<string, Readonly<Record<string, Kind>>>> = {
  message_start: { message: 'object' },
  content_block_start: { index: 'integer', content_block: 'object' },
  content_block_delta: { index: 'integer', delta: 'object' },
  content_block_stop: { index: 'integer' },
  message_delta: { delta: 'object' },
  message_stop: {},
  ping: {},
  error: { error: 'object' },
};
const WHOLES: Readonly<Record<string, Readonly<Record<string, Kind | `=${string}`>>>> = {
  chat: { choices: 'objects', created: 'integer', model: 'string', object: '=chat.completion' },
  completions: { choices: 'objects', created: 'integer', model: 'string', object: '=text_completion' },
  embeddings: { data: 'objects', model: 'string', object: '=list' },
  messages: { content: 'objects', model: 'string', role: '=assistant', stop_reason: 'string' },
  json: { text: 'string' },
  verbose_json: { language: 'string', text: 'string', segments: 'objects or null', words: 'objects or null' },
};

/** In an error nothing is in clear but these. */
function demandPlainOfError(api: ApiName, event: WireEvent): void {
  for (const { name, value: text } of membersOf(event)) {
    if (!PLAIN[api].response.includes(name)) continue;
    const value: unknown = JSON.parse(text);
    const mayBe =
      (name === 'id' && (value === null || typeof value === 'string')) ||
      (name === 'usage' && (value === null || isObject(value))) ||
      (name === 'type' && value === 'error');
    demand(mayBe && Buffer.byteLength(text) <= 16_384, `${name} hides something`);
  }
}

const is = (kind: string, value: unknown): boolean =>
  kind.startsWith('=') ? value === kind.slice(1) : IS[kind as Kind](value);

function demandRow(row: Readonly<Record<string, string>>, members: Members): void {
  for (const [name, kind] of Object.entries(row)) {
    demand(members.has(name) && is(kind, members.get(name)), `no ${name}`);
  }
}

const CONTENT = ['index', 'delta', 'text', 'message', 'finish_reason'];
/** A value that could be what another event or member was to say. */
const couldBeContent = (value: unknown, object: unknown): boolean =>
  (object !== undefined && value === object) ||
  (Array.isArray(value) &&
    value.some((item) => isObject(item) && CONTENT.some((name) => Object.hasOwn(item, name)))) ||
  (isObject(value) && typeof value['message'] === 'string' && 'type' in value);

/** Members of whole messages that may say something. Any other could be the stop reason under another name. */
const OF_MESSAGES: Readonly<Record<string, Kind>> = {
  stop_sequence: 'string',
  kv_transfer_params: 'object',
  ec_transfer_params: 'object',
};
const isEmpty = (value: unknown): boolean =>
  value === null || (typeof value === 'object' && Object.keys(value).length === 0);

function demandNothingHidden(row: object, members: Members): void {
  const isMessage = row === WHOLES['messages'];
  for (const [name, value] of members) {
    if (Object.hasOwn(row, name)) continue;
    const kind = OF_MESSAGES[name];
    const mayBe = !isMessage || isEmpty(value) || (kind !== undefined && is(kind, value));
    demand(mayBe && !couldBeContent(value, members.get('object')), `${name} hides something`);
  }
}

/** Opens the messages of a response one after the other; those of the request are refused. */
function createOpener(api: ApiName, request: readonly string[]) {
  const ivOf = (message: string): string => (message.split(':')[2] ?? '').toLowerCase();
  let sequence = 0;
  return (event: WireEvent): Members => {
    const members = membersOf(event);
    demand(new Set(members.map(({ name }) => name)).size === members.length, 'a name twice');
    const opened = new Map<string, unknown>();
    for (const member of inSequence(members, PLAIN[api].response)) {
      demand(isSealed(member), 'not sealed');
      const own = request[sequence];
      demand(own === undefined || ivOf(own) !== ivOf(member.value), 'a message of the request');
      let plaintext: string;
      try {
        plaintext = literalOpen(EXCHANGE, sequence, member.value).toString('utf8');
      } catch {
        throw new Refused('not authentic');
      }
      opened.set(member.name, JSON.parse(plaintext));
      sequence += 1;
    }
    return opened;
  };
}

/** Follows a stream: takes its events, and says whether it may end. */
interface Follower {
  take(event: WireEvent, members: Members): 'goes on' | 'error';
  mayEnd(): boolean;
}

function followChunks(api: ApiName, wanted: number): Follower {
  const row = CHUNKS[api] ?? {};
  const constants = Object.keys(row).filter((name) => name !== 'choices');
  const finished = new Set<unknown>();
  let first: Members | undefined;
  let closed = false;
  return {
    mayEnd: () => (api === 'transcription' ? closed : finished.size === wanted),
    take(_, members) {
      demand(!closed, 'something after the closing chunk');
      if (members.has('error')) {
        demand(members.size === 1 && isObject(members.get('error')), 'an error beside something');
        return 'error';
      }
      demandRow(row, members);
      demandNothingHidden(row, members);
      first ??= members;
      for (const name of constants) demand(members.get(name) === first.get(name), `another ${name}`);
      const choices = members.get('choices') as Record<string, unknown>[];
      demand(choices.length <= 1, 'several choices');
      const [choice] = choices;
      if (choice === undefined) closed = true;
      else if (api !== 'transcription') {
        const { index, finish_reason } = choice as { index?: unknown; finish_reason?: unknown };
        demand(
          Number.isInteger(index) && (index as number) >= 0 && (index as number) < wanted,
          'no such index',
        );
        demand(!finished.has(index), 'something after a finish');
        if ((finish_reason ?? null) !== null) finished.add(index);
      }
      demand(!closed || api === 'transcription' || finished.size === wanted, 'closed too early');
      return 'goes on';
    },
  };
}

function followMessage(): Follower {
  let place: 'before' | 'between' | 'block' | 'stopped' = 'before';
  let block = 0;
  const STEPS: Readonly<Record<string, (members: Members) => void>> = {
    message_start() {
      demand(place === 'before', 'a second start');
      place = 'between';
    },
    content_block_start(members) {
      demand(place === 'between' && members.get('index') === block, 'a block out of place');
      place = 'block';
    },
    content_block_delta(members) {
      const { type } = members.get('delta') as { type?: unknown };
      demand(place === 'block' && members.get('index') === block, 'a delta out of place');
      demand(typeof type === 'string' && type.endsWith('_delta'), 'not a delta of a block');
    },
    content_block_stop(members) {
      demand(place === 'block' && members.get('index') === block, 'a stop out of place');
      place = 'between';
      block += 1;
    },
    message_delta(members) {
      demand(place === 'between', 'a message_delta out of place');
      const { stop_reason } = members.get('delta') as { stop_reason?: unknown };
      demand(stop_reason !== undefined, 'not the delta of a message');
      if (stop_reason !== null) place = 'stopped';
    },
    message_stop() {
      demand(place === 'stopped', 'a message_stop out of place');
    },
    ping() {},
    error() {},
  };
  return {
    mayEnd: () => place === 'stopped',
    take(event, members) {
      const type = membersOf(event).find(({ name }) => name === 'type')?.value;
      const name = typeof event.event === 'object' ? event.event.at(-1) : event.event;
      demand(name !== undefined && JSON.stringify(name) === type, 'the line is not the type');
      const row = Object.hasOwn(EVENTS, name) ? EVENTS[name] : undefined;
      demand(row !== undefined, 'no such event');
      demandRow(row, members);
      for (const [other, value] of members) {
        const mayBe = name === 'message_delta' && other === 'context_management';
        demand(Object.hasOwn(row, other) || (mayBe && !couldBeContent(value, undefined)), `${other} there`);
      }
      STEPS[name]?.(members);
      return name === 'error' ? 'error' : 'goes on';
    },
  };
}

const deliveredText = (event: WireEvent, members: Members, named: boolean): string => {
  const data = Object.fromEntries(
    membersOf(event).map(({ name, value }) => [
      name,
      members.has(name) ? members.get(name) : JSON.parse(value),
    ]),
  );
  const name = typeof event.event === 'object' ? event.event.at(-1) : event.event;
  return `${named ? `event: ${name}\n` : ''}data: ${JSON.stringify(data)}\n\n`;
};

function refusalOf(work: () => void): string | undefined {
  try {
    work();
    return undefined;
  } catch (thrown) {
    return thrown instanceof Error ? thrown.message : String(thrown);
  }
}

function openStream(
  { api, choices }: HonestExchange,
  events: readonly WireEvent[],
  request: readonly string[],
): LiteralOpened {
  const openEvent = createOpener(api, request);
  const follower = api === 'messages' ? followMessage() : followChunks(api, choices);
  let text = '';
  const failure = refusalOf(() => {
    for (const event of events) {
      if (event.data === '') continue;
      if (typeof event.data === 'string' && event.data.toUpperCase() === '[DONE]') {
        if (api === 'messages') continue;
        demand(follower.mayEnd(), 'unfinished');
        text += 'data: [DONE]\n\n';
        return;
      }
      demand(typeof event.data !== 'string', 'no JSON');
      const members = openEvent(event);
      const how = follower.take(event, members);
      text += deliveredText(event, members, api === 'messages');
      if (how === 'error') return;
      if (api === 'messages' && text.endsWith('data: {"type":"message_stop"}\n\n')) return;
    }
    throw new Refused('unfinished');
  });
  return { text, failure };
}

function openWhole(
  { api, choices, format, status = 200 }: HonestExchange,
  events: readonly WireEvent[],
  request: readonly string[],
): LiteralOpened {
  let text = '';
  const failure = refusalOf(() => {
    demand(events.length === 1, 'not one body');
    const [event] = events as [WireEvent];
    const members = createOpener(api, request)(event);
    if (status >= 400) {
      demand(members.size > 0, 'an error without words');
      demandPlainOfError(api, event);
    } else if (api === 'unstructured') {
      for (const value of members.values()) demand(isObject(value) || areObjects(value), 'no element');
    } else {
      const row = WHOLES[format ?? api] as Readonly<Record<string, Kind>>;
      demandRow(row, members);
      demandNothingHidden(row, members);
      const answered = members.get('choices');
      demand(!Array.isArray(answered) || answered.length === choices, 'not as many choices');
    }
    text =
      api === 'unstructured'
        ? JSON.stringify(membersOf(event).map(({ name }) => members.get(name)))
        : deliveredText(event, members, false).slice('data: '.length);
  });
  return { text, failure };
}

/** Opens a response; `request` are the sealed messages of its request. */
export const literalOpenResponse = (
  exchange: HonestExchange,
  events: readonly WireEvent[],
  request: readonly string[],
): LiteralOpened => (exchange.events === undefined ? openWhole : openStream)(exchange, events, request);
