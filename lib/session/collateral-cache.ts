/**
 * Fetches the collateral of AMD and Intel (certificates, revocation lists, signed values), and keeps it until
 * it expires.
 */
import type { Check } from '../attestation/check.ts';
import { MAX_FETCHED_BYTES, type Obtained, readRevocationList } from '../attestation/collateral.ts';
import { isProduct } from '../attestation/snp/product.ts';
import { readQeDocument, readTcbDocument, type SignedDocument } from '../attestation/tdx/tcb-info.ts';
import {
  type CollateralSource,
  checksAbout,
  type RevocationList,
  type SignedCollateral,
} from '../attestation/verify-evidence.ts';
import { parseCertificate } from '../attestation/x509.ts';
import type { Clock } from '../clock.ts';
import { asPrivatemodeError, PrivatemodeError } from '../errors.ts';
import type { Collateral, CollateralStore } from '../network/collateral-store.ts';
import type { ControlCall, HttpResponse } from '../network/control-call.ts';

export interface CollateralCache extends CollateralSource {
  /** The cache as the source of one verdict. */
  forVerdict(): VerdictCollateral;
  /** Later questions do not wait for a fetch that runs now: after a lost renewal it may never end. */
  abandonFetches(): void;
}

export interface VerdictCollateral extends CollateralSource {
  /**
   * Call this with the checks of the verdict if it rejects. Forgets the collateral that the verdict asked
   * for, so that tampered collateral spoils one verdict, and not all of them until its stated expiry. Other
   * collateral stays: a verdict that asked for none, as on another manifest, says nothing about any.
   * Collateral that was fetched within the last minute stays too: another fetch would bring the same, and the
   * vendors limit identical requests. The cache still knows how new it was; otherwise somebody whose key is
   * revoked could bring back an older list. It forgets that too if the vendor did not sign some of it,
   * because the date of that may be anything.
   */
  distrust(checks: readonly Pick<Check, 'id' | 'outcome'>[]): Promise<void>;
}

export interface CollateralCacheDeps {
  readonly call: ControlCall;
  readonly store: CollateralStore;
  /** `https://kdsintf.amd.com`, or a simulator. */
  readonly amdKdsUrl: string;
  /** `https://api.trustedservices.intel.com`, or a simulator, which then also serves the root's CRL. */
  readonly intelPcsUrl: string;
  readonly clock: Clock;
}

const INTEL_PCS_HOST = 'api.trustedservices.intel.com';
const INTEL_CRL_HOST = 'certificates.trustedservices.intel.com';

/** One kind of collateral. */
interface Kind {
  readonly name: string;
  /**
   * When it expires, in ms since 1970. Throws for what is not of this kind, and for what the verifier refuses
   * to read: no verdict would say of its date that nobody signed it.
   */
  readonly expiry: (fetched: Fetched) => number;
  /** The response header that carries the certificate chain of the body's signer. */
  readonly chainHeader?: string;
  /**
   * When it was issued, in ms since 1970; certificates do not have this member. The cache asks for other
   * kinds each time, because a key is revoked, or firmware is outdated, long before yesterday's answer
   * expires. An older one never takes the place of a newer one: that would undo a revocation.
   */
  readonly issued?: (fetched: Fetched) => number;
}

type Fetched = Pick<Collateral, 'body' | 'issuerChain'>;

const VCEK: Kind = { name: 'VCEK', expiry: ({ body }) => parseCertificate(body).notAfter.getTime() };
const CRL: Kind = {
  name: 'CRL',
  expiry: ({ body: crl }) => readRevocationList({ crl }).crl.nextUpdate?.getTime() ?? 0,
  issued: ({ body: crl }) => readRevocationList({ crl }).crl.thisUpdate.getTime(),
};
const PCK_CRL: Kind = { ...CRL, name: 'PCK CRL', chainHeader: 'sgx-pck-crl-issuer-chain' };
const TCB_INFO = signedJson('TCB info', 'tcb-info-issuer-chain', readTcbDocument);
const QE_IDENTITY = signedJson('QE identity', 'sgx-enclave-identity-issuer-chain', readQeDocument);

