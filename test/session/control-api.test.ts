import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { systemClock } from '../../lib/clock.ts';
import { PrivatemodeError } from '../../lib/errors.ts';
import type { HttpRequest } from '../../lib/network/call-limits.ts';
import { type ControlApi, createControlApi } from '../../lib/session/control-api.ts';

const VECTORS = join(import.meta.dirname, '../vectors/attestation/synthetic');
const vector = (name: string): string => readFileSync(join(VECTORS, name), 'utf8');
const KEY = 'sk-canary-0123456789';

function api(status: number, body: string | Uint8Array): { api: ControlApi; calls: HttpRequest[] } {
  const calls: HttpRequest[] = [];
  const created = createControlApi({
    endpoint: { host: 'api.example', port: 8443 },
    protocolVersion: 'v1.40.0',
    clock: systemClock,
    call: async (call) => {
      calls.push(call);
      return { status, headers: {}, body: new Uint8Array(Buffer.from(body)), pause: 25 };
    },
  });
  return { api: created, calls };
}

const NONCE = new Uint8Array(32).fill(7);
const PUBLIC_KEY = new Uint8Array(1216).fill(9);

const withCode =
  (code: string, words?: RegExp) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof PrivatemodeError, String(error));
    assert.equal(error.code, code, error.message);
    if (words !== undefined) assert.match(error.message, words);
    assert.doesNotMatch(error.message, /canary/);
    assert.match(error.message, /^[\x20-\x7e…]*$/);
    return true;
  };

