/** Follows the chain of one instance through its signed lines; what else stands in its files is named and left out. */
import type { PlacedLine } from './line-files.ts';
import {
  lineDigest,
  NOTHING_BEFORE,
  notedAt,
  type ReceiptLine,
  type RefusalCount,
  type RequestReceipt,
  readLine,
} from './receipt.ts';
import { readFileName, type Signer, type SoundLine } from './receipt-files.ts';

/**
 * What is found: of each chain, the first line that is not what it should be. `gap`: receipts may be missing, but nothing shows that
 * somebody tampered with them: the proxy was killed, the disk was full, or days were left out. `junk`: what is no receipt, where none is missing.
 */
export interface ReceiptFinding {
  readonly kind: 'changed' | 'missing' | 'out of order' | 'verdict' | 'gap' | 'junk';
  readonly file: string;
  /** From 1, as editors count; 0: the file as a whole. */
  readonly line: number;
  readonly message: string;
}

export type Epoch = NonNullable<RequestReceipt['epoch']>;

/** What was learned from one chain. */
export interface CheckedChain {
  readonly lines: number;
  readonly requests: number;
  readonly findings: readonly ReceiptFinding[];
  /** The first signed line of what was read, and the last. */
  readonly first: SoundLine | undefined;
  readonly last: SoundLine | undefined;
  /** By number, of those that other chains name. */
  readonly named: ReadonlyMap<number, PlacedLine>;
  /** The first receipt of each epoch. */
  readonly epochs: readonly { readonly epoch: Epoch; readonly line: PlacedLine }[];
  /** What was refused and only counted. */
  readonly refused: readonly RefusalCount[];
}

export interface ChainDeps extends Signer {
  /** The last signed line of the days that were left out. */
  readonly before: SoundLine | undefined;
  /** The day from which on lines were asked for, where days may be missing before it. */
  readonly since: string | undefined;
  /** Numbers of the lines that other chains name. */
  readonly numbers: ReadonlySet<number>;
}

/**
 * Follows one chain up to the first line that is missing, changed or out of order; the lines behind that are only counted. Form and
 * signature come first: a line without them is held against the chain only where one of the chain is missing.
 */
export async function checkChain(lines: AsyncIterable<PlacedLine>, deps: ChainDeps): Promise<CheckedChain> {
  const { instance, key, before, since, numbers } = deps;
  const gaps: ReceiptFinding[] = [];
  const named = new Map<number, PlacedLine>();
  const epochs = new Map<string, CheckedChain['epochs'][number]>();
  const refused: RefusalCount[] = [];
  const counted = { lines: 0, requests: 0 };
  const junk = collectJunk();
  const days = checkDays();
  let last = before;
  let first: SoundLine | undefined;
  let broken: ReceiptFinding | undefined;
  let missed: number | undefined; // the number that belongs where the chain is broken
  let cutOff: PlacedLine | undefined;

  for await (const line of lines) {
    if (cutOff !== undefined) junk.add(cutOff, 'is cut off');
    cutOff = line.complete ? undefined : line;
    if (!line.complete) continue;
    counted.lines += 1;
    const members = readLine(line.text, key);
    if (typeof members === 'string') {
      const expected = last === undefined && since !== undefined ? undefined : numberAfter(last);
      junk.add(line, members, claims(line.text, { instance, expected }));
      continue;
    }
    if (members.instance === instance && numbers.has(members.seq)) named.set(members.seq, line);
    if (members.type === 'request') counted.requests += 1;
    if (members.type === 'refused') for (const each of members.counts) refused.push(each);
    if (broken !== undefined) {
      if (members.seq === missed) {
        const message = `number ${missed} belongs here and stands further down`;
        broken = { ...broken, kind: 'out of order', message };
      }
      continue;
    }
    const sound = { ...line, members };
    const problem = problemOf(sound, last, deps);
    if (problem?.kind !== 'missing') broken = problem;
    else if (first === undefined && isBeforePeriod(line.file, deps)) {
      broken = junk.claim();
      const numbers = `${numberAfter(last)} to ${members.seq - 1}`;
      gaps.push(
        placed('gap', line, `numbers ${numbers} are missing before this line: of days that were left out`),
      );
    } else broken = junk.suspect() ?? problem;
    if (broken !== undefined) {
      if (broken === problem && broken.kind === 'missing') missed = numberAfter(last);
      continue;
    }
    junk.keep();
    days.add(sound);
    if (members.type === 'lost') {
      const count = members.count ?? 'an unknown number of';
      gaps.push(placed('gap', line, `${count} receipts before this line were not written`));
    }
    if (members.type === 'request' && members.epoch !== null) {
      const { verdictSha256, manifestSha256 } = members.epoch;
      const subject = `${verdictSha256} ${manifestSha256}`;
      if (!epochs.has(subject)) epochs.set(subject, { epoch: members.epoch, line });
    }
    last = sound;
    first ??= sound;
  }
  const isClosed = last?.members.type === 'closed';
  if (broken === undefined) {
    if (!isClosed) broken = junk.claim();
    if (isClosed && cutOff !== undefined) junk.add(cutOff, 'is cut off');
    if (broken === undefined) junk.keep();
  }
  if (broken === undefined && first !== undefined && last !== undefined && !isClosed) {
    const behind = cutOff === undefined ? '' : ', and a line behind it was cut off';
    const why = `its instance runs still or was killed${behind}: receipts may be missing`;
    gaps.push(placed('gap', last, `is the last line; ${why}`));
  }
  const findings = [
    ...gaps,
    ...days.findings(broken === undefined),
    ...(broken ? [broken] : []),
    ...junk.findings(),
  ];
  return { ...counted, findings, first, last, named, epochs: [...epochs.values()], refused };
}