/** JSON that the vendor signed, with its dates in it. */
function signedJson(
  name: string,
  chainHeader: string,
  read: (fetched: SignedCollateral) => Pick<SignedDocument, 'value'>,
): Kind {
  const signed = (fetched: Fetched) => read({ ...fetched, body: textOf(fetched.body) }).value;
  return {
    name,
    chainHeader,
    expiry: (fetched) => signed(fetched).nextUpdate.getTime(),
    issued: (fetched) => signed(fetched).issueDate.getTime(),
  };
}

/** The checks that say who signed a date that `Kind.issued` reads. */
const DATED = checksAbout('collateral signature', 'collateral signer');

type Loaded = Collateral & Obtained;

const textOf = (body: Uint8Array): string => Buffer.from(body).toString('utf8');

const unavailable = (
  message: string,
  cause?: unknown,
  detail = cause instanceof PrivatemodeError ? cause.detail : undefined,
): PrivatemodeError => new PrivatemodeError('collateral_unavailable', message, { cause, detail });

/**
 * Collateral from AMD's KDS and Intel's PCS (docs/protocol/attestation.md 7, 10). The cache keeps it until
 * the expiry date that its vendor signed. Except for certificates, it uses what is kept only if asking again
 * fails. Kept collateral also ends by the monotonic clock, and does not count while the wall clock stands
 * before the moment at which it was fetched. The cache checks nothing but form and date: the verifier judges
 * cached and fresh collateral alike. Concurrent questions for the same URL share one fetch. Every method
 * rejects with collateral_unavailable.
 */
