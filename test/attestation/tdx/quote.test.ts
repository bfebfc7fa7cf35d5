import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { decodeQuoteV4, type QuoteV4, signedQuoteBytes } from '../../../lib/attestation/tdx/quote.ts';
import { bytesField, encodeQuoteV4 } from '../../../simulator/evidence/messages.ts';
import { tdxPlatform } from '../../support/evidence/tdx-platform.ts';

const MALFORMED = { name: 'PrivatemodeError', code: 'evidence_malformed' };
const { quote } = tdxPlatform();

/** A copy with byte strings as hex, so that views into different buffers can be compared. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, plain(part)]));
}

describe('the signed bytes of a quote', () => {
  it('have a header with field 5 (PCE SVN) before field 4 (QE SVN)', () => {
    const header = { ...quote.header, qeSvn: Uint8Array.of(1, 2), pceSvn: Uint8Array.of(3, 4) };
    const bytes = signedQuoteBytes({ ...quote, header });
    assert.deepEqual([...bytes.subarray(8, 12)], [3, 4, 1, 2]);
  });
});

describe('QuoteV4 message', () => {
  it('ignores fields it does not know', () => {
    const unknown = bytesField(99, Buffer.from('later'));
    assert.deepEqual(plain(decodeQuoteV4(Uint8Array.of(...encodeQuoteV4(quote), ...unknown))), plain(quote));
  });

  const body = quote.tdQuoteBody;
  const [rtmr0, rtmr1, rtmr2] = body.rtmrs as [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
  const broken: readonly (readonly [string, QuoteV4])[] = [
    ['MRTD of 47 bytes', { ...quote, tdQuoteBody: { ...body, mrTd: new Uint8Array(47) } }],
    ['three RTMRs', { ...quote, tdQuoteBody: { ...body, rtmrs: [rtmr0, rtmr1, rtmr2] } }],
    [
      'an RTMR of 47 bytes',
      { ...quote, tdQuoteBody: { ...body, rtmrs: [rtmr0, rtmr1, rtmr2, new Uint8Array(47)] } },
    ],
    ['a version above 16 bits', { ...quote, header: { ...quote.header, version: 0x10004 } }],
  ];
  for (const [name, value] of broken) {
    it(`refuses ${name}`, () => assert.throws(() => decodeQuoteV4(encodeQuoteV4(value)), MALFORMED));
  }

  it('refuses a message without one of its parts, or with one twice', () => {
    assert.throws(() => decodeQuoteV4(new Uint8Array(0)), MALFORMED);
    const bytes = encodeQuoteV4(quote);
    const headerLength = 2 + (bytes[1] ?? 0);
    assert.throws(() => decodeQuoteV4(bytes.subarray(headerLength)), MALFORMED);
    assert.throws(
      () => decodeQuoteV4(Uint8Array.of(...bytes, ...bytes.subarray(0, headerLength))),
      MALFORMED,
    );
  });

  it('refuses a message of more than 1 MiB', () => {
    const encoded = (extra: number): Uint8Array =>
      encodeQuoteV4({ ...quote, extraBytes: new Uint8Array(extra) });
    const around = 1_048_576 - encoded(1_000_000).length + 1_000_000;
    assert.equal(encoded(around).length, 1_048_576);
    assert.equal(decodeQuoteV4(encoded(around)).extraBytes.length, around);
    assert.throws(() => decodeQuoteV4(encoded(around + 1)), { ...MALFORMED, message: /too large/ });
  });
});
