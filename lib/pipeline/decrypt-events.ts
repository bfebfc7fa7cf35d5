/** Event streams: each event is opened and written out again, LF only (inference.md 6.2). */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { RequestCipher } from '../envelope/request-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { StreamGrammar } from './grammar.ts';
import type { UsageWanted } from './request-body.ts';
import type { ResponseOpener } from './response-opener.ts';
import { newMatch } from './sse/event-bytes.ts';
import { createEventKinds, type KnownEvent } from './sse/event-kinds.ts';
import { hasLineEnd, OpenedBytes } from './sse/opened-bytes.ts';
import { streamOrder } from './sse/stream-order.ts';
import { type TokenUsage, tokenUsage, tokenUsageIn } from './token-usage.ts';

export interface SseOpenOptions {
  readonly cipher: Pick<RequestCipher, 'openAll'>;
  /** What the streams of the endpoint consist of. */
  readonly grammar: StreamGrammar;
  /** An event larger than this on the wire ends the stream with response_too_large. */
  readonly maxEventBytes: number;
  /** Which chunks have their `usage`; the service puts it into all of them, whatever was asked for. Default `every`. */
  readonly usage?: UsageWanted;
  /** How many choices were asked for: there are no others, and each must finish. Default 1. */
  readonly choices?: number;
}

export interface SseOpener extends ResponseOpener {
  /** Events delivered so far, the terminal one included. */
  readonly events: number;
  /** Whether the model reported an error of its own as the last event. */
  readonly modelError: boolean;
}

const EMPTY = Buffer.alloc(0);
const LF = 0x0a;
/** For all streams: an event is matched and opened in one go. */
const match = newMatch();

/** Of an event that a chunk cuts in two, the first half is kept for the second up to this many bytes. */
const MOST_KEPT = 8 * 1024;

const LINE_END = /\r\n|\r|\n/g;
/** After it the parser holds nothing back, whatever came before. */
const BOUNDARY = '\n\n';
/** A blank line by other line ends. */
const OTHER_BOUNDARY = /\n\r|\r\r/;
/** What clients take for a line end in some language, as UTF-8 in latin1: comments and ids with one of them are left out. */
const STRAY_LINE_END = /[\v\f\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]/;

/** An event of the largest size must fit, with its field name and line end. */
const FIELD_BYTES = 16;

