/** Checks receipts: chains, signatures, and the verdicts they point to (docs/receipts.md). */
import { createHash, createPublicKey } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { type CheckedChain, checkChain, type Epoch, placed, type ReceiptFinding } from './check-chain.ts';
import { linesOf } from './line-files.ts';
import { LONGEST_PEM, readRegular } from './own-files.ts';
import { type ChainEnd, lineDigest, NOTHING_BEFORE } from './receipt.ts';
import { firstLine, lastLine, listReceiptFiles, type Signer, type SoundLine } from './receipt-files.ts';
import { KEY_FILES, VERDICTS } from './receipt-log.ts';

export interface ReceiptsReport {
  /** Whether there is no finding but junk and, unless they count, gaps. */
  readonly ok: boolean;
  readonly instances: number;
  readonly lines: number;
  /** Lines of requests. */
  readonly requests: number;
  /** By code, how many requests were refused and only counted; not there where none was. */
  readonly refused?: Readonly<Record<string, number>>;
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
    const key = createPublicKey(pem);
    const { instances, foreign } = await listReceiptFiles(directory);
    const edges: ChainEdges[] = [];
    for (const [instance, files] of instances)
      edges.push(await readEdges(directory, files, { instance, key, since }));
    const ends = edges.flatMap(({ opened }) => endsNamedBy(opened));
    const named = Map.groupBy(ends, ({ instance }) => instance);
    const chains: Chain[] = [];
    for (const edge of edges) {
      const { instance, before, files } = edge;
      const numbers = new Set(named.get(instance)?.map(({ seq }) => seq));
      const checked = await checkChain(linesOf(directory, files), { instance, key, before, since, numbers });
      chains.push({ ...edge, ...checked, findings: [...edge.gaps, ...checked.findings] });
    }
    const { customRoots, findings: unsound } = await checkVerdicts(directory, chains);
    const findings = [
      ...chains.flatMap((chain) => chain.findings),
      ...checkEnds(ends, chains, since),
      ...unsound,
      ...foreign.map((file) => placed('junk', { file, number: 0 }, 'is no file of receipts')),
    ];
    const isChain = ({ first, findings: found }: CheckedChain): boolean =>
      first !== undefined || found.some(({ kind }) => kind === 'changed');
    const sum = (count: (chain: CheckedChain) => number): number =>
      chains.reduce((total, chain) => total + count(chain), 0);
    const refused = sumRefused(chains);
    if (chains.length === 0) {
      // Every start of a proxy writes a line, so an empty directory has lost some, or is the wrong one.
      const kind = since === undefined ? 'missing' : 'gap';
      findings.push(placed(kind, { file: '.', number: 0 }, 'there are no receipts'));
    }
    return {
      ok: findings.every(({ kind }) => kind === 'junk' || (kind === 'gap' && !strict)),
      instances: chains.filter(isChain).length, // a file without a line of its own may have any name
      lines: sum(({ lines }) => lines),
      requests: sum(({ requests }) => requests),
      ...(refused === undefined ? {} : { refused }),
      findings: [...findings.filter(({ kind }) => kind !== 'junk'), ...boundedJunk(findings)],
      ...(customRoots.length === 0 ? {} : { customRoots }),
    };
  } catch (cause) {
    const { code = 'not a public key' } = cause as NodeJS.ErrnoException;
    const why = cause instanceof PrivatemodeError ? cause.message : code;
    const message = `the receipts in ${directory} cannot be read (${why})`;
    throw new PrivatemodeError('receipts_unreadable', message, { cause });
  }
}

/** Findings of junk that are named one by one. */
const MOST_JUNK = 20;

/** Strangers' files must not fill the report. */
function boundedJunk(findings: readonly ReceiptFinding[]): readonly ReceiptFinding[] {
  const junk = findings.filter(({ kind }) => kind === 'junk');
  const [next, ...others] = junk.slice(MOST_JUNK);
  if (next === undefined || others.length === 0) return junk;
  const message = `${next.message}; ${others.length} more files hold what is no receipt`;
  return [...junk.slice(0, MOST_JUNK), { ...next, message }];
}

