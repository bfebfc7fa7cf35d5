/**
 * What verdicts say to people, word for word: verdict-texts.txt has every check of good evidence, and what
 * fails where most differs. The tests of each check prove that it fails.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { it } from 'node:test';
import type { Check } from '../../lib/attestation/check.ts';
import { verifySecretResponse } from '../../lib/attestation/mesh.ts';
import { verify } from '../../lib/attestation/verify-evidence.ts';
import {
  secretInput,
  syntheticInput,
  vectorBytes,
  withMembers,
} from '../support/evidence/attestation-vectors.ts';
import { attestedBy, type Changes as SnpChanges } from '../support/evidence/snp-platform.ts';
import { filled, judge } from '../support/evidence/tdx-cases.ts';
import type { Changes as TdxChanges } from '../support/evidence/tdx-platform.ts';

const snp = async (changes: SnpChanges) => (await verify(attestedBy(changes))).checks;
const v158 = syntheticInput('synthetic_v158');
const tdx = (changes: TdxChanges) => judge(changes);
const secret = secretInput('synthetic_v158');

const GOOD: Readonly<Record<string, () => Promise<readonly Check[]>>> = {
  'SEV-SNP': () => snp({}),
  'SEV-SNP with several vCPUs, a type and a version': async () =>
    (await verify(withMembers(v158, { attestation_type: [1, 3, 9901, 2, 1] }))).checks,
  TDX: () => tdx({}),
  'secret exchange': () => verifySecretResponse(secret),
};

/** The checks of the hardware, of which most differ at once. */
const REFUSED: Readonly<Record<string, () => Promise<readonly Check[]>>> = {
  'a report of another form': () => snp({ report: { version: 6, signatureAlgo: 2, signerInfo: 0x3c } }),
  'a report that differs': () =>
    snp({
      report: {
        ...{ signerInfo: 1, vmpl: 1, guestSvn: 3, policy: (1n << 26n) | 0x90139n, platformInfo: 0xc3n },
        ...{ currentBuild: 0, currentMitVector: 7n, launchTcb: 0x581b_0000_0000_000bn },
        ...{ cpuid1EaxFms: 0xb00f21, hostData: filled(32, 1), measurement: filled(48, 2) },
        ...{ chipId: filled(64, 0), reportIdMa: filled(32, 4) },
      },
      secondCoordinator: true,
    }),
  'a report of another chip, without its VCEK': () => snp({ report: { chipId: filled(64, 3) }, vcek: null }),
  'a domain that differs': () =>
    tdx({
      body: (b) => ({
        ...{ ...b, tdAttributes: filled(8, 1), mrTd: filled(48, 1), xfam: filled(8, 0x88) },
        rtmrs: b.rtmrs.with(0, filled(48, 1)),
      }),
      entry: (e) => ({
        ...e,
        rtmr0Alternatives: [filled(48, 2)],
        allowedPiids: [filled(16, 2), filled(16, 3)],
      }),
    }),
  'another module': () =>
    tdx({ body: (b) => ({ ...b, seamAttributes: filled(8, 1), mrSignerSeam: filled(48, 1) }) }),
  'another manifest for the secret': () =>
    verifySecretResponse({ ...secret, manifest: vectorBytes('contrast/manifest_sdk_test.json') }),
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
