/**
 * The two engines of lib/crypto beside each other: the portable one has the same names, and takes nothing
 * that OpenSSL refuses.
 */
import assert from 'node:assert/strict';
import { constants, generateKeyPairSync, sign } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import * as openssl from '../../lib/crypto/node/signature.ts';
import * as portable from '../../lib/crypto/portable/signature.ts';
import { PrivatemodeError } from '../../lib/errors.ts';

const ENGINES = join(import.meta.dirname, '../../lib/crypto');
const FILES = ['aead.ts', 'digest.ts', 'short-messages.ts', 'signature.ts'];
const namesOf = async (engine: string, file: string): Promise<string[]> =>
  Object.keys((await import(join(ENGINES, engine, file))) as object).sort();

const RSA = generateKeyPairSync('rsa', { modulusLength: 2048 });
const KEYS = {
  'P-256': generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  'P-384': generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  RSA,
  Ed25519: generateKeyPairSync('ed25519'),
  'P-521': generateKeyPairSync('ec', { namedCurve: 'P-521' }),
  secp256k1: generateKeyPairSync('ec', { namedCurve: 'secp256k1' }),
};
const SPKI = Object.entries(KEYS).map(
  ([name, { publicKey }]) => [name, publicKey.export({ type: 'spki', format: 'der' })] as const,
);
const DATA = Buffer.from('what is signed');

/** What a reader says of a key, or undefined where it refuses it with the typed error. */
function read(reader: () => openssl.PublicKey | portable.PublicKey) {
  try {
    const { algorithm, curve, rsa } = reader();
    return { algorithm, curve, rsa };
  } catch (error) {
    assert.ok(error instanceof PrivatemodeError && error.code === 'evidence_malformed', String(error));
    return undefined;
  }
}

/** A byte replaced, left out or put in; or the end cut off, or more put after it. */
const edit = fc.record({
  kind: fc.constantFrom('replace', 'delete', 'insert', 'cut', 'append'),
  // Mostly among the first bytes, where the structure is.
  at: fc.oneof({ weight: 3, arbitrary: fc.nat(40) }, fc.nat(600)),
  byte: fc.oneof(fc.nat(255), fc.constantFrom(0, 1, 2, 3, 4, 5, 6, 7, 0x30, 0x7f, 0x80, 0x81, 0x82, 0xff)),
});
type Edit = typeof edit extends fc.Arbitrary<infer T> ? T : never;

function edited(bytes: Uint8Array, { kind, at: where, byte }: Edit): Buffer {
  const all = [...bytes];
  const at = where % Math.max(1, all.length);
  if (kind === 'replace') all[at] = byte;
  else if (kind === 'delete') all.splice(at, 1);
  else if (kind === 'insert') all.splice(at, 0, byte);
  else if (kind === 'cut') all.length = at;
  else all.push(byte);
  return Buffer.from(all);
}

const edits = fc.array(edit, { minLength: 1, maxLength: 2 });
const all = (bytes: Uint8Array, list: readonly Edit[]): Buffer =>
  list.reduce<Buffer>((now, each) => edited(now, each), Buffer.from(bytes));

