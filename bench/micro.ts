/**
 * mitata over the hot functions alone: to see what a change does before the whole is measured. `npm run
 * bench:micro`.
 */
import { createDecipheriv, createSecretKey, randomBytes } from 'node:crypto';
import { bench, run } from 'mitata';
import { SecretKey } from '#crypto';
import { ENDPOINTS, type Endpoint } from '../lib/api/endpoints.ts';
import { decodeQuoteV4 } from '../lib/attestation/tdx/quote.ts';
import { verify } from '../lib/attestation/verify-evidence.ts';
import { type MessageSealer, RequestCipher } from '../lib/envelope/message-cipher.ts';
import { scanJson } from '../lib/json/scan.ts';
import { EventDecrypter } from '../lib/pipeline/decrypt-events.ts';
import { encryptBody } from '../lib/pipeline/encrypt-body.ts';
import { injectSalt, shardKeyOf } from '../lib/pipeline/inject-salt.ts';
import { bodyReader } from '../lib/pipeline/request-body.ts';
import { startSecretExchange } from '../lib/session/secret-exchange.ts';
import { chatBody, OPEN_PROTECTION, OPEN_SECRET, sealedEvents } from './fixtures.ts';
import { answeredExchange, EVIDENCE, longestHold, NO_QUOTE } from './trust-fixtures.ts';

const EVENTS = 1_000;
const CHUNK = 65_536;
const secret = { id: OPEN_SECRET.id, key: new SecretKey(Buffer.from(OPEN_SECRET.key)) };
const events = sealedEvents(EVENTS, OPEN_PROTECTION);
const stream = Buffer.concat(events);
const body = chatBody({}, 1_000_000);
const megabyte = randomBytes(1_000_000);
const chat = ENDPOINTS.find(({ id }) => id === 'chat') as Endpoint;

function* chunksOf(bytes: Buffer, size: number): Generator<Buffer, void, undefined> {
  for (let i = 0; i < bytes.length; i += size) yield bytes.subarray(i, i + size);
}

function openAll(chunks: Iterable<Buffer>): void {
  const cipher = new RequestCipher(secret, { nonce: OPEN_SECRET.nonce });
  const opener = new EventDecrypter({ id: 'chat' }, cipher, {
    streaming: true,
    choices: 1,
    format: undefined,
    usage: 'every',
  });
  for (const chunk of chunks) opener.feed(chunk);
  if (opener.failure !== undefined) throw opener.failure;
}

bench('open 1000 events, each a chunk', () => openAll(events));
bench('open 1000 events, 16 KiB a chunk', () => openAll(chunksOf(stream, 16_384)));

bench('decipher 4000 messages of 100 bytes, nothing else', () => {
  const key = createSecretKey(OPEN_SECRET.key);
  const [iv, aad, tag, text] = [Buffer.alloc(12), Buffer.alloc(16), Buffer.alloc(16), Buffer.alloc(100)];
  for (let i = 0; i < 4 * EVENTS; i++) {
    const decipher = createDecipheriv('aes-256-gcm', key, iv, { authTagLength: 16 });
    decipher.setAAD(aad);
    decipher.setAuthTag(tag);
    decipher.update(text);
    try {
      decipher.final();
    } catch {} // it is not authentic, which is as much work
  }
});

bench('scan 1 MB of chat', () => scanJson(body));

for (const [name, salt] of [
  ['a fresh salt', undefined],
  ['a shared salt', 'x'.repeat(32)],
] as const) {
  bench(`take in and seal 1 MB of chat, ${name}`, async () => {
    const salted = injectSalt(await bodyReader(chat, undefined)!(body, {}), { shared: salt });
    for (const slice of encryptBody(salted, new RequestCipher(secret)).slices) slice.at(0);
  });
}

bench('seal 1 MB, nothing else', () => {
  const sealer = new RequestCipher(secret).seal([megabyte])[0] as MessageSealer;
  const target = Buffer.allocUnsafe(CHUNK);
  for (const chunk of chunksOf(megabyte, CHUNK / 2)) sealer.update(chunk, target, 0);
  sealer.final();
});

const prompt = {
  name: 'prompt',
  before: Buffer.alloc(0),
  bytes: Buffer.alloc(1_000_000, '['),
  isPlain: false,
};
bench('shard key of 1 MB', () => void shardKeyOf([prompt], Buffer.alloc(32)));

for (const [name, evidence] of Object.entries(EVIDENCE)) {
  bench(`verdict on ${name} evidence`, async () => {
    const { outcome } = await verify(evidence);
    if (outcome !== 'accepted') throw new Error(outcome);
  });
}

for (const [name, message] of Object.entries(NO_QUOTE)) {
  bench(`refusal of a megabyte of ${name} as a TDX message`, () => {
    try {
      decodeQuoteV4(message);
    } catch {
      return;
    }
    throw new Error('it was taken for a quote');
  });
}

bench('key pair for a secret', () => startSecretExchange());

const { complete } = await answeredExchange();
bench('secret from the answer to a key pair', () => complete());

await run();

for (const [name, evidence] of Object.entries(EVIDENCE)) {
  const holds: number[] = [];
  for (let i = 0; i < 20; i++) holds.push(await longestHold(() => verify(evidence)));
  console.log(
    `a verdict on ${name} evidence holds the event loop for ${Math.min(...holds).toFixed(1)} ms at most`,
  );
}
