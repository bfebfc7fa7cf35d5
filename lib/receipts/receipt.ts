/**
 * A receipt: one line of JSON that says what protected one request, without any of its content. The lines of
 * an instance form a chain; docs/receipts.md shows how to check them with jq, sha256sum and openssl only.
 *
 * A line is the compact JSON object of its members in the order of `ReceiptLine`, with `sig` last. `prev` is
 * the SHA-256 of the line before, without its line feed; the first line of an instance has 64 zeros there.
 * `sig` is Ed25519 (RFC 8032) over the line without the text `,"sig":"…"`, in base64.
 */
import { createHash, type KeyObject, sign, verify } from 'node:crypto';
import type { Term } from '../session/state.ts';

/**
 * How a request ended. `complete`: the proxy handed the whole response to the connection. `aborted`: the
 * client left before that. `truncated`: the response had begun and was broken off, visibly. `refused`: the
 * proxy responded that the request was wrong. `failed`: an error of the service or of the way to it.
 */
export type ReceiptOutcome = 'complete' | 'aborted' | 'truncated' | 'refused' | 'failed';

/** The SHA-256 of one body in lower-case hex, and its number of bytes. */
export interface BodyDigest {
  readonly sha256: string;
  readonly bytes: number;
}

/**
 * What protected a request. `exchangeSha256` names the exchange that led to the verdict, kept in `exchanges`;
 * receipts of older versions do not have it.
 */
export interface ReceiptEpoch extends Pick<Term, 'secretId' | 'manifestSha256' | 'verdictSha256'> {
  readonly exchangeSha256?: string | undefined;
}

/** What is known of one request at its end. A member is null if the request did not get that far. */
export interface RequestReceipt {
  readonly id: string;
  /** When its head arrived: RFC 3339 in UTC, with milliseconds. */
  readonly time: string;
  readonly durationMs: number;
  /** Id in the endpoint table; null if there is no such endpoint. */
  readonly endpoint: string | null;
  /** Name of the client of --clients; null without that flag, and if the token of the client was unknown. */
  readonly client: string | null;
  readonly model: string | null;
  readonly status: number | null;
  /** The body as it was received from the application, as far as it was read. */
  readonly request: BodyDigest;
  /**
   * The body as it was handed to the application's connection. `events`: the number of events, if it is a
   * stream.
   */
  readonly response: BodyDigest & { readonly events: number };
  /**
   * The token counts that the service gave; nothing authenticates them. `cached`: those of `in` that came
   * from the cache of the service; receipts of older versions do not have it.
   */
  readonly tokens: {
    readonly in: number | null;
    readonly out: number | null;
    readonly cached?: number | null;
  } | null;
  /**
   * The epoch of the attempt that led to the response; null if nothing encrypted was sent. The verdict lies
   * beside the receipts: `verdicts/<sha256>.json`.
   */
  readonly epoch: ReceiptEpoch | null;
  readonly outcome: ReceiptOutcome;
  /** Code of lib/errors.ts, or null. */
  readonly code: string | null;
}

/** How many requests of a client were refused with a code, and have no receipt of their own. */
export interface RefusalCount {
  /** Null where the client is not known. */
  readonly client: string | null;
  readonly code: string | null;
  readonly count: number;
}

/**
 * The end of another chain, as an instance found it when it began. So the check notices if somebody takes
 * that line away later.
 */
export interface ChainEnd {
  readonly instance: string;
  readonly seq: number;
  /** SHA-256 of that line. */
  readonly sha256: string;
}

/**
 * What a line records. `opened`: the first line of an instance; it names the ends of the chains that the
 * instance found. `closed`: the last line of an instance that ended in good order. `lost`: `count` receipts
 * could not be written between the line before and this one. `refused`: counts of the requests that were
 * refused in these `durationMs` from `time` on and that have no receipts of their own.
 */
export type ReceiptRecord =
  | {
      readonly type: 'opened';
      readonly time: string;
      readonly version: string;
      /**
       * Name of the key that signs the chain (lib/receipts/receipt-keys.ts); chains of older versions name
       * none.
       */
      readonly key?: string;
      /** Name of the key that follows this one, in a chain that exists to announce it. */
      readonly nextKey?: string | undefined;
      readonly found: readonly ChainEnd[];
    }
  | ({ readonly type: 'request' } & RequestReceipt)
  | {
      readonly type: 'refused';
      readonly time: string;
      readonly durationMs: number;
      readonly counts: readonly RefusalCount[];
    }
  | { readonly type: 'lost'; readonly time: string; readonly count: number }
  | { readonly type: 'closed'; readonly time: string };

