import type { CollateralSource, RevocationList } from '../attestation/verify.ts';
import { parseCertificate } from '../attestation/x509/certificate.ts';
import { parseCrl } from '../attestation/x509/crl.ts';
import { asPrivatemodeError, CLOCK_REMEDY, PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';
import type { HttpAnswer, HttpCall } from '../network/http-call.ts';
import type { Clock } from './clock.ts';

export interface CollateralCache extends CollateralSource {
  /**
   * After a rejected verdict: forgets what it was judged by, so that collateral which somebody tampered with before it
   * was cached costs one verdict and not all of them until its stated expiry. What was fetched within the last minute
   * stays: asking again would bring the same, and the vendors limit identical requests.
   */
  distrust(): Promise<void>;
}

export interface CollateralCacheOptions {
  readonly call: HttpCall;
  readonly store: CollateralStore;
  /** `https://kdsintf.amd.com`, or a simulator. */
  readonly amdKdsUrl: string;
  /** `https://api.trustedservices.intel.com`, or a simulator, which is then asked for the root's CRL too. */
  readonly intelPcsUrl: string;
  readonly clock: Pick<Clock, 'now' | 'monotonic'>;
  /** ms per fetch. */
  readonly timeout?: number;
}

const MAX_BYTES = 8 * 1024 * 1024;
const JUST_FETCHED = 60_000;
/** ms to ask for a revocation list again: with a stored one at hand, nobody waits long for what most likely says the same. */
const ASK_AGAIN_TIMEOUT = 5_000;
const INTEL_PCS_HOST = 'api.trustedservices.intel.com';
const INTEL_CRL_HOST = 'certificates.trustedservices.intel.com';

/** One kind of collateral: until when it says it is good, and which header carries its signer's chain. */
interface Kind {
  readonly name: string;
  /** ms since 1970; throws for anything that is not of this kind. */
  readonly expiry: (body: Uint8Array) => number;
  readonly issuerChainHeader?: string;
  /**
   * Revocation lists: a stored one is used only where asking again fails. A key is revoked long before the list of
   * yesterday expires.
   */
  readonly askAgain?: true;
}

const crlExpiry = (body: Uint8Array): number => parseCrl(body).nextUpdate?.getTime() ?? 0;

const VCEK: Kind = { name: 'VCEK', expiry: (body) => parseCertificate(body).notAfter.getTime() };
const CRL: Kind = { name: 'CRL', expiry: crlExpiry, askAgain: true };
const PCK_CRL: Kind = { ...CRL, name: 'PCK CRL', issuerChainHeader: 'sgx-pck-crl-issuer-chain' };
const TCB_INFO: Kind = {
  name: 'TCB info',
  expiry: (body) => jsonExpiry(body, 'tcbInfo'),
  issuerChainHeader: 'tcb-info-issuer-chain',
};
const QE_IDENTITY: Kind = {
  name: 'QE identity',
  expiry: (body) => jsonExpiry(body, 'enclaveIdentity'),
  issuerChainHeader: 'sgx-enclave-identity-issuer-chain',
};

/** The `nextUpdate` that the vendor signed along with the rest. */
function jsonExpiry(body: Uint8Array, member: string): number {
  const parsed = JSON.parse(Buffer.from(body).toString('utf8')) as Record<string, { nextUpdate?: unknown }>;
  const expiry = Date.parse(String(parsed[member]?.nextUpdate));
  if (Number.isNaN(expiry)) throw new TypeError('no nextUpdate');
  return expiry;
}

/** What a question is answered with. */
interface Obtained extends Collateral {
  readonly stored?: NonNullable<RevocationList['stored']>;
}

/**
 * Collateral from AMD's KDS and Intel's PCS (attestation.md 7, 10), kept until the expiry date that its vendor signed;
 * revocation lists are asked for each time, and the kept one stands in where that fails. What is kept ends by the
 * monotonic clock too, and does not count while the wall clock stands before the moment at which it was fetched.
 * Nothing here is verified but its form and date: the verifier judges cached and fresh collateral alike. Concurrent
 * questions for the same URL are one fetch. Every call rejects with collateral_unavailable.
 */
export function createCollateralCache(options: CollateralCacheOptions): CollateralCache {
  const { call, store, clock, timeout = 20_000 } = options;
  const { now } = clock;
  const kds = `${options.amdKdsUrl.replace(/\/+$/, '')}/vcek/v1`;
  const pcs = options.intelPcsUrl.replace(/\/+$/, '');
  const running = new Map<string, Promise<Obtained>>();
  /** URL → end on the monotonic clock, of what this process has seen. */
  const ends = new Map<string, { readonly fetchedAt: number; readonly end: number }>();
  /** URL → when it was fetched (0: it came from the store), for what was handed out since the last rejected verdict. */
  const handedOut = new Map<string, number>();

  async function load(url: string, kind: Kind): Promise<Obtained> {
    const read = await store.read(url);
    const stored = read !== undefined && isFresh(url, read, kind) ? read : undefined;
    const keepStored = (answer: Obtained): Obtained => {
      if (!handedOut.has(url)) handedOut.set(url, 0);
      return answer;
    };
    if (stored !== undefined && kind.askAgain === undefined) return keepStored(stored);
    try {
      const collateral = await fetchCollateral(url, kind, stored === undefined ? timeout : ASK_AGAIN_TIMEOUT);
      const expiry = kind.expiry(collateral.body);
      if (now() < expiry) {
        beginsNow(url, collateral, expiry);
        await store.write(url, collateral);
      } else if (stored !== undefined) {
        throw new PrivatemodeError('collateral_unavailable', `${kind.name}: the fetched one has expired`, {
          remedy: CLOCK_REMEDY,
        });
      }
      handedOut.set(url, now());
      return collateral;
    } catch (error) {
      if (stored === undefined) throw error;
      const { fetchedAt } = stored;
      return keepStored({ ...stored, stored: { fetchedAt, because: asPrivatemodeError(error).message } });
    }
  }

  /** From here on the monotonic clock runs against it as well. */
  function beginsNow(url: string, { fetchedAt }: Collateral, expiry: number): void {
    ends.set(url, { fetchedAt, end: clock.monotonic() + expiry - now() });
  }

  function isFresh(url: string, stored: Collateral, kind: Kind): boolean {
    let expiry: number;
    try {
      expiry = kind.expiry(stored.body);
    } catch {
      return false;
    }
    if (!(stored.fetchedAt <= now() && now() < expiry)) return false;
    // Of what an earlier process stored, this one knows only the wall clock's word.
    if (ends.get(url)?.fetchedAt !== stored.fetchedAt) beginsNow(url, stored, expiry);
    return clock.monotonic() < (ends.get(url)?.end ?? 0);
  }

  async function fetchCollateral(url: string, kind: Kind, within: number): Promise<Collateral> {
    const unavailable = (why: string, cause?: unknown): PrivatemodeError =>
      new PrivatemodeError('collateral_unavailable', `${kind.name}: ${why}`, { cause });
    let answer: HttpAnswer;
    try {
      answer = await call({ method: 'GET', url, maxBytes: MAX_BYTES, timeout: within });
    } catch (cause) {
      throw unavailable(cause instanceof PrivatemodeError ? cause.message : 'the fetch failed', cause);
    }
    const { host } = new URL(url);
    if (answer.status !== 200) throw unavailable(`${host} answered with status ${answer.status}`);
    try {
      kind.expiry(answer.body);
      return { body: answer.body, issuerChain: issuerChainOf(answer, kind), fetchedAt: now() };
    } catch (cause) {
      throw unavailable(`${host} sent something else`, cause);
    }
  }

  function ask(url: string, kind: Kind): Promise<Obtained> {
    const known = running.get(url);
    if (known !== undefined) return known;
    const asked = load(url, kind).finally(() => running.delete(url));
    running.set(url, asked);
    return asked;
  }

  /** The host of a distribution point comes from a certificate that nobody has verified yet. */
  function rootCrlUrl(distributionPoint: string): string {
    const url = URL.parse(distributionPoint);
    if (url?.protocol !== 'https:' || url.host !== INTEL_CRL_HOST || url.username !== '') {
      throw new PrivatemodeError(
        'collateral_unavailable',
        `CRL: the distribution point is not at ${INTEL_CRL_HOST}`,
      );
    }
    return new URL(pcs).host === INTEL_PCS_HOST ? url.href : `${pcs}${url.pathname}${url.search}`;
  }

  const list = ({ body: crl, stored }: Obtained): RevocationList =>
    stored === undefined ? { crl } : { crl, stored };
  const text = ({ body, issuerChain }: Collateral) => ({
    body: Buffer.from(body).toString('utf8'),
    issuerChain,
  });

  return {
    async amdVcek({ product, chipId, bootloader, tee, snp, microcode }) {
      const levels = { blSPL: bootloader, teeSPL: tee, snpSPL: snp, ucodeSPL: microcode };
      const query = Object.entries(levels).map(([name, level]) => `${name}=${decimal(level)}`);
      return (await ask(`${kds}/${line(product)}/${hex(chipId, 64)}?${query.join('&')}`, VCEK)).body;
    },
    async amdCrl({ product }) {
      return list(await ask(`${kds}/${line(product)}/crl`, CRL));
    },
    async intelTcbInfo({ fmspc, evaluationDataNumber }) {
      const number = evaluationNumber('&', evaluationDataNumber);
      const url = `${pcs}/tdx/certification/v4/tcb?fmspc=${hex(fmspc, 6)}${number}`;
      return text(await ask(url, TCB_INFO));
    },
    async intelQeIdentity({ evaluationDataNumber }) {
      const number = evaluationNumber('?', evaluationDataNumber);
      return text(await ask(`${pcs}/tdx/certification/v4/qe/identity${number}`, QE_IDENTITY));
    },
    async intelPckCrl() {
      const url = `${pcs}/sgx/certification/v4/pckcrl?ca=platform&encoding=der`;
      const answer = await ask(url, PCK_CRL);
      return { ...list(answer), issuerChain: answer.issuerChain };
    },
    async intelRootCrl({ url }) {
      return list(await ask(rootCrlUrl(url), CRL));
    },
    async distrust() {
      for (const [url, fetchedAt] of handedOut) {
        if (now() - fetchedAt < JUST_FETCHED) continue;
        handedOut.delete(url);
        await store.remove(url);
      }
    },
  };
}

function issuerChainOf({ headers }: HttpAnswer, { issuerChainHeader }: Kind): string {
  if (issuerChainHeader === undefined) return '';
  const value = headers[issuerChainHeader];
  if (typeof value !== 'string' || value === '') throw new TypeError(`no ${issuerChainHeader}`);
  return decodeURIComponent(value);
}

/** What goes into a URL comes from evidence that nobody has verified yet. */
const refuse = (what: string): PrivatemodeError =>
  new PrivatemodeError('collateral_unavailable', `the evidence asks for collateral of a strange ${what}`);

function line(product: string): string {
  if (product !== 'Milan' && product !== 'Genoa') throw refuse('product');
  return product;
}

function hex(value: string, bytes: number): string {
  if (value.length !== 2 * bytes || !/^[0-9a-f]*$/i.test(value)) throw refuse('platform');
  return value.toLowerCase();
}

function evaluationNumber(separator: '?' | '&', number: number | undefined): string {
  return number === undefined ? '' : `${separator}tcbEvaluationDataNumber=${decimal(number)}`;
}

function decimal(value: number): string {
  if (!Number.isSafeInteger(value) || value < 0) throw refuse('level');
  return String(value);
}
