/**
 * Collateral: of one verification each question once, and none after a failed check; how large and how old a
 * revocation list is.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  askOnce,
  type CollateralSource,
  obtained,
  readRevocationList,
} from '../../lib/attestation/collateral.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { CRL } from '../support/evidence/snp-platform.ts';

/** Answers with what it was asked, and counts. */
function echo(): { readonly source: CollateralSource; readonly asked: string[] } {
  const asked: string[] = [];
  const said = (name: string, query: object = {}): string => {
    const question = `${name} ${JSON.stringify(query)}`;
    asked.push(question);
    return question;
  };
  const bytes = (text: string): Uint8Array => new Uint8Array(Buffer.from(text));
  const source: CollateralSource = {
    amdVcek: async (query) => bytes(said('vcek', query)),
    amdCrl: async (query) => ({ crl: bytes(said('ark crl', query)) }),
    intelTcbInfo: async (query) => ({ body: said('tcb', query), issuerChain: '' }),
    intelQeIdentity: async (query) => ({ body: said('qe', query), issuerChain: '' }),
    intelPckCrl: async () => ({ crl: bytes(said('pck crl')), issuerChain: '' }),
    intelRootCrl: async (query) => ({ crl: bytes(said('root crl', query)) }),
  };
  return { source, asked };
}

const vcek = { product: 'Genoa', chipId: '', bootloader: 0, tee: 0, snp: 0, microcode: 0 } as const;
/** Questions that must not be taken for one another. */
const QUESTIONS: readonly ((source: CollateralSource) => Promise<unknown>)[] = [
  (source) => source.amdVcek(vcek),
  (source) => source.amdVcek({ ...vcek, microcode: 1 }),
  (source) => source.amdCrl({ product: 'Genoa' }),
  (source) => source.amdCrl({ product: 'Milan' }),
  (source) => source.intelTcbInfo({ fmspc: 'a' }),
  (source) => source.intelTcbInfo({ fmspc: 'b' }),
  (source) => source.intelTcbInfo({ fmspc: 'a', evaluationDataNumber: 21 }),
  (source) => source.intelQeIdentity({}),
  (source) => source.intelQeIdentity({ evaluationDataNumber: 21 }),
  (source) => source.intelPckCrl(),
  (source) => source.intelRootCrl({ url: 'https://a' }),
  (source) => source.intelRootCrl({ url: 'https://b' }),
];

describe('collateral of one verification', () => {
  it('is requested once per query, and no answer is used for another query', async () => {
    const { source, asked } = echo();
    const once = askOnce(source, true);
    const first = await Promise.all(QUESTIONS.map((ask) => ask(once)));
    const again = await Promise.all(QUESTIONS.map((ask) => ask(once)));
    assert.equal(asked.length, QUESTIONS.length);
    assert.equal(new Set(first.map((answer) => JSON.stringify(answer))).size, QUESTIONS.length);
    for (const [index, answer] of again.entries()) assert.equal(answer, first[index]);
    assert.deepEqual(first, await Promise.all(QUESTIONS.map((ask) => ask(echo().source))));
  });

  it('is not requested again after the request failed', async () => {
    let asked = 0;
    const failing = async (): Promise<never> => {
      asked++;
      throw new PrivatemodeError('collateral_unavailable', 'the host is down');
    };
    const once = askOnce({ ...echo().source, amdCrl: failing }, true);
    for (let i = 0; i < 3; i++) {
      await assert.rejects(once.amdCrl({ product: 'Genoa' }), { message: 'the host is down' });
    }
    assert.equal(asked, 1);
  });

  it('fails with collateral_unavailable if its source throws, whatever the error', async () => {
    const ask = async (cause: Error) => {
      const failing = async (): Promise<never> => {
        throw cause;
      };
      return askOnce({ ...echo().source, intelPckCrl: failing }, true).intelPckCrl();
    };
    for (const cause of [new PrivatemodeError('upstream_unreachable', 'x'), new TypeError('x')]) {
      const message = 'the collateral could not be fetched';
      await assert.rejects(ask(cause), { code: 'collateral_unavailable', message, cause });
    }
    const own = new PrivatemodeError('collateral_unavailable', 'the host is down');
    await assert.rejects(ask(own), (error) => error === own);
  });

  it('is not requested at all after a check has failed', async () => {
    const { source, asked } = echo();
    const once = askOnce(source, false);
    for (const ask of QUESTIONS) await assert.rejects(ask(once), { code: 'collateral_unavailable' });
    assert.deepEqual(asked, []);
  });
});

const ISSUED = Date.parse('2026-11-01T00:00:00Z');
const list = readRevocationList({ crl: CRL });

describe('the age of a revocation list', () => {
  const rows: readonly (readonly [seconds: number, age: number, words: string])[] = [
    [-10, 0, '0 s'],
    [0, 0, '0 s'],
    [1, 1, '1 s'],
    [1.999, 1, '1 s'],
    [119, 119, '119 s'],
    [120, 120, '2 min'],
    [7_199, 7_199, '119 min'],
    [7_200, 7_200, '2 h'],
    [172_799, 172_799, '47 h'],
    [172_800, 172_800, '2 days'],
    [259_199, 259_199, '2 days'],
  ];
  for (const [seconds, age, words] of rows) {
    it(`is ${words} after ${seconds} seconds`, () => {
      const now = new Date(ISSUED + 1000 * seconds);
      const found = `here; number 04, issued ${words} ago`;
      assert.deepEqual(obtained(list, 'here', now), { outcome: 'pass', found, age });
      const stored = { fetchedAt: ISSUED, because: 'no network' };
      assert.match(obtained({ ...list, stored }, 'here', now).found, new RegExp(`^stored ${words} ago, `));
    });
  }
});

describe('the size of a revocation list', () => {
  it('is at most 256 KiB, or the smaller limit that the caller sets', () => {
    const tooLarge = { code: 'evidence_malformed', message: 'the CRL is too large' };
    const read = (bytes: number, most?: number) => () =>
      readRevocationList({ crl: new Uint8Array(bytes) }, most);
    assert.throws(read(262_144), ({ message }: Error) => message !== tooLarge.message);
    assert.throws(read(262_145), tooLarge);
    assert.throws(read(10, 10), ({ message }: Error) => message !== tooLarge.message);
    assert.throws(read(11, 10), tooLarge);
  });
});
