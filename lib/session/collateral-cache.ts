import { isProduct } from '../attestation/snp/product.ts';
import type { CollateralSource, RevocationList } from '../attestation/verify.ts';
import { parseCertificate } from '../attestation/x509/certificate.ts';
import { parseCrl } from '../attestation/x509/crl.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';
import type { HttpCall, HttpResponse } from '../network/http-call.ts';
import type { Clock } from './clock.ts';

export interface CollateralCache extends CollateralSource {
  /**
   * To be called after a rejected verdict: forgets the collateral it relied on, so that tampered collateral costs one
   * verdict and not all of them until its stated expiry. What was fetched within the last minute stays: asking again
   * would bring the same, and the vendors limit identical requests.
   */
  distrust(): Promise<void>;
}

export interface CollateralCacheDeps {
  readonly call: HttpCall;
  readonly store: CollateralStore;
  /** `https://kdsintf.amd.com`, or a simulator. */
  readonly amdKdsUrl: string;
  /** `https://api.trustedservices.intel.com`, or a simulator, which is then asked for the root's CRL too. */
  readonly intelPcsUrl: string;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
}

const MAX_BYTES = 8 * 1024 * 1024;
const JUST_FETCHED = 60_000;
/** ms per fetch, and ms where a stored revocation list is at hand, which most likely says the same. */
const TIMEOUT = 20_000;
const ASK_AGAIN_TIMEOUT = 5_000;
const INTEL_PCS_HOST = 'api.trustedservices.intel.com';
const INTEL_CRL_HOST = 'certificates.trustedservices.intel.com';

/** One kind of collateral. */
interface Kind {
  readonly name: string;
  /** ms since 1970; throws for anything that is not of this kind. */
  readonly expiry: (body: Uint8Array) => number;
  /** The header that carries the chain of its signer. */
  readonly chainHeader?: string;
  /** Revocation lists: asked for each time, because a key is revoked long before the list of yesterday expires. */
  readonly askAgain?: true;
}

const VCEK: Kind = { name: 'VCEK', expiry: (body) => parseCertificate(body).notAfter.getTime() };
const CRL: Kind = {
  name: 'CRL',
  expiry: (body) => parseCrl(body).nextUpdate?.getTime() ?? 0,
  askAgain: true,
};
const PCK_CRL: Kind = { ...CRL, name: 'PCK CRL', chainHeader: 'sgx-pck-crl-issuer-chain' };
const TCB_INFO: Kind = {
  name: 'TCB info',
  expiry: (body) => signedExpiry(body, 'tcbInfo'),
  chainHeader: 'tcb-info-issuer-chain',
};
const QE_IDENTITY: Kind = {
  name: 'QE identity',
  expiry: (body) => signedExpiry(body, 'enclaveIdentity'),
  chainHeader: 'sgx-enclave-identity-issuer-chain',
};

/** The `nextUpdate` that the vendor signed along with the rest of `member`. */
function signedExpiry(body: Uint8Array, member: string): number {
  const parsed = JSON.parse(Buffer.from(body).toString('utf8')) as Record<string, { nextUpdate?: unknown }>;
  const expiry = Date.parse(String(parsed[member]?.nextUpdate));
  if (Number.isNaN(expiry)) throw new TypeError('no nextUpdate');
  return expiry;
}

type Obtained = Collateral & Pick<RevocationList, 'stored'>;

const unavailable = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('collateral_unavailable', message, { cause });

/**
 * Collateral from AMD's KDS and Intel's PCS (docs/protocol/attestation.md 7, 10), kept until the expiry date that its
 * vendor signed; a kept revocation list only stands in where asking again fails. What is kept also ends by the monotonic
 * clock, and does not count while the wall clock stands before the moment at which it was fetched. The cache checks
 * nothing but form and date: the verifier judges cached and fresh collateral alike. Concurrent questions for the same URL
 * share one fetch. Every method rejects with collateral_unavailable.
 */
