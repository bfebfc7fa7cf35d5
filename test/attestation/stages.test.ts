/**
 * Who speaks, then what he says: evidence that hardware did not sign is refused for that, whatever else is
 * wrong, so nobody on the way can make a service look as if its manifest had changed.
 */
import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import { describe, it } from 'node:test';
import { MANIFEST_ROWS } from '../../lib/attestation/document-checks.ts';
import {
  type CollateralSource,
  type TrustRoots,
  type VerifyInput,
  verify,
} from '../../lib/attestation/verify-evidence.ts';
import { evidenceOf, OFFLINE, syntheticRoots, withMembers } from '../support/evidence/attestation-vectors.ts';
import {
  ASK_SERIAL,
  amdName,
  attestedBy,
  type Changes,
  ISSUERS,
  issueArkCrl,
  issueVcek,
  REFERENCE_VALUE,
} from '../support/evidence/snp-platform.ts';
import { INTEL_ROOT, syntheticInput } from '../support/evidence/tdx-vectors.ts';

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64');
const LATER = new Date('2040-01-01T00:00:00Z');
const NONCE = { nonce: new Uint8Array(32).fill(8) };
const strangerKey = generateKeyPairSync('ec', { namedCurve: 'P-384' }).privateKey;

const { Genoa } = attestedBy({}).roots.snp;
const INTEL_ONLY: TrustRoots = { snp: {}, tdx: { root: INTEL_ROOT } };
const MILAN_ONLY: TrustRoots = { snp: { Milan: Genoa! }, tdx: undefined };
const byIssuer = (name: string) => issueVcek({ issuer: { ...ISSUERS.ask, name: amdName(name) } });
const [OF_TURIN, OF_MILAN] = [byIssuer('SEV-Turin'), byIssuer('SEV-Milan')];
const OTHER_MANIFEST = { manifests: [base64(Buffer.from('{"another":"manifest"}'))] };
const OTHER_MESH_CA = { mesh_ca: base64(Buffer.from('another')) };

/** The same evidence, where another manifest than that of the document is expected. */
const unexpected = (input: VerifyInput): VerifyInput => ({
  ...input,
  manifest: Buffer.concat([input.manifest, Buffer.from('\n')]),
});
const snp = (changes: Changes, more: Partial<VerifyInput> = {}): VerifyInput => ({
  ...attestedBy(changes),
  ...more,
});
const tdx = (more: Partial<VerifyInput> = {}): VerifyInput => ({ ...syntheticInput(), ...more });

function flipped(input: VerifyInput, offset: number): VerifyInput {
  const raw = evidenceOf(input);
  raw[offset] = (raw[offset] as number) ^ 1;
  return withMembers(input, { raw_attestation_doc: base64(raw) });
}

/** What is wrong besides the manifest, and the check that fails first. */
type Row = readonly [what: string, input: VerifyInput, failing: string];

const REFUSED_BEFORE_THE_MANIFEST: readonly Row[] = [
  ['answers another nonce', snp({}, NONCE), 'snp.report_data'],
  ['comes with a manifest that it does not bind', withMembers(snp({}), OTHER_MANIFEST), 'snp.report_data'],
  ['comes with a mesh CA that it does not bind', withMembers(snp({}), OTHER_MESH_CA), 'snp.report_data'],
  ['is signed by another key', snp({ reportKey: strangerKey }), 'snp.report.signature'],
  ['has a version whose layout is not known', snp({ report: { version: 6 } }), 'snp.report.version'],
  ['is signed by a VLEK', snp({ report: { signerInfo: 1 << 2 } }), 'snp.report.signing_key'],
  ['chains to no pinned root', snp({ roots: syntheticRoots('synthetic') }), 'snp.chain.signature'],
  ['is of a line that no root is pinned for', snp({ roots: MILAN_ONLY }), 'snp.roots'],
  ['is of Turin', snp({ report: { cpuid1EaxFms: 0xb00f21 }, vcek: OF_TURIN }), 'snp.roots'],
  ['has a VCEK whose issuer is named after another line', snp({ vcek: OF_MILAN }), 'snp.vcek.names'],
  ['has certificates that have expired', snp({}, { now: LATER }), 'snp.chain.validity'],
  ['brings no VCEK', snp({ vcek: null }), 'snp.vcek.available'],
  ['is no document', snp({}, { document: Buffer.from('<html>') }), 'document.form'],
  ['is of TDX, with certificates that have expired', tdx({ now: LATER }), 'tdx.pck.validity'],
  ['is of TDX, and answers another nonce', tdx(NONCE), 'tdx.policy.report_data'],
  [
    'is of TDX, with a mesh CA that it does not bind',
    withMembers(tdx(), OTHER_MESH_CA),
    'tdx.policy.report_data',
  ],
  ['is of TDX, and chains to another root', tdx({ roots: INTEL_ONLY }), 'tdx.pck.chain'],
  ['is of TDX, and its signature does not hold', flipped(tdx(), 700), 'tdx.quote.signature'],
  ['is of TDX, and its body was changed', flipped(tdx(), 48 + 16), 'tdx.quote.signature'],
];

