/** The kinds of events a stream has had: what was found out about one is verified in the next (`event-layout.ts`). */
import { PrivatemodeError } from '../errors.ts';
import { beginsLike, type EventMatch, type EventPattern, matchBytes, patternOf } from './event-bytes.ts';
import { type EventLayout, layoutOf, matchLayout } from './event-layout.ts';
import { type RequiredPart, requiredParts } from './event-shape.ts';
import { FINISH_MEMBER, type TerminalEvent } from './stream-end.ts';

/** A kind of event this stream has had, and what is asked of the next one like it. */
export interface KnownEvent {
  readonly layout: EventLayout;
  /** What it looks like on the wire, where it can be told from its bytes alone. */
  readonly pattern: EventPattern | undefined;
  readonly required: readonly RequiredPart[];
  /** The parts that may finish the stream, or hold its error; -1 for none. */
  readonly finishAt: number;
  readonly errorAt: number;
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

/** Of one stream; `plain` are the members that arrive plain, `terminal` says whose API it is. */
export function createEventKinds(plain: ReadonlySet<string>, terminal: TerminalEvent): EventKinds {
  const known: KnownEvent[] = [];
  let last = 0; // index of the kind that came last

  const learn = (data: string): KnownEvent => {
    const layout = layoutOf(data, plain);
    const required = requiredParts(layout, terminal);
    if (required === undefined) {
      throw new PrivatemodeError('response_not_authentic', 'an event is not one of this API');
    }
    return {
      layout,
      required,
      finishAt: layout.names.indexOf(FINISH_MEMBER[terminal]),
      errorAt: layout.names.indexOf('error'),
      pattern: patternOf(layout, data, terminal === 'message_stop' ? layout.type : undefined),
    };
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
