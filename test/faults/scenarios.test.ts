/** The items of the fault catalogue that are more than one answer gone wrong. */
import { describe, it } from 'node:test';
import { SCENARIOS } from './scenarios.ts';

describe('the fault scenarios', () => {
  for (const { name, outcome, run } of SCENARIOS) it(`${name}: ${outcome}`, { timeout: 600_000 }, run);
});
