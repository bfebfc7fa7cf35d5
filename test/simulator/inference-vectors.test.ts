/**
 * The simulator's own reading of the protocol against the golden data of test/vectors/inference: what it
 * opens and refuses. That it seals by the same rules shows in every test with the program in front of it.
 */
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { describe, it } from 'node:test';
import { ENDPOINTS, type Endpoint } from '../../simulator/inference/endpoints.ts';
import { createOpener, openMembers } from '../../simulator/inference/envelope.ts';
import { checkGpuPolicy, type GpuStatus } from '../../simulator/inference/gpu-policy.ts';
import { Rejection } from '../../simulator/inference/rejection.ts';
import { openRequest } from '../../simulator/inference/request.ts';
import { ENDPOINTS as LITERAL } from '../support/remote/endpoints.ts';
import { hex } from '../support/remote/exchange-fixture.ts';
import { Attempt } from '../support/remote/literal-client.ts';
import requests from '../vectors/inference/field-encryption-requests.json' with { type: 'json' };
import primitive from '../vectors/inference/message-primitive.json' with { type: 'json' };
import ocsp from '../vectors/inference/ocsp-headers.json' with { type: 'json' };

interface Protected {
  readonly secretId: string;
  readonly secretHex: string;
  readonly requestNonceHex: string;
}

const lookupOf =
  ({ secretId, secretHex }: Protected) =>
  (id: string): Uint8Array | undefined =>
    id === secretId ? hex(secretHex) : undefined;

const clientOf = ({ secretId, secretHex }: Protected, nonce?: Buffer) =>
  new Attempt({ id: secretId, bytes: hex(secretHex) }, nonce);

const endpointNamed = (name: string): Endpoint =>
  ENDPOINTS.find((candidate) => candidate.name === name) ?? assert.fail(name);

