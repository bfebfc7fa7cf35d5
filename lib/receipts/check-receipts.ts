/** Checks receipts offline: signatures, chains, and what they refer to (docs/receipts.md). */
import { createHash, createPublicKey, type KeyObject } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { unless } from '../files/durable-file.ts';
import { linesOf } from '../files/line-files.ts';
import { openToRead } from '../files/own-files.ts';
import { type ReceiptLine, readFirstLine, readLine, sha256 } from './receipt.ts';
import { firstLineOf, instanceOf, receiptFiles, receiptsUnreadable } from './receipt-files.ts';
import { MOST_RECORDS } from './receipt-log.ts';

export interface ReceiptFinding {
  readonly file: string;
  /** From 1, as editors count; 0: the file as a whole. */
  readonly line: number;
  readonly message: string;
  /**
   * Whether it makes the check fail. A gap does so only in a strict check, because it also arises without
   * tampering: the proxy was killed, the disk was full, receipts were copied without what they refer to.
   */
  readonly fails: boolean;
}

export interface ReceiptsReport {
  /** Whether no finding fails. */
  readonly ok: boolean;
  /** SHA-256 of the SubjectPublicKeyInfo of each key that signed. */
  readonly publicKeys: readonly string[];
  /** How many instances have a signed line. */
  readonly instances: number;
  /** Signed lines, and requests among them. */
  readonly lines: number;
  readonly requests: number;
  readonly findings: readonly ReceiptFinding[];
  /** Whether requests were protected under roots other than those of AMD and Intel. */
  readonly hasCustomRoots: boolean;
}

/**
 * `since`: a day (YYYY-MM-DD, UTC); the check begins with its files, and says nothing about earlier ones.
 * `publicKeyFiles`: the keys that count (PEM); without them a chain counts with the key that it names.
 * `strict`: gaps count as failures.
 */
export interface CheckOptions {
  readonly since?: string | undefined;
  readonly publicKeyFiles?: readonly string[] | undefined;
  readonly strict?: boolean | undefined;
}

/** An instance after one of its lines. */
interface Chain {
  readonly key: KeyObject;
  readonly file: string;
  readonly number: number;
  readonly line: ReceiptLine;
  readonly digest: string;
}

/** Checks the receipts of a directory in one pass. Throws receipts_unreadable. */
export const checkReceipts = (directory: string, options: CheckOptions = {}): Promise<ReceiptsReport> =>
  check(directory, options).catch((cause: unknown) => {
    throw receiptsUnreadable(directory, cause);
  });

