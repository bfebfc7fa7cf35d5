/** A workspace with receipts of the real writer, for tests that falsify them. */
import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach } from 'node:test';
import { type RequestReceipt, sha256 } from '../../../lib/receipts/receipt.ts';
import { openReceiptLog, type ReceiptLogOptions } from '../../../lib/receipts/receipt-log.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';
import { clockOf } from '../remote/fake-clock.ts';

/** The manifest of EPOCH, which lies in the log beside the receipts. */
export const MANIFEST = '{}\n';
/** The record of a verification with this text. */
export const recordOf = (text: string) => ({ sha256: sha256(text), text });
export const RECORD = recordOf('{"verdict":{}}');
/** Noon of 2026-12-01. */
export const NOON = Date.UTC(2026, 11, 1, 12);
export const DAY_MS = 86_400_000;

/** What protected the requests of a test; with a member that is for no receipt, as an epoch has its key. */
export const EPOCH = {
  key: 'not for receipts',
  ...{ secretId: 'secret', attestedAt: Date.UTC(2026, 9, 1) },
  ...{ manifestSha256: sha256(MANIFEST), exchangeSha256: RECORD.sha256, exchange: RECORD.text },
};

/** Of a request that was complete at noon. */
export function receipt(id: string, more: Partial<RequestReceipt> = {}): RequestReceipt {
  return {
    id,
    time: '2026-12-01T12:00:00.000Z',
    durationMs: 12,
    endpoint: 'chat',
    client: null,
    model: 'a-model',
    status: 200,
    request: { sha256: '0'.repeat(64), bytes: 3 },
    response: { sha256: '1'.repeat(64), bytes: 4, events: 2 },
    tokens: { in: 1, out: 2, cached: null },
    epoch: EPOCH,
    outcome: 'complete',
    code: null,
    ...more,
  };
}

/** Writes at once, and waits for the disk of a busy machine. */
const clockAt = (now: () => number) => clockOf({ now, batchPause: 1, diskPatience: 600_000 });

/** Begins an instance whose clock stands at noon, and which fails the test where it cannot write. */
export function openReceipts(workspace: string, more: Partial<ReceiptLogOptions> = {}) {
  return openReceiptLog({
    workspace,
    version: '1.2.3',
    roots: 'vendor',
    clock: clockAt(() => NOON),
    counters: { lost: 0 },
    onFailure: (reason) => assert.fail(reason),
    onWritten: () => {},
    onLost: () => assert.fail('a receipt was lost'),
    ...more,
  });
}

/** A new workspace before each test, which is gone after it. */
export function receiptsOfEachTest() {
  const here = {
    workspace: '',
    now: NOON,
    /** A file of the receipts, or their directory. */
    path: (...names: readonly string[]): string => join(here.workspace, 'receipts', ...names),
    open: (more: Partial<ReceiptLogOptions> = {}) =>
      openReceipts(here.workspace, { clock: clockAt(() => here.now), ...more }),
    /** The files of receipts, by day. */
    files: (): string[] =>
      readdirSync(here.path())
        .filter((name) => name.endsWith('.jsonl'))
        .sort(),
    linesOf: (file: string): string[] => readFileSync(here.path(file), 'utf8').trimEnd().split('\n'),
    store: (file: string, lines: readonly string[]): void =>
      writeFileSync(here.path(file), `${lines.join('\n')}\n`),
  };
  beforeEach(() => {
    here.now = NOON;
    here.workspace = temporaryDirectory('receipts-');
    mkdirSync(join(here.workspace, 'manifests'));
    writeFileSync(join(here.workspace, 'manifests/1.json'), MANIFEST);
    const line = `2026-12-01T12:00:00Z ${here.workspace}/manifests/1.json\n`;
    writeFileSync(join(here.workspace, 'manifests/log.txt'), line);
  });
  return here;
}
