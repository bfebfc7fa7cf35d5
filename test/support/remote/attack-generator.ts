/**
 * Attacks on recorded responses, made by a generator: the edits of a gateway that has no key. A message
 * authenticates only at its own place in the sequence, so a gateway that is any good puts the messages back
 * in their order after it has changed names and events: `reseat`.
 */
import fc from 'fast-check';
import { plainOf } from './endpoints.ts';
import { EXCHANGE } from './exchange-fixture.ts';
import { essenceOf, type HonestExchange, honestExchanges, type Run } from './honest-exchanges.ts';
import { literalSeal } from './literal-envelope.ts';
import { CREATED } from './transcripts/transcript.ts';
import {
  inSequence,
  isSealed,
  membersOf,
  parseBody,
  type WireEvent,
  type WireMember,
  withUpperCaseIv,
  writeBody,
  writeEvents,
} from './wire-text.ts';

/** One exchange as it was on the wire. */
interface Recorded {
  readonly exchange: HonestExchange;
  /**
   * The events of the stream, or one that is the whole body; sealed messages are empty strings until
   * `seated`.
   */
  readonly events: readonly WireEvent[];
  readonly isArray: boolean;
  /** The messages of each run in the order of their sequence; the first is the run that was recorded. */
  readonly runs: readonly (readonly string[])[];
}

export interface Recording extends Recorded {
  /** What a client reads of each run. */
  readonly essences: readonly (readonly unknown[])[];
  /** Plaintexts of the request, each of which reads like the response's message of the same number. */
  readonly request: readonly Buffer[];
}

const REFLECTED = 'REFLECTED ';
const MOST_REFLECTED = 16;

/** A message like any other, for members whose own is still to come. */
const UNSEATED = `"${EXCHANGE.id}:${'0'.repeat(24)}:${'0'.repeat(24)}:${'0'.repeat(32)}"`;

type Plain = readonly string[];
const DONE: WireEvent = { data: '[DONE]' };

/** The events of an exchange with no message in its place yet, and the plaintexts in their sequence. */
export function laidOut({ api, events, body }: HonestExchange) {
  const plain = plainOf(api).response;
  const plaintexts: string[] = [];
  const lay = (value: unknown, event?: string): WireEvent => {
    const { members } = parseBody(JSON.stringify(value));
    plaintexts.push(...inSequence(members, plain).map((member) => member.value));
    const data = members.map((member) =>
      plain.includes(member.name) ? member : { ...member, value: UNSEATED },
    );
    return { event, data };
  };
  if (events === undefined) return { events: [lay(body)], plaintexts };
  const laid = events.map((data) => lay(data, api === 'messages' ? String(data['type']) : undefined));
  return { events: api === 'messages' ? laid : [...laid, DONE], plaintexts };
}

const sealedRun = (plaintexts: readonly string[], run: number): string[] =>
  plaintexts.map((plaintext, sequence) => {
    const iv = Buffer.alloc(12, run);
    iv.writeUInt32BE(sequence, 8);
    return literalSeal(EXCHANGE, sequence, iv, Buffer.from(plaintext));
  });

/** What tells a second run apart is something that is sealed in every event. */
const OTHER_RUNS: readonly Run[] = [
  { created: CREATED + 1, says: 'other ' },
  { model: 'other', says: 'other ' },
  { id: 'run-2', says: 'other ' },
];

/** The runs that a receiver can tell apart: none of messages, of whole answers, or by the plain `id`. */
function otherRunsOf({ api, events }: HonestExchange): readonly Run[] {
  if (events === undefined || api === 'messages') return [];
  return api === 'transcription' ? OTHER_RUNS : OTHER_RUNS.slice(0, 2);
}

/** Every honest exchange, recorded. */
export function recordings(): readonly Recording[] {
  const reflected = honestExchanges({ says: REFLECTED });
  return honestExchanges().map((exchange, index) => {
    const others = otherRunsOf(exchange).map((run) => honestExchanges(run)[index] as HonestExchange);
    const all = [exchange, ...others];
    return {
      exchange,
      events: laidOut(exchange).events,
      isArray: Array.isArray(exchange.body),
      runs: all.map((each, run) => sealedRun(laidOut(each).plaintexts, run)),
      essences: all.map(essenceOf),
      request: laidOut(reflected[index] as HonestExchange)
        .plaintexts.slice(0, MOST_REFLECTED)
        .map((plaintext) => Buffer.from(plaintext)),
    };
  });
}

