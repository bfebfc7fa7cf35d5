import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fs, {
  linkSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import { errno } from '../support/processes/broken-file-system.ts';
import { type Ran, runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { listening } from '../support/remote/loopback.ts';

const run = (...argv: string[]): Promise<Ran> => runCommand(['clients', ...argv]);

describe('privatemode-proxy clients', () => {
  const directory = temporaryDirectory('clients-command-');
  const DIGESTS = ['a', 'b'].map((digit) => digit.repeat(64));
  const OTHERS = { name: 'bob', expires: '2026-01-02T03:04:05Z', tokensPerDay: 5, models: ['m*', 'n'] };
  const FILE = {
    $schema: './clients-file.schema.json',
    clients: [
      { name: 'ann', tokens: [DIGESTS[0]], requestsPerMinute: 60, apiKey: '@ann.key' },
      { ...OTHERS, tokens: [DIGESTS[1]] },
    ],
  };

  /** A file in a directory of its own. */
  function fileWith(content: unknown = FILE): string {
    const path = join(mkdtempSync(join(directory, 'file-')), 'clients.json');
    writeFileSync(path, JSON.stringify(content, null, 4), { mode: 0o640 });
    return path;
  }
  const contentOf = (path: string) => JSON.parse(readFileSync(path, 'utf8'));
  const names = (path: string): string[] => contentOf(path).clients.map(({ name }: { name: string }) => name);

  it('new makes the file of --clients, for its owner alone, and prints a token of 256 bits alone on stdout', async () => {
    const path = join(mkdtempSync(join(directory, 'new-')), 'clients.json');
    const { code, stdout, stderr } = await run('new', 'ann', '--clients', path);
    assert.equal(code, 0);
    assert.match(stdout, /^pmp_[A-Za-z0-9_-]{43}\n$/);
    const token = stdout.trim();
    assert.equal(Buffer.from(token.slice(4), 'base64url').length, 32);
    const digest = createHash('sha256').update(token).digest('hex');
    assert.deepEqual(contentOf(path), { clients: [{ name: 'ann', tokens: [digest] }] });
    assert.ok(stderr.includes(`ann has 1 token in ${path} now`), stderr);
    assert.ok(!stderr.includes(digest) && !stderr.includes('pmp_'), stderr);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });

  it('new adds an entry in a line of its own, and a second token to an existing entry, in one change', async () => {
    const path = fileWith();
    const { stdout, stderr } = await run('new', 'carol', 'ann', '--clients', path);
    assert.equal(new Set(stdout.trimEnd().split('\n')).size, 2);
    assert.match(stderr, /ann has 2 tokens in .*\ncarol has 1 token in .*\nIt is in force once the log/);
    const { $schema, clients } = contentOf(path);
    assert.equal($schema, FILE.$schema);
    const [ann, bob, carol] = clients;
    assert.deepEqual({ ...ann, tokens: [ann.tokens[0]] }, FILE.clients[0]);
    assert.deepEqual([ann.tokens.length, bob, carol.name], [2, FILE.clients[1], 'carol']);
    assert.match(readFileSync(path, 'utf8'), /^ {4}\{"name":"carol","tokens":\["[0-9a-f]{64}"\]\}$/m);
  });

  describe('in a file in which every client has an apiKey', () => {
    const KEYED = { clients: FILE.clients.map((client) => ({ ...client, apiKey: '@a.key' })) };

    it('new refuses a client without one, and leaves the file as it was', async () => {
      const path = fileWith(KEYED);
      const { code, stdout, stderr } = await run('new', 'carol', '--clients', path);
      assert.deepEqual([code, stdout, contentOf(path)], [1, '', KEYED]);
      assert.match(stderr, /^Error: the new list: clients\[2\]\.apiKey: expected a key file/);
    });

    it('new refuses a key file that does not exist, and does not repeat what may be a key', async () => {
      const path = fileWith(KEYED);
      const { code, stderr } = await run('new', 'carol', '--clients', path, '--api-key-file', 'sk-real-4c1e');
      assert.deepEqual([code, contentOf(path)], [1, KEYED]);
      assert.match(stderr, /^Error: --api-key-file names no file: /);
      assert.ok(!stderr.includes('sk-real'), stderr);
    });
  });

  it('list shows each client with its limits, and who has expired', async () => {
    const { code, stdout } = await runCommand(['clients', 'list', '--clients', fileWith()], {
      now: '2026-01-03T00:00:00Z',
    });
    assert.equal(code, 0);
    assert.equal(
      stdout,
      'ann  1 token, requestsPerMinute 60\n' +
        'bob  1 token, EXPIRED 2026-01-02T03:04:05.000Z, tokensPerDay 5, models m*,n\n2 clients\n',
    );
  });

  it('revoke removes the whole entry of a client, even of the last client, and fails if nobody can be asked', async () => {
    const path = fileWith();
    const { code, stdout, stderr } = await run('revoke', 'ann', `--clients=${path}`);
    assert.deepEqual([code, names(path), stdout], [1, ['bob'], `ann is no longer in ${path}.\n`]);
    const unknown = 'it is not known whether the proxy uses the new list: give --admin-address';
    assert.ok(stderr.startsWith(`Error: ${unknown}, or look in its log for "The clients file,`), stderr);
    await run('revoke', 'bob', '--clients', path);
    assert.deepEqual(contentOf(path), { ...FILE, clients: [] });
  });

  it('revoke of a name that is not in the file changes nothing, and does not repeat what may be a token', async () => {
    const path = fileWith();
    const { code, stderr } = await run('revoke', 'pmp_like-a-token', `--clients=${path}`);
    assert.deepEqual([code, names(path)], [1, ['ann', 'bob']]);
    assert.equal(stderr, `Error: ${path} has no client of that name; "clients list" shows all names\n`);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });

  it('writes the file that a link points to in place, so that its mount, group and ACL stay', async () => {
    const path = fileWith();
    const [mounted, link] = [`${path}.mounted`, `${path}.link`];
    linkSync(path, mounted); // stands for a bind mount: a second name of the same file
    symlinkSync(path, link);
    await run('revoke', 'ann', '--clients', link);
    assert.deepEqual([names(path), names(mounted)], [['bob'], ['bob']]);
    assert.ok(lstatSync(link).isSymbolicLink());
    assert.equal(statSync(path).mode & 0o777, 0o640);
    assert.deepEqual(readdirSync(join(path, '..')), [
      'clients.json',
      'clients.json.link',
      'clients.json.mounted',
    ]);
  });

  it('changes nothing while another command has kept the old list, also that of the file behind a link', async () => {
    const path = fileWith();
    symlinkSync(path, `${path}.link`);
    writeFileSync(`${path}.before`, 'of another command');
    for (const name of [path, `${path}.link`]) {
      const { code, stdout, stderr } = await run('new', 'carol', '--clients', name);
      assert.deepEqual([code, stdout, names(path)], [1, '', ['ann', 'bob']]);
      assert.match(stderr, /EEXIST.*; \S+clients\.json\.before has the list before: unless another command/);
    }
    assert.equal(readFileSync(`${path}.before`, 'utf8'), 'of another command');
    unlinkSync(`${path}.before`);
    assert.equal((await run('new', 'carol', '--clients', path)).code, 0);
  });

  it('keeps the old list in a file of its own, and names it, if the new one is not written to its end', async (t) => {
    const path = fileWith();
    const { writeFileSync: write } = fs;
    t.mock.method(fs, 'writeFileSync', (file: string, text: string, options: object) => {
      write(file, text.slice(0, 20), options);
      throw Object.assign(errno('ENOSPC'), { message: 'ENOSPC', syscall: 'write' });
    });
    syncBuiltinESMExports();
    const { code, stderr } = await run('revoke', 'ann', '--clients', path);
    t.mock.restoreAll();
    syncBuiltinESMExports();
    assert.deepEqual([code, names(`${path}.before`)], [1, ['ann', 'bob']]);
    const words = /clients\.json cannot be written: ENOSPC; \S+clients\.json\.before has the list before/;
    assert.match(stderr, words);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json', 'clients.json.before']);
  });

  describe('with --admin-address', () => {
    /** An admin listener whose /status gives these, one after the other, and the last one again and again. */
    async function admin(t: TestContext, ...files: (() => string)[]): Promise<string> {
      let asked = 0;
      const server = createServer((_, res) => {
        const clientsFile = files[Math.min(asked++, files.length - 1)]?.();
        res.end(JSON.stringify({ clientsFile }));
      });
      return `--admin-address=127.0.0.1:${(await listening(t, server)).port}`;
    }
    const digestOf = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

    it('revoke waits until the proxy uses the new file', async (t) => {
      const path = fileWith();
      const seen: string[] = [];
      const step = (file: string): string => {
        seen.push(file);
        return file;
      };
      const flag = await admin(
        t,
        () => step('old'),
        () => step(digestOf(path)),
      );
      const { code, stdout } = await run('revoke', 'ann', '--clients', path, flag);
      assert.equal(code, 0);
      assert.deepEqual(seen, ['old', digestOf(path)]);
      assert.match(stdout, /^ann is no longer in .*\nThe running proxy uses the new list now/);
    });

    it('fails if the proxy uses another list when the time is over', async (t) => {
      const argv = ['clients', 'revoke', 'ann', '--clients', fileWith(), await admin(t, () => 'other')];
      const { code, stderr } = await runCommand(argv, { times: { clientsInForceWait: 250 } });
      assert.equal(code, 1);
      assert.match(stderr, /^Error: it is not known whether the proxy uses the new list after 0\.25 s/);
    });
  });

  it('every command refuses a file that the proxy would refuse, and leaves it as it was', async () => {
    const refused = { clients: [{ name: 'a b' }] };
    const path = fileWith(refused);
    for (const words of [['new', 'zed'], ['revoke', 'ann'], ['list']]) {
      const { code, stdout, stderr } = await run(...words, '--clients', path);
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(stderr, /^Error: --clients \/.*: clients\[0\]\.name: expected a name/);
    }
    assert.deepEqual(contentOf(path), refused);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });
});
