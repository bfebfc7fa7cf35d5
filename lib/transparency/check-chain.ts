/** Follows the chain of one instance: a first pass finds the signed lines of its files, a second one checks that they follow each other. */
import type { PlacedLine } from '../files/line-files.ts';
import {
  lineDigest,
  NOTHING_BEFORE,
  notedAt,
  type ReceiptLine,
  type RequestReceipt,
  readLine,
} from './receipt.ts';
import { readFileName, type Signer, type SoundLine } from './receipt-files.ts';

export interface ReceiptFinding {
  /** `not ours or changed`: the key has not signed the line, or it is not the one that another line names. */
  readonly kind: 'missing' | 'not ours or changed' | 'out of order';
  readonly file: string;
  /** From 1, as editors count; 0: the file as a whole. */
  readonly line: number;
  readonly message: string;
  /**
   * Whether the check fails because of it. A line that is not ours does no harm where no line of a chain is missing. A gap does none, unless
   * the check is strict, if it needs no tampering: the proxy was killed, the disk was full, or days were left out.
   */
  readonly fails: boolean;
}

export const finding = (
  kind: ReceiptFinding['kind'],
  { file, number }: Pick<PlacedLine, 'file' | 'number'>,
  message: string,
  fails = true,
): ReceiptFinding => ({ kind, file, line: number, message, fails });

export type Epoch = NonNullable<RequestReceipt['epoch']>;

/** What is counted over all chains. */
export interface ReceiptCounts {
  /** Signed or not. */
  lines: number;
  requests: number;
  /** By code, how many requests were refused and only counted. */
  readonly refused: Record<string, number>;
}

export interface ChainDeps extends Signer {
  /** The last signed line of the days that were left out. */
  readonly before: SoundLine | undefined;
  /** The day from which on lines were asked for, where days may be missing before it. */
  readonly since: string | undefined;
  /** Numbers of the lines that other chains name. */
  readonly numbers: ReadonlySet<number>;
  /** Whether gaps fail. */
  readonly strict: boolean;
  /** Added to. */
  readonly counts: ReceiptCounts;
}

/** What was learned from one chain. */
export interface CheckedChain extends Pick<SeenLines, 'files' | 'named'> {
  readonly findings: readonly ReceiptFinding[];
  /** The first receipt of each epoch. */
  readonly epochs: readonly { readonly epoch: Epoch; readonly line: PlacedLine }[];
}

/** Follows one chain up to the first line that is missing, changed or out of order; the lines behind that are only counted. */
export async function checkChain(lines: AsyncIterable<PlacedLine>, deps: ChainDeps): Promise<CheckedChain> {
  const seen: SeenLines = { files: new Map(), named: new Map(), stranger: undefined };
  const findings: ReceiptFinding[] = [];
  const strangers = new Map<string, ReceiptFinding>(); // by file, the first that does no harm
  const epochs = new Map<string, CheckedChain['epochs'][number]>();
  let last = deps.before;
  let broken: ReceiptFinding | undefined;

  function noteGap(line: PlacedLine, message: string): void {
    findings.push(finding('missing', line, message, deps.strict));
  }
  function noteStranger(stranger: Stranger | undefined): void {
    if (stranger === undefined || strangers.has(stranger.file)) return;
    strangers.set(stranger.file, ofStranger(stranger, false));
  }

  for await (const { line, stranger } of signedLines(lines, deps, seen)) {
    const { members } = line;
    const expected = numberAfter(last);
    if (broken?.kind === 'missing' && members.seq === expected) {
      const message = `number ${expected} belongs here and stands further down`;
      broken = { ...broken, kind: 'out of order', message };
    }
    broken ??= breakBefore(line, stranger, last, deps);
    if (broken !== undefined) continue;
    noteStranger(stranger);
    if (members.seq > expected) {
      const numbers = `numbers ${expected} to ${members.seq - 1}`;
      noteGap(line, `${numbers} are missing before this line: of days that were left out`);
    }
    if (members.type === 'lost')
      noteGap(line, `${members.count ?? 'an unknown number of'} receipts before this line were not written`);
    if (members.type === 'request' && members.epoch !== null) {
      const { verdictSha256, manifestSha256 } = members.epoch;
      const subject = `${verdictSha256} ${manifestSha256}`;
      if (!epochs.has(subject)) epochs.set(subject, { epoch: members.epoch, line });
    }
    last = line;
  }

  const { stranger } = seen;
  const isOpen = last?.members.type !== 'closed';
  const isTorn = isOpen && stranger?.complete === false;
  if (isOpen && stranger?.claims) broken ??= ofStranger(stranger, true);
  if (broken !== undefined) findings.push(broken);
  else if (!isTorn) noteStranger(stranger);
  if (broken === undefined && isOpen && last !== undefined && last !== deps.before) {
    const why = `its instance runs still or was killed${isTorn ? ', and a line behind it was cut off' : ''}`;
    noteGap(last, `is the last line; ${why}: receipts may be missing`);
  }
  findings.push(...wrongDays(seen), ...strangers.values());
  return { ...seen, findings, epochs: [...epochs.values()] };
}

