/**
 * The vendors' services for the collateral of their certificates, at the paths of the real ones: AMD's key
 * distribution (docs/protocol/attestation.md 7) and Intel's provisioning certification (10).
 */
import type { KeyObject } from 'node:crypto';
import { signRaw } from './evidence/tdx.ts';
import type { Faults } from './faults.ts';
import type { Hardware } from './hardware.ts';
import { Rejection } from './inference/rejection.ts';
import { issueAmdCrl, vcekRequest } from './pki/amd.ts';
import { issueCertificate, toPem } from './pki/certificate.ts';
import { pckCrl, platformCaRequest, rootCrl, tcbSigningRequest } from './pki/intel.ts';
import { TD_QE, TDX_GUEST, TDX_PLATFORM } from './reference-values.ts';
import { collateral, type Exchange, type Route, sendBytes } from './route.ts';

const DAY = 86_400_000;
const upperHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex').toUpperCase();
/** Intel's dates have no fractions of a second. */
const isoDate = (time: number): string => new Date(time).toISOString().replace(/\.\d+Z$/, 'Z');
const TCB_DATE = '2026-03-13T00:00:00Z';

/** A body with the value as `member`, and a signature over the bytes of the value as they stand in it. */
export function signedJson(member: string, value: unknown, key: KeyObject): string {
  const signed = JSON.stringify(value);
  const signature = Buffer.from(signRaw(Buffer.from(signed), key)).toString('hex');
  return `{"${member}":${signed},"signature":"${signature}"}`;
}

export function intelPcsRoutes({ keys, roots }: Hardware, faults: Faults): readonly Route[] {
  const root = toPem(roots.intelRoot);
  const signingChain = toPem(issueCertificate(tcbSigningRequest(keys))) + root;
  const crlChain = toPem(issueCertificate(platformCaRequest(keys))) + root;

  const sendSigned = ({ response }: Exchange, member: string, header: string, value: unknown): void => {
    const body = signedJson(member, value, keys.intelTcbSigning);
    response.setHeader(header, encodeURIComponent(signingChain));
    sendBytes(response, 200, 'application/json', Buffer.from(body));
  };

  return [
    collateral('/tdx/certification/v4/tcb', (exchange) => {
      const { url } = exchange;
      if (url.searchParams.get('fmspc')?.toUpperCase() !== upperHex(TDX_PLATFORM.fmspc))
        throw new Rejection(404, 'unknown FMSPC');
      sendSigned(exchange, 'tcbInfo', 'TCB-Info-Issuer-Chain', tcbInfo(evaluationNumber(url)));
    }),
    collateral('/tdx/certification/v4/qe/identity', (exchange) => {
      const identity = qeIdentity(evaluationNumber(exchange.url));
      sendSigned(exchange, 'enclaveIdentity', 'SGX-Enclave-Identity-Issuer-Chain', identity);
    }),
    collateral('/sgx/certification/v4/pckcrl', ({ response, url }) => {
      if (url.searchParams.get('ca') !== 'platform') throw new Rejection(400, 'only ca=platform');
      response.setHeader('SGX-PCK-CRL-Issuer-Chain', encodeURIComponent(crlChain));
      sendBytes(response, 200, 'application/pkix-crl', pckCrl(keys));
    }),
    collateral('/IntelSGXRootCA.der', ({ response }) => {
      const crl = rootCrl(keys, faults.get('evidence-revoked') === true);
      sendBytes(response, 200, 'application/pkix-crl', crl);
    }),
  ];
}

/**
 * The TCB evaluation number that the request asks for. Without a number, the service serves its default one.
 * At Intel the default is up to a year older than the newest; here it is older than the manifest demands.
 */
function evaluationNumber(url: URL): number {
  const { tcbEvaluationDataNumber: newest } = TDX_GUEST;
  const standard = newest - 1;
  const wanted = Number(url.searchParams.get('tcbEvaluationDataNumber') ?? standard);
  if (wanted !== newest && wanted !== standard)
    throw new Rejection(wanted < standard ? 410 : 404, 'no such evaluation');
  return wanted;
}

const issued = (tcbEvaluationDataNumber: number) => ({
  issueDate: isoDate(Date.now() - DAY),
  nextUpdate: isoDate(Date.now() + 29 * DAY),
  tcbEvaluationDataNumber,
});

const level = (tcb: unknown, tcbStatus = 'UpToDate') => ({ tcb, tcbDate: TCB_DATE, tcbStatus });

function tcbInfo(evaluation: number): unknown {
  const { fmspc, pceId, componentSvns, pceSvn, teeTcbSvn, outdatedTeeTcbSvn } = TDX_PLATFORM;
  const zeros = { mrsigner: '0'.repeat(96), attributes: '0'.repeat(16), attributesMask: 'F'.repeat(16) };
  const components = (svns: readonly number[]) => svns.map((svn) => ({ svn }));
  const [newest, outdated] = [teeTcbSvn, outdatedTeeTcbSvn].map(([isvsvn]) => ({ isvsvn }));
  const levels = [level(newest), level(outdated, 'OutOfDate')];
  const platform = level({
    sgxtcbcomponents: components(componentSvns),
    pcesvn: pceSvn,
    tdxtcbcomponents: components(outdatedTeeTcbSvn.map((svn, index) => (index === 1 ? 0 : svn))),
  });
  return {
    ...{ id: 'TDX', version: 3, ...issued(evaluation) },
    ...{ fmspc: upperHex(fmspc), pceId: upperHex(pceId), tcbType: 0, tdxModule: zeros },
    tdxModuleIdentities: [
      { id: `TDX_${upperHex(Uint8Array.of(teeTcbSvn[1] ?? 0))}`, ...zeros, tcbLevels: levels },
    ],
    tcbLevels: [platform],
  };
}

function qeIdentity(evaluation: number): unknown {
  return {
    ...{ id: 'TD_QE', version: 2, ...issued(evaluation) },
    ...{ miscselect: '00000000', miscselectMask: 'FFFFFFFF' },
    attributes: upperHex(TD_QE.attributes),
    attributesMask: 'FBFFFFFFFFFFFFFF0000000000000000',
    mrsigner: upperHex(TD_QE.mrSigner),
    isvprodid: TD_QE.isvProdId,
    tcbLevels: [level({ isvsvn: TD_QE.isvSvn })],
  };
}

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
      if (chipId !== Buffer.from(ids.chipId).toString('hex')) throw new Rejection(404, 'unknown chip');
      const [bootloader, tee, snp, microcode] = ['blSPL', 'teeSPL', 'snpSPL', 'ucodeSPL'].map((name) => {
        const value = url.searchParams.get(name) ?? '';
        if (!/^\d{1,3}$/.test(value)) throw new Rejection(400, `${name} must be a decimal number`);
        return Number(value);
      }) as [number, number, number, number];
      const vcek = issueCertificate(vcekRequest(keys, ids.chipId, { bootloader, tee, snp, microcode }));
      sendBytes(response, 200, 'application/pkix-cert', vcek);
    }),
  ];
}
