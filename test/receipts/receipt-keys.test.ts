/**
 * The life of the key of receipts: names, rotation, loss, and what somebody without it can do
 * (docs/receipts.md, "The key").
 */
import assert from 'node:assert/strict';
import { createHash, createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import fs from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, it, type TestContext } from 'node:test';
import { systemClock } from '../../lib/clock.ts';
import type { PrivatemodeError } from '../../lib/errors.ts';
import { checkReceipts } from '../../lib/receipts/check-receipts.ts';
import { isSignedBy, lineDigest } from '../../lib/receipts/receipt.ts';
import { keySha256, replaceKey } from '../../lib/receipts/receipt-keys.ts';
import { rotateReceiptKey } from '../../lib/receipts/receipt-log.ts';
import {
  receipt,
  receiptsOfEachTest,
  signedAgain,
  sortOf,
  VERDICT,
  VERDICT_SHA256,
} from '../support/doors/receipts.ts';
import { breakFs, errno } from '../support/processes/broken-file-system.ts';
import { runCommand } from '../support/processes/command.ts';
import { eventually } from '../support/processes/eventually.ts';

const here = receiptsOfEachTest();
let directory: string;
let kept: string;
beforeEach(() => {
  ({ directory } = here);
  kept = join(here.workspace, 'kept.pem');
});

/** A chain with one receipt; gives the name of its file. */
async function chain(id: string): Promise<string> {
  const log = await here.open();
  log.keepVerdict(VERDICT_SHA256, VERDICT);
  log.add(receipt(id));
  await log.close();
  return `2026-12-01.${log.instance}.jsonl`;
}
const keep = (file = kept): void => cpSync(join(directory, 'public.pem'), file);
const rotate = () => rotateReceiptKey({ workspace: here.workspace, version: '1.2.3', clock: systemClock });
const openedIn = (file: string) => JSON.parse(here.linesOf(file)[0] as string);
/**
 * What a check with these keys says: whether all holds, the sort of each finding, and how often which kind of
 * key was used.
 */
async function checked(...publicKeyFiles: readonly string[]) {
  const { ok, findings, publicKeys } = await checkReceipts(directory, { publicKeyFiles });
  return {
    ok,
    sorts: findings.map(sortOf),
    keys: publicKeys.filter(({ instances }) => instances > 0).map(({ source }) => source),
    messages: findings.map(({ message }) => message),
  };
}
const pem = (key: KeyObject): string => key.export({ type: 'spki', format: 'pem' }).toString();
/** Signs each line of a file again. */
function signAgain(file: string, key: KeyObject, change: object = {}): void {
  const privatePem = key.export({ type: 'pkcs8', format: 'pem' }).toString();
  here.store(
    file,
    here.linesOf(file).map((line, i) => signedAgain(line, i === 0 ? change : {}, privatePem)),
  );
}