const REQUIRED = [
  ...['choices', 'created', 'model', 'object', 'id', 'usage', 'type', 'error', 'duration'],
  ...['message', 'index', 'delta', 'content_block', 'content', 'role', 'stop_reason'],
  ...['data', 'text', 'language', 'segments', 'words'],
];
const OPTIONAL = [
  ...['system_fingerprint', 'service_tier', 'kv_transfer_params', 'prompt_token_ids', 'prompt_text'],
  ...['metrics', 'context_management', 'stop_sequence', 'citations'],
];
const ODD = ['Choices', 'CREATED', 'Model', 'a', 'choicet', 'd', 'm', 'z000', '~', 'é', '__proto__', '0'];
const LABELS = [
  ...['message_start', 'content_block_start', 'content_block_delta', 'content_block_stop'],
  ...['message_delta', 'message_stop', 'ping', 'error', '', 'message', 'thread.message.delta', 'note'],
];
const VALUES = ['null', '1', '"x"', '[]', '{}', '[{"index":0,"delta":{"content":"FORGED"}}]'];

const plainEvent = (value: object, event?: string): WireEvent => ({
  event,
  data: parseBody(JSON.stringify(value)).members,
});
/** What a gateway can write without a key. */
const FORGED: readonly WireEvent[] = [
  DONE,
  { data: '[done]' },
  { data: '' },
  { data: 'FORGED' },
  plainEvent({}),
  plainEvent({ type: 'ping' }, 'ping'),
  plainEvent({ type: 'message_stop' }, 'message_stop'),
  plainEvent({ id: 'x', usage: null }),
  plainEvent({ choices: [] }),
  plainEvent({ choices: [{ index: 0, delta: { content: 'FORGED' }, finish_reason: 'stop' }] }),
  plainEvent({ error: { message: 'FORGED' } }),
  plainEvent({ type: 'error', error: { type: 'api_error', message: 'FORGED' } }, 'error'),
  plainEvent({ type: 'message_delta', delta: { stop_reason: 'end_turn' } }, 'message_delta'),
  plainEvent(
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'FORGED' } },
    'content_block_delta',
  ),
];

const nat = fc.nat({ max: 99 });
const name = fc.constantFrom(...REQUIRED, ...OPTIONAL, ...ODD);
const kinds = <Kind extends string>(...all: readonly Kind[]) => fc.constantFrom(...all);

/** One edit. Numbers are taken modulo what there is. */
const edit = fc.oneof(
  fc.record({ kind: kinds('drop event'), at: nat }),
  fc.record({ kind: kinds('drop member'), at: nat, member: nat }),
  // Nothing comes after it, or only the mark of the end.
  fc.record({ kind: kinds('cut'), at: nat, ends: fc.boolean() }),
  fc.record({ kind: kinds('duplicate event', 'move event'), at: nat, to: nat }),
  fc.record({
    kind: kinds('duplicate member', 'move member'),
    at: nat,
    member: nat,
    to: nat,
    name: fc.option(name, { nil: null }),
  }),
  { weight: 2, arbitrary: fc.record({ kind: kinds('rename'), at: nat, member: nat, name }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: kinds('merge'),
      at: nat,
      count: fc.integer({ min: 2, max: 4 }),
      // Which of the events keeps its names; the others' sort behind or before, or differ by letter case.
      keeps: nat,
      others: kinds('z', 'a', 'capitals'),
    }),
  },
  fc.record({
    kind: kinds('relabel', 'retype', 'both'),
    at: nat,
    label: fc.option(fc.constantFrom(...LABELS), { nil: null }),
    twice: fc.boolean(),
  }),
  fc.record({ kind: kinds('insert'), at: nat, event: nat }),
  {
    weight: 2,
    arbitrary: fc.record({ kind: kinds('plain'), at: nat, name, value: fc.constantFrom(...VALUES) }),
  },
  fc.record({
    kind: kinds('reflect'),
    at: nat,
    count: fc.integer({ min: 1, max: MOST_REFLECTED }),
    capitals: fc.boolean(),
  }),
  fc.record({ kind: kinds('splice'), from: nat, run: nat }),
);

