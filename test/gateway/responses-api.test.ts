/** POST /v1/responses with --responses-api, through the whole program to the simulated service. */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, it } from 'node:test';
import { CANARY } from '../support/doors/gateway-fixture.ts';
import { DOOR, proxyAlone } from '../support/doors/library-door.ts';
import { type Stack, startStack } from '../support/doors/stack.ts';
import { freePort } from '../support/processes/foreign-programs.ts';

const PROMPT = `${CANARY} hello there`;
const TOOL = { type: 'function', name: 'read_file', parameters: { type: 'object' }, strict: false } as const;

describe('POST /v1/responses', { timeout: 600_000 }, () => {
  let stack: Stack;
  let admin: string;
  before(async () => {
    admin = `127.0.0.1:${await freePort()}`;
    stack = await startStack({ flags: ['--responses-api', `--admin-address=${admin}`] });
  });
  after(() => stack.close());
  afterEach(() => {
    assert.deepEqual(stack.simulator.exchanges.violations(), []);
    assert.equal(stack.simulator.recorder.containing(CANARY).length, 0);
    assert.ok(!stack.logLines.join('').includes(CANARY));
  });

  const post = (body: object): Promise<Response> =>
    fetch(`${stack.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });

  it('answers with a whole body and its Content-Length, and is an endpoint of its own in log and metrics', {
    skip: proxyAlone('counters'),
  }, async () => {
    const response = await post({ model: 'sim-echo', input: PROMPT, store: true });
    const text = await response.text();
    assert.equal(response.headers.get('content-length'), String(Buffer.byteLength(text)));
    const { object, status, output, store } = JSON.parse(text);
    assert.deepEqual([object, status, store], ['response', 'completed', false]);
    assert.equal(output[0].content[0].text.trim(), PROMPT);
    const id = response.headers.get('privatemode-proxy-request-id') as string;
    assert.ok(stack.logLines.some((line) => line.includes(id) && line.includes('"path":"/v1/responses"')));
    const metrics = await fetch(`http://${admin}/metrics`, { headers: { connection: 'close' } });
    assert.match(await metrics.text(), /requests_total\{route="responses",method="POST",code="200"/);
  });

  it('leaves hosted tools out, and names them in a header and the log, unknown ones as "other"', async () => {
    const tools = [{ type: 'web_search' }, { type: CANARY }, TOOL];
    const response = await post({ model: 'sim-echo', input: PROMPT, tools });
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('privatemode-proxy-tools-left-out'), 'web_search, other');
    await response.text();
    if (DOOR === 'proxy')
      assert.ok(stack.logLines.some((line) => line.includes('"toolsLeftOut":"web_search, other"')));
  });
});
