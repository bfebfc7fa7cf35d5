/** Writes receipts (lib/transparency/receipt.ts) in batches to `<workspace>/receipts`, off the way of the requests. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdir, open, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PrivatemodeError } from '../errors.ts';
import { createLineWriter, newInstance, publish, unless, writeInBatches } from './durable-file.ts';
import {
  type ChainEnd,
  lineDigest,
  NOTHING_BEFORE,
  parseLine,
  type ReceiptLine,
  type ReceiptRecord,
  type RequestReceipt,
  receiptFileName,
  receiptFiles,
  signedLine,
} from './receipt.ts';

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
  /** Receipts of requests, counted here. */
  readonly counters?: { written: number; lost: number };
  /** ms since 1970. */
  readonly now?: () => number;
  /** ms between two batches. */
  readonly interval?: number;
  /** Receipts that may wait for the disk; further ones are lost. */
  readonly mostPending?: number;
}

/** Lines that are signed in one turn of the event loop: a signature takes some 30 us. */
const LINES_PER_TURN = 16;
/** Lines of one write. */
const MOST_LINES = 500;

/**
 * Begins the chain of a new instance, with its first line on disk when this resolves. The key is made where there is none.
 * Throws receipts_unavailable.
 */
export async function openReceiptLog(options: ReceiptLogOptions) {
  const { workspace, version, onFailure, onRecovery } = options;
  const { now = Date.now, interval = 250, mostPending = 10_000 } = options;
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
  const writer = createLineWriter();
  /** Dropped since the last line. */
  let dropped = 0;

  /** Writes what is pending, some at a time. The chain moves on only when lines are on disk: what failed is written anew. */
  async function writePending(key: KeyObject): Promise<number> {
    for (const [sha256, verdict] of verdicts) {
      const path = join(directory, VERDICTS, `${sha256}.json`);
      await mkdir(dirname(path), { recursive: true, mode: 0o700 });
      await publish(path, verdict, 0o600);
      verdicts.delete(sha256);
    }
    while (pending.length > 0) await writeBatch(pending.slice(0, MOST_LINES), key);
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
    await writer.append(join(directory, receiptFileName(time(), instance)), text);
    [seq, prev] = [nextSeq, nextPrev];
    const written = new Set(batch);
    pending = pending.filter((record) => !written.has(record));
    counters.written += batch.filter(({ type }) => type === 'request').length;
  }

  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const key = await readOrMakeKey(directory);
    pending = [{ type: 'opened', time: time(), version, found: await chainEnds(directory) }];
    await writePending(key);
    const publicKey = createPublicKey(key);
    const batches = writeInBatches({ interval, write: () => writePending(key), onFailure, onRecovery });

    function enqueue(record: ReceiptRecord): void {
      if (pending.length < mostPending) pending.push(record);
      else {
        dropped += 1;
        counters.lost += 1;
      }
      batches.later();
    }
    return {
      instance,
      counters: counters as Readonly<typeof counters>,
      /** SubjectPublicKeyInfo in base64. */
      publicKey: publicKey.export({ type: 'spki', format: 'der' }).toString('base64'),
      /** Queues a line for a request; never throws, and waits for nothing. */
      add: (receipt: RequestReceipt): void => enqueue({ type: 'request', ...receipt }),
      /** Notes that receipts are missing here, nobody knows how many. */
      noteGap: (): void => enqueue({ type: 'lost', time: time(), count: null }),
      /** Stores the text of a verdict under its digest, for receipts to point to; never throws, and waits for nothing. */
      keepVerdict(sha256: string, text: string): void {
        verdicts.set(sha256, text);
        batches.later();
      },
      /** Writes what is pending and the last line of the instance. What cannot be written now is lost. */
      async close(): Promise<void> {
        await batches.flush();
        pending.push({ type: 'closed', time: time() });
        await batches.flush();
        batches.stop();
        await writer.close();
      },
    };
  } catch (cause) {
    const { code = 'unknown cause' } = cause as NodeJS.ErrnoException;
    const message = `receipts cannot be written to ${directory} (${code})`;
    throw new PrivatemodeError('receipts_unavailable', message, { cause });
  }
}

/** The key of the workspace, made where there is none. Two processes that begin at once agree on one. */
async function readOrMakeKey(directory: string): Promise<KeyObject> {
  const path = join(directory, KEY_FILES.private);
  let pem = await unless('ENOENT', readFile(path));
  if (pem === undefined) {
    const { privateKey } = generateKeyPairSync('ed25519');
    await publish(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
    pem = await readFile(path);
  }
  const key = createPrivateKey(pem);
  const publicPem = createPublicKey(key).export({ type: 'spki', format: 'pem' });
  await writeFile(join(directory, KEY_FILES.public), publicPem, { mode: 0o644 });
  return key;
}

/** The ends of the chains in the directory that no other chain has named as found. */
async function chainEnds(directory: string): Promise<ChainEnd[]> {
  const ends: ChainEnd[] = [];
  const named = new Set<string>();
  for (const [instance, files] of receiptFiles(await readdir(directory))) {
    const first = await edgeLine(join(directory, files[0] as string), 'first');
    if (first?.type === 'opened') for (const { sha256 } of first.found) named.add(sha256);
    const last = await edgeLine(join(directory, files.at(-1) as string), 'last');
    if (last !== undefined) ends.push({ instance, seq: last.seq, sha256: lineDigest(last.text) });
  }
  return ends.filter(({ sha256 }) => !named.has(sha256));
}

/** Bytes; `opened` lines grow with the number of chains they found, all others are shorter. */
const LONGEST_LINE = 64 * 1024;

/** The first or the last complete line of a file; undefined where it has none that can be read. */
async function edgeLine(
  path: string,
  edge: 'first' | 'last',
): Promise<(ReceiptLine & { readonly text: string }) | undefined> {
  await using handle = await open(path, 'r');
  const { size } = await handle.stat();
  const position = edge === 'first' ? 0 : Math.max(0, size - LONGEST_LINE);
  const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(LONGEST_LINE), position });
  const complete = buffer.toString('utf8', 0, bytesRead).split('\n').slice(0, -1);
  const text = complete.at(edge === 'first' ? 0 : -1);
  const line = text === undefined ? undefined : parseLine(text);
  return line && { ...line, text: text as string };
}