type ValueOf<T> = T extends fc.Arbitrary<infer Value> ? Value : never;
type Edit = ValueOf<typeof edit>;
type EditOf<Kind extends Edit['kind']> = Extract<Edit, { readonly kind: Kind }>;
export type GeneratedAttack = ValueOf<typeof generatedAttack>;

/**
 * One to four edits, or another number of choices than was asked for. `choices`: by how many choices the
 * gateway changed the plain `n` of the request, so that the worker gave so many more. `succeeds`: whether the
 * gateway gives an error the status 200. `reseat`: whether the messages are put back in their order once the
 * edits are made.
 */
export const generatedAttack = fc.oneof(
  {
    weight: 15,
    arbitrary: fc.record({
      edits: fc.oneof(fc.tuple(edit), fc.array(edit, { minLength: 1, maxLength: 4 })),
      choices: fc.constant(0),
      succeeds: fc.boolean(),
      reseat: fc.nat({ max: 3 }).map((number) => number > 0),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      edits: fc.array(edit, { maxLength: 1 }),
      choices: fc.constantFrom(-1, 1),
      succeeds: fc.constant(false),
      reseat: fc.constant(true),
    }),
  },
);

/** The recording with the status that the gateway gives it. A success of documents is an array. */
export function withStatus(recording: Recording, { succeeds }: GeneratedAttack): Recording {
  const { exchange, isArray } = recording;
  if (!succeeds || (exchange.status ?? 200) < 400) return recording;
  return {
    ...recording,
    exchange: { ...exchange, status: 200 },
    isArray: isArray || exchange.api === 'unstructured',
  };
}

/** What the application asked for, where the worker was asked for so many more choices. */
export function asked({ exchange }: Recording, { choices }: GeneratedAttack): HonestExchange {
  const counts = exchange.api === 'chat' || exchange.api === 'completions';
  return counts ? { ...exchange, choices: Math.max(exchange.choices - choices, 1) } : exchange;
}

/** The sealed members of an event that take part in the sequence. */
const seats = (event: WireEvent, plain: Plain): WireMember[] =>
  inSequence(membersOf(event), plain).filter(isSealed);

/**
 * With the messages at the sealed members, in the order of the sequence; members for which there are none go.
 */
function seated(events: readonly WireEvent[], messages: readonly string[], plain: Plain): WireEvent[] {
  let next = 0;
  return events.map((event) => {
    if (typeof event.data === 'string') return event;
    const order = new Map(seats(event, plain).map((member) => [member, messages[next++]]));
    const data = event.data.flatMap((member) => {
      const message = order.has(member) ? order.get(member) : member.value;
      return message === undefined ? [] : [{ ...member, value: message }];
    });
    return { ...event, data };
  });
}

/**
 * The messages of the recorded run, with those of the request and of other runs in the places where edits say
 * so.
 */
function messagesFor(
  { events, runs, exchange }: Recorded,
  edits: readonly Edit[],
  request: readonly string[],
): string[] {
  const messages = [...(runs[0] as readonly string[])];
  const counts = events.map((event) => seats(event, plainOf(exchange.api).response).length);
  for (const each of edits) {
    if (each.kind === 'splice') {
      const from = counts.slice(0, each.from % events.length).reduce((sum, count) => sum + count, 0);
      const run = runs[each.run % runs.length] as readonly string[];
      messages.splice(from, messages.length, ...run.slice(from));
    } else if (each.kind === 'reflect' && request.length > 0) {
      const at = each.at % request.length;
      const taken = request.slice(at, at + each.count);
      messages.splice(at, taken.length, ...taken.map(each.capitals ? withUpperCaseIv : (text) => text));
    }
  }
  return messages;
}

type Events = readonly WireEvent[];
const withMembers = (events: Events, at: number, data: readonly WireMember[]): WireEvent[] =>
  events.with(at, { ...(events[at] as WireEvent), data });

function merged(events: Events, { at, count, keeps, others }: EditOf<'merge'>): WireEvent[] {
  const first = at % events.length;
  const taken = events.slice(first, first + count);
  const keeper = keeps % taken.length;
  let number = 0;
  const data = taken.flatMap((event, index) => {
    if (index === keeper) return membersOf(event);
    return membersOf(event)
      .filter(isSealed)
      .map(({ name: own, value }) => {
        number += 1;
        return {
          name: others === 'capitals' ? own.toUpperCase() : `${others}${String(number).padStart(3, '0')}`,
          value,
        };
      });
  });
  return events.toSpliced(first, taken.length, { ...(taken[keeper] as WireEvent), data });
}

