/**
 * What verdicts say to people, word for word: verdict-texts.txt has every check of good evidence, and what
 * fails otherwise.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { it } from 'node:test';
import type { Check } from '../../lib/attestation/check.ts';
import { verifySecretResponse } from '../../lib/attestation/mesh.ts';
import { verify } from '../../lib/attestation/verify-evidence.ts';
import { integer } from '../../simulator/pki/der.ts';
import { syntheticInput, vectorBytes, withMembers } from '../support/evidence/attestation-vectors.ts';
import { secretInput } from '../support/evidence/mesh.ts';
import {
  ARK,
  ASK_SERIAL,
  amdExtensions,
  amdName,
  attestedBy,
  ISSUERS,
  issueArkCrl,
  issueAsk,
  issueVcek,
  KEYS,
  REFERENCE_VALUE,
  rootsOf,
  type Changes as SnpChanges,
  vcekParts,
} from '../support/evidence/snp-platform.ts';
import { filled, judge, STRANGE_ROOT } from '../support/evidence/tdx-cases.ts';
import { platformLevelJson, type Changes as TdxChanges } from '../support/evidence/tdx-platform.ts';

const snp = async (changes: SnpChanges) => (await verify(attestedBy(changes))).checks;
const v158 = syntheticInput('synthetic_v158');
const date = new Date('2026-11-01T00:00:00Z');
const zeros: readonly number[] = new Array(16).fill(0);
const tdx = (changes: TdxChanges) => judge(changes);
const secret = secretInput('synthetic_v158');

const GOOD: Readonly<Record<string, () => Promise<readonly Check[]>>> = {
  'SEV-SNP': () => snp({}),
  'SEV-SNP with several vCPUs, a type and a version': async () =>
    (await verify(withMembers(v158, { attestation_type: [1, 3, 9901, 2, 1] }))).checks,
  TDX: () => tdx({}),
  'secret exchange': () => verifySecretResponse(secret),
};

const REFUSED: Readonly<Record<string, () => Promise<readonly Check[]>>> = {
  'no manifest': async () => (await verify(withMembers(v158, { manifests: null }))).checks,
  'no version': async () => (await verify(withMembers(v158, { version: null, policies: null }))).checks,
  'two manifests': async () => (await verify(withMembers(v158, { manifests: ['YQ==', 'Yg=='] }))).checks,
  'another type': async () =>
    (await verify(withMembers(v158, { attestation_type: [1, 3, 9901, 2, 2] }))).checks,
  'no evidence': async () => (await verify(withMembers(v158, { raw_attestation_doc: 'AAEC' }))).checks,
  'a report that differs': () =>
    snp({
      report: {
        ...{
          version: 6,
          signatureAlgo: 2,
          signerInfo: 0x3d,
          vmpl: 1,
          guestSvn: 3,
          policy: (1n << 26n) | 0x90139n,
        },
        ...{ platformInfo: 0xc3n, currentBuild: 0, currentMitVector: 7n, launchTcb: 0x581b_0000_0000_000bn },
        ...{
          cpuid1EaxFms: 0xb00f21,
          hostData: filled(32, 1),
          measurement: filled(48, 2),
          chipId: filled(64, 3),
        },
        reportIdMa: filled(32, 4),
      },
      secondCoordinator: true,
    }),
  'an unknown processor': () => snp({ report: { cpuid1EaxFms: 0 } }),
  'a report of version 2': () =>
    snp({ report: { version: 2, cpuid1EaxFms: 0 }, product: { name: 2, machineStepping: 1 } }),
  'a VCEK by another name': () => snp({ vcek: issueVcek({ subject: amdName('x'), issuer: ISSUERS.ark }) }),
  'a VCEK by another key': () => snp({ vcek: issueVcek({ issuer: { ...ISSUERS.ask, key: KEYS.ark } }) }),
  'a VCEK of another structure': () =>
    snp({
      vcek: issueVcek({
        extensions: amdExtensions(vcekParts().map(([key, old]) => [key, key === '1' ? integer(1) : old])),
      }),
    }),
  'no VCEK': () => snp({ vcek: null }),
  'a root of another size': () => snp({ roots: rootsOf(ARK, issueAsk({ key: KEYS.small })) }),
  'no roots': () => snp({ roots: { snp: {}, tdx: undefined } }),
  'a revoked ASK': () => snp({ crl: issueArkCrl({ revoked: [{ serial: ASK_SERIAL, date }] }) }),
  'masked and not asked for': () =>
    snp({ report: { chipId: new Uint8Array(64) }, snp: [{ ...REFERENCE_VALUE, AllowedChipIDs: [] }] }),
  'a quote of another form': () =>
    tdx({
      header: (h) => ({ ...h, version: 5, attestationKeyType: 3, teeType: 0, qeVendorId: filled(16, 1) }),
    }),
  'sizes that are not true': () => tdx({ quote: (quote) => ({ ...quote, signedDataSize: 1 }) }),
  'a domain that differs': () =>
    tdx({
      body: (b) => ({
        ...{ ...b, tdAttributes: filled(8, 1), mrTd: filled(48, 1), xfam: filled(8, 0x88) },
        ...{
          rtmrs: b.rtmrs.with(0, filled(48, 1)),
          seamAttributes: filled(8, 1),
          mrSignerSeam: filled(48, 1),
        },
      }),
      entry: (e) => ({
        ...e,
        rtmr0Alternatives: [filled(48, 2)],
        allowedPiids: [filled(16, 2), filled(16, 3)],
      }),
    }),
  'CET, and nothing asked for': () =>
    tdx({
      body: (b) => ({ ...b, xfam: Buffer.from('e71a060000000000', 'hex') }),
      entry: (e) => ({
        ...{ ...e, allowedPiids: [], memoryIntegrity: false, smtDisabled: false, staticPlatform: false },
        minTcbEvaluationDataNumber: 0,
      }),
    }),
  'a module of major version 0': () =>
    tdx({ body: (b) => ({ ...b, teeTcbSvn: Uint8Array.of(5, 0, 3, ...zeros.slice(3)) }) }),
  'a module of an unknown version': () =>
    tdx({ body: (b) => ({ ...b, teeTcbSvn: Uint8Array.of(7, 9, 3, ...zeros.slice(3)) }) }),
  'no level': () =>
    tdx({ tcbInfo: (j) => ({ ...j, tcbLevels: [platformLevelJson('UpToDate', zeros, 99)] }) }),
  'another level': () =>
    tdx({ tcbInfo: (j) => ({ ...j, tcbLevels: [platformLevelJson('OutOfDate', zeros, 0)] }) }),
  'another enclave': () =>
    tdx({ qeReport: (r) => ({ ...r, miscSelect: 1, isvProdId: 3, isvSvn: 0, mrSigner: filled(32, 1) }) }),
  'TCB info of another kind': () =>
    tdx({
      tcbInfo: (j) => ({
        ...j,
        id: 'SGX',
        version: 2,
        tcbType: 1,
        fmspc: '000000000000',
        tcbEvaluationDataNumber: 20,
      }),
    }),
  'a PCK by a stranger': () =>
    tdx({ pck: (r) => ({ ...r, issuer: STRANGE_ROOT, extensions: r.extensions.slice(1) }) }),
  'a collateral signer by a stranger': () => tdx({ tcbSigning: (r) => ({ ...r, issuer: STRANGE_ROOT }) }),
  'a list by a stranger': () => tdx({ pckCrl: (r) => ({ ...r, issuer: STRANGE_ROOT }) }),
  'no root for TDX': () => tdx({ context: (c) => ({ ...c, roots: { snp: {}, tdx: undefined } }) }),
  'another manifest for the secret': () =>
    verifySecretResponse({ ...secret, manifest: vectorBytes('contrast/manifest_sdk_test.json') }),
  'other keys for the secret': () =>
    verifySecretResponse({ ...secret, publicKey: new Uint8Array(3), encapsulatedKey: new Uint8Array(4) }),
  'another mesh CA': () => verifySecretResponse({ ...secret, meshCaPem: secretInput('synthetic').meshCaPem }),
};

/**
 * Keys are made anew for each run, so what depends on them is left out: digests over them, and the length of
 * signatures.
 */
