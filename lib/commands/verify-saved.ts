/** Verifies a record (`verify --saved FILE`), and reads nothing else but the receipts of --receipts-dir. */
import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { whyNoManifest } from '../attestation/manifest.ts';
import { orRefuse } from '../config/input-files.ts';
import { PrivatemodeError } from '../errors.ts';
import { linesOf } from '../files/durable-file.ts';
import { reasonOf } from '../files/path-refusal.ts';
import { readFirstLine, readLine, receiptFiles, receiptsDirectory, sha256 } from '../receipts/receipt.ts';
import { printable } from '../text.ts';
import { judge, notJudged } from '../verdict/judge.ts';
import { readRecord } from '../verdict/record.ts';
import type { Report } from '../verdict/text.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { VERSION } from '../version.ts';
import type { SavedRequest } from './verify-flags.ts';

/** A verification: its verdict, the facts for the report, and the warnings to print. */
export interface Verified {
  readonly verdict: Verdict;
  readonly report: Report;
  /** Warnings for stderr, before the report. Warnings that do not apply are undefined. */
  readonly warnings: readonly (string | undefined)[];
  /** Saves the exchange after the report. Resolves with a line for stderr. */
  readonly keep?: (() => Promise<string>) | undefined;
}

/**
 * Judges a record at the time of --at or of a receipt. If neither is given, the time that the record states
 * counts. An unusable file also leads to a verdict; the promise rejects only for bugs of this program.
 */
export async function verifySaved({ saved, at, receiptsDir }: SavedRequest, now: Date): Promise<Verified> {
  try {
    const file = readInput(saved);
    const exchange = sha256(file);
    // The proxy names each record of --receipts by its digest.
    if (/^[0-9a-f]{64}\.json$/.test(basename(saved)) && !basename(saved).startsWith(exchange))
      throw unusable(saved, `it is another record than its name says: its SHA-256 is ${exchange}`);
    const record = readRecord(file, (defect) => unusable(saved, defect));
    const receipt = receiptsDir === undefined ? undefined : await receiptOf(exchange, receiptsDir);
    const time = at ?? receipt?.time ?? record.time;
    const isAsStated = time === record.time;
    const timeFrom = isAsStated ? ', stated by the file' : receipt?.from;
    const verdict = await judge({ ...record.subject, now: time });
    const subject = `${record.host}, as ${saved} says`;
    const roots = verdict.roots === 'custom' ? `the record ${saved}` : undefined;
    const future = `Warning: the time ${time.toISOString()}${timeFrom ?? ''} lies in the future: what is in force then is not known yet.`;
    return {
      verdict,
      report: { mode: 'record', subject, manifest: `that of ${saved}`, exchange, roots, timeFrom },
      warnings: [
        time > now ? future : undefined,
        isAsStated ? difference(record.stated, verdict, record.version) : undefined,
      ],
    };
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    const known = { at: (at ?? now).toISOString(), roots: 'vendor', manifestSha256: null } as const;
    return { verdict: notJudged(thrown, known), report: { mode: 'record', subject: saved }, warnings: [] };
  }
}

/**
 * When the service was attested in an exchange. The time is in the first receipt that names the exchange and
 * is signed with the key of the receipt's file. Throws verify_input_invalid if there is no such receipt.
 */
async function receiptOf(exchange: string, workspace: string) {
  const directory = receiptsDirectory(workspace);
  try {
    for (const file of await receiptFiles(directory)) {
      const path = join(directory, file);
      const { signer } = (await readFirstLine(path)) ?? {};
      if (signer === undefined) continue;
      for await (const { text } of linesOf(path)) {
        const line = text.includes(exchange) ? readLine(text, signer) : undefined;
        if (line?.type !== 'epoch' || line.record !== exchange || !(Date.parse(line.time) > 0)) continue;
        const key = sha256(signer.export({ type: 'spki', format: 'der' }));
        return { time: new Date(line.time), from: `, stated by a receipt signed with key SHA-256 ${key}` };
      }
    }
  } catch (thrown) {
    throw unusable(directory, reasonOf(thrown));
  }
  throw unusable(directory, `no signed receipt in it states the time of the record ${exchange}`);
}

/** The content of a file. Throws verify_input_invalid with the file's name in the message. */
function readInput(path: string): Uint8Array {
  const refuse = (thrown: unknown) => unusable(path, reasonOf(thrown));
  const bytes = new Uint8Array(orRefuse(() => readFileSync(path), refuse));
  if (bytes.length === 0) throw unusable(path, 'it is empty');
  if (bytes.length > 64 * 1024 * 1024) throw unusable(path, 'it is larger than 64 MiB');
  return bytes;
}

/** The bytes of a manifest file. A file that cannot be a manifest also leads to verify_input_invalid. */
export function readManifest(path: string): Uint8Array {
  const bytes = readInput(path);
  const what = whyNoManifest(bytes);
  if (what !== undefined) throw unusable(path, `it ${what}`);
  return bytes;
}

const unusable = (path: string, defect: string): PrivatemodeError =>
  new PrivatemodeError('verify_input_invalid', `${path} cannot be used: ${defect}`);

type Json = Readonly<Record<string, unknown>>;

/** A warning if the record states another verdict. Other versions may word the same verdict differently. */
function difference(stated: Json, verdict: Verdict, version: string): string | undefined {
  const [then, now] = [partsOf(stated), partsOf({ ...verdict })];
  const names = Object.keys({ ...then, ...now }).filter((name) => !isDeepStrictEqual(then[name], now[name]));
  const text = `the record states another verdict, made by version ${version}; this is version ${VERSION}. These differ: ${names.join(', ')}`;
  return names.length === 0 ? undefined : `Warning: ${printable(text, 10_000)}`;
}

/** The parts of a verdict by name: its checks by their ids, and its other members. */
function partsOf({ checks, ...members }: Json): Json {
  const rows = Object.values(checks ?? {}).map((row: Json | null) => [JSON.stringify(row?.['id']), row]);
  return { ...members, ...Object.fromEntries(rows) };
}
