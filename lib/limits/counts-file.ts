/** Keeps the counts for the limits in `<workspace>/limits.json`, so that they survive a restart. */
import { statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { CLIENT_NAME } from '../access/clients-file.ts';
import { type Clock, every } from '../clock.ts';
import { replace, unless } from '../files/durable-file.ts';
import { readNamed } from '../files/path-refusal.ts';
import { isCount } from './limits.ts';

/** The requests and tokens that one client has used. */
export interface ClientCounts {
  readonly name: string;
  /** The tokens of the current day (UTC). */
  readonly tokens: number;
  /** When the client's requests of the last minute were admitted: ms since 1970, oldest first. */
  readonly admissions: readonly number[];
}

/** Returns the counts at the time `now`, in ms since 1970. */
export type CountsAt = (now: number) => readonly ClientCounts[];

/**
 * Reads the file. Replaces it at most once a second while counts change, and once at the end. A kill or a
 * power cut loses the counts of the last second. Two gateways with one workspace notice each other by the
 * file's modification time. There is no lock file, because a lock would outlive a crash. Calls `tell` with a
 * reason whenever counts may not survive a restart, and without a reason whenever counts were written. Throws
 * config_invalid if the file cannot be read.
 */
export async function openCountsFile(workspace: string, clock: Clock, tell: (reason?: Error) => void) {
  const path = join(workspace, 'limits.json');
  const what = `the counts of the limits, ${JSON.stringify(path)}`;
  const file = readNamed(what, path, (name) => statSync(name, { throwIfNoEntry: false }));
  const before = file === undefined ? [] : countsIn(readNamed(what, path), clock.now());
  if (before === undefined) tell(new Error('limits.json cannot be understood, and is left out'));
  /** The file's modification time as this gateway knows it. Another gateway's write changes the time. */
  let known = file?.mtimeMs;
  const timeNow = async () => (await unless('ENOENT', stat(path)))?.mtimeMs;
  let unwritten: CountsAt | undefined;
  let writing = Promise.resolve();

  async function write(): Promise<void> {
    if (unwritten === undefined) return;
    const [counts, now] = [unwritten, clock.now()];
    unwritten = undefined;
    try {
      const found = await timeNow();
      await replace(path, JSON.stringify({ v: 1, day: dayOf(now), clients: counts(now) }), 0o600);
      const isOurs = found === known || found === undefined;
      tell(isOurs ? undefined : new Error('another gateway writes to this workspace, too'));
      known = await timeNow();
    } catch (error) {
      tell(error as Error);
      unwritten ??= counts;
    }
  }

  const flush = () => (writing = writing.then(write));
  const end = every(clock, clock.times.countsPause, flush);
  return {
    before,
    /** Notes that the counts have changed, so that they are written soon. */
    store(counts: CountsAt): void {
      unwritten = counts;
    },
    /** Writes the counts that are not written yet. If the write fails, these counts are lost. */
    close(): Promise<void> {
      end();
      return flush();
    },
  };
}

/** The UTC day of a time in ms since 1970, in the form 2026-11-30. */
const dayOf = (at: number): string => new Date(at).toISOString().slice(0, 10);

/**
 * The counts in a file, or undefined if the file has another form. Leaves out tokens of another day, and
 * admissions at least a minute away from now. Admissions may be in the future, if the clock was set back.
 */
function countsIn(text: Buffer, now: number): readonly ClientCounts[] | undefined {
  try {
    const { v, day, clients } = JSON.parse(text.toString());
    if (v !== 1 || !clients.every(areCounts)) return undefined;
    return clients.map(({ name, tokens, admissions }: ClientCounts) => ({
      name,
      tokens: day === dayOf(now) ? tokens : 0,
      admissions: admissions.filter((at) => Math.abs(now - at) < 60_000),
    }));
  } catch {
    return undefined;
  }
}

const areCounts = ({ name, tokens, admissions }: ClientCounts): boolean =>
  CLIENT_NAME.test(name) && isCount(tokens) && Array.isArray(admissions) && admissions.every(isCount);
