/** Tests of evidence in which one thing is changed, and the checks that must refuse it. */
import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Check } from '../../../lib/attestation/check.ts';

/** What is changed, by a name for it. */
export type Cases<Changes> = Readonly<Record<string, Changes>>;
/** By the checks that must fail, the deciding one first, split by commas. */
export type Refusals<Changes> = Readonly<Record<string, Cases<Changes>>>;

export const failed = (checks: readonly Check[]): string[] =>
  checks.filter(({ outcome }) => outcome === 'fail').map(({ id }) => id);

/** Makes tests, one per case; their names begin with `words`. `judge` tells whether all was accepted. */
export function casesOf<Changes>(
  judge: (changes: Changes) => Promise<{ readonly checks: readonly Check[]; readonly isAccepted: boolean }>,
) {
  const expect = (name: string, changes: Changes, failing: string) =>
    it(name, async () => {
      const { checks, isAccepted } = await judge(changes);
      assert.equal(failed(checks).join(', '), failing);
      assert.equal(isAccepted, failing === '');
    });
  return {
    accepts(words: string, cases: Cases<Changes>): void {
      for (const [what, changes] of Object.entries(cases)) expect(`${words} ${what}`, changes, '');
    },
    refuses(words: string, refusals: Refusals<Changes>): void {
      for (const [failing, cases] of Object.entries(refusals))
        for (const [what, changes] of Object.entries(cases)) expect(`${words} ${what}`, changes, failing);
    },
  };
}
