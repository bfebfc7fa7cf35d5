import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { constantTimeEqual, hkdfSha256, hmacSha256, sha256, sha384 } from '../../lib/crypto/digest.ts';
import { fromHex, toHex, wycheproof } from '../support/wycheproof.ts';

const text = (value: string): Uint8Array => new TextEncoder().encode(value);

describe('hashes', () => {
  it('give the digests of FIPS 180 for "abc", in one part or several', () => {
    const expected256 = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad';
    const expected384 =
      'cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7';
    assert.equal(toHex(sha256(text('abc'))), expected256);
    assert.equal(toHex(sha256(text('a'), text(''), text('bc'))), expected256);
    assert.equal(toHex(sha384(text('abc'))), expected384);
    assert.equal(toHex(sha384(text('ab'), text('c'))), expected384);
  });
});

describe('HMAC-SHA-256', () => {
  it('agrees with all 174 Wycheproof vectors, truncated tags included', () => {
    const tests = wycheproof<{ tagSize: number }, { key: string; msg: string; tag: string }>(
      'hmac_sha256_test',
    );
    assert.equal(tests.length, 174);
    for (const { group, test } of tests) {
      const tag = hmacSha256(fromHex(test.key), fromHex(test.msg)).subarray(0, group.tagSize / 8);
      assert.equal(constantTimeEqual(tag, fromHex(test.tag)), test.result === 'valid', `tcId ${test.tcId}`);
    }
  });
});

describe('HKDF-SHA-256', () => {
  it('agrees with all 86 Wycheproof vectors, and refuses more output than there is', () => {
    const tests = wycheproof<object, { ikm: string; salt: string; info: string; size: number; okm: string }>(
      'hkdf_sha256_test',
    );
    assert.equal(tests.length, 86);
    let invalid = 0;
    for (const { test } of tests) {
      const derive = (): Uint8Array =>
        hkdfSha256({
          ikm: fromHex(test.ikm),
          salt: fromHex(test.salt),
          info: fromHex(test.info),
          length: test.size,
        });
      if (test.result === 'valid') assert.equal(toHex(derive()), test.okm, `tcId ${test.tcId}`);
      else {
        assert.throws(derive, RangeError, `tcId ${test.tcId}`);
        invalid++;
      }
    }
    assert.equal(invalid, 3);
  });
});

describe('constantTimeEqual', () => {
  it('compares contents and lengths', () => {
    assert.equal(constantTimeEqual(text('abc'), text('abc')), true);
    assert.equal(constantTimeEqual(text('abc'), text('abd')), false);
    assert.equal(constantTimeEqual(text('abc'), text('ab')), false);
    assert.equal(constantTimeEqual(new Uint8Array(0), new Uint8Array(0)), true);
  });
});
