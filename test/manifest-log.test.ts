/** What was enforced is on disk before it counts, and nothing that stands there is lost. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import fs from 'node:fs/promises';
import { join, relative } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { createManifestLog } from '../lib/manifest-log.ts';
import { breakFiles, breakFs, errno } from './support/processes/broken-file-system.ts';
import { temporaryDirectory } from './support/processes/temporary-directory.ts';

/** What a history holds of these manifests. */
const texts = (...all: readonly Uint8Array[]): string[] => all.map((bytes) => String(Buffer.from(bytes)));

const A = new Uint8Array(Buffer.from('{"manifest":"A"}\n'));
const B = new Uint8Array(Buffer.from('{"manifest":"B"}\n'));
const AT = Date.parse('2026-11-21T04:16:07.999Z');

const workspace = (): string => temporaryDirectory('manifest-log-');

function inTimeZone(t: TestContext, zone: string): void {
  const before = process.env['TZ'];
  process.env['TZ'] = zone;
  t.after(() => {
    if (before === undefined) delete process.env['TZ'];
    else process.env['TZ'] = before;
  });
}

const manifests = (space: string): string => join(space, 'manifests');
const logText = (space: string): string => readFileSync(join(manifests(space), 'log.txt'), 'utf8');
const names = (space: string): string[] => readdirSync(manifests(space)).sort();
/** What a third party reads: `<time> <path>/<N>.json`, N.json resolved beside the log. */
const history = (space: string): string[] =>
  logText(space)
    .split('\n')
    .flatMap((line) => /^\S+ .*?(\d+\.json)$/.exec(line)?.slice(1) ?? [])
    .map((name) => readFileSync(join(manifests(space), name), 'utf8'));

async function logAll(space: string, ...sequence: Uint8Array[]): Promise<void> {
  const log = createManifestLog(space);
  for (const manifest of sequence) await log.record(manifest, AT);
}

const logFailed = (message: RegExp) => ({ name: 'PrivatemodeError', code: 'manifest_log_failed', message });