describe('the key of receipts', () => {
  it('is named by its hash in the first line of a chain, and kept under that name', async () => {
    const file = await chain('r1');
    const { key } = openedIn(file);
    assert.match(key, /^[0-9a-f]{64}$/);
    assert.deepEqual(readdirSync(join(directory, 'keys')), [`${key}.pem`]);
    assert.equal(
      readFileSync(join(directory, 'keys', `${key}.pem`), 'utf8'),
      readFileSync(join(directory, 'public.pem'), 'utf8'),
    );
  });

  it('is announced by the key before it, so a check with a copy of the first key verifies all chains', async () => {
    await chain('r1');
    keep();
    const { before, next } = await rotate();
    await chain('r2');
    const second = await rotate();
    assert.equal(second.before, next);
    await chain('r3');
    assert.notEqual(before, next);
    assert.deepEqual(await checked(kept), {
      ok: true,
      sorts: [],
      keys: ['given', 'rotated', 'rotated'],
      messages: [],
    });
    assert.deepEqual((await checked()).keys, ['directory', 'directory', 'directory']);
  });

  it('vouches for no earlier key: with the newest alone a check fails, and names the missing key', async () => {
    await chain('r1');
    const { before } = await rotate();
    await chain('r2');
    keep();
    const { ok, sorts, messages } = await checked(kept);
    assert.equal(ok, false);
    assert.deepEqual(new Set(sorts), new Set(['not ours or changed', 'missing']));
    assert.ok(messages.some((message) => message.includes(`names the key ${before}, which is not among`)));
    const old = join(here.workspace, 'old.pem');
    cpSync(join(directory, 'keys', `${before}.pem`), old);
    assert.deepEqual((await checked(kept, old)).ok, true);
  });

  it('stays in use by a proxy that was running at a rotation, until its next start, and all chains verify', async () => {
    const running = await here.open();
    keep();
    const { before, next } = await rotate();
    running.keepVerdict(VERDICT_SHA256, VERDICT);
    running.add(receipt('r1'));
    await running.close();
    const old = createPublicKey(readFileSync(kept));
    assert.equal(keySha256(old), before);
    for (const line of here.linesOf(`2026-12-01.${running.instance}.jsonl`)) assert.ok(isSignedBy(line, old));
    const file = await chain('r2');
    assert.equal(openedIn(file).key, next);
    assert.equal(openedIn(file).found.length, 2, 'it names the ends of both chains before it');
    assert.deepEqual((await checked(kept)).ok, true);
  });

  it('is found by its name however many keys there are: all chains verify, and the next one names their ends', async () => {
    const file = await chain('r1');
    keep();
    const { key } = openedIn(file);
    await rotate();
    for (let i = 0; i < 100; i++) {
      const { publicKey } = generateKeyPairSync('ed25519');
      writeFileSync(join(directory, 'keys', `${keySha256(publicKey)}.pem`), pem(publicKey));
    }
    const newest = openedIn(await chain('r2'));
    assert.equal(newest.found.length, 1, 'it names the chain of the rotation, which names the one before');
    assert.deepEqual(await checked(), {
      ok: true,
      sorts: [],
      keys: ['directory', 'directory'],
      messages: [],
    });
    assert.notEqual(newest.key, key);
    assert.deepEqual((await checked(kept)).ok, true);
  });

  it('does not hide that a chain of the key before it was deleted: the check reports it missing', async () => {
    const old = await chain('r1');
    keep();
    await rotate();
    await chain('r2');
    rmSync(join(directory, old));
    const { ok, sorts } = await checked(kept);
    assert.deepEqual([ok, sorts], [false, ['missing']]);
  });

  it('is replaced at the next start if it was lost, which is told once; earlier lines verify with the old key', async () => {
    const old = await chain('r1');
    keep();
    rmSync(join(directory, 'key.pem'));
    const log = await here.open();
    assert.equal(log.isKeyChanged, true);
    await log.close();
    assert.equal(openedIn(`2026-12-01.${log.instance}.jsonl`).found.length, 1);
    assert.deepEqual(await checked(), {
      ok: true,
      sorts: [],
      keys: ['directory', 'directory'],
      messages: [],
    });
    const { ok, findings } = await checkReceipts(directory, { publicKeyFiles: [kept] });
    assert.equal(ok, false);
    assert.ok(findings.every(({ file }) => file !== old));
    const again = await here.open();
    await again.close();
    assert.equal(again.isKeyChanged, false);
  });

  it('is filed under its hash if an earlier version made it, and the chains of that version still verify', async () => {
    const old = await chain('r1');
    const key = readFileSync(join(directory, 'key.pem'), 'utf8');
    const [first = '', ...rest] = here.linesOf(old);
    const { key: _, ...members } = JSON.parse(first);
    assert.equal(rest.length, 2);
    let prev = '';
    const lines = [JSON.stringify(members), ...rest].map((line, i) => {
      const signed = signedAgain(line, i === 0 ? { key: undefined } : { prev }, key);
      prev = lineDigest(signed);
      return signed;
    });
    here.store(old, lines);
    rmSync(join(directory, 'keys'), { recursive: true });
    assert.equal((await checked()).ok, true);
    const log = await here.open();
    assert.equal(log.isKeyChanged, false);
    await log.close();
    rmSync(join(directory, 'keys'), { recursive: true });
    rmSync(join(directory, 'key.pem'));
    const changed = await here.open();
    assert.equal(changed.isKeyChanged, true);
    await changed.close();
    assert.equal(readdirSync(join(directory, 'keys')).length, 2, 'that of public.pem as well');
    assert.equal((await checked()).ok, true);
  });

  it('cannot be rotated once it is lost: nothing could announce the next one', async () => {
    await chain('r1');
    rmSync(join(directory, 'key.pem'));
    await assert.rejects(rotate(), { code: 'receipts_unavailable', message: /key\.pem is missing/ });
    const log = await here.open();
    await log.close();
    assert.equal(log.isKeyChanged, true);
  });

  it('is reported as changed even if both key.pem and public.pem were deleted', async () => {
    await chain('r1');
    rmSync(join(directory, 'key.pem'));
    rmSync(join(directory, 'public.pem'));
    const log = await here.open();
    await log.close();
    assert.equal(log.isKeyChanged, true);
  });

  it('comes back with the verdict in force, which is told, if its directory is moved away from a running proxy', async () => {
    let replaced = 0;
    const log = await here.open({ onReplaced: () => void replaced++ });
    log.keepVerdict(VERDICT_SHA256, VERDICT);
    log.add(receipt('r1'));
    await eventually('the first receipt', () => log.counters.written === 1);
    keep();
    const before = readFileSync(join(directory, 'key.pem'), 'utf8');
    assert.equal(replaced, 0);
    renameSync(directory, `${directory}-2026-11`);
    for (const id of ['r2', 'r3']) {
      log.add(receipt(id));
      await eventually('the next receipt', () => log.counters.written === Number(id[1]));
    }
    await log.close();
    assert.equal(replaced, 1);
    assert.equal(readFileSync(join(directory, 'key.pem'), 'utf8'), before);
    const { sorts, keys } = await checked(kept);
    assert.deepEqual([sorts, keys], [['missing'], ['given']], 'the lines before the move, and no verdict');
    const next = await here.open();
    await next.close();
    assert.equal(next.isKeyChanged, false);
  });

  it('is reported as changed if a chain names a key that does not lie there', async () => {
    await chain('r1');
    for (const name of ['key.pem', 'public.pem', 'keys', 'verdicts'])
      rmSync(join(directory, name), { recursive: true });
    const log = await here.open();
    await log.close();
    const next = await here.open();
    await next.close();
    assert.deepEqual([log.isKeyChanged, next.isKeyChanged], [true, false]);
  });

  it('is reported as changed if a retired key comes back', async () => {
    await chain('r1');
    const retired = readFileSync(join(directory, 'key.pem'));
    await rotate();
    const rotated = await here.open();
    await rotated.close();
    writeFileSync(join(directory, 'key.pem'), retired);
    const log = await here.open();
    await log.close();
    assert.deepEqual([rotated.isKeyChanged, log.isKeyChanged], [false, true]);
  });

  it('is not reported as changed if a rotation crashed before it wrote public.pem', async () => {
    await chain('r1');
    keep();
    await rotate();
    cpSync(kept, join(directory, 'public.pem'));
    const log = await here.open();
    await log.close();
    assert.equal(log.isKeyChanged, false);
  });

  it('has one successor, even if two rotations are asked for at once', async () => {
    await chain('r1');
    keep();
    const rotated = await Promise.all([rotate(), rotate()]);
    assert.ok(rotated.some(({ before }) => rotated.some(({ next }) => next === before)));
    await chain('r2');
    assert.equal((await checked(kept)).ok, true);
  });

  it('stays unchanged if the line that announces the next key cannot be written', async () => {
    await chain('r1');
    keep();
    const before = readFileSync(join(directory, 'key.pem'), 'utf8');
    await assert.rejects(
      replaceKey(directory, systemClock, () => Promise.reject(new Error('a full disk'))),
      /a full disk/,
    );
    assert.equal(readFileSync(join(directory, 'key.pem'), 'utf8'), before);
    await chain('r2');
    assert.equal((await checked(kept)).ok, true);
    await rotate();
    assert.equal((await checked(kept)).ok, true);
  });
});

