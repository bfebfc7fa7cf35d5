/** Checks receipts: chains, signatures, and the verdicts they point to (docs/receipts.md). */
import { createHash, createPublicKey, type KeyObject } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import {
  type ChainEnd,
  isSignedBy,
  lineDigest,
  NOTHING_BEFORE,
  parseLine,
  type ReceiptLine,
  type RequestReceipt,
  receiptFiles,
} from './receipt.ts';
import { KEY_FILES, VERDICTS } from './receipt-log.ts';

/**
 * The first line of a chain that is not what it should be. `gap`: receipts may be missing, but nothing was tampered with: the proxy was killed, or
 * the disk was full.
 */
export interface ReceiptFinding {
  readonly kind: 'changed' | 'missing' | 'out of order' | 'verdict' | 'gap';
  readonly file: string;
  /** From 1, as editors count. */
  readonly line: number;
  readonly message: string;
}

export interface ReceiptsReport {
  /** Whether there is no finding but gaps. */
  readonly ok: boolean;
  readonly instances: number;
  readonly lines: number;
  /** Lines of requests. */
  readonly requests: number;
  readonly findings: readonly ReceiptFinding[];
}

interface PlacedLine {
  readonly file: string;
  readonly number: number;
  readonly text: string;
  /** False: it has no line feed, because a crash cut it off. */
  readonly complete: boolean;
}

type SoundLine = PlacedLine & { readonly members: ReceiptLine };

/** What was learned from one chain. */
interface CheckedChain {
  readonly instance: string;
  /** Whether earlier files were left out. */
  readonly continued: boolean;
  readonly first: SoundLine | undefined;
  readonly lines: number;
  readonly requests: number;
  readonly findings: readonly ReceiptFinding[];
  /** By number, of those that other chains name. */
  readonly named: ReadonlyMap<number, PlacedLine>;
  /** The first receipt of each epoch. */
  readonly epochs: readonly { readonly epoch: Epoch; readonly line: PlacedLine }[];
}

type Epoch = NonNullable<RequestReceipt['epoch']>;

/**
 * Checks the receipts of a directory. `since`: a day (YYYY-MM-DD, UTC); files of earlier days are left out. Throws
 * receipts_unreadable.
 */
export async function checkReceipts(
  directory: string,
  options: { readonly since?: string | undefined; readonly publicKeyFile?: string | undefined } = {},
): Promise<ReceiptsReport> {
  const { since = '', publicKeyFile = join(directory, KEY_FILES.public) } = options;
  try {
    const key = createPublicKey(await readFile(publicKeyFile));
    const instances = [...receiptFiles(await readdir(directory))];
    const named: ChainEnd[] = [];
    for (const [, [file = '']] of instances) named.push(...(await namedBy(directory, file)));

    const chains: CheckedChain[] = [];
    for (const [instance, all] of instances) {
      const files = all.filter((file) => file >= since);
      if (files.length === 0) continue;
      const numbers = new Set(named.filter((end) => end.instance === instance).map(({ seq }) => seq));
      const continued = files.length < all.length;
      chains.push(await checkChain(linesOf(directory, files), { instance, continued, key, numbers }));
    }
    const findings = chains.flatMap((chain) => chain.findings);
    findings.push(...checkEnds(chains, since !== ''), ...(await checkVerdicts(directory, chains)));
    const sum = (count: (chain: CheckedChain) => number): number =>
      chains.reduce((total, chain) => total + count(chain), 0);
    return {
      ok: findings.every(({ kind }) => kind === 'gap'),
      instances: chains.length,
      lines: sum(({ lines }) => lines),
      requests: sum(({ requests }) => requests),
      findings,
    };
  } catch (cause) {
    const { code = 'not a public key' } = cause as NodeJS.ErrnoException;
    const message = `the receipts in ${directory} cannot be read (${code})`;
    throw new PrivatemodeError('receipts_unreadable', message, { cause });
  }
}

/** Characters; `opened` lines grow with the number of chains they found, all others are far shorter. */
const LONGEST_LINE = 1024 * 1024;

/** The lines of receipt files, one after the other. One that is longer than any receipt has an empty text, so that it fits into memory. */
export async function* linesOf(directory: string, files: readonly string[]): AsyncGenerator<PlacedLine> {
  for (const file of files) {
    let number = 0;
    let rest = '';
    let isTooLong = false;
    for await (const chunk of createReadStream(join(directory, file), 'utf8')) {
      const texts = (rest + chunk).split('\n');
      rest = texts.pop() as string;
      for (const text of texts) {
        yield { file, number: ++number, text: isTooLong ? '' : text, complete: true };
        isTooLong = false;
      }
      if (rest.length <= LONGEST_LINE) continue;
      isTooLong = true;
      rest = '';
    }
    if (rest !== '' || isTooLong) yield { file, number: ++number, text: rest, complete: false };
  }
}

/** The ends of chains that the first line of a file names. */
async function namedBy(directory: string, file: string): Promise<readonly ChainEnd[]> {
  for await (const { text } of linesOf(directory, [file])) {
    const line = parseLine(text);
    return line?.type === 'opened' ? line.found : [];
  }
  return [];
}

interface ChainDeps {
  readonly instance: string;
  readonly continued: boolean;
  readonly key: KeyObject;
  /** Those that other chains name. */
  readonly numbers: ReadonlySet<number>;
}

