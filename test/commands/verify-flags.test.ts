/** The command line of `verify`: what is refused, and what its help promises. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VERIFY_FLAGS, verifyRequest } from '../../lib/commands/verify-flags.ts';
import { parseArgv } from '../../lib/config/argv.ts';
import { FLAGS } from '../../lib/config/flags.ts';
import { OUTCOMES } from '../../lib/verdict/outcome.ts';
import { verifyCommand } from '../support/evidence/verify.ts';

const OWN_FLAGS = [
  ...['save', 'saved', 'evidence', 'nonce', 'manifest', 'secret-request', 'secret-response'],
  ...['collateral', 'roots', 'at', 'accept-custom-roots', 'json'],
];
const asked = (argv: readonly string[]) => verifyRequest(parseArgv(argv, VERIFY_FLAGS));
const FILES = ['--evidence=e', '--nonce=n', '--manifest=m'];

describe('the command line of verify', () => {
  const wrong: readonly (readonly [argv: string[], words: readonly string[]])[] = [
    [[], ['--api-key KEY', '--evidence', 'verify --help']],
    [['--manifest-path=m'], ['--api-key KEY']],
    [['--api-key=k', '--manifest-path='], ['--manifest-path wants a path']],
    [['--api-key=k', '--save='], ['--save wants a value']],
    [['--evidence=e'], ['--nonce is missing']],
    [['--manifest=m', '--nonce=n'], ['--evidence is missing']],
    [['--at=2026-12-01T00:00:00Z', '--api-key=k'], ['--api-key is for the live service, but --at']],
    [[...FILES, '--api-endpoint=x'], ['--api-endpoint is for the live service']],
    [[...FILES, '--manifest-path=x'], ['named with --manifest here']],
    [[...FILES, '--unsafe-trust-roots=x'], ['--unsafe-trust-roots is for the live service']],
    [[...FILES, '--save=x'], ['--save is for the live service']],
    [[...FILES, '--secret-request=x'], ['give --secret-request and --secret-response together, or neither']],
    [[...FILES, '--secret-response=x'], ['give --secret-request and --secret-response together, or neither']],
    ...[
      'now',
      '2026-12-01',
      '2026-12-01T00:00:00',
      '2026-02-30T00:00:00Z',
      '2026-13-01T00:00:00Z',
      '2026-12-01T24:00:00Z',
      '2026-12-01T00:00:00Z, or so',
      '1764547200',
    ].map((at): [string[], string[]] => [
      [...FILES, `--at=${at}`],
      ['--at wants a moment', at],
    ]),
  ];
  for (const [argv, words] of wrong) {
    it(`is refused with ${argv.join(' ') || 'no flag at all'}`, async () => {
      const { code, stdout, stderr } = await verifyCommand(argv);
      assert.deepEqual([code, stdout], [1, '']);
      assert.match(stderr, /^Error: /);
      for (const word of words) assert.ok(stderr.includes(word), `${word} in ${stderr}`);
    });
  }

  it('accepts the flags that the proxy is started with, and reads --manifest-path as a flag of its own', () => {
    const request = asked(['--apiKey', 'k', '--port=1', '-lwarn', '--manifest-path', 'm', '--json']);
    assert.ok(request.mode === 'live');
    assert.deepEqual(Object.fromEntries(request.given.values), {
      'api-key': 'k',
      port: '1',
      'log-level': 'warn',
    });
    assert.deepEqual([request.manifestPath, request.save, request.json], ['m', undefined, true]);
    assert.equal(request.acceptCustomRoots, false);
    assert.match(request.warnings.join(), /--apiKey is deprecated/);
  });

  it('accepts --accept-custom-roots for a live service and for saved files', () => {
    for (const argv of [['--api-key=k'], FILES]) {
      const request = asked([...argv, '--accept-custom-roots']);
      assert.ok(request.acceptCustomRoots);
    }
  });

  it('gives no flag of its own the name of a proxy flag', () => {
    const proxy = new Set(
      FLAGS.flatMap(({ name, aliases }) => [name, ...(aliases ?? []).map((alias) => alias.name)]),
    );
    assert.deepEqual(
      OWN_FLAGS.filter((name) => proxy.has(name)),
      [],
    );
  });
});

describe('verify --help', () => {
  it('names every flag and every exit code', async () => {
    const { stdout } = await verifyCommand(['--help']);
    const named = [...stdout.matchAll(/^ {2}(?:-., | {4})--([a-z-]+)/gm)].map(([, name]) => name);
    const ofService = ['api-key', 'api-endpoint', 'manifest-path', 'connect-timeout', 'protocol-version'];
    assert.deepEqual(named, [...ofService, ...OWN_FLAGS, 'verbose', 'help']);
    for (const [outcome, { exitCode }] of Object.entries(OUTCOMES)) {
      assert.match(stdout, new RegExp(`^ +${exitCode} +${outcome} `, 'm'));
    }
    assert.match(stdout, /^ +35 +accepted +under roots that are not those of AMD and/m);
  });
  it('names no hidden flag', async () => {
    const { stdout } = await verifyCommand(['-h']);
    for (const { name } of FLAGS.filter(({ hidden }) => hidden))
      assert.ok(!stdout.includes(`--${name}`), name);
  });
});
