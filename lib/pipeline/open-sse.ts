/** Event streams: each event is opened and written out again, LF only (inference.md 6.2). */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { RequestCipher } from '../envelope/request-cipher.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import { type EventMatch, type EventPattern, matchBytes, patternOf } from './event-bytes.ts';
import { type EventLayout, layoutOf, matchLayout } from './event-layout.ts';
import { hasShape, type RequiredPart, requiredParts } from './event-shape.ts';
import { hasLineEnd, OpenedBytes } from './opened-bytes.ts';
import type { ResponseOpener } from './response-opener.ts';
import { FINISH_MEMBER, streamEnd, type TerminalEvent } from './stream-end.ts';

export interface SseOpenOptions {
  readonly cipher: Pick<RequestCipher, 'openAt' | 'openAll'>;
  /** The members that arrive plain: one of `PLAIN_MEMBERS`. */
  readonly plain: ReadonlySet<string>;
  /** The event that ends this API's streams: `[DONE]`, or the messages API's `message_stop`. */
  readonly terminal: TerminalEvent;
  /** An event larger than this on the wire ends the stream with response_too_large. */
  readonly maxEventBytes: number;
  /** How many choices were asked for; each must finish. Default 1. */
  readonly choices?: number;
}

export interface SseOpener extends ResponseOpener {
  /** Events delivered so far, the terminal one included. */
  readonly events: number;
}

const EMPTY = Buffer.alloc(0);
/** Streams alternate between few kinds of events; more layouts than this are not remembered. */
const REMEMBERED_LAYOUTS = 8;

const LINE_END = /\r\n|\r|\n/g;
/** After it the parser holds nothing back, whatever came before. */
const BOUNDARY = '\n\n';
/** A blank line by other line ends. */
const OTHER_BOUNDARY = /\n\r|\r\r/;
/** An event of the largest size must fit, with its field name and line end. */
const FIELD_BYTES = 16;

const notAuthentic = (words: string) => new PrivatemodeError('response_not_authentic', words);

/** A kind of event this stream has had, and what is asked of the next one like it. */
interface KnownEvent {
  readonly layout: EventLayout;
  /** What it looks like on the wire, where it can be told from its bytes alone. */
  readonly pattern: EventPattern | undefined;
  readonly required: readonly RequiredPart[];
  /** The parts that may finish the stream, or hold its error; -1 for none. */
  readonly finishAt: number;
  readonly errorAt: number;
}

/**
 * Opens an event stream as it arrives. What `feed` returns is complete events with `data`, `id`, `retry`
 * and comments kept; event names only for messages, where they must agree with the plain member `type`
 * (they are not authenticated, and OpenAI-style clients skip events by name). Unknown fields go.
 *
 * Fails with response_not_authentic (tag, sequence, a plain value where ciphertext belongs, an event that is
 * not one of this API, `event-shape.ts`), response_malformed, response_too_large or stream_unfinished
 * (`stream-end.ts`). Events before the failing one are delivered, even of the same chunk. An unfinished
 * stream's terminal event is withheld: clients take it for success.
 */
