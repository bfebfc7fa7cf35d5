/**
 * A receipt is one line of JSON that says what protected one request, without any content of the request. The
 * lines of an instance form a chain. docs/receipts.md shows how to check a chain with only jq, sha256sum and
 * openssl. A line is a compact JSON object. Its last member `sig` is an Ed25519 signature (RFC 8032) in
 * base64 over the line without the text `,"sig":"…"`. The member `prev` is the SHA-256 of the preceding line
 * without its line feed. In the first line of an instance, `prev` is 64 zeros.
 */
import { createHash, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { linesOf } from '../files/durable-file.ts';
import { reasonOf } from '../files/path-refusal.ts';
import type { Epoch } from '../session/session.ts';

/**
 * How a request ended. `complete`: the proxy handed the whole response to the connection. `aborted`: the
 * client disconnected earlier. `truncated`: the response had begun and was visibly broken off. `refused`: the
 * proxy responded that the request was wrong. `failed`: the service or the connection to it failed.
 */
export const RECEIPT_OUTCOMES = ['complete', 'refused', 'failed', 'truncated', 'aborted'] as const;
export type ReceiptOutcome = (typeof RECEIPT_OUTCOMES)[number];

/** The SHA-256 of a body in lower-case hex, and the size of the body in bytes. */
export type BodyDigest = Readonly<{ sha256: string; bytes: number }>;

/** The facts about a finished request. A member is null if the request ended before the fact was known. */
export interface RequestReceipt {
  readonly id: string;
  /** The time when the request headers arrived: RFC 3339 in UTC, with milliseconds. */
  readonly time: string;
  readonly durationMs: number;
  readonly endpoint: string;
  /** The name of the client in the file of --clients, or null without --clients. */
  readonly client: string | null;
  readonly model: string | null;
  readonly status: number | null;
  /** The part of the application's request body that was read, exactly as received. */
  readonly request: BodyDigest;
  /** The response body as handed to the application's connection, and the number of stream events. */
  readonly response: BodyDigest & { readonly events: number };
  /** The service's token counts, which are not authenticated. `cached`: the part of `in` from its cache. */
  readonly tokens: Readonly<Record<'in' | 'out' | 'cached', number | null>> | null;
  /** The epoch of the attempt that led to the response, or null if no encrypted request was sent. */
  readonly epoch: Omit<Epoch, 'key' | 'verdictSha256' | 'renewAt' | 'expiresAt' | 'expiresMonotonic'> | null;
  readonly outcome: ReceiptOutcome;
  /** The error code of lib/errors.ts, or null. */
  readonly code: string | null;
}

/**
 * The kinds of lines. `opened`: the first line of each file, with the public key of the chain
 * (SubjectPublicKeyInfo in base64). `found` lists the other files with the SHA-256 of each last line, so that
 * the check detects a removed file. `epoch`: precedes the first request in a file that the epoch protected.
 * Requests name the epoch by its secret id. Its `time` is that of the attestation, and its `record` is the
 * SHA-256 of the record from which anybody can repeat the attestation. `roots`: whether the roots of AMD and
 * Intel were trusted. `lost`: `count` receipts were not written. `closed`: the instance ended normally.
 */
export type ReceiptRecord = { readonly time: string } & Readonly<
  | { type: 'opened'; version: string; key: string; found: Readonly<Record<string, string>> }
  | { type: 'epoch'; secretId: string; manifestSha256: string; roots: Roots; record: string | null }
  | ({ type: 'request'; secretId: string | null } & Omit<RequestReceipt, 'epoch'>)
  | { type: 'lost'; count: number }
  | { type: 'closed' }
>;
type Roots = 'vendor' | 'custom';

/** The place of a line in its chain. `seq` counts from 0 without gaps. */
type Place = Readonly<{ instance: string; seq: number; prev: string }>;
export type ReceiptLine = { readonly v: 2 } & Place & ReceiptRecord;
export type RequestLine = Extract<ReceiptLine, { type: 'request' }>;

/** The SHA-256 in lower-case hex. */
export const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex');

/** The signed line of a record without its line feed. `key` is the private Ed25519 key. */
export function signedLine(place: Place, record: ReceiptRecord, key: KeyObject): string {
  const text = JSON.stringify({ v: 2, ...place, ...record });
  return `${text.slice(0, -1)},"sig":"${sign(null, Buffer.from(text), key).toString('base64')}"}`;
}

/** A signature ends in one of four characters, because others would decode to the same 64 bytes. */
const SIGNATURE = /,"sig":"([A-Za-z0-9+/]{85}[AQgw]==)"\}$/;
const TYPES: ReadonlySet<unknown> = new Set(['opened', 'epoch', 'request', 'lost', 'closed']);

