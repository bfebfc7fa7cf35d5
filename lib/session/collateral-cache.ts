import type { Check } from '../attestation/check.ts';
import { isProduct } from '../attestation/snp/product.ts';
import type { CollateralSource, RevocationList, SignedCollateral } from '../attestation/verify.ts';
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
   * would bring the same, and the vendors limit identical requests. How new the revocation lists were stays known, or whoever is revoked
   * could bring back an older one; not so where the signature of one failed, since its date may be anything. `checks` are the verdict's.
   */
  distrust(checks: readonly Pick<Check, 'id' | 'outcome'>[]): Promise<void>;
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
/** ms per fetch, and ms where a stored revocation list exists, which most likely says the same. */
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
  /**
   * Of revocation lists, ms since 1970. They are asked for each time, because a key is revoked long before the list of yesterday expires,
   * and an older one never takes the place of a newer one: it would undo a revocation.
   */
  readonly issued?: (body: Uint8Array) => number;
}

const VCEK: Kind = { name: 'VCEK', expiry: (body) => parseCertificate(body).notAfter.getTime() };
const CRL: Kind = {
  name: 'CRL',
  expiry: (body) => parseCrl(body).nextUpdate?.getTime() ?? 0,
  issued: (body) => parseCrl(body).thisUpdate.getTime(),
};
const PCK_CRL: Kind = { ...CRL, name: 'PCK CRL', chainHeader: 'sgx-pck-crl-issuer-chain' };
const TCB_INFO = signedJson('TCB info', 'tcbInfo', 'tcb-info-issuer-chain');
const QE_IDENTITY = signedJson('QE identity', 'enclaveIdentity', 'sgx-enclave-identity-issuer-chain');

/** The vendor signed its `nextUpdate` along with the rest of `member`. */
function signedJson(name: string, member: string, chainHeader: string): Kind {
  const expiry = (body: Uint8Array): number => {
    const parsed = JSON.parse(textOf(body)) as Record<string, { nextUpdate?: unknown }>;
    const date = Date.parse(String(parsed[member]?.nextUpdate));
    if (Number.isNaN(date)) throw new TypeError('no nextUpdate');
    return date;
  };
  return { name, expiry, chainHeader };
}

type Obtained = Collateral & Pick<RevocationList, 'stored'>;

const textOf = (body: Uint8Array): string => Buffer.from(body).toString('utf8');

