/**
 * Checks the events of one stream against the grammar: their members, the values that are the same in all of
 * them, and their order.
 *
 * The events that end a stream (`[DONE]`, `message_stop`) are plain: a gateway could forge them or bring them
 * forward. So they count only after authenticated content has said that the response is complete.
 */
import { encryptionOrder } from '../json/names.ts';
import { notAuthentic, openedValue } from './decrypter.ts';
import {
  fitsRow,
  type GrammarRow,
  hasNames,
  type PlainMembers,
  requiredKind,
  type StreamGrammar,
} from './response-grammar.ts';
import type { SealedObject } from './sealed-json.ts';

/**
 * Follows the order of a stream's events. `complete` says whether the event that ends the stream would be
 * true now. `take` gets the type of the next event and, if the event has them, the parsed values of its
 * CONTENT member and of `index`. It throws response_not_authentic if the event cannot come here.
 */
interface EventOrder {
  readonly complete: boolean;
  take(type: string, content: unknown, index: unknown): void;
}

/** By type of event, the member that says how far the response is. */
const CONTENT: ReadonlyMap<string, string> = new Map([
  ['chunk', 'choices'],
  ['message_start', 'message'],
  ['message_delta', 'delta'],
]);

type Choice = Readonly<Record<string, unknown>>;

const isSet = (value: unknown): boolean => value !== undefined && value !== null;

/** Whether a choice only names its role: then it has no tokens yet. */
function isRoleOnly({ delta }: Choice): boolean {
  if (typeof delta !== 'object' || delta === null) return false;
  const { role, ...rest } = delta as Choice;
  return typeof role === 'string' && Object.values(rest).every((value) => value === '' || !isSet(value));
}

/**
 * Chat and completions: choices 0 to `wanted` - 1 finish once each, and nothing follows the finish of a
 * choice. The closing chunk without choices comes last. After it, a choice that is the only one and got no
 * token needs no finish (vLLM 0.20 sends none). Of several choices all must finish, since the closing chunk
 * could be that of a run that was asked for fewer.
 *
 * Transcriptions: each stretch of audio finishes, so only the closing chunk says that all have finished.
 */
function chunksOrder(isAudio: boolean, wanted: number): EventOrder {
  const states = new Map<number, 'role' | 'content' | 'finished'>();
  let finished = 0;
  let began = false;
  let closed = false;

  const takeChoice = (choice: Choice): void => {
    const index = choice['index'] as number;
    if (!(Number.isInteger(index) && index >= 0 && index < wanted)) {
      throw notAuthentic('a choice of the stream was not asked for');
    }
    const state = states.get(index);
    if (state === 'finished') throw notAuthentic('a choice of the stream goes on after its end');
    if (isSet(choice['finish_reason'])) {
      states.set(index, 'finished');
      finished += 1;
    } else if (state !== 'content') {
      states.set(index, state === undefined && isRoleOnly(choice) ? 'role' : 'content');
    }
  };

  const order = {
    complete: false,
    take(type: string, content: unknown): void {
      if (type !== 'chunk') return;
      if (closed) throw notAuthentic('the stream goes on after its last chunk');
      const choices = content as readonly Choice[];
      if (!isAudio) for (const choice of choices) takeChoice(choice);
      closed = began && choices.length === 0;
      began ||= choices.length > 0;
      const isOver = finished === wanted || (closed && wanted === 1 && states.get(0) === 'role');
      order.complete = isAudio ? closed : isOver;
    },
  };
  return order;
}

/**
 * For each event of a message: the states after which it may come, and the state after it. The first state is
 * `new`, the last `stopped`.
 */
const BLOCK_EVENTS: ReadonlyMap<string, readonly [after: readonly string[], next: string]> = new Map([
  ['message_start', [['new'], 'between']],
  ['content_block_start', [['between'], 'block']],
  ['content_block_delta', [['block'], 'block']],
  ['content_block_stop', [['block'], 'between']],
  ['message_delta', [['between', 'closing'], 'closing']],
]);

/**
 * Messages: first the start; then blocks 0, 1, ..., each begun, continued by deltas of its index, and
 * stopped; then the deltas of the message, the last of which has a stop_reason; then the end. `ping` and
 * `error` may come at any time.
 */
