/** What AMD and Intel say, as one file: read, answered from, and written from what was asked. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, it } from 'node:test';
import { PrivatemodeError } from '../../lib/errors.ts';
import { parseCollateral, recordCollateral, storedCollateral } from '../../lib/verdict/collateral-file.ts';
import { collateralSource, storedCollateral as vectorCollateral } from '../support/evidence/tdx-vectors.ts';
import { vectorPath } from '../support/evidence/verify.ts';

const refuse = (words: string): Error => new PrivatemodeError('verify_input_invalid', words);
const TDX = new Uint8Array(readFileSync(vectorPath('synthetic_tdx', 'collateral.json')));
const VCEK_QUERY = { product: 'Genoa', chipId: '', bootloader: 0, tee: 0, snp: 0, microcode: 0 } as const;

async function askAll(source: ReturnType<typeof storedCollateral>): Promise<unknown[]> {
  return [
    await source.intelTcbInfo({ fmspc: 'a0b1c2d3e4f5' }),
    await source.intelQeIdentity({}),
    await source.intelPckCrl(),
    await source.intelRootCrl({ url: 'https://certificates.example/root.der' }),
  ];
}

describe('a collateral file', () => {
  it('answers what its vendor answered', async () => {
    const fromFile = storedCollateral(parseCollateral(TDX, refuse).stored, 'the file');
    const fromVendor = collateralSource(vectorCollateral('synthetic_tdx', 'collateral.json'));
    assert.deepEqual(await askAll(fromFile), await askAll(fromVendor));
  });

  it('fails with collateral_unavailable, and names the member, for what it does not hold', async () => {
    const source = storedCollateral({}, 'the file');
    const missing = (name: string) => ({
      code: 'collateral_unavailable',
      message: `the file has no ${name}`,
    });
    await assert.rejects(source.amdVcek(VCEK_QUERY), missing('vcek'));
    await assert.rejects(source.amdCrl({ product: 'Genoa' }), missing('ark_crl'));
    await assert.rejects(source.intelTcbInfo({ fmspc: '' }), missing('tcb_info'));
    await assert.rejects(source.intelQeIdentity({}), missing('qe_identity'));
    await assert.rejects(source.intelPckCrl(), missing('pck_crl'));
    await assert.rejects(source.intelRootCrl({ url: '' }), missing('root_ca_crl'));
  });

  it('is read without its unknown members, whose names are reported', () => {
    const { stored, unknown } = parseCollateral(Buffer.from('{"foo":"00","vcek":"01","Ark_crl":7}'), refuse);
    assert.deepEqual({ ...stored }, { vcek: '01' });
    assert.deepEqual(unknown, ['foo', 'Ark_crl']);
    assert.deepEqual(parseCollateral(TDX, refuse).unknown, []);
  });

  it('records the answers, so that they read back the same', async () => {
    const { source, recorded } = recordCollateral(
      collateralSource(vectorCollateral('synthetic_tdx', 'collateral.json')),
    );
    assert.deepEqual(recorded(), {});
    const answers = await askAll(source);
    assert.deepEqual({ ...recorded() }, JSON.parse(Buffer.from(TDX).toString('utf8')));
    const { stored: written } = parseCollateral(Buffer.from(JSON.stringify(recorded())), refuse);
    assert.deepEqual(await askAll(storedCollateral(written, 'the file')), answers);
  });

  it('records the VCEK and the revocation list of AMD', async () => {
    const none = storedCollateral({}, 'x');
    const { source, recorded } = recordCollateral({
      ...none,
      amdVcek: async () => Uint8Array.of(1, 255),
      amdCrl: async () => ({ crl: Uint8Array.of(2) }),
    });
    await source.amdVcek(VCEK_QUERY);
    await source.amdCrl({ product: 'Genoa' });
    assert.deepEqual(recorded(), { vcek: '01ff', ark_crl: '02' });
  });

  it('passes on malformed collateral and failures without recording them', async () => {
    const none = storedCollateral({}, 'x');
    const odd = { body: 'odd', issuerChain: '' };
    const { source, recorded } = recordCollateral({ ...none, intelTcbInfo: async () => odd });
    assert.deepEqual(await source.intelTcbInfo({ fmspc: '' }), odd);
    await assert.rejects(source.intelQeIdentity({}), { code: 'collateral_unavailable' });
    assert.deepEqual(recorded(), {});
  });
});
