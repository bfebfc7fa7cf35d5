/**
 * A receipt: one line of JSON that says what protected one request, without any of its content. The lines of an instance form a chain;
 * docs/receipts.md shows how to check them with jq, sha256sum and openssl only.
 *
 * A line is the compact JSON object of its members in the order of `ReceiptLine`, with `sig` last. `prev` is the SHA-256 of the
 * line before, without its line feed; the first line of an instance has 64 zeros there. `sig` is Ed25519 (RFC 8032) over the
 * line without the text `,"sig":"…"`, in base64.
 */
import { createHash, type KeyObject, sign, verify } from 'node:crypto';
import type { EpochFacts } from './epoch-facts.ts';

/** How a request ended. `complete`: all of the response was handed to the connection. `aborted`: the client left before. `truncated`: the response had begun and was broken off, visibly. `refused`: the proxy answered that the request was wrong. `failed`: an error of the service or of the way to it. */
export type ReceiptOutcome = 'complete' | 'aborted' | 'truncated' | 'refused' | 'failed';

/** SHA-256 in lower-case hex and number of the bytes of one body. */
export interface BodyDigest {
  readonly sha256: string;
  readonly bytes: number;
}

/** What is known of one request at its end. Null where it did not come to that. */
export interface RequestReceipt {
  readonly id: string;
  /** When its head arrived: RFC 3339 in UTC, with milliseconds. */
  readonly time: string;
  readonly durationMs: number;
  /** Id of the endpoint table; null where there is no such endpoint. */
  readonly endpoint: string | null;
  /** Name of the client of --clients; null without that, and where its token was not known. */
  readonly client: string | null;
  readonly model: string | null;
  readonly status: number | null;
  /** The body as it was received from the application, as far as it was read. */
  readonly request: BodyDigest;
  /** The body as it was handed to the application's connection; `events`: of a stream. */
  readonly response: BodyDigest & { readonly events: number };
  /** By the count of the service, which nothing authenticates. `cached` are those of `in` that came from its cache; receipts of older versions do not have it. */
  readonly tokens: {
    readonly in: number | null;
    readonly out: number | null;
    readonly cached?: number | null;
  } | null;
  /** Of the attempt that led to the response; null where nothing encrypted was sent. The verdict lies beside the receipts: `verdicts/<sha256>.json`. */
  readonly epoch: Pick<EpochFacts, 'secretId' | 'manifestSha256' | 'verdictSha256'> | null;
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

/** The end of another chain, as an instance found it when it began: a line that is taken away later is missed by it. */
export interface ChainEnd {
  readonly instance: string;
  readonly seq: number;
  /** SHA-256 of that line. */
  readonly sha256: string;
}

/**
 * What a line records. `opened` is the first line of an instance and names the ends of the chains that it found; `closed` is the last one
 * of an instance that ended in good order. `lost`: receipts could not be written between the line before and this one, so many, or
 * nobody knows how many (a worker ended without a word). `refused`: what was refused in these `durationMs` from `time` on and has no
 * receipt of its own.
 */
export type ReceiptRecord =
  | {
      readonly type: 'opened';
      readonly time: string;
      readonly version: string;
      readonly found: readonly ChainEnd[];
    }
  | ({ readonly type: 'request' } & RequestReceipt)
  | {
      readonly type: 'refused';
      readonly time: string;
      readonly durationMs: number;
      readonly counts: readonly RefusalCount[];
    }
  | { readonly type: 'lost'; readonly time: string; readonly count: number | null }
  | { readonly type: 'closed'; readonly time: string };

/** Where a line stands. */
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

const SIGNATURE = /,"sig":"([A-Za-z0-9+/]{86}==)"\}$/;

/** The line for a record, without its line feed. `key`: Ed25519, private. */
export function signedLine(position: ReceiptPosition, record: ReceiptRecord, key: KeyObject): string {
  const text = JSON.stringify({ ...position, ...record });
  const signature = sign(null, Buffer.from(text), key).toString('base64');
  return `${text.slice(0, -1)},"sig":"${signature}"}`;
}

/** Lower-case hex SHA-256 of a line: the `prev` of the next one. */
export const lineDigest = (line: string): string => createHash('sha256').update(line).digest('hex');

/** Whether the signature at the end of the line is one of `key` (Ed25519, public) over what stands before it. */
export function isSignedBy(line: string, key: KeyObject): boolean {
  const signature = SIGNATURE.exec(line);
  if (signature === null) return false;
  const text = `${line.slice(0, signature.index)}}`;
  return verify(null, Buffer.from(text), key, Buffer.from(signature[1] as string, 'base64'));
}

/** The members of a line; undefined where it is none. Its signature is not checked. */
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

/** What a line has beside its position and its time, as far as a chain is followed or summed by it. */
const FORMS: Readonly<Record<ReceiptRecord['type'], (members: Members) => boolean>> = {
  opened: ({ found }) => Array.isArray(found) && found.every(isObject),
  request: ({ durationMs, epoch }) => isAmount(durationMs) && (epoch === null || isObject(epoch)),
  refused: ({ durationMs, counts }) =>
    isAmount(durationMs) &&
    Array.isArray(counts) &&
    counts.every((each: unknown) => isObject(each) && isAmount(each['count'])),
  lost: ({ count }) => count === null || isAmount(count),
  closed: () => true,
};

function isLine(value: unknown): value is ReceiptLine {
  if (!isObject(value)) return false;
  const { v, instance, seq, prev, type } = value;
  const isPosition = v === 1 && typeof instance === 'string' && Number.isSafeInteger(seq);
  return isPosition && typeof prev === 'string' && typeof type === 'string' && Object.hasOwn(FORMS, type);
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;

/** Whether the members of a line are those of its type. */
export const isWellFormed = (line: ReceiptLine): boolean =>
  TIME.test(line.time) && !Number.isNaN(Date.parse(line.time)) && FORMS[line.type]({ ...line });

/** What a line that `key` has signed says; a text tells why it is none. */
export function readLine(line: string, key: KeyObject): ReceiptLine | string {
  const members = parseLine(line);
  if (members === undefined) return 'is no receipt';
  if (!isSignedBy(line, key)) return 'its signature does not fit the key';
  return isWellFormed(members) ? members : 'is no receipt';
}

/** When a record was noted, in ms since 1970: at the end of a request, or of what a sum covers. It is written then or later. */
export const notedAt = (record: ReceiptRecord): number =>
  Date.parse(record.time) + ('durationMs' in record ? record.durationMs : 0);

/** Name of the file that holds the lines that an instance wrote on one day (UTC). */
export const receiptFileName = (day: string, instance: string): string => `${day}.${instance}.jsonl`;
