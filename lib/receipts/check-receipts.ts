/** Checks receipts offline: their signatures, chains, manifests and records (docs/receipts.md). */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { linesOf, openToRead, unless } from '../files/durable-file.ts';
import * as receipts from './receipt.ts';
import { MOST_RECORDS } from './receipt-log.ts';

export type ReceiptsReport = Awaited<ReturnType<typeof checkReceipts>>;

export type CheckOptions = Readonly<{ since?: string; publicKeyFiles?: readonly string[]; strict?: boolean }>;

/** A line of a file. Editors count lines from 1, and so does `line`. The number 0 means the whole file. */
type Place = Readonly<{ file: string; line: number }>;

/** The chain of one instance, as far as it was checked. `digest` is the SHA-256 of the last line `last`. */
type Chain = Readonly<{ key: KeyObject; at: Place; last: receipts.ReceiptLine; digest: string }>;

/**
 * Checks the receipts of a directory, in the files from the day `since` on (YYYY-MM-DD, UTC). With
 * `publicKeyFiles` (PEM), only chains of these keys are accepted. Without `publicKeyFiles`, the key in each
 * chain is used. With `strict`, gaps are failures. Resolves with the findings. `ok`: no finding is a failure.
 * `publicKeys`: the SHA-256 of each signing key's SubjectPublicKeyInfo. `lines`: the number of signed lines.
 * `hasCustomRoots`: roots other than those of AMD and Intel were trusted. Throws receipts_unreadable.
 */
export const checkReceipts = (directory: string, options: CheckOptions = {}) =>
  check(directory, options).catch((cause: unknown): never => {
    throw receipts.receiptsUnreadable(directory, cause);
  });

