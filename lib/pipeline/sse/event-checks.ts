/** What the grammar asks of the events of one stream: their members, what is the same in all of them, their order. */
import { notAuthentic } from '../decrypter.ts';
import {
  fitsRow,
  hasNames,
  type PlainMembers,
  type Row,
  requiredKind,
  type StreamGrammar,
} from '../grammar.ts';
import { encryptionOrder } from '../json/json-text.ts';
import type { EventData } from './event-data.ts';
import { type StreamOrder, streamOrder } from './stream-order.ts';

/** What is asked of one sealed member. */
interface MemberCheck {
  /** Its number among the messages of the event. */
  readonly part: number;
  readonly name: string;
  readonly required: boolean;
  /** Index in `StreamGrammar.constant`, or -1. */
  readonly constant: number;
}

/** A kind of event: those with the same members in the same order. */
export interface EventKind {
  /** Its type in the grammar. */
  readonly type: string;
  readonly row: Row;
  /** The numbers of the messages, in the order in which they were sealed; the checks likewise. */
  readonly order: readonly number[];
  readonly checks: readonly MemberCheck[];
}

/** The member of an event that says how far the response is. */
const CONTENT: ReadonlyMap<string, string> = new Map([
  ['chunk', 'choices'],
  ['message_start', 'message'],
  ['message_delta', 'delta'],
]);

/** For short values: a loop is faster than a call into the runtime. */
function isSame(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

const NULL = Buffer.from('null');

/** The value of a JSON text. Its bytes as characters: only strings have others than ASCII, and nobody reads those. */
function parsed(opened: Buffer): unknown {
  try {
    return JSON.parse(opened.toString('latin1'));
  } catch {
    throw notAuthentic('a value of an event is not JSON');
  }
}

/** Holds the events of one stream against its grammar. */
export class EventChecks {
  readonly #grammar: StreamGrammar;
  readonly #plain: PlainMembers;
  readonly #order: StreamOrder;
  /** By their index in `StreamGrammar.constant`. */
  readonly #constants: (Uint8Array | undefined)[];

  /** `choices`: how many were asked for. */
  constructor(grammar: StreamGrammar, plain: PlainMembers, choices: number) {
    this.#grammar = grammar;
    this.#plain = plain;
    this.#order = streamOrder(grammar.order, choices);
    this.#constants = grammar.constant.map(() => undefined);
  }

  /** Whether the response is complete, so that the stream may end. */
  isComplete(): boolean {
    return this.#order.complete;
  }

  /** The kind of an event. Throws response_not_authentic if the API has no such event. */
  kindOf({ sealed, type: plainType }: EventData): EventKind {
    const { named, events, constant } = this.#grammar;
    const isError = sealed.includes('error') && !sealed.includes('choices');
    const type = named ? (plainType ?? '') : isError ? 'error' : 'chunk';
    const row = Object.hasOwn(events, type) ? events[type] : undefined;
    if (row === undefined || !hasNames(row, sealed, this.#plain)) {
      throw notAuthentic('an event is not one of this API');
    }
    const parts = encryptionOrder(
      sealed.map((name, part) => ({ name, part })),
      this.#plain,
    );
    const checks = parts.map(({ name, part }): MemberCheck => {
      const required = requiredKind(row, name) !== undefined;
      return { name, part, required, constant: required ? constant.indexOf(name) : -1 };
    });
    return { type, row, order: parts.map(({ part }) => part), checks };
  }

  /**
   * Checks the opened messages of the next event, which are in `opened` by their numbers. Returns the parsed value of the member
   * that says how far the response is, if it has one. Throws response_not_authentic.
   */
  accept({ type, row, checks }: EventKind, opened: readonly Buffer[]): unknown {
    let content: unknown;
    let index: unknown;
    for (let k = 0; k < checks.length; k++) {
      const { name, part, required, constant } = checks[k]!;
      const text = opened[part]!;
      const first = constant < 0 ? undefined : this.#constants[constant];
      if (first !== undefined) {
        if (!isSame(text, first)) throw notAuthentic('the events are not of one response');
        continue;
      }
      if (!required && isSame(text, NULL)) continue;
      const value = parsed(text);
      if (!fitsRow(row, name, value)) throw notAuthentic('the members of an event are not its own');
      if (constant >= 0) this.#keep(row, name, constant, value, text);
      else if (name === CONTENT.get(type)) content = value;
      else if (name === 'index') index = value;
    }
    this.#order.take(type, content, index);
    return content;
  }

  #keep(row: Row, name: string, constant: number, value: unknown, text: Buffer): void {
    if (name === 'object' && value !== row.object) {
      throw notAuthentic('the response is not of the kind that was asked for');
    }
    this.#constants[constant] = Uint8Array.from(text);
  }
}
