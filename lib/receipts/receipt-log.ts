/** Writes receipts (lib/receipts/receipt.ts) to `<workspace>/receipts`; no request waits for the disk. */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { readdir, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { makeDirectory, openToRead, publish, replace } from '../files/durable-file.ts';
import { lineLog } from '../files/line-files.ts';
import { reasonOf } from '../files/path-refusal.ts';
import { type ReceiptRecord, type RequestReceipt, sha256, signedLine } from './receipt.ts';
import { endsOfFiles } from './receipt-files.ts';

export type ReceiptLog = Awaited<ReturnType<typeof openReceiptLog>>;

export interface ReceiptLogOptions {
  readonly workspace: string;
  readonly version: string;
  readonly roots: 'vendor' | 'custom';
  readonly clock: Clock;
  /** Called when receipts cannot be written for now, once for a reason, and when they can be again. */
  readonly onFailure: (reason: Error) => void;
  readonly onRecovery: () => void;
  /** Called for the first receipt that is lost, and when their number is known. */
  readonly onLost: () => void;
  /** The log adds the requests of which it wrote or lost the receipts. */
  readonly counters: { written: number; lost: number };
  /** Lines that may wait for the disk. Further receipts are lost. */
  readonly mostPending?: number;
}

/** The newest records that are kept, about a month. */
export const MOST_RECORDS = 1_000;
/** Bytes. One has some 70 kB, but the service may pad its evidence: then only its digest is kept. */
const LONGEST_RECORD = 1024 * 1024;
/** Records that may wait in memory for a first request, and then for the disk. */
const MOST_WAITING = 20;

/**
 * Begins the chain of a new instance. Its first line is on disk when this resolves. Makes a key if there is
 * none. Throws receipts_unavailable.
 */
export const openReceiptLog = (options: ReceiptLogOptions) =>
  begin(options).catch((cause: NodeJS.ErrnoException): never => {
    if (cause instanceof PrivatemodeError) throw cause;
    const message = `receipts cannot be written: ${cause.path ?? options.workspace}: ${reasonOf(cause)}`;
    throw new PrivatemodeError('receipts_unavailable', message, { cause });
  });

async function begin(options: ReceiptLogOptions) {
  const { version, roots, clock, onFailure, onRecovery, onLost, counters, mostPending = 10_000 } = options;
  const directory = join(options.workspace, 'receipts');
  const records = join(directory, 'records');
  await makeDirectory(records, 0o700);
  const key = await readOrMakeKey(directory);
  const verifyingKey = createPublicKey(key);
  const ends = await endsOfFiles(directory, verifyingKey);
  const publicKey = verifyingKey.export({ type: 'spki', format: 'der' }).toString('base64');
  const instance = randomBytes(6).toString('hex');
  const time = (): string => new Date(clock.now()).toISOString();
  /** Lines that are not written yet. */
  let pending: { readonly file: string; readonly line: string; readonly type: string }[] = [];
  /** Records by their digests: the newest, and those to which a line refers and that are not stored yet. */
  const [newest, unstored] = [new Map<string, string>(), new Map<string, string>()];
  /** Receipts that were lost and that no line reports yet. */
  let lost = 0;
  let [seq, prev] = [0, '0'.repeat(64)];
  /** The file of the last line, and the epochs that stand in it. */
  let [file, epochs] = ['', new Set<string>()];

  function sign(record: ReceiptRecord): void {
    const line = signedLine({ instance, seq: seq++, prev }, record, key);
    prev = sha256(line);
    pending.push({ file, line, type: record.type });
  }
  /**
   * Goes to the file of today, or of a later day if the line is of one, because the clock was set back. Never
   * goes to an earlier day.
   */
  function goTo(timeOfLine: string): void {
    const day = [time(), timeOfLine].sort().at(-1)?.slice(0, 10) as string;
    if (file >= day) return;
    const found = file === '' ? ends : { [file]: prev };
    [file, epochs] = [`${day}.${instance}.jsonl`, new Set()];
    sign({ type: 'opened', time: time(), version, key: publicKey, found });
  }
  function reportLost(): void {
    if (lost === 0) return;
    goTo(time());
    sign({ type: 'lost', time: time(), count: lost });
    lost = 0;
    onLost();
  }
  const requestsIn = (lines: typeof pending): number => lines.filter(({ type }) => type === 'request').length;

  /** Stores the records that lines refer to. Returns why it failed: it is tried again, and no line waits. */
  async function storeRecords(): Promise<unknown> {
    try {
      for (const [digest, text] of unstored) {
        await makeDirectory(records, 0o700);
        await publish(join(records, `${digest}.json`), text, 0o600);
        unstored.delete(digest);
        await prune(records).catch(() => {}); // tried again with the next one
      }
      return undefined;
    } catch (error) {
      return error;
    }
  }
  async function write(): Promise<void> {
    for (;;) {
      const [first] = pending;
      const batch = pending.filter((each) => each.file === first?.file);
      const failure = await storeRecords();
      if (first === undefined && failure !== undefined) throw failure;
      if (first === undefined) return;
      await log.append(join(directory, first.file), batch.map(({ line }) => `${line}\n`).join(''));
      pending = pending.slice(batch.length);
      counters.written += requestsIn(batch);
      reportLost();
    }
  }
  const log = lineLog({ clock, write, onFailure, onRecovery });

  goTo(time());
  await write();
  return {
    instance,
    /** SubjectPublicKeyInfo in base64. */
    publicKey,
    /** Signs a line for a request. Never throws, and waits for nothing. */
    add({ epoch, ...facts }: RequestReceipt): void {
      log.later();
      if (pending.length >= mostPending) {
        counters.lost++;
        if (lost++ === 0) onLost();
        return;
      }
      goTo(facts.time);
      if (epoch !== null && !epochs.has(epoch.secretId)) {
        const { secretId, manifestSha256, attestedAt, exchangeSha256: record = null } = epoch;
        const attested = { time: new Date(attestedAt).toISOString(), secretId, manifestSha256 };
        sign({ type: 'epoch', ...attested, roots, record });
        epochs.add(secretId);
        const text = newest.get(record ?? '');
        if (record && text !== undefined && unstored.size < MOST_WAITING) unstored.set(record, text);
      }
      sign({ type: 'request', ...facts, secretId: epoch?.secretId ?? null });
    },
    /**
     * Keeps the record of a verification, and stores it with the first line that refers to it: none that no
     * request used makes one go. `sha256`: hex, of the text.
     */
    keepRecord({ sha256: digest, text }: { readonly sha256: string; readonly text: string }): void {
      if (Buffer.byteLength(text) > LONGEST_RECORD) return;
      newest.set(digest, text);
      if (newest.size > MOST_WAITING) newest.delete(newest.keys().next().value as string);
    },
    /** Writes what waits, and the last line of the instance. What cannot be written now is lost. */
    async close(): Promise<void> {
      reportLost();
      goTo(time());
      sign({ type: 'closed', time: time() });
      await log.close();
      if (requestsIn(pending) === 0) return;
      counters.lost += requestsIn(pending);
      onLost();
    },
  };
}

/** Removes the oldest records beyond MOST_RECORDS. */
async function prune(directory: string): Promise<void> {
  const names = (await readdir(directory)).filter((name) => /^[0-9a-f]{64}\.json$/.test(name));
  if (names.length <= MOST_RECORDS) return;
  const timeOf = async (name: string) => ({ name, time: (await stat(join(directory, name))).mtimeMs });
  const newest = (await Promise.all(names.map(timeOf))).sort((a, b) => b.time - a.time);
  for (const { name } of newest.slice(MOST_RECORDS)) await rm(join(directory, name));
}

/**
 * The private key of the workspace (Ed25519), `key.pem`; makes one if there is none. Two processes that begin
 * at once agree on one. Stores the public key beside it, in `public.pem`. Throws receipts_unavailable.
 */
async function readOrMakeKey(directory: string): Promise<KeyObject> {
  const path = join(directory, 'key.pem');
  const { privateKey } = generateKeyPairSync('ed25519');
  await publish(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
  const pem = await readOwnKey(path);
  let key: KeyObject | undefined;
  try {
    key = createPrivateKey(pem);
  } catch {} // is reported below
  if (key?.asymmetricKeyType !== 'ed25519')
    throw new PrivatemodeError('receipts_unavailable', `${path} is no Ed25519 private key in PEM`, {
      remedy: 'Put the right key back, or move this one away: the next start then makes a new one.',
    });
  const publicPem = createPublicKey(key).export({ type: 'spki', format: 'pem' });
  await replace(join(directory, 'public.pem'), publicPem, 0o644);
  return key;
}

const SETGID = 0o2000;

/**
 * Reads a private key (PEM). Throws receipts_unavailable if anybody else has a permission for it, but for the
 * group of a setgid directory: the fsGroup of a Kubernetes pod shares files in this way.
 */
async function readOwnKey(path: string): Promise<Buffer> {
  await using file = await openToRead(path);
  const { mode } = await file.stat();
  const others = (await stat(dirname(path))).mode & SETGID ? 0o007 : 0o077;
  if (process.platform === 'win32' || (mode & others) === 0) return await file.readFile();
  const message = `${path} can be read or written to by others (mode ${(mode & 0o7777).toString(8)})`;
  const remedy = 'Run chmod 600 on it. Whoever could read it may have a copy: make a new key.';
  throw new PrivatemodeError('receipts_unavailable', message, { remedy });
}
