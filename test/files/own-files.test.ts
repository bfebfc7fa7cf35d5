/** Whose the files of receipts must be, and that nothing is written through a link. */
import assert from 'node:assert/strict';
import { execFileSync, spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import {
  chmodSync,
  chownSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { NOON, receipt, receiptsOfEachTest } from '../support/doors/receipts.ts';
import { eventually } from '../support/processes/eventually.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

const here = receiptsOfEachTest();
const path = (name: string): string => join(here.directory, name);
const ONLY_ROOT = {
  skip: process.geteuid?.() !== 0 && 'NOT CHECKED: files of other users (root can make some)',
};

/** An instance that has come and gone: key, public key and a day file are there. */
async function used(): Promise<string> {
  const log = await here.open();
  await log.close();
  return `2026-12-01.${log.instance}.jsonl`;
}

describe('files of receipts', { timeout: 600_000 }, () => {
  const REFUSALS: [what: string, spoil: () => unknown, message: RegExp, remedy: RegExp][] = [
    [
      'a key that its group can read',
      () => chmodSync(path('key.pem'), 0o640),
      /key\.pem can be read or written to by others \(mode 0640\)$/,
      /^Run chmod 600 on it; .* copy/,
    ],
    ['a key that all can read', () => chmodSync(path('key.pem'), 0o604), /\(mode 0604\)$/, /^Run chmod 600/],
    ['a key that all can write', () => chmodSync(path('key.pem'), 0o602), /\(mode 0602\)$/, /^Run chmod 600/],
    [
      'a directory that all can write to',
      () => chmodSync(here.directory, 0o777),
      /receipts can be written to by others \(mode 0777\)$/,
      /^Run chmod 700/,
    ],
    [
      'a directory that all can write to, even sticky',
      () => chmodSync(here.directory, 0o1777),
      /\(mode 1777\)$/,
      /^Run chmod 700/,
    ],
    [
      'a directory that its group can write to',
      () => chmodSync(here.directory, 0o770),
      /\(mode 0770\)$/,
      /^Run chmod 700/,
    ],
    [
      'a shared directory that all can write to',
      () => chmodSync(here.directory, 0o2777),
      /\(mode 2777\)$/,
      /^Run chmod 700/,
    ],
    [
      'a shared directory with a key that all can read',
      () => {
        chmodSync(here.directory, 0o2775);
        chmodSync(path('key.pem'), 0o664);
      },
      /key\.pem can be read or written to by others \(mode 0664\)$/,
      /^Run chmod 600/,
    ],
    [
      'a key that is a link',
      () => {
        renameSync(path('key.pem'), join(here.workspace, 'elsewhere'));
        symlinkSync(join(here.workspace, 'elsewhere'), path('key.pem'));
      },
      /key\.pem is a link or something else than a file$/,
      /^Take it away/,
    ],
    [
      'a key that is a FIFO',
      () => {
        rmSync(path('key.pem'));
        execFileSync('mkfifo', ['-m', '600', path('key.pem')]);
      },
      /key\.pem is a link or something else than a file$/,
      /^Take it away/,
    ],
    [
      'a directory that is a link',
      () => {
        renameSync(here.directory, join(here.workspace, 'elsewhere'));
        symlinkSync(join(here.workspace, 'elsewhere'), here.directory);
      },
      /receipts is a link or something else than a directory$/,
      /^Put a directory in its place/,
    ],
    [
      'a key file that holds no key',
      () => writeFileSync(path('key.pem'), 'garbage'),
      /key\.pem is no Ed25519 private key in PEM$/,
      /^Put the right key back/,
    ],
    [
      'a key of another kind',
      () => {
        const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
        writeFileSync(path('key.pem'), privateKey.export({ type: 'pkcs8', format: 'pem' }));
      },
      /key\.pem is no Ed25519 private key in PEM$/,
      /^Put the right key back/,
    ],
  ];
  for (const [what, spoil, message, remedy] of REFUSALS) {
    it(`are refused at the start: ${what}`, async () => {
      await used();
      spoil();
      await assert.rejects(here.open(), (error: { code: string; message: string; remedy: string }) => {
        assert.equal(error.code, 'receipts_unavailable');
        assert.match(error.message, message);
        assert.match(error.remedy, remedy);
        return true;
      });
    });
  }

  it('are refused at the start if they belong to another user', ONLY_ROOT, async () => {
    await used();
    chownSync(path('key.pem'), 65532, 0);
    const message = /key\.pem belongs to another user \(uid 65532\)$/;
    await assert.rejects(here.open(), { code: 'receipts_unavailable', message });
    chownSync(path('key.pem'), 0, 0);
    chownSync(here.directory, 65532, 0);
    await assert.rejects(here.open(), {
      code: 'receipts_unavailable',
      message: /receipts belongs to another/,
    });
  });

  it(
    'of another user: the remedy tells root to run as that user, and anybody else to take them with chown',
    ONLY_ROOT,
    async () => {
      await used();
      chownSync(path('key.pem'), 65532, 0);
      await assert.rejects(here.open(), (error: { message: string; remedy: string }) => {
        assert.match(error.message, /key\.pem belongs to another user \(uid 65532\)$/);
        assert.match(error.remedy, /^Run this as uid 65532, not as root\.$/);
        return true;
      });
      const script = `
      const { readOwnKey } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/files/own-files.ts'))});
      process.setgid(65531); process.setuid(65531);
      await readOwnKey('key.pem').catch(({ remedy }) => console.log(remedy));`;
      chownSync(here.directory, 65531, 0);
      chmodSync(path('key.pem'), 0o644);
      const other = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
        cwd: here.directory,
        encoding: 'utf8',
        timeout: 30_000,
      });
      assert.equal(other.stdout, 'Give it to uid 65531 with chown.\n', other.stderr);
    },
  );

  it('are accepted with the group modes that an fsGroup gives: directory 2775, files 0660', async () => {
    const file = await used();
    chmodSync(here.directory, 0o2775);
    for (const name of ['key.pem', file]) chmodSync(path(name), 0o660);
    chmodSync(path('public.pem'), 0o664);
    const log = await here.open();
    log.add(receipt('r1', { epoch: null }));
    await log.close();
    const { ok, instances, requests } = await checkReceipts(here.directory);
    assert.deepEqual([ok, instances, requests], [true, 2, 1]);
  });

  it('are refused with group modes if the process is not in the group', ONLY_ROOT, async () => {
    await used();
    for (const name of ['', 'key.pem']) chownSync(path(name), 0, 65532);
    chmodSync(here.directory, 0o2775);
    await assert.rejects(here.open(), { code: 'receipts_unavailable', message: /\(mode 2775\)$/ });
    chmodSync(here.directory, 0o2755);
    chmodSync(path('key.pem'), 0o660);
    await assert.rejects(here.open(), { code: 'receipts_unavailable', message: /\(mode 0660\)$/ });
  });

  it('are accepted in a pod: an unprivileged user, on a volume of root with an fsGroup', ONLY_ROOT, () => {
    chmodSync(here.workspace, 0o2775);
    chownSync(here.workspace, 0, 65532);
    const script = `
      const { openReceiptLog } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/receipts/receipt-log.ts'))});
      const { systemClock } = await import(${JSON.stringify(join(import.meta.dirname, '../../lib/clock.ts'))});
      process.setgroups([65532]); process.setgid(65532); process.setuid(65532);
      const log = await openReceiptLog({ workspace: ${JSON.stringify(here.workspace)}, version: '1', roots: 'vendor', clock: systemClock, counters: {}, onFailure(e) { throw e; }, onRecovery() {}, onLost() {} });
      await log.close();`;
    const start = () =>
      spawnSync(process.execPath, ['--input-type=module', '-e', script], {
        encoding: 'utf8',
        timeout: 30_000,
      });
    assert.equal(start().stderr, '');
    // What the kubelet does to a volume when the next pod mounts it.
    execFileSync('chmod', ['-R', 'g+rw', here.workspace]);
    execFileSync('find', [here.workspace, '-type', 'd', '-exec', 'chmod', 'g+xs', '{}', '+']);
    assert.deepEqual(
      ['', 'key.pem'].map((name) => (statSync(path(name)).mode & 0o7777).toString(8)),
      ['2770', '660'],
    );
    assert.equal(start().stderr, '');
  });

  const LATER: [what: string, spoil: (file: string) => unknown, reason: RegExp][] = [
    [
      'is a link',
      (file) => symlinkSync(join(here.workspace, 'victim'), file),
      /is a link or something else than a file$/,
    ],
    ['is a FIFO', (file) => execFileSync('mkfifo', [file]), /is a link or something else than a file$/],
  ];
  for (const [what, spoil, reason] of LATER) {
    it(`get no receipt if the file of the next day ${what}`, async () => {
      writeFileSync(join(here.workspace, 'victim'), 'as it was');
      let now = NOON;
      const told: string[] = [];
      const counters = { written: 0, lost: 0 };
      const log = await here.open({
        clock: clockOf({ now: () => now, batchPause: 1 }),
        counters,
        onFailure: ({ message }) => told.push(message),
        onLost: () => {},
      });
      const next = path(`2026-12-02.${log.instance}.jsonl`);
      spoil(next);
      now += 86_400_000;
      log.add(receipt('r1', { epoch: null }));
      await eventually('the receipts', () => told.length > 0);
      assert.match(told[0] as string, reason);
      assert.equal(readFileSync(join(here.workspace, 'victim'), 'utf8'), 'as it was');
      await log.close();
      assert.equal(counters.lost, 1);
    });
  }
});
