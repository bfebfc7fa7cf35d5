import assert from 'node:assert/strict';
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { sha256 } from '../../lib/receipts/receipt.ts';
import { MANIFEST, openReceipts, receipt } from '../support/doors/receipts.ts';
import { runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

let workspace: string;
let directory: string;
let publicKey: string;
let file: string;
/** An instance that begins and ends on that day: two lines. */
async function instance(place: string) {
  const clock = clockOf({ now: () => Date.parse('2026-12-01T12:00:00Z') });
  const log = await openReceipts(place, { clock });
  await log.close();
  return log;
}
before(async () => {
  workspace = temporaryDirectory('receipts-');
  directory = join(workspace, 'receipts');
  const log = await instance(workspace);
  publicKey = sha256(Buffer.from(log.publicKey, 'base64'));
  file = `2026-12-01.${log.instance}.jsonl`;
});

async function run(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  const { code, stdout, stderr } = await runCommand(['receipts', 'verify', ...argv], {
    now: '2026-12-31T00:00:00Z',
  });
  return { code, out: stdout, err: stderr };
}
/** With a copy of the key that was kept elsewhere. */
function check(...argv: string[]) {
  const kept = join(workspace, 'kept.pem');
  cpSync(join(directory, 'public.pem'), kept);
  return run('--dir', directory, '--public-key', kept, ...argv);
}

describe('receipts verify', () => {
  it('says how many receipts there are, with which key they were checked, and that all hold, and exits with 0', async () => {
    assert.deepEqual(await check(), {
      code: 0,
      out: `0 receipts in 2 signed lines of 1 instance\nChecked with the key of --public-key (SHA-256 ${publicKey}).\n✓ Every signature and chain holds.\n`,
      err: '',
    });
  });

  it('says that a key which only the receipts name proves nothing to others: a forger would have replaced it', async () => {
    const { code, out } = await run('--dir', directory);
    assert.equal(code, 0);
    const words = new RegExp(
      `\n! Checked with the key that the receipts name \\(SHA-256 ${publicKey}\\)\\. Whoever`,
    );
    assert.match(out, words);
    assert.doesNotMatch(out, /✓/);
    const other = temporaryDirectory('receipts-');
    await instance(other);
    const argv = ['--dir', other, '--public-key', join(directory, 'public.pem')];
    const { code: refused, out: text } = await run(...argv);
    assert.equal(refused, 10);
    assert.match(text, /✗ .* line 1: names the key [0-9a-f]{64}, which was not given\n/);
    assert.doesNotMatch(text, /Checked with/);
  });

  it('prints the report as JSON with --json', async () => {
    const { code, out } = await check('--json');
    assert.equal(code, 0);
    assert.deepEqual(JSON.parse(out), {
      ...{ ok: true, publicKeys: [publicKey], instances: 1, lines: 2, requests: 0 },
      ...{ findings: [], hasCustomRoots: false },
    });
  });

  it('exits with 10 for a directory whose receipts are all gone; with --since only if it is strict', async () => {
    const empty = temporaryDirectory('receipts-');
    const all = await run('--dir', empty);
    assert.equal(all.code, 10);
    const found = '0 receipts in 0 signed lines of 0 instances\n';
    assert.match(all.out, new RegExp(`^${found}✗ \\.: there are no receipts\nThe receipts do NOT hold`));
    const argv = ['--dir', empty, '--since', '2026-12-01'];
    const nothing = `${found}- .: there are no receipts\n! There are no receipts: nothing was checked.\n`;
    assert.deepEqual(await run(...argv), { code: 0, out: nothing, err: '' });
    assert.equal((await run(...argv, '--strict')).code, 10);
  });

  it('marks what is wrong with ✗ and exits with 10, and a gap with - unless --strict is given', async () => {
    const path = join(directory, file);
    const text = readFileSync(path, 'utf8');
    const [first, last] = text.split('\n');
    try {
      writeFileSync(path, `${first}\n`);
      const gap = `${file} line 1: is the last line: its instance runs still or was killed; receipts may be missing\n`;
      const lenient = await check();
      assert.deepEqual([lenient.code, lenient.out.includes(`\n- ${gap}`)], [0, true]);
      const strict = await check('--strict');
      assert.deepEqual([strict.code, strict.out.includes(`\n✗ ${gap}The receipts do NOT hold`)], [10, true]);
      writeFileSync(path, `${first}\n${last?.replace('closed', 'lost')}\n`);
      const changed = await check();
      assert.equal(changed.code, 10);
      assert.match(changed.out, /✗ .* line 2: is not signed by its instance with the key of its chain\n/);
    } finally {
      writeFileSync(path, text);
    }
  });

  it('exits with 35 for receipts under other roots than those of AMD and Intel, without a check mark', async () => {
    const simulated = temporaryDirectory('receipts-');
    const log = await openReceipts(simulated, { roots: 'custom' });
    log.add(receipt('r1'));
    await log.close();
    assert.equal((await run('--dir', simulated)).code, 10, 'its manifest is not there');
    mkdirSync(join(simulated, 'manifests'));
    writeFileSync(join(simulated, 'manifests/1.json'), MANIFEST);
    const { code, out } = await run('--dir', simulated);
    assert.equal(code, 35);
    const words = /\n! Every signature and chain holds, but under custom roots .* NO genuine AMD or Intel/;
    assert.match(out, words);
    assert.doesNotMatch(out, /✓/);
  });

  it('refuses a --since in the future, with which nothing would be checked', async () => {
    const { code, err } = await run('--dir', directory, '--since', '2027-01-01');
    assert.equal(code, 1);
    assert.match(err, /^Error: --since: 2027-01-01 lies in the future/m);
  });
});
