/** Writes receipts (lib/receipts/receipt.ts) to `<workspace>/receipts`. No request waits for the disk. */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import * as files from '../files/durable-file.ts';
import { reasonOf } from '../files/path-refusal.ts';
import * as receipts from './receipt.ts';

export type ReceiptLog = Awaited<ReturnType<typeof openReceiptLog>>;

export interface ReceiptLogOptions {
  readonly workspace: string;
  readonly version: string;
  readonly roots: 'vendor' | 'custom';
  readonly clock: Clock;
  /** Called when receipts cannot be written for now, or when the disk takes longer than 10 s. */
  readonly onFailure: (reason: Error) => void;
  /** Called each time when all waiting lines have been written. */
  readonly onWritten: () => void;
  /** Called when the first receipt is lost, and again when the number of lost receipts is known. */
  readonly onLost: () => void;
  /** The number of requests whose receipts were lost. The log increases this number. */
  readonly counters: { lost: number };
  /** The number of lines that may wait for the disk. Receipts beyond this number are lost. */
  readonly mostPending?: number;
}

/** How many records are kept: enough for about a month. Older records are removed. */
export const MOST_RECORDS = 1_000;
/** The number of records that may wait for the disk. */
const MOST_WAITING = 20;

/**
 * Begins the chain of a new instance. When the promise resolves, the first line of the chain is on disk.
 * Makes a key if there is no key yet. Throws receipts_unavailable.
 */
export const openReceiptLog = (options: ReceiptLogOptions) =>
  begin(options).catch((cause: NodeJS.ErrnoException): never => {
    if (cause instanceof PrivatemodeError) throw cause;
    const message = `receipts cannot be written: ${cause.path ?? options.workspace}: ${reasonOf(cause)}`;
    throw new PrivatemodeError('receipts_unavailable', message, { cause });
  });

async function begin(options: ReceiptLogOptions) {
  const { version, roots, clock, onFailure, onWritten, onLost, counters, mostPending = 10_000 } = options;
  const directory = join(options.workspace, 'receipts');
  const records = join(directory, 'records');
  await files.makeOwnDirectory(directory);
  await files.makeDirectory(records, 0o700);
  const key = await readOrMakeKey(directory);
  const verifyingKey = createPublicKey(key);
  const ends = await endsOfFiles(directory, verifyingKey);
  const publicKey = verifyingKey.export({ type: 'spki', format: 'der' }).toString('base64');
  const instance = randomBytes(6).toString('hex');
  const time = (): string => new Date(clock.now()).toISOString();
  /** Lines that are not written yet. The line of an epoch carries the record of the epoch's exchange. */
  let pending: {
    readonly file: string;
    readonly line: string;
    readonly type: string;
    exchange?: string | undefined;
  }[] = [];
  /** The number of lost receipts that no written line reports yet. */
  let lost = 0;
  let [seq, prev] = [0, '0'.repeat(64)];
  /** The file of the last line, and the epochs that the lines of this file name. */
  let [file, epochs] = ['', new Set<string>()];
  /** The size of the file in bytes before a write that failed. */
  let whole: number | undefined;
  let writing = Promise.resolve();
  let cancelTimer: (() => void) | undefined;

  function sign(record: receipts.ReceiptRecord, exchange?: string): void {
    const line = receipts.signedLine({ instance, seq: seq++, prev }, record, key);
    prev = receipts.sha256(line);
    pending.push({ file, line, type: record.type, exchange });
  }
  /** Goes to the file of today, or of the line's day if it is later. Never goes back to an older file. */
  function goToDay(timeOfLine = ''): void {
    const now = time();
    const day = (timeOfLine > now ? timeOfLine : now).slice(0, 10);
    if (file >= day) return;
    const found = file === '' ? ends : { [file]: prev };
    [file, epochs] = [`${day}.${instance}.jsonl`, new Set()];
    sign({ type: 'opened', time: time(), version, key: publicKey, found });
  }
  function reportLost(): void {
    if (lost === 0) return;
    goToDay();
    sign({ type: 'lost', time: time(), count: lost });
    lost = 0;
    onLost();
  }

  /** Stores the records that the lines name, and then appends the lines to their file. */
  async function append(lines: typeof pending, path: string): Promise<void> {
    await using handle = await files.openOwnToAppend(path);
    for (const { exchange } of lines) if (exchange !== undefined) await keep(records, exchange);
    const { size } = await handle.stat();
    whole ??= size;
    if (size > whole) await handle.truncate(whole); // remove the half line of a failed write
    await files.writeAll(handle, Buffer.from(lines.map(({ line }) => `${line}\n`).join('')));
    await handle.datasync();
  }
  async function writePending(): Promise<void> {
    for (let [first] = pending; first !== undefined; [first] = pending) {
      const { file } = first;
      const batch = pending.filter((each) => each.file === file);
      await append(batch, join(directory, file));
      whole = undefined; // only after `append`, because closing a file may fail on a network disk
      pending = pending.slice(batch.length);
      reportLost();
    }
  }
  async function writeBatch(): Promise<void> {
    const written = writePending();
    await files.inTime(written, clock).catch(onFailure);
    await written.then(onWritten, later);
  }
  function later(): void {
    cancelTimer ??= clock.after(clock.times.batchPause, flush);
  }
  /** Resolves when all waiting lines are written or their write has failed. */
  function flush(): Promise<void> {
    cancelTimer?.();
    cancelTimer = undefined;
    writing = writing.then(writeBatch);
    return writing;
  }

  goToDay();
  await writePending();
  return {
    instance,
    /** The public key of the chain: its SubjectPublicKeyInfo in base64. */
    publicKey,
    /**
     * Signs a line for a request; the line is written a moment later. Never throws and never waits. The first
     * line under an epoch brings the record of the epoch. An epoch that no request used stores no record, so
     * its record displaces no other record (docs/architecture.md D6).
     */
    add({ epoch, ...facts }: receipts.RequestReceipt): void {
      later();
      if (pending.length >= mostPending) {
        counters.lost++;
        if (lost++ === 0) onLost();
        return;
      }
      goToDay(facts.time);
      if (epoch !== null && !epochs.has(epoch.secretId)) {
        const { secretId, manifestSha256, attestedAt, exchangeSha256: record = null, exchange } = epoch;
        const attested = { time: new Date(attestedAt).toISOString(), secretId, manifestSha256 };
        const waiting = pending.filter((each) => each.exchange !== undefined).length;
        sign({ type: 'epoch', ...attested, roots, record }, waiting < MOST_WAITING ? exchange : undefined);
        epochs.add(secretId);
      }
      sign({ type: 'request', ...facts, secretId: epoch?.secretId ?? null });
    },
    /** Writes the waiting lines and the last line of the instance. If a write fails, its lines are lost. */
    async close(): Promise<void> {
      reportLost();
      goToDay();
      sign({ type: 'closed', time: time() });
      await flush();
      cancelTimer?.();
      const unwritten = pending.filter(({ type }) => type === 'request').length;
      if (unwritten === 0) return;
      counters.lost += unwritten;
      onLost();
    },
  };
}