const unavailable = (message: string, cause?: unknown): PrivatemodeError =>
  new PrivatemodeError('collateral_unavailable', message, {
    cause,
    detail: cause instanceof PrivatemodeError ? cause.detail : undefined,
  });

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
  /** By URL, what this process has stored or read since the last rejected verdict; `end` is on the monotonic clock. */
  const seen = new Map<string, { from: 'fetched' | 'store'; fetchedAt: number; end: number }>();
  /** By URL, when the newest revocation list was issued that this process has had, rejected verdicts or not. */
  const newest = new Map<string, number>();

  function ask(url: string, kind: Kind): Promise<Obtained> {
    const asked = running.get(url) ?? load(url, kind).finally(() => running.delete(url));
    running.set(url, asked);
    return asked;
  }

  async function load(url: string, kind: Kind): Promise<Obtained> {
    const stored = await readUsable(url, kind);
    if (stored !== undefined && kind.issued === undefined) return stored;
    try {
      return await fetchCollateral(url, kind, stored !== undefined);
    } catch (error) {
      if (stored === undefined) throw error;
      const because = asPrivatemodeError(error).message;
      return { ...stored, stored: { fetchedAt: stored.fetchedAt, because } };
    }
  }

  function remember(url: string, { fetchedAt }: Collateral, expiry: number, from: 'fetched' | 'store') {
    const entry = { from, fetchedAt, end: clock.monotonic() + expiry - now() };
    seen.set(url, entry);
    return entry;
  }

  async function readUsable(url: string, kind: Kind): Promise<Collateral | undefined> {
    const stored = await store.get(url);
    if (stored === undefined) return undefined;
    let expiry: number;
    try {
      expiry = kind.expiry(stored.body);
    } catch {
      return undefined;
    }
    if (!(stored.fetchedAt <= now() && now() < expiry)) return undefined;
    if (isOlder(url, kind, stored.body)) return undefined;
    const known = seen.get(url);
    // Only the wall clock knows the age of what an earlier process stored.
    const same = known?.fetchedAt === stored.fetchedAt ? known : remember(url, stored, expiry, 'store');
    return clock.monotonic() < same.end ? stored : undefined;
  }

  /** Whether it is a revocation list issued before another one from there; remembers it if not. */
  function isOlder(url: string, { issued }: Kind, body: Uint8Array): boolean {
    const date = issued?.(body);
    if (date === undefined) return false;
    const before = newest.get(url) ?? date;
    newest.set(url, Math.max(before, date));
    return date < before;
  }

  /** `kept`: a stored one exists, so an expired one is not wanted, and the answer is not waited for as long. */
  async function fetchCollateral(url: string, kind: Kind, kept: boolean): Promise<Collateral> {
    const { host } = new URL(url);
    const timeout = kept ? ASK_AGAIN_TIMEOUT : TIMEOUT;
    const asked = call({ method: 'GET', url, maxBytes: MAX_BYTES, timeout });
    const { status, headers, body } = await asked.catch((cause: unknown) => {
      const why = cause instanceof PrivatemodeError ? explained(cause) : 'the fetch failed';
      throw unavailable(`${kind.name}: ${why}`, cause);
    });
    const isTooOld = status === 410 && url.includes(EVALUATION_NUMBER); // docs/protocol/attestation.md 10
    const why = isTooOld ? ', as the evaluation number that the manifest asks for is too old' : '';
    if (status !== 200) throw unavailable(`${kind.name}: ${host} answered with status ${status}${why}`);
    let expiry: number;
    let issuerChain: string;
    try {
      expiry = kind.expiry(body);
      issuerChain = issuerChainOf(headers, kind);
    } catch (cause) {
      throw unavailable(`${kind.name}: ${host} sent something else`, cause);
    }
    const fetched = { body, issuerChain, fetchedAt: now() };
    if (now() < expiry) {
      if (isOlder(url, kind, body)) throw unavailable(`${kind.name}: ${host} sent an older one than before`);
      remember(url, fetched, expiry, 'fetched');
      await store.set(url, fetched);
    } else if (kept) {
      throw unavailable(`${kind.name}: the fetched one has expired`);
    }
    return fetched;
  }

  /** The host of a distribution point comes from a certificate that nobody has verified yet. */
  function rootCrlUrl(distributionPoint: string): string {
    const url = URL.canParse(distributionPoint) ? new URL(distributionPoint) : undefined; // Node 22.0 has no URL.parse
    if (url?.protocol !== 'https:' || url.host !== INTEL_CRL_HOST || url.username !== '') {
      throw unavailable(`CRL: the distribution point is not at ${INTEL_CRL_HOST}`);
    }
    return new URL(pcs).host === INTEL_PCS_HOST ? url.href : `${pcs}${url.pathname}${url.search}`;
  }

  async function askText(url: string, kind: Kind): Promise<SignedCollateral> {
    const { body, issuerChain } = await ask(url, kind);
    return { body: textOf(body), issuerChain };
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
    async distrust(checks) {
      if (checks.some(({ id, outcome }) => id.endsWith('crl.signature') && outcome === 'fail'))
        newest.clear();
      for (const [url, { fetchedAt, from }] of seen) {
        if (from === 'fetched' && now() - fetchedAt < JUST_FETCHED) continue;
        seen.delete(url);
        await store.delete(url);
      }
    },
  };
}

const list = ({ body: crl, stored }: Obtained): RevocationList =>
  stored === undefined ? { crl } : { crl, stored };

function issuerChainOf(headers: HttpResponse['headers'], { chainHeader }: Kind): string {
  if (chainHeader === undefined) return '';
  const value = headers[chainHeader];
  if (typeof value !== 'string' || value === '') throw new TypeError(`no ${chainHeader}`);
  return decodeURIComponent(value);
}

/** With what the operator can do, which the error of the attestation that this becomes does not know. */
const explained = ({ code, message, remedy }: PrivatemodeError): string =>
  code === 'upstream_tls_untrusted' ? `${message}. ${remedy}` : message;

/** A part of a URL that comes from evidence nobody has verified yet. */
function part(text: string, what: 'platform' | 'level' | 'product', fits: boolean): string {
  if (!fits) throw unavailable(`the evidence asks for collateral of a strange ${what}`);
  return text;
}

const line = (product: string): string => part(product, 'product', isProduct(product));

const hex = (value: string, bytes: number): string =>
  part(value.toLowerCase(), 'platform', new RegExp(`^[0-9a-f]{${2 * bytes}}$`, 'i').test(value));

const decimal = (value: number): string =>
  part(String(value), 'level', Number.isSafeInteger(value) && value >= 0);

const EVALUATION_NUMBER = 'tcbEvaluationDataNumber';
const evaluationNumber = (separator: '?' | '&', number: number | undefined): string =>
  number === undefined ? '' : `${separator}${EVALUATION_NUMBER}=${decimal(number)}`;
