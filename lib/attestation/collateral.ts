/** Evidence that the document does not carry: where it comes from, and what a verification makes of it. */
import { PrivatemodeError } from '../errors.ts';
import type { Product } from './snp/product.ts';

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
      if (!asked.has(question))
        asked.set(
          question,
          askSafely(allowed, () => ask(...args)),
        );
      return asked.get(question) as Promise<T>;
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