/** Returns the last complete line of a file, or an empty text if this line is longer than 1 MiB. */
async function lastLineOf(path: string): Promise<string> {
  await using handle = await files.openToRead(path);
  const { size } = await handle.stat();
  for (let length = 16 * 1024; length <= 1024 * 1024; length *= 8) {
    const position = Math.max(0, size - length);
    const { buffer, bytesRead } = await handle.read({ buffer: Buffer.alloc(size - position), position });
    const lines = buffer.toString('utf8', 0, bytesRead).split('\n');
    if (position === 0 || lines.length > 2) return lines.at(-2) ?? '';
  }
  return '';
}

/**
 * The SHA-256 of the last line of each file. A last line that a first line signed with `key` (public) already
 * names is left out. Otherwise every first line would name all files and grow with each start.
 */
async function endsOfFiles(directory: string, key: KeyObject): Promise<Record<string, string>> {
  const ends = new Map<string, string>();
  const named: [file: string, sha256: string][] = [];
  for (const file of await receipts.receiptFiles(directory)) {
    const first = await receipts.readFirstLine(join(directory, file));
    if (first === undefined) continue;
    ends.set(file, receipts.sha256(await lastLineOf(join(directory, file))));
    if (first.signer?.equals(key)) named.push(...Object.entries(first.found));
  }
  for (const [file, end] of named) if (ends.get(file) === end) ends.delete(file);
  return Object.fromEntries(ends);
}

/** Stores a record if it is not stored yet. Removes the oldest records beyond MOST_RECORDS. */
async function keep(directory: string, text: string): Promise<void> {
  await files.makeDirectory(directory, 0o700);
  await files.publish(join(directory, `${receipts.sha256(text)}.json`), text, 0o600);
  await prune(directory).catch(() => {}); // pruning is tried again with the next record
}

async function prune(directory: string): Promise<void> {
  const names = (await readdir(directory)).filter((name) => /^[0-9a-f]{64}\.json$/.test(name));
  if (names.length <= MOST_RECORDS) return;
  const timeOf = async (name: string) => ({ name, time: (await stat(join(directory, name))).mtimeMs });
  const newest = (await Promise.all(names.map(timeOf))).sort((a, b) => b.time - a.time);
  for (const { name } of newest.slice(MOST_RECORDS)) await rm(join(directory, name));
}

const SETGID = 0o2000;

/**
 * Reads the private Ed25519 key of the workspace from `key.pem`, or makes this key. Two processes that start
 * at the same time agree on one key. Stores the public key in `public.pem`. Throws receipts_unavailable, also
 * if other users have a permission for `key.pem`. Only the group of a setgid directory may have permissions,
 * because the fsGroup of a Kubernetes pod shares files in this way.
 */
async function readOrMakeKey(directory: string): Promise<KeyObject> {
  const path = join(directory, 'key.pem');
  const refuse = (what: string, remedy: string) =>
    new PrivatemodeError('receipts_unavailable', `${path} ${what}`, { remedy });
  const { privateKey } = generateKeyPairSync('ed25519');
  await files.publish(path, privateKey.export({ type: 'pkcs8', format: 'pem' }), 0o600);
  await using file = await files.openToRead(path);
  const { mode } = await file.stat();
  const others = (await stat(directory)).mode & SETGID ? 0o007 : 0o077;
  if (process.platform !== 'win32' && (mode & others) !== 0)
    throw refuse(
      `can be read or written to by others (mode ${(mode & 0o7777).toString(8)})`,
      'Run chmod 600 on it. Whoever could read it may have a copy: make a new key.',
    );
  const pem = await file.readFile();
  let key: KeyObject | undefined;
  try {
    key = createPrivateKey(pem);
  } catch {} // the check below reports a bad key
  if (key?.asymmetricKeyType !== 'ed25519')
    throw refuse(
      'is no Ed25519 private key in PEM',
      'Put the right key back, or move this one away: the next start then makes a new one.',
    );
  const publicPem = createPublicKey(key).export({ type: 'spki', format: 'pem' });
  await files.replace(join(directory, 'public.pem'), publicPem, 0o644);
  return key;
}
