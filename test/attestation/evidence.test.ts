import assert from 'node:assert/strict';
import { describe, it, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type Check, type CheckRow, finding } from '../../lib/attestation/check.ts';
import { DOCUMENT_ROWS } from '../../lib/attestation/document-checks.ts';
import { breathe } from '../../lib/attestation/evidence.ts';
import { SNP } from '../../lib/attestation/snp/verify-snp.ts';
import { TDX } from '../../lib/attestation/tdx/verify-tdx.ts';
import { verify } from '../../lib/attestation/verify-evidence.ts';
import { attestedBy } from '../support/evidence/snp-platform.ts';
import { judge } from '../support/evidence/tdx-cases.ts';

describe('a pause between two heavy steps', () => {
  for (const from of ['setImmediate', 'setTimeout'] as const) {
    it(`lets other work run, using ${from}`, { timeout: 600_000 }, async (t) => {
      if (from === 'setTimeout') t.mock.property(globalThis, 'setImmediate', undefined as never);
      const order: string[] = [];
      const breath = breathe().then(() => order.push('after'));
      order.push('meanwhile');
      queueMicrotask(() => order.push('microtask'));
      await breath;
      assert.deepEqual(order, ['meanwhile', 'microtask', 'after']);
    });
  }
});

describe('verification of evidence', () => {
  /** Each table of checks takes longer than the next one: what is not waited for comes too late. */
  const slowly = (t: TestContext, rows: readonly CheckRow<never>[], firsts: readonly string[]): void => {
    for (const row of rows) {
      const at = firsts.indexOf(row.id);
      t.mock.method(row as unknown as { judge: () => unknown }, 'judge', async () => {
        if (at >= 0) await delay(30 * (firsts.length - at));
        return finding(false, `the finding of ${row.id}`);
      });
    }
    assert.deepEqual(
      firsts.filter((id) => !rows.some((row) => row.id === id)),
      [],
    );
  };
  const found = (checks: readonly Check[]): string[] => checks.map((check) => check.found);
  const expected = (rows: readonly CheckRow<never>[]): string[] =>
    rows.map(({ id }) => `the finding of ${id}`);

  it('waits for every check of SEV-SNP, however long each takes', async (t) => {
    const rows = [...DOCUMENT_ROWS, ...SNP.rows] as unknown as readonly CheckRow<never>[];
    slowly(t, rows, [
      ...['nonce.length', 'snp.report_data', 'snp.vcek.available', 'snp.roots', 'snp.crl.available'],
      ...['snp.report.signature', 'snp.measurement', 'snp.tcb.reported'],
    ]);
    assert.deepEqual(found((await verify(attestedBy({}))).checks), expected(rows));
  });

  it('waits for every check of TDX, however long each takes', async (t) => {
    const rows = TDX.rows as unknown as readonly CheckRow<never>[];
    slowly(t, rows, [
      ...['tdx.quote.version', 'tdx.pck.format', 'tdx.quote.signature', 'tdx.tcb_info.format'],
      ...['tdx.root_crl.format', 'tdx.tcb.module_signer', 'tdx.policy.report_data'],
    ]);
    assert.deepEqual(found(await judge({})), expected(rows));
  });

  it('rejects SEV-SNP evidence if the results of some of its checks are missing', async (t) => {
    const { checks, outcome } = await verify(attestedBy({}));
    assert.equal(outcome, 'accepted');
    const own = checks.filter(({ id }) => id.startsWith('snp.'));
    for (const incomplete of [[], own.slice(1), own.slice(0, -1)]) {
      const { mock } = t.mock.method(SNP, 'verify', async () => incomplete);
      assert.equal((await verify(attestedBy({}))).outcome, 'rejected');
      mock.restore();
    }
  });
});