describe('the node and the portable engine', () => {
  it('have the same files, which export the same names', async () => {
    for (const engine of ['node', 'portable']) {
      assert.deepEqual(readdirSync(join(ENGINES, engine)).sort(), FILES);
    }
    for (const file of FILES) assert.deepEqual(await namesOf('portable', file), await namesOf('node', file));
  });

  for (const [name, spki] of SPKI) {
    it(`read ${name} keys alike, and the portable engine reads no changed key that OpenSSL refuses`, () => {
      const good = read(() => portable.publicKeyFromSpki(spki));
      assert.deepEqual(
        good,
        read(() => openssl.publicKeyFromSpki(spki)),
      );
      assert.ok(good);
      let taken = 0;
      fc.assert(
        fc.property(edits, (list) => {
          const changed = all(spki, list);
          const ours = read(() => portable.publicKeyFromSpki(changed));
          if (ours === undefined) return;
          taken += 1;
          assert.deepEqual(
            ours,
            read(() => openssl.publicKeyFromSpki(changed)),
          );
        }),
        { seed: 20261122, numRuns: 2000 },
      );
      assert.ok(taken > 0, 'no changed key was read');
    });
  }

  it('read a changed RSAPublicKey alike if the portable engine reads it at all', () => {
    const pkcs1 = RSA.publicKey.export({ type: 'pkcs1', format: 'der' });
    fc.assert(
      fc.property(edits, (list) => {
        const changed = all(pkcs1, list);
        const ours = read(() => portable.publicKeyFromPkcs1(changed));
        if (ours !== undefined) {
          assert.deepEqual(
            ours,
            read(() => openssl.publicKeyFromPkcs1(changed)),
          );
        }
      }),
      { seed: 20261122, numRuns: 2000 },
    );
  });

  const spki = RSA.publicKey.export({ type: 'spki', format: 'der' }).toString('hex');
  const ec = KEYS['P-256'].publicKey.export({ type: 'spki', format: 'der' }).toString('hex');
  const point = ec.slice(-130);
  const P256 = 'ffffffff00000001000000000000000000000000ffffffffffffffffffffffff';
  for (const [name, hex] of [
    ['a byte after the key', `${ec}00`],
    ['another key after the key', ec + ec],
    ['a longer length than needed', `308159${ec.slice(4)}`],
    ['an indefinite length', `3080${ec.slice(4)}0000`],
    ['a bit string with unused bits', ec.replace('034200', '034201')],
    ['a bit string without its first byte', ec.replace(`034200${point}`, '0300').replace(/^3059/, '3017')],
    ['a coordinate of the field size', ec.replace(point, `04${P256}${point.slice(66)}`)],
    ['a point of zeros', ec.replace(point, `04${'00'.repeat(64)}`)],
    ['the point at infinity', ec.replace(`034200${point}`, '03020000').replace(/^3059/, '3019')],
    ['an unknown curve', ec.replace('2a8648ce3d030107', '2a8648ce3d03017f')],
    ['an unknown algorithm', ec.replace('2a8648ce3d0201', '2a8648ce3d027f')],
    ['an additional element beside the key', `305b${ec.slice(4)}0500`],
    ['a negative modulus', spki.replace('0282010100', '0282010180')],
    ['a padded exponent', spki.replace(/0203010001$/, '0203007fff')],
    ['RSA with the parameters of another algorithm', spki.replace('0500', '0501')],
  ] as const) {
    it(`the portable engine refuses a key with ${name}`, () => {
      assert.ok(![ec, spki].includes(hex), 'nothing was changed');
      const refused = { code: 'evidence_malformed' };
      assert.throws(() => portable.publicKeyFromSpki(Buffer.from(hex, 'hex')), refused);
    });
  }

  for (const curve of ['P-256', 'P-384'] as const) {
    for (const [encoding, dsaEncoding] of [
      ['der', 'der'],
      ['raw', 'ieee-p1363'],
    ] as const) {
      it(`agree on changed ${encoding} signatures on ${curve}`, async () => {
        const { privateKey, publicKey } = KEYS[curve];
        const der = publicKey.export({ type: 'spki', format: 'der' });
        const [theirs, ours] = [openssl.publicKeyFromSpki(der), portable.publicKeyFromSpki(der)];
        const good = sign('sha256', DATA, { key: privateKey, dsaEncoding });
        const verdicts = (signature: Uint8Array): Promise<boolean[]> => {
          const input = { hash: 'sha256', encoding, data: DATA, signature } as const;
          return Promise.all([
            portable.verifyEcdsa({ ...input, key: ours.key }),
            openssl.verifyEcdsa({ ...input, key: theirs.key }),
          ]);
        };
        assert.deepEqual(await verdicts(good), [true, true]);
        await fc.assert(
          fc.asyncProperty(edits, async (list) => {
            const [mine, other] = await verdicts(all(good, list));
            assert.equal(mine, other);
          }),
          { seed: 20261122, numRuns: 250 },
        );
      });
    }
  }

  it('agree on changed RSASSA-PSS signatures', async () => {
    const der = RSA.publicKey.export({ type: 'spki', format: 'der' });
    const [theirs, ours] = [openssl.publicKeyFromSpki(der), portable.publicKeyFromSpki(der)];
    const padding = constants.RSA_PKCS1_PSS_PADDING;
    const good = sign('sha384', DATA, { key: RSA.privateKey, padding, saltLength: 48 });
    const verdicts = (signature: Uint8Array): Promise<boolean[]> =>
      Promise.all([
        portable.verifyRsaPssSha384(ours.key, DATA, signature),
        openssl.verifyRsaPssSha384(theirs.key, DATA, signature),
      ]);
    assert.deepEqual(await verdicts(good), [true, true]);
    await fc.assert(
      fc.asyncProperty(edits, async (list) => {
        const [mine, other] = await verdicts(all(good, list));
        assert.equal(mine, other);
      }),
      { seed: 20261122, numRuns: 250 },
    );
  });

  it('the portable engine refuses a signature that the runtime cannot check', async (t) => {
    const { key } = portable.publicKeyFromSpki(RSA.publicKey.export({ type: 'spki', format: 'der' }));
    const padding = constants.RSA_PKCS1_PSS_PADDING;
    const good = sign('sha384', DATA, { key: RSA.privateKey, padding, saltLength: 48 });
    t.mock.method(crypto.subtle, 'verify', () => Promise.reject(new Error('not supported')));
    assert.equal(await portable.verifyRsaPssSha384(key, DATA, good), false);
  });
});
