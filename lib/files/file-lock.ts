/**
 * A lock on a file that several programs change: a second file beside it, which names the owner of the lock.
 */
import { readFile, rename, stat, unlink } from 'node:fs/promises';
import { hostname, userInfo } from 'node:os';
import { isDeepStrictEqual } from 'node:util';
import { pause, systemClock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { publish, unless } from './durable-file.ts';

/** The content of a lock. */
interface Held {
  /** Process, user and machine. */
  readonly owner: string;
  /** When the owner took the lock, ms since 1970. */
  readonly at: number;
}

/**
 * Runs `work` while this process holds the lock of `path`, the file `PATH.lock`. It takes over a lock that is
 * at least 30 s old (or as far in the future: the clock was set back), and tells `tookOver` whose it was.
 * Throws config_invalid if others keep the lock for 60 s, and what the file system and `work` throw.
 */
export async function withLock<T>(
  path: string,
  tookOver: (owner: string) => void,
  work: () => Promise<T>,
  clock = systemClock,
): Promise<T> {
  const { lockStale, lockWait, lockLook } = clock.times;
  const lock = `${path}.lock`;
  const mine: Held = { owner: owner(), at: clock.now() };
  for (const end = clock.now() + lockWait; ; await pause(clock, lockLook, undefined, 'waiting')) {
    if (await publish(lock, JSON.stringify({ ...mine, at: clock.now() }), 0o644)) break;
    const held = await heldBy(lock);
    if (held === undefined) continue;
    if (Math.abs(clock.now() - held.at) >= lockStale) {
      if (await removeStale(lock, held)) tookOver(held.owner);
    } else if (clock.now() >= end)
      throw new PrivatemodeError('config_invalid', `${lock} is held by ${held.owner}`, {
        remedy: 'Wait until that command has ended, and run this one again.',
      });
  }
  try {
    return await work();
  } finally {
    // A lock that was taken over meanwhile belongs to another process.
    if ((await heldBy(lock))?.owner === mine.owner) await unlink(lock).catch(() => {});
  }
}

const owner = (): string => `process ${process.pid} of ${nameOfUser()} on ${hostname()}`;

/** In a container the user may have no name. */
function nameOfUser(): string {
  try {
    return userInfo().username;
  } catch {
    return `user ${process.getuid?.()}`;
  }
}

/** Who holds the lock; undefined: nobody. A lock with content of another form is as old as its file. */
async function heldBy(lock: string): Promise<Held | undefined> {
  const text = await unless('ENOENT', readFile(lock, 'utf8'));
  if (text === undefined) return undefined;
  try {
    const { owner, at } = JSON.parse(text);
    if (typeof owner === 'string' && Number.isFinite(at)) return { owner, at };
  } catch {} // content of another form: see below
  const found = await unless('ENOENT', stat(lock));
  return found && { owner: 'an unknown process', at: found.mtimeMs };
}

/**
 * Removes the stale lock. Returns whether this process removed it. If two processes find it at once, the
 * second must not remove the new lock of the first: it puts that lock back.
 */
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
