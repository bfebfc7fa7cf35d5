/** API keys, end to end: whose key the service sees, and whose key attests. */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { StatusReport } from '../../lib/observe/status-report.ts';
import { CANARY } from '../support/doors/gateway-fixture.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { eventually } from '../support/processes/eventually.ts';
import { freePort } from '../support/processes/foreign-programs.ts';
import { temporaryDirectory } from '../support/processes/temporary-directory.ts';

type Headers = Record<string, string>;

const BODY = JSON.stringify({ model: 'sim-echo', messages: [{ role: 'user', content: 'x' }] });

const CLIENTS: [name: string, headers: Headers][] = [
  ['nothing', {}],
  ['a bearer', { authorization: 'Bearer client-key' }],
  ['the placeholder', { authorization: 'Bearer placeholder' }],
  ['the placeholder in small letters', { authorization: 'bearer placeholder' }],
  ['an x-api-key', { 'x-api-key': 'client-key' }],
  ['the placeholder as x-api-key', { 'x-api-key': 'placeholder' }],
  ['a bearer and an x-api-key', { authorization: 'Bearer client-key', 'x-api-key': 'vendor-key' }],
];

/** What the service sees in Authorization, in the order of CLIENTS; undefined: none. */
const MODES: [name: string, flags: readonly string[], seen: readonly (string | undefined)[]][] = [
  ['by default', [], CLIENTS.map(() => 'Bearer configured')],
  ['--api-key-fallback=always', ['--api-key-fallback=always'], CLIENTS.map(() => 'Bearer configured')],
  [
    '--api-key-fallback=never',
    ['--api-key-fallback=never'],
    [
      undefined,
      'Bearer client-key',
      'Bearer placeholder',
      'bearer placeholder',
      'Bearer client-key',
      'Bearer placeholder',
      'Bearer client-key',
    ],
  ],
  [
    '--api-key-fallback=if-placeholder',
    ['--api-key-fallback=if-placeholder'],
    [
      undefined,
      'Bearer client-key',
      'Bearer configured',
      'bearer placeholder',
      'Bearer client-key',
      'Bearer configured',
      'Bearer client-key',
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

for (const [mode, flags, expected] of MODES) {
  describe(`with a key configured, ${mode}`, () => {
    let stack: Stack;
    before(async () => {
      stack = await startStack({ apiKey: 'configured', flags });
      await eventually('the attestation', () => stack.proxy.session.current() !== undefined);
    });
    after(() => stack.close());

    for (const [i, [name, headers]] of CLIENTS.entries()) {
      it(`a client that sends ${name}: the service sees ${expected[i] ?? 'none'}`, async () => {
        // The service takes bearers only; what to do about others is the client's to decide.
        const served = expected[i]?.startsWith('Bearer ') === true;
        assert.equal((await chat(stack.url, headers)).status, served ? 200 : 401);
        assert.deepEqual(seenBy(stack), { authorization: expected[i], others: [] });
        await fetch(`${stack.url}/v1/models`, { headers });
        assert.deepEqual(seenBy(stack), { authorization: expected[i], others: [] });
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

  it('the proxy is ready for the first client: /readyz is 204 with the state awaiting-key', async () => {
    const ready = await fetch(`${stack.url}/readyz`);
    assert.deepEqual([ready.status, ready.headers.get('privatemode-proxy-state')], [204, 'awaiting-key']);
  });

  it('a request without a key gets 401 before anything is attested', async () => {
    const answer = await chat(stack.url);
    assert.equal(answer.status, 401);
    assert.equal(answer.headers.get('www-authenticate'), 'Bearer');
    assert.match(await answer.text(), /"code":"api_key_missing"/);
    assert.equal(stack.simulator.counts['attest'], 0);
  });

  it('a bad key gives a 401 to its own client, and is offered to the service once', async () => {
    for (let i = 0; i < 3; i++) {
      const answer = await chat(stack.url, { authorization: 'Bearer wrong-key' });
      assert.equal(answer.status, 401);
      assert.match(await answer.text(), /"code":"api_key_rejected"/);
    }
    assert.ok((stack.simulator.counts['attest'] ?? 0) <= 1, 'the key was offered again and again');
  });

  it("the first good key is used to attest, and each client's own key is sent with its requests", async () => {
    assert.equal((await chat(stack.url, { 'x-api-key': 'client-key' })).status, 200);
    assert.deepEqual(seenBy(stack), { authorization: 'Bearer client-key', others: [] });
    assert.equal((await fetch(`${stack.url}/readyz`)).headers.get('privatemode-proxy-state'), null);
    stack.simulator.setApiKeys(undefined);
    assert.equal((await chat(stack.url, { authorization: 'Bearer another' })).status, 200);
    assert.deepEqual(seenBy(stack), { authorization: 'Bearer another', others: [] });
  });
});

describe('a key file', () => {
  it('is read again on reload, and the new key is the one that is sent', async (t) => {
    const directory = temporaryDirectory('privatemode-key-');
    const path = join(directory, 'key');
    writeFileSync(path, ' first-key\n');
    const stack = await startStack({ apiKey: `@${path}` });
    t.after(async () => {
      await stack.close();
    });
    await chat(stack.url);
    assert.equal(seenBy(stack).authorization, 'Bearer first-key');
    writeFileSync(path, `second-${CANARY}\n`);
    stack.proxy.reload();
    await eventually('the file to be read again', () =>
      stack.logLines.join('').includes('The API key file was read again'),
    );
    await chat(stack.url);
    assert.equal(seenBy(stack).authorization, `Bearer second-${CANARY}`);
    assert.ok(!stack.logLines.join('').includes(CANARY));
  });

  it('is named in the log if the service rejects its key, or if a reload finds no key in it', async (t) => {
    const directory = temporaryDirectory('privatemode-key-');
    const path = join(directory, 'key');
    writeFileSync(path, `first-${CANARY}\n`);
    const admin = await freePort();
    const stack = await startStack({
      apiKey: `@${path}`,
      simulator: { apiKey: `first-${CANARY}` },
      flags: [`--admin-address=127.0.0.1:${admin}`],
      times: { secretRenew: 3_000, secretJitter: 0, secretUsable: 3_600_000 },
    });
    t.after(async () => {
      await stack.close();
    });
    const lines = (): Record<string, unknown>[] =>
      stack.logLines.map((line) => JSON.parse(line) as Record<string, unknown>);
    assert.equal((await chat(stack.url)).status, 200);

    writeFileSync(path, `PRIVATEMODE_API_KEY=second-${CANARY}\n`);
    stack.proxy.reload();
    const kept = (): Record<string, unknown> | undefined =>
      lines().find(({ msg }) => msg === 'The API key file cannot be used, the old key stays');
    await eventually('a line about the key file', () => kept() !== undefined);
    assert.deepEqual(
      [kept()?.['level'], kept()?.['reason']],
      [
        'ERROR',
        `the API key file ${JSON.stringify(path)} holds NAME=KEY: leave out the name and the equals sign`,
      ],
    );

    stack.simulator.setApiKeys(['another-key']);
    const from = new RegExp(`^--api-key @${path}, read at \\d{4}-\\d\\d-\\d\\dT[\\d:.]+Z$`);
    assert.equal((await chat(stack.url)).status, 401);
    assert.match(String(lines().find(({ keyFrom }) => keyFrom !== undefined)?.['keyFrom']), from);
    const failed = (): Record<string, unknown> | undefined =>
      lines().find(({ code, msg }) => code === 'api_key_rejected' && /trying again/.test(String(msg)));
    await eventually('a renewal that fails', () => failed() !== undefined);
    const words = new RegExp(`\\(the key of ${from.source.slice(1, -1)}\\)$`);
    assert.match(String(failed()?.['reason']), words);
    const status = (await (await fetch(`http://127.0.0.1:${admin}/status`)).json()) as StatusReport;
    assert.match(status.lastError?.message ?? '', words);
    assert.ok(!stack.logLines.join('').includes(CANARY));
  });
});
