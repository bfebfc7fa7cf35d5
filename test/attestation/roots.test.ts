import assert from 'node:assert/strict';
import { it } from 'node:test';
import { sha256 } from '#crypto';
import { PRODUCTION_ROOTS } from '../../lib/attestation/roots/production.ts';
import { commonName, parseCertificate } from '../../lib/attestation/x509.ts';
import { decodeOneCertificate } from '../../lib/crypto/der.ts';
import { toHex } from '../support/evidence/wycheproof.ts';

/** SHA-256 of the certificates, as test/vectors/trust/README.md has them from AMD and Intel. */
const FINGERPRINTS = {
  'ARK-Milan': '69d063b45344d26a2e94e1f4210de49ef555308287d4c174445c95639a540bcd',
  'SEV-Milan': '67d303bd3905fd38db8b20e0793699870e7fa612eaad5dec358293fd8c0bac1b',
  'ARK-Genoa': '4c6598d19c18719c5dfd4a7d335f674e5bfe1d8f800cea2cf270c10d103db2f1',
  'SEV-Genoa': '5464738c1546aed5f2cecf1dc98c5c960a92e8913238a61711bc90ec6e828521',
  'Intel SGX Root CA': '44a0196b2b99f889b8e149e95b807a350e7424964399e885a7cbb8ccfab674d3',
};

it('the production roots are those of Milan, Genoa and Intel SGX, and no others, such as one for Turin', () => {
  const { snp, tdx } = PRODUCTION_ROOTS;
  const pems = [...Object.values(snp).flatMap(({ ark, ask }) => [ark, ask]), tdx?.root ?? ''];
  const found = pems.map((pem) => {
    const { der, subject } = parseCertificate(decodeOneCertificate(pem));
    return [commonName(subject), toHex(sha256(der))];
  });
  assert.deepEqual(Object.fromEntries(found), FINGERPRINTS);
});
