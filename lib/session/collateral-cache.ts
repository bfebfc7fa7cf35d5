/**
 * Fetches what AMD and Intel publish about a platform (docs/protocol/attestation.md 7, 10). A certificate is
 * kept until it expires. Everything else is asked for each time, because a key is revoked, or firmware is
 * outdated, long before yesterday's answer expires; what is kept stands in if asking fails. The verifier
 * judges both alike, so the cache checks nothing but form and date.
 */
import {
  type CollateralSource,
  MAX_FETCHED_BYTES,
  type Obtained,
  type RevocationList,
  readRevocationList,
  type SignedCollateral,
} from '../attestation/collateral.ts';
import { readQeDocument, readTcbDocument } from '../attestation/tdx/tcb-info.ts';
import { parseCertificate } from '../attestation/x509.ts';
import type { Clock } from '../clock.ts';
import { asPrivatemodeError, type FailureDetail, PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';
import type { ControlCall } from '../network/control-call.ts';

export interface CollateralCache extends CollateralSource {
  /**
   * The cache as the source of one verdict. If that rejects, `distrust` forgets what it asked for, so that
   * forged collateral spoils one verdict, and not all until the expiry that it states.
   */
  forVerdict(): CollateralSource & { distrust(): Promise<void> };
}

const INTEL_PCS_HOST = 'api.trustedservices.intel.com';
const INTEL_CRL_HOST = 'certificates.trustedservices.intel.com';

interface Kind {
  readonly name: string;
  /** When it expires, in ms since 1970. Throws for what the verifier would refuse to read. */
  readonly expiry: (fetched: Pick<Collateral, 'body' | 'issuerChain'>) => number;
  /** The response header that carries the certificate chain of the body's signer. */
  readonly chainHeader?: string;
}

const textOf = (body: Uint8Array): string => Buffer.from(body).toString('utf8');

const VCEK: Kind = { name: 'VCEK', expiry: ({ body }) => parseCertificate(body).notAfter.getTime() };
const CRL: Kind = {
  name: 'CRL',
  expiry: ({ body: crl }) => readRevocationList({ crl }).crl.nextUpdate?.getTime() ?? 0,
};
const PCK_CRL: Kind = { ...CRL, name: 'PCK CRL', chainHeader: 'sgx-pck-crl-issuer-chain' };
const TCB_INFO = signedJson('TCB info', 'tcb-info-issuer-chain', readTcbDocument);
const QE_IDENTITY = signedJson('QE identity', 'sgx-enclave-identity-issuer-chain', readQeDocument);

function signedJson(name: string, chainHeader: string, read: typeof readTcbDocument | typeof readQeDocument) {
  const expiry: Kind['expiry'] = ({ body, issuerChain }) =>
    read({ body: textOf(body), issuerChain }).value.nextUpdate.getTime();
  return { name, chainHeader, expiry };
}

const unavailable = (message: string, cause?: PrivatemodeError, detail?: FailureDetail): PrivatemodeError =>
  new PrivatemodeError('collateral_unavailable', message, { cause, detail: detail ?? cause?.detail });

/**
 * Every method rejects with collateral_unavailable. The URLs are `https://kdsintf.amd.com` and
 * `https://api.trustedservices.intel.com`, or those of a simulator, which serves the root's CRL, too.
 */
export function createCollateralCache(deps: {
  readonly call: ControlCall;
  readonly store: CollateralStore;
  readonly amdKdsUrl: string;
  readonly intelPcsUrl: string;
  readonly clock: Clock;
}): CollateralCache {
  const { call, store, clock } = deps;
  const kds = `${deps.amdKdsUrl.replace(/\/+$/, '')}/vcek/v1`;
  const pcs = deps.intelPcsUrl.replace(/\/+$/, '');

  const isCurrent = (kept: Collateral, { expiry }: Kind): boolean => {
    try {
      return kept.fetchedAt <= clock.now() && clock.now() < expiry(kept);
    } catch {
      return false;
    }
  };

  async function load(url: string, kind: Kind): Promise<Collateral & Obtained> {
    const found = await store.get(url);
    const kept = found !== undefined && isCurrent(found, kind) ? found : undefined;
    if (kept !== undefined && kind === VCEK) return kept;
    try {
      const fetched = await fetchNow(url, kind, kept !== undefined);
      if (isCurrent(fetched, kind)) await store.set(url, fetched);
      else if (kept !== undefined) throw unavailable(`${kind.name}: the fetched one has expired`);
      return fetched; // of an expired one the verifier says so
    } catch (thrown) {
      if (kept === undefined) throw thrown;
      const because = asPrivatemodeError(thrown).message;
      return { ...kept, stored: { fetchedAt: kept.fetchedAt, because } };
    }
  }

  async function fetchNow(url: string, kind: Kind, isKept: boolean): Promise<Collateral> {
    const { host } = new URL(url);
    const { collateralAgainTimeout, collateralTimeout } = clock.times;
    const timeout = isKept ? collateralAgainTimeout : collateralTimeout;
    const asked = call({ method: 'GET', url, maxBytes: MAX_FETCHED_BYTES, timeout });
    const { status, headers, body, pause } = await asked.catch((thrown: unknown) => {
      const error = asPrivatemodeError(thrown);
      // The error of the attestation that this one becomes has another remedy.
      const help = error.code === 'upstream_tls_untrusted' ? `. ${error.remedy}` : '';
      throw unavailable(`${kind.name}: ${error.message}${help}`, error);
    });
    // No rejection: while AMD's host is disturbed, it answers 404 for known chips too (docs/decisions.md 7).
    if (status !== 200)
      throw unavailable(`${kind.name}: ${host} answered with status ${status}`, undefined, { pause });
    try {
      const { chainHeader } = kind;
      const chain = chainHeader === undefined ? '' : headers[chainHeader] || undefined;
      if (typeof chain !== 'string') throw new TypeError(`no ${chainHeader}`);
      const fetched = { body, issuerChain: decodeURIComponent(chain), fetchedAt: clock.now() };
      kind.expiry(fetched);
      return fetched;
    } catch (cause) {
      const message = `${kind.name}: ${host} sent something that is no usable ${kind.name}`;
      throw unavailable(message, asPrivatemodeError(cause), {});
    }
  }

  /** Only Intel's host, because the distribution point comes from a certificate that nobody has verified. */
  function rootCrlUrl(distributionPoint: string): string {
    // Node 22.0 has no URL.parse
    const url = URL.canParse(distributionPoint) ? new URL(distributionPoint) : undefined;
    if (url?.protocol !== 'https:' || url.host !== INTEL_CRL_HOST || url.username !== '')
      throw unavailable(`CRL: the distribution point is not at ${INTEL_CRL_HOST}`);
    return new URL(pcs).host === INTEL_PCS_HOST ? url.href : `${pcs}${url.pathname}${url.search}`;
  }

  function sourceOf(asked: Set<string>): CollateralSource {
    const ask = (url: string, kind: Kind) => load(url, kind).finally(() => asked.add(url));
    const list = async (url: string, kind: Kind): Promise<RevocationList & { issuerChain: string }> => {
      const { body: crl, issuerChain, stored } = await ask(url, kind);
      return { crl, issuerChain, stored };
    };
    const signed = async (url: string, kind: Kind): Promise<SignedCollateral> => {
      const { body, issuerChain, stored } = await ask(url, kind);
      return { body: textOf(body), issuerChain, stored };
    };
    const numbered = (separator: string, number: number | undefined): string =>
      number === undefined ? '' : `${separator}tcbEvaluationDataNumber=${number}`;
    return {
      async amdVcek({ product, chipId, bootloader, tee, snp, microcode }) {
        const levels = `blSPL=${bootloader}&teeSPL=${tee}&snpSPL=${snp}&ucodeSPL=${microcode}`;
        return (await ask(`${kds}/${product}/${chipId}?${levels}`, VCEK)).body;
      },
      amdCrl: ({ product }) => list(`${kds}/${product}/crl`, CRL),
      intelTcbInfo: ({ fmspc, evaluationDataNumber: number }) =>
        signed(`${pcs}/tdx/certification/v4/tcb?fmspc=${fmspc}${numbered('&', number)}`, TCB_INFO),
      intelQeIdentity: ({ evaluationDataNumber: number }) =>
        signed(`${pcs}/tdx/certification/v4/qe/identity${numbered('?', number)}`, QE_IDENTITY),
      intelPckCrl: () => list(`${pcs}/sgx/certification/v4/pckcrl?ca=platform&encoding=der`, PCK_CRL),
      intelRootCrl: async ({ url }) => list(rootCrlUrl(url), CRL),
    };
  }

  return {
    ...sourceOf(new Set()),
    forVerdict() {
      const asked = new Set<string>();
      return {
        ...sourceOf(asked),
        async distrust() {
          for (const url of asked) await store.delete(url);
        },
      };
    },
  };
}
