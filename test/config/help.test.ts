import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { FLAGS, LISTED } from '../../lib/config/flags.ts';
import { fitHelp, renderHelp } from '../../lib/config/help.ts';
import { runCommand } from '../support/processes/command.ts';

/** Words of each page, and the command lines that print it. */
const PAGES: readonly (readonly [words: readonly string[], ...lines: string[][]])[] = [
  [
    ['A local proxy', 'clients new NAME…  ', 'receipts verify', 'usage [flags]'],
    ...[['--help'], ['-h'], ['--port=1', '-h'], ['help']],
  ],
  [
    ['Verifies by hardware evidence', '--saved FILE'],
    ['verify', '--help'],
    ['help', 'verify'],
  ],
  [
    ['\n  privatemode-proxy status --admin-address HOST:PORT', '--watch', '--tls-cert-path', '   0', '  10'],
    ['status', '--help'],
    ['healthcheck', '--help'],
    ['help', 'healthcheck'],
  ],
  [
    [
      'Checks receipts: ',
      '--dir DIR',
      '--since YYYY-MM-DD',
      '--public-key FILE',
      '--strict',
      '--json',
      '   0',
      '  10',
    ],
    ...[['--help'], ['-h'], ['verify', '--help'], ['verify', '-h']].map((line) => ['receipts', ...line]),
  ],
  [
    ['Checks no signature', 'receipts verify', '--since', '--until', '--by', '--json', '  10'],
    ['usage', '--help'],
  ],
  [
    ['Starts a coding agent', '--model MODEL', '--print', '--port PORT'],
    ...[['--help'], ['claude', '--help'], ['--help', '--', '-p']].map((line) => ['run', ...line]),
  ],
  [
    ['add a token for each', 'clients new NAME', 'clients list', 'clients revoke NAME', '--clients FILE'],
    ['help', 'clients', 'new'],
    ...[['--help'], ['--nope', '--help'], ['new', 'ann', '--help'], ['revoke', '-h']].map((line) => [
      'clients',
      ...line,
    ]),
  ],
];

describe('a help page', () => {
  for (const [words, ...lines] of PAGES) {
    for (const argv of lines) {
      it(`is all that ${argv.join(' ')} prints, and fits a terminal`, async () => {
        const textAt = async (columns?: number): Promise<string> => {
          const { code, stdout, stderr } = await runCommand(argv, {
            serve: async () => assert.fail('started'),
            ...(columns === undefined ? {} : { terminal: { columns } }),
          });
          assert.deepEqual([code, stderr], [0, '']);
          assert.deepEqual(
            stdout.split('\n').filter((line) => [...line].length > (columns ?? 100)),
            [],
          );
          return stdout;
        };
        const usual = await textAt();
        assert.match(usual, /^Usage:$/m);
        for (const word of words) assert.ok(usual.includes(word), word);
        const plain = (text: string): string => text.replace(/\s+/g, ' ');
        for (const columns of [80, 99]) assert.equal(plain(await textAt(columns)), plain(usual));
        assert.equal(await textAt(200), usual);
      });
    }
  }
});

describe('--help', () => {
  const help = fitHelp(renderHelp());
  for (const flag of LISTED) {
    it(`lists --${flag.name} with its default`, () => {
      const start = help.search(new RegExp(`^(?:  -., |      )--${flag.name}(?: |$)`, 'm'));
      assert.notEqual(start, -1);
      const entry = help.slice(start).split(/\n(?= {2}-| {6}-|\n)/)[0] as string;
      const words = entry.replace(/\s+/g, ' ');
      assert.ok(words.includes(flag.help.slice(0, 30)), words);
      if (flag.default !== undefined && flag.default !== 'false')
        assert.ok(words.includes(`(default ${flag.default})`), words);
    });
  }
  it('names no hidden flag and no older spelling', () => {
    const unlisted = FLAGS.flatMap((flag) => [
      ...(flag.hidden ? [flag.name] : []),
      ...(flag.aliases ?? []).map(({ name }) => name),
    ]);
    assert.deepEqual(
      unlisted.filter((name) => help.includes(`--${name}`)),
      [],
    );
  });
});
