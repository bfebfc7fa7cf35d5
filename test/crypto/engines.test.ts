/**
 * The node and the portable engine of lib/crypto have the same names. Signatures have one engine; here it
 * stands beside OpenSSL, and takes no key and no signature that OpenSSL refuses.
 */
import assert from 'node:assert/strict';
import { constants, createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import * as node from '../../lib/crypto/node.ts';
import * as portable from '../../lib/crypto/portable.ts';
import {
  type PublicKey,
  publicKeyFromSpki,
  verifyEcdsa,
  verifyRsaPssSha384,
} from '../../lib/crypto/signature.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { bitString, nothing, oid, sequence } from '../../simulator/pki/der.ts';
import { toHex } from '../support/evidence/wycheproof.ts';

const RSA = generateKeyPairSync('rsa', { modulusLength: 2048 });
const KEYS = {
  'P-256': generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  'P-384': generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  RSA,
};
const spkiOf = (key: KeyObject): Buffer => key.export({ type: 'spki', format: 'der' });
const DATA = Buffer.from('what is signed');

/** Our key, or undefined where it is refused with the typed error. */
function keyOrRefused(spki: Uint8Array): PublicKey | undefined {
  try {
    return publicKeyFromSpki(spki);
  } catch (error) {
    assert.ok(error instanceof PrivatemodeError && error.code === 'evidence_malformed', String(error));
    return undefined;
  }
}

const CURVES: Readonly<Record<string, string>> = { prime256v1: 'P-256', secp384r1: 'P-384' };

/** Asserts that OpenSSL reads the same key from the same bytes. */
function assertSame({ algorithm, curve, rsa }: PublicKey, der: Buffer): void {
  const theirs = createPublicKey({ key: der, format: 'der', type: 'spki' });
  const { namedCurve = '', modulusLength, publicExponent } = theirs.asymmetricKeyDetails ?? {};
  assert.equal(algorithm, theirs.asymmetricKeyType);
  assert.equal(curve, CURVES[namedCurve]);
  const facts = modulusLength && { modulusBits: modulusLength, exponent: publicExponent };
  assert.deepEqual(rsa, facts);
  assert.deepEqual(spkiOf(theirs), der);
}

/** Bytes replaced, left out or put in; or the end cut off. */
const edit = fc.record({
  // Mostly among the first bytes, where the structure is.
  at: fc.oneof({ weight: 3, arbitrary: fc.nat(40) }, fc.nat(600)),
  remove: fc.constantFrom(0, 1, 1, 2, 600),
  insert: fc.array(
    fc.oneof(fc.nat(255), fc.constantFrom(0, 1, 2, 3, 4, 5, 6, 7, 0x30, 0x7f, 0x80, 0x81, 0x82, 0xff)),
    { maxLength: 2 },
  ),
});
type Edit = typeof edit extends fc.Arbitrary<infer T> ? T : never;

const edits = fc.array(edit, { minLength: 1, maxLength: 2 });
const all = (bytes: Uint8Array, list: readonly Edit[]): Buffer => {
  const changed = [...bytes];
  for (const { at, remove, insert } of list) changed.splice(at % (changed.length + 1), remove, ...insert);
  return Buffer.from(changed);
};

describe('the node and the portable engine', () => {
  it('export the same names, and their keys have the same methods', () => {
    assert.deepEqual(Object.keys(portable).sort(), Object.keys(node).sort());
    const methods = ({ SecretKey }: { SecretKey: { prototype: object } }) =>
      Object.getOwnPropertyNames(SecretKey.prototype).sort();
    assert.deepEqual(methods(portable), methods(node));
  });
});

describe('SHA-256, SHA-384 and the comparison in constant time', () => {
  const text = (value: string): Uint8Array => new TextEncoder().encode(value);
  for (const [name, { constantTimeEqual, sha256, sha384 }] of Object.entries({ node, portable })) {
    it(`give the digests of FIPS 180 for "abc", in one part or several: ${name}`, () => {
      const of256 = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad';
      const of384 =
        'cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7';
      for (const parts of [['abc'], ['a', '', 'bc']]) {
        assert.equal(toHex(sha256(...parts.map(text))), of256);
        assert.equal(toHex(sha384(...parts.map(text))), of384);
      }
    });

    it(`is true only for equal contents of equal length: ${name}`, () => {
      for (const [one, other] of [
        ['abc', 'abc'],
        ['', ''],
        ['abc', 'abd'],
        ['abc', 'ab'],
      ] as const)
        assert.equal(constantTimeEqual(text(one), text(other)), one === other);
    });
  }
});

describe('public keys beside OpenSSL', () => {
  const asItIs = (spki: Uint8Array): Uint8Array => spki;
  const rsaSpki = (numbers: Uint8Array): Uint8Array =>
    sequence(sequence(oid('1.2.840.113549.1.1.1'), nothing()), bitString(numbers));
  for (const [name, good, spkiWith] of [
    ...Object.entries(KEYS).map(([name, { publicKey }]) => [name, spkiOf(publicKey), asItIs] as const),
    ['RSA, in its numbers', RSA.publicKey.export({ type: 'pkcs1', format: 'der' }), rsaSpki] as const,
  ]) {
    it(`of ${name} are read alike, and a changed one that can verify something is one for OpenSSL too`, () => {
      const read = (bytes: Uint8Array) => {
        const spki = Buffer.from(spkiWith(bytes));
        const ours = keyOrRefused(spki);
        if (ours?.curve === undefined && ours?.rsa === undefined) return 0;
        assertSame(ours, spki);
        return 1;
      };
      assert.equal(read(good), 1);
      let taken = 0;
      fc.assert(
        fc.property(edits, (list) => {
          taken += read(all(good, list));
        }),
        { seed: 20261122, numRuns: 2000 },
      );
      assert.ok(taken > 0, 'no changed key was read');
    });
  }

  const spki = spkiOf(RSA.publicKey).toString('hex');
  const ec = spkiOf(KEYS['P-256'].publicKey).toString('hex');
  const point = ec.slice(-130);
  const x = point.slice(2, 66);
  const parity = 2 + (Number.parseInt(point.slice(-1), 16) & 1);
  const explicit = generateKeyPairSync('ec', { namedCurve: 'P-256', paramEncoding: 'explicit' });
  const P256 = 'ffffffff00000001000000000000000000000000ffffffffffffffffffffffff';
  for (const [name, hex] of [
    ['a byte after the key', `${ec}00`],
    ['another key after the key', ec + ec],
    ['a longer length than needed', `308159${ec.slice(4)}`],
    ['an indefinite length', `3080${ec.slice(4)}0000`],
    ['a bit string with unused bits', ec.replace('034200', '034201')],
    ['a bit string without its first byte', ec.replace(`034200${point}`, '0300').replace(/^3059/, '3017')],
    ['a coordinate of the field size', ec.replace(point, `04${P256}${point.slice(66)}`)],
    ['a point beside the curve', ec.replace(/.$/, (digit) => (digit === '0' ? '1' : '0'))],
    ['a compressed point', ec.replace(`034200${point}`, `0322000${parity}${x}`).replace(/^3059/, '3039')],
    ['a point that names its parity too', ec.replace(point, `0${4 + parity}${point.slice(2)}`)],
    ['a curve in parameters', spkiOf(explicit.publicKey).toString('hex')],
    ['a point of zeros', ec.replace(point, `04${'00'.repeat(64)}`)],
    ['the point at infinity', ec.replace(`034200${point}`, '03020000').replace(/^3059/, '3019')],
    ['an additional element beside the key', `305b${ec.slice(4)}0500`],
    ['a negative modulus', spki.replace('0282010100', '0282010180')],
    ['a padded exponent', spki.replace(/0203010001$/, '0203007fff')],
    ['RSA with parameters', spki.replace('30820122300d', '30820123300e').replace('0500', '050100')],
  ] as const) {
    it(`are refused with ${name}`, () => {
      assert.ok(![ec, spki].includes(hex), 'nothing was changed');
      assert.throws(() => publicKeyFromSpki(Buffer.from(hex, 'hex')), { code: 'evidence_malformed' });
    });
  }
});

describe('signatures beside OpenSSL', () => {
  const padding = constants.RSA_PKCS1_PSS_PADDING;
  const pss = sign('sha384', DATA, { key: RSA.privateKey, padding, saltLength: 48 });
  const rsaKey = publicKeyFromSpki(spkiOf(RSA.publicKey));

  it('by RSASSA-PSS are judged alike, changed or not, but for their length', async () => {
    const property = fc.asyncProperty(fc.option(edits), async (list) => {
      const signature = list === null ? pss : all(pss, list);
      const key = { key: RSA.publicKey, padding, saltLength: 48 };
      const theirs = signature.length === 256 && verify('sha384', DATA, key, signature);
      assert.equal(await verifyRsaPssSha384(rsaKey, DATA, signature), theirs);
      if (list === null) assert.equal(theirs, true);
    });
    await fc.assert(property, { seed: 20261122, numRuns: 250 });
  });

  it('by RSASSA-PSS are refused if the runtime cannot check them; those by ECDSA are checked without it', async (t) => {
    t.mock.method(crypto.subtle, 'verify', () => Promise.reject(new Error('not supported')));
    assert.equal(await verifyRsaPssSha384(rsaKey, DATA, pss), false);
    const { privateKey, publicKey } = KEYS['P-384'];
    const input = { key: publicKeyFromSpki(spkiOf(publicKey)), hash: 'sha256', encoding: 'der' } as const;
    const signature = sign('sha256', DATA, privateKey);
    assert.equal(await verifyEcdsa({ ...input, data: DATA, signature }), true);
    assert.equal(await verifyEcdsa({ ...input, data: Buffer.from('another'), signature }), false);
  });
});