describe('control API', () => {
  it('requests an attestation with the documented URL, headers, body and limits', async () => {
    const { api: control, calls } = api(200, vector('attest_response.json'));
    const document = await control.attest(KEY, NONCE);
    assert.deepEqual(Buffer.from(document), readFileSync(join(VECTORS, 'coordinator_response.json')));
    const [call] = calls;
    assert.equal(call?.url, 'https://api.example:8443/privatemode/v1/attest');
    assert.equal(call?.method, 'POST');
    assert.equal(call?.headers?.['authorization'], `Bearer ${KEY}`);
    assert.equal(call?.headers?.['privatemode-version'], 'v1.40.0');
    assert.deepEqual(JSON.parse(call?.body ?? ''), { Nonce: Buffer.from(NONCE).toString('base64') });
    assert.equal(call?.maxBytes, 1_048_576);
    assert.equal(call?.timeout, 30_000);
  });

  it('requests a secret with the documented URL and body, and decodes the response', async () => {
    const { api: control, calls } = api(200, vector('secret_response.json'));
    const answer = await control.secret(KEY, PUBLIC_KEY);
    const expected = JSON.parse(vector('secret_response.json'));
    assert.equal(Buffer.from(answer.encapsulatedKey).toString('base64'), expected.EncapsulatedKey);
    assert.equal(Buffer.from(answer.signature).toString('base64'), expected.Signature);
    assert.equal(Buffer.from(answer.meshCert).toString('base64'), expected.MeshCert);
    assert.equal(calls[0]?.url, 'https://api.example:8443/privatemode/v1/secret');
    assert.deepEqual(JSON.parse(calls[0]?.body ?? ''), {
      PublicKey: Buffer.from(PUBLIC_KEY).toString('base64'),
    });
  });

  it('fails with api_key_rejected after 401, and with control_api_failed after any other status but 200', async () => {
    const rejected = api(401, 'who are you?').api;
    await assert.rejects(rejected.attest(KEY, NONCE), withCode('api_key_rejected', /who are you/));
    await assert.rejects(rejected.secret(KEY, PUBLIC_KEY), withCode('api_key_rejected'));
    const words =
      /^the service rejects the API key \(it is "placeholder", and --api-key gives no other\): who are you\?$/;
    await assert.rejects(rejected.attest('placeholder', NONCE), withCode('api_key_rejected', words));
    const { api: saying } = api(401, '{"error":{"message":"unauthorized","type":"unauthorized"}}');
    await assert.rejects(saying.attest(KEY, NONCE), withCode('api_key_rejected', /API key: unauthorized$/));
    for (const status of [201, 204, 400, 403, 404, 412, 429, 500, 503]) {
      const { api: control } = api(status, 'try later');
      const words = new RegExp(`status ${status}: try later`);
      const refused = control.attest(KEY, NONCE);
      await assert.rejects(refused, withCode('control_api_failed', words));
      await assert.rejects(refused, { detail: { pause: 25 } }, 'the pause that the host wants');
    }
  });

  it('reports client_too_old if a short error body of any error status names a minimum version', async () => {
    for (const status of [400, 401, 403, 426, 500]) {
      const { api: control } = api(status, `${KEY}: minimum client version v1.46, or else`);
      const words = /wants a client of version 1\.46 or newer; this one announces v1\.40\.0$/;
      await assert.rejects(control.attest(KEY, NONCE), withCode('client_too_old', words));
      await assert.rejects(control.secret(KEY, PUBLIC_KEY), withCode('client_too_old', words));
    }
    const long = api(400, `minimum version v1.46${' '.repeat(4096)}`).api;
    await assert.rejects(long.attest(KEY, NONCE), withCode('control_api_failed'));
    const redirect = api(302, 'minimum version v1.46').api;
    await assert.rejects(redirect.attest(KEY, NONCE), withCode('control_api_failed'));
  });

  it('shows only a short line of plain text of an error body, without the API key', async () => {
    const { api: control } = api(500, `bad\r\n\x1b[31mkey ${KEY}\u0000${'x'.repeat(100_000)}`);
    await assert.rejects(control.attest(KEY, NONCE), (error: Error) => {
      assert.ok(error.message.length < 300);
      return withCode('control_api_failed', /bad \[31mkey \(key\) x/)(error);
    });
  });

  it('refuses a key that is not a valid header value, and sends nothing', async () => {
    for (const key of ['', 'a b', 'a\r\nx: canary', 'ä']) {
      const { api: control, calls } = api(200, '{}');
      await assert.rejects(control.attest(key, NONCE), withCode('api_key_rejected'));
      assert.equal(calls.length, 0);
    }
  });

  for (const [what, body] of [
    ['an empty body', ''],
    ['a web page', '<html>Sign in to the guest network</html>'],
    ['an array', '["aGk="]'],
    ['another member', '{"attestationDoc":"aGk="}'],
    ['a member twice', '{"AttestationDoc":"aGk=","AttestationDoc":"aGs="}'],
    ['a number', '{"AttestationDoc":7}'],
    ['an empty string', '{"AttestationDoc":""}'],
    ['base64 without padding', '{"AttestationDoc":"aGk"}'],
  ] as const) {
    it(`does not accept ${what} as an attestation: evidence_malformed`, async () => {
      await assert.rejects(api(200, body).api.attest(KEY, NONCE), withCode('evidence_malformed'));
    });
  }

  it('reads JSON of 8 levels and 256 values, and refuses one level or value more', async () => {
    const answer = (more: string): Promise<Uint8Array> =>
      api(200, `{"AttestationDoc":"aGk=","more":${more}}`).api.attest(KEY, NONCE);
    const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels);
    const list = (items: number): string => `[${'0,'.repeat(items - 1)}0]`;
    // With the object itself; it, the document and the list are values, too.
    for (const more of [nested(7), list(253)]) assert.equal(String(Buffer.from(await answer(more))), 'hi');
    for (const more of [nested(8), list(254)])
      await assert.rejects(answer(more), withCode('evidence_malformed'));
  });

  it('refuses a secret response with an encapsulated key of another size, or without a member', async () => {
    const good = JSON.parse(vector('secret_response.json'));
    const bytes = Buffer.from(good.EncapsulatedKey, 'base64');
    for (const wrong of [bytes.subarray(1), Buffer.concat([bytes, bytes.subarray(0, 1)])]) {
      const body = JSON.stringify({ ...good, EncapsulatedKey: wrong.toString('base64') });
      await assert.rejects(api(200, body).api.secret(KEY, PUBLIC_KEY), withCode('secret_exchange_failed'));
    }
    for (const missing of ['EncapsulatedKey', 'Signature', 'MeshCert']) {
      const body = JSON.stringify({ ...good, [missing]: undefined });
      await assert.rejects(api(200, body).api.secret(KEY, PUBLIC_KEY), withCode('secret_exchange_failed'));
    }
  });

  it('throws nothing but PrivatemodeError, whatever the service answers', async () => {
    const text = fc.oneof(
      fc.json(),
      fc.json().map((member) => `{"AttestationDoc":${member}}`),
    );
    const answers = fc.oneof(fc.uint8Array({ maxLength: 300 }), text);
    await fc.assert(
      fc.asyncProperty(answers, fc.constantFrom(200, 401, 500), async (body, status) => {
        const { api: control } = api(status, body);
        for (const asked of [control.attest(KEY, NONCE), control.secret(KEY, PUBLIC_KEY)]) {
          const answer: unknown = await asked.catch((error: unknown) => error);
          assert.ok(answer instanceof Uint8Array || answer instanceof PrivatemodeError, String(answer));
        }
      }),
      { seed: 20261121, numRuns: 300 },
    );
  });
});
