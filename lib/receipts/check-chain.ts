/**
 * Checks the chain of one instance. A first pass finds the signed lines of its files, a second one checks
 * that they follow each other.
 */
import type { PlacedLine } from '../files/line-files.ts';
import {
  lineDigest,
  NOTHING_BEFORE,
  notedAt,
  type ReceiptEpoch,
  type ReceiptLine,
  readLine,
} from './receipt.ts';
import { readFileName, type Signer, type SoundLine } from './receipt-files.ts';

export interface ReceiptFinding {
  /**
   * `not ours or changed`: the key has not signed the line, or another line names a different one in its
   * place.
   */
  readonly kind: 'missing' | 'not ours or changed' | 'out of order';
  readonly file: string;
  /** From 1, as editors count; 0: the file as a whole. */
  readonly line: number;
  readonly message: string;
  /**
   * Whether this finding makes the check fail. Lines that the key has not signed do not, as long as the chain
   * is complete. A gap, and a file named for a later day than its lines, fail only a strict check, because
   * they also arise without tampering: the proxy was killed, the disk was full, days were left out.
   */
  readonly fails: boolean;
}

export const finding = (
  kind: ReceiptFinding['kind'],
  { file, number }: Pick<PlacedLine, 'file' | 'number'>,
  message: string,
  fails = true,
): ReceiptFinding => ({ kind, file, line: number, message, fails });

/** What is counted over all chains. */
export interface ReceiptCounts {
  /** All complete lines, signed or not. */
  lines: number;
  requests: number;
  /** By code, how many requests were refused and only counted. */
  readonly refused: Record<string, number>;
}

export interface ChainDeps extends Signer {
  /** The name of the key that the chain names as its own, if that key is none of those that count. */
  readonly unknownKey: string | undefined;
  /** The last signed line of the days that were left out. */
  readonly before: SoundLine | undefined;
  /**
   * The first day that was asked for (YYYY-MM-DD, UTC). Days before it may be missing. Undefined: all days.
   */
  readonly since: string | undefined;
  /** Numbers of the lines of this chain that other chains name. */
  readonly numbers: ReadonlySet<number>;
  /** Whether gaps make the check fail. */
  readonly strict: boolean;
  /** The check adds to these counts. */
  readonly counts: ReceiptCounts;
}

/** What the check of one chain found. */
export interface CheckedChain extends Pick<SeenLines, 'files' | 'named'> {
  readonly findings: readonly ReceiptFinding[];
  /** The first receipt of each epoch. */
  readonly epochs: readonly { readonly epoch: ReceiptEpoch; readonly line: PlacedLine }[];
}

/**
 * Follows one chain up to the first line that is missing, changed or out of order. It only counts the lines
 * behind that.
 */
export async function checkChain(lines: AsyncIterable<PlacedLine>, deps: ChainDeps): Promise<CheckedChain> {
  const seen: SeenLines = { files: new Map(), named: new Map(), stranger: undefined };
  const findings: ReceiptFinding[] = [];
  const strangers = new Map<string, ReceiptFinding>(); // of each file, the first that does no harm
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
    if (members.type === 'lost') noteGap(line, `${members.count} receipts before this line were not written`);
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
  const isLeftOut = last === deps.before;
  // If a later instance names this line as the end, nothing is missing. If it names a later line, checkEnds
  // reports that line as missing.
  const isEndKnown = isLeftOut && [...deps.numbers].some((seq) => seq >= (last?.members.seq ?? 0));
  if (broken === undefined && isOpen && last !== undefined && !isEndKnown) {
    const why = `its instance runs still or was killed${isTorn ? ', and a line behind it was cut off' : ''}`;
    noteGap(last, `is the ${isLeftOut ? 'end of its chain' : 'last line'}; ${why}: receipts may be missing`);
  }
  findings.push(...wrongDays(seen, deps), ...strangers.values());
  return { ...seen, findings, epochs: [...epochs.values()] };
}

/**
 * A line that the key has not signed. `claims`: by its own members, the line is the next one of the chain.
 * That is so for a line of the chain that somebody changed.
 */
type Stranger = PlacedLine & { readonly why: string; readonly claims: boolean };

const ofStranger = (stranger: Stranger, fails: boolean): ReceiptFinding =>
  finding('not ours or changed', stranger, stranger.why, fails);

/** What the first pass learns. The order of the lines does not matter for it. */
interface SeenLines {
  /**
   * For each file of the chain: its first signed line, and when its latest line was noted (ms since 1970).
   */
  readonly files: Map<string, { readonly first: SoundLine; readonly latest: number }>;
  /** The lines that other chains name, by number. */
  readonly named: Map<number, PlacedLine>;
  /** The stranger since the last signed line: the first that claims its place, or else the first. */
  stranger: Stranger | undefined;
}

