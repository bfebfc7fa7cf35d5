import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { reportData, transitionDigest } from '../../lib/attestation/document.ts';
import { malformed } from '../support/evidence/readers.ts';
import { toHex } from '../support/evidence/wycheproof.ts';

const ascii = (text: string): Uint8Array => Buffer.from(text, 'latin1');
const range = (first: number): Uint8Array => Uint8Array.from({ length: 32 }, (_, index) => first + index);
const ZEROS = '00'.repeat(32);

describe('transitionDigest', () => {
  it('chains manifests oldest first (docs/protocol/attestation.md 17)', () => {
    assert.equal(toHex(transitionDigest([])), ZEROS);
    assert.equal(
      toHex(transitionDigest([ascii('manifest1')])),
      '9eb1578ea616a1f083f558f8e66d531b3d4611f49eb7eb8947024216a9901baf',
    );
    assert.equal(
      toHex(transitionDigest([ascii('manifest1'), ascii('manifest2')])),
      '5a61bb484dead0b420e4a7c58d6ea4acde3c3a64780060b7a0b518aacbf29cf7',
    );
  });
});

describe('reportData', () => {
  const input = {
    nonce: range(0),
    transition: range(0xa0),
    rootCa: ascii('root-ca'),
    meshCa: ascii('mesh-ca'),
  };

  it('binds nonce, history and both CAs (docs/protocol/attestation.md 17)', () => {
    const expected = `ec25193fbfa21fb46964de80adca8e7d70222ad41e67c77a696e2f188c02a0f2${ZEROS}`;
    assert.equal(toHex(reportData(input)), expected);
  });

  it('refuses a nonce or transition digest of another length, since they are hashed without separators', () => {
    assert.throws(() => reportData({ ...input, nonce: new Uint8Array(31) }), malformed);
    assert.throws(() => reportData({ ...input, transition: new Uint8Array(33) }), malformed);
  });
});
