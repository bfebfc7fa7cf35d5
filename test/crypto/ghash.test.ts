import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { GHASH } from '@noble/ciphers/_polyval.js';
import fc from 'fast-check';
import { ghash, ghashTable } from '../../lib/crypto/ghash.ts';
import { hex } from '../support/exchange-fixture.ts';

/** Of whole blocks, as bytes. */
function ghashOf(subkey: Uint8Array, blocks: Uint8Array): string {
  const words = new Int32Array(4);
  const view = new DataView(blocks.buffer, blocks.byteOffset, blocks.length);
  ghash(ghashTable(Buffer.from(subkey)), view, blocks.length, words);
  const bytes = Buffer.alloc(16);
  for (const [k, word] of words.entries()) bytes.writeInt32LE(word, 4 * k);
  return bytes.toString('hex');
}

describe('GHASH', () => {
  it('agrees with the test cases of the GCM specification (McGrew and Viega, appendix B)', () => {
    const cases = [
      // test case 2: one block of ciphertext, no AAD
      {
        subkey: '66e94bd4ef8a2c3b884cfa59ca342b2e',
        blocks: '0388dace60b6a392f328c2b971b2fe7800000000000000000000000000000080',
        hash: 'f38cbb1ad69223dcc3457ae5b6b0f885',
      },
      // test case 4: 20 bytes of AAD, 60 of ciphertext
      {
        subkey: 'b83b533708bf535d0aa6e52980d53b78',
        blocks:
          'feedfacedeadbeeffeedfacedeadbeefabaddad200000000000000000000000042831ec2217774244b7221b784d0d49c' +
          'e3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e09100000000' +
          '00000000000000a000000000000001e0',
        hash: '698e57f70e6ecc7fd9463b7260a9ae5f',
      },
    ];
    for (const { subkey, blocks, hash } of cases) assert.equal(ghashOf(hex(subkey), hex(blocks)), hash);
  });

  it('agrees with @noble/ciphers for any subkey and blocks', () => {
    const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length });
    fc.assert(
      fc.property(
        bytes(16),
        fc.nat({ max: 40 }).chain((blocks) => bytes(16 * blocks)),
        (subkey, blocks) => {
          const theirs = Buffer.from(new GHASH(subkey).update(blocks).digest()).toString('hex');
          assert.equal(ghashOf(subkey, blocks), theirs);
        },
      ),
      { seed: 20261121, numRuns: 500 },
    );
  });

  it('multiplies every single bit as @noble/ciphers does', () => {
    const subkey = Buffer.from('0123456789abcdeffedcba9876543210', 'hex');
    for (let bit = 0; bit < 128; bit++) {
      const block = new Uint8Array(16);
      block[bit >> 3] = 0x80 >> (bit & 7);
      const theirs = Buffer.from(new GHASH(subkey).update(block).digest()).toString('hex');
      assert.equal(ghashOf(subkey, block), theirs, `bit ${bit}`);
    }
  });
});