describe('the simulator, tested with message-primitive.json,', () => {
  interface File extends Protected {
    vectors: { name: string; plaintextHex: string; sequence: number; message: string }[];
    mustFail: { name: string; sequence: number; message: string; requestNonceHex?: string }[];
    upstreamAccepts: { name: string; message: string; plaintextHex: string }[];
  }
  const file: File = primitive;
  const openerAt = (sequence: number) => {
    const opener = createOpener(lookupOf(file));
    const client = clientOf(file, hex(file.requestNonceHex));
    for (let before = 0; before < sequence; before++) opener.open(client.seal('x'));
    return opener;
  };

  it('opens every message', () => {
    // The server counts; it cannot be told to begin anywhere.
    const reachable = file.vectors.filter(({ sequence }) => sequence <= 1000);
    assert.ok(reachable.length > 5);
    for (const { name, sequence, message, plaintextHex } of reachable)
      assert.equal(openerAt(sequence).open(message).toString('hex'), plaintextHex, name);
  });

  it('refuses every message that must fail', () => {
    // A server takes the nonce from the message itself.
    for (const { name, sequence, message, requestNonceHex } of file.mustFail)
      if (requestNonceHex === undefined)
        assert.throws(() => openerAt(sequence).open(message), Rejection, name);
    const short = clientOf(file, Buffer.alloc(11)).seal('x');
    assert.throws(() => openerAt(0).open(short), /nonce has the wrong length/);
  });

  it('refuses a message with another nonce than the first message, and one with a second secret', () => {
    const other = clientOf(file);
    other.seal('x');
    assert.throws(() => openerAt(1).open(other.seal('x')), Rejection);
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
  interface Vector {
    readonly name: string;
    readonly endpoint: string;
    readonly input: string;
    readonly expected: string;
    readonly plaintextsInSequenceOrder: readonly string[];
  }
  interface File extends Protected {
    vectors: Vector[];
    mustReject: { name: string; input: string }[];
  }
  const file = requests as unknown as File;
  const open = ({ endpoint, expected }: Vector, opener = createOpener(lookupOf(file))): string =>
    openMembers(Buffer.from(expected), endpointNamed(endpoint).plainRequest, opener);
  const vectorNamed = (wanted: string) =>
    file.vectors.find(({ name }) => name === wanted) ?? assert.fail(wanted);
  const refused: Record<string, RegExp> = {
    'chat-duplicate-plain-field': /twice/,
    'chat-punctuation-keys': /"!x" cannot be addressed/, // one of its names
  };

  it('opens every request to its input, byte for byte and in the order of its messages', () => {
    for (const vector of file.vectors.filter(({ name }) => !(name in refused))) {
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
      assert.equal(open(vector, watched), vector.input, vector.name);
      assert.deepEqual(opened, vector.plaintextsInSequenceOrder, vector.name);
    }
  });

  for (const [name, message] of Object.entries(refused)) {
    it(`refuses ${name}, although the reference client sends it`, () =>
      assert.throws(() => open(vectorNamed(name)), message));
  }

  const request = (body: string) =>
    openRequest(endpointNamed('chat'), '/', {}, Buffer.from(body), lookupOf(file));

  it('refuses a body without an encrypted member', async () => {
    for (const name of ['chat-only-plain-fields', 'chat-empty-object'])
      await assert.rejects(request(vectorNamed(name).expected), /no encrypted field in the request/);
  });

  for (const { name, input } of file.mustReject) {
    it(`refuses an input that a client has not encrypted as a whole: ${name}`, async () => {
      // The worst a client could do: it seals what it can and leaves the rest as it is.
      const sealed = input.replace('"messages":[]', () => `"messages":${clientOf(file).seal('[]')}`);
      await assert.rejects(request(sealed), Rejection);
    });
  }
});

describe('the simulator, tested with ocsp-headers.json,', () => {
  interface File {
    vectors: { policy: string; mac: string; secretHex: string; statuses: string[] }[];
  }
  const { vectors }: File = ocsp;
  const check =
    (policy: string | undefined, mac: string | undefined, key: Uint8Array, gpu: GpuStatus) => () =>
      checkGpuPolicy({ policy, mac }, 'id', () => key, gpu);
  const GOOD = { status: 'good' } as const;

  it('accepts every policy with its MAC and no other, and applies it to a good, an unknown and a revoked GPU', () => {
    for (const { policy, mac, secretHex, statuses } of vectors) {
      const judge = (gpu: GpuStatus) => check(policy, mac, hex(secretHex), gpu);
      judge(GOOD)();
      const judged = statuses.includes('allow-unknown') ? assert.doesNotThrow : assert.throws;
      judged(judge({ status: 'unknown' }));
      const notBefore = Number(/=(-?\d+)$/.exec(policy)?.[1]);
      assert.throws(judge({ status: 'revoked', revokedAt: notBefore - 1 }));
      const edge = statuses.includes('allow-revoked') ? assert.doesNotThrow : assert.throws;
      edge(judge({ status: 'revoked', revokedAt: notBefore }));
      const wrong = hex(mac);
      wrong[31]! ^= 1;
      const named = new RegExp(`wrong MAC: expected ${mac}$`);
      assert.throws(check(policy, wrong.toString('hex'), hex(secretHex), GOOD), named);
    }
    assert.ok(vectors.length > 8);
  });

  it('refuses a malformed policy, an unknown rule, a policy without its MAC, and a bad GPU without policy and MAC', () => {
    const secret = Buffer.alloc(32);
    const signed = (policy: string) =>
      check(policy, createHmac('sha256', secret).update(policy).digest('hex'), secret, GOOD);
    const good = 'rules=allow-good; revocation-time-not-before=0';
    assert.doesNotThrow(signed(good));
    assert.throws(signed(`${good}; x=1`), /malformed/);
    assert.throws(signed(`${good} `), /malformed/);
    assert.throws(signed('rules=allow-all; revocation-time-not-before=0'), /unknown rule/);
    assert.throws(check(good, undefined, secret, GOOD), /come together/);
    assert.doesNotThrow(check(undefined, undefined, secret, GOOD));
    assert.throws(check(undefined, undefined, secret, { status: 'unknown' }), /unknown is not allowed/);
  });
});

it('the simulator leaves in clear, in requests and responses, only the members that the protocol lists', () => {
  const names = 'chat completions messages embeddings transcriptions unstructured models model'.split(' ');
  assert.deepEqual(
    ENDPOINTS.map(({ name }) => name),
    names,
  );
  for (const { name, path, plainRequest: request, plainResponse: response } of ENDPOINTS) {
    const listed = Object.values(LITERAL).find((each) => path.test(each.path))?.plain;
    assert.deepEqual({ request, response }, listed ?? { request: new Set(), response: new Set() }, name);
  }
});
