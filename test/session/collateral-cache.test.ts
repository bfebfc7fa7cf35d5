import assert from 'node:assert/strict';
import { copyFileSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { CollateralSource } from '../../lib/attestation/verify-evidence.ts';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { HttpRequest, HttpResponse } from '../../lib/network/call-limits.ts';
import { createCollateralStore } from '../../lib/network/collateral-store.ts';
import { describeRefusal } from '../../lib/network/transport-errors.ts';
import { type CollateralCache, createCollateralCache } from '../../lib/session/collateral-cache.ts';
import { issueArkCrl } from '../support/evidence/snp-platform.ts';
import { breakFs } from '../support/processes/broken-file-system.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';
import { withCode } from '../support/remote/fake-remote.ts';

const VECTORS = join(import.meta.dirname, '../vectors/attestation');
const file = (name: string): Uint8Array => new Uint8Array(readFileSync(join(VECTORS, name)));
const phala = JSON.parse(readFileSync(join(VECTORS, 'tdx/tdx_v4_phala_collateral.json'), 'utf8'));
const bytes = (text: string, encoding: BufferEncoding = 'utf8') =>
  new Uint8Array(Buffer.from(text, encoding));

const CHIP = 'ab'.repeat(64);
const CDP = 'https://certificates.trustedservices.intel.com/IntelSGXRootCA.der';
const OFFLINE = new PrivatemodeError('upstream_unreachable', 'offline');

type Answer = Partial<HttpResponse> | Error;
type Answers = (url: string) => Answer | Promise<Answer>;

interface Scene {
  readonly cache: CollateralCache;
  readonly asked: string[];
  /** ms that each call was given. */
  readonly timeouts: number[];
  readonly directory: string;
  clock: number;
  answers: Answers;
  /** The same directory, as the next process sees it. */
  restarted(): CollateralCache;
}

function scene(at: string, answers: Answers, urls: { amd?: string; intel?: string } = {}): Scene {
  const directory = join(temporaryDirectory('collateral-'), 'collateral');
  const asked: string[] = [];
  const call = async ({ url, maxBytes, timeout }: HttpRequest): Promise<HttpResponse> => {
    asked.push(url);
    self.timeouts.push(timeout);
    assert.ok(maxBytes <= 256 * 1024);
    await new Promise(setImmediate);
    const answer = await self.answers(url);
    if (answer instanceof Error) throw answer;
    return { status: 200, headers: {}, body: new Uint8Array(0), ...answer };
  };
  const restarted = (): CollateralCache =>
    createCollateralCache({
      call,
      store: createCollateralStore(directory),
      amdKdsUrl: urls.amd ?? 'https://kdsintf.amd.com',
      intelPcsUrl: urls.intel ?? 'https://api.trustedservices.intel.com/',
      clock: { ...systemClock, now: () => self.clock },
    });
  const self: Scene = {
    cache: restarted(),
    asked,
    timeouts: [],
    directory,
    clock: Date.parse(at),
    answers,
    restarted,
  };
  return self;
}

const chained = (header: string, chain: string, body: Uint8Array): Partial<HttpResponse> => ({
  headers: { [header]: encodeURIComponent(chain) },
  body,
});

const unavailable = (words: RegExp) => withCode('collateral_unavailable', words);

interface Question {
  readonly name: string;
  readonly ask: (cache: CollateralSource) => Promise<unknown>;
  readonly url: string;
  readonly answer: Partial<HttpResponse>;
  readonly expected: object;
  readonly goodAt: string;
  readonly expiredAt: string;
  /** The name of its kind in messages. Undefined for certificates, which are not asked for again. */
  readonly again?: string;
}

const TCB_INFO = `{"tcbInfo":${phala.tcb_info},"signature":"${phala.tcb_info_signature}"}`;
const QE_IDENTITY = `{"enclaveIdentity":${phala.qe_identity},"signature":"${phala.qe_identity_signature}"}`;

/** What an answer has that was fetched, and whose signer comes without a header. */
const FETCHED = { issuerChain: '', stored: undefined };

const QUESTIONS: readonly Question[] = [
  {
    name: 'VCEK',
    ask: (cache) =>
      cache.amdVcek({ product: 'Genoa', chipId: CHIP, bootloader: 10, tee: 0, snp: 28, microcode: 88 }),
    url: `https://kdsintf.amd.com/vcek/v1/Genoa/${CHIP}?blSPL=10&teeSPL=0&snpSPL=28&ucodeSPL=88`,
    answer: { body: file('snp/genoa_v3_tinfoil_vcek.der') },
    expected: file('snp/genoa_v3_tinfoil_vcek.der'),
    goodAt: '2033-01-11T16:38:55Z',
    expiredAt: '2033-01-11T16:38:56Z',
  },
  {
    name: 'AMD CRL',
    ask: (cache) => cache.amdCrl({ product: 'Milan' }),
    url: 'https://kdsintf.amd.com/vcek/v1/Milan/crl',
    answer: { body: file('synthetic/ark_crl.der') },
    expected: { crl: file('synthetic/ark_crl.der'), ...FETCHED },
    again: 'CRL',
    goodAt: '2027-10-31T23:59:59Z',
    expiredAt: '2027-11-01T00:00:00Z',
  },
  {
    name: 'TCB info',
    ask: (cache) => cache.intelTcbInfo({ fmspc: 'b0c06f000000', evaluationDataNumber: 17 }),
    url: 'https://api.trustedservices.intel.com/tdx/certification/v4/tcb?fmspc=b0c06f000000&tcbEvaluationDataNumber=17',
    answer: chained('tcb-info-issuer-chain', phala.tcb_info_issuer_chain, bytes(TCB_INFO)),
    expected: { ...FETCHED, body: TCB_INFO, issuerChain: phala.tcb_info_issuer_chain },
    again: 'TCB info',
    goodAt: '2025-07-19T10:16:02Z',
    expiredAt: '2025-07-19T10:16:03Z',
  },
  {
    name: 'QE identity',
    ask: (cache) => cache.intelQeIdentity({ evaluationDataNumber: 17 }),
    url: 'https://api.trustedservices.intel.com/tdx/certification/v4/qe/identity?tcbEvaluationDataNumber=17',
    answer: chained('sgx-enclave-identity-issuer-chain', phala.qe_identity_issuer_chain, bytes(QE_IDENTITY)),
    expected: { ...FETCHED, body: QE_IDENTITY, issuerChain: phala.qe_identity_issuer_chain },
    again: 'QE identity',
    goodAt: '2025-07-19T10:32:26Z',
    expiredAt: '2025-07-19T10:32:27Z',
  },
  {
    name: 'PCK CRL',
    ask: (cache) => cache.intelPckCrl(),
    url: 'https://api.trustedservices.intel.com/sgx/certification/v4/pckcrl?ca=platform&encoding=der',
    answer: chained(
      'sgx-pck-crl-issuer-chain',
      phala.pck_crl_issuer_chain,
      file('tdx/google_pck_crl_platform.der'),
    ),
    expected: {
      ...FETCHED,
      crl: file('tdx/google_pck_crl_platform.der'),
      issuerChain: phala.pck_crl_issuer_chain,
    },
    again: 'PCK CRL',
    goodAt: '2023-07-08T07:27:51Z',
    expiredAt: '2023-07-08T07:27:52Z',
  },
  {
    name: 'root CRL',
    ask: (cache) => cache.intelRootCrl({ url: CDP }),
    url: CDP,
    answer: { body: file('tdx/google_sgx_root_ca_crl.der') },
    expected: { crl: file('tdx/google_sgx_root_ca_crl.der'), ...FETCHED },
    again: 'CRL',
    goodAt: '2024-04-02T10:22:50Z',
    expiredAt: '2024-04-02T10:22:51Z',
  },
];

for (const { name, ask, url, answer, expected, goodAt, expiredAt, again } of QUESTIONS) {
  describe(`collateral: ${name}`, () => {
    if (again === undefined) {
      it('is fetched from its URL once, and kept across restarts until the date its vendor signed', async () => {
        const s = scene(goodAt, () => answer);
        assert.deepEqual(await ask(s.cache), expected);
        s.answers = () => OFFLINE;
        assert.deepEqual(await ask(s.cache), expected);
        assert.deepEqual(await ask(s.restarted()), expected);
        assert.deepEqual(s.asked, [url]);
        s.clock = Date.parse(expiredAt);
        await assert.rejects(ask(s.restarted()), unavailable(/offline/));
        assert.equal(s.asked.length, 2);
      });
    } else {
      it('is fetched from its URL each time, and the stored copy is used if that fails', async () => {
        const s = scene(goodAt, () => answer);
        const fetchedAt = s.clock;
        assert.deepEqual(await ask(s.cache), expected);
        assert.deepEqual(await ask(s.cache), expected);
        assert.deepEqual(s.asked, [url, url]);
        s.answers = () => new PrivatemodeError('upstream_unreachable', 'host is down');
        const stored = { ...expected, stored: { fetchedAt, because: `${again}: host is down` } };
        assert.deepEqual(await ask(s.cache), stored);
        assert.deepEqual(await ask(s.restarted()), stored);
        s.answers = () => answer;
        assert.deepEqual(await ask(s.cache), expected);
        assert.equal(s.asked.length, 5);
        s.answers = () => OFFLINE;
        s.clock = Date.parse(expiredAt);
        await assert.rejects(ask(s.restarted()), unavailable(/offline/));
        assert.deepEqual(s.timeouts, [20_000, 5_000, 5_000, 5_000, 5_000, 20_000], 'less with a stored copy');
      });
    }

    it('is not used while the wall clock stands before the moment of its fetch', async () => {
      const s = scene(goodAt, () => answer);
      await ask(s.cache);
      s.answers = () => OFFLINE;
      s.clock -= 1;
      await assert.rejects(ask(s.cache), unavailable(/offline/));
      await assert.rejects(ask(s.restarted()), unavailable(/offline/));
      s.clock += 1;
      await ask(s.cache);
    });

    it('is returned but not stored if it has expired on arrival', async () => {
      const s = scene(expiredAt, () => answer);
      assert.deepEqual(await ask(s.cache), expected);
      await ask(s.cache);
      assert.equal(s.asked.length, 2);
      assert.throws(() => readdirSync(s.directory), /ENOENT/);
    });

    it('is unavailable if the response is an error, is not such collateral, or lacks its certificate chain', async () => {
      const wrong: [Partial<HttpResponse> | Error, RegExp][] = [
        [{ ...answer, status: 404 }, /status 404/],
        [{ ...answer, body: bytes('<html>Sign in</html>') }, /something that is no usable/],
        [{ ...answer, body: bytes('{}') }, /something that is no usable/],
        [new PrivatemodeError('upstream_unreachable', 'host is down'), /host is down/],
      ];
      const [header] = Object.keys(answer.headers ?? {});
      if (header !== undefined) {
        wrong.push([{ ...answer, headers: {} }, /something that is no usable/]);
        wrong.push([{ ...answer, headers: { [header]: '%E0%A4%A' } }, /something that is no usable/]);
        wrong.push([{ ...answer, headers: { [header]: ['a', 'b'] } }, /something that is no usable/]);
      }
      for (const [refused, words] of wrong) {
        const s = scene(goodAt, () => refused);
        await assert.rejects(ask(s.cache), unavailable(words));
        s.answers = () => answer;
        assert.deepEqual(await ask(s.cache), expected);
      }
    });

    it('is not taken from a file that is damaged in any way, and is fetched again', async () => {
      const s = scene(goodAt, () => answer);
      await ask(s.cache);
      const [fileName] = readdirSync(s.directory);
      const path = join(s.directory, fileName ?? '');
      const whole = readFileSync(path, 'utf8');
      const damaged = [
        '',
        whole.slice(0, -1),
        whole.replace(/"body":"(.)(.)/, '"body":"$2$1'),
        whole.replace(/"url":"https/, '"url":"http'),
        whole.replace(/"fetchedAt":\d/, '"fetchedAt":'),
      ];
      if (answer.headers !== undefined) damaged.push(whole.replace('BEGIN', 'BEGUN'));
      for (const [index, text] of damaged.entries()) {
        assert.notEqual(text, whole);
        writeFileSync(path, text);
        s.answers = () => OFFLINE;
        await assert.rejects(ask(s.restarted()), unavailable(/offline/));
        s.answers = () => answer;
        assert.deepEqual(await ask(s.restarted()), expected);
        assert.equal(s.asked.length, 2 * index + 3);
      }
      assert.deepEqual(readdirSync(s.directory), [fileName]);
    });
  });
}

describe('collateral cache', () => {
  const crl = QUESTIONS[1] as Question;

  it('fetches collateral each time if its directory cannot be written', async () => {
    const s = scene(crl.goodAt, () => crl.answer);
    writeFileSync(s.directory, 'a file where the directory should be');
    assert.deepEqual(await crl.ask(s.cache), crl.expected);
    assert.deepEqual(await crl.ask(s.cache), crl.expected);
    assert.equal(s.asked.length, 2);
  });

  it('fetches collateral after ten seconds if the disk neither answers nor fails', {
    timeout: 60_000,
  }, async (t) => {
    const s = scene(crl.goodAt, () => crl.answer);
    await crl.ask(s.cache);
    const hung = () => new Promise(() => {});
    for (const name of ['readFile', 'open'] as const) breakFs(t, name, hung);
    t.mock.timers.enable({ apis: ['setTimeout'] });
    let asked = false;
    const answered = crl.ask(s.cache).finally(() => {
      asked = true;
    });
    while (!asked && !t.signal.aborted) {
      t.mock.timers.tick(10_000);
      await new Promise(setImmediate);
    }
    assert.deepEqual(await answered, crl.expected);
    assert.equal(s.asked.length, 2);
  });

  it('uses the stored revocation list if the fetched one has expired', async () => {
    const genoa = file('real-amd/genoa.crl'); // until 2026-10-04
    const longer = file('synthetic/ark_crl.der'); // until 2027-11-01
    const s = scene('2026-12-01T00:00:00Z', () => ({ body: longer }));
    const fetchedAt = s.clock;
    await s.cache.amdCrl({ product: 'Genoa' });
    s.answers = () => ({ body: genoa });
    const { crl, stored } = await s.cache.amdCrl({ product: 'Genoa' });
    assert.deepEqual(crl, longer);
    assert.deepEqual(stored, { fetchedAt, because: 'CRL: the fetched one has expired' });
  });

  it('says that the clock may be wrong if the TLS certificate of a host is not valid yet', async () => {
    const refused = describeRefusal(
      Object.assign(new Error(), { code: 'CERT_NOT_YET_VALID' }),
      'amd.example',
    );
    const s = scene('2026-12-01T00:00:00Z', () => refused as Error);
    await assert.rejects(s.cache.amdCrl({ product: 'Genoa' }), {
      code: 'collateral_unavailable',
      message: `CRL: ${refused?.message}. ${refused?.remedy}`,
      detail: { clock: 'early' },
    });
  });

  it('does not take a revocation list that is too large to be judged', async () => {
    const date = new Date('2026-11-01T00:00:00Z');
    const revoked = Array.from({ length: 12_000 }, (_, i) => ({ serial: BigInt(i + 100_000), date }));
    const s = scene('2026-12-01T00:00:00Z', () => ({ body: issueArkCrl({ revoked }) }));
    await assert.rejects(s.cache.amdCrl({ product: 'Genoa' }), unavailable(/no usable CRL/));
  });

  it('passes on the pause that a host wants', async () => {
    const s = scene(crl.goodAt, () => ({ status: 429, pause: 25 }));
    const refused = { code: 'collateral_unavailable', detail: { pause: 25 } };
    await assert.rejects(s.cache.amdCrl({ product: 'Milan' }), refused);
  });

  it('does not use a file that was stored for another URL', async () => {
    const s = scene(crl.goodAt, () => crl.answer);
    await s.cache.amdCrl({ product: 'Milan' });
    const [milan = ''] = readdirSync(s.directory);
    await s.cache.amdCrl({ product: 'Genoa' });
    const genoa = readdirSync(s.directory).find((name) => name !== milan) ?? '';
    copyFileSync(join(s.directory, milan), join(s.directory, genoa));
    await s.restarted().amdCrl({ product: 'Genoa' });
    assert.equal(s.asked.length, 3);
  });

  it('forgets what a rejected verdict asked for, and nothing else', async () => {
    const [vcek, list] = [QUESTIONS[0], QUESTIONS[1]] as [Question, Question];
    const s = scene('2027-01-01T00:00:00Z', (url) => (url === vcek.url ? vcek.answer : list.answer));
    await vcek.ask(s.cache);
    const verdict = s.cache.forVerdict();
    await list.ask(verdict);
    await verdict.distrust();
    s.answers = () => OFFLINE;
    assert.deepEqual(await vcek.ask(s.restarted()), vcek.expected);
    await assert.rejects(list.ask(s.cache), unavailable(/offline/));
  });

  it('refuses a CRL distribution point that is not on the host and port of Intel', async () => {
    const s = scene(crl.goodAt, () => crl.answer);
    for (const url of [
      'http://certificates.trustedservices.intel.com/x.der',
      'https://certificates.trustedservices.intel.com:8443/x.der',
      'https://certificates.trustedservices.intel.com.evil.example/x.der',
      'https://certificates.trustedservices.intel.com@evil.example/x.der',
      'https://user@certificates.trustedservices.intel.com/x.der',
      'https://169.254.169.254/latest',
      'file:///etc/passwd',
      '',
    ]) {
      await assert.rejects(s.cache.intelRootCrl({ url }), unavailable(/distribution point/));
    }
    assert.deepEqual(s.asked, []);
  });
});
