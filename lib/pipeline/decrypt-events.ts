/** Event streams: each event is opened and written out again, LF only (docs/protocol/inference.md, section 6.2). */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { Endpoint } from '../api/endpoints.ts';
import type { RequestCipher } from '../envelope/request-cipher.ts';
import { PrivatemodeError } from '../errors.ts';
import { type Asked, type Decrypter, failureOf, malformed, notAuthentic } from './decrypter.ts';
import { grammarOf, type PlainMembers, type StreamGrammar } from './grammar.ts';
import type { UsageWanted } from './request-body.ts';
import { DecryptedBytes } from './sse/decrypted-bytes.ts';
import { EventChecks, type EventKind } from './sse/event-checks.ts';
import { newMatch, STRAY_LINE_END, scanEvent } from './sse/event-data.ts';
import { KnownEvents, patternOf } from './sse/known-events.ts';
import { type TokenUsage, tokenUsage, tokenUsageIn } from './token-usage.ts';

/** Bytes on the wire; a larger event ends the stream rather than be held in memory. */
const MAX_EVENT_BYTES = 32 * 1024 * 1024;
/** An event of the largest size must fit, with its field name and line end. */
const FIELD_BYTES = 16;
/** Of an event that a chunk cuts in two, the first half is kept for the second up to this many bytes. */
const MOST_KEPT = 8 * 1024;

const EMPTY = Buffer.alloc(0);
const LF = 0x0a;
/** After it the parser holds nothing back, whatever came before. */
const BOUNDARY = '\n\n';
/** A blank line by other line ends. */
const OTHER_BOUNDARY = /\n\r|\r\r/;

/** For all streams: an event is matched and opened in one go. */
const match = newMatch();

export interface EventDecrypter extends Decrypter {
  /** Events delivered so far, the terminal one included. */
  readonly events: number;
  /** Whether the model reported an error of its own as the last event. */
  readonly modelError: boolean;
}

/**
 * Two ways lead to `#decrypt`: an event that is known by its bytes is opened where it stands in the chunk; any other one goes
 * through the parser and a strict scan of its data, and is remembered.
 */
