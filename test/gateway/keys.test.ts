/** API keys, end to end: whose key the service sees, and whose key attests. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CANARY } from '../support/doors/gateway-fixture.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

type Headers = Record<string, string>;

const BODY = JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] });

/** What a client sends, and what the service sees in Authorization; undefined: none. */
type Key = readonly [sends: Headers, seen: string | undefined];

/** All cases: test/pipeline/rewrite-auth.test.ts. */
const MODES: readonly (readonly [flags: readonly string[], keys: readonly Key[]])[] = [
  [
    [],
    [
      [{}, 'Bearer configured'],
      [{ authorization: 'Bearer client-key', 'x-api-key': 'vendor-key' }, 'Bearer configured'],
    ],
  ],
  [
    ['--api-key-fallback=never'],
    [
      [{}, undefined],
      [{ authorization: 'Bearer client-key', 'x-api-key': 'vendor-key' }, 'Bearer client-key'],
      [{ 'x-api-key': 'client-key' }, 'Bearer client-key'],
      [{ authorization: 'bearer placeholder' }, 'bearer placeholder'],
    ],
  ],
  [
    ['--api-key-fallback=if-placeholder'],
    [
      [{ 'x-api-key': 'client-key' }, 'Bearer client-key'],
      [{ 'x-api-key': 'placeholder' }, 'Bearer configured'],
    ],
  ],
];

const chat = (url: string, headers: Headers = {}): Promise<Response> =>
  fetch(`${url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: BODY,
  });

/** Authorization of the last inference request, and whether an x-api-key came with it. */
function seenBy({ simulator }: Stack): { authorization: string | undefined; others: string[] } {
  const headers: Readonly<Headers> = simulator.recorder.requests().at(-1)?.headers ?? {};
  const others = Object.keys(headers).filter((name) => /api-?key|cookie|user-agent/.test(name));
  return { authorization: headers['authorization'], others };
}

for (const [flags, keys] of MODES) {
  describe(`with a key configured, ${flags[0] ?? 'by default'}`, () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack({ apiKey: 'configured', flags });
      await eventually('the attestation', () => stack.proxy.session.current() !== undefined);
    });
    after(() => stack.close());

    for (const [sends, seen] of keys) {
      it(`a client that sends ${JSON.stringify(sends)}: the service sees ${seen ?? 'none'}`, async () => {
        // The service takes bearers only; what to do about others is the client's to decide.
        const served = seen?.startsWith('Bearer ') === true;
        assert.equal((await chat(stack.url, sends)).status, served ? 200 : 401);
        assert.deepEqual(seenBy(stack), { authorization: seen, others: [] });
        await fetch(`${stack.url}/v1/models`, { headers: sends });
        assert.deepEqual(seenBy(stack), { authorization: seen, others: [] });
      });
    }

    it('the proxy attests with the configured key, and no key is in the log', () => {
      const attested = stack.simulator.recorder
        .requests()
        .filter(({ path }) => path.startsWith('/privatemode/'));
      assert.ok(attested.length >= 2);
      for (const { headers } of attested) assert.equal(headers['authorization'], 'Bearer configured');
      assert.doesNotMatch(stack.logLines.join(''), /configured"|client-key|vendor-key/);
    });
  });
}

describe('without a key configured', () => {
  let stack: Stack;
  before(async () => {
    stack = await startStack({ apiKey: null, simulator: { apiKey: 'client-key' } });
  });
  after(() => stack.close());

  it('a request without a key gets 401 before anything is attested', async () => {
    const answer = await chat(stack.url);
    assert.equal(answer.status, 401);
    assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
    assert.match(await answer.text(), /"code":"api_key_missing"/);
    assert.equal(stack.simulator.counts['attest'], 0);
  });

  it("the first good key is used to attest, and each client's own key is sent with its requests", async () => {
    assert.equal((await chat(stack.url, { 'x-api-key': 'client-key' })).status, 200);
    assert.deepEqual(seenBy(stack), { authorization: 'Bearer client-key', others: [] });
    stack.simulator.setApiKeys(undefined);
    assert.equal((await chat(stack.url, { authorization: 'Bearer another' })).status, 200);
    assert.deepEqual(seenBy(stack), { authorization: 'Bearer another', others: [] });
  });
});

it('a key file is read again on a reload; a file without a key keeps the old one, and no key is in the log', async (t) => {
  const path = join(temporaryDirectory('privatemode-key-'), 'key');
  writeFileSync(path, ' first-key\n');
  const stack = await startStack({ apiKey: `@${path}` });
  t.after(() => stack.close());
  const seenAfter = async (content: string, line: string): Promise<string | undefined> => {
    writeFileSync(path, content);
    stack.proxy.reload();
    await eventually(`"${line}"`, () => stack.logLines.join('').includes(line));
    await chat(stack.url);
    return seenBy(stack).authorization;
  };
  await chat(stack.url);
  assert.equal(seenBy(stack).authorization, 'Bearer first-key');
  const key = `second-${CANARY}`;
  assert.equal(await seenAfter(key, 'The API key file was read again'), `Bearer ${key}`);
  const kept = await seenAfter(`PRIVATEMODE_API_KEY=third-${CANARY}\n`, 'the old key stays');
  assert.equal(kept, `Bearer ${key}`);
  assert.ok(!stack.logLines.join('').includes(CANARY));
});