describe('somebody without the key of receipts', () => {
  it('cannot sign a directory again: neither with a key beside the receipts, nor with a rotation of his own', async () => {
    const file = await chain('r1');
    keep();
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const name = keySha256(publicKey);
    writeFileSync(join(directory, 'keys', `${name}.pem`), pem(publicKey));
    writeFileSync(join(directory, 'public.pem'), pem(publicKey));
    for (const change of [
      { key: name },
      { nextKey: name },
      { key: name, nextKey: name },
      { key: undefined },
    ]) {
      signAgain(file, privateKey, change);
      assert.equal((await checked(kept)).ok, false, JSON.stringify(change));
      assert.equal((await checked(kept)).keys.length, 0);
    }
  });

  it('cannot replace an announced key by his own, because a key is named by its hash', async () => {
    await chain('r1');
    keep();
    const { next } = await rotate();
    const file = await chain('r2');
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    writeFileSync(join(directory, 'keys', `${next}.pem`), pem(publicKey));
    signAgain(file, privateKey);
    const { ok, keys } = await checked(kept);
    assert.deepEqual([ok, keys], [false, ['given']]);
  });

  it('cannot announce a key in a line that is not the first of its chain', async () => {
    const file = await chain('r1');
    keep();
    const { publicKey } = generateKeyPairSync('ed25519');
    const name = keySha256(publicKey);
    writeFileSync(join(directory, 'keys', `${name}.pem`), pem(publicKey));
    const [first = '', ...rest] = here.linesOf(file);
    here.store(file, [JSON.stringify({ ...JSON.parse(first), nextKey: name }), first, ...rest]);
    assert.deepEqual((await checked(kept)).keys, ['given']);
  });
});

