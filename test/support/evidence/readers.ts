/** What tests of the readers of evidence share. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { PrivatemodeError } from '../../../lib/errors.ts';

/** What the readers throw, and nothing else. */
export const malformed = (error: unknown): boolean =>
  error instanceof PrivatemodeError && error.code === 'evidence_malformed';

/** Has `read` read the bytes with one of them changed or the end cut off, time and again. Fixed seed. */
export async function readHarmed(
  bytes: Uint8Array,
  numRuns: number,
  read: (harmed: Uint8Array) => unknown,
): Promise<void> {
  const [where, xor] = [fc.nat(bytes.length - 1), fc.integer({ min: 1, max: 255 })];
  const property = fc.asyncProperty(where, xor, fc.boolean(), async (at, mask, cut) => {
    const harmed = cut ? bytes.slice(0, at) : Uint8Array.from(bytes);
    if (!cut) harmed[at] = (harmed[at] as number) ^ mask;
    try {
      await read(harmed);
    } catch (error) {
      assert.ok(malformed(error), `byte ${at}: ${error}`);
    }
  });
  await fc.assert(property, { seed: 20261201, numRuns });
}
