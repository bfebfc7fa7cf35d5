/** The files of test/vectors/attestation as inputs of the verifier (READMEs there). */
import { readFileSync } from 'node:fs';
import type { SecretResponseInput } from '../../../lib/attestation/mesh.ts';
import type { CollateralSource, TrustRoots, VerifyInput } from '../../../lib/attestation/verify-evidence.ts';
import { PrivatemodeError } from '../../../lib/errors.ts';

const VECTORS = new URL('../../vectors/', import.meta.url);

export const vectorBytes = (path: string): Uint8Array =>
  new Uint8Array(readFileSync(new URL(`attestation/${path}`, VECTORS)));
export const vectorText = (path: string): string =>
  readFileSync(new URL(`attestation/${path}`, VECTORS), 'utf8');
export const vectorJson = <T>(path: string): T => JSON.parse(vectorText(path)) as T;

const unavailable = (): Promise<never> =>
  Promise.reject(new PrivatemodeError('collateral_unavailable', 'offline'));

/** A source that has nothing. */
export const OFFLINE: CollateralSource = {
  amdVcek: unavailable,
  amdCrl: unavailable,
  intelTcbInfo: unavailable,
  intelQeIdentity: unavailable,
  intelPckCrl: unavailable,
  intelRootCrl: unavailable,
};

export const SYNTHETIC_SETS = ['synthetic', 'synthetic_v158'] as const;
export type SyntheticSet = (typeof SYNTHETIC_SETS)[number];

const SYNTHETIC_NOW = new Date('2026-12-01T00:00:00Z');

interface SyntheticCase {
  readonly file: string;
  readonly kind: 'attest_response' | 'secret_response';
  readonly upstream: 'accept' | 'reject';
  readonly careful?: 'reject';
  readonly reason: string;
}

export const syntheticCases = (set: SyntheticSet): readonly SyntheticCase[] =>
  vectorJson<{ cases: SyntheticCase[] }>(`${set}/negative/index.json`).cases;

export const syntheticRoots = (set: SyntheticSet): TrustRoots => ({
  snp: { Genoa: { ark: vectorText(`${set}/test_ark.pem`), ask: vectorText(`${set}/test_ask.pem`) } },
  tdx: undefined,
});

/** The verifier's input for an attest response of a set: the good one, or one of `negative/`. */
export function syntheticInput(set: SyntheticSet, file = 'attest_response.json'): VerifyInput {
  const response = vectorJson<{ AttestationDoc: string }>(`${set}/${file}`);
  const request = vectorJson<{ Nonce: string }>(`${set}/attest_request.json`);
  return {
    document: Buffer.from(response.AttestationDoc, 'base64'),
    nonce: Buffer.from(request.Nonce, 'base64'),
    manifest: vectorBytes(`${set}/manifest.json`),
    roots: syntheticRoots(set),
    collateral: OFFLINE,
    now: SYNTHETIC_NOW,
    secretFollows: false,
  };
}

/** The secret exchange of a set, with its good response or one of `negative/`, for the checks of the mesh. */
export function secretInput(set: SyntheticSet, file = 'secret_response.json'): SecretResponseInput {
  const request = vectorJson<{ PublicKey: string }>(`${set}/secret_request.json`);
  const response = vectorJson<Record<'EncapsulatedKey' | 'Signature' | 'MeshCert', string>>(`${set}/${file}`);
  const decode = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, 'base64'));
  return {
    manifest: vectorBytes(`${set}/manifest.json`),
    meshCaPem: vectorText(`${set}/mesh_ca.pem`),
    publicKey: decode(request.PublicKey),
    encapsulatedKey: decode(response.EncapsulatedKey),
    signature: decode(response.Signature),
    meshCert: decode(response.MeshCert),
    now: SYNTHETIC_NOW,
  };
}

/** The attestation document with some members replaced. */
export function withMembers(input: VerifyInput, members: Readonly<Record<string, unknown>>): VerifyInput {
  const document = JSON.parse(Buffer.from(input.document).toString('utf8')) as Record<string, unknown>;
  return { ...input, document: Buffer.from(JSON.stringify({ ...document, ...members })) };
}

/** The raw_attestation_doc of a document. */
export function evidenceOf({ document }: VerifyInput): Buffer {
  const { raw_attestation_doc: raw } = JSON.parse(Buffer.from(document).toString('utf8')) as {
    raw_attestation_doc: string;
  };
  return Buffer.from(raw, 'base64');
}
