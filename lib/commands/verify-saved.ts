/** Verifies a record (`verify --saved FILE`), and reads nothing but that file. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';
import { whyNoManifestFile } from '../config/files.ts';
import { PrivatemodeError } from '../errors.ts';
import { fileUnreadable } from '../files/path-refusal.ts';
import { printable } from '../text.ts';
import { judge, notJudged } from '../verdict/judge.ts';
import { readRecord } from '../verdict/record.ts';
import { foreignRoots, rootsFrom, type Verified } from '../verdict/text.ts';
import type { Verdict } from '../verdict/verdict.ts';
import { VERSION } from '../version.ts';
import type { SavedRequest } from './verify-flags.ts';

const MAX_BYTES = 64 * 1024 * 1024;

/**
 * Judges by the time of --at, else by that which the record states. An unusable file gives a verdict too; it
 * rejects only for bugs of this program.
 */
export async function verifySaved({ saved, at }: SavedRequest, now: Date): Promise<Verified> {
  const refuse = (defect: string) => unusable(saved, defect);
  const future = (time: Date, whose: string): string =>
    time > now
      ? `Warning: ${whose} ${time.toISOString()} lies in the future: what is in force then is not known yet.\n`
      : '';
  try {
    const file = readInput(saved);
    const sha256 = createHash('sha256').update(file).digest('hex');
    // --receipts names each record by its digest.
    if (/^[0-9a-f]{64}\.json$/.test(basename(saved)) && !basename(saved).startsWith(sha256))
      throw refuse(`it is another record than its name says: its SHA-256 is ${sha256}`);
    const { subject, time, host, version, stated } = readRecord(file, refuse);
    const verdict = await judge({ ...subject, now: at ?? time });
    const isCustom = verdict.roots === 'custom';
    const rows = {
      Subject: `${host}, as ${saved} says`,
      Manifest: `that of ${saved}`,
      Roots: rootsFrom(isCustom ? `those of ${saved}` : undefined),
      Exchange: sha256,
    };
    const changes = at === undefined ? differences(stated, verdict, version) : '';
    const warning =
      future(at ?? time, at === undefined ? 'the time of the record,' : '--at') +
      changes +
      (isCustom ? foreignRoots(`the record ${saved}`) : '');
    const timeFrom = at === undefined ? ', stated by the file' : '';
    return { verdict, report: { mode: 'record', rows, timeFrom }, warning };
  } catch (thrown) {
    if (!(thrown instanceof PrivatemodeError)) throw thrown;
    const known = { at: (at ?? now).toISOString(), roots: 'vendor', manifestSha256: null } as const;
    const report = { mode: 'record', rows: { Subject: saved }, timeFrom: '' } as const;
    return { verdict: notJudged(thrown, known), report, warning: at === undefined ? '' : future(at, '--at') };
  }
}

/** The content of a file. Throws verify_input_invalid, naming the file. */
function readInput(path: string): Uint8Array {
  let bytes: Uint8Array;
  try {
    bytes = new Uint8Array(readFileSync(path));
  } catch (thrown) {
    throw invalid(fileUnreadable(JSON.stringify(path), thrown).message, thrown);
  }
  if (bytes.length === 0) throw unusable(path, 'it is empty');
  if (bytes.length > MAX_BYTES) throw unusable(path, 'it is larger than 64 MiB');
  return bytes;
}

/** The bytes of a manifest file. Throws verify_input_invalid, also if the file cannot be a manifest. */
export function readManifest(path: string): Uint8Array {
  const bytes = readInput(path);
  const what = whyNoManifestFile(bytes);
  if (what !== undefined) throw unusable(path, `it ${what}`);
  return bytes;
}

const invalid = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('verify_input_invalid', message, { cause });

const unusable = (path: string, defect: string): PrivatemodeError =>
  invalid(`${path} cannot be used: ${defect}`);

type Json = Readonly<Record<string, unknown>>;

/**
 * A warning if the record states another verdict than `verdict`. One of another version may say it
 * otherwise.
 */
function differences(stated: Json, verdict: Verdict, version: string): string {
  const [then, now] = [partsOf(stated), partsOf({ ...verdict })];
  const names = [...new Set([...then.keys(), ...now.keys()])].filter(
    (name) => then.get(name) !== now.get(name),
  );
  if (names.length === 0) return '';
  const by =
    version === VERSION ? 'this version' : `version ${version}, which may put it otherwise than ${VERSION}`;
  return `Warning: ${printable(`the record states another verdict, made by ${by}. These differ: ${names.join(', ')}`, 10_000)}\n`;
}

/** The parts of a verdict by name: its checks by their ids, and its other members. */
function partsOf({ checks, ...members }: Json): ReadonlyMap<string, string> {
  const rows = Object.values(checks ?? {}).map(
    (row: Json | null) => [JSON.stringify(row?.['id']), row] as const,
  );
  return new Map([...Object.entries(members), ...rows].map(([name, part]) => [name, JSON.stringify(part)]));
}
