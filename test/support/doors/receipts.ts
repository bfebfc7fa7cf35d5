/** A workspace with receipts of the real writer, for tests that falsify them. */
import assert from 'node:assert/strict';
import { createHash, createPrivateKey, sign } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach } from 'node:test';
import type { ReceiptFinding } from '../../../lib/receipts/check-chain.ts';
import type { RequestReceipt } from '../../../lib/receipts/receipt.ts';
import { openReceiptLog, type ReceiptLogOptions } from '../../../lib/receipts/receipt-log.ts';
import { temporaryDirectory } from '../processes/temporary-directory.ts';
import { clockOf } from '../remote/fake-clock.ts';

/** A manifest of the log beside the receipts, and its digest. */
export const MANIFEST_TEXT = '{}\n';
export const MANIFEST = createHash('sha256').update(MANIFEST_TEXT).digest('hex');
export const VERDICT = JSON.stringify({ outcome: 'accepted', manifestSha256: MANIFEST });
export const VERDICT_SHA256 = createHash('sha256').update(VERDICT).digest('hex');
/** Noon of 2026-12-01. */
export const NOON = Date.UTC(2026, 11, 1, 12);

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
    tokens: { in: 1, out: 2 },
    epoch: { secretId: 'secret', manifestSha256: MANIFEST, verdictSha256: VERDICT_SHA256 },
    outcome: 'complete',
    code: null,
    ...more,
  };
}

/** A new workspace before each test, which is gone after it. */
export function receiptsOfEachTest() {
  const here = {
    workspace: '',
    directory: '',
    /** Begins an instance whose clock stands at noon, and which fails the test where it cannot write. */
    open: (more: Partial<ReceiptLogOptions> = {}) =>
      openReceiptLog({
        workspace: here.workspace,
        version: '1.2.3',
        onFailure: (reason) => assert.fail(reason),
        onRecovery: () => assert.fail('nothing failed'),
        clock: clockOf({ now: () => NOON, batchPause: 1 }),
        ...more,
      }),
    linesOf: (file: string): string[] =>
      readFileSync(join(here.directory, file), 'utf8').trimEnd().split('\n'),
    store: (file: string, lines: readonly string[]): void =>
      writeFileSync(join(here.directory, file), `${lines.join('\n')}\n`),
  };
  beforeEach(() => {
    here.workspace = temporaryDirectory('receipts-');
    here.directory = join(here.workspace, 'receipts');
    mkdirSync(join(here.workspace, 'manifests'));
    writeFileSync(join(here.workspace, 'manifests/1.json'), MANIFEST_TEXT);
    const line = `2026-12-01T12:00:00Z ${here.workspace}/manifests/1.json\n`;
    writeFileSync(join(here.workspace, 'manifests/log.txt'), line);
  });
  return here;
}

/** A line with other members, signed again with `key` (PEM, PKCS #8). */
export function signedAgain(line: string, change: object, key: string): string {
  const { sig: _, ...members } = JSON.parse(line);
  const text = JSON.stringify({ ...members, ...change });
  const signature = sign(null, Buffer.from(text), createPrivateKey(key)).toString('base64');
  return `${text.slice(0, -1)},"sig":"${signature}"}`;
}

/**
 * What a finding is, in a word: what makes the check fail, by its kind; of the rest, what only a strict check
 * counts (a gap), or is a stranger's (junk).
 */
export function sortOf({ kind, fails }: ReceiptFinding): string {
  if (fails) return kind;
  return kind === 'not ours or changed' ? 'junk' : 'gap';
}
