import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { FLAGS, LISTED } from '../../lib/config/flags.ts';
import { fitHelp, renderHelp } from '../../lib/config/help.ts';
import { runCommand } from '../support/processes/command.ts';

/** Words of each page, and the command lines that print it. */
const PAGES: Readonly<Record<string, readonly string[]>> = {
  'clients new NAME…  ': ['--help', '-h', '--port=1 -h', 'help'],
  'Verifies by hardware evidence': ['verify --help', 'help verify'],
  'privatemode-proxy status --admin-address': ['status --help', 'healthcheck --help', 'help healthcheck'],
  'Checks receipts: ': ['receipts --help', 'receipts -h', 'receipts verify --help'],
  'Checks no signature': ['usage --help'],
  'Starts a coding agent': ['run --help', 'run claude --help', 'run --help -- -p'],
  'add a token for each': ['help clients new', 'clients --nope --help', 'clients revoke -h'],
};

describe('a help page', () => {
  for (const [words, lines] of Object.entries(PAGES)) {
    for (const line of lines) {
      it(`is all that ${line} prints, and fits a terminal`, async () => {
        const textAt = async (columns?: number): Promise<string> => {
          const { code, stdout, stderr } = await runCommand(line.split(' '), {
            serve: async () => assert.fail('started'),
            ...(columns === undefined ? {} : { terminal: { columns } }),
          });
          assert.deepEqual([code, stderr], [0, '']);
          const widest = Math.max(...stdout.split('\n').map((each) => [...each].length));
          assert.ok(widest <= (columns ?? 100), `${widest} columns`);
          return stdout;
        };
        const usual = await textAt();
        assert.match(usual, /^Usage:$/m);
        assert.ok(usual.includes(words));
        const plain = (text: string): string => text.replace(/\s+/g, ' ');
        assert.equal(plain(await textAt(80)), plain(usual));
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
    const listed = unlisted.filter((name) => help.includes(`--${name}`));
    assert.deepEqual(listed, []);
  });
});
