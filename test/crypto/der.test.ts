import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  children,
  type Der,
  DerCursor,
  expectTag,
  onlyChild,
  parseDer,
  readBitString,
  readBoolean,
  readOid,
  readSmallInteger,
  readText,
  readTime,
  readUnsigned,
  TAG,
} from '../../lib/crypto/der.ts';
import { integer, octetString, oid, sequence, time } from '../../simulator/pki/der.ts';
import { malformed } from '../support/evidence/readers.ts';
import { fromHex, toHex } from '../support/evidence/wycheproof.ts';

const element = (hex: string): Der => parseDer(fromHex(hex));

const INEXACT = 'DER uses a length that is indefinite, or not in its shortest form';

describe('the reader of DER elements', () => {
  /** The message where there is one for this kind of defect alone. */
  const refused: readonly (readonly [what: string, hex: string, message?: string])[] = [
    ['an empty input', ''],
    ['a tag alone', '30', 'DER ends inside an element header'],
    ['a content shorter than its length', '3005020101', 'DER ends inside an element'],
    ['bytes after the element', '30030201010000'],
    ['an end inside a length', '30840101', 'DER ends inside a length'],
    ['an indefinite length, with bytes enough for 128', `3080${'00'.repeat(128)}`],
    ['an indefinite length', '30800201010000', INEXACT],
    ['a length not in its shortest form', '308103020101', INEXACT],
    ['a length with a leading zero byte', '30820003020101'],
    [
      'a length of more bytes than there are',
      `3085ff00000000${'00'.repeat(9)}`,
      'DER ends inside an element',
    ],
    ['a length of 127 bytes', `30ff${'ff'.repeat(130)}`, 'DER ends inside an element'],
    ['a multi-byte tag', '1f81010100', 'DER uses a multi-byte tag'],
    ['a multi-byte tag for a number that fits into one byte', '1f0101'],
    ['a constructed multi-byte tag', '3f00'],
    ['a multi-byte context-specific tag', '9f0101'],
  ];
  for (const [what, hex, message] of refused) {
    it(`refuses ${what}`, () => {
      assert.throws(() => element(hex), malformed);
      if (message !== undefined) assert.throws(() => element(hex), { message });
    });
  }

  it('refuses the same defects inside an element', () => {
    for (const [what, hex] of refused.slice(1)) {
      assert.throws(() => onlyChild(parseDer(sequence(fromHex(hex)))), malformed, what);
    }
  });

  it('accepts lengths of every size in their shortest form', () => {
    for (const size of [0, 1, 127, 128, 255, 256, 65535, 65536]) {
      const { content } = parseDer(octetString(new Uint8Array(size)), TAG.octetString);
      assert.equal(content.length, size);
    }
  });

  it('allows an element inside 24 others, and no deeper', () => {
    const nested = (depth: number): Der => {
      let inside = sequence();
      for (let i = 0; i < depth; i++) inside = sequence(inside);
      return parseDer(inside);
    };
    const descend = (outer: Der): number => children(outer).reduce((sum, inner) => sum + descend(inner), 1);
    assert.equal(descend(nested(24)), 25);
    assert.throws(() => descend(nested(25)), malformed);
    assert.throws(() => descend(nested(100)), malformed);
  });

  it('refuses to read children of a primitive element', () => {
    for (const hex of ['0401ff', '0403020101', '0400', '0500']) {
      assert.throws(() => children(element(hex)), { message: 'a primitive DER element was opened' });
    }
  });

  it('reads elements in order, and throws if one is missing, unexpected or left over', () => {
    const cursor = new DerCursor(parseDer(sequence(integer(1), oid('1.2.3'))));
    assert.equal(cursor.optional(TAG.oid, readOid), undefined);
    assert.equal(readSmallInteger(cursor.take(TAG.integer), 9), 1);
    assert.throws(() => cursor.end(), malformed);
    assert.equal(readOid(cursor.take()), '1.2.3');
    assert.throws(() => new DerCursor(element('3003020101')).take(TAG.oid), malformed);
    assert.throws(() => cursor.take(), malformed);
    cursor.end();
    assert.throws(() => expectTag(undefined, TAG.null), malformed);
    assert.throws(() => expectTag(element('3000'), TAG.bitString), {
      message: 'DER tag 0x30 where 0x3 belongs',
    });
  });

  it('throws only evidence_malformed, whatever the bytes', () => {
    const walk = (outer: Der): void => {
      if ((outer.tag & 0x20) !== 0) children(outer).forEach(walk);
    };
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
        try {
          walk(parseDer(bytes));
        } catch (error) {
          assert.ok(malformed(error));
        }
      }),
      { seed: 20261201, numRuns: 2000 },
    );
  });
});

