/** `receipts verify`: what it prints, and the exit code. */
import assert from 'node:assert/strict';
import { createHash, generateKeyPairSync } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import { openReceiptLog } from '../../lib/receipts/receipt-log.ts';
import { receipt } from '../support/doors/receipts.ts';
import { runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { clockOf } from '../support/remote/fake-clock.ts';

const P256 = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  .publicKey.export({ type: 'spki', format: 'pem' })
  .toString();

let workspace: string;
let directory: string;
/**
 * Begins an instance at noon of the day, and ends it: two lines, and one for requests that were refused with
 * these codes.
 */
async function instance(day: string, refused: readonly string[] = []): Promise<string> {
  const clock = clockOf({ now: () => Date.parse(`${day}T12:00:00Z`) });
  const log = await openReceiptLog({
    ...{ workspace, version: '1', clock },
    onFailure: (reason) => assert.fail(reason),
    onRecovery: () => assert.fail('nothing failed'),
  });
  for (const code of refused) log.add(receipt('r', { endpoint: null, outcome: 'refused', code }));
  await log.close();
  return `${day}.${log.instance}.jsonl`;
}
before(async () => {
  workspace = temporaryDirectory('receipts-');
  directory = join(workspace, 'receipts');
  await instance('2026-12-01');
});

/** With a copy of the key that was kept elsewhere; the line that says so is left out. */
async function run(...argv: string[]): Promise<{ code: number; out: string }> {
  const kept = join(workspace, 'kept.pem');
  cpSync(join(directory, 'public.pem'), kept);
  const { code, stdout } = await runCommand(['receipts', ...argv, '--public-key', kept], {
    now: '2026-12-31T00:00:00Z',
  });
  const out = stdout
    .replace(/^Checked with the key of --public-key \(SHA-256 [0-9a-f]{64}\)\.\n/m, '')
    .replace(/ {2}"publicKeys": \[\n {4}\{\n {6}"sha256": "[0-9a-f]{64}",\n[^\]]+\],\n/, '');
  return { code, out };
}

describe('receipts verify', () => {
  it('says how many receipts there are and that all of them hold, and exits with 0', async () => {
    assert.deepEqual(await run('verify', '--dir', directory), {
      code: 0,
      out: '0 receipts in 2 lines of 1 instance\n✓ Every signature, chain and verdict holds.\n',
    });
  });

  it('says that the key of the directory itself proves nothing to others: a forger would have replaced it', async () => {
    const forged = temporaryDirectory('receipts-');
    const log = await openReceiptLog({
      ...{ workspace: forged, version: '1', clock: systemClock },
      ...{ onFailure: (error) => assert.fail(error), onRecovery: () => {} },
    });
    await log.close();
    const sha256 = createHash('sha256').update(Buffer.from(log.publicKey, 'base64')).digest('hex');
    const own = await runCommand(['receipts', 'verify', '--dir', forged]);
    assert.equal(own.code, 0);
    assert.match(
      own.stdout,
      new RegExp(`\n! Checked with the key of this directory \\(SHA-256 ${sha256}\\)\\. Whoever`),
    );
    assert.doesNotMatch(own.stdout, /✓/);
    const { publicKeys } = JSON.parse(
      (await runCommand(['receipts', 'verify', '--dir', forged, '--json'])).stdout,
    );
    assert.deepEqual(publicKeys, [{ sha256, source: 'directory', instances: 1 }]);
    const kept = join(directory, 'public.pem');
    const given = await runCommand(['receipts', 'verify', '--dir', forged, '--public-key', kept]);
    assert.equal(given.code, 10);
    assert.doesNotMatch(given.stdout, /Checked with/);
  });

  for (const [what, pem, found] of [
    ['a certificate', (key: string) => key.replaceAll('PUBLIC KEY', 'CERTIFICATE'), 'CERTIFICATE'],
    ['two keys', (key: string) => key + key, 'PUBLIC KEY, PUBLIC KEY'],
    ['a key of another kind', () => P256, 'a key of type ec'],
    ['a private key', () => readFileSync(join(directory, 'key.pem'), 'utf8'), 'PRIVATE KEY'],
    ['no PEM', () => 'hello', 'nothing in PEM'],
  ] as const) {
    it(`exits with 1 if --public-key holds ${what}, with an error about that file, not about the receipts`, async () => {
      const file = join(temporaryDirectory('receipts-'), 'other.pem');
      writeFileSync(file, pem(readFileSync(join(directory, 'public.pem'), 'utf8')));
      const { code, stderr } = await runCommand([
        'receipts',
        'verify',
        '--dir',
        directory,
        '--public-key',
        file,
      ]);
      assert.equal(code, 1);
      const instead = found.includes('PRIVATE KEY') ? ': name the public\\.pem beside it' : '';
      assert.match(stderr, new RegExp(`must hold one Ed25519 PUBLIC KEY, and holds ${found}${instead}\\)`));
    });
  }

  it('finds the receipts below the workspace that --dir names', async () => {
    assert.deepEqual(await run('verify', '--dir', workspace), await run('verify', '--dir', directory));
  });

  it('finds them below a workspace that has a key.pem and a directory "keys" of its own', async () => {
    const own = temporaryDirectory('receipts-');
    cpSync(directory, join(own, 'receipts'), { recursive: true });
    writeFileSync(join(own, 'key.pem'), 'the TLS key of the proxy');
    mkdirSync(join(own, 'keys'));
    assert.deepEqual(await run('verify', '--dir', own), await run('verify', '--dir', directory));
    const { stdout } = await runCommand(['usage', '--dir', own]);
    assert.equal(stdout, 'No requests.\n');
  });

  it('takes a directory with public.pem as that of the receipts, even if it has a subdirectory "receipts"', async () => {
    const emptied = temporaryDirectory('receipts-');
    cpSync(join(directory, 'public.pem'), join(emptied, 'public.pem'));
    cpSync(directory, join(emptied, 'receipts'), { recursive: true });
    const { code, out } = await run('verify', '--dir', emptied);
    assert.equal(code, 10);
    assert.match(out, /^0 receipts in 0 lines/);
  });

  it('exits with 10 for a directory whose receipts are all gone, unless --since leaves out earlier days', async () => {
    const empty = temporaryDirectory('receipts-');
    cpSync(join(directory, 'public.pem'), join(empty, 'public.pem'));
    const all = await run('verify', '--dir', empty);
    assert.equal(all.code, 10);
    assert.match(
      all.out,
      /^0 receipts in 0 lines of 0 instances\n✗ \.: there are no receipts\nThe receipts do NOT hold/,
    );
    const argv = ['verify', '--dir', empty, '--since', '2026-12-01'];
    const found =
      '0 receipts in 0 lines of 0 instances\n- .: there are no receipts\n! There are no receipts: nothing was checked.\n';
    assert.deepEqual(await run(...argv), { code: 0, out: found });
    assert.equal((await run(...argv, '--strict')).code, 10);
  });

  for (const [what, content] of [
    ['is empty', ''],
    ['holds something else', 'hello\n'],
  ] as const) {
    it(`exits with 10 if the only file with the name of receipts ${what}, and shows no check mark with --since`, async () => {
      const empty = temporaryDirectory('receipts-');
      cpSync(join(directory, 'public.pem'), join(empty, 'public.pem'));
      writeFileSync(join(empty, '2026-12-01.abcdefghijkl.jsonl'), content);
      const argv = ['verify', '--dir', empty];
      const all = await run(...argv);
      assert.equal(all.code, 10);
      assert.match(all.out, /\n✗ \.: there are no receipts\n/);
      const since = await run(...argv, '--since', '2026-12-01');
      assert.equal(since.code, 0);
      assert.match(since.out, /\n- \.: there are no receipts\n/);
      assert.match(since.out, /\n! There are no receipts: nothing was checked\.\n$/);
      const strict = await run(...argv, '--since', '2026-12-01', '--strict');
      assert.equal(strict.code, 10);
      assert.doesNotMatch(strict.out, /Only lines are missing/);
    });
  }

  it('leaves out earlier days with --since, and prints JSON with --json', async () => {
    const second = await instance('2026-12-02');
    try {
      assert.match((await run('verify', '--dir', directory)).out, /^0 receipts in 4 lines of 2 instances\n/);
      const { code, out } = await run('verify', '--dir', directory, '--since', '2026-12-02', '--json');
      assert.equal(code, 0);
      assert.equal(
        out,
        '{\n  "ok": true,\n  "instances": 1,\n  "lines": 2,\n  "requests": 0,\n  "findings": []\n}\n',
      );
    } finally {
      rmSync(join(directory, second));
    }
  });

  it('marks a wrong signature with ✗ and exits with 10, but does neither for a file without its last line', async () => {
    const [name] = readdirSync(directory).filter((each) => each.endsWith('.jsonl'));
    const path = join(directory, name as string);
    const text = readFileSync(path, 'utf8');
    const [first, last] = text.split('\n');
    try {
      writeFileSync(path, `${first}\n`);
      const killed = await run('verify', '--dir', directory);
      assert.deepEqual([killed.code, killed.out.split('\n').length], [0, 4]);
      assert.match(killed.out, new RegExp(`\n- ${name} line 1: is the last line; .*\n✓ Every`));
      writeFileSync(path, `${first}\n${last?.replace('closed', 'lost')}\n`);
      assert.deepEqual(await run('verify', '--dir', directory), {
        code: 10,
        out: `0 receipts in 2 lines of 1 instance\n✗ ${name} line 2: its signature does not fit the key\nThe receipts do NOT hold where marked ✗. Keep a copy of the directory, and find out who could write to it.\n`,
      });
    } finally {
      writeFileSync(path, text);
    }
  });

  it('marks gaps with ✗ and exits with 10 for them only with --strict', async () => {
    const [old] = readdirSync(directory).filter((each) => each.endsWith('.jsonl')) as [string];
    const text = readFileSync(join(directory, old), 'utf8');
    const young = await instance('2026-12-02');
    rmSync(join(directory, old));
    try {
      const argv = ['verify', '--dir', directory, '--since', '2026-12-02'];
      const gap = `${young} line 1: names instance ${old.split('.')[1]}, whose receipts are missing\n`;
      assert.deepEqual(await run(...argv), {
        code: 0,
        out: `0 receipts in 2 lines of 1 instance\n- ${gap}✓ Every signature, chain and verdict holds.\n`,
      });
      assert.deepEqual(await run(...argv, '--strict'), {
        code: 10,
        out: `0 receipts in 2 lines of 1 instance\n✗ ${gap}The receipts do NOT hold where marked ✗. Keep a copy of the directory, and find out who could write to it. Only lines are missing: an instance that is still running, or was killed, leaves such gaps, and --strict counts them as failures.\n`,
      });
      const { ok, findings } = JSON.parse((await run(...argv, '--strict', '--json')).out);
      assert.deepEqual([ok, findings[0].kind, findings[0].fails], [false, 'missing', true]);
      const lenient = JSON.parse((await run(...argv, '--json')).out);
      assert.deepEqual([lenient.ok, lenient.findings[0].fails], [true, false]);
    } finally {
      rmSync(join(directory, young));
      writeFileSync(join(directory, old), text);
    }
    assert.equal((await run('verify', '--dir', directory, '--strict')).code, 0);
  });

  it('names a file that holds no receipts, with control characters of the name escaped', async () => {
    const name = 'x\u001b[2J.jsonl';
    writeFileSync(join(directory, name), '');
    try {
      assert.deepEqual(await run('verify', '--dir', directory), {
        code: 0,
        out: `0 receipts in 2 lines of 1 instance
- x\\u{1b}[2J.jsonl: is no file of receipts
✓ Every signature, chain and verdict holds.\n`,
      });
    } finally {
      rmSync(join(directory, name));
    }
  });

  it('says how many requests were refused and only counted, by code', async () => {
    const file = await instance('2026-12-03', ['unknown_path', 'client_unknown', 'unknown_path']);
    try {
      const { code, out } = await run('verify', '--dir', directory);
      assert.equal(code, 0);
      assert.match(out, /^0 receipts in 5 .*\nRefused and only counted: 2 unknown_path, 1 client_unknown\n✓/);
      const { refused } = JSON.parse((await run('verify', '--dir', directory, '--json')).out);
      assert.deepEqual(refused, { unknown_path: 2, client_unknown: 1 });
    } finally {
      rmSync(join(directory, file));
    }
  });

  it('refuses a --since in the future, with which nothing would be checked', async () => {
    const argv = ['receipts', 'verify', '--dir', directory, '--since', '2027-01-01'];
    const { code, stderr } = await runCommand(argv, { now: '2026-12-31T00:00:00Z' });
    assert.equal(code, 1);
    assert.match(stderr, /^Error: --since: 2027-01-01 lies in the future/m);
  });

  it('says that the file of --public-key is not there, and to check its path', async () => {
    const nowhere = join(workspace, 'nowhere.pem');
    const argv = ['receipts', 'verify', '--dir', directory, '--public-key', nowhere];
    assert.match(
      (await runCommand(argv)).stderr,
      /^Error: .*nowhere\.pem: ENOENT: no such file or directory; check the path, and in a container what is mounted\)$/m,
    );
  });
});
