/** AMD's key distribution service, at the paths of the real one (docs/protocol/attestation.md 7). */
import type { Faults } from '../faults.ts';
import type { Hardware } from '../hardware.ts';
import { issueAmdCrl, vcekRequest } from '../pki/amd.ts';
import { issueCertificate, toPem } from '../pki/certificate.ts';
import { collateral, HttpError, type Route, sendBytes } from '../route.ts';

export function amdKdsRoutes({ keys, ids, roots }: Hardware, faults: Faults): readonly Route[] {
  return [
    collateral('/vcek/v1/Genoa/cert_chain', ({ response }) => {
      const chain = Buffer.from(toPem(roots.ask) + toPem(roots.ark));
      sendBytes(response, 200, 'application/x-pem-file', chain);
    }),
    collateral('/vcek/v1/Genoa/crl', ({ response }) => {
      const crl = issueAmdCrl(keys, faults.get('evidence-revoked') === true);
      sendBytes(response, 200, 'application/pkix-crl', crl);
    }),
    collateral(/^\/vcek\/v1\/Genoa\/[0-9a-f]{128}$/, ({ response, url }) => {
      const chipId = url.pathname.slice(-128);
      if (chipId !== Buffer.from(ids.chipId).toString('hex')) throw new HttpError(404, 'unknown chip');
      const [bootloader, tee, snp, microcode] = ['blSPL', 'teeSPL', 'snpSPL', 'ucodeSPL'].map((name) => {
        const value = url.searchParams.get(name) ?? '';
        if (!/^\d{1,3}$/.test(value)) throw new HttpError(400, `${name} must be a decimal number`);
        return Number(value);
      }) as [number, number, number, number];
      const vcek = issueCertificate(vcekRequest(keys, ids.chipId, { bootloader, tee, snp, microcode }));
      sendBytes(response, 200, 'application/pkix-cert', vcek);
    }),
  ];
}
