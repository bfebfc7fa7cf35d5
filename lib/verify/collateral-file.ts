/**
 * What AMD and Intel say about a platform, in one JSON file: certificate chains as PEM, certificates and revocation
 * lists as hex of their DER, Intel's signed values as exactly the text that was signed, with their signatures in hex.
 */
import { attempt, valueIn } from '../attestation/attempt.ts';
import { parseStrictJson } from '../attestation/strict-json.ts';
import { readSignedJson } from '../attestation/tdx/signed-json.ts';
import type { CollateralSource, RevocationList } from '../attestation/verify.ts';
import { PrivatemodeError } from '../errors.ts';

const MEMBERS = [
  'vcek',
  'ark_crl',
  'tcb_info_issuer_chain',
  'tcb_info',
  'tcb_info_signature',
  'qe_identity_issuer_chain',
  'qe_identity',
  'qe_identity_signature',
  'pck_crl_issuer_chain',
  'pck_crl',
  'root_ca_crl',
] as const;

type Member = (typeof MEMBERS)[number];
/** Members that were not needed are left out. */
export type StoredCollateral = { readonly [M in Member]?: string };

const HEX = ['vcek', 'ark_crl', 'pck_crl', 'root_ca_crl'] as const satisfies readonly Member[];
const LIMITS = { depth: 4, values: 1000 };

/** Unknown members are ignored. Throws what `refuse` makes of a text that is not such an object. */
export function parseCollateral(bytes: Uint8Array, refuse: (words: string) => Error): StoredCollateral {
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
  return stored;
}

/** Answers from what was stored, and from nothing else; `place` is where it would have to be, for the error. */
export function storedCollateral(stored: StoredCollateral, place: string): CollateralSource {
  const get = (name: Member): string => {
    const value = stored[name];
    if (value === undefined) throw new PrivatemodeError('collateral_unavailable', `${place} has no ${name}`);
    return value;
  };
  const bytes = (name: (typeof HEX)[number]): Uint8Array => new Uint8Array(Buffer.from(get(name), 'hex'));
  const signed = (member: string, name: 'tcb_info' | 'qe_identity') => ({
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

/** The same source, and what it has answered so far, to be stored. Of several answers of a kind the last one stays. */
export function recordCollateral(source: CollateralSource): {
  readonly source: CollateralSource;
  readonly recorded: () => StoredCollateral;
} {
  const stored: Partial<Record<Member, string>> = {};
  const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
  const keepList = async <T extends RevocationList>(
    name: 'ark_crl' | 'pck_crl' | 'root_ca_crl',
    answer: Promise<T>,
  ): Promise<T> => {
    const list = await answer;
    stored[name] = hex(list.crl);
    return list;
  };
  const keepSigned = async <T extends { readonly body: string; readonly issuerChain: string }>(
    member: string,
    name: 'tcb_info' | 'qe_identity',
    answer: Promise<T>,
  ): Promise<T> => {
    const received = await answer;
    // What cannot be read fails its check now, and fails it as missing later.
    const read = valueIn(attempt(() => readSignedJson(received.body, member)));
    if (read !== undefined) {
      stored[name] = Buffer.from(read.signed).toString('utf8');
      stored[`${name}_signature`] = hex(read.signature);
      stored[`${name}_issuer_chain`] = received.issuerChain;
    }
    return received;
  };
  return {
    source: {
      async amdVcek(query) {
        const vcek = await source.amdVcek(query);
        stored.vcek = hex(vcek);
        return vcek;
      },
      amdCrl: (query) => keepList('ark_crl', source.amdCrl(query)),
      intelTcbInfo: (query) => keepSigned('tcbInfo', 'tcb_info', source.intelTcbInfo(query)),
      intelQeIdentity: (query) => keepSigned('enclaveIdentity', 'qe_identity', source.intelQeIdentity(query)),
      async intelPckCrl() {
        const answer = await keepList('pck_crl', source.intelPckCrl());
        stored.pck_crl_issuer_chain = answer.issuerChain;
        return answer;
      },
      intelRootCrl: (query) => keepList('root_ca_crl', source.intelRootCrl(query)),
    },
    recorded: () => ({ ...stored }),
  };
}