describe('the manifest of a receipt', () => {
  const manifest = (): string => join(here.workspace, 'manifests/1.json');
  for (const [what, spoil] of [
    ['changed', () => writeFileSync(manifest(), '{ }\n')],
    ['taken away', () => rmSync(manifest())],
    [
      'under a file name that no manifest has',
      () => {
        cpSync(manifest(), join(here.workspace, 'manifests/other.json'));
        rmSync(manifest());
      },
    ],
  ] as const) {
    it(`is reported as missing if it is ${what}`, async () => {
      await chain('r1');
      assert.deepEqual((await checked()).sorts, []);
      spoil();
      const { ok, sorts, messages } = await checked();
      assert.deepEqual([ok, sorts], [false, ['missing']]);
      assert.match(messages[0] ?? '', /^its manifest [0-9a-f]{64} is not in manifests beside the receipts$/);
    });
  }

  for (const [what, rotate] of [
    ['emptied', (log: string) => writeFileSync(log, '')],
    ['moved away', (log: string) => rmSync(log)],
  ] as const) {
    it(`is found by its bytes after log.txt was ${what}`, async () => {
      await chain('r1');
      rotate(join(here.workspace, 'manifests/log.txt'));
      const { ok, sorts } = await checked();
      assert.deepEqual([ok, sorts], [true, []]);
    });
  }

  it('is a gap, which fails only a strict check, if the receipts were copied without the manifests', async () => {
    await chain('r1');
    rmSync(join(here.workspace, 'manifests'), { recursive: true });
    assert.deepEqual((await checked()).sorts, ['gap']);
    assert.equal((await checkReceipts(directory, { strict: true })).ok, false);
  });
});

const recordDigest = (files: Readonly<Record<string, string>>): string =>
  createHash('sha256')
    .update(files['record.json'] ?? '')
    .digest('hex');

describe('the exchanges that receipts name', () => {
  const FILES = { 'record.json': '{}' };
  const sha256 = recordDigest(FILES);
  async function named(files: Readonly<Record<string, string>> = FILES): Promise<void> {
    const sha256 = recordDigest(files);
    const log = await here.open();
    log.keepVerdict(VERDICT_SHA256, VERDICT, { sha256, files });
    const { epoch } = receipt('r1');
    log.add(receipt('r1', { epoch: epoch && { ...epoch, exchangeSha256: sha256 } }));
    await log.close();
  }
  const path = (): string => join(directory, 'exchanges', sha256);

  it('are checked with the longest evidence that is accepted', async () => {
    const document = 'x'.repeat(12 * 1024 * 1024); // a response of 16 MiB holds it in base64
    const evidence = JSON.stringify({ AttestationDoc: Buffer.from(document).toString('base64'), Nonce: '' });
    await named({ 'record.json': evidence });
    assert.deepEqual((await checked()).sorts, []);
  });

  for (const [what, spoil] of [
    ['a changed file', () => writeFileSync(join(path(), 'record.json'), '[]')],
    ['one file more', () => writeFileSync(join(path(), 'c.json'), '[]')],
    ['no file', () => rmSync(join(path(), 'record.json'))],
    ['a link among the files', () => symlinkSync('/etc/hostname', join(path(), 'link'))],
  ] as const) {
    it(`are reported as changed if there is ${what}`, async () => {
      await named();
      assert.deepEqual((await checked()).sorts, []);
      spoil();
      assert.deepEqual((await checked()).messages, [`its exchange ${sha256} was changed`]);
    });
  }

  it('lead to no finding if they are gone, since the proxy keeps only the newest', async () => {
    await named();
    rmSync(path(), { recursive: true });
    assert.equal((await checked()).ok, true);
  });
});

