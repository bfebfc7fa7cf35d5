import type { CollateralSource } from '../attestation/verify.ts';
import { parseCertificate } from '../attestation/x509/certificate.ts';
import { parseCrl } from '../attestation/x509/crl.ts';
import { PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from './collateral-store.ts';
import type { HttpAnswer, HttpCall } from './http-call.ts';

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
  /** Wall clock, ms since 1970. */
  readonly now: () => number;
  /** ms per fetch. */
  readonly timeout?: number;
}

const MAX_BYTES = 8 * 1024 * 1024;
const JUST_FETCHED = 60_000;
const INTEL_PCS_HOST = 'api.trustedservices.intel.com';
const INTEL_CRL_HOST = 'certificates.trustedservices.intel.com';

/** One kind of collateral: until when it says it is good, and which header carries its signer's chain. */
interface Kind {
  readonly name: string;
  /** ms since 1970; throws for anything that is not of this kind. */
  readonly expiry: (body: Uint8Array) => number;
  readonly issuerChainHeader?: string;
}

const crlExpiry = (body: Uint8Array): number => parseCrl(body).nextUpdate?.getTime() ?? 0;

const VCEK: Kind = { name: 'VCEK', expiry: (body) => parseCertificate(body).notAfter.getTime() };
const CRL: Kind = { name: 'CRL', expiry: crlExpiry };
const PCK_CRL: Kind = { name: 'PCK CRL', expiry: crlExpiry, issuerChainHeader: 'sgx-pck-crl-issuer-chain' };
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

/**
 * Collateral from AMD's KDS and Intel's PCS (attestation.md 7, 10), kept until the expiry date that its vendor signed.
 * Nothing here is verified but its form and date: the verifier judges cached and fresh collateral alike. Concurrent
 * questions for the same URL are one fetch. Every call rejects with collateral_unavailable.
 */
export function createCollateralCache(options: CollateralCacheOptions): CollateralCache {
  const { call, store, now, timeout = 20_000 } = options;
  const kds = `${options.amdKdsUrl.replace(/\/+$/, '')}/vcek/v1`;
  const pcs = options.intelPcsUrl.replace(/\/+$/, '');
  const running = new Map<string, Promise<Collateral>>();
  /** URL → when it was fetched (0: it came from the store), for what was handed out since the last rejected verdict. */
  const handedOut = new Map<string, number>();

  async function load(url: string, kind: Kind): Promise<Collateral> {
    const stored = await store.read(url);
    if (stored !== undefined && isFresh(stored.body, kind)) {
      if (!handedOut.has(url)) handedOut.set(url, 0);
      return stored;
    }
    const collateral = await fetchCollateral(url, kind);
    if (isFresh(collateral.body, kind)) await store.write(url, collateral);
    handedOut.set(url, now());
    return collateral;
  }

  function isFresh(body: Uint8Array, kind: Kind): boolean {
    try {
      return now() < kind.expiry(body);
    } catch {
      return false;
    }
  }

  async function fetchCollateral(url: string, kind: Kind): Promise<Collateral> {
    const unavailable = (why: string, cause?: unknown): PrivatemodeError =>
      new PrivatemodeError('collateral_unavailable', `${kind.name}: ${why}`, { cause });
    let answer: HttpAnswer;
    try {
      answer = await call({ method: 'GET', url, maxBytes: MAX_BYTES, timeout });
    } catch (cause) {
      throw unavailable(cause instanceof PrivatemodeError ? cause.message : 'the fetch failed', cause);
    }
    const { host } = new URL(url);
    if (answer.status !== 200) throw unavailable(`${host} answered with status ${answer.status}`);
    try {
      kind.expiry(answer.body);
      return { body: answer.body, issuerChain: issuerChainOf(answer, kind) };
    } catch (cause) {
      throw unavailable(`${host} sent something else`, cause);
    }
  }

  function ask(url: string, kind: Kind): Promise<Collateral> {
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
      return (await ask(`${kds}/${line(product)}/crl`, CRL)).body;
    },
    async intelTcbInfo({ fmspc, evaluationDataNumber }) {
      const number =
        evaluationDataNumber === undefined ? '' : `&tcbEvaluationDataNumber=${decimal(evaluationDataNumber)}`;
      const url = `${pcs}/tdx/certification/v4/tcb?fmspc=${hex(fmspc, 6)}${number}`;
      return text(await ask(url, TCB_INFO));
    },
    async intelQeIdentity() {
      return text(await ask(`${pcs}/tdx/certification/v4/qe/identity`, QE_IDENTITY));
    },
    async intelPckCrl() {
      const url = `${pcs}/sgx/certification/v4/pckcrl?ca=platform&encoding=der`;
      const { body, issuerChain } = await ask(url, PCK_CRL);
      return { crl: body, issuerChain };
    },
    async intelRootCrl({ url }) {
      return (await ask(rootCrlUrl(url), CRL)).body;
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

function decimal(value: number): string {
  if (!Number.isSafeInteger(value) || value < 0) throw refuse('level');
  return String(value);
}
