/** Writes receipts (lib/transparency/receipt.ts) in batches to `<workspace>/receipts`, off the way of the requests. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { publish, replace, unless } from '../files/durable-file.ts';
import { createLineWriter, newInstance, writeInBatches } from '../files/line-files.ts';
import {
  LONGEST_PEM,
  openOwnToAppend,
  readOwnKey,
  readRegular,
  requireOwnDirectory,
} from '../files/own-files.ts';
import {
  type ChainEnd,
  lineDigest,
  NOTHING_BEFORE,
  type ReceiptRecord,
  type RefusalCount,
  type RequestReceipt,
  receiptFileName,
  signedLine,
} from './receipt.ts';
import { firstLine, lastLine, listReceiptFiles } from './receipt-files.ts';

export type ReceiptLog = Awaited<ReturnType<typeof openReceiptLog>>;

/** Names of the key files in the directory of the receipts: PKCS #8 and SubjectPublicKeyInfo, both PEM. */
export const KEY_FILES = { private: 'key.pem', public: 'public.pem' } as const;

/** The directory of the verdicts, in that of the receipts. */
export const VERDICTS = 'verdicts';

export interface ReceiptLogOptions {
  readonly workspace: string;
  readonly version: string;
  /** Receipts cannot be written for now; called once until they can be again. */
  readonly onFailure: (reason: Error) => void;
  /** They can be again; `lost` could not be. */
  readonly onRecovery: (lost: number) => void;
  /** Receipts are lost, so many since it was called last; null: nobody knows how many. */
  readonly onLoss?: (lost: number | null) => void;
  /** Receipts of requests, counted here. */
  readonly counters?: { written: number; lost: number };
  /** ms since 1970. */
  readonly now?: () => number;
  /** ms between two batches. */
  readonly interval?: number;
  /** ms between two lines that sum up refusals. */
  readonly refusalInterval?: number;
  /** Receipts that may wait for the disk; further ones are lost. */
  readonly mostPending?: number;
}

/** Lines that are signed in one turn of the event loop: a signature takes some 30 us. */
const LINES_PER_TURN = 16;
/** Lines of one write. */
const MOST_LINES = 500;
/** Of the receipts that may wait, the share that requests which were refused can take up. */
const REFUSED_SHARE = 0.1;

/**
 * Begins the chain of a new instance, with its first line on disk when this resolves. The key is made where there is none.
 * Throws receipts_unavailable.
 */
