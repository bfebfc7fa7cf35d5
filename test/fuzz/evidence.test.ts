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

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
type Path = readonly (string | number)[];

/** Where the values below `value` stand. */
function paths(value: Json, path: Path = []): Path[] {
  if (typeof value !== 'object' || value === null) return [path];
  const entries: [string | number, Json][] = Array.isArray(value)
    ? [...value.entries()]
    : Object.entries(value);
  return [path, ...entries.flatMap(([name, part]) => paths(part, [...path, name]))];
}

const odd = fc.oneof(
  fc.jsonValue() as fc.Arbitrary<Json>,
  fc.constantFrom<Json>(
    '',
    '00',
    -1,
    1.5,
    2 ** 53,
    1e300,
    [],
    {},
    '__proto__',
    '9999-99-99T00:00:00Z',
    '\ud800',
  ),
);
const harm = fc.record({
  at: fc.nat(),
  remove: fc.nat(3),
  insert: fc.constantFrom('', '"', '{', ']', ',', '\\', '\0', '\xff', '1'),
});
const change = fc.record({
  at: fc.nat(),
  to: fc.option(odd, { nil: undefined }),
  under: fc.option(fc.string()),
});

/** With one value replaced, removed, or put under another name. */
function changed(
  value: Json,
  { at, to, under }: { at: number; to: Json | undefined; under: string | null },
): Json {
  const all = paths(value);
  const path = all[at % all.length] as Path;
  const last = path.at(-1);
  if (last === undefined) return to ?? null;
  const copy = structuredClone(value);
  let owner = copy as Record<string | number, Json>;
  for (const name of path.slice(0, -1)) owner = owner[name] as Record<string | number, Json>;
  const name = under !== null && !Array.isArray(owner) ? under : last;
  if (name !== last || to === undefined) delete owner[last];
  if (to !== undefined)
    Object.defineProperty(owner, name, { value: to, enumerable: true, writable: true, configurable: true });
  return copy;
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
        const json = changes.reduce(changed, JSON.parse(text) as Json);
        counts[verdict(Buffer.from(JSON.stringify(json)))] += 1;
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