/** A line that the key has not signed. `claims`: it says that it is the next one of the chain, as one that was changed does. */
type Stranger = PlacedLine & { readonly why: string; readonly claims: boolean };

const ofStranger = (stranger: Stranger, fails: boolean): ReceiptFinding =>
  finding('not ours or changed', stranger, stranger.why, fails);

/** What the first pass learns, whatever the order of the lines. */
interface SeenLines {
  /** By file of the chain: its first signed line, and when the latest of them was noted. */
  readonly files: Map<string, { readonly first: SoundLine; readonly latest: number }>;
  /** By number, the lines that other chains name. */
  readonly named: Map<number, PlacedLine>;
  /** Since the last signed line: the first that claims its place, or else the first. */
  stranger: Stranger | undefined;
}

/** First pass: the signed lines, each with the stranger between it and the signed one before. Fills `seen` and adds to `counts`. */
async function* signedLines(lines: AsyncIterable<PlacedLine>, deps: ChainDeps, seen: SeenLines) {
  const { instance, key, before, since, numbers, counts } = deps;
  let next = before === undefined && since !== undefined ? undefined : numberAfter(before); // undefined: any
  for await (const line of lines) {
    if (line.complete) counts.lines += 1;
    const members = line.complete ? readLine(line.text, key) : 'is cut off';
    if (typeof members === 'string') {
      const claims = line.complete && claimsPlace(line.text, instance, next);
      if (seen.stranger === undefined || (claims && !seen.stranger.claims))
        seen.stranger = { ...line, why: members, claims };
      continue;
    }
    const signed: SoundLine = { ...line, members };
    if (members.type === 'request') counts.requests += 1;
    for (const { code, count } of members.type === 'refused' ? members.counts : [])
      counts.refused[code ?? 'unknown'] = (counts.refused[code ?? 'unknown'] ?? 0) + count;
    if (members.instance === instance) {
      next = members.seq + 1;
      if (numbers.has(members.seq)) seen.named.set(members.seq, line);
      const { first, latest } = seen.files.get(line.file) ?? { first: signed, latest: 0 };
      seen.files.set(line.file, { first, latest: Math.max(latest, notedAt(members)) });
    }
    yield { line: signed, stranger: seen.stranger };
    seen.stranger = undefined;
  }
}

/** Whether a line that is not signed says that it is this number of the chain. */
function claimsPlace(text: string, instance: string, seq: number | undefined): boolean {
  try {
    const members = JSON.parse(text) as Partial<ReceiptLine> | null;
    return members?.instance === instance && (seq === undefined || members.seq === seq);
  } catch {
    return false;
  }
}

const numberAfter = (last: SoundLine | undefined): number => (last === undefined ? 0 : last.members.seq + 1);

/** Second pass: what breaks the chain between `last`, its last line, and the next signed one. */
function breakBefore(
  line: SoundLine,
  stranger: Stranger | undefined,
  last: SoundLine | undefined,
  deps: ChainDeps,
): ReceiptFinding | undefined {
  const { instance, seq, prev, time } = line.members;
  const expected = numberAfter(last);
  if (instance !== deps.instance) return finding('out of order', line, `belongs to instance ${instance}`);
  if (seq < expected)
    return finding('out of order', line, `number ${seq} stands where number ${expected} belongs`);
  if (seq > expected) {
    const isLeftOut = last === deps.before && isBeforePeriod(line.file, deps);
    if (stranger?.claims || (stranger && !isLeftOut)) return ofStranger(stranger, true);
    if (!isLeftOut) return finding('missing', line, `number ${expected} is missing before this line`);
  } else if (prev !== (last === undefined ? NOTHING_BEFORE : lineDigest(last.text))) {
    // This line is signed: it is the one before that is not what it was.
    return finding('not ours or changed', last ?? line, 'is not the line that the next one follows');
  }
  if (notedAt(line.members) < startOfDay(line.file) + DAY_MS) return undefined;
  return finding('out of order', line, `is of ${time}, after the day that the name of its file says`);
}

/** Whether what is missing before the first line of this file can be from the days before `since`, which nobody asked for. */
const isBeforePeriod = (file: string, { before, since }: ChainDeps): boolean =>
  since !== undefined && (before === undefined || readFileName(file)?.day === since);

const DAY_MS = 86_400_000;
/** ms that a line may wait for its writer. */
const LONGEST_WAIT = 60_000;

const startOfDay = (file: string): number => Date.parse(readFileName(file)?.day ?? '');

/**
 * Files that have the name of a later day than their lines. A line stands in the file of the day (UTC) on which it was written. That is the
 * day on which it was noted, or a later one if it waited over midnight: then lines of that day follow, or it waited less than a minute.
 */
const wrongDays = ({ files }: SeenLines): readonly ReceiptFinding[] =>
  Array.from(files.values())
    .filter(({ first, latest }) => latest < startOfDay(first.file) - LONGEST_WAIT)
    .map(({ first }) => {
      const why = 'and no line of its file is of the day that the name says';
      return finding('out of order', first, `is of ${first.members.time}, ${why}`);
    });
