/** `privatemode-proxy clients`: a token, once, and the file that lets it in. */
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
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parseClientsFile } from '../../lib/access/clients-file.ts';
import { errno } from '../support/processes/broken-file-system.ts';
import { type Ran, runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const run = (...argv: string[]): Promise<Ran> => runCommand(['clients', ...argv]);

describe('clients new', () => {
  it('prints a token of 256 bits alone on stdout, and on stderr its entry for the file of --clients', async () => {
    const { code, stdout, stderr } = await run('new', 'ann');
    assert.equal(code, 0);
    assert.match(stdout, /^pmp_[A-Za-z0-9_-]{43}\n$/);
    const token = stdout.trim();
    assert.equal(Buffer.from(token.slice(4), 'base64url').length, 32);
    assert.ok(!stderr.includes('pmp_'), 'the token is on stdout only');
    const line = /^ {2}(\{.*\})$/m.exec(stderr)?.[1] ?? '';
    const digest = createHash('sha256').update(token).digest('hex');
    assert.deepEqual(JSON.parse(line), { name: 'ann', tokens: [digest] });
    assert.equal(
      parseClientsFile(Buffer.from(`{"clients":[${line}]}`), { needsKeys: false })[0]?.name,
      'ann',
    );
  });

  it('never prints the same token twice', async () => {
    const tokens = await Promise.all(Array.from({ length: 20 }, () => run('new', 'ann')));
    assert.equal(new Set(tokens.map(({ stdout }) => stdout)).size, 20);
  });
});

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
    writeFileSync(path, typeof content === 'string' ? content : JSON.stringify(content, null, 4), {
      mode: 0o640,
    });
    return path;
  }
  const contentOf = (path: string) => JSON.parse(readFileSync(path, 'utf8'));
  const names = (path: string): string[] => contentOf(path).clients.map(({ name }: { name: string }) => name);

  it('new makes the file of --clients, for its owner alone, and prints the token, not the digest', async () => {
    const path = join(mkdtempSync(join(directory, 'new-')), 'clients.json');
    const { code, stdout, stderr } = await run('new', 'ann', '--clients', path);
    assert.equal(code, 0);
    const token = stdout.trim();
    const digest = createHash('sha256').update(token).digest('hex');
    assert.deepEqual(contentOf(path), { clients: [{ name: 'ann', tokens: [digest] }] });
    assert.ok(!stderr.includes(digest) && stderr.includes(`ann has 1 token in ${path} now`), stderr);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });

  it('new adds an entry in a line of its own, and a second token to an existing entry', async () => {
    const path = fileWith();
    await run('new', 'carol', '--clients', path);
    assert.match((await run('new', 'ann', '--clients', path)).stderr, /ann has 2 tokens in /);
    const { $schema, clients } = contentOf(path);
    assert.equal($schema, FILE.$schema);
    const [ann, bob, carol] = clients;
    assert.deepEqual({ ...ann, tokens: [ann.tokens[0]] }, FILE.clients[0]);
    assert.deepEqual([ann.tokens.length, bob, carol.name], [2, FILE.clients[1], 'carol']);
    assert.match(readFileSync(path, 'utf8'), /^ {4}\{"name":"carol","tokens":\["[0-9a-f]{64}"\]\}$/m);
    assert.equal(statSync(path).mode & 0o777, 0o640, 'the mode stays');
  });

  it('new adds several clients in one change', async () => {
    const path = fileWith();
    const { stdout, stderr } = await run('new', 'carol', 'dan', '--clients', path);
    assert.deepEqual(names(path), ['ann', 'bob', 'carol', 'dan']);
    assert.equal(stdout.trimEnd().split('\n').length, 2);
    assert.match(
      stderr,
      /carol has 1 token in .* now\.\ndan has 1 token in .* now\.\nIt is in force once the log/,
    );
  });

  it('new keeps the defaults of the file, and list shows them', async () => {
    const path = fileWith({ defaults: { requestsPerMinute: 7, models: ['m*'] }, clients: FILE.clients });
    await run('new', 'carol', '--clients', path);
    assert.deepEqual(contentOf(path).defaults, { requestsPerMinute: 7, models: ['m*'] });
    const { stdout } = await run('list', '--clients', path);
    assert.match(stdout, /^ann +1 token, requestsPerMinute 60, models m\*$/m);
    assert.match(stdout, /^carol +1 token, requestsPerMinute 7, models m\*$/m);
  });

  it('new warns of a client that has expired already, by its own time or that of the defaults', async () => {
    const expires = '2020-01-01T00:00:00Z';
    const path = fileWith({ defaults: { expires }, clients: FILE.clients });
    const { code, stderr } = await run('new', 'carol', '--clients', path);
    assert.equal(code, 0);
    assert.match(stderr, /^Warning: carol expired at 2020-01-01T00:00:00\.000Z, so its tokens are refused/m);
    assert.doesNotMatch(stderr, /Warning: ann/);
    const fine = await run('new', 'carol', '--clients', fileWith());
    assert.doesNotMatch(fine.stderr, /Warning/);
  });

  describe('in a file in which every client has an apiKey', () => {
    const KEYED = { clients: FILE.clients.map((client) => ({ ...client, apiKey: '@a.key' })) };

    it('new refuses a client without one, says what to add, and leaves the file as it was', async () => {
      const path = fileWith(KEYED);
      const { code, stdout, stderr } = await run('new', 'carol', '--clients', path);
      assert.deepEqual([code, stdout, contentOf(path)], [1, '', KEYED]);
      assert.match(stderr, /a gateway without --api-key refuses a file .* add --api-key-file PATH, /);
    });

    it('new adds a client with the key file of --api-key-file, which a gateway without --api-key accepts', async () => {
      for (const written of ['carol.key', '@carol.key']) {
        const path = fileWith(KEYED);
        writeFileSync(join(path, '../carol.key'), 'key');
        const flag = `--api-key-file=${written}`;
        const { code, stderr } = await run('new', 'carol', 'dan', '--clients', path, flag);
        assert.equal(code, 0, stderr);
        const entries = parseClientsFile(readFileSync(path), { needsKeys: true });
        assert.deepEqual(
          entries.map(({ apiKeyFile }) => apiKeyFile),
          ['a.key', 'a.key', 'carol.key', 'carol.key'],
        );
      }
    });

    it('new refuses a key file that does not exist, and does not repeat what may be a key', async () => {
      const path = fileWith(KEYED);
      const { code, stderr } = await run('new', 'carol', '--clients', path, '--api-key-file', 'sk-real-4c1e');
      assert.deepEqual([code, contentOf(path)], [1, KEYED]);
      assert.match(stderr, /^Error: there is no file of the name that --api-key-file gives/);
      assert.ok(!stderr.includes('sk-real'), stderr);
    });
  });

  it('new takes --api-key-file only with the file of --clients, and list and revoke do not take it', async () => {
    const needs = await run('new', 'ann', '--api-key-file=ann.key');
    assert.match(needs.stderr, /^Error: --api-key-file needs the --clients FILE/);
    for (const words of [['list'], ['revoke', 'ann']]) {
      const { code, stderr } = await run(...words, '--clients', fileWith(), '--api-key-file=ann.key');
      assert.deepEqual([code, stderr.startsWith('Error: --api-key-file goes with clients new')], [1, true]);
    }
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
    const unknown = 'the file is written, but it is not known to be in force: give --admin-address';
    assert.ok(stderr.startsWith(`Error: ${unknown}, or look in the log of the proxy for "The clients file,`));
    await run('revoke', 'bob', '--clients', path);
    assert.deepEqual(contentOf(path), { ...FILE, clients: [] });
  });

  for (const [typed, hint] of [
    ['Bob', '. Did you mean bob?'],
    ['an', '. Did you mean ann?'],
    ['pmp_like-a-token', '; "clients list" shows all names'],
  ] as const) {
    it(`revoke ${typed} changes nothing, does not repeat the word, and says "${hint.slice(2)}"`, async () => {
      const path = fileWith();
      const { code, stderr } = await run('revoke', typed, `--clients=${path}`);
      assert.deepEqual([code, names(path)], [1, ['ann', 'bob']]);
      assert.equal(stderr, `Error: ${path} has no client of that name${hint}\n`);
    });
  }

  it('list reads the file that PRIVATEMODE_PROXY_CLIENTS, the variable of the proxy, names', async () => {
    const env = { PRIVATEMODE_PROXY_CLIENTS: fileWith() };
    assert.match((await runCommand(['clients', 'list'], { env })).stdout, /^ann /);
  });

  it('writes the file in place, so that its mount, group and ACL stay', async () => {
    const path = fileWith();
    const mounted = `${path}.mounted`;
    linkSync(path, mounted); // stands for a bind mount: a second name of the same file
    const { ino } = statSync(path);
    await run('revoke', 'ann', '--clients', path);
    assert.deepEqual([statSync(path).ino, names(mounted)], [ino, ['bob']]);
    assert.equal(statSync(path).mode & 0o777, 0o640);
    unlinkSync(mounted);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });

  it('changes nothing while another command has the lock, also that of the file behind a link', async () => {
    const path = fileWith();
    symlinkSync(path, `${path}.link`);
    writeFileSync(`${path}.lock`, '');
    for (const name of [path, `${path}.link`]) {
      const { code, stdout, stderr } = await run('new', 'carol', '--clients', name);
      assert.deepEqual([code, stdout, names(path)], [1, '', ['ann', 'bob']]);
      assert.match(stderr, /clients\.json\.lock is there: another command is changing .* delete that file/);
    }
    unlinkSync(`${path}.lock`);
    assert.equal((await run('new', 'carol', '--clients', path)).code, 0);
  });

  it('keeps the old list in a file of its own until the new one is written', async (t) => {
    const path = fileWith();
    const { writeFileSync: write } = fs;
    t.mock.method(fs, 'writeFileSync', (file: string, text: string, options: object) => {
      write(file, file === path ? text.slice(0, 20) : text, options);
      if (file === path) throw Object.assign(errno('ENOSPC'), { message: 'ENOSPC', syscall: 'write' });
    });
    syncBuiltinESMExports();
    const { code, stderr } = await run('revoke', 'ann', '--clients', path);
    t.mock.restoreAll();
    syncBuiltinESMExports();
    assert.deepEqual([code, names(`${path}.bak`)], [1, ['ann', 'bob']]);
    assert.match(stderr, /clients\.json cannot be written: .*ENOSPC/);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json', 'clients.json.bak']);
  });

  it('says where the old list is if the file was not written to its end, and leaves both unchanged', async () => {
    const path = fileWith('{"clients": [');
    writeFileSync(`${path}.bak`, JSON.stringify(FILE));
    const { code, stderr } = await run('revoke', 'ann', '--clients', path);
    assert.equal(code, 1);
    assert.match(stderr, /list before the last change is in .*clients\.json\.bak: not JSON/);
    assert.deepEqual([readFileSync(path, 'utf8'), names(`${path}.bak`)], ['{"clients": [', ['ann', 'bob']]);
  });

  describe('with --admin-address', () => {
    /** An admin listener whose /status gives these, one after the other, and the last one again and again. */
    async function admin(
      t: { after(work: () => void): void },
      answers: (() => object | Promise<object>)[],
    ): Promise<string> {
      let asked = 0;
      const server = createServer(async (_req, res) => {
        const answer = answers[Math.min(asked++, answers.length - 1)] as (typeof answers)[0];
        res.end(JSON.stringify(await answer()));
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      t.after(() => server.close());
      return `--admin-address=127.0.0.1:${(server.address() as AddressInfo).port}`;
    }
    const digestOf = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

    it('revoke waits until the proxy uses the new file', async (t) => {
      const path = fileWith();
      const seen: string[] = [];
      const step = (name: string, file: () => string) => (): object => {
        seen.push(name);
        return { clientsFile: file() };
      };
      const flag = await admin(t, [step('old', () => 'old'), step('new', () => digestOf(path))]);
      const { code, stdout } = await run('revoke', 'ann', '--clients', path, flag);
      assert.equal(code, 0);
      assert.deepEqual(seen, ['old', 'new']);
      assert.match(stdout, /^ann is no longer in .*\nThe running proxy uses the new list now/);
    });

    it('fails if the proxy has no --clients or no proxy answers, and says that the file is written', async (t) => {
      const path = fileWith();
      const without = await run('revoke', 'ann', '--clients', path, await admin(t, [() => ({})]));
      assert.equal(without.code, 1);
      assert.match(without.stdout, /^ann is no longer in/);
      assert.match(without.stderr, /file is written, .* the proxy that answered has no --clients/);
      const none = await run('revoke', 'bob', '--clients', path, '--admin-address=127.0.0.1:1');
      assert.equal(none.code, 1);
      assert.match(none.stderr, /file is written, .*ECONNREFUSED/);
    });

    it('accepts a list that another command has written meanwhile, with its change in it', async (t) => {
      const path = fileWith();
      const other = async (): Promise<object> => {
        await run('new', 'zed', '--clients', path);
        return { clientsFile: 'old' };
      };
      const flag = await admin(t, [other, () => ({ clientsFile: digestOf(path) })]);
      const { code, stderr } = await run('revoke', 'ann', '--clients', path, flag);
      assert.equal(code, 0, stderr);
    });

    it('fails if the proxy still uses another list in time, also one without the change', async (t) => {
      const soon = (...argv: string[]): Promise<Ran> =>
        runCommand(['clients', ...argv], { times: { clientsInForceWait: 1_000 } });
      const path = fileWith();
      const changed = fileWith();
      const flag = await admin(t, [() => ({ clientsFile: 'other' })]);
      const undone = await admin(t, [
        () => {
          writeFileSync(changed, JSON.stringify(FILE));
          return { clientsFile: digestOf(changed) };
        },
      ]);
      for (const { code, stderr } of await Promise.all([
        soon('revoke', 'ann', '--clients', path, flag),
        soon('revoke', 'ann', '--clients', changed, undone),
      ])) {
        assert.equal(code, 1);
        assert.match(stderr, /still uses another list after 1 s\. Look at its log/);
      }
    });
  });

  it('revoke rewrites the file that a symbolic link points to, and leaves the link', async () => {
    const path = fileWith();
    const link = `${path}.link`;
    symlinkSync(path, link);
    await run('revoke', 'ann', '--clients', link);
    assert.ok(lstatSync(link).isSymbolicLink());
    assert.deepEqual(names(path), ['bob']);
  });

  for (const [what, content, words] of [
    ['is no JSON', '{', /--clients \/.*: not JSON/],
    ['the proxy would refuse', { clients: [{ name: 'a b' }] }, /clients\[0\]\.name: expected a name/],
  ] as const) {
    it(`every command refuses a file that ${what}, and leaves it as it was`, async () => {
      const path = fileWith(content);
      const before = readFileSync(path, 'utf8');
      for (const words_ of [['new', 'zed'], ['revoke', 'ann'], ['list']]) {
        const { code, stdout, stderr } = await run(...words_, '--clients', path);
        assert.deepEqual([code, stdout], [1, '']);
        assert.match(stderr, words);
      }
      assert.equal(readFileSync(path, 'utf8'), before);
    });
  }

  it('new says why the file cannot be written, and leaves nothing behind', async () => {
    const path = fileWith();
    const { code, stdout, stderr } = await run(
      'new',
      'ann',
      '--clients',
      join(path, '../missing/clients.json'),
    );
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /clients\.json cannot be written: ENOENT/);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });
});
