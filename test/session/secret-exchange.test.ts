import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import type { Key, KeyPair } from 'hpke';
import type { Check } from '../../lib/attestation/check.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import { SUITE, startSecretExchange } from '../../lib/session/secret-exchange.ts';
import { isMadeOf } from '../support/evidence/engine.ts';

const VECTORS = join(import.meta.dirname, '../vectors');
const read = (path: string) => JSON.parse(readFileSync(join(VECTORS, path), 'utf8'));

const hex = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'hex'));

const check = (outcome: Check['outcome']): Check => ({
  id: 'mesh.signature',
  outcome,
  expected: 'a signature of the service',
  found: 'another one',
  source: 'attestation.md 12',
});
const ACCEPTED: readonly Check[] = [check('pass')];

async function knownPair(seed: Uint8Array, publicKey: Uint8Array): Promise<KeyPair<Key>> {
  return {
    privateKey: await SUITE.DeserializePrivateKey(seed, false),
    publicKey: await SUITE.DeserializePublicKey(publicKey),
  };
}

const failsWith = (words: RegExp) => (error: unknown) =>
  error instanceof PrivatemodeError && error.code === 'secret_exchange_failed' && words.test(error.message);

interface KnownAnswer {
  readonly name: string;
  readonly seed: Uint8Array;
  readonly publicKey: Uint8Array;
  readonly enc: Uint8Array;
  readonly secret: string;
  readonly id: string;
}

function knownAnswers(): KnownAnswer[] {
  const inference = read('inference/secret-exchange.json');
  const kat = read('attestation/hpke/secret_exchange_kat.json');
  const seed = hex(kat.recipient_seed_hex);
  return [
    ...inference.vectors.map((vector: Record<string, string>, index: number) => ({
      name: `inference/secret-exchange.json ${index}`,
      seed: hex(vector['privateKeySeedHex'] ?? ''),
      publicKey: hex(vector['publicKeyHex'] ?? ''),
      enc: hex(vector['encapsulatedKeyHex'] ?? ''),
      secret: vector['inferenceSecretHex'] ?? '',
      id: vector['secretId'] ?? '',
    })),
    {
      name: 'attestation/hpke/secret_exchange_kat.json',
      seed,
      publicKey: hex(kat.public_key_hex),
      enc: hex(kat.enc_hex),
      secret: kat.exported_secret_hex,
      id: kat.secret_id,
    },
  ];
}

describe('secret exchange', () => {
  for (const { name, seed, publicKey, enc, secret, id } of knownAnswers()) {
    it(`derives the known answer of ${name}`, async () => {
      const exchange = await startSecretExchange(await knownPair(seed, publicKey));
      assert.deepEqual(exchange.publicKey, publicKey);
      const shared = await exchange.complete(enc, ACCEPTED);
      assert.ok(isMadeOf(shared.key, hex(secret)));
      assert.equal(shared.secretId, id);
    });
  }

  for (const { name, privateKeySeedHex, encapsulatedKeyHex } of read('inference/secret-exchange.json')
    .mustFail) {
    it(`refuses: ${name}`, async () => {
      const { publicKeyHex } = read('inference/secret-exchange.json').vectors[0];
      const exchange = await startSecretExchange(await knownPair(hex(privateKeySeedHex), hex(publicKeyHex)));
      const attempt = exchange.complete(hex(encapsulatedKeyHex), ACCEPTED);
      await assert.rejects(attempt, failsWith(/cannot be opened/));
    });
  }

  it('derives the same secret as the sender, with a fresh key pair for each exchange', async () => {
    const exchanges = await Promise.all([startSecretExchange(), startSecretExchange()]);
    assert.notDeepEqual(exchanges[0].publicKey, exchanges[1].publicKey);
    for (const exchange of exchanges) {
      assert.equal(exchange.publicKey.length, 1216);
      const recipient = await SUITE.DeserializePublicKey(exchange.publicKey);
      const sent = await SUITE.SendExport(recipient, new Uint8Array(0), 32);
      const { key, secretId } = await exchange.complete(sent.encapsulatedSecret, ACCEPTED);
      assert.ok(isMadeOf(key, sent.exportedSecret));
      assert.equal(secretId, createHash('sha256').update(exchange.publicKey).digest('base64'));
    }
  });

  it('derives nothing unless every check passed', async () => {
    const { seed, publicKey, enc } = knownAnswers()[0] as KnownAnswer;
    for (const outcomes of [[], ['pass', 'fail'], ['pass', 'not-evaluated']] as const) {
      const exchange = await startSecretExchange(await knownPair(seed, publicKey));
      const refused = exchange.complete(enc, outcomes.map(check));
      await assert.rejects(refused, failsWith(/does not come from the attested deployment/));
    }
  });

  it('refuses to use its private key twice, even if the first use failed', async () => {
    const { seed, publicKey, enc } = knownAnswers()[0] as KnownAnswer;
    for (const first of [ACCEPTED, []]) {
      const exchange = await startSecretExchange(await knownPair(seed, publicKey));
      await exchange.complete(enc, first).catch(() => {});
      await assert.rejects(exchange.complete(enc, ACCEPTED), failsWith(/completed before/));
    }
  });

  it('zeroes the bytes of the secret that HPKE returned', async (t) => {
    const { seed, publicKey, enc, secret } = knownAnswers()[0] as KnownAnswer;
    const handedOut = t.mock.method(SUITE, 'ReceiveExport');
    const exchange = await startSecretExchange(await knownPair(seed, publicKey));
    const { key } = await exchange.complete(enc, ACCEPTED);
    assert.deepEqual(await handedOut.mock.calls[0]?.result, new Uint8Array(32));
    assert.ok(isMadeOf(key, hex(secret)));
  });

  it('makes a private key that cannot be exported', async (t) => {
    const made = t.mock.method(SUITE, 'GenerateKeyPair');
    await startSecretExchange();
    const pair = await made.mock.calls[0]?.result;
    assert.ok(pair !== undefined);
    assert.equal(pair.privateKey.extractable, false);
    await assert.rejects(SUITE.SerializePrivateKey(pair.privateKey));
  });
});
