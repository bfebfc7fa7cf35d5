/**
 * Keeps what shows why the service was believed: beside the receipts, the verdicts that they point to, and
 * the exchanges that led to these verdicts.
 */
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { publishDirectory, removeDirectory, TEMPORARY } from '../files/directories.ts';
import { publish, unless } from '../files/durable-file.ts';
import { requireOwnDirectory } from '../files/own-files.ts';

/** Names of directories in that of the receipts: for the verdicts, and for the exchanges. */
export const VERDICTS = 'verdicts';
export const EXCHANGES = 'exchanges';

/** Limits of the exchanges that are kept. One has some 50 kB, and a month brings about 1,000. */
const MOST_EXCHANGES = 1_000;
const MOST_BYTES = 256 * 1024 * 1024;
/** The share of both limits above which a day loses its own oldest exchanges: twice an average day's. */
const DAY_SHARE = 2 / 31;

/** Files by their names, and the digest that names them all. */
export interface KeptExchange {
  readonly sha256: string;
  readonly files: Readonly<Record<string, Uint8Array | string>>;
}

interface KeptVerdict {
  readonly text: string;
  readonly exchange: KeptExchange | undefined;
}

/**
 * A store in the directory of the receipts. It keeps `most` exchanges, and every verdict. `onUnpruned` is
 * called if exchanges that are too many could not be removed; the next exchange tries it again.
 */
export function createVerdictStore(
  directory: string,
  { most = MOST_EXCHANGES, onUnpruned }: { most?: number | undefined; onUnpruned: (reason: Error) => void },
  now: () => number,
) {
  /** Verdicts that are not stored yet, by digest. They are few. */
  const pending = new Map<string, KeptVerdict>();
  const exchanges = join(directory, EXCHANGES);
  let newest: readonly [sha256: string, verdict: KeptVerdict] | undefined;
  return {
    /** `sha256`: the digest of the text. */
    add(sha256: string, verdict: KeptVerdict): void {
      newest = [sha256, verdict];
      pending.set(...newest);
    },
    /** Adds the newest verdict again, whose files are gone. */
    addAgain(): void {
      if (newest !== undefined) pending.set(...newest);
    },
    /** Stores what was added. If a write fails, what is not stored yet is stored by the next call. */
    async write(): Promise<void> {
      for (const [sha256, { text, exchange }] of pending) {
        await requireOwnDirectory(join(directory, VERDICTS));
        await publish(join(directory, VERDICTS, `${sha256}.json`), text, 0o600);
        if (exchange !== undefined) {
          await requireOwnDirectory(exchanges);
          await publishDirectory(join(exchanges, exchange.sha256), exchange.files, 0o600);
          await prune(exchanges, most, now()).catch(onUnpruned); // must not stop the receipts
        }
        pending.delete(sha256);
      }
    },
  };
}

/** Removes surplus exchanges, and unfinished ones that a crash has left. Leaves all that is not ours. */
async function prune(directory: string, most: number, now: number): Promise<void> {
  const ours = (await readdir(directory, { withFileTypes: true })).filter(
    (entry) => entry.isDirectory() && (EXCHANGE_NAME.test(entry.name) || TEMPORARY.test(entry.name)),
  );
  const found = await Promise.all(
    ours.map(async ({ name }) => {
      const path = join(directory, name);
      const stats = await unless('ENOENT', lstat(path)); // other proxies remove some too
      return { name, at: stats?.mtimeMs ?? 0, bytes: await sizeOf(path) };
    }),
  );
  const exchanges = found.filter(({ name }) => EXCHANGE_NAME.test(name));
  const leftBehind = found.filter(({ name, at }) => TEMPORARY.test(name) && at < now - DAY_MS);
  for (const { name } of [...surplus(exchanges, most), ...leftBehind])
    await removeDirectory(join(directory, name));
}

const EXCHANGE_NAME = /^[0-9a-f]{64}$/;

/** The bytes of all files below a directory; 0 if it is gone. */
async function sizeOf(directory: string): Promise<number> {
  const names = (await unless('ENOENT', readdir(directory, { recursive: true }))) ?? [];
  const files = names.map((name) => unless('ENOENT', lstat(join(directory, name))));
  return (await Promise.all(files)).reduce((sum, stats) => sum + (stats?.size ?? 0), 0);
}

interface Kept {
  readonly name: string;
  /** When it was stored, in ms since 1970. */
  readonly at: number;
  readonly bytes: number;
}

/**
 * The exchanges to remove: the oldest, until no more than `most` exchanges and MOST_BYTES remain. But an
 * attacker on the network can force a verification every ten seconds, and the service can pad its evidence.
 * So a day above DAY_SHARE loses its own oldest first, and other days keep theirs.
 */
export function surplus(exchanges: readonly Kept[], most = MOST_EXCHANGES): readonly Kept[] {
  const shareOf = (kept: readonly Kept[]): number =>
    Math.max(kept.length / most, kept.reduce((sum, { bytes }) => sum + bytes, 0) / MOST_BYTES);
  const left = exchanges.toSorted((a, b) => a.at - b.at);
  const removed: Kept[] = [];
  while (shareOf(left) > 1) {
    const days = Array.from(Map.groupBy(left, ({ at }) => Math.floor(at / DAY_MS)).values());
    const greatest = days.reduce((a, b) => (shareOf(b) > shareOf(a) ? b : a));
    const [oldest] = shareOf(greatest) > DAY_SHARE ? greatest : left;
    removed.push(...left.splice(left.indexOf(oldest as Kept), 1));
  }
  return removed;
}

const DAY_MS = 86_400_000;
