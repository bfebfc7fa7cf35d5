/** Checks receipts: chains, signatures, and the verdicts they point to (docs/receipts.md). */
import type { KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { linesOf } from '../files/line-files.ts';
import {
  afterItsDay,
  type ChainDeps,
  type CheckedChain,
  checkChain,
  finding,
  type ReceiptCounts,
  type ReceiptFinding,
} from './check-chain.ts';
import { type CustomRoots, checkExchanges, checkManifests, checkVerdicts } from './check-references.ts';
import { type ChainEnd, lineDigest, NOTHING_BEFORE } from './receipt.ts';
import {
  type FindKey,
  firstLine,
  type KeyRing,
  keyOfChain,
  lastLine,
  listReceiptFiles,
  receiptsUnreadable,
  type Signer,
  type SoundLine,
} from './receipt-files.ts';
import { keyNamed, keySha256, keysOf, readPublicKey } from './receipt-keys.ts';

export interface ReceiptsReport extends Readonly<Omit<ReceiptCounts, 'refused'>> {
  /** Whether no finding fails. */
  readonly ok: boolean;
  /** The keys that the signatures were checked with. */
  readonly publicKeys: readonly CheckedKey[];
  /** How many instances have a signed line. */
  readonly instances: number;
  /** Left out if nothing was refused. */
  readonly refused?: ReceiptCounts['refused'];
  readonly findings: readonly ReceiptFinding[];
  /** Left out if there are none. */
  readonly customRoots?: readonly CustomRoots[];
}

/**
 * A key and the number of instances that it has signed. `given`: the reader of the receipts named it.
 * `rotated`: it lies in the directory, and a given key, or one after it, has announced it. `directory`: it
 * only lies in the directory, where a forger would replace it.
 */
export interface CheckedKey {
  readonly sha256: string;
  readonly source: 'directory' | 'given' | 'rotated';
  readonly instances: number;
}

export interface CheckOptions {
  /**
   * A day (YYYY-MM-DD, UTC). Of the files of earlier days, the check reads only the first and the last lines.
   */
  readonly since?: string | undefined;
  /** Files of the keys to trust. If there are none, the keys in the directory count. */
  readonly publicKeyFiles?: readonly string[] | undefined;
  /** Whether gaps count as failures. */
  readonly strict?: boolean | undefined;
}

/** Checks the receipts of a directory. Throws receipts_unreadable. */
export async function checkReceipts(
  directory: string,
  { since, publicKeyFiles = [], strict = false }: CheckOptions = {},
): Promise<ReceiptsReport> {
  try {
    const { instances, foreign } = await listReceiptFiles(directory);
    const { keys, known, given, find } = await trustedKeys(directory, instances, publicKeyFiles);
    const edges: ChainEdges[] = [];
    for (const [instance, files] of instances)
      edges.push(await readEdges(directory, files, { instance, keys, find, since, strict }));
    const ends = edges.flatMap(({ opened }) => endsNamedBy(opened));
    const named = Map.groupBy(ends, ({ instance }) => instance);
    const counts: ReceiptCounts = { lines: 0, requests: 0, refused: {} };
    const chains: Chain[] = [];
    for (const edge of edges) {
      const numbers = new Set(named.get(edge.instance)?.map(({ seq }) => seq));
      const deps = { ...edge, since, numbers, strict, counts };
      chains.push({ ...edge, ...(await checkChain(linesOf(directory, edge.asked), deps)) });
    }
    const { customRoots, findings: unsound } = await checkVerdicts(directory, chains);
    const findings = [
      ...chains.flatMap((chain) => [...chain.edgeFindings, ...chain.findings]),
      ...checkEnds(ends, chains, { since, strict }),
      ...unsound,
      ...(await checkManifests(directory, chains, strict)),
      ...(await checkExchanges(directory, chains)),
      ...foreign.map((file) => finding(STRANGE, { file, number: 0 }, 'is no file of receipts', false)),
    ];
    // Every start of a proxy writes a line. So a directory without one has lost lines, or is the wrong one.
    const isGap = since !== undefined && !strict;
    if (chains.every(({ opened }) => opened === undefined) && !findings.some(({ fails }) => fails))
      findings.push(finding('missing', ALL, 'there are no receipts', !isGap));
    const { lines, requests, refused } = counts;
    const signed = chains.filter(({ files }) => files.size > 0);
    return {
      ok: !findings.some(({ fails }) => fails),
      publicKeys: Array.from(known, ([sha256, key]) => {
        const source = given.size === 0 ? 'directory' : given.has(sha256) ? 'given' : 'rotated';
        return { sha256, source, instances: signed.filter((chain) => chain.key === key).length };
      }),
      instances: signed.length,
      lines,
      requests,
      ...(Object.keys(refused).length === 0 ? {} : { refused }),
      findings: boundStrangers(findings),
      ...(customRoots.length === 0 ? {} : { customRoots }),
    };
  } catch (cause) {
    throw receiptsUnreadable(directory, cause);
  }
}

/**
 * The keys that count. If the reader named `files`: the keys in them, and their successors. A key in the
 * directory is a successor if a chain that is signed by a key that counts names it as the next. Without
 * `files`: all keys of the directory. A file may come from anywhere, such as a pipe. `keys`: those to try on
 * a chain that names none. `known`: these, and those that `find` has found.
 */
async function trustedKeys(
  directory: string,
  instances: ReadonlyMap<string, readonly string[]>,
  files: readonly string[],
): Promise<TrustedKeys> {
  if (files.length === 0) {
    const keys = await keysOf(directory);
    const known = new Map(keys);
    const find: FindKey = async (name) => {
      const key = known.get(name) ?? (await keyNamed(directory, name));
      if (key !== undefined) known.set(name, key);
      return key;
    };
    return { keys, known, given: new Set(), find };
  }
  const keys = new Map<string, KeyObject>();
  for (const file of files) {
    const key = readPublicKey(await readFile(file), file);
    keys.set(keySha256(key), key);
  }
  const given = new Set(keys.keys());
  const find: FindKey = async (name) => keys.get(name);
  for (let known = 0; known < keys.size; ) {
    known = keys.size;
    for (const [instance, names] of instances) {
      const { first } = await keyOfChain(directory, names, { instance, keys, find });
      const next = first?.members.type === 'opened' ? first.members.nextKey : undefined;
      const key = next === undefined || keys.has(next) ? undefined : await keyNamed(directory, next);
      if (next !== undefined && key !== undefined) keys.set(next, key);
    }
  }
  return { keys, known: keys, given, find };
}

interface TrustedKeys {
  readonly keys: KeyRing;
  readonly known: KeyRing;
  readonly given: ReadonlySet<string>;
  readonly find: FindKey;
}

const STRANGE = 'not ours or changed';
/** The place of a finding that concerns the directory as a whole. */
const ALL = { file: '.', number: 0 };

/** How many harmless strangers are named one by one. More of them would fill the report. */
const MOST_STRANGERS = 20;

/** The findings, with the harmless strangers last, and at most MOST_STRANGERS of them. */
function boundStrangers(findings: readonly ReceiptFinding[]): readonly ReceiptFinding[] {
  const isHarmless = ({ kind, fails }: ReceiptFinding): boolean => kind === STRANGE && !fails;
  const strangers = findings.filter(isHarmless);
  const bounded = [...findings.filter((each) => !isHarmless(each)), ...strangers.slice(0, MOST_STRANGERS)];
  const others = strangers.length - MOST_STRANGERS;
  if (others <= 0) return bounded;
  return [...bounded, finding(STRANGE, ALL, `${others} more files hold what is no receipt`, false)];
}

/** What the files of a chain show without the check reading them whole. */
interface ChainEdges extends Signer {
  /** The name of the key that the first line of the chain names, if that key is none of those that count. */
  readonly unknownKey: string | undefined;
  /** The files of the days that were asked for. */
  readonly asked: readonly string[];
  /** The first signed line of the chain. */
  readonly opened: SoundLine | undefined;
  /** The last signed line of the files that were left out. */
  readonly before: SoundLine | undefined;
  /** The first and the last signed lines of the files that were left out, by their numbers. */
  readonly leftOut: ReadonlyMap<number, SoundLine>;
  /** Gaps among the files that were left out, and lines of theirs that are of later days. */
  readonly edgeFindings: readonly ReceiptFinding[];
}

type Chain = ChainEdges & CheckedChain;

/**
 * Reads the first and the last line of each file that is left out. That is enough to notice that a whole file
 * is gone. A line of a day that was asked for must not be among them: the lines between would not be missed.
 */
async function readEdges(
  directory: string,
  all: readonly string[],
  {
    instance,
    keys,
    find,
    since = '',
    strict,
  }: Pick<ChainDeps, 'instance' | 'since' | 'strict'> & Pick<TrustedKeys, 'keys' | 'find'>,
): Promise<ChainEdges> {
  const ring = { instance, keys, find };
  const { key, first: opened, unknown: unknownKey } = await keyOfChain(directory, all, ring);
  const signer = { instance, key };
  const edgeFindings: ReceiptFinding[] = [];
  const leftOut = new Map<number, SoundLine>();
  let before: SoundLine | undefined;
  for (const file of all.filter((each) => each < since)) {
    const first = await firstLine(directory, [file], signer);
    const last = await lastLine(directory, [file], signer);
    if (first === undefined || last === undefined) continue;
    const follows = before === undefined ? NOTHING_BEFORE : lineDigest(before.text);
    const what = before === undefined ? 'the beginning of its chain' : `what follows ${before.file}`;
    if (first.members.prev !== follows)
      edgeFindings.push(finding('missing', first, `${what} is missing before this line`, strict));
    const late = afterItsDay(first) ?? afterItsDay(last);
    if (late !== undefined) edgeFindings.push(late);
    for (const line of [first, last]) leftOut.set(line.members.seq, line);
    before = last;
  }
  const asked = all.filter((file) => file >= since);
  return { ...signer, unknownKey, asked, opened, before, leftOut, edgeFindings };
}

type NamedEnd = ChainEnd & { readonly by: SoundLine };

/** The ends of other chains that the first line of an instance names. */
const endsNamedBy = (opened: SoundLine | undefined): readonly NamedEnd[] =>
  opened?.members.type === 'opened' ? opened.members.found.map((end) => ({ ...end, by: opened })) : [];

/**
 * Finds chains and lines that an instance found when it began and that are gone now. With `since`, somebody
 * may have moved a chain away that has no line since that day, so this is a gap, which fails only a strict
 * check.
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
