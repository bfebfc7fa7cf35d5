/**
 * Authorities like Intel's for one platform: root, platform CA, PCK certificate and TCB signing certificate,
 * each of which can be changed before it is signed. Keys are made once per process.
 */
import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { SGX_EXTENSION_OID } from '../../../lib/attestation/tdx/chain.ts';
import { type CertificateRequest, issueCertificate } from '../../../simulator/pki/certificate.ts';
import { boolean, enumerated } from '../../../simulator/pki/der.ts';
import { vendorExtension } from '../../../simulator/pki/extensions.ts';
import {
  encodeSgx,
  intelName,
  intelRootRequest,
  pckRequest,
  platformCaRequest,
  platformIssuer,
  ROOT_CRL_URL,
  rootIssuer,
  type SgxParts,
  sgxParts,
  tcbSigningRequest,
} from '../../../simulator/pki/intel.ts';
import { TDX_PLATFORM } from '../../../simulator/reference-values.ts';

export { encodeSgx, intelName, ROOT_CRL_URL, type SgxParts };

const VALID = { notBefore: new Date('2026-01-01T00:00:00Z'), notAfter: new Date('2036-01-01T00:00:00Z') };

export const p256 = (): KeyObject => generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
export const KEYS = {
  root: p256(),
  platformCa: p256(),
  pck: p256(),
  /** Intel has one signer for both; two here, so that no check of one passes for the other's. */
  tcbSigning: p256(),
  qeSigning: p256(),
  attestation: p256(),
};

const INTEL_KEYS = {
  intelRoot: KEYS.root,
  intelPlatformCa: KEYS.platformCa,
  intelTcbSigning: KEYS.tcbSigning,
  pck: KEYS.pck,
};
export const ISSUERS = { root: rootIssuer(INTEL_KEYS), platformCa: platformIssuer(INTEL_KEYS) } as const;

export const COMPONENT_SVNS = TDX_PLATFORM.componentSvns;
/** Like the simulated platform's, but static, without SMT, and with memory integrity (SGX type 2). */
const PLATFORM_PARTS = sgxParts({ ppid: new Uint8Array(16), piid: new Uint8Array(16).fill(0x11) });
export const SGX_PARTS: SgxParts = {
  ...PLATFORM_PARTS,
  parts: PLATFORM_PARTS.parts.map(([suffix, value]) => [suffix, suffix === '5' ? enumerated(2) : value]),
  configuration: [
    ['7.1', boolean(false)],
    ['7.2', boolean(true)],
    ['7.3', boolean(false)],
  ],
};

export type Change<T> = (original: T) => T;
export const same = <T>(value: T): T => value;

export interface CertificateChanges {
  readonly root?: Change<CertificateRequest>;
  readonly platformCa?: Change<CertificateRequest>;
  readonly pck?: Change<CertificateRequest>;
  /** Signs TCB info. */
  readonly tcbSigning?: Change<CertificateRequest>;
  /** Signs the QE identity. */
  readonly qeSigning?: Change<CertificateRequest>;
  readonly sgx?: Change<SgxParts>;
}

/** The DER of the five certificates. */
export function certificates(changes: CertificateChanges) {
  const issue = (
    request: CertificateRequest,
    serial: bigint,
    change: Change<CertificateRequest> = same,
  ): Uint8Array => issueCertificate(change({ ...request, serial, ...VALID }));
  const sgx = vendorExtension(SGX_EXTENSION_OID, encodeSgx((changes.sgx ?? same)(SGX_PARTS)));
  const qeKeys = { ...INTEL_KEYS, intelTcbSigning: KEYS.qeSigning };
  return {
    root: issue(intelRootRequest(INTEL_KEYS), 0x11n, changes.root),
    platformCa: issue(platformCaRequest(INTEL_KEYS), 0x12n, changes.platformCa),
    pck: issue(pckRequest(INTEL_KEYS, sgx), 0x4242n, changes.pck),
    tcbSigning: issue(tcbSigningRequest(INTEL_KEYS), 0x13n, changes.tcbSigning),
    qeSigning: issue(tcbSigningRequest(qeKeys), 0x14n, changes.qeSigning),
  };
}
