/** Finds the messages of an event by a strict scan of its data. */
import { malformed, notAuthentic } from '../decrypter.ts';
import { createJsonIndex } from '../json/json-index.ts';
import { MAX_PLAIN_BYTES, type PlainMembers } from '../response-grammar.ts';

/**
 * The places of an event's parts. All events of a stream share one EventMatch: read it before the next event
 * is matched.
 */
export class EventMatch {
  /** Number of messages. `starts` and `ends` are their places, quotes excluded, in the order of the text. */
  count = 0;
  readonly starts: number[] = [];
  readonly ends: number[] = [];
  /** The place of `usage`, with its name and one comma; both -1 if the event has none. */
  usageStart = -1;
  usageEnd = -1;
  /** The position after the event. */
  end = 0;
}

/**
 * Characters, as UTF-8 in latin1, that clients in some language take for a line end. Text that nothing
 * authenticates must have none.
 */
const STRAY_LINE_END = /[\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]/;

/** Most bytes of an event on the wire. A larger event ends the stream, so that it is not held in memory. */
export const MAX_EVENT_BYTES = 32 * 1024 * 1024;
/**
 * Most bytes of an event beside its messages and its plain values other than strings: names, plain strings
 * and blanks. A gateway could pad it with megabytes.
 */
const MAX_UNSEALED_BYTES = 32 * 1024;

/**
 * Scans the data of an event, strictly, and notes in `match` the places of its messages and its usage.
 * Returns its members, the names of the sealed ones in the order of the text, and the plain string member
 * `type` as written (no known type has escapes). Throws what the JSON index throws; response_not_authentic if
 * a member that is not plain is not a string; and response_malformed if a plain member is of a wrong kind or
 * longer than 16 KiB, if there is more than 32 KiB of other text, or if the text that is not sealed has a
 * stray line end.
 */
export function scanEvent(data: Buffer, plain: PlainMembers, match: EventMatch) {
  const index = createJsonIndex();
  index.feed(data);
  const members = index.finish();
  const sealed: string[] = [];
  let type: string | undefined;
  let unsealed = '';
  let plainValues = 0; // bytes of the plain values that are not strings
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
    // A new string: a slice of the data would keep all of the data for as long as the stream lasts.
    if (name === 'type') type = data.toString('latin1', start + 1, end - 1);
    if (kind !== 'string') plainValues += end - start;
    if (name !== 'usage') continue;
    // Includes the comma before `usage` or, if `usage` is the first member, the comma after it.
    const previous = members[at - 1];
    match.usageStart = previous === undefined ? index.bodyStart : data.indexOf(',', previous.end);
    match.usageEnd = previous === undefined && members.length > 1 ? data.indexOf(',', end) + 1 : end;
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