/** Follows one chain up to the first line that is missing, changed or out of order; the lines behind that are only counted. */
async function checkChain(lines: AsyncIterable<PlacedLine>, deps: ChainDeps): Promise<CheckedChain> {
  const { instance, continued, numbers } = deps;
  const gaps: ReceiptFinding[] = [];
  const named = new Map<number, PlacedLine>();
  const epochs = new Map<string, CheckedChain['epochs'][number]>();
  const counted = { lines: 0, requests: 0 };
  let [first, last]: (SoundLine | undefined)[] = [];
  let broken: ReceiptFinding | undefined;
  let missed: number | undefined; // the number that belongs where the chain is broken
  let cutOff = '';

  for await (const line of lines) {
    if (!line.complete) {
      cutOff = ', and a line behind it was cut off';
      continue;
    }
    const members = parseLine(line.text);
    counted.lines += 1;
    if (members?.type === 'request') counted.requests += 1;
    if (members !== undefined && numbers.has(members.seq)) named.set(members.seq, line);
    if (broken !== undefined) {
      if (members?.seq === missed) {
        const message = `number ${missed} belongs here and stands further down`;
        broken = { ...broken, kind: 'out of order', message };
      }
      continue;
    }
    const expected = last === undefined ? (continued ? (members?.seq ?? 0) : 0) : last.members.seq + 1;
    broken = problemOf(line, members, last, expected, deps);
    if (broken?.kind === 'missing') missed = expected;
    if (broken !== undefined || members === undefined) continue;

    if (members.type === 'lost') {
      const count = members.count ?? 'an unknown number of';
      gaps.push(placed('gap', line, `${count} receipts before this line were not written`));
    }
    if (members.type === 'request' && members.epoch !== null) {
      const { verdictSha256, manifestSha256 } = members.epoch;
      const subject = `${verdictSha256} ${manifestSha256}`;
      if (!epochs.has(subject)) epochs.set(subject, { epoch: members.epoch, line });
    }
    last = { ...line, members };
    first ??= last;
  }
  if (broken === undefined && last !== undefined && last.members.type !== 'closed') {
    const why = `its instance runs still or was killed${cutOff}: receipts may be missing`;
    gaps.push(placed('gap', last, `is the last line; ${why}`));
  }
  const findings = broken === undefined ? gaps : [...gaps, broken];
  return { instance, first, continued, ...counted, findings, named, epochs: [...epochs.values()] };
}

const placed = (
  kind: ReceiptFinding['kind'],
  { file, number }: PlacedLine,
  message: string,
): ReceiptFinding => ({
  ...{ kind, file, line: number, message },
});

/** What is wrong with a line of which the lines up to `before` are sound. */
function problemOf(
  line: PlacedLine,
  members: ReceiptLine | undefined,
  before: SoundLine | undefined,
  expected: number,
  { instance, continued, key }: ChainDeps,
): ReceiptFinding | undefined {
  if (members === undefined) return placed('changed', line, 'is no receipt');
  if (!isSignedBy(line.text, key)) return placed('changed', line, 'its signature does not fit the key');
  if (members.instance !== instance)
    return placed('out of order', line, `belongs to instance ${members.instance}`);
  const { seq, prev } = members;
  if (seq > expected) return placed('missing', line, `number ${expected} is missing before this line`);
  if (seq < expected)
    return placed('out of order', line, `number ${seq} stands where number ${expected} belongs`);
  if (before === undefined && continued) return undefined;
  const follows = before === undefined ? NOTHING_BEFORE : lineDigest(before.text);
  if (prev === follows) return undefined;
  // This line is signed: it is the one before that is not what it was.
  return placed('changed', before ?? line, 'is not the line that the next one follows');
}

/** Chains and lines that an instance found when it began and that are not there any more. */
function checkEnds(chains: readonly CheckedChain[], partial: boolean): ReceiptFinding[] {
  return chains.flatMap(({ first }) => {
    const opened = first?.members;
    if (first === undefined || opened?.type !== 'opened') return [];
    return opened.found.flatMap(({ instance, seq, sha256 }): ReceiptFinding[] => {
      const chain = chains.find((other) => other.instance === instance);
      if (chain === undefined && partial) return [];
      const here = { file: first.file, line: first.number };
      if (chain === undefined) {
        return [
          { kind: 'missing', ...here, message: `names instance ${instance}, whose receipts are missing` },
        ];
      }
      const end = chain.named.get(seq);
      if (end === undefined && chain.continued) return [];
      if (end === undefined) {
        const message = `names number ${seq} of instance ${instance}, which is missing`;
        return [{ kind: 'missing', ...here, message }];
      }
      if (lineDigest(end.text) === sha256) return [];
      const message = `is not the line that instance ${opened.instance} found there`;
      return [{ kind: 'changed', file: end.file, line: end.number, message }];
    });
  });
}

/** The verdict of each epoch must be there, unchanged, accepted, and about the manifest of the receipt. */
async function checkVerdicts(directory: string, chains: readonly CheckedChain[]): Promise<ReceiptFinding[]> {
  const findings: ReceiptFinding[] = [];
  for (const { epoch, line } of chains.flatMap(({ epochs }) => epochs)) {
    const problem = await verdictProblem(join(directory, VERDICTS, `${epoch.verdictSha256}.json`), epoch);
    if (problem === undefined) continue;
    const message = `its verdict ${epoch.verdictSha256} ${problem}`;
    findings.push({ kind: 'verdict', file: line.file, line: line.number, message });
  }
  return findings;
}

async function verdictProblem(path: string, epoch: Epoch): Promise<string | undefined> {
  const bytes = await readFile(path).catch(() => undefined);
  if (bytes === undefined) return 'is missing';
  if (createHash('sha256').update(bytes).digest('hex') !== epoch.verdictSha256) return 'was changed';
  const verdict = JSON.parse(bytes.toString()) as { outcome?: unknown; manifestSha256?: unknown };
  if (verdict.outcome !== 'accepted') return 'does not accept the evidence';
  return verdict.manifestSha256 === epoch.manifestSha256 ? undefined : 'is about another manifest';
}