export function createCollateralCache(deps: CollateralCacheDeps): CollateralCache {
  const { call, store, clock } = deps;
  const { now } = clock;
  const kds = `${deps.amdKdsUrl.replace(/\/+$/, '')}/vcek/v1`;
  const pcs = deps.intelPcsUrl.replace(/\/+$/, '');
  const running = new Map<string, Promise<Obtained>>();
  /** URL → its end on the monotonic clock, for collateral that this process has seen. */
  const ends = new Map<string, { readonly fetchedAt: number; readonly end: number }>();
  /** URL → when it was fetched (0: it came from the store), for collateral that no rejected verdict has cleared yet. */
  const handedOut = new Map<string, number>();

  function ask(url: string, kind: Kind): Promise<Obtained> {
    const known = running.get(url);
    if (known !== undefined) return known;
    const asked = load(url, kind).finally(() => running.delete(url));
    running.set(url, asked);
    return asked;
  }

  async function load(url: string, kind: Kind): Promise<Obtained> {
    const stored = await readUsable(url, kind);
    if (stored !== undefined && kind.askAgain === undefined) return fromStore(url, stored);
    try {
      const fetched = await fetchCollateral(url, kind, stored === undefined ? TIMEOUT : ASK_AGAIN_TIMEOUT);
      const expiry = kind.expiry(fetched.body);
      if (now() < expiry) {
        startMonotonic(url, fetched, expiry);
        await store.write(url, fetched);
      } else if (stored !== undefined) {
        throw unavailable(`${kind.name}: the fetched one has expired`);
      }
      handedOut.set(url, now());
      return fetched;
    } catch (error) {
      if (stored === undefined) throw error;
      const because = asPrivatemodeError(error).message;
      return fromStore(url, { ...stored, stored: { fetchedAt: stored.fetchedAt, because } });
    }
  }

  function fromStore(url: string, stored: Obtained): Obtained {
    if (!handedOut.has(url)) handedOut.set(url, 0);
    return stored;
  }

  /** Lets the collateral end by the monotonic clock too, counted from here. */
  function startMonotonic(url: string, { fetchedAt }: Collateral, expiry: number): void {
    ends.set(url, { fetchedAt, end: clock.monotonic() + expiry - now() });
  }

  async function readUsable(url: string, kind: Kind): Promise<Collateral | undefined> {
    const stored = await store.read(url);
    if (stored === undefined) return undefined;
    let expiry: number;
    try {
      expiry = kind.expiry(stored.body);
    } catch {
      return undefined;
    }
    if (!(stored.fetchedAt <= now() && now() < expiry)) return undefined;
    // Only the wall clock knows the age of what an earlier process stored.
    if (ends.get(url)?.fetchedAt !== stored.fetchedAt) startMonotonic(url, stored, expiry);
    return clock.monotonic() < (ends.get(url)?.end ?? 0) ? stored : undefined;
  }

  async function fetchCollateral(url: string, kind: Kind, timeout: number): Promise<Collateral> {
    const { host } = new URL(url);
    let response: HttpResponse;
    try {
      response = await call({ method: 'GET', url, maxBytes: MAX_BYTES, timeout });
    } catch (cause) {
      const why = cause instanceof PrivatemodeError ? explained(cause) : 'the fetch failed';
      throw unavailable(`${kind.name}: ${why}`, cause);
    }
    const { status, body } = response;
    if (status !== 200) throw unavailable(`${kind.name}: ${host} answered with status ${status}`);
    try {
      kind.expiry(body);
      return { body, issuerChain: issuerChainOf(response, kind), fetchedAt: now() };
    } catch (cause) {
      throw unavailable(`${kind.name}: ${host} sent something else`, cause);
    }
  }

  /** The host of a distribution point comes from a certificate that nobody has verified yet. */
  function rootCrlUrl(distributionPoint: string): string {
    const url = URL.parse(distributionPoint);
    if (url?.protocol !== 'https:' || url.host !== INTEL_CRL_HOST || url.username !== '') {
      throw unavailable(`CRL: the distribution point is not at ${INTEL_CRL_HOST}`);
    }
    return new URL(pcs).host === INTEL_PCS_HOST ? url.href : `${pcs}${url.pathname}${url.search}`;
  }

  async function askText(url: string, kind: Kind): Promise<{ body: string; issuerChain: string }> {
    const { body, issuerChain } = await ask(url, kind);
    return { body: Buffer.from(body).toString('utf8'), issuerChain };
  }

  return {
    async amdVcek({ product, chipId, bootloader, tee, snp, microcode }) {
      const levels = { blSPL: bootloader, teeSPL: tee, snpSPL: snp, ucodeSPL: microcode };
      const query = Object.entries(levels).map(([name, level]) => `${name}=${decimal(level)}`);
      return (await ask(`${kds}/${line(product)}/${hex(chipId, 64)}?${query.join('&')}`, VCEK)).body;
    },
    amdCrl: async ({ product }) => list(await ask(`${kds}/${line(product)}/crl`, CRL)),
    async intelTcbInfo({ fmspc, evaluationDataNumber }) {
      const number = evaluationNumber('&', evaluationDataNumber);
      return askText(`${pcs}/tdx/certification/v4/tcb?fmspc=${hex(fmspc, 6)}${number}`, TCB_INFO);
    },
    async intelQeIdentity({ evaluationDataNumber }) {
      const number = evaluationNumber('?', evaluationDataNumber);
      return askText(`${pcs}/tdx/certification/v4/qe/identity${number}`, QE_IDENTITY);
    },
    async intelPckCrl() {
      const answer = await ask(`${pcs}/sgx/certification/v4/pckcrl?ca=platform&encoding=der`, PCK_CRL);
      return { ...list(answer), issuerChain: answer.issuerChain };
    },
    intelRootCrl: async ({ url }) => list(await ask(rootCrlUrl(url), CRL)),
    async distrust() {
      for (const [url, fetchedAt] of handedOut) {
        if (now() - fetchedAt < JUST_FETCHED) continue;
        handedOut.delete(url);
        await store.remove(url);
      }
    },
  };
}

const list = ({ body: crl, stored }: Obtained): RevocationList =>
  stored === undefined ? { crl } : { crl, stored };

function issuerChainOf({ headers }: HttpResponse, { chainHeader }: Kind): string {
  if (chainHeader === undefined) return '';
  const value = headers[chainHeader];
  if (typeof value !== 'string' || value === '') throw new TypeError(`no ${chainHeader}`);
  return decodeURIComponent(value);
}

/** With what the operator can do, which the error of the attestation that this becomes does not know. */
const explained = ({ code, message, remedy }: PrivatemodeError): string =>
  code === 'upstream_tls_untrusted' ? `${message}. ${remedy}` : message;

/** A part of a URL that comes from evidence nobody has verified yet. */
function part(text: string, what: 'platform' | 'level', form: RegExp): string {
  if (!form.test(text)) throw unavailable(`the evidence asks for collateral of a strange ${what}`);
  return text;
}

function line(product: string): string {
  if (!isProduct(product)) throw unavailable('the evidence asks for collateral of a strange product');
  return product;
}

const hex = (value: string, bytes: number): string =>
  part(value.toLowerCase(), 'platform', new RegExp(`^[0-9a-f]{${2 * bytes}}$`));

const decimal = (value: number): string =>
  part(Number.isSafeInteger(value) ? String(value) : '', 'level', /^\d+$/);

const evaluationNumber = (separator: '?' | '&', number: number | undefined): string =>
  number === undefined ? '' : `${separator}tcbEvaluationDataNumber=${decimal(number)}`;