export function createCollateralCache(deps: CollateralCacheDeps): CollateralCache {
  const { call, store, clock } = deps;
  const { now, times } = clock;
  const kds = `${deps.amdKdsUrl.replace(/\/+$/, '')}/vcek/v1`;
  const pcs = deps.intelPcsUrl.replace(/\/+$/, '');
  const running = new Map<string, Promise<Loaded>>();
  /**
   * By URL: the collateral that this process has stored or read since the last rejected verdict that asked
   * for it. `end`: when it expires, on the monotonic clock.
   */
  const seen = new Map<string, { from: 'fetched' | 'store'; fetchedAt: number; end: number }>();
  /**
   * By URL: when the newest collateral that this process has had was issued. A rejected verdict that asked
   * for it clears the date, but only if the signature of such collateral failed.
   */
  const newest = new Map<string, number>();

  function shared(url: string, kind: Kind): Promise<Loaded> {
    const known = running.get(url);
    if (known !== undefined) return known;
    const asked = load(url, kind).finally(() => {
      if (running.get(url) === asked) running.delete(url); // not what came after abandonFetches
    });
    running.set(url, asked);
    return asked;
  }

  async function load(url: string, kind: Kind): Promise<Loaded> {
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
      expiry = kind.expiry(stored);
    } catch {
      return undefined;
    }
    if (!(stored.fetchedAt <= now() && now() < expiry)) return undefined;
    if (isOlder(url, kind, stored)) return undefined;
    const known = seen.get(url);
    // Only the wall clock knows the age of collateral that an earlier process stored.
    const same = known?.fetchedAt === stored.fetchedAt ? known : remember(url, stored, expiry, 'store');
    return clock.monotonic() < same.end ? stored : undefined;
  }

  /** Whether this was issued before another one from this URL. Remembers the newest date. */
  function isOlder(url: string, { issued }: Kind, fetched: Fetched): boolean {
    const date = issued?.(fetched);
    if (date === undefined) return false;
    const before = newest.get(url) ?? date;
    newest.set(url, Math.max(before, date));
    return date < before;
  }

  /** `kept`: a stored one exists. Then an expired one is an error, and the fetch gets less time. */
  async function fetchCollateral(url: string, kind: Kind, kept: boolean): Promise<Collateral> {
    const { host } = new URL(url);
    const timeout = kept ? times.collateralAgainTimeout : times.collateralTimeout;
    const asked = call({ method: 'GET', url, maxBytes: MAX_FETCHED_BYTES, timeout });
    const { status, headers, body, pause } = await asked.catch((cause: unknown) => {
      const why = cause instanceof PrivatemodeError ? explained(cause) : 'the fetch failed';
      throw unavailable(`${kind.name}: ${why}`, cause);
    });
    if (status !== 200) {
      const message = `${kind.name}: ${host} answered with status ${status}${meaningOf(status, url, kind)}`;
      throw unavailable(message, undefined, { pause });
    }
    let expiry: number;
    let fetched: Collateral;
    try {
      fetched = { body, issuerChain: issuerChainOf(headers, kind), fetchedAt: now() };
      expiry = kind.expiry(fetched);
    } catch (cause) {
      throw unavailable(`${kind.name}: ${host} sent something that is no usable ${kind.name}`, cause);
    }
    if (now() < expiry) {
      if (isOlder(url, kind, fetched))
        throw unavailable(`${kind.name}: ${host} sent an older one than before`);
      remember(url, fetched, expiry, 'fetched');
      await store.set(url, fetched);
    } else if (kept) {
      throw unavailable(`${kind.name}: the fetched one has expired`);
    }
    return fetched;
  }

  /**
   * Accepts only Intel's host, because the distribution point comes from a certificate that nobody has
   * verified yet.
   */
  function rootCrlUrl(distributionPoint: string): string {
    // Node 22.0 has no URL.parse
    const url = URL.canParse(distributionPoint) ? new URL(distributionPoint) : undefined;
    if (url?.protocol !== 'https:' || url.host !== INTEL_CRL_HOST || url.username !== '') {
      throw unavailable(`CRL: the distribution point is not at ${INTEL_CRL_HOST}`);
    }
    return new URL(pcs).host === INTEL_PCS_HOST ? url.href : `${pcs}${url.pathname}${url.search}`;
  }

  /** A source that notes in `asked` the URLs that it is asked for. */
  function sourceOf(asked: Set<string>): CollateralSource {
    function ask(url: string, kind: Kind): Promise<Loaded> {
      asked.add(url);
      return shared(url, kind);
    }

    async function askText(url: string, kind: Kind): Promise<SignedCollateral> {
      const { body, issuerChain, stored } = await ask(url, kind);
      return { body: textOf(body), issuerChain, ...(stored && { stored }) };
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
    };
  }

  return {
    ...sourceOf(new Set()),
    abandonFetches: () => running.clear(),
    forVerdict() {
      const asked = new Set<string>();
      return {
        ...sourceOf(asked),
        async distrust(checks) {
          const isForged = checks.some(({ id, outcome }) => DATED.has(id) && outcome === 'fail');
          for (const url of asked) {
            if (isForged) newest.delete(url);
            const known = seen.get(url);
            if (known === undefined) continue;
            if (known.from === 'fetched' && now() - known.fetchedAt < times.collateralFresh) continue;
            seen.delete(url);
            await store.delete(url);
          }
        },
      };
    },
  };
}

const list = ({ body: crl, stored }: Loaded): RevocationList =>
  stored === undefined ? { crl } : { crl, stored };

function issuerChainOf(headers: HttpResponse['headers'], { chainHeader }: Kind): string {
  if (chainHeader === undefined) return '';
  const value = headers[chainHeader];
  if (typeof value !== 'string' || value === '') throw new TypeError(`no ${chainHeader}`);
  return decodeURIComponent(value);
}

/**
 * The message of a network error. For an untrusted TLS certificate it includes the remedy, because the
 * attestation error that this one becomes does not have it.
 */
const explained = ({ code, message, remedy }: PrivatemodeError): string =>
  code === 'upstream_tls_untrusted' ? `${message}. ${remedy}` : message;

/** What such a status of a vendor means; empty where the status says it all. */
function meaningOf(status: number, url: string, kind: Kind): string {
  // docs/protocol/attestation.md 10
  if (status === 410 && url.includes(EVALUATION_NUMBER))
    return ', as the evaluation number that the manifest asks for is too old';
  // Not a rejection: AMD's host answers so for known chips too while it is disturbed (docs/decisions.md 7).
  const isUnknown = kind === VCEK && (status === 400 || status === 404);
  return isUnknown ? ', as it does for a chip or a TCB that it does not know' : '';
}

/** Checks a part of a URL, because it comes from evidence that nobody has verified yet. */
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
