/**
 * Decrypts event streams: opens each event and writes it out again, with LF line ends only
 * (docs/protocol/inference.md, section 6.2).
 */
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { Endpoint } from '../api/endpoints.ts';
import { PrivatemodeError } from '../errors.ts';
import { overflowInEvent } from './context-overflow.ts';
import {
  type Decrypter,
  failureOf,
  malformed,
  notAuthentic,
  type Opener,
  type RequestFacts,
} from './decrypter.ts';
import { grammarOf, type StreamGrammar } from './response-grammar.ts';
import { EventChecks, type EventKind } from './sse/event-checks.ts';
import { KnownEvents, patternOf } from './sse/known-events.ts';
import { EventMatch, MAX_EVENT_BYTES, scanEvent } from './sse/read-event.ts';
import { DecryptedBytes } from './sse/write-event.ts';
import { type TokenUsage, tokenUsage, tokenUsageIn } from './token-usage.ts';

/** Added to the size limit, so that an event of the largest size fits with its field name and line end. */
const FIELD_BYTES = 16;
/** If a chunk cuts an event in two, the first half is kept for the second up to this many bytes. */
const MOST_KEPT = 8 * 1024;

const EMPTY = Buffer.alloc(0);
const LF = 0x0a;
/** A blank line. After it the parser holds nothing back, whatever came before. */
const BOUNDARY = '\n\n';
/**
 * Text of a comment or an id that is passed on, though nothing authenticates it: words that no client reads
 * as a field or as JSON. Other text is dropped, because many clients look for `data: ` anywhere in a line.
 */
const HARMLESS_LINE = /^[\w .-]{0,256}$/;
/** A blank line with other line ends. */
const OTHER_BOUNDARY = /\n\r|\r\r/;

/**
 * The forms that the events of an endpoint's streams have had so far: names and plain members, nothing that
 * was encrypted.
 */
const knownByGrammar = new WeakMap<StreamGrammar, KnownEvents<EventKind>>();

function knownIn(grammar: StreamGrammar): KnownEvents<EventKind> {
  let known = knownByGrammar.get(grammar);
  if (known === undefined) {
    known = KnownEvents.ofAllStreams();
    knownByGrammar.set(grammar, known);
  }
  return known;
}

/**
 * Decrypts an event stream of that endpoint as it arrives. `feed` returns complete events: `data` in one
 * line, `retry`, and ids and comments that have a few words only. Unknown fields are dropped. Nobody
 * authenticates the name of an event, and clients skip events by their names, or for lack of one. So only
 * events of messages keep theirs, where each has one that agrees with its plain member `type`. `asked` says
 * which chunks keep their `usage` (the service puts it into all of them) and how many choices there are, each
 * of which must finish.
 *
 * Fails with response_not_authentic (a wrong tag or sequence, a plain value in place of ciphertext, an event
 * that breaks the grammar), response_malformed, response_too_large or stream_unfinished
 * (`sse/event-checks.ts`). Events before the failing one are delivered, even those of the same chunk. The
 * constructor throws response_malformed if the endpoint has no streams, `internal` if its responses are not
 * encrypted. `maxEventBytes` is for tests only.
 *
 * Two ways lead to `#decrypt`. An event that is known by its bytes is opened where it stands in the chunk.
 * Any other event goes through the parser and a strict scan of its data, and is remembered.
 */
export class EventDecrypter implements Decrypter {
  failure: PrivatemodeError | undefined = undefined;
  finished = false;
  readonly pending = false;
  /** Events delivered so far, the terminal one included. */
  events = 0;
  modelError = false;

  readonly #cipher: Opener;
  readonly #checks: EventChecks;
  readonly #usageWanted: RequestFacts['usage'];
  readonly #maxEventBytes: number;
  readonly #known: KnownEvents<EventKind>;
  readonly #match = new EventMatch(); // the places of the current event's parts
  readonly #delivered = new DecryptedBytes();
  readonly #plaintexts: Buffer[] = []; // of the current event, by the numbers of its messages
  // It has no onError: the parser would make an error object for each line that means nothing.
  readonly #parser = createParser({
    onEvent: (event) => this.#onEvent(event),
    onRetry: (milliseconds) => {
      if (!this.#ended) this.#delivered.text(`retry: ${milliseconds}\n`);
    },
    onComment: (comment) => {
      if (!this.#ended) this.#delivered.text(HARMLESS_LINE.test(comment) ? `: ${comment}\n\n` : ':\n\n');
    },
  });
  #ended = false; // no more bytes are looked at
  #begun = false; // the parser has had bytes: it no longer takes a byte order mark
  #atBoundary = false; // the parser has seen whole events only
  #kept: Buffer | undefined; // the beginning of an event, at the end of the last chunk
  #promptUsage: TokenUsage | undefined; // of message_start
  #latestUsage: string | undefined; // the text of the latest plain member `usage`
  #unended = 0; // bytes on the wire since the last blank line; at most a chunk of them is not counted