class StreamDecrypter implements EventDecrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  readonly pending = false;
  usage: TokenUsage | undefined = undefined;
  events = 0;
  modelError = false;

  readonly #cipher: Pick<RequestCipher, 'openAll'>;
  readonly #named: boolean;
  readonly #plain: PlainMembers;
  readonly #usageWanted: UsageWanted;
  readonly #maxEventBytes: number;
  readonly #checks: EventChecks;
  readonly #known = new KnownEvents();
  readonly #delivered = new DecryptedBytes();
  readonly #plaintexts: Buffer[] = []; // of the event at hand, by the numbers of its messages
  // Without onError, for which the parser would make an error object for each line that means nothing.
  readonly #parser = createParser({
    onEvent: (event) => this.#onEvent(event),
    onRetry: (milliseconds) => {
      if (!this.#ended) this.#delivered.text(`retry: ${milliseconds}\n`);
    },
    onComment: (comment) => {
      if (!this.#ended && !STRAY_LINE_END.test(comment)) this.#delivered.text(`: ${comment}\n\n`);
    },
  });
  #ended = false; // nothing more is looked at
  #atBoundary = false; // the parser has seen whole events only
  #kept: Buffer | undefined; // the beginning of an event, at the end of the last chunk
  #unended = 0; // bytes on the wire since the last blank line, a chunk at most left out

  constructor(
    stream: StreamGrammar,
    plain: PlainMembers,
    cipher: Pick<RequestCipher, 'openAll'>,
    { choices, usage }: Asked,
    maxEventBytes: number,
  ) {
    this.#cipher = cipher;
    this.#named = stream.named;
    this.#plain = plain;
    this.#usageWanted = usage;
    this.#maxEventBytes = maxEventBytes;
    this.#checks = new EventChecks(stream, plain, choices);
  }

  feed(chunk: Uint8Array): Uint8Array {
    if (this.failure !== undefined) return EMPTY;
    try {
      this.#take(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    } catch (thrown) {
      this.failure = failureOf(thrown, 'an event');
    }
    return this.#delivered.take();
  }

  flush(): Uint8Array {
    if (this.failure === undefined && !this.#ended && !this.modelError) {
      this.failure = new PrivatemodeError('stream_unfinished', 'the stream ended before its last event');
    }
    return EMPTY;
  }

  #take(bytes: Buffer): void {
    let position = this.#kept === undefined ? 0 : this.#complete(this.#kept, bytes);
    while (position < bytes.length && !this.#ended) {
      if (this.#atBoundary && bytes[position] === LF) {
        position += 1; // one more blank line
        continue;
      }
      const mayBeKnown = this.#atBoundary && !this.modelError;
      const after = mayBeKnown ? this.#takeKnown(bytes, position) : position;
      if (after > position) position = after;
      else if (mayBeKnown && this.#keep(bytes, position)) break;
      else position = this.#parse(bytes, position);
    }
  }

  /** Returns the position after the event at `start` if it is known by its bytes, else `start`. */
  #takeKnown(bytes: Buffer, start: number): number {
    const kind = this.#known.find(bytes, start, match);
    if (kind === undefined || match.end - start > this.#maxEventBytes) return start;
    this.#decrypt(kind, bytes, start);
    return match.end;
  }

  /** Keeps the rest of a chunk if it is the beginning of an event of a known kind. */
  #keep(bytes: Buffer, start: number): boolean {
    if (bytes.length - start > Math.min(MOST_KEPT, this.#maxEventBytes)) return false;
    if (!this.#known.mayBegin(bytes, start)) return false;
    this.#kept = Buffer.from(bytes.subarray(start));
    return true;
  }

  /** Joins what was kept with the rest of its event; returns the position after that. */
  #complete(begun: Buffer, bytes: Buffer): number {
    this.#kept = undefined;
    const boundary = bytes.indexOf(BOUNDARY, 0, 'latin1');
    const end = boundary < 0 ? bytes.length : boundary + BOUNDARY.length;
    this.#delivered.reserve(begun.length + bytes.length); // for the events behind it too
    const event = Buffer.concat([begun, bytes.subarray(0, end)]);
    if (this.#takeKnown(event, 0) === 0) this.#parse(event, 0);
    return end;
  }

  /** Parses on to the end of the event at hand, or of the chunk; returns the position there. */
  #parse(bytes: Buffer, start: number): number {
    const boundary = bytes.indexOf(BOUNDARY, start, 'latin1');
    this.#atBoundary = boundary >= 0;
    const end = this.#atBoundary ? boundary + BOUNDARY.length : bytes.length;
    // latin1 keeps every byte, and is one copy instead of a decoding.
    const text = bytes.toString('latin1', start, end);
    this.#unended += text.length;
    this.#parser.feed(text);
    if (this.#atBoundary || OTHER_BOUNDARY.test(text)) this.#unended = 0;
    // Counted here: a limit of the parser's own counts the data of the lines, which may be few, not what each line costs.
    if (this.#unended > this.#maxEventBytes + FIELD_BYTES) {
      this.#ended = true;
      if (!this.modelError) throw this.#tooLarge();
    }
    return end;
  }

  #onEvent(event: EventSourceMessage): void {
    this.#unended = 0;
    if (this.#ended) return;
    const { data } = event;
    if (data.length > this.#maxEventBytes) throw this.#tooLarge();
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // Part of the OpenAI-style APIs only; elsewhere it means nothing and goes.
      if (!this.#named) this.#end(event, Buffer.from('[DONE]')); // some clients know it in capitals only
      return;
    }
    if (this.modelError || this.#takeReframed(event)) return;
    const bytes = Buffer.from(data, 'latin1');
    const found = scanEvent(bytes, this.#plain, match);
    const kind = this.#checks.kindOf(found);
    const name = this.#named ? kind.type : undefined;
    if (this.#named && event.event !== name) throw notAuthentic('the name of an event is not its type');
    this.#known.remember(patternOf(bytes, found.members, match, name), kind);
    if (match.count > 0) this.#decrypt(kind, bytes, 0, event);
    else if (kind.type === 'message_stop') this.#end(event, bytes);
    else this.#write(bytes, 0, false, event);
  }

  /** Takes an event that is known by its bytes but for its framing (chunks cut it, or other line ends); false if it is not. */
  #takeReframed({ event, id, data }: EventSourceMessage): boolean {
    if (id !== undefined) return false;
    const name = this.#named && event !== undefined ? `event: ${event}\n` : '';
    const bytes = Buffer.from(`${name}data: ${data}\n\n`, 'latin1');
    const kind = this.#known.find(bytes, 0, match);
    if (kind === undefined || match.end < bytes.length) return false;
    this.#decrypt(kind, bytes, 0);
    return true;
  }

  #tooLarge(): PrivatemodeError {
    const message = `an event of the stream is larger than ${this.#maxEventBytes} bytes`;
    return new PrivatemodeError('response_too_large', message);
  }

  /** Delivers the event that ends a stream. An unfinished stream's is withheld: clients take it for success. */
  #end(event: EventSourceMessage, data: Buffer): void {
    if (!this.#checks.isComplete() && !this.modelError) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended before the answer did');
    }
    match.count = 0;
    match.end = data.length;
    this.#write(data, 0, false, event);
    this.#ended = true;
    this.finished = true;
  }

  /** Opens, checks and delivers the event of which `match` holds the places; from `start` on, or, of a parsed one, its data. */
  #decrypt(kind: EventKind, bytes: Buffer, start: number, parsed?: EventSourceMessage): void {
    this.#cipher.openAll(bytes, kind.order, match.starts, match.ends, this.#plaintexts);
    const content = this.#checks.accept(kind, this.#plaintexts);
    const isClosing = Array.isArray(content) && content.length === 0;
    if (kind.type === 'message_start') this.usage = tokenUsage((content as { usage?: unknown }).usage);
    // Only these count the whole response.
    if ((isClosing || kind.type === 'message_delta') && match.usageStart >= 0) {
      this.usage = tokenUsageIn(bytes.toString('latin1', match.usageStart, match.usageEnd), this.usage);
    }
    if (kind.type === 'error') {
      this.modelError = true;
      this.finished = true;
    }
    if (isClosing && this.#usageWanted === 'none') return; // it has nothing else to say
    const hasUsage = this.#usageWanted === 'every' || (isClosing && this.#usageWanted === 'last');
    this.#write(bytes, start, !hasUsage, parsed);
  }

  /** Writes out that event, each message replaced by its plaintext. */
  #write(bytes: Buffer, start: number, withoutUsage: boolean, parsed?: EventSourceMessage): void {
    const out = this.#delivered;
    if (parsed !== undefined) this.#writeFields(parsed);
    out.reserve(bytes.length - start); // plaintext is shorter than its message
    const isData = parsed !== undefined;
    const leftFrom = withoutUsage ? match.usageStart : -1;
    let position = start;
    for (let k = 0; k < match.count; k++) {
      this.#copyBut(bytes, position, match.starts[k]! - 1, leftFrom, isData);
      const plaintext = this.#plaintexts[k]!;
      out.copyData(plaintext, 0, plaintext.length);
      position = match.ends[k]! + 1;
    }
    this.#copyBut(bytes, position, match.end, leftFrom, isData);
    if (isData) out.text('\n\n');
    this.events += 1;
  }

  /** Copies those bytes, without the usage if it begins at `leftFrom`. */
  #copyBut(bytes: Buffer, from: number, to: number, leftFrom: number, isData: boolean): void {
    if (leftFrom >= from && leftFrom < to) {
      this.#copyBut(bytes, from, leftFrom, -1, isData);
      this.#copyBut(bytes, match.usageEnd, to, -1, isData);
    } else if (isData) this.#delivered.copyData(bytes, from, to);
    else this.#delivered.copy(bytes, from, to);
  }

  #writeFields({ event, id }: EventSourceMessage): void {
    const name = this.#named && event !== undefined ? `event: ${event}\n` : '';
    const idLine = id !== undefined && !STRAY_LINE_END.test(id) ? `id: ${id}\n` : '';
    this.#delivered.text(`${name}${idLine}data: `);
  }
}

