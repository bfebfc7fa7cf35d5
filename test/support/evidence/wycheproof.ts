/** Project Wycheproof's vectors (test/vectors/foreign/wycheproof), every test of a file with its group. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

export interface WycheproofTest {
  readonly tcId: number;
  readonly comment: string;
  readonly result: 'valid' | 'invalid' | 'acceptable';
}

interface WycheproofFile<Group, Test> {
  readonly numberOfTests: number;
  readonly testGroups: readonly (Group & { readonly tests: readonly (Test & WycheproofTest)[] })[];
}

/** All tests of a file; fails if they are not as many as the file itself says. */
export function wycheproof<Group, Test>(
  name: string,
): { readonly group: Group; readonly test: Test & WycheproofTest }[] {
  const url = new URL(`../../vectors/foreign/wycheproof/${name}.json`, import.meta.url);
  const file = JSON.parse(readFileSync(url, 'utf8')) as WycheproofFile<Group, Test>;
  const all = file.testGroups.flatMap((group) => group.tests.map((test) => ({ group, test })));
  assert.equal(all.length, file.numberOfTests);
  return all;
}

export const fromHex = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, 'hex'));
export const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
