/** Where an event has its messages, by a strict scan of its data. */
import { malformed, notAuthentic } from '../decrypter.ts';
import { createJsonIndex } from '../json/json-index.ts';
import { MAX_PLAIN_BYTES, type PlainMembers } from '../response-grammar.ts';

/** Where an event has what. A stream has one: to be read before its next event is matched. */
export class EventMatch {
  /** How many messages it has. Their places, quotes excluded, in the order of the text. */
  count = 0;
  readonly starts: number[] = [];
  readonly ends: number[] = [];
  /** Where `usage` stands, with its name and one comma; both -1 if there is none. */
  usageStart = -1;
  usageEnd = -1;
  /** The position after the event. */
  end = 0;
}

/** What clients take for a line end in some language, as UTF-8 in latin1: no text that nothing authenticates may have one. */
const STRAY_LINE_END = /[\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]/;

/** Bytes on the wire; a larger event ends the stream rather than be held in memory. */
export const MAX_EVENT_BYTES = 32 * 1024 * 1024;
/** Bytes of an event beside its messages and plain values: names, a few counts and blanks. A gateway could pad it with megabytes. */
const MAX_UNSEALED_BYTES = 32 * 1024;

/**
 * Scans the data of an event, strictly; notes in `match` where its messages and its usage stand. Returns its members and the names of
 * the sealed ones in the order of the text, and the plain string member `type` as written (no known type has escapes). Throws what the
 * JSON index throws, response_not_authentic if a member that is not plain is no string, and response_malformed if a plain one is of a
 * wrong kind or longer than 16 KiB, or if there is more than 32 KiB of other text, or a stray line end in what is not sealed.
 */
export function scanEvent(data: Buffer, plain: PlainMembers, match: EventMatch) {
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
    if (name !== 'usage') continue;
    // With the comma before it or, for the first member, the one after it.
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
