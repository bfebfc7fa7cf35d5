/** The strict reading of one event's data. Events like an earlier one are known by their bytes instead (`known-events.ts`). */
import { malformed, notAuthentic } from '../decrypter.ts';
import { MAX_PLAIN_BYTES, type PlainMembers } from '../grammar.ts';
import { createJsonIndex, type JsonMember } from '../json/json-index.ts';

/** Where an event has what. One for all streams: to be read before the next event is matched. */
export interface EventMatch {
  /** How many messages it has. Their places, quotes excluded, in the order of the text. */
  count: number;
  readonly starts: number[];
  readonly ends: number[];
  /** Where `usage` stands, with its name and one comma; both -1 if there is none. */
  usageStart: number;
  usageEnd: number;
  /** The position after the event. */
  end: number;
}

export const newMatch = (): EventMatch => ({
  count: 0,
  starts: [],
  ends: [],
  usageStart: -1,
  usageEnd: -1,
  end: 0,
});

export interface EventData {
  /** In the order of the text. */
  readonly members: readonly JsonMember[];
  /** The names of the sealed ones among them. */
  readonly sealed: readonly string[];
  /** The plain string member `type` as written, no quotes. No known type has escapes. */
  readonly type: string | undefined;
}

/**
 * What clients take for a line end in some language, as UTF-8 in latin1: no text that nothing authenticates may have one. (In JSON,
 * the control characters among them are an error anyway.)
 */
export const STRAY_LINE_END = /[\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]/;

/** Bytes of an event beside its messages and plain values: names, a few counts and blanks. A gateway could pad it with megabytes. */
const MAX_UNSEALED_BYTES = 32 * 1024;

/** Notes where `usage` stands with its name and a comma: the one before it or, for the first member, the one after it. */
function placeUsage(
  data: Buffer,
  bodyStart: number,
  members: readonly JsonMember[],
  at: number,
  match: EventMatch,
): void {
  const previous = members[at - 1];
  const { end } = members[at]!;
  match.usageStart = previous === undefined ? bodyStart : data.indexOf(',', previous.end);
  match.usageEnd = previous === undefined && members.length > 1 ? data.indexOf(',', end) + 1 : end;
}

/**
 * Scans the data of an event, strictly; notes in `match` where its messages and its usage stand. Throws what the JSON index
 * throws, response_not_authentic if a member that is not plain is no string, and response_malformed if a plain one is of a wrong
 * kind or longer than 16 KiB, or if there is more than 32 KiB of other text, or a stray line end in what is not sealed.
 */
export function scanEvent(data: Buffer, plain: PlainMembers, match: EventMatch): EventData {
  const index = createJsonIndex();
  index.feed(data);
  const members = index.finish();
  const sealed: string[] = [];
  let type: string | undefined;
  let unsealed = '';
  let plainValues = 0; // bytes, strings left out
  let position = 0;
  match.usageStart = match.usageEnd = -1;
  match.end = data.length;
  for (const [at, { name, kind, start, end }] of members.entries()) {
    const kinds = plain.get(name);
    if (kinds === undefined) {
      if (kind !== 'string') throw notAuthentic('a value of the event is not encrypted');
      match.starts[sealed.length] = start + 1;
      match.ends[sealed.length] = end - 1;
      sealed.push(name);
      unsealed += data.toString('latin1', position, start + 1);
      position = end - 1;
      continue;
    }
    if (!kinds.includes(kind) || end - start > MAX_PLAIN_BYTES) {
      throw malformed('a plain member of an event is not what it should be');
    }
    // A string of its own: a slice of the data would keep all of it for as long as the stream lasts.
    if (name === 'type') type = data.toString('latin1', start + 1, end - 1);
    if (kind !== 'string') plainValues += end - start;
    if (name === 'usage') placeUsage(data, index.bodyStart, members, at, match);
  }
  match.count = sealed.length;
  unsealed += data.toString('latin1', position);
  if (unsealed.length - plainValues > MAX_UNSEALED_BYTES) {
    throw malformed('an event has more text than its messages need');
  }
  if (STRAY_LINE_END.test(unsealed)) {
    throw malformed('an event has line ends where nothing authenticates them');
  }
  return { members, sealed, type };
}
