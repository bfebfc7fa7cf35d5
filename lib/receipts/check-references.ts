/**
 * Checks what receipts refer to: the verdicts and the exchanges beside them, and the manifests in the log of
 * the workspace. A file that this user may not read is no finding: the checks throw the error of the file
 * system.
 */
import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { ifThere, readRegular, readTree } from '../files/own-files.ts';
import { MANIFEST_NAME } from '../manifest-log/manifest-log.ts';
import { type CheckedChain, finding, type ReceiptFinding } from './check-chain.ts';
import type { ReceiptEpoch } from './receipt.ts';
import { EXCHANGES, VERDICTS } from './verdict-store.ts';

/** A verdict under other roots than those of AMD and Intel, with the first receipt that names it. */
export interface CustomRoots {
  readonly verdictSha256: string;
  readonly file: string;
  readonly line: number;
}

/** The verdict of each epoch must be there, unchanged, accepted, and about the manifest of the receipt. */
export async function checkVerdicts(directory: string, chains: readonly CheckedChain[]) {
  const findings: ReceiptFinding[] = [];
  const customRoots = new Map<string, CustomRoots>();
  for (const { epoch, line } of chains.flatMap(({ epochs }) => epochs)) {
    const { verdictSha256 } = epoch;
    const subject = `its verdict ${verdictSha256}`;
    const path = join(directory, VERDICTS, `${verdictSha256}.json`);
    const bytes = await ifThere(readRegular(path, LONGEST_FILE));
    if (bytes === undefined) {
      findings.push(finding('missing', line, `${subject} is missing`));
      continue;
    }
    const { problem, roots } = readVerdict(bytes, epoch);
    if (problem !== undefined) findings.push(finding('not ours or changed', line, `${subject} ${problem}`));
    if (roots === 'custom' && !customRoots.has(verdictSha256))
      customRoots.set(verdictSha256, { verdictSha256, file: line.file, line: line.number });
  }
  return { findings, customRoots: [...customRoots.values()] };
}

/**
 * Bytes that a verdict, a manifest or a file of an exchange may have: far more than honest ones have. The
 * evidence is stored in base64 beside its nonce, and may be a little longer than its response of 16 MiB was.
 */
const LONGEST_FILE = 17 * 1024 * 1024;

function readVerdict(
  bytes: Buffer,
  { verdictSha256, manifestSha256 }: ReceiptEpoch,
): { problem?: string; roots?: unknown } {
  if (createHash('sha256').update(bytes).digest('hex') !== verdictSha256) return { problem: 'was changed' };
  const verdict = JSON.parse(bytes.toString()) as Readonly<Record<string, unknown>>;
  const { roots } = verdict;
  if (verdict['outcome'] !== 'accepted') return { problem: 'does not accept the evidence', roots };
  return verdict['manifestSha256'] === manifestSha256
    ? { roots }
    : { problem: 'is about another manifest', roots };
}

/**
 * The manifest of each epoch must lie, byte for byte, in the directory of manifests beside the receipts. The
 * log.txt there does not count, because it may have been rotated. If the directory is missing, as in a copy
 * of the receipts alone, that is a gap.
 */
export async function checkManifests(
  directory: string,
  chains: readonly CheckedChain[],
  strict: boolean,
): Promise<readonly ReceiptFinding[]> {
  const epochs = chains.flatMap((chain) => chain.epochs);
  if (epochs.length === 0) return [];
  const manifests = join(dirname(resolve(directory)), MANIFESTS);
  const names = await ifThere(readdir(manifests));
  if (names === undefined) {
    const message = `their manifests cannot be compared: there is no directory ${MANIFESTS} beside them`;
    return [finding('missing', { file: '.', number: 0 }, message, strict)];
  }
  const kept = new Set<string>();
  for (const name of names.filter((name) => MANIFEST_NAME.test(name))) {
    const bytes = await ifThere(readRegular(join(manifests, name), LONGEST_FILE));
    if (bytes !== undefined) kept.add(createHash('sha256').update(bytes).digest('hex'));
  }
  const first = new Map(epochs.toReversed().map(({ epoch, line }) => [epoch.manifestSha256, line]));
  return Array.from(first)
    .filter(([sha256]) => !kept.has(sha256))
    .map(([sha256, line]) =>
      finding('missing', line, `its manifest ${sha256} is not in ${MANIFESTS} beside the receipts`),
    );
}

/** Name of the directory of the manifest log (lib/manifest-log/manifest-log.ts), in the workspace. */
const MANIFESTS = 'manifests';

/** All files of an exchange that receipts name must be unchanged, if the exchange is still kept. */
export async function checkExchanges(
  directory: string,
  chains: readonly CheckedChain[],
): Promise<readonly ReceiptFinding[]> {
  const findings: ReceiptFinding[] = [];
  for (const { epoch, line } of chains.flatMap(({ epochs }) => epochs)) {
    const { exchangeSha256: sha256 = '' } = epoch;
    if (!/^[0-9a-f]{64}$/.test(sha256)) continue;
    const kept = await ifThere(readTree(join(directory, EXCHANGES, sha256), LONGEST_FILE), {});
    const records = Object.values<Uint8Array>(kept ?? {}).map((text) =>
      createHash('sha256').update(text).digest('hex'),
    );
    if (kept !== undefined && records.join() !== sha256)
      findings.push(finding('not ours or changed', line, `its exchange ${sha256} was changed`));
  }
  return findings;
}