function blocksOrder(): EventOrder {
  let state = 'new';
  let block = 0; // the number of the open block, or of the next one
  const order = {
    complete: false,
    take(type: string, content: unknown, index: unknown): void {
      const [after, next] = BLOCK_EVENTS.get(type) ?? [];
      if (after === undefined || next === undefined) return;
      const ofBlock = type.startsWith('content_block_');
      const allowed = after.includes(state) && (!ofBlock || index === block);
      if (!allowed) throw notAuthentic('an event of the message comes where it cannot');
      state = next;
      if (type === 'content_block_stop') block += 1;
      if (type !== 'message_delta' || !isSet((content as Choice)['stop_reason'])) return;
      state = 'stopped';
      order.complete = true;
    },
  };
  return order;
}

/** A kind of event: all events with the same members in the same order. */
export interface EventKind {
  /** Its type in the grammar. */
  readonly type: string;
  readonly row: GrammarRow;
  readonly names: readonly string[];
  /**
   * The messages in the order in which they were sealed. `at`: which member it is; `constant`: the index in
   * `StreamGrammar.constant`, or -1.
   */
  readonly sealed: readonly {
    readonly name: string;
    readonly at: number;
    readonly required: boolean;
    readonly constant: number;
  }[];
}

/** Checks the events of one stream. */
export class EventChecks {
  readonly grammar: StreamGrammar;
  readonly order: EventOrder;
  readonly #plain: PlainMembers;
  #last: EventKind | undefined;
  readonly #constants: (string | undefined)[] = []; // by their index in `StreamGrammar.constant`

  /** `choices`: how many choices the request asked for, at least 1. */
  constructor(grammar: StreamGrammar, plain: PlainMembers, choices: number) {
    this.grammar = grammar;
    this.#plain = plain;
    const { order } = grammar;
    this.order = order === 'blocks' ? blocksOrder() : chunksOrder(order === 'audio', choices);
  }

  /** The kind of an event. Throws response_not_authentic if the API has no such event. */
  kindOf({ names, values }: SealedObject): EventKind {
    const { named, events, constant } = this.grammar;
    const isError = names.includes('error') && !names.includes('choices');
    const unnamed = isError ? 'error' : 'chunk';
    const type = named ? (values[names.indexOf('type')] ?? '').slice(1, -1) : unnamed;
    const last = this.#last;
    if (last?.type === type && isSame(last.names, names)) return last;
    const row = Object.hasOwn(events, type) ? events[type] : undefined;
    const numbered = names.map((each, at) => ({ name: each, at }));
    const sealed = encryptionOrder(numbered, this.#plain).map(({ name, at }) => {
      const required = row !== undefined && requiredKind(row, name) !== undefined;
      return { name, at, required, constant: required ? constant.indexOf(name) : -1 };
    });
    const sealedNames = sealed.map(({ name }) => name);
    if (row === undefined || !hasNames(row, sealedNames, this.#plain)) {
      throw notAuthentic('an event is not one of this API');
    }
    this.#last = { type, row, names, sealed };
    return this.#last;
  }

  /**
   * Checks the opened messages of the next event. Returns the parsed value of the member that says how far
   * the response is, if the event has one. Throws response_not_authentic if a check fails.
   */
  accept({ type, row, sealed }: EventKind, opened: readonly string[]): unknown {
    let content: unknown;
    let index: unknown;
    for (let k = 0; k < sealed.length; k++) {
      const { name, required, constant } = sealed[k]!;
      const text = opened[k]!;
      const first = constant < 0 ? undefined : this.#constants[constant];
      if (first !== undefined) {
        if (text !== first) throw notAuthentic('the events are not of one response');
        continue;
      }
      if (!required && text === 'null') continue;
      const value = openedValue(text);
      if (!fitsRow(row, name, value)) throw notAuthentic('the members of an event are not its own');
      if (constant >= 0) {
        if (name === 'object' && value !== row.object) {
          throw notAuthentic('the response is not of the kind that was asked for');
        }
        this.#constants[constant] = text;
      } else if (name === CONTENT.get(type)) content = value;
      else if (name === 'index') index = value;
    }
    this.order.take(type, content, index);
    return content;
  }
}

function isSame(a: readonly string[], b: readonly string[]): boolean {
  if (a.length !== b.length) return false;
  for (let k = 0; k < a.length; k++) if (a[k] !== b[k]) return false;
  return true;
}
