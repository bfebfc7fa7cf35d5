import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { constantTimeEqual, sha256, sha384 } from '#crypto';
import { toHex } from '../support/evidence/wycheproof.ts';

const text = (value: string): Uint8Array => new TextEncoder().encode(value);

describe('SHA-256 and SHA-384', () => {
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

describe('constantTimeEqual', () => {
  it('is true only for equal contents of equal length', () => {
    assert.equal(constantTimeEqual(text('abc'), text('abc')), true);
    assert.equal(constantTimeEqual(text('abc'), text('abd')), false);
    assert.equal(constantTimeEqual(text('abc'), text('ab')), false);
    assert.equal(constantTimeEqual(new Uint8Array(0), new Uint8Array(0)), true);
  });
});
