/** Writes receipts (lib/receipts/receipt.ts) to `<workspace>/receipts`; no request waits for the disk. */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../clock.ts';
import { PrivatemodeError } from '../errors.ts';
import { makeDirectory, publish, replace, unless } from '../files/durable-file.ts';
import { lineLog } from '../files/line-files.ts';
import { readOwnKey } from '../files/own-files.ts';
import { reasonOf } from '../files/path-refusal.ts';
import {
  type EpochReceipt,
  NOTHING_BEFORE,
  type ReceiptRecord,
  type RequestReceipt,
  sha256,
  signedLine,
} from './receipt.ts';
import { endsOfFiles } from './receipt-files.ts';

export type ReceiptLog = Awaited<ReturnType<typeof openReceiptLog>>;

export interface ReceiptLogOptions {
  readonly workspace: string;
  readonly version: string;
  /** Which hardware roots the verifications of this process trust. */
  readonly roots: EpochReceipt['roots'];
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

/** The newest records that are kept of those that receipts refer to, about a month, and of the others. */
export const MOST_RECORDS = 1_000;
/** Bytes. One has some 70 kB, but the service may pad its evidence: then only its digest is kept. */
const LONGEST_RECORD = 1024 * 1024;
/** Records that may wait for the disk. */
const MOST_WAITING = 100;

/**
 * Begins the chain of a new instance. Its first line is on disk when this resolves. Makes a key if there is
 * none. Throws receipts_unavailable.
 */
export async function openReceiptLog(options: ReceiptLogOptions) {
  const directory = join(options.workspace, 'receipts');
  try {
    for (const name of ['records', 'unused']) await makeDirectory(join(directory, name), 0o700);
    const key = await readOrMakeKey(directory);
    const { begun, ...log } = createLog(options, directory, key, await endsOfFiles(directory, key));
    await begun;
    return log;
  } catch (cause) {
    if (cause instanceof PrivatemodeError) throw cause;
    const { path = directory } = cause as NodeJS.ErrnoException;
    const message = `receipts cannot be written: ${path}: ${reasonOf(cause)}`;
    throw new PrivatemodeError('receipts_unavailable', message, { cause });
  }
}

/** `found`: the ends of other chains. `begun` resolves when the first line is on disk. */
function createLog(
  options: ReceiptLogOptions,
  directory: string,
  key: KeyObject,
  ends: Readonly<Record<string, string>>,
) {
  const { version, roots, clock, onFailure, onRecovery, onLost, counters, mostPending = 10_000 } = options;
  const publicKey = createPublicKey(key).export({ type: 'spki', format: 'der' }).toString('base64');
  const [records, unused] = [join(directory, 'records'), join(directory, 'unused')];
  const instance = randomBytes(6).toString('hex');
  const time = (): string => new Date(clock.now()).toISOString();
  /** Lines that are not written yet. `record`: names the file that an epoch refers to. */
  let pending: { readonly file: string; readonly line: string; type: string; record: string | null }[] = [];
  /** Records that are not stored yet, by their digests. */
  const waiting = new Map<string, string>();
  /** Receipts that were lost and that no line reports yet. */
  let lost = 0;
  let [seq, prev] = [0, NOTHING_BEFORE];
  /** The file of the last line, and the epochs that stand in it. */
  let file = '';
  let epochs = new Set<string>();

  function sign(record: ReceiptRecord, names: string | null = null): void {
    const line = signedLine({ instance, seq: seq++, prev }, record, key);
    prev = sha256(line);
    pending.push({ file, line, type: record.type, record: names });
  }
  /**
   * Goes to the file of today, or of a later day if the line is of one, because the clock was set back. Never
   * goes to an earlier day.
   */
  function goTo(timeOfLine: string): void {
    const day = [time(), timeOfLine].sort().at(-1)?.slice(0, 10) as string;
    if (file >= day) return;
    const found = file === '' ? ends : { [file]: prev };
    file = `${day}.${instance}.jsonl`;
    epochs = new Set();
    sign({ type: 'opened', time: time(), version, key: publicKey, found });
  }
  const requestsIn = (lines: typeof pending): number => lines.filter(({ type }) => type === 'request').length;

  async function write(): Promise<void> {
    let failure: unknown;
    for (const [digest, text] of waiting) {
      try {
        await makeDirectory(unused, 0o700);
        await publish(join(unused, `${digest}.json`), text, 0o600);
        waiting.delete(digest);
        await prune(unused);
      } catch (error) {
        failure ??= error; // is tried again; no receipt waits for it
      }
    }
    while (pending.length > 0) {
      const name = pending[0]?.file as string;
      const batch = pending.filter((each) => each.file === name);
      for (const { record } of batch) if (record !== null) await use(`${record}.json`);
      await log.append(join(directory, name), batch.map(({ line }) => `${line}\n`).join(''));
      pending = pending.slice(batch.length);
      counters.written += requestsIn(batch);
      if (lost === 0) continue;
      goTo(time());
      sign({ type: 'lost', time: time(), count: lost });
      lost = 0;
      onLost();
    }
    if (failure !== undefined) throw failure;
  }
  /** Each kind has its room, so no record that a receipt refers to goes for one that no request used. */
  async function use(name: string): Promise<void> {
    await unless('ENOENT', rename(join(unused, name), join(records, name)));
    await prune(records);
  }
  const log = lineLog({ clock, write, onFailure, onRecovery });

  goTo(time());
  return {
    begun: write(),
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
        sign({ type: 'epoch', ...attested, roots, record }, record);
        epochs.add(secretId);
      }
      sign({ type: 'request', ...facts, secretId: epoch?.secretId ?? null });
    },
    /** Stores the record of a verification. `sha256`: hex, of the text. Never throws, waits for nothing. */
    keepRecord({ sha256: digest, text }: { readonly sha256: string; readonly text: string }): void {
      if (Buffer.byteLength(text) > LONGEST_RECORD || waiting.size >= MOST_WAITING) return;
      waiting.set(digest, text);
      log.later();
    },
    /** Writes what waits, and the last line of the instance. What cannot be written now is lost. */
    async close(): Promise<void> {
      goTo(time());
      sign({ type: 'closed', time: time() });
      await log.close();
      if (requestsIn(pending) === 0) return;
      counters.lost += requestsIn(pending);
      onLost();
    },
  };
}

/**
 * The private key of the workspace; makes one if there is none. Two processes that begin at once agree on
 * one. Stores the public key beside it. Throws receipts_unavailable.
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

/** Removes the oldest records beyond MOST_RECORDS. If that fails, the next record tries it again. */
async function prune(directory: string): Promise<void> {
  try {
    const names = (await readdir(directory)).filter((name) => /^[0-9a-f]{64}\.json$/.test(name));
    if (names.length <= MOST_RECORDS) return;
    const ages = new Map<string, number>();
    for (const name of names) ages.set(name, (await stat(join(directory, name))).mtimeMs);
    const newest = names.sort((a, b) => (ages.get(b) ?? 0) - (ages.get(a) ?? 0));
    for (const name of newest.slice(MOST_RECORDS)) await rm(join(directory, name));
  } catch {} // another process may have removed it
}
