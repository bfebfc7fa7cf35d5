/** A lock on a file that programs change in turn: a file beside it, which names its owner. */
import { readFile, rename, stat, unlink } from 'node:fs/promises';
import { hostname, userInfo } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { PrivatemodeError } from '../errors.ts';
import { publish, unless } from './durable-file.ts';

/** The content of a lock. */
interface Held {
  /** Process, user and machine. */
  readonly owner: string;
  /** When it was taken, ms since 1970. */
  readonly at: number;
}

/** ms after which a lock belongs to a process that is gone: what is done under one takes far less. */
const STALE = 30_000;
/** ms that a command waits while others take the lock, one after the other. */
const PATIENCE = 60_000;
const POLL = 25;

/**
 * Runs `work` while nobody else holds the lock of `path`, the file `PATH.lock`. A lock older than 30 s (or as far in the future: the clock was
 * set back) is taken over, and `tookOver` hears whose it was. Throws config_invalid where others keep it for 60 s, and what the file system
 * and `work` throw.
 */
export async function withLock<T>(
  path: string,
  tookOver: (owner: string) => void,
  work: () => Promise<T>,
): Promise<T> {
  const lock = `${path}.lock`;
  const mine: Held = { owner: owner(), at: Date.now() };
  for (const end = Date.now() + PATIENCE; ; await delay(POLL)) {
    if (await publish(lock, JSON.stringify({ ...mine, at: Date.now() }), 0o644)) break;
    const held = await heldBy(lock);
    if (held === undefined) continue;
    if (Math.abs(Date.now() - held.at) >= STALE) {
      if (await removeStale(lock, held)) tookOver(held.owner);
    } else if (Date.now() >= end)
      throw new PrivatemodeError('config_invalid', `${lock} is held by ${held.owner}`, {
        remedy: 'Wait until that command has ended, and run this one again.',
      });
  }
  try {
    return await work();
  } finally {
    // One that was taken over meanwhile belongs to somebody else.
    if ((await heldBy(lock))?.owner === mine.owner) await unlink(lock).catch(() => {});
  }
}

const owner = (): string => `process ${process.pid} of ${nameOfUser()} on ${hostname()}`;

/** Containers run users that have no name. */
function nameOfUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `user ${process.getuid?.()}`;
  }
}

/** Who has the lock; undefined: nobody. One that is not ours in form is as old as its file. */
async function heldBy(lock: string): Promise<Held | undefined> {
  const text = await unless('ENOENT', readFile(lock, 'utf8'));
  if (text === undefined) return undefined;
  try {
    const { owner, at } = JSON.parse(text);
    if (typeof owner === 'string' && Number.isFinite(at)) return { owner, at };
  } catch {} // below
  const found = await unless('ENOENT', stat(lock));
  return found && { owner: 'an unknown process', at: found.mtimeMs };
}

/** Whether the stale lock is gone by us. Of two that find it at once, the second must not remove the lock of the first: it puts it back. */
async function removeStale(lock: string, stale: Held): Promise<boolean> {
  const aside = `${lock}.${crypto.randomUUID().slice(0, 8)}`;
  const moved = await unless(
    'ENOENT',
    rename(lock, aside).then(() => true),
  );
  if (moved === undefined) return false;
  const wasStale = isDeepStrictEqual(await heldBy(aside), stale);
  if (!wasStale) await publish(lock, await readFile(aside), 0o644);
  await unlink(aside);
  return wasStale;
}
