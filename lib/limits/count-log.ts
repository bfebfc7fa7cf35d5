/** Stores what clients have used in `<workspace>/limits`, off the way of the requests, so that limits survive a restart. */
import { lstat, mkdir, readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { CLIENT_NAME } from '../clients/clients-file.ts';
import { PrivatemodeError } from '../errors.ts';
import { createLineWriter, linesOf, newInstance, writeInBatches } from '../files/line-files.ts';
import { openToAppend } from '../files/own-files.ts';
import { isCount } from './limits.ts';

/** A stored count: requests that were admitted then, or tokens that were counted then. */
export interface CountRecord {
  readonly client: string;
  /** ms since 1970 */
  readonly at: number;
  readonly requests: number;
  readonly tokens: number;
}

export interface CountLogOptions {
  readonly workspace: string;
  /** Counts cannot be written for now; called once until they can be again. */
  readonly onFailure: (reason: Error) => void;
  /** They can be again. `lost` requests of the last minute could not be kept; tokens always are. */
  readonly onRecovery: (lost: number) => void;
  /** ms since 1970. */
  readonly now?: () => number;
  /** ms between two batches. */
  readonly interval?: number;
  /** Records that may wait for the disk. */
  readonly mostPending?: number;
}

export type CountLog = Awaited<ReturnType<typeof openCountLog>>;

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** Days of which a file is kept: today, and these before it. */
const KEPT_DAYS = 8;
const FILE_NAME = /^(\d{4}-\d\d-\d\d)\.[a-z0-9]{12}\.jsonl$/;
/** Records of one line. */
const MOST_RECORDS = 500;

/** The UTC day of a time in ms since 1970, as in 2026-11-30. */
const dayOf = (at: number): string => new Date(at).toISOString().slice(0, 10);

/**
 * Opens a file of our own for each day (UTC) on which records are added, `YYYY-MM-DD.<instance>.jsonl`, and reads what all instances
 * that ever wrote to this workspace left: several gateways with one workspace thus begin with each other's counts, which makes them
 * stricter than they would be alone; what another counts after our start is not seen. Files that are older than 8 days are deleted.
 *
 * A line is {"v":1,"time":"2026-11-30T12:00:00.000Z","counts":[{"client":"ann","at":1796040000000,"requests":1,"tokens":0}, …]}: the
 * records of 250 ms. Those are lost if the process is killed or the power fails; `close` loses nothing. While the disk cannot be
 * written, requests go on, and their records wait; where they are too many, the oldest admissions are dropped.
 *
 * Throws config_invalid where the directory cannot be made or read.
 */
export async function openCountLog(options: CountLogOptions) {
  const { workspace, onFailure, onRecovery } = options;
  const { now = Date.now, interval = 250, mostPending = 20_000 } = options;
  const directory = join(workspace, 'limits');
  const instance = newInstance();
  const writer = createLineWriter(openToAppend);
  let pending: CountRecord[] = [];
  /** Admissions that were dropped since the last batch. */
  let dropped = 0;
  let closed = false;

  const stored = await readStored(directory, now()).catch((cause: unknown) => {
    const { code, message } = cause as NodeJS.ErrnoException;
    const words = `--workspace: the counts of limits cannot be kept in ${JSON.stringify(directory)} (${code ?? message})`;
    throw new PrivatemodeError('config_invalid', words, { cause });
  });
  await deleteOld(directory, now());

  /** Makes room: merges what can be merged, then drops the oldest admissions. */
  function makeRoom(): void {
    const { tokens, admissions } = condensed(pending, now());
    const kept = admissions.slice(-Math.floor(mostPending / 2));
    dropped += admissions.length - kept.length;
    pending = [...tokens, ...kept];
  }

  async function writePending(): Promise<number> {
    const { tokens, admissions } = condensed(pending, now());
    pending = [];
    const days = Map.groupBy([...tokens, ...admissions], ({ at }) => dayOf(at));
    for (const [day, records] of days) {
      try {
        await writer.append(join(directory, `${day}.${instance}.jsonl`), textOf(records, now()));
        days.delete(day);
      } catch (error) {
        pending = [...days.values()].flat().concat(pending);
        throw error;
      }
    }
    const lost = dropped;
    dropped = 0;
    return lost;
  }
  const batches = writeInBatches({ interval, write: writePending, onFailure, onRecovery });

  return {
    /** What counts still: admissions of the last minute, one by one, and tokens of today, summed; in the order of their times. */
    before: stored.records,
    /** Lines that could not be read, and were left out of `before`. The part of a line that a crash left is none. */
    unreadable: stored.unreadable,
    /** Queues a record; never throws, and waits for nothing. */
    add(record: CountRecord): void {
      if (closed) return;
      pending.push(record);
      if (pending.length > mostPending) makeRoom();
      batches.later();
    },
    /** Writes what is pending. What cannot be written now is lost, and so is what is added later. */
    async close(): Promise<void> {
      closed = true;
      await batches.flush();
      batches.stop();
      await writer.close();
    },
  };
}

/**
 * Joins tokens of a client and day to one record, of the latest time. Leaves out admissions that are older than a minute and tokens that
 * are older than yesterday: on a disk that stays full, what waits must not grow with the days.
 */
function condensed(records: readonly CountRecord[], now: number) {
  const yesterday = dayOf(now - DAY_MS);
  const tokens = new Map<string, CountRecord>();
  const admissions: CountRecord[] = [];
  for (const { client, at, requests, tokens: count } of records) {
    if (requests > 0 && at > now - MINUTE_MS) admissions.push({ client, at, requests, tokens: 0 });
    const day = dayOf(at);
    if (count > 0 && day >= yesterday) addTokens(tokens, `${day} ${client}`, { client, at, tokens: count });
  }
  return { tokens: [...tokens.values()], admissions };
}

/** Adds to the record under `key`, which takes the latest time. */
function addTokens(
  sums: Map<string, CountRecord>,
  key: string,
  { client, at, tokens }: Omit<CountRecord, 'requests'>,
): void {
  const sum = sums.get(key);
  sums.set(key, { client, at: Math.max(at, sum?.at ?? 0), requests: 0, tokens: tokens + (sum?.tokens ?? 0) });
}

function textOf(records: readonly CountRecord[], now: number): string {
  const time = new Date(now).toISOString();
  let text = '';
  for (let i = 0; i < records.length; i += MOST_RECORDS) {
    text += `${JSON.stringify({ v: 1, time, counts: records.slice(i, i + MOST_RECORDS) })}\n`;
  }
  return text;
}

/**
 * Reads the files of today, and those of the minute before and after: what lies ahead by seconds, because the clock was set back, counts
 * as now. Keeps in memory one sum for each client and the admissions of these two minutes.
 */
async function readStored(directory: string, now: number) {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  // Files are deleted in it: not in a place that somebody else has chosen.
  if (!(await lstat(directory)).isDirectory()) throw new Error('it is not a directory');
  const today = dayOf(now);
  const days = new Set([today, dayOf(now - MINUTE_MS), dayOf(now + MINUTE_MS)]);
  const sums = new Map<string, CountRecord>();
  const admissions: CountRecord[] = [];
  let unreadable = 0;
  const files = (await countFiles(directory)).filter(({ day }) => days.has(day)).map(({ name }) => name);
  for await (const { text, complete } of linesOf(directory, files)) {
    if (!complete) continue;
    const records = parseLine(text);
    if (records === undefined) unreadable += 1;
    for (const { client, at: stored, requests, tokens } of records ?? []) {
      const at = Math.min(stored, now);
      const isRecent = Math.abs(now - stored) < MINUTE_MS;
      if (requests > 0 && isRecent) admissions.push({ client, at, requests, tokens: 0 });
      if (tokens > 0 && dayOf(stored) === today) addTokens(sums, client, { client, at, tokens });
    }
  }
  const records = [...sums.values(), ...admissions].sort((a, b) => a.at - b.at);
  return { records: records as readonly CountRecord[], unreadable };
}

/** The files that are named as ours, without links and whatever else may be there. */
async function countFiles(directory: string): Promise<{ readonly name: string; readonly day: string }[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  return entries.flatMap((entry) => {
    const day = FILE_NAME.exec(entry.name)?.[1];
    return day !== undefined && entry.isFile() ? [{ name: entry.name, day }] : [];
  });
}

/** Deletes the files of days that nobody asks for any more. One that cannot be deleted does no harm. */
async function deleteOld(directory: string, now: number): Promise<void> {
  const oldest = dayOf(now - KEPT_DAYS * DAY_MS);
  for (const { name, day } of await countFiles(directory)) {
    if (day < oldest) await unlink(join(directory, name)).catch(() => {});
  }
}

/** The records of a line; undefined where it is none of ours. */
function parseLine(text: string): readonly CountRecord[] | undefined {
  try {
    const { v, counts } = JSON.parse(text) as { v: unknown; counts: unknown };
    return v === 1 && Array.isArray(counts) && counts.every(isRecord) ? counts : undefined;
  } catch {
    return undefined;
  }
}

/** The last day of which a date has four digits of a year. */
const LATEST = Date.UTC(9999, 11, 31);

function isRecord(value: unknown): value is CountRecord {
  const { client, at, requests, tokens } = (value ?? {}) as Record<string, unknown>;
  const isName = typeof client === 'string' && CLIENT_NAME.test(client);
  // Each request is a record of its own: one of many would be remembered one by one, whatever it claims.
  return isName && isCount(at) && at <= LATEST && (requests === 0 || requests === 1) && isCount(tokens);
}
