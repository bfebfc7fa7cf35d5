/**
 * The collateral of AMD and Intel about a platform in one JSON file: certificate chains as PEM, certificates
 * and revocation lists as hex of their DER, Intel's signed values as exactly the text that was signed,
 * signatures as hex.
 */
import { attempt, hex } from '../attestation/check.ts';
import { readSignedJson } from '../attestation/tdx/signed-json.ts';
import type { CollateralSource, SignedCollateral } from '../attestation/verify-evidence.ts';
import { PrivatemodeError } from '../errors.ts';
import { parseStrictJson } from '../strict-json.ts';

const HEX = ['vcek', 'ark_crl', 'pck_crl', 'root_ca_crl'] as const;
const SIGNED = ['tcb_info', 'qe_identity'] as const;
const MEMBERS = [
  ...[...HEX, 'pck_crl_issuer_chain' as const],
  ...SIGNED.flatMap((name) => [name, `${name}_signature`, `${name}_issuer_chain`] as const),
];

type Member = (typeof MEMBERS)[number];
/** Members that were not needed are left out. */
export type StoredCollateral = { readonly [M in Member]?: string };

const LIMITS = { depth: 4, values: 1000 };

/**
 * Reads a file of collateral. `unknown`: the names of its other members, which count for nothing. The caller
 * can report them, because a user who misspelt a name thinks that the member is used. Throws what `refuse`
 * makes of the defect, if the text is not such an object.
 */
export function parseCollateral(
  bytes: Uint8Array,
  refuse: (defect: string) => Error,
): { readonly stored: StoredCollateral; readonly unknown: readonly string[] } {
  const json = parseStrictJson(bytes, LIMITS, refuse);
  if (!(json instanceof Map)) throw refuse('not a JSON object');
  const stored: Partial<Record<Member, string>> = {};
  for (const name of MEMBERS) {
    const value: unknown = json.get(name);
    if (value === undefined) continue;
    if (typeof value !== 'string') throw refuse(`${name} is not a string`);
    stored[name] = value;
  }
  for (const name of HEX) {
    if (!/^(?:[0-9a-fA-F]{2})*$/.test(stored[name] ?? '')) throw refuse(`${name} is not hex`);
  }
  const unknown = Array.from(json.keys()).filter((name) => !(MEMBERS as readonly string[]).includes(name));
  return { stored, unknown };
}

/** A source that has only what was stored. `place` begins the message about a member that is missing. */
export function storedCollateral(stored: StoredCollateral, place: string): CollateralSource {
  const get = (name: Member): string => {
    const value = stored[name];
    if (value === undefined) throw new PrivatemodeError('collateral_unavailable', `${place} has no ${name}`);
    return value;
  };
  const bytes = (name: (typeof HEX)[number]): Uint8Array => new Uint8Array(Buffer.from(get(name), 'hex'));
  const signed = (member: string, name: (typeof SIGNED)[number]) => ({
    body: `{"${member}":${get(name)},"signature":"${get(`${name}_signature`)}"}`,
    issuerChain: get(`${name}_issuer_chain`),
  });
  return {
    amdVcek: async () => bytes('vcek'),
    amdCrl: async () => ({ crl: bytes('ark_crl') }),
    intelTcbInfo: async () => signed('tcbInfo', 'tcb_info'),
    intelQeIdentity: async () => signed('enclaveIdentity', 'qe_identity'),
    intelPckCrl: async () => ({ crl: bytes('pck_crl'), issuerChain: get('pck_crl_issuer_chain') }),
    intelRootCrl: async () => ({ crl: bytes('root_ca_crl') }),
  };
}

/**
 * Wraps a source and records what it gives. If it gives the same kind several times, the last one is
 * recorded.
 */
export function recordCollateral(source: CollateralSource): {
  readonly source: CollateralSource;
  readonly recorded: () => StoredCollateral;
} {
  const stored: Partial<Record<Member, string>> = {};
  const keep = async <T>(received: Promise<T>, members: (value: T) => StoredCollateral): Promise<T> => {
    const value = await received;
    Object.assign(stored, members(value));
    return value;
  };
  return {
    source: {
      amdVcek: (query) => keep(source.amdVcek(query), (vcek) => ({ vcek: hex(vcek) })),
      amdCrl: (query) => keep(source.amdCrl(query), ({ crl }) => ({ ark_crl: hex(crl) })),
      intelTcbInfo: (query) => keep(source.intelTcbInfo(query), signedMembers('tcbInfo', 'tcb_info')),
      intelQeIdentity: (query) =>
        keep(source.intelQeIdentity(query), signedMembers('enclaveIdentity', 'qe_identity')),
      intelPckCrl: () =>
        keep(source.intelPckCrl(), ({ crl, issuerChain }) => ({
          pck_crl: hex(crl),
          pck_crl_issuer_chain: issuerChain,
        })),
      intelRootCrl: (query) => keep(source.intelRootCrl(query), ({ crl }) => ({ root_ca_crl: hex(crl) })),
    },
    recorded: () => ({ ...stored }),
  };
}

/**
 * The stored form of a signed value. Stores nothing of a value that cannot be read: it fails its check now
 * and offline.
 */
const signedMembers =
  (member: string, name: (typeof SIGNED)[number]) =>
  ({ body, issuerChain }: SignedCollateral): StoredCollateral => {
    const read = attempt(() => readSignedJson(body, member))?.value;
    if (read === undefined) return {};
    return {
      [name]: Buffer.from(read.signed).toString('utf8'),
      [`${name}_signature`]: hex(read.signature),
      [`${name}_issuer_chain`]: issuerChain,
    };
  };