/** For short values: a loop is faster than a call into the runtime. */
function isSame(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

const NULL = Buffer.from('null');

/** The value of a JSON text. Its bytes as characters: what is no ASCII stands in strings only, which nobody reads. */
function parsed(opened: Buffer): unknown {
  try {
    return JSON.parse(opened.toString('latin1'));
  } catch {
    throw notAuthentic('a value of an event is not JSON');
  }
}

const notAuthentic = (words: string) => new PrivatemodeError('response_not_authentic', words);

/**
 * Opens an event stream as it arrives. What `feed` returns is complete events with `data`, `id`, `retry`
 * and comments kept; event names only for messages, where each event has one that agrees with its plain member `type`: they
 * are not authenticated, and clients skip events by name, or without one. Unknown fields go.
 *
 * Fails with response_not_authentic (tag, sequence, a plain value where ciphertext belongs, an event that is not what the
 * grammar says), response_malformed, response_too_large or stream_unfinished (`stream-order.ts`). Events before the failing one
 * are delivered, even of the same chunk. An unfinished stream's terminal event is withheld: clients take it for success.
 */
export function createSseOpener(options: SseOpenOptions): SseOpener {
  const { cipher, grammar, maxEventBytes, choices = 1, usage = 'every' } = options;
  const { named } = grammar;
  const order = streamOrder(grammar.order, choices);
  const kinds = createEventKinds(grammar);
  const constants: (Uint8Array | undefined)[] = grammar.constant.map(() => undefined);
  const delivered = new OpenedBytes();
  let out = ''; // latin1 text that the parser's events come to
  let atBoundary = false; // whether the parser has seen whole events only
  const plaintexts: Buffer[] = []; // by part, of the event at hand
  let errorSeen = false;
  let ended = false;
  let kept: Buffer | undefined; // the beginning of an event, at the end of the last chunk
  let unended = 0; // bytes on the wire since the last blank line, a chunk at most left out
  let overflown = false; // the parser takes no more
  let counts = false; // whether the event at hand is one whose usage counts the whole response

  const emit = (event: EventSourceMessage, data: string): void => {
    if (named && event.event !== undefined) out += `event: ${event.event}\n`;
    if (event.id !== undefined && !STRAY_LINE_END.test(event.id)) out += `id: ${event.id}\n`;
    out +=
      data.includes('\n') || data.includes('\r')
        ? `data: ${data.replace(LINE_END, '\ndata: ')}\n\n`
        : `data: ${data}\n\n`;
    opener.events += 1;
  };

  const end = (event: EventSourceMessage): void => {
    if (!order.complete && !errorSeen) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended before the answer did');
    }
    emit(event, named ? event.data : '[DONE]'); // some clients know it in capitals only
    ended = true;
    opener.finished = true;
  };

  /** Holds the opened members against what the grammar asks of them. Returns what is to be delivered of the event. */
  const accept = ({ type, row, checks, contentAt, indexAt }: KnownEvent): 'all' | 'no usage' | 'nothing' => {
    let content: unknown;
    let index: unknown;
    for (let k = 0; k < checks.length; k++) {
      const { part, constant, fits, required } = checks[k]!;
      const opened = plaintexts[part]!;
      const first = constant < 0 ? undefined : constants[constant];
      if (first !== undefined) {
        if (!isSame(opened, first)) throw notAuthentic('the events are not of one response');
        continue;
      }
      if (!required && isSame(opened, NULL)) continue;
      const value = parsed(opened);
      if (!fits(value)) throw notAuthentic('the members of an event are not its own');
      if (constant >= 0) {
        if (grammar.constant[constant] === 'object' && value !== row.object) {
          throw notAuthentic('the response is not of the kind that was asked for');
        }
        constants[constant] = Uint8Array.from(opened);
      } else if (part === contentAt) content = value;
      else if (part === indexAt) index = value;
      else if (type === 'message_start') opener.usage = tokenUsage((value as { usage?: unknown }).usage);
    }
    order.take(type, content, index);
    if (type === 'error') {
      errorSeen = true;
      opener.modelError = true;
      opener.finished = true;
    }
    const isClosing = Array.isArray(content) && content.length === 0;
    counts = isClosing || type === 'message_delta';
    if (usage === 'every') return 'all';
    if (!isClosing) return 'no usage';
    return usage === 'none' ? 'nothing' : 'all';
  };

  const onEvent = (event: EventSourceMessage): void => {
    if (ended || opener.failure !== undefined) return;
    const { data } = event;
    if (data.length > maxEventBytes) throw tooLarge();
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // Part of the OpenAI-style APIs only; elsewhere it means nothing and goes.
      if (!named) end(event);
      return;
    }
    if (errorSeen) return;
    const { kind, parts } = kinds.ofText(data);
    const { layout } = kind;
    if (named && event.event !== layout.type) throw notAuthentic('the name of an event is not its type');
    if (layout.order.length === 0) {
      if (kind.type === 'message_stop') end(event);
      else emit(event, data);
      return;
    }
    let messages = '';
    for (const part of layout.order) {
      match.starts[part] = messages.length;
      messages += parts[part]!;
      match.ends[part] = messages.length;
    }
    const source = Buffer.from(messages, 'latin1');
    cipher.openAll(source, layout.order, match.starts, match.ends, plaintexts);
    const wanted = accept(kind);
    if (counts && layout.usage !== undefined) {
      opener.usage = tokenUsageIn(parts[layout.usage.part]!, opener.usage);
    }
    if (wanted === 'nothing') return;
    const left = wanted === 'all' ? undefined : layout.usage;
    let text = layout.copied[0]!;
    for (let k = 0; k < parts.length; k++) {
      const isLeft = left?.part === k;
      if (isLeft) text = text.slice(0, text.length - left.before);
      else text += layout.plainValues[k] === undefined ? plaintexts[k]!.toString('latin1') : parts[k]!;
      text += layout.copied[k + 1]!.slice(isLeft ? left.after : 0);
    }
    emit(event, text);
  };

  const tooLarge = () =>
    new PrivatemodeError(
      'response_too_large',
      `an event of the stream is larger than ${maxEventBytes} bytes`,
    );

  const fail = (thrown: unknown): void => {
    const error = asPrivatemodeError(thrown);
    opener.failure ??=
      error.status === 400
        ? new PrivatemodeError('response_malformed', 'an event is not the JSON that was agreed')
        : error;
  };

  const overflow = (): void => {
    overflown = true;
    if (!errorSeen) fail(tooLarge());
  };

  const parser = createParser({
    maxBufferSize: maxEventBytes + FIELD_BYTES,
    onEvent(event) {
      unended = 0;
      if (opener.failure !== undefined) return;
      try {
        onEvent(event);
      } catch (thrown) {
        fail(thrown);
      }
    },
    onRetry(milliseconds) {
      if (!ended && opener.failure === undefined) out += `retry: ${milliseconds}\n`;
    },
    onComment(comment) {
      if (ended || opener.failure !== undefined || STRAY_LINE_END.test(comment)) return;
      out += `: ${comment}\n\n`;
    },
  });

  /** Copies those bytes, without the usage where it begins at `leftFrom`. */
  const copyBut = (bytes: Buffer, from: number, to: number, leftFrom: number): void => {
    if (leftFrom < from || leftFrom >= to) {
      delivered.copy(bytes, from, to);
      return;
    }
    delivered.copy(bytes, from, leftFrom);
    delivered.copy(bytes, match.usageEnd, to);
  };

  /** Opens the event of that kind between `start` and `end`, whose messages `match` holds. */
  const openKnown = (kind: KnownEvent, bytes: Buffer, start: number, end: number): void => {
    const { parts, starts, ends } = match;
    cipher.openAll(bytes, kind.layout.order, starts, ends, plaintexts);
    const wanted = accept(kind);
    if (counts && match.usageStart >= 0) {
      opener.usage = tokenUsageIn(bytes.toString('latin1', match.usageStart, match.usageEnd), opener.usage);
    }
    if (wanted === 'nothing') return;
    const leftFrom = wanted === 'all' ? -1 : match.usageStart;
    let position = start;
    delivered.reserve(bytes.length - start); // plaintext is shorter than its message
    for (let k = 0; k < match.count; k++) {
      const part = parts[k]!;
      copyBut(bytes, position, starts[part]! - 1, leftFrom);
      const plaintext = plaintexts[part]!;
      if (hasLineEnd(plaintext)) delivered.text(plaintext.toString('latin1').replace(LINE_END, '\ndata: '));
      else delivered.copy(plaintext, 0, plaintext.length);
      position = ends[part]! + 1;
    }
    copyBut(bytes, position, end, leftFrom);
    opener.events += 1;
  };

  /** The position after the event at `start` where it is of a kind that is known by its bytes, else `start`. */
  const takeKnown = (bytes: Buffer, start: number): number => {
    const kind = kinds.ofBytes(bytes, start, match);
    if (kind === undefined || match.end - start > maxEventBytes) return start;
    try {
      openKnown(kind, bytes, start, match.end);
    } catch (thrown) {
      fail(thrown);
    }
    return match.end;
  };

  /** Parses on to the end of the event at hand, or of the chunk; returns the position there. */
  const parseOn = (bytes: Buffer, start: number): number => {
    const boundary = bytes.indexOf(BOUNDARY, start, 'latin1');
    atBoundary = boundary >= 0;
    const end = atBoundary ? boundary + BOUNDARY.length : bytes.length;
    // latin1 keeps every byte, and is one copy instead of a decoding.
    const text = bytes.toString('latin1', start, end);
    unended += text.length;
    try {
      parser.feed(text); // without onError: it would make an error object for each line that means nothing
    } catch {
      overflow(); // the parser has met its own limit before and takes no more
    }
    // The parser counts the data of the lines, which may be few: not what each line costs.
    if (atBoundary || OTHER_BOUNDARY.test(text)) unended = 0;
    if (unended > maxEventBytes + FIELD_BYTES) overflow();
    delivered.text(out);
    out = '';
    return end;
  };

  const mayGoOn = (): boolean => opener.failure === undefined && !ended && !overflown;

  /** Keeps what is left of a chunk where it is the beginning of an event of a known kind. */
  const keep = (bytes: Buffer, start: number): boolean => {
    if (bytes.length - start > Math.min(MOST_KEPT, maxEventBytes)) return false;
    if (!kinds.mayBegin(bytes, start)) return false;
    kept = Buffer.from(bytes.subarray(start));
    return true;
  };

  /** Joins what was kept with the rest of its event; returns the position after that. */
  const complete = (begun: Buffer, bytes: Buffer): number => {
    kept = undefined;
    const boundary = bytes.indexOf(BOUNDARY, 0, 'latin1');
    const end = boundary < 0 ? bytes.length : boundary + BOUNDARY.length;
    delivered.reserve(begun.length + bytes.length); // for the events behind it too
    const event = Buffer.concat([begun, bytes.subarray(0, end)]);
    if (takeKnown(event, 0) === 0) parseOn(event, 0);
    return end;
  };

  const opener = {
    failure: undefined as PrivatemodeError | undefined,
    finished: false,
    pending: false,
    usage: undefined as TokenUsage | undefined,
    events: 0,
    modelError: false,
    feed(chunk: Uint8Array): Uint8Array {
      const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      let position = kept !== undefined && mayGoOn() ? complete(kept, bytes) : 0;
      while (position < bytes.length && mayGoOn()) {
        if (atBoundary && bytes[position] === LF) {
          position += 1; // a blank line more
          continue;
        }
        const mayBeKnown = atBoundary && !errorSeen;
        const after = mayBeKnown ? takeKnown(bytes, position) : position;
        if (after > position) position = after;
        else if (mayBeKnown && keep(bytes, position)) break;
        else position = parseOn(bytes, position);
      }
      return delivered.take();
    },
    flush(): Uint8Array {
      if (opener.failure === undefined && !ended && !errorSeen) {
        opener.failure = new PrivatemodeError('stream_unfinished', 'the stream ended before its last event');
      }
      return EMPTY;
    },
  };
  return opener;
}