/** By code; undefined where nothing was refused. */
function sumRefused(chains: readonly CheckedChain[]): Readonly<Record<string, number>> | undefined {
  const sums: Record<string, number> = {};
  for (const { code, count } of chains.flatMap(({ refused }) => refused))
    sums[code ?? 'unknown'] = (sums[code ?? 'unknown'] ?? 0) + count;
  return Object.keys(sums).length === 0 ? undefined : sums;
}

/** What the files of a chain show without being read whole. */
interface ChainEdges {
  readonly instance: string;
  /** The files that were asked for. */
  readonly files: readonly string[];
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
  { since = '', ...signer }: Signer & { readonly since: string | undefined },
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
      gaps.push(placed('gap', first, `${what} is missing before this line`));
    for (const line of [first, last]) leftOut.set(line.members.seq, line);
    before = last;
  }
  const files = all.filter((file) => file >= since);
  const opened = leftOut.values().next().value ?? (await firstLine(directory, files, signer));
  return { instance: signer.instance, files, opened, before, leftOut, gaps };
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
  since: string | undefined,
): ReceiptFinding[] {
  const byInstance = new Map(chains.map((chain) => [chain.instance, chain]));
  return ends.flatMap(({ instance, seq, sha256, by }): ReceiptFinding[] => {
    const chain = byInstance.get(instance);
    const kind = since !== undefined && chain?.first === undefined ? 'gap' : 'missing';
    if (chain?.opened === undefined)
      return [placed(kind, by, `names instance ${instance}, whose receipts are missing`)];
    const end = chain.named.get(seq) ?? chain.leftOut.get(seq);
    if (end === undefined) {
      const isLeftOut = chain.before !== undefined && seq < chain.before.members.seq;
      const isBeforeAll = since !== undefined && seq < chain.opened.members.seq; // the chain has a gap there
      if (isLeftOut || isBeforeAll) return [];
      return [placed(kind, by, `names number ${seq} of instance ${instance}, which is missing`)];
    }
    if (lineDigest(end.text) === sha256) return [];
    return [placed('changed', end, `is not the line that instance ${by.members.instance} found there`)];
  });
}

/** The verdict of each epoch must be there, unchanged, accepted, and about the manifest of the receipt. */
async function checkVerdicts(directory: string, chains: readonly CheckedChain[]) {
  const findings: ReceiptFinding[] = [];
  const customRoots = new Map<string, NonNullable<ReceiptsReport['customRoots']>[number]>();
  for (const { epoch, line } of chains.flatMap(({ epochs }) => epochs)) {
    const { verdictSha256 } = epoch;
    const place = { file: line.file, line: line.number };
    const { problem, roots } = await readVerdict(join(directory, VERDICTS, `${verdictSha256}.json`), epoch);
    if (roots === 'custom' && !customRoots.has(verdictSha256))
      customRoots.set(verdictSha256, { verdictSha256, ...place });
    if (problem === undefined) continue;
    findings.push({ kind: 'verdict', ...place, message: `its verdict ${verdictSha256} ${problem}` });
  }
  return { findings, customRoots: [...customRoots.values()] };
}

/** Bytes; a verdict lists some hundred checks. */
const LONGEST_VERDICT = 16 * 1024 * 1024;

async function readVerdict(path: string, epoch: Epoch): Promise<{ problem?: string; roots?: unknown }> {
  const bytes = await readRegular(path, LONGEST_VERDICT).catch(() => undefined);
  if (bytes === undefined) return { problem: 'is missing' };
  if (createHash('sha256').update(bytes).digest('hex') !== epoch.verdictSha256)
    return { problem: 'was changed' };
  const verdict = JSON.parse(bytes.toString()) as Readonly<Record<string, unknown>>;
  const { outcome, manifestSha256, roots } = verdict;
  if (outcome !== 'accepted') return { problem: 'does not accept the evidence', roots };
  return manifestSha256 === epoch.manifestSha256
    ? { roots }
    : { problem: 'is about another manifest', roots };
}
