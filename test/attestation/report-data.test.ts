import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { reportData, transitionDigest } from '../../lib/attestation/document.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { SYNTHETIC_SETS, vectorBytes, vectorJson } from '../support/evidence/attestation-vectors.ts';
import { fromHex, toHex } from '../support/evidence/wycheproof.ts';

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

  it('gives the digest of the live manifest (docs/protocol/attestation.md 19.13)', () => {
    const manifest = vectorBytes('contrast/privatemode_manifest_v1.58.0.json');
    const expected = vectorJson<{ transition_digest: string }>(
      'contrast/privatemode_manifest_v1.58.0.expected.json',
    );
    assert.equal(toHex(transitionDigest([manifest])), expected.transition_digest);
  });
});

describe('reportData', () => {
  it('binds nonce, history and both CAs (docs/protocol/attestation.md 17)', () => {
    const data = reportData({
      nonce: range(0x00),
      transition: range(0xa0),
      rootCa: ascii('root-ca'),
      meshCa: ascii('mesh-ca'),
    });
    assert.equal(toHex(data), `ec25193fbfa21fb46964de80adca8e7d70222ad41e67c77a696e2f188c02a0f2${ZEROS}`);
  });

  it('gives the value of the live manifest (docs/protocol/attestation.md 19.13)', () => {
    const transition = transitionDigest([vectorBytes('contrast/privatemode_manifest_v1.58.0.json')]);
    const data = reportData({
      nonce: range(0),
      transition,
      rootCa: ascii('root-ca'),
      meshCa: ascii('mesh-ca'),
    });
    assert.equal(toHex(data), `7e95cf8e7cf844a316e286d9aa3f568fbaeef44e2bf61287ed63d707dea30f20${ZEROS}`);
  });

  it('gives the values of the synthetic sets', () => {
    for (const set of SYNTHETIC_SETS) {
      const expected = vectorJson<Record<string, string>>(`${set}/expected.json`);
      const transition = transitionDigest([vectorBytes(`${set}/manifest.json`)]);
      assert.equal(toHex(transition), expected['transition_digest_hex']);
      const data = reportData({
        nonce: fromHex(expected['nonce_hex'] ?? ''),
        transition,
        rootCa: vectorBytes(`${set}/root_ca.pem`),
        meshCa: vectorBytes(`${set}/mesh_ca.pem`),
      });
      assert.equal(toHex(data), expected['report_data_hex']);
    }
  });

  it('changes with every component', () => {
    const base = { nonce: range(0), transition: range(1), rootCa: ascii('a'), meshCa: ascii('b') };
    const changed = [
      base,
      { ...base, nonce: range(2) },
      { ...base, transition: range(2) },
      { ...base, rootCa: ascii('b') },
      { ...base, meshCa: ascii('a') },
      { ...base, rootCa: ascii('b'), meshCa: ascii('a') },
    ];
    assert.equal(new Set(changed.map((input) => toHex(reportData(input)))).size, changed.length);
  });

  it('refuses a nonce or transition digest of another length, since they are hashed without separators', () => {
    const input = { nonce: range(0), transition: range(1), rootCa: ascii('a'), meshCa: ascii('b') };
    const refused = (error: unknown): boolean =>
      error instanceof PrivatemodeError && error.code === 'evidence_malformed';
    assert.throws(() => reportData({ ...input, nonce: new Uint8Array(31) }), refused);
    assert.throws(() => reportData({ ...input, transition: new Uint8Array(33) }), refused);
  });
});