/** The place of a line in its chain. */
export interface ReceiptPosition {
  readonly v: 1;
  readonly instance: string;
  /** From 0, without gaps. */
  readonly seq: number;
  readonly prev: string;
}

export type ReceiptLine = ReceiptPosition & ReceiptRecord & { readonly sig: string };

/** `prev` of the first line. */
export const NOTHING_BEFORE = '0'.repeat(64);

/**
 * The last character holds only two bits of the signature, so characters other than these four would decode
 * to the same 64 bytes.
 */
const SIGNATURE = /,"sig":"([A-Za-z0-9+/]{85}[AQgw]==)"\}$/;

/** The line for a record, without its line feed. `key`: Ed25519, private. */
export function signedLine(position: ReceiptPosition, record: ReceiptRecord, key: KeyObject): string {
  const text = JSON.stringify({ ...position, ...record });
  const signature = sign(null, Buffer.from(text), key).toString('base64');
  return `${text.slice(0, -1)},"sig":"${signature}"}`;
}

/** Lower-case hex SHA-256 of a line: the `prev` of the next one. */
export const lineDigest = (line: string): string => createHash('sha256').update(line).digest('hex');

/** Whether `key` (Ed25519, public) has made the signature at the end of the line over the rest of it. */
export function isSignedBy(line: string, key: KeyObject): boolean {
  const signature = SIGNATURE.exec(line);
  if (signature === null) return false;
  const text = `${line.slice(0, signature.index)}}`;
  return verify(null, Buffer.from(text), key, Buffer.from(signature[1] as string, 'base64'));
}

/** The members of a line; undefined if it is no receipt. Does not check its signature. */
export function parseLine(line: string): ReceiptLine | undefined {
  try {
    const value: unknown = JSON.parse(line);
    return isLine(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

type Members = Readonly<Record<string, unknown>>;

/** Whether a value is a whole number that is not negative, and exact. */
export const isAmount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0;
const isObject = (value: unknown): value is Members => typeof value === 'object' && value !== null;

/**
 * By type of line: whether it has the members, besides position and time, that following or summing a chain
 * needs.
 */
const FORMS: Readonly<Record<ReceiptRecord['type'], (members: Members) => boolean>> = {
  opened: ({ found }) => Array.isArray(found) && found.every(isObject),
  request: ({ durationMs, epoch }) => isAmount(durationMs) && (epoch === null || isObject(epoch)),
  refused: ({ durationMs, counts }) =>
    isAmount(durationMs) &&
    Array.isArray(counts) &&
    counts.every((each: unknown) => isObject(each) && isAmount(each['count'])),
  lost: ({ count }) => isAmount(count),
  closed: () => true,
};

function isLine(value: unknown): value is ReceiptLine {
  if (!isObject(value)) return false;
  const { v, instance, seq, prev, type } = value;
  const isPosition = v === 1 && typeof instance === 'string' && Number.isSafeInteger(seq);
  return isPosition && typeof prev === 'string' && typeof type === 'string' && Object.hasOwn(FORMS, type);
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** Whether a line has the members of its type. */
export const isWellFormed = (line: ReceiptLine): boolean =>
  TIME.test(line.time) && !Number.isNaN(Date.parse(line.time)) && FORMS[line.type]({ ...line });

/** The members of a line that `key` has signed. Otherwise a text that says why it is no such line. */
export function readLine(line: string, key: KeyObject): ReceiptLine | string {
  const members = parseLine(line);
  if (members === undefined) return 'is no receipt';
  if (!isSignedBy(line, key)) return 'its signature does not fit the key';
  return isWellFormed(members) ? members : 'is no receipt';
}

/**
 * When a record was noted, in ms since 1970: at the end of a request, or at the end of the time that a sum
 * covers. Its line is written then or later.
 */
export const notedAt = (record: ReceiptRecord): number =>
  Date.parse(record.time) + ('durationMs' in record ? record.durationMs : 0);

/** Name of the file that holds the lines that an instance wrote on one day (UTC). */
export const receiptFileName = (day: string, instance: string): string => `${day}.${instance}.jsonl`;
