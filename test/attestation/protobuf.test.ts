import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  bytesField,
  messageField,
  readWireFields,
  repeatedBytesField,
  uintField,
} from '../../lib/attestation/protobuf.ts';
import { malformed } from '../support/evidence/readers.ts';
import { fromHex, toHex } from '../support/evidence/wycheproof.ts';

describe('readWireFields', () => {
  it('reads varints, byte strings and sub-messages', () => {
    const fields = readWireFields(fromHex('089601' + '1203616263' + '1a020801'));
    assert.equal(uintField(fields, 1, 32), 150n);
    assert.equal(toHex(bytesField(fields, 2, 3)), '616263');
    const inner = messageField(fields, 3);
    assert.equal(inner && uintField(inner, 1, 8), 1n);
    assert.equal(messageField(fields, 4), undefined);
    assert.equal(uintField(fields, 9, 64), 0n);
    assert.equal(bytesField(fields, 9).length, 0);
  });

  it('reads 64-bit numbers without loss', () => {
    const fields = readWireFields(fromHex('08ffffffffffffffffff01'));
    assert.equal(uintField(fields, 1, 64), 2n ** 64n - 1n);
    assert.throws(() => uintField(fields, 1, 32), malformed);
  });

  it('ignores unknown fields of every wire type but groups (docs/protocol/attestation.md 6.1)', () => {
    const unknown = '7d01020304' + '791122334455667788' + '7a0161' + '7801';
    const fields = readWireFields(fromHex(`0801${unknown}1001`));
    assert.equal(uintField(fields, 1, 8), 1n);
    assert.equal(uintField(fields, 2, 8), 1n);
  });

  const refused: readonly (readonly [string, string])[] = [
    ['a number not in its shortest form', '088000'],
    ['a tag not in its shortest form', '880001'],
    ['a number of more than 64 bits', '08ffffffffffffffffff02'],
    ['a number of more than ten bytes', '08ffffffffffffffffffff01'],
    ['a length not in its shortest form', '128300616263'],
    ['an end inside a tag', '80'],
    ['an end inside a number', '0880'],
    ['an end behind the tag of a byte string', '12'],
    ['an end inside a byte string', '120361'],
    ['a length beyond 32 bits', '12ffffffffff01'],
    ['field number 0', '0001'],
    ['an unknown wire type', '0f01'],
    ['a group', '7b7c'],
    ['an end inside a fixed width', '7d010203'],
  ];
  for (const [what, hex] of refused) {
    it(`refuses ${what}`, () => assert.throws(() => readWireFields(fromHex(hex)), malformed));
  }

  it('takes field numbers of 29 bits, and no larger ones', () => {
    assert.deepEqual([...readWireFields(fromHex('f8ffffff0f01')).keys()], [0x1fffffff]);
    assert.throws(() => readWireFields(fromHex('808080801001')), /field number is out of range/);
    assert.deepEqual([...readWireFields(fromHex('0801')).keys()], [1]);
  });

  it('takes a thousand fields and no more', () => {
    const fields = (count: number): Uint8Array => fromHex('1800'.repeat(count));
    assert.equal(readWireFields(fields(1000)).get(3)?.length, 1000);
    assert.throws(() => readWireFields(fields(1001)), malformed);
  });

  it('refuses a singular field twice, a wrong type and a wrong length (docs/protocol/attestation.md 13.13)', () => {
    const twice = readWireFields(fromHex('08010802' + '120161' + '120162'));
    assert.throws(() => uintField(twice, 1, 8), malformed);
    assert.throws(() => bytesField(twice, 2), malformed);
    assert.deepEqual(repeatedBytesField(twice, 2).map(toHex), ['61', '62']);
    assert.throws(() => repeatedBytesField(twice, 1), malformed);
    for (const other of ['0d01000000', '090100000000000000']) {
      assert.throws(() => uintField(readWireFields(fromHex(`${other}0801`)), 1, 32), malformed, other);
      assert.throws(() => uintField(readWireFields(fromHex(other)), 1, 32), malformed, other);
      assert.throws(() => bytesField(readWireFields(fromHex(other)), 1), malformed, other);
    }
    const typed = readWireFields(fromHex('0801' + '120161'));
    assert.throws(() => bytesField(typed, 1), malformed);
    assert.throws(() => uintField(typed, 2, 8), malformed);
    assert.throws(() => bytesField(typed, 2, 2), malformed);
  });
});