/**
 * Decrypts an event stream of that endpoint as it arrives. What `feed` returns is complete events with `data`, `id`, `retry` and
 * comments kept; event names only for messages, where each event has one that agrees with its plain member `type`: they are not
 * authenticated, and clients skip events by name, or without one. Unknown fields go. `asked` says which chunks keep their `usage`
 * (the service puts it into all of them) and how many choices there are, each of which must finish.
 *
 * Fails with response_not_authentic (tag, sequence, a plain value in place of ciphertext, an event that is not what the grammar
 * says), response_malformed, response_too_large or stream_unfinished (`sse/stream-order.ts`). Events before the failing one are
 * delivered, even of the same chunk. Throws response_malformed if the endpoint has no streams, `internal` if its responses are
 * not encrypted. `maxEventBytes` is for tests only.
 */
export function createEventDecrypter(
  endpoint: Pick<Endpoint, 'id'>,
  cipher: Pick<RequestCipher, 'openAll'>,
  asked: Asked,
  maxEventBytes = MAX_EVENT_BYTES,
): EventDecrypter {
  const { stream, plain } = grammarOf(endpoint);
  if (stream === undefined) throw malformed('the service answered with an event stream');
  return new StreamDecrypter(stream, plain, cipher, asked, maxEventBytes);
}
