import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { runCommand } from '../support/processes/command.ts';
import { standInAgents } from '../support/processes/stand-in-agents.ts';

/** Stands in each forged text, so that a trace of it is seen wherever it goes. */
const CANARY = 'canary';
const HOSTILE = [
  ...'{env:X} {file:X} $X $(X) `X` %X% -c --settings= __proto__ " \' \\ # ? & = ; | é ../'.split(' '),
  ...['\n', '\r\n', '\0', ' ', '\u2028', '\u202e', '\ud800', '\u001b[2J'],
];
const forged = fc
  .tuple(fc.constantFrom(...HOSTILE), fc.constantFrom('', ...HOSTILE), fc.nat(300))
  .map(([a, b, length]) => `${a}${CANARY}${'x'.repeat(length)}${b}`);
const plain = fc.stringMatching(/^[a-z][a-z0-9.:@/+-]{0,20}$/);
const value = fc.oneof(forged, plain, fc.constantFrom(null, 0, -1, 1e300, [], {}, true), fc.integer());
const entry = fc.oneof(
  fc.record(
    { id: fc.oneof(forged, plain), max_model_len: value, owned_by: forged, root: forged, parent: forged },
    { requiredKeys: ['id'] },
  ),
  value,
);
const list = fc.oneof(
  fc.record({ data: fc.array(entry, { maxLength: 6 }), object: value }),
  fc.record({ data: value, error: fc.record({ message: forged }) }),
  value,
);

describe('any list of models', { timeout: 600_000 }, () => {
  const { proxy, environment } = standInAgents();

  for (const agent of ['claude', 'opencode', 'codex', 'pi'])
    it(`hands ${agent} no text but plain names`, async () => {
      await fc.assert(
        fc.asyncProperty(list, fc.boolean(), async (body, chosen) => {
          proxy.models = body as typeof proxy.models;
          const argv = ['run', agent, '--print', ...(chosen ? ['--model', 'mine'] : [])];
          const { code, stdout } = await runCommand(argv, { env: environment({}) });
          assert.ok(!stdout.includes(CANARY), stdout);
          assert.equal(code === 0, stdout !== '');
        }),
        { seed: 20261127, numRuns: 60 },
      );
    });
});
