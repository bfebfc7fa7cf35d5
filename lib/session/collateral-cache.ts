/**
 * Fetches the collateral that AMD and Intel publish about a platform (docs/protocol/attestation.md 7, 10). A
 * chip's certificate (VCEK) is kept until it expires. All collateral but the VCEK is fetched each time,
 * because keys are revoked and firmware becomes outdated long before collateral expires. If a fetch fails,
 * kept collateral is used. The cache checks only form and date, because the verifier judges all collateral.
 */
import {
  type CollateralSource,
  MAX_FETCHED_BYTES,
  type Obtained,
  readRevocationList,
} from '../attestation/collateral.ts';
import { readQeDocument, readTcbDocument } from '../attestation/tdx/tcb-info.ts';
import { parseCertificate } from '../attestation/x509.ts';
import type { Clock } from '../clock.ts';
import { asPrivatemodeError, type FailureDetail, PrivatemodeError } from '../errors.ts';
import type { ControlCall } from '../network/call-limits.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';

export type CollateralCache = ReturnType<typeof createCollateralCache>;

const INTEL_PCS_HOST = 'api.trustedservices.intel.com';
const INTEL_CRL_HOST = 'certificates.trustedservices.intel.com';

type Found = Collateral & Obtained;

interface Kind {
  readonly name: string;
  /** The expiry of the item, or undefined if not stated. Throws if the verifier cannot read the item. */
  readonly expiry: (fetched: Collateral) => Date | undefined;
  readonly chainHeader?: string; // the response header with the certificate chain of the body's signer
}

/** Functions that convert revocation lists and signed documents to the form that the verifier takes. */
const asList = ({ body: crl, issuerChain, stored }: Found) => ({ crl, issuerChain, stored });
const asSigned = ({ body, issuerChain, stored }: Found) => ({ body: textOf(body), issuerChain, stored });
const textOf = (body: Uint8Array): string => Buffer.from(body).toString('utf8');

const VCEK: Kind = { name: 'VCEK', expiry: ({ body }) => parseCertificate(body).notAfter };
const CRL: Kind = { name: 'CRL', expiry: ({ body: crl }) => readRevocationList({ crl }).crl.nextUpdate };
const PCK_CRL: Kind = { ...CRL, name: 'PCK CRL', chainHeader: 'sgx-pck-crl-issuer-chain' };
const TCB_INFO: Kind = {
  name: 'TCB info',
  chainHeader: 'tcb-info-issuer-chain',
  expiry: (fetched) => readTcbDocument(asSigned(fetched)).value.nextUpdate,
};
const QE_IDENTITY: Kind = {
  name: 'QE identity',
  chainHeader: 'sgx-enclave-identity-issuer-chain',
  expiry: (fetched) => readQeDocument(asSigned(fetched)).value.nextUpdate,
};

const unavailable = (message: string, about?: { cause?: unknown; detail?: FailureDetail | undefined }) =>
  new PrivatemodeError('collateral_unavailable', message, about);

/**
 * Every method may reject with collateral_unavailable. The URLs are `https://kdsintf.amd.com` and
 * `https://api.trustedservices.intel.com`, or those of a simulator. A simulator serves Intel's root CRL, too.
 */
export function createCollateralCache(deps: {
  readonly call: ControlCall;
  readonly store: CollateralStore;
  readonly amdKdsUrl: string;
  readonly intelPcsUrl: string;
  readonly clock: Clock;
}) {
  const { call, store, clock } = deps;
  const kds = `${deps.amdKdsUrl.replace(/\/+$/, '')}/vcek/v1`;
  const pcs = deps.intelPcsUrl.replace(/\/+$/, '');

  const isCurrent = (kept: Collateral, { expiry }: Kind): boolean => {
    try {
      return kept.fetchedAt <= clock.now() && clock.now() < (expiry(kept)?.getTime() ?? 0);
    } catch {
      return false;
    }
  };

  async function load(url: string, kind: Kind): Promise<Found> {
    const found = await store.get(url);
    const kept = found !== undefined && isCurrent(found, kind) ? found : undefined;
    if (kept !== undefined && kind === VCEK) return kept;
    try {
      const { collateralAgainTimeout, collateralTimeout } = clock.times;
      const timeout = kept === undefined ? collateralTimeout : collateralAgainTimeout;
      const fetched = await fetchNow(url, kind, timeout);
      if (isCurrent(fetched, kind)) await store.set(url, fetched);
      else if (kept !== undefined) throw unavailable(`${kind.name}: the fetched one has expired`);
      return fetched; // the verifier reports expired collateral
    } catch (thrown) {
      if (kept === undefined) throw thrown;
      const because = asPrivatemodeError(thrown).message;
      return { ...kept, stored: { fetchedAt: kept.fetchedAt, because } };
    }
  }

  async function fetchNow(url: string, kind: Kind, timeout: number): Promise<Collateral> {
    const { host } = new URL(url);
    const { name, chainHeader, expiry } = kind;
    const asked = call({ method: 'GET', url, maxBytes: MAX_FETCHED_BYTES, timeout });
    const { status, headers, body, pause } = await asked.catch((thrown: unknown) => {
      const cause = asPrivatemodeError(thrown);
      // The message includes the remedy, because the error of the attestation has another remedy.
      const help = cause.code === 'upstream_tls_untrusted' ? `. ${cause.remedy}` : '';
      throw unavailable(`${name}: ${cause.message}${help}`, { cause, detail: cause.detail });
    });
    // A 404 does not reject a chip: AMD's host has sent 404 for genuine chips (docs/architecture.md D7).
    if (status !== 200)
      throw unavailable(`${name}: ${host} answered with status ${status}`, { detail: { pause } });
    try {
      const chain = chainHeader === undefined ? '' : headers[chainHeader] || undefined;
      if (typeof chain !== 'string') throw new TypeError(`no ${chainHeader}`);
      const fetched = { body, issuerChain: decodeURIComponent(chain), fetchedAt: clock.now() };
      expiry(fetched);
      return fetched;
    } catch (cause) {
      throw unavailable(`${name}: ${host} sent something that is no usable ${name}`, { cause });
    }
  }

  /** Only Intel's host is allowed, because the distribution point comes from an unverified certificate. */
  function rootCrlUrl(distributionPoint: string): string {
    // Node 22.0, on which the client library may run, does not have URL.parse.
    const url = URL.canParse(distributionPoint) ? new URL(distributionPoint) : undefined;
    if (url?.protocol !== 'https:' || url.host !== INTEL_CRL_HOST || url.username !== '')
      throw unavailable(`CRL: the distribution point is not at ${INTEL_CRL_HOST}`);
    return new URL(pcs).host === INTEL_PCS_HOST ? url.href : `${pcs}${url.pathname}${url.search}`;
  }

  /**
   * The cache as the collateral source of one verdict. If the verdict rejects the service, `distrust` deletes
   * the verdict's collateral, because forged collateral would spoil all verdicts until its expiry.
   */
  function forVerdict() {
    const asked = new Set<string>();
    const ask = (url: string, kind: Kind) => load(url, kind).finally(() => asked.add(url));
    const list = async (url: string, kind: Kind) => asList(await ask(url, kind));
    const signed = async (url: string, kind: Kind) => asSigned(await ask(url, kind));
    const numbered = (separator: string, number: number | undefined): string =>
      number === undefined ? '' : `${separator}tcbEvaluationDataNumber=${number}`;
    const source: CollateralSource = {
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
    return {
      ...source,
      async distrust(): Promise<void> {
        for (const url of asked) await store.delete(url);
      },
    };
  }

  return { ...forVerdict(), forVerdict };
}