describe('manifest log', () => {
  it('fails if log.txt is a link, and adds nothing to the file to which it leads', async () => {
    const space = workspace();
    await logAll(space, A);
    const other = join(space, 'other');
    writeFileSync(other, '');
    rmSync(join(manifests(space), 'log.txt'));
    symlinkSync(other, join(manifests(space), 'log.txt'));
    await assert.rejects(createManifestLog(space).record(B, AT), logFailed(/ELOOP/));
    assert.equal(readFileSync(other, 'utf8'), '');
  });

  for (const [zone, time] of [
    ['UTC', '2026-11-21T04:16:07Z'],
    ['America/St_Johns', '2026-11-21T00:46:07-03:30'],
  ] as const) {
    it(`writes a line with the local time of ${zone} to the second, and the manifest byte for byte`, async (t) => {
      inTimeZone(t, zone);
      const space = workspace();
      const record = await createManifestLog(space).record(A, AT);
      assert.deepEqual(record, { appended: true, path: `${space}/manifests/1.json` });
      assert.equal(logText(space), `${time} ${space}/manifests/1.json\n`);
      assert.deepEqual(history(space), texts(A));
      assert.deepEqual(names(space), ['1.json', 'log.txt']);
    });
  }

  it('writes a line only if the last one names another manifest, even one that another process has logged', async () => {
    const space = workspace();
    const [one, other] = [createManifestLog(space), createManifestLog(space)];
    const appended = async (log: typeof one, manifest: Uint8Array): Promise<boolean> =>
      (await log.record(manifest, AT)).appended;
    assert.equal(await appended(one, A), true);
    assert.equal(await appended(other, A), false);
    assert.equal(await appended(other, B), true);
    assert.equal(await appended(one, A), true);
    assert.equal(await appended(one, A), false);
    assert.equal(await appended(other, A), false);
    assert.deepEqual(history(space), texts(A, B, A));
    assert.equal(logText(space).trimEnd().split('\n').length, 3);
  });

  it('accepts a manifest that it has recorded even if its files are gone, and fails for another one', async () => {
    const space = workspace();
    const log = createManifestLog(space);
    await log.record(A, AT);
    rmSync(join(manifests(space), 'log.txt'));
    assert.deepEqual(await log.record(A, AT), { appended: false, path: `${space}/manifests/1.json` });
    await assert.rejects(log.record(B, AT), logFailed(/manifests but no log\.txt$/));
    rmSync(manifests(space), { recursive: true });
    writeFileSync(manifests(space), 'a file where the directory was');
    assert.equal((await log.record(A, AT)).appended, false);
    await assert.rejects(log.record(B, AT), logFailed(/ENOTDIR|EEXIST/));
  });

  it('enforces no manifest of its own anew, unlogged, after another process has logged one', async (t) => {
    const space = workspace();
    const log = createManifestLog(space);
    await log.record(A, AT);
    await createManifestLog(space).record(B, AT);
    breakFs(t, 'link', async () => {
      throw errno('ENOSPC');
    });
    await assert.rejects(log.record(A, AT), logFailed(/ENOSPC/));
  });

  it('refuses to begin a history beside manifests whose log is gone, and advises to keep them', async () => {
    const space = workspace();
    await logAll(space, A);
    rmSync(join(manifests(space), 'log.txt'));
    const remedy = 'Put log.txt back, or create it empty; keep the manifests.';
    const refused = { code: 'manifest_log_failed', message: /manifests but no log\.txt$/, remedy };
    await assert.rejects(createManifestLog(space).record(B, AT), refused);
    assert.deepEqual(names(space), ['1.json']);
    writeFileSync(join(manifests(space), 'log.txt'), '');
    await createManifestLog(space).record(B, AT);
    assert.deepEqual(names(space), ['1.json', '2.json', 'log.txt']);
  });

  it('begins a history beside files that are no manifests of a log', async () => {
    const space = workspace();
    mkdirSync(manifests(space));
    for (const name of ['1.json.bak', 'x1.json', '.json', '1.json~', '1xjson'])
      writeFileSync(join(manifests(space), name), B);
    await logAll(space, A);
    assert.deepEqual(history(space), texts(A));
  });

  it('continues a history that the reference implementation wrote', async () => {
    const space = workspace();
    mkdirSync(manifests(space));
    writeFileSync(join(manifests(space), '1.json'), A);
    const line = '2026-01-02T03:04:05+01:00 old/place/manifests/1.json\n';
    writeFileSync(join(manifests(space), 'log.txt'), line);
    await logAll(space, A);
    assert.deepEqual(history(space).length, 1);
    await logAll(space, B);
    assert.deepEqual(history(space), texts(A, B));
  });

  for (const cut of [1, 6, 25, 60]) {
    it(`closes a last line that was cut off ${cut} bytes before its end, and starts a line of its own`, async () => {
      const space = workspace();
      await logAll(space, A, B);
      const whole = logText(space);
      writeFileSync(join(manifests(space), 'log.txt'), whole.slice(0, -cut));
      await logAll(space, B);
      await logAll(space, A);
      assert.deepEqual(history(space), texts(A, B, A));
      assert.match(logText(space), /\n2026-11-21T\S+ \S+\/manifests\/\d\.json\n$/);
      // Nothing that stood in the log was removed.
      assert.ok(logText(space).startsWith(whole.slice(0, -cut)));
    });
  }

  it('ignores a last line that does not end in the name of a manifest', async () => {
    const line = '2026-01-02T03:04:05Z manifests/1.json';
    // A program that does not close a line which was cut off writes its own next to it, and may be cut off as
    // well.
    for (const last of [`${line}2026-01-02T03:04:05Z manifests/2.js`, `${line}.old`]) {
      const space = workspace();
      mkdirSync(manifests(space));
      writeFileSync(join(manifests(space), '1.json'), A);
      writeFileSync(join(manifests(space), 'log.txt'), last);
      assert.equal((await createManifestLog(space).record(A, AT)).appended, true, last);
      assert.equal(logText(space).split('\n')[0], last);
      assert.match(logText(space).split('\n')[1] ?? '', /^2026-11-21T\S+ \S+\/manifests\/\d\.json$/);
    }
  });

  it('continues after a crash that left a log without a line, a manifest without a line, or part of a manifest', async () => {
    const empty = ['log.txt', new Uint8Array(0)] as const;
    const crashed = [[empty], [empty, ['1.json', A]], [empty, ['1.json', A.subarray(0, 5)]]] as const;
    for (const files of crashed) {
      const space = workspace();
      mkdirSync(manifests(space));
      for (const [name, content] of files) writeFileSync(join(manifests(space), name), content);
      await logAll(space, A);
      assert.deepEqual(history(space), texts(A));
      for (const [name, content] of files.slice(1)) {
        assert.deepEqual(new Uint8Array(readFileSync(join(manifests(space), name))), new Uint8Array(content));
      }
    }
  });

  it('logs a manifest again when the file that the last line names is gone', async () => {
    const space = workspace();
    await logAll(space, A);
    rmSync(join(manifests(space), '1.json'));
    await logAll(space, A);
    assert.equal(logText(space).split('\n').length, 3);
    assert.deepEqual(names(space), ['2.json', 'log.txt']);
  });

  it('fails if nothing can be written, but not for a manifest that is already logged', async (t) => {
    const space = workspace();
    await logAll(space, A);
    const fresh = createManifestLog(space);
    breakFs(t, 'open', async (_path: string, flags: string) => {
      throw errno(flags === 'r' ? 'EIO' : 'EROFS');
    });
    assert.equal((await fresh.record(A, AT)).appended, false);
    assert.equal((await fresh.record(A, AT)).appended, false);
    await assert.rejects(fresh.record(B, AT), logFailed(/cannot be logged in .*EROFS/));
    await assert.rejects(createManifestLog(join(space, 'other')).record(A, AT), logFailed(/EIO/));
    assert.equal((await fresh.record(A, AT)).appended, false);
  });

  it('syncs every file and directory to the disk before it reports a manifest as recorded', async (t) => {
    const space = workspace();
    const synced: string[] = [];
    breakFiles(t, /./, {
      sync(real, _: never, path) {
        synced.push(relative(space, path).replace(/\.[-0-9a-f]+\.tmp$/, 'temporary'));
        return real();
      },
    });
    const log = createManifestLog(space);
    await log.record(A, AT);
    assert.deepEqual(synced.splice(0), [
      '', // the new directory's name
      'manifests/log.txt',
      'manifests/temporary',
      'manifests',
      'manifests/log.txt',
      'manifests',
    ]);
    await log.record(B, AT);
    assert.deepEqual(synced, ['manifests/temporary', 'manifests', 'manifests/log.txt', 'manifests']);
  });

  it('fails on a full disk at any write, leaves no temporary file behind, and recovers', async (t) => {
    let full: RegExp | undefined;
    breakFiles(t, /./, {
      async writeFile(real, content: Uint8Array, path) {
        if (full?.test(path)) throw errno('ENOSPC');
        return real(content);
      },
      write: (real, bytes: Buffer, path) => real(full?.test(path) ? bytes.subarray(0, 9) : bytes),
    });
    for (const victim of [/\.tmp$/, /log\.txt$/]) {
      const space = workspace();
      const log = createManifestLog(space);
      await log.record(A, AT);
      full = victim;
      const refused = { code: 'manifest_log_failed', message: /ENOSPC/, remedy: /^Make room on the disk / };
      await assert.rejects(log.record(B, AT), refused);
      await assert.rejects(log.record(B, AT), refused);
      assert.deepEqual(
        names(space).filter((name) => name.endsWith('.tmp')),
        [],
      );
      full = undefined;
      assert.equal((await log.record(B, AT)).appended, true);
      assert.deepEqual(history(space), texts(A, B));
    }
  });

  it('waits ten seconds for a disk that neither answers nor fails, and fails unless the manifest is recorded', {
    timeout: 60_000,
  }, async (t) => {
    const space = workspace();
    const log = createManifestLog(space);
    await log.record(A, AT);
    const answers = Promise.withResolvers<void>();
    const { readFile } = fs;
    breakFs(t, 'readFile', async (...args: Parameters<typeof readFile>) => {
      await answers.promise;
      return readFile(...args);
    });
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const refused = assert.rejects(log.record(B, AT), logFailed(/\(ETIMEDOUT\)$/));
    const again = log.record(A, AT);
    t.mock.timers.tick(10_000);
    await refused;
    assert.equal((await again).appended, false);
    answers.resolve();
    await log.record(A, AT);
    assert.deepEqual(history(space), texts(A, B, A));
  });

  it('is written without hard links if the file system does not support them', async (t) => {
    const space = workspace();
    breakFs(t, 'link', async () => {
      throw errno('EPERM');
    });
    await logAll(space, A, B);
    assert.deepEqual(history(space), texts(A, B));
    assert.deepEqual(names(space), ['1.json', '2.json', 'log.txt']);
  });

  it('queues manifests that are recorded at the same time', async () => {
    const space = workspace();
    const log = createManifestLog(space);
    const records = await Promise.all([A, A, B, B, A].map((manifest) => log.record(manifest, AT)));
    assert.deepEqual(
      records.map(({ appended }) => appended),
      [true, false, true, false, true],
    );
  });

  it('loses nothing when several processes write at once', async () => {
    const space = workspace();
    const program = `
      const { createManifestLog } = await import('./lib/manifest-log.ts');
      const log = createManifestLog(process.argv[1]);
      for (let i = 0; i < 25; i++) await log.record(Buffer.from(process.argv[2] + i), Date.now());`;
    const writers = ['x', 'y', 'z'].map(async (who) => {
      const args = ['--input-type=module', '-e', program, space, who];
      const cwd = join(import.meta.dirname, '..');
      return (await once(spawn(process.execPath, args, { cwd, stdio: 'inherit' }), 'exit'))[0];
    });
    assert.deepEqual(await Promise.all(writers), [0, 0, 0]);
    const logged = history(space);
    for (const who of ['x', 'y', 'z']) {
      const own = logged.filter((manifest) => manifest.startsWith(who));
      const all = Array.from({ length: 25 }, (_, i) => `${who}${i}`);
      assert.deepEqual(own, all);
    }
    assert.equal(logText(space).trimEnd().split('\n').length, 75);
    assert.equal(names(space).length, 76);
  });
});
