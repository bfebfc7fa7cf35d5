import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { it } from 'node:test';
import { LISTED } from '../../lib/config/flags.ts';
import { runCommand } from '../support/processes/command.ts';

const printed = async (shell: string): Promise<string> => {
  const { code, stdout, stderr } = await runCommand(['completion', shell]);
  assert.deepEqual([code, stderr], [0, '']);
  return stdout;
};

it('bash offers commands, their words, agents, and all flags but hidden and former ones', async () => {
  const script = `${await printed('bash')}\ncomplete -p privatemode-proxy`;
  const { status, stdout, stderr } = spawnSync('bash', ['--norc', '-euc', script], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  const [, words = ''] = /^complete -o default -W '(.*)' privatemode-proxy$/m.exec(stdout) ?? [];
  const offered = words.split(' ');
  assert.equal(new Set(offered).size, offered.length);
  const flags = ['json', 'model', 'saved', 'public-key', ...LISTED.map(({ name }) => name)];
  for (const word of ['clients', 'revoke', 'help', 'bash', 'codex', ...flags.map((flag) => `--${flag}`)])
    assert.ok(offered.includes(word), word);
  for (const word of ['--unsafe-trust-roots', '--apiKey', 'NAME', ''])
    assert.ok(!offered.includes(word), word);
});

it('zsh loads the line of bash, and fish gets the same list', async () => {
  const bash = await printed('bash');
  assert.ok((await printed('zsh')).endsWith(`bashcompinit\n${bash}`));
  const list = / (?:-W|-a) ('.*')/;
  assert.equal(list.exec(await printed('fish'))?.[1], list.exec(bash)?.[1]);
});