async function check(directory: string, { since = '', publicKeyFiles = [], strict = false }: CheckOptions) {
  const findings: (Place & Readonly<{ message: string; fails: boolean }>)[] = [];
  const fail = (at: Place, message: string): void => void findings.push({ ...at, message, fails: true });
  /** Notes a gap. Tampering causes gaps, but so does a killed proxy, a full disk, or a missing file. */
  const gap = (at: Place, message: string): void => void findings.push({ ...at, message, fails: strict });
  const given = new Set(await Promise.all(publicKeyFiles.map(readKeyName)));
  /** File → the public key that its first line names, if this public key is accepted. */
  const keys = new Map<string, KeyObject>();
  /** Digest → the line of another file that a first line names. Lines that are found are removed. */
  const named = new Map<string, { readonly file: string; readonly by: Place }>();
  const chains = new Map<string, Chain>();
  /** Digest of a manifest or a record → the first line that refers to the manifest or the record. */
  const [manifests, records] = [new Map<string, Place>(), new Map<string, Place>()];
  let [lines, requests, hasCustomRoots] = [0, 0, false];

  const files = (await receipts.receiptFiles(directory)).filter((file) => file >= since);
  for (const file of files) await readFirst(file);
  for (const file of files) await readAll(file);
  await checkReferences();
  for (const { at, last } of chains.values())
    if (last.type !== 'closed')
      gap(at, 'is the last line: its instance runs still or was killed; receipts may be missing');
  for (const { file, by } of named.values())
    if (file >= since) fail(by, `names a line of ${file} that is missing`);
  if (lines === 0) (since === '' ? fail : gap)({ file: '.', line: 0 }, 'there are no receipts');
  const publicKeys = [...new Set(Array.from(chains.values(), ({ key }) => nameOf(key)))];
  const ok = !findings.some(({ fails }) => fails);
  return { ok, publicKeys, instances: chains.size, lines, requests, findings, hasCustomRoots };

  async function readFirst(file: string): Promise<void> {
    const first = await receipts.readFirstLine(join(directory, file));
    if (first === undefined)
      return gap({ file, line: 0 }, 'has no whole line: its instance was killed, or the disk was full');
    const at = { file, line: 1 };
    const { signer, found } = first;
    if (signer === undefined)
      return fail(
        at,
        'is not signed with the key that it names: was the beginning of the file moved away while the proxy ran?',
      );
    const name = nameOf(signer);
    if (given.size > 0 && !given.has(name)) return fail(at, `names the key ${name}, which was not given`);
    keys.set(file, signer);
    for (const [other, digest] of Object.entries(found)) named.set(digest, { file: other, by: at });
  }

  async function readAll(file: string): Promise<void> {
    const instance = receipts.instanceOf(file);
    const key = chains.get(instance)?.key ?? keys.get(file);
    if (key === undefined) return; // readFirst has reported the reason
    const epochs = new Set<string>(); // each file names the epochs of its requests
    let isSound = true;
    for await (const { number, text, isWhole } of linesOf(join(directory, file))) {
      const at = { file, line: number };
      if (!isWhole) return gap(at, 'is cut off: its instance was killed, or the disk was full');
      const digest = receipts.sha256(text);
      if (named.get(digest)?.file === file) named.delete(digest); // a copy in another file proves nothing
      const line = receipts.readLine(text, key);
      const { last, digest: before } = chains.get(instance) ?? {};
      const follows = last ? line?.prev === before && line?.seq === last.seq + 1 : number === 1;
      // After the first flaw of a file, flaws that are only its consequence are not reported.
      if (line?.instance !== instance) {
        if (isSound) fail(at, 'is not signed by its instance with the key of its chain');
        isSound = false;
        continue;
      }
      const isInItsDay = line.time.slice(0, 10) <= file; // --since would miss a line in an older file
      if (isSound && !follows)
        fail(at, 'does not follow the line before: a line is missing, changed or moved');
      else if (isSound && !isInItsDay) fail(at, `is of ${line.time}, after the day of its file`);
      isSound &&= follows && isInItsDay;
      chains.set(instance, { key, at, last: line, digest });
      lines++;
      if (line.type === 'lost') gap(at, `${line.count} receipts before it were not written`);
      if (line.type === 'epoch') {
        epochs.add(line.secretId);
        hasCustomRoots ||= line.roots === 'custom';
        manifests.set(line.manifestSha256, manifests.get(line.manifestSha256) ?? at);
        if (line.record !== null) records.set(line.record, records.get(line.record) ?? at);
      }
      if (line.type !== 'request') continue;
      requests++;
      if (line.secretId !== null && !epochs.has(line.secretId))
        fail(at, 'was sent under an epoch that no line before it names');
    }
  }

  /** Runs last, because the proxy stores manifests and records before the lines that refer to them. */
  async function checkReferences(): Promise<void> {
    const logged = new Set((await digestsIn(join(dirname(resolve(directory)), 'manifests'))).values());
    for (const [digest, at] of manifests)
      if (!logged.has(digest)) fail(at, `its manifest ${digest} is not in manifests`);
    const kept = await digestsIn(join(directory, 'records'));
    const isPruned = [...kept].filter(([name, digest]) => name === `${digest}.json`).length >= MOST_RECORDS;
    for (const [digest, at] of records) {
      const found = kept.get(`${digest}.json`);
      if (found === undefined && !isPruned) gap(at, `its record ${digest} is missing`);
      if (found !== undefined && found !== digest) fail(at, `its record ${digest} was changed`);
    }
  }
}

/** The most bytes of a manifest or a record that is read. */
const LONGEST = 64 * 1024 * 1024;

/** Name of each JSON file in a directory → its SHA-256. Empty if the directory does not exist. */
async function digestsIn(directory: string): Promise<Map<string, string>> {
  const digests = new Map<string, string>();
  for (const name of (await unless('ENOENT', readdir(directory))) ?? []) {
    if (!name.endsWith('.json')) continue;
    await using file = await unless('ENOENT', openToRead(join(directory, name))); // old records are removed
    const found = await file?.stat();
    if (found?.isFile() && found.size <= LONGEST) digests.set(name, receipts.sha256(await file!.readFile()));
  }
  return digests;
}

const nameOf = (key: KeyObject): string => receipts.sha256(key.export({ type: 'spki', format: 'der' }));

async function readKeyName(file: string): Promise<string> {
  const pem = await readFile(file);
  try {
    return nameOf(createPublicKey(pem));
  } catch {
    throw new PrivatemodeError('receipts_unreadable', `${file} holds no public key in PEM`);
  }
}