describe('the reader of DER values', () => {
  const bad = (reader: (value: Der) => unknown, ...encodings: readonly string[]): void => {
    for (const hex of encodings) assert.throws(() => reader(element(hex)), malformed, hex);
  };

  it('reads BOOLEAN as 00 or FF only', () => {
    assert.equal(readBoolean(element('0101ff')), true);
    assert.equal(readBoolean(element('010100')), false);
    bad(readBoolean, '010101', '0100', '0102ffff', '0401ff');
  });

  it('reads non-negative INTEGERs in their shortest form', () => {
    assert.equal(toHex(readUnsigned(element('020100'))), '00');
    assert.equal(toHex(readUnsigned(element('02020080'))), '80');
    assert.equal(readSmallInteger(element('020500ffffffff'), 0xffffffff), 0xffffffff);
    bad(readUnsigned, '0200', '020180', '02020001', '0203000080', '040100');
    assert.throws(() => readSmallInteger(element('02020100'), 255), malformed);
    assert.throws(() => readSmallInteger(element('02050100000000'), 2 ** 40), malformed);
  });

  it('reads object identifiers, first arcs and large arcs included', () => {
    const DOTTED = '1.2.840.113549.1.1.10 2.5.29.37.0 0.9 1.3.9901.2.1 0.0 0.39 1.0 1.39 2.0 2.39';
    for (const dotted of DOTTED.split(' ')) assert.equal(readOid(parseDer(oid(dotted))), dotted);
    assert.equal(readOid(element('0603883701')), '2.999.1');
    assert.equal(readOid(element('06092a8fffffffffffff7f')), '1.2.9007199254740991');
    bad(readOid, '0600', '06028001', '060181', '06022a81', '040103');
    bad(readOid, '06092a9080808080808000', '060b2a82808080808080808000', '060b2a81ffffffffffffffff7f');
  });

  it('reads BIT STRINGs whose unused bits are zero', () => {
    const [any, whole] = [7, 0].map((most) => (value: Der) => toHex(readBitString(value, most))) as [
      (value: Der) => string,
      (value: Der) => string,
    ];
    assert.equal(any(element('03020106')), '06');
    assert.equal(any(element('03030101fe')), '01fe');
    assert.equal(whole(element('030300abcd')), 'abcd');
    bad(any, '0303010001', '0303070040', '0300', '03020800', '03020107', '030101');
    bad(whole, '03020106', '0300');
  });

  it('reads strings of the kinds that names use', () => {
    assert.equal(readText(element('0c02c3a9')), 'é');
    assert.equal(readText(element('130161')), 'a');
    assert.equal(readText(element('16012a')), '*');
    assert.equal(readText(element('1401e9')), 'é');
    assert.throws(() => readText(element('1e020061')), { message: 'a string of tag 0x1e cannot be read' });
    bad(readText, '0c01ff', '0c03eda080', '13015f', '160180', '1e020061', '020161');
  });

  it('reads times in the form of RFC 5280 only', () => {
    const utc = (text: string): string =>
      `17${text.length.toString(16).padStart(2, '0')}${toHex(Buffer.from(text))}`;
    const general = (text: string): string => utc(text).replace(/^17/, '18');
    assert.equal(readTime(element(utc('491231235959Z'))).toISOString(), '2049-12-31T23:59:59.000Z');
    assert.equal(readTime(element(utc('500101000000Z'))).toISOString(), '1950-01-01T00:00:00.000Z');
    assert.equal(readTime(element(general('20500101000000Z'))).toISOString(), '2050-01-01T00:00:00.000Z');
    assert.equal(readTime(element(utc('240229000000Z'))).getUTCDate(), 29);
    const noUtc = '261301000000Z 260230000000Z 260101240000Z 2601010000Z 260101000000+0100 2601010000000Z';
    bad(readTime, ...noUtc.split(' ').map(utc));
    bad(readTime, ...['20260101000000.5Z', '20260101000000', '260101000000Z'].map(general));
    bad(readTime, general('20260101000000Z').replace(/^18/, '04'));
    const now = new Date('2026-12-01T01:02:03Z');
    assert.deepEqual(readTime(parseDer(time(now))), now);
  });
});
