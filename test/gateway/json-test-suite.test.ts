/**
 * The JSON parsing test suite (test/vectors/foreign) as request bodies, over real connections. Each file is sent as the
 * whole body, and as the value of a member: a body has to be an object that names a model.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { startGateway, type TestGateway } from '../support/gateway.ts';
import { answerTo, codeOf, post } from '../support/gateway-fixture.ts';
import { literalOpen, literalOrder } from '../support/literal-envelope.ts';
import { type RawAnswer, rawClient } from '../support/raw-client.ts';
import { type ScriptedUpstream, startScriptedUpstream } from '../support/scripted-upstream.ts';
import { completion, exchangeOf } from '../support/sealed-answers.ts';

const FOLDER = join(import.meta.dirname, '../vectors/foreign/json-test-suite/test_parsing');
const FILES = readdirSync(FOLDER).toSorted();

/** What JSON.parse makes of these bytes, as a service must decode them: strictly. */
function parsed(bytes: Uint8Array): { readonly value: unknown } | undefined {
  try {
    return { value: JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)) };
  } catch {
    return undefined;
  }
}

const isObject = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

describe('the JSON parsing test suite as request bodies', () => {
  let upstream: ScriptedUpstream;
  let gateway: TestGateway;
  before(async () => {
    upstream = await startScriptedUpstream();
    upstream.answers(completion);
    gateway = await startGateway({ upstream });
  });
  after(async () => {
    assert.deepEqual(upstream.violations, []);
    await gateway.close();
    await upstream.close();
  });

  /** Sends a body and gives the answer, and how many requests it led to. */
  async function ask(body: Uint8Array): Promise<RawAnswer & { readonly sent: number }> {
    upstream.clear();
    const client = rawClient(gateway.port);
    client.send(post(body, { headers: ['Connection: close'] }));
    const answer = await answerTo(client);
    client.socket.destroy();
    return { ...answer, sent: upstream.requests.length };
  }

  /** The plaintext bytes of a member that went out sealed beside `cache_salt` and the model. */
  function sealedValue(name: string): Buffer {
    const body = upstream.requests[0]?.body as Buffer;
    const members = JSON.parse(body.toString()) as Record<string, string>;
    const sequence = literalOrder(Object.keys(members), ['model']).indexOf(name);
    return literalOpen(exchangeOf(body), sequence, `"${members[name]}"`);
  }

  it('are all there', () => assert.equal(FILES.length, 318));

  for (const file of FILES) {
    const bytes = readFileSync(join(FOLDER, file));
    const expected = parsed(bytes);
    if (file.startsWith('y_')) assert.ok(expected !== undefined, file);
    if (file.startsWith('n_')) assert.ok(expected === undefined, file);

    it(`${file}: 400 as a body, ${isObject(expected?.value) ? 'for want of a model' : 'being no JSON object'}`, async () => {
      const answer = await ask(bytes);
      assert.deepEqual([answer.status, answer.sent], [400, 0]);
      const reason = isObject(expected?.value) ? ['missing_model', 'duplicate_member'] : ['invalid_json'];
      const code = codeOf(answer);
      assert.ok([...reason, 'unsupported_member_name'].includes(code), code); // a bad name is told at once
    });

    it(`${file}: ${expected === undefined ? '400, and nothing is sent,' : 'sealed byte for byte'} as a value`, async () => {
      const answer = await ask(Buffer.concat([Buffer.from('{"model":"m","x":'), bytes, Buffer.from('}')]));
      if (expected === undefined) {
        assert.deepEqual([answer.status, answer.sent, codeOf(answer)], [400, 0, 'invalid_json']);
      } else {
        assert.deepEqual([answer.status, answer.sent], [200, 1]);
        const blanks = /^[ \t\r\n]+|[ \t\r\n]+$/g;
        assert.equal(sealedValue('x').toString('latin1'), bytes.toString('latin1').replace(blanks, ''));
      }
    });
  }
});
