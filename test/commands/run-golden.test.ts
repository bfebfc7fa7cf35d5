/** What `run` hands to each agent, whole, as recorded in the folder `agents`. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { AGENT_NAMES } from '../../lib/commands/agents.ts';
import { runCommand } from '../support/processes/command.ts';
import { standInAgents } from '../support/processes/stand-in-agents.ts';

describe('privatemode-proxy run', { timeout: 600_000 }, () => {
  const { directory, environment, started } = standInAgents();

  for (const agent of AGENT_NAMES) {
    it(`hands ${agent} the arguments, variables and files that agents/${agent}.txt records`, async () => {
      const env = environment({ WHAT: 'look' });
      const { code, stderr } = await runCommand(['run', agent, '--model', 'model-a', '--', 'ARGS'], { env });
      assert.equal(code, 0, stderr);
      const { args, env: given } = started();
      const added = Object.entries(given).filter(([name, value]) => env[name] !== value);
      const found = [
        ...args.map(shown),
        'environment:',
        ...added.map(([name, value]) => `${name}=${shown(value)}`).sort(),
        ...args
          .filter((arg) => arg.startsWith(directory))
          .map((file) => `${file}:\n${readFileSync(file, 'utf8')}`),
        '',
      ]
        .join('\n')
        .replaceAll(/127\.0\.0\.1:\d+/g, '127.0.0.1:PORT')
        .replaceAll(directory, 'DIRECTORY');
      const file = join(import.meta.dirname, `agents/${agent}.txt`);
      if (process.env['RECORD_AGENTS'] === '1') writeFileSync(file, found);
      assert.equal(
        found,
        readFileSync(file, 'utf8'),
        'if that is meant: RECORD_AGENTS=1 npx node --test test/commands/run-golden.test.ts',
      );
    });
  }
});

/** JSON over several lines, anything else as it is. */
function shown(text: string): string {
  return text.startsWith('{') ? JSON.stringify(JSON.parse(text), undefined, 2) : text;
}
