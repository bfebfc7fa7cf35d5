/**
 * Writes receipts (lib/receipts/receipt.ts) in batches to `<workspace>/receipts`, so that no request waits
 * for the disk.
 */
import { createPublicKey, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { createLineWriter, newInstance, writeInBatches } from '../files/line-files.ts';
import { openOwnToAppend } from '../files/own-files.ts';
import {
  type ChainEnd,
  lineDigest,
  NOTHING_BEFORE,
  notedAt,
  type ReceiptRecord,
  type RefusalCount,
  type RequestReceipt,
  receiptFileName,
  signedLine,
} from './receipt.ts';
import { beforeWriting, keyOfChain, lastLine, listReceiptFiles } from './receipt-files.ts';
import { keyNamed, keySha256, keysOf, putKeyBack, readOrMakeKey, replaceKey } from './receipt-keys.ts';
import { createVerdictStore, type KeptExchange } from './verdict-store.ts';

export type ReceiptLog = Awaited<ReturnType<typeof openReceiptLog>>;

export interface ReceiptLogOptions {
  readonly workspace: string;
  readonly version: string;
  /** Name of the key that follows the one of the workspace. The first line of the chain announces it. */
  readonly nextKey?: string | undefined;
  /** Called when receipts cannot be written for now: once for a reason, until they can be written again. */
  readonly onFailure: (reason: Error) => void;
  /** Called when receipts can be written again. `lost`: how many could not be written. */
  readonly onRecovery: (lost: number) => void;
  /** Called within a second when receipts are lost, with their number since the last time. */
  readonly onLoss?: (lost: number) => void;
  /** Called when old exchanges could not be removed; the next exchange tries it again. */
  readonly onUnpruned?: (reason: Error) => void;
  /** Called when the directory was moved away or emptied, before the next lines are written to it. */
  readonly onReplaced?: () => void;
  /** Receipts of requests. The log adds to these counts. */
  readonly counters?: { written: number; lost: number };
  readonly clock: Clock;
  /** Receipts that may wait for the disk. Further ones are lost. */
  readonly mostPending?: number;
  /** Exchanges that are kept. Default: those of about a month. */
  readonly mostExchanges?: number | undefined;
}

/** Lines that are signed in one turn of the event loop: a signature takes some 30 us. */
const LINES_PER_TURN = 16;
/** The most lines of one write. */
const MOST_LINES = 500;
/** Refused requests get lines of their own only while fewer than this share of `mostPending` records wait. */
const REFUSED_SHARE = 0.1;

/**
 * Begins the chain of a new instance. Its first line is on disk when this resolves. Makes a key if there is
 * none. Throws receipts_unavailable.
 */
export async function openReceiptLog(options: ReceiptLogOptions) {
  const { workspace, version, nextKey, onFailure, onRecovery } = options;
  const { onLoss = () => {}, onUnpruned = () => {}, onReplaced } = options;
  const { clock, mostPending = 10_000 } = options;
  const { now, times } = clock;
  const { mostExchanges, counters = { written: 0, lost: 0 } } = options;
  const directory = join(workspace, 'receipts');
  const instance = newInstance();
  const time = (): string => new Date(now()).toISOString();
  /** Records that have no line yet, in order. */
  let pending: ReceiptRecord[] = [];
  const verdicts = createVerdictStore(directory, { most: mostExchanges, onUnpruned }, now);
  let seq = 0;
  let prev = NOTHING_BEFORE;
  const writer = createLineWriter(openOwnToAppend);
  /**
   * The day of the file that was written last. It never goes back, because a clock that is set back must not
   * tear the chain.
   */
  let day = '';
  /** How many receipts were dropped that no line reports yet. */
  let dropped = 0;
  /** How many of the dropped receipts `onLoss` does not know of yet. */
  let untold = 0;
  let cancelLoss: (() => void) | undefined;
  let refusals = sumRefusals();
  let isSumDue = false;

  /**
   * Writes the pending records in batches, and resolves with the number of receipts that were lost meanwhile.
   * The chain moves on only when lines are on disk: records whose write failed are written anew. So after a
   * failure there is always something to write.
   */
  async function writePending(key: KeyObject): Promise<number> {
    if (await putKeyBack(directory, key)) {
      onReplaced?.();
      verdicts.addAgain();
    }
    await verdicts.write(); // before the lines that point to them
    while (pending.length > 0) await writeBatch(pending.slice(0, MOST_LINES), key);
    if (isSumDue && !refusals.isEmpty()) {
      isSumDue = false;
      pending = [refusals.record(now())];
      refusals = sumRefusals();
      await writeBatch([...pending], key); // receipts that come meanwhile are not written with it
    }
    const lost = dropped;
    if (lost > 0) await writeBatch([{ type: 'lost', time: time(), count: lost }], key);
    dropped -= lost;
    return lost;
  }

  async function writeBatch(batch: readonly ReceiptRecord[], key: KeyObject): Promise<void> {
    let [nextSeq, nextPrev, text] = [seq, prev, ''];
    for (const record of batch) {
      const line = signedLine({ v: 1, instance, seq: nextSeq, prev: nextPrev }, record, key);
      text += `${line}\n`;
      nextPrev = lineDigest(line);
      nextSeq += 1;
      if (nextSeq % LINES_PER_TURN === 0) await new Promise(setImmediate);
    }
    // The day is never earlier than that of one of these lines, even if the clock was set back.
    const latest = new Date(Math.max(now(), ...batch.map(notedAt))).toISOString().slice(0, 10);
    if (latest > day) day = latest;
    await writer.append(join(directory, receiptFileName(day, instance)), text);
    [seq, prev] = [nextSeq, nextPrev];
    const written = new Set(batch);
    pending = pending.filter((record) => !written.has(record));
    counters.written += batch.filter(({ type }) => type === 'request').length;
  }

  function tellLoss(): void {
    cancelLoss?.();
    cancelLoss = undefined;
    if (untold > 0) onLoss(untold);
    untold = 0;
  }

  try {
    const { key, isNew, isChanged, former } = await readOrMakeKey(directory);
    const publicKey = createPublicKey(key);
    const name = keySha256(publicKey);
    const { found, announced, hasUnknown } = await beforeWriting(directory, readChains(directory));
    const names = { key: name, ...(nextKey === undefined ? {} : { nextKey }) };
    pending = [{ type: 'opened', time: time(), version, ...names, found }];
    await writePending(key);
    const batches = writeInBatches({ clock, write: () => writePending(key), onFailure, onRecovery });

    function enqueue(record: ReceiptRecord): void {
      if (pending.length < mostPending) pending.push(record);
      else lose(1);
      batches.later();
    }
    function lose(count: number): void {
      dropped += count;
      untold += count;
      cancelLoss ??= clock.after(times.lossDelay, tellLoss); // waits for no write, which may hang
      counters.lost += count;
    }
    let cancelSum = (): void => {};
    function addRefusal(receipt: RequestReceipt): void {
      if (refusals.isEmpty()) cancelSum = clock.after(times.refusalInterval, sumIsDue);
      refusals.add(receipt, now());
    }
    function sumIsDue(): void {
      isSumDue = true;
      batches.later();
    }
    return {
      instance,
      counters: counters as Readonly<typeof counters>,
      /**
       * Whether the key has changed without an announcement. Either the directory named another public key
       * before, which did not announce this one. Or this key is new in the directory, and a chain names a key
       * that the directory does not hold.
       */
      isKeyChanged:
        (isNew && hasUnknown) ||
        (isChanged && !(former !== undefined && announced.has(announcement(former, name)))),
      /** SubjectPublicKeyInfo in base64. */
      publicKey: publicKey.export({ type: 'spki', format: 'der' }).toString('base64'),
      /**
       * Queues a line for a request. Never throws, and waits for nothing. Requests that were not admitted
       * (they have no endpoint) are only counted, and so are other refused requests while many lines wait,
       * because anybody can make any number of them.
       */
      add(receipt: RequestReceipt): void {
        const { endpoint, outcome } = receipt;
        const isCrowded = pending.length >= REFUSED_SHARE * mostPending;
        if (endpoint === null || (outcome === 'refused' && isCrowded)) addRefusal(receipt);
        else enqueue({ type: 'request', ...receipt });
      },
      /**
       * Stores the text of a verdict, so that receipts can point to it, and the files of the exchange that
       * led to it. Never throws, and waits for nothing.
       */
      keepVerdict(sha256: string, text: string, exchange?: KeptExchange): void {
        verdicts.add(sha256, { text, exchange });
        batches.later();
      },
      /**
       * Writes the pending records and the last line of the instance. Records that cannot be written now are
       * lost.
       */
      async close(): Promise<void> {
        cancelSum();
        await batches.flush();
        if (!refusals.isEmpty()) pending.push(refusals.record(now()));
        refusals = sumRefusals();
        pending.push({ type: 'closed', time: time() });
        await batches.flush();
        batches.stop();
        lose(pending.reduce((sum, record) => sum + requestsOf(record), 0));
        tellLoss();
        await writer.close();
      },
    };
  } catch (cause) {
    if (cause instanceof PrivatemodeError) throw cause;
    const { code = 'unknown cause' } = cause as NodeJS.ErrnoException;
    const message = `receipts cannot be written to ${directory} (${code})`;
    throw new PrivatemodeError('receipts_unavailable', message, { cause });
  }
}

/** How many requests a record is about. */
function requestsOf(record: ReceiptRecord): number {
  if (record.type === 'refused') return record.counts.reduce((sum, { count }) => sum + count, 0);
  return record.type === 'request' ? 1 : 0;
}

/**
 * Counts refusals by client and code. The operator's file limits how many clients there are, and
 * lib/errors.ts how many codes.
 */
function sumRefusals() {
  const counts = new Map<string, RefusalCount>();
  let since = 0;
  return {
    isEmpty: (): boolean => counts.size === 0,
    add({ client, code }: RequestReceipt, at: number): void {
      if (counts.size === 0) since = at;
      const key = JSON.stringify([client, code]);
      counts.set(key, { client, code, count: (counts.get(key)?.count ?? 0) + 1 });
    },
    record: (until: number): ReceiptRecord => ({
      type: 'refused',
      time: new Date(since).toISOString(),
      durationMs: Math.max(0, until - since),
      counts: [...counts.values()],
    }),
  };
}

/** The names of a key and of one that it has announced in a chain, as one text. */
const announcement = (key: string, next: string): string => `${key} ${next}`;

/**
 * Reads the chains in the directory. The key of each is the one that it names; if it names none, one of the
 * directory. `found`: the last signed line of each chain, unless another chain has named that line as found.
 * `announced`: each `announcement` of a key. `hasUnknown`: whether a chain names a key that the directory
 * does not hold.
 */
async function readChains(directory: string) {
  const keys = await keysOf(directory);
  const find = async (name: string) => keys.get(name) ?? keyNamed(directory, name);
  const ends: ChainEnd[] = [];
  const named = new Set<string>();
  const announced = new Set<string>();
  let hasUnknown = false;
  for (const [instance, files] of (await listReceiptFiles(directory)).instances) {
    const chain = await keyOfChain(directory, files, { instance, keys, find });
    hasUnknown ||= chain.unknown !== undefined;
    const opened = chain.first?.members;
    if (opened?.type === 'opened') {
      for (const { sha256 } of opened.found) named.add(sha256);
      if (opened.nextKey !== undefined) announced.add(announcement(keySha256(chain.key), opened.nextKey));
    }
    const last = await lastLine(directory, files, { instance, key: chain.key });
    if (last !== undefined) ends.push({ instance, seq: last.members.seq, sha256: lineDigest(last.text) });
  }
  return { found: ends.filter(({ sha256 }) => !named.has(sha256)), announced, hasUnknown };
}

/**
 * Gives the workspace a new key. The old key signs, in a chain of its own, that the new one follows. A
 * running proxy signs with the old key until it is started again. Resolves with the names of both keys.
 * Throws receipts_unavailable, and config_invalid if others keep the lock.
 */
export async function rotateReceiptKey({
  workspace,
  version,
  clock,
}: Pick<ReceiptLogOptions, 'workspace' | 'version' | 'clock'>) {
  const fail = (reason: Error): never => {
    throw reason;
  };
  return replaceKey(join(workspace, 'receipts'), async (nextKey) => {
    const options = { workspace, version, clock, nextKey };
    const log = await openReceiptLog({ ...options, onFailure: fail, onRecovery: () => {} });
    await log.close();
  });
}