async function check(
  directory: string,
  { since = '', publicKeyFiles = [], strict = false }: CheckOptions,
): Promise<ReceiptsReport> {
  const findings: ReceiptFinding[] = [];
  const note = (file: string, line: number, message: string, isGap = false): void =>
    void findings.push({ file, line, message, fails: strict || !isGap });
  const given = new Set(await Promise.all(publicKeyFiles.map(readKeyName)));
  const files = (await receiptFiles(directory)).filter((file) => file >= since);

  /** The key that each file names, if it counts. */
  const keys = new Map<string, KeyObject>();
  /** Lines of other files that first lines name, by digest. In the end, those that were not met. */
  const named = new Map<string, { readonly file: string; readonly by: string }>();
  for (const by of files) {
    const text = await firstLineOf(join(directory, by));
    const { signer, found } = readFirstLine(text ?? '') ?? {};
    if (text === undefined)
      note(by, 0, 'has no whole line: its instance was killed, or the disk was full', true);
    else if (signer === undefined) note(by, 1, 'is not signed with the key that it names');
    else if (given.size > 0 && !given.has(nameOf(signer)))
      note(by, 1, `names the key ${nameOf(signer)}, which was not given`);
    else {
      keys.set(by, signer);
      for (const [file, digest] of Object.entries(found ?? {})) named.set(digest, { file, by });
    }
  }

  const chains = new Map<string, Chain>();
  /** Manifests and records by digest, and the first line that refers to each. */
  const referred = new Map<
    string,
    { readonly at: Pick<Chain, 'file' | 'number'>; readonly isRecord: boolean }
  >();
  let [lines, requests, hasCustomRoots] = [0, 0, false];
  for (const file of files) {
    const instance = instanceOf(file);
    const key = chains.get(instance)?.key ?? keys.get(file);
    if (key === undefined) continue; // noted above
    const epochs = new Set<string>(); // each file names those of its requests
    let isSound = true;
    for await (const { number, text, isWhole } of linesOf(join(directory, file))) {
      const digest = sha256(text);
      if (isWhole && named.get(digest)?.file === file) named.delete(digest); // a copy elsewhere shows nothing
      if (!isWhole) {
        note(file, number, 'is cut off: its instance was killed, or the disk was full', true);
        break;
      }
      const line = readLine(text, key);
      const flaw = flawOf(line, chains.get(instance), file, number);
      if (isSound && flaw !== undefined) note(file, number, flaw); // what follows from it is not named
      isSound &&= flaw === undefined;
      if (line?.instance !== instance) continue;
      chains.set(instance, { key, file, number, line, digest });
      lines++;
      if (line.type === 'lost') note(file, number, `${line.count} receipts before it were not written`, true);
      if (line.type === 'epoch') {
        const { secretId, manifestSha256, roots, record } = line;
        epochs.add(secretId);
        hasCustomRoots ||= roots === 'custom';
        const at = { file, number };
        if (!referred.has(manifestSha256)) referred.set(manifestSha256, { at, isRecord: false });
        if (record !== null && !referred.has(record)) referred.set(record, { at, isRecord: true });
      }
      if (line.type !== 'request') continue;
      requests++;
      if (line.secretId !== null && !epochs.has(line.secretId))
        note(file, number, 'was sent under an epoch that no line before it names');
    }
  }
  // Read last, because the proxy stores both before the line that refers to them.
  const manifests = new Set((await digestsIn(join(dirname(resolve(directory)), 'manifests'))).values());
  const records = await digestsIn(join(directory, 'records'));
  const isPruned = [...records].filter(([name, digest]) => name === `${digest}.json`).length >= MOST_RECORDS;
  for (const [digest, { at, isRecord }] of referred) {
    const kept = records.get(`${digest}.json`);
    if (!isRecord && !manifests.has(digest))
      note(at.file, at.number, `its manifest ${digest} is not in manifests`, manifests.size === 0);
    if (isRecord && kept === undefined && !isPruned)
      note(at.file, at.number, `its record ${digest} is missing`, true);
    if (isRecord && kept !== undefined && kept !== digest)
      note(at.file, at.number, `its record ${digest} was changed`);
  }
  const open = 'is the last line: its instance runs still or was killed; receipts may be missing';
  for (const { file, number, line } of chains.values())
    if (line.type !== 'closed') note(file, number, open, true);
  for (const { file, by } of named.values())
    if (file >= since) note(by, 1, `names a line of ${file} that is missing`);
  if (lines === 0) note('.', 0, 'there are no receipts', since !== '');
  const publicKeys = [...new Set(Array.from(chains.values(), ({ key }) => nameOf(key)))];
  const ok = !findings.some(({ fails }) => fails);
  return { ok, publicKeys, instances: chains.size, lines, requests, findings, hasCustomRoots };
}

/** Why a whole line does not go on with the chain `before` it; undefined if it does. */
function flawOf(
  line: ReceiptLine | undefined,
  before: Chain | undefined,
  file: string,
  number: number,
): string | undefined {
  if (line?.instance !== instanceOf(file)) return 'is not signed by its instance with the key of its chain';
  const follows = before ? line.prev === before.digest && line.seq === before.line.seq + 1 : number === 1;
  if (!follows) return 'does not follow the line before: a line is missing, changed or moved';
  return line.time.slice(0, 10) > file ? `is of ${line.time}, after the day of its file` : undefined;
}

/** The SHA-256 of each JSON file in a directory by its name; empty without the directory. */
async function digestsIn(directory: string): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  for (const name of (await unless('ENOENT', readdir(directory))) ?? []) {
    if (!name.endsWith('.json')) continue;
    const hash = createHash('sha256');
    const handle = await unless('ENOENT', openToRead(join(directory, name)));
    if (handle === undefined) continue; // the proxy has just removed an old record
    for await (const chunk of handle.createReadStream()) hash.update(chunk);
    digests.set(name, hash.digest('hex'));
  }
  return digests;
}

const nameOf = (key: KeyObject): string => sha256(key.export({ type: 'spki', format: 'der' }));

/** The name of the public key in a PEM file. */
async function readKeyName(file: string): Promise<string> {
  const pem = await readFile(file);
  try {
    return nameOf(createPublicKey(pem));
  } catch {
    throw new PrivatemodeError('receipts_unreadable', `${file} holds no public key in PEM`);
  }
}