/** The members of a line signed with `key` (Ed25519, public), or undefined for any other line. */
export function readLine(line: string, key: KeyObject): ReceiptLine | undefined {
  const found = SIGNATURE.exec(line);
  if (found === null) return undefined;
  const signed = Buffer.from(`${line.slice(0, found.index)}}`);
  return verify(null, signed, key, Buffer.from(found[1] as string, 'base64')) ? parseLine(line) : undefined;
}

/** Whether a line has the members that the check of receipts uses: anybody may have signed it. */
function hasContent(line: ReceiptLine): boolean {
  if (line.type === 'opened') return Object.values(line.found).every((digest) => typeof digest === 'string');
  if (line.type === 'lost') return Number.isSafeInteger(line.count);
  if (line.type !== 'epoch') return true;
  return typeof line.manifestSha256 === 'string' && (line.record === null || typeof line.record === 'string');
}

/** The members of a line, or undefined if the line is no receipt. Checks no signature and not all members. */
export function parseLine(line: string): ReceiptLine | undefined {
  try {
    const members = JSON.parse(line) as ReceiptLine;
    const { v, type, seq, time } = members;
    const isReceipt = v === 2 && TYPES.has(type) && Number.isSafeInteger(seq) && typeof time === 'string';
    return isReceipt && hasContent(members) ? members : undefined;
  } catch {
    return undefined;
  }
}

const FILE_NAME = /^\d{4}-\d\d-\d\d\.([a-z0-9]{12})\.jsonl$/;

/** The instance that wrote the file `YYYY-MM-DD.<instance>.jsonl` (day in UTC); empty for other names. */
export const instanceOf = (file: string): string => FILE_NAME.exec(file)?.[1] ?? '';

/** The names of the receipt files, in the order of their days. Symbolic links are left out. */
export async function receiptFiles(directory: string): Promise<readonly string[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && FILE_NAME.test(entry.name));
  return files.map(({ name }) => name).sort();
}

/**
 * The content of the first line of a file, or undefined if the file has no whole line. `signer`: the public
 * key that the line names, or undefined if this key did not sign the line.
 */
export async function readFirstLine(path: string) {
  for await (const { text, isWhole } of linesOf(path)) return isWhole ? asFirst(text) : undefined;
  return undefined;
}

function asFirst(text: string) {
  const line = parseLine(text);
  const { key = '', found = {} } = line?.type === 'opened' ? line : {};
  try {
    const signer = createPublicKey({ key: Buffer.from(key, 'base64'), format: 'der', type: 'spki' });
    const isSigned = signer.asymmetricKeyType === 'ed25519' && readLine(text, signer) !== undefined;
    return { signer: isSigned ? signer : undefined, found };
  } catch {
    return { signer: undefined, found }; // `key` is no public key
  }
}

/** The directory of the receipts: `receipts` in the workspace `directory`, or else `directory` itself. */
export function receiptsDirectory(directory: string): string {
  const inWorkspace = join(directory, 'receipts');
  return existsSync(inWorkspace) ? inWorkspace : directory;
}

/** Makes the error receipts_unreadable from an error that was thrown while the directory was read. */
export function receiptsUnreadable(directory: string, cause: unknown): PrivatemodeError {
  const { path = directory } = cause as NodeJS.ErrnoException;
  const why = path === directory ? reasonOf(cause) : `${path}: ${reasonOf(cause)}`;
  const message = `the receipts in ${directory} cannot be read (${why})`;
  return new PrivatemodeError('receipts_unreadable', message, { cause });
}
