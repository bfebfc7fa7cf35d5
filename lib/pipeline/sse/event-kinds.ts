/** The kinds of events a stream has had: what was found out about one is verified in the next (`event-layout.ts`). */
import { PrivatemodeError } from '../../errors.ts';
import { hasNames, kindCheck, mayHold, type Row, type StreamGrammar } from '../grammar.ts';
import { beginsLike, type EventMatch, type EventPattern, matchBytes, patternOf } from './event-bytes.ts';
import { type EventLayout, layoutOf, matchLayout } from './event-layout.ts';

/** What is asked of one sealed member. */
export interface MemberCheck {
  readonly part: number;
  /** Index in `StreamGrammar.constant`, or -1. */
  readonly constant: number;
  /** Whether a parsed value may stand there. */
  readonly fits: (value: unknown) => boolean;
  readonly required: boolean;
}

/** A kind of event this stream has had, and what is asked of the next one like it. */
export interface KnownEvent {
  readonly layout: EventLayout;
  /** What it looks like on the wire, where it can be told from its bytes alone. */
  readonly pattern: EventPattern | undefined;
  /** Its type in the grammar. */
  readonly type: string;
  readonly row: Row;
  /** In the order of the sequence numbers. */
  readonly checks: readonly MemberCheck[];
  /** The parts that the order of events depends on (`choices` or `delta`, and `index`); -1 for none. */
  readonly contentAt: number;
  readonly indexAt: number;
}

export interface EventKinds {
  /**
   * The kind of an event by its data, and its parts. A new kind is found by a strict scan; throws response_not_authentic
   * where the API has no such event, response_malformed, or what `layoutOf` throws.
   */
  ofText(data: string): { readonly kind: KnownEvent; readonly parts: readonly string[] };
  /** The kind of the event at `start`, its messages and its end in `match`; undefined where its bytes do not tell. */
  ofBytes(bytes: Buffer, start: number, match: EventMatch): KnownEvent | undefined;
  /** Whether the bytes from `start` on may be the beginning of an event that is known by its bytes. */
  mayBegin(bytes: Buffer, start: number): boolean;
}

/** Streams alternate between few kinds of events; more than this are not remembered. */
const REMEMBERED = 8;
/** Characters beside the messages. A kind with more is learned anew each time: a gateway could pad it with what it likes. */
const MAX_REMEMBERED_LENGTH = 4096;

/** The type of an event in the grammar: what it says of itself, or what its members make it. */
function typeOf({ named }: StreamGrammar, layout: EventLayout, sealed: readonly string[]): string {
  if (named) return layout.type ?? '';
  return sealed.includes('error') && !sealed.includes('choices') ? 'error' : 'chunk';
}

/** What an event of that layout is asked. Throws response_not_authentic where the API has no such event. */
function checked(layout: EventLayout, grammar: StreamGrammar): Omit<KnownEvent, 'pattern'> {
  const sealed = layout.order.map((part) => layout.names[part]!);
  const type = typeOf(grammar, layout, sealed);
  const row = Object.hasOwn(grammar.events, type) ? grammar.events[type] : undefined;
  if (row === undefined || !hasNames(row, sealed, grammar.plain)) {
    throw new PrivatemodeError('response_not_authentic', 'an event is not one of this API');
  }
  const checks = layout.order.map((part): MemberCheck => {
    const name = layout.names[part]!;
    const kind = Object.hasOwn(row.required, name) ? row.required[name] : undefined;
    return {
      part,
      required: kind !== undefined,
      constant: kind === undefined ? -1 : grammar.constant.indexOf(name),
      fits: kind === undefined ? (value) => mayHold(row, name, value) : kindCheck(kind),
    };
  });
  const partOf = (...names: string[]): number =>
    layout.order.find((part) => names.includes(layout.names[part]!)) ?? -1;
  return { layout, type, row, checks, contentAt: partOf('choices', 'delta'), indexAt: partOf('index') };
}

/** Of one stream. */
export function createEventKinds(grammar: StreamGrammar): EventKinds {
  const known: KnownEvent[] = [];
  let last = 0; // index of the kind that came last

  const learn = (data: string): KnownEvent => {
    const layout = layoutOf(data, grammar);
    const event = checked(layout, grammar);
    return { ...event, pattern: patternOf(layout, data, grammar.named ? layout.type : undefined) };
  };

  return {
    ofText(data) {
      for (let k = 0; k < known.length; k++) {
        const at = (last + k) % known.length;
        const kind = known[at]!;
        const parts = matchLayout(kind.layout, data);
        if (parts === undefined) continue;
        last = at;
        return { kind, parts };
      }
      const kind = learn(data);
      const parts = matchLayout(kind.layout, data);
      if (parts === undefined) throw new PrivatemodeError('response_malformed', 'an event is malformed');
      const length = kind.layout.literals.reduce((sum, literal) => sum + literal.length, 0);
      if (length > MAX_REMEMBERED_LENGTH) return { kind, parts };
      last = known.length < REMEMBERED ? known.length : (last + 1) % REMEMBERED;
      known[last] = kind;
      return { kind, parts };
    },
    ofBytes(bytes, start, match) {
      for (let k = 0; k < known.length; k++) {
        const at = (last + k) % known.length;
        const { pattern } = known[at]!;
        if (pattern === undefined) continue;
        if (!matchBytes(pattern, bytes, start, match)) continue;
        last = at;
        return known[at];
      }
      return undefined;
    },
    mayBegin: (bytes, start) =>
      known.some(({ pattern }) => pattern !== undefined && beginsLike(pattern, bytes, start)),
  };
}
