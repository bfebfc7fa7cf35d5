/** `privatemode-proxy clients`: a token, once, and the file that lets it in. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  existsSync,
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
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { parseClientsFile } from '../../lib/clients/clients-file.ts';
import { type Ran, runCommand } from '../support/processes/command.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

const run = (...argv: string[]): Promise<Ran> => runCommand(['clients', ...argv]);

describe('clients new', () => {
  it('prints a token of 256 bits once, and a line with its digest, which the file takes', async () => {
    const { code, stdout, stderr } = await run('new', 'ann');
    assert.deepEqual([code, stderr], [0, '']);
    const tokens = stdout.match(/pmp_[\w-]+/g) ?? [];
    assert.equal(tokens.length, 1);
    const token = tokens[0] as string;
    assert.match(token, /^pmp_[A-Za-z0-9_-]{43}$/);
    assert.equal(Buffer.from(token.slice(4), 'base64url').length, 32);
    const line = /^ {2}(\{.*\})$/m.exec(stdout)?.[1] ?? '';
    const digest = createHash('sha256').update(token).digest('hex');
    assert.deepEqual(JSON.parse(line), { name: 'ann', tokens: [digest] });
    assert.equal(
      parseClientsFile(Buffer.from(`{"clients":[${line}]}`), { needsKeys: false })[0]?.name,
      'ann',
    );
  });

  it('ends with an empty line, so that those of several clients in a loop stand apart', async () => {
    assert.match((await run('new', 'ann')).stdout, /\}\n\n$/);
  });

  it('never prints the same token twice', async () => {
    const tokens = await Promise.all(Array.from({ length: 20 }, () => run('new', 'ann')));
    assert.equal(new Set(tokens.map(({ stdout }) => /pmp_[\w-]+/.exec(stdout)?.[0])).size, 20);
  });
});

describe('the file of --clients:', () => {
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

  it('new makes it, for its owner alone, and prints the token, not the digest', async () => {
    const path = join(mkdtempSync(join(directory, 'new-')), 'clients.json');
    const { code, stdout } = await run('new', 'ann', '--clients', path);
    assert.equal(code, 0);
    const token = /^ {2}(pmp_\S{43})$/m.exec(stdout)?.[1] as string;
    const digest = createHash('sha256').update(token).digest('hex');
    assert.deepEqual(contentOf(path), { clients: [{ name: 'ann', tokens: [digest] }] });
    assert.ok(!stdout.includes(digest) && stdout.includes(`ann is in ${path} now`), stdout);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });

  it('new adds an entry in a line of its own, and a second token to an entry that is there', async () => {
    const path = fileWith();
    await run('new', 'carol', '--clients', path);
    assert.match((await run('new', 'ann', '--clients', path)).stdout, /ann has 2 tokens in /);
    const { $schema, clients } = contentOf(path);
    assert.equal($schema, FILE.$schema);
    const [ann, bob, carol] = clients;
    assert.deepEqual({ ...ann, tokens: [ann.tokens[0]] }, FILE.clients[0]);
    assert.deepEqual([ann.tokens.length, bob, carol.name], [2, FILE.clients[1], 'carol']);
    assert.match(readFileSync(path, 'utf8'), /^ {4}\{"name":"carol","tokens":\["[0-9a-f]{64}"\]\}$/m);
    assert.equal(statSync(path).mode & 0o777, 0o640, 'the mode stays');
  });

  it('list shows each client with its limits, and who has expired', async () => {
    const { code, stdout } = await runCommand(['clients', 'list', '--clients', fileWith()], {
      now: '2026-01-03T00:00:00Z',
    });
    assert.equal(code, 0);
    assert.equal(
      stdout,
      'ann  1 token  60 requests per minute\n' +
        'bob  1 token  EXPIRED 2026-01-02T03:04:05.000Z, 5 tokens per day, models m* n\n2 clients\n',
    );
  });

  it('revoke takes the whole entry out, the last one too', async () => {
    const path = fileWith();
    const { code, stdout } = await run('revoke', 'ann', `--clients=${path}`);
    assert.deepEqual([code, names(path)], [0, ['bob']]);
    assert.match(
      stdout,
      /^ann is no longer in .*clients\.json\. It is in force once the log of the proxy says "The clients file, .* was read again"/,
    );
    await run('revoke', 'bob', '--clients', path);
    assert.deepEqual(contentOf(path), { ...FILE, clients: [] });
    const { stderr } = await run('revoke', 'bob', '--clients', path);
    assert.equal(stderr, `Error: ${path} has no client of that name; "clients list" shows all names\n`);
  });

  it('list takes it from the variable of the proxy', async () => {
    const env = { PRIVATEMODE_PROXY_CLIENTS: fileWith() };
    assert.match((await runCommand(['clients', 'list'], { env })).stdout, /^ann /);
  });

  it('is written in place, so that a mount, group and ACL of it stay', async () => {
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

  it('loses no change of commands that run at once', async () => {
    const path = fileWith();
    const added = Array.from({ length: 12 }, (_, i) => `c${i}`);
    const all = [
      run('revoke', 'ann', '--clients', path),
      ...added.map((name) => run('new', name, '--clients', path)),
    ];
    for (const { code, stderr } of await Promise.all(all)) assert.deepEqual([code, stderr], [0, '']);
    assert.deepEqual(names(path).toSorted(), ['bob', ...added].toSorted());
    assert.deepEqual(readdirSync(join(path, '..')), ['clients.json']);
  });

  it('of which a write was cut short, says where the whole text is, and is not changed', async () => {
    const path = fileWith('#half');
    const { code, stderr } = await run('revoke', 'ann', '--clients', path);
    assert.equal(code, 1);
    assert.match(stderr, /was not written to its end.* whole text is in .*clients\.json\.new/);
    assert.equal(readFileSync(path, 'utf8'), '#half');
  });

  describe('a lock on it', () => {
    const lockOf = (path: string, at: number): void =>
      writeFileSync(`${path}.lock`, JSON.stringify({ owner: 'process 7 of eve on host', at }));

    it('of more than 30 s is taken over, with the name of its owner', async () => {
      const path = fileWith();
      lockOf(path, Date.now() - 31_000);
      const { code, stderr } = await run('revoke', 'ann', '--clients', path);
      assert.equal(code, 0);
      assert.match(stderr, /older than 30 s, and was taken over from process 7 of eve on host\.\n$/);
      assert.deepEqual([names(path), existsSync(`${path}.lock`)], [['bob'], false]);
    });

    it('that is younger is waited for', async () => {
      const path = fileWith();
      lockOf(path, Date.now() - 20_000);
      const ran = run('revoke', 'ann', '--clients', path);
      await new Promise((resolve) => setTimeout(resolve, 300));
      assert.deepEqual(names(path), ['ann', 'bob']);
      unlinkSync(`${path}.lock`);
      const { code, stderr } = await ran;
      assert.deepEqual([code, stderr, names(path)], [0, '', ['bob']]);
    });
  });

  describe('with --admin-address', () => {
    /** An admin listener whose /status gives these, one after the other, and the last one again and again. */
    async function admin(t: { after(work: () => void): void }, answers: (() => object)[]): Promise<string> {
      let asked = 0;
      const server = createServer((_req, res) => {
        const answer = answers[Math.min(asked++, answers.length - 1)] as () => object;
        res.end(JSON.stringify(answer()));
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      t.after(() => server.close());
      return `--admin-address=127.0.0.1:${(server.address() as AddressInfo).port}`;
    }
    const digestOf = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

    it('revoke waits until every worker uses the new file', async (t) => {
      const path = fileWith();
      const seen: string[] = [];
      const step = (name: string, files: () => string[]) => (): object => {
        seen.push(name);
        return { workers: 2, clientsFile: files() };
      };
      const flag = await admin(t, [
        step('both old', () => ['old', 'old']),
        step('one new', () => [digestOf(path), 'old']),
        step('one silent', () => [digestOf(path)]),
        step('both new', () => [digestOf(path), digestOf(path)]),
      ]);
      const { code, stdout } = await run('revoke', 'ann', '--clients', path, flag);
      assert.equal(code, 0);
      assert.deepEqual(seen, ['both old', 'one new', 'one silent', 'both new']);
      assert.match(stdout, /^ann is no longer in .*\nThe running proxy uses the new list now/);
    });

    it('a proxy without --clients, and none at all, is an error that says that the file is written', async (t) => {
      const path = fileWith();
      const flag = await admin(t, [() => ({ workers: 1 })]);
      const without = await run('revoke', 'ann', '--clients', path, flag);
      assert.equal(without.code, 1);
      assert.match(without.stdout, /^ann is no longer in/);
      assert.match(without.stderr, /file is written, .* the proxy that answered has no --clients/);
      const none = await run('new', 'zed', '--clients', path, '--admin-address=127.0.0.1:1');
      assert.equal(none.code, 1);
      assert.match(none.stdout, /pmp_\S{43}\n\nzed is in /, 'the token is not lost');
      assert.match(none.stderr, /file is written, .*ECONNREFUSED/);
    });

    it('a proxy that keeps another list for 10 s is an error', async (t) => {
      const path = fileWith();
      const flag = await admin(t, [() => ({ workers: 1, clientsFile: ['other'] })]);
      const { code, stderr } = await run('revoke', 'ann', '--clients', path, flag);
      assert.equal(code, 1);
      assert.match(stderr, /still uses another list after 10 s\. Look at its log/);
    });
  });

  it('revoke replaces what a link points to, and leaves the link', async () => {
    const path = fileWith();
    const link = `${path}.link`;
    symlinkSync(path, link);
    await run('revoke', 'ann', '--clients', link);
    assert.ok(lstatSync(link).isSymbolicLink());
    assert.deepEqual(names(path), ['bob']);
  });

  for (const [what, content, words] of [
    ['is no JSON', '{', /--clients: .*not JSON/],
    [
      'is one that the proxy would refuse',
      { clients: [{ name: 'a b' }] },
      /clients\[0\]\.name: expected a name/,
    ],
  ] as const) {
    it(`no command takes it where it ${what}, and none changes it`, async () => {
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

  it('new says why it cannot be written, and leaves nothing behind', async () => {
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
