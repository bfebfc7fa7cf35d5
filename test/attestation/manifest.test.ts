/** The manifest by the 17 rules of docs/protocol/attestation.md 19.12, starting from the live one. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  coordinatorHashes,
  type Manifest,
  parseManifest,
  secretServiceEntry,
} from '../../lib/attestation/manifest.ts';
import { guestPolicyValue } from '../../lib/attestation/snp/packed-fields.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { vectorJson, vectorText } from '../support/evidence/attestation-vectors.ts';
import { toHex } from '../support/evidence/wycheproof.ts';

const LIVE = vectorText('contrast/privatemode_manifest_v1.58.0.json');
const parse = (text: string): Manifest => parseManifest(Buffer.from(text));

/** The live manifest with one piece of text replaced. */
function live(from: string | RegExp, to: string): string {
  const changed = LIVE.replace(from, to);
  assert.notEqual(changed, LIVE, `nothing to replace: ${from}`);
  return changed;
}

/** What the parser throws. */
function refusal(text: string): PrivatemodeError {
  try {
    parse(text);
  } catch (error) {
    assert.ok(error instanceof PrivatemodeError, String(error));
    return error;
  }
  throw new assert.AssertionError({ message: 'the manifest was accepted' });
}

describe('manifests', () => {
  it('yield the expected values for the live manifest', () => {
    interface Expected {
      readonly coordinator_policy_hash: string;
      readonly policy_hashes_sorted: string[];
      readonly secret_service: Record<string, string>;
    }
    const expected = vectorJson<Expected>('contrast/privatemode_manifest_v1.58.0.expected.json');
    const manifest = parse(LIVE);
    assert.deepEqual([...manifest.policies.keys()].sort(), expected.policy_hashes_sorted);
    assert.deepEqual(coordinatorHashes(manifest).map(toHex), [expected.coordinator_policy_hash]);
    const service = secretServiceEntry(manifest);
    assert.equal(service, manifest.policies.get(expected.secret_service['policy_hash'] ?? ''));
    assert.equal(service.workloadSecretId, expected.secret_service['workload_secret_id']);
    assert.equal(service.sans[0], expected.secret_service['certificate_common_name']);
    const [snp, ...noMore] = manifest.snp;
    assert.ok(snp && noMore.length === 0);
    assert.equal(snp.product, 'Genoa');
    assert.equal(snp.apeip, 0x0080b004);
    assert.deepEqual(snp.minimumTcb, { bootloader: 12, tee: 0, snp: 28, microcode: 88 });
    assert.equal(guestPolicyValue(snp.guestPolicy), 0x252013an);
    assert.equal(snp.minimumMitigationVector, 15n);
    assert.ok(snp.platformInfo.ECCEnabled && !snp.platformInfo.SMTEnabled);
    const [tdx] = manifest.tdx;
    assert.equal(tdx?.minTcbEvaluationDataNumber, 21);
    assert.equal(toHex(tdx?.xfam ?? new Uint8Array(0)), 'e702060000000000');
  });

  const PUBLIC_KEY = `"WorkloadOwnerPubKeys": ["${'00'.repeat(91)}"], "ReferenceValues"`;
  const DIGEST = `"WorkloadOwnerKeyDigests": ["${'00'.repeat(32)}"], "ReferenceValues"`;
  const accepted: readonly (readonly [string, string | RegExp, string])[] = [
    ['a CPUs value beside APEIP', '"APEIP"', '"CPUs": 8, "APEIP"'],
    ['an empty MinimumAPIVersion', '"ReferenceValues"', '"MinimumAPIVersion": "", "ReferenceValues"'],
    ['Milan', '"Genoa"', '"Milan"'],
    ['an empty role', '"Role": "coordinator"', `"Role": "coordinator" }, "${'ab'.repeat(32)}": { "Role": ""`],
    ['upper-case policy hashes', '0a5f7f9949f37547', '0A5F7F9949F37547'],
    ['alternatives for RTMR0', '"MrTd"', `"Rtmr0Alternatives": ["${'00'.repeat(48)}"], "MrTd"`],
    ['no SNP entries, as null', /"snp": \[[\s\S]*?\n {4}\]/, '"snp": null'],
    ['owner keys as hex', '"ReferenceValues"', PUBLIC_KEY],
    ['owner keys as digests', '"ReferenceValues"', DIGEST],
  ];
  for (const [what, from, to] of accepted) {
    it(`are accepted if the live manifest is changed to have ${what}`, () =>
      assert.doesNotThrow(() => parse(live(from, to))));
  }

  it('keep every bit of a 64-bit MinimumMitigationVector, which is 0 if it is absent', () => {
    const vector = (from: string | RegExp, to: string) =>
      parse(live(from, to)).snp[0]?.minimumMitigationVector;
    assert.equal(vector('Vector": 15', 'Vector": 18446744073709551615'), 2n ** 64n - 1n);
    assert.equal(vector(/"MinimumMitigationVector": 15,\s*/, ''), 0n);
  });

  it('yield no APEIP if that member is absent or empty', () => {
    assert.equal(parse(live('"0080b004"', '""')).snp[0]?.apeip, undefined);
    assert.equal(parse(live(/"APEIP": "0080b004",\s*/, '')).snp[0]?.apeip, undefined);
  });

  it('have false for each flag and 0 for each version that is left out (rule 9)', () => {
    const bare = live(/"GuestPolicy": \{[^}]*\},\s*/, '').replace(/"PlatformInfo": \{[^}]*\},\s*/, '');
    const [snp] = parse(bare).snp;
    assert.ok(snp);
    assert.equal(guestPolicyValue(snp.guestPolicy), 0x20000n);
    assert.deepEqual(Object.values(snp.guestPolicy).filter(Boolean), []);
    assert.deepEqual(Object.values(snp.platformInfo), new Array(7).fill(false));
  });
});

