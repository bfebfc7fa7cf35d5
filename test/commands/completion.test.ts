/** `privatemode-proxy completion`: what a shell offers, asked of the shells themselves. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, it } from 'node:test';
import { LISTED } from '../../lib/config/flags.ts';
import { runCommand } from '../support/processes/command.ts';

const printed = async (shell: string): Promise<string> => {
  const { code, stdout, stderr } = await runCommand(['completion', shell]);
  assert.deepEqual([code, stderr], [0, '']);
  return stdout;
};

/** What bash offers behind these words; the last one is being typed. */
async function offered(...typed: string[]): Promise<string[]> {
  const script = `${await printed('bash')}
COMP_WORDS=(privatemode-proxy "$@"); COMP_CWORD=$#; COMPREPLY=(); _privatemode_proxy; printf '%s\n' "\${COMPREPLY[@]}"`;
  const { status, stdout, stderr } = spawnSync('bash', ['--norc', '-euc', script, 'bash', ...typed], {
    encoding: 'utf8',
  });
  assert.equal(status, 0, stderr);
  return stdout.split('\n').filter(Boolean);
}

describe('completion in bash', () => {
  const cases: [typed: string[], offers: string[]][] = [
    [['cli'], ['clients']],
    [['c'], ['clients', 'completion']],
    [['--api-key-f'], ['--api-key-fallback']],
    [
      ['--log-format', ''],
      ['json', 'text'],
    ],
    [['--api-key-fallback', '=', 'al'], ['always']],
    [
      ['--limits-store-failure', '='],
      ['closed', 'open'],
    ],
    [['clients', 're'], ['revoke']],
    [['clients', 'new', 'ann', '--cl'], ['--clients']],
    [['receipts', 'verify', '--publ'], ['--public-key']],
    [['verify', '--nonc'], ['--nonce']],
    [['run', 'cl'], ['claude']],
    [['help', 'rec'], ['receipts']],
    [['--port', ''], []],
  ];
  for (const [typed, offers] of cases) {
    it(`offers ${offers.join(' ') || 'nothing'} after ${JSON.stringify(typed.join(' '))}`, async () =>
      assert.deepEqual((await offered(...typed)).toSorted(), offers.toSorted()));
  }

  it('offers every listed flag of the proxy, and no hidden or former flag', async () => {
    const flags = (await offered('--')).toSorted();
    assert.deepEqual(flags, LISTED.map(({ name }) => `--${name}`).toSorted());
    assert.ok(!flags.includes('--unsafe-trust-roots') && !flags.includes('--apiKey'));
  });

  it('offers files after a flag that takes a file', async () =>
    assert.ok((await offered('--manifest-path', 'package.j')).includes('package.json')));
});

describe('completion in other shells', () => {
  it('zsh gets the functions of bash, and fish a line for each flag', async () => {
    const zsh = await printed('zsh');
    assert.ok(zsh.startsWith('#compdef privatemode-proxy\n') && zsh.endsWith(await printed('bash')));
    const fish = await printed('fish');
    for (const { name } of LISTED) assert.match(fish, new RegExp(` -l ${name} `), name);
    assert.match(fish, /-l log-format -x -a 'json text' -d 'json or text'/);
    assert.match(fish, /__fish_seen_subcommand_from clients' -f -a 'new list revoke'/);
  });

  for (const shell of ['zsh', 'fish']) {
    it(`${shell}, if installed, reads its script without a complaint`, async () => {
      const input =
        shell === 'zsh'
          ? `autoload -U compinit; compinit -D -u\n${await printed(shell)}`
          : await printed(shell);
      const { error, status, stderr } = spawnSync(shell, shell === 'zsh' ? ['-f'] : ['--no-config'], {
        input,
        encoding: 'utf8',
      });
      if (error === undefined) assert.deepEqual([status, stderr], [0, '']);
    });
  }

  it('an unknown shell is refused, and the error names the known ones', async () => {
    const { code, stderr } = await runCommand(['completion', 'tcsh']);
    assert.equal(code, 1);
    assert.match(
      stderr,
      /^Error: completion has no command "tcsh"; it takes one command before its flags: completion bash, completion zsh, completion fish /,
    );
  });
});
