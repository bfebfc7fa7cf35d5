/**
 * Keeps what shows why the service was believed: beside the receipts, the verdicts that they point to, and
 * the exchanges that led to these verdicts.
 */
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { publish, publishDirectory, removeDirectory, TEMPORARY, unless } from '../files/durable-file.ts';
import { requireOwnDirectory } from '../files/own-files.ts';

/** Names of directories in that of the receipts: for the verdicts, and for the exchanges. */
export const VERDICTS = 'verdicts';
export const EXCHANGES = 'exchanges';

/** Exchanges that are kept, of some 50 kB each: those of about a month. */
const MOST_EXCHANGES = 1_000;

/** Files by their names, and the digest that names them all. */
export interface KeptExchange {
  readonly sha256: string;
  readonly files: Readonly<Record<string, Uint8Array | string>>;
}

interface KeptVerdict {
  readonly text: string;
  readonly exchange: KeptExchange | undefined;
}

/** A store in the directory of the receipts. It keeps the newest `most` exchanges, and every verdict. */
export function createVerdictStore(directory: string, most = MOST_EXCHANGES) {
  /** Verdicts that are not stored yet, by digest. They are few. */
  const pending = new Map<string, KeptVerdict>();
  return {
    /** `sha256`: the digest of the text. */
    add(sha256: string, verdict: KeptVerdict): void {
      pending.set(sha256, verdict);
    },
    /** Stores what was added. If a write fails, what is not stored yet is stored by the next call. */
    async write(): Promise<void> {
      for (const [sha256, { text, exchange }] of pending) {
        await requireOwnDirectory(join(directory, VERDICTS));
        await publish(join(directory, VERDICTS, `${sha256}.json`), text, 0o600);
        if (exchange !== undefined) await keepExchange(join(directory, EXCHANGES), exchange, most);
        pending.delete(sha256);
      }
    },
  };
}

/**
 * Stores the exchange under its own digest, and removes the oldest beyond `most`, and what a crash has left
 * of others.
 */
async function keepExchange(directory: string, { sha256, files }: KeptExchange, most: number): Promise<void> {
  await requireOwnDirectory(directory);
  await publishDirectory(join(directory, sha256), files, 0o600);
  const found = await Promise.all(
    (await readdir(directory)).map(async (name) => {
      const stats = await unless('ENOENT', lstat(join(directory, name))); // other proxies remove some too
      return { name, at: stats?.mtimeMs ?? 0 };
    }),
  );
  const exchanges = found.filter(({ name }) => /^[0-9a-f]{64}$/.test(name)).toSorted((a, b) => a.at - b.at);
  const oldest = exchanges.slice(0, Math.max(0, exchanges.length - most));
  const leftBehind = found.filter(({ name, at }) => TEMPORARY.test(name) && at < Date.now() - DAY_MS);
  for (const { name } of [...oldest, ...leftBehind]) await removeDirectory(join(directory, name));
}

const DAY_MS = 86_400_000;
