import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { VERIFY_FLAGS, verifyRequest } from '../../lib/commands/verify-flags.ts';
import { parseArgv } from '../../lib/config/argv.ts';
import { FLAGS } from '../../lib/config/flags.ts';
import { OUTCOMES } from '../../lib/verdict/verdict.ts';
import { verifyCommand } from '../support/evidence/verify.ts';

const OWN_FLAGS = ['save', 'nonce', 'saved', 'at', 'receipts-dir', 'accept-custom-roots', 'json'];
const asked = (argv: readonly string[]) => verifyRequest(parseArgv(argv, VERIFY_FLAGS));

describe('the command line of verify', () => {
  const wrong: readonly (readonly [argv: string[], words: readonly string[]])[] = [
    [[], ['--api-key KEY', '--saved FILE', 'verify --help']],
    [['--manifest-path=m'], ['--api-key KEY']],
    [['--api-key=k', '--manifest-path='], ['--manifest-path wants a path']],
    [['--api-key=k', '--save='], ['--save wants a path']],
    [['--api-key=k', '--nonce=AAAA'], ['--nonce wants 32 bytes in base64']],
    [['--at=2026-12-01T00:00:00Z', '--api-key=k'], ['--at is for a record: name it with --saved FILE']],
    [['--receipts-dir=d', '--api-key=k'], ['--receipts-dir is for a record: name it with --saved FILE']],
    [
      ['--saved=f', '--at=2026-12-01T00:00:00Z', '--receipts-dir=d'],
      ['--at and --receipts-dir both name a time; leave one of them out'],
    ],
    ...['api-endpoint', 'manifest-path', 'unsafe-trust-roots', 'save', 'api-key'].map(
      (name): [string[], string[]] => [
        ['--saved=f', `--${name}=x`],
        [`--${name} is for the live service, but --saved is for a record`],
      ],
    ),
    ...['now', '2026-12-01', '2026-12-01T00:00:00', '2026-02-30T00:00:00Z', '1764547200'].map(
      (at): [string[], string[]] => [
        ['--saved=f', `--at=${at}`],
        ['--at wants a moment', at],
      ],
    ),
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
    const ofProxy = { 'api-key': 'k', port: '1', 'log-level': 'warn' };
    assert.deepEqual(Object.fromEntries(request.given.values), ofProxy);
    assert.deepEqual([request.manifestPath, request.save, request.json], ['m', undefined, true]);
    assert.equal(request.acceptCustomRoots, false);
    assert.match(request.given.warnings.join(), /--apiKey is deprecated/);
  });
});

it('verify --help names every flag that is not hidden, and every exit code', async () => {
  const { stdout } = await verifyCommand(['--help']);
  const named = [...stdout.matchAll(/^ {2}(?:-., | {4})--([a-z-]+)/gm)].map(([, name]) => name);
  const ofService = ['api-endpoint', 'api-key', 'manifest-path', 'protocol-version'];
  assert.deepEqual(named, [...ofService, ...OWN_FLAGS, 'verbose', 'help']);
  for (const [outcome, { exitCode }] of Object.entries(OUTCOMES)) {
    assert.match(stdout, new RegExp(`^ +${exitCode} +${outcome} `, 'm'));
  }
  assert.match(stdout, /^ +35 +accepted +under roots that are not those of AMD and/m);
  for (const { name } of FLAGS.filter(({ hidden }) => hidden)) assert.ok(!stdout.includes(`--${name}`), name);
});
