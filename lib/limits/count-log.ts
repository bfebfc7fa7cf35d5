/**
 * Stores what clients have used in `<workspace>/limits`, so that limits survive a restart. No request waits
 * for that.
 */
import { randomBytes } from 'node:crypto';
import { readdir, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { CLIENT_NAME } from '../access/clients-file.ts';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { requireOwnDirectory } from '../files/durable-file.ts';
import { lineLog, linesOf } from '../files/line-files.ts';
import { isCount } from './limits.ts';

/** A stored count: requests that were admitted at that time, or tokens that were counted at that time. */
export interface CountRecord {
  readonly client: string;
  /** ms since 1970 */
  readonly at: number;
  readonly requests: number;
  readonly tokens: number;
}

export interface CountLogOptions {
  readonly workspace: string;
  /** Called when counts cannot be written: once for a reason, until they can be again. */
  readonly onFailure: (reason: Error) => void;
  /**
   * Called when counts can be written again. `lost` requests of the last minute could not be kept; tokens
   * always are.
   */
  readonly onRecovery: (lost: number) => void;
  readonly clock: Clock;
  /** Highest number of records that wait for the disk. Default: 20,000. */
  readonly mostPending?: number;
}

export type CountLog = Awaited<ReturnType<typeof openCountLog>>;

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** The log keeps the files of today and of this many days before it. */
const KEPT_DAYS = 8;
const FILE_NAME = /^(\d{4}-\d\d-\d\d)\.[a-z0-9]{12}\.jsonl$/;
/** Highest number of records in one line. */
const MOST_RECORDS = 500;

/** The UTC day of a time in ms since 1970, as in 2026-11-30. */
const dayOf = (at: number): string => new Date(at).toISOString().slice(0, 10);

/**
 * Opens a file of its own, `YYYY-MM-DD.<instance>.jsonl`, for each day (UTC) on which records are added.
 * Reads what all instances that ever wrote to this workspace left. Several gateways with one workspace thus
 * begin with each other's counts, which makes them stricter than they would be alone. A gateway does not see
 * what another counts after its start. Files that are older than 8 days are deleted, at the start and with
 * the first batch of each day.
 *
 * A line holds the records of 250 ms. It is {"v":1,"time":"2026-11-30T12:00:00.000Z","counts":[…]} with
 * records such as {"client":"ann","at":1796040000000,"requests":1,"tokens":0}. The records of 250 ms are lost
 * if the process is killed or the power fails; `close` loses nothing. While the disk cannot be written,
 * requests go on and their records wait. If too many wait, the oldest admissions are dropped.
 *
 * Throws config_invalid if the directory cannot be made or read.
 */
export async function openCountLog(options: CountLogOptions) {
  const { workspace, onFailure, onRecovery, clock, mostPending = 20_000 } = options;
  const { now } = clock;
  const directory = join(workspace, 'limits');
  const instance = randomBytes(6).toString('hex');
  let pending: CountRecord[] = [];
  /** Admissions that were dropped while the disk could not be written. */
  let dropped = 0;
  let closed = false;
  /** The day on which old files were deleted last. */
  let cleanedOn = '';

  const stored = await readStored(directory, now()).catch((cause: unknown) => {
    const { code, message } = cause as NodeJS.ErrnoException;
    const words = `--workspace: the counts of limits cannot be kept in ${JSON.stringify(directory)} (${code ?? message})`;
    throw new PrivatemodeError('config_invalid', words, { cause });
  });
  await deleteOldDaily();

  /** Makes room: merges what can be merged, then drops the oldest admissions. */
  function makeRoom(): void {
    const { tokens, admissions } = condensed(pending, now());
    const kept = admissions.slice(-Math.floor(mostPending / 2));
    dropped += admissions.length - kept.length;
    pending = [...tokens, ...kept];
  }

  async function deleteOldDaily(): Promise<void> {
    const today = dayOf(now());
    if (today === cleanedOn) return;
    cleanedOn = today;
    await deleteOld(directory, now()).catch(() => {}); // tried again the next day
  }

  async function writePending(): Promise<void> {
    await deleteOldDaily(); // first, because a full disk needs the room
    const { tokens, admissions } = condensed(pending, now());
    pending = [];
    const days = Map.groupBy([...tokens, ...admissions], ({ at }) => dayOf(at));
    for (const [day, records] of days) {
      try {
        await log.append(join(directory, `${day}.${instance}.jsonl`), textOf(records, now()));
        days.delete(day);
      } catch (error) {
        pending = [...days.values()].flat().concat(pending);
        throw error;
      }
    }
    dropped = 0;
  }
  const log = lineLog({ clock, write: writePending, onFailure, onRecovery: () => onRecovery(dropped) });

  return {
    /**
     * The records that still count: admissions of the last minute, one by one, and tokens of today, summed;
     * in the order of their times.
     */
    before: stored.records,
    /**
     * How many lines could not be read and are missing from `before`. A part of a line that a crash left does
     * not count.
     */
    unreadable: stored.unreadable,
    /** Queues a record; never throws, and waits for nothing. */
    add(record: CountRecord): void {
      if (closed) return;
      pending.push(record);
      if (pending.length > mostPending) makeRoom();
      log.later();
    },
    /**
     * Writes the pending records. Records that cannot be written now are lost, and so are those that are
     * added later.
     */
    async close(): Promise<void> {
      closed = true;
      await log.close();
    },
  };
}

/**
 * Joins the tokens of a client and day to one record, of the latest time. Leaves out admissions that are
 * older than a minute and tokens that are older than yesterday: while a disk stays full, the waiting records
 * must not grow with the days. The last record is never left out: writing it shows that the disk has room
 * again.
 */
function condensed(records: readonly CountRecord[], now: number) {
  const yesterday = dayOf(now - DAY_MS);
  const last = records.at(-1);
  const tokens = new Map<string, CountRecord>();
  const admissions: CountRecord[] = [];
  for (const record of records) {
    const { client, at, requests, tokens: count } = record;
    const day = dayOf(at);
    const isLast = record === last;
    if (requests > 0 && (isLast || at > now - MINUTE_MS))
      admissions.push({ client, at, requests, tokens: 0 });
    if (count > 0 && (isLast || day >= yesterday))
      addTokens(tokens, `${day} ${client}`, { client, at, tokens: count });
  }
  return { tokens: [...tokens.values()], admissions };
}

/** Adds tokens to the record under `key`, and gives it the latest time. */
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
 * Reads the files of today, and those of a minute ago and a minute ahead. A record that lies ahead by
 * seconds, because the clock was set back, counts as now. Keeps in memory one sum for each client and the
 * admissions of these two minutes.
 */
async function readStored(directory: string, now: number) {
  // The log deletes files in this directory, so it must not be a link to a place that somebody has chosen.
  await requireOwnDirectory(directory);
  const today = dayOf(now);
  const days = new Set([today, dayOf(now - MINUTE_MS), dayOf(now + MINUTE_MS)]);
  const sums = new Map<string, CountRecord>();
  const admissions: CountRecord[] = [];
  let unreadable = 0;
  const files = (await countFiles(directory)).filter(({ day }) => days.has(day)).map(({ name }) => name);
  for (const file of files) {
    for await (const { text, isWhole } of linesOf(join(directory, file))) {
      if (!isWhole) continue;
      const records = parseLine(text);
      if (records === undefined) unreadable += 1;
      for (const { client, at: stored, requests, tokens } of records ?? []) {
        const at = Math.min(stored, now);
        const isRecent = Math.abs(now - stored) < MINUTE_MS;
        if (requests > 0 && isRecent) admissions.push({ client, at, requests, tokens: 0 });
        if (tokens > 0 && dayOf(stored) === today) addTokens(sums, client, { client, at, tokens });
      }
    }
  }
  const records = [...sums.values(), ...admissions].sort((a, b) => a.at - b.at);
  return { records: records as readonly CountRecord[], unreadable };
}

/** The files whose names are those of this log, without links and whatever else may be there. */
async function countFiles(directory: string): Promise<{ readonly name: string; readonly day: string }[]> {
  const entries = await readdir(directory, { withFileTypes: true });
  return entries.flatMap((entry) => {
    const day = FILE_NAME.exec(entry.name)?.[1];
    return day !== undefined && entry.isFile() ? [{ name: entry.name, day }] : [];
  });
}

/** Deletes the files of days that no reader asks for any more. It does no harm if one cannot be deleted. */
async function deleteOld(directory: string, now: number): Promise<void> {
  const oldest = dayOf(now - KEPT_DAYS * DAY_MS);
  for (const { name, day } of await countFiles(directory)) {
    if (day < oldest) await unlink(join(directory, name)).catch(() => {});
  }
}

/** The records of a line; undefined if the line is not one of this log. */
function parseLine(text: string): readonly CountRecord[] | undefined {
  try {
    const { v, counts } = JSON.parse(text) as { v: unknown; counts: unknown };
    return v === 1 && Array.isArray(counts) && counts.every(isRecord) ? counts : undefined;
  } catch {
    return undefined;
  }
}

/** The last day whose year has four digits. */
const LATEST = Date.UTC(9999, 11, 31);

function isRecord(value: unknown): value is CountRecord {
  const { client, at, requests, tokens } = (value ?? {}) as Record<string, unknown>;
  const isName = typeof client === 'string' && CLIENT_NAME.test(client);
  // Each admission is a record of its own. A record of many admissions is refused, because each of them would
  // take memory.
  return isName && isCount(at) && at <= LATEST && (requests === 0 || requests === 1) && isCount(tokens);
}
