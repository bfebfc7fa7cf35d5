/** Checks receipts: chains, signatures, and the verdicts they point to (docs/receipts.md). */
import { createHash, createPublicKey, type KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { linesOf } from '../files/line-files.ts';
import { LONGEST_PEM, readRegular } from '../files/own-files.ts';
import {
  type ChainDeps,
  type CheckedChain,
  checkChain,
  type Epoch,
  finding,
  type ReceiptCounts,
  type ReceiptFinding,
} from './check-chain.ts';
import { type ChainEnd, lineDigest, NOTHING_BEFORE } from './receipt.ts';
import { firstLine, lastLine, listReceiptFiles, type Signer, type SoundLine } from './receipt-files.ts';
import { KEY_FILES, VERDICTS } from './receipt-log.ts';

export interface ReceiptsReport extends Readonly<Omit<ReceiptCounts, 'refused'>> {
  /** Whether no finding fails. */
  readonly ok: boolean;
  /** What the signatures were checked with. `directory`: the key that lies beside the receipts, which their forger would have replaced. */
  readonly publicKey: { readonly sha256: string; readonly source: 'directory' | 'given' };
  /** Those with a signed line. */
  readonly instances: number;
  /** Not there where nothing was refused. */
  readonly refused?: ReceiptCounts['refused'];
  readonly findings: readonly ReceiptFinding[];
  /** Where there are any: verdicts under other roots than those of AMD and Intel, each with the first receipt that names it. */
  readonly customRoots?: readonly {
    readonly verdictSha256: string;
    readonly file: string;
    readonly line: number;
  }[];
}

export interface CheckOptions {
  /** A day (YYYY-MM-DD, UTC); of files of earlier days only the first and the last lines are read. */
  readonly since?: string | undefined;
  readonly publicKeyFile?: string | undefined;
  /** Whether gaps count as failures. */
  readonly strict?: boolean | undefined;
}

/** Checks the receipts of a directory. Throws receipts_unreadable. */
export async function checkReceipts(
  directory: string,
  { since, publicKeyFile, strict = false }: CheckOptions = {},
): Promise<ReceiptsReport> {
  try {
    // A key of the reader's choice may come from anywhere, such as a pipe.
    const pem = await (publicKeyFile === undefined
      ? readRegular(join(directory, KEY_FILES.public), LONGEST_PEM)
      : readFile(publicKeyFile));
    const key = readPublicKey(pem, publicKeyFile ?? KEY_FILES.public);
    const { instances, foreign } = await listReceiptFiles(directory);
    const edges: ChainEdges[] = [];
    for (const [instance, files] of instances)
      edges.push(await readEdges(directory, files, { instance, key, since, strict }));
    const ends = edges.flatMap(({ opened }) => endsNamedBy(opened));
    const named = Map.groupBy(ends, ({ instance }) => instance);
    const counts: ReceiptCounts = { lines: 0, requests: 0, refused: {} };
    const chains: Chain[] = [];
    for (const edge of edges) {
      const numbers = new Set(named.get(edge.instance)?.map(({ seq }) => seq));
      const deps = { ...edge, key, since, numbers, strict, counts };
      chains.push({ ...edge, ...(await checkChain(linesOf(directory, edge.asked), deps)) });
    }
    const { customRoots, findings: unsound } = await checkVerdicts(directory, chains);
    const findings = [
      ...chains.flatMap((chain) => [...chain.gaps, ...chain.findings]),
      ...checkEnds(ends, chains, { since, strict }),
      ...unsound,
      ...foreign.map((file) => finding(STRANGE, { file, number: 0 }, 'is no file of receipts', false)),
    ];
    // Every start of a proxy writes a line, so an empty directory has lost some, or is the wrong one.
    const isGap = since !== undefined && !strict;
    if (chains.length === 0) findings.push(finding('missing', ALL, 'there are no receipts', !isGap));
    const { lines, requests, refused } = counts;
    const der = key.export({ type: 'spki', format: 'der' });
    return {
      ok: !findings.some(({ fails }) => fails),
      publicKey: {
        sha256: createHash('sha256').update(der).digest('hex'),
        source: publicKeyFile === undefined ? 'directory' : 'given',
      },
      instances: chains.filter(({ files }) => files.size > 0).length,
      lines,
      requests,
      ...(Object.keys(refused).length === 0 ? {} : { refused }),
      findings: boundStrangers(findings),
      ...(customRoots.length === 0 ? {} : { customRoots }),
    };
  } catch (cause) {
    const { code = 'not a public key' } = cause as NodeJS.ErrnoException;
    const why = cause instanceof PrivatemodeError ? cause.message : code;
    const message = `the receipts in ${directory} cannot be read (${why})`;
    throw new PrivatemodeError('receipts_unreadable', message, { cause });
  }
}

/** The one Ed25519 public key in a PEM file; Node would take it out of a certificate, a private key, or the first of several. Throws receipts_unreadable. */
function readPublicKey(pem: Buffer, name: string): KeyObject {
  const labels = [...pem.toString('latin1').matchAll(/^-----BEGIN ([^\n-]+)-----/gm)].map(
    ([, label]) => label,
  );
  const found = labels.length === 0 ? 'nothing in PEM' : labels.join(', ');
  const isOne = labels.length === 1 && labels[0] === 'PUBLIC KEY';
  const key = isOne ? createPublicKey(pem) : undefined;
  if (key?.asymmetricKeyType === 'ed25519') return key;
  const type = key === undefined ? found : `a key of type ${key.asymmetricKeyType}`;
  throw new PrivatemodeError(
    'receipts_unreadable',
    `${name} must hold one Ed25519 PUBLIC KEY, and holds ${type}`,
  );
}

const STRANGE = 'not ours or changed';
/** The place of what concerns the directory as a whole. */
const ALL = { file: '.', number: 0 };

/** Harmless strangers that are named one by one: they must not fill the report. */
const MOST_STRANGERS = 20;

/** The findings, the harmless strangers last. */
function boundStrangers(findings: readonly ReceiptFinding[]): readonly ReceiptFinding[] {
  const isHarmless = ({ kind, fails }: ReceiptFinding): boolean => kind === STRANGE && !fails;
  const strangers = findings.filter(isHarmless);
  const bounded = [...findings.filter((each) => !isHarmless(each)), ...strangers.slice(0, MOST_STRANGERS)];
  const others = strangers.length - MOST_STRANGERS;
  if (others <= 0) return bounded;
  return [...bounded, finding(STRANGE, ALL, `${others} more files hold what is no receipt`, false)];
}

/** What the files of a chain show without being read whole. */
interface ChainEdges {
  readonly instance: string;
  /** The files that were asked for. */
  readonly asked: readonly string[];
  /** The first signed line of the chain. */
  readonly opened: SoundLine | undefined;
  /** The last one of the files that were left out. */
  readonly before: SoundLine | undefined;
  /** The first and the last lines of those, by their numbers. */
  readonly leftOut: ReadonlyMap<number, SoundLine>;
  /** What is missing between those. */
  readonly gaps: readonly ReceiptFinding[];
}

type Chain = ChainEdges & CheckedChain;

/** Reads the first and the last line of each file that is left out: whole files that are gone are missed there too. */
async function readEdges(
  directory: string,
  all: readonly string[],
  { since = '', strict, ...signer }: Signer & Pick<ChainDeps, 'since' | 'strict'>,
): Promise<ChainEdges> {
  const gaps: ReceiptFinding[] = [];
  const leftOut = new Map<number, SoundLine>();
  let before: SoundLine | undefined;
  for (const file of all.filter((each) => each < since)) {
    const first = await firstLine(directory, [file], signer);
    const last = await lastLine(directory, [file], signer);
    if (first === undefined || last === undefined) continue;
    const follows = before === undefined ? NOTHING_BEFORE : lineDigest(before.text);
    const what = before === undefined ? 'the beginning of its chain' : `what follows ${before.file}`;
    if (first.members.prev !== follows)
      gaps.push(finding('missing', first, `${what} is missing before this line`, strict));
    for (const line of [first, last]) leftOut.set(line.members.seq, line);
    before = last;
  }
  const asked = all.filter((file) => file >= since);
  const opened = leftOut.values().next().value ?? (await firstLine(directory, asked, signer));
  return { instance: signer.instance, asked, opened, before, leftOut, gaps };
}

type NamedEnd = ChainEnd & { readonly by: SoundLine };

/** The ends of chains that the first line of an instance names. */
const endsNamedBy = (opened: SoundLine | undefined): readonly NamedEnd[] =>
  opened?.members.type === 'opened' ? opened.members.found.map((end) => ({ ...end, by: opened })) : [];

/**
 * Chains and lines that an instance found when it began and that are not there any more. With `since`, those of which nothing is there
 * since then are gaps: they may have been moved away.
 */
function checkEnds(
  ends: readonly NamedEnd[],
  chains: readonly Chain[],
  { since, strict }: CheckOptions,
): ReceiptFinding[] {
  const byInstance = new Map(chains.map((chain) => [chain.instance, chain]));
  return ends.flatMap(({ instance, seq, sha256, by }): ReceiptFinding[] => {
    const chain = byInstance.get(instance);
    const fails = strict === true || since === undefined || (chain?.files.size ?? 0) > 0;
    if (chain?.opened === undefined)
      return [finding('missing', by, `names instance ${instance}, whose receipts are missing`, fails)];
    const end = chain.named.get(seq) ?? chain.leftOut.get(seq);
    if (end === undefined) {
      const isLeftOut = chain.before !== undefined && seq < chain.before.members.seq;
      const isBeforeAll = since !== undefined && seq < chain.opened.members.seq; // the chain has a gap there
      if (isLeftOut || isBeforeAll) return [];
      return [finding('missing', by, `names number ${seq} of instance ${instance}, which is missing`, fails)];
    }
    if (lineDigest(end.text) === sha256) return [];
    return [finding(STRANGE, end, `is not the line that instance ${by.members.instance} found there`)];
  });
}

/** The verdict of each epoch must be there, unchanged, accepted, and about the manifest of the receipt. */
async function checkVerdicts(directory: string, chains: readonly CheckedChain[]) {
  const findings: ReceiptFinding[] = [];
  const customRoots = new Map<string, NonNullable<ReceiptsReport['customRoots']>[number]>();
  for (const { epoch, line } of chains.flatMap(({ epochs }) => epochs)) {
    const { verdictSha256 } = epoch;
    const subject = `its verdict ${verdictSha256}`;
    const path = join(directory, VERDICTS, `${verdictSha256}.json`);
    const bytes = await readRegular(path, LONGEST_VERDICT).catch(() => undefined);
    if (bytes === undefined) {
      findings.push(finding('missing', line, `${subject} is missing`));
      continue;
    }
    const { problem, roots } = readVerdict(bytes, epoch);
    if (problem !== undefined) findings.push(finding(STRANGE, line, `${subject} ${problem}`));
    if (roots === 'custom' && !customRoots.has(verdictSha256))
      customRoots.set(verdictSha256, { verdictSha256, file: line.file, line: line.number });
  }
  return { findings, customRoots: [...customRoots.values()] };
}

/** Bytes; a verdict lists some hundred checks. */
const LONGEST_VERDICT = 16 * 1024 * 1024;

function readVerdict(
  bytes: Buffer,
  { verdictSha256, manifestSha256 }: Epoch,
): { problem?: string; roots?: unknown } {
  if (createHash('sha256').update(bytes).digest('hex') !== verdictSha256) return { problem: 'was changed' };
  const verdict = JSON.parse(bytes.toString()) as Readonly<Record<string, unknown>>;
  const { roots } = verdict;
  if (verdict['outcome'] !== 'accepted') return { problem: 'does not accept the evidence', roots };
  return verdict['manifestSha256'] === manifestSha256
    ? { roots }
    : { problem: 'is about another manifest', roots };
}