/**
 * First pass: yields the signed lines, each with the stranger between it and the signed line before it. Fills
 * `seen` and adds to `counts`.
 */
async function* signedLines(lines: AsyncIterable<PlacedLine>, deps: ChainDeps, seen: SeenLines) {
  const { instance, key, unknownKey, before, since, numbers, counts } = deps;
  let next = before === undefined && since !== undefined ? undefined : numberAfter(before); // undefined: any
  for await (const line of lines) {
    if (line.complete) counts.lines += 1;
    const members = line.complete ? readLine(line.text, key) : 'is cut off';
    if (typeof members === 'string') {
      const claims = line.complete && claimsPlace(line.text, instance, next);
      if (seen.stranger === undefined || (claims && !seen.stranger.claims))
        seen.stranger = { ...line, why: unknownKey === undefined ? members : byOtherKey(unknownKey), claims };
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

const byOtherKey = (name: string): string =>
  `its chain names the key ${name}, which is not among those that it was checked with: if you trust that key, name its file with --public-key`;

/**
 * Whether an unsigned line says that it is the line with this number in the chain; undefined: with any
 * number.
 */
function claimsPlace(text: string, instance: string, seq: number | undefined): boolean {
  try {
    const members = JSON.parse(text) as Partial<ReceiptLine> | null;
    return members?.instance === instance && (seq === undefined || members.seq === seq);
  } catch {
    return false;
  }
}

const numberAfter = (last: SoundLine | undefined): number => (last === undefined ? 0 : last.members.seq + 1);

/**
 * Second pass: the finding if the chain breaks between `last`, its last line so far, and the next signed
 * line.
 */
function breakBefore(
  line: SoundLine,
  stranger: Stranger | undefined,
  last: SoundLine | undefined,
  deps: ChainDeps,
): ReceiptFinding | undefined {
  const { instance, seq, prev } = line.members;
  const expected = numberAfter(last);
  if (instance !== deps.instance) return finding('out of order', line, `belongs to instance ${instance}`);
  if (seq < expected)
    return finding('out of order', line, `number ${seq} stands where number ${expected} belongs`);
  if (seq > expected) {
    const isLeftOut = last === deps.before && isBeforePeriod(line.file, deps);
    if (stranger?.claims || (stranger && !isLeftOut)) return ofStranger(stranger, true);
    if (!isLeftOut) return finding('missing', line, `number ${expected} is missing before this line`);
  } else if (prev !== (last === undefined ? NOTHING_BEFORE : lineDigest(last.text))) {
    // This line is signed, so it is the line before it that was changed.
    return finding('not ours or changed', last ?? line, 'is not the line that the next one follows');
  }
  return afterItsDay(line);
}

/** The finding if a line was noted after the day of its file: the writer puts no line into an earlier day. */
export function afterItsDay(line: SoundLine): ReceiptFinding | undefined {
  const { members, file } = line;
  if (notedAt(members) < startOfDay(file) + DAY_MS) return undefined;
  return finding('out of order', line, `is of ${members.time}, after the day that the name of its file says`);
}

/**
 * Whether lines that are missing before the first line of this file can be from days before `since`, which
 * nobody asked for.
 */
const isBeforePeriod = (file: string, { before, since }: ChainDeps): boolean =>
  since !== undefined && (before === undefined || readFileName(file)?.day === since);

const DAY_MS = 86_400_000;
/** ms that a line may wait before it is written. */
const LONGEST_WAIT = 60_000;

const startOfDay = (file: string): number => Date.parse(readFileName(file)?.day ?? '');

/**
 * Finds files whose names say a later day than their lines do. A line stands in the file of the day (UTC) on
 * which it was written. That is the day on which it was noted, or a later one if it waited over midnight. If
 * it waited, either lines of the later day follow it in the file, or it waited less than a minute, or the
 * disk took no lines. So such a file fails only a strict check: its lines are signed and follow each other,
 * whatever its name.
 */
const wrongDays = ({ files }: SeenLines, { strict }: ChainDeps): readonly ReceiptFinding[] =>
  Array.from(files.values())
    .filter(({ first, latest }) => latest < startOfDay(first.file) - LONGEST_WAIT)
    .map(({ first }) => {
      const why =
        'and no line of its file is of the day that the name says: they waited for the disk, or the file was renamed';
      return finding('out of order', first, `is of ${first.members.time}, ${why}`, strict);
    });