const line = ({ id, outcome, found, expected, code }: Check): string =>
  `${id}: ${code ?? outcome}: ${found} | ${expected}\n`
    .replace(/[0-9a-f]{64}0{64}/g, 'DIGEST')
    .replace(/\d+ there/, '… there');

/** Of refused evidence, what did not pass. */
async function texts(): Promise<string> {
  let all = '';
  for (const [title, checks] of Object.entries(GOOD)) {
    all += `# ${title}\n${(await checks()).map(line).join('')}`;
  }
  for (const [title, checks] of Object.entries(REFUSED)) {
    const unmet = (await checks()).filter(({ outcome }) => outcome !== 'pass');
    const judged = unmet.filter(({ outcome }) => outcome !== 'not-evaluated');
    const rest = unmet.length - judged.length;
    all += `# ${title}\n${judged.map(line).join('')}${rest > 0 ? `${rest} not evaluated\n` : ''}`;
  }
  return all;
}

it('every check says what was found and what was expected, word for word as in verdict-texts.txt', async () => {
  const url = new URL('./verdict-texts.txt', import.meta.url);
  const found = await texts();
  if (process.env['RECORD_VERDICTS'] === '1') writeFileSync(url, found);
  else {
    const recorded = readFileSync(url, 'utf8');
    assert.equal(
      found,
      recorded,
      'if that is meant: RECORD_VERDICTS=1 npx node --test test/attestation/verdict-texts.test.ts',
    );
  }
});
