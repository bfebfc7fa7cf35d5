/**
 * The readers of evidence and of what goes with it, as JSON: whatever is changed in a good one, they read it
 * or refuse it with the typed error of their own. The readers of bytes have their properties in
 * test/attestation.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { parseDocument } from '../../lib/attestation/document.ts';
import { parseManifest } from '../../lib/attestation/manifest.ts';
import { readQeIdentity, readSignedJson, readTcbInfo } from '../../lib/attestation/tdx/tcb-info.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { syntheticInput, vectorBytes } from '../support/evidence/attestation-vectors.ts';
import { tdxPlatform } from '../support/evidence/tdx-platform.ts';

const utf8 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');

interface Reader {
  readonly good: () => string | Promise<string>;
  readonly read: (bytes: Uint8Array) => unknown;
  /** The codes it may refuse with. */
  readonly codes: readonly string[];
}

const READERS: Readonly<Record<string, Reader>> = {
  manifest: {
    good: () => utf8(vectorBytes('contrast/privatemode_manifest_v1.58.0.json')),
    read: parseManifest,
    codes: ['manifest_invalid', 'manifest_unsupported'],
  },
  'attestation document': {
    good: () => utf8(syntheticInput('synthetic_v158').document),
    read: parseDocument,
    codes: ['evidence_malformed'],
  },
  'TCB info': {
    good: async () => (await tdxPlatform().context.collateral.intelTcbInfo({ fmspc: '' })).body,
    read: (bytes) => readTcbInfo(readSignedJson(utf8(bytes), 'tcbInfo').content),
    codes: ['collateral_unavailable'],
  },
  'QE identity': {
    good: async () => (await tdxPlatform().context.collateral.intelQeIdentity({})).body,
    read: (bytes) => readQeIdentity(readSignedJson(utf8(bytes), 'enclaveIdentity').content),
    codes: ['collateral_unavailable'],
  },
};

const NUMBERS = [-1, 1.5, 2 ** 53, 1e300];
const odd = fc.oneof(
  fc.jsonValue(),
  fc.constantFrom(...NUMBERS, [], {}, '', '00', '__proto__', '9999-99-99T00:00:00Z', '\ud800'),
);
const harm = fc.record({
  at: fc.nat(),
  remove: fc.nat(3),
  insert: fc.constantFrom('', '"', '{', ']', ',', '\\', '\0', '\xff', '1'),
});
const change = fc.record({ at: fc.nat(), to: fc.option(odd, { nil: undefined }) });

/** JSON text with `to` in place of the value that comes at that number, or without that value. */
function changed(text: string, { at, to }: { at: number; to: unknown }): string {
  const written = (target?: number) => {
    let next = 0;
    const replaced = JSON.stringify(JSON.parse(text), (_, value) => (next++ === target ? to : value));
    return { replaced: replaced ?? 'null', count: next };
  };
  return written(at % written().count).replaced;
}

describe('evidence as JSON', () => {
  for (const [what, { good, read, codes }] of Object.entries(READERS)) {
    const verdict = (bytes: Uint8Array): 'read' | 'refused' => {
      try {
        read(bytes);
        return 'read';
      } catch (thrown) {
        assert.ok(thrown instanceof PrivatemodeError && codes.includes(thrown.code), String(thrown));
        return 'refused';
      }
    };

    it(`is read as ${what} or refused with an error code of that reader, whatever values or bytes are changed`, async () => {
      const text = await good();
      assert.equal(verdict(Buffer.from(text)), 'read');
      const counts = { read: 0, refused: 0 };
      const ofValues = fc.property(fc.array(change, { minLength: 1, maxLength: 3 }), (changes) => {
        counts[verdict(Buffer.from(changes.reduce(changed, text)))] += 1;
      });
      const ofBytes = fc.property(fc.array(harm, { minLength: 1, maxLength: 3 }), (harms) => {
        const bytes = harms.reduce((all, { at, remove, insert }) => {
          const i = at % (all.length + 1);
          return Buffer.concat([all.subarray(0, i), Buffer.from(insert, 'latin1'), all.subarray(i + remove)]);
        }, Buffer.from(text));
        verdict(bytes);
      });
      fc.assert(ofValues, { seed: 20261121, numRuns: 400 });
      fc.assert(ofBytes, { seed: 20261121, numRuns: 400 });
      assert.ok(counts.refused > 100, JSON.stringify(counts));
    });
  }
});
