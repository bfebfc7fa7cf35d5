/**
 * The simulator's own reading of the protocol against the golden data of test/vectors/inference: what it
 * opens and refuses. That it seals by the same rules shows in every test with the program in front of it,
 * which opens what the golden data hold (test/pipeline).
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { ENDPOINTS, type Endpoint } from '../../simulator/inference/endpoints.ts';
import { createOpener, createSealer, openMembers, sealMembers } from '../../simulator/inference/envelope.ts';
import { checkGpuPolicy } from '../../simulator/inference/gpu-policy.ts';
import { Rejection } from '../../simulator/inference/rejection.ts';
import { openRequest } from '../../simulator/inference/request.ts';
import { Attempt, PLAIN } from '../support/remote/literal-client.ts';

const VECTORS = join(import.meta.dirname, '..', 'vectors', 'inference');

function read<T>(name: string): T {
  return JSON.parse(readFileSync(join(VECTORS, name), 'utf8')) as T;
}

interface Protected {
  readonly secretId: string;
  readonly secretHex: string;
  readonly requestNonceHex: string;
}

const hex = (text: string): Buffer => Buffer.from(text, 'hex');

const lookupOf =
  ({ secretId, secretHex }: Protected) =>
  (id: string): Uint8Array | undefined =>
    id === secretId ? hex(secretHex) : undefined;

function endpointNamed(name: string): Endpoint {
  const endpoint = ENDPOINTS.find((candidate) => candidate.name === name);
  assert.ok(endpoint, name);
  return endpoint;
}

describe('the simulator, tested with message-primitive.json,', () => {
  interface File extends Protected {
    vectors: { name: string; plaintextHex: string; sequence: number; message: string }[];
    mustFail: { name: string; sequence: number; message: string; requestNonceHex?: string }[];
    upstreamAccepts: { name: string; message: string; plaintextHex: string }[];
  }
  const file = read<File>('message-primitive.json');
  const openerAt = (sequence: number) => {
    const opener = createOpener(lookupOf(file));
    const client = new Attempt({ id: file.secretId, bytes: hex(file.secretHex) }, hex(file.requestNonceHex));
    for (let before = 0; before < sequence; before++) opener.open(client.seal('x'));
    return opener;
  };

  for (const { name, sequence, message, plaintextHex } of file.vectors) {
    if (sequence > 1000) continue; // the server counts; it cannot be told to begin anywhere
    it(`opens ${name}`, () => {
      assert.equal(openerAt(sequence).open(message).toString('hex'), plaintextHex);
    });
  }

  for (const { name, sequence, message, requestNonceHex } of file.mustFail) {
    if (requestNonceHex !== undefined) continue; // a server takes the nonce from the message itself
    it(`refuses ${name}`, () => {
      assert.throws(() => openerAt(sequence).open(message), Rejection);
    });
  }

  it('refuses a message with another nonce than the first message, and one with a second secret', () => {
    const opener = openerAt(1);
    const other = new Attempt({ id: file.secretId, bytes: hex(file.secretHex) });
    other.seal('x');
    assert.throws(() => opener.open(other.seal('x')), Rejection);
    const foreign = new Attempt({ id: 'other', bytes: hex(file.secretHex) });
    assert.throws(() => openerAt(1).open(foreign.seal('x')), /more than one secret/);
  });

  for (const { name, message, plaintextHex } of file.upstreamAccepts.slice(0, 2)) {
    it(`accepts ${name}, and notes an irregularity`, () => {
      const opener = openerAt(0);
      assert.equal(opener.open(message).toString('hex'), plaintextHex);
      assert.equal(opener.irregularities.length, 1);
    });
  }
});

describe('the simulator, tested with field-encryption-requests.json,', () => {
  interface File extends Protected {
    vectors: {
      name: string;
      endpoint: string;
      input: string;
      expected: string;
      plaintextsInSequenceOrder: string[];
    }[];
    mustReject: { name: string; input: string }[];
  }
  const file = read<File>('field-encryption-requests.json');
  const refused: Record<string, RegExp> = {
    'chat-duplicate-plain-field': /twice/,
    'chat-punctuation-keys': /"!x" cannot be addressed/, // one of its names
  };
  const tolerant = file.vectors.filter(({ name }) => !(name in refused));
  assert.equal(tolerant.length, file.vectors.length - 2);

  for (const { name, endpoint, input, expected, plaintextsInSequenceOrder } of tolerant) {
    it(`opens ${name} to its input, byte for byte`, () => {
      const opener = createOpener(lookupOf(file));
      const opened: string[] = [];
      const watched = {
        ...opener,
        open(text: string) {
          const plaintext = opener.open(text);
          opened.push(plaintext.toString());
          return plaintext;
        },
      };
      assert.equal(openMembers(Buffer.from(expected), endpointNamed(endpoint).plainRequest, watched), input);
      assert.deepEqual(opened, plaintextsInSequenceOrder);
    });
  }

  for (const [name, message] of Object.entries(refused)) {
    it(`refuses ${name}, although the reference client sends it`, () => {
      const vector = file.vectors.find((candidate) => candidate.name === name);
      const opener = createOpener(lookupOf(file));
      assert.throws(
        () => openMembers(Buffer.from(vector!.expected), endpointNamed('chat').plainRequest, opener),
        message,
      );
    });
  }

  it('refuses a body without an encrypted member', () => {
    for (const name of ['chat-only-plain-fields', 'chat-empty-object']) {
      const vector = file.vectors.find((candidate) => candidate.name === name);
      const body = Buffer.from(vector!.expected);
      assert.throws(
        () => openRequest(endpointNamed('chat'), '/', {}, body, lookupOf(file)),
        /no encrypted field in the request/,
      );
    }
  });

  for (const { name, input } of file.mustReject) {
    it(`refuses an input that a client has not encrypted as a whole: ${name}`, () => {
      // The worst a client could do: it seals what it can and leaves the rest as it is.
      const client = new Attempt({ id: file.secretId, bytes: hex(file.secretHex) });
      const body = input.replace('"messages":[]', () => `"messages":${client.seal('[]')}`);
      assert.throws(
        () => openRequest(endpointNamed('chat'), '/', {}, Buffer.from(body), lookupOf(file)),
        Rejection,
      );
    });
  }
});

describe('the simulator, tested with ocsp-headers.json,', () => {
  interface File {
    vectors: { policy: string; mac: string; secretHex: string; statuses: string[] }[];
  }
  const { vectors } = read<File>('ocsp-headers.json');

  it('accepts every policy with its MAC, and applies the policy to a good, an unknown and a revoked GPU', () => {
    for (const { policy, mac, secretHex, statuses } of vectors) {
      const check = (gpu: Parameters<typeof checkGpuPolicy>[3]) => (): void =>
        checkGpuPolicy({ policy, mac }, 'id', () => hex(secretHex), gpu);
      check({ status: 'good' })();
      const judged = statuses.includes('allow-unknown') ? assert.doesNotThrow : assert.throws;
      judged(check({ status: 'unknown' }));
      const notBefore = Number(/=(-?\d+)$/.exec(policy)?.[1]);
      assert.throws(check({ status: 'revoked', revokedAt: notBefore - 1 }));
      const edge = statuses.includes('allow-revoked') ? assert.doesNotThrow : assert.throws;
      edge(check({ status: 'revoked', revokedAt: notBefore }));
    }
    assert.ok(vectors.length > 8);
  });

  it('refuses a malformed policy, an unknown rule, a policy without its MAC, and a bad GPU without policy and MAC', () => {
    const secret = Buffer.alloc(32);
    const check = (policy: string, mac: string | undefined) => () =>
      checkGpuPolicy({ policy, mac }, 'id', () => secret, { status: 'good' });
    const signed = (policy: string) =>
      check(policy, createHmac('sha256', secret).update(policy).digest('hex'));
    const good = 'rules=allow-good; revocation-time-not-before=0';
    assert.doesNotThrow(signed(good));
    assert.throws(signed(`${good}; x=1`), /malformed/);
    assert.throws(signed(`${good} `), /malformed/);
    assert.throws(signed('rules=allow-all; revocation-time-not-before=0'), /unknown rule/);
    assert.throws(check(good, undefined), /come together/);
    const withoutPolicy = (status: 'good' | 'unknown') => () =>
      checkGpuPolicy({ policy: undefined, mac: undefined }, 'id', () => secret, { status });
    assert.doesNotThrow(withoutPolicy('good'));
    assert.throws(withoutPolicy('unknown'), /unknown is not allowed/);
  });

  it('refuses every policy under a MAC with one bit flipped', () => {
    for (const { policy, mac, secretHex } of vectors) {
      const wrong = hex(mac);
      wrong[31]! ^= 1;
      assert.throws(
        () =>
          checkGpuPolicy({ policy, mac: wrong.toString('hex') }, 'id', () => hex(secretHex), {
            status: 'good',
          }),
        /wrong MAC/,
      );
    }
  });
});

describe('the simulator', () => {
  it('leaves in clear, in requests and responses, only the members that the protocol lists', () => {
    const { nothing, chat, answer } = PLAIN;
    const listed = {
      chat: [chat, answer],
      completions: [chat, answer],
      messages: [PLAIN.messages, PLAIN.messagesAnswer],
      embeddings: [PLAIN.embeddings, answer],
      transcriptions: [PLAIN.form, PLAIN.transcriptionAnswer],
      unstructured: [nothing, nothing],
      models: [nothing, nothing],
      model: [nothing, nothing],
    };
    const plain = ENDPOINTS.map(({ name, plainRequest, plainResponse }) => [
      name,
      [[...plainRequest], [...plainResponse]],
    ]);
    assert.deepEqual(Object.fromEntries(plain), listed);
  });

  it('seals and numbers the elements of an array by index as text: 0, 1, 10, 11, 2', () => {
    const order: string[] = [];
    const text = JSON.stringify(Array.from({ length: 12 }, (_, index) => index));
    sealMembers(text, new Set(), (plaintext) => {
      order.push(plaintext);
      return '""';
    });
    assert.deepEqual(order, ['0', '1', '10', '11', '2', '3', '4', '5', '6', '7', '8', '9']);
  });

  it('draws a fresh iv for every message that it seals', () => {
    const seal = createSealer({ secretId: 'id', key: Buffer.alloc(32), nonce: Buffer.alloc(12) });
    const ivs = Array.from({ length: 100 }, () => seal('x').split(':')[2]);
    assert.equal(new Set(ivs).size, 100);
  });
});
