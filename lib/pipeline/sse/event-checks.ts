/**
 * Checks the events of one stream against the grammar: their members, the values that are the same in all of
 * them, and their order.
 *
 * The events that end a stream (`[DONE]`, `message_stop`) are plain: a gateway could forge them or bring them
 * forward. So they count only after authenticated content has said that the response is complete.
 */

import { encryptionOrder } from '../../json/names.ts';
import { notAuthentic } from '../decrypter.ts';
import {
  fitsRow,
  type GrammarRow,
  hasNames,
  type PlainMembers,
  requiredKind,
  type StreamGrammar,
} from '../response-grammar.ts';

/**
 * Follows the order of a stream's events. `complete` says whether the event that ends the stream would be
 * true now. `take` gets the type of the next event and, if the event has them, the parsed values of its
 * CONTENT member and of `index`. It throws response_not_authentic if the event cannot come here.
 */
type StreamOrder = ReturnType<typeof chunksOrder | typeof blocksOrder>;

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
function chunksOrder(isAudio: boolean, wanted: number) {
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
function blocksOrder() {
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
  /** The messages' numbers, which count in the order of the text, in the order in which they were sealed. */
  readonly order: readonly number[];
  /**
   * What the grammar asks of each message, in that order. `constant` is the index in
   * `StreamGrammar.constant`, or -1.
   */
  readonly checks: readonly {
    readonly name: string;
    readonly required: boolean;
    readonly constant: number;
  }[];
}

/** By type of event, the member that says how far the response is. */
const CONTENT: ReadonlyMap<string, string> = new Map([
  ['chunk', 'choices'],
  ['message_start', 'message'],
  ['message_delta', 'delta'],
]);

const NULL = Buffer.from('null');

/**
 * The value of a JSON text. Each byte is read as a character: only strings have bytes beyond ASCII, and no
 * check reads those.
 */
function parsed(opened: Buffer): unknown {
  try {
    return JSON.parse(opened.toString('latin1'));
  } catch {
    throw notAuthentic('a value of an event is not JSON');
  }
}

/** Checks the events of one stream against its grammar. */
export class EventChecks {
  readonly grammar: StreamGrammar;
  readonly plain: PlainMembers;
  readonly order: StreamOrder;
  readonly #constants: (Uint8Array | undefined)[] = []; // by their index in `StreamGrammar.constant`

  /** `choices`: how many choices the request asked for, at least 1. */
  constructor(grammar: StreamGrammar, plain: PlainMembers, choices: number) {
    this.grammar = grammar;
    this.plain = plain;
    const { order } = grammar;
    this.order = order === 'blocks' ? blocksOrder() : chunksOrder(order === 'audio', choices);
  }

  /**
   * The kind of an event, by the names of its sealed members in the order of the text and its plain member
   * `type`. Throws response_not_authentic if the API has no such event.
   */
  kindOf(sealed: readonly string[], plainType: string | undefined): EventKind {
    const { named, events, constant } = this.grammar;
    const isError = sealed.includes('error') && !sealed.includes('choices');
    const type = named ? (plainType ?? '') : isError ? 'error' : 'chunk';
    const row = Object.hasOwn(events, type) ? events[type] : undefined;
    if (row === undefined || !hasNames(row, sealed, this.plain)) {
      throw notAuthentic('an event is not one of this API');
    }
    const numbered = sealed.map((name, part) => ({ name, part }));
    const parts = encryptionOrder(numbered, this.plain).map(({ name, part }) => {
      const required = requiredKind(row, name) !== undefined;
      return { name, part, required, constant: required ? constant.indexOf(name) : -1 };
    });
    return { type, row, order: parts.map(({ part }) => part), checks: parts };
  }

  /**
   * Checks the opened messages of the next event, which are in `opened` by their numbers. Returns the parsed
   * value of the member that says how far the response is, if the event has one. Throws
   * response_not_authentic if a check fails.
   */
  accept({ type, row, order, checks }: EventKind, opened: readonly Buffer[]): unknown {
    let content: unknown;
    let index: unknown;
    for (let k = 0; k < checks.length; k++) {
      const { name, required, constant } = checks[k]!;
      const text = opened[order[k]!]!;
      const first = constant < 0 ? undefined : this.#constants[constant];
      if (first !== undefined) {
        if (text.compare(first) !== 0) throw notAuthentic('the events are not of one response');
        continue;
      }
      if (!required && text.equals(NULL)) continue;
      const value = parsed(text);
      if (!fitsRow(row, name, value)) throw notAuthentic('the members of an event are not its own');
      if (constant >= 0) {
        if (name === 'object' && value !== row.object) {
          throw notAuthentic('the response is not of the kind that was asked for');
        }
        this.#constants[constant] = Uint8Array.from(text);
      } else if (name === CONTENT.get(type)) content = value;
      else if (name === 'index') index = value;
    }
    this.order.take(type, content, index);
    return content;
  }
}