const numberAfter = (last: SoundLine | undefined): number => (last === undefined ? 0 : last.members.seq + 1);

export const placed = (
  kind: ReceiptFinding['kind'],
  { file, number }: Pick<PlacedLine, 'file' | 'number'>,
  message: string,
): ReceiptFinding => ({
  ...{ kind, file, line: number, message },
});

/** What is wrong with a signed line that stands behind `before`, the last one of its chain. */
function problemOf(
  line: SoundLine,
  before: SoundLine | undefined,
  { instance }: ChainDeps,
): ReceiptFinding | undefined {
  const { members } = line;
  if (members.instance !== instance)
    return placed('out of order', line, `belongs to instance ${members.instance}`);
  const { seq, prev } = members;
  const expected = numberAfter(before);
  if (seq > expected) return placed('missing', line, `number ${expected} is missing before this line`);
  if (seq < expected)
    return placed('out of order', line, `number ${seq} stands where number ${expected} belongs`);
  const follows = before === undefined ? NOTHING_BEFORE : lineDigest(before.text);
  if (prev === follows) return undefined;
  // This line is signed: it is the one before that is not what it was.
  return placed('changed', before ?? line, 'is not the line that the next one follows');
}

/** Whether what is missing before the first line of this file can be from the days before `since`, which nobody asked for. */
const isBeforePeriod = (file: string, { before, since }: ChainDeps): boolean =>
  since !== undefined && (before === undefined || readFileName(file)?.day === since);

/** Whether a line that is not signed says that it is the next one of its chain (`expected`; undefined: any). */
function claims(
  text: string,
  { instance, expected }: { readonly instance: string; readonly expected: number | undefined },
): boolean {
  let members: Partial<ReceiptLine> | null;
  try {
    members = JSON.parse(text) as Partial<ReceiptLine> | null;
  } catch {
    return false;
  }
  const isNumber = expected === undefined || members?.seq === expected;
  return members?.instance === instance && isNumber;
}

/** Names what is no receipt: the first of each file, and how many more there are. */
function collectJunk() {
  interface Found {
    readonly finding: ReceiptFinding;
    count: number;
  }
  const kept = new Map<string, Found>();
  /** Since the last signed line, which tells whether one of the chain is missing here. */
  let recent = new Map<string, Found>();
  let claiming: ReceiptFinding | undefined;
  return {
    add(line: PlacedLine, message: string, claimsPlace = false): void {
      const finding = placed('changed', line, message);
      const found = recent.get(line.file) ?? { finding, count: 0 };
      found.count += 1;
      recent.set(line.file, found);
      if (claimsPlace) claiming ??= finding;
    },
    /** The line that stands where one of the chain is missing. */
    suspect: (): ReceiptFinding | undefined => claiming ?? recent.values().next().value?.finding,
    /** The line that says it stands there. */
    claim: (): ReceiptFinding | undefined => claiming,
    /** None is missing here. */
    keep(): void {
      for (const [file, found] of recent) {
        const before = kept.get(file);
        if (before === undefined) kept.set(file, found);
        else before.count += found.count;
      }
      recent = new Map();
      claiming = undefined;
    },
    findings: (): ReceiptFinding[] =>
      Array.from(kept.values(), ({ finding, count }) => {
        const others = count === 1 ? '' : `; ${count - 1} more of this file are no receipts either`;
        return { ...finding, kind: 'junk', message: `${finding.message}${others}` };
      }),
  };
}

const DAY_MS = 86_400_000;
/** ms that a line may wait for its writer. */
const LONGEST_WAIT = 60_000;

/**
 * Holds the day of a file against its lines. A writer puts a line into the file of the day on which it writes it (UTC), which is the
 * day on which the line was noted, or a later one if the line waited over midnight. So no line of a file was noted after its day; and
 * those from before it stand in front of lines of that day, or were noted less than a minute before it.
 */
function checkDays() {
  const found: ReceiptFinding[] = [];
  /** The file that is read, with its first line, its day, and when the latest of its lines was noted. */
  let open: { readonly first: SoundLine; readonly start: number; latest: number } | undefined;

  function close(): void {
    if (open === undefined || open.latest >= open.start - LONGEST_WAIT) return;
    found.push(wrongDay(open.first, 'and no line of its file is of the day that the name says'));
  }
  return {
    add(line: SoundLine): void {
      const at = notedAt(line.members);
      if (open?.first.file !== line.file) {
        close();
        open = { first: line, start: Date.parse(readFileName(line.file)?.day ?? ''), latest: -Infinity };
      }
      const end = open.start + DAY_MS;
      if (at >= end && open.latest < end)
        found.push(wrongDay(line, 'after the day that the name of its file says'));
      open.latest = Math.max(open.latest, at);
    },
    /** `isWhole`: the last file was read to its end. */
    findings(isWhole: boolean): readonly ReceiptFinding[] {
      if (isWhole) close();
      return found;
    },
  };
}

const wrongDay = (line: SoundLine, why: string): ReceiptFinding =>
  placed('out of order', line, `is of ${line.members.time}, ${why}`);