function withLabel(
  events: Events,
  { kind, at, label, twice }: EditOf<'relabel' | 'retype' | 'both'>,
): WireEvent[] {
  const index = at % events.length;
  const { event, data } = events[index] as WireEvent;
  const own = typeof event === 'string' ? [event] : [];
  const lines = label === null ? undefined : twice ? [...own, label] : label;
  const typed = membersOf({ data }).map((member) =>
    member.name === 'type' && label !== null ? { ...member, value: JSON.stringify(label) } : member,
  );
  return events.with(index, {
    event: kind === 'retype' ? event : lines,
    data: kind === 'relabel' || typeof data === 'string' ? data : typed,
  });
}

function memberEdited(
  events: Events,
  each: EditOf<'drop member' | 'rename' | 'duplicate member' | 'move member'>,
): Events {
  const index = each.at % events.length;
  const members = membersOf(events[index] as WireEvent);
  const at = each.member % Math.max(members.length, 1);
  const member = members[at];
  if (member === undefined) return events;
  if (each.kind === 'rename') {
    return withMembers(events, index, members.with(at, { ...member, name: each.name }));
  }
  const isCopied = each.kind === 'duplicate member';
  const left = isCopied ? events : withMembers(events, index, members.toSpliced(at, 1));
  if (each.kind === 'drop member') return left;
  const to = each.to % events.length;
  const { data } = left[to] as WireEvent;
  if (typeof data === 'string') return events;
  return withMembers(left, to, [...data, { ...member, name: each.name ?? member.name }]);
}

function edited(events: Events, each: Edit): Events {
  if (events.length === 0) return events;
  switch (each.kind) {
    case 'reflect':
    case 'splice':
      return events; // an edit of the messages: `messagesFor`
    case 'drop event':
      return events.toSpliced(each.at % events.length, 1);
    case 'cut':
      return [...events.slice(0, each.at % events.length), ...(each.ends ? events.slice(-1) : [])];
    case 'duplicate event':
    case 'move event': {
      const at = each.at % events.length;
      const event = events[at] as WireEvent;
      const left = each.kind === 'move event' ? events.toSpliced(at, 1) : events;
      return left.toSpliced(each.to % (left.length + 1), 0, event);
    }
    case 'merge':
      return merged(events, each);
    case 'relabel':
    case 'retype':
    case 'both':
      return withLabel(events, each);
    case 'insert':
      return events.toSpliced(
        each.at % (events.length + 1),
        0,
        FORGED[each.event % FORGED.length] as WireEvent,
      );
    case 'plain': {
      const at = each.at % events.length;
      const { data } = events[at] as WireEvent;
      if (typeof data === 'string') return events;
      const others = data.filter((member) => member.name !== each.name);
      return withMembers(events, at, [...others, { name: each.name, value: each.value }]);
    }
    default:
      return memberEdited(events, each);
  }
}

/** The elements of an array are named by where they stand; there are no more than messages for them. */
const renumbered = (events: Events, most: number): WireEvent[] =>
  events.map((event) => ({
    ...event,
    data: membersOf(event)
      .slice(0, most)
      .map(({ value }, index) => ({ name: String(index), value })),
  }));

/**
 * The attacked response; a whole body is one event. `request`: the sealed messages that the request really
 * had.
 */
export function attacked(
  recording: Recorded,
  { edits, reseat }: Pick<GeneratedAttack, 'edits' | 'reseat'>,
  request: readonly string[],
): readonly WireEvent[] {
  const { exchange, isArray } = recording;
  const plain = plainOf(exchange.api).response;
  const messages = messagesFor(recording, edits, request);
  const changed = edits.reduce<Events>(edited, seated(recording.events, messages, plain));
  const named = isArray ? renumbered(changed, messages.length) : changed;
  return reseat ? seated(named, messages, plain) : named;
}

/** A response as it stands on the wire. */
export const wireTextOf = ({ exchange, isArray }: Recorded, events: readonly WireEvent[]): string =>
  exchange.events === undefined
    ? events.map((event) => writeBody({ isArray, members: membersOf(event) })).join('')
    : writeEvents(events);
