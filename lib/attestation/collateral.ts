/** Evidence that the document does not carry: where it comes from, and what a verification makes of it. */

import { malformed } from '../crypto/der.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Finding } from './check.ts';
import type { Product } from './snp/product.ts';
import { type Crl, parseCrl } from './x509/crl.ts';

/** Each method rejects with collateral_unavailable. */
export interface CollateralSource {
  /** DER. TCB parts are the decimal SPL values of REPORTED_TCB; chipId is lower-case hex. */
  amdVcek(
    query: { product: Product; chipId: string } & Record<'bootloader' | 'tee' | 'snp' | 'microcode', number>,
  ): Promise<Uint8Array>;
  amdCrl(query: { product: Product }): Promise<RevocationList>;
  intelTcbInfo(query: { fmspc: string; evaluationDataNumber?: number }): Promise<SignedCollateral>;
  /**
   * Without a number, Intel answers from its default set, which may be older than the one that a manifest demands:
   * give this method and intelTcbInfo the same number.
   */
  intelQeIdentity(query: { evaluationDataNumber?: number }): Promise<SignedCollateral>;
  intelPckCrl(): Promise<RevocationList & { readonly issuerChain: string }>;
  /** `url` is the distribution point of the root certificate. */
  intelRootCrl(query: { url: string }): Promise<RevocationList>;
}

/** A revocation list, and whether it is the newest. */
export interface RevocationList {
  /** DER. */
  readonly crl: Uint8Array;
  /** Of a stored list that stands in for one that should have been fetched now; absent: it was fetched. */
  readonly stored?: {
    /** Wall clock, ms since 1970. */
    readonly fetchedAt: number;
    /** Why asking failed. */
    readonly because: string;
  };
}

/** A JSON body exactly as received, and the PEM chain of the certificate that signed it. */
export interface SignedCollateral {
  readonly body: string;
  readonly issuerChain: string;
}

/**
 * Wraps a source for one verification: it asks the same question once, and none where `allowed` is false. Whatever the
 * source rejects with, the caller sees collateral_unavailable.
 */
export function askOnce(source: CollateralSource, allowed: boolean): CollateralSource {
  const asked = new Map<string, Promise<unknown>>();
  const once =
    <Args extends unknown[], T>(name: string, ask: (...args: Args) => Promise<T>) =>
    (...args: Args): Promise<T> => {
      const question = `${name} ${JSON.stringify(args)}`;
      const answer = asked.get(question) ?? askSafely(allowed, () => ask(...args));
      asked.set(question, answer);
      return answer as Promise<T>;
    };
  return {
    amdVcek: once('amdVcek', (query) => source.amdVcek(query)),
    amdCrl: once('amdCrl', (query) => source.amdCrl(query)),
    intelTcbInfo: once('intelTcbInfo', (query) => source.intelTcbInfo(query)),
    intelQeIdentity: once('intelQeIdentity', (query) => source.intelQeIdentity(query)),
    intelPckCrl: once('intelPckCrl', () => source.intelPckCrl()),
    intelRootCrl: once('intelRootCrl', (query) => source.intelRootCrl(query)),
  };
}

async function askSafely<T>(allowed: boolean, ask: () => Promise<T>): Promise<T> {
  if (!allowed) {
    throw new PrivatemodeError('collateral_unavailable', 'not asked for, because an earlier check failed');
  }
  try {
    return await ask();
  } catch (cause) {
    if (cause instanceof PrivatemodeError && cause.code === 'collateral_unavailable') throw cause;
    throw new PrivatemodeError('collateral_unavailable', 'the collateral could not be fetched', { cause });
  }
}

export type ReadList = Readonly<ReturnType<typeof readRevocationList>>;

/**
 * Bytes; real lists have under 10 KB. Reading one takes time in proportion to its size, before any signature is
 * checked, so the list that whoever made the evidence put into it gets less room than one from the vendor's host.
 */
export const MAX_EMBEDDED_CRL_BYTES = 64 * 1024;
const MAX_FETCHED_CRL_BYTES = 256 * 1024;

/** Throws evidence_malformed: over `maxBytes`, or no DER revocation list. */
export function readRevocationList({ crl, stored }: RevocationList, maxBytes = MAX_FETCHED_CRL_BYTES) {
  if (crl.length > maxBytes) throw malformed('the CRL is too large');
  return { crl: parseCrl(crl), stored };
}

/**
 * Passes, and says how old the list is (`age`: seconds since its issuer signed it) and, for a stored one, since when and
 * why. Whether that is too old is for the list's own dates to say.
 */
export function obtained({ crl, stored }: ReadList, origin: string, now: Date): Finding {
  const stand =
    stored && `stored ${duration(since(stored.fetchedAt, now))} ago, because it could not be fetched now`;
  const how = stored === undefined ? origin : `${stand} (${stored.because})`;
  const age = since(crl.thisUpdate.getTime(), now);
  return { outcome: 'pass', found: `${how}; number ${crl.crlNumber}, ${issued(crl, now)}`, age };
}

/** How long ago the list was issued, in words. */
export const issued = ({ thisUpdate }: Crl, now: Date): string =>
  `issued ${duration(since(thisUpdate.getTime(), now))} ago`;

/** Seconds; 0 for what lies ahead. */
const since = (moment: number, now: Date): number => Math.max(0, Math.floor((now.getTime() - moment) / 1000));

function duration(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 2 * 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} days`;
}