export function createSseOpener(options: SseOpenOptions): SseOpener {
  const { cipher, plain, terminal, maxEventBytes, choices = 1 } = options;
  const answerEnd = streamEnd(terminal, choices);
  const known: KnownEvent[] = [];
  let last = 0; // index of the kind that came last
  const delivered = new OpenedBytes();
  let out = ''; // latin1 text that the parser's events come to
  let atBoundary = false; // whether the parser has seen whole events only
  const match: EventMatch = { starts: [], ends: [] };
  const plaintexts: Buffer[] = []; // by part, of the event at hand
  let errorSeen = false;
  let ended = false;
  let unended = 0; // bytes on the wire since the last blank line, a chunk at most left out
  let overflown = false; // the parser takes no more

  /** The kind of an event not seen before, by a strict scan. */
  const learn = (data: string): KnownEvent => {
    const layout = layoutOf(data, plain);
    const required = requiredParts(layout, terminal);
    if (required === undefined) throw notAuthentic('an event is not one of this API');
    const [finishAt, errorAt] = [
      layout.names.indexOf(FINISH_MEMBER[terminal]),
      layout.names.indexOf('error'),
    ];
    const pattern = patternOf(layout, data, terminal === 'message_stop' ? layout.type : undefined);
    return { layout, required, finishAt, errorAt, pattern };
  };

  /** The kind of the event and its parts. */
  const split = (data: string): { kind: KnownEvent; parts: readonly string[] } => {
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
    last = known.length < REMEMBERED_LAYOUTS ? known.length : (last + 1) % REMEMBERED_LAYOUTS;
    known[last] = kind;
    return { kind, parts };
  };

  const emit = (event: EventSourceMessage, data: string): void => {
    if (terminal === 'message_stop' && event.event !== undefined) out += `event: ${event.event}\n`;
    if (event.id !== undefined) out += `id: ${event.id}\n`;
    out +=
      data.includes('\n') || data.includes('\r')
        ? `data: ${data.replace(LINE_END, '\ndata: ')}\n\n`
        : `data: ${data}\n\n`;
    opener.events += 1;
  };

  const end = (event: EventSourceMessage): void => {
    if (!answerEnd.reached && !errorSeen) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended before the answer did');
    }
    emit(event, event.data);
    ended = true;
    opener.finished = true;
  };

  /** What the opened members say of their event and of the stream. */
  const accept = ({ required, finishAt, errorAt }: KnownEvent): void => {
    if (!hasShape(required, plaintexts)) throw notAuthentic('the members of an event are not its own');
    if (finishAt >= 0) answerEnd.take(plaintexts[finishAt]!.toString('latin1'));
    if (errorAt < 0 || plaintexts[errorAt]!.toString('latin1') === 'null') return;
    errorSeen = true;
    opener.finished = true;
  };

  const onEvent = (event: EventSourceMessage): void => {
    if (ended || opener.failure !== undefined) return;
    const { data } = event;
    if (data.length > maxEventBytes) throw tooLarge();
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // Part of the OpenAI-style APIs only; elsewhere it means nothing and goes.
      if (terminal === 'done') end(event);
      return;
    }
    if (errorSeen) return;
    const { kind, parts } = split(data);
    const { layout } = kind;
    if (terminal === 'message_stop' && event.event !== undefined && event.event !== layout.type) {
      throw notAuthentic('the name of an event contradicts its type');
    }
    if (layout.order.length === 0) {
      if (layout.type === 'message_stop') end(event);
      else emit(event, data);
      return;
    }
    for (const part of layout.order) {
      const message = Buffer.from(parts[part]!, 'latin1');
      plaintexts[part] = cipher.openAt(message, 0, message.length);
    }
    accept(kind);
    let text = layout.copied[0]!;
    for (let k = 0; k < parts.length; k++) {
      const value = layout.plainValues[k] === undefined ? plaintexts[k]!.toString('latin1') : parts[k]!;
      text += value + layout.copied[k + 1]!;
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
      if (!ended && opener.failure === undefined) out += `: ${comment}\n\n`;
    },
    onError(error) {
      if (error.type === 'max-buffer-size-exceeded') overflow();
    },
  });

  /** Opens the event of that kind between `start` and `end`, whose messages `match` holds. */
  const openKnown = (kind: KnownEvent, bytes: Buffer, start: number, end: number): void => {
    const { layout } = kind;
    cipher.openAll(bytes, layout.order, match.starts, match.ends, plaintexts);
    accept(kind);
    let position = start;
    delivered.reserve(bytes.length - start); // plaintext is shorter than its message
    for (let part = 0; part < layout.names.length; part++) {
      if (layout.plainValues[part] !== undefined) continue;
      delivered.copy(bytes, position, match.starts[part]! - 1);
      const plaintext = plaintexts[part]!;
      if (hasLineEnd(plaintext)) delivered.text(plaintext.toString('latin1').replace(LINE_END, '\ndata: '));
      else delivered.copy(plaintext, 0, plaintext.length);
      position = match.ends[part]! + 1;
    }
    delivered.copy(bytes, position, end);
    opener.events += 1;
  };

  /** The position after the event at `start` where it is of a kind that is known by its bytes, else `start`. */
  const takeKnown = (bytes: Buffer, start: number): number => {
    for (let k = 0; k < known.length; k++) {
      const at = (last + k) % known.length;
      const { pattern } = known[at]!;
      if (pattern === undefined) continue;
      const end = matchBytes(pattern, bytes, start, match);
      if (end < 0 || end - start > maxEventBytes) continue;
      last = at;
      try {
        openKnown(known[at]!, bytes, start, end);
      } catch (thrown) {
        fail(thrown);
      }
      return end;
    }
    return start;
  };

  /** Parses on to the end of the event at hand, or of the chunk; returns the position there. */
  const parseOn = (bytes: Buffer, start: number): number => {
    const boundary = bytes.indexOf(BOUNDARY, start, 'latin1');
    atBoundary = boundary >= 0;
    const end = atBoundary ? boundary + BOUNDARY.length : bytes.length;
    out = '';
    // latin1 keeps every byte, and is one copy instead of a decoding.
    const text = bytes.toString('latin1', start, end);
    unended += text.length;
    parser.feed(text);
    // The parser counts the data of the lines, which may be few: not what each line costs.
    if (atBoundary || OTHER_BOUNDARY.test(text)) unended = 0;
    if (unended > maxEventBytes + FIELD_BYTES) overflow();
    delivered.text(out);
    return end;
  };

  const opener = {
    failure: undefined as PrivatemodeError | undefined,
    finished: false,
    events: 0,
    feed(chunk: Uint8Array): Uint8Array {
      const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      let position = 0;
      while (position < bytes.length && opener.failure === undefined && !ended && !overflown) {
        const after = atBoundary && !errorSeen ? takeKnown(bytes, position) : position;
        position = after > position ? after : parseOn(bytes, position);
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
