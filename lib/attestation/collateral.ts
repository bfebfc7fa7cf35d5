/**
 * Collateral: evidence that the document does not carry and that a verification asks the vendors for
 * (certificates, revocation lists, TCB info). This file states what a source offers, asks it each question
 * once, and reads revocation lists.
 */

import { malformed } from '../crypto/der.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Finding } from './check.ts';
import { type Crl, parseCrl } from './crl.ts';
import type { Product } from './snp/product.ts';

/** Every method rejects only with collateral_unavailable. */
export interface CollateralSource {
  /** DER. TCB parts are the decimal SPL values of REPORTED_TCB; chipId is lower-case hex. */
  amdVcek(
    query: { product: Product; chipId: string } & Record<'bootloader' | 'tee' | 'snp' | 'microcode', number>,
  ): Promise<Uint8Array>;
  amdCrl(query: { product: Product }): Promise<RevocationList>;
  intelTcbInfo(query: { fmspc: string; evaluationDataNumber?: number }): Promise<SignedCollateral>;
  /**
   * Give this method and intelTcbInfo the same number. Without a number, Intel serves its default set, which
   * may be older than the set that a manifest demands.
   */
  intelQeIdentity(query: { evaluationDataNumber?: number }): Promise<SignedCollateral>;
  intelPckCrl(): Promise<RevocationList & { readonly issuerChain: string }>;
  /** `url` is the distribution point of the root certificate. */
  intelRootCrl(query: { url: string }): Promise<RevocationList>;
}

/** Whether collateral is the newest. */
export interface Obtained {
  /** Set if it was stored and stands in for what should have been fetched now; absent if it was fetched. */
  readonly stored?:
    | {
        /** Wall clock, ms since 1970. */
        readonly fetchedAt: number;
        /** Why the fetch failed. */
        readonly because: string;
      }
    | undefined;
}

export interface RevocationList extends Obtained {
  /** DER. */
  readonly crl: Uint8Array;
}

/** A JSON body exactly as received, and the PEM chain of the certificate that signed it. */
export interface SignedCollateral extends Obtained {
  readonly body: string;
  readonly issuerChain: string;
}

/**
 * Wraps a source for one verification. Each question goes to the source once, or never if `allowed` is false.
 * Every rejection becomes collateral_unavailable, whatever the source rejects with. Calls `arrived` for each
 * answer.
 */
export function askOnce(
  source: CollateralSource,
  allowed: boolean,
  arrived: () => void = () => {},
): CollateralSource {
  const asked = new Map<string, Promise<unknown>>();
  const noted = <T>(answer: T): T => {
    arrived();
    return answer;
  };
  const once =
    <Args extends unknown[], T>(name: string, ask: (...args: Args) => Promise<T>) =>
    (...args: Args): Promise<T> => {
      const question = `${name} ${JSON.stringify(args)}`;
      const pending = asked.get(question) ?? askSafely(allowed, () => ask(...args).then(noted));
      asked.set(question, pending);
      return pending as Promise<T>;
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
 * Bytes. Real lists have under 10 KB. The time to read a list grows with its size, and no signature has been
 * checked by then. So the limit is lower for a list in the evidence, which the sender of the evidence chose,
 * than for a list from the vendor's host.
 */
export const MAX_EMBEDDED_CRL_BYTES = 64 * 1024;
/** Bytes. No check accepts more from a vendor's host, so nobody needs to fetch more. */
export const MAX_FETCHED_BYTES = 256 * 1024;

/** Throws evidence_malformed if the list has more than `maxBytes` bytes, or is no DER revocation list. */
export function readRevocationList({ crl, stored }: RevocationList, maxBytes = MAX_FETCHED_BYTES) {
  if (crl.length > maxBytes) throw malformed('the CRL is too large');
  return { crl: parseCrl(crl), stored };
}

/**
 * Reads a list that was fetched. Throws collateral_unavailable where `readRevocationList` throws
 * evidence_malformed: its host sent it, and not the service.
 */
export const readFetchedList = (list: RevocationList): ReadList =>
  asCollateral('the CRL', () => readRevocationList(list));

/** Turns the readers' evidence_malformed into collateral_unavailable, for `read` that reads fetched data. */
export function asCollateral<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof PrivatemodeError)) throw error;
    throw new PrivatemodeError('collateral_unavailable', `${what} cannot be read: ${error.message}`);
  }
}

/** `origin`, or for what was stored: how long ago it was fetched, and why it could not be fetched now. */
export function howObtained({ stored }: Obtained, origin: string, now: Date): string {
  if (stored === undefined) return origin;
  const ago = duration(since(stored.fetchedAt, now));
  return `stored ${ago} ago, because it could not be fetched now (${stored.because})`;
}

/**
 * Always passes. Says how old the list is (`age`: seconds since its issuer signed it), and how it was
 * obtained. Other checks decide by the list's own dates whether it is too old.
 */
export function obtained(list: ReadList, origin: string, now: Date): Finding {
  const { crl } = list;
  const found = `${howObtained(list, origin, now)}; number ${crl.crlNumber}, ${issued(crl, now)}`;
  return { outcome: 'pass', found, age: since(crl.thisUpdate.getTime(), now) };
}

/** How long ago the list was issued, in words. */
export const issued = ({ thisUpdate }: Crl, now: Date): string =>
  `issued ${duration(since(thisUpdate.getTime(), now))} ago`;

/** Seconds since `moment`; 0 if it lies in the future. */
const since = (moment: number, now: Date): number => Math.max(0, Math.floor((now.getTime() - moment) / 1000));

function duration(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 2 * 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 2 * 86_400 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86_400)} days`;
}