export async function openReceiptLog(options: ReceiptLogOptions) {
  const { workspace, version, onFailure, onRecovery, onLoss = () => {} } = options;
  const { now = Date.now, interval = 250, refusalInterval = 60_000, mostPending = 10_000 } = options;
  const { counters = { written: 0, lost: 0 } } = options;
  const directory = join(workspace, 'receipts');
  const instance = newInstance();
  const time = (): string => new Date(now()).toISOString();
  /** What has no line yet, in order. */
  let pending: ReceiptRecord[] = [];
  /** Texts of verdicts that are not stored yet, by digest; they are few, and stored before the lines that point to them. */
  const verdicts = new Map<string, string>();
  let seq = 0;
  let prev = NOTHING_BEFORE;
  const writer = createLineWriter(openOwnToAppend);
  /** The day of the file that was written last: a clock that is set back must not tear the chain. */
  let day = '';
  /** Dropped since the last line. */
  let dropped = 0;
  /** Of those, the ones that onLoss has not been told of. */
  let untold = 0;
  let refusals = sumRefusals();
  let isSumDue = false;

  /** Writes what is pending, some at a time. The chain moves on only when lines are on disk: what failed is written anew. */
  async function writePending(key: KeyObject): Promise<number> {
    tellLoss();
    for (const [sha256, verdict] of verdicts) {
      const path = join(directory, VERDICTS, `${sha256}.json`);
      await requireOwnDirectory(join(directory, VERDICTS));
      await publish(path, verdict, 0o600);
      verdicts.delete(sha256);
    }
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
    // Not an earlier one than that of a line either, where the clock was set back.
    const times = [time(), ...batch.map((record) => record.time)].map((each) => each.slice(0, 10));
    day = times.reduce((latest, each) => (each > latest ? each : latest), day);
    await writer.append(join(directory, receiptFileName(day, instance)), text);
    [seq, prev] = [nextSeq, nextPrev];
    const written = new Set(batch);
    pending = pending.filter((record) => !written.has(record));
    counters.written += batch.filter(({ type }) => type === 'request').length;
  }

  function tellLoss(): void {
    if (untold > 0) onLoss(untold);
    untold = 0;
  }

  try {
    const { key, isChanged } = await readOrMakeKey(directory);
    const publicKey = createPublicKey(key);
    pending = [{ type: 'opened', time: time(), version, found: await chainEnds(directory, publicKey) }];
    await writePending(key);
    const batches = writeInBatches({ interval, write: () => writePending(key), onFailure, onRecovery });

    function enqueue(record: ReceiptRecord): void {
      if (pending.length < mostPending) pending.push(record);
      else lose(1);
      batches.later();
    }
    function lose(count: number): void {
      dropped += count;
      untold += count;
      counters.lost += count;
    }
    let sumTimer: NodeJS.Timeout | undefined;
    function addRefusal(receipt: RequestReceipt): void {
      if (refusals.isEmpty()) sumTimer = setTimeout(sumIsDue, refusalInterval).unref();
      refusals.add(receipt, now());
    }
    function sumIsDue(): void {
      isSumDue = true;
      batches.later();
    }
    return {
      instance,
      counters: counters as Readonly<typeof counters>,
      /** Whether the directory named another public key before. */
      isKeyChanged: isChanged,
      /** SubjectPublicKeyInfo in base64. */
      publicKey: publicKey.export({ type: 'spki', format: 'der' }).toString('base64'),
      /**
       * Queues a line for a request; never throws, and waits for nothing. Requests that were not admitted (they have no endpoint) are
       * only counted, and so are others that were refused while many lines wait: anybody can make any number of them.
       */
      add(receipt: RequestReceipt): void {
        const { endpoint, outcome } = receipt;
        const isCrowded = pending.length >= REFUSED_SHARE * mostPending;
        if (endpoint === null || (outcome === 'refused' && isCrowded)) addRefusal(receipt);
        else enqueue({ type: 'request', ...receipt });
      },
      /** Notes that receipts are missing here, nobody knows how many. */
      noteGap(): void {
        enqueue({ type: 'lost', time: time(), count: null });
        onLoss(null);
      },
      /** Stores the text of a verdict under its digest, for receipts to point to; never throws, and waits for nothing. */
      keepVerdict(sha256: string, text: string): void {
        verdicts.set(sha256, text);
        batches.later();
      },
      /** Writes what is pending and the last line of the instance. What cannot be written now is lost. */
      async close(): Promise<void> {
        clearTimeout(sumTimer);
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

/** Requests that a record tells of. */
function requestsOf(record: ReceiptRecord): number {
  if (record.type === 'refused') return record.counts.reduce((sum, { count }) => sum + count, 0);
  return record.type === 'request' ? 1 : 0;
}

/** Counts refusals by client and code. There are as many of both as the operator's file and lib/errors.ts have. */
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

/** The key of the workspace, made where there is none, and whether the directory named another. Two processes that begin at once agree on one. */
async function readOrMakeKey(
  directory: string,
): Promise<{ readonly key: KeyObject; readonly isChanged: boolean }> {
  await requireOwnDirectory(directory);
  const path = join(directory, KEY_FILES.private);
  let pem = await unless('ENOENT', readOwnKey(path));
  if (pem === undefined) {
    const { privateKey } = generateKeyPairSync('ed25519');
    await publish(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
    pem = await readOwnKey(path);
  }
  const key = createPrivateKey(pem);
  const publicPem = createPublicKey(key).export({ type: 'spki', format: 'pem' });
  const publicPath = join(directory, KEY_FILES.public);
  const stored = await unless('ENOENT', readRegular(publicPath, LONGEST_PEM));
  const isSame = stored?.toString() === publicPem;
  if (!isSame) await replace(publicPath, publicPem, 0o644);
  return { key, isChanged: stored !== undefined && !isSame };
}

/** The ends of the chains in the directory that no other chain has named as found, by lines that this key has signed. */
async function chainEnds(directory: string, key: KeyObject): Promise<ChainEnd[]> {
  const ends: ChainEnd[] = [];
  const named = new Set<string>();
  for (const [instance, files] of (await listReceiptFiles(directory)).instances) {
    const opened = (await firstLine(directory, files, { instance, key }))?.members;
    if (opened?.type === 'opened') for (const { sha256 } of opened.found) named.add(sha256);
    const last = await lastLine(directory, files, { instance, key });
    if (last !== undefined) ends.push({ instance, seq: last.members.seq, sha256: lineDigest(last.text) });
  }
  return ends.filter(({ sha256 }) => !named.has(sha256));
}
