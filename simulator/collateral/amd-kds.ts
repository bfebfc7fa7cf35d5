/**
 * AMD's key distribution service for the simulated chips, at the paths of the real service
 * (docs/protocol/attestation.md 7).
 */
import type { Faults } from '../faults.ts';
import type { Hardware } from '../hardware.ts';
import { HttpError, sendBytes } from '../json-http.ts';
import { issueAmdCrl, issueVcek } from '../pki/amd.ts';
import { toPem } from '../pki/certificate.ts';
import type { Route } from '../route.ts';

const DER = 'application/pkix-cert';

export function amdKdsRoutes({ keys, ids, roots }: Hardware, faults: Faults): readonly Route[] {
  return [
    {
      method: 'GET',
      path: '/vcek/v1/Genoa/cert_chain',
      service: 'collateral',
      handle: ({ response }) =>
        sendBytes(response, 200, 'application/x-pem-file', Buffer.from(toPem(roots.ask) + toPem(roots.ark))),
    },
    {
      method: 'GET',
      path: '/vcek/v1/Genoa/crl',
      service: 'collateral',
      handle: ({ response }) =>
        sendBytes(
          response,
          200,
          'application/pkix-crl',
          issueAmdCrl(keys, faults.get('evidence-revoked') === true),
        ),
    },
    {
      method: 'GET',
      path: /^\/vcek\/v1\/Genoa\/[0-9a-f]{128}$/,
      service: 'collateral',
      handle({ response, url }) {
        const chipId = url.pathname.slice(-128);
        if (chipId !== Buffer.from(ids.chipId).toString('hex')) throw new HttpError(404, 'unknown chip');
        const part = (name: string): number => {
          const value = url.searchParams.get(name) ?? '';
          if (!/^\d{1,3}$/.test(value)) throw new HttpError(400, `${name} must be a decimal number`);
          return Number(value);
        };
        const tcb = {
          bootloader: part('blSPL'),
          tee: part('teeSPL'),
          snp: part('snpSPL'),
          microcode: part('ucodeSPL'),
        };
        sendBytes(response, 200, DER, issueVcek(keys, ids.chipId, tcb));
      },
    },
  ];
}
