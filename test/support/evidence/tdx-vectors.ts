/** The fixed TDX vectors (test/vectors/attestation/README.md) as inputs of the verifier. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import type { CollateralSource, VerifyInput } from '../../../lib/attestation/verify-evidence.ts';
import { vectorBytes, vectorJson, vectorText } from './attestation-vectors.ts';

/** The layout of the collateral files: issuer chains as PEM, lists as hex, bodies without their envelope. */
export interface StoredCollateral {
  readonly tcb_info: string;
  readonly tcb_info_signature: string;
  readonly tcb_info_issuer_chain: string;
  readonly qe_identity: string;
  readonly qe_identity_signature: string;
  readonly qe_identity_issuer_chain: string;
  readonly pck_crl: string;
  readonly pck_crl_issuer_chain: string;
  readonly root_ca_crl: string;
}

export const storedCollateral = (path: string): StoredCollateral => vectorJson(path);

/** Answers as Intel would give them. AMD is never asked. */
export function collateralSource(stored: StoredCollateral): CollateralSource {
  const notAsked = async (): Promise<never> => {
    throw new Error('TDX evidence needs nothing of AMD');
  };
  const bytes = (hex: string): Uint8Array => new Uint8Array(Buffer.from(hex, 'hex'));
  return {
    amdVcek: notAsked,
    amdCrl: notAsked,
    intelTcbInfo: async () => ({
      body: `{"tcbInfo":${stored.tcb_info},"signature":"${stored.tcb_info_signature}"}`,
      issuerChain: stored.tcb_info_issuer_chain,
    }),
    intelQeIdentity: async () => ({
      body: `{"enclaveIdentity":${stored.qe_identity},"signature":"${stored.qe_identity_signature}"}`,
      issuerChain: stored.qe_identity_issuer_chain,
    }),
    intelPckCrl: async () => ({
      crl: bytes(stored.pck_crl),
      issuerChain: stored.pck_crl_issuer_chain,
    }),
    intelRootCrl: async () => ({ crl: bytes(stored.root_ca_crl) }),
  };
}

export const INTEL_ROOT = readFileSync(
  resolve(import.meta.dirname, '../../vectors/trust/intel_sgx_root_ca.pem'),
  'utf8',
);

interface Response {
  readonly AttestationDoc: string;
}

/** The synthetic example, with another answer or other collateral where given. */
export function syntheticInput(response?: Response, collateral?: StoredCollateral): VerifyInput {
  const { Nonce } = vectorJson<{ Nonce: string }>('synthetic_tdx/attest_request.json');
  const answer = response ?? vectorJson<Response>('synthetic_tdx/attest_response.json');
  return {
    document: new Uint8Array(Buffer.from(answer.AttestationDoc, 'base64')),
    nonce: new Uint8Array(Buffer.from(Nonce, 'base64')),
    manifest: vectorBytes('synthetic_tdx/manifest.json'),
    roots: { snp: {}, tdx: { root: vectorText('synthetic_tdx/test_intel_root.pem') } },
    collateral: collateralSource(collateral ?? storedCollateral('synthetic_tdx/collateral.json')),
    now: new Date('2026-12-01T00:00:00Z'),
    secretFollows: false,
  };
}

interface SyntheticVariant {
  readonly file: string;
  readonly upstream: 'accept' | 'reject';
  readonly reason: string;
}

export const syntheticVariants = (): readonly SyntheticVariant[] =>
  vectorJson<{ cases: SyntheticVariant[] }>('synthetic_tdx/index.json').cases;

/** The input of a variant of the synthetic example. */
export function variantInput(file: string): VerifyInput {
  const variant = vectorJson<{ response: Response; collateral: 'default' | StoredCollateral }>(
    `synthetic_tdx/negative/${file}`,
  );
  return syntheticInput(variant.response, variant.collateral === 'default' ? undefined : variant.collateral);
}
