/** `verify` over the files of test/vectors/attestation, as anybody would verify a saved exchange. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import { SYNTHETIC_SETS, syntheticCases } from '../support/evidence/attestation-vectors.ts';
import { syntheticVariants } from '../support/evidence/tdx-vectors.ts';
import { flagsOf, secretFlagsOf, vectorPath, verifyCommand } from '../support/evidence/verify.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

/**
 * Variants that this verifier refuses although the vectors' index says "accept" for the reference (see its
 * README).
 */
const STRICTER = ['secret_cert_workload_identity.json', 'platform_outofdate_module_ok.json'];
/** Variants that cannot be read as what they should be; all other bad ones are rejected. */
const MALFORMED = [
  'not_protobuf.json',
  'vcek_missing_hwid.json',
  'vcek_missing_snp_spl.json',
  'chain_trailing_text.json',
  'chain_two_certs.json',
];

const expectedCode = (file: string, verdict: 'accept' | 'reject'): number =>
  MALFORMED.includes(file) ? 30 : verdict === 'reject' || STRICTER.includes(file) ? 10 : 0;

describe('verify of the vectors of SEV-SNP', () => {
  for (const set of SYNTHETIC_SETS) {
    it(`${set} is accepted, secret exchange included`, async () => {
      const { code, stdout } = await verifyCommand([...flagsOf(set), ...secretFlagsOf(set)]);
      assert.equal(code, 0, stdout);
      assert.match(stdout, /^[✓!] ACCEPTED /m);
      assert.doesNotMatch(stdout, /✗|\?/);
    });
    for (const { file, kind, upstream, careful } of syntheticCases(set)) {
      const expected = expectedCode(file, careful ?? upstream);
      it(`${set}/negative/${file} has exit code ${expected}`, async () => {
        const variant = `negative/${file}`;
        const { code, json } = await verifyCommand([
          ...flagsOf(set),
          ...(kind === 'attest_response'
            ? ['--evidence', vectorPath(set, variant)]
            : secretFlagsOf(set, variant)),
          '--json',
        ]);
        assert.equal(code, expected);
        assert.equal(json().outcome, { 0: 'accepted', 10: 'rejected', 30: 'malformed' }[expected]);
        assert.equal(json().failure === null, expected === 0);
      });
    }
  }
});

describe('verify of the vectors of TDX', () => {
  let directory: string;
  before(() => {
    directory = temporaryDirectory('verify-tdx-');
  });

  it('synthetic_tdx is accepted with its collateral', async () => {
    const { code, stdout } = await verifyCommand(flagsOf('synthetic_tdx'));
    assert.equal(code, 0, stdout);
    assert.match(stdout, /^Hardware +Intel TDX$/m);
  });

  it('synthetic_tdx is refused without its collateral, which is named as missing', async () => {
    const flags = flagsOf('synthetic_tdx').slice(0, -2);
    const { code, json } = await verifyCommand([...flags, '--json']);
    assert.equal(code, 10);
    const { failure } = json();
    assert.deepEqual([failure?.id, failure?.code], ['tdx.tcb_info.format', 'collateral_unavailable']);
    assert.match(failure?.found ?? '', /--collateral/);
  });

  for (const { file, upstream } of syntheticVariants()) {
    const expected = expectedCode(file, upstream);
    it(`synthetic_tdx/negative/${file} has exit code ${expected}`, async () => {
      const variant = JSON.parse(readFileSync(vectorPath('synthetic_tdx', 'negative', file), 'utf8'));
      const write = (name: string, value: unknown): string => {
        const path = join(directory, name);
        writeFileSync(path, JSON.stringify(value));
        return path;
      };
      const { code } = await verifyCommand([
        ...flagsOf('synthetic_tdx'),
        ...['--evidence', write('response.json', variant.response)],
        ...(variant.collateral === 'default'
          ? []
          : ['--collateral', write('collateral.json', variant.collateral)]),
      ]);
      assert.equal(code, expected);
    });
  }
});