describe('a manifest that is newer than the program', () => {
  const otherRole = `"Role": "coordinator" }, "${'ab'.repeat(32)}": { "Role": "worker"`;
  const version = '"MinimumAPIVersion": "v1", "ReferenceValues"';
  const cases: readonly (readonly [string, string, string, RegExp])[] = [
    ['product Turin', '"Genoa"', '"Turin"', /ReferenceValues\.snp\[0\]\.ProductName: Turin/],
    ['FMCVersion', '"TEEVersion"', '"FMCVersion": 1, "TEEVersion"', /MinimumTCB\.FMCVersion: 1 /],
    ['an unknown SNP key', '"APEIP"', '"New": [], "APEIP"', /snp\[0\]\.New: a list/],
    ['an unknown guest policy bit', '"SMT"', '"New": true, "SMT"', /GuestPolicy\.New: true/],
    ['an unknown platform bit', '"SMTEnabled"', '"New": true, "SMTEnabled"', /PlatformInfo\.New: true/],
    ['a third technology', '"snp"', '"cca": [], "snp"', /ReferenceValues\.cca/],
    ['MinimumAPIVersion', '"ReferenceValues"', version, /MinimumAPIVersion: v1/],
    ['an unknown role', '"Role": "coordinator"', otherRole, /Role: worker/],
    ['an unknown policy key', '"Role"', '"New": "x", "Role"', /Policies\.[0-9a-f]{64}\.New: "x"/],
    ['an unknown top-level key', '"ReferenceValues"', '"New": null, "ReferenceValues"', /New: null/],
  ];
  for (const [what, from, to, where] of cases) {
    it(`is refused as manifest_unsupported for ${what}, with its path, its value and what to do`, () => {
      const error = refusal(live(from, to));
      assert.equal(error.code, 'manifest_unsupported');
      for (const words of [where, /unmarshaling/, /update privatemode-proxy/])
        assert.match(error.message, words);
    });
  }

  it('is refused as manifest_unsupported for one unknown entry beside a known one (rule 17)', () => {
    const entry = /"snp": \[\s*(\{[\s\S]*?\n {6}\})/.exec(LIVE)?.[1] ?? '';
    assert.ok(entry.includes('Genoa'));
    const both = live('"snp": [', `"snp": [ ${entry},`).replace('"Genoa"', '"Turin"');
    assert.match(refusal(both).message, /snp\[0\]\.ProductName: Turin/);
    assert.equal(refusal(both).code, 'manifest_unsupported');
  });
});

describe('a manifest', () => {
  const UPPER_CASE = '0A5F7F9949F37547B7CDDA3A85DDD6F23E3C5E5247E989FBA33A93B778032DAE';
  const cases: readonly (readonly [string, string | RegExp, string])[] = [
    ['Debug true', '"Debug": false', '"Debug": true'],
    ['MigrateMA true', '"MigrateMA": false', '"MigrateMA": true'],
    ['CXLAllowed true', '"CXLAllowed": false', '"CXLAllowed": true'],
    ['an APEIP that is no hex', '"0080b004"', '"0x80b004"'],
    ['28.0 as an SVN', '"SNPVersion": 28', '"SNPVersion": 28.0'],
    ['a missing MinimumTCB', /"MinimumTCB": \{[^}]*\},\s*/, ''],
    ['a null where a text belongs', '"APEIP": "0080b004"', '"APEIP": null'],
    ['smt for SMT', '"SMT"', '"smt"'],
    ['ſMT for SMT, as Go would fold it', '"SMT"', '"ſMT"'],
    ['policies in lower case', '"Policies"', '"policies"'],
    ['a repeated key', '"TEEVersion": 0', '"TEEVersion": 0, "TEEVersion": 0'],
    ['an insecure platform', 'Metal-QEMU-SNP-GPU', 'Insecure-QEMU'],
    ['an insecure platform in capitals', 'Metal-QEMU-TDX-GPU', 'METAL-INSECURE'],
    ['a number of CPUs in quotes', '"APEIP"', '"CPUs": "8", "APEIP"'],
    ['a flag that is no boolean', '"Debug": false', '"Debug": 0'],
    ['a policy hash of another length', '"0a5f7f9949f37547', '"5f7f9949f37547'],
    ['a policy hash that is no hex', '"0a5f7f9949f37547', '"0g5f7f9949f37547'],
    ['the same policy in two cases', '"Policies": {', `"Policies": { "${UPPER_CASE}": {},`],
    ['no coordinator', '"Role": "coordinator"', '"Role": ""'],
    ['three RTMRs', /"Rtmrs": \[\s*"[0-9a-f]*",/, '"Rtmrs": ['],
    ['five RTMRs', '"Rtmrs": [', `"Rtmrs": ["${'00'.repeat(48)}",`],
    ['an owner key that is no hex', '"ReferenceValues"', '"WorkloadOwnerPubKeys": ["0"], "ReferenceValues"'],
    ['a seedshare owner key that is no hex', '"SeedshareOwnerPubKeys": [', '"SeedshareOwnerPubKeys": [ "x",'],
  ];
  for (const [what, from, to] of cases) {
    it(`is refused as manifest_invalid with ${what}`, () => {
      const error = refusal(live(from, to));
      assert.equal(error.code, 'manifest_invalid', error.message);
      assert.match(error.message, /^invalid manifest: /);
    });
  }

  it('is refused without any reference value', () => {
    const none = JSON.stringify({ ...JSON.parse(LIVE), ReferenceValues: { snp: [], tdx: [] } });
    assert.match(refusal(none).message, /no reference value at all/);
  });
});

describe('the secret service of a manifest', () => {
  it('is refused as manifest_unsupported if the manifest has no entry for it, or more than one', () => {
    const id = 'apps/v1/StatefulSet/continuum-0a7a47/secret-service';
    const second = `"Policies": { "${'ab'.repeat(32)}": { "SANs": ["root"], "WorkloadSecretID": "x/secret-service" },`;
    const shared = `"Policies": { "${'ab'.repeat(32)}": { "SANs": ["other"], "WorkloadSecretID": "${id}" },`;
    for (const manifest of [
      vectorText('contrast/manifest_sdk_test.json'),
      live('"Policies": {', second),
      live('"Policies": {', shared),
      live(`"${id}"`, '"apps/other"'),
      live('"root"', '"not-root"'),
    ]) {
      assert.throws(() => secretServiceEntry(parse(manifest)), { code: 'manifest_unsupported' });
    }
  });
});

type Json = Record<string, unknown>;

/** The live manifest with the member at the end of the path set to `value`. */
function liveWith(path: readonly (string | number)[], value: unknown): string {
  const manifest = JSON.parse(LIVE) as Json;
  const parent = path.slice(0, -1).reduce((object, step) => object[step] as Json, manifest);
  parent[path.at(-1) as string] = value;
  return JSON.stringify(manifest);
}

describe('the limits of a manifest', () => {
  const SNP = ['ReferenceValues', 'snp', 0];
  const TDX = ['ReferenceValues', 'tdx', 0];
  const POLICY = [
    'Policies',
    Object.keys((JSON.parse(LIVE) as Record<string, Json>)['Policies'] ?? {})[0] ?? '',
  ];

  const pathOf = (path: readonly (string | number)[]): string => path.join('.').replace(/[0-9a-f]{64}/, '*');

  const largest: readonly (readonly [path: readonly (string | number)[], largest: bigint])[] = [
    ...['BootloaderVersion', 'TEEVersion', 'SNPVersion', 'MicrocodeVersion'].map(
      (part) => [[...SNP, 'MinimumTCB', part], 255n] as const,
    ),
    ...['ABIMinor', 'ABIMajor'].map((part) => [[...SNP, 'GuestPolicy', part], 255n] as const),
    [[...SNP, 'MinimumMitigationVector'], 2n ** 64n - 1n],
    [[...SNP, 'CPUs'], 2n ** 64n - 1n],
    [[...TDX, 'CPUs'], 2n ** 64n - 1n],
    [[...TDX, 'MinTCBEvaluationDataNumber'], 2n ** 31n - 1n],
  ];
  for (const [path, most] of largest) {
    it(`${pathOf(path)} is a number from 0 to ${most}`, () => {
      const withNumber = (number: bigint): string =>
        liveWith(path, 'NUMBER').replace('"NUMBER"', String(number));
      for (const number of [0n, most]) assert.doesNotThrow(() => parse(withNumber(number)));
      for (const number of [-1n, most + 1n]) {
        assert.match(refusal(withNumber(number)).message, new RegExp(`an integer from 0 to ${most} belongs`));
      }
    });
  }

  const HEX: readonly (readonly [path: readonly (string | number)[], bytes: number])[] = [
    [[...SNP, 'TrustedMeasurement'], 48],
    [[...SNP, 'APEIP'], 4],
    [[...SNP, 'AllowedChipIDs', 0], 64],
    [[...TDX, 'MrTd'], 48],
    [[...TDX, 'MrSeam'], 48],
    ...[0, 1, 2, 3].map((register) => [[...TDX, 'Rtmrs', register], 48] as const),
    [[...TDX, 'Xfam'], 8],
    [[...TDX, 'AllowedPIIDs', 0], 16],
    [[...TDX, 'Rtmr0Alternatives'], 48],
    [['WorkloadOwnerKeyDigests'], 32],
  ];
  for (const [path, bytes] of HEX) {
    it(`${pathOf(path)} has ${bytes} bytes`, () => {
      const isList = /Alternatives|Digests/.test(pathOf(path));
      const withBytes = (count: number): string =>
        liveWith(path, isList ? ['ab'.repeat(count)] : 'ab'.repeat(count));
      assert.doesNotThrow(() => parse(withBytes(bytes)));
      for (const other of [bytes - 1, bytes + 1]) {
        const { code, message } = refusal(withBytes(other));
        assert.equal(code, 'manifest_invalid');
        assert.match(message, new RegExp(`hex of ${bytes} bytes belongs`));
      }
    });
  }

  const lists: readonly (readonly (string | number)[])[] = [
    ...['snp', 'tdx'].map((name) => ['ReferenceValues', name]),
    [...SNP, 'AllowedChipIDs'],
    ...['Rtmrs', 'Rtmr0Alternatives', 'AllowedPIIDs'].map((name) => [...TDX, name]),
    [...POLICY, 'SANs'],
    ...['WorkloadOwnerKeyDigests', 'WorkloadOwnerPubKeys', 'SeedshareOwnerPubKeys'].map((name) => [name]),
  ];
  for (const path of lists) {
    it(`${pathOf(path)} is a list or null`, () => {
      if (path.at(-1) !== 'Rtmrs') assert.doesNotThrow(() => parse(liveWith(path, null)));
      for (const value of ['ab', {}]) assert.equal(refusal(liveWith(path, value)).code, 'manifest_invalid');
    });
  }

  it('allow values nested 16 levels deep, and no deeper', () => {
    const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);
    assert.equal(refusal(liveWith(['New'], nested(15))).code, 'manifest_unsupported');
    assert.match(refusal(liveWith(['New'], nested(16))).message, /nested too deeply/);
  });

  it('allow 20,000 values, and no more', () => {
    const sans = (count: number): string => liveWith([...POLICY, 'SANs'], new Array(count).fill('a'));
    const values = (json: unknown): number =>
      typeof json !== 'object' || json === null
        ? 1
        : Object.values(json).reduce((sum: number, member) => sum + values(member), 1);
    const others = values(JSON.parse(sans(0)));
    assert.doesNotThrow(() => parse(sans(20_000 - others)));
    assert.match(refusal(sans(20_001 - others)).message, /too many values/);
  });
});