const REVOKED = issueArkCrl({ revoked: [{ serial: ASK_SERIAL, date: new Date('2026-11-01T00:00:00Z') }] });
const FOR_MILAN = { ...REFERENCE_VALUE, ProductName: 'Milan' };
const GENUINE: readonly (readonly [what: string, input: VerifyInput])[] = [
  ['is genuine', snp({})],
  ['has another measurement', snp({ report: { measurement: new Uint8Array(48) } })],
  ['has a revoked ASK', snp({ crl: REVOKED })],
  ['is of a line that the manifest does not name', snp({ snp: [FOR_MILAN] })],
  ['is of TDX', tdx()],
];

describe('verify', () => {
  for (const [what, input, failing] of REFUSED_BEFORE_THE_MANIFEST) {
    it(`refuses evidence under another manifest that ${what} by ${failing}, never as a mismatch`, async () => {
      for (const each of [input, unexpected(input)]) {
        const { outcome, failure, checks } = await verify(each);
        assert.ok(outcome === 'rejected' || outcome === 'malformed');
        if (what !== 'brings no VCEK' || each !== input) assert.equal(failure?.id, failing);
        assert.notEqual(failure?.code, 'manifest_mismatch');
        const says = checks.filter(({ id }) => MANIFEST_ROWS.some((row) => row.id === id));
        for (const { outcome } of says) assert.equal(outcome, 'not-evaluated');
      }
    });
  }

  for (const [what, input] of GENUINE) {
    it(`calls it a mismatch if evidence under another manifest ${what}`, async () => {
      const { failure, checks } = await verify(unexpected(input));
      assert.deepEqual([failure?.id, failure?.code], ['manifest.expected', 'manifest_mismatch']);
      const last = checks.findIndex(({ id }) => id === 'evidence.reference_values');
      for (const { id, outcome } of checks.slice(last + 1)) assert.equal(outcome, 'not-evaluated', id);
    });
  }

  it('says that the expected manifest is newer than this program before anything else', async () => {
    const manifest = Buffer.from('{"another":"manifest"}');
    for (const input of [snp({ reportKey: strangerKey }), tdx(NONCE), snp({}, { document: manifest })]) {
      const { outcome, failure } = await verify({ ...input, manifest });
      assert.deepEqual([outcome, failure?.id], ['unsupported', 'manifest.valid']);
      assert.match(failure?.found ?? '', /unmarshaling/);
    }
  });

  it('has a second lock: the hardware itself must name the expected manifest, whatever the checks compared', async (t) => {
    const row = MANIFEST_ROWS.find(({ id }) => id === 'manifest.expected');
    assert.ok(row);
    for (const input of [snp({}), tdx()]) {
      const { failure } = await verify(unexpected(input));
      assert.match(failure?.found ?? '', /^SHA-256 /);
      const { mock } = t.mock.method(row, 'judge', () => ({ outcome: 'pass', found: 'not compared' }));
      const unlocked = await verify(unexpected(input));
      mock.restore();
      assert.deepEqual(
        [unlocked.outcome, unlocked.failure?.code, unlocked.failure?.found, unlocked.meshCaPem],
        ['rejected', 'manifest_mismatch', 'the report data bind another manifest', undefined],
      );
    }
  });

  it('asks for no collateral before it is known who signed, nor if the manifest is another one', async () => {
    const asked: string[] = [];
    const collateral = Object.fromEntries(
      Object.keys(OFFLINE).map((name) => [name, async () => Promise.reject(asked.push(name))]),
    ) as unknown as CollateralSource;
    const withoutList = snp({ crl: null });
    for (const input of [snp({ vcek: null }), withoutList, tdx()]) {
      await verify({ ...unexpected(input), collateral });
      await verify({ ...input, ...NONCE, collateral });
    }
    await verify({ ...snp({ crl: null, reportKey: strangerKey }), collateral });
    assert.deepEqual(asked, []);
  });
});