  constructor(
    endpoint: Pick<Endpoint, 'id'>,
    cipher: Opener,
    { choices, usage }: RequestFacts,
    maxEventBytes = MAX_EVENT_BYTES,
  ) {
    const { stream, plain } = grammarOf(endpoint);
    if (stream === undefined) throw malformed('the service answered with an event stream');
    this.#cipher = cipher;
    this.#checks = new EventChecks(stream, plain, choices);
    this.#known = KnownEvents.ofStream(knownIn(stream));
    this.#usageWanted = usage;
    this.#maxEventBytes = maxEventBytes;
  }

  /**
   * The latest counts. At the end of a stream they are those of the whole response. Before, each chunk in
   * OpenAI's format has those of its choice so far, which count if the client leaves early. They are parsed
   * when somebody asks, because every chunk replaces those of the chunk before.
   */
  get usage(): TokenUsage | undefined {
    if (this.#latestUsage === undefined) return this.#promptUsage;
    return tokenUsageIn(this.#latestUsage, this.#promptUsage);
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

  #take(chunk: Buffer): void {
    const kept = this.#kept;
    this.#kept = undefined;
    const bytes = kept === undefined ? chunk : Buffer.concat([kept, chunk]);
    const mostKept = Math.min(MOST_KEPT, this.#maxEventBytes);
    let position = 0;
    while (position < bytes.length && !this.#ended) {
      const mayBeKnown = (this.#atBoundary || !this.#begun) && !this.modelError;
      const isBlankLine = this.#atBoundary && bytes[position] === LF;
      const mayKeep = bytes.length - position <= mostKept && (position > 0 || kept === undefined);
      if (isBlankLine) position += 1;
      else if (mayBeKnown && this.#takeKnown(bytes, position)) position = this.#match.end;
      else if (mayBeKnown && mayKeep && this.#known.mayBegin(bytes, position)) {
        // May be the beginning of an event of a known kind, which the next chunk completes.
        this.#kept = Buffer.from(bytes.subarray(position));
        return;
      } else position = this.#parse(bytes, position);
    }
  }

  /** Takes the event at `start` if it is known by its bytes; `#match` tells where it ends. */
  #takeKnown(bytes: Buffer, start: number): boolean {
    const kind = this.#known.find(bytes, start, this.#match);
    if (kind === undefined || this.#match.end - start > this.#maxEventBytes) return false;
    if (!this.#begun) this.#skipByteOrderMark();
    this.#decrypt(kind, bytes, start);
    return true;
  }

  /**
   * Called if the first event does not go through the parser. The parser takes a byte order mark only at the
   * beginning, and feeding it a line end first ends that beginning.
   */
  #skipByteOrderMark(): void {
    this.#parser.feed('\n');
    this.#begun = true;
    this.#atBoundary = true;
  }

  /** Parses to the end of the current event, or of the chunk; returns the position there. */
  #parse(bytes: Buffer, start: number): number {
    this.#begun = true;
    const boundary = bytes.indexOf(BOUNDARY, start, 'latin1');
    this.#atBoundary = boundary >= 0;
    const end = this.#atBoundary ? boundary + BOUNDARY.length : bytes.length;
    // latin1 keeps every byte, and is one copy instead of a decoding.
    const text = bytes.toString('latin1', start, end);
    this.#unended += text.length;
    this.#parser.feed(text);
    if (this.#atBoundary || OTHER_BOUNDARY.test(text)) this.#unended = 0;
    // Counted here, because the parser's own limit counts only the data of the lines. Lines may have little
    // data, and each costs something.
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
    if (data === '') return; // some servers send it as a heartbeat, and nothing sealed can hide in it
    if (data.length > this.#maxEventBytes) throw this.#tooLarge();
    const { named } = this.#checks.grammar;
    if (data.length === 6 && data.toUpperCase() === '[DONE]') {
      // Part of the OpenAI-style APIs only; elsewhere it means nothing and is dropped.
      if (!named) this.#end(event, Buffer.from('[DONE]')); // some clients know it in capitals only
      return;
    }
    if (this.modelError) return;
    const canRecur = event.id === undefined && !data.includes('\n');
    if (canRecur) {
      // Its data may be known by its bytes though its framing is not: chunks cut the event, or it has other
      // line ends.
      const framed = Buffer.from(`${this.#nameLine(event.event)}data: ${data}\n\n`, 'latin1');
      if (this.#takeKnown(framed, 0)) return;
    }
    const bytes = Buffer.from(data, 'latin1');
    const { members, sealed, type } = scanEvent(bytes, this.#checks.plain, this.#match);
    const kind = this.#checks.kindOf(sealed, type);
    const name = named ? kind.type : undefined;
    if (named && event.event !== name) throw notAuthentic('the name of an event is not its type');
    if (this.#match.count > 0) {
      this.#decrypt(kind, bytes, 0, event);
      if (canRecur) this.#known.remember(patternOf(bytes, members, this.#match, name), kind);
    } else if (kind.type === 'message_stop') this.#end(event, bytes);
    else this.#write(bytes, 0, false, event);
  }

  #nameLine(event: string | undefined): string {
    return this.#checks.grammar.named && event !== undefined ? `event: ${event}\n` : '';
  }

  #tooLarge(): PrivatemodeError {
    const message = `an event of the stream is larger than ${this.#maxEventBytes} bytes`;
    return new PrivatemodeError('response_too_large', message);
  }

  /**
   * Delivers the event that ends a stream. If the stream is unfinished it throws instead, because clients
   * take that event for success.
   */
  #end(event: EventSourceMessage, data: Buffer): void {
    if (!this.#checks.order.complete && !this.modelError) {
      throw new PrivatemodeError('stream_unfinished', 'the stream ended before the answer did');
    }
    this.#match.count = 0;
    this.#match.end = data.length;
    this.#write(data, 0, false, event);
    this.#ended = true;
    this.finished = true;
  }

  /**
   * Opens, checks and delivers the event whose places `#match` holds. It begins at `start` in `bytes`; of a
   * parsed event, `bytes` is the data alone.
   */
  #decrypt(kind: EventKind, bytes: Buffer, start: number, parsed?: EventSourceMessage): void {
    this.#cipher.openAll(bytes, kind.order, this.#match.starts, this.#match.ends, this.#plaintexts);
    const content = this.#checks.accept(kind, this.#plaintexts);
    const isClosing = Array.isArray(content) && content.length === 0;
    if (kind.type === 'message_start') this.#promptUsage = tokenUsage((content as { usage?: unknown }).usage);
    const { usageStart, usageEnd } = this.#match;
    if (usageStart >= 0) this.#latestUsage = bytes.toString('latin1', usageStart, usageEnd);
    if (kind.type === 'error') {
      this.modelError = true;
      this.finished = this.#checks.grammar.named; // elsewhere `[DONE]` follows
      this.#reword(kind);
    }
    if (isClosing && this.#usageWanted === 'none') return; // the closing chunk has nothing else to say
    const hasUsage = this.#usageWanted === 'every' || (isClosing && this.#usageWanted === 'last');
    this.#write(bytes, start, !hasUsage, parsed);
  }

  /** Puts the words that agents act on into an error event about a full context window. */
  #reword({ checks, order }: EventKind): void {
    const at = order[checks.findIndex(({ name }) => name === 'error')]!;
    const format = this.#checks.grammar.named ? 'anthropic' : 'openai';
    this.#plaintexts[at] = overflowInEvent(this.#plaintexts[at]!, format) ?? this.#plaintexts[at]!;
  }

  /** Writes out that event, each message replaced by its plaintext. */
  #write(bytes: Buffer, start: number, withoutUsage: boolean, parsed?: EventSourceMessage): void {
    let fields: string | undefined;
    if (parsed !== undefined) {
      const { event, id } = parsed;
      const idLine = id !== undefined && HARMLESS_LINE.test(id) ? `id: ${id}\n` : '';
      fields = `${this.#nameLine(event)}${idLine}data: `;
    }
    this.#delivered.event(bytes, start, this.#match, this.#plaintexts, withoutUsage, fields);
    this.events += 1;
  }
}