describe('what this user may not read among receipts', () => {
  /** A chain before a rotation, with a verdict, a manifest and an exchange, and one after it. */
  async function twoChains(): Promise<{ readonly exchange: string; readonly key: string }> {
    const files = { 'record.json': '{}' };
    const exchange = recordDigest(files);
    const log = await here.open();
    log.keepVerdict(VERDICT_SHA256, VERDICT, { sha256: exchange, files });
    const { epoch } = receipt('r1');
    log.add(receipt('r1', { epoch: epoch && { ...epoch, exchangeSha256: exchange } }));
    await log.close();
    const { before } = await rotate();
    return { exchange, key: before };
  }
  function refuse(t: TestContext, name: 'open' | 'readdir', refused: string): void {
    const real = fs[name] as (path: string, ...more: never[]) => Promise<unknown>;
    breakFs(t, name, (path: string, ...more: never[]) => {
      if (path === refused) throw Object.assign(errno('EACCES'), { path });
      return real(path, ...more);
    });
  }
  const PLACES: [
    what: string,
    of: (named: { exchange: string; key: string }) => [string, 'open' | 'readdir'],
  ][] = [
    ['a verdict', () => [join(directory, 'verdicts', `${VERDICT_SHA256}.json`), 'open']],
    ['a manifest', () => [join(here.workspace, 'manifests/1.json'), 'open']],
    ['the manifests', () => [join(here.workspace, 'manifests'), 'readdir']],
    ['an exchange', ({ exchange }) => [join(directory, 'exchanges', exchange), 'readdir']],
    [
      'a file of an exchange',
      ({ exchange }) => [join(directory, 'exchanges', exchange, 'record.json'), 'open'],
    ],
    ['an earlier key', ({ key }) => [join(directory, 'keys', `${key}.pem`), 'open']],
  ];
  for (const [what, of] of PLACES) {
    it(`is receipts_unreadable with its path, and no finding: ${what}`, async (t) => {
      const [refused, name] = of(await twoChains());
      assert.equal((await checked()).ok, true);
      refuse(t, name, refused);
      await assert.rejects(checkReceipts(directory), ({ code, message }: PrivatemodeError) => {
        assert.equal(code, 'receipts_unreadable');
        assert.ok(message.includes(`(${refused}: EACCES: this user may not read it`), message);
        return true;
      });
    });
  }

  for (const what of ['an earlier chain', 'key.pem', 'public.pem']) {
    it(`is refused at the start with its path, and called unreadable: ${what}`, async (t) => {
      const file = await chain('r1');
      const refused = join(directory, what === 'an earlier chain' ? file : what);
      refuse(t, 'open', refused);
      await assert.rejects(here.open(), ({ code, message, remedy }: PrivatemodeError) => {
        assert.equal(code, 'receipts_unavailable');
        const said = `the receipts in ${directory} cannot be read (${refused}: EACCES: this user may not read it`;
        assert.ok(message.startsWith(said), message);
        assert.match(remedy, /^Make that readable for the user of the proxy/);
        return true;
      });
    });
  }
});

describe('the receipts command', () => {
  it('with rotate-key names both keys and what to do, and refuses a directory without receipts', async () => {
    await chain('r1');
    keep();
    const { code, stdout } = await runCommand(['receipts', 'rotate-key', '--dir', here.workspace]);
    assert.equal(code, 0);
    assert.match(
      stdout,
      /^The key of .*\/receipts is now [0-9a-f]{64}\. The previous key, [0-9a-f]{64}, has signed the new one as its successor\.\nKeep a copy of public\.pem elsewhere\. A running proxy signs with the previous key until you restart it\.\n$/,
    );
    await chain('r2');
    const verified = await runCommand(['receipts', 'verify', '--dir', directory, '--public-key', kept]);
    assert.equal(verified.code, 0);
    assert.match(
      verified.stdout,
      /\nChecked with the key of --public-key \(SHA-256 [0-9a-f]{64}; SHA-256 [0-9a-f]{64}, which the one before names as the next\)\.\n✓ /,
    );
    const elsewhere = join(here.workspace, 'elsewhere');
    mkdirSync(elsewhere);
    for (const dir of [elsewhere, join(here.workspace, 'nowhere')]) {
      const refused = await runCommand(['receipts', 'rotate-key', '--dir', dir]);
      assert.equal(refused.code, 1);
      assert.match(refused.stderr, /is no directory of receipts; name the workspace of the proxy/);
    }
    assert.deepEqual(readdirSync(elsewhere), []);
    const before = readFileSync(join(directory, 'key.pem'), 'utf8');
    const stray = await runCommand(['receipts', 'rotate-key', '--dir', directory, '--strict']);
    assert.match(stray.stderr, /^Error: --strict is for receipts verify; rotate-key takes --dir only$/m);
    assert.equal(readFileSync(join(directory, 'key.pem'), 'utf8'), before);
  });

  it('with verify takes several public keys, in one --public-key or in several', async () => {
    await chain('r1');
    keep();
    const other = join(here.workspace, 'other.pem');
    writeFileSync(other, pem(generateKeyPairSync('ed25519').publicKey));
    for (const flags of [[`--public-key=${other},${kept}`], ['--public-key', other, '--public-key', kept]])
      assert.equal((await runCommand(['receipts', 'verify', '--dir', directory, ...flags])).code, 0);
    const { code } = await runCommand(['receipts', 'verify', '--dir', directory, '--public-key', other]);
    assert.equal(code, 10);
  });
});
